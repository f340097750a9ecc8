"""Rows that cut out, put in and join pieces: slice update_slice pad concat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc import dims, prim
from graphc.dims import Size
from graphc.errors import ShapeError
from graphc.ops.batching import add_batch, broadcast_to_batch
from graphc.ops.row import Attrs, Condition, Grads, Kind, op
from graphc.ops.typerules import (
    Types,
    bad_dtype,
    bad_shape,
    certainly_negative,
    check_axis,
    is_step,
    text,
)
from graphc.types import Array, Shape, TensorType, bool_

if TYPE_CHECKING:
    from graphc.tensor import Tensor


def _shaped(x: Tensor, shape: Shape) -> Tensor:
    """x, whose shape is `shape` at run time though it may not be provable."""
    return x if x.shape == shape else prim.reshape(x, shape, checked=True)


# slice and update_slice


def _slice_type(types: Types, attrs: Attrs) -> TensorType:
    (x,), start, stop, step = types, attrs["start"], attrs["stop"], attrs["step"]
    where = f" [{text(start)}:{text(stop)}:{text(step)}]"
    if not len(start) == len(stop) == len(step) == x.ndim:
        bad_shape("slice", "needs start, stop and step for every axis", types, where)
    if not all(is_step(s) for s in step):
        bad_shape("slice", "steps must be positive integers", types, where)
    for n, a, b in zip(x.shape, start, stop, strict=True):
        if certainly_negative(a) or certainly_negative(b - a) or certainly_negative(n - b):
            bad_shape("slice", "needs 0 <= start <= stop <= size", types, where)
    return x.with_shape(
        dims.floordiv(b - a + (s - 1), s) for a, b, s in zip(start, stop, step, strict=True)
    )


def _slice(
    x: Array, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> Array:
    for n, a, b in zip(x.shape, start, stop, strict=True):
        if not 0 <= a <= b <= n:
            raise ShapeError(
                f"slice: needs 0 <= start <= stop <= size, got {a}:{b} of an axis of size {n}"
            )
    return x[tuple(slice(a, b, s) for a, b, s in zip(start, stop, step, strict=True))].copy()


def _slice_vjp(
    ct: Tensor, y: Tensor, x: Tensor, start: Shape, stop: Shape, step: tuple[int, ...]
) -> Grads:
    """Back in place, zeros around and (for steps) between."""
    zero = prim.full(TensorType(ct.dtype), 0)
    interior = [s - 1 for s in step]
    high = [
        n - a - _spread(m, i) for n, a, m, i in zip(x.shape, start, y.shape, interior, strict=True)
    ]
    return [_shaped(prim.pad(ct, zero, start, high, interior), x.shape)]


def _slice_conditions(types: Types, attrs: Attrs) -> list[Condition]:
    (x,), reason, found = types, "needs 0 <= start <= stop <= size", []
    own = {name for n in x.shape for name in dims.names(n)}
    for n, a, b in zip(x.shape, attrs["start"], attrs["stop"], strict=True):
        told = own.issuperset((*dims.names(a), *dims.names(b)))  # by the operand's type
        whole = "" if told else f"slice: {reason}, got {x} [{a}:{b}]"
        found += [Condition(s, reason, whole=whole) for s in (a, b - a, n - b)]
    return found


op(
    "slice", Kind.LAYOUT, 1, attrs=("start", "stop", "step"), conditions=_slice_conditions,
    type=_slice_type, ref=_slice, vjp=_slice_vjp,
    batch=lambda size, batched, x, start, stop, step: prim.slice(
        x, (0, *start), (size, *stop), (1, *step)
    ),
)


def _update_slice_type(types: Types, attrs: Attrs) -> TensorType:
    (x, u), start = types, attrs["start"]
    if x.dtype is not u.dtype:
        bad_dtype("update_slice", "operands must have one dtype", types)
    if not x.ndim == u.ndim == len(start):
        bad_shape(
            "update_slice", "needs equal ranks and a start per axis", types, f" at {text(start)}"
        )
    for n, m, a in zip(x.shape, u.shape, start, strict=True):
        if certainly_negative(a) or certainly_negative(n - m - a):
            bad_shape("update_slice", "the update must fit inside", types, f" at {text(start)}")
    return x


def _update_slice(x: Array, u: Array, start: tuple[int, ...]) -> Array:
    if any(a < 0 or a + m > n for n, m, a in zip(x.shape, u.shape, start, strict=True)):
        raise ShapeError(
            f"update_slice: the update must fit inside, got {text(x.shape)}, {text(u.shape)} "
            f"at {text(start)}"
        )
    out = x.copy()
    out[tuple(slice(a, a + m) for a, m in zip(start, u.shape, strict=True))] = u
    return out


def _update_slice_vjp(ct: Tensor, y: Tensor, x: Tensor, u: Tensor, start: Shape) -> Grads:
    stop = [a + m for a, m in zip(start, u.shape, strict=True)]
    gone = prim.full(u.type.with_dtype(ct.dtype), 0)
    return [prim.update_slice(ct, gone, start), prim.slice(ct, start, stop, [1] * len(start))]


def _update_slice_batch(
    size: Size, batched: Sequence[bool], x: Tensor, u: Tensor, start: Shape
) -> Tensor:
    x, u = broadcast_to_batch(size, batched, (x, u))
    return prim.update_slice(x, u, (0, *start))


def _update_slice_conditions(types: Types, attrs: Attrs) -> list[Condition]:
    places = zip(types[0].shape, types[1].shape, attrs["start"], strict=True)
    return [
        Condition(s, "the update must fit inside") for n, m, a in places for s in (a, n - m - a)
    ]


op(
    "update_slice", Kind.LAYOUT, 2, attrs=("start",), conditions=_update_slice_conditions,
    type=_update_slice_type, ref=_update_slice, vjp=_update_slice_vjp, batch=_update_slice_batch,
)


# pad


def _spread(n: Size, interior: int) -> Size:
    """The size of n elements with `interior` elements between neighbours."""
    return n + dims.maximum(n - 1, 0) * interior if interior else n


def _pad_type(types: Types, attrs: Attrs) -> TensorType:
    (x, value), low, high, interior = types, attrs["low"], attrs["high"], attrs["interior"]
    how = f" low={text(low)} high={text(high)} interior={text(interior)}"
    if value.dtype is not x.dtype:
        bad_dtype("pad", "operand and padding value must have one dtype", types)
    if value.ndim:
        bad_shape("pad", "the padding value must be 0-d", types)
    if not len(low) == len(high) == len(interior) == x.ndim:
        bad_shape("pad", "needs low, high and interior for every axis", types, how)
    if not all(is_step(i + 1) for i in interior):
        bad_shape("pad", "interior must be integers >= 0", types, how)
    shape = [a + b + _spread(n, i) for n, a, b, i in zip(x.shape, low, high, interior, strict=True)]
    if any(certainly_negative(s) for s in shape):
        bad_shape("pad", "the result's sizes must be >= 0", types, how)
    return x.with_shape(shape)


def _pad(
    x: Array, value: Array, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]
) -> Array:
    spread = [n + max(n - 1, 0) * i for n, i in zip(x.shape, interior, strict=True)]
    shape = [a + n + b for n, a, b in zip(spread, low, high, strict=True)]
    if any(s < 0 for s in shape):
        raise ShapeError(f"pad: the result's sizes must be >= 0, got {text(shape)}")
    whole = np.full(spread, value, x.dtype)
    whole[tuple(slice(None, None, i + 1) for i in interior)] = x
    out = np.full(shape, value, x.dtype)
    kept = [(max(a, 0), min(a + n, s)) for n, a, s in zip(spread, low, shape, strict=True)]
    if all(a < b for a, b in kept):
        out[tuple(slice(a, b) for a, b in kept)] = whole[
            tuple(slice(a - o, b - o) for (a, b), o in zip(kept, low, strict=True))
        ]
    return out


def _is_padding(x: Tensor, low: Shape, high: Shape, interior: Sequence[int]) -> Tensor:
    """A bool of the padded shape: True where the padding value stands."""
    inside = prim.full(x.type.with_dtype(bool_), False)
    return prim.pad(inside, prim.full(TensorType(bool_), True), low, high, interior)


def _pad_vjp(
    ct: Tensor, y: Tensor, x: Tensor, value: Tensor, low: Shape, high: Shape,
    interior: tuple[int, ...],
) -> Grads:
    zero = prim.full(TensorType(ct.dtype), 0)
    spread = [_spread(n, i) for n, i in zip(x.shape, interior, strict=True)]
    cropped = prim.pad(ct, zero, [-a for a in low], [-a for a in high], [0] * x.ndim)
    cropped = _shaped(cropped, tuple(spread))
    if any(interior):
        cropped = prim.slice(cropped, [0] * x.ndim, spread, [i + 1 for i in interior])
    padding = prim.select(_is_padding(x, low, high, interior), ct, prim.full_like(ct, 0))
    return [_shaped(cropped, x.shape), prim.reduce_sum(padding, range(ct.ndim))]


def _pad_batch(
    size: Size, batched: Sequence[bool], x: Tensor, value: Tensor, low: Shape, high: Shape,
    interior: tuple[int, ...],
) -> Tensor:
    low, high, interior = (0, *low), (0, *high), (0, *interior)
    x = x if batched[0] else add_batch(size, x)
    if not batched[1]:
        return prim.pad(x, value, low, high, interior)
    out = prim.pad(x, prim.full(TensorType(x.dtype), 0), low, high, interior)
    values = prim.broadcast(value, out.shape, (0,))
    return prim.select(_is_padding(x, low, high, interior), values, out)


def _pad_conditions(types: Types, attrs: Attrs) -> list[Condition]:
    return [
        Condition(s, "the result's sizes must be >= 0") for s in _pad_type(types, attrs).shape
    ]


op(
    "pad", Kind.LAYOUT, 2, attrs=("low", "high", "interior"), conditions=_pad_conditions,
    type=_pad_type, ref=_pad, vjp=_pad_vjp, batch=_pad_batch,
)


# concat


def _concat_type(types: Types, attrs: Attrs) -> TensorType:
    axis = attrs["axis"]
    if not types:
        bad_shape("concat", "needs at least one operand", types)
    first = types[0]
    if any(t.dtype is not first.dtype for t in types):
        bad_dtype("concat", "operands must have one dtype", types)
    check_axis("concat", axis, types)
    rest = [t.shape[:axis] + t.shape[axis + 1 :] for t in types]
    if any(t.ndim != first.ndim for t in types) or any(r != rest[0] for r in rest):
        bad_shape("concat", "shapes must be equal but for the axis", types, f" with axis={axis}")
    total: Size = 0
    for t in types:
        total = total + t.shape[axis]
    return first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _concat_vjp(ct: Tensor, y: Tensor, *xs: Tensor, axis: int) -> Grads:
    grads: list[Tensor | None] = []
    offset: Size = 0
    for x in xs:
        start, stop = [0] * ct.ndim, list(ct.shape)
        end = offset + x.shape[axis]
        grads.append(
            prim.slice(
                ct,
                [*start[:axis], offset, *start[axis + 1 :]],
                [*stop[:axis], end, *stop[axis + 1 :]],
                [1] * ct.ndim,
            )
        )
        offset = end
    return grads


op(
    "concat", Kind.LAYOUT, None, attrs=("axis",),
    type=_concat_type, ref=lambda *xs, axis: np.concatenate(xs, axis), vjp=_concat_vjp,
    batch=lambda size, batched, *xs, axis: prim.concat(
        *broadcast_to_batch(size, batched, xs), axis=axis + 1
    ),
)
