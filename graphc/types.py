"""Dtypes, tensor types and promotion.

A `TensorType` is a dtype and a shape of sizes (see `dims`), printed `f32[batch,64]`. Types are
interned: equal types are one object.
"""

from __future__ import annotations

import math
import re
import threading
import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from graphc.dims import Dim, Size, dim, product
from graphc.errors import DTypeError, ShapeError, user_loc
from graphc.forks import renewed

MAX_AXES = 64  # of an ndarray
MAX_BYTES = 2**63 - 1
MAX_TEXT = 100_000  # characters of a shape

Shape = tuple[Size, ...]
Array: TypeAlias = "np.ndarray[Any, Any]"


class DType:
    """An element type: IR name (`f32`), array-API name (`float32`), kind b/i/u/f, width in bits."""

    __slots__ = ("bits", "kind", "long", "name")

    def __init__(self, name: str, long: str, kind: str, bits: int):
        self.name, self.long, self.kind, self.bits = name, long, kind, bits

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.long,))

    def __eq__(self, other: object) -> bool:
        """Whether `other` means this dtype; names and NumPy's dtypes and scalar types do, too."""
        if self is other or isinstance(other, DType):
            return self is other
        if not isinstance(other, str | type | np.dtype):
            return NotImplemented
        try:
            return as_dtype(other) is self
        except DTypeError:
            return False

    __hash__ = object.__hash__  # one object for each dtype

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory; a bool takes one."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def digits(self) -> int:
        """The n up to which all integers of n bits are told apart: integers wrap, floats round."""
        of_floats = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
        return of_floats.get(self.name, self.bits - (self.kind == "i"))

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 needs the `bf16` extra."""
        return _numpy_dtype(self)

    @property
    def compute(self) -> DType:
        """The dtype arithmetic is done in: f32 for f16 and bf16, itself otherwise."""
        return f32 if self.kind == "f" and self.bits == 16 else self


@cache
def _numpy_dtype(d: DType) -> np.dtype[Any]:
    if d.long == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise DTypeError(
                "bfloat16 arrays need the ml_dtypes package: pip install 'graphc[bf16]'"
            ) from None
        small: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return small
    return np.dtype(d.long)


bool_ = DType("bool", "bool", "b", 1)
i8, i16, i32, i64 = (DType(f"i{b}", f"int{b}", "i", b) for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{b}", f"uint{b}", "u", b) for b in (8, 16, 32, 64))
f16, f32, f64 = (DType(f"f{b}", f"float{b}", "f", b) for b in (16, 32, 64))
bf16 = DType("bf16", "bfloat16", "f", 16)
DTYPES = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
BY_NAME = {d.name: d for d in DTYPES} | {d.long: d for d in DTYPES}
_BY_NUMPY = {d.long: d for d in DTYPES}
_SEEN: dict[np.dtype[Any], DType] = {}  # NumPy takes 10 us to name a dtype


def as_dtype(d: Any) -> DType:
    """The DType meant by a DType, a name, a NumPy dtype or scalar type, or bool/int/float."""
    if isinstance(d, DType):
        return d
    if isinstance(d, str) and d in BY_NAME:
        return BY_NAME[d]
    if d is bool:
        return bool_
    if d is int:
        return i64
    if d is float:
        return f32
    if isinstance(d, np.dtype) and d in _SEEN:
        return _SEEN[d]
    try:
        name = np.dtype(d).name
    except TypeError:
        raise DTypeError(f"{d!r} is not a dtype; known: {', '.join(_BY_NUMPY)}") from None
    if name not in _BY_NUMPY:
        hint = "; complex numbers: keep real and imaginary parts as two tensors" * (
            "complex" in name
        )
        raise DTypeError(f"dtype {name} is not supported; known: {', '.join(_BY_NUMPY)}{hint}")
    found = _BY_NUMPY[name]
    if isinstance(d, np.dtype) and d.isnative:
        _SEEN[d] = found
    return found


def shape_text(shape: Iterable[object]) -> str:
    """A shape as types and messages show it: [batch,64]."""
    return f"[{','.join(map(str, shape))}]"


def array_text(array: Array) -> str:
    """An array's type as text, f32[2,3]; by NumPy's name where graphc has no such dtype."""
    name = array.dtype.name
    return f"{BY_NAME.get(name, name)}{shape_text(array.shape)}"


class TensorType:
    """dtype and shape; interned, so identity is equality. The table keeps none that nobody has."""

    __slots__ = ("__weakref__", "_size", "_text", "dtype", "shape")
    dtype: DType
    shape: Shape
    _size: Size | None  # passes ask for it again and again
    _text: str

    def __new__(cls, dtype: DType, shape: Iterable[Size] = ()) -> TensorType:
        key = (dtype, tuple(shape))
        known = _interned.get(key)
        t = known() if known is not None else None
        if t is None:
            t = object.__new__(cls)
            t.dtype, t.shape = key
            t._text = f"{dtype.name}{shape_text(t.shape)}"
            t._size = None
            _check_possible(t)
            made = _Interned(t, key)
            with _interning:
                known = _interned.get(key)
                other = known() if known is not None else None
                if other is not None:
                    return other
                _interned[key] = made
        return t

    def __repr__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return (TensorType, (self.dtype, self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        """Number of elements."""
        if self._size is None:
            self._size = product(self.shape)
        return self._size

    @property
    def bytes(self) -> Size:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def is_static(self) -> bool:
        return not any(isinstance(s, Dim) for s in self.shape)

    def with_shape(self, shape: Iterable[Size]) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)


class _Interned(weakref.ref[TensorType]):
    """A type's place in the table, which goes with it."""

    __slots__ = ("key",)

    def __new__(cls, t: TensorType, key: tuple[DType, Shape]) -> _Interned:
        return super().__new__(cls, t, _forget)

    def __init__(self, t: TensorType, key: tuple[DType, Shape]) -> None:
        self.key = key


def _forget(gone: weakref.ref[TensorType]) -> None:
    assert isinstance(gone, _Interned)
    with _interning:
        if _interned.get(gone.key) is gone:
            del _interned[gone.key]


_interned: dict[tuple[DType, Shape], _Interned] = {}
_interning = renewed(threading.RLock())  # a finaliser may make types in the midst of it


def _check_possible(t: TensorType) -> None:
    """Raise ShapeError for what no array can be."""
    if t.ndim > MAX_AXES:
        raise ShapeError(
            f"a tensor has at most {MAX_AXES} axes, as an ndarray has, got {t.ndim}", user_loc(),
        )
    if len(str(t)) > MAX_TEXT:
        axis = max(range(t.ndim), key=lambda a: len(str(t.shape[a])))
        raise ShapeError(
            f"the size of axis {axis} has become a formula of {len(str(t.shape[axis])):,} "
            f"characters; give it a name before it grows: gx.assert_dim(x, {axis}, 'm')",
            user_loc(),
        )
    known = [s for s in t.shape if isinstance(s, int)]
    bytes_ = math.prod(known) * t.dtype.itemsize
    if max(known, default=0) > MAX_BYTES or (len(known) == t.ndim and bytes_ > MAX_BYTES):
        raise ShapeError(f"{t} has more elements than memory has places", user_loc())


def as_size(s: Any) -> Size:
    """An int, a Dim, or the Dim named by a string; refuses negative and fractional sizes."""
    if isinstance(s, Dim):
        return s
    if isinstance(s, str):
        from graphc.size_text import parse

        if re.search(r"\w\s+\w", s):
            raise ValueError(f"one size is a number, a name or a formula of these, got {s!r}")
        return dim(s) if s.isidentifier() else parse(s.replace(" ", ""))
    if isinstance(s, bool) or not hasattr(s, "__index__"):
        raise TypeError(f"a dimension is an int or a name, got {s!r}")
    n = int(s.__index__())
    if n < 0:
        raise ValueError(f"a size must be >= 0, got {n}")
    return n


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation on `a` and `b`: NumPy 2's within a kind, else the float."""
    if a is b:
        return a
    if a.kind == "b":
        return b
    if b.kind == "b":
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return f32 if a.bits == b.bits else (a if a.bits > b.bits else b)
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: i16, 16: i32, 32: i64, 64: f64}[unsigned.bits]


def lossless(a: DType, b: DType) -> bool:
    """Whether every value of a is a value of b."""
    if a is b or a.kind == "b":
        return True
    if b.kind == "b" or (a.is_float and not b.is_float):
        return False
    if a.is_float:
        return a.bits < b.bits  # f16 and bf16 do not hold each other
    fits = a.digits <= b.digits
    return fits and (b.is_float or a.kind == "u" or b.kind == "i")


def weak(scalar: bool | int | float, other: DType) -> DType:
    """The dtype a Python scalar takes beside an array of dtype `other`."""
    if isinstance(scalar, bool):
        return other
    if isinstance(scalar, int):
        return i64 if other.kind == "b" else other
    return other if other.is_float else f32
