"""What passes share: graphs inside graphs, elements of constants, the garbage collector paused."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from graphc.errors import Loc
from graphc.ir import Builder, Graph, Literal, Node, Value, rebuild
from graphc.ops.row import OPS, Kind
from graphc.origins import Origin
from graphc.text.literals import MissingLiteral
from graphc.types import Array, TensorType


def operand(name: str, t: TensorType, loc: Loc | None = None) -> Value:
    """An input of a body."""
    return Node(OPS["input"], (), {"name": name, "type": t}, [t], Origin(loc)).out


def barrier_ids(g: Graph) -> Iterator[int]:
    """Numbers that no barrier of g has."""
    return count(1 + max((n.attrs["id"] for n in g.nodes if n.op.name == "barrier"), default=0))


def bodies_in(g: Graph) -> list[Graph]:
    """The graphs that nodes of g carry."""
    return [body for n in g.nodes if n.op.kind is Kind.REGION for body in n.bodies]


def graphs_in(g: Graph) -> Iterator[Graph]:
    """g and all graphs inside it, one that several nodes share as often as they do."""
    stack = [g]
    while stack:
        graph = stack.pop()
        yield graph
        stack += bodies_in(graph)


def deep(g: Graph, step: Callable[[Graph], Graph]) -> Graph:
    """g after `step` on every graph inside it, innermost first, and then on g itself.

    A body that several nodes share is visited once and stays shared.
    """
    done: dict[Graph, Graph] = {}
    stack = [g]
    while stack:
        graph = stack[-1]
        inner = bodies_in(graph)
        todo = [body for body in inner if body not in done]
        if todo:
            stack += reversed(todo)
            continue
        stack.pop()
        if graph not in done:
            changed = any(done[body] is not body for body in inner)
            done[graph] = step(_exchange(graph, done) if changed else graph)
    return done[g]


def _exchange(g: Graph, new: Mapping[Graph, Graph]) -> Graph:
    """g with the graphs inside its nodes replaced."""

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if n.op.kind is not Kind.REGION:
            return None
        return b.emit(n.op, args, n, **with_bodies(n.attrs, new))

    return rebuild(g, rewrite)


def with_bodies(attrs: Mapping[str, Any], new: Mapping[Graph, Graph]) -> dict[str, Any]:
    """The attributes with graphs exchanged."""
    return {k: new.get(a, a) if isinstance(a, Graph) else a for k, a in attrs.items()}


def array_of(literal: Literal) -> Array | None:
    """A constant's elements; None where the graph was read without its .npz file."""
    return None if isinstance(literal, MissingLiteral) else literal.array


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection: it would walk the whole growing graph again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
