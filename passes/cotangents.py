"""Sums of cotangents: what several consumers of a value hand back to it.

    pad(a, 0 .. 64 of 256) + pad(b, 64 .. 128 of 256) + c   ->   concat(a, b, zeros) + c

A value of which parts were used gets cotangents with zeros around. Those whose parts lie apart
along one axis are put side by side, not added: n parts of a whole cost one pass instead of n. Parts
of parts, as x[0, 1] and x[2, 0] are, are put together in each row, and then the rows. Cotangents of
gathers, rows added to zeros, are added to one array, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from graphc import ir, prim
from graphc.dims import Size
from graphc.ir import Value
from graphc.passes.roles import is_zeros
from graphc.types import TensorType


def add_up(parts: Sequence[Value]) -> Value:
    """The sum of one or more cotangents of one value, in their order but for parts put together."""
    parts = _by_rows(parts)
    by_axis: dict[int, list[tuple[int, int, int]]] = {}
    for k, p in enumerate(parts):
        box = _box(p)
        if len(box) == 1:
            ((axis, (start, stop)),) = box.items()
            by_axis.setdefault(axis, []).append((start, stop, k))
    joined: set[int] = set()  # places in `parts`: x + x hands one value back twice
    sums: list[Value] = []
    for axis, stretches in by_axis.items():
        apart: list[tuple[int, int, int]] = []
        for start, stop, k in sorted(stretches):
            if not apart or start >= apart[-1][1]:
                apart.append((start, stop, k))
        if len(apart) > 1:
            joined.update(k for _, _, k in apart)
            sums.append(_side_by_side(axis, [(a, b, parts[k]) for a, b, k in apart]))
    sums += [p for k, p in enumerate(parts) if k not in joined]
    total, *others = _in_one_array(sums)
    for s in others:
        (total,) = ir.apply("add", [total, s])
    return total


def _by_rows(parts: Sequence[Value]) -> Sequence[Value]:
    """The terms; those that are padded along several axes as sums of rows, padded along one, where
    these lie apart. Stencils, the parts of which overlap, stay as they are.

        pad(a, x[0, 1]) + pad(b, x[0, 0]) + pad(c, x[3, 1])  ->  pad([b, a], x[0]) + ..
    """
    boxes = [_box(p) for p in parts]
    several = [box for box in boxes if len(box) > 1]
    if len(several) < 2:
        return parts
    for axis in several[0]:
        rows = sorted({box[axis] for box in several if axis in box})
        apart = len(rows) > 1 and all(a[1] <= b[0] for a, b in pairwise(rows))
        if apart and all(axis in box for box in several):
            break
    else:
        return parts
    by_row: dict[tuple[int, int], list[Value]] = {row: [] for row in rows}
    others: list[Value] = []
    for p, box in zip(parts, boxes, strict=True):
        by_row.get(box.get(axis, (0, 0)), others).append(p)
    found: list[Value] = []
    for (start, stop), members in by_row.items():
        inside = add_up([_unpadded(p, axis) for p in members])
        around = [(0, 0)] * len(inside.type.shape)
        size = parts[0].type.shape[axis]
        assert isinstance(size, int)
        around[axis] = start, size - stop
        found.append(_padded(inside, members[0].node.args[1], around))
    return [*found, *others]


def _unpadded(v: Value, axis: int) -> Value:
    """What v pads along an axis, padded along the others as v is."""
    x, fill = v.node.args
    around = list(zip(v.node.attrs["low"], v.node.attrs["high"], strict=True))
    around[axis] = 0, 0
    return _padded(x, fill, around)


def _padded(x: Value, fill: Value, around: Sequence[tuple[Size, Size]]) -> Value:
    if all(count == 0 for both in around for count in both):
        return x
    low, high = zip(*around, strict=True)
    return ir.apply("pad", [x, fill], low=low, high=high, interior=(0,) * len(low))[0]


def _in_one_array(sums: Sequence[Value]) -> list[Value]:
    """The terms; of those that add rows to zeros, each adds its own to the one before instead."""
    found: list[Value] = []
    place = -1  # of these in `found`
    for s in sums:
        n = s.node
        if n.op.name != "scatter_add" or not is_zeros(n.args[0]):
            found.append(s)
        elif place < 0:
            place = len(found)
            found.append(s)
        else:
            (found[place],) = ir.apply("scatter_add", [found[place], *n.args[1:]], **n.attrs)
    return found


def _box(v: Value) -> dict[int, tuple[int, int]]:
    """Where each axis begins and ends to be what is not padding, where v is padded with zeros."""
    n = v.node
    if n.op.name != "pad" or any(n.attrs["interior"]) or not _is_zero(n.args[1]):
        return {}
    box: dict[int, tuple[int, int]] = {}
    for k, (low, high) in enumerate(zip(n.attrs["low"], n.attrs["high"], strict=True)):
        size, whole = n.args[0].type.shape[k], v.type.shape[k]
        if not (isinstance(low, int) and isinstance(high, int)):
            return {}
        if low == high == 0:
            continue
        if low < 0 or high < 0 or not (isinstance(size, int) and isinstance(whole, int) and size):
            return {}
        box[k] = low, low + size
    return box


def _is_zero(fill: Value) -> bool:
    """Whether a pad fills with the number 0."""
    value = fill.node.attrs.get("value")
    return value is not None and fill.type.shape == () and not value.array.any()


def _side_by_side(axis: int, stretches: Sequence[tuple[int, int, Value]]) -> Value:
    """The operands of pads, in the order of their places, with zeros between and around."""
    whole = stretches[0][2].type
    pieces: list[Value] = []
    at = 0

    def zeros(count: int) -> None:
        if count:
            shape = (*whole.shape[:axis], count, *whole.shape[axis + 1 :])
            pieces.append(prim.full(TensorType(whole.dtype, shape), 0)._value)

    for start, stop, p in stretches:
        zeros(start - at)
        pieces.append(p.node.args[0])
        at = stop
    size = whole.shape[axis]
    assert isinstance(size, int)
    zeros(size - at)
    return ir.apply("concat", pieces, axis=axis)[0]
