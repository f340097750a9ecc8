"""A fused graph -> a Program: kernels, the memory plan, and the entry point that runs them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc.codegen.chain import ChainKernel
from graphc.codegen.debug import entitle, graph_loc, kernel_loc, kernel_name, kernel_nodes
from graphc.codegen.emitter import Emitter, Module
from graphc.codegen.fpmode import can_flush, define_flushed
from graphc.codegen.kernels import Call, body_sites, define_kernel
from graphc.codegen.lanes import literal, memory_type
from graphc.codegen.loops import print_nest
from graphc.codegen.plan import Place, Plan, align, make_plan
from graphc.codegen.program import (
    FIRST_SITE,
    NEGATIVE_DIMENSION,
    SIZE_OVERFLOW,
    Kernel,
    Param,
    Program,
    Site,
)
from graphc.codegen.scalars import EMIT
from graphc.codegen.sizes import SizeCode
from graphc.codegen.straight import straight
from graphc.codegen.target import Target
from graphc.codegen.waves import WaveRunner, define_timed
from graphc.conditions import requirements
from graphc.dims import Size
from graphc.errors import CompileError, Loc
from graphc.ir import Graph, Node, State, Value
from graphc.ops.row import Kind
from graphc.passes import chains
from graphc.passes.stages import lower
from graphc.types import TensorType

INLINE_BYTES = 1 << 12  # constants up to here stand in the text; larger ones are arguments


def compile_graph(
    g: Graph, target: Target, *, fastmath: bool = False, name: str | None = None,
    declared: Graph | None = None, timed: bool = False, debug: bool = False,
    kernels: bool = False,
) -> Program:
    """Generate code for a graph; one that is not the result of the whole pipeline is fused first.

    `declared` is the graph as the user wrote it: what it requires of the sizes of a call is
    checked even where a pass has removed the node that required it. A `timed` program counts the
    ticks of every kernel (see `waves.TICKS`). With `debug` the text says what computes which line
    (see `debug`). With `kernels` even a small graph gets kernels (see `straight`).
    """
    return _Compiler(
        lower(g), target, fastmath, name or g.name, declared or g, timed, debug, kernels
    ).program()


class _Compiler:
    def __init__(
        self, g: Graph, target: Target, fastmath: bool, name: str, declared: Graph, timed: bool,
        debug: bool, kernels: bool,
    ):
        self.may_be_straight = not kernels
        self.timed = timed
        self.declared = declared
        self.updates = frozenset(v for _, v in g.updates)
        self.g, self.target, self.fastmath = g, target, fastmath
        self.name = re.sub(r"\W", "_", name) or "graph"
        self.module = Module(debug)
        self.sites: list[Site] = []
        self.codes: dict[Node, int] = {}
        self.shapes: dict[tuple[object, ...], Call] = {}  # kernels that cannot fail, by structure
        self.members: list[Call] = []   # the kernels of chains
        self.checks: list[tuple[Size, bool, int]] = []  # (size, must be 0 | >= 0, code)

    def program(self) -> Program:
        g = self.g
        self.find_sites(g)
        constants = [n.out for n in g.nodes if n.op.name == "constant"]
        large = [v for v in constants if v.node.attrs["value"].array.nbytes > INLINE_BYTES]
        states = g.variables()
        arena: Size = 0
        kernels: tuple[Kernel, ...]
        straight = self.straight(states, large)
        if straight is not None:
            kernels, text = (straight,), "no arena: values stand in registers"
        else:
            calls: list[Call] = []
            for n in g.nodes:
                if n.op.name == "fused":
                    calls.append(self.kernel(n, len(calls)))
            self.small = {v: self.global_constant(v, k) for k, v in enumerate(constants)
                          if v not in large}
            plan = self.plan = make_plan(g, calls, states, large)
            self.entry(plan, len(states), large)
            if self.module.debug:
                entitle(
                    self.module.functions, (self.name, graph_loc(self.declared)),
                    {c.name: (kernel_name(c.name, c.node), kernel_loc(c.node))
                     for c in (*calls, *self.members)},
                )
            kernels, arena, text = tuple(map(_described, plan.calls)), plan.arena, plan.text
        updated = {s for s, _ in g.updates}
        names = [str(v.node.attrs["name"]) for v in g.inputs]
        return Program(
            name=self.name,
            graph=g,
            llvm=self.module.text(),
            inputs=tuple(Param(n, v.type) for n, v in zip(names, g.inputs, strict=True)),
            outputs=tuple(
                Param(n, v.type) for n, v in zip(g.output_names, g.outputs, strict=True)
            ),
            states=states,
            updated=tuple(s in updated for s in states),
            constants=tuple(v.node.attrs["value"] for v in large),
            dims=g.dims(),
            arena=arena,
            sites=tuple(self.sites),
            kernels=kernels,
            plan=text,
        )

    def straight(self, states: Sequence[State], large: Sequence[Value]) -> Kernel | None:
        """The whole graph as one function without kernels, where it is small enough for that."""
        if not self.may_be_straight or self.sites:
            return None
        name = f"{self.name}.straight"
        flat = straight(
            self.module, self.target, self.g, name if self.timed else self.name, self.fastmath,
            states, large,
        )
        if flat is None:
            return None
        if self.timed:
            define_timed(self.module, self.name, name)
        if self.module.debug:
            entitle(self.module.functions, (self.name, graph_loc(self.declared)), {})
        ops = [n for n in flat.nodes if n.op.kind is not Kind.LEAF]
        lines = {n.loc: None for n in ops if n.loc is not None}
        text = ", ".join(dict.fromkeys(n.op.name for n in ops))
        return Kernel(name, len(ops), f"straight: {text}", tuple(sorted(lines)), name)

    # --- kernels -------------------------------------------------------------------------------

    def kernel(self, n: Node, k: int) -> Call:
        """Define the kernel of a fused node; equal nodes share their code."""
        shape = None if body_sites(n.attrs["body"]) else kernel_shape(n, self.updates)
        if shape is not None and shape in self.shapes:
            return replace(self.shapes[shape], node=n)
        name = f"{self.name}.k{k}"
        if chains.is_chain(n):
            chain = ChainKernel(self.module, self.target, n, name, self.codes, self.fastmath)
            call = chain.define()
            self.members += chain.calls
        else:
            call = define_kernel(
                self.module, self.target, n, name, self.codes, self.fastmath, self.updates
            )
        if shape is not None:
            self.shapes[shape] = call
        return call

    def find_sites(self, g: Graph) -> None:
        """Number the places that can fail: bad data in kernels, sizes that do not fit."""
        for r in requirements(self.declared):
            op, _, reason = r.message.partition(": ")
            self.sites.append(Site(op, reason, r.node.loc, "dimension"))
            code = FIRST_SITE + len(self.sites) - 1
            self.checks.append((r.condition.size, r.condition.zero, code))
        for n in g.nodes:
            if n.op.name == "fused":
                _refuse_unwritten(n.attrs["body"])
                for m in body_sites(n.attrs["body"]):
                    if m not in self.codes:
                        kind = "index" if m.op.kind is Kind.INDEX else "division"
                        self.codes[m] = self.site(m, _reason(m), kind)

    def site(self, n: Node, reason: str, kind: str) -> int:
        self.sites.append(Site(n.op.name, reason, n.loc, kind))
        return FIRST_SITE + len(self.sites) - 1

    def global_constant(self, v: Value, k: int) -> str:
        """A small constant as a global of the module."""
        array = v.node.attrs["value"].array
        d = v.type.dtype
        symbol = f"@{self.name}.c{k}"
        t = memory_type(d)
        raw = array.reshape(-1)
        if d.is_float and d.bits == 16:
            t, raw = "i16", raw.view(np.uint16)
        items = ", ".join(f"{t} {literal(t, x.item())}" for x in raw)
        body = f"[{items}]" if raw.size else "zeroinitializer"
        self.module.define_global(
            symbol, f"{symbol} = private unnamed_addr constant [{raw.size} x {t}] {body}, align 64"
        )
        return symbol

    # --- the entry point -----------------------------------------------------------------------

    def entry(self, plan: Plan, states: int, large: list[Value]) -> None:
        g = self.g
        e = Emitter(self.module)
        e.label("entry")
        allocas: list[str] = []
        e.lines.append(allocas)
        regs = {n: self._load(e, "i64", "%dims", k) for k, n in enumerate(g.dims())}
        sizes = SizeCode(e, regs)
        for n in regs.values():
            self._return_if(e, e(f"icmp slt i64 {n}, 0"), NEGATIVE_DIMENSION)
        self.check_entry(e, sizes, plan)
        base = {"input": 0, "output": len(g.inputs), "state": len(g.inputs) + len(g.outputs)}
        base["constant"] = base["state"] + states
        pointers: dict[Place, str] = {}
        arena = ""
        if plan.arena != 0:
            whole = e("ptrtoint ptr %arena to i64")
            up = e(f"add i64 {whole}, 63")
            arena = e(f"inttoptr i64 {e(f'and i64 {up}, -64')} to ptr")

        slots: list[str] = []
        at = arena
        for size in plan.slots:
            slots.append(at)
            at = e(f"getelementptr i8, ptr {at}, i64 {sizes.value(align(size))}")

        def pointer(p: Place) -> str:
            if p not in pointers:
                if p.kind == "arena":
                    pointers[p] = slots[p.index]
                else:
                    pointers[p] = self._load(e, "ptr", "%args", base[p.kind] + p.index)
            return pointers[p]

        def where(v: Value) -> str:
            r = plan.roots.get(v, v)
            return self.small[r] if r in self.small else pointer(plan.places[r])

        failing = [k for k, c in enumerate(plan.calls) if c.fallible]
        if failing:
            allocas += ["  %error = alloca i32, align 4", "  store i32 -1, ptr %error, align 4"]
        # what is handed on as it was at entry is copied before any state changes
        for old, slot in plan.shadows.items():
            self._copy(
                e, pointer(Place("arena", slot)), where(old), sizes.value(_bytes(old.type))
            )
        for v, place in plan.copies:
            if v.node.op.kind is Kind.LEAF:
                self._copy(e, pointer(place), where(v), sizes.value(_bytes(v.type)))
        scratch = "null" if plan.scratch is None else pointer(Place("arena", plan.scratch))
        runner = WaveRunner(
            self.module, self.name, plan, e, allocas, sizes, scratch, self.timed
        )
        for w, wave in enumerate(plan.waves):
            filled: list[str] = []
            for k in wave:
                c = plan.calls[k]
                values = [("ptr", where(a)) for a in c.args]
                outs = [where(o) for o in c.outs]
                if c.slots.params > len(c.args):  # a product's own buffer, or accumulators
                    if c.c_output is not None:
                        own = outs[c.c_output]
                    elif k in plan.workspaces:
                        own = pointer(Place("arena", plan.workspaces[k]))
                    else:
                        own = "null"  # blocks of the product pass through scratch
                    values.append(("ptr", own))
                values += [("ptr", o) for o in outs]
                values += [("i64", regs[n]) for n in c.slots.dims]
                if c.fallible:
                    values.append(("ptr", "%error"))
                filled.append(runner.fill(c, values, len(filled)))
            runner.run(w, [plan.calls[k] for k in wave], filled)
            if failing and failing[-1] in wave:
                code = e("load i32, ptr %error, align 4")
                bad, good = e.fresh("bad"), e.fresh("good")
                e.do(f"br i1 {e(f'icmp ne i32 {code}, -1')}, label %{bad}, label %{good}")
                e.label(bad)
                e.do(f"ret i32 {code}")
                e.label(good)
        for v, place in plan.copies:
            if v.node.op.kind is not Kind.LEAF:
                self._copy(e, pointer(place), where(v), sizes.value(_bytes(v.type)))
        for v, k in plan.commits:
            source = pointer(Place("arena", plan.shadows[v])) if v in plan.shadows else where(v)
            self._copy(e, pointer(Place("state", k)), source, sizes.value(_bytes(v.type)))
        e.do("ret i32 0")
        flushed = self.fastmath and can_flush(self.target)
        name = f"{self.name}.inner" if flushed else self.name
        self.module.define(
            name,
            f"define {'internal ' * flushed}i32 @{name}(ptr %args, ptr %dims, ptr %arena) nounwind "
            f"{{\n{e.text()}\n}}",
        )
        if flushed:
            define_flushed(self.module, self.target, self.name, name)

    def check_entry(self, e: Emitter, sizes: SizeCode, plan: Plan) -> None:
        """Overflow of sizes, and the conditions on dimensions."""
        seen: dict[Size, None] = {plan.arena: None}
        for v in (*self.g.inputs, *(o for n in self.g.nodes for o in n.outs)):
            seen.setdefault(_bytes(v.type))
        for size, _, _ in self.checks:
            seen.setdefault(size)
        for s in seen:
            sizes.value(s)
        bad = sizes.bad()
        if bad != "false":
            self._return_if(e, bad, SIZE_OVERFLOW)
        for size, zero, code in self.checks:
            test = "ne" if zero else "slt"
            self._return_if(e, e(f"icmp {test} i64 {sizes.value(size)}, 0"), code)

    def _load(self, e: Emitter, ty: str, base: str, k: int) -> str:
        p = e(f"getelementptr inbounds i64, ptr {base}, i64 {k}")
        return e(f"load {ty}, ptr {p}, align 8")

    def _return_if(self, e: Emitter, cond: str, code: int) -> None:
        bad, good = e.fresh("bad"), e.fresh("good")
        e.do(f"br i1 {cond}, label %{bad}, label %{good}")
        e.label(bad)
        e.do(f"ret i32 {code}")
        e.label(good)

    def _copy(self, e: Emitter, to: str, source: str, size: str) -> None:
        self.module.declare(
            "llvm.memcpy.p0.p0.i64", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        )
        e.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")


def kernel_shape(n: Node, updates: frozenset[Value]) -> tuple[object, ...]:
    """What decides the code of a fused node: its body by structure, its axes, what it updates."""
    return _structure(n), tuple(o in updates for o in n.outs)


def _structure(n: Node) -> tuple[object, ...]:
    """A node's attributes, bodies by their structure."""
    body = n.attrs.get("body")
    if not isinstance(body, Graph):
        return tuple(n.attrs.values())
    number = {v: k for k, v in enumerate(body.inputs)}
    rows: list[object] = [tuple(v.type for v in body.inputs)]
    for m in body.nodes:
        rows.append((m.op, tuple(number[a] for a in m.args), _structure(m)))
        for o in m.outs:
            number[o] = len(number)
    rest = tuple(a for name, a in n.attrs.items() if name != "body")
    return (*rows, tuple(number[o] for o in body.outputs), rest)


def _bytes(t: TensorType) -> Size:
    return t.size * t.dtype.itemsize


def _refuse_unwritten(body: Graph) -> None:
    """CompileError for an op of the user's own that came without `emit=`."""
    for n in body.nodes:
        if n.op.kind is Kind.ELEMENTWISE and n.op.name not in EMIT:
            raise CompileError(
                f"{n.op.name}: there is no native code for it, define_op got no emit=; run it with "
                "mode='interpret'", n.loc
            )


def _reason(n: Node) -> str:
    if n.op.kind is Kind.INDEX:
        k = n.attrs["axis"]
        size = n.args[0].type.shape[k]
        low = size * -1 if n.attrs["negative"] else 0
        return f"index out of range: axis {k} of {n.args[0].type} takes {low} to {size - 1}"
    if n.op.name == "pow":
        return "integer to a negative power"
    return "integer division by zero"


def _described(c: Call) -> Kernel:
    return Kernel(
        c.name, len(kernel_nodes(c.node)), _text(c), _lines(c), kernel_name(c.name, c.node)
    )


def _text(c: Call) -> str:
    if c.text:
        return c.text
    if c.nest is not None:
        return "\n".join(print_nest(n) for n in (c.nest, c.after) if n is not None)
    return str(c.node.attrs["body"].outputs[0].node.op)


def _lines(c: Call) -> tuple[Loc, ...]:
    found = {n.loc: None for n in kernel_nodes(c.node) if n.loc is not None}
    return tuple(sorted(found))
