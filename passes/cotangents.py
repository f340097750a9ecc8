"""Sums of cotangents: what several consumers of a value hand back to it.

    pad(a, 0 .. 64 of 256) + pad(b, 64 .. 128 of 256) + c   ->   concat(a, b, zeros) + c

A value of which parts were used gets cotangents with zeros around. Those whose parts lie apart
along one axis are put side by side, not added: n parts of a whole cost one pass instead of n. Those
of gathers, rows added to zeros, are added to one array, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc import ir, prim
from graphc.ir import Value
from graphc.passes.roles import is_zeros
from graphc.types import TensorType


def add_up(parts: Sequence[Value]) -> Value:
    """The sum of one or more cotangents of one value, in their order but for parts put together."""
    by_axis: dict[int, list[tuple[int, int, int]]] = {}
    for k, p in enumerate(parts):
        found = _stretch(p)
        if found is not None:
            by_axis.setdefault(found[0], []).append((found[1], found[2], k))
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


def _stretch(v: Value) -> tuple[int, int, int] | None:
    """(axis, start, stop) of what is not padding, where v is padded with zeros along one axis."""
    n = v.node
    if n.op.name != "pad" or any(n.attrs["interior"]) or not _is_zero(n.args[1]):
        return None
    padded = [
        k for k, (low, high) in enumerate(zip(n.attrs["low"], n.attrs["high"], strict=True))
        if not (isinstance(low, int) and isinstance(high, int) and low == high == 0)
    ]
    if len(padded) != 1:
        return None
    start, size = n.attrs["low"][padded[0]], n.args[0].type.shape[padded[0]]
    if not isinstance(start, int) or not isinstance(size, int) or start < 0 or size < 1:
        return None
    if not isinstance(v.type.shape[padded[0]], int) or n.attrs["high"][padded[0]] < 0:
        return None
    return padded[0], start, start + size


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
