"""Kernels that become one node: the graph around it, and its body (`both`, `one_sweep`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphc.ir import Builder, Graph, Node, Value, finish, finish_as
from graphc.ops.row import OPS
from graphc.passes.bodies import operand

Kernel = tuple[list[Value], dict[str, object]]  # operands and attributes of a `fused` node
Repeat = Callable[[Builder, Node, dict[Value, Value]], None]


def merged(
    g: Graph, together: Mapping[Node, Sequence[Node]], write: Callable[[Sequence[Node]], Kernel]
) -> Graph:
    """g with kernels as one node each, at its first one's place; what they need comes before.

    together: the kernels that become one, under each of them; of two, one may read the other.
    write: what the node is.
    """
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for node in g.nodes:
        stack = [node]
        while stack:
            n = stack[-1]
            group = together.get(n, (n,))
            own = {o for m in group for o in m.outs}
            missing = [a.node for m in group for a in m.args if a not in env and a not in own]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if group[0].outs[0] in env:
                continue
            if n not in together:
                b.repeat(n, env)
                continue
            args, attrs = write(group)
            new = b.emit(OPS["fused"], [env[a] for a in args], group[0], **attrs)
            env.update(zip((o for m in group for o in m.outs), new, strict=True))
    return finish_as(b, g, env)


def merged_body(
    nodes: Sequence[Node], repeat: Repeat = Builder.repeat
) -> tuple[list[Value], Graph]:
    """The operands of kernels, each once, and a body of all of theirs; `repeat` puts a node of one
    into it. What a kernel reads of one before it is no operand."""
    b = Builder()
    given: list[Value] = []
    inside: dict[Value, Value] = {}  # operands and results, in the new body
    outputs: list[Value] = []
    for n in nodes:
        body: Graph = n.attrs["body"]
        env: dict[Value, Value] = {}
        for v, a in zip(body.inputs, n.args, strict=True):
            if a not in inside:
                inside[a] = operand(f"p{len(given)}", v.type, v.node.loc)
                given.append(a)
            env[v] = inside[a]
        for m in body.nodes:
            repeat(b, m, env)
        made = [env[o] for o in body.outputs]
        outputs += made
        inside.update(zip(n.outs, made, strict=True))
    return given, finish(b, "body", [inside[a] for a in given], outputs)
