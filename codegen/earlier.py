"""States that take over the old values of others: a store more of the kernel that reads those.

    updates={u: f(u, p), p: u}      e0 = u[i], e1 = p[i], ..      u[i] = f(..)      p[i] = e0

Steps of waves and of other equations of second order keep the step before. Copied beside the
kernel, the old u goes through memory twice more: to a place of its own before u is overwritten,
and from there to p. Waves on squares of 256 to 1024, against that: f32 25 us of 38, 131 of 244,
710 of 1174; f64 40 us of 68, 244 of 596, 1798 of 2803.
"""

from __future__ import annotations

from graphc.codegen.delayed import LEAST_BYTES, stepped
from graphc.ir import Builder, Graph, Node, Value, finish
from graphc.ops.row import Kind

PLAIN = (Kind.LEAF, Kind.ELEMENTWISE, Kind.LAYOUT)


def store_earlier(g: Graph) -> Graph:
    """The graph whose kernels store what states take over, where they make new states of it.

    Each state is then made by a kernel, and `plan` decides as for any other whether in place.
    """
    old = {n.attrs["state"]: n.out for n in g.nodes if n.op.name == "variable"}
    readers: dict[Value, list[Node]] = {}
    for n in g.nodes:
        for a in dict.fromkeys(n.args):
            readers.setdefault(a, []).append(n)
    makers = {n: next(iter(made)) for n, made in stepped(g).items() if _is_plain(n)}
    stored: dict[Node, list[Value]] = {}
    for state, v in g.updates:
        reading = readers.get(v, [])
        if v.node.op.name != "variable" or len(reading) != 1 or v.node.attrs["state"] is state:
            continue
        [n] = reading
        # others that read the state's own old value may have to do so after the kernel
        alone = state not in old or set(readers.get(old[state], ())) <= {n}
        if n in makers and alone and n.outs[makers[n]].type == v.type and _is_large(v):
            olds = stored.setdefault(n, [])
            if v not in olds:  # a second state that takes it over gets a copy
                olds.append(v)
    return _with_stores(g, makers, stored) if stored else g


def _is_large(v: Value) -> bool:
    """Whether copying takes long beside a kernel's start. States have sizes that are known."""
    return isinstance(v.type.bytes, int) and v.type.bytes >= LEAST_BYTES


def _is_plain(n: Node) -> bool:
    """Whether a kernel is a loop nest that computes each element by itself."""
    return not n.attrs["reduced"] and all(m.op.kind in PLAIN for m in n.attrs["body"].nodes)


def _storing(n: Node, olds: list[Value], like: int) -> dict[str, object]:
    """The attributes of a kernel that stores operands, too, as it does its output `like`."""
    body, labels = n.attrs["body"], n.attrs["outputs"]
    inside = [body.inputs[n.args.index(v)] for v in olds]
    return {
        **n.attrs,
        "body": Graph(body.name, body.inputs, body.nodes, (*body.outputs, *inside)),
        "outputs": (*labels, *(labels[like] for _ in olds)),
    }


def _with_stores(g: Graph, makers: dict[Node, int], stored: dict[Node, list[Value]]) -> Graph:
    """g with the old values in `stored` as further outputs of kernels, and these as updates."""
    b = Builder()
    env: dict[Value, Value] = {}
    kept: dict[Value, Value] = {}
    for n in g.nodes:
        args = tuple([env.get(a, a) for a in n.args])
        if n not in stored:
            new = b.copy(n, args)
        else:
            new = b.emit(n.op, args, n, **_storing(n, stored[n], makers[n]))
            kept.update(zip(stored[n], new[len(n.outs):], strict=True))
            new = new[:len(n.outs)]
        env.update(zip(n.outs, new, strict=True))
    return finish(
        b, g.name, g.inputs, [env.get(o, o) for o in g.outputs],
        [(s, kept.get(v, env.get(v, v))) for s, v in g.updates], g.output_names,
    )
