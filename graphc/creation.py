"""Making Tensors under the array-API names; sizes may be symbolic.

The default dtype is float32; arange and full of integers give int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import dims, prim, types
from graphc import elementwise as ew
from graphc.convert import (
    ArrayLike,
    as_shape,
    as_tensor,
    broadcast_to,
    check_device,
    common_dtype,
    dtype_of,
)
from graphc.dims import Dim, Size
from graphc.errors import ArgumentError, UsageError, user_loc
from graphc.manipulation import reshape
from graphc.tensor import Tensor
from graphc.types import DType, TensorType

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "identity",
    "linspace", "meshgrid", "ones", "ones_like", "zeros", "zeros_like",
]


def asarray(
    obj: ArrayLike, dtype: Any = None, *, copy: bool | None = None, device: str | None = None
) -> Tensor:
    """obj as a Tensor; numbers and lists become float32 or int64."""
    check_device("asarray", device)
    return as_tensor(obj, dtype)


def full(
    shape: Any, fill_value: ArrayLike, dtype: Any = None, *, device: str | None = None
) -> Tensor:
    """One value everywhere."""
    check_device("full", device)
    value = as_tensor(fill_value, common_dtype(fill_value) if dtype is None else dtype)
    return broadcast_to(value, as_shape(shape), op="full")


def zeros(shape: Any, dtype: Any = "float32", *, device: str | None = None) -> Tensor:
    """0 everywhere."""
    check_device("zeros", device)
    return prim.full(TensorType(dtype_of(dtype), as_shape(shape)), 0)


def ones(shape: Any, dtype: Any = "float32", *, device: str | None = None) -> Tensor:
    """1 everywhere."""
    check_device("ones", device)
    return prim.full(TensorType(dtype_of(dtype), as_shape(shape)), 1)


def empty(shape: Any, dtype: Any = "float32", *, device: str | None = None) -> Tensor:
    """0 everywhere: no Tensor has undefined values."""
    check_device("empty", device)
    return zeros(shape, dtype)


def full_like(
    x: ArrayLike, fill_value: ArrayLike, dtype: Any = None, *, device: str | None = None
) -> Tensor:
    """One value everywhere, in the shape (and dtype) of x."""
    check_device("full_like", device)
    t = as_tensor(x)
    return full(t.shape, fill_value, t.dtype if dtype is None else dtype)


def zeros_like(x: ArrayLike, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """0 everywhere, in the shape (and dtype) of x."""
    check_device("zeros_like", device)
    return full_like(x, 0, dtype)


def ones_like(x: ArrayLike, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """1 everywhere, in the shape (and dtype) of x."""
    check_device("ones_like", device)
    return full_like(x, 1, dtype)


def empty_like(x: ArrayLike, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """0 everywhere, in the shape (and dtype) of x."""
    check_device("empty_like", device)
    return zeros_like(x, dtype)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: str | None = None
) -> Tensor:
    """start, start + step, ... below stop; bounds are numbers, or sizes with an integer step."""
    check_device("arange", device)
    if stop is None:
        start, stop = 0, start
    for bound in (start, stop, step):
        if isinstance(bound, Tensor) or not isinstance(bound, (int, float, Dim, np.number)):
            raise UsageError(
                f"arange: bounds must be numbers or sizes, got {bound!r}: the size of the result "
                "cannot depend on data", user_loc(),
            )
    if step == 0:
        raise ArgumentError("arange: step must not be 0", user_loc())
    whole = not any(isinstance(b, (float, np.floating)) for b in (start, stop, step))
    want = dtype_of(dtype) if dtype is not None else types.i64 if whole else types.f32
    n = _arange_size(start, stop, step)
    if want.kind == "b":
        raise ArgumentError("arange: the dtype must be an integer or float dtype", user_loc())
    at = prim.iota(want, (n,), 0)
    if step != 1:
        at = ew.multiply(at, as_tensor(step, want))
    if isinstance(start, (int, float)) and start == 0:
        return at
    return ew.add(at, as_tensor(start, want))


def _arange_size(start: Any, stop: Any, step: Any) -> Size:
    if not any(isinstance(b, Dim) for b in (start, stop, step)):
        count = np.ceil((stop - start) / step)
        if not np.isfinite(count):
            raise ArgumentError(
                f"arange: bounds and step must be finite, got {start}, {stop} and {step}",
                user_loc(),
            )
        return max(int(count), 0)
    if isinstance(step, (Dim, float)) or isinstance(start, float) or isinstance(stop, float):
        raise UsageError("arange: symbolic bounds take integer bounds and steps", user_loc())
    length = stop - start if step > 0 else start - stop
    return dims.maximum(dims.floordiv(length + (abs(int(step)) - 1), abs(int(step))), 0)


def linspace(
    start: ArrayLike, stop: ArrayLike, num: Size, dtype: Any = None, *, endpoint: bool = True,
    device: str | None = None,
) -> Tensor:
    """`num` evenly spaced numbers from start to stop, which is met exactly unless endpoint=False.

    Of an integer dtype, the floor of each.
    """
    check_device("linspace", device)
    common = common_dtype(start, stop)
    want = dtype_of(dtype) if dtype is not None else common if common.is_float else types.f32
    work: DType = want if want.is_float else types.f64
    a, b = as_tensor(start, work), as_tensor(stop, work)
    (n,) = as_shape((num,))
    at = prim.iota(work, (n,), 0)
    steps = dims.maximum(n - 1, 1) if endpoint else dims.maximum(n, 1)
    delta = ew.divide(ew.subtract(b, a), as_tensor(steps, work))
    out = ew.add(ew.multiply(at, delta), a)
    if endpoint and n != 1:
        last = ew.equal(prim.iota(types.i64, (n,), 0), as_tensor(n - 1, types.i64))
        out = ew.where(last, b, out)
        if isinstance(n, Dim):  # of a single point, the start
            out = ew.where(ew.equal(as_tensor(n, types.i64), 1), a, out)
    return as_tensor(ew.floor(out) if want.is_int else out, want)


def eye(
    n_rows: Size, n_cols: Size | None = None, *, k: int = 0, dtype: Any = "float32",
    device: str | None = None,
) -> Tensor:
    """1 on diagonal k, 0 elsewhere."""
    check_device("eye", device)
    shape = as_shape((n_rows, n_rows if n_cols is None else n_cols))
    rows, columns = prim.iota(types.i64, shape, 0), prim.iota(types.i64, shape, 1)
    return as_tensor(prim.equal(ew.add(rows, k) if k else rows, columns), dtype)


def identity(n: Size, dtype: Any = "float32") -> Tensor:
    """NumPy's name for a square `eye`."""
    return eye(n, dtype=dtype)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> list[Tensor]:
    """Coordinate arrays of the grid of vectors; "xy" swaps the first two axes."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(
            f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}", user_loc()
        )
    ts = [as_tensor(a) for a in arrays]
    order: Sequence[int] = range(len(ts))
    if indexing == "xy" and len(ts) > 1:
        order = [1, 0, *range(2, len(ts))]
    shape: list[Size] = [1] * len(ts)
    for t, axis in zip(ts, order, strict=True):
        shape[axis] = t.size
    out = []
    for t, axis in zip(ts, order, strict=True):
        line: list[Size] = [1] * len(ts)
        line[axis] = t.size
        out.append(broadcast_to(reshape(t, line), shape, op="meshgrid"))
    return out
