"""What of 16-bit floats must not round on the way: computed in f32, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphc import prim
from graphc.ops.row import Grads

if TYPE_CHECKING:
    from graphc.tensor import Tensor


def through_f32(name: str, vjp: Callable[..., Grads]) -> Callable[..., Grads]:
    """The vjp of the op `name`; of 16-bit floats in f32 from its result on, which is made anew."""

    def rule(ct: Tensor, y: Tensor, *xs: Tensor, **attrs: Any) -> Grads:
        dtype = ct.dtype
        if dtype.bits > 16:
            return vjp(ct, y, *xs, **attrs)
        wide = [prim.cast(t, dtype.compute) for t in (ct, *xs)]
        found = vjp(wide[0], prim.one(name, *wide[1:], **attrs), *wide[1:], **attrs)
        return [None if g is None else prim.cast(g, dtype) for g in found]

    return rule
