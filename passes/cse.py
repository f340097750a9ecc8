"""Common subexpressions: what is computed twice alike is computed once.

    graph @f(%x: f32[4], %y: f32[4]) {
      %0: f32[4] = mul %x, %y
      %1: f32[4] = exp %0
      %2: f32[4] = mul %y, %x
      %3: f32[4] = exp %2
      %4: f32[4] = sub %1, %3
      return %4
    }

becomes

    graph @f(%x: f32[4], %y: f32[4]) {
      %0: f32[4] = mul %x, %y
      %1: f32[4] = exp %0
      %2: f32[4] = sub %1, %1
      return %2
    }

Equal nodes merge whenever a graph is rebuilt; this pass adds operand order (for ops where it
changes no bit but a NaN's payload), random bits of one key, which are the same bits (a gradient's
copy of the forward part has them), and equal bodies. Leaves and barriers never merge, nor do nodes
on two sides of a barrier, since a barrier's results are values of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir import Builder, Graph, Node, Value, attr_key, rebuild
from graphc.ops.row import Kind
from graphc.passes.bodies import bodies_in, deep

COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "and", "or", "xor", "equal"))


def run(g: Graph) -> Graph:
    """g with equal nodes merged, inside bodies too."""
    known: dict[Any, Graph] = {}

    def step(graph: Graph) -> Graph:
        merged = _merge(graph)
        return known.setdefault(structure(merged), merged)

    return deep(g, step) if bodies_in(g) else _merge(g)


def _merge(g: Graph) -> Graph:
    """One graph with equal nodes merged."""
    ordered: dict[Any, tuple[Value, ...]] = {}

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if n.op.kind is Kind.RANDOM:
            key = (n.op, args, tuple(n.attrs.values()))
            if key not in ordered:
                ordered[key] = b.copy(n, args)
            return ordered[key]
        if n.op.name not in COMMUTATIVE:
            return None
        swapped = ordered.get((n.op, args[::-1]))
        if swapped is not None:
            return swapped
        outs = b.copy(n, args)
        return ordered.setdefault((n.op, args), outs)

    return rebuild(g, rewrite)


def structure(g: Graph) -> tuple[Any, ...]:
    """A key that is equal for graphs that compute the same by the same nodes in the same order.

    Graphs inside g count by identity: equal ones are one by now.
    """
    number: dict[Value, int] = {}
    for v in g.inputs:
        number[v] = len(number)
    rows: list[Any] = [tuple(v.type for v in g.inputs)]
    for n in g.nodes:
        rows.append((n.op, tuple(number[a] for a in n.args), attr_key(n.op, n.attrs)))
        for o in n.outs:
            number[o] = len(number)
    rows.append((tuple(number[o] for o in g.outputs), g.output_names))
    rows.append(tuple((s, number[v]) for s, v in g.updates))
    return tuple(rows)
