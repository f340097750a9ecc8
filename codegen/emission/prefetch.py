"""Software prefetch of rows: while one is computed on, the next is on its way from memory.

Of several sweeps over a row only the first waits for memory, and while the others compute, memory
would have nothing to do: prefetchers do not look beyond a page. So the costliest of the later
sweeps asks for the elements of the next row, one row ahead of each that it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.aligned import LINE
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import Schedule
from graphc.codegen.nests.sweeps import sweep_cost
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.scope import Scope

LEAST_BYTES = 1 << 10  # between rows: shorter ones are a stream that prefetchers follow
MOST_BYTES = 1 << 17   # longer ones would be gone from a core's cache when their turn comes
NEAR_BYTES = 1 << 14   # likewise from the nearest cache


class RowPrefetch:
    """The sweep of a schedule that asks for the next row, if any, and the loads it asks for."""

    def __init__(self, s: Schedule):
        self.sweep = -1
        self.loads: dict[Expr, Size] = {}  # bytes from row to row
        self._near: dict[Size, tuple[str, int]] = {}
        if not s.across or s.sweeps < 2 or s.straight or not s.grid or s.vector is None:
            return
        for x in s.nest.exprs:
            if x.kind == "load" and coefficient(x.offset, s.vector) == 1:
                step = coefficient(x.offset, s.grid[-1])
                if step is None or s.nest.dynamic(x.offset):
                    continue
                step = step * x.dtype.itemsize
                if not isinstance(step, int) or LEAST_BYTES <= step <= MOST_BYTES:
                    self.loads[x] = step
        if self.loads:
            self.sweep = max(range(1, s.sweeps), key=lambda p: sweep_cost(s, p))

    def ask(self, scope: Scope, k: int) -> None:
        """Ask for what the vector at `scope`, the k-th of some side by side, or several in one,
        reads in the next row."""
        width = scope.frame.schedule.width
        for x, step in self.loads.items():
            size = x.dtype.itemsize
            if k * width * size % LINE:
                continue
            bytes_, locality = self._distance(scope, step)
            e, here = scope.e, scope.element(scope.frame.params[x.param], size, x.offset)
            at = e(f"getelementptr i8, ptr {here}, i64 {bytes_}")
            for more in range(0, scope.width * size, LINE):
                e.prefetch(e(f"getelementptr i8, ptr {at}, i64 {more}") if more else at, locality)

    def _distance(self, scope: Scope, step: Size) -> tuple[str, int]:
        """Bytes to the next row, 0 if they are too many, and how near it is to be kept."""
        if isinstance(step, int):
            return str(step), 3 if step <= NEAR_BYTES else 2
        if step not in self._near:
            top = scope.frame.top
            bytes_ = top.size(step)
            few = top.e(f"icmp ule i64 {bytes_}, {MOST_BYTES}")
            self._near[step] = top.e(f"select i1 {few}, i64 {bytes_}, i64 0"), 2
        return self._near[step]
