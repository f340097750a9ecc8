"""The operands of a product in memory: how their axes are walked, and what that asks of a block."""

from __future__ import annotations

from itertools import pairwise

from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import EVERY, Ways
from graphc.codegen.matmul.ways import ways
from graphc.codegen.nests.loops import strides
from graphc.dims import Size, product
from graphc.ir import Node
from graphc.ops import contract
from graphc.passes.roles import buffer_of


def free_axes(n: Node, side: int) -> tuple[int, ...]:
    """The axes of one operand of a dot that are neither batch nor contracted."""
    return contract.free_axes(
        n.args[side].type.ndim, n.attrs["contract"][side], n.attrs["batch"][side]
    )


def collapse(shape: tuple[Size, ...], axes: tuple[int, ...]) -> tuple[Size, Size] | None:
    """(size, stride) of some axes of a row-major array walked as one; None if they are not one."""
    steps = strides(shape)
    kept = [a for a in axes if shape[a] != 1]
    for outer, inner in pairwise(kept):
        if steps[outer] != steps[inner] * shape[inner]:
            return None
    size = product(shape[a] for a in kept)
    return size, steps[kept[-1]] if kept else 0


def walked(n: Node, side: int) -> list[tuple[Size, Size]]:
    """(size, stride) of one operand's batch, free and contracted axes, each group walked as one, as
    `straighten` has seen to."""
    batch, free, summed = n.attrs["batch"][side], free_axes(n, side), n.attrs["contract"][side]
    v, source = n.args[side], buffer_of(n, side)
    held = range(v.type.ndim) if source is v else v.node.attrs["axes"]
    found = []
    for axes in (batch, free, summed):
        if all(a in held for a in axes):
            one = collapse(source.type.shape, tuple(held.index(a) for a in axes))
        else:
            one = product(v.type.shape[a] for a in axes), 0
        assert one is not None, "straighten makes operands plain before fusion"
        found.append(one)
    return found


def ways_of(n: Node, target: Target) -> Ways:
    """What a dot asks of the block that it goes by; integers have one for all."""
    if not n.out.type.dtype.is_float:
        return EVERY
    (batch, _), (m, _), (k, a_col) = walked(n, 0)
    _, (columns, b_col), _ = walked(n, 1)
    dtype = n.out.type.dtype
    return ways(target, dtype, batch * m, columns, k, a_rows=a_col == 1, b_rows=b_col == 1)
