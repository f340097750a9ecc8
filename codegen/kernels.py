"""Fused nodes as kernels: which template writes each, and what it needs to be called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphc.aligned import LINE
from graphc.codegen import lowering, pull
from graphc.codegen.axes import coefficient
from graphc.codegen.both import BothKernel
from graphc.codegen.dot import DotKernel
from graphc.codegen.emitter import Module
from graphc.codegen.ends import Cut, EndsKernel, cut
from graphc.codegen.frame import Slots, slots_of
from graphc.codegen.index_splitting import pieces
from graphc.codegen.launch import Launch
from graphc.codegen.loops import Nest
from graphc.codegen.nest import NestKernel
from graphc.codegen.scatter import ScatterKernel
from graphc.codegen.schedule import Schedule
from graphc.codegen.target import Target
from graphc.dims import Size
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind

LONG_IN_PLACE = 768  # elements of a row that takes long beside waiting for the one before


@dataclass
class Call:
    """One kernel of a program and its place in it."""

    name: str
    node: Node
    slots: Slots
    workspace: Size               # bytes for a product that has no output to stand in
    scratch: Size                 # bytes of the calling thread's scratch
    fallible: bool
    nest: Nest | None
    c_output: int | None = None   # dot: the output that holds the product
    in_place: dict[int, list[int]] = field(default_factory=dict)  # output -> operands it may reuse
    work: Size = 0                # estimated cycles
    splits: bool = True           # whether the kernel shares itself out among threads
    after: Nest | None = None     # a second nest
    launch: Launch | None = None  # how its task is started, if there is no driver
    text: str = ""                # of a chain: its nests, and what it keeps in scratch

    @property
    def alone(self) -> bool:
        """Whether it may want more scratch than workers have, so that none may run it."""
        return bool(self.text)

    @property
    def args(self) -> tuple[Value, ...]:
        return self.node.args

    @property
    def outs(self) -> tuple[Value, ...]:
        return self.node.outs


def body_sites(body: Graph) -> list[Node]:
    """The nodes of a body that can fail while running."""
    return [n for n in body.nodes if n.op.fails_on([a.type for a in n.args])]


def define_kernel(
    module: Module, target: Target, node: Node, name: str, codes: dict[Node, int], fastmath: bool,
    updates: frozenset[Value], driver: bool = True, least_columns: int = 0,
) -> Call:
    """Write the functions of one fused node into the module; `updates` become states.

    driver: whether it must be there, as a function of the kernel's name. least_columns: of a
    product with a symbolic number of them; 0 if there may be a single one.
    """
    body: Graph = node.attrs["body"]
    fallible = bool(body_sites(body))
    products = sum(n.op.kind is Kind.CONTRACT for n in body.nodes)
    if products == 2:
        both = BothKernel(module, target, node, name, codes, fastmath)
        both.define()
        return Call(
            name, node, both.slots, both.workspace, 0, fallible, both.rows, work=both.work,
            after=both.columns,
        )
    if products:
        dot = DotKernel(module, target, node, name, codes, fastmath, updates, least_columns)
        dot.define()
        reuse = _in_place(dot.nest, {dot.a, dot.b}, len(node.args), dot.c_output)
        return Call(
            name, node, dot.slots, dot.workspace, dot.scratch, fallible, dot.nest,
            dot.c_output, reuse, dot.work,
        )
    scatters = [n for n in body.nodes
                if n.op.name in ("scatter", "scatter_add") and not pull.one_per_row(n)]
    if scatters:
        scatter = ScatterKernel(module, target, node, name, codes)
        scatter.define()
        return Call(
            name, node, scatter.slots, 0, 0, fallible, None,
            work=scatters[0].args[2].type.size, splits=False,
        )
    backwards = frozenset(
        a for a in node.attrs["reduced"]
        if any(_runs_back(n) for n in body.nodes)
    )
    nest = lowering.lower(
        body, node.attrs["axes"], node.attrs["reduced"], node.attrs["outputs"], backwards
    )
    parts = pieces(nest, target)
    if len(parts) > 1:
        return _define_pieces(module, target, node, nest, parts, name, fastmath)
    halves = cut(nest, target)
    if halves is not None:
        return _define_ends(module, target, node, nest, halves, name, fastmath)
    kernel = NestKernel(module, target, nest, name, codes, fastmath)
    launch = kernel.define(driver)
    s = kernel.schedule
    reuse = {}
    if not s.final and (s.sweeps <= 1 or _stores_last(s)):
        reuse = _in_place(kernel.nest, set(), len(node.args), None)
    return Call(
        name, node, kernel.slots, kernel.workspace, 0, fallible, kernel.nest, None, reuse,
        s.items * s.cycles, s.items != 1, launch=launch,
    )


def _stores_last(s: Schedule) -> bool:
    """Whether a row is written by the last sweep over it, when no other is left to read it.

    The vector that a row ends with must not reach into the next row: that would be read when its
    store is over, after all that this row takes. 1000 rows of softmax in place took 61 us in the
    place of 19 where they have 10 elements, 133 of 96 with 100.
    """
    row = set(s.nest.reduced)
    length = s.nest.sizes[s.vector] if s.vector is not None else 0
    if isinstance(length, int) and length < LONG_IN_PLACE and s.grid and any(
        length * s.nest.outputs[x.output].dtype.itemsize % LINE
        for x in s.nest.stores if row & set(x.axes)
    ):
        return False
    return s.across and all(
        s.ready[x.expr] == s.sweeps - 1 for x in s.nest.stores if row & set(x.axes)
    )


def _define_pieces(
    module: Module, target: Target, node: Node, nest: Nest, parts: Sequence[Nest], name: str,
    fastmath: bool,
) -> Call:
    """A nest's pieces as kernels of their own, called one after the other on one context."""
    slots = slots_of(nest)
    work: Size = 0
    calls = []
    for k, part in enumerate(parts):
        kernel = NestKernel(module, target, part, f"{name}.p{k}", {}, fastmath, slots)
        kernel.define()
        work = work + kernel.schedule.items * kernel.schedule.cycles
        calls.append(f"  call void @{kernel.name}(ptr %ctx, ptr %scratch)\n")
    module.define(
        name,
        f"define internal void @{name}(ptr %ctx, ptr %scratch) nounwind {{\n{''.join(calls)}"
        "  ret void\n}",
    )
    reuse = _in_place(nest, set(), len(node.args), None)
    return Call(name, node, slots, 0, 0, False, nest, None, reuse, work)


def _define_ends(
    module: Module, target: Target, node: Node, nest: Nest, parts: Cut, name: str, fastmath: bool
) -> Call:
    """A nest as two kernels, for the ends of its rows and for their elements."""
    kernel = EndsKernel(module, target, nest, parts, name, fastmath)
    kernel.define()
    return Call(name, node, kernel.slots, kernel.workspace, 0, False, nest, work=kernel.work)


def _runs_back(n: Node) -> bool:
    """Whether a node is a running reduction from the end of its axis."""
    return (
        n.op.kind is Kind.SCAN and bool(n.attrs["reverse"])
        and n.args[0].type.shape[n.attrs["axis"]] != 1
    )


def _in_place(
    nest: Nest, never: set[int], params: int, c_output: int | None
) -> dict[int, list[int]]:
    """For each output, the operands whose buffer it may take: they are read only at the element
    that is being written, by the iteration that writes it."""
    reads: dict[int, set[Size]] = {}
    for e in nest.exprs:
        if e.kind == "load":
            reads.setdefault(e.attrs[0], set()).add(e.attrs[1])
    out: dict[int, list[int]] = {}
    for s in nest.stores:
        if s.output == c_output or any(coefficient(s.offset, a) == 0 for a in nest.outer):
            continue
        size = nest.outputs[s.output].dtype.itemsize
        out[s.output] = [
            p for p in range(params)
            if p not in never and reads.get(p) == {s.offset}
            and nest.params[p].dtype.itemsize == size
        ]
    return out
