"""Outer-loop vectorisation: every lane is a row of its own, reduced axes are scalar loops.

The loops are around vector accumulators; a nest without reductions is the same without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from graphc.codegen.emission import ahead, held, pieces, running, short, staged, stripes
from graphc.codegen.emission.down import ReducedLoops, abreast
from graphc.codegen.emission.interior import limits
from graphc.codegen.emission.packed import Packed
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import Body, least, under
from graphc.codegen.nests.conditions import interior
from graphc.codegen.nests.costs import FOUR, TWELVE
from graphc.codegen.nests.loops import Expr, Store
from graphc.codegen.nests.schedule import group_of

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame


class Along(Body):
    """Emits vectors of rows."""

    def run(
        self, grid: Scope, low: str, high: str, partial: bool = False,
        beside: Sequence[Scope] = (),
    ) -> None:
        """Vectors of rows from low to high; `partial` says that these need not be all.

        With `beside`, scopes of rows of the grid, each vector is written for all of these.
        """
        s, e = self.s, self.e
        if s.vector is None:
            self.rows(grid, [Scope(self.f, grid, e.section(), {})])
            return
        if s.stages is not None:
            staged.run(self, grid, low, high)
            return
        if s.tile is None and not (partial or s.bands) and pieces.fits(self):
            stripes.run(self, grid, low, high)
            return
        if s.tile is None and not partial and running.fits(self):
            running.run(self, grid, low, high)
            return

        def emit(scopes: list[Scope]) -> None:
            places = [_beside(self.f, x, c) for x in beside for c in scopes] if beside else scopes
            self.rows(grid, places)

        # of pieces of rows most would be head and rest, were groups of vectors wanted between them
        streaming = self.f.streaming
        single = s.turns and streaming is not None and streaming.heads
        self.vectors(grid, low, high, emit, partial, group=1 if single else 0)

    def vectors(
        self, grid: Scope, low: str, high: str, emit: Callable[[list[Scope]], None],
        partial: bool = False, group: int = 0, even: bool = False,
    ) -> None:
        """A loop over groups of vectors from low to high, and one over what is left, unless the
        groups are `even`.

        Interleaved vectors are one register that LLVM splits; what is left goes singly, or of a
        known number by halves, since what rows add up waits for itself.
        """
        s, e = self.s, self.e
        assert s.vector is not None
        if few := self.f.held or (0 if partial or low != "0" else held.known(self)):
            emit(held.row(self, grid, high, few))
            return
        if self.nest.overlaps:
            self.overlapping(grid, low, high, emit)
            return
        n = self.nest.sizes[s.vector]
        group, width = group or group_of(s), s.width * s.interleave
        while isinstance(n, int) and width > s.width and n < width:
            width //= 2
        step = group * width
        streaming = self.f.streaming
        heads = streaming if streaming is not None and streaming.heads else None
        begin = heads.begin(grid, low, high) if heads is not None else low
        # places of sums over all rows are for vectors in step with the row's begin
        whole = self.nest.reduced or partial or self.f.places is not None
        inner = None if whole else interior(self.nest, s.vector)
        ends = heads is not None or inner is not None
        fits = even or (isinstance(n, int) and n % step == 0 and not (ends or partial))
        # part of a vector is as likely as the whole of one, which is not written for itself
        few = isinstance(n, int) and (n <= s.width if partial else n < s.width)
        last = high
        if inner is not None:
            begin, last = limits(self, inner, begin, high, lines=heads is not None)
        widths = [] if few else [width, *self._rest_widths(width, fits)]
        stops = [begin]  # of groups of each width, behind where they begin
        for w in widths:
            length = "" if fits else e(f"sub nsw i64 {last}, {stops[-1]}")
            left = "" if fits else e(f"srem i64 {length}, {group * w}")
            stops.append(high if fits else e(f"sub nsw i64 {last}, {left}"))

        def groups(starts: Sequence[str]) -> None:
            self.f.decided = inner.decided if inner is not None else {}
            for w, start, stop in zip(widths, starts, stops[1:], strict=True):
                self._groups(grid, start, stop, emit, w, group, whole=fits and n == step)
            self.f.decided = {}

        if not ends:
            groups(stops[:-1])
            if not fits:
                self.singly(grid, stops[-1], high, emit)
            return

        def with_head(k: str) -> None:
            """The head of a row and its groups; then what is left, which the same loop writes."""
            after = e(f"icmp eq i64 {k}, 1")
            start = e(f"select i1 {after}, i64 {stops[-1]}, i64 {low}")
            end = e(f"select i1 {after}, i64 {high}, i64 {begin}")
            with heads.beside(after, high) if heads is not None else nullcontext():
                self.singly(grid, start, end, emit)
            groups([e(f"select i1 {after}, i64 {stops[-1]}, i64 {x}") for x in stops[:-1]])

        e.for_each("0", "2", with_head, some=True)

    def _rest_widths(self, width: int, fits: bool) -> list[int]:
        """The widths by which what wide groups leave goes before single vectors."""
        s = self.s
        if s.interleave == TWELVE:
            return [] if fits else [FOUR * s.width]
        n = self.nest.sizes[s.vector] if s.vector is not None and s.sweeps else None
        return [
            part for part in (width // 2, width // 4)
            if isinstance(n, int) and part > s.width and n % (2 * part) >= part
        ]

    def _groups(
        self, grid: Scope, start: str, stop: str, emit: Callable[[list[Scope]], None],
        width: int, group: int, whole: bool,
    ) -> None:
        """A loop over groups of vectors, or the one that is the `whole` of a row."""
        e, step = self.e, group * width

        def places(i: str) -> list[Scope]:
            starts = [e(f"add nuw nsw i64 {i}, {k * width}") if k else i for k in range(group)]
            return [self.vectors_at(grid, x, None, width) for x in starts]

        if whole:
            emit(places("0"))
        elif self.f.early:
            ahead.loop(self.f, start, stop, step, places, emit)
        else:
            e.for_each(start, stop, lambda i: emit(places(i)), step)

    def overlapping(
        self, grid: Scope, low: str, high: str, emit: Callable[[list[Scope]], None]
    ) -> None:
        """A loop over vectors from low to high, of which the last one ends there."""
        e, last = self.e, self.e(f"sub nsw i64 {high}, {self.s.width}")
        self.e.for_each(
            low, high, lambda i: emit([self.vectors_at(grid, least(e, i, last), None)]),
            self.s.width,
        )

    def singly(
        self, grid: Scope, low: str, high: str, emit: Callable[[list[Scope]], None]
    ) -> None:
        """A loop over vectors from low to high, lanes beyond which are masked."""

        def body(i: str) -> None:
            mask = self.mask(i, high) if self.s.width > 1 else None
            emit([self.vectors_at(grid, i, mask)])

        self.e.for_each(low, high, body, self.s.width)

    def rows(self, grid: Scope, scopes: list[Scope]) -> None:
        """Rows in lanes: sweep the reduced axes with scalar loops, then store."""
        s = self.s
        wide = s.width > 1 and s.vector is not None
        bands = self.f.bands
        if bands is not None and not bands.chunks:
            bands.add(self, grid, scopes, wide)
            return
        for p in range(s.sweeps):
            self.f.sweeping = p
            if p:
                scopes = [
                    Scope(self.f, c, self.e.section(), {}, ready=p, mask=c.mask) for c in scopes
                ]
            states = (
                bands.totals(scopes, wide) if bands is not None
                else self.reduce_rows(grid, scopes, p, wide)
            )
            following = []
            for c, state in zip(scopes, states, strict=True):
                f = Scope(self.f, c, self.e.section(), {}, ready=p + 1, mask=c.mask)
                L = f.lanes(wide)
                for r, regs in state.items():
                    value = reduction_of(r).finish(L, regs, r.dtype)
                    (f.vectors if f.is_vector(r) else f.scalars)[r] = value
                following.append(f)
            scopes = following
        places = self.f.places
        for scope in scopes:
            end = Scope(self.f, scope, self.e, {}, ready=scope.ready, mask=scope.mask)
            end.demand([*(x.expr for x in self.late_stores), *(places.wanted if places else ())])
            end.store_all(self.late_stores, vector=wide)
            if places is not None:
                places.add(end, wide)

    def reduce_rows(
        self, grid: Scope, scopes: Sequence[Scope], p: int, wide: bool,
        span: tuple[str, str] | None = None,
    ) -> list[dict[Expr, list[str]]]:
        """The states of sweep p's reductions, over all rows or those of a span."""
        if self.s.packed and span is not None:
            return [Packed(self, grid, c).columns(*span) for c in scopes]
        if self.s.tree and any(r.name in short.ROUNDED for r in self.reduces[p]):
            return short.reduce_rows(self, grid, scopes, p, wide)
        return ReducedLoops(self, scopes, p, wide, span).run(grid)

    def blocks(
        self, grid: Scope, scopes: Sequence[Scope], wide: bool, rows: tuple[str, str], count: int
    ) -> list[list[dict[Expr, list[str]]]]:
        """The states of the first sweep's reductions over `rows` and as many blocks behind them."""
        return ReducedLoops(self, scopes, 0, wide, None).blocks(grid, rows, count)

    def bands_abreast(self) -> int:
        """How many bands of a nest of these go side by side."""
        s = self.s
        return 1 if s.tile is not None or s.packed else abreast(s, group_of(s) * len(s.sweep))

    def evaluate_row(
        self, c: Scope, reduces: Sequence[Expr], stores: Sequence[Store], wide: bool
    ) -> None:
        """Compute what the reductions take of an element of the rows, and store what is ready."""
        c.demand([a for r in reduces for a in r.args] + [x.expr for x in stores])
        for x in stores:
            c.store(x.output, x.offset, x.expr, vector=wide)


def _beside(frame: Frame, row: Scope, vector: Scope) -> Scope:
    """A scope for one vector and one row of those that are written side by side."""
    both = under(frame, vector, row, {})
    both.e = frame.e.section()
    both.sides = (row, vector)
    return both
