"""Views move towards the results, elementwise ops towards the operands.

So what is computed is the tensor before it is broadcast, which is smaller, and the reshape that a
reduction with keepdims makes meets the one that undoes it. Rows for each elementwise op, made from
the op table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from graphc.ir import Value, splat
from graphc.ops import OPS, Kind
from graphc.passes.patterns import Head, Pattern, Rule, const, exact, rule, var
from graphc.passes.rewrite import Match
from graphc.types import Shape

broadcast, reshape = Head("broadcast"), Head("reshape")


def _before_broadcast(op: str, names: str) -> Rule:
    """op(broadcast(x), broadcast(y)) along the same axes; a number counts as along any.

    Ops that can fail stay: the broadcast may be to no elements at all, where nothing fails.
    """

    def build(m: Match) -> Value | None:
        if OPS[op].fails_on([a.type for a in m.args]):
            return None
        model = next((a for a in m.args if splat(a) is None), m.args[0])
        axes = model.node.attrs["axes"]
        if any(splat(a) is None and a.node.attrs["axes"] != axes for a in m.args):
            return None
        out = _inside(m, op, model.node.args[0].type.shape)
        return m.emit("broadcast", out, shape=m.type.shape, axes=axes)

    inner = ", ".join(f"broadcast({v})" for v in names)
    law = f"{op}({inner}) == broadcast({op}({', '.join(names)}))"
    return rule(law, Head(op)(*[broadcast(var(v)) for v in names]) >> build, exact)


def _before_reshape(op: str, operands: tuple[str, ...]) -> Rule:
    """op(reshape(x), c), where the reshape only adds axes of size 1."""

    def build(m: Match) -> Value | None:
        shapes = [a.node.args[0].type.shape for a in m.args if splat(a) is None]
        shape = shapes[0]
        if any(s != shape for s in shapes) or not _adds_ones(shape, m.args[0].type.shape):
            return None
        out = _inside(m, op, shape)
        return m.emit("reshape", out, shape=m.type.shape, checked=False)

    patterns: list[Pattern] = [
        const(v) if v == "c" else reshape(var(v), checked=False) for v in operands
    ]
    inner = ", ".join(v if v == "c" else f"reshape({v})" for v in operands)
    law = f"{op}({inner}) == reshape({op}({', '.join(operands)}))"
    return rule(law, Head(op)(*patterns) >> build, exact)


def _inside(m: Match, op: str, shape: Shape) -> Value:
    """The op on what its operands view, which has this shape."""
    args = []
    for a in m.args:
        number = splat(a)
        full = None if number is None else m.full(number, a.type.with_shape(shape))
        args.append(a.node.args[0] if full is None else full)
    return m.emit(op, *args, **m.attrs)


def _adds_ones(inner: Shape, outer: Shape) -> bool:
    return len(inner) < len(outer) and [s for s in inner if s != 1] == [s for s in outer if s != 1]


def _rows() -> Iterator[Rule]:
    for name, row in OPS.items():
        if row.kind is not Kind.ELEMENTWISE or row.arity not in (1, 2, 3):
            continue
        names = "xyz"[: row.arity]
        yield _before_broadcast(name, names)
        for numbers in itertools.product((False, True), repeat=row.arity):
            if not all(numbers):
                operands = zip(names, numbers, strict=True)
                yield _before_reshape(name, tuple("c" if is_c else v for v, is_c in operands))


RULES: tuple[Rule, ...] = tuple(_rows())
