"""Chains of kernels that share outer axes become one `fused` node whose body holds kernels.

In attention the scores are as large as the square of the length, while what they are made of and
what becomes of them grows with the length alone. All three kernels run over members and rows:
what one row needs of the kernel before is that row. So they may run for a block of rows one after
the other, and nothing but blocks exists of what is made and used up between them.

    %0: f32[h,n,n] = fused %q, %k {..dot..}       %0: f32[h,n,64] = fused %q, %k, %v {axes=(h, n),
    %1: f32[h,n,n] = fused %0 {..softmax..}    ->     outputs=((0, 1, -1)), body={..the three..}}
    %2: f32[h,n,64] = fused %1, %v {..dot..}      return %0
    return %2

`axes` are the shared ones, `outputs` says where the results have them. A chain ends in a product
whose left operand it makes, and grows against the flow of data as long as what a kernel makes is
not much smaller than what it reads. Rows stay whole, so that each is computed as it was before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from graphc import dims
from graphc.dims import Size
from graphc.ir import Builder, Graph, Node, Value, finish, finish_as
from graphc.ops.row import OPS, Kind
from graphc.passes.bodies import operand
from graphc.passes.grouping import ONE, Label
from graphc.types import TensorType

# Chains are worth their blocks where what need not be stored would leave the nearest caches, and
# is no less than what is read and written anyway. Where the right operand of a product serves more
# rows than a block has, it is packed again for each, and there must be more to gain: measured, a
# network four times as wide inside loses 7%, attention gains from 128 positions on.
LEAST_BYTES = 1 << 20
BLOCK_ROWS = 512
GAIN = 3
MOST_KERNELS = 8  # of a chain: they are written for it alone, and share no code with others
TYPICAL = 2048  # what a symbolic dimension counts as for that


def run(g: Graph) -> Graph:
    """Make the chains of a graph of kernels."""
    chains = find(g)
    if not chains:
        return g
    ends = {c[-1]: c for c in chains}
    inside = {n for c in chains for n in c[:-1]}
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for n in g.nodes:
        if n in inside:
            continue
        if n in ends:
            args, attrs = _joined(ends[n])
            new = b.emit(OPS["fused"], [env[a] for a in args], n, **attrs)
        else:
            new = b.copy(n, tuple([env[a] for a in n.args]))
        env.update(zip(n.outs, new, strict=True))
    return finish_as(b, g, env)


def is_chain(n: Node) -> bool:
    """Whether a `fused` node holds kernels."""
    return any(m.op.name == "fused" for m in n.attrs["body"].nodes)


def find(g: Graph) -> list[list[Node]]:
    """The chains of g, each in the order of its nodes."""
    readers: dict[Value, list[Node | None]] = {v: [None] for v in g.results}
    for n in g.nodes:
        for a in n.args:
            readers.setdefault(a, []).append(n)
    position = {n: k for k, n in enumerate(g.nodes)}
    taken: set[Node] = set()
    chains: list[list[Node]] = []
    for n in reversed(g.nodes):
        if n.op.name == "fused" and n not in taken and (rows := _rows(n)):
            chain, labels = _grow(n, rows, readers)
            if len(chain) > 1 and _pays(chain, labels, _shared(n, rows)[0]):
                chains.append(sorted(chain, key=position.__getitem__))
                taken |= chain
    return chains


def _rows(n: Node) -> int:
    """How many dimensions of a product's result its left operand shares, all that it keeps."""
    dots = [m for m in n.attrs["body"].nodes if m.op.kind is Kind.CONTRACT]
    return dots[0].args[0].type.ndim - len(dots[0].attrs["contract"][0]) if len(dots) == 1 else 0


def _shared(last: Node, rows: int) -> tuple[list[Size], list[Label]]:
    """The sizes of the shared axes, and where the results have them: in their first `rows`."""
    shape = last.outs[0].type.shape[:rows]
    if any(o.type.shape[:rows] != shape for o in last.outs):
        return [], []
    kept = [a for a in range(rows) if shape[a] != 1]
    label = tuple(kept.index(a) if a in kept else ONE for a in range(rows))
    return [shape[a] for a in kept], [label + (ONE,) * (o.type.ndim - rows) for o in last.outs]


def _grow(
    last: Node, rows: int, readers: dict[Value, list[Node | None]]
) -> tuple[set[Node], dict[Value, Label]]:
    """The kernels that may run block by block with the last one, and the labels of operands."""
    axes, outs = _shared(last, rows)
    before = any(
        a.node.op.name == "fused" and set(readers[a]) == {last} and _inflates(a.node)
        for a in last.args
    )
    found = operands(last, outs) if axes and before else None
    if found is None:
        return set(), {}
    chain, labels = {last}, found
    waiting = list(found)
    while waiting and len(chain) < MOST_KERNELS:
        n = waiting.pop().node
        if n in chain or n.op.name != "fused" or not _inflates(n):
            continue
        if not all(set(readers.get(o, ())) <= chain and o in labels for o in n.outs):
            continue
        if any({*labels[o]} - {ONE} != {*range(len(axes))} for o in n.outs):
            continue
        more = operands(n, [labels[o] for o in n.outs])
        if more is None or any(labels.get(v, label) != label for v, label in more.items()):
            continue
        chain.add(n)
        labels.update(more)
        waiting += more
    return chain, labels


def _inflates(n: Node) -> bool:
    """Whether a kernel makes no less than two thirds of what it reads."""
    return 3 * _bytes(n.outs) >= 2 * _bytes(n.args)


def _pays(chain: set[Node], labels: dict[Value, Label], axes: list[Size]) -> bool:
    made = {o for n in chain for o in n.outs}
    read = {a for n in chain for a in n.args}
    kept = _bytes(made & read)
    rows = max(_typical(_reuse(n, labels, axes)) for n in chain)
    gain = GAIN if rows > BLOCK_ROWS else 1
    largest = max(_bytes({v}) for v in made & read)  # small ones stay in cache by themselves
    return largest >= LEAST_BYTES and kept >= gain * _bytes(made ^ read)


def _reuse(n: Node, labels: dict[Value, Label], axes: list[Size]) -> Size:
    """The rows that the right operand of a product serves."""
    body: Graph = n.attrs["body"]
    for m in body.nodes:
        if m.op.kind is Kind.CONTRACT:
            label = labels[n.args[body.inputs.index(m.args[1])]]
            return dims.product(size for a, size in enumerate(axes) if a not in label)
    return 1


def _bytes(values: Iterable[Value]) -> int:
    return sum(_typical_bytes(v.type) for v in values)


@cache
def _typical_bytes(t: TensorType) -> int:
    return _typical(t.size * t.dtype.itemsize)


def _typical(size: Size) -> int:
    return dims.evaluate(size, dict.fromkeys(dims.names(size), TYPICAL))


def _joined(chain: list[Node]) -> tuple[list[Value], dict[str, object]]:
    """(operands, attributes) of the fused node of a chain."""
    made = {o for n in chain for o in n.outs}
    args = list(dict.fromkeys(a for n in chain for a in n.args if a not in made))
    b = Builder()
    env: dict[Value, Value] = {}
    for k, a in enumerate(args):
        env[a] = operand(f"p{k}", a.type, a.node.loc)
    for n in chain:
        new = b.emit(n.op, [env[a] for a in n.args], n, **n.attrs)
        env.update(zip(n.outs, new, strict=True))
    last = chain[-1]
    axes, outs = _shared(last, _rows(last))
    body = finish(b, "chain", [env[a] for a in args], [env[o] for o in last.outs])
    return args, {
        "body": body, "axes": tuple(axes), "reduced": (), "outputs": tuple(outs),
    }


# --- labels ------------------------------------------------------------------------------------


def operands(n: Node, outs: list[Label]) -> dict[Value, Label] | None:
    """Which dimensions of a kernel's operands are the shared axes, given those of its results.

    None where a block of it would not be a kernel on blocks: where elements move along a shared
    axis, or a block of an operand would not be contiguous.
    """
    body: Graph = n.attrs["body"]
    labels = inner(body, outs)
    if labels is None or any(v not in labels for v in body.inputs):
        return None
    found: dict[Value, Label] = {}
    for a, v in zip(n.args, body.inputs, strict=True):
        (label,) = labels[v]
        if not _is_block(v, label) or found.setdefault(a, label) != label:
            return None
    return found


def _is_block(v: Value, label: Label) -> bool:
    """Whether shared axes are outer ones, in order: then blocks are contiguous."""
    real = [a for a, size in zip(label, v.type.shape, strict=True) if size != 1]
    shared = [a for a in real if a != ONE]
    return shared == sorted(set(shared)) and real[: len(shared)] == shared


def inner(body: Graph, outs: list[Label]) -> dict[Value, list[Label]] | None:
    """The labels of the values of a body; None where a block of it would not be such a kernel.

    What is made from nothing (the positions that a causal mask compares) may have several.
    """
    free: set[Value] = set()
    for n in body.nodes:
        if all(a in free for a in n.args):
            free.update(n.outs)
    labels: dict[Value, list[Label]] = {}

    def fits(v: Value, label: Label) -> bool:
        known = labels.setdefault(v, [])
        if label not in known:
            known.append(label)
        return len(known) == 1 or v in free

    if not all(map(fits, body.outputs, outs)):
        return None
    for n in reversed(body.nodes):
        if len(n.outs) != 1:
            return None
        for out in labels.get(n.out, ()):
            given = operand_labels(n, out)
            if given is None or not all(map(fits, n.args, given)):
                return None
    return labels


def operand_labels(n: Node, out: Label) -> list[Label] | None:
    """The labels of a node's operands by its result's."""
    kind, name = n.op.kind, n.op.name
    if n.op.fails_on([a.type for a in n.args]) or n.op.unique:
        return None
    if kind is Kind.ELEMENTWISE:
        return [out] * len(n.args)
    if name == "iota" or (name == "constant" and set(out) <= {ONE}):
        return []
    if name == "broadcast":
        return [tuple(out[a] for a in n.attrs["axes"])]
    if name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"):
        rest = iter(out)
        ndim = n.args[0].type.ndim
        return [tuple(ONE if a in n.attrs["axes"] else next(rest) for a in range(ndim))]
    if kind is Kind.CONTRACT:
        at = len(n.attrs["batch"][0])
        labels = []
        for s, v in enumerate(n.args):
            label = [ONE] * v.type.ndim
            for k, a in enumerate(n.attrs["batch"][s]):
                label[a] = out[k]
            for a in range(v.type.ndim):
                if a not in n.attrs["batch"][s] and a not in n.attrs["contract"][s]:
                    label[a] = out[at]
                    at += 1
            labels.append(tuple(label))
        return labels
    return None
