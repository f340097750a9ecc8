"""What the two ways of running a grid item share: reading, storing and adding up elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lane_masks import below, clamped
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of
from graphc.codegen.emission.parts import Span
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.loops import Expr, Store

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame

Totals = dict[Expr, list[str]]


class Body:
    """Emits the elements of one nest's items into one task function."""

    def __init__(self, frame: Frame):
        self.f, self.s, self.nest = frame, frame.schedule, frame.nest
        self.e = frame.e
        self.columns: dict[Expr, str] = {}  # where sums over rows stand, a row of them,
        self.carried: dict[tuple[Expr, str], str] = {}  # or registers, by their first element
        self.totals: Totals = {}  # cells of sums over all items
        reduces = [x for x in self.nest.exprs if x.kind == "reduce" and x in self.s.sweep]
        self.reduces = [[r for r in reduces if self.s.sweep[r] == p] for p in range(self.s.sweeps)]
        inner = set(self.nest.reduced)
        rest = [x for x in self.nest.stores if not self.s.is_late(x)]
        self.row_stores = [
            [x for x in rest if set(x.axes) & inner and self.s.ready[x.expr] == p]
            for p in range(self.s.sweeps)
        ]
        self.late_stores = [x for x in rest if not set(x.axes) & inner]
        self.scans = [x for x in self.nest.exprs if x.kind == "scan"]

    def add_up(self, states: dict[Expr, list[str]]) -> None:
        """Add scalar states to the totals over items."""
        one = Lanes(self.e, 1, self.f.target)
        for r, state in states.items():
            kind = reduction_of(r)
            wide = kind.wide
            new = kind.widen(one, state)
            old = [
                self.e(f"load {t}, ptr {c}, align 8")
                for t, c in zip(wide.types, self.totals[r], strict=True)
            ]
            merged = wide.merge(one, old, new)
            for t, c, v in zip(wide.types, self.totals[r], merged, strict=True):
                self.e.do(f"store {t} {v}, ptr {c}, align 8")

    def fed(self, r: Expr) -> Expr:
        """What a reduction accumulates: short integers before they become wider ones."""
        return r.args[0].args[0] if r in self.s.narrow else r.args[0]

    def mask(self, start: str, end: str) -> str:
        """Lanes start, start+1, ... that are below `end`."""
        L = Lanes(self.e, self.s.width, self.f.target)
        known = start.isdecimal() and end.isdecimal()
        if known and self.nest.reduced and L.target.masked and self.f.bits >= 32:
            end = self.f.hidden(end)  # of what is added up zeros take the place
        mask = below(L, start, end, self.f.bits)
        if self.f.copies_parts and mask.startswith("%"):
            left = self.e(f"sub nsw i64 {end}, {start}")
            self.f.spans[mask] = Span("0", clamped(L, left))
        return mask

    def vectors_at(self, scope: Scope, start: str, mask: str | None, width: int = 0) -> Scope:
        """A scope for the vector that begins at `start`."""
        assert self.s.vector is not None
        # what rows need besides their sums, or share, may be asked for late, but belongs before
        waits = self.s.sweeps or (self.s.tile is not None and self.s.tile.jam > 1)
        e = self.e.section() if waits and not self.s.across else self.e
        return Scope(self.f, scope, e, {self.s.vector: start}, ready=scope.ready, mask=mask,
                     width=width)

    def evaluate(self, inner: Scope, reduces: Sequence[Expr], stores: Sequence[Store]) -> None:
        """Compute what a vector of the row brings to reductions, stores and column sums."""
        columns = [r for r in self.columns if self.s.ready[r.args[0]] == self.f.sweeping]
        inner.demand(
            [self.fed(r) for r in (*reduces, *columns)] + [x.expr for x in stores]
        )
        for x in stores:
            inner.store(x.output, x.offset, x.expr, vector=self.s.width > 1)
        for r in columns:
            kind, L, e = reduction_of(r), inner.lanes(True), inner.e
            e.note(r.node)
            given = [inner.vector(r.args[0])]
            if self.carried:
                place = r, inner.axis_register(self.s.vector or "")
                (self.carried[place],) = kind.merge(L, [self.carried[place]], given)
                continue
            at = inner.size(self.s.place)
            cell = e(f"getelementptr inbounds {kind.types[0]}, ptr {self.columns[r]}, i64 {at}")
            kind.accumulate(L, cell, given)


def read_states(L: Lanes, types: Sequence[str], cells: Sequence[str], at: str) -> list[str]:
    """A vector of states at element `at` of arrays of them."""
    found = []
    for t, c in zip(types, cells, strict=True):
        m = memory_of(t)
        v = L.e(f"load {L.vec(m)}, ptr {_place(L.e, t, c, at)}, align 8")
        found.append(v if m == t else L.convert("trunc", v, m, t))
    return found


def write_states(
    L: Lanes, types: Sequence[str], cells: Sequence[str], at: str, state: Sequence[str]
) -> None:
    """Put a vector of states to element `at` of arrays of them."""
    for t, c, x in zip(types, cells, state, strict=True):
        m = memory_of(t)
        v = x if m == t else L.convert("zext", x, t, m)
        L.e.do(f"store {L.vec(m)} {v}, ptr {_place(L.e, t, c, at)}, align 8")


def _place(e: Emitter, t: str, cell: str, at: str) -> str:
    return e(f"getelementptr inbounds {memory_of(t)}, ptr {cell}, i64 {at}")


def least(e: Emitter, a: str, b: str) -> str:
    """The smaller of two i64 registers."""
    less = e(f"icmp slt i64 {a}, {b}")
    return e(f"select i1 {less}, i64 {a}, i64 {b}")


def greatest(e: Emitter, a: str, b: str) -> str:
    """The larger of two i64 registers."""
    more = e(f"icmp sgt i64 {a}, {b}")
    return e(f"select i1 {more}, i64 {a}, i64 {b}")


def under(frame: Frame, rows: Scope, common: Scope, met: dict[Scope, Scope]) -> Scope:
    """A scope for one vector of rows inside the loop that `common` stands for.

    Values that do not depend on the rows are shared by all vectors: `common` comes first. Of rows
    side by side, what depends on the row or the vector alone is shared likewise: `met` has the
    scopes for these inside the loop.
    """
    sides = []
    for c in rows.sides:
        if c not in met:
            met[c] = under(frame, c, common, met)
        sides.append(met[c])
    inner = Scope(frame, rows, frame.e, {}, ready=rows.ready, mask=rows.mask)
    extra = [c for c in common.chain if c not in rows.chain]
    split = len(common.chain) - len(extra)
    inner.chain = [*rows.chain[:split], *extra, *rows.chain[split:], *sides, inner]
    inner.known = rows.known | common.known
    inner.sides = tuple(sides)
    return inner
