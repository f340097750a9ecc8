"""Index-set splitting: nests cut where conditions on an axis change, so that none is left inside.

    for i0<32, i1<192:                        for i0<32, i1<64:   out0[192*i0+i1] = in0[64*i0+i1]
      out0[..] = in0 if 0<=i1<64,        ->   for i0<32, i1<64:   out0[192*i0+i1+64] = in1[..]
                 else in1 if 0<=i1-64<64,     for i0<32, i1<64:   out0[192*i0+i1+128] = in2[..]
                 else in2

Concatenations, stacks and paddings become conditions on a loop axis (see `pull`), and a vector
computes all of their branches. The axis is cut at their bounds, of numbers or of named dimensions
(Griebl, Feautrier, Lengauer 2000), and conditions are constants. Where it is not known which of two
bounds comes first, as of max(0, n-1) and n - max(0, n-1), which ends of x[1:] and x[:-1] give, one
is cut at as if it were behind the other: if it is not, the piece between them has no elements.

Pieces that are small beside others are not cut along further axes: of what is added up of paddings,
as the gradient of a stencil is, its sides and edges. Of 3 x 3 places, 100 images of 28 x 28 f32, it
takes Zen 3 135 us in 9 pieces, in all 25 127, and twice as long to compile; of seven places in
three dimensions, 60 x 60 x 60, 250 in 13 pieces, of which there would be 125, and whole 700.

Rows that one vector holds stay whole, whose conditions are constant masks; 20,000 rows of 7 bytes
padded take Zen 4 11 us, in pieces 49, of f32 by AVX2 16 and 138.

Sums of rows are cut between rows alone: softmax of 1000 x 1000 f32 above their doubles and products
takes Zen 5 1,040 us, in pieces 798. Along what is added up loops are cut (`emission.between`).

Rows of unknown length stay whole: parts of short ones take longer than their choice. Where long
ones gain much, they have a version in parts (see `versions`). Long rows most of which is one
stretch between bounds stay whole, too: vectors there have no conditions (see `conditions`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from graphc import dims
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.nests.axes import coalesce, coefficient, expr_polynomials, substitute
from graphc.codegen.nests.conditions import bounds, conditions, interior, preds_of, typical
from graphc.codegen.nests.loops import Expr, Nest, Pred, Store, axis
from graphc.codegen.nests.ranges import holds
from graphc.codegen.nests.schedule import BLOCK, filled, plan
from graphc.dims import Size

MOST = 64       # pieces of one nest: each is a function
SMALL = 16      # elements of the largest for one of a piece that is not cut again
MOST_OF_ROWS = 16  # parts of rows of unknown length: each takes LLVM as long as the rows whole
LONG = 1024     # elements of rows from which these stay whole if they have an interior
FEWEST = 4      # elements of rows, more than which stay whole if a vector holds them
SHORTEST = 8    # elements in a row, below which a loop is not worth its calls
COMPARED = 8    # lanes of a condition in a register: positions have 64 bits but those of rows


def pieces(nest: Nest, target: Target) -> list[Nest]:
    """The nests that together compute `nest`: itself where cutting it saves too little."""
    if nest.sites or nest.totals or not conditions(nest):
        return [nest]
    if nest.reduced and not _sums_rows(nest):
        return [nest]
    found = [nest]
    for name in nest.outer:
        sizes = [typical(dims.product(n.sizes[a] for a in n.outer)) for n in found]
        cuts = [
            [] if size * SMALL < max(sizes) or _stays_whole(n, name, target) else stretches(n, name)
            for n, size in zip(found, sizes, strict=True)
        ]
        if sum(max(1, len(at)) for at in cuts) > MOST:
            if name != nest.outer[0]:
                continue
            several = _several(nest, name, cuts[0])
            if several is None:
                return [nest]
            found = several
            continue
        found = [p for n, at in zip(found, cuts, strict=True) for p in _cut(n, name, at)]
    if len(found) == 1 or (nest.reduced and not _are_run_alike(nest, found, target)):
        return [nest]
    total = sum(_cycles(p, target) for p in found)
    return found if total < _cycles(nest, target) else [nest]


def _sums_rows(nest: Nest) -> bool:
    """Whether all that is added up are rows, each for what is written of it."""
    return not any(e.kind == "scan" for e in nest.exprs) and not any(
        {*nest.outer} - {*s.axes} for s in nest.stores
    )


def _are_run_alike(nest: Nest, parts: list[Nest], target: Target) -> bool:
    """Whether the rows of parts are added up as those of the whole, so that the bits do not depend
    on where it is cut; and with nothing that a part would have to keep apart."""
    whole, *others = (plan(coalesce(n), target) for n in (nest, *parts))
    return not any(s.bands or s.columns or s.turned_rows for s in (whole, *others)) and all(
        (s.across, bool(s.tree), s.vector) == (whole.across, bool(whole.tree), whole.vector)
        for s in others
    )


def parts_of_rows(nest: Nest) -> tuple[str, list[Nest]] | None:
    """The axis of a nest's rows, and the nests that it is cut into along them; None but for rows
    of unknown length, which `pieces` leaves whole."""
    if nest.reduced or nest.sites or nest.totals or not conditions(nest):
        return None
    for name in nest.outer:
        if _is_open_row(nest, name):
            parts = _cut(nest, name, stretches(nest, name))
            return (name, parts) if 1 < len(parts) <= MOST_OF_ROWS else None
    return None


def _is_open_row(nest: Nest, name: str) -> bool:
    """Whether an axis is that of rows of unknown length, elements of which stand side by side."""
    return not isinstance(nest.sizes[name], int) and len(nest.outer) > 1 and any(
        coefficient(s.offset, name) == 1 for s in nest.stores
    )


def _stays_whole(nest: Nest, name: str, target: Target) -> bool:
    """Whether an axis is not cut: that of rows of unknown length, of rows that a vector holds, and
    of long ones with an interior, since pieces would each walk along all rows."""
    if _is_open_row(nest, name):
        return True
    size = nest.sizes[name]
    if len(nest.outer) < 2 or not isinstance(size, int):
        return False
    short = FEWEST < size <= target.vector_bits // 8
    if not short and (size < LONG or not interior(nest, name)):
        return False
    s = plan(coalesce(nest), target)
    if s.vector != name or not (target.masked or VIRTUAL_BITS // s.lanes >= 32):
        return False
    return not short or size <= s.width


def _several(nest: Nest, name: str, stretches: list[Stretch]) -> list[Nest] | None:
    """The nest cut at every few edges only of its outermost axis, where the pieces have not much
    more to compute in all than the nest: a stack of 200 rows, but not 100 paddings of one another.
    """
    apart = -(-len(stretches) // MOST)
    found: list[Nest] = []
    for k in range(0, len(stretches), apart):
        some = stretches[k : k + apart]
        end, before = some[-1].end, some[-1].before
        last = before if all(_ordered(x.before, before) for x in some) else end
        found.append(Piece(nest, name, some[0]._replace(end=end, before=last)).nest())
        if sum(len(p.exprs) for p in found) > 2 * len(nest.exprs):
            return None
    return found


def _cycles(nest: Nest, target: Target) -> int:
    """Cycles for all of a nest: a vector that is not full takes as long as others, each of its
    elements one more where they do not lie side by side, and conditions compare 64 bits."""
    s = plan(coalesce(nest), target)
    cycles = typical(s.items * s.cycles)
    if s.vector is None:
        return cycles
    moved = [e.offset for e in s.nest.exprs if e.kind == "load"] + [x.offset for x in s.nest.stores]
    steps = [coefficient(offset, s.vector) for offset in moved]
    n = full = typical(s.nest.sizes[s.vector])
    if 0 < n < BLOCK:
        width = filled(n, s.lanes // 4)  # of 512 bits, whatever this target's registers
        full = -(-n // width) * width
    compared = sum(any(s.vector in dims.names(x) for x in p.sizes) for p in conditions(s.nest))
    turned = s.turns
    apart = 0 if turned else sum(step not in (-1, 0, 1) for step in steps)
    rows = typical(dims.product(s.nest.sizes[a] for a in s.nest.outer if a != s.vector))
    return cycles * full // max(1, n) + rows * (compared * full // COMPARED + apart * n)


class Stretch(NamedTuple):
    """Part of an axis: begin <= i < end. In it i >= past, for all of these, and i < before, which
    say more where what is known of sizes does not tell which is the greatest."""

    begin: Size
    end: Size
    past: tuple[Size, ...]
    before: Size

    @classmethod
    def of(cls, begin: Size, end: Size) -> Stretch:
        """The places from begin to end, which are in this order."""
        return cls(begin, end, (begin,), end)


def stretches(nest: Nest, name: str) -> list[Stretch]:
    """What an axis is cut into, at the bounds of conditions on it; [] where that is not worth it.

    Bounds that are not certain to lie on the axis are left out.
    """
    edges = _edges(nest, name)
    if len(edges) < 3:
        return []
    inner = 1  # elements that stand behind one another for one value of the axis, as far as known
    axes = nest.outer if name in nest.outer else nest.reduced
    for other in axes[axes.index(name) + 1 :]:
        inner *= _about(nest.sizes[other])
    found = []
    begin, past = edges[0], edges[:1]
    for edge in edges[1:]:
        end = dims.maximum(begin, edge)
        found.append(Stretch(begin, end, tuple(past), edge))
        begin = end
        past = [edge] if all(_ordered(b, edge) for b in past) else [*past, edge]
    longest = max(_about(x.end - x.begin) for x in found)
    return found if longest * inner >= SHORTEST else []


def _edges(nest: Nest, name: str) -> list[Size]:
    """Where an axis begins, is cut, and ends, in their usual order."""
    size = nest.sizes[name]
    edges: list[Size] = [0, size]
    if isinstance(size, int) and size < 2:
        return edges
    for p in conditions(nest):
        for b in bounds(p, name) or ():
            k = bisect_left(edges, True, key=partial(_before, b))
            if 0 < k < len(edges) and edges[k] != b and _ordered(0, b) and _ordered(b, size):
                edges.insert(k, b)
    return edges


def _about(size: Size) -> int:
    """A size, or what counts as one that is not known."""
    return size if isinstance(size, int) else SHORTEST


def _ordered(a: Size, b: Size) -> bool:
    """Whether a <= b, for certain."""
    return dims.is_nonnegative(b - a)


def _before(a: Size, b: Size) -> bool:
    """Whether a <= b: for certain, or usually if neither is certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    return _ordered(a, b) or (typical(a) <= typical(b) and not _ordered(b, a))


def _cut(nest: Nest, name: str, stretches: list[Stretch]) -> list[Nest]:
    """The nest cut along an axis."""
    return [Piece(nest, name, x).nest() for x in stretches] or [nest]


class Piece:
    """The part of a nest in a stretch of an axis, which counts from 0 again."""

    def __init__(self, nest: Nest, name: str, stretch: Stretch):
        self.whole, self.name, self.stretch = nest, name, stretch
        begin = stretch.begin
        self.size = stretch.end - begin
        self.gone = {name} if self.size == 1 else set()
        self.env: dict[str, Size] = {name: begin if self.gone else axis(name) + begin}
        self.given = self._decided()

    def nest(self) -> Nest:
        """The nest of the piece."""
        whole, gone = self.whole, self.gone
        wanted = self._wanted()
        made: dict[Expr, Expr] = {}
        for e in whole.exprs:
            if e in wanted:
                args = tuple(made[self.final(a)] for a in e.args)
                made[e] = self.moved(e, len(made), args)
        stores = [
            Store(
                s.output, substitute(s.offset, self.env), made[self.final(s.expr)],
                tuple(a for a in s.axes if a not in gone),
            )
            for s in whole.stores
        ]
        sizes = whole.sizes | {self.name: self.size}
        return replace(
            whole, outer=[a for a in whole.outer if a not in gone], exprs=list(made.values()),
            stores=stores, sizes={a: n for a, n in sizes.items() if a not in gone},
        )

    def kept(self, conditions: Iterable[Pred]) -> tuple[Pred, ...] | None:
        """The conditions that are left; None where one never holds."""
        left = []
        for p in conditions:
            held = holds_in(p, self.name, self.stretch)
            if held is None:
                p = Pred(*(substitute(size, self.env) for size in p.sizes))
                held = holds(p, self.whole.sizes)
            if held is False:
                return None
            if held is None:
                left.append(p)
        return tuple(left)

    def _decided(self) -> dict[Expr, Expr]:
        """What selects give that are decided in this piece."""
        given = {}
        for e in self.whole.exprs:
            if e.kind == "op" and e.name == "select" and e.args[0].kind == "inside":
                left = self.kept(e.args[0].attrs)
                if not left:
                    given[e] = e.args[2] if left is None else e.args[1]
        return given

    def final(self, e: Expr) -> Expr:
        """e, or what it is known to give."""
        while e in self.given:
            e = self.given[e]
        return e

    def _wanted(self) -> set[Expr]:
        """The expressions that what is stored here needs."""
        wanted: set[Expr] = set()
        stack = [self.final(s.expr) for s in self.whole.stores]
        while stack:
            e = stack.pop()
            if e not in wanted:
                wanted.add(e)
                stack += [self.final(a) for a in e.args]
        return wanted

    def moved(self, e: Expr, number: int, args: tuple[Expr, ...]) -> Expr:
        """e in the piece, on these operands."""
        kind, attrs, left = e.kind, e.attrs, self.kept(preds_of(e))
        if kind == "inside" and not left:
            kind, attrs = "const", (np.array(left is not None).tobytes(),)
        elif kind == "inside":
            attrs = left or ()
        elif kind == "load" and left is None:  # nothing may be read there, and nothing is used
            kind, attrs = "const", (np.zeros((), e.dtype.numpy).tobytes(),)
        elif kind == "load":
            attrs = (attrs[0], substitute(attrs[1], self.env), left)
        elif kind == "index":
            attrs = (substitute(attrs[0], self.env),)
        moved = Expr(number, kind, e.dtype, args, attrs, e.axes - self.gone, e.node)
        if kind not in ("reduce", "scan"):  # what is decided here may have been all that varied
            moved.axes = self._varies_along(moved)
        return moved

    def _varies_along(self, e: Expr) -> frozenset[str]:
        """The axes of an expression's operands and polynomials."""
        names = {n for p in expr_polynomials(e) for n in dims.names(p)}
        return frozenset(names & self.whole.sizes.keys()).union(*(a.axes for a in e.args))


def holds_in(p: Pred, name: str, stretch: Stretch) -> bool | None:
    """Whether a condition holds in all of a stretch of an axis, or nowhere; else None."""
    found = bounds(p, name)
    if found is None:
        return None
    (low, high), (_, _, past, before) = found, stretch
    if _ordered(before, high) and any(_ordered(low, b) for b in past):
        return True
    return False if _ordered(before, low) or any(_ordered(high, b) for b in past) else None
