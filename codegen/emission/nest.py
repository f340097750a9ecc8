"""A scheduled loop nest -> LLVM functions: a task over grid items and a driver that shares it out.

    define internal void @K.task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch)   chunks of items
    define internal void @K(ptr %ctx, ptr %scratch)                               the whole kernel

The driver is left out where it would only start the task, which a program's entry point can do.
A task is called for one chunk at least, and a chunk has items, so its loops need no test before.
`ctx` is an array of 8-byte slots: operands, results, dimensions (in the order of `Slots`), then
slots that the driver fills in itself. Work is split by shapes alone: never by thread count.
"""

from __future__ import annotations

from dataclasses import replace

from graphc import dims
from graphc.codegen.emission import (
    ahead,
    bands,
    columns,
    held,
    last_rows,
    pieces,
    streaming,
    turned,
)
from graphc.codegen.emission.across import Across
from graphc.codegen.emission.along import Along
from graphc.codegen.emission.bands import Bands
from graphc.codegen.emission.flat import Flat
from graphc.codegen.emission.frame import Frame, Slots, slots_of
from graphc.codegen.emission.items import tiles_of, walk
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.places import Places
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import Totals, least
from graphc.codegen.grain import CHUNK_CYCLES, COLUMN_CHUNK_CYCLES, MAX_CHUNKS
from graphc.codegen.job import Job
from graphc.codegen.launch import Launch
from graphc.codegen.nests.axes import coalesce
from graphc.codegen.nests.loops import Nest, Store
from graphc.codegen.nests.ranges import where_run
from graphc.codegen.nests.schedule import BLOCK, FINAL, plan
from graphc.dims import Size


class NestKernel:
    """Writes the functions of one nest."""

    def __init__(
        self, job: Job, nest: Nest, slots: Slots | None = None, cycles: Size | None = None,
        beside: bool = False, together: Size | None = None,
    ):
        """together: points of all nests that a task writes, where this is one of several; that task
        ends with a fence if results go past the caches (see `past`)."""
        self.job, self.module, self.target, self.name = job, job.module, job.target, job.name
        self.schedule = plan(
            where_run(coalesce(nest)), job.target, beside=beside, fused=job.fastmath
        )
        if self.schedule.columns and cycles is not None:  # of the kernel whose cuts it keeps
            self.schedule.cycles = cycles
        self.nest = self.schedule.nest
        self.together = together
        self.past: int | None = None  # points beyond which stores go past the caches, if ever
        self.lone: Size = 0           # 1 where one thread takes all items
        sizes = [self.schedule.items, self.schedule.cycles]
        self.slots = slots or slots_of(self.nest, sizes)  # those of the kernel that this is part of
        if (rows := self.schedule.turned_rows) is not None:
            job.scratch.append(rows.bytes)
        # column sums and bands keep an accumulator per chunk in a workspace, one more operand
        self.workspace: Size = 0
        if self.schedule.columns:
            self.workspace = MAX_CHUNKS * columns.chunk_bytes(self.schedule)
        elif self.schedule.bands:
            most = dims.minimum(self.schedule.items, MAX_CHUNKS)
            self.workspace = most * bands.chunk_bytes(self.schedule)
        if self.schedule.columns or self.schedule.bands:
            self.slots = replace(self.slots, params=self.slots.params + 1)

    def frame(self) -> Frame:
        """A function of this kernel to write."""
        return Frame(self.job, self.schedule, self.slots)

    @property
    def totals(self) -> list[Store]:
        """The stores that wait for what all chunks give, but for column sums."""
        s = self.schedule
        return [x for x in s.nest.stores if s.is_late(x) and x.expr not in s.columns]

    def define(self, driver: bool = True) -> Launch | None:
        """Add the task and the driver to the module.

        Where the driver need not be and would only start the task, what starts it is returned.
        """
        self.module.define(f"{self.name}.task", self.task())
        s = self.schedule
        if not (driver or s.sums or s.columns or s.bands or self.totals):
            return self.launch
        self.module.define(self.name, self.driver())
        return None

    @property
    def items(self) -> Size:
        """The schedule's, but none where all that they would do is walk rows without elements: of
        an array of shape (0, n) there may be any number of columns."""
        s, nest = self.schedule, self.nest
        row = set(nest.reduced)
        if s.flat:  # an item has one place of the first axis
            row.remove(nest.reduced[0])
        elif s.sums or s.columns or not all(row & set(x.axes) for x in nest.stores):
            return s.items
        length = dims.product(nest.sizes[n] for n in nest.reduced if n in row)
        if nest.sites or isinstance(s.items, int) or isinstance(length, int):
            return s.items
        return s.items * dims.minimum(length, 1)

    @property
    def launch(self) -> Launch:
        """What starts the task."""
        s = self.schedule
        return Launch(
            f"{self.name}.task", self.items, s.cycles * (1 - self.lone), self.slots.items,
            COLUMN_CHUNK_CYCLES if s.columns or s.bands else CHUNK_CYCLES, s.merges,
        )

    # --- the task ------------------------------------------------------------------------------

    def task(self) -> str:
        f = self.frame()
        e, s = f.e, self.schedule
        items, chunk = f.slot("i64", self.slots.items), f.slot("i64", self.slots.chunk)
        partials = f.slot("ptr", self.slots.partials) if s.sums else ""
        body = Flat(f) if self.nest.columns else Across(f) if s.across else Along(f)
        if isinstance(body, Along) and s.tile is None and not s.bands and s.stages is None:
            self.lone = pieces.lone(body)
        totals = {
            r: [f.alloca(t, 8) for t in reduction_of(r).wide.types] for r in s.sums
        }
        body.totals = totals
        begin_anew(f, {r: c for r, c in totals.items() if reduction_of(r).absorbed})
        if s.sums and not s.flat:
            f.places = Places(f)
        if s.bands:
            f.bands = Bands(f, f.params[-1])
        elif s.stages is None:
            f.streaming = streaming.of(f, self.together)
            self.past = f.streaming.most if f.streaming is not None else None
            f.early = ahead.of(f)
        if s.turned_rows is not None:
            f.turned_rows = turned.Rows(f, s.turned_rows)
        if s.merges or s.spans:
            self.merged(f, body, chunk)
        elif not (s.sums or s.columns or s.bands):  # then chunks that follow each other are one
            low = e(f"mul nsw i64 %begin, {chunk}")
            high = least(e, e(f"mul nsw i64 %end, {chunk}"), items)
            self.all_rows(f, body, low, high)
        else:
            def one_chunk(c: str) -> None:
                low = e(f"mul nsw i64 {c}, {chunk}")
                high = least(e, e(f"add nsw i64 {low}, {chunk}"), items)
                self.chunk(f, body, c, low, high)
                self.keep(f, c, partials, totals)

            e.for_each("%begin", "%end", one_chunk, some=True)
        return self.finish_task(f)

    def all_rows(self, f: Frame, body: Across | Along, low: str, high: str) -> None:
        """The items from low to high: written again for rows that few vectors hold, and where rows
        may be so short that what finds the beginnings of lines would take longer than they do."""
        e, streaming, early = f.e, f.streaming, f.early
        ways = held.ways(body) if isinstance(body, Along) and not self.schedule.stages else []
        if streaming is not None and (plain := streaming.plain()):
            ways.append((plain, 0))
        done = e.fresh("walked") if ways else ""
        for short, vectors in ways:
            here, others = e.fresh("held" if vectors else "plain"), e.fresh("longer")
            e.do(f"br i1 {short}, label %{here}, label %{others}")
            e.label(here)
            f.streaming, f.early, f.held = None, [], vectors
            walk(f, body, low, high, whole=True)
            e.do(f"br label %{done}")
            e.label(others)
        f.streaming, f.early, f.held = streaming, early, 0
        walk(f, body, low, high)
        if done:
            e.do(f"br label %{done}")
            e.label(done)

    def chunk(self, f: Frame, body: Across | Along, number: str, low: str, high: str) -> None:
        """The items [low, high) of one chunk, whose sums begin anew."""
        e, totals = f.e, body.totals
        begin_anew(f, {r: c for r, c in totals.items() if not reduction_of(r).absorbed})
        for r, cells in totals.items():
            if reduction_of(r).absorbed:  # a product that is 0 stays so in all chunks after
                (t,), (none,), (cell,) = reduction_of(r).types, reduction_of(r).identity(), cells
                left = e(f"icmp ne {t} {e(f'load {t}, ptr {cell}, align 8')}, 0")
                left = e(f"select i1 {left}, {t} {none}, {t} 0")
                e.do(f"store {t} {left}, ptr {cell}, align 8")
        body.columns = columns.clear(f, number)
        if f.places is not None:
            f.places.clear()
        if self.schedule.flat:
            f.first = e(f"mul nsw i64 {low}, {BLOCK}")

        if f.bands is not None:
            assert isinstance(body, Along)
            f.bands.each(number, low, high, body.bands_abreast(), lambda: tiles_of(f, body))
        else:
            walk(f, body, low, high)
        if f.places is not None:
            f.places.fold(totals)

    def keep(self, f: Frame, number: str, partials: str, totals: Totals) -> None:
        """Put what a chunk summed to its place, for the driver."""
        e, at = f.e, 0
        for r, cells in totals.items():
            for t, cell in zip(reduction_of(r).wide.types, cells, strict=True):
                value = e(f"load {t}, ptr {cell}, align 8")
                place = self._partial(f, partials, self._row(f, number), at)
                e.do(f"store {t} {value}, ptr {place}, align 8")
                at += 1

    def _row(self, f: Frame, chunk: str) -> str:
        """Bytes from the first chunk's partial sums to those of another."""
        return f.e(f"mul nsw i64 {chunk}, {8 * self.partial_words}")

    def _partial(self, f: Frame, partials: str, row: str, k: int) -> str:
        """The address of the k-th word of a row."""
        p = f.e(f"getelementptr inbounds i8, ptr {partials}, i64 {row}")
        return f.e(f"getelementptr inbounds i8, ptr {p}, i64 {8 * k}")

    def finish_task(self, f: Frame) -> str:
        """The text of the task."""
        if f.streaming is not None and self.together is None:
            f.streaming.fence()
        return f.finish(
            f"define internal void @{self.name}.task(ptr %ctx, i64 %begin, i64 %end, "
            "ptr %scratch)"
        )

    def merged(self, f: Frame, body: Across | Along, chunk: str) -> None:
        """The items of all chunks as one; where columns are summed, in pieces of BLOCK."""
        e, s = f.e, self.schedule
        assert s.vector is not None
        if s.spans and s.items == 1:
            body.run(f.top, "0", f.top.size(self.nest.sizes[s.vector]))
            return
        low = e(f"mul nsw i64 {e(f'mul nsw i64 %begin, {chunk}')}, {s.block}")
        last = e(f"mul nsw i64 {e(f'mul nsw i64 %end, {chunk}')}, {s.block}")
        high = least(e, last, f.top.size(self.nest.sizes[s.vector]))

        if s.spans:
            assert isinstance(body, Along)
            cut = s.block < s.width  # then an end of a block may lie within a vector
            if cut or not last_rows.run(body, f"{self.name}.task", low, high):
                body.run(f.top, low, high, partial=cut)
            return

        def piece(i: str) -> None:
            end = least(e, e(f"add nsw i64 {i}, {BLOCK}"), high)
            body.run(Scope(f, f.top, e.section(), {}), i, end)

        e.for_each(low, high, piece, BLOCK, some=True)

    @property
    def partial_words(self) -> int:
        """8-byte words that a chunk sums."""
        return sum(len(reduction_of(r).types) for r in self.schedule.sums)

    # --- the driver ----------------------------------------------------------------------------

    def driver(self) -> str:
        """The whole kernel: the task started, what its chunks give added up and stored."""
        f = self.frame()
        e, s = f.e, self.schedule
        partials = ""
        if s.sums:
            partials = f.alloca(f"[{MAX_CHUNKS * self.partial_words} x i64]")
            f.set_slot(self.slots.partials, partials)
        chunks = self.launch.start(e, f.top.size)
        if self.totals:
            self.combine(f, partials, chunks)
        if s.columns:
            columns.add_up(f, chunks)
        if s.bands:
            f.bands = Bands(f, f.params[-1], chunks)
            tiles_of(f, Along(f))
        return f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")

    def combine(self, f: Frame, partials: str, chunks: str) -> None:
        """Add up the chunks in order, then compute and store what depends on the totals."""
        e, s = f.e, self.schedule
        one = Lanes(e, 1, self.target)
        carried = [
            (t, v) for r in s.sums
            for t, v in zip(
                reduction_of(r).wide.types, reduction_of(r).wide.start(one), strict=True
            )
        ]

        def body(c: str, state: list[str]) -> list[str]:
            row = self._row(f, c)
            new: list[str] = []
            for r in s.sums:
                wide = reduction_of(r).wide
                part = [
                    e(f"load {t}, ptr {self._partial(f, partials, row, k)}, align 8")
                    for k, t in enumerate(wide.types, len(new))
                ]
                new += wide.merge(one, state[len(new) : len(new) + len(part)], part)
            return new

        totals = iter(e.loop("0", chunks, 1, carried, body) if s.sums else [])
        scope = Scope(f, f.top, e.section(), {}, ready=FINAL)
        one = Lanes(scope.e, 1, self.target)
        for r in s.sums:
            kind = reduction_of(r)
            state = kind.narrow(one, [next(totals) for _ in kind.types])
            scope.scalars[r] = kind.finish(one, state, r.dtype)
        scope.demand(x.expr for x in self.totals)
        for x in self.totals:
            scope.store(x.output, x.offset, x.expr, vector=False)


def begin_anew(f: Frame, totals: Totals) -> None:
    """Store the states of no elements."""
    for r, cells in totals.items():
        wide = reduction_of(r).wide
        start = wide.start(Lanes(f.e, 1, f.target))
        for t, cell, v in zip(wide.types, cells, start, strict=True):
            f.e.do(f"store {t} {v}, ptr {cell}, align 8")
