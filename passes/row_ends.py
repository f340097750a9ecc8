"""Functions of what rows were summed to, which nothing of the rows waits for: kernels of their own.

    %0: f32[n] = fused %x {log(sum(exp(x - max))) + max; axes=(n,64), reduced=(1)}
->
    %0: f32[n], %1: f32[n] = fused %x {max, sum(exp(x - max)); axes=(n,64), reduced=(1)}
    %2: f32[n] = fused %0, %1 {log(%1) + %0; axes=(n)}

In the kernel of the rows a logarithm is one of a single number, as long as some vectors of a row
are. By itself it is one of vectors of rows, and what is stored for it are few numbers. Nanoseconds
for a row's log-sum-exp of f32 on Zen 4, apart and in one:

    rows of        32       48       64       100      200
                  13 19    17 25    21 27    32 44    56 70

Rows that take a lane each (`codegen.nests.vector_axis`) end in vectors anyway.
"""

from __future__ import annotations

from graphc.dims import product
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.groups import EXPENSIVE, Group, cost

INSTRUCTIONS = ("div", "sqrt", "rsqrt", "rem")  # of a scalar no longer than of a vector
LANES = 31   # elements of a row that may take a lane (`codegen.nests.vector_axis.FEW_ENDS`)
FEW = 16     # rows for which a kernel more would take as long


def find(g: Graph) -> set[Node]:
    """Nodes that are such functions, as far as their operands are sums of rows."""
    widened: set[Value] = set()  # what elements of a larger space are made of
    for n in reversed(g.nodes):
        if n.op.kind not in (Kind.ELEMENTWISE, Kind.LAYOUT):
            continue
        grows = n.op.name == "broadcast" and n.out.type.size != n.args[0].type.size
        if grows or not widened.isdisjoint(n.outs):
            widened.update(n.args)
    return {
        n for n in g.nodes
        if n.op.kind is Kind.ELEMENTWISE and cost(n) >= EXPENSIVE
        and n.op.name not in INSTRUCTIONS and n.out not in widened and n.out.type.ndim
    }


def are_long(h: Group) -> bool:
    """Whether a group reduces rows, along its last axis, that are many and long enough."""
    length = product(h.axes[a] for a in h.reduced)
    rows = product(h.axes[a] for a in h.outer)
    if len(h.axes) - 1 not in h.reduced or (isinstance(length, int) and length <= LANES):
        return False
    return not isinstance(rows, int) or rows > FEW
