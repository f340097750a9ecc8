"""A fused graph -> a Program: kernels, the memory plan, and the entry point that runs them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from graphc import dims
from graphc.codegen import merge_functions
from graphc.codegen.debug import entitle, graph_loc, kernel_loc, kernel_name, kernel_nodes
from graphc.codegen.delayed import stepped
from graphc.codegen.earlier import store_earlier
from graphc.codegen.elementwise.scalars import EMIT
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.literals import literal, memory_type
from graphc.codegen.entry import Check, Entry
from graphc.codegen.job import Job, body_sites
from graphc.codegen.kernels import Call, define_kernel
from graphc.codegen.machine.overlap import Overlap
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.product import unite
from graphc.codegen.nests.costs import FUNCTIONS, MOST_LONG
from graphc.codegen.nests.loops import print_nest
from graphc.codegen.plan import make_plan
from graphc.codegen.program import FIRST_SITE, Kernel, Param, Program, Site
from graphc.codegen.straight import blocks
from graphc.codegen.straight.function import straight
from graphc.codegen.templates import define_products
from graphc.codegen.waves import define_timed
from graphc.conditions import requirements
from graphc.dims import Size
from graphc.errors import CompileError, Loc
from graphc.ir import Graph, Node, State, Value, attr_key
from graphc.ops.row import Kind
from graphc.passes import chains
from graphc.passes.roles import written_in_place
from graphc.passes.stages import lower

INLINE_BYTES = 1 << 12  # constants up to here stand in the text; larger ones are arguments
# Functions that code may call: of C (LLVM calls some unasked), CPython, the pool, the builtin.
_CALLED = re.compile(
    r"mem\w+|bcmp|malloc|free|(ceil|floor|fma|fmod|rint|round|roundeven|sqrt|trunc)[fl]?"
    r"|(__|_?Py|gx_|graphc_)\w+"
)


def compile_graph(
    g: Graph, target: Target, *, fastmath: bool = False, name: str | None = None,
    declared: Graph | None = None, timed: bool = False, debug: bool = False,
    kernels: bool = False, overlap: Overlap | None = None, beside: Sequence[Graph] = (),
) -> Program:
    """Generate code for a graph; one that is not the result of the whole pipeline is fused first.

    `declared` is the graph as the user wrote it: what it requires of the sizes of a call is
    checked even where a pass has removed the node that required it. A `timed` program counts the
    ticks of every kernel (see `waves.TICKS`). With `debug` the text says what computes which line
    (see `debug`). With `kernels` even a small graph gets kernels (see `straight`). `overlap`
    takes the functions that will not change any more while the others are written. `beside`: the
    results of the pipeline for other functions of the same library, see `templates`.
    """
    return _Compiler(
        lower(g), target, fastmath, name or g.name, declared or g, timed, debug, kernels, overlap,
        [*map(lower, beside)],
    ).program()


def _entry_name(name: str) -> str:
    """The name of the entry point: that of the graph, unless code calls another function by it."""
    plain = re.sub(r"\W", "_", name) or "graph"
    return f"{plain}.entry" if _CALLED.fullmatch(plain) else plain


class _Compiler:
    def __init__(
        self, g: Graph, target: Target, fastmath: bool, name: str, declared: Graph, timed: bool,
        debug: bool, kernels: bool, overlap: Overlap | None, beside: Sequence[Graph],
    ):
        self.may_be_straight = not kernels
        self.overlap = None if debug else overlap  # lines are named when all is written
        self.timed, self.beside = timed, beside
        self.declared = declared
        self.updates = frozenset(v for _, v in g.updates)
        self.g, self.target, self.fastmath = g, target, fastmath
        self.name = _entry_name(name)
        self.module = Module(debug)
        if self.overlap is not None:
            self.overlap.give(self.module)
        self.sites: list[Site] = []
        self.codes: dict[Node, int] = {}
        self.shapes: dict[tuple[object, ...], Call] = {}  # kernels that cannot fail, by structure
        self.members: list[Call] = []   # the kernels of chains
        self.alone: set[str] = set()    # kernels that no other is like
        self.checks: list[Check] = []

    def program(self) -> Program:
        """Run all stages."""
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
            g, calls = self.kernels()
            unite(self.module)
            small = {v: self.global_constant(v, k) for k, v in enumerate(constants)
                     if v not in large}
            plan = make_plan(g, calls, states, large)
            Entry(
                self.module, self.name, g, self.names(), plan, len(states), small, self.checks,
                self.timed,
            ).define(self.target, self.fastmath)
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
            dims=self.names(),
            arena=arena,
            sites=tuple(self.sites),
            kernels=kernels,
            plan=text,
        )

    def names(self) -> tuple[str, ...]:
        """The dimensions of the graph, and those that only what is checked still names."""
        checked = (n for size, _, _ in self.checks for n in dims.names(size))
        return tuple(dict.fromkeys([*self.g.dims(), *checked]))

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

    def kernels(self) -> tuple[Graph, list[Call]]:
        """The graph with runs of small kernels as blocks, and the kernels of all its nodes."""
        g = store_earlier(self.g)
        g, begins = blocks.gather(g) if self.may_be_straight else (g, {})
        self.updates = frozenset(v for _, v in g.updates)
        self.in_place, self.stepped = written_in_place(g), stepped(g)
        nodes = [n for n in g.nodes if n.op.name == "fused"]
        shapes = {n: self.shape(n) for n in nodes}
        different = {shape or n: n for n, shape in shapes.items()}.values()
        kinds = Counter(map(_computed, different))
        long = sum(any(m.op.name in FUNCTIONS for m in kernel_nodes(n)) for n in different)
        self.module.sparing = long > MOST_LONG
        called = [n for n in nodes if n not in begins]
        define_products(self.module, self.target, called, self.beside)
        calls: list[Call] = []
        for n in nodes:
            written = len(self.module.functions)
            c = self.kernel(n, shapes[n], len(calls), n in begins)
            if kinds[_computed(n)] == 1 and not (n in begins or _calls_products(n)):
                self.settle(c.name, written)
            calls += [c] if c.check is None else [c.check, c]
        return g, [
            replace(c, slots=replace(c.slots, numbers=begins[c.node])) if c.node in begins else c
            for c in merge_functions.share(self.module, calls, self.alone)
        ]

    def settle(self, kernel: str, written: int) -> None:
        """Of what has been written since, nothing will be changed."""
        self.alone.add(kernel)
        if self.overlap is not None:
            new = len(self.module.functions) - written
            self.overlap.settle(self.module, [*islice(reversed(self.module.functions), new)][::-1])

    def shape(self, n: Node) -> tuple[object, ...] | None:
        """What decides the code of a kernel; None where it tells which node failed."""
        if body_sites(n.attrs["body"]):
            return None
        return kernel_shape(n, self.updates, n in self.in_place, self.stepped.get(n, {}))

    def kernel(self, n: Node, shape: tuple[object, ...] | None, k: int, block: bool) -> Call:
        """Define the kernel of a fused node; equal nodes share their code."""
        if shape is not None and shape in self.shapes:
            return replace(self.shapes[shape], node=n)
        name = f"{self.name}.k{k}"
        job = Job(self.module, self.target, n, name, self.codes, self.fastmath, [])
        if block:
            call = blocks.define(job)
        elif chains.is_chain(n):
            from graphc.codegen.chain.kernel import ChainKernel  # 3 ms, and most have no chains

            chain = ChainKernel(job)
            call = chain.define()
            self.members += chain.calls
        else:
            call = define_kernel(
                job, self.updates, driver=False, in_place=n in self.in_place,
                stepped=self.stepped.get(n, {}),
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
        """Number a place that can fail; its status code."""
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


def kernel_shape(
    n: Node, updates: frozenset[Value], in_place: bool, stepped: Mapping[int, int],
) -> tuple[object, ...]:
    """What decides the code of a fused node: its body by structure, its axes, what it updates,
    whether it writes over states, and of a block which operands are windows (`straight.blocks`).
    """
    windows = tuple(v.type != a.type for v, a in zip(n.attrs["body"].inputs, n.args, strict=True))
    made = tuple(o in updates for o in n.outs), in_place, tuple(stepped.items())
    return _structure(n), *made, windows


def _computed(n: Node) -> tuple[object, ...]:
    """What kernels that differ in numbers only have in common."""
    return tuple((m.op.name, m.outs[0].type.dtype) for m in kernel_nodes(n)
                 if m.op.kind not in (Kind.LEAF, Kind.LAYOUT))


def _calls_products(n: Node) -> bool:
    """Whether a kernel is told later which template of a product it calls."""
    return any(m.op.kind is Kind.CONTRACT for m in kernel_nodes(n))


def _structure(n: Node) -> tuple[object, ...]:
    """A node's attributes, bodies by their structure."""
    body = n.attrs.get("body")
    if not isinstance(body, Graph):
        return attr_key(n.op, n.attrs)
    number = {v: k for k, v in enumerate(body.inputs)}
    rows: list[object] = [tuple(v.type for v in body.inputs)]
    for m in body.nodes:
        rows.append((m.op, tuple(number[a] for a in m.args), _structure(m)))
        for o in m.outs:
            number[o] = len(number)
    rest = tuple(a for name, a in n.attrs.items() if name != "body")
    return (*rows, tuple(number[o] for o in body.outputs), rest)


def _refuse_unwritten(body: Graph) -> None:
    """CompileError for an op of the user's own that came without `emit=`."""
    for n in body.nodes:
        if n.op.kind is Kind.ELEMENTWISE and n.op.name not in EMIT:
            raise CompileError(
                f"{n.op.name}: there is no native code for it, define_op got no emit=; run it with "
                "mode='interpret'", n.loc
            )


def _reason(n: Node) -> str:
    """What is said where a node's data are bad."""
    if n.op.kind is Kind.INDEX:
        k = n.attrs["axis"]
        size = n.args[0].type.shape[k]
        low = size * -1 if n.attrs["negative"] else 0
        # x[i, j] looks positions up in 0, 1, .. (`graphc.index_arrays`), of which no line tells
        made = n.args[0].node.op.name == "iota"
        axis = f"an axis of size {size}" if made else f"axis {k} of {n.args[0].type}"
        return f"index out of range: {axis} takes {low} to {size - 1}"
    if n.op.name == "pow":
        return "integer to a negative power"
    return "integer division by zero"


def _described(c: Call) -> Kernel:
    """A kernel as listings show it."""
    return Kernel(
        c.name, len(kernel_nodes(c.node)), _text(c), _lines(c), kernel_name(c.name, c.node)
    )


def _text(c: Call) -> str:
    """What `f.kernels` shows of a kernel."""
    if c.text:
        return c.text
    if c.positions:
        return "positions"
    if c.nest is not None:
        return "\n".join(print_nest(n) for n in (c.nest, c.after) if n is not None)
    return str(c.node.attrs["body"].outputs[0].node.op)


def _lines(c: Call) -> tuple[Loc, ...]:
    """The user's lines that a kernel computes."""
    found = {n.loc: None for n in kernel_nodes(c.node) if n.loc is not None}
    return tuple(sorted(found))
