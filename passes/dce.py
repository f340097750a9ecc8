"""Dead code: what no result needs goes, inside bodies too.

    graph @f(%x: f32[4], %y: f32[4]) {
      %0: f32[4] = exp %x
      %1: f32[4], %2: f32[4] = call %x, %y {name="pair"} body=@pair(%a: f32[4], %b: f32[4]) {
        %0: f32[4] = neg %a
        %1: f32[4] = mul %a, %b
        return %0, %1
      }
      return %1
    }

becomes

    graph @f(%x: f32[4], %y: f32[4]) {
      %0: f32[4] = call %x {name="pair"} body=@pair(%a: f32[4]) {
        %0: f32[4] = neg %a
        return %0
      }
      return %0
    }

A node that could fail at run time is dead like any other when nothing uses it. Inputs of the
outermost graph stay: they are its signature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from graphc.ir import Builder, Graph, Node, Value, finish_as


class _Pruned(NamedTuple):
    """A body without its unused results and parameters, and which of them are left."""

    body: Graph
    results: tuple[int, ...]
    params: tuple[int, ...]


def run(g: Graph) -> Graph:
    """g without dead nodes; regions without dead results and parameters."""
    return _run(g, {})


def _run(g: Graph, cache: dict[tuple[Graph, tuple[int, ...]], _Pruned]) -> Graph:
    live = set(g.results)
    pruned: dict[Node, _Pruned] = {}
    kept: list[Node] = []
    for n in reversed(g.nodes):
        if live.isdisjoint(n.outs):
            continue
        kept.append(n)
        if len(n.bodies) == 1:
            used = tuple(i for i, o in enumerate(n.outs) if o in live)
            pruned[n] = p = _prune(n.bodies[0], used, cache)
            live.update(n.args[i] for i in p.params)
        else:
            live.update(n.args)
    kept.reverse()
    if len(kept) == len(g.nodes) and not any(_is_changed(n, p) for n, p in pruned.items()):
        return g
    return _emit(g, kept, pruned)


def _prune(
    body: Graph, used: tuple[int, ...], cache: dict[tuple[Graph, tuple[int, ...]], _Pruned]
) -> _Pruned:
    """The body for the results in `used`, itself free of dead code."""
    found = cache.get((body, used))
    if found is None:
        outputs = [body.outputs[i] for i in used]
        names = [body.output_names[i] for i in used]
        all_used = len(outputs) == len(body.outputs)
        new = _run(
            body if all_used
            else Graph(body.name, body.inputs, body.nodes, outputs, (), names), cache,
        )  # fmt: skip
        needed = set(new.outputs)
        for n in new.nodes:
            needed.update(n.args)
        params = tuple(i for i, v in enumerate(new.inputs) if v in needed)
        if len(params) < len(new.inputs):
            inputs = [new.inputs[i] for i in params]
            new = Graph(new.name, inputs, new.nodes, new.outputs, (), new.output_names)
        found = cache[body, used] = _Pruned(new, used, params)
    return found


def _is_changed(n: Node, p: _Pruned) -> bool:
    """Whether a body lost anything."""
    return p.body not in n.attrs.values()


def _emit(g: Graph, kept: list[Node], pruned: dict[Node, _Pruned]) -> Graph:
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for n in kept:
        p = pruned.get(n)
        if p is not None and _is_changed(n, p):
            args = tuple([env[n.args[i]] for i in p.params])
            attrs: dict[str, Any] = {
                k: p.body if isinstance(a, Graph) else a for k, a in n.attrs.items()
            }
            outs = b.emit(n.op, args, n, **attrs)
            env.update(zip([n.outs[i] for i in p.results], outs, strict=True))
        else:
            b.repeat(n, env)
    return finish_as(b, g, env)
