"""The scalar loops of a sweep down the reduced axes, around accumulators for rows in lanes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.emission.bands import ROWS, stretches
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least, under
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import Schedule

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along

TOGETHER = 4  # rows of a block, where some blocks go side by side: divides ROWS


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
        """The states with one more element of every row, or of that alone."""
        out: list[str] = []
        states = self._by_scope(state) if state else [{} for _ in scopes]
        for c, old in zip(scopes, states, strict=True):
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
                out += kind.follow(L, old[r], element) if state else kind.entered(L, element)
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
            sides = abreast(self.s, vectors * len(self.kinds))

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
        halves, in turns: 1M x 8 take f32 sums 775 us row by row, 617 by four rows. What does not
        round goes from block to block by single rows, or these are merged first: far memory is
        read in order so. Of 1M x 8 f32 greatest elements take Zen 5 997 us and 750, their places
        1,305 and 763, of 2M x 4 f64 3,190 and 1,720.
        """
        e, each = self.e, len(self.start)
        scans = [r.kind == "scan" for _ in self.scopes for r, kind in self.kinds
                 for _ in kind.types]
        begin = [
            (t, old if scan else v)
            for (t, v), old, scan in zip(self.start, outside, scans, strict=True)
        ]
        if count > 1 and not any(scans):
            if all(kind.unordered for _, kind in self.kinds):
                return self._in_turns(scopes, shared, low, begin, count)
            if all(kind.associative for _, kind in self.kinds):
                return [self._merged(scopes, shared, low, begin, count)]
        together, count = TOGETHER if count else 1, max(1, count)

        def body(i: str, inner: list[str]) -> list[str]:
            new: list[str] = []
            for k in range(count):
                state = inner[k * each : (k + 1) * each]
                for row in range(k * ROWS, k * ROWS + together):
                    state = self._row(scopes, shared, i, row, state)
                new += state
            return new

        found = e.loop(low, high, together, begin * count, body, strided=True)
        return [found[k * each : (k + 1) * each] for k in range(count)]

    def _in_turns(
        self, scopes: Sequence[Scope], shared: Scope, low: str, begin: list[tuple[str, str]],
        count: int,
    ) -> list[list[str]]:
        """The states of `count` parts of as many whole blocks, to which rows go in turns."""
        e, each = self.e, len(self.start)

        def body(i: str, inner: list[str]) -> list[str]:
            return [
                x for k in range(count)
                for x in self._row(scopes, shared, i, k, inner[k * each : (k + 1) * each])
            ]

        high = e(f"add nsw i64 {low}, {count * ROWS}")
        found = e.loop(low, high, count, begin * count, body, strided=True)
        return [found[k * each : (k + 1) * each] for k in range(count)]

    def _merged(
        self, scopes: Sequence[Scope], shared: Scope, low: str, begin: list[tuple[str, str]],
        count: int,
    ) -> list[str]:
        """The state of `count` whole blocks, as many rows of which are merged before they are with
        those before."""
        e = self.e

        def body(i: str, inner: list[str]) -> list[str]:
            rows = [self._row(scopes, shared, i, k, []) for k in range(count)]
            while len(rows) > 1:
                pairs = zip(rows[::2], rows[1::2], strict=True)
                rows = [self._joined(a, b) for a, b in pairs]
            return self._joined(inner, rows[0])

        high = e(f"add nsw i64 {low}, {count * ROWS}")
        return e.loop(low, high, count, begin, body, strided=True)

    def _row(
        self, scopes: Sequence[Scope], shared: Scope, i: str, k: int, state: Sequence[str]
    ) -> list[str]:
        """The states with the k-th row from `i` on."""
        at = self.e(f"add nuw nsw i64 {i}, {k}") if k else i
        return self._at(0, scopes, shared, at, state)

    def _joined(self, outside: Sequence[str], inside: Sequence[str]) -> list[str]:
        """The states of what came before with those of a block after it."""
        L = Lanes(self.e, self.scopes[0].width if self.wide else 1, self.f.target)
        return [
            x for old, new in zip(self._by_scope(outside), self._by_scope(inside), strict=True)
            for r, kind in self.kinds
            for x in (new[r] if r.kind == "scan" else kind.merge(L, old[r], new[r]))
        ]


def abreast(s: Schedule, chains: int) -> int:
    """How many blocks go side by side: with the chains of each, as many as of other rows."""
    return max(1, s.unroll // chains)
