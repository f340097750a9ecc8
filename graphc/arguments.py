"""The arguments of a call: from whatever the user passes to arrays that native code takes.

This is the explaining path: it converts what converts safely, and says precisely what is wrong
with the rest. Plain calls (native arrays of the declared types) never come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from graphc.binding import bind_dims, lone_name, size_value
from graphc.convert import keeps_dtype, literal_array
from graphc.errors import DTypeError, Loc, OutOfMemoryError, ShapeError, UsageError, user_loc
from graphc.types import Array, DType, TensorType, array_text, as_dtype, shape_text


class Signature:
    """The inputs of a function, and the dimensions that come by keyword."""

    def __init__(
        self, name: str, inputs: Sequence[tuple[str, TensorType]], locs: Sequence[Loc | None],
        dims: Sequence[str],
    ):
        self.name = name
        self.inputs = tuple(inputs)
        self.locs = dict(zip((n for n, _ in inputs), locs, strict=True))
        self.place = {n: i for i, (n, _) in enumerate(inputs)}
        alone = {lone_name(s) for _, t in inputs for s in t.shape}
        self.dims = tuple(d for d in dims if d not in alone)

    def __str__(self) -> str:
        return ", ".join([*(f"{n}: {t}" for n, t in self.inputs), *(f"{d}=" for d in self.dims)])

    def convert(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Array], dict[str, int]]:
        """Arrays of the declared dtypes, C-contiguous, in native order; the dimensions given.

        Raises UsageError for missing, unknown or repeated arguments, DTypeError for a dtype that
        does not convert safely.
        """
        values, given = self._arrange(args, kwargs)
        arrays = [
            as_input(self.name, n, v, t, self.locs[n])
            for (n, t), v in zip(self.inputs, values, strict=True)
        ]
        return arrays, given

    def bind(self, arrays: Sequence[Array], given: Mapping[str, int]) -> dict[str, int]:
        """The value of every dimension; ShapeError for shapes that do not fit."""
        try:
            return bind_dims(self.inputs, [a.shape for a in arrays], given)
        except ShapeError as e:
            about = next((n for n in self.place if e.message.startswith(f"input {n!r}")), "")
            raise ShapeError(f"{self.name}: {e.message}", self.locs.get(about)) from None

    def _arrange(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, int]]:
        if len(args) > len(self.inputs):
            self._refuse(f"takes {self._count()} ({self}), got {len(args)}")
        values: list[Any] = [*args, *[_MISSING] * (len(self.inputs) - len(args))]
        given: dict[str, int] = {}
        for key, value in kwargs.items():
            at = self.place.get(key)
            if at is None:
                if key not in self.dims:
                    self._refuse(f"has no input {key!r}; it takes ({self})")
                given[key] = self._dim(key, value)
            elif values[at] is not _MISSING:
                self._refuse(f"input {key!r} is given twice, by position and by name")
            else:
                values[at] = value
        for (n, t), v in zip(self.inputs, values, strict=True):
            if v is _MISSING:
                got = len(args) + len(kwargs) - len(given)
                self._refuse(f"takes {self._count()} ({self}), got {got}: {n!r} ({t}) is missing")
        for d in self.dims:
            if d not in given:
                self._refuse(f"dimension {d!r} stands alone in no input, so give it: {d}=...")
        return values, given

    def _count(self) -> str:
        return f"{len(self.inputs)} input{'' if len(self.inputs) == 1 else 's'}"

    def _dim(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            self._refuse(f"dimension {name!r} must be an integer, got {value!r}")
        n = int(value.__index__())
        if n < 0:
            raise ShapeError(f"{self.name}: dimension {name!r} must be >= 0, got {n}", user_loc())
        if n > MOST:
            raise ShapeError(
                f"{self.name}: dimension {name!r} must be at most {MOST}, got {n}", user_loc()
            )
        return n

    def _refuse(self, message: str) -> NoReturn:
        raise UsageError(f"{self.name}: {message}", user_loc())


MOST = (1 << 63) - 1  # that a dimension may be: native code takes them as int64
_MISSING: Any = object()


type_of = type  # `type` is a tensor type below


def as_input(function: str, name: str, value: Any, type: TensorType, loc: Loc | None) -> Array:
    """`value` as an array of type's dtype; safe casts only, Python numbers by their kind."""
    dtype = type.dtype
    if type_of(value) is np.ndarray and value.dtype is dtype.numpy and value.flags.carray:
        whole: Array = value
        return whole
    what = f"{function}: input {name!r}"
    try:
        return _converted(what, value, type, loc)
    except MemoryError:
        raise OutOfMemoryError(
            f"{what}: out of memory for a copy as {type} in C order, of shape "
            f"{shape_text(np.shape(value))}", loc
        ) from None


def _converted(what: str, value: Any, type: TensorType, loc: Loc | None) -> Array:
    dtype = type.dtype
    if hasattr(value, "_value") and hasattr(value, "node"):
        raise UsageError(
            f"{what} must be an array of {type}, got the Tensor {value!r}; pass numbers, or "
            "declare one function of both", loc
        )
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(
            f"{what} must be an array of {type}, got a masked array, whose mask would be lost; "
            "pass value.filled(...)", loc
        )
    array: Array
    if isinstance(value, np.ndarray):
        array = _cast(what, value, type, loc)
    elif isinstance(value, np.float64):  # a Python float too, and what np.mean gives
        array = _from_python(what, float(value), type, loc)
    elif isinstance(value, np.generic):
        array = _cast(what, np.asarray(value), type, loc)
    else:
        array = _from_python(what, value, type, loc)
    if not array.dtype.isnative:
        array = array.astype(dtype.numpy)
    if array.dtype.num != dtype.numpy.num:
        array = array.view(dtype.numpy)  # long and long long are one type to us
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, order="C", copy=True, subok=False)
    return np.asarray(array)


def _cast(what: str, array: Array, type: TensorType, loc: Loc | None) -> Array:
    want = type.dtype.numpy
    if array.dtype.newbyteorder("=") == want:
        return array
    try:
        own: DType | None = as_dtype(array.dtype)
    except DTypeError:
        own = None
    if own is None or not _is_safe(own, type.dtype):
        text = f"{what} must be {type}, got an array of {array.dtype} with shape "
        text += shape_text(array.shape)
        if array.dtype.kind == "c":
            text += "; pass value.real, or both parts as two inputs"
        elif own is not None or array.dtype.kind in "biufO":
            text += f"; cast it with .astype({type.dtype.long!r})"
        raise DTypeError(text, loc)
    return array.astype(want)


def _is_safe(a: DType, b: DType) -> bool:
    if "bfloat16" in (a.long, b.long):  # NumPy has no opinion on it
        return a.long in ("bool", "int8", "uint8") or b.long in ("float32", "float64")
    return bool(np.can_cast(a.numpy, b.numpy, "safe"))


def as_value(what: str, value: Any, type: TensorType) -> Array:
    """`value` as what a variable of this type may hold: an array of exactly its dtype and shape,
    or numbers and lists, which convert as the arguments of a call do.

    Raises UsageError for what is no array of numbers, DTypeError for numbers that do not fit and
    arrays of another dtype, ShapeError for those of another shape.
    """
    array = literal_array(value, what=what)
    if not keeps_dtype(value):
        array = _from_python(what, value, type, user_loc())
    text = f"{what} must be {type}, got {array_text(array)}"
    if array.shape != type.shape:
        raise ShapeError(text, user_loc())
    if as_dtype(array.dtype) is not type.dtype:
        raise DTypeError(f"{text}; cast it with .astype({type.dtype.long!r})", user_loc())
    return array.astype(type.dtype.numpy, copy=False)  # in this machine's byte order


def _from_python(what: str, value: Any, type: TensorType, loc: Loc | None) -> Array:
    """Numbers and nested lists: bools fit anything, ints what holds them, floats any float."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as e:  # the last from torch, where it has grad
        raise UsageError(f"{what} must be an array of {type}, got {_short(value)}: {e}", loc) from e
    dtype = type.dtype
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _cast(what, array, type, loc)
    if not array.size:
        return array.astype(dtype.numpy)
    kind = array.dtype.kind
    fits = kind == "b" or (kind in "iu" and dtype.kind != "b") or (kind == "f" and dtype.is_float)
    if not fits and isinstance(value, int) and dtype.kind != "b":  # beyond all of NumPy's
        raise DTypeError(_beyond(what, value, type), loc)
    if not fits:
        advice = "; pass inputs by position, or by name as f(x=...)"
        named = advice if isinstance(value, Mapping) else ""
        raise DTypeError(f"{what} must be {type}, got {_short(value)}{named}", loc)
    if dtype.is_int and kind in "iu":
        info = np.iinfo(dtype.numpy)
        low, high = int(array.min()), int(array.max())
        if low < info.min or high > info.max:
            raise DTypeError(_beyond(what, low if low < info.min else high, type), loc)
    return array.astype(dtype.numpy)


def _beyond(what: str, value: int, type: TensorType) -> str:
    """What is said of an integer that an input of this type does not take."""
    if type.dtype.is_float:
        where = "beyond 64 bits; pass a float"
    else:
        info = np.iinfo(type.dtype.numpy)
        where = f"outside {info.min} to {info.max}"
    big = value.bit_length() > 64
    got = f"an int of {value.bit_length()} bits" if big else str(value)
    return f"{what} must be {type}, got {got}, which is {where}"


def _short(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return f"the {kind} {text}" if len(text) <= 40 else f"a {kind} {text[:37]}..."


class Results:
    """The outputs of a function: their types, and the structure they are returned in.

    kind: "none", "one", "list", "tuple" or "dict"; keys: those of the dict.
    """

    def __init__(self, name: str, types: Sequence[TensorType], kind: str, keys: Sequence[str]):
        self.name, self.types, self.kind, self.keys = name, tuple(types), kind, tuple(keys)

    def __str__(self) -> str:
        pairs = zip(self.keys, self.types, strict=True)
        return ", ".join(f"{k}: {t}" if k else str(t) for k, t in pairs)

    def pack(self, arrays: Sequence[Array]) -> Any:
        """What the caller gets."""
        if self.kind == "one":
            return arrays[0]
        if self.kind == "dict":
            return dict(zip(self.keys, arrays, strict=True))
        if self.kind == "none":
            return None
        return list(arrays) if self.kind == "list" else tuple(arrays)

    def shapes(self, dims: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The shapes for these dimensions; ShapeError where a size would be negative."""
        out = []
        for t in self.types:
            shape = tuple(n if isinstance(n, int) else size_value(n, dims) for n in t.shape)
            if any(n < 0 for n in shape):
                raise ShapeError(
                    f"{self.name}: an output of {t} would have the shape "
                    f"{shape_text(shape)}; every size must be >= 0", user_loc()
                )
            out.append(shape)
        return out

    def flatten(self, out: Any) -> list[Any]:
        """The arrays of `out=`, which must have the structure of the result."""
        if self.kind == "one":
            given = [out]
        elif self.kind == "dict":
            if not isinstance(out, Mapping) or set(out) != set(self.keys):
                self._refuse(f"out= must be a dict with the keys {', '.join(self.keys)}")
            given = [out[k] for k in self.keys]
        elif self.kind == "none":
            self._refuse("has no outputs, so it takes no out=")
        elif not isinstance(out, (list, tuple)):
            self._refuse(f"out= must be a {self.kind} of {len(self.types)} arrays")
        else:
            given = list(out)
        if len(given) != len(self.types):
            self._refuse(f"out= must hold {len(self.types)} arrays, got {len(given)}")
        return given

    def check(self, given: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse arrays of `out=` that cannot take the outputs."""
        keys = self.keys if self.kind == "dict" else range(len(self.types))
        for key, a, t, shape in zip(keys, given, self.types, shapes, strict=True):
            here = "out=" if self.kind == "one" else f"out[{key!r}]"
            text = f"{self.name}: {here} must be {t.dtype}{shape_text(shape)}, got"
            if not isinstance(a, np.ndarray):
                self._refuse(f"{here} takes arrays, got {_short(a)} for {t}")
            if a.dtype != t.dtype.numpy:
                raise DTypeError(f"{text} {a.dtype}", user_loc())
            if a.shape != shape:
                raise ShapeError(f"{text} shape {shape_text(a.shape)}", user_loc())
            if not a.flags.writeable:
                self._refuse(f"{here} for {t} is read-only")
        for i, a in enumerate(given):
            if any(np.may_share_memory(a, b) for b in given[:i]):
                self._refuse("two arrays of out= overlap")

    def _refuse(self, message: str) -> NoReturn:
        raise UsageError(f"{self.name}: {message}", user_loc())


def direct(target: Array, inputs: Sequence[Array]) -> bool:
    """Whether native code may write into `target` itself, not a temporary copied afterwards."""
    f = target.flags
    return (
        f.c_contiguous and f.aligned and target.dtype.isnative and type(target) is np.ndarray
        and not any(np.may_share_memory(target, a) for a in inputs)
    )
