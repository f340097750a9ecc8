"""Software prefetch of rows: while one is computed on, the next is on its way from memory.

Of several sweeps over a row only the first waits for memory, and while the others compute, memory
would have nothing to do: prefetchers do not look beyond a page. So the costliest of the later
sweeps asks for the elements of the next row, one row ahead of each that it reads; of rows that are
swept in turns (`in_turns`) of the next strip, as many rows ahead.

What comes from far memory Zen 4 reads faster as it stands where that sweep takes next to no time:
GB/s of rows of 1,024 f32, in all 16 and 64 MiB, with asking and without

    variance                   38   29     43   33
    over the root of squares   15   12     21   16
    log-softmax                11   10     10  8.7

but variances of 4 MiB 56 and 49.

Golden Cove has 2 MiB of its own, and of rows up to 512 KiB asks for the next if nothing else is
read or stored along them: log-sum-exp of 64 x 65,536 f32 takes 850 us in the place of 1,200, of 8 x
131,072 224 for 298, of 32 x 32,768 f64 550 for 715, variances of named lengths 758 for 832, 192 for
204 and 380 for 416, of known ones as long. With results as long softmax would take up to a tenth
longer, layer norm of 512 KiB a fifth; a cross-entropy of two such rows would take half as long
again.

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

Zen 5 reads what its own cache does not hold faster where one operand is asked for two pages ahead.
GB/s of f32, in all 4, 16, 24, 48 and 96 MiB, with asking and without:

    sum                       128  111    114  104     84   63     69   52    53   46
    places of the greatest     70   69     71   70     65   48     56   39    50   37

by one page greatest elements of 4, 12 and 24 MiB 115 and 100, 108 and 100, 72 and 51, variances 65
and 55, 61 and 51, 40 and 30; but products of two operands of 16 MiB 109 and 126. Columns that rows
pass by (`stripes`) gain nothing while the last cache holds them; of 16, 24 and 48 MiB, in rows of
1,024, the next rows asked for as they lie: sums 100 and 85, 76 and 56, 52 and 45, variances 53 and
42, 37 and 22, 23 and 18.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.sweeps import sweep_cost
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame
    from graphc.codegen.emission.scope import Scope
    from graphc.codegen.nests.schedule import Schedule

LEAST_BYTES = 1 << 10  # between rows: shorter ones are a stream that prefetchers follow
MOST_BYTES = 1 << 17   # longer ones would be gone from a core's cache when their turn comes,
MOST_ALONE = 1 << 19   # or if that is of 2 MiB, and nothing else is read or stored along them; ..
NEAR_BYTES = 1 << 14   # .. likewise from the nearest cache
FAR_BYTES = 12 << 20   # of all rows: more come from far memory,
CHEAP = 10             # and cost of a sweep that takes less than that
BLOCK_BYTES = 1 << 16  # of far memory that are asked for as a whole,
STREAMS = 4            # at so many places side by side
CORE_BYTES = 1 << 20   # that a core's own cache holds: of more, on cores that read ahead,
AHEAD = 1 << 13        # bytes from what is read to what is asked for
STRIP_BYTES = 1 << 15  # of rows that are walked down together: more would fall out of that cache


class RowPrefetch:
    """The sweep of a schedule that asks for the next row, if any, and the loads it asks for."""

    def __init__(self, s: Schedule, target: Target):
        self.sweep = -1
        self.loads: dict[Expr, Size] = {}  # bytes from row to row
        self.far: Size = 0                 # bytes of all rows, if so many are not asked for
        self.rows: int | str = 1           # how many are swept in turns, maybe a register
        self.most = MOST_BYTES
        self._ways: dict[Size, list[tuple[str, int]]] = {}
        if not s.across or s.sweeps < 2 or s.short or not s.grid or s.vector is None:
            return
        along = [
            x for x in s.nest.exprs if x.kind == "load" and coefficient(x.offset, s.vector) == 1
        ]
        stored = any({*x.axes} & {*s.nest.reduced} for x in s.nest.stores)
        if target.keeps_long_rows and len(along) == 1 and not stored:
            self.most = MOST_ALONE
        for x in along:
            step = coefficient(x.offset, s.grid[-1])
            if step is None or s.nest.dynamic(x.offset):
                continue
            step = step * x.dtype.itemsize
            if not isinstance(step, int) or LEAST_BYTES <= step <= self.most:
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

    def _bytes(self, top: Scope, step: Size) -> str:
        """From a row to the one that is asked for."""
        if isinstance(self.rows, int):
            return top.size(step * self.rows)
        return top.e(f"mul i64 {top.size(step)}, {self.rows}")

    def _distances(self, scope: Scope, step: Size) -> list[tuple[str, int]]:
        """Bytes to that row, 0 if it is not asked for, and how near it is to be kept: both ways
        for rows of a length that comes with the call, one of them by 0."""
        if step not in self._ways:
            top, limits = scope.frame.top, [(step, self.most), (self.far, FAR_BYTES)]
            bytes_ = self._bytes(top, step)
            for size, most in limits:
                if isinstance(size, int):
                    continue
                few = top.e(f"icmp ule i64 {top.size(size)}, {most}")
                bytes_ = top.e(f"select i1 {few}, i64 {bytes_}, i64 0")
            if isinstance(step, int) and isinstance(self.rows, int):
                self._ways[step] = [(bytes_, 3 if step * self.rows <= NEAR_BYTES else 2)]
            else:
                near = top.e(f"icmp ule i64 {bytes_}, {NEAR_BYTES}")
                self._ways[step] = [
                    (top.e(f"select i1 {near}, i64 {bytes_}, i64 0"), 3),
                    (top.e(f"select i1 {near}, i64 0, i64 {bytes_}"), 2),
                ]
        return self._ways[step]


class Streams:
    """What the first sweep over rows of one operand asks for: on cores that read some streams from
    far memory faster than one the next block, at some places side by side, and on cores that read
    ahead what lies some pages further.
    """

    def __init__(self, s: Schedule, target: Target):
        self.target = target
        self.operand: Expr | None = None
        self.bytes: Size = 0  # of the operand
        self.most = CORE_BYTES if target.reads_ahead else FAR_BYTES
        self._large = ""      # whether it is of more, where that comes with the call
        cheap = all(sweep_cost(s, p) < CHEAP for p in range(s.sweeps))
        if s.packed:
            found = [x for x in s.nest.exprs if x.kind == "load" and s.loops[0] in x.axes]
            wanted = target.reads_ahead
        else:
            found = [x for x in s.nest.exprs if x.kind == "load" and _in_order(s, x)]
            wanted = (target.reads_streams or target.reads_ahead) and not (s.loops or s.short)
        if cheap and wanted and (s.across or s.packed) and len(found) == 1:
            (x,) = found
            self.bytes = dims.product(s.nest.sizes[a] for a in x.axes) * x.dtype.itemsize
            if not isinstance(self.bytes, int) or self.bytes > self.most:
                self.operand = x

    def ask(self, scope: Scope, count: int) -> None:
        """Ask for as many elements as are read from `scope` on."""
        if (x := self.operand) is not None:
            here = scope.element(scope.frame.params[x.param], x.dtype.itemsize, x.offset)
            self.ask_at(scope.frame, scope.e, x, here, count)

    def ask_at(self, frame: Frame, e: Emitter, x: Expr, here: str, count: int) -> None:
        """Likewise of what `x` has at `here`, if that is the operand."""
        if x is not self.operand:
            return
        if not (isinstance(self.bytes, int) or self._large):
            top = frame.top
            self._large = top.e(f"icmp ugt i64 {top.size(self.bytes)}, {self.most}")
        lines = range(count * x.dtype.itemsize // LINE)
        with _when(e, self._large):
            if self.target.reads_ahead:
                for line in lines:
                    e.prefetch(e(f"getelementptr i8, ptr {here}, i64 {AHEAD + line * LINE}"))
            else:
                self._ask_block(e, frame.params[x.param], here, lines)

    def _ask_block(self, e: Emitter, base: str, here: str, lines: range) -> None:
        """Ask for `lines` of the next block, behind as many as were asked for in this one."""
        part = BLOCK_BYTES // STREAMS
        at, begin = (e(f"ptrtoint ptr {p} to i64") for p in (here, base))
        within = e(f"and i64 {e(f'sub i64 {at}, {begin}')}, {BLOCK_BYTES - 1}")
        done = e(f"mul i64 {e(f'udiv i64 {within}, {STREAMS}')}, {STREAMS - 1}")
        first = e(f"getelementptr i8, ptr {here}, i64 {e(f'sub i64 {BLOCK_BYTES}, {done}')}")
        for line in lines:
            skip = line % STREAMS * part + line // STREAMS * LINE
            e.prefetch(e(f"getelementptr i8, ptr {first}, i64 {skip}") if skip else first, 2)


def _in_order(s: Schedule, x: Expr) -> bool:
    """Whether rows of what is loaded are walked along, and follow each other."""
    if s.vector is None or s.nest.dynamic(x.offset) or coefficient(x.offset, s.vector) != 1:
        return False
    return not s.grid or coefficient(x.offset, s.grid[-1]) == s.nest.sizes[s.vector]


class NextStrip:
    """What a strip of rows that pass by their columns asks for (`stripes`), on cores that read
    ahead: the next strip, as it lies in memory. Of one operand alone, whose rows lie side by side.
    """

    def __init__(self, s: Schedule, target: Target, strip: int):
        self.operand: Expr | None = None
        self.bytes: Size = 0  # of the operand
        self.strip = 0        # bytes of so many rows
        self.rows = strip
        self.on = ""          # whether the piece of columns that is being written asks
        (rows,), vector, sizes = s.loops, s.vector, s.nest.sizes
        assert vector is not None
        loads = [x for x in s.nest.exprs if x.kind == "load" and rows in x.axes]
        length = sizes[vector]
        if not target.reads_ahead or len(loads) != 1 or not isinstance(length, int):
            return
        (x,) = loads
        alike = coefficient(x.offset, vector) == 1 and coefficient(x.offset, rows) == length
        self.bytes = dims.product(sizes[a] for a in x.axes) * x.dtype.itemsize
        self.strip = strip * length * x.dtype.itemsize
        far = not isinstance(self.bytes, int) or self.bytes > FAR_BYTES
        lines = s.width * x.dtype.itemsize == LINE
        if alike and far and lines and self.strip <= STRIP_BYTES and not s.nest.dynamic(x.offset):
            self.operand = x

    def begin(self, frame: Frame, low: str, high: str) -> None:
        """Before columns from low to high pass by: whole rows alone lie as they are asked for."""
        if self.operand is not None:
            e, x = frame.e, self.operand
            length = self.strip // (self.rows * x.dtype.itemsize)
            self.on = e(f"icmp eq i64 {e(f'sub nsw i64 {high}, {low}')}, {length}")
            if not isinstance(self.bytes, int):
                far = e(f"icmp ugt i64 {frame.top.size(self.bytes)}, {FAR_BYTES}")
                self.on = e(f"and i1 {self.on}, {far}")

    def ask(self, first: Scope, column: str) -> None:
        """Ask for as many lines as there are rows, from the first row's vector at `column`."""
        if self.operand is not None:
            e, x = first.e, self.operand
            here = first.element(first.frame.params[x.param], x.dtype.itemsize, x.offset)
            with _when(e, self.on):
                along = e(f"mul i64 {column}, {(self.rows - 1) * x.dtype.itemsize}")
                at = e(f"getelementptr i8, ptr {here}, i64 {e(f'add i64 {along}, {self.strip}')}")
                for row in range(self.rows):
                    e.prefetch(e(f"getelementptr i8, ptr {at}, i64 {row * LINE}"))


@contextmanager
def _when(e: Emitter, condition: str) -> Iterator[None]:
    """Code for where an i1 holds, which is the same all along; "": everywhere."""
    if not condition:
        yield
        return
    ask, done = e.fresh("ask"), e.fresh("asked")
    e.do(f"br i1 {condition}, label %{ask}, label %{done}")
    e.label(ask)
    yield
    e.do(f"br label %{done}")
    e.label(done)
