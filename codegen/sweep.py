"""The body of a grid item: sweeps over a row, or vectors of rows side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Expr, Nest, Store, axis
from graphc.codegen.reductions import Reduction, reduction_of
from graphc.codegen.schedule import BLOCK, ceildiv
from graphc.codegen.scope import Scope
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.nest import Frame

Totals = dict[Expr, list[str]]
STRAIGHT = 48  # expressions times vectors up to which a row is written out without a loop


class Sweeper:
    """Emits items of one nest into one task function."""

    def __init__(self, frame: Frame):
        self.f, self.s, self.nest = frame, frame.schedule, frame.nest
        self.e = frame.e
        self.columns: dict[Expr, str] = {}
        self.sweeping = 0
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
        self.body_cost = sum(1 for x in self.nest.exprs if x.kind not in ("const", "index"))

    def item(self, i: str, totals: Totals, columns: dict[Expr, str]) -> None:
        """Emit grid item number `i`; reductions over all items are added to `totals`, sums per
        element of a row to the accumulators in `columns`."""
        s, e = self.s, self.e
        self.columns = columns
        bound: dict[str, str] = {}
        low, high = "0", ""
        rest = i
        if s.flat:
            first = self.nest.reduced[0]
            size = self.f.top.size(self.nest.sizes[first])
            if first == s.vector:
                low = e(f"mul nsw i64 {i}, {BLOCK}")
                high = self._least(e(f"add nsw i64 {low}, {BLOCK}"), size)
            else:
                low, high = i, e(f"add nsw i64 {i}, 1")
        elif s.vector is not None and not s.across:
            n = self.nest.sizes[s.vector]
            blocks = ceildiv(n, BLOCK)
            if blocks == 1:
                high = self.f.top.size(n)
            else:
                nb = self.f.top.size(blocks)
                block = e(f"urem i64 {i}, {nb}") if s.grid else i
                rest = e(f"udiv i64 {i}, {nb}") if s.grid else i
                low = e(f"mul nsw i64 {block}, {BLOCK}")
                high = self._least(e(f"add nsw i64 {low}, {BLOCK}"), self.f.top.size(n))
        for k, name in enumerate(reversed(s.grid)):
            if k == len(s.grid) - 1:
                bound[name] = rest
            else:
                n_reg = self.f.top.size(self.nest.sizes[name])
                bound[name] = e(f"urem i64 {rest}, {n_reg}")
                rest = e(f"udiv i64 {rest}, {n_reg}")
        grid = Scope(self.f, self.f.top, e.section(), bound)
        if s.across:
            self.across(grid, low, high, totals)
        else:
            self.along(grid, low, high, totals)

    def _least(self, a: str, b: str) -> str:
        less = self.e(f"icmp slt i64 {a}, {b}")
        return self.e(f"select i1 {less}, i64 {a}, i64 {b}")

    # --- across: the vector axis is reduced ------------------------------------------------------

    def across(self, grid: Scope, low: str, high: str, totals: Totals) -> None:
        s = self.s
        scope = grid
        for p in range(s.sweeps):
            if p:
                scope = Scope(self.f, scope, self.e.section(), {}, ready=p)
            states = self.sweep(scope, p, low, high)
            if s.flat:
                self.add_up(states, totals)
                return
            following = Scope(self.f, scope, self.e.section(), {}, ready=p + 1)
            one = Lanes(following.e, 1, self.f.target)
            for r, state in states.items():
                following.scalars[r] = reduction_of(r).finish(one, state, r.dtype)
            scope = following
        self.row_end(scope, totals)

    def row_end(self, scope: Scope, totals: Totals) -> None:
        """Per-row results, and what is added up over rows."""
        over_rows = [r for r in totals if r not in self.s.sweep]
        wanted = [x.expr for x in self.late_stores]
        wanted += [a for r in over_rows for a in r.args]
        scope = Scope(self.f, scope, self.e.section(), {}, ready=scope.ready)
        scope.demand(wanted)
        for x in self.late_stores:
            scope.store(x.output, x.offset, x.expr, vector=False)
        self.add_up({r: [scope.scalar(a) for a in r.args] for r in over_rows}, totals)

    def add_up(self, states: dict[Expr, list[str]], totals: Totals) -> None:
        one = Lanes(self.e, 1, self.f.target)
        for r, state in states.items():
            kind = reduction_of(r)
            wide = kind.wide
            new = kind.widen(one, state)
            old = [
                self.e(f"load {t}, ptr {c}, align 8")
                for t, c in zip(wide.types, totals[r], strict=True)
            ]
            merged = wide.merge(one, old, new)
            for t, c, v in zip(wide.types, totals[r], merged, strict=True):
                self.e.do(f"store {t} {v}, ptr {c}, align 8")

    def sweep(self, scope: Scope, p: int, low: str, high: str) -> dict[Expr, list[str]]:
        """One pass over the row: accumulate the reductions of sweep p, store what is ready."""
        s, e = self.s, self.e
        reduces, stores = self.reduces[p], self.row_stores[p]
        self.sweeping = p
        assert s.vector is not None
        n = self.nest.sizes[s.vector]
        vectors = -(-n // s.width) if isinstance(n, int) else 1 << 30
        per = s.lanes // s.width
        straight = (
            not s.loops and not s.flat and 0 < vectors <= per
            and vectors * self.body_cost <= max(STRAIGHT, self.body_cost)
        )
        if straight:
            return self.straight(scope, reduces, stores, int(n), vectors, per)
        cells = {
            r: [self.f.alloca(f"[{s.lanes} x {_memory(t)}]") for t in reduction_of(r).types]
            for r in reduces
        }
        L = Lanes(e, s.width, self.f.target)
        for r, bases in cells.items():
            for t, base, v in zip(
                reduction_of(r).types, bases, reduction_of(r).start(L), strict=True
            ):
                for k in range(per):
                    e.do(f"store {L.vec(t)} {v}, ptr {self._cell(base, t, str(k * s.width))}, "
                         "align 8")
        begin, end = ("0", self.f.top.size(n))
        outer = list(s.loops)
        if s.flat and self.nest.reduced[0] == s.vector:
            begin, end = low, high

        def nested(depth: int, around: Scope) -> None:
            if depth == len(outer):
                self.row(around, reduces, stores, cells, begin, end, n)
                return
            name = outer[depth]
            first, last = "0", self.f.top.size(self.nest.sizes[name])
            if s.flat and name == self.nest.reduced[0]:
                first, last = low, high

            def body(i: str, _: list[str]) -> list[str]:
                inner = Scope(self.f, around, e.section(), {name: i}, ready=around.ready)
                nested(depth + 1, inner)
                return []

            e.loop(first, last, 1, [], body)

        nested(0, scope)
        out: dict[Expr, list[str]] = {}
        for r, bases in cells.items():
            kind = reduction_of(r)
            parts: list[list[str] | None] = [
                [
                    e(f"load {L.vec(t)}, ptr {self._cell(base, t, str(k * s.width))}, align 8")
                    for t, base in zip(kind.types, bases, strict=True)
                ]
                for k in range(per)
            ]
            out[r] = kind.fold(L, parts)
        return out

    def _cell(self, base: str, t: str, lane: str) -> str:
        if lane == "0":
            return base
        return self.e(f"getelementptr inbounds {_memory(t)}, ptr {base}, i64 {lane}")

    def straight(
        self, scope: Scope, reduces: list[Expr], stores: list[Store], n: int, vectors: int,
        per: int,
    ) -> dict[Expr, list[str]]:
        """A short row of known length, without a loop."""
        s = self.s
        parts: dict[Expr, list[list[str] | None]] = {r: [None] * per for r in reduces}
        for k in range(vectors):
            start = str(k * s.width)
            mask = None if (k + 1) * s.width <= n else self._mask(start, str(n))
            inner = self._at(scope, start, mask)
            self._evaluate(inner, reduces, stores)
            L = inner.lanes(True)
            for r in reduces:
                kind = reduction_of(r)
                x = [inner.vector(a) for a in r.args]
                parts[r][k] = kind.step(L, kind.start(L), x)
        L = Lanes(self.e, s.width, self.f.target)
        return {r: reduction_of(r).fold(L, parts[r]) for r in reduces}

    def _mask(self, start: str, end: str) -> str:
        """Lanes start, start+1, ... that are below `end`."""
        L = Lanes(self.e, self.s.width, self.f.target)
        left = self.e(f"sub nsw i64 {end}, {start}")
        small = self.e(f"trunc i64 {left} to i32")
        steps = ", ".join(f"i32 {i}" for i in range(L.width))
        if L.width == 1:
            return self.e(f"icmp sgt i32 {small}, 0")
        return self.e(
            f"icmp slt {L.vec('i32')} <{steps}>, {L.spread('i32', small)}"
        )

    def _at(self, scope: Scope, start: str, mask: str | None) -> Scope:
        assert self.s.vector is not None
        # what rows need besides their sums may be asked for late, but belongs before the sweeps
        e = self.e if self.s.across or not self.s.sweeps else self.e.section()
        return Scope(self.f, scope, e, {self.s.vector: start}, ready=scope.ready, mask=mask)

    def _evaluate(self, inner: Scope, reduces: Sequence[Expr], stores: Sequence[Store]) -> None:
        columns = [r for r in self.columns if self.s.ready[r.args[0]] == self.sweeping]
        inner.demand(
            [a for r in (*reduces, *columns) for a in r.args] + [x.expr for x in stores]
        )
        for x in stores:
            inner.store(x.output, x.offset, x.expr, vector=self.s.width > 1)
        for r in columns:
            kind = reduction_of(r)
            at = inner.size(flatten_row(self.nest))
            cell = inner.e(
                f"getelementptr inbounds {kind.types[0]}, ptr {self.columns[r]}, i64 {at}"
            )
            kind.accumulate(inner.lanes(True), cell, [inner.vector(r.args[0])])

    def row(
        self, scope: Scope, reduces: list[Expr], stores: list[Store],
        cells: dict[Expr, list[str]], begin: str, end: str, n: object,
    ) -> None:
        """Vectors from begin to end: an unrolled loop, then a loop of masked vectors."""
        s, e = self.s, self.e
        per = s.lanes // s.width
        cheap = self.body_cost <= 24
        group = (per if reduces else s.unroll) if cheap else 1
        unrolled = group > 1 and not (isinstance(n, int) and n < group * s.width)
        step = group * s.width
        main_end = begin
        if unrolled:
            length = e(f"sub nsw i64 {end}, {begin}")
            whole = e(f"srem i64 {length}, {step}")
            main_end = e(f"sub nsw i64 {end}, {whole}")
            L = Lanes(e, s.width, self.f.target)
            carried: list[tuple[str, str]] = []
            for r in reduces:
                for k in range(per):
                    for t, base in zip(reduction_of(r).types, cells[r], strict=True):
                        cell = self._cell(base, t, str(k * s.width))
                        carried.append(
                            (L.vec(t), e(f"load {L.vec(t)}, ptr {cell}, align 8"))
                        )

            def body(i: str, state: list[str]) -> list[str]:
                new: dict[tuple[Expr, int], list[str]] = {}
                for k in range(group):
                    start = e(f"add nuw nsw i64 {i}, {k * s.width}") if k else i
                    inner = self._at(scope, start, None)
                    self._evaluate(inner, reduces, stores)
                    L = inner.lanes(True)
                    at = 0
                    for r in reduces:
                        kind = reduction_of(r)
                        m = len(kind.types)
                        old = state[at + k * m : at + (k + 1) * m]
                        new[r, k] = kind.step(L, old, [inner.vector(a) for a in r.args])
                        at += per * m
                return [v for r in reduces for k in range(per) for v in new[r, k]]

            final = e.loop(begin, main_end, step, carried, body)
            at = 0
            for r in reduces:
                for k in range(per):
                    for t, base in zip(reduction_of(r).types, cells[r], strict=True):
                        cell = self._cell(base, t, str(k * s.width))
                        e.do(f"store {L.vec(t)} {final[at]}, ptr {cell}, align 8")
                        at += 1
        if isinstance(n, int) and n % (step if unrolled else s.width) == 0 and not s.flat:
            if unrolled:
                return
            self._rolled(scope, reduces, stores, cells, begin, end, masked=False)
            return
        if not unrolled:
            length = e(f"sub nsw i64 {end}, {begin}")
            whole = e(f"srem i64 {length}, {s.width}")
            main_end = e(f"sub nsw i64 {end}, {whole}")
            self._rolled(scope, reduces, stores, cells, begin, main_end, masked=False)
        self._rolled(scope, reduces, stores, cells, main_end, end, masked=True)

    def _rolled(
        self, scope: Scope, reduces: list[Expr], stores: list[Store],
        cells: dict[Expr, list[str]], begin: str, end: str, masked: bool,
    ) -> None:
        s, e = self.s, self.e

        def body(i: str, _: list[str]) -> list[str]:
            inner = self._at(scope, i, self._mask(i, end) if masked else None)
            self._evaluate(inner, reduces, stores)
            L = inner.lanes(True)
            lane = e(f"and i64 {i}, {s.lanes - 1}")
            for r in reduces:
                kind = reduction_of(r)
                at = [self._cell(b, t, lane) for t, b in zip(kind.types, cells[r], strict=True)]
                old = [
                    e(f"load {L.vec(t)}, ptr {c}, align 8")
                    for t, c in zip(kind.types, at, strict=True)
                ]
                new = kind.step(L, old, [inner.vector(a) for a in r.args])
                for t, c, v in zip(kind.types, at, new, strict=True):
                    e.do(f"store {L.vec(t)} {v}, ptr {c}, align 8")
            return []

        e.loop(begin, end, s.width, [], body)

    # --- along: every lane is a row of its own ---------------------------------------------------

    def along(
        self, grid: Scope, low: str, high: str, totals: Totals, partial: bool = False
    ) -> None:
        """Vectors of rows from low to high; `partial` says that these need not be all."""
        s, e = self.s, self.e
        if s.vector is None:
            self.rows(grid, [Scope(self.f, grid, e.section(), {})], totals)
            return
        n: Size | None = None if partial else self.nest.sizes[s.vector]
        group = s.unroll
        if isinstance(n, int):
            while group > 1 and n < group * s.width:
                group //= 2
        step = group * s.width
        main_end = low
        fits = isinstance(n, int) and n % step == 0 and n <= BLOCK
        if not (isinstance(n, int) and n < s.width):
            if fits:
                main_end = high
            else:
                length = e(f"sub nsw i64 {high}, {low}")
                main_end = e(f"sub nsw i64 {high}, {e(f'srem i64 {length}, {step}')}")

            def body(i: str, _: list[str]) -> list[str]:
                starts = [
                    e(f"add nuw nsw i64 {i}, {k * s.width}") if k else i for k in range(group)
                ]
                self.rows(grid, [self._at(grid, x, None) for x in starts], totals)
                return []

            if isinstance(n, int) and n == step and fits:
                body("0", [])
            else:
                e.loop(low, main_end, step, [], body)
        if fits:
            return

        def tail(i: str, _: list[str]) -> list[str]:
            mask = self._mask(i, high) if s.width > 1 else None
            self.rows(grid, [self._at(grid, i, mask)], totals)
            return []

        e.loop(main_end, high, s.width, [], tail)

    def rows(self, grid: Scope, scopes: list[Scope], totals: Totals) -> None:
        """Rows in lanes: sweep the reduced axes with scalar loops, then store."""
        s = self.s
        wide = s.width > 1 and s.vector is not None
        for scope in scopes:
            for x in self.scans:
                slot = self.f.alloca(scope.lanes(wide).vec(_memory(reduction_of(x).types[0])))
                (grid if s.vector is None else scope).slots[x] = slot
        for p in range(s.sweeps):
            if p:
                scopes = [
                    Scope(self.f, c, self.e.section(), {}, ready=p, mask=c.mask) for c in scopes
                ]
            states = self.reduce_rows(grid, scopes, p, wide)
            following = []
            for c, state in zip(scopes, states, strict=True):
                f = Scope(self.f, c, self.e.section(), {}, ready=p + 1, mask=c.mask)
                L = f.lanes(wide)
                for r, regs in state.items():
                    value = reduction_of(r).finish(L, regs, r.dtype)
                    (f.vectors if f.is_vector(r) else f.scalars)[r] = value
                following.append(f)
            scopes = following
        over_rows = [r for r in totals if r not in self.s.sweep]
        for scope in scopes:
            end = Scope(self.f, scope, self.e, {}, ready=scope.ready, mask=scope.mask)
            end.demand([x.expr for x in self.late_stores] + [a for r in over_rows for a in r.args])
            for late in self.late_stores:
                end.store(late.output, late.offset, late.expr, vector=wide)
            self.add_up({r: [end.scalar(a) for a in r.args] for r in over_rows}, totals)

    def reduce_rows(
        self, grid: Scope, scopes: list[Scope], p: int, wide: bool
    ) -> list[dict[Expr, list[str]]]:
        s, e = self.s, self.e
        reduces, stores = self.reduces[p], self.row_stores[p]
        kinds: list[tuple[Expr, Reduction]] = [(r, reduction_of(r)) for r in reduces]
        lanes = [c.lanes(wide) for c in scopes]
        start: list[tuple[str, str]] = []
        for L in lanes:
            for _, kind in kinds:
                start += list(zip([L.vec(t) for t in kind.types], kind.start(L), strict=True))
        for c, L in zip(scopes, lanes, strict=True):
            for x in self.scans:
                kind = reduction_of(x)
                first = f"{L.vec(kind.types[0])} {kind.start(L)[0]}"
                e.do(f"store {first}, ptr {c.slot_of(x)}, align 8")

        def nested(
            depth: int, arounds: list[Scope], shared: Scope, state: list[str]
        ) -> list[str]:
            if depth == len(s.loops):
                out: list[str] = []
                at = 0
                for c in arounds:
                    self._evaluate_row(c, reduces, stores, wide)
                    L = c.lanes(wide)
                    for r, kind in kinds:
                        m = len(kind.types)
                        x = [c.operand(a, wide) for a in r.args]
                        out += kind.merge(L, state[at : at + m], x)
                        at += m
                return out
            name = s.loops[depth]

            def body(i: str, inner: list[str]) -> list[str]:
                common = Scope(self.f, shared, e.section(), {name: i}, ready=shared.ready)
                local = [_under(self.f, c, common) for c in arounds]
                return nested(depth + 1, local, common, inner)

            carried = [(t, v) for (t, _), v in zip(start, state, strict=True)]
            return e.loop("0", self.f.top.size(self.nest.sizes[name]), 1, carried, body)

        final = nested(0, scopes, grid, [v for _, v in start])
        out = []
        at = 0
        for _ in scopes:
            state: dict[Expr, list[str]] = {}
            for r, kind in kinds:
                state[r] = final[at : at + len(kind.types)]
                at += len(kind.types)
            out.append(state)
        return out

    def _evaluate_row(
        self, c: Scope, reduces: Sequence[Expr], stores: Sequence[Store], wide: bool
    ) -> None:
        c.demand([a for r in reduces for a in r.args] + [x.expr for x in stores])
        for x in stores:
            c.store(x.output, x.offset, x.expr, vector=wide)


def _under(frame: Frame, rows: Scope, common: Scope) -> Scope:
    """A scope for one vector of rows inside the loop that `common` stands for.

    Values that do not depend on the rows are shared by all vectors: `common` comes first.
    """
    inner = Scope(frame, rows, frame.e, {}, ready=rows.ready, mask=rows.mask)
    extra = [c for c in common.chain if c not in rows.chain]
    split = len(common.chain) - len(extra)
    inner.chain = [*rows.chain[:split], *extra, *rows.chain[split:], inner]
    inner.known = rows.known | common.known
    return inner


def flatten_row(nest: Nest) -> Size:
    """The position within a row, in the order of its axes."""
    total: Size = 0
    for name in nest.reduced:
        total = total * nest.sizes[name] + axis(name)
    return total


def _memory(t: str) -> str:
    return "i8" if t == "i1" else t

