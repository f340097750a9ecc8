"""x[...]: an index brought to a span of positions for each axis.

An index is made of ints, slices, None, one `...`, and integer arrays, of which several become one
on one axis first (`index_arrays`). As in NumPy, the array's axes stand first in the result where an
int is apart from the array.
Sizes of slices of symbolic axes are brought to one form, so that x[1:] and x[:-1] agree:
len(x[i:]) = len(x[:-i]) = max(n - i, 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc import dims, prim
from graphc.convert import as_tensor, check_range, literal_array
from graphc.dims import Dim, Size
from graphc.errors import ArgumentError, IndexOutOfRangeError, ShapeError, UsageError, user_loc
from graphc.index_arrays import Merged, axes_at, merge
from graphc.manipulation import moveaxis, reshape
from graphc.tensor import Tensor
from graphc.types import Array, bool_, i64


class Span(NamedTuple):
    """The positions start, start + step, ... below stop of one axis, or backwards from the end."""

    start: Size
    stop: Size
    step: int
    backwards: bool = False  # positions are counted on the reversed axis

    @property
    def length(self) -> Size:
        return dims.floordiv(self.stop - self.start + (self.step - 1), self.step)

    def is_whole(self, n: Size) -> bool:
        return (self.start, self.stop, self.step, self.backwards) == (0, n, 1, False)


class Plan(NamedTuple):
    """An index brought to one span an axis, the array index if any, and the result's new axes."""

    spans: tuple[Span, ...]
    gathers: tuple[tuple[int, Tensor], ...]  # (axis, indices), at most one with ndim > 0
    layout: tuple[int | None, ...]  # for each result item: an axis of x that stays, or None
    removed: frozenset[int]  # axes that an int has picked one position of
    front: range  # axes of the array, among those in the order of x, that go first in the result


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key] for ints, slices and integer arrays."""
    return _read(x, expand(x, key))


def _read(x: Tensor, items: Sequence[Any]) -> Tensor:
    """What `items` name, one for each axis of x beside Nones."""
    if (merged := merged_arrays(x, items)) is not None:
        return _read(merged.x, merged.items)
    plan = plan_index(x, items)
    t = apply_spans(x, plan.spans)
    kept = [i for i in range(t.ndim) if i not in plan.removed]
    if len(kept) != t.ndim:
        t = reshape(t, [t.shape[i] for i in kept])
    where = {a: k for k, a in enumerate(kept)}  # axis of x -> axis of t
    widths = dict.fromkeys(kept, 1)
    for axis, idx in plan.gathers:
        t = prim.gather(t, idx, axis=where[axis], batch=0, negative=True)
        widths[axis] = idx.ndim
        for a in where:
            if a > axis:
                where[a] += idx.ndim - 1
    shape: list[Size] = []
    for item in plan.layout:
        if item is None:
            shape.append(1)
        else:
            shape.extend(t.shape[where[item] : where[item] + widths[item]])
    return moveaxis(reshape(t, shape), plan.front, range(len(plan.front)))


def merged_arrays(x: Tensor, items: Sequence[Any]) -> Merged | None:
    """x and the items with several index arrays made one; None where there are fewer."""
    picks = {k: i for k, i in enumerate(items) if i is not None and not isinstance(i, slice)}
    if sum(not isinstance(i, (int, np.integer, Dim)) for i in picks.values()) < 2:
        return None
    axes = axes_at(items)
    arrays = {k: index_array("index", i, x.shape[axes[k]]) for k, i in picks.items()}
    return merge(x, items, arrays) if sum(i.ndim > 0 for i in arrays.values()) > 1 else None


def plan_index(x: Tensor, items: Sequence[Any]) -> Plan:
    """What the items take of each axis, and the axes of the result.

    Raises UsageError, ArgumentError, ShapeError and IndexOutOfRangeError for impossible ones.
    """
    spans: list[Span] = []
    gathers: list[tuple[int, Tensor]] = []
    layout: list[int | None] = []
    removed: set[int] = set()
    for item in items:
        axis = len(spans)
        if item is None:
            layout.append(None)
            continue
        n = x.shape[axis]
        if isinstance(item, slice):
            spans.append(_span(item, n))
            layout.append(axis)
        elif isinstance(item, (int, np.integer)):
            i = _position(x, axis, int(item))
            if i is None:  # only the call can tell whether it is inside
                check_range(int(item), i64)
                spans.append(Span(0, n, 1))
                gathers.append((axis, prim.constant(np.int64(item))))
                layout.append(axis)
            else:
                spans.append(Span(i, i + 1, 1))
                removed.add(axis)
        else:
            spans.append(Span(0, n, 1))
            gathers.append((axis, index_array("index", item, n)))
            layout.append(axis)
    return Plan(
        tuple(spans), tuple(gathers), tuple(layout), frozenset(removed),
        _front(items, layout, dict(gathers)),
    )


def _front(items: Sequence[Any], layout: list[int | None], indexed: dict[int, Tensor]) -> range:
    """The array's axes where something stands between it and an int; none otherwise."""
    at = 0
    for axis in layout:
        idx = None if axis is None else indexed.get(axis)
        if idx is None:
            at += 1
        elif idx.ndim:  # an int on a symbolic axis has none
            break
    else:
        return range(0)
    picked = [k for k, item in enumerate(items) if item is not None and not isinstance(item, slice)]
    apart = picked[-1] - picked[0] >= len(picked)
    return range(at, at + idx.ndim) if apart else range(0)


def expand(x: Tensor, key: Any) -> list[Any]:
    """The items of a key with `...` replaced by full slices, one per axis of x beside the Nones."""
    items = key if isinstance(key, tuple) else (key,)
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise UsageError("index: only one `...` may stand in an index", user_loc())
    used = 0
    for item in items:
        _check_item(item)
        used += item is not None and item is not Ellipsis
    if used > x.ndim:
        raise ShapeError(
            f"index: {x.type} has {x.ndim} axes, got {used} indices: {_describe(items)}", user_loc()
        )
    full = [slice(None)] * (x.ndim - used)
    at = dots[0] if dots else len(items)
    return [*items[:at], *full, *items[at + 1 :]]


def _check_item(item: Any) -> None:
    if item is None or item is Ellipsis or isinstance(item, (slice, Dim)) or type(item) is int:
        return
    if isinstance(item, (str, float)):
        raise UsageError(f"index: an index is an int, a slice, None, ... or an integer array, "
                         f"got {item!r}", user_loc())
    if (item if isinstance(item, Tensor) else _array("index", item)).dtype in (bool_, bool):
        raise UsageError(
            "index: boolean masks are not supported, because the size of the result would depend "
            "on data; use gx.where(mask, x, other), or gx.sum(gx.where(mask, x, 0)); to change x "
            "there, gx.where(mask, value, x)", user_loc(),
        )


def _array(op: str, item: Any) -> Array:
    return literal_array(item, what=f"{op}: an index")


def _describe(items: Any) -> str:
    def one(item: Any) -> str:
        if isinstance(item, slice):
            parts = [item.start, item.stop] + ([item.step] if item.step is not None else [])
            return ":".join("" if p is None else str(p) for p in parts)
        if isinstance(item, Tensor):
            return str(item.type)
        return "..." if item is Ellipsis else str(item)

    return f"[{', '.join(one(i) for i in items)}]"


def index_array(op: str, item: Any, n: Size) -> Tensor:
    """Integer indices as a Tensor; constant ones are checked against a known size."""
    if isinstance(item, Dim):
        return as_tensor(item)
    if isinstance(item, Tensor):
        if not item.dtype.is_int:
            raise UsageError(
                f"{op}: indices must be integers, got {item.type}; use t.astype('int64')",
                user_loc(),
            )
        return item
    array = _array(op, item)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{op}: indices must be integers, got {array.dtype}", user_loc())
    if isinstance(n, int) and array.size:
        bad = array[(array >= n) | (array < -n)]
        if bad.size:
            raise IndexOutOfRangeError(
                f"{op}: index {bad[0]} is out of range for an axis of size {n}", user_loc()
            )
    return prim.constant(array)


def _position(x: Tensor, axis: int, i: int) -> int | None:
    """i as 0..n-1, or None where n is symbolic."""
    n = x.shape[axis]
    if not isinstance(n, int):
        return None
    if not -n <= i < n:
        raise IndexOutOfRangeError(
            f"index: {i} is out of range for axis {axis} of {x.type}", user_loc()
        )
    return i % n


def _span(s: slice, n: Size) -> Span:
    """A Python slice on an axis of size n."""
    for part in (s.start, s.stop, s.step):
        if isinstance(part, Tensor):
            raise UsageError(
                "index: the bounds of a slice cannot be Tensors, because the size of the result "
                "would depend on data; use gx.take(x, start + gx.arange(length), axis=...)",
                user_loc(),
            )
        if part is not None and not isinstance(part, (int, Dim, np.integer)):
            raise UsageError(f"index: slice bounds are ints, got {part!r}", user_loc())
    step = 1 if s.step is None else s.step
    if isinstance(step, Dim) or step == 0:
        raise ArgumentError(f"index: the step of a slice must be a non-zero int, got {step}",
                            user_loc())
    step = int(step)
    if step > 0:
        return _forward(_edge(s.start, (False, 0)), _edge(s.stop, (True, 0)), step, n, False)
    # Position p is n-1-p on the reversed axis: from the front becomes from the back.
    start = (False, 0) if s.start is None else _mirror(_edge(s.start, (False, 0)))
    stop = (True, 0) if s.stop is None else _mirror(_edge(s.stop, (False, 0)))
    return _forward(start, stop, -step, n, True)


Edge = tuple[bool, Size]  # (counted from the end, distance)


def _edge(bound: Any, default: Edge) -> Edge:
    if bound is None:
        return default
    if isinstance(bound, Dim):
        if dims.is_nonnegative(-bound):
            raise ArgumentError(
                f"index: the bound {bound} of a slice is never inside, as sizes count from the "
                f"front; to count from the end, use x.shape[axis]{bound}", user_loc()
            )
        return (False, bound)
    return (True, -int(bound)) if bound < 0 else (False, int(bound))


def _mirror(edge: Edge) -> Edge:
    """The same edge on the reversed axis."""
    from_end, k = edge
    return (False, k - 1) if from_end else (True, k + 1)


def _clamped(edge: Edge, n: Size) -> Size:
    """The position of an edge within 0..n."""
    from_end, k = edge
    if from_end:
        return dims.maximum(n - k, 0)
    inside = k if dims.is_nonnegative(n - k) else n - dims.maximum(n - k, 0)  # min(k, n)
    return inside if dims.is_nonnegative(k) else dims.maximum(inside, 0)


def _forward(start: Edge, stop: Edge, step: int, n: Size, backwards: bool) -> Span:
    a = _clamped(start, n)
    if start[0] == stop[0]:
        apart = (start[1] - stop[1]) if start[0] else (stop[1] - start[1])
        if dims.is_nonnegative(apart):
            length = _clamped(stop, n) - a
        elif dims.is_nonnegative(-apart):
            length = 0
        elif not start[0] and all(map(dims.is_nonnegative, (start[1], n - stop[1]))):
            length = dims.maximum(apart, 0)  # the axis cuts neither edge
        else:
            length = dims.maximum(_clamped(stop, n) - a, 0)
    elif stop[0] and not start[0] and (stop[1] == 0 or dims.is_nonnegative(start[1])):
        length = dims.maximum(n - start[1] - stop[1], 0)
    else:
        length = dims.maximum(_clamped(stop, n) - a, 0)
    return Span(a, a + length, step, backwards)


def apply_spans(t: Tensor, spans: tuple[Span, ...]) -> Tensor:
    """t cut to one span on each axis; t itself where all are whole."""
    flipped = tuple(i for i, s in enumerate(spans) if s.backwards)
    if flipped:
        t = prim.reverse(t, axes=flipped)
    if all(s._replace(backwards=False).is_whole(n) for s, n in zip(spans, t.shape, strict=True)):
        return t
    return prim.slice(
        t, start=[s.start for s in spans], stop=[s.stop for s in spans],
        step=[s.step for s in spans],
    )
