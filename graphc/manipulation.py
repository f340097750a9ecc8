"""Moving elements about under the array-API names: reshape, axes, joining, repeating."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphc import dims, prim
from graphc.convert import (
    ArrayLike,
    Axes,
    as_shape,
    as_tensor,
    axes_of,
    axis_list,
    axis_of,
    broadcast_args,
    promote_args,
)
from graphc.convert import broadcast_to as _broadcast_to
from graphc.dims import Dim, Size
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.tensor import Tensor
from graphc.types import Shape, shape_text

__all__ = [
    "atleast_1d", "atleast_2d", "broadcast_arrays", "broadcast_to", "concat", "concatenate",
    "expand_dims", "flatten", "flip", "hstack", "matrix_transpose", "moveaxis", "pad",
    "permute_dims", "ravel", "repeat", "reshape", "roll", "split", "squeeze", "stack",
    "swapaxes", "tile", "transpose", "unstack", "vstack",
]


def reshape(x: ArrayLike, shape: Any, *, copy: bool | None = None) -> Tensor:
    """x with its elements in order in another shape; one -1 stands for what remains.

    Counts that are not provably equal are an error; with -1 they are checked at the call.
    """
    t = as_tensor(x)
    one = isinstance(shape, (int, str, Dim, np.integer)) or not isinstance(shape, Iterable)
    sizes = [shape] if one else list(shape)
    holes = [i for i, s in enumerate(sizes) if not isinstance(s, (str, Dim, Tensor)) and s == -1]
    if len(holes) > 1:
        raise ShapeError(f"reshape: only one -1 may stand in {tuple(sizes)}", user_loc())
    if not holes:
        want = as_shape(sizes, "reshape")
        if want == t.shape:
            return t
        _check_count(t, want)
        return prim.reshape(t, shape=want)
    (hole,) = holes
    want = as_shape([1 if i == hole else s for i, s in enumerate(sizes)], "reshape")
    rest = dims.product(want)
    exact = dims.exact_div(t.size, rest)
    if exact is None and (rest == 0 or not (isinstance(t.size, Dim) or isinstance(rest, Dim))):
        raise ShapeError(
            f"reshape: {t.size} elements of {t.type} cannot be divided by {rest}, "
            f"for shape {shape_text(sizes)}", user_loc(),
        )
    solved = exact if exact is not None else dims.floordiv(t.size, dims.maximum(rest, 1))
    want = (*want[:hole], solved, *want[hole + 1 :])
    return t if want == t.shape else prim.reshape(t, shape=want, checked=exact is None)


def _check_count(t: Tensor, want: Shape) -> None:
    n = dims.product(want)
    if t.size == n:
        return
    text = (
        f"reshape: element counts must be equal, got {t.type} to {shape_text(want)}: {t.size} "
        f"and {n}"
    )
    if isinstance(t.size, Dim) or isinstance(n, Dim):
        text += "; if they always are, put -1 for one size and name it with gx.assert_dim"
    raise ShapeError(text, user_loc())


def ravel(x: ArrayLike) -> Tensor:
    """All elements in one axis."""
    t = as_tensor(x)
    return reshape(t, (t.size,))


flatten = ravel


# Axes


def permute_dims(x: ArrayLike, axes: Sequence[int]) -> Tensor:
    """Result axis i is axis axes[i] of x."""
    t = as_tensor(x)
    perm = tuple(axis_of("permute_dims", t, a) for a in axes)
    if sorted(perm) != list(range(t.ndim)):
        advice = "; two are swapped by gx.swapaxes" if len(perm) == 2 < t.ndim else ""
        raise ArgumentError(
            f"permute_dims: axes must name each axis of {t.type} once, got {tuple(axes)}{advice}",
            user_loc(),
        )
    return t if perm == tuple(range(t.ndim)) else prim.transpose(t, perm=perm)


def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Tensor:
    """`permute_dims`; without axes, all of them reversed."""
    t = as_tensor(x)
    return permute_dims(t, range(t.ndim)[::-1] if axes is None else axes)


def matrix_transpose(x: ArrayLike) -> Tensor:
    """The last two axes swapped."""
    t = as_tensor(x)
    if t.ndim < 2:
        raise ShapeError(f"matrix_transpose: takes at least 2 axes, got {t.type}", user_loc())
    return swapaxes(t, -1, -2)


def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Tensor:
    """Two axes swapped."""
    t = as_tensor(x)
    i, j = axis_of("swapaxes", t, axis1), axis_of("swapaxes", t, axis2)
    perm = list(range(t.ndim))
    perm[i], perm[j] = j, i
    return permute_dims(t, perm)


def moveaxis(x: ArrayLike, source: Axes, destination: Axes) -> Tensor:
    """Axes moved to new places; the others keep their order."""
    t = as_tensor(x)
    src = [axis_of("moveaxis", t, a) for a in axis_list(source)]
    dst = [axis_of("moveaxis", t, a) for a in axis_list(destination)]
    if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ArgumentError(
            f"moveaxis: source and destination must pair up, got {source} and {destination}",
            user_loc(),
        )
    perm = [a for a in range(t.ndim) if a not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        perm.insert(d, s)
    return permute_dims(t, perm)


def expand_dims(x: ArrayLike, axis: Axes = 0) -> Tensor:
    """New axes of size 1 at the given places of the result."""
    t = as_tensor(x)
    places = axis_list(axis)
    at = {axis_of("expand_dims", t, a, extra=len(places)) for a in places}
    if len(at) != len(places):
        raise ArgumentError(f"expand_dims: an axis appears twice in {axis}", user_loc())
    old = iter(t.shape)
    return reshape(t, [1 if i in at else next(old) for i in range(t.ndim + len(at))])


def squeeze(x: ArrayLike, axis: Axes = None) -> Tensor:
    """x without axes of declared size 1; without `axis`, without all of those."""
    t = as_tensor(x)
    if axis is None:
        axes = tuple(i for i, s in enumerate(t.shape) if s == 1)
    else:
        axes = axes_of("squeeze", t, axis)
        for i in axes:
            if t.shape[i] != 1:
                advice = "; a named size may be 1 but is not declared so: use gx.assert_dim first"
                raise ShapeError(
                    f"squeeze: axis {i} of {t.type} must have size 1"
                    + advice * isinstance(t.shape[i], Dim), user_loc(),
                )
    return reshape(t, [s for i, s in enumerate(t.shape) if i not in axes])


def broadcast_to(x: ArrayLike, shape: Any) -> Tensor:
    """x stretched to `shape`: only a declared 1 stretches."""
    return _broadcast_to(x, as_shape(shape))


def broadcast_arrays(*arrays: ArrayLike) -> list[Tensor]:
    """Arrays stretched to their common shape."""
    return broadcast_args("broadcast_arrays", *arrays)


def atleast_1d(x: ArrayLike) -> Tensor:
    """x, or x with one axis where it has none."""
    t = as_tensor(x)
    return t if t.ndim else reshape(t, (1,))


def atleast_2d(x: ArrayLike) -> Tensor:
    """x with axes of size 1 in front up to two."""
    t = as_tensor(x)
    return t if t.ndim > 1 else reshape(t, (1,) * (2 - t.ndim) + t.shape)


# Joining and splitting


def _arrays(op: str, arrays: Any, axis: Any = 0) -> list[Tensor]:
    if isinstance(axis, Tensor) or (
        isinstance(arrays, Tensor) and not (arrays.shape and isinstance(arrays.shape[0], int))
    ):
        got = f"{arrays!r} and {axis!r}" if isinstance(axis, Tensor) else repr(arrays)
        raise UsageError(f"{op}: takes a list, gx.{op}([a, b]), got {got}", user_loc())
    if isinstance(arrays, Tensor):
        arrays = list(arrays)
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise UsageError(f"{op}: takes a list of at least one array, got {arrays!r}", user_loc())
    return promote_args(*arrays, what=f"{op}: an array")


def concat(arrays: Sequence[ArrayLike], axis: int | None = 0) -> Tensor:
    """Arrays joined along an axis they have; with axis=None, flattened first."""
    ts = _arrays("concat", arrays, axis)
    if axis is None:
        ts, axis = [ravel(t) for t in ts], 0
    i = axis_of("concat", ts[0], axis)
    return ts[0] if len(ts) == 1 else prim.concat(*ts, axis=i)


def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> Tensor:
    """Arrays of one shape joined along a new axis."""
    ts = _arrays("stack", arrays, axis)
    for t in ts:
        if t.shape != ts[0].shape:
            raise ShapeError(
                f"stack: arrays must have one shape, got {ts[0].type} and {t.type}", user_loc()
            )
    i = axis_of("stack", ts[0], axis, extra=1)
    return concat([expand_dims(t, i) for t in ts], i)


def vstack(arrays: Sequence[ArrayLike]) -> Tensor:
    """Joined along the first axis, vectors as rows."""
    return concat([atleast_2d(t) for t in _arrays("vstack", arrays)], 0)


def hstack(arrays: Sequence[ArrayLike]) -> Tensor:
    """Joined along the second axis, vectors along their only one."""
    ts = [atleast_1d(t) for t in _arrays("hstack", arrays)]
    return concat(ts, 0 if ts[0].ndim == 1 else 1)


def cut(t: Tensor, axis: int, start: Size, stop: Size, step: int = 1) -> Tensor:
    """t[start:stop:step] along one axis; the range must lie inside."""
    if (start, stop, step) == (0, t.shape[axis], 1):
        return t
    n = t.ndim
    return prim.slice(
        t,
        start=[start if i == axis else 0 for i in range(n)],
        stop=[stop if i == axis else s for i, s in enumerate(t.shape)],
        step=[step if i == axis else 1 for i in range(n)],
    )


def split(x: ArrayLike, indices_or_sections: int | Sequence[Size], axis: int = 0) -> list[Tensor]:
    """Equal parts, or the parts between positions, along an axis."""
    t = as_tensor(x)
    i = axis_of("split", t, axis)
    n = t.shape[i]
    if isinstance(indices_or_sections, (int, np.integer)):
        parts = int(indices_or_sections)
        each = dims.exact_div(n, parts) if parts > 0 else None
        if each is None:
            raise ShapeError(
                f"split: axis {i} of {t.type} must divide into {parts} equal parts", user_loc()
            )
        bounds: list[Size] = [each * k for k in range(parts + 1)]
    elif isinstance(indices_or_sections, Iterable) and not isinstance(indices_or_sections, Tensor):
        bounds = [0, *indices_or_sections, n]
    else:
        raise UsageError(
            "split: takes a number of parts, or a list of positions, that are known while the "
            f"graph is declared, got {indices_or_sections!r}", user_loc(),
        )
    return [cut(t, i, a, b) for a, b in pairwise(bounds)]


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis of known size, without that axis."""
    t = as_tensor(x)
    i = axis_of("unstack", t, axis)
    n = t.shape[i]
    if not isinstance(n, int):
        raise ShapeError(f"unstack: axis {i} of {t.type} must have a known size", user_loc())
    shape = t.shape[:i] + t.shape[i + 1 :]
    return tuple(reshape(cut(t, i, k, k + 1), shape) for k in range(n))


# Repeating and turning


def tile(x: ArrayLike, repetitions: Any) -> Tensor:
    """x laid side by side; repetitions are matched with the last axes."""
    t = as_tensor(x)
    reps = as_shape(repetitions, "tile: repetitions")
    n = max(t.ndim, len(reps))
    reps = (1,) * (n - len(reps)) + reps
    shape = (1,) * (n - t.ndim) + t.shape
    if all(r == 1 for r in reps):
        return reshape(t, shape)
    wide = [s for r, d in zip(reps, shape, strict=True) for s in (r, d)]
    axes = [2 * i + 1 for i in range(n)]
    y = prim.broadcast(reshape(t, shape), shape=wide, axes=axes)
    return reshape(y, [r * d for r, d in zip(reps, shape, strict=True)])


def repeat(x: ArrayLike, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element `repeats` times, along an axis or flattened."""
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    if not isinstance(repeats, (int, Dim, np.integer)):
        raise UsageError(
            "repeat: repeats must be one int, because sizes cannot depend on data; "
            "use gx.take(x, indices, axis=...)", user_loc(),
        )
    i = axis_of("repeat", t, axis)
    (r,) = as_shape((repeats,), "repeat: repeats")
    wide = (*t.shape[: i + 1], r, *t.shape[i + 1 :])
    axes = [a for a in range(t.ndim + 1) if a != i + 1]
    y = prim.broadcast(t, shape=wide, axes=axes)
    return reshape(y, [s * r if a == i else s for a, s in enumerate(t.shape)])


def flip(x: ArrayLike, axis: Axes = None) -> Tensor:
    """The order of elements reversed along axes."""
    t = as_tensor(x)
    axes = axes_of("flip", t, axis)
    return prim.reverse(t, axes=axes) if axes else t


def roll(x: ArrayLike, shift: Any, axis: Axes = None) -> Tensor:
    """Elements moved along axes, those that fall off coming in at the other end."""
    t = as_tensor(x)
    if axis is None:
        return reshape(roll(ravel(t), shift, 0), t.shape)
    shifts, axes = axis_list(shift), axis_list(axis)
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise ArgumentError(
            f"roll: shifts and axes must pair up, got {shift} and {axis}", user_loc()
        )
    for s, a in zip(shifts, axes, strict=True):
        if isinstance(s, Tensor) or not isinstance(s, (int, np.integer)):
            raise UsageError(f"roll: shift must be an int, got {s!r}; use gx.take", user_loc())
        i = axis_of("roll", t, a)
        n = t.shape[i]
        if n == 0 or s == 0:
            continue
        # An axis of unknown size may be empty: the modulus must not be 0 then.
        k = dims.mod(abs(int(s)), dims.maximum(n, 1))
        if k != 0:
            k = n - k if s > 0 else k
            t = prim.concat(cut(t, i, k, n), cut(t, i, 0, k), axis=i)
    return t


def pad(
    x: ArrayLike, pad_width: Any, mode: str = "constant", constant_values: ArrayLike = 0
) -> Tensor:
    """x with constants around it: `pad_width` is n, (before, after) or one pair an axis; one alone
    in a list is for all axes.
    """
    t = as_tensor(x)
    if mode != "constant":
        raise UsageError(f"pad: mode must be 'constant', got {mode!r}; use gx.take", user_loc())
    widths = pad_width.tolist() if isinstance(pad_width, np.ndarray) else pad_width
    if isinstance(widths, (tuple, list)) and len(widths) == 1:
        (widths,) = widths
    if isinstance(widths, (int, Dim, np.integer)):
        pairs: list[Any] = [(widths, widths)] * t.ndim
    elif not isinstance(widths, (tuple, list)):
        pairs = [()]
    elif len(widths) == 2 and not isinstance(widths[0], (tuple, list)):
        pairs = [tuple(widths)] * t.ndim
    else:
        pairs = [tuple(p) if isinstance(p, (tuple, list)) else () for p in widths]
    if len(pairs) != t.ndim or any(len(p) != 2 for p in pairs):
        raise ArgumentError(
            f"pad: pad_width must be one pair for each axis of {t.type}, got {pad_width}",
            user_loc(),
        )
    low, high = [as_shape([p[side] for p in pairs], "pad: pad_width") for side in (0, 1)]
    value = as_tensor(constant_values, t.dtype)
    return prim.pad(t, value, low=low, high=high, interior=(0,) * t.ndim)


# NumPy's other names
concatenate = concat
