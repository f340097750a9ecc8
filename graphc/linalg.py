"""Linear algebra under the array-API names; factorisations are refused until their primitives
exist, and say so when called.
"""

from __future__ import annotations

import math
from typing import Any

from graphc import elementwise as ew
from graphc import reals
from graphc import reductions as red
from graphc.convert import (
    ArrayLike,
    Axes,
    as_float,
    as_tensor,
    axes_of,
    axis_list,
    axis_of,
    broadcast_args,
)
from graphc.creation import eye
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.manipulation import broadcast_to, concat, cut, matrix_transpose, moveaxis
from graphc.products import diagonal, matmul, outer, tensordot, trace, vecdot
from graphc.refused import module_hooks
from graphc.tensor import Tensor

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "multi_dot",
    "norm", "outer", "tensordot", "trace", "vecdot", "vector_norm",
]


__getattr__, __dir__ = module_hooks("linalg", __all__)


def vector_norm(
    x: ArrayLike, axis: Axes = None, *, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm sum(|x|**ord)**(1/ord) over axes; inf, -inf and 0 have their usual meanings.

    The gradient at 0 is 0. Of 16-bit floats it is computed in f32.
    """
    t = as_float(x)
    if t.dtype is not t.dtype.compute:
        wide = vector_norm(ew.astype(t, t.dtype.compute), axis, keepdims=keepdims, ord=ord)
        return ew.astype(wide, t.dtype)
    if ord == 2:
        return red.flat_at_zero(reals.sqrt, red.sum(ew.square(t), axis, keepdims=keepdims))
    size = ew.abs(t)
    if ord == math.inf:
        return red.max(size, axis, keepdims=keepdims)
    if ord == -math.inf:
        return red.min(size, axis, keepdims=keepdims)
    if ord == 0:
        return ew.astype(red.count_nonzero(t, axis, keepdims=keepdims), t.dtype)
    if ord == 1:
        return red.sum(size, axis, keepdims=keepdims)
    if ord < 0:
        return _of_negative_order(size, axis, keepdims, ord)
    powers = _flat_power(size, ord) if ord < 1 else ew.pow(size, ord)
    return _flat_power(red.sum(powers, axis, keepdims=keepdims), 1.0 / ord)


def _of_negative_order(size: Tensor, axis: Axes, keepdims: bool, ord: float) -> Tensor:
    """0, and flat, where an element is 0."""
    zero = ew.equal(size, 0.0)
    powers = ew.where(zero, math.inf, ew.pow(ew.where(zero, 1.0, size), ord))
    total = red.sum(powers, axis, keepdims=keepdims)
    endless = ew.equal(total, math.inf)
    return ew.where(endless, 0.0, ew.pow(ew.where(endless, 1.0, total), 1.0 / ord))


def _flat_power(x: Tensor, exponent: float) -> Tensor:
    return red.flat_at_zero(lambda s: ew.pow(s, exponent), x)


def matrix_norm(x: ArrayLike, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The Frobenius norm, or the largest (smallest for -1, -inf) column or row sum of |x|."""
    t = as_float(x)
    if t.ndim < 2:
        raise ShapeError(f"matrix_norm: takes at least 2 axes, got {t.type}", user_loc())
    if ord == "fro":
        return vector_norm(t, (-2, -1), keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        raise UsageError(
            f"matrix_norm: ord={ord!r} needs singular values, whose primitive does not exist yet; "
            "use 'fro', 1, -1, inf or -inf", user_loc(),
        )
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"matrix_norm: unknown ord {ord!r}", user_loc())
    sums = red.sum(ew.abs(t), -2 if abs(ord) == 1 else -1, keepdims=True)
    pick = red.max if ord > 0 else red.min
    return pick(sums, (-2, -1), keepdims=keepdims)


def norm(
    x: ArrayLike, ord: Any = None, axis: Axes = None, keepdims: bool = False
) -> Tensor:
    """NumPy's norm: of vectors over one axis, of matrices over two, of all elements by default."""
    t = as_float(x)
    if ord is None:
        return vector_norm(t, axis, keepdims=keepdims)
    axes = axes_of("norm", t, axis)
    if len(axes) == 1:
        return vector_norm(t, axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ArgumentError(f"norm: takes one or two axes with ord, got {axes}", user_loc())
    if axis is not None:
        axes = tuple(axis_list(axis))  # in the order given: rows, then columns
    if keepdims:
        back = matrix_norm(moveaxis(t, axes, (-2, -1)), keepdims=True, ord=ord)
        return moveaxis(back, (-2, -1), axes)
    return matrix_norm(moveaxis(t, axes, (-2, -1)), ord=ord)


def cross(x1: ArrayLike, x2: ArrayLike, *, axis: int = -1) -> Tensor:
    """The cross product of 3-vectors along an axis."""
    a, b = broadcast_args("cross", x1, x2)
    i = axis_of("cross", a, axis)
    if a.shape[i] != 3:
        raise ShapeError(f"cross: axis {i} must have size 3, got {a.type} and {b.type}", user_loc())

    def part(t: Tensor, k: int) -> Tensor:
        return cut(t, i, k, k + 1)

    return concat(
        [
            part(a, j) * part(b, k) - part(a, k) * part(b, j)
            for j, k in ((1, 2), (2, 0), (0, 1))
        ],
        i,
    )


def matrix_power(x: ArrayLike, n: int) -> Tensor:
    """The product of n copies of a square matrix, n >= 0 (negative powers need an inverse)."""
    t = as_tensor(x)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, got {t.type}", user_loc())
    if not isinstance(n, int) or n < 0:
        raise ArgumentError(f"matrix_power: n must be an int from 0 on, got {n!r}", user_loc())
    if n == 0:
        return broadcast_to(eye(t.shape[-1], dtype=t.dtype), t.shape)
    out: Tensor | None = None
    square = t
    while n:
        if n & 1:
            out = square if out is None else matmul(out, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    assert out is not None
    return out


def multi_dot(arrays: Any) -> Tensor:
    """The product of several matrices; the matrix-chain pass chooses the order."""
    first, *rest = arrays
    out = as_tensor(first)
    for t in rest:
        out = matmul(out, t)
    return out


