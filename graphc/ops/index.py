"""Rows whose positions come from data: gather, scatter, scatter_add.

All three share one geometry. The first `batch` axes are common to operand and indices; `axis` is
the indexed axis of the operand. Gathered elements (and the updates u) have the shape

    x.shape[:axis] + idx.shape[batch:] + x.shape[axis + 1:]

An index outside the axis is an error at run time; `negative=True` accepts -n..n-1. Where nothing
is gathered or written, since another axis is empty, indices are not looked at. An empty axis has
no place for one update, whatever the index: sizes say so before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import prim
from graphc.dims import Size, minimum
from graphc.errors import IndexOutOfRangeError
from graphc.ops.batching import broadcast_to_batch, move_axis_to_front
from graphc.ops.numeric import widened
from graphc.ops.row import Attrs, Condition, Grads, Kind, op
from graphc.ops.typerules import NUMBER, Types, bad_dtype, bad_shape, check_dtype, is_axis
from graphc.types import Array, Shape, TensorType, i64

if TYPE_CHECKING:
    from graphc.tensor import Tensor

ATTRS = ("axis", "batch", "negative")


def _picked(name: str, types: Types, attrs: Attrs) -> Shape:
    """The shape of gathered elements, after the checks that the three rows share."""
    (x, idx), axis, batch = types[:2], attrs["axis"], attrs["batch"]
    where = f" with axis={axis}, batch={batch}"
    if not idx.dtype.is_int:
        bad_dtype(name, "indices must be integers", types)
    if not is_axis(axis, x.ndim):
        bad_shape(name, f"axis must be in 0..{x.ndim - 1}", types, where)
    if not 0 <= batch <= min(axis, idx.ndim):
        bad_shape(name, "batch must be at most axis and the rank of the indices", types, where)
    if x.shape[:batch] != idx.shape[:batch]:
        bad_shape(name, "batch sizes must be equal", types, where)
    return x.shape[:axis] + idx.shape[batch:] + x.shape[axis + 1 :]


def _gather_type(types: Types, attrs: Attrs) -> TensorType:
    return types[0].with_shape(_picked("gather", types, attrs))


def _scatter_type(name: str) -> Any:
    def rule(types: Types, attrs: Attrs) -> TensorType:
        x, _, u = types
        shape = _picked(name, types, attrs)
        if u.dtype is not x.dtype:
            bad_dtype(name, "operand and updates must have one dtype", types)
        if u.shape != shape:
            expected = x.with_shape(shape)
            bad_shape(name, f"updates must be {expected}", types)
        if name == "scatter_add":
            check_dtype(name, NUMBER, types, (x,))
        return x

    return rule


def _scatter_conditions(types: Types, attrs: Attrs) -> list[Condition]:
    """One update per row makes each element from its old value: of an empty axis none is made, and
    nothing would look at the index."""
    x, idx, u = types
    n = x.shape[attrs["axis"]]
    if idx.ndim != attrs["batch"] or (isinstance(n, int) and n > 0):
        return []
    return [Condition(n - minimum(u.size, 1), "an empty axis has no place for an update")]


# References


def _positions(name: str, idx: Array, n: int, negative: bool) -> Array:
    """Indices as 0..n-1, or an error that names the lowest failing position."""
    bad = (idx >= n) | ((idx < -n) if negative else (idx < 0))
    if bad.any():
        flat = int(np.argmax(bad))
        at = ",".join(str(int(i)) for i in np.unravel_index(flat, idx.shape)) if idx.ndim else ""
        allowed = f"{-n}..{n - 1}" if negative else f"0..{n - 1}"
        raise IndexOutOfRangeError(
            f"{name}: index {idx.reshape(-1)[flat]} at [{at}] is out of range for an axis of size "
            f"{n} (allowed: {allowed})"
        )
    wide = idx.astype(np.int64)
    return np.where(wide < 0, wide + n, wide)


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


class _Geometry:
    """x as (batch, outer, n, inner) and idx as (batch, k)."""

    def __init__(self, name: str, x: Array, idx: Array, axis: int, batch: int, negative: bool):
        self.batch, self.outer = _count(x.shape[:batch]), _count(x.shape[batch:axis])
        self.n, self.inner = x.shape[axis], _count(x.shape[axis + 1 :])
        self.picked = x.shape[:axis] + idx.shape[batch:] + x.shape[axis + 1 :]
        if 0 in self.picked:
            idx = np.empty((*x.shape[:batch], 0), idx.dtype)
        self.k = _count(idx.shape[batch:])
        self.idx = _positions(name, idx, self.n, negative).reshape(self.batch, self.k)
        self.rows = np.arange(self.batch)[:, None]

    def operand(self, x: Array) -> Array:
        """x as (batch, n, outer, inner)."""
        return x.reshape(self.batch, self.outer, self.n, self.inner).transpose(0, 2, 1, 3)

    def updates(self, u: Array) -> Array:
        """u as (batch, k, outer, inner)."""
        return u.reshape(self.batch, self.outer, self.k, self.inner).transpose(0, 2, 1, 3)


def _gather(x: Array, idx: Array, axis: int, batch: int, negative: bool) -> Array:
    g = _Geometry("gather", x, idx, axis, batch, negative)
    found = g.operand(x)[g.rows, g.idx]
    return np.ascontiguousarray(found.transpose(0, 2, 1, 3)).reshape(g.picked)


def _scatter(x: Array, idx: Array, u: Array, axis: int, batch: int, negative: bool) -> Array:
    g = _Geometry("scatter", x, idx, axis, batch, negative)
    out = x.copy(order="C")
    target, updates = g.operand(out), g.updates(u)
    for j in range(g.k):  # in order: the last write wins
        target[g.rows[:, 0], g.idx[:, j]] = updates[:, j]
    return out


def _scatter_add(x: Array, idx: Array, u: Array, axis: int, batch: int, negative: bool) -> Array:
    g = _Geometry("scatter_add", x, idx, axis, batch, negative)
    out = np.array(widened(x), order="C")
    with np.errstate(all="ignore"):
        np.add.at(g.operand(out), (g.rows, g.idx), g.updates(widened(u)))
        return out.astype(x.dtype)


# Gradients


def _gather_vjp(ct: Tensor, y: Tensor, x: Tensor, idx: Tensor, **where: Any) -> Grads:
    return [prim.scatter_add(prim.full(x.type.with_dtype(ct.dtype), 0), idx, ct, **where), None]


def _scatter_add_vjp(
    ct: Tensor, y: Tensor, x: Tensor, idx: Tensor, u: Tensor, **where: Any
) -> Grads:
    return [ct, None, prim.gather(ct, idx, **where)]


def _scatter_vjp(
    ct: Tensor, y: Tensor, x: Tensor, idx: Tensor, u: Tensor, axis: int, batch: int, negative: bool
) -> Grads:
    """An update gets the cotangent of its place if it is the one that was written last there.

    To find out, the updates' own numbers are scattered and gathered back.
    """
    where: dict[str, Any] = {"axis": axis, "batch": batch, "negative": negative}
    number = _numbers(idx, u.shape, axis, batch)
    written = prim.scatter(prim.full(x.type.with_dtype(i64), 0), idx, number, **where)
    last = prim.gather(written, idx, **where)
    kept = prim.gather(ct, idx, **where)
    zero = prim.full_like(kept, 0)
    return [
        prim.scatter(ct, idx, zero, **where),
        None,
        prim.select(prim.equal(last, number), kept, zero),
    ]


def _numbers(idx: Tensor, shape: Shape, axis: int, batch: int) -> Tensor:
    """The row-major number of each index within its batch entry, spread to the updates' shape."""
    count: Size = 1
    rank = idx.ndim - batch
    out = prim.full(TensorType(i64, shape), 0)
    for k in reversed(range(rank)):
        place = prim.iota(i64, shape, axis + k)
        scale = prim.broadcast(prim.dim(count), shape, ())
        out = prim.add(out, prim.mul(place, scale))
        count = count * idx.shape[batch + k]
    return out


# Batching


def _index_batch(name: str) -> Any:
    """The new axis becomes a batch axis; where only one side has it, nothing is repeated."""

    def rule(
        size: Size, batched: Sequence[bool], *xs: Tensor, axis: int, batch: int, negative: bool
    ) -> Tensor:
        if batch == 0 and not batched[1]:  # same positions everywhere: the new axis is free
            x, idx, *u = xs
            x, *u = broadcast_to_batch(size, (batched[0], *batched[2:]), (x, *u))
            return prim.one(name, x, idx, *u, axis=axis + 1, batch=0, negative=negative)
        if batch == 0 and name == "gather" and not batched[0]:  # e.g. an embedding table
            out = prim.gather(xs[0], xs[1], axis=axis, batch=0, negative=negative)
            return move_axis_to_front(out, axis)
        ys = broadcast_to_batch(size, batched, xs)
        return prim.one(name, *ys, axis=axis + 1, batch=batch + 1, negative=negative)

    return rule


op(
    "gather", Kind.INDEX, 2, attrs=ATTRS, fallible=True,
    type=_gather_type, ref=_gather, vjp=_gather_vjp, batch=_index_batch("gather"),
)
op(
    "scatter", Kind.INDEX, 3, attrs=ATTRS, fallible=True,
    type=_scatter_type("scatter"), ref=_scatter, vjp=_scatter_vjp, batch=_index_batch("scatter"),
    conditions=_scatter_conditions,
)
op(
    "scatter_add", Kind.INDEX, 3, attrs=ATTRS, fallible=True,
    type=_scatter_type("scatter_add"), ref=_scatter_add, vjp=_scatter_add_vjp,
    batch=_index_batch("scatter_add"), conditions=_scatter_conditions,
)
