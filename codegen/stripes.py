"""Long columns side by side: blocks of their rows outside, groups of columns inside.

A group of columns walked down all of its rows at once would read a few lines of each row, and find
its neighbours gone from the caches when their turn comes. So each group takes a block of ROWS rows
at a time, and what was accumulated before stands in memory meanwhile. The order of additions is
that of one group after the other: blocks are added up in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Expr
from graphc.codegen.reductions import reduction_of
from graphc.codegen.schedule import BLOCK
from graphc.codegen.scope import Scope
from graphc.codegen.sweep import Totals, least, memory_of

if TYPE_CHECKING:
    from graphc.codegen.along import Along

ROWS = 256          # elements that are added up before they join the total: keeps long sums exact
MOST_BYTES = 1 << 16  # of what stands in memory
PIECE = 16          # lines of memory of each row: rows of a piece stay cached from sweep to sweep
LEAST_VECTORS = 8   # of a row, if its length is known: fewer are one group, or a few


def fits(body: Along, totals: Totals) -> bool:
    """Whether a nest can be run so, and is worth it."""
    s, nest = body.s, body.nest
    reduces = [r for rs in body.reduces for r in rs]
    if s.vector is None or s.width == 1 or len(s.loops) != 1 or not reduces:
        return False
    if body.scans or totals or any(s.vector not in r.axes for r in reduces):
        return False
    row, column = nest.sizes[s.vector], nest.sizes[s.loops[0]]
    if isinstance(row, int) and row < LEAST_VECTORS * s.width:
        return False
    if isinstance(column, int) and column <= 2 * ROWS:
        return False
    return sum(8 * len(reduction_of(r).types) for r in reduces) * BLOCK <= MOST_BYTES


def run(body: Along, grid: Scope, low: str, high: str) -> None:
    """Columns from low to high of one grid item: several sweeps go over pieces of them."""
    s, e = body.s, body.e
    if s.sweeps == 1:
        _piece(body, grid, low, high)
        return
    step = PIECE * s.lanes // 4

    def piece(i: str, _: list[str]) -> list[str]:
        _piece(body, grid, i, least(e, e(f"add nsw i64 {i}, {step}"), high))
        return []

    e.loop(low, high, step, [], piece)


def _piece(body: Along, grid: Scope, low: str, high: str) -> None:
    s, e, f = body.s, body.e, body.f
    rows = f.top.size(body.nest.sizes[s.loops[0]])
    free = Lanes(e, s.width, f.target)  # the columns beyond the last are held and never read
    cells = {
        r: [f.alloca(f"[{BLOCK + s.width} x {memory_of(t)}]") for t in reduction_of(r).types]
        for rs in body.reduces for r in rs
    }

    def places(L: Lanes, c: Scope, r: Expr) -> list[tuple[str, str]]:
        """Types and addresses of what is held of a reduction at the vector that c is at."""
        assert s.vector is not None
        at = L.e(f"sub nsw i64 {c.axis_register(s.vector)}, {low}")
        return [
            (L.vec(t), L.e(f"getelementptr inbounds {memory_of(t)}, ptr {cell}, i64 {at}"))
            for t, cell in zip(reduction_of(r).types, cells[r], strict=True)
        ]

    def held(L: Lanes, c: Scope, r: Expr) -> list[str]:
        return [L.e(f"load {v}, ptr {p}, align 8") for v, p in places(L, c, r)]

    def hold(c: Scope, r: Expr, state: list[str]) -> None:
        for (v, p), x in zip(places(free, c, r), state, strict=True):
            e.do(f"store {v} {x}, ptr {p}, align 8")

    def finished(scopes: list[Scope], p: int) -> None:
        """Make the results of the sweeps before `p` known."""
        for c in scopes:
            L = Lanes(c.e, s.width, f.target)
            for r in cells:
                if s.sweep[r] < p:
                    c.vectors[r] = reduction_of(r).finish(L, held(L, c, r), r.dtype)

    def start(scopes: list[Scope]) -> None:
        for c in scopes:
            for r in cells:
                hold(c, r, reduction_of(r).start(free))

    body.vectors(grid, low, high, start)
    for p in range(s.sweeps):
        around = Scope(f, grid, e.section(), {}, ready=p)

        def block(i: str, _: list[str], p: int = p, around: Scope = around) -> list[str]:
            end = least(e, e(f"add nsw i64 {i}, {ROWS}"), rows)

            def group(scopes: list[Scope]) -> None:
                finished(scopes, p)
                states = body.reduce_rows(around, scopes, p, True, (i, end))
                for c, state in zip(scopes, states, strict=True):
                    for r, x in state.items():
                        hold(c, r, reduction_of(r).merge(free, held(free, c, r), x))

            body.vectors(around, low, high, group)
            return []

        e.loop("0", rows, ROWS, [], block)
    over = Scope(f, grid, e.section(), {}, ready=s.sweeps)

    def end(scopes: list[Scope]) -> None:
        finished(scopes, s.sweeps)
        for c in scopes:
            c.demand([x.expr for x in body.late_stores])
            for late in body.late_stores:
                c.store(late.output, late.offset, late.expr, vector=True)

    body.vectors(over, low, high, end)
