"""Copies of declared nodes on other operands: substitution, and a call's body put in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc import ir
from graphc.ir import Graph, Node, Value
from graphc.origins import Origin


def copy_node(n: Node, args: tuple[Value, ...], caller: Node | None = None) -> Node:
    """n on other operands of the same types.

    Inside a call it gets the call's line where it has none, and the call's name as outer scope.
    """
    origin = n.origin
    if caller is not None:
        name = caller.attrs.get("name", "")
        scope = "/".join([s for s in (caller.scope, name, n.scope) if s])
        origin = Origin(n.loc or caller.loc, scope, n.name)
    return Node(n.op, args, n.attrs, [o.type for o in n.outs], origin)


def substitute(values: Sequence[Value], env: Mapping[Value, Value]) -> list[Value]:
    """`values` with the keys of `env` replaced; nodes that need none of them stay as they are."""
    if not env:
        return list(values)
    done = dict(env)
    for n in ir.reachable(values, stop=env):
        if any(a in done for a in n.args):
            new = copy_node(n, tuple([done.get(a, a) for a in n.args]))
            done.update(zip(n.outs, new.outs, strict=True))
    return [done.get(v, v) for v in values]


def inline(call: Node, args: Sequence[Value]) -> tuple[list[Node], list[Value]]:
    """Copies of the nodes of a call's body on `args`, and the values of its results."""
    body: Graph = call.attrs["body"]
    env = dict(zip(body.inputs, args, strict=True))
    copies: list[Node] = []
    for n in body.nodes:
        copies.append(copy_node(n, tuple([env[a] for a in n.args]), call))
        env.update(zip(n.outs, copies[-1].outs, strict=True))
    return copies, [env[o] for o in body.outputs]


def expand(values: Sequence[Value], keep: str = "") -> list[Value]:
    """`values` with every call that they need replaced by its body, whatever its depth.

    Calls named `keep` stay calls; what their bodies call is expanded in there.
    """
    done: dict[Value, Value] = {}
    bodies: dict[Graph, Graph] = {}
    # a node to copy, or a call whose copied body has been walked by then, and its results
    stack: list[tuple[Node, list[Value] | None]]
    stack = [(n, None) for n in reversed(ir.reachable(values))]
    while stack:
        n, results = stack.pop()
        if results is not None:
            done.update(zip(n.outs, [done.get(r, r) for r in results], strict=True))
            continue
        args = tuple([done.get(a, a) for a in n.args])
        body = n.attrs.get("body")
        if body is None:
            if args != n.args:
                done.update(zip(n.outs, copy_node(n, args).outs, strict=True))
        elif n.attrs.get("name") != keep:
            copies, results = inline(n, args)
            stack.append((n, results))
            stack += [(c, None) for c in reversed(copies)]
        else:
            if body not in bodies:
                bodies[body] = ir.collect(body.name, body.inputs, expand(body.outputs, keep))
            attrs = {**n.attrs, "body": bodies[body]}
            types = [o.type for o in n.outs]
            new = Node(n.op, args, attrs, types, n.origin)
            done.update(zip(n.outs, new.outs, strict=True))
    return [done.get(v, v) for v in values]
