"""Drops what only gradients need: `stop_gradient` becomes its operand.

    graph @f(%x: f32[4]) {
      %0: f32[4] = stop_gradient %x
      %1: f32[4] = sub %x, %0
      return %1
    }

becomes

    graph @f(%x: f32[4]) {
      %0: f32[4] = sub %x, %x
      return %0
    }

Gradients are taken when they are declared, so a graph that reaches the pipeline has none to take.
"""

from __future__ import annotations

from graphc.ir import Graph, rebuild
from graphc.passes.bodies import deep


def run(g: Graph) -> Graph:
    """g without stop_gradient; barriers stay, since they order recomputation."""
    return deep(g, _strip)


def _strip(g: Graph) -> Graph:
    if not any(n.op.name == "stop_gradient" for n in g.nodes):
        return g
    return rebuild(g, lambda b, n, args: args if n.op.name == "stop_gradient" else None)
