"""Dot products of a few rows with x, while as many others are added to sums: the loop of `both`.

    pair(k, A, B, row, x, y, v, z, accumulate)        z += v @ B; y = A @ x, or added to it

`row`: bytes from row to row of A and B.

NumPy's arrays begin 16 bytes into a page, and a load across two cache lines is two. Of rows that
all lie so across lines, an AVX-512 CPU reads whole lines, the first under a mask, so that lanes
hold other elements than those of a row that begins a line: the lanes of a row's sum are turned back
in the end, before the tree that adds them up. Every element is added in the order of `dots` and
`add`. z had better lie across lines as A does (`off_line`).

GB/s of A of f32 on Zen 5, so and as they lie, A^T (A x) with A beside a line:

    4096 x 256     87  60      1024 x 1024    93  61      1024 x 2048    76  54
    24000 x 256    52  36      24000 x 1024   37  25
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.dot import RowTail, lane_sums
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.row import row_parts
from graphc.codegen.matmul.tiling import prefix, tail_mask
from graphc.codegen.matmul.trees import line_sum, totals
from graphc.types import DType

MOST_ROWS = 4  # of A, and as many of B
ASKED_ROW = 1 << 12  # bytes of rows that are asked for ahead: with longer ones they would be gone

_PARAMS = (
    "i64 %k, ptr %a, ptr %b, i64 %row, ptr %x, ptr noalias %y, ptr %v, ptr noalias %z, "
    "i1 %accumulate"
)


def off_line(f: Function, target: Target, p: str, row: str) -> str:
    """Bytes by which rows from p on, so many apart, all begin after a line; 0 if they differ, or
    where that is not made up for."""
    if not target.masked:
        return "0"
    behind = f(f"and i64 {f(f'ptrtoint ptr {p} to i64')}, {LINE - 1}")
    alike = f.cmp("eq", f(f"and i64 {row}, {LINE - 1}"), "0")
    return f.select(alike, behind, "0")


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
    """Likewise by whole lines, the first and the last under masks."""
    size, t, v, target = dtype.itemsize, register_type(dtype), L.reg(dtype), f.target
    step, lines = VIRTUAL_BITS // dtype.bits, VIRTUAL_BITS // target.vector_bits
    back = off_line(f, target, "%a", "%row")
    before = f.udiv(back, size)  # elements of the first line that are not the row's
    length = f.add("%k", before)
    whole = f(f"and i64 {length}, {-step}")
    left = f.sub(length, whole)
    at_line = f.sub("0", back)
    x, z, *pointers = (
        f.at(p, at_line) for p in (
            "%x", "%z", *(f.at(p, f.mul("%row", i)) for p in ("%a", "%b") for i in range(rows)))
    )
    a, b = pointers[:rows], pointers[rows:]
    wide = [L.splat(dtype, factor) for factor in factors]

    def line(here: str, sums: Sequence[str], mask: str | None) -> list[str]:
        """The sums of one line of the rows, with that at `here`."""
        M = L if mask is None else Lanes(f, L.width, target, mask=mask)
        factor, place = M.load(dtype, f.at(x, here)), f.at(z, here)
        new = [
            L.fma(t, M.load(dtype, f.at(p, here)), factor, q) for p, q in zip(a, sums, strict=True)
        ]
        total = M.load(dtype, place)
        for factor, p in zip(wide, b, strict=True):
            total = L.fma(t, factor, M.load(dtype, f.at(p, here)), total)
        M.store(dtype, total, place)
        return new

    m = f"<{L.width} x i1>"
    head = f(f"xor {m} {tail_mask(f, dtype, L.width, before)}, splat (i1 true)")
    first, loop, end = f.block, f.fresh("pair"), f.fresh("lines")
    f.do(f"br i1 {f.cmp('sgt', whole, '0')}, label %{loop}, label %{end}")
    f.label(loop)
    at, shift = len(f.lines), f.mul(f"%{loop}i", size)
    old = [[f"%{loop}s{r}_{i}" for r in range(rows)] for i in range(lines)]
    if target.reads_ahead:
        _ask(f, rows, shift)
    new = [
        line(f.add(shift, str(i * LINE)), q, None if i else f"%{loop}m")
        for i, q in enumerate(old)
    ]
    following, last = f.add(f"%{loop}i", str(step)), f.block
    f.lines[at:at] = [
        f"  %{loop}i = phi i64 [0, %{first}], [{following}, %{last}]",
        f"  %{loop}m = phi {m} [{head}, %{first}], [splat (i1 true), %{last}]",
        *(f"  {p} = phi {v} [zeroinitializer, %{first}], [{q}, %{last}]"
          for p, q in zip(chain.from_iterable(old), chain.from_iterable(new), strict=True)),
    ]
    f.do(f"br i1 {f.cmp('slt', following, whole)}, label %{loop}, label %{end}, !llvm.loop !0")
    f.label(end)
    mask = f(f"phi {m} [{head}, %{first}], [splat (i1 true), %{last}]")
    sums = [
        [f(f"phi {v} [zeroinitializer, %{first}], [{q}, %{last}]") for q in found] for found in new
    ]
    for i in range(lines):  # of what is left mostly one, of a row of whole lines
        rest = f.sub(left, str(i * L.width))
        some, after, before_it = f.fresh("some"), f.fresh("after"), f.block
        f.do(f"br i1 {f.cmp('sgt', rest, '0')}, label %{some}, label %{after}")
        f.label(some)
        masked = tail_mask(f, dtype, L.width, rest)
        if not i:
            masked = f(f"and {m} {masked}, {mask}")
        more, last = line(f.mul(f.add(whole, str(i * L.width)), size), sums[i], masked), f.block
        f.branch(after)
        sums[i] = [
            f(f"phi {v} [{p}, %{before_it}], [{q}, %{last}]")
            for p, q in zip(sums[i], more, strict=True)
        ]
    turned = [list(found) for found in zip(*sums, strict=True)]
    return _turned_back(f, L, dtype, before, turned)


def _turned_back(
    f: Function, L: Lanes, dtype: DType, before: str, sums: list[list[str]]
) -> list[list[str]]:
    """Lanes of rows as they are where the first element is in the first lane, not behind `before`
    others."""
    v, i = L.reg(dtype), f"i{dtype.bits}"
    w = f"<{L.width} x {i}>"
    name = f"llvm.x86.avx512.vpermi2var.{'ps' if dtype.bits == 32 else 'pd'}.512"
    f.module.declare(name, f"declare {v} @{name}({v}, {w}, {v})")
    n = f(f"trunc i64 {before} to {i}") if dtype.bits < 64 else before
    places = f(f"add {w} {L.spread(i, n)}, {L.constants(i, range(L.width))}")
    return [
        [f(f"call {v} @{name}({v} {p}, {w} {places}, {v} {q})")
         for p, q in zip(row, [*row[1:], row[0]], strict=True)]
        for row in sums
    ]


def _ask(f: Function, rows: int, shift: str) -> None:
    """Ask for the rows behind, as they lie, while `shift` bytes along these."""
    near = f.cmp("sle", "%row", str(ASKED_ROW))
    times = f.select(near, str(rows), "0")
    at = f.at(f.at("%a", f.mul("%row", times)), f.mul(shift, times))
    for line in range(rows * VIRTUAL_BITS // 8 // LINE):
        f.prefetch(f.at(at, line * LINE))
