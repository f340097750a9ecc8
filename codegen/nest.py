"""A scheduled loop nest -> LLVM functions: a task over grid items and a driver that shares it out.

    define internal void @K.task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch)   chunks of items
    define internal void @K(ptr %ctx, ptr %scratch)                               the whole kernel

`ctx` is an array of 8-byte slots: operands, results, dimensions (in the order of `Kernel.slots`),
then slots that the driver fills in itself. Work is split by shapes alone: never by thread count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc import dims
from graphc.codegen.emitter import Emitter, Module
from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Expr, Nest
from graphc.codegen.reductions import reduction_of
from graphc.codegen.schedule import (
    CHUNK_CYCLES,
    FINAL,
    MAX_CHUNKS,
    Schedule,
    coalesce,
    plan,
    polynomials,
)
from graphc.codegen.scope import Scope
from graphc.codegen.sweep import Sweeper
from graphc.codegen.target import Target
from graphc.dims import Size
from graphc.ir import Node

ATTRS = 'nounwind "no-trapping-math"="true" "prefer-vector-width"="512"'


@dataclass(frozen=True)
class Slots:
    """Where things stand in a kernel's ctx."""

    params: int
    outputs: int
    dims: tuple[str, ...]

    @property
    def error(self) -> int:
        return self.params + self.outputs + len(self.dims)

    @property
    def items(self) -> int:
        return self.error + 1

    @property
    def chunk(self) -> int:
        return self.error + 2

    @property
    def partials(self) -> int:
        return self.error + 3

    @property
    def count(self) -> int:
        return self.error + 4


def slots_of(nest: Nest, extra: Sequence[Size] = ()) -> Slots:
    """The ctx layout of a nest: its operands, results, and the symbolic dimensions it needs."""
    seen: dict[str, None] = {}
    for p in [*nest.sizes.values(), *polynomials(nest), *extra]:
        for n in dims.names(p):
            if not n.startswith("%"):
                seen.setdefault(n)
    return Slots(len(nest.params), len(nest.outputs), tuple(seen))


class Frame:
    """One LLVM function being written for a nest: pointers, dimensions, failure flags."""

    def __init__(
        self, module: Module, target: Target, schedule: Schedule, slots: Slots,
        codes: dict[Node, int], fastmath: bool,
    ):
        self.schedule, self.nest, self.target = schedule, schedule.nest, target
        self.module, self.slots, self.fastmath = module, slots, fastmath
        self.codes = codes
        self.sites = set(self.nest.sites)
        self.e = Emitter(module)
        self.e.label("entry")
        self.allocas: list[str] = []
        self.e.lines.append(self.allocas)
        self.addresses: dict[tuple[Scope, tuple[str, int, str]], str] = {}
        self.flags: dict[Node, str] = {}
        pointers = [self.slot("ptr", k) for k in range(slots.params + slots.outputs)]
        self.params, self.outputs = pointers[: slots.params], pointers[slots.params :]
        base = slots.params + slots.outputs
        self.dims = {n: self.slot("i64", base + k) for k, n in enumerate(slots.dims)}
        self.top = Scope(self, None, self.e.section(), {})

    def slot(self, ty: str, k: int) -> str:
        """Load ctx[k]."""
        p = self.e(f"getelementptr inbounds ptr, ptr %ctx, i64 {k}")
        return self.e(f"load {ty}, ptr {p}, align 8")

    def set_slot(self, ty: str, k: int, value: str) -> None:
        p = self.e(f"getelementptr inbounds ptr, ptr %ctx, i64 {k}")
        self.e.do(f"store {ty} {value}, ptr {p}, align 8")

    def alloca(self, ty: str, align: int = 64) -> str:
        name = f"%{self.e.fresh('slot')}"
        self.allocas.append(f"  {name} = alloca {ty}, align {align}")
        return name

    def report(self, scope: Scope, node: Node, cond: str) -> None:
        """Remember that `cond` (an i1) held at a fallible node."""
        flag = self.flags.get(node)
        if flag is None:
            flag = self.flags[node] = self.alloca("i8", 1)
            self.allocas.append(f"  store i8 0, ptr {flag}, align 1")
        bit = scope.e(f"zext i1 {cond} to i8")
        old = scope.e(f"load i8, ptr {flag}, align 1")
        scope.e.do(f"store i8 {scope.e(f'or i8 {old}, {bit}')}, ptr {flag}, align 1")

    def flush_errors(self) -> None:
        """Put the lowest code of what failed into the call's error word."""
        if not self.flags:
            return
        word = self.slot("ptr", self.slots.error)
        for node, flag in self.flags.items():
            hit = self.e(f"icmp ne i8 {self.e(f'load i8, ptr {flag}, align 1')}, 0")
            code = self.e(f"select i1 {hit}, i32 {self.codes[node]}, i32 -1")
            self.e.do(f"%{self.e.fresh('old')} = atomicrmw umin ptr {word}, i32 {code} monotonic")

    def finish(self, header: str) -> str:
        self.flush_errors()
        self.e.do("ret void")
        return f"{header} {ATTRS} {{\n{self.e.text()}\n}}"


class NestKernel:
    """Writes the functions of one nest."""

    def __init__(
        self, module: Module, target: Target, nest: Nest, name: str, codes: dict[Node, int],
        fastmath: bool = False,
    ):
        self.module, self.target, self.name = module, target, name
        self.codes, self.fastmath = codes, fastmath
        self.schedule = plan(coalesce(nest), target)
        self.nest = self.schedule.nest
        sizes = [self.schedule.items, self.schedule.cycles]
        self.slots = slots_of(self.nest, sizes)
        # column sums keep an accumulator per chunk in a workspace, one more operand
        self.workspace: Size = 0
        if self.schedule.columns:
            self.slots = replace(self.slots, params=self.slots.params + 1)
            self.workspace = MAX_CHUNKS * self.columns_bytes

    @property
    def columns_bytes(self) -> Size:
        """Bytes of the accumulators of one chunk."""
        row = dims.product(self.nest.sizes[n] for n in self.nest.reduced)
        return 8 * len(self.schedule.columns) * row

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
        sweeper = Sweeper(f)
        totals = {
            r: [f.alloca(t, 8) for t in reduction_of(r).wide.types] for r in s.sums
        }

        def chunk_body(c: str, _: list[str]) -> list[str]:
            low = e(f"mul nsw i64 {c}, {chunk}")
            end = e(f"add nsw i64 {low}, {chunk}")
            over = e(f"icmp slt i64 {end}, {items}")
            high = e(f"select i1 {over}, i64 {end}, i64 {items}")
            one = Lanes(e, 1, self.target)
            for r, cells in totals.items():
                wide = reduction_of(r).wide
                for t, cell, v in zip(wide.types, cells, wide.start(one), strict=True):
                    e.do(f"store {t} {v}, ptr {cell}, align 8")

            cells = self.clear_columns(f, c)

            def item_body(i: str, _: list[str]) -> list[str]:
                sweeper.item(i, totals, cells)
                return []

            e.loop(low, high, 1, [], item_body)
            at = 0
            for r, cells in totals.items():
                for t, cell in zip(reduction_of(r).wide.types, cells, strict=True):
                    value = e(f"load {t}, ptr {cell}, align 8")
                    row = e(f"mul nsw i64 {c}, {8 * self.partial_words}")
                    p = e(f"getelementptr inbounds i8, ptr {partials}, i64 {row}")
                    p = e(f"getelementptr inbounds i8, ptr {p}, i64 {8 * at}")
                    e.do(f"store {t} {value}, ptr {p}, align 8")
                    at += 1
            return []

        e.loop("%begin", "%end", 1, [], chunk_body)
        return f.finish(
            f"define internal void @{self.name}.task(ptr %ctx, i64 %begin, i64 %end, "
            "ptr %scratch)"
        )

    def clear_columns(self, f: Frame, chunk: str) -> dict[Expr, str]:
        """Set a chunk's column accumulators to 0; where each stands."""
        if not self.schedule.columns:
            return {}
        e = f.e
        size = f.top.size(self.columns_bytes)
        at = e(f"mul nsw i64 {chunk}, {size}")
        base = e(f"getelementptr inbounds i8, ptr {f.params[-1]}, i64 {at}")
        self.module.declare(
            "llvm.memset.p0.i64", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        )
        e.do(f"call void @llvm.memset.p0.i64(ptr {base}, i8 0, i64 {size}, i1 false)")
        each = e(f"sdiv i64 {size}, {len(self.schedule.columns)}")
        return {
            r: e(f"getelementptr inbounds i8, ptr {base}, i64 {e(f'mul nsw i64 {each}, {k}')}")
            for k, r in enumerate(self.schedule.columns)
        }

    @property
    def partial_words(self) -> int:
        return sum(len(reduction_of(r).types) for r in self.schedule.sums)

    # --- the driver ----------------------------------------------------------------------------

    def driver(self) -> str:
        f = self.frame()
        e, s = f.e, self.schedule
        items = f.top.size(s.items)
        cycles = f.top.size(s.cycles)
        work = e(f"mul i64 {items}, {cycles}")
        pieces = e(f"udiv i64 {work}, {CHUNK_CYCLES}")
        few = e(f"icmp ult i64 {pieces}, {MAX_CHUNKS}")
        pieces = e(f"select i1 {few}, i64 {pieces}, i64 {MAX_CHUNKS}")
        some = e(f"icmp ugt i64 {pieces}, 1")
        pieces = e(f"select i1 {some}, i64 {pieces}, i64 1")
        up = e(f"add i64 {items}, {pieces}")
        chunk = e(f"sdiv i64 {e(f'sub i64 {up}, 1')}, {pieces}")
        any_ = e(f"icmp sgt i64 {chunk}, 0")
        chunk = e(f"select i1 {any_}, i64 {chunk}, i64 1")
        up = e(f"add i64 {items}, {chunk}")
        chunks = e(f"sdiv i64 {e(f'sub i64 {up}, 1')}, {chunk}")
        f.set_slot("i64", self.slots.items, items)
        f.set_slot("i64", self.slots.chunk, chunk)
        partials = ""
        if s.sums:
            partials = f.alloca(f"[{MAX_CHUNKS * self.partial_words} x i64]")
            f.set_slot("ptr", self.slots.partials, partials)
        self.module.declare(
            "graphc_parallel", "declare void @graphc_parallel(ptr, ptr, i64, ptr)"
        )
        parallel, alone, after = e.fresh("parallel"), e.fresh("alone"), e.fresh("after")
        e.do(f"br i1 {e(f'icmp sgt i64 {chunks}, 1')}, label %{parallel}, label %{alone}")
        e.label(parallel)
        e.do(
            f"call void @graphc_parallel(ptr @{self.name}.task, ptr %ctx, i64 {chunks}, "
            "ptr %scratch)"
        )
        e.do(f"br label %{after}")
        e.label(alone)
        e.do(f"call void @{self.name}.task(ptr %ctx, i64 0, i64 {chunks}, ptr %scratch)")
        e.do(f"br label %{after}")
        e.label(after)
        if any(s.is_late(x) and x.expr not in s.columns for x in s.nest.stores):
            self.combine(f, partials, chunks)
        if s.columns:
            self.add_columns(f, chunks)
        return f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")

    def add_columns(self, f: Frame, chunks: str) -> None:
        """Add up the chunks' column accumulators in order and store the sums."""
        e, s = f.e, self.schedule
        size = f.top.size(self.columns_bytes)
        row = f.top.size(dims.product(self.nest.sizes[n] for n in self.nest.reduced))
        for k, r in enumerate(s.columns):
            kind = reduction_of(r)
            (t,) = kind.types
            first = e(f"mul nsw i64 {row}, {8 * k}")
            base = e(f"getelementptr inbounds i8, ptr {f.params[-1]}, i64 {first}")
            outs = [x.output for x in s.nest.stores if x.expr is r]

            def column(i: str, _: list[str]) -> list[str]:
                free = Lanes(e, s.width, self.target)
                left = e(f"trunc i64 {e(f'sub nsw i64 {row}, {i}')} to i32")
                steps = ", ".join(f"i32 {j}" for j in range(s.width))
                mask = e(f"icmp slt {free.vec('i32')} <{steps}>, {free.spread('i32', left)}")
                L = Lanes(e, s.width, self.target, mask=mask)
                v, m = L.vec(t), L.vec("i1")
                load = f"llvm.masked.load.{L.suffix(t)}.p0"
                self.module.declare(load, f"declare {v} @{load}(ptr, i32, {m}, {v})")

                def add(c: str, state: list[str]) -> list[str]:
                    at = e(f"getelementptr inbounds i8, ptr {base}, i64 {e(f'mul i64 {c}, {size}')}")
                    at = e(f"getelementptr inbounds {t}, ptr {at}, i64 {i}")
                    x = e(f"call {v} @{load}(ptr {at}, i32 4, {m} {mask}, {v} zeroinitializer)")
                    return kind.merge(L, state, [x])

                total = e.loop("0", chunks, 1, [(v, kind.start(L)[0])], add)
                value = kind.finish(L, total, r.dtype)
                for o in outs:
                    d = self.nest.outputs[o].dtype
                    to = e(f"getelementptr inbounds [{d.itemsize} x i8], ptr {f.outputs[o]}, i64 {i}")
                    L.store(d, value, to)
                return []

            e.loop("0", row, s.width, [], column)

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

