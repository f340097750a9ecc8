"""How elementwise kernels meet memory: aligned stores, software prefetch, non-temporal stores.

Alignment: a store across two cache lines costs as much as two, and NumPy's arrays begin 16 bytes
into a page. So long rows begin with a masked head of some elements, and every later store begins a
line.

Prefetch: the CPU reads nothing while it computes a formula of some length. So code asks for its
operands a page ahead, where hardware prefetchers do not look, and once more when they are near. In
long formulas every vector does, also for the line that it will be stored to; in others only
vectors with non-temporal stores do.

Non-temporal stores: an ordinary store reads its line from memory before it is written back, three
transfers where two would do. A non-temporal store writes whole lines without reading them, but it
must be aligned, and the result is in memory alone, not in a cache. So it is for kernels that touch
more than the caches hold. Sizes may be symbolic, so that is decided when the kernel runs (with
symbolic sizes only for one output and a formula that memory bounds); instead of a second copy of
the loop a branch stands around each store, which always goes the same way:

    large = points > BYTES / (bytes of one, read and written), and nothing is in place
    for a row, or a block of it:
        head = elements to the next line of the output if large or the row is long else 0
        on = large, and after the head a line of every output begins
        the head, under a mask
        vectors:  store = on ? non-temporal, and ask for operands, AHEAD on : ordinary
        what is left, by the code of the head: whole lines likewise
    a fence if large: the stores come before the news that the task is done

Rows of up to LONG_ROW elements of a cheap formula, and not large, are written plainly, by loops of
their own: what finds the beginnings of lines would take longer than they do.

Rows that share lines are written in order, or a line is fetched twice, and each such store keeps
those behind it waiting: rows of less than SHARING_ROW are stored plainly, unless they are whole
lines. x[:, :, 1:-1] * 2 of 256 x 256 x 256 f32 on Zen 5: 8.6 ms with the head after the vectors,
3.3 before them, 2.4 where whole lines of the rest go past the caches too; six-point stencil of 200
x 200 x 200 4.9 and 2.0. A line that is written partly by each kind of store is worst: 20 MB in rows
of 500 f32 took Zen 3 4.3 ms where whole vectors of the rest went past the caches, of 250 7.2, of
100 16; by whole lines 1.4, 1.4 and 3.2, by ordinary stores 2.2, 2.2 and 2.0.

Measured on one core of a server with AVX-512, out = x + y of f32, in ms:

    elements                 1M      4M      8M     16M     16M, out is x
    ordinary               0.41    1.68    3.74    11.9     7.3
    non-temporal           0.42    1.70    3.40     8.7     8.9
    and with a kernel that reads the output next
    ordinary               0.55    2.24    4.84    15.7
    non-temporal           0.66    2.73    5.51    12.8

Writing a block to near memory first and from there past the caches, which would leave the loop as
it is, takes 9.5 to 11 ms of 16M elements. A chain of 30 operations on two f32, 16M elements:
15.4 ms with ordinary stores, else 12.5 without asking, 11.7 if that is 256 bytes ahead, 10.4 for
1 KiB, 9.6 for 4 and 8 KiB, 8.4 if that is asked for once more when it is 1 KiB ahead; exp(x) * y
8.4 and 7.4. Where others use the caches too, short formulas need it as well: x + y 11.9 ms with it
for 13.6, x + y z 13.6 for 14.8, -2 x 7.2 for 8.1, copies of as many bytes 10.4, 13.9, 6.9.
Stores that begin lines, where outputs do not, for ones in order that cross them: the sum of 4k
elements takes 1.02 us in the place of 1.13, of 64k 11.1 for 12.9; a chain of ten operations 1.12
for 1.23 and 15.1 for 17.7; exp of 64k 17.6 for 18.8. Asking in all vectors: sea water's density, 98
operations on three f64, 1M elements, 2.08 ms for 2.39, option prices 3% less; in cache it costs
half a percent of these, but 2% of a chain of 30 operations, which gains nothing. Twice, and for the
lines of the result, 2 to 3% less again.

Zen 4 takes 16M elements of f32 so many ms by AHEAD and by NEARER: x + y 7.0 and 4.8, exp(x) * y 7.6
and 5.2, masks 7.4 and 6.0, a chain of 30 operations 7.4 and 6.4; by half of NEARER or 3 KiB and 512
bytes up to a tenth more than by that.

Zen 3 waits for what ordinary stores read as soon as that is not in its 32 MiB: by FEWER in the
place of BYTES f32 x + y takes 2.2 ms and 1.5 of 3M elements, 5.5 and 4.4 of 7M, exp(x) * y 6.0 and
4.0, with a kernel that reads the sum next 8.5 and 6.5, of 3M 2.7 and 2.5. Nearer to 16 MiB what is
gained and what a function pays that reads the result next are alike: x * 2 of 28 MB takes 1.29 ms
and 0.67, with another product of it 2.8 and 2.2, with its sum alone 1.3 and 1.7; of 20 MB 0.59 and
0.45, 1.6 and 1.4, 0.71 and 1.07.

So does Zen 5, and asks FARTHER ahead. Of f32 in ms, by BYTES and by FEWER, a kernel alone, with one
that adds up its result, and with one that multiplies it:

    elements                  3M                    4M                    7M
    x + y           .52 .69 .96  .41 .74 .99  .74 .99 1.3  .67 1.1 1.4  1.6 2.1 2.8  1.4 2.2 2.5
    exp(x) * y      .64 .80 1.1  .35 .66 .87  .89 1.1 1.5  .54 .95 1.4  1.7 2.3 3.0  1.2 2.0 2.3
    15 additions
    and products    .76 .93 1.2  .49 .78 .96  1.1 1.3 1.7  .71 1.1 1.4  2.0 2.5 3.3  1.2 1.9 2.2
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.scope import Scope
from graphc.codegen.machine.target import X86, Target
from graphc.codegen.nests.axes import coefficient, step
from graphc.codegen.nests.conditions import typical
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.loops import axis as dim
from graphc.dims import Size
from graphc.types import DType

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame

BYTES = 96 << 20  # read and written by a kernel: of more than that, caches hold too little;
FEWER = 24 << 20  # on cores that wait for what they write over;
# of pieces of rows that are read across (`turned`), on cores of 32 MiB: a transpose of 1024 x 1024
# f64 comes Zen 4 at 16 GB/s by ordinary stores and at 32, of 1000 x 1000 f32 at 45 and 14
TURNED = 12 << 20
AHEAD = (4096, 1024)  # bytes from what is read to what is asked for, and asked for once more;
NEARER = (2048, 256)  # on cores for which that is too early
FARTHER = (8192, 1024)  # and on those for which it is too late
NEAR = 1 << 20    # bytes of known size up to which nothing is: a core's own cache holds them
LONG_ROW = 1023   # elements from which a head costs less than stores across lines,
SHORT = 16        # and the cost of a vector up to which that tells
# The cost of a vector beyond which it always asks for operands, and for the lines of its results.
# Kernels of symbolic size seldom meet sizes that are stored past the caches, and each takes LLVM
# longer for it: 10,000 mixed nodes 1.8 s of 3.9, with this limit, beyond which formulas keep memory
# waiting anyway, 0.3 s.
MOST_COST = 64
SOON = 1 << 18    # bytes until which what was read is still in a core's own cache
SHARING_ROW = 960  # bytes of rows from which they may share lines
LEAST = 16        # bytes of a vector: of fewer there are no such stores


class Streaming:
    """The decisions of one task function. `on` is set while vectors are written that may stream."""

    def __init__(
        self, f: Frame, points: Size, asked: list[Expr], heads: bool, most: int | None
    ):
        """most: points beyond which stores go past the caches; None if they never do."""
        self.f, self.asked, self.heads, self.on, self.large = f, asked, heads, "", ""
        self.most = most
        self.high = ""  # where the row ends that is written
        if most is None:
            return
        e, nest = f.e, f.nest
        conds = [f"icmp ugt i64 {f.top.size(points)}, {most}"]
        read = dict.fromkeys(x.attrs[:2] for x in nest.exprs if x.kind == "load")
        for x in nest.stores:  # what was just read is in a cache, and written fastest there
            conds += [
                f"icmp ne ptr {f.outputs[x.output]}, {f.params[p]}"
                for p, offset in read if offset == x.offset
            ]
        rows = nest.sizes[f.schedule.vector or ""]
        if not isinstance(rows, int) and len(nest.outer) > 1:
            for x in nest.stores:
                row = e(f"mul i64 {f.top.size(rows)}, {nest.outputs[x.output].dtype.itemsize}")
                whole = f"icmp eq i64 {e(f'and i64 {row}, {LINE - 1}')}, 0"
                if not _wants_lines(f):
                    whole = f"or i1 {e(whole)}, {e(f'icmp sge i64 {row}, {SHARING_ROW}')}"
                conds.append(whole)
        self.large = reduce(lambda a, b: e(f"and i1 {a}, {b}"), [e(c) for c in conds])

    def aligned(self, grid: Scope, low: str, high: str) -> str:
        """`begin` of a row that is not written yet."""
        on, begin = self.on, self.begin(grid, low, high)
        self.on = on
        return begin

    def begin(self, grid: Scope, low: str, high: str) -> str:
        """Where the vectors of a row from low to high begin; sets `on` for these."""
        f, e, axis = self.f, self.f.e, self.f.schedule.vector
        assert axis is not None
        row = Scope(f, grid, e.section(), {axis: low})
        starts = []
        for x in f.nest.stores if self.large else f.nest.stores[:1]:
            size = f.nest.outputs[x.output].dtype.itemsize
            at = row.element(f.outputs[x.output], size, x.offset)
            starts.append((e(f"ptrtoint ptr {at} to i64"), size))
        first, size = starts[0]
        left = e(f"and i64 {e(f'sub i64 0, {first}')}, {LINE - 1}")
        head = left = e(f"udiv i64 {left}, {size}")
        if self.large:
            long = e(f"icmp ugt i64 {e(f'sub nsw i64 {high}, {low}')}, {LONG_ROW}")
            head = e(f"select i1 {e(f'or i1 {self.large}, {long}')}, i64 {left}, i64 0")
        start = e(f"add nsw i64 {low}, {head}")
        less = e(f"icmp slt i64 {start}, {high}")
        if self.large:
            past = ""
            for first, size in starts:
                end = e(f"add i64 {first}, {e(f'mul i64 {head}, {size}')}")
                past = e(f"or i64 {past}, {end}") if past else end
            lines = e(f"icmp eq i64 {e(f'and i64 {past}, {LINE - 1}')}, 0")
            self.on = e(f"and i1 {self.large}, {lines}")
        return e(f"select i1 {less}, i64 {start}, i64 {high}")

    @contextmanager
    def beside(self, after: str, high: str) -> Iterator[None]:
        """While what stands before and `after` the groups of vectors of a row is written, up to
        high: of the rest whole lines go past the caches too."""
        on = self.on
        if on:
            self.on, self.high = self.f.e(f"and i1 {on}, {after}"), high
        yield
        self.on = on

    def _whole_line(self, scope: Scope, L: Lanes, d: DType, at: str) -> str:
        """Whether a line that `at` is in ends within the row; so then do vectors there."""
        e, axis = scope.e, self.f.schedule.vector
        assert axis is not None
        left = e(f"sub nsw i64 {self.high}, {scope.size(dim(axis))}")
        left = e(f"mul nsw i64 {left}, {d.itemsize}")
        need = str(L.width * d.itemsize)
        if int(need) < LINE:
            within = e(f"and i64 {e(f'ptrtoint ptr {at} to i64')}, {LINE - 1}")
            need = e(f"sub nsw i64 {LINE}, {within}")
        return e(f"icmp sge i64 {left}, {need}")

    def plain(self) -> str:
        """Whether rows are too short for what stands before them and nothing goes past the caches,
        an i1 that is the same for all rows; "" where rows of a cheap formula are never many, or
        long."""
        f, s = self.f, self.f.schedule
        n = f.nest.sizes[s.vector] if s.vector is not None else 0
        if self.large and s.turns:  # rows come in pieces, for which heads would cost more
            known = isinstance(f.nest.points, int)
            return "" if known else f.e(f"xor i1 {self.large}, true")
        if not (self.large and s.grid and s.cost <= SHORT) or (isinstance(n, int) and n > LONG_ROW):
            return ""
        long = f.e(f"icmp ugt i64 {f.top.size(n)}, {LONG_ROW}")
        return f.e(f"xor i1 {f.e(f'or i1 {self.large}, {long}')}, true")

    def store(
        self, scope: Scope, L: Lanes, d: DType, register: str, at: str, first: bool
    ) -> None:
        """Write a vector to `at`; the first store asks for operands."""

        def ask(here: str, size: int, write: bool = False) -> None:
            for k in range(0, L.width * size, LINE):
                for ahead in _distances(self.f.target):
                    at = scope.e(f"getelementptr i8, ptr {here}, i64 {k + ahead}")
                    scope.e.prefetch(at, write=write)

        def operands() -> None:
            for x in self.asked if first else ():
                size = x.dtype.itemsize
                ask(scope.element(self.f.params[x.param], size, x.offset), size)

        if self.on:
            past = self.on
            if L.mask is not None:
                past = scope.e(f"and i1 {past}, {self._whole_line(scope, L, d, at)}")
            L.store_past(d, register, at, past, operands)
            return
        if L.mask is None:
            operands()
            if self.asked:
                ask(at, d.itemsize, write=True)
        L.store(d, register, at)

    def fence(self) -> None:
        """End the task: other threads see what was stored."""
        if self.large:
            fence_if(self.f.e, self.large)


def fence_if(e: Emitter, large: str) -> None:
    """Wait for stores past the caches, if there were any."""
    wait, done = e.fresh("fence"), e.fresh("done")
    e.do(f"br i1 {large}, label %{wait}, label %{done}")
    e.label(wait)
    e.module.declare("llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence() nounwind")
    e.do("call void @llvm.x86.sse.sfence()")
    e.do(f"br label %{done}")
    e.label(done)


def _wants_lines(f: Frame) -> bool:
    """Whether only rows of whole lines go past the caches, whose blocks begin where lines do.

    Of others part of a line before and behind each row of a block is stored by elements, and lines
    go to memory twice: without masked stores that takes three times as long as ordinary ones do.
    2500 x 2500 f32 transposed take Zen 3 28.6 ms, by ordinary stores 9.4.
    """
    return f.schedule.turns and not f.target.masked


def _distances(target: Target) -> tuple[int, int]:
    """How far ahead operands are asked for, and once more."""
    if target.reads_ahead:
        return FARTHER
    return NEARER if target.reads_in_order else AHEAD


def _most(f: Frame) -> int:
    """Bytes read and written from which stores go past the caches."""
    if f.schedule.turns:
        return TURNED if f.target.shares_32_mib else BYTES
    return FEWER if f.target.waits_for_lines else BYTES


def streams_of(nest: Nest) -> list[Expr]:
    """The loads that read anew at each point. What others of the same operand read soon is theirs:
    of x[i, j-1], x[i, j] and x[i+1, j] only the last comes from memory."""
    whole, found = set(nest.outer), list[Expr]()
    for x in nest.exprs:
        if x.kind != "load" or x.axes != whole:
            continue
        for k, y in enumerate(found):
            if x.param != y.param:
                continue
            ahead = x.offset - y.offset
            walked = any(n.startswith("%") for n in dims.names(ahead))
            if not walked and abs(typical(ahead)) * x.dtype.itemsize <= SOON:
                found[k] = x if typical(ahead) > 0 else y
                break
        else:
            found.append(x)
    return found


def of(f: Frame, together: Size | None = None) -> Streaming | None:
    """What a task gains by, if anything. Other machines notice by themselves when whole lines are
    written. together: points of all nests that are written by turns, if this is one of several."""
    s, nest, axis = f.schedule, f.nest, f.schedule.vector
    if f.target.arch not in X86 or axis is None or s.width == 1 or nest.reduced:
        return None
    if any(e.kind in ("reduce", "scan") for e in nest.exprs):
        return None
    whole = set(nest.outer)
    written = [nest.outputs[x.output].dtype.itemsize for x in nest.stores]
    if not written or min(written) * s.width < LEAST:
        return None
    if any(set(x.axes) != whole or coefficient(x.offset, axis) != 1 for x in nest.stores):
        return None
    operands = streams_of(nest)
    each = sum(written) + sum(x.dtype.itemsize for x in operands)
    points, row = nest.points if together is None else together, nest.sizes[axis]
    most = _most(f)
    past, far = len(written) == 1 and s.cost <= MOST_COST, True
    if isinstance(points, int):
        past, far = points * each > most, points * each > NEAR
    if isinstance(row, int):
        shares = [row * size for size in written if row * size % LINE]
        past = past and not any(_wants_lines(f) or size < SHARING_ROW for size in shares)
    past = past and s.passing
    heads = past or (isinstance(row, int) and row > LONG_ROW and s.cost <= SHORT and not s.turns)
    ahead = far and (past or s.cost > MOST_COST)
    asked = [x for x in operands if ahead and step(nest, x.offset, axis) == 1]
    beyond = most // each if past else None
    return Streaming(f, points, asked, heads, beyond) if heads or asked else None
