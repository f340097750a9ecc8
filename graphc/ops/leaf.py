"""Rows without operands (input, variable, constant, dim, iota), casts, and the meta rows.

`input` has no reference: the interpreter takes its value from the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import prim
from graphc.ops.batching import broadcast_to_batch, elementwise_batch
from graphc.ops.row import Attrs, Condition, Kind, op
from graphc.ops.typerules import ANY, Types, bad_argument, bad_dtype, elementwise, is_axis
from graphc.types import Array, DType, TensorType, f16, i64

if TYPE_CHECKING:
    from graphc.tensor import Tensor


def _iota_type(types: Types, attrs: Attrs) -> TensorType:
    dtype, shape, axis = attrs["dtype"], attrs["shape"], attrs["axis"]
    if dtype.kind == "b":
        bad_argument("iota", "dtype must be an integer or a float", dtype)
    if not is_axis(axis, len(shape)):
        bad_argument("iota", f"axis must be in 0..{len(shape) - 1}", axis)
    return TensorType(dtype, shape)


def _iota(dtype: DType, shape: tuple[int, ...], axis: int) -> Array:
    index = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.array(np.broadcast_to(cast_array(index, dtype), shape))


def cast_array(x: Array, dtype: DType) -> Array:
    """x as dtype: float -> int saturates with NaN -> 0, int -> int wraps, -> bool is != 0.

    f64 -> f16 rounds once, as in NumPy; bf16 is reached through f32.
    """
    source_is_float = x.dtype.kind not in "biu"
    with np.errstate(all="ignore"):
        if dtype.kind == "b":
            return np.asarray(x != 0)
        if dtype.kind == "f":
            near = x if dtype is f16 else x.astype(dtype.compute.numpy)
            return np.asarray(near.astype(dtype.numpy))
        if not source_is_float:
            return np.asarray(x.astype(dtype.numpy))
        info = np.iinfo(dtype.numpy)
        wide = x.astype(np.float64)  # exact from every float
        low, high = wide <= float(info.min), wide >= float(info.max)
        inside = np.where(low | high | np.isnan(wide), 0.0, wide).astype(dtype.numpy)
        return np.asarray(np.where(low, info.min, np.where(high, info.max, inside)), dtype.numpy)


def _cast_vjp(ct: Tensor, y: Tensor, x: Tensor, dtype: DType) -> Sequence[Tensor | None]:
    return [prim.cast(ct, x.dtype) if x.dtype.is_float and dtype.is_float else None]


def _bitcast_type(types: Types, attrs: Attrs) -> TensorType:
    source, dtype = types[0].dtype, attrs["dtype"]
    if source.bits != dtype.bits or (source.kind == "b") != (dtype.kind == "b"):
        bad_dtype("bitcast", f"source and {dtype} must have one width", types)
    return types[0].with_dtype(dtype)


def _bitcast(x: Array, dtype: DType) -> Array:
    return np.ascontiguousarray(x).view(dtype.numpy).reshape(np.shape(x))


def _barrier_batch(
    size: Any, batched: Sequence[bool], *xs: Tensor, id: int
) -> tuple[Tensor, ...]:
    return prim.barrier(*broadcast_to_batch(size, batched, xs), id=id)


op(
    "input", Kind.LEAF, 0, attrs=("name", "type"), unique=True,
    type=lambda types, attrs: attrs["type"],
)
op(
    "variable", Kind.LEAF, 0, attrs=("state",), unique=True,
    type=lambda types, attrs: attrs["state"].type,
    ref=lambda state: state.array,
)
op(
    "constant", Kind.LEAF, 0, attrs=("value",),
    type=lambda types, attrs: attrs["value"].type,
    ref=lambda value: value.array,
)
op(
    "dim", Kind.LEAF, 0, attrs=("size",), differentiable=False,
    type=lambda types, attrs: TensorType(i64),
    ref=lambda size: np.array(size, np.int64),
)
op(
    "iota", Kind.LEAF, 0, attrs=("dtype", "shape", "axis"), differentiable=False,
    type=_iota_type, ref=_iota,
    conditions=lambda types, attrs: [Condition(s, "sizes must be >= 0") for s in attrs["shape"]],
)
op(
    "cast", Kind.ELEMENTWISE, 1, attrs=("dtype",),
    type=lambda types, attrs: types[0].with_dtype(attrs["dtype"]),
    ref=cast_array, vjp=_cast_vjp, batch=elementwise_batch("cast"),
)
op(
    "bitcast", Kind.ELEMENTWISE, 1, attrs=("dtype",), differentiable=False,
    type=_bitcast_type, ref=_bitcast, batch=elementwise_batch("bitcast"),
)
op(
    "stop_gradient", Kind.META, 1, differentiable=False,
    type=elementwise("stop_gradient", ANY),
    ref=lambda x: x, batch=elementwise_batch("stop_gradient"),
)
op(
    "barrier", Kind.META, None, attrs=("id",), unique=True,
    type=lambda types, attrs: tuple(types),
    ref=lambda *xs, id: tuple(xs),
    vjp=lambda ct, y, *xs, id: list(ct),
    batch=_barrier_batch,
)
