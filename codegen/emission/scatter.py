"""Scatter with several positions per row: a copy of the operand, then updates in order.

There is no copy where the result stands in the operand's place, which nobody reads afterwards, and
zeros are made there, not copied: gradients of gathers begin with these. A
state's place may be taken where nothing can fail any more, so its positions are looked at before,
by a kernel of their own.

The operand is x[pre, n, post], positions idx[batch, p], updates u[pre, p, post]. Updates run one
after the other over p, so that colliding positions add up in a fixed order and the last write
wins; post is walked in vectors.

16-bit floats add up in f32, in a workspace, and are rounded once, as sums are. Where there are
fewer positions than rows of x, only the rows that these name go there and back: a few rows of a
large state cost no more than they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphc.codegen.elementwise import casts
from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.frame import Frame, slots_of
from graphc.codegen.emission.lane_masks import below
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.job import Job
from graphc.codegen.nests.loops import Nest, strides
from graphc.codegen.nests.schedule import plan
from graphc.dims import Size, product
from graphc.ir import Node, Value
from graphc.types import f32, i64

UNROLL = 4  # positions of single elements that a loop takes at once
# Rows are short and come again soon: what a mask leaves out of a store keeps the next load waiting,
# and so do 64 bytes. 100,000 rows of 2, 5, 8, 12, 16 and 24 f32 added to 1000 by position, in us:
#     masked, AVX-512   202  166  188  179  179  256     AVX2   74  109  103  187  149  193
#     straight           50   78   68  101  121  165            50   78   69  101  107  168
WIDEST = 256   # bits of a vector
STRAIGHT = 4   # vectors of a row without a loop

Step = Callable[[Lanes, str, str], None]  # some lanes of x and of the updates, by their offsets


class ScatterKernel:
    """Writes the function of a fused node whose body is one general scatter or scatter_add.

    checked: its positions were looked at before; it reports none.
    """

    def __init__(self, job: Job, checked: bool):
        self.job, self.checked = job, checked
        result = job.body.outputs[0]
        inputs = tuple(v.type for v in job.body.inputs)
        shapes = [s for t in (*inputs, result.type) for s in t.shape]
        self.nest = Nest([], [], {}, inputs, (result.type,), [], [], [result.node])
        self.slots = slots_of(self.nest, shapes)
        d = result.type.dtype
        self.workspace: Size = 0  # bytes of the sums of 16-bit floats
        if result.node.op.name == "scatter_add" and d.is_float and d.bits == 16:
            self.workspace = result.type.size * f32.itemsize
        if self.workspace != 0:
            self.slots = replace(self.slots, params=self.slots.params + 1)

    @property
    def in_place(self) -> dict[int, list[int]]:
        """The operand whose buffer the result may take, as of `kernels.Call`."""
        body = self.job.body
        x, *others = body.outputs[0].node.args
        return {} if x in others or x not in body.inputs else {0: [body.inputs.index(x)]}

    def define(self) -> None:
        """Add the kernel to the module."""
        job = self.job
        f = Frame(job, plan(self.nest, job.target), self.slots)
        pointers = dict(zip(job.body.inputs, f.params, strict=False))
        sums = f.params[-1] if self.workspace != 0 else ""
        _Updates(f, job.body.outputs[0].node, pointers, sums, self.checked).write()
        job.module.define(
            job.name, f.finish(f"define internal void @{job.name}(ptr %ctx, ptr %scratch)")
        )


class PositionsKernel:
    """Writes a function that reports positions of a job's scatter that are out of range."""

    def __init__(self, job: Job):
        self.job, self.name = job, f"{job.name}.positions"
        self.scatter = job.body.outputs[0].node
        inside = self.scatter.args[1]
        self.where = job.node.args[job.body.inputs.index(inside)]
        self.work = inside.type.size
        self.nest = Nest([], [], {}, (inside.type,), (), [], [], [self.scatter])
        self.slots = slots_of(self.nest, inside.type.shape)

    def define(self) -> None:
        """Add the kernel to the module."""
        f = Frame(self.job, plan(self.nest, self.job.target), self.slots)
        x, where, _ = self.scatter.args
        limit = f.top.size(x.type.shape[self.scatter.attrs["axis"]])
        e, count = f.e, f.top.size(where.type.size)
        free = Lanes(e, f.target.vector_bits // 64, f.target)

        def look(L: Lanes, i: str) -> None:
            p = _positions(f, L, self.scatter, f.params[0], i, limit)
            good = L.cmp("ult", "i64", p, L.spread("i64", limit))
            bad, done = e.fresh("bad"), e.fresh("done")
            e.do(f"br i1 {L.any(L.negate(good))}, label %{bad}, label %{done}")
            e.label(bad)
            f.report(Scope(f, f.top, e, {}), self.scatter, "true")
            e.do(f"br label %{done}")
            e.label(done)

        rest = e(f"srem i64 {count}, {free.width}")
        whole = e(f"sub i64 {count}, {rest}")
        e.for_each("0", whole, lambda i: look(free, i), free.width)
        e.for_each(whole, count, lambda i: look(Lanes(e, 1, f.target), i))
        self.job.module.define(
            self.name, f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")
        )


def _positions(f: Frame, L: Lanes, node: Node, at: str, index: str, limit: str) -> str:
    """A scatter's positions from the index-th on as i64, counted from the beginning where they may
    be negative; as unsigned numbers they are below `limit` if they are in range."""
    d = node.args[1].type.dtype
    raw = L.load(d, _element(f, at, index, d.itemsize))
    p = raw if d is i64 else emit(L, "cast", [raw], [d], i64, {"dtype": i64})
    if not (node.attrs["negative"] and d.kind == "i"):
        return p
    up = f.e(f"add {L.vec('i64')} {p}, {L.spread('i64', limit)}")
    return L.select(L.cmp("slt", "i64", p, L.k("i64", 0)), "i64", up, p)


def _element(f: Frame, base: str, index: str, itemsize: int) -> str:
    """The address of an element."""
    return f.e(f"getelementptr inbounds [{itemsize} x i8], ptr {base}, i64 {index}")


class _Updates:
    """Emits the copy of the operand and the loops of updates over it."""

    def __init__(
        self, f: Frame, node: Node, pointers: dict[Value, str], sums: str, checked: bool
    ):
        self.f, self.e, self.node, self.checked = f, f.e, node, checked
        self.x, self.where, self.u = node.args
        self.at_x, self.at_where = pointers.get(self.x, ""), pointers[self.where]
        self.axis, self.batch = node.attrs["axis"], node.attrs["batch"]
        self.dtype = self.x.type.dtype
        self.sums = sums  # where 16-bit floats add up
        self.at_u = pointers.get(self.u, "")
        self.number = "" if self.at_u else self.one_number(pointers)

    def write(self) -> None:
        """The whole function."""
        self.begin()
        if self.sums:
            self.in_f32()
        else:
            self.each(self.add)

    def begin(self) -> None:
        """The result as it is before all updates: x, copied if it is elsewhere, or zeros."""
        e, f, x = self.e, self.f, self.x.type
        if not self.at_x:
            e.clear(f.outputs[0], f.top.size(x.size * self.dtype.itemsize))
            return
        apart, after = e.fresh("apart"), e.fresh("after")
        bytes_ = f.top.size(x.size * self.dtype.itemsize)
        e.do(f"br i1 {e(f'icmp eq ptr {f.outputs[0]}, {self.at_x}')}, label %{after}, "
             f"label %{apart}")
        e.label(apart)
        e.copy(f.outputs[0], self.at_x, bytes_)
        e.do(f"br label %{after}")
        e.label(after)

    def one_number(self, pointers: dict[Value, str]) -> str:
        """What every update is, read before anything is written."""
        one, d, v = Lanes(self.f.top.e, 1, self.f.target), self.dtype, self.u
        while v not in pointers and v.node.op.name != "constant":
            (v,) = v.node.args
        if v in pointers:
            return one.load(d, pointers[v])
        return one.const(d, v.node.attrs["value"].array.reshape(-1)[0].item())

    def in_f32(self) -> None:
        """Updates of 16-bit floats: there, added up, and back."""
        e, f, x = self.e, self.f, self.x.type
        rows = f.top.size(product(x.shape[: self.axis + 1]))
        positions = product((*x.shape[: self.axis], *self.where.type.shape[self.batch :]))
        few = e(f"icmp ult i64 {f.top.size(positions)}, {rows}")

        def moved(step: Step) -> None:
            some, whole, done = e.fresh("some"), e.fresh("whole"), e.fresh("done")
            e.do(f"br i1 {few}, label %{some}, label %{whole}")
            e.label(some)
            self.each(step)
            e.do(f"br label %{done}")
            e.label(whole)
            self.vectors(x.size, "0", "0", step)
            e.do(f"br label %{done}")
            e.label(done)

        moved(self.widen)
        self.each(self.add)
        moved(self.narrow)

    def each(self, step: Step) -> None:
        """`step` for the elements behind every position, in the order of these."""
        self.step = step
        sizes = [*self.x.type.shape[: self.axis], *self.where.type.shape[self.batch :]]
        row = product(self.x.type.shape[self.axis + 1 :])
        if isinstance(row, int):
            self.loops(sizes if row else [0], [])
            return
        e = self.e
        some, done = e.fresh("some"), e.fresh("done")  # positions of empty rows are not looked at
        e.do(f"br i1 {e(f'icmp eq i64 {self.f.top.size(row)}, 0')}, label %{done}, label %{some}")
        e.label(some)
        self.loops(sizes, [])
        e.do(f"br label %{done}")
        e.label(done)

    def loops(self, sizes: list[Size], at: list[str]) -> None:
        """Loops over the axes before x's indexed one, and then over those of the positions."""
        if not sizes:
            self.update(at[: self.axis], at[self.axis :])
            return

        def body(i: str) -> None:
            self.loops(sizes[1:], [*at, i])

        e, end = self.e, self.f.top.size(sizes[0])
        if len(sizes) > 1 or product(self.x.type.shape[self.axis + 1 :]) != 1:
            e.for_each("0", end, body)
            return

        def some(i: str) -> None:
            for k in range(UNROLL):
                body(e(f"add nuw nsw i64 {i}, {k}") if k else i)

        whole = e(f"and i64 {end}, {-UNROLL}")
        e.for_each("0", whole, some, UNROLL)
        e.for_each(whole, end, body)

    def update(self, first: list[str], row: list[str]) -> None:
        """One position: checked, and what stands behind it updated if it is in range."""
        e, f = self.e, self.f
        limit = f.top.size(self.x.type.shape[self.axis])
        index = self.offset([*first[: self.batch], *row], self.where)
        p = _positions(f, Lanes(e, 1, f.target), self.node, self.at_where, index, limit)
        if self.always_inside:
            self.row(self.offset([*first, p], self.x), self.offset([*first, *row], self.u))
            return
        ok = e(f"icmp ult i64 {p}, {limit}")
        go, bad, done = e.fresh("go"), e.fresh("bad"), e.fresh("done")
        e.do(f"br i1 {ok}, label %{go}, label %{bad}")
        e.label(bad)
        if not self.checked:
            f.report(Scope(f, f.top, e, {}), self.node, "true")
        e.do(f"br label %{done}")
        e.label(go)
        self.row(self.offset([*first, p], self.x), self.offset([*first, *row], self.u))
        e.do(f"br label %{done}")
        e.label(done)

    @property
    def always_inside(self) -> bool:
        """Whether no position can be out of range: bytes, in a table of 256."""
        d, n = self.where.type.dtype, self.x.type.shape[self.axis]
        return d.kind == "u" and isinstance(n, int) and n >= 1 << d.bits

    def row(self, to: str, source: str) -> None:
        """The elements behind a position."""
        self.vectors(product(self.x.type.shape[self.axis + 1 :]), to, source, self.step)

    def vectors(self, size: Size, to: str, source: str, step: Step) -> None:
        """`step` for contiguous elements, in vectors where there is more than one."""
        e, f = self.e, self.f
        if size == 1:
            step(Lanes(e, 1, f.target), to, source)
            return
        width = max(2, min(WIDEST, f.target.vector_bits) // max(8, self.dtype.compute.bits))
        if isinstance(size, int) and 0 < size <= STRAIGHT * width:
            self.straight(size, width, to, source, step)
            return
        count = f.top.size(size)
        free = Lanes(e, width, f.target)

        def vector(i: str) -> None:
            end = least(e, e(f"add i64 {i}, {width}"), count)  # what is left may have 32 bits
            L = Lanes(e, width, f.target, mask=below(free, i, end))
            step(L, e(f"add i64 {to}, {i}"), e(f"add i64 {source}, {i}"))

        def whole(i: str) -> None:
            step(free, e(f"add i64 {to}, {i}"), e(f"add i64 {source}, {i}"))

        rest = e(f"srem i64 {count}, {width}")
        end = e(f"sub i64 {count}, {rest}")
        e.for_each("0", end, whole, width)
        e.for_each(end, count, vector, width)

    def straight(self, size: int, width: int, to: str, source: str, step: Step) -> None:
        """`step` for a few elements: vectors, and then ever shorter ones, without masks."""
        e, at = self.e, 0
        while at < size:
            while width > size - at:
                width //= 2
            there = [e(f"add i64 {x}, {at}") if at else x for x in (to, source)]
            step(Lanes(e, width, self.f.target), *there)
            at += width

    def add(self, L: Lanes, to: str, source: str) -> None:
        """Some elements, updated."""
        d = f32 if self.sums else self.dtype
        place = _element(self.f, self.sums or self.f.outputs[0], to, d.itemsize)
        if self.number:
            new = L.splat(self.dtype, self.number)
        else:
            new = L.load(self.dtype, _element(self.f, self.at_u, source, self.dtype.itemsize))
        if self.node.op.name == "scatter_add":
            new = emit(L, "add", [L.load(d, place), new], [d, d], d, {})
        L.store(d, new, place)

    def widen(self, L: Lanes, to: str, source: str) -> None:
        """Some elements, as they were, put where they add up."""
        old = L.load(self.dtype, _element(self.f, self.f.outputs[0], to, self.dtype.itemsize))
        L.store(f32, old, _element(self.f, self.sums, to, f32.itemsize))

    def narrow(self, L: Lanes, to: str, source: str) -> None:
        """Some sums, rounded."""
        total = L.load(f32, _element(self.f, self.sums, to, f32.itemsize))
        place = _element(self.f, self.f.outputs[0], to, self.dtype.itemsize)
        L.store(self.dtype, casts.round_to(L, self.dtype, total), place)

    def offset(self, at: list[str], v: Value) -> str:
        """Elements from v's beginning to its place under the first indices `at`."""
        total = "0"
        for i, step in zip(at, strides(v.type.shape), strict=False):
            total = self.e(f"add i64 {total}, {self.e(f'mul i64 {i}, {self.f.top.size(step)}')}")
        return total
