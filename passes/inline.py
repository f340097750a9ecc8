"""Inlining: a `call` is replaced by its body.

    graph @f(%x: f32[4]) {
      %0: f32[4] = call %x {name="twice_plus_one"} body=@twice_plus_one(%a: f32[4]) {
        %0: f32[4] = add %a, %a
        %1: f32[] = constant 1.0
        %2: f32[4] = broadcast %1 {shape=(4), axes=()}
        %3: f32[4] = add %0, %2
        return %3
      }
      return %0
    }

becomes

    graph @f(%x: f32[4]) {
      %0: f32[4] = add %x, %x scope("twice_plus_one")
      %1: f32[] = constant 1.0 scope("twice_plus_one")
      %2: f32[4] = broadcast %1 {shape=(4), axes=()} scope("twice_plus_one")
      %3: f32[4] = add %0, %2 scope("twice_plus_one")
      return %3
    }

It runs first, so that everything after it sees through composites. The composite's name stays as
a scope for printing and drawing. A body is declared once and shared by all equal calls, so where
its nodes carry the line and scope of that first call, they get those of the call itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphc.ir import Builder, Graph, Node, Value, finish_as
from graphc.origins import NOWHERE, Origin
from graphc.passes.bodies import deep

CALL = "call"


@dataclass(slots=True)
class _Frame:
    """A graph being copied into the outermost one."""

    graph: Graph
    rest: Iterator[Node]
    env: dict[Value, Value]
    call: Node | None    # what the graph is the body of
    origin: Origin       # of that call, as seen from the outermost graph


def run(g: Graph) -> Graph:
    """g without calls, whatever their depth; the bodies of other regions too."""
    return deep(_inline(g), _inline)


def _inline(g: Graph) -> Graph:
    if all(n.op.name != CALL for n in g.nodes):
        return g
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    stack = [_Frame(g, iter(g.nodes), env, None, NOWHERE)]
    while stack:
        frame = stack[-1]
        n = next(frame.rest, None)
        if n is None:
            stack.pop()
            if frame.call is not None:
                results = [frame.env[o] for o in frame.graph.outputs]
                stack[-1].env.update(zip(frame.call.outs, results, strict=True))
        elif n.op.name == CALL:
            body: Graph = n.attrs["body"]
            inner = dict(zip(body.inputs, [frame.env[a] for a in n.args], strict=True))
            at = _place(frame, n)
            origin = Origin(at.loc, _join(at.scope, str(n.attrs["name"])))
            stack.append(_Frame(body, iter(body.nodes), inner, n, origin))
        else:
            _copy(b, frame, n)
    return finish_as(b, g, env)


def _copy(b: Builder, frame: _Frame, n: Node) -> None:
    args = tuple([frame.env[a] for a in n.args])
    if frame.call is None and args == n.args:
        outs = b.keep(n)
    else:
        # a copy even on the same operands: a body may be shared by several calls, and what is
        # unique (random bits, a barrier) is so in each of them
        outs = b.emit(n.op, args, _place(frame, n), **n.attrs)
    frame.env.update(zip(n.outs, outs, strict=True))


def _place(frame: _Frame, n: Node) -> Origin:
    """The origin of a node of the frame's graph, as seen from the outermost graph."""
    if frame.call is None:
        return n.origin
    inputs = frame.graph.inputs  # they were declared by the first call, at its line, in its scope
    first = inputs[0].node if inputs else None
    loc = n.loc if n.loc is not None and (first is None or n.loc != first.loc) else (
        frame.origin.loc
    )
    inner = n.scope
    if first is not None and first.scope and _join(inner, "").startswith(_join(first.scope, "")):
        inner = inner[len(first.scope) :].lstrip("/")
    scope = _join(frame.origin.scope, inner) if inner else frame.origin.scope
    return Origin(loc, scope, n.name)


def _join(outer: str, inner: str) -> str:
    return f"{outer}/{inner}" if outer else inner
