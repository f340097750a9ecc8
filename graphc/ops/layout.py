"""Rows that put the same elements elsewhere: reshape transpose broadcast reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc import dims, prim
from graphc.errors import ShapeError
from graphc.ops.batching import shift
from graphc.ops.row import Attrs, Condition, Grads, Kind, op
from graphc.ops.typerules import Types, bad_shape, certainly_negative, check_axes, text
from graphc.types import Array, Shape, TensorType

if TYPE_CHECKING:
    from graphc.tensor import Tensor


# reshape


def _reshape_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    out = x.with_shape(attrs["shape"])
    if any(certainly_negative(s) for s in out.shape):
        bad_shape("reshape", "sizes must be >= 0", types, f" to {text(out.shape)}")
    provable = x.size == out.size
    impossible = isinstance(x.size, int) and isinstance(out.size, int)
    if not provable and (impossible or not attrs["checked"]):
        bad_shape(
            "reshape", "element counts must be equal", types,
            f" ({x.size} elements) to {text(out.shape)} ({out.size} elements)",
        )
    return out


def _reshape(x: Array, shape: tuple[int, ...], checked: bool) -> Array:
    if any(s < 0 for s in shape) or x.size != int(np.prod(shape, dtype=object)):
        raise ShapeError(
            f"reshape: element counts must be equal, got {text(x.shape)} to {text(shape)}"
        )
    return x.reshape(shape)


def _reshape_conditions(types: Types, attrs: Attrs) -> list[Condition]:
    (x,), shape = types, attrs["shape"]
    reason = "element counts must be equal"
    whole = f"reshape: {reason}, got {x} to {text(shape)}"
    pairs = zip(x.shape, shape, strict=True) if len(x.shape) == len(shape) else ()
    changed = [(i, have, want) for i, (have, want) in enumerate(pairs) if have != want]
    if len(changed) == 1:  # one axis under another name
        ((i, have, want),) = changed
        whole = f"assert_dim: axis {i} of {x} must be {want}, got {have}"
    return [
        Condition(x.size - dims.product(shape), reason, zero=True, whole=whole),
        *(Condition(s, "sizes must be >= 0") for s in shape),
    ]


op(
    "reshape", Kind.LAYOUT, 1, attrs=("shape", "checked"), conditions=_reshape_conditions,
    type=_reshape_type, ref=_reshape,
    vjp=lambda ct, y, x, shape, checked: [prim.reshape(ct, x.shape, checked)],
    batch=lambda size, batched, x, shape, checked: prim.reshape(x, (size, *shape), checked),
)


# transpose


def _transpose_type(types: Types, attrs: Attrs) -> TensorType:
    (x,), perm = types, attrs["perm"]
    if sorted(perm) != list(range(x.ndim)):
        bad_shape("transpose", "perm must hold every axis once", types, f" with perm={text(perm)}")
    return x.with_shape([x.shape[p] for p in perm])


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=lambda i: perm[i]))


op(
    "transpose", Kind.LAYOUT, 1, attrs=("perm",),
    type=_transpose_type, ref=lambda x, perm: np.transpose(x, perm),
    vjp=lambda ct, y, x, perm: [prim.transpose(ct, inverse(perm))],
    batch=lambda size, batched, x, perm: prim.transpose(x, (0, *shift(perm))),
)


# broadcast


def _broadcast_type(types: Types, attrs: Attrs) -> TensorType:
    (x,), shape, axes = types, attrs["shape"], attrs["axes"]
    out = x.with_shape(shape)
    if len(axes) != x.ndim:
        bad_shape(
            "broadcast", "needs one result axis per operand axis", types, f" axes={text(axes)}"
        )
    check_axes("broadcast", axes, (out,))
    if tuple(shape[a] for a in axes) != x.shape:
        bad_shape(
            "broadcast", "sizes must be equal along the kept axes", types,
            f" to {out} along axes {text(axes)}",
        )
    return out


def _broadcast(x: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    kept = dict(zip(axes, x.shape, strict=True))
    if any(shape[a] != s for a, s in kept.items()):
        raise ShapeError(f"broadcast: sizes must be equal, got {text(x.shape)} to {text(shape)}")
    return np.broadcast_to(x.reshape([kept.get(i, 1) for i in range(len(shape))]), shape).copy()


def _broadcast_vjp(ct: Tensor, y: Tensor, x: Tensor, shape: Shape, axes: tuple[int, ...]) -> Grads:
    new = [i for i in range(len(shape)) if i not in axes]
    return [prim.reduce_sum(ct, new) if new else ct]


op(
    "broadcast", Kind.LAYOUT, 1, attrs=("shape", "axes"),
    conditions=lambda types, attrs: [Condition(s, "sizes must be >= 0") for s in attrs["shape"]],
    type=_broadcast_type, ref=_broadcast, vjp=_broadcast_vjp,
    batch=lambda size, batched, x, shape, axes: prim.broadcast(
        x, (size, *shape), (0, *shift(axes))
    ),
)


# reverse


def _reverse_type(types: Types, attrs: Attrs) -> TensorType:
    check_axes("reverse", attrs["axes"], types)
    return types[0]


op(
    "reverse", Kind.LAYOUT, 1, attrs=("axes",),
    type=_reverse_type, ref=lambda x, axes: np.flip(x, axes).copy(),
    vjp=lambda ct, y, x, axes: [prim.reverse(ct, axes)],
    batch=lambda size, batched, x, axes: prim.reverse(x, shift(axes)),
)
