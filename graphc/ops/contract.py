"""dot: any product of two tensors with batch and contracted axes; matmul and einsum become it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc import prim
from graphc.dims import Size
from graphc.ops.batching import move_axis_to_front, shift
from graphc.ops.numeric import widened
from graphc.ops.row import Attrs, Kind, op
from graphc.ops.typerules import NUMBER, Types, bad_dtype, bad_shape, check_dtype, is_axis
from graphc.types import Array, TensorType

if TYPE_CHECKING:
    from graphc.tensor import Tensor

Axes = tuple[int, ...]
Pair = tuple[Axes, Axes]


def free_axes(ndim: int, contract: Sequence[int], batch: Sequence[int]) -> Axes:
    """Axes that are neither contracted nor batch, in order."""
    return tuple(i for i in range(ndim) if i not in contract and i not in batch)


def _dot_type(types: Types, attrs: Attrs) -> TensorType:
    (a, b), contract, batch = types, attrs["contract"], attrs["batch"]
    how = f" with contract={contract}, batch={batch}"
    if a.dtype is not b.dtype:
        bad_dtype("dot", "operands must have one dtype", types)
    check_dtype("dot", NUMBER, types, types, "cast bools first")
    for side, t in enumerate(types):
        axes = (*contract[side], *batch[side])
        if not all(is_axis(i, t.ndim) for i in axes) or len(set(axes)) != len(axes):
            bad_shape("dot", f"axes of operand {side} must be distinct and exist", types, how)
    for what, (left, right) in (("contracted", contract), ("batch", batch)):
        if [a.shape[i] for i in left] != [b.shape[j] for j in right]:
            bad_shape("dot", f"{what} sizes must be equal", types, how)
    return a.with_shape(
        [a.shape[i] for i in batch[0]]
        + [a.shape[i] for i in free_axes(a.ndim, contract[0], batch[0])]
        + [b.shape[j] for j in free_axes(b.ndim, contract[1], batch[1])]
    )


def _dot(a: Array, b: Array, contract: Pair, batch: Pair) -> Array:
    """Both operands as matrices, then NumPy's product."""
    free_a = free_axes(a.ndim, contract[0], batch[0])
    free_b = free_axes(b.ndim, contract[1], batch[1])
    outer = [a.shape[i] for i in batch[0]]
    rows, cols = [a.shape[i] for i in free_a], [b.shape[j] for j in free_b]
    inner = [a.shape[i] for i in contract[0]]
    m, n, k = (int(np.prod(s, dtype=np.int64)) for s in (rows, cols, inner))
    left = widened(a).transpose((*batch[0], *free_a, *contract[0])).reshape((*outer, m, k))
    right = widened(b).transpose((*batch[1], *contract[1], *free_b)).reshape((*outer, k, n))
    with np.errstate(all="ignore"):
        out = np.asarray(np.matmul(left, right)).astype(a.dtype)
    return out.reshape((*outer, *rows, *cols))


def _dot_vjp(
    ct: Tensor, y: Tensor, a: Tensor, b: Tensor, contract: Pair, batch: Pair
) -> list[Tensor | None]:
    rank = len(batch[0])
    free_a = free_axes(a.ndim, contract[0], batch[0])
    first = tuple(range(rank, rank + len(free_a)))  # where a's free axes stand in ct
    second = tuple(range(rank + len(free_a), ct.ndim))
    return [
        _cotangent(ct, b, second, contract, batch),
        _cotangent(ct, a, first, (contract[1], contract[0]), (batch[1], batch[0])),
    ]


def _cotangent(ct: Tensor, other: Tensor, theirs: Axes, contract: Pair, batch: Pair) -> Tensor:
    """ct contracted with the other operand over that one's free axes, which stand at `theirs`
    in ct; then the axes in the operand's order. `contract` and `batch` have the operand first."""
    lead = tuple(range(len(batch[0])))
    free_other = free_axes(other.ndim, contract[1], batch[1])
    out = prim.dot(ct, other, (theirs, free_other), (lead, batch[1]))
    # out: batch axes, the operand's free axes, then contracted axes in the other's order.
    ndim = out.ndim
    by_other = sorted(range(len(contract[1])), key=lambda i: contract[1][i])
    mine = free_axes(ndim, contract[0], batch[0])
    order = (*batch[0], *mine, *(contract[0][i] for i in by_other))
    perm = sorted(range(ndim), key=lambda i: order[i])
    return out if perm == list(range(ndim)) else prim.transpose(out, perm)


def _dot_batch(
    size: Size, batched: Sequence[bool], a: Tensor, b: Tensor, contract: Pair, batch: Pair
) -> Tensor:
    """On both sides the new axis is a batch axis; on one side it is a free axis, moved in front."""

    def moved(pair: Pair) -> Pair:
        mine, theirs = (shift(a) if has else a for a, has in zip(pair, batched, strict=True))
        return mine, theirs

    rank = len(batch[0])
    left, right = moved(batch)
    if all(batched):
        return prim.dot(a, b, moved(contract), ((0, *left), (0, *right)))
    out = prim.dot(a, b, moved(contract), (left, right))
    place = rank if batched[0] else rank + len(free_axes(a.ndim, contract[0], left))
    return move_axis_to_front(out, place)


op(
    "dot", Kind.CONTRACT, 2, attrs=("contract", "batch"),
    type=_dot_type, ref=_dot, vjp=_dot_vjp, batch=_dot_batch,
)
