"""Inner-loop vectorisation: a row is swept by vectors along a reduced axis, then lanes are folded.

A sweep walks a row with vectors. What it accumulates stands in VIRTUAL_BITS of lanes, element i in
lane i mod their number, and is folded in a fixed tree at the end of the row. Later sweeps use the
results of earlier ones: softmax takes three, for the maximum, the sum and the quotients. A short
row is written out without loops (`whole_row`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from graphc.codegen.elementwise import casts
from graphc.codegen.emission import (
    abreast,
    between,
    blocks,
    groups,
    heads,
    narrow,
    staged,
    whole_row,
    written,
)
from graphc.codegen.emission.abreast import Abreast, Place, States
from graphc.codegen.emission.folds import fold
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.packed import Packed
from graphc.codegen.emission.prefetch import RowPrefetch, Streams
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import Body
from graphc.codegen.nests.loops import Expr, Store
from graphc.codegen.nests.schedule import unroll_of
from graphc.codegen.nests.sweeps import sweep_cost

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame

CHEAP = 40  # cycles of a vector up to which the loop over a row is unrolled


class Across(Body):
    """Emits one row after the other."""

    def __init__(self, frame: Frame):
        super().__init__(frame)
        self.prefetch = RowPrefetch(self.s, frame.target)
        self.streams = Streams(self.s, frame.target)
        self.blocks = blocks.suit(self)
        self.origin = "0"  # where the block begins that an argmax counts in
        self.places = True  # whether its places are wanted, or only how great its elements are

    def kind(self, r: Expr) -> Reduction:
        """The reduction that the lanes accumulate in the pass that is being written."""
        if r in self.s.narrow:
            return narrow.kept(r, self.s.narrow[r])
        found = reduction_of(r)
        if not self.places:
            return Reduction("reduce_max", found.dtype)
        return found.in_block if self.blocks else found.in_lanes

    def run(self, grid: Scope, low: str, high: str) -> None:
        """One row, or of a row without others the part from low to high."""
        s = self.s
        scope = grid
        if s.straight:
            self.row_end(whole_row.run(self, grid))
            return
        for p in range(s.sweeps):
            if p:
                scope = Scope(self.f, scope, self.e.section(), {}, ready=p)
            if self.blocks and s.flat:
                (r,) = self.reduces[p]
                first = self.e(f"icmp eq i64 {low}, {self.f.first}")
                blocks.search(self, scope, r, low, high, self.totals[r], first)
                return
            if s.flat:
                self.part(scope, low, high)
                return
            states = blocks.row(self, scope) if self.blocks else self.sweep(scope, p, low, high)
            following = Scope(self.f, scope, self.e.section(), {}, ready=p + 1)
            one = Lanes(following.e, 1, self.f.target)
            for r, state in states.items():
                following.scalars[r] = reduction_of(r).finish(one, state, r.dtype)
            scope = following
        self.row_end(scope)

    def row_end(self, scope: Scope) -> None:
        """Per-row results, and what is added up over rows."""
        places = self.f.places
        scope = Scope(self.f, scope, self.e, {}, ready=scope.ready)
        scope.demand([*(x.expr for x in self.late_stores), *(places.wanted if places else ())])
        for x in self.late_stores:
            scope.store(x.output, x.offset, x.expr, vector=False)
        if places is not None:
            places.add(scope, wide=False)

    def part(self, scope: Scope, low: str, high: str) -> None:
        """A part of the only row. Where parts before made products of integers 0, which `any` and
        `all` are, nothing changes them any more."""
        e, done = self.e, ""
        absorbed = all(reduction_of(r).absorbed for r in self.totals)
        if absorbed and not (self.row_stores[0] or self.nest.sites):
            done = e.fresh("settled")
            zero = (
                e(f"icmp eq {t} {e(f'load {t}, ptr {self.totals[r][0]}, align 8')}, 0")
                for r in self.totals for t in reduction_of(r).types
            )
            e.leave(e.all_of(zero), done)
        packed = self.s.packed
        self.add_up(
            Packed(self, scope).totals(low, high) if packed else self.sweep(scope, 0, low, high)
        )
        if done:
            e.do(f"br label %{done}")
            e.label(done)

    def sweep(self, scope: Scope, p: int, low: str, high: str) -> dict[Expr, list[str]]:
        """One pass over the row: accumulate the reductions of sweep p, store what is ready."""
        self.f.sweeping = p
        if written.suits(self, p):
            return self._folded(p, written.sweep(self, scope, p, low, high))
        if groups.suits(self, p):
            return groups.sweep(
                self, scope, p, low, high, lambda: self._by_vectors(scope, p, low, high))
        return self._by_vectors(scope, p, low, high)

    def _by_vectors(self, scope: Scope, p: int, low: str, high: str) -> dict[Expr, list[str]]:
        """A sweep by loops over vectors."""
        s, e = self.s, self.e
        reduces, stores = self.reduces[p], self.row_stores[p]
        assert s.vector is not None
        n = self.nest.sizes[s.vector]
        begin, end = ("0", self.f.top.size(n))
        if self.blocks or (s.flat and self.nest.reduced[0] == s.vector):
            begin, end = low, high
        L = Lanes(e, s.width, self.f.target)
        places = [(r, k) for r in reduces for k in range(s.lanes // s.width)]
        start = {(r, k): self.kind(r).start(L) for r, k in places}
        group = self._side_by_side(reduces)
        in_one = not (s.loops or self.blocks or s.stages is not None or self._stretches(n))
        if in_one and abreast.suits(self, reduces, group):
            row = Abreast(self, scope, reduces, stores, group)
            return self._folded(p, row.sweep(begin, end, start))
        cells = {
            r: [self.f.alloca(f"[{s.lanes} x {memory_of(t)}]") for t in self.kind(r).types]
            for r in reduces
        }
        self._store(cells, start)
        outer = list(s.loops)

        def nested(depth: int, around: Scope) -> None:
            if depth == len(outer):
                if s.stages is None:
                    self.row(around, reduces, stores, cells, begin, end, n)
                else:
                    staged.blocks(self, around, begin, end, lambda inner, low, high: self.row(
                        inner, reduces, stores, cells, low, high, n))
                return
            name = outer[depth]
            first, last = "0", self.f.top.size(self.nest.sizes[name])
            if s.flat and name == self.nest.reduced[0]:
                first, last = low, high

            def body(i: str) -> None:
                inner = Scope(self.f, around, e.section(), {name: i}, ready=around.ready)
                nested(depth + 1, inner)

            between.each(self.f, name, first, last, body)

        nested(0, scope)
        return self._folded(p, self._load(cells, places))

    def _folded(
        self, p: int, states: Mapping[tuple[Expr, int], list[str]]
    ) -> dict[Expr, list[str]]:
        """Scalar states of sweep p's reductions, from those of lanes that elements reach."""
        s = self.s
        L = Lanes(self.e, s.width, self.f.target)
        out: dict[Expr, list[str]] = {}
        for r in self.reduces[p]:
            kind, parts = self.kind(r), [states.get((r, k)) for k in range(s.lanes // s.width)]
            self.e.note(r.node)
            out[r] = (
                narrow.total(L, kind, parts, r.dtype) if r in s.narrow else fold(kind, L, parts)
            )
        return out

    def _load(self, cells: Mapping[Expr, list[str]], places: Iterable[Place]) -> States:
        """States that stand in memory."""
        L = Lanes(self.e, self.s.width, self.f.target)
        return {
            (r, k): [
                self.e(f"load {L.vec(t)}, ptr {self._cell(c, t, str(k * L.width))}, align 8")
                for t, c in zip(self.kind(r).types, cells[r], strict=True)
            ]
            for r, k in places
        }

    def _store(self, cells: Mapping[Expr, list[str]], states: States) -> None:
        """Put states into memory."""
        L = Lanes(self.e, self.s.width, self.f.target)
        for (r, k), state in states.items():
            for t, c, x in zip(self.kind(r).types, cells[r], state, strict=True):
                at = self._cell(c, t, str(k * L.width))
                self.e.do(f"store {L.vec(t)} {x}, ptr {at}, align 8")

    def _cell(self, base: str, t: str, lane: str) -> str:
        """The address of a lane of states in memory."""
        if lane == "0":
            return base
        return self.e(f"getelementptr inbounds {memory_of(t)}, ptr {base}, i64 {lane}")

    def arrivals(self, inner: Scope, r: Expr, start: str, count: int) -> list[list[str]]:
        """What each of `count` vectors in the one at `start` brings to a reduction."""
        x = self.arriving(inner, r, start)
        if count == 1:
            return [x]
        kind = self.kind(r)
        t = register_type(kind.dtype if r in self.s.narrow else self.fed(r).dtype)
        return [[v] for v in inner.lanes(True).parts(t, x[0], self.s.width)]

    def arriving(self, scope: Scope, r: Expr, start: str) -> list[str]:
        """What the vector at `start` brings to a reduction: for an argmax, its group as well."""
        scope.e.note(r.node)
        kind = self.kind(r)
        x = [scope.vector(self.fed(r))]
        if r in self.s.narrow:
            x = [casts.cast(scope.lanes(True), x[0], self.fed(r).dtype, kind.dtype)]
        if kind.name == "argmax":
            if start.isdigit():
                group = scope.lanes(True).k(kind.position, int(start) // self.s.lanes)
            else:
                within = start
                if self.blocks:
                    within = scope.e(f"sub nsw i64 {start}, {self.origin}")
                group = scope.e(f"udiv i64 {within}, {self.s.lanes}")
                if kind.position != "i64":
                    group = scope.e(f"trunc i64 {group} to {kind.position}")
                group = scope.lanes(True).spread(kind.position, group)
            x.append(group)
        return x

    def row(
        self, scope: Scope, reduces: list[Expr], stores: list[Store],
        cells: dict[Expr, list[str]], begin: str, end: str, n: object,
    ) -> None:
        """Vectors from begin to end: the row's head, if it has one, a loop of whole vectors, then a
        loop of masked ones."""
        s, e, head = self.s, self.e, ""
        group = self._side_by_side(reduces)
        if found := self._stretches(n):
            def some(low: str, high: str) -> None:
                self._rolled(scope, reduces, stores, cells, low, high, masked=False)

            def decided(low: str, high: str) -> None:
                if group > 1:
                    self._unrolled(scope, reduces, stores, cells, low, high, group)
                else:
                    some(low, high)

            begin = between.whole(self.f, found, begin, end, some, decided)
            group = 1
        elif stores and not (reduces or self.blocks):
            head = heads.end(self, scope, stores, begin, end)
            if head:
                self._rolled(scope, reduces, stores, cells, begin, head, masked=True)
                begin = head
        unrolled = group > 1 and not (isinstance(n, int) and n < group * s.width)
        step = (group if unrolled else 1) * s.width
        even = isinstance(n, int) and n % step == 0 and not (s.flat or self.blocks or head)
        whole = end
        if unrolled or not even:
            length = e(f"sub nsw i64 {end}, {begin}")
            whole = e(f"sub nsw i64 {end}, {e(f'srem i64 {length}, {step}')}")
        if unrolled:
            self._unrolled(scope, reduces, stores, cells, begin, whole, group)
            if s.narrow and not even:  # masks of bytes go lane by lane below AVX-512
                rest = e(f"srem i64 {e(f'sub nsw i64 {end}, {whole}')}, {s.width}")
                last = e(f"sub nsw i64 {end}, {rest}")
                self._rolled(scope, reduces, stores, cells, whole, last, masked=False)
                whole = last
        else:
            self._rolled(scope, reduces, stores, cells, begin, whole, masked=False)
        if not even:
            self._rolled(scope, reduces, stores, cells, whole, end, masked=True)

    def _stretches(self, n: object) -> list[between.Cut]:
        """The stretches between bounds of conditions along the row, if it is long."""
        s = self.s
        few = self.f.decided and not self.f.in_longest
        if s.vector is None or self.blocks or s.narrow or few:
            return []
        short = isinstance(n, int) and n < between.LONG
        if short and (s.loops or not s.flat):
            return []
        return between.cuts(self.nest, s.vector)

    def _side_by_side(self, reduces: list[Expr]) -> int:
        """How many vectors of the row the sweep takes at a time: all that states in registers need.

        Sweeps of a nest of some length may be cheap: what is done once for a row is not theirs.
        States in memory wait for their stores: layer norm of 1024 x 1024 takes f32 10 to 15% more
        so, f64 20%, its gradient 15 to 40%. They must leave half of the registers.
        """
        s = self.s
        group = s.lanes // s.width
        if s.cost <= CHEAP:
            return group if reduces else s.unroll
        cost = sweep_cost(s, self.f.sweeping)
        if cost > CHEAP or 2 * group * len(reduces) > self.f.target.registers:
            return 1
        return group if reduces else max(s.unroll, unroll_of(cost))

    def _unrolled(
        self, scope: Scope, reduces: list[Expr], stores: list[Store],
        cells: dict[Expr, list[str]], begin: str, end: str, group: int,
    ) -> None:
        """A loop over `group` vectors at a time, with the states of reductions in registers."""
        row = Abreast(self, scope, reduces, stores, group)
        states = row.begun(self._load(cells, [(r, k) for r in reduces for k in row.sides]))
        self._store(cells, row.ended(row.groups(begin, end, states)))

    def _rolled(
        self, scope: Scope, reduces: list[Expr], stores: list[Store],
        cells: dict[Expr, list[str]], begin: str, end: str, masked: bool,
    ) -> None:
        """A loop over single vectors, with the states of reductions in memory."""
        s, e = self.s, self.e

        def body(i: str) -> None:
            inner = self.vectors_at(scope, i, self.mask(i, end) if masked else None)
            if self.f.sweeping == self.prefetch.sweep and not masked:
                self.prefetch.ask(inner, 0)
            self.evaluate(inner, reduces, stores)
            L = inner.lanes(True)
            lane = e(f"and i64 {i}, {s.lanes - 1}")
            for r in reduces:
                kind = self.kind(r)
                at = [self._cell(b, t, lane) for t, b in zip(kind.types, cells[r], strict=True)]
                old = [
                    e(f"load {L.vec(t)}, ptr {c}, align 8")
                    for t, c in zip(kind.types, at, strict=True)
                ]
                new = kind.step(L, old, self.arriving(inner, r, i))
                for t, c, v in zip(kind.types, at, new, strict=True):
                    e.do(f"store {L.vec(t)} {v}, ptr {c}, align 8")

        e.for_each(begin, end, body, s.width)
