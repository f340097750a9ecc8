"""A scheduled loop nest -> LLVM functions: a task over grid items and a driver that shares it out.

    define internal void @K.task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch)   chunks of items
    define internal void @K(ptr %ctx, ptr %scratch)                               the whole kernel

`ctx` is an array of 8-byte slots: operands, results, dimensions (in the order of `Slots`), then
slots that the driver fills in itself. Work is split by shapes alone: never by thread count.
"""

from __future__ import annotations

from dataclasses import replace

from graphc import dims
from graphc.codegen import bands, columns, turned
from graphc.codegen.across import Across
from graphc.codegen.along import Along
from graphc.codegen.axes import coalesce
from graphc.codegen.bands import Bands
from graphc.codegen.emitter import Emitter, Module
from graphc.codegen.frame import Frame, Slots, slots_of
from graphc.codegen.grain import (
    CHUNK_CYCLES,
    COLUMN_CHUNK_CYCLES,
    MAX_CHUNKS,
    SHARED_CYCLES,
)
from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Nest
from graphc.codegen.reductions import reduction_of
from graphc.codegen.schedule import BLOCK, FINAL, ceildiv, plan
from graphc.codegen.scope import Scope
from graphc.codegen.streaming import Streaming, bytes_of_point
from graphc.codegen.sweep import Totals, least
from graphc.codegen.target import Target
from graphc.dims import Size
from graphc.ir import Node


class NestKernel:
    """Writes the functions of one nest."""

    def __init__(
        self, module: Module, target: Target, nest: Nest, name: str, codes: dict[Node, int],
        fastmath: bool = False, slots: Slots | None = None,
    ):
        self.module, self.target, self.name = module, target, name
        self.codes, self.fastmath = codes, fastmath
        self.schedule = plan(coalesce(nest), target)
        self.nest = self.schedule.nest
        sizes = [self.schedule.items, self.schedule.cycles]
        self.slots = slots or slots_of(self.nest, sizes)  # those of the kernel that this is part of
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
        return Frame(
            self.module, self.target, self.schedule, self.slots, self.codes, self.fastmath
        )

    def define(self) -> None:
        """Add the task and the driver to the module."""
        self.module.define(f"{self.name}.task", self.task())
        self.module.define(self.name, self.driver())

    # --- the task ------------------------------------------------------------------------------

    def task(self) -> str:
        f = self.frame()
        e, s = f.e, self.schedule
        items, chunk = f.slot("i64", self.slots.items), f.slot("i64", self.slots.chunk)
        partials = f.slot("ptr", self.slots.partials) if s.sums else ""
        body = Across(f) if s.across else Along(f)
        totals = {
            r: [f.alloca(t, 8) for t in reduction_of(r).wide.types] for r in s.sums
        }
        if s.sums and s.tile is not None:
            f.places = turned.Places(f)
        if s.bands:
            f.bands = Bands(f, f.params[-1])
        elif each := bytes_of_point(s, self.target):
            f.streaming = Streaming(f, each)
        if s.merges or s.spans:
            self.merged(f, body, chunk)
            return self.finish_task(f)

        def band(c: str, i: str, first: str) -> None:
            assert f.bands is not None
            f.bands.begin(c, i, first)
            tiles_of(f, body)

        def chunk_body(c: str) -> None:
            low = e(f"mul nsw i64 {c}, {chunk}")
            end = e(f"add nsw i64 {low}, {chunk}")
            over = e(f"icmp slt i64 {end}, {items}")
            high = e(f"select i1 {over}, i64 {end}, i64 {items}")
            one = Lanes(e, 1, self.target)
            for r, cells in totals.items():
                wide = reduction_of(r).wide
                for t, cell, v in zip(wide.types, cells, wide.start(one), strict=True):
                    e.do(f"store {t} {v}, ptr {cell}, align 8")

            body.columns = columns.clear(f, c)
            if f.places is not None:
                f.places.clear()

            if s.bands:
                e.for_each(low, high, lambda i: band(c, i, low))
            else:
                e.for_each(low, high, lambda i: item(f, body, i, totals))
            if f.places is not None:
                f.places.fold(totals)
            at = 0
            for r, cells in totals.items():
                for t, cell in zip(reduction_of(r).wide.types, cells, strict=True):
                    value = e(f"load {t}, ptr {cell}, align 8")
                    row = e(f"mul nsw i64 {c}, {8 * self.partial_words}")
                    p = e(f"getelementptr inbounds i8, ptr {partials}, i64 {row}")
                    p = e(f"getelementptr inbounds i8, ptr {p}, i64 {8 * at}")
                    e.do(f"store {t} {value}, ptr {p}, align 8")
                    at += 1

        e.for_each("%begin", "%end", chunk_body)
        return self.finish_task(f)

    def finish_task(self, f: Frame) -> str:
        if f.streaming is not None:
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
            body.run(f.top, "0", f.top.size(self.nest.sizes[s.vector]), {})
            return
        low = e(f"mul nsw i64 {e(f'mul nsw i64 %begin, {chunk}')}, {s.block}")
        last = e(f"mul nsw i64 {e(f'mul nsw i64 %end, {chunk}')}, {s.block}")
        high = least(e, last, f.top.size(self.nest.sizes[s.vector]))

        if s.spans:
            body.run(f.top, low, high, {})
            return

        def piece(i: str) -> None:
            end = least(e, e(f"add nsw i64 {i}, {BLOCK}"), high)
            body.run(Scope(f, f.top, e.section(), {}), i, end, {})

        e.for_each(low, high, piece, BLOCK)

    @property
    def partial_words(self) -> int:
        return sum(len(reduction_of(r).types) for r in self.schedule.sums)

    # --- the driver ----------------------------------------------------------------------------

    def driver(self) -> str:
        f = self.frame()
        e, s = f.e, self.schedule
        partials = ""
        if s.sums:
            partials = f.alloca(f"[{MAX_CHUNKS * self.partial_words} x i64]")
            f.set_slot("ptr", self.slots.partials, partials)
        if isinstance(s.items, int) and isinstance(s.cycles, int) and (
            s.items * s.cycles < SHARED_CYCLES
        ):
            chunks = "1" if s.items else "0"
            f.set_slot("i64", self.slots.items, str(s.items))
            f.set_slot("i64", self.slots.chunk, str(max(1, s.items)))
            e.do(f"call void @{self.name}.task(ptr %ctx, i64 0, i64 {chunks}, ptr %scratch)")
        else:
            chunks = self.share_out(f)
        if any(s.is_late(x) and x.expr not in s.columns for x in s.nest.stores):
            self.combine(f, partials, chunks)
        if s.columns:
            columns.add_up(f, chunks)
        if s.bands:
            f.bands = Bands(f, f.params[-1], chunks)
            tiles_of(f, Along(f))
        return f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")

    def share_out(self, f: Frame) -> str:
        """Split the items into chunks by their estimated cycles and run them, in parallel where
        there are several; returns the number of chunks."""
        s = self.schedule
        items, cycles = f.top.size(s.items), f.top.size(s.cycles)
        self.module.define("graphc.share_out", _share_out(self.module))
        return f.e(
            f"call i64 @graphc.share_out(ptr @{self.name}.task, ptr %ctx, ptr %scratch, "
            f"i64 {items}, i64 {cycles}, i64 {self.slots.items}, "
            f"i64 {COLUMN_CHUNK_CYCLES if s.columns or s.bands else CHUNK_CYCLES}, "
            f"i1 {str(s.merges).lower()})"
        )

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
            row = e(f"mul nsw i64 {c}, {8 * self.partial_words}")
            new: list[str] = []
            at = 0
            for r in s.sums:
                wide = reduction_of(r).wide
                part = []
                for t in wide.types:
                    p = e(f"getelementptr inbounds i8, ptr {partials}, i64 {row}")
                    p = e(f"getelementptr inbounds i8, ptr {p}, i64 {8 * at}")
                    part.append(e(f"load {t}, ptr {p}, align 8"))
                    at += 1
                old = state[at - len(part) : at]
                new += wide.merge(one, old, part)
            return new

        totals = e.loop("0", chunks, 1, carried, body) if s.sums else []
        scope = Scope(f, f.top, e.section(), {}, ready=FINAL)
        one = Lanes(scope.e, 1, self.target)
        at = 0
        for r in s.sums:
            kind = reduction_of(r)
            n = len(kind.types)
            state = kind.narrow(one, totals[at : at + n])
            scope.scalars[r] = kind.finish(one, state, r.dtype)
            at += n
        stores = [x for x in s.nest.stores if s.is_late(x) and x.expr not in s.columns]
        scope.demand(x.expr for x in stores)
        for x in stores:
            scope.store(x.output, x.offset, x.expr, vector=False)


def _share_out(module: Module) -> str:
    """`i64 @graphc.share_out(task, ctx, scratch, items, cycles of one, slot of the items, least
    cycles of a chunk, merges)`."""
    module.declare("graphc_parallel", "declare void @graphc_parallel(ptr, ptr, i64, ptr)")
    e = Emitter(module)
    e.label("entry")
    work = e("mul i64 %items, %cycles")
    pieces = e(f"udiv i64 {work}, %least")
    few = e(f"icmp ult i64 {pieces}, {MAX_CHUNKS}")
    pieces = e(f"select i1 {few}, i64 {pieces}, i64 {MAX_CHUNKS}")
    pieces = e(f"select i1 {e(f'icmp uge i64 {work}, {SHARED_CYCLES}')}, i64 {pieces}, i64 1")

    def ceil(n: str, d: str) -> str:
        most = e(f"add i64 {n}, {d}")
        return e(f"udiv i64 {e(f'sub i64 {most}, 1')}, {d}")

    chunk = ceil("%items", pieces)
    chunk = e(f"select i1 {e(f'icmp sgt i64 {chunk}, 0')}, i64 {chunk}, i64 1")
    chunks = ceil("%items", chunk)
    for k, value in enumerate(("%items", chunk)):
        at = e(f"getelementptr inbounds i64, ptr %ctx, i64 {e(f'add i64 %slot, {k}')}")
        e.do(f"store i64 {value}, ptr {at}, align 8")
    e.do(f"br i1 {e(f'icmp sgt i64 {chunks}, 1')}, label %parallel, label %alone")
    e.label("parallel")
    pieces = e(f"select i1 %merges, i64 {e(f'sub i64 0, {chunks}')}, i64 {chunks}")
    e.do(f"call void @graphc_parallel(ptr %task, ptr %ctx, i64 {pieces}, ptr %scratch)")
    e.do(f"ret i64 {chunks}")
    e.label("alone")
    e.do(f"call void %task(ptr %ctx, i64 0, i64 {chunks}, ptr %scratch)")
    e.do(f"ret i64 {chunks}")
    return (
        "define internal i64 @graphc.share_out(ptr %task, ptr %ctx, ptr %scratch, i64 %items, "
        f"i64 %cycles, i64 %slot, i64 %least, i1 %merges) nounwind {{\n{e.text()}\n}}"
    )


def tiles_of(f: Frame, body: Across | Along) -> None:
    """Emit all tiles of results, for the rows that the frame's band has."""
    s = f.schedule
    count = dims.product(ceildiv(f.nest.sizes[n], s.rows_of(n)) for n in s.grid)
    f.e.for_each("0", f.top.size(count), lambda i: item(f, body, i, {}))


def item(f: Frame, body: Across | Along, i: str, totals: Totals) -> None:
    """Emit grid item number `i`: the values of the grid's axes, the range of the vector axis."""
    s, e, nest = f.schedule, f.e, f.nest
    bound: dict[str, str] = {}
    low, high = "0", ""
    rest = i
    if s.flat:
        first = nest.reduced[0]
        size = f.top.size(nest.sizes[first])
        if first == s.vector:
            low = e(f"mul nsw i64 {i}, {BLOCK}")
            high = least(e, e(f"add nsw i64 {low}, {BLOCK}"), size)
        else:
            low, high = i, e(f"add nsw i64 {i}, 1")
    elif s.vector is not None and not s.across:
        n = nest.sizes[s.vector]
        blocks = ceildiv(n, s.block)
        if blocks == 1:
            high = f.top.size(n)
        else:
            nb = f.top.size(blocks)
            block = e(f"urem i64 {i}, {nb}") if s.grid else i
            rest = e(f"udiv i64 {i}, {nb}") if s.grid else i
            low = e(f"mul nsw i64 {block}, {s.block}")
            high = least(e, e(f"add nsw i64 {low}, {s.block}"), f.top.size(n))
    for k, name in enumerate(reversed(s.grid)):
        if k == len(s.grid) - 1:
            bound[name] = rest
        else:
            n_reg = f.top.size(ceildiv(nest.sizes[name], s.rows_of(name)))
            bound[name] = e(f"urem i64 {rest}, {n_reg}")
            rest = e(f"udiv i64 {rest}, {n_reg}")
    if s.tile is None:
        body.run(Scope(f, f.top, e.section(), bound), low, high, totals)
        return
    row = ""
    if s.tile.rows is not None:
        row = e(f"mul nsw i64 {bound.pop(s.tile.rows)}, {s.tile.count}")
    assert isinstance(body, Along)
    turned.run(body, Scope(f, f.top, e.section(), bound), row, low, high, totals)
