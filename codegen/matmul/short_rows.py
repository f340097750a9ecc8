"""Dot products of short rows with a vector: as many rows together as a register has lanes.

    rows_of_K(m, k, A, a_row, x, C, c_row, accumulate)    as `dot.define_rows`, for k = K alone;
                                                          nothing is in C before

A row whose length is known to be a few registers is these registers, without a loop or a mask that
is computed, and x is in registers. What takes longest are the sums over lanes, which as many
rows share as a register has lanes (`trees.transposed_totals`).

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
        "i1 %accumulate",
        target, tuned=True,
    )
    row = _Row(f, dtype, k)
    L, t = row.L, register_type(dtype)
    together = f.cmp("eq", "%c_row", str(dtype.itemsize))
    whole = f.select(together, f(f"and i64 %m, {-L.width}"), "0")
    with f.each("0", whole, L.width) as i:
        first = f.at("%a", f.mul(i.index, "%a_row"))
        sums = transposed_totals(L, t, lambda r: row.lanes(f.at(first, f.mul("%a_row", r))))
        L.store(dtype, sums, f.at("%c", f.mul(i.index, dtype.itemsize)))
    one = Lanes(f, 1, target)
    with f.each(whole, "%m") as i:
        (total,) = totals(f, L, t, [row.lanes(f.at("%a", f.mul(i.index, "%a_row")))])
        one.store(dtype, total, f.at("%c", f.mul(i.index, "%c_row")))
    f.finish()
    return name


class _Row:
    """x in registers, and what multiplies a row with it."""

    def __init__(self, f: Function, dtype: DType, k: int):
        self.f, self.dtype = f, dtype
        self.L = Lanes(f, f.target.lanes(dtype), f.target)
        lanes = self.L.width
        self.parts = [
            self.L if start + lanes <= k
            else Lanes(f, lanes, f.target, mask=tail_mask(f, dtype, lanes, str(k - start)))
            for start in range(0, k, lanes)
        ]
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
