"""Operands of `dot` as strided matrices: transposes them where axes to be joined lie apart.

A product kernel walks the batch, contracted and free axes of an operand with one stride each.

    %0: f32[b,c] = dot %x, %y {contract=((0,2),(0,2)), batch=((),())}
->
    %0: f32[b,k,l] = transpose %x {perm=(1,0,2)}
    %1: f32[c,k,l] = transpose %y {perm=(1,0,2)}
    %2: f32[b,c] = dot %0, %1 {contract=((1,2),(1,2)), batch=((),())}
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from graphc.dims import Size
from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind


def run(g: Graph) -> Graph:
    """Make every operand of every dot plain."""
    return rebuild(g, _straight)


def _straight(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
    if n.op.kind is not Kind.CONTRACT:
        return None
    batch, contract = list(n.attrs["batch"]), list(n.attrs["contract"])
    new = list(args)
    for s in (0, 1):
        ndim = args[s].type.ndim
        free = tuple(a for a in range(ndim) if a not in (*batch[s], *contract[s]))
        shape = args[s].type.shape
        if all(joined(shape, axes) for axes in (batch[s], free, contract[s])):
            continue
        perm = (*batch[s], *free, *contract[s])
        new[s] = b.one("transpose", (args[s],), n, perm=perm)
        nb, nf = len(batch[s]), len(free)
        batch[s] = tuple(range(nb))
        contract[s] = tuple(range(nb + nf, ndim))
    if new == list(args):
        return None
    return b.emit(n.op, new, n, contract=tuple(contract), batch=tuple(batch))


def joined(shape: tuple[Size, ...], axes: tuple[int, ...]) -> bool:
    """Whether some axes of a row-major array can be walked as one, in the order given."""
    kept = [a for a in axes if shape[a] != 1]
    return all(
        inner > outer and all(shape[k] == 1 for k in range(outer + 1, inner))
        for outer, inner in pairwise(kept)
    )
