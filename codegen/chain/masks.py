"""Masked columns: which columns of a chain's arrays are zeros by a mask, and are not computed.

    S = select(column <= row, Q K^T, c)         the last columns of a block of rows all hold c,
    P = softmax(S)                              all of a row hold the same, and if that is 0,
    P V, P^T dO, dS K, dS^T Q                   nothing comes of them

So a block that begins at row b and has r rows is computed for its first `used` columns only, the
next multiple of STEP after b + r: at least one column that the mask leaves out is among them, and
shows what all others would hold. In the block's arrays `used` takes the place of the number of
columns, and what has a row for each column (K, V) is read up to there.

No bit changes, which `find` shows from the graph and `guards` sees to when the chain runs:

    a maximum over a row       includes c already
    a sum over a row           leaves out zeros: sums begin with 0, and x + 0 and x - 0 are x
    0 times what is left out   is 0 where that is finite; products of factors below BOUND are
    -0 + 0                     is 0, so that a product may not be -0, as it is by underflow alone

Where one of this does not hold, a block is computed with all its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphc.codegen.chain.dataflow import Dataflow, Fact, Root
from graphc.dims import Size
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.groups import ONE, Label
from graphc.passes.labels import inner, is_block, operand_labels, sums
from graphc.types import f32, f64

STEP = 64        # columns of `used`: whole groups of lanes that sums over a row have
LEAST = 4 * STEP  # columns, if their number is known, from which some may be left out
USED = "block.used"  # the number of columns, as a size in the block's kernels: no dimension's name


@dataclass
class Masked:
    """What a chain may leave out, and what must be looked at for that."""

    columns: Size                            # all of them
    labels: dict[Value, Label]               # of the chain's values; the axis after the last is cut
    probes: dict[Node, list[Value]] = field(default_factory=dict)  # must be 0, by kernel
    constants: dict[Root, Value] = field(default_factory=dict)     # values known in these columns
    below: dict[Value, None] = field(default_factory=dict)         # operands that must be < BOUND
    over: dict[Node, None] = field(default_factory=dict)  # kernels that sum over the columns


def product_of(n: Node) -> tuple[Node, Value, Value] | None:
    """(dot, left, right) of a kernel that is a product alone, of f32 or f64."""
    body: Graph = n.attrs["body"]
    dot = body.nodes[-1]
    if len(body.nodes) != 1 or dot.op.kind is not Kind.CONTRACT:
        return None
    left, right = (n.args[body.inputs.index(v)] for v in dot.args)
    return (dot, left, right) if dot.out.type.dtype in (f32, f64) else None


def find(body: Graph, labels: Mapping[Value, Label], axes: int) -> Masked | None:
    """What the kernels of a chain leave out; None if nothing. `labels` are those of its values."""
    for n in body.nodes:
        if _has_product(n) and len(n.outs) == 1 and labels[n.outs[0]][-2:] == (axes - 1, ONE):
            search = _Search(body, labels, axes, n.outs[0].type.shape[-1])
            if search.cuts_product(n) and search.facts[n.outs[0]].same:
                return search.run()
    return None


def _has_product(n: Node) -> bool:
    return any(m.op.kind is Kind.CONTRACT for m in n.attrs["body"].nodes)


class _Search:
    """Follows the columns of one mask through the kernels of a chain."""

    def __init__(self, body: Graph, labels: Mapping[Value, Label], axes: int, columns: Size):
        self.body, self.base, self.axes = body, labels, axes
        self.found = Masked(columns, {})
        self.facts: dict[Value, Fact] = {}  # of values that are cut
        self.roots: dict[Root, tuple[Value, Value] | None] = {}  # a product's operands, or None

    def run(self) -> Masked | None:
        """What is found; None where a kernel needs all columns."""
        columns = self.found.columns
        if isinstance(columns, int) and columns < LEAST:
            return None
        self.facts, self.found.labels, self.roots = {}, {}, {}
        for n in self.body.nodes:
            reads = any(a in self.facts for a in n.args)
            if sums(self.base[n.outs[0]], self.axes):
                fits = self._sums(n) if reads else self._whole(n)
            elif reads:
                fits = self._multiplies(n) if _has_product(n) else self._rows(n)
            else:
                fits = self.cuts_product(n) or self._whole(n)
            if not fits:
                return None
        kept = any(v in self.facts for v in self.body.outputs)
        pays = any(map(_has_product, self.found.over))
        return self.found if pays and not kept else None

    def _label(self, v: Value, label: Label) -> bool:
        """Note the label of a value that a kernel makes or reads; False if it has another.

        What comes from outside is cut where its rows are contiguous: outside of the last axis.
        """
        if v in self.body.inputs and self.axes in label:
            at = label.index(self.axes)
            if self.axes - 1 in label or any(
                a == ONE and size != 1 for a, size in zip(label[:at], v.type.shape, strict=False)
            ):
                return False
        return is_block(v, label) and self.found.labels.setdefault(v, label) == label

    def _whole(self, n: Node) -> bool:
        """A kernel that has nothing to do with the columns."""
        return all(self._label(v, self.base[v]) for v in (*n.args, *n.outs) if v in self.base)

    def _cut(self, label: Label) -> Label:
        return (*label[:-1], self.axes)

    def _known(self, n: Node, outs: Sequence[Label]) -> dict[Value, Fact] | None:
        """What is known of a kernel's results there; None where it cannot be cut."""
        body: Graph = n.attrs["body"]
        summed = self.axes if n in self.found.over else ONE
        labels = inner(body, outs, summed)
        if labels is None:
            return None
        flow = Dataflow(n, labels, self.axes, summed, self.facts)
        if not flow.run():
            return None
        for a, v in zip(n.args, body.inputs, strict=True):
            if v in labels and not self._label(a, labels[v][0]):
                return None
        self.roots.update(flow.products)
        self.found.constants.update({
            (n, v): t.constant for (v, _), t in flow.facts.items() if t.constant is not None
        })
        facts = {
            o: flow.fact((v, label))
            for o, v, label in zip(n.outs, body.outputs, outs, strict=True)
        }
        return facts if self._needs(flow.needs) else None

    def cuts_product(self, n: Node) -> bool:
        """A product whose columns are these: what it holds there is known, or its readers look."""
        out = n.outs[0]
        label = self.base[out]
        if (
            not _has_product(n) or len(n.outs) > 1 or out in self.body.outputs
            or label[-2:] != (self.axes - 1, ONE)
            or out.type.shape[-1] != self.found.columns or out.type.dtype not in (f32, f64)
        ):
            return False
        before = self.found.labels.copy()
        known = self._known(n, [self._cut(label)])
        if known is None or not self._label(out, self._cut(label)):
            self.found.labels = before
            return False
        self.facts.update(known)
        return True

    def _rows(self, n: Node) -> bool:
        """A kernel that computes rows."""
        outs = [
            self._cut(self.base[o]) if o.type.ndim and o.type.shape[-1] == self.found.columns
            and self.base[o][-1] == ONE else self.base[o]
            for o in n.outs
        ]
        self.found.over[n] = None
        known = self._known(n, outs)
        if known is None or not all(map(self._label, n.outs, outs)):
            return False
        self.facts.update({o: t for o, t in known.items() if self.axes in self.found.labels[o]})
        return True

    def _multiplies(self, n: Node) -> bool:
        """A product that sums over the columns."""
        found = product_of(n)
        if found is None:
            return False
        dot, left, right = found
        out = self.base[n.outs[0]]
        given = operand_labels(dot, out, self.axes)
        assert given is not None
        self.found.over[n] = None
        return self._leaves_out(left, right, given) and self._label(n.outs[0], out)

    def _sums(self, n: Node) -> bool:
        """A product that has a row for each column, and sums over rows of blocks."""
        found = product_of(n)
        if found is None:
            return False
        dot, left, right = found
        first = len(dot.attrs["batch"][0])
        out = self.base[n.outs[0]]
        out = (*out[:first], self.axes, *out[first + 1 :])
        given = operand_labels(dot, out, self.axes - 1)
        assert given is not None
        return self._leaves_out(left, right, given) and self._label(n.outs[0], out)

    def _leaves_out(self, left: Value, right: Value, given: Sequence[Label]) -> bool:
        """Whether the left operand is 0 where it is cut, and the right one may be looked at."""
        if left not in self.facts or right in self.facts or right not in self.body.inputs:
            return False
        self.found.below[right] = None
        return (
            self._label(left, given[0]) and self._label(right, given[1])
            and self._needs(self.facts[left].zero)
        )

    def _needs(self, roots: frozenset[Root] | None) -> bool:
        """Have looked at what must be 0 or finite."""
        if roots is None:
            return False
        for n, v in sorted(roots, key=self._order):
            factors = self.roots.get((n, v))
            if factors is not None:
                if any(x not in self.body.inputs for x in factors):
                    return False
                self.found.below.update(dict.fromkeys(factors))
            elif _has_product(n):
                return False
            elif v not in (probes := self.found.probes.setdefault(n, [])):
                probes.append(v)
        return True

    def _order(self, root: Root) -> tuple[int, int]:
        n, v = root
        body: Graph = n.attrs["body"]
        values = [*body.inputs, *(o for m in body.nodes for o in m.outs)]
        return self.body.nodes.index(n), values.index(v)
