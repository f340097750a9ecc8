"""Reductions and running reductions under their array-API names.

`axis` is one axis, several, or None for all. Sums and products of integers and bools are int64
(uint64 of unsigned); means of integers are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc import elementwise as ew
from graphc import prim, reals, types
from graphc.convert import (
    ArrayLike,
    Axes,
    as_float,
    as_tensor,
    axes_of,
    axis_of,
    cast,
    dtype_of,
    require_dtype,
    require_elements,
)
from graphc.dims import Dim, product
from graphc.errors import ArgumentError, user_loc
from graphc.tensor import Tensor
from graphc.types import DType, bool_

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cumprod", "cumsum",
    "cumulative_max", "cumulative_prod", "cumulative_sum", "logsumexp", "max", "mean", "min",
    "prod", "std", "sum", "var",
]


def restore_axes(reduced: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Reduced axes back as 1s."""
    if not axes:
        return reduced
    shape = [1 if i in axes else s for i, s in enumerate(like.shape)]
    return prim.reshape(reduced, shape=shape)


def _reduce(
    op: str, primitive: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: bool
) -> Tensor:
    axes = axes_of(op, x, axis)
    y = primitive(x, axes=axes) if axes else x
    return restore_axes(y, x, axes) if keepdims else y


def _extreme(
    op: str, primitive: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: bool
) -> Tensor:
    require_elements(op, x, axes_of(op, x, axis))
    return _reduce(op, primitive, x, axis, keepdims)


def _sum_dtype(x: Tensor, dtype: Any) -> DType:
    if dtype is not None:
        return dtype_of(dtype)
    return {"f": x.dtype, "u": types.u64}.get(x.dtype.kind, types.i64)


def sum(
    x: ArrayLike, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False
) -> Tensor:
    """The sum over `axis`; 0 over nothing."""
    t = as_tensor(x)
    return _reduce("sum", prim.reduce_sum, cast(t, _sum_dtype(t, dtype)), axis, keepdims)


def prod(
    x: ArrayLike, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False
) -> Tensor:
    """The product over `axis`; 1 over nothing."""
    t = as_tensor(x)
    return _reduce("prod", prim.reduce_prod, cast(t, _sum_dtype(t, dtype)), axis, keepdims)


def max(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The largest over `axis`; NaN wins; an error over nothing."""
    return _extreme("max", prim.reduce_max, as_tensor(x), axis, keepdims)


def min(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The smallest over `axis`; NaN wins; an error over nothing."""
    return _extreme("min", prim.reduce_min, as_tensor(x), axis, keepdims)


def all(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Whether every element differs from 0; true over nothing."""
    t = as_tensor(x)
    return _everywhere("all", t, ew.as_bool(t), axis, keepdims)


def any(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Whether some element differs from 0; false over nothing."""
    t = as_tensor(x)
    return prim.not_(_everywhere("any", t, ew.logical_not(t), axis, keepdims))


def _everywhere(op: str, x: Tensor, holds: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """Whether a condition on x holds along axes, which mistakes are told of x."""
    axes = axes_of(op, x, axis)
    ones = cast(holds, types.u8)  # a product of 0s and 1s: defined over nothing too
    return cast(_reduce(op, prim.reduce_prod, ones, axes, keepdims), bool_)


def count_nonzero(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """How many elements differ from 0, int64."""
    return sum(ew.as_bool(x), axis, keepdims=keepdims)


def _count(x: Tensor, axes: tuple[int, ...], dtype: DType, less: float = 0.0) -> Tensor:
    """The number of elements reduced over, minus `less` but not below 0, as a scalar."""
    n = product(x.shape[a] for a in axes)
    if not isinstance(n, Dim):
        return as_tensor(float(n - less if n > less else 0), dtype)
    count = as_tensor(n, dtype)
    return ew.maximum(ew.subtract(count, less), 0.0) if less else count


def mean(
    x: ArrayLike, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False
) -> Tensor:
    """The mean over `axis`; NaN over nothing. float32 of integers, summed in float64."""
    t = as_tensor(x)
    want = dtype_of(dtype) if dtype is not None else t.dtype if t.dtype.is_float else types.f32
    # Sums are wider than the result where it is cheap to be exact: f16 and bf16 would overflow.
    t = cast(t, t.dtype.compute if t.dtype.is_float and want is not types.f64 else types.f64)
    axes = axes_of("mean", t, axis)
    total = _reduce("mean", prim.reduce_sum, t, axis, keepdims)
    return cast(ew.divide(total, _count(t, axes, t.dtype)), want)


def var(
    x: ArrayLike, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False,
    ddof: float | None = None,
) -> Tensor:
    """The mean squared distance from the mean, over n - correction; NumPy calls it ddof.

    float32 of integers, computed in float64.
    """
    t = as_tensor(x)
    want = t.dtype if t.dtype.is_float else types.f32
    t = cast(t, t.dtype.compute if t.dtype.is_float else types.f64)
    axes = axes_of("var", t, axis)
    d = ew.subtract(t, mean(t, axes, keepdims=True))
    total = _reduce("var", prim.reduce_sum, ew.square(d), axes, keepdims)
    n = _count(t, axes, t.dtype, correction if ddof is None else ddof)
    return cast(ew.divide(total, n), want)


def std(
    x: ArrayLike, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False,
    ddof: float | None = None,
) -> Tensor:
    """The square root of `var`; its gradient at 0 is 0. Of 16-bit floats it is computed in f32."""
    t = as_tensor(x)
    wide = cast(t, t.dtype.compute) if t.dtype.is_float else t
    of_squares = var(wide, axis, correction=correction, keepdims=keepdims, ddof=ddof)
    root = flat_at_zero(reals.sqrt, of_squares)
    return cast(root, t.dtype) if t.dtype.is_float else root


def flat_at_zero(root: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """root(x), but 0 with slope 0 where x is 0: the slope of the root is infinite there."""
    zero = ew.equal(x, 0.0)
    return ew.where(zero, 0.0, root(ew.where(zero, 1.0, x)))


def argmax(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Where the largest stands, int64: the first NaN, else the first maximum."""
    return _argmax("argmax", as_tensor(x), axis, keepdims)


def _argmax(op: str, t: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    i = 0 if axis is None else axis_of(op, t, axis)
    require_elements(op, t, range(t.ndim) if axis is None else (i,))
    if axis is None:
        y = prim.argmax(prim.reshape(t, shape=(t.size,)), axis=0)
        return prim.reshape(y, shape=(1,) * t.ndim) if keepdims else y
    y = prim.argmax(t, axis=i)
    return restore_axes(y, t, (i,)) if keepdims else y


def argmin(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Where the smallest stands, int64: the first NaN, else the first minimum."""
    t = as_tensor(x)
    # ~x turns the order of integers round without the overflow that -x has.
    turned = prim.neg(t) if t.dtype.is_float else prim.not_(t)
    return _argmax("argmin", turned, axis, keepdims)


def logsumexp(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow; of 16-bit floats in f32.

    Where all x are -inf it is -inf, and its gradient NaN, as that of JAX and PyTorch.
    """
    of = as_float(x)
    t = cast(of, of.dtype.compute)
    # The shift is a constant to gradients: the result does not depend on it.
    top = prim.stop_gradient(_extreme("logsumexp", prim.reduce_max, t, axis, True))
    shift = ew.where(prim.is_finite(top), top, 0.0)
    total = reals.log(sum(reals.exp(ew.subtract(t, shift)), axis, keepdims=keepdims))
    if not keepdims:
        shift = prim.reshape(shift, shape=total.shape)
    return cast(ew.add(total, shift), of.dtype)


# Running reductions


def _scan(
    op: str, primitive: Callable[..., Tensor], x: ArrayLike, axis: int | None, dtype: Any,
    initial: int | None,
) -> Tensor:
    t = as_tensor(x)
    if op != "cumulative_max":
        t = cast(t, _sum_dtype(t, dtype))
    if axis is None:
        if t.ndim > 1:
            raise ArgumentError(f"{op}: axis= must be given for {t.type}", user_loc())
        axis = 0
    i = axis_of(op, t, axis)
    y = primitive(t, axis=i)
    if initial is None:
        return y
    first = prim.full(t.type.with_shape([1 if k == i else s for k, s in enumerate(t.shape)]),
                      initial)
    return prim.concat(first, y, axis=i)


def cumulative_sum(
    x: ArrayLike, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
) -> Tensor:
    """Running sums along `axis`, with `include_initial` after a 0."""
    start = 0 if include_initial else None
    return _scan("cumulative_sum", prim.cumsum, x, axis, dtype, start)


def cumulative_prod(
    x: ArrayLike, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
) -> Tensor:
    """Running products along `axis`, with `include_initial` after a 1."""
    start = 1 if include_initial else None
    return _scan("cumulative_prod", prim.cumprod, x, axis, dtype, start)


def cumulative_max(x: ArrayLike, axis: int | None = None) -> Tensor:
    """Running maxima along `axis`; NaN stays from its first place on."""
    t = as_tensor(x)
    require_dtype("cumulative_max", t, "iuf", "an integer or float dtype")
    return _scan("cumulative_max", prim.cummax, t, axis, None, None)


def _flat(x: ArrayLike, axis: int | None) -> tuple[Tensor, int]:
    t = as_tensor(x)
    return (prim.reshape(t, shape=(t.size,)), 0) if axis is None else (t, axis)


def cumsum(x: ArrayLike, axis: int | None = None, dtype: Any = None) -> Tensor:
    """NumPy's name: without an axis, over all elements in order."""
    return cumulative_sum(*_flat(x, axis), dtype)


def cumprod(x: ArrayLike, axis: int | None = None, dtype: Any = None) -> Tensor:
    """NumPy's name: without an axis, over all elements in order."""
    return cumulative_prod(*_flat(x, axis), dtype)


# NumPy's other names
amax = max
amin = min
