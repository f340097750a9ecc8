"""Arguments and results that hold Tensors: taken apart into Tensors and a form, and put together.

Lists, tuples and dicts are walked; Tensors and ndarrays are the leaves; everything else is static
and part of the form. Forms are hashable, so they can be keys of a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.convert import as_tensor
from graphc.errors import UsageError, user_loc
from graphc.tensor import Tensor


class Leaf:
    """Where a Tensor stands."""

    def __repr__(self) -> str:
        return "Tensor"


LEAF = Leaf()


class Static:
    """A static value; equal when type and value are, so that 1 is not 1.0 and 0.0 not -0.0."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any):
        self.value = value
        self._key = (type(value), value.hex() if isinstance(value, float) else value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Container(NamedTuple):
    """A list, tuple (named ones too) or dict of forms."""

    kind: type
    keys: tuple[Any, ...]
    items: tuple[Any, ...]


def take_apart(what: str, tree: Any, leaves: list[Tensor]) -> Any:
    """The form of `tree`; its Tensors are appended to `leaves` (ndarrays as constants).

    Raises UsageError, which says `what`, for a static value that is not hashable.
    """
    if isinstance(tree, (Tensor, np.ndarray)):
        leaves.append(as_tensor(tree))
        return LEAF
    if isinstance(tree, (list, tuple)):
        return Container(type(tree), (), tuple([take_apart(what, t, leaves) for t in tree]))
    if isinstance(tree, dict):
        items = tuple([take_apart(f"{what}[{k!r}]", t, leaves) for k, t in tree.items()])
        return Container(dict, tuple(tree), items)
    try:
        hash(tree)
    except TypeError:
        raise UsageError(
            f"{what}: static arguments must be hashable, got {type(tree).__name__}", user_loc()
        ) from None
    return Static(tree)


def put_together(form: Any, leaves: Iterator[Tensor]) -> Any:
    """The tree of a form, with `leaves` in order."""
    if form is LEAF:
        return next(leaves)
    if isinstance(form, Static):
        return form.value
    items = [put_together(item, leaves) for item in form.items]
    if form.kind is dict:
        return dict(zip(form.keys, items, strict=True))
    return form.kind(*items) if hasattr(form.kind, "_fields") else form.kind(items)


def results_apart(what: str, tree: Any) -> tuple[list[Tensor], Any]:
    """The Tensors and the form of what a function returned; UsageError for anything else in it."""
    leaves: list[Tensor] = []
    form = take_apart(what, tree, leaves)
    stack: list[Any] = [form]
    while stack:
        f = stack.pop()
        if isinstance(f, Static):
            raise UsageError(
                f"{what}: the function must return a Tensor, or lists, tuples and dicts of "
                f"Tensors, got {type(f.value).__name__}", user_loc(),
            )
        if isinstance(f, Container):
            stack.extend(f.items)
    return leaves, form


def leaf_names(names: Sequence[str], forms: Sequence[Any]) -> list[str]:
    """A name for every leaf of `forms`: the name of its form, numbered where it has several."""
    out: list[str] = []
    for name, form in zip(names, forms, strict=True):
        n = count_leaves(form)
        out += [name] if form is LEAF else [f"{name}{i}" for i in range(n)]
    return out


def count_leaves(form: Any) -> int:
    """How many Tensors a form takes."""
    if isinstance(form, Container):
        return sum(count_leaves(item) for item in form.items)
    return int(form is LEAF)
