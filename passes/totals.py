"""Sums over all elements of rows that a kernel sweeps for sums of their own: row by row first.

    %0: f32[n] = reduce_max %x {axes=(1)}              %0: f32[n] = reduce_max %x {axes=(1)}
    %1: f32[n,m] = sub %x, (%0 along rows)         ->  %1: f32[n,m] = sub %x, (%0 along rows)
    %2: f32[] = reduce_sum %1 {axes=(0, 1)}            %2: f32[n] = reduce_sum %1 {axes=(1)}
                                                       %3: f32[] = reduce_sum %2 {axes=(0)}

A loss of what was normalised: of a softmax, a layer norm, differences from a mean. Only sums of
rows join the kernel that sweeps them, a sum over all of its elements would have them stored and
read again. `fuse` asks for this first.
"""

from __future__ import annotations

from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind
from graphc.passes.grouping import own_label, through_layout
from graphc.passes.groups import ONE, Label

OVER = ("reduce_sum", "reduce_max", "reduce_min")
LOOKED_AT = 100  # nodes between a sum and what it waits for


def run(g: Graph) -> Graph:
    """g with such sums in two steps."""
    rows = {n: axes for n in g.nodes if n.op.name in OVER and (axes := _rows(n))}
    if not rows:
        return g

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if n not in rows:
            return None
        outer = [a for a in range(n.args[0].type.ndim) if a not in rows[n]]
        left = tuple(k for k, a in enumerate(outer) if a in n.attrs["axes"])
        return b.emit(n.op, b.emit(n.op, args, n, axes=rows[n]), n, axes=left)

    return rebuild(g, rewrite)


def _rows(n: Node) -> tuple[int, ...]:
    """Of the axes that a reduction is over, those along which its operand was swept before; empty
    if that are all, or none. Sums of 16 bits would be rounded once more."""
    (x,) = n.args
    if n.op.name == "reduce_sum" and x.type.dtype.is_float and x.type.dtype.bits == 16:
        return ()
    _, space, over, _ = own_label(n)
    if len(over) < 2:
        return ()
    stack: list[tuple[Value, Label]] = [(x, space)]
    met: set[Value] = set()
    while stack and len(met) < LOOKED_AT:
        v, label = stack.pop()
        m = v.node
        if v in met:
            continue
        met.add(v)
        if m.op.kind is Kind.REDUCE:
            found = _swept(m, label, x, space)
            if found and over > {*found}:
                return tuple(space.index(a) for a in found)
        elif m.op.kind is Kind.ELEMENTWISE:
            stack += [(a, label) for a in m.args]
        elif m.op.kind is Kind.LAYOUT and (through := through_layout(m, label)) is not None:
            stack += [(a, through) for a in m.args]
    return ()


def _swept(m: Node, label: Label, x: Value, space: Label) -> list[int]:
    """The last axes of x, in its labels, that a reduction with results at `label` is over; empty if
    it is over others."""
    shape, attrs = m.args[0].type.shape, m.attrs
    left = [a for a in space if a != ONE and a not in label]
    summed = [k for k in attrs.get("axes", (attrs.get("axis"),)) if shape[k] != 1]
    sizes = [x.type.shape[space.index(a)] for a in left]
    if not left or [shape[k] for k in summed] != sizes:
        return []
    return left if space[-len(left) :] == tuple(left) else []
