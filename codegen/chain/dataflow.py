"""What the values of a kernel are in columns that a mask leaves out: a forward dataflow analysis.

It proves that a kernel gives the same results if these columns are not computed. A `Fact` is known
of each value of the body, from operands to results. For attention:

    select(column <= row, x, -inf)    constant: -inf, for columns beyond the rows of a block
    sub(-inf, row's maximum), exp     same: all of these columns of a row hold one number
    mul(that, product)                zero, if that number is 0 and the product finite

Whether the number is 0 and products are finite is seen when the chain runs (`guards`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from graphc.dims import product
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.bodies import array_of
from graphc.passes.folding import evaluate
from graphc.passes.groups import Label
from graphc.passes.labels import operand_labels
from graphc.passes.roles import counts_right
from graphc.types import Array, bool_

MOST_STEPS = 1 << 14  # of a product whose factors below BOUND (see `guards`) make it finite
LONGEST = 1 << 24     # rows or columns of a mask: as many of both take years

Key = tuple[Value, Label]
Root = tuple[Node, Value]  # a value within a kernel


class Fact(NamedTuple):
    """What is known of a value in the columns that are left out."""

    same: bool = False                      # all of a row hold the same
    finite: frozenset[Root] | None = None   # finite if these products are; None: perhaps not
    zero: frozenset[Root] | None = None     # 0 if these values are, and products of them finite
    constant: Value | None = None           # what all hold, as a scalar


ANY = Fact()
NONE: frozenset[Root] = frozenset()


class Dataflow:
    """Walks a kernel's body; `facts` has what each value would hold in the columns left out."""

    def __init__(
        self, n: Node, labels: dict[Value, list[Label]], axes: int, summed: int,
        given: Mapping[Value, Fact],
    ):
        self.node, self.labels, self.axes, self.summed = n, labels, axes, summed
        self.body: Graph = n.attrs["body"]
        self.facts: dict[Key, Fact] = {}
        self.counts: dict[Key, int] = {}   # the axis whose positions a value holds
        self.truths: dict[Key, bool] = {}  # of conditions that say the same in all of them
        self.needs: frozenset[Root] = NONE
        self.products: dict[Root, tuple[Value, Value]] = {}
        for a, v in zip(n.args, self.body.inputs, strict=True):
            for label in labels.get(v, ()):
                if self.axes in label and a in given:
                    t = given[a]
                    zero = self._root(v, t.same) if t.zero is None else t.zero
                    self.facts[v, label] = Fact(t.same, t.finite, zero, t.constant)

    def fact(self, key: Key) -> Fact:
        """What is known of a value."""
        if self.axes not in key[1]:
            return Fact(same=True)
        return self.facts.get(key, ANY)

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
        elif name == "iota" and counts_right(n.out, LONGEST):
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
            self.facts[key] = Fact(True, finite, None if value.any() else NONE, n.out)

    def _passes(self, key: Key, source: Key) -> None:
        if source in self.counts:
            self.counts[key] = self.counts[source]
        if source in self.truths:
            self.truths[key] = self.truths[source]
        if source in self.facts:
            self.facts[key] = self.facts[source]
        elif self.axes not in source[1]:
            self.facts[key] = Fact(same=True)

    def _product(self, n: Node, key: Key) -> bool:
        """Its columns differ, but they are finite if its factors are small."""
        left, right = n.args
        root = self.node, n.out
        at = dict(zip(self.body.inputs, self.node.args, strict=True))
        steps = product(left.type.shape[a] for a in n.attrs["contract"][0])
        if left in at and right in at and isinstance(steps, int) and steps <= MOST_STEPS:
            self.products[root] = at[left], at[right]
            self.facts[key] = Fact(finite=frozenset({root}))
        return self.axes in key[1]

    def _reduces(self, name: str, source: Key) -> bool:
        """A row's maximum includes one of these columns; its sum may leave out zeros."""
        t = self.fact(source)
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
        facts = [self.fact(a) for a in args]
        same, finite, zero = all(t.same for t in facts), None, None
        if name == "neg":
            finite, zero = facts[0].finite, facts[0].zero
        elif name == "mul":
            for x, y in (facts, facts[::-1]):
                if x.zero is not None and y.finite is not None:
                    zero = x.zero | y.finite
        if zero is None:
            zero = self._root(key[0], same)
        self.facts[key] = Fact(same, finite, zero)

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
        constant = self.facts.get(key, ANY).constant
        if constant is None:
            return None
        value = array_of(constant.node.attrs["value"])
        return None if value is None else value.reshape(())
