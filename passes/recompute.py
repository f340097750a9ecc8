"""Recomputation: cheap intermediates that gradients need are computed again instead of kept.

    graph @f(%x: f32[n,64], %w: f32[64,64], %v: f32[64,64]) {
      %0: f32[n,64] = dot %x, %w {contract=((1), (0)), batch=((), ())}
      %1: f32[n,64] = sin %0
      %2: f32[n,64] = dot %1, %v {contract=((1), (0)), batch=((), ())}
      %3: f32[] = reduce_sum %2 {axes=(0, 1)}
      %4: f32[] = constant 1.0
      %5: f32[n,64] = broadcast %4 {shape=(n, 64), axes=()}
      %6: f32[64,64] = dot %1, %5 {contract=((0), (0)), batch=((), ())}
      %7: f32[n,64] = dot %5, %v {contract=((1), (1)), batch=((), ())}
      %8: f32[n,64] = cos %0
      %9: f32[n,64] = mul %7, %8
      %10: f32[64,64] = dot %x, %9 {contract=((0), (0)), batch=((), ())}
      return %3, %6, %10
    }

becomes, with only %0 alive between forward and backward,

    graph @f(%x: f32[n,64], %w: f32[64,64], %v: f32[64,64]) {
      %0: f32[n,64] = dot %x, %w {contract=((1), (0)), batch=((), ())}
      %1: f32[n,64] = sin %0
      %2: f32[n,64] = dot %1, %v {contract=((1), (0)), batch=((), ())}
      %3: f32[] = reduce_sum %2 {axes=(0, 1)}
      %4: f32[] = constant 1.0
      %5: f32[n,64] = broadcast %4 {shape=(n, 64), axes=()}
      %6: f32[n,64] = barrier %0 {id=1}
      %7: f32[n,64] = sin %6
      %8: f32[64,64] = dot %7, %5 {contract=((0), (0)), batch=((), ())}
      %9: f32[n,64] = dot %5, %v {contract=((1), (1)), batch=((), ())}
      %10: f32[n,64] = cos %6
      %11: f32[n,64] = mul %9, %10
      %12: f32[64,64] = dot %x, %11 {contract=((0), (0)), batch=((), ())}
      return %3, %8, %12
    }

The first output is the loss, and what it needs is the forward part. Of the rest, products and
barriers, and all that depends on them, are late: they run after the forward part. Everything else
may be computed at either time. What late nodes read is cut off from the products, reductions and
inputs by the cheapest set of values (a minimum cut over their bytes, each named dimension counting
REPRESENTATIVE): those are kept, and what lies beyond them is computed again, right before its first
late use, behind a `barrier` that keeps it apart from its first computation. Among equal cuts the
one nearest to the uses is taken, so nothing is recomputed that saves no memory.

The pass is not in the pipeline; it belongs before fuse:

    gx.function(..., pipeline=(*gx.PIPELINE[:-1], "recompute", "fuse"))
"""

from __future__ import annotations

from typing import Any

from graphc import dims
from graphc.ir import Builder, Graph, Node, Value, finish_as
from graphc.ops.row import Kind
from graphc.passes.groups import cost
from graphc.passes.roles import is_lazy

REPRESENTATIVE = 64  # what a named dimension counts as when bytes are compared
CHEAP = 20           # cycles that an element of a recomputed op may cost; a sine does, a power not
_SOURCE, _SINK = -1, -2


def run(g: Graph) -> Graph:
    """g with late copies of what is cheaper to compute again than to keep."""
    late = late_nodes(g)
    if not late:
        return g
    again = to_recompute(g, late)
    return _Emit(g, late, again).run() if again else g


def forward_nodes(g: Graph) -> set[Node]:
    """What the first output needs."""
    wanted = set(g.outputs[:1])
    found: set[Node] = set()
    for n in reversed(g.nodes):
        if not wanted.isdisjoint(n.outs):
            found.add(n)
            wanted.update(n.args)
    return found


def late_nodes(g: Graph) -> set[Node]:
    """Products and barriers that the first output does not need, and all that depends on them."""
    forward = forward_nodes(g)
    late: set[Node] = set()
    for n in g.nodes:
        starts = n.op.kind is Kind.CONTRACT or (n.op.kind is Kind.META and n.op.unique)
        if n not in forward and (starts or any(a.node in late for a in n.args)):
            late.add(n)
    return late


def to_recompute(g: Graph, late: set[Node]) -> set[Node]:
    """The nodes beyond the minimum cut between what is given and what late nodes read.

    In the flow network value k is an edge from 2k to 2k+1, whose capacity is the bytes that keeping
    it takes; it is cut where the value is kept. All other edges have no limit: from a value to what
    is computed of it, from the source to what cannot be computed again, and from what late nodes
    read to the sink.
    """
    weight, free = _weights(g), free_values(g)
    given = _given(g, free)
    number = {v: k for k, v in enumerate([*g.inputs, *(o for n in g.nodes for o in n.outs)])}
    stack = [
        a for n in g.nodes if n in late for a in n.args if a.node not in late and a not in free
    ]
    edges: dict[tuple[int, int], int | None] = {(2 * number[a] + 1, _SINK): None for a in stack}
    seen: set[Value] = set()
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        k = number[v]
        edges[2 * k, 2 * k + 1] = weight[v]
        sources = [a for a in v.node.args if a not in free]
        if v in given or not _is_cheap(v.node):
            edges[_SOURCE, 2 * k] = None
            continue
        for a in sources:
            edges[2 * number[a] + 1, 2 * k] = None
        stack += sources
    if not seen:
        return set()
    beyond = _beyond(edges)
    return {v.node for v in seen if 2 * number[v] in beyond}


def _given(g: Graph, free: set[Value]) -> set[Value]:
    """What needs no forward node, so that it is never worth a copy."""
    forward = forward_nodes(g)
    given: set[Value] = set(g.inputs)
    for n in g.nodes:
        if n not in forward and all(a in given or a in free for a in n.args):
            given.update(n.outs)
    return given


def _beyond(edges: dict[tuple[int, int], int | None]) -> Any:
    """The sink's side of a minimum cut, the smallest there is; None stands for no limit."""
    import networkx as nx

    network = nx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))  # nothing need be given: all may come from constants
    for (a, b), capacity in edges.items():
        network.add_edge(a, b, **({} if capacity is None else {"capacity": capacity}))
    return nx.minimum_cut(network, _SOURCE, _SINK)[1][1]


def _weights(g: Graph) -> dict[Value, int]:
    """Bytes that keeping a value takes: none for what stands in an argument or is one number, and
    for a view no more than for what it shows."""
    weight: dict[Value, int] = dict.fromkeys(g.inputs, 0)
    for n in g.nodes:
        for o in n.outs:
            known = dims.estimate(o.type.bytes, REPRESENTATIVE)
            if n.op.kind is Kind.LEAF or o.type.size == 1:
                known = 0
            elif is_lazy(n):
                known = min(known, weight[n.args[0]])
            weight[o] = known
    weight.update(dict.fromkeys(g.outputs, 0))
    return weight


def free_values(g: Graph) -> set[Value]:
    """What is made from constants alone, wherever it is wanted."""
    free: set[Value] = set()
    for n in g.nodes:
        leaf = n.op.kind is Kind.LEAF and n.op.name != "variable"
        if leaf or (is_lazy(n) and n.args[0] in free):
            free.update(n.outs)
    return free


def _is_cheap(n: Node) -> bool:
    """Whether n may be computed twice."""
    plain = n.op.kind in (Kind.ELEMENTWISE, Kind.LAYOUT) or n.op.name == "stop_gradient"
    return plain and cost(n) <= CHEAP and not n.can_fail


class _Emit:
    """One re-emission: every node as it was, but late ones read late copies."""

    def __init__(self, g: Graph, late: set[Node], again: set[Node]):
        self.g, self.late, self.again = g, late, again
        self.free = free_values(g)
        self.position = {n: k for k, n in enumerate(g.nodes)}
        self.b = Builder()
        self.env: dict[Value, Value] = {v: v for v in g.inputs}
        self.held: dict[Value, Value] = {}    # kept values behind their barrier
        self.copies: dict[Value, Value] = {}
        used = [n.attrs["id"] for n in g.nodes if n.op.name == "barrier"]
        self.id = max(used, default=0)

    def run(self) -> Graph:
        g, b, env = self.g, self.b, self.env
        for n in g.nodes:
            if n in self.late:
                self.demand(n)
                args = tuple([self.copies[a] if a.node in self.again else env[a] for a in n.args])
            else:
                args = tuple([env[a] for a in n.args])
            outs = b.copy(n, args)
            env.update(zip(n.outs, outs, strict=True))
        return finish_as(b, g, env)

    def demand(self, late: Node) -> None:
        """Copy what a late node reads and is not there yet, with all it needs beyond the cut."""
        missing: dict[Node, None] = {}
        kept: dict[Value, None] = {}
        stack = [a for a in late.args if a.node in self.again]
        while stack:
            v = stack.pop()
            if v in self.copies or v.node in missing:
                continue
            missing[v.node] = None
            for a in v.node.args:
                if a.node in self.again:
                    stack.append(a)
                elif a not in self.held and a not in self.free:
                    kept[a] = None
        if kept:
            self.id += 1
            order = sorted(kept, key=lambda v: (self.position.get(v.node, -1), v.index))
            new = self.b.emit("barrier", [self.env[v] for v in order], late, id=self.id)
            self.held.update(zip(order, new, strict=True))
        for n in sorted(missing, key=lambda n: self.position[n]):
            args = [
                self.copies[a] if a.node in self.again else self.held.get(a, self.env[a])
                for a in n.args
            ]
            (self.copies[n.out],) = self.b.emit(n.op, args, n, **n.attrs)
