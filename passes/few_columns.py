"""Kernels that sweep over few long columns, again and again, are taken apart.

    %0: f32[n,8] = fused %x {softmax down the columns; axes=(n,8), reduced=(0)}
->
    %0: f32[8] = fused %x {max; axes=(n,8), reduced=(0)}
    %1: f32[n,8] = fused %x, %0 {exp(x - max); axes=(n,8)}
    %2: f32[8] = fused %1 {sum; axes=(n,8), reduced=(0)}
    %3: f32[n,8] = fused %1, %2 {div; axes=(n,8)}

All sweeps of one kernel are one task, in whose registers a row fills a part. By themselves sums go
by bands that threads share, and by vectors of several rows (`codegen.emission.packed`), and maps by
vectors of whatever rows (`codegen.emission.flat`). In us on Zen 5, f32, as one kernel and apart:

                        524288 x 2    131072 x 8    104857 x 10    16384 x 64
    softmax            2017    245     496   227    1167    238     232   211
      two threads      1938    131     494   128    1145    128     261   123
    standardised        550    143     179   140     169    140     135   136
      two threads       539     84     160    82     163     84     169    81

What is stored between them costs less than that: the gradient of standardised rows, which stores
five arrays, takes of 5000 x 3 28 us in the place of 41, of 20000 x 8 as long as before.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.dims import product
from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind
from graphc.passes.groups import EXPENSIVE, cost

# Bytes of a row that fills half a register at most, and elements of all; of one that does not fill
# it, where more than sums is computed; and of rows, and elements, that threads share.
PART, LEAST, LINE = 32, 1 << 12, 64
FEW_LINES, MANY = 512, 1 << 19


def run(g: Graph, kernels: Callable[[Graph], Graph]) -> Graph:
    """g with such kernels as several; `kernels` makes kernels of one sweep of their bodies."""
    if not any(map(_has_few_columns, g.nodes)):
        return g

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> list[Value] | None:
        if not _has_few_columns(n):
            return None
        body = kernels(n.attrs["body"])
        if sum(m.op.name == "fused" for m in body.nodes) < 2:
            return None
        inside = dict(zip(body.inputs, args, strict=True))
        for m in body.nodes:
            b.repeat(m, inside)
        return [inside[o] for o in body.outputs]

    return rebuild(g, rewrite)


def _has_few_columns(n: Node) -> bool:
    """Whether all that a kernel reduces are few long columns beside each other."""
    if n.op.name != "fused" or not n.attrs["reduced"]:
        return False
    body: Graph = n.attrs["body"]
    found = _reductions(n)
    if any(m.op.name in ("argmax", "transpose") or m.can_fail for m in body.nodes):
        return False
    if not found or len({(m.args[0].type.shape, m.attrs["axes"]) for m in found}) != 1:
        return False
    shape, over = found[0].args[0].type.shape, found[0].attrs["axes"]
    columns = product(s for k, s in enumerate(shape) if k not in over)
    rows = product(shape[k] for k in over)
    if not isinstance(columns, int) or columns < 2 or len(shape) - 1 in over:
        return False
    row = columns * max(m.args[0].type.dtype.itemsize for m in found)
    elements = rows * columns if isinstance(rows, int) else MANY
    work = max(map(cost, body.nodes))
    if row <= PART or (row < LINE and work >= EXPENSIVE):
        return elements >= LEAST
    return row < FEW_LINES and isinstance(rows, int) and elements >= MANY


def _reductions(n: Node) -> list[Node]:
    """Of elements of all axes: others are of what these give."""
    axes = sum(s != 1 for s in n.attrs["axes"])
    return [
        m for m in n.attrs["body"].nodes
        if m.op.kind is Kind.REDUCE and sum(s != 1 for s in m.args[0].type.shape) == axes
    ]
