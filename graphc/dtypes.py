"""Dtype objects under their long names, and questions about dtypes (array API)."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import types
from graphc.convert import ArrayLike, common_dtype, dtype_of
from graphc.errors import ArgumentError, DTypeError, user_loc
from graphc.tensor import Tensor
from graphc.types import DType, TensorType

__all__ = [
    "__array_namespace_info__", "bfloat16",
    "bool",
    "can_cast",
    "finfo",
    "float16",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

bool = types.bool_
int8, int16, int32, int64 = types.i8, types.i16, types.i32, types.i64
uint8, uint16, uint32, uint64 = types.u8, types.u16, types.u32, types.u64
float16, bfloat16, float32, float64 = types.f16, types.bf16, types.f32, types.f64

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "",
    "numeric": "iuf",
}


def finfo(dtype: Any) -> Any:
    """Limits of a float dtype: eps, max, min, smallest_normal, bits."""
    d = _dtype_like(dtype)
    if not d.is_float:
        raise DTypeError(f"finfo: takes a float dtype, got {d}", user_loc())
    if d is types.bf16:
        import ml_dtypes

        return ml_dtypes.finfo(d.numpy)  # type: ignore[no-untyped-call]
    return np.finfo(d.numpy)


def iinfo(dtype: Any) -> np.iinfo[Any]:
    """Limits of an integer dtype: max, min, bits."""
    d = _dtype_like(dtype)
    if not d.is_int:
        raise DTypeError(f"iinfo: takes an integer dtype, got {d}", user_loc())
    return np.iinfo(d.numpy)


def _dtype_like(x: Any) -> DType:
    return x.dtype if isinstance(x, Tensor) else dtype_of(x)


class __array_namespace_info__:
    """What this namespace has (array API, inspection)."""

    def capabilities(self) -> dict[str, Any]:
        """No boolean masks, no sizes that depend on data."""
        return {
            "boolean indexing": False,
            "data-dependent shapes": False,
            "max dimensions": None,
        }

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> list[str]:
        return ["cpu"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """Dtypes by name, of a kind or of all."""
        return {
            d.long: d for d in types.DTYPES if kind is None or isdtype(d, kind)
        }


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is, or is of, a kind ("numeric", "integral", ...) or one of a tuple."""
    d = dtype_of(dtype)
    for k in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(k, str) and k in _KINDS:
            if d.kind in _KINDS[k]:
                return True
        elif isinstance(k, str) and k not in types.BY_NAME:
            known = ", ".join(_KINDS)
            raise ArgumentError(f"isdtype: kind must be a dtype or one of {known}, got {k!r}",
                                user_loc())
        elif dtype_of(k) is d:
            return True
    return False


def result_type(*arrays_and_dtypes: ArrayLike) -> DType:
    """The dtype of an operation on these arrays, numbers and dtypes."""
    from graphc import prim

    xs = [
        prim.full(TensorType(dtype_of(x)), 0) if isinstance(x, (DType, str, type, np.dtype)) else x
        for x in arrays_and_dtypes
    ]
    return common_dtype(*xs)


def can_cast(from_: Any, to: Any) -> Any:
    """Whether every value of one dtype is one of the other."""
    return types.lossless(_dtype_like(from_), dtype_of(to))
