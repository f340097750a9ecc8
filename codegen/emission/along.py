"""Outer-loop vectorisation: every lane is a row of its own, reduced axes are scalar loops.

The loops are around vector accumulators; a nest without reductions is the same without them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.emission import ahead, held, pieces, running, short, stripes
from graphc.codegen.emission.bands import ROWS, stretches
from graphc.codegen.emission.interior import limits
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import Body, least, under
from graphc.codegen.nests.conditions import interior
from graphc.codegen.nests.loops import Expr, Store
from graphc.codegen.nests.schedule import Schedule, group_of

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame

TOGETHER = 4  # rows of a block, where some blocks go side by side: divides ROWS


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
        partial: bool = False, group: int = 0,
    ) -> None:
        """A loop over groups of vectors from low to high, and one over what is left.

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
        inner = None if self.nest.reduced or partial else interior(self.nest, s.vector)
        ends = heads is not None or inner is not None
        fits = isinstance(n, int) and n % step == 0 and not (ends or partial)
        # part of a vector is as likely as the whole of one, which is not written for itself
        few = isinstance(n, int) and (n <= s.width if partial else n < s.width)
        halves = [
            part for part in (width // 2, width // 4)
            if s.sweeps and isinstance(n, int) and part > s.width and n % (2 * part) >= part
        ]
        last = high
        if inner is not None:
            begin, last = limits(self, inner, begin, high, lines=heads is not None)
        main_end = begin
        if fits:
            main_end = high
        elif not few:
            length = e(f"sub nsw i64 {last}, {begin}")
            main_end = e(f"sub nsw i64 {last}, {e(f'srem i64 {length}, {step}')}")

        def places(i: str) -> list[Scope]:
            starts = [e(f"add nuw nsw i64 {i}, {k * width}") if k else i for k in range(group)]
            return [self.vectors_at(grid, x, None, width) for x in starts]

        def groups(start: str) -> None:
            if few:
                return
            self.f.decided = inner.decided if inner is not None else {}
            if fits and n == step:
                emit(places("0"))
            elif self.f.early:
                ahead.loop(self.f, start, main_end, step, places, emit)
            else:
                e.for_each(start, main_end, lambda i: emit(places(i)), step)
            self.f.decided = {}

        if not ends:
            groups(low)
            for part in halves:
                length = e(f"sub nsw i64 {high}, {main_end}")
                start, step = main_end, (width := part)
                main_end = e(f"sub nsw i64 {high}, {e(f'srem i64 {length}, {step}')}")
                groups(start)
            if not fits:
                self.singly(grid, main_end, high, emit)
            return

        def with_head(k: str) -> None:
            """The head of a row and its groups; then what is left, which the same loop writes."""
            after = e(f"icmp eq i64 {k}, 1")
            start = e(f"select i1 {after}, i64 {main_end}, i64 {low}")
            end = e(f"select i1 {after}, i64 {high}, i64 {begin}")
            with heads.beside(after, high) if heads is not None else nullcontext():
                self.singly(grid, start, end, emit)
            groups(e(f"select i1 {after}, i64 {main_end}, i64 {begin}"))

        e.for_each("0", "2", with_head, some=True)

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
        return 1 if s.tile is not None else _abreast(s, group_of(s) * len(s.sweep))

    def evaluate_row(
        self, c: Scope, reduces: Sequence[Expr], stores: Sequence[Store], wide: bool
    ) -> None:
        """Compute what the reductions take of an element of the rows, and store what is ready."""
        c.demand([a for r in reduces for a in r.args] + [x.expr for x in stores])
        for x in stores:
            c.store(x.output, x.offset, x.expr, vector=wide)


class ReducedLoops:
    """The scalar loops of one sweep over the reduced axes, around accumulators for all scopes."""

    def __init__(
        self, body: Along, scopes: Sequence[Scope], p: int, wide: bool,
        span: tuple[str, str] | None,
    ):
        self.body, self.f, self.e, self.s = body, body.f, body.e, body.s
        self.reduces, self.stores = body.reduces[p], body.row_stores[p]
        rows = dims.most(dims.product(body.nest.sizes[name] for name in self.s.loops))
        few = rows if rows is not None and rows <= 2 * ROWS else None
        self.kinds: list[tuple[Expr, Reduction]] = [
            (r, reduction_of(r).counting(few).in_registers(self.f.target))
            for r in (*self.reduces, *body.scans)
        ]
        self.scopes, self.wide, self.span = scopes, wide, span
        self.start = [  # types and values of the states of no elements
            (L.vec(t), v) for L in [c.lanes(wide) for c in scopes] for _, kind in self.kinds
            for t, v in zip(kind.types, kind.start(L), strict=True)
        ]

    def run(self, grid: Scope) -> list[dict[Expr, list[str]]]:
        """The states of the reductions, by scope."""
        return self._left(self._loops(0, self.scopes, grid, [v for _, v in self.start]))

    def blocks(
        self, grid: Scope, rows: tuple[str, str], count: int
    ) -> list[list[dict[Expr, list[str]]]]:
        """The states of `count` blocks side by side, by scope; `rows` are those of the first."""
        start = [v for _, v in self.start]
        return [self._left(x) for x in self._block(self.scopes, grid, *rows, start, count)]

    def _left(self, state: Sequence[str]) -> list[dict[Expr, list[str]]]:
        """The states of the reductions after the loops, by scope."""
        L = Lanes(self.e, self.scopes[0].width if self.wide else 1, self.f.target)
        return [
            {r: kind.behind(L, found[r], "0") for r, kind in self.kinds if r.kind == "reduce"}
            for found in self._by_scope(state)
        ]

    def _by_scope(self, state: Sequence[str]) -> list[dict[Expr, list[str]]]:
        """The registers that a loop carries, told apart."""
        left = iter(state)
        return [
            {r: [next(left) for _ in kind.types] for r, kind in self.kinds} for _ in self.scopes
        ]

    def _element(self, scopes: Sequence[Scope], state: Sequence[str]) -> list[str]:
        """One element of every row."""
        out: list[str] = []
        for c, old in zip(scopes, self._by_scope(state), strict=True):
            homes = {x: c.home(x.axes, self.s.ready[x]) for x in self.body.scans}
            for x, home in homes.items():
                (home.running[x],) = old[x]
            self.body.evaluate_row(c, self.reduces, self.stores, self.wide)
            for r, kind in self.kinds:
                if r in homes:
                    out.append(homes[r].running[r])
                    continue
                c.e.note(r.node)
                L = c.lanes(self.wide)
                element = kind.within(L, [c.operand(a, self.wide) for a in r.args], "0")
                out += kind.follow(L, old[r], element)
        return out

    def _at(
        self, depth: int, scopes: Sequence[Scope], shared: Scope, i: str, state: Sequence[str]
    ) -> list[str]:
        """Place `i` of the loop at `depth`, with the loops within it."""
        name = self.s.loops[depth]
        common = Scope(self.f, shared, self.e.section(), {name: i}, ready=shared.ready)
        met: dict[Scope, Scope] = {}
        local = [under(self.f, c, common, met) for c in scopes]
        return self._loops(depth + 1, local, common, state)

    def _loops(
        self, depth: int, scopes: Sequence[Scope], shared: Scope, state: Sequence[str]
    ) -> list[str]:
        """The loops from `depth` on; `shared` is the scope of what does not depend on the rows."""
        e, s = self.e, self.s
        if depth == len(s.loops):
            return self._element(scopes, state)
        size = self.body.nest.sizes[s.loops[depth]]
        n = self.f.top.size(size)

        def body(i: str, inner: list[str]) -> list[str]:
            return self._at(depth, scopes, shared, i, inner)

        low, high = self.span or ("0", n)
        carried = [(t, v) for (t, _), v in zip(self.start, state, strict=True)]
        most = dims.most(size)
        few = not self.reduces or (most is not None and most <= 2 * ROWS)
        if self.span is not None or depth or few:
            return e.loop(low, high, 1, carried, body, strided=True)
        return self._blocks(scopes, shared, carried, n)

    def _blocks(
        self, scopes: Sequence[Scope], shared: Scope, carried: list[tuple[str, str]], n: str
    ) -> list[str]:
        """Blocks of ROWS elements of all `n`, each added up from nothing and then to those before.

        What one vector adds up is a chain, each sum of which waits for the one before it: where
        there are few of them, some blocks go side by side. 20,000 x 8 take f32 sums 23 us by one
        block and 14 by four, greatest elements, which wait longer, 55 and 20.
        """
        e, sides = self.e, 1
        if not (self.stores or len(self.s.loops) > 1 or self.body.scans):
            vectors = sum(c.width for c in self.scopes) // self.s.width
            sides = _abreast(self.s, vectors * len(self.kinds))

        def block(i: str, outside: list[str], count: int = 0) -> list[str]:
            whole = e(f"add nsw i64 {i}, {ROWS}")
            inside = self._block(scopes, shared, i, whole if count else least(e, whole, n),
                                 outside, count)
            for new in inside:
                outside = self._joined(outside, new)
            return outside

        if sides == 1:
            return e.loop("0", n, ROWS, carried, block, strided=True)
        start = "0"
        for count, left_out in stretches(self.f, sides):
            step = count * ROWS
            end = e(f"mul nsw i64 {e(f'udiv i64 {n}, {step}')}, {step}")
            if left_out:
                end = e(f"select i1 {left_out}, i64 {start}, i64 {end}")
            some = functools.partial(block, count=count)
            state = e.loop(start, end, step, carried, some, strided=True)
            carried = [(t, v) for (t, _), v in zip(carried, state, strict=True)]
            start = end
        return e.loop(start, n, ROWS, carried, block, strided=True)

    def _block(
        self, scopes: Sequence[Scope], shared: Scope, low: str, high: str, outside: list[str],
        count: int,
    ) -> list[list[str]]:
        """The states of `count` whole blocks side by side, the first of which is from low to high;
        0: of one, or part of it.

        Some rows of one come before those of the next, or short rows would take memory's lines by
        halves, in turns: 1M x 8 take f32 sums 775 us row by row, 617 by four rows. Rows that are
        numbered go singly: from cache an argmax would take 12 % longer.
        """
        e, each = self.e, len(self.start)
        scans = [r.kind == "scan" for _ in self.scopes for r, kind in self.kinds
                 for _ in kind.types]
        begin = [
            (t, old if scan else v)
            for (t, v), old, scan in zip(self.start, outside, scans, strict=True)
        ]

        counted = any(kind.name == "argmax" for _, kind in self.kinds)
        together = TOGETHER if count and not counted else 1
        count = max(1, count)

        def body(i: str, inner: list[str]) -> list[str]:
            new: list[str] = []
            for k in range(count):
                state = inner[k * each : (k + 1) * each]
                for row in range(k * ROWS, k * ROWS + together):
                    at = e(f"add nuw nsw i64 {i}, {row}") if row else i
                    state = self._at(0, scopes, shared, at, state)
                new += state
            return new

        found = e.loop(low, high, together, begin * count, body, strided=True)
        return [found[k * each : (k + 1) * each] for k in range(count)]

    def _joined(self, outside: Sequence[str], inside: Sequence[str]) -> list[str]:
        """The states of what came before with those of a block after it."""
        L = Lanes(self.e, self.scopes[0].width if self.wide else 1, self.f.target)
        return [
            x for old, new in zip(self._by_scope(outside), self._by_scope(inside), strict=True)
            for r, kind in self.kinds
            for x in (new[r] if r.kind == "scan" else kind.merge(L, old[r], new[r]))
        ]


def _abreast(s: Schedule, chains: int) -> int:
    """How many blocks go side by side: with the chains of each, as many as of other rows."""
    return max(1, s.unroll // chains)


def _beside(frame: Frame, row: Scope, vector: Scope) -> Scope:
    """A scope for one vector and one row of those that are written side by side."""
    both = under(frame, vector, row, {})
    both.e = frame.e.section()
    both.sides = (row, vector)
    return both
