"""Dot products of a few rows with x, while as many others are added to sums: the loop of `both`.

    pair(k, A, B, row, x, y, v, z, accumulate)        z += v @ B; y = A @ x, or added to it

`row`: bytes from row to row of A and B.

Rows that all lie across lines are read by whole ones (`lines`). Every element is added in the order
of `dots` and `add`. z had better lie across lines as A does (`off_line`).

GB/s of A of f32 on Zen 5, so and as they lie, A^T (A x) with A beside a line:

    4096 x 256     87  60      1024 x 1024    93  61      1024 x 2048    76  54
    24000 x 256    52  36      24000 x 1024   37  25
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.dot import RowTail, lane_sums
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.lines import ByLines, off_line
from graphc.codegen.matmul.row import row_parts
from graphc.codegen.matmul.tiling import prefix
from graphc.codegen.matmul.trees import line_sum, totals
from graphc.types import DType

MOST_ROWS = 4  # of A, and as many of B
ASKED_ROW = 1 << 12  # bytes of rows that are asked for ahead: with longer ones they would be gone

_PARAMS = (
    "i64 %k, ptr %a, ptr %b, i64 %row, ptr %x, ptr noalias %y, ptr %v, ptr noalias %z, "
    "i1 %accumulate"
)


def rows_at_once(target: Target) -> tuple[int, ...]:
    """How many rows of A there are `pair`s for."""
    count = VIRTUAL_BITS // target.vector_bits
    if target.masked:
        return (MOST_ROWS, MOST_ROWS // 2)
    return (MOST_ROWS if target.registers >= 4 * count + 8 else 1,)


def define_pair(module: Module, target: Target, dtype: DType, rows: int) -> str:
    """Define `pair` of so many rows, for f32 or f64; returns its name."""
    name = f"{prefix(dtype)}_pair_{rows}"
    if name in module.functions:
        return name
    f = Function(module, name, _PARAMS, target, tuned=True)
    one, size, t = Lanes(f, 1, target), dtype.itemsize, register_type(dtype)
    L = Lanes(f, target.lanes(dtype), target)
    factors = [one.load(dtype, f.at("%v", i * size)) for i in range(rows)]
    sums = (_by_lines if target.masked else _as_they_lie)(f, L, dtype, rows, factors)
    for i, total in enumerate(totals(f, L, t, [line_sum(L, t, q) for q in sums])):
        place = f.at("%y", i * size)
        old = one.load(dtype, place)
        x = f(f"select i1 %accumulate, {t} {f(f'fadd {t} {old}, {total}')}, {t} {total}")
        one.store(dtype, x, place)
    f.finish()
    return name


def _as_they_lie(
    f: Function, L: Lanes, dtype: DType, rows: int, factors: Sequence[str]
) -> list[list[str]]:
    """The lanes of the sums of A's rows; B's are added to z."""
    size, t, target = dtype.itemsize, register_type(dtype), f.target
    count = VIRTUAL_BITS // target.vector_bits
    whole = f(f"and i64 %k, {-VIRTUAL_BITS // dtype.bits}")
    tail = RowTail(f, L, dtype, whole, count)
    a, b = ([f.at(p, f.mul("%row", i)) for i in range(rows)] for p in ("%a", "%b"))

    def add(M: Lanes, wide: Sequence[str], shift: str) -> None:
        place = f.at("%z", shift)
        z = M.load(dtype, place)
        for factor, line in zip(wide, b, strict=True):
            z = M.fma(t, factor, M.load(dtype, f.at(line, shift)), z)
        M.store(dtype, z, place)

    wide = [L.splat(dtype, x) for x in factors]
    sums = tail(a, lane_sums(
        f, L, dtype, a, whole, count, beside=lambda shift: add(L, wide, shift)))
    for M, start, stop in row_parts(f, dtype, f.mul(whole, size), f.mul("%k", size)):
        splats = [M.splat(dtype, x) for x in factors]
        with f.each(start, stop, M.width * size) as c:
            add(M, splats, c.index)
    return sums


def _by_lines(
    f: Function, L: Lanes, dtype: DType, rows: int, factors: Sequence[str]
) -> list[list[str]]:
    """Likewise by whole lines."""
    t, target = register_type(dtype), f.target
    lines = ByLines(f, L, dtype, off_line(f, target, "%a", "%row"))
    x, z, *pointers = (
        lines.begin(p) for p in (
            "%x", "%z", *(f.at(p, f.mul("%row", i)) for p in ("%a", "%b") for i in range(rows)))
    )
    wide = [L.splat(dtype, factor) for factor in factors]

    def add(M: Lanes, here: str) -> None:
        place = f.at(z, here)
        total = M.load(dtype, place)
        for factor, p in zip(wide, pointers[rows:], strict=True):
            total = L.fma(t, factor, M.load(dtype, f.at(p, here)), total)
        M.store(dtype, total, place)

    ask = partial(_ask, f, rows) if target.reads_ahead else None
    return lines.sums(pointers[:rows], x, beside=add, ask=ask)


def _ask(f: Function, rows: int, shift: str) -> None:
    """Ask for the rows behind, as they lie, while `shift` bytes along these."""
    near = f.cmp("sle", "%row", str(ASKED_ROW))
    times = f.select(near, str(rows), "0")
    at = f.at(f.at("%a", f.mul("%row", times)), f.mul(shift, times))
    for line in range(rows * VIRTUAL_BITS // 8 // LINE):
        f.prefetch(f.at(at, line * LINE))
