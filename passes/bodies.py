"""What passes share: graphs inside graphs, and the elements of constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.ir import Graph, Node, rebuild
from graphc.ops.row import Kind
from graphc.text.literals import MissingLiteral


def body_attrs(n: Node) -> dict[str, Graph]:
    """The attributes of n that are graphs."""
    if n.op.kind is not Kind.REGION:
        return {}
    return {k: a for k, a in n.attrs.items() if isinstance(a, Graph)}


def map_bodies(g: Graph, fn: Callable[[Graph], Graph]) -> Graph:
    """g with fn applied to the body of every region node; g itself where nothing changed.

    A body that several nodes share is mapped once and stays shared.
    """
    done: dict[Graph, Graph] = {}
    for n in g.nodes:
        for body in body_attrs(n).values():
            if body not in done:
                done[body] = fn(body)
    if all(new is old for old, new in done.items()):
        return g

    def rewrite(b: Any, n: Node, args: Any) -> Any:
        if n.op.kind is not Kind.REGION:
            return None
        return b.emit(n.op, args, n, **with_bodies(n.attrs, done))

    return rebuild(g, rewrite)


def with_bodies(attrs: Mapping[str, Any], new: Mapping[Graph, Graph]) -> dict[str, Any]:
    """The attributes with graphs exchanged."""
    return {k: new.get(a, a) if isinstance(a, Graph) else a for k, a in attrs.items()}


def array_of(constant: Node) -> np.ndarray[Any, Any] | None:
    """A constant's elements; None where the graph was read without its .npz file."""
    literal = constant.attrs["value"]
    return None if isinstance(literal, MissingLiteral) else literal.array
