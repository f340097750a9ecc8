"""Scatter with several positions per row: a copy of the operand, then updates in order.

The operand is x[pre, n, post], positions idx[batch, p], updates u[pre, p, post]. Updates run one
after the other over p, so that colliding positions add up in a fixed order and the last write
wins; post is walked in vectors.
"""

from __future__ import annotations

from graphc.codegen.emitter import Emitter, Module
from graphc.codegen.frame import Frame, slots_of
from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Nest, strides
from graphc.codegen.scalars import emit
from graphc.codegen.schedule import plan
from graphc.codegen.scope import Scope
from graphc.codegen.target import Target
from graphc.dims import Size, product
from graphc.ir import Graph, Node
from graphc.types import i64


class ScatterKernel:
    """Writes the function of a fused node whose body is one general scatter or scatter_add."""

    workspace: Size = 0

    def __init__(
        self, module: Module, target: Target, node: Node, name: str, codes: dict[Node, int],
    ):
        self.module, self.target, self.name, self.codes = module, target, name, codes
        body: Graph = node.attrs["body"]
        self.node = body.outputs[0].node
        self.body = body
        inputs = tuple(v.type for v in body.inputs)
        shapes = [s for t in (*inputs, body.outputs[0].type) for s in t.shape]
        self.nest = Nest(
            [], [], {}, inputs, (body.outputs[0].type,), [], [], [self.node],
        )
        self.slots = slots_of(self.nest, shapes)

    def define(self) -> None:
        """Add the kernel to the module."""
        f = Frame(
            self.module, self.target, plan(self.nest, self.target), self.slots, self.codes, False
        )
        e, top, n = f.e, f.top, self.node
        x, where, u = n.args
        at = n.attrs
        k, batch = at["axis"], at["batch"]
        rows = where.type.shape[batch:]
        post = x.type.shape[k + 1 :]
        pointers = dict(zip(self.body.inputs, f.params, strict=True))
        out = f.outputs[0]
        d = x.type.dtype
        bytes_ = top.size(x.type.size * d.itemsize)
        self.module.declare(
            "llvm.memcpy.p0.p0.i64", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        )
        e.do(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr {pointers[x]}, i64 {bytes_}, "
            "i1 false)"
        )
        limit = top.size(x.type.shape[k])
        width = max(2, self.target.vector_bits // max(8, d.compute.bits))
        x_steps, u_steps = strides(x.type.shape), strides(u.type.shape)
        i_steps = strides(where.type.shape)
        lead = x.type.shape[:k]
        count = top.size(product(post))
        axes = [*lead, *rows]

        def offset(regs: list[str], steps: list[Size]) -> str:
            total = "0"
            for r, s in zip(regs, steps, strict=True):
                total = e(f"add i64 {total}, {e(f'mul i64 {r}, {top.size(s)}')}")
            return total

        def update(regs: list[str]) -> None:
            first, row = regs[:k], regs[k:]
            idx_at = offset([*first[:batch], *row], i_steps)
            one = Lanes(e, 1, self.target)
            it = where.type.dtype
            raw = one.load(it, _at(e, pointers[where], idx_at, it.itemsize))
            p = emit(one, "cast", [raw], [it], i64, {"dtype": i64}) if it is not i64 else raw
            if at["negative"]:
                low = e(f"icmp slt i64 {p}, 0")
                p = e(f"select i1 {low}, i64 {e(f'add i64 {p}, {limit}')}, i64 {p}")
            ok = e(f"icmp ult i64 {p}, {limit}")
            f.report(top_scope(f, e), n, one.negate(ok))
            go, done = e.fresh("go"), e.fresh("done")
            e.do(f"br i1 {ok}, label %{go}, label %{done}")
            e.label(go)
            base = offset([*first, p], x_steps[: k + 1])
            source = offset([*first, *row], u_steps[: k + len(row)])

            def vector(i: str, _: list[str]) -> list[str]:
                left = e(f"sub i64 {count}, {i}")
                small = e(f"trunc i64 {left} to i32")
                steps = ", ".join(f"i32 {j}" for j in range(width))
                free = Lanes(e, width, self.target)
                mask = e(
                    f"icmp slt {free.vec('i32')} <{steps}>, {free.spread('i32', small)}"
                )
                L = Lanes(e, width, self.target, mask=mask)
                to = _at(e, out, e(f"add i64 {base}, {i}"), d.itemsize)
                new = L.load(d, _at(e, pointers[u], e(f"add i64 {source}, {i}"), d.itemsize))
                if n.op.name == "scatter_add":
                    new = emit(L, "add", [L.load(d, to), new], [d, d], d, {})
                L.store(d, new, to)
                return []

            e.loop("0", count, width, [], vector)
            e.do(f"br label %{done}")
            e.label(done)

        def nested(depth: int, regs: list[str]) -> None:
            if depth == len(axes):
                update(regs)
                return

            def body(i: str, _: list[str]) -> list[str]:
                nested(depth + 1, [*regs, i])
                return []

            e.loop("0", top.size(axes[depth]), 1, [], body)

        nested(0, [])
        self.module.define(
            self.name, f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")
        )


def top_scope(f: Frame, e: Emitter) -> Scope:
    """A scope that writes at the current place of the function."""
    return Scope(f, f.top, e, {})


def _at(e: Emitter, base: str, index: str, itemsize: int) -> str:
    return e(f"getelementptr inbounds [{itemsize} x i8], ptr {base}, i64 {index}")
