"""Sums over all rows, of rows that give a number each: places that take turns.

    total += f(row)        each addition would wait for the one before, 12 cycles with its store

Rows go to places instead, by number, which are folded when the chunk is over: vectors of rows to
COLUMNS of them, by their position along the vector axis, which is a block's column where operands
are turned; rows that are swept one by one to ROWS. So the order depends on shapes alone, not on how
wide vectors are. Of f32, by one total and by places: the sum of 1/r**6 over all pairs of 1000
points 3.1 ms and 0.23, of norms of 100,000 x 3 310 us and 22, of 100,000 x 7 307 and 145.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.emission.folds import fold
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.sweep import Totals, read_states, write_states
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.tiles import COLUMNS

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame
    from graphc.codegen.emission.scope import Scope

ROWS = 16


class Places:
    """The places of one task's sums over rows."""

    def __init__(self, f: Frame):
        s = f.schedule
        self.f = f
        self.vector = None if s.across else s.vector  # rows are numbered along it, or are items
        self.count = ROWS if self.vector is None else COLUMNS
        self.cells = {
            r: [f.alloca(f"[{self.count} x {memory_of(t)}]") for t in reduction_of(r).wide.types]
            for r in s.sums if r not in s.sweep
        }

    @property
    def wanted(self) -> list[Expr]:
        """What `add` takes of a row."""
        return [a for r in self.cells for a in r.args]

    def add(self, end: Scope, wide: bool) -> None:
        """Add what a row gives at its end, or a vector of rows."""
        L, e = end.lanes(wide), end.e
        assert L.width <= self.count
        number = self.f.item if self.vector is None else end.axis_register(self.vector)
        at = e(f"and i64 {number}, {self.count - 1}")
        for r, cells in self.cells.items():
            kind = reduction_of(r)
            given = [end.vector(a) if wide else end.scalar(a) for a in r.args]
            types = kind.wide.types
            old = read_states(L, types, cells, at)
            write_states(L, types, cells, at, kind.wide.step(L, old, kind.widen(L, given)))

    def clear(self) -> None:
        """Set all places to the state of no elements."""
        L = self._lanes()
        for r in self.cells:
            wide = reduction_of(r).wide
            for k in range(0, self.count, L.width):
                write_states(L, wide.types, self.cells[r], str(k), wide.start(L))

    def fold(self, totals: Totals) -> None:
        """Put the sums over all places into their cells."""
        L = self._lanes()
        for r in self.cells:
            wide = reduction_of(r).wide
            states: list[list[str] | None] = [
                read_states(L, wide.types, self.cells[r], str(k))
                for k in range(0, self.count, L.width)
            ]
            for t, cell, x in zip(wide.types, totals[r], fold(wide, L, states), strict=True):
                L.e.do(f"store {t} {x}, ptr {cell}, align 8")

    def _lanes(self) -> Lanes:
        target = self.f.target
        return Lanes(self.f.e, min(self.count, target.vector_bits // 64), target)
