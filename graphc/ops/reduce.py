"""Rows that drop axes (reduce_*, argmax) and running reductions (cumsum cumprod cummax
linear_recurrence)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import prim
from graphc.dims import Size, product
from graphc.errors import ShapeError
from graphc.ops.batching import broadcast_to_batch, shift
from graphc.ops.halves import through_f32
from graphc.ops.layout import inverse
from graphc.ops.numeric import widened
from graphc.ops.row import Attrs, Condition, Grads, Kind, op
from graphc.ops.typerules import (
    ANY,
    NUMBER,
    Types,
    bad_shape,
    check_axes,
    check_axis,
    check_dtype,
    check_same,
)
from graphc.types import Array, TensorType, i64

if TYPE_CHECKING:
    from graphc.tensor import Tensor

Axes = tuple[int, ...]


# Type rules


def _dropped(t: TensorType, axes: Sequence[int]) -> TensorType:
    return t.with_shape([s for i, s in enumerate(t.shape) if i not in axes])


def _reduce_type(name: str, kinds: str, empty: str) -> Any:
    """`empty`: what an empty axis lacks, where that is an error."""

    def rule(types: Types, attrs: Attrs) -> TensorType:
        (x,), axes = types, attrs["axes"]
        check_dtype(name, kinds, types, types, "cast bools first")
        check_axes(name, axes, types)
        if empty and any(x.shape[a] == 0 for a in axes):
            bad_shape(name, f"an empty axis has no {empty}", types, f" over axes {axes}")
        return _dropped(x, axes)

    return rule


def _not_empty_conditions(what: str) -> Any:
    def conditions(types: Types, attrs: Attrs) -> list[Condition]:
        axes = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
        return [Condition(types[0].shape[a] - 1, f"an empty axis has no {what}") for a in axes]

    return conditions


def _argmax_type(types: Types, attrs: Attrs) -> TensorType:
    (x,), axis = types, attrs["axis"]
    check_axis("argmax", axis, types)
    if x.shape[axis] == 0:
        bad_shape("argmax", "an empty axis has no maximum", types, f" with axis={axis}")
    return _dropped(x, (axis,)).with_dtype(i64)


def _scan_type(name: str, kinds: str) -> Any:
    def rule(types: Types, attrs: Attrs) -> TensorType:
        check_same(name, types, types)
        check_dtype(name, kinds, types, types, "cast bools first")
        check_axis(name, attrs["axis"], types)
        return types[0]

    return rule


# References


def _sum_like(fn: Callable[..., Any]) -> Callable[..., Array]:
    def ref(x: Array, axes: Axes) -> Array:
        with np.errstate(all="ignore"):
            w = widened(x)
            return np.asarray(fn(w, axis=axes, dtype=w.dtype)).astype(x.dtype)

    return ref


def _not_empty(name: str, x: Array, axes: Axes, what: str) -> None:
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{name}: an empty axis has no {what}, got {list(x.shape)} over {axes}")


def _max_like(name: str, fn: Callable[..., Any], what: str) -> Callable[..., Array]:
    def ref(x: Array, axes: Axes) -> Array:
        _not_empty(name, x, axes, what)
        with np.errstate(all="ignore"):
            return np.asarray(fn(x, axis=axes))

    return ref


def _argmax(x: Array, axis: int) -> Array:
    _not_empty("argmax", x, (axis,), "maximum")
    return np.asarray(np.argmax(x, axis), np.int64)


def _scan(fn: Callable[..., Any]) -> Callable[..., Array]:
    def ref(x: Array, axis: int, reverse: bool) -> Array:
        w = widened(x)
        with np.errstate(all="ignore"):
            if reverse:
                w = np.flip(w, axis)
            out = np.asarray(fn(w, axis=axis, dtype=w.dtype)).astype(x.dtype)
            return np.flip(out, axis).copy() if reverse else out

    return ref


def _recurrence(a: Array, b: Array, axis: int, reverse: bool) -> Array:
    """Each element in f32 at least, as it is added to the next; rounded once, as it is stored."""
    wide = [np.moveaxis(widened(x), axis, 0) for x in (a, b)]
    if reverse:
        wide = [np.flip(x, 0) for x in wide]
    out = np.empty_like(wide[1])
    y = np.zeros(out.shape[1:], out.dtype)
    with np.errstate(all="ignore"):
        for k, (factor, term) in enumerate(zip(*wide, strict=True)):
            out[k] = y = factor * y + term
        out = np.flip(out, 0) if reverse else out
        return np.ascontiguousarray(np.moveaxis(out, 0, axis)).astype(b.dtype)


# Gradients


def spread(y: Tensor, shape: Sequence[Size], axes: Axes) -> Tensor:
    """A reduced tensor repeated along the axes that were dropped."""
    return prim.broadcast(y, shape, [i for i in range(len(shape)) if i not in axes])


def _max_vjp(ct: Tensor, y: Tensor, x: Tensor, axes: Axes) -> Grads:
    """Tied extremes share evenly. They are counted in f32 where f16 would overflow."""
    hit = prim.equal(x, spread(y, x.shape, axes))
    wide = ct.dtype.compute
    count = prim.reduce_sum(prim.cast(hit, wide), axes)
    count = prim.maximum(count, prim.full_like(count, 1))
    share = ct / count if wide is ct.dtype else prim.cast(prim.cast(ct, wide) / count, ct.dtype)
    return [prim.select(hit, spread(share, x.shape, axes), prim.full_like(x, 0))]


def _shifted(x: Tensor, axis: int, value: float, reverse: bool) -> Tensor:
    """x moved one place along the axis (`reverse`: towards the front), `value` coming in.

    It makes an exclusive scan of an inclusive one.
    """
    steps = [int(i == axis) for i in range(x.ndim)]
    back = [-i for i in steps]
    low, high = (back, steps) if reverse else (steps, back)
    return prim.pad(x, prim.full(TensorType(x.dtype), value), low, high, [0] * x.ndim)


def _prod_vjp(ct: Tensor, y: Tensor, x: Tensor, axes: Axes) -> Grads:
    """ct times the product of all others: those before times those after, so zeros are safe."""
    if not axes:
        return [ct]
    kept = [i for i in range(x.ndim) if i not in axes]
    perm = [*kept, *axes]
    moved = prim.transpose(x, perm)
    lead = tuple(x.shape[i] for i in kept)
    flat = prim.reshape(moved, (*lead, product(x.shape[i] for i in axes)))
    last = len(kept)
    before = _shifted(prim.cumprod(flat, last), last, 1, reverse=False)
    after = _shifted(prim.cumprod(flat, last, reverse=True), last, 1, reverse=True)
    grad = before * after * spread(ct, flat.shape, (last,))
    return [prim.transpose(prim.reshape(grad, moved.shape), inverse(perm))]


def _cumprod_vjp(ct: Tensor, y: Tensor, x: Tensor, axis: int, reverse: bool) -> Grads:
    """The product of what comes before k, times S[k] = sum over i >= k of ct[i] * product of
    x[j], k < j <= i. No division, so zeros are safe to any order."""
    return [_shifted(y, axis, 1, reverse) * _tail(x, ct, axis, reverse)]


def _tail(a: Tensor, ct: Tensor, axis: int, reverse: bool) -> Tensor:
    """S[k] = ct[k] + a[k+1] S[k+1]: the cotangents of all states that follow from state k."""
    return prim.linear_recurrence(_shifted(a, axis, 0, not reverse), ct, axis, not reverse)


def _recurrence_vjp(
    ct: Tensor, y: Tensor, a: Tensor, b: Tensor, axis: int, reverse: bool
) -> Grads:
    """Reverse mode through y[k] = a[k] y[k-1] + b[k]: a recurrence from the end."""
    found = _tail(a, ct, axis, reverse)
    return [found * _shifted(y, axis, 0, reverse), found]


def _cummax_vjp(ct: Tensor, y: Tensor, x: Tensor, axis: int, reverse: bool) -> Grads:
    """The whole cotangent goes to the place that set the maximum: the first of equals, in the
    direction of the scan; NaN counts as a new maximum once."""
    if reverse:
        ct, y, x = (prim.reverse(t, (axis,)) for t in (ct, y, x))
    before = _shifted(y, axis, float("-inf"), reverse=False)
    new = prim.and_(prim.not_(prim.less_equal(x, before)), prim.equal(before, before))
    place = prim.iota(i64, x.shape, axis)
    source = prim.cummax(prim.select(new, place, prim.full_like(place, 0)), axis)
    perm = [i for i in range(x.ndim) if i != axis] + [axis]
    last = x.ndim - 1
    source, moved = prim.transpose(source, perm), prim.transpose(ct, perm)
    grad = prim.scatter_add(prim.full_like(moved, 0), source, moved, axis=last, batch=last)
    grad = prim.transpose(grad, inverse(perm))
    return [prim.reverse(grad, (axis,)) if reverse else grad]


# Rows


def _reduce(
    name: str, kinds: str, ref: Callable[..., Array], vjp: Callable[..., Any], empty: str = ""
) -> None:
    op(
        name, Kind.REDUCE, 1, attrs=("axes",),
        type=_reduce_type(name, kinds, empty), ref=ref, vjp=vjp,
        batch=lambda size, batched, x, axes: prim.one(name, x, axes=shift(axes)),
        conditions=_not_empty_conditions(empty) if empty else None,
    )


def _running(
    name: str, kinds: str, ref: Callable[..., Array], vjp: Callable[..., Any], arity: int = 1
) -> None:
    op(
        name, Kind.SCAN, arity, attrs=("axis", "reverse"),
        type=_scan_type(name, kinds), ref=ref, vjp=vjp,
        batch=lambda size, batched, *xs, axis, reverse: prim.one(
            name, *broadcast_to_batch(size, batched, xs), axis=axis + 1, reverse=reverse
        ),
    )


_reduce("reduce_sum", NUMBER, _sum_like(np.sum),
        lambda ct, y, x, axes: [spread(ct, x.shape, axes)])
_reduce("reduce_prod", NUMBER, _sum_like(np.prod), through_f32("reduce_prod", _prod_vjp))
_reduce("reduce_max", ANY, _max_like("reduce_max", np.max, "maximum"), _max_vjp, "maximum")
_reduce("reduce_min", ANY, _max_like("reduce_min", np.min, "minimum"), _max_vjp, "minimum")
op(
    "argmax", Kind.REDUCE, 1, attrs=("axis",), differentiable=False,
    type=_argmax_type, ref=_argmax, conditions=_not_empty_conditions("maximum"),
    batch=lambda size, batched, x, axis: prim.argmax(x, axis + 1),
)
_running("cumsum", NUMBER, _scan(np.cumsum),
         lambda ct, y, x, axis, reverse: [prim.cumsum(ct, axis, not reverse)])
_running("cumprod", NUMBER, _scan(np.cumprod), through_f32("cumprod", _cumprod_vjp))
_running("cummax", NUMBER, _scan(np.maximum.accumulate), _cummax_vjp)
_running("linear_recurrence", NUMBER, _recurrence,
         through_f32("linear_recurrence", _recurrence_vjp), arity=2)
