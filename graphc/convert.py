"""From what a user passes to strict operands: constants, promotion, broadcasting, axes.

The operators of the IR take operands of one dtype and one shape; everything that makes them so
stands here, and shows in the graph as casts, reshapes and broadcasts.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np

from graphc import prim, types
from graphc.dims import Dim, Size
from graphc.errors import ArgumentError, DTypeError, GraphcError, ShapeError, UsageError, user_loc
from graphc.tensor import Tensor
from graphc.types import Array, DType, Shape, TensorType, as_dtype, promote, shape_text

ArrayLike: TypeAlias = Any  # a Tensor, an ndarray, a number, a Dim, or a nested list of numbers
Axes: TypeAlias = "int | Sequence[int] | None"


def check_device(op: str, device: object) -> None:
    """UsageError for a device that is not there."""
    if device is not None and device != "cpu":
        raise UsageError(f"{op}: the only device is 'cpu', got {device!r}", user_loc())


def is_weak(x: Any) -> bool:
    """Whether x is a Python number (or a size), which takes the dtype of what stands beside it."""
    return isinstance(x, (bool, int, float, Dim)) and not isinstance(x, np.generic)


def keeps_dtype(value: Any) -> bool:
    """Whether a value brings its dtype along: arrays do, NumPy's or another library's; numbers
    and lists of them do not.
    """
    return isinstance(value, np.generic) or not isinstance(value, (int, float, list, tuple))


def literal_array(
    value: Any, dtype: Any = None, what: str = "an operand"
) -> Array:
    """An ndarray with graphc's defaults: arrays keep their dtype, numbers and lists become
    float32, int64 or bool. Complex numbers, strings, objects and arrays of other libraries that
    NumPy cannot read are refused; `what` names the value in messages.
    """
    if isinstance(value, Tensor):
        raise UsageError(
            "a Tensor has no value while the graph is declared, so it cannot be made a constant; "
            "use the Tensor itself, or t.eval({...}) for its value", user_loc(),
        )
    subclass = isinstance(value, np.ndarray) and type(value) is not np.ndarray
    if subclass and isinstance(value, np.ma.MaskedArray):
        raise UsageError(
            f"{what} is a masked array, whose mask would be lost; pass value.filled(...)",
            user_loc(),
        )
    try:
        array = np.asarray(value)
    except (UsageError, ValueError):  # a Tensor inside, or rows of unequal length
        array = np.array(None)
    except (TypeError, RuntimeError) as e:  # the array's library tells why, and what to call
        raise UsageError(
            f"{what} cannot be read as an array, got {type(value).__name__}: {e}", user_loc()
        ) from e
    if array.dtype.kind in "OSUMm":  # objects, strings, dates
        advice = "; join Tensors with gx.stack or gx.concat" if _holds_tensor(value) else ""
        if isinstance(value, int):
            advice = ", which fits into no integer dtype; use a float"
        raise UsageError(
            f"{what} must be a number or a rectangular array of numbers, got "
            f"{type(value).__name__} {reprlib.repr(value)}{advice}", user_loc(),
        )
    try:
        if dtype is not None:
            want = as_dtype(dtype)
            if want.kind in "iu" and (array.dtype.kind == "f" or not isinstance(value, np.ndarray)):
                _check_all(array, want)
            return array.astype(want.numpy)
        if array.dtype.kind == "f" and not keeps_dtype(value):
            return array.astype(np.float32)
        as_dtype(array.dtype)
    except GraphcError as e:
        raise type(e)(e.message, e.loc or user_loc()) from None
    return array


def listed(op: str, x: Any) -> list[Any]:
    """Several things as a list, one (a Tensor, or what is no such thing) alone in it."""
    if isinstance(x, Mapping):
        raise UsageError(f"{op}: takes a list, got a dict; pass list(d.values())", user_loc())
    return [x] if isinstance(x, Tensor) or not isinstance(x, Iterable) else list(x)


def _holds_tensor(value: Any) -> bool:
    stack = [value]
    while stack:
        v = stack.pop()
        if isinstance(v, Tensor):
            return True
        if isinstance(v, (list, tuple)):
            stack.extend(v)
    return False


def dtype_of(dtype: Any) -> DType:
    """as_dtype, with the user's line in the error."""
    try:
        return as_dtype(dtype)
    except GraphcError as e:
        raise type(e)(e.message, user_loc()) from None


def as_tensor(x: ArrayLike, dtype: Any = None) -> Tensor:
    """x as a Tensor; with `dtype`, cast to it."""
    want = dtype if dtype is None or isinstance(dtype, DType) else dtype_of(dtype)
    if isinstance(x, Tensor):
        return x if want is None else cast(x, want)
    if isinstance(x, Dim):
        return cast(prim.dim(size=x), want or types.i64)
    if want is not None and type(x) in (bool, int, float):
        if want.is_int and type(x) is not float:
            check_range(int(x), want)
        with np.errstate(all="ignore"):  # a number too large for the dtype becomes infinite
            return prim.constant(np.asarray(x, want.numpy))
    return prim.constant(literal_array(x, want))


def _check_all(array: Array, dtype: DType) -> None:
    """Raise ArgumentError for a number that an integer dtype has no value near to."""
    whole = np.trunc(array) if array.dtype.kind == "f" else array
    for x in (whole.min(), whole.max()) if whole.size else ():  # NaN is both
        if not np.isfinite(x):
            raise ArgumentError(f"{x} does not fit into {dtype.long}", user_loc())
        check_range(int(x), dtype)


def check_range(x: int, dtype: DType) -> None:
    """Raise ArgumentError for an integer that the dtype does not hold."""
    info = np.iinfo(dtype.numpy)
    if not info.min <= x <= info.max:
        raise ArgumentError(f"{x} does not fit into {dtype.long}", user_loc())


def cast(x: Tensor, dtype: DType) -> Tensor:
    """x in another dtype; x itself where it has it."""
    return x if x.dtype is dtype else prim.cast(x, dtype=dtype)


def common_dtype(*xs: ArrayLike, what: str = "an operand") -> DType:
    """The dtype that operands take together: arrays promote, Python numbers are weak."""
    strong: DType | None = None
    for x in xs:
        if not is_weak(x):
            d = x.dtype if isinstance(x, Tensor) else as_dtype(literal_array(x, what=what).dtype)
            strong = d if strong is None else promote(strong, d)
    if strong is None:
        kinds = [type(x) for x in xs]
        return types.f32 if float in kinds else types.bool_ if kinds.count(bool) == len(kinds) \
            else types.i64
    out = strong
    for x in xs:
        if is_weak(x):
            out = promote(out, types.weak(0 if isinstance(x, Dim) else x, strong))
    return out


def promote_args(
    *xs: ArrayLike, floating: bool = False, what: str = "an operand"
) -> list[Tensor]:
    """Operands as Tensors of one dtype; `floating` takes integers and bools to float32."""
    dtype = common_dtype(*xs, what=what)
    if floating and not dtype.is_float:
        dtype = types.f32
    return [as_tensor(x, dtype) for x in xs]


def as_float(x: ArrayLike) -> Tensor:
    """x as a Tensor of a floating dtype: float32 for integers and bools."""
    return promote_args(x, floating=True)[0]


def broadcast_shapes(op: str, *ts: TensorType) -> Shape:
    """The common shape: only a declared 1 stretches; other sizes must be provably equal."""
    n = max((t.ndim for t in ts), default=0)
    out: list[Size] = [1] * n
    for t in ts:
        for i, s in enumerate(t.shape, n - t.ndim):
            if s != 1 and out[i] != s:
                if out[i] != 1:
                    raise ShapeError(_mismatch(op, ts, i - n, out[i], s), user_loc())
                out[i] = s
    return tuple(out)


def _mismatch(op: str, ts: Sequence[TensorType], axis: int, a: Size, b: Size) -> str:
    got = " and ".join(map(str, ts))
    text = f"{op}: sizes must be equal or a declared 1, got {got}: axis {axis} is {a} and {b}"
    if (reduced := _reduced(ts)) is not None:
        few, at = reduced
        text += (
            f"; {few} lacks axis {at}, which reductions keep with keepdims=True and "
            f"gx.expand_dims(x, {at}) adds"
        )
    elif isinstance(a, Dim) or isinstance(b, Dim):
        simple = min(b, a, key=lambda size: (isinstance(size, Dim), len(str(size))))
        size = repr(str(simple)) if isinstance(simple, Dim) else simple
        text += (
            "; if they are always equal, declare them by one name, or use "
            f"gx.assert_dim(x, {axis}, {size})"
        )
    return text


def _reduced(ts: Sequence[TensorType]) -> tuple[TensorType, int] | None:
    """The operand that is as the other would be after a reduction of one axis, and this axis."""
    if len(ts) == 2:
        few, many = sorted(ts, key=lambda t: t.ndim)
        for axis in range(-1, -many.ndim - 1, -1):
            rest = [s for i, s in enumerate(many.shape, -many.ndim) if i != axis]
            if few.shape == tuple(rest):
                return few, axis
    return None


def broadcast_to(x: ArrayLike, shape: Iterable[Any], *, op: str = "broadcast_to") -> Tensor:
    """x stretched to `shape`: new axes in front, declared 1s repeated.

    Raises ShapeError where another size of x differs from the one asked for.
    """
    return _stretched(as_tensor(x), as_shape(shape), op)


def _stretched(t: Tensor, want: Shape, op: str) -> Tensor:
    """t in the shape `want`, or ShapeError."""
    if t.shape == want:
        return t
    lead = len(want) - t.ndim
    kept, axes = [], []
    for i, s in enumerate(t.shape):
        target = want[lead + i] if lead >= 0 else None
        if target is None or (s != target and s != 1):
            raise ShapeError(
                f"{op}: {t.type} does not broadcast to {shape_text(want)}", user_loc()
            )
        if s == target:
            kept.append(s)
            axes.append(lead + i)
    squeezed = tuple(kept)
    if squeezed != t.shape:
        t = prim.reshape(t, shape=squeezed, checked=False)
    return prim.broadcast(t, shape=want, axes=tuple(axes))


def broadcast_args(op: str, *xs: ArrayLike) -> list[Tensor]:
    """Operands stretched to their common shape (dtypes untouched)."""
    ts = [as_tensor(x) for x in xs]
    shape = broadcast_shapes(op, *[t.type for t in ts])
    return [_stretched(t, shape, op) for t in ts]


def strict(op: str, *xs: ArrayLike, floating: bool = False) -> list[Tensor]:
    """Operands of one dtype and one shape, ready for a primitive."""
    if all(isinstance(x, Tensor) for x in xs):
        t = xs[0].type
        if all(x.type is t for x in xs) and (t.dtype.is_float or not floating):
            return list(xs)
    return broadcast_args(op, *promote_args(*xs, floating=floating, what=f"{op}: an operand"))


def as_shape(shape: Any, what: str = "shape") -> Shape:
    """A tuple of sizes from an int, a name, a Dim, or a sequence of them; errors begin `what`."""
    if isinstance(shape, (int, str, Dim, np.integer)):
        shape = (shape,)
    if not isinstance(shape, Iterable) or isinstance(shape, (Mapping, Set)):
        raise ShapeError(
            f"{what}: takes a size, or several in order, as in ('batch', 64), got "
            f"{reprlib.repr(shape)}", user_loc()
        )
    try:
        return tuple([types.as_size(s) for s in shape])
    except (TypeError, ValueError) as e:
        text = e.message if isinstance(e, GraphcError) else str(e)
        if any(s is None for s in shape):
            text = "a size that is not known yet needs a name, as in ('batch', 64), not None"
        raise ShapeError(f"{what}: {text}", user_loc()) from None


def axis_of(op: str, x: Tensor, axis: Any, extra: int = 0) -> int:
    """One axis as 0..ndim-1; `extra` axes more are allowed where an op adds some."""
    n = x.ndim + extra
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise UsageError(f"{op}: an axis is an int, got {axis!r}", user_loc())
    i = int(axis.__index__())
    if not -n <= i < n:
        raise ArgumentError(f"{op}: axis {i} is out of range for {x.type}", user_loc())
    return i % n


def axis_list(axis: Any) -> list[Any]:
    """One axis or several, as they were given, as a list."""
    return list(axis) if isinstance(axis, (tuple, list, range)) else [axis]


def axes_of(op: str, x: Tensor, axis: Axes) -> tuple[int, ...]:
    """Axes, sorted; None means all of them."""
    if axis is None:
        return tuple(range(x.ndim))
    out = sorted(axis_of(op, x, a) for a in axis_list(axis))
    if len(set(out)) != len(out):
        raise ArgumentError(f"{op}: an axis appears twice in {tuple(axis_list(axis))}", user_loc())
    return tuple(out)


def require_dtype(op: str, x: Tensor, kinds: str, what: str) -> None:
    """DTypeError unless the kind of x (b, i, u or f) is one of `kinds`."""
    if x.dtype.kind not in kinds:
        raise DTypeError(f"{op}: takes {what}, got {x.type}", user_loc())


def require_elements(op: str, x: Tensor, axes: Sequence[int]) -> None:
    """ShapeError if one of the axes is known to be empty, of which there is no maximum."""
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(
            f"{op}: an axis must not be empty, got {x.type} over axes {tuple(axes)}", user_loc()
        )
