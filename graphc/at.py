"""x.at[key].set(v) and .add(v): changed elements in a new Tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import dims, prim
from graphc.convert import ArrayLike, as_tensor, broadcast_to, common_dtype
from graphc.dims import Dim, Size
from graphc.errors import UsageError, user_loc
from graphc.indexing import Span, apply_spans, expand, getitem, merged_arrays, plan_index
from graphc.manipulation import moveaxis, reshape
from graphc.tensor import Tensor
from graphc.types import bool_


class At:
    """`x.at[key]`: what x[key] names, to be changed in a new Tensor."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor):
        self._x = x

    def __getitem__(self, key: Any) -> Updater:
        return Updater(self._x, key)


class Updater:
    """The changes of `x.at[key]`; each gives a new Tensor of x's type."""

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any):
        self._x, self._key = x, key

    def get(self) -> Tensor:
        """x[key]"""
        return getitem(self._x, self._key)

    def set(self, value: ArrayLike) -> Tensor:
        """x with x[key] replaced; where an array names a position twice, the last wins."""
        return self._update("set", value)

    def add(self, value: ArrayLike) -> Tensor:
        """x with `value` added to x[key]; a position named twice takes both."""
        return self._update("add", value)

    def subtract(self, value: ArrayLike) -> Tensor:
        """x with `value` subtracted from x[key]."""
        return self._update("add", prim.neg(self._operand(value)))

    def multiply(self, value: ArrayLike) -> Tensor:
        """x with x[key] multiplied by `value`; for indices that name no position twice."""
        return self._update("set", self.get() * value)

    def _operand(self, value: ArrayLike) -> Tensor:
        x = self._x
        dtype = common_dtype(x, value)
        if dtype is not x.dtype and not (dtype.is_float and x.dtype.is_float):
            raise UsageError(
                f"at: the value must fit {x.dtype.long}, got {dtype.long}; cast one of them",
                user_loc(),
            )
        return as_tensor(value, x.dtype)

    def _update(self, what: str, value: ArrayLike) -> Tensor:
        return _changed(what, self._x, expand(self._x, self._key), self._operand(value))


def _changed(what: str, x: Tensor, items: Sequence[Any], u: Tensor) -> Tensor:
    """x with u put (or added) at what the items name."""
    if (merged := merged_arrays(x, items)) is not None:
        return merged.restored(_changed(what, merged.x, merged.items, u))
    plan = plan_index(x, items)
    indexed = dict(plan.gathers)
    shape: list[Size] = []  # of x[key]
    inner: list[Size] = []  # of x[key] with every axis of x still there
    for item in plan.layout:
        if item is None:
            shape.append(1)
        else:
            shape.extend(indexed[item].shape if item in indexed else [plan.spans[item].length])
    for axis, span in enumerate(plan.spans):
        inner.extend(indexed[axis].shape if axis in indexed else [span.length])
    first = [shape[i] for i in plan.front]
    rest = [s for i, s in enumerate(shape) if i not in plan.front]
    u = moveaxis(broadcast_to(u, first + rest, op="at"), range(len(first)), plan.front)
    u = reshape(u, inner)
    if not indexed:
        return _write(what, x, u, plan.spans)
    part = apply_spans(x, plan.spans)
    new = _put(what, part, sorted(indexed.items(), key=lambda item: item[1].ndim), u)
    return new if part is x else _write("set", x, new, plan.spans)


def _put(what: str, x: Tensor, indexed: list[tuple[int, Tensor]], u: Tensor) -> Tensor:
    """x with u put (or added) at indices on some axes, of which only the last may be an array."""
    (axis, idx), *rest = indexed
    if rest:  # the changed slice of a scalar index goes back as a whole
        part = prim.gather(x, idx, axis=axis, batch=0, negative=True)
        inner = [(a - (a > axis), i) for a, i in rest]
        return prim.scatter(x, idx, _put(what, part, inner, u), axis=axis, batch=0, negative=True)
    scatter = prim.scatter if what == "set" else prim.scatter_add
    return scatter(x, idx, u, axis=axis, batch=0, negative=True)


def _write(what: str, x: Tensor, u: Tensor, spans: tuple[Span, ...]) -> Tensor:
    """x with u put (or added) where the spans point."""
    flipped = tuple(i for i, s in enumerate(spans) if s.backwards)
    if flipped:
        out = _write(what, prim.reverse(x, axes=flipped), u,
                     tuple(s._replace(backwards=False) for s in spans))
        return prim.reverse(out, axes=flipped)
    if what == "set" and all(s.step == 1 for s in spans):
        return prim.update_slice(x, u, start=[s.start for s in spans])
    placed = _placed(u, x, spans)
    if what == "add":
        return prim.add(x, placed)
    ones = prim.full(u.type.with_dtype(bool_), True)
    return prim.select(_placed(ones, x, spans), placed, x)


def _placed(u: Tensor, x: Tensor, spans: tuple[Span, ...]) -> Tensor:
    """u at its positions within zeros of x's shape."""
    used = [(m - 1) * s.step + 1 for m, s in zip(u.shape, spans, strict=True)]
    used = [dims.maximum(n, 0) if isinstance(n, Dim) else max(n, 0) for n in used]
    high = [n - s.start - k for n, s, k in zip(x.shape, spans, used, strict=True)]
    zero = prim.full(u.type.with_shape(()), -0.0 if u.dtype.is_float else 0)  # -0.0 + -0.0 is -0.0
    y = prim.pad(
        u, zero, low=[s.start for s in spans], high=high, interior=[s.step - 1 for s in spans],
    )
    return y if y.shape == x.shape else prim.reshape(y, shape=x.shape, checked=True)
