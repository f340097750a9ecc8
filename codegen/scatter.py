"""Scatter with several positions per row: a copy of the operand, then updates in order.

The operand is x[pre, n, post], positions idx[batch, p], updates u[pre, p, post]. Updates run one
after the other over p, so that colliding positions add up in a fixed order and the last write
wins; post is walked in vectors.
"""

from __future__ import annotations

from graphc.codegen.frame import Frame, slots_of
from graphc.codegen.job import Job
from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Nest, strides
from graphc.codegen.scalars import emit
from graphc.codegen.schedule import plan
from graphc.codegen.scope import Scope
from graphc.codegen.sweep import least
from graphc.dims import Size, product
from graphc.ir import Node, Value
from graphc.types import i64


class ScatterKernel:
    """Writes the function of a fused node whose body is one general scatter or scatter_add."""

    def __init__(self, job: Job):
        self.job = job
        result = job.body.outputs[0]
        inputs = tuple(v.type for v in job.body.inputs)
        shapes = [s for t in (*inputs, result.type) for s in t.shape]
        self.nest = Nest([], [], {}, inputs, (result.type,), [], [], [result.node])
        self.slots = slots_of(self.nest, shapes)

    def define(self) -> None:
        """Add the kernel to the module."""
        job = self.job
        f = Frame(job, plan(self.nest, job.target), self.slots)
        pointers = dict(zip(job.body.inputs, f.params, strict=True))
        _Updates(f, job.body.outputs[0].node, pointers).write()
        job.module.define(
            job.name, f.finish(f"define internal void @{job.name}(ptr %ctx, ptr %scratch)")
        )


class _Updates:
    """Emits the copy of the operand and the loops of updates over it."""

    def __init__(self, f: Frame, node: Node, pointers: dict[Value, str]):
        self.f, self.e, self.node = f, f.e, node
        self.x, self.where, self.u = node.args
        self.at_x, self.at_where, self.at_u = (pointers[v] for v in node.args)
        self.axis, self.batch = node.attrs["axis"], node.attrs["batch"]
        self.dtype = self.x.type.dtype

    def write(self) -> None:
        """The whole function."""
        f, x = self.f, self.x.type
        self.e.copy(f.outputs[0], self.at_x, f.top.size(x.size * self.dtype.itemsize))
        self.loops([*x.shape[: self.axis], *self.where.type.shape[self.batch :]], [])

    def loops(self, sizes: list[Size], at: list[str]) -> None:
        """Loops over the axes before x's indexed one, and then over those of the positions."""
        if not sizes:
            self.update(at[: self.axis], at[self.axis :])
            return

        def body(i: str, _: list[str]) -> list[str]:
            self.loops(sizes[1:], [*at, i])
            return []

        self.e.loop("0", self.f.top.size(sizes[0]), 1, [], body)

    def update(self, first: list[str], row: list[str]) -> None:
        """One position: checked, and what stands behind it updated if it is in range."""
        e, f = self.e, self.f
        limit = f.top.size(self.x.type.shape[self.axis])
        p = self.position([*first[: self.batch], *row])
        if self.node.attrs["negative"] and self.where.type.dtype.kind == "i":
            low = e(f"icmp slt i64 {p}, 0")
            p = e(f"select i1 {low}, i64 {e(f'add i64 {p}, {limit}')}, i64 {p}")
        ok = e(f"icmp ult i64 {p}, {limit}")
        f.report(Scope(f, f.top, e, {}), self.node, Lanes(e, 1, f.target).negate(ok))
        go, done = e.fresh("go"), e.fresh("done")
        e.do(f"br i1 {ok}, label %{go}, label %{done}")
        e.label(go)
        self.vectors(self.offset([*first, p], self.x), self.offset([*first, *row], self.u))
        e.do(f"br label %{done}")
        e.label(done)

    def position(self, at: list[str]) -> str:
        """The position that the indices hold there, as i64."""
        d = self.where.type.dtype
        one = Lanes(self.e, 1, self.f.target)
        raw = one.load(d, self.element(self.at_where, self.offset(at, self.where), d.itemsize))
        return raw if d is i64 else emit(one, "cast", [raw], [d], i64, {"dtype": i64})

    def vectors(self, to: str, source: str) -> None:
        """The elements behind a position, in vectors."""
        e, f, d = self.e, self.f, self.dtype
        width = max(2, f.target.vector_bits // max(8, d.compute.bits))
        count = f.top.size(product(self.x.type.shape[self.axis + 1 :]))
        free = Lanes(e, width, f.target)

        def vector(i: str, _: list[str]) -> list[str]:
            end = least(e, e(f"add i64 {i}, {width}"), count)  # what is left may have 32 bits
            L = Lanes(e, width, f.target, mask=free.below(i, end))
            place = self.element(f.outputs[0], e(f"add i64 {to}, {i}"), d.itemsize)
            new = L.load(d, self.element(self.at_u, e(f"add i64 {source}, {i}"), d.itemsize))
            if self.node.op.name == "scatter_add":
                new = emit(L, "add", [L.load(d, place), new], [d, d], d, {})
            L.store(d, new, place)
            return []

        e.loop("0", count, width, [], vector)

    def offset(self, at: list[str], v: Value) -> str:
        """Elements from v's beginning to its place under the first indices `at`."""
        total = "0"
        for i, step in zip(at, strides(v.type.shape), strict=False):
            total = self.e(f"add i64 {total}, {self.e(f'mul i64 {i}, {self.f.top.size(step)}')}")
        return total

    def element(self, base: str, index: str, itemsize: int) -> str:
        """The address of an element."""
        return self.e(f"getelementptr inbounds [{itemsize} x i8], ptr {base}, i64 {index}")
