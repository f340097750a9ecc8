"""What the batch (vmap) rules share: a batched operand carries the new axis in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphc import prim
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.tensor import Tensor


def add_batch(size: Size, x: Tensor) -> Tensor:
    """x repeated along a new axis 0 of `size`."""
    return prim.broadcast(x, (size, *x.shape), tuple(range(1, x.ndim + 1)))


def broadcast_to_batch(size: Size, batched: Sequence[bool], xs: Sequence[Tensor]) -> list[Tensor]:
    """Every operand with the new axis."""
    return [x if b else add_batch(size, x) for x, b in zip(xs, batched, strict=True)]


def move_axis_to_front(x: Tensor, axis: int) -> Tensor:
    if axis == 0:
        return x
    return prim.transpose(x, (axis, *(i for i in range(x.ndim) if i != axis)))


def elementwise_batch(name: str) -> Callable[..., Any]:
    """The rule of every elementwise op: repeat what is unbatched, then the op itself."""

    def rule(size: Size, batched: Sequence[bool], *xs: Tensor, **attrs: Any) -> Tensor:
        return prim.one(name, *broadcast_to_batch(size, batched, xs), **attrs)

    return rule


def shift(axes: Sequence[int]) -> tuple[int, ...]:
    """Axes of an operand as axes of the batched operand."""
    return tuple(a + 1 for a in axes)
