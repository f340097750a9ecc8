"""Dot products of rows that all lie across lines of the cache, by whole lines.

NumPy's arrays begin 16 bytes into a page, and a load across two lines is two. Of rows that all lie
so, since they are of whole lines, an AVX-512 CPU reads whole lines, the first and the last under a
mask: lanes hold other elements than those of a row that begins a line, and are turned back in the
end, before the tree that adds them up. Each is added in the order of rows as they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from graphc.aligned import LINE
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.tiling import tail_mask
from graphc.types import DType

LINES_ROW = 1 << 9  # bytes of a row that is read so, at least: shorter ones have too few lines


def off_line(f: Function, target: Target, p: str, row: str) -> str:
    """Bytes by which rows from p on, so many apart, all begin after a line; 0 if they differ, or
    where that is not made up for."""
    if not target.masked:
        return "0"
    behind = f(f"and i64 {f(f'ptrtoint ptr {p} to i64')}, {LINE - 1}")
    return f.select(whole_lines(f, row), behind, "0")


def whole_lines(f: Function, *bytes_: str) -> str:
    """Whether all of these addresses and lengths are multiples of a line, an i1."""
    bits = "0"
    for b in bytes_:
        bits = f(f"or i64 {bits}, {b}")
    return f.cmp("eq", f(f"and i64 {bits}, {LINE - 1}"), "0")


class ByLines:
    """Emits the sums of some rows of k elements, which begin `back` bytes after a line."""

    def __init__(self, f: Function, L: Lanes, dtype: DType, back: str):
        self.f, self.L, self.dtype = f, L, dtype
        size, self.step = dtype.itemsize, VIRTUAL_BITS // dtype.bits
        self.before = f.udiv(back, size)  # elements of the first line that are not the row's
        length = f.add("%k", self.before)
        self.whole = f(f"and i64 {length}, {-self.step}")
        self.left = f.sub(length, self.whole)
        self.at_line = f.sub("0", back)
        m = f"<{L.width} x i1>"
        self.head = f(f"xor {m} {tail_mask(f, dtype, L.width, self.before)}, splat (i1 true)")

    def begin(self, p: str) -> str:
        """Where the line begins in which a row, or what stands like one, does."""
        return self.f.at(p, self.at_line)

    def sums(
        self, rows: Sequence[str], x: str, beside: Callable[[Lanes, str], None] | None = None,
        ask: Callable[[str], None] | None = None,
    ) -> list[list[str]]:
        """The lanes of the rows' products with x, all from where lines `begin`.

        `beside` emits what is done with the line at an offset in the same turn, for its lanes;
        `ask` what asks for later ones.
        """
        f, L, dtype = self.f, self.L, self.dtype
        size, t, v, m = dtype.itemsize, register_type(dtype), L.reg(dtype), f"<{L.width} x i1>"

        def line(here: str, sums: Sequence[str], mask: str | None) -> list[str]:
            M = L if mask is None else Lanes(f, L.width, f.target, mask=mask)
            factor = M.load(dtype, f.at(x, here))
            new = [
                L.fma(t, M.load(dtype, f.at(p, here)), factor, q)
                for p, q in zip(rows, sums, strict=True)
            ]
            if beside is not None:
                beside(M, here)
            return new

        first, loop, end = f.block, f.fresh("lines"), f.fresh("rest")
        f.do(f"br i1 {f.cmp('sgt', self.whole, '0')}, label %{loop}, label %{end}")
        f.label(loop)
        at, shift = len(f.lines), f.mul(f"%{loop}i", size)
        old = [
            [f"%{loop}s{r}_{i}" for r in range(len(rows))]
            for i in range(VIRTUAL_BITS // f.target.vector_bits)
        ]
        if ask is not None:
            ask(shift)
        new = [
            line(f.add(shift, str(i * LINE)), q, None if i else f"%{loop}m")
            for i, q in enumerate(old)
        ]
        following, last = f.add(f"%{loop}i", str(self.step)), f.block
        f.lines[at:at] = [
            f"  %{loop}i = phi i64 [0, %{first}], [{following}, %{last}]",
            f"  %{loop}m = phi {m} [{self.head}, %{first}], [splat (i1 true), %{last}]",
            *(f"  {p} = phi {v} [zeroinitializer, %{first}], [{q}, %{last}]"
              for p, q in zip(chain.from_iterable(old), chain.from_iterable(new), strict=True)),
        ]
        more = f.cmp("slt", following, self.whole)
        f.do(f"br i1 {more}, label %{loop}, label %{end}, !llvm.loop !0")
        f.label(end)
        mask = f(f"phi {m} [{self.head}, %{first}], [splat (i1 true), %{last}]")
        sums = [
            [f(f"phi {v} [zeroinitializer, %{first}], [{q}, %{last}]") for q in found]
            for found in new
        ]
        for i in range(len(sums)):  # of what is left mostly one, of a row of whole lines
            rest = f.sub(self.left, str(i * L.width))
            some, after, before_it = f.fresh("some"), f.fresh("after"), f.block
            f.do(f"br i1 {f.cmp('sgt', rest, '0')}, label %{some}, label %{after}")
            f.label(some)
            masked = tail_mask(f, dtype, L.width, rest)
            if not i:
                masked = f(f"and {m} {masked}, {mask}")
            here = f.mul(f.add(self.whole, str(i * L.width)), size)
            added, last = line(here, sums[i], masked), f.block
            f.branch(after)
            sums[i] = [
                f(f"phi {v} [{p}, %{before_it}], [{q}, %{last}]")
                for p, q in zip(sums[i], added, strict=True)
            ]
        return self._turned_back([list(found) for found in zip(*sums, strict=True)])

    def _turned_back(self, sums: list[list[str]]) -> list[list[str]]:
        """Lanes of rows as they are where the first element is in the first lane, not behind
        others."""
        f, L, dtype = self.f, self.L, self.dtype
        v, i = L.reg(dtype), f"i{dtype.bits}"
        w = f"<{L.width} x {i}>"
        name = f"llvm.x86.avx512.vpermi2var.{'ps' if dtype.bits == 32 else 'pd'}.512"
        f.module.declare(name, f"declare {v} @{name}({v}, {w}, {v})")
        n = f(f"trunc i64 {self.before} to {i}") if dtype.bits < 64 else self.before
        places = f(f"add {w} {L.spread(i, n)}, {L.constants(i, range(L.width))}")
        return [
            [f(f"call {v} @{name}({v} {p}, {w} {places}, {v} {q})")
             for p, q in zip(row, [*row[1:], row[0]], strict=True)]
            for row in sums
        ]
