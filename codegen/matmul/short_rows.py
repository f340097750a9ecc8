"""Dot products of short rows with a vector: as many rows together as a register has lanes.

    rows_of_K(m, k, A, a_row, x, C, c_row, accumulate, all)

as `dot.define_rows`, for k = K alone; nothing is in C before.

A row whose length is known to be a few registers is these registers, without a loop or a mask that
is computed, and x is in registers. What takes longest are the sums over lanes, which as many
rows share as a register has lanes (`trees.transposed_totals`). By AVX2 rows that turn out to be as
short are taken so, too, by masks (`few_registers`).

The virtual lanes, and the tree by which they are added, are those of rows of any other length
(`dot`), so the bits are the same.
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.pack import PIECE_BITS
from graphc.codegen.matmul.tiling import prefix, tail_mask, tiling
from graphc.codegen.matmul.trees import line_sum, totals, transposed_totals
from graphc.dims import Size
from graphc.types import DType

# Bytes of a row: x has as many registers, or is read again where a CPU has no more. 12,121 rows of
# 33 f64 take Zen 4 by AVX2 121 us in the loops that rows of any length have, 37 so.
MOST_BYTES = 512
# Registers of a row that may be partial where its length comes with the call: each wants a mask and
# a part of x beside it, of 16 registers.
FEW = 4


def is_short(target: Target, dtype: DType, k: Size) -> bool:
    """Whether rows of k elements are a few registers, and more than one."""
    lanes = target.lanes(dtype)
    if not isinstance(k, int) or lanes * dtype.bits <= PIECE_BITS:
        return False
    fits = lanes < k <= MOST_BYTES // dtype.itemsize
    return fits and (tiling(target, dtype).masked or k % lanes == 0)


def define_short_rows(module: Module, target: Target, dtype: DType, k: int) -> str:
    """Define `rows_of_K` for f32 or f64; returns its name."""
    name = f"{prefix(dtype)}_rows_of_{k}"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_row, ptr %x, ptr noalias %c, i64 %c_row, "
        "i1 %accumulate, i64 %all",
        target, tuned=True,
    )
    whole_registers, rest = divmod(k, target.lanes(dtype))
    row = _Row(f, dtype, str(k), whole_registers, int(rest > 0))
    together = f.cmp("eq", "%c_row", str(dtype.itemsize))
    whole = f.select(together, f(f"and i64 %m, {-row.L.width}"), "0")
    row.take(whole)
    one = Lanes(f, 1, target)
    with f.each(whole, "%m") as i:
        lanes = row.lanes(f.at("%a", f.mul(i.index, "%a_row")))
        (total,) = totals(f, row.L, register_type(dtype), [lanes])
        one.store(dtype, total, f.at("%c", f.mul(i.index, "%c_row")))
    f.finish()
    return name


def few_registers(f: Function, dtype: DType) -> str:
    """Emit the products of rows of twice FEW registers at most in `dot.define_rows`, whose
    parameters f has, if nothing is in C before; how many rows they are.

    Elsewhere a row there takes as many masked registers as there are virtual lanes, of itself and
    of x, and a tree alone: 1000x1x20 f32 takes Zen 3 13.7 us, 3.5 so, f64 9.9 and 5.
    """
    lanes, done = f.target.lanes(dtype), "0"
    first = f("xor i1 %accumulate, true")
    together = f.all_of([first, f.cmp("eq", "%c_row", str(dtype.itemsize))])
    for least in (0, FEW):
        fits = [f.cmp("sgt", "%k", str(least * lanes)),
                f.cmp("sle", "%k", str((least + FEW) * lanes))]
        whole = f.select(f.all_of([together, *fits]), f(f"and i64 %m, {-lanes}"), "0")
        with f.when(f.cmp("ne", whole, "0")):
            _Row(f, dtype, "%k", least, FEW).take(whole)
        done = f.add(done, whole)
    return done


class _Row:
    """x in registers, and what multiplies a row with it."""

    def __init__(self, f: Function, dtype: DType, k: str, whole: int, others: int):
        """`others`: registers behind the whole ones, of which all may be partial or empty."""
        self.f, self.dtype = f, dtype
        self.L = Lanes(f, f.target.lanes(dtype), f.target)
        self.parts = [self.L] * whole
        for start in range(whole * self.L.width, (whole + others) * self.L.width, self.L.width):
            left = f.max(f.sub(k, str(start)), "0")
            mask = tail_mask(f, dtype, self.L.width, left)
            self.parts.append(Lanes(f, self.L.width, f.target, mask=mask))
        self.x = self._registers("%x")

    def _registers(self, row: str) -> list[str]:
        """The elements of a row, zeros behind the last."""
        size = self.L.width * self.dtype.itemsize
        return [
            part.load(self.dtype, self.f.at(row, i * size)) for i, part in enumerate(self.parts)
        ]

    def lanes(self, row: str) -> str:
        """The products of a row, as one register of its sum."""
        t, sums = register_type(self.dtype), list[str]()
        count = VIRTUAL_BITS // self.f.target.vector_bits
        for i, (a, x) in enumerate(zip(self._registers(row), self.x, strict=True)):
            if i < count:
                sums.append(self.L.op("fmul", t, a, x))
            else:
                sums[i % count] = self.L.fma(t, a, x, sums[i % count])
        return line_sum(self.L, t, sums)

    def take(self, whole: str) -> None:
        """The first `whole` rows, as many at a time as a register has lanes, to contiguous C."""
        f, L, dtype = self.f, self.L, self.dtype
        with f.each("0", whole, L.width) as i:
            first = f.at("%a", f.mul(i.index, "%a_row"))
            sums = transposed_totals(
                L, register_type(dtype), lambda r: self.lanes(f.at(first, f.mul("%a_row", r)))
            )
            L.store(dtype, sums, f.at("%c", f.mul(i.index, dtype.itemsize)))
