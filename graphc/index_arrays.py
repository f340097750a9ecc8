"""Several index arrays in one key, x[i, j]: brought to one array on one axis.

Their axes of x are made one axis, and positions on it are computed from theirs:

    x: (a, b, c), x[i, j]     is     reshape(x, (a * b, c))[i * b + j]

As in NumPy, ints beside arrays are arrays of no axes, all of them broadcast together, and where a
slice or None stands between them, their axes go first in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphc import prim
from graphc.convert import as_tensor, broadcast_args
from graphc.dims import Size, product
from graphc.manipulation import moveaxis, reshape
from graphc.tensor import Tensor
from graphc.types import Shape, TensorType, i64


class Merged(NamedTuple):
    """x with the indexed axes as one; `axes` of them were moved to the front if `apart`."""

    x: Tensor
    items: tuple[Any, ...]
    axes: tuple[int, ...]
    apart: bool
    shape: tuple[Size, ...]  # of x before its axes were merged, behind the move

    def restored(self, y: Tensor) -> Tensor:
        """y, of the type of the merged x, with the axes of the x that was merged."""
        y = reshape(y, self.shape)
        return moveaxis(y, range(len(self.axes)), self.axes) if self.apart else y


def axes_at(items: Sequence[Any]) -> list[int]:
    """The axis of x that stands at each item, the next one at a None."""
    return [sum(item is not None for item in items[:k]) for k in range(len(items))]


def merge(x: Tensor, items: Sequence[Any], arrays: dict[int, Tensor]) -> Merged:
    """`items` index all axes of x; `arrays` has those that are ints and arrays, by their place."""
    places = sorted(arrays)
    axes = tuple(axes_at(items)[k] for k in places)
    apart = places[-1] - places[0] >= len(places)
    t = moveaxis(x, axes, range(len(axes))) if apart else x
    first = 0 if apart else axes[0]
    sizes = t.shape[first : first + len(axes)]
    at = _joined([arrays[k] for k in places], sizes)
    rest = t.shape[first + len(axes) :]
    one = reshape(t, (*t.shape[:first], product(sizes), *rest))
    others = [item for k, item in enumerate(items) if k not in arrays]
    where = 0 if apart else places[0]
    return Merged(one, (*others[:where], at, *others[where:]), axes, apart, t.shape)


def _joined(indices: Sequence[Tensor], sizes: Sequence[Size]) -> Tensor:
    """Positions on axes of `sizes` as positions on their product.

    A position of 0..n-1 is itself: looking it up counts it from 0 on, and checks it on its axis.
    """
    at: Tensor | None = None
    for i, n in zip(broadcast_args("index", *indices), sizes, strict=True):
        inside = prim.gather(prim.iota(i64, (n,), 0), i, axis=0, negative=True)
        at = inside if at is None else prim.add(prim.mul(at, _extent(n, at.shape)), inside)
    assert at is not None
    return at


def _extent(n: Size, shape: Shape) -> Tensor:
    """The number n in `shape`."""
    if isinstance(n, int):
        return prim.full(TensorType(i64, shape), n)
    return prim.broadcast(as_tensor(n), shape, ())
