"""Stacks that are written out: each part is stored in its place by the kernel that makes it.

    s1 = a * s0 + x1,  s2 = a * s1 + x2, ..                %0: f32[n,32] = fused %x {axes=(n),
    %0: f32[n,32] = concat %s0, %s1, .. {axis=1}    ->         outputs=((0, -1)), body={..}}

The steps of a recurrence, entries of small matrices, features of a row: one iteration of the kernel
has all of them in registers. As elements of a stack they would be computed each for itself, or be
stored apart and copied: smoothing 20,000 rows of 32 f32 took 11 ms, 0.35 written out, 32 rows of
20,000 0.85 and 0.3 ms, inverses of 20,000 3 x 3 of f64 330 us and 170.
"""

from __future__ import annotations

from graphc.dims import Size, product
from graphc.ir import Node
from graphc.passes.groups import ONE, Label

MAX_PLACES = 64  # each is a store, and code


def is_stack(n: Node) -> bool:
    """Whether n puts single rows behind one another."""
    if n.op.name != "concat":
        return False
    k = n.attrs["axis"]
    return len(n.args) <= MAX_PLACES and all(a.type.shape[k] == 1 for a in n.args)


def written_out(n: Node, inside: list[list[int]]) -> tuple[list[Size], Label] | None:
    """Axes and label of a stack without loops over its parts, nor over dimensions `inside` them
    that have none either; None where these are too many places.

        %2: f32[n,3] = concat %0, %1, %0 {axis=1}       axes (n), label (0, ONE)
    """
    shape = n.out.type.shape
    without = {n.attrs["axis"], *(k for part in inside for k in part)}
    places = product(shape[k] for k in without)
    if not isinstance(places, int) or places > MAX_PLACES:
        return None
    kept = [k for k, s in enumerate(shape) if s != 1 and k not in without]
    label = tuple(kept.index(k) if k in kept else ONE for k in range(len(shape)))
    return [shape[k] for k in kept], label
