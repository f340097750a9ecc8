"""Which columns of a chain's arrays need not be there, because a mask makes zeros of them.

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

import numpy as np

from graphc.dims import Size, product
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.bodies import array_of
from graphc.passes.folding import evaluate
from graphc.passes.grouping import ONE, Label
from graphc.passes.labels import inner, is_block, operand_labels, sums
from graphc.types import Array, bool_, f32, f64

STEP = 64        # columns of `used`: whole groups of lanes that sums over a row have
LEAST = 4 * STEP  # columns, if their number is known, from which some may be left out
MOST_STEPS = 1 << 14  # of a product whose factors below BOUND (see `guards`) make it finite

USED = "used"    # the number of columns, as a size in the block's kernels

Key = tuple[Value, Label]
Root = tuple[Node, Value]  # a value within a kernel


@dataclass(frozen=True)
class Tail:
    """What is known of a value in the columns that are left out."""

    same: bool = False                      # all of a row hold the same
    finite: frozenset[Root] | None = None   # finite if these products are; None: perhaps not
    zero: frozenset[Root] | None = None     # 0 if these values are, and products of them finite
    constant: Value | None = None           # what all hold, as a scalar


ANY = Tail()
NONE: frozenset[Root] = frozenset()


@dataclass
class Tails:
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


def find(body: Graph, labels: Mapping[Value, Label], axes: int) -> Tails | None:
    """What the kernels of a chain leave out; None if nothing. `labels` are those of its values."""
    for n in body.nodes:
        if _has_product(n) and len(n.outs) == 1 and labels[n.outs[0]][-2:] == (axes - 1, ONE):
            search = _Search(body, labels, axes, n.outs[0].type.shape[-1])
            if search.cuts_product(n) and search.tails[n.outs[0]].same:
                return search.run()
    return None


def _has_product(n: Node) -> bool:
    return any(m.op.kind is Kind.CONTRACT for m in n.attrs["body"].nodes)


class _Search:
    """Follows the columns of one mask through the kernels of a chain."""

    def __init__(self, body: Graph, labels: Mapping[Value, Label], axes: int, columns: Size):
        self.body, self.base, self.axes = body, labels, axes
        self.found = Tails(columns, {})
        self.tails: dict[Value, Tail] = {}  # of values that are cut
        self.roots: dict[Root, tuple[Value, Value] | None] = {}  # a product's operands, or None

    def run(self) -> Tails | None:
        """What is found; None where a kernel needs all columns."""
        columns = self.found.columns
        if isinstance(columns, int) and columns < LEAST:
            return None
        self.tails, self.found.labels, self.roots = {}, {}, {}
        for n in self.body.nodes:
            reads = any(a in self.tails for a in n.args)
            if sums(self.base[n.outs[0]], self.axes):
                fits = self._sums(n) if reads else self._whole(n)
            elif reads:
                fits = self._multiplies(n) if _has_product(n) else self._rows(n)
            else:
                fits = self.cuts_product(n) or self._whole(n)
            if not fits:
                return None
        kept = any(v in self.tails for v in self.body.outputs)
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

    def _known(self, n: Node, outs: Sequence[Label]) -> dict[Value, Tail] | None:
        """The tails of what a kernel makes; None where it cannot be cut."""
        body: Graph = n.attrs["body"]
        summed = self.axes if n in self.found.over else ONE
        labels = inner(body, outs, summed)
        if labels is None:
            return None
        reader = _Reader(n, labels, self.axes, summed, self.tails)
        if not reader.run():
            return None
        for a, v in zip(n.args, body.inputs, strict=True):
            if v in labels and not self._label(a, labels[v][0]):
                return None
        self.roots.update(reader.products)
        self.found.constants.update({
            (n, v): t.constant for (v, _), t in reader.tails.items() if t.constant is not None
        })
        tails = {
            o: reader.tail((v, label))
            for o, v, label in zip(n.outs, body.outputs, outs, strict=True)
        }
        return tails if self._needs(reader.needs) else None

    def cuts_product(self, n: Node) -> bool:
        """A product whose columns are these: its tail is known, or whoever reads it looks."""
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
        self.tails.update(known)
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
        self.tails.update({o: t for o, t in known.items() if self.axes in self.found.labels[o]})
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
        if left not in self.tails or right in self.tails or right not in self.body.inputs:
            return False
        self.found.below[right] = None
        return (
            self._label(left, given[0]) and self._label(right, given[1])
            and self._needs(self.tails[left].zero)
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


class _Reader:
    """Follows a kernel's body, value by value, and knows what the columns left out would hold."""

    def __init__(
        self, n: Node, labels: dict[Value, list[Label]], axes: int, summed: int,
        given: Mapping[Value, Tail],
    ):
        self.node, self.labels, self.axes, self.summed = n, labels, axes, summed
        self.body: Graph = n.attrs["body"]
        self.tails: dict[Key, Tail] = {}
        self.counts: dict[Key, int] = {}   # the axis whose positions a value holds
        self.truths: dict[Key, bool] = {}  # of conditions that say the same in all of them
        self.needs: frozenset[Root] = NONE
        self.products: dict[Root, tuple[Value, Value]] = {}
        for a, v in zip(n.args, self.body.inputs, strict=True):
            for label in labels.get(v, ()):
                if self.axes in label and a in given:
                    t = given[a]
                    zero = self._root(v, t.same) if t.zero is None else t.zero
                    self.tails[v, label] = Tail(t.same, t.finite, zero, t.constant)

    def tail(self, key: Key) -> Tail:
        """That of a value."""
        if self.axes not in key[1]:
            return Tail(same=True)
        return self.tails.get(key, ANY)

    def _root(self, v: Value, same: bool) -> frozenset[Root] | None:
        return frozenset({(self.node, v)}) if same else None

    def run(self) -> bool:
        """Whether the kernel gives the same without these columns."""
        for n in self.body.nodes:
            for label in self.labels.get(n.outs[0], ()):
                given = operand_labels(n, label, self.summed)
                assert given is not None
                args = list(zip(n.args, given, strict=False))
                if not self._node(n, (n.out, label), args):
                    return False
        return True

    def _node(self, n: Node, key: Key, args: list[Key]) -> bool:
        name = n.op.name
        reads = any(self.axes in label for _, label in args)
        if name == "constant":
            self._constant(n, key)
        elif name == "iota":
            self.counts[key] = key[1][n.attrs["axis"]]
        elif name in ("broadcast", "reshape"):
            self._passes(key, args[0])
        elif n.op.kind is Kind.CONTRACT:
            return not reads or self._product(n, key)
        elif name.startswith("reduce_") and reads and self.axes not in key[1]:
            return self._reduces(name, args[0])
        elif n.op.kind is Kind.ELEMENTWISE:
            self._elementwise(n, key, args)
        else:
            return not reads
        return True

    def _constant(self, n: Node, key: Key) -> None:
        value = array_of(n.attrs["value"])
        if value is not None and value.size == 1:
            finite = NONE if np.isfinite(value).all() else None
            self.tails[key] = Tail(True, finite, None if value.any() else NONE, n.out)

    def _passes(self, key: Key, source: Key) -> None:
        if source in self.counts:
            self.counts[key] = self.counts[source]
        if source in self.truths:
            self.truths[key] = self.truths[source]
        if source in self.tails:
            self.tails[key] = self.tails[source]
        elif self.axes not in source[1]:
            self.tails[key] = Tail(same=True)

    def _product(self, n: Node, key: Key) -> bool:
        """Its columns differ, but they are finite if its factors are small."""
        left, right = n.args
        root = self.node, n.out
        at = dict(zip(self.body.inputs, self.node.args, strict=True))
        steps = product(left.type.shape[a] for a in n.attrs["contract"][0])
        if left in at and right in at and isinstance(steps, int) and steps <= MOST_STEPS:
            self.products[root] = at[left], at[right]
            self.tails[key] = Tail(finite=frozenset({root}))
        return self.axes in key[1]

    def _reduces(self, name: str, source: Key) -> bool:
        """A row's maximum includes one of these columns; its sum may leave out zeros."""
        t = self.tail(source)
        if name == "reduce_sum" and t.zero is not None:
            self.needs |= t.zero
            return True
        return name in ("reduce_max", "reduce_min") and t.same

    def _elementwise(self, n: Node, key: Key, args: list[Key]) -> None:
        name, truth = n.op.name, self._truth(n, args)
        if truth is not None:
            self.truths[key] = truth
        if name == "select" and args[0] in self.truths:
            self._passes(key, args[1 if self.truths[args[0]] else 2])
            return
        if self.axes not in key[1]:
            return
        tails = [self.tail(a) for a in args]
        same, finite, zero = all(t.same for t in tails), None, None
        if name == "neg":
            finite, zero = tails[0].finite, tails[0].zero
        elif name == "mul":
            for x, y in (tails, tails[::-1]):
                if x.zero is not None and y.finite is not None:
                    zero = x.zero | y.finite
        if zero is None:
            zero = self._root(key[0], same)
        self.tails[key] = Tail(same, finite, zero)

    def _truth(self, n: Node, args: list[Key]) -> bool | None:
        """Whether a condition holds in columns beyond the last row of a block."""
        name, known = n.op.name, [self.truths.get(a) for a in args]
        if name == "not" and known[0] is not None:
            return not known[0]
        if name == "and" and False in known:
            return False
        if name == "or" and True in known:
            return True
        if name in ("less", "less_equal"):
            at = [self.counts.get(a) for a in args]
            if at in ([self.axes, self.axes - 1], [self.axes - 1, self.axes]):
                return bool(at[1] == self.axes)
        numbers = [self._number(a) for a in args]
        if n.out.type.dtype is not bool_ or any(x is None for x in numbers):
            return None
        result = evaluate(n.op, [x for x in numbers if x is not None], n.attrs, bool_)
        return None if result is None else bool(result)

    def _number(self, key: Key) -> Array | None:
        """What a value is in all of these columns, if a constant."""
        constant = self.tails.get(key, ANY).constant
        if constant is None:
            return None
        value = array_of(constant.node.attrs["value"])
        return None if value is None else value.reshape(())
