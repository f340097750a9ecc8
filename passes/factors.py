"""Factors that leave a gradient's sum: multiplied once, not with every term.

    sum over n of m[n, k, d] * v[k, d]   ->   (sum over n of m[n, k, d]) * v[k, d]

The cotangents of what a value was repeated to are added up. What they were all multiplied by last
may as well come after the sum: what is added is a value that was there before, and there are fewer
roundings. Where it is repeated itself along an axis that is left, as in products of a Hessian with
a vector, that axis leaves the sum, too. Nobody wrote the order of a gradient's operations, so it
is ours to say; sums that are declared keep theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphc import ir
from graphc.ir import Node, Value
from graphc.ops import Kind

# Elementwise nodes that are looked through; products of cotangents have few.
MOST = 16


def out_of_sum(ct: Value) -> Value:
    """The cotangent `ct`, or what equals it with fewer multiplications."""
    n = ct.node
    if n.op.name != "reduce_sum":
        return ct
    (x,), summed = n.args, n.attrs["axes"]
    tree = _formula(x)
    varies = _varying(tree, x)
    factors, negative, rest = _last_factors(x, summed, tree, varies)
    if not factors or varies[rest].isdisjoint(summed):
        return ct
    left = sorted(varies[rest].union(summed))
    gone = [a for a in range(x.type.ndim) if a not in left]
    (total,) = ir.apply(
        "reduce_sum", [_without(rest, gone)], axes=tuple(left.index(a) for a in summed)
    )
    if gone:
        kept = [a for a in range(x.type.ndim) if a not in summed]
        axes = tuple(k for k, a in enumerate(kept) if a in left)
        (total,) = ir.apply("broadcast", [total], shape=ct.type.shape, axes=axes)
    for f in reversed(factors):
        (total,) = ir.apply("mul", [total, _without(f, summed)])
    return ir.apply("neg", [total])[0] if negative else total


def _formula(root: Value) -> list[Node]:
    """The elementwise nodes behind `root`, operands first; none if there are too many."""
    seen: set[Node] = set()
    stack = [root.node]
    while stack and len(seen) <= MOST:
        n = stack.pop()
        if n.op.kind is Kind.ELEMENTWISE and n not in seen:
            seen.add(n)
            stack += [a.node for a in n.args]
    return sorted(seen, key=lambda n: n.serial) if len(seen) <= MOST else []


def _varying(tree: Sequence[Node], root: Value) -> dict[Value, set[int]]:
    """The axes along which the elements of each value may differ."""
    found: dict[Value, set[int]] = {}
    for v in [*[a for n in tree for a in n.args], root]:
        repeated = v.node.op.name == "broadcast"
        found[v] = set(v.node.attrs["axes"] if repeated else range(v.type.ndim))
    for n in tree:
        found[n.out] = set().union(*[found[a] for a in n.args])
    return found


def _last_factors(
    x: Value, summed: Collection[int], tree: Sequence[Node], varies: dict[Value, set[int]]
) -> tuple[list[Value], bool, Value]:
    """What x was multiplied by last that is the same in all of a sum, the last first; whether it
    was negated, too; and what was there before. A number alone is no reason to go on."""
    known = set(tree)
    factors: list[Value] = []
    negative = False
    best: tuple[list[Value], bool, Value] = ([], False, x)
    while x.node in known and x.node.op.name in ("mul", "neg"):
        args = x.node.args
        if len(args) == 1:
            x, negative = args[0], not negative
            continue
        f = next((a for a in args if varies[a].isdisjoint(summed)), None)
        if f is None:
            break
        x = args[1] if f is args[0] else args[0]
        factors.append(f)
        if varies[f]:
            best = ([*factors], negative, x)
    return best


def _without(v: Value, gone: Collection[int]) -> Value:
    """`v` without axes along which it does not vary."""
    if not gone:
        return v

    def fewer(leaf: Value) -> Value:
        shape, axes = leaf.type.shape, leaf.node.attrs["axes"]
        left = [a for a in range(len(shape)) if a not in gone]
        return ir.apply(
            "broadcast", leaf.node.args, shape=tuple(shape[a] for a in left),
            axes=tuple(left.index(a) for a in axes),
        )[0]

    made: dict[Value, Value] = {}
    for n in _formula(v):
        args = [made[a] if a in made else fewer(a) for a in n.args]
        made[n.out] = ir.apply(n.op, args, **n.attrs)[0]
    return made[v] if v in made else fewer(v)
