"""Software prefetch of rows: while one is computed on, the next is on its way from memory.

Of several sweeps over a row only the first waits for memory, and while the others compute, memory
would have nothing to do: prefetchers do not look beyond a page. So the costliest of the later
sweeps asks for the elements of the next row, one row ahead of each that it reads.

What comes from far memory Zen 4 reads faster as it stands where that sweep takes next to no time:
GB/s of rows of 1,024 f32, in all 16 and 64 MiB, with asking and without

    variance                   38   29     43   33
    over the root of squares   15   12     21   16
    log-softmax                11   10     10  8.7

but variances of 4 MiB 56 and 49.

Short rows come to the nearest cache, others to the next one. Of a length that comes with the call
both are asked for, one of them where the vector itself is, which is there: by the next cache alone
variances of 1024 x 1024 f32 take Zen 5 67 us in the place of 50, layer norms of f64 398 for 340.

Zen 3 reads far memory faster as some streams. A sweep that takes next to no time asks for the next
block of its operand at some places side by side (`Streams`). GB/s of f32, in all 20, 28 and 40 MiB,
with asking and without:

    sum                        33   21     16   16     16   14
    greatest element           27   14     18   13     13   12
    sums of rows of 1,024      31   17     21   17     16   14
    variances of these         24   14     18   14     13   11
    places of the greatest     28   12     18   11     17   11

but sums of 8 MiB, which are in a cache, would take a tenth longer, and products of two operands,
which are two streams, up to a seventh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.machine.target import Target
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
FAR_BYTES = 12 << 20   # of all rows: more come from far memory,
CHEAP = 10             # and cost of a sweep that takes less than that
BLOCK_BYTES = 1 << 16  # of far memory that are asked for as a whole,
STREAMS = 4            # at so many places side by side


class RowPrefetch:
    """The sweep of a schedule that asks for the next row, if any, and the loads it asks for."""

    def __init__(self, s: Schedule, target: Target):
        self.sweep = -1
        self.loads: dict[Expr, Size] = {}  # bytes from row to row
        self.far: Size = 0                 # bytes of all rows, if so many are not asked for
        self._ways: dict[Size, list[tuple[str, int]]] = {}
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
            if target.reads_in_order and sweep_cost(s, self.sweep) < CHEAP:
                self.far = dims.product(s.nest.sizes[a] for a in s.grid) * sum(self.loads.values())
            if isinstance(self.far, int) and self.far > FAR_BYTES:
                self.loads.clear()

    def ask(self, scope: Scope, k: int) -> None:
        """Ask for what the vector at `scope`, the k-th of some side by side, or several in one,
        reads in the next row."""
        width = scope.frame.schedule.width
        for x, step in self.loads.items():
            size = x.dtype.itemsize
            if k * width * size % LINE:
                continue
            e, here = scope.e, scope.element(scope.frame.params[x.param], size, x.offset)
            for bytes_, locality in self._distances(scope, step):
                at = e(f"getelementptr i8, ptr {here}, i64 {bytes_}")
                for more in range(0, scope.width * size, LINE):
                    line = e(f"getelementptr i8, ptr {at}, i64 {more}") if more else at
                    e.prefetch(line, locality)

    def _distances(self, scope: Scope, step: Size) -> list[tuple[str, int]]:
        """Bytes to the next row, 0 if it is not asked for, and how near it is to be kept: both ways
        for rows of a length that comes with the call, one of them by 0."""
        if step not in self._ways:
            top, limits = scope.frame.top, [(step, MOST_BYTES), (self.far, FAR_BYTES)]
            bytes_ = top.size(step)
            for size, most in limits:
                if isinstance(size, int):
                    continue
                few = top.e(f"icmp ule i64 {top.size(size)}, {most}")
                bytes_ = top.e(f"select i1 {few}, i64 {bytes_}, i64 0")
            if isinstance(step, int):
                self._ways[step] = [(bytes_, 3 if step <= NEAR_BYTES else 2)]
            else:
                near = top.e(f"icmp ule i64 {bytes_}, {NEAR_BYTES}")
                self._ways[step] = [
                    (top.e(f"select i1 {near}, i64 {bytes_}, i64 0"), 3),
                    (top.e(f"select i1 {near}, i64 0, i64 {bytes_}"), 2),
                ]
        return self._ways[step]


class Streams:
    """What the first sweep over far rows of one operand asks for, on cores that read some streams
    faster than one: the next block, at some places side by side.
    """

    def __init__(self, s: Schedule, target: Target):
        self.loads: dict[Expr, Size] = {}  # bytes of all that is read
        self._far: dict[Size, str] = {}
        cheap = all(sweep_cost(s, p) < CHEAP for p in range(s.sweeps))
        if not (target.reads_streams and cheap and s.across and s.vector) or s.loops or s.straight:
            return
        for x in s.nest.exprs:
            if x.kind != "load" or s.nest.dynamic(x.offset) or coefficient(x.offset, s.vector) != 1:
                continue
            if s.grid and coefficient(x.offset, s.grid[-1]) != s.nest.sizes[s.vector]:
                continue
            self.loads[x] = dims.product(s.nest.sizes[a] for a in x.axes) * x.dtype.itemsize
        near = all(isinstance(size, int) and size <= FAR_BYTES for size in self.loads.values())
        if near or len(self.loads) > 1:
            self.loads.clear()

    def ask(self, scope: Scope, count: int) -> None:
        """Ask for as many elements as are read from `scope` on, if they come from far memory."""
        e = scope.e
        for x, size in self.loads.items():
            if isinstance(size, int):
                self._ask(scope, x, count)
                continue
            if size not in self._far:
                top = scope.frame.top
                self._far[size] = top.e(f"icmp ugt i64 {top.size(size)}, {FAR_BYTES}")
            ask, done = e.fresh("ask"), e.fresh("asked")
            e.do(f"br i1 {self._far[size]}, label %{ask}, label %{done}")
            e.label(ask)
            self._ask(scope, x, count)
            e.do(f"br label %{done}")
            e.label(done)

    def _ask(self, scope: Scope, x: Expr, count: int) -> None:
        e, base, part = scope.e, scope.frame.params[x.param], BLOCK_BYTES // STREAMS
        here = scope.element(base, x.dtype.itemsize, x.offset)
        at, begin = (e(f"ptrtoint ptr {p} to i64") for p in (here, base))
        within = e(f"and i64 {e(f'sub i64 {at}, {begin}')}, {BLOCK_BYTES - 1}")
        done = e(f"mul i64 {e(f'udiv i64 {within}, {STREAMS}')}, {STREAMS - 1}")
        first = e(f"getelementptr i8, ptr {here}, i64 {e(f'sub i64 {BLOCK_BYTES}, {done}')}")
        for line in range(count * x.dtype.itemsize // LINE):
            skip = line % STREAMS * part + line // STREAMS * LINE
            e.prefetch(e(f"getelementptr i8, ptr {first}, i64 {skip}") if skip else first, 2)
