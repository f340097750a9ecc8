"""take and relatives, and what is made by comparing indices: one_hot, tril, triu, diff."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import prim
from graphc.convert import (
    ArrayLike,
    as_shape,
    as_tensor,
    axis_of,
    broadcast_shapes,
    broadcast_to,
    cast,
    check_range,
    dtype_of,
    require_dtype,
)
from graphc.dims import Size
from graphc.errors import ShapeError, UsageError, user_loc
from graphc.indexing import getitem, index_array
from graphc.manipulation import concat, moveaxis, ravel, reshape
from graphc.tensor import Tensor
from graphc.types import DType, i64

__all__ = ["diff", "one_hot", "take", "take_along_axis", "tril", "triu"]


def take(x: ArrayLike, indices: ArrayLike, axis: int | None = None) -> Tensor:
    """x at integer indices along an axis (without one, of x flattened); -n..n-1, else an error."""
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    i = axis_of("take", t, axis)
    return prim.gather(t, index_array("take", indices, t.shape[i]), axis=i, negative=True)


def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int | None = -1) -> Tensor:
    """x[..., indices[..., j], ...] along an axis; the other axes go together and broadcast."""
    t = as_tensor(x)
    idx = as_tensor(indices)
    if axis is None:
        t, idx, axis = ravel(t), ravel(idx), 0
    i = axis_of("take_along_axis", t, axis)
    if idx.ndim != t.ndim:
        raise ShapeError(
            f"take_along_axis: indices must have the rank of x, got {t.type} and {idx.type}",
            user_loc(),
        )
    idx = index_array("take_along_axis", idx, t.shape[i])
    t, idx = moveaxis(t, i, -1), moveaxis(idx, i, -1)
    lead = broadcast_shapes(
        "take_along_axis", t.type.with_shape(t.shape[:-1]), idx.type.with_shape(idx.shape[:-1])
    )
    t = broadcast_to(t, (*lead, t.shape[-1]))
    idx = broadcast_to(idx, (*lead, idx.shape[-1]))
    n = len(lead)
    return moveaxis(prim.gather(t, idx, axis=n, batch=n, negative=True), -1, i)


def one_hot(indices: ArrayLike, num_classes: Size, dtype: Any = "float32") -> Tensor:
    """1 where the new last axis equals the index, else 0: all 0 for -1, num_classes and beyond."""
    idx = as_tensor(indices)
    require_dtype("one_hot", idx, "iu", "integer indices")
    (n,) = as_shape((num_classes,))
    shape = (*idx.shape, n)
    wide = broadcast_to(reshape(idx, (*idx.shape, 1)), shape)
    classes = prim.iota(i64, shape, axis=idx.ndim)
    want: DType = dtype_of(dtype)
    return cast(prim.equal(cast(wide, i64), classes), want)


def tril(x: ArrayLike, k: int = 0) -> Tensor:
    """x with 0 above diagonal k of the last two axes."""
    return _triangle("tril", x, k, keep_lower=True)


def triu(x: ArrayLike, k: int = 0) -> Tensor:
    """x with 0 below diagonal k of the last two axes."""
    return _triangle("triu", x, k, keep_lower=False)


def _triangle(op: str, x: ArrayLike, k: int, keep_lower: bool) -> Tensor:
    t = as_tensor(x)
    if t.ndim < 2:
        raise ShapeError(f"{op}: takes at least 2 axes, got {t.type}", user_loc())
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise UsageError(f"{op}: k must be an int, got {k!r}", user_loc())
    check_range(int(k), i64)
    rows = prim.iota(i64, t.shape, axis=t.ndim - 2)
    columns = prim.iota(i64, t.shape, axis=t.ndim - 1)
    shifted = prim.add(rows, prim.full_like(rows, k)) if k else rows
    keep = (
        prim.less_equal(columns, shifted) if keep_lower else prim.less_equal(shifted, columns)
    )
    return prim.select(keep, t, prim.full_like(t, 0))


def diff(
    x: ArrayLike, *, axis: int = -1, n: int = 1, prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """Differences of neighbours along an axis, n times; prepend and append lengthen x before."""
    t = as_tensor(x)
    i = axis_of("diff", t, axis)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise UsageError(f"diff: n must be an int from 0 on, got {n!r}", user_loc())
    if n == 0:
        return t
    ends = [as_tensor(e) for e in (prepend, append) if e is not None]
    ends = [
        broadcast_to(e, (*t.shape[:i], 1, *t.shape[i + 1 :]), op="diff") if not e.ndim else e
        for e in ends
    ]
    if ends:
        t = concat([*ends[: prepend is not None], t, *ends[prepend is not None :]], axis=i)
    key = (slice(None),) * i
    for _ in range(n):
        t = getitem(t, (*key, slice(1, None))) - getitem(t, (*key, slice(None, -1)))
    return t
