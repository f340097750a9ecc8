"""Which dimensions of the values of a kernel are the outer axes that a chain's kernels share.

A label says it for one value, dimension by dimension: the number of a shared axis, or ONE for any
other dimension. Labels go from results to operands: a kernel may run on blocks if every value in it
gets one label that way, since then a block of a result needs just that block of each operand. See
`chains`. (`grouping` has labels too: there they name the loop axes of one kernel.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.dims import Size, product
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.grouping import through_layout
from graphc.passes.groups import ONE, Label
from graphc.types import f32, f64

# Of a product that is added up block by block: registers are whole at every CPU level, and a block
# of its right operand is packed at once.
REGISTER_BYTES, MOST_COLUMNS = 64, 256


def operands(n: Node, outs: Sequence[Label | None]) -> dict[Value, Label] | None:
    """Which dimensions of a kernel's operands are the shared axes, given those of its results.

    Results that are not wanted have none, nor have operands that only they need. None where a
    block of it would not be a kernel on blocks: where elements move along a shared axis, or a
    block of an operand would not be contiguous.
    """
    body: Graph = n.attrs["body"]
    labels = inner(body, outs)
    if labels is None:
        return None
    found: dict[Value, Label] = {}
    for a, v in zip(n.args, body.inputs, strict=True):
        if v not in labels:
            if None in outs:
                continue
            return None
        (label,) = labels[v]
        if not is_block(v, label) or found.setdefault(a, label) != label:
            return None
    return found


def summed_operands(n: Node, axes: int) -> tuple[Label, dict[Value, Label]] | None:
    """(label of the result, of the operands) of a product that sums over the last shared axis.

    None where a kernel is not such a product alone, of matrices that all other axes number.
    """
    if n.op.name != "fused":
        return None
    body: Graph = n.attrs["body"]
    dot = body.nodes[0]
    if len(body.nodes) > 1 or dot.op.kind is not Kind.CONTRACT:
        return None
    sides = range(2)
    summed = [[a for a in dot.attrs["contract"][s] if _size(dot, s, a) != 1] for s in sides]
    shared = [a for a in dot.attrs["batch"][0] if _size(dot, 0, a) != 1]
    t = dot.out.type
    if [*map(len, summed)] != [1, 1] or len(shared) != axes - 1 or t.dtype not in (f32, f64):
        return None
    columns = product(
        _size(dot, 1, a) for a in range(dot.args[1].type.ndim)
        if a not in dot.attrs["batch"][1] and a not in dot.attrs["contract"][1]
    )
    if not isinstance(columns, int) or not 0 < columns <= MOST_COLUMNS:
        return None
    if columns * t.dtype.itemsize % REGISTER_BYTES:
        return None
    label = tuple(
        shared.index(a) if a in shared else ONE for a in dot.attrs["batch"][0]
    )
    label += (ONE,) * (t.ndim - len(label))
    given = operand_labels(dot, label, axes - 1)
    assert given is not None
    found: dict[Value, Label] = {}
    for v, known in zip(dot.args, given, strict=True):
        if found.setdefault(n.args[body.inputs.index(v)], known) != known:
            return None
    return label, found


def kernel_labels(
    body: Graph, outs: Sequence[Label], axes: int
) -> dict[Value, Label] | None:
    """The labels of all values between kernels; None where they cannot run on blocks."""
    if not all(n.op.name == "fused" for n in body.nodes):
        return None
    labels = dict(zip(body.outputs, outs, strict=True))
    for n in reversed(body.nodes):
        known = [labels.get(o) for o in n.outs]
        if known[0] is not None and sums(known[0], axes):
            sum_ = summed_operands(n, axes)
            found = sum_[1] if sum_ is not None and sum_[0] == known[0] else None
        else:
            found = operands(n, known)
        if found is None or not agree(labels, found):
            return None
        labels.update(found)
    return labels


def agree(labels: Mapping[Value, Label], more: Mapping[Value, Label]) -> bool:
    """Whether no value has two labels."""
    return all(labels.get(v, label) == label for v, label in more.items())


def sums(label: Label, axes: int) -> bool:
    """Whether what a kernel of a chain makes is added up over the blocks of its last axis."""
    return axes - 1 not in label


def _size(dot: Node, side: int, axis: int) -> Size:
    """The size of an operand's axis."""
    return dot.args[side].type.shape[axis]


def is_block(v: Value, label: Label) -> bool:
    """Whether shared axes are outer ones, in order: then blocks are contiguous."""
    real = [a for a, size in zip(label, v.type.shape, strict=True) if size != 1]
    shared = [a for a in real if a != ONE]
    return shared == sorted(set(shared)) and real[: len(shared)] == shared


def inner(
    body: Graph, outs: Sequence[Label | None], summed: int = ONE
) -> dict[Value, list[Label]] | None:
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

    wanted = [(v, label) for v, label in zip(body.outputs, outs, strict=True) if label is not None]
    if not all(fits(v, label) for v, label in wanted):
        return None
    for n in reversed(body.nodes):
        if len(n.outs) != 1:
            return None
        for out in labels.get(n.out, ()):
            given = operand_labels(n, out, summed)
            if given is None or not all(map(fits, n.args, given)):
                return None
    return labels


def operand_labels(n: Node, out: Label, summed: int = ONE) -> list[Label] | None:
    """The labels of a node's operands by its result's; `summed` is what products and reductions sum
    over, of one axis."""
    kind, name = n.op.kind, n.op.name
    if n.can_fail or n.op.unique:
        return None
    if kind is Kind.ELEMENTWISE:
        return [out] * len(n.args)
    if name == "iota" or (name == "constant" and set(out) <= {ONE}):
        return []
    if name in ("broadcast", "reshape"):
        through = through_layout(n, out)
        return None if through is None else [through]
    if name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"):
        rest = iter(out)
        shape, axes = n.args[0].type.shape, n.attrs["axes"]
        if summed != ONE and sum(shape[a] != 1 for a in axes) > 1:
            return None
        over = {a: summed if shape[a] != 1 else ONE for a in axes}
        return [tuple(over[a] if a in over else next(rest) for a in range(len(shape)))]
    if kind is Kind.CONTRACT:
        at = len(n.attrs["batch"][0])
        labels = []
        for s, v in enumerate(n.args):
            label = [ONE] * v.type.ndim
            for a in n.attrs["contract"][s]:
                label[a] = summed if v.type.shape[a] != 1 else ONE
            for k, a in enumerate(n.attrs["batch"][s]):
                label[a] = out[k]
            for a in range(v.type.ndim):
                if a not in n.attrs["batch"][s] and a not in n.attrs["contract"][s]:
                    label[a] = out[at]
                    at += 1
            labels.append(tuple(label))
        return labels
    return None
