"""Factors that leave a gradient's sum, where the sum then has fewer numbers to add.

    sum over n of v[k, d] * m[n, k]   ->   v[k, d] * (sum over n of m[n, k])

The cotangents of what a value was repeated to are added up. A factor that is the same in all of
them may as well come after the sum. It does where the others are then repeated along another
axis: that axis leaves the sum, as it does for products of a Hessian with a vector, and there are
fewer roundings. Nobody wrote the order of a gradient's operations, so it is ours to say; sums that
are declared keep theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphc import ir
from graphc.ir import Node, Value
from graphc.ops import Kind

# Elementwise nodes that are looked through; products of cotangents have few.
MOST = 16


def out_of_sum(ct: Value) -> Value:
    """The cotangent `ct`, or what equals it with a smaller sum."""
    n = ct.node
    if n.op.name != "reduce_sum":
        return ct
    (x,), summed = n.args, n.attrs["axes"]
    tree = _formula(x)
    varies = _varying(tree, x)
    factors, negative = _factors(x, tree)
    outer = [f for f in factors if varies[f].isdisjoint(summed)]
    inner = [f for f in factors if not varies[f].isdisjoint(summed)]
    spanned = set().union(*[varies[f] for f in inner])
    kept = [a for a in range(x.type.ndim) if a not in summed]
    gone = [a for a in kept if a not in spanned]
    if not outer or not inner or not gone:
        return ct
    left = [a for a in range(x.type.ndim) if a not in gone]
    (total,) = ir.apply(
        "reduce_sum", [_product([_without(f, gone) for f in inner])],
        axes=tuple(left.index(a) for a in summed),
    )
    (total,) = ir.apply(
        "broadcast", [total], shape=ct.type.shape,
        axes=tuple(k for k, a in enumerate(kept) if a not in gone),
    )
    out = _product([*[_without(f, summed) for f in outer], total])
    return ir.apply("neg", [out])[0] if negative else out


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


def _factors(root: Value, tree: Sequence[Node]) -> tuple[list[Value], bool]:
    """What is multiplied to make `root`, in order, and whether that is its negative."""
    known = set(tree)
    factors, negative = [], False
    stack = [root]
    while stack:
        v = stack.pop()
        name = v.node.op.name if v.node in known else ""
        if name in ("mul", "neg"):
            negative ^= name == "neg"
            stack += v.node.args[::-1]
        else:
            factors.append(v)
    return factors, negative


def _without(v: Value, gone: Collection[int]) -> Value:
    """`v` without axes along which it does not vary."""
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


def _product(factors: Sequence[Value]) -> Value:
    out = factors[0]
    for f in factors[1:]:
        (out,) = ir.apply("mul", [out, f])
    return out
