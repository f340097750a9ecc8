"""Derivatives of forms as a whole, where those of their parts would take more to compute and keep.

    y = select(0 <= x, 1, e) / (e + 1), e = exp(-|x|)
        ->   ct * select(0 <= x, e * y^2, y - y^2) for x

That is sigmoid as `rules_sigmoid` makes it. Part by part its derivative divides once more, and has
two branches for each place where the sign of x chose: for the gates of a loop's steps, arrays that
are kept until the way back. y - y^2 alone would lose all digits where y is near 1.

    y = e / sum(e), e = exp(x)   ->   y * (ct - sum(ct * e) / sum(e)) for x

That is softmax. Part by part the quotient hands on to e one array as large as y and the sum needs
another: a product that makes ct stored both. The sum of ct * y would wait for that of e, in one
kernel a sweep more over each row.
"""

from __future__ import annotations

from collections.abc import Container

from graphc import prim
from graphc.ir import Node, Value
from graphc.passes.forms import KEEPDIMS, ONE, ZERO, is_number, opposite, puts_back
from graphc.tensor import Tensor


def of_form(n: Node, ct: Value, kept: Container[Value]) -> tuple[Value, Value] | None:
    """x and its cotangent, where n ends a form of x and `ct` is that of the result; nothing if a
    value within the form is in `kept`, whose own cotangent is asked for."""
    return _of_sigmoid(n, ct, kept) or _of_softmax(n, ct, kept)


def _of_sigmoid(n: Node, ct: Value, kept: Container[Value]) -> tuple[Value, Value] | None:
    """n makes sigmoid(x) or sigmoid(-x)."""
    if n.op.name != "div":
        return None
    top, bottom = (a.node for a in n.args)
    if top.op.name != "select" or bottom.op.name != "add" or not is_number(bottom.args[1], ONE):
        return None
    e = bottom.args[0]
    positive, *branches = top.args
    flipped = branches[0] is e
    if branches[not flipped] is not e or not is_number(branches[flipped], ONE):
        return None
    x = _argument(e, positive)
    if x is None or any(v in kept for v in (top.out, bottom.out, e, e.node.args[0])):
        return None
    y = Tensor(n.out)
    if flipped:  # both are there as a rule, as in a gate's g * a + (1 - g) * b, with one slope
        one = Tensor(branches[1])
        y = prim.div(prim.select(Tensor(positive), one, Tensor(e)), Tensor(bottom.out))
    square = y * y
    total = Tensor(ct) * prim.select(Tensor(positive), Tensor(e) * square, y - square)
    return x, (-total if flipped else total)._value


def _argument(e: Value, positive: Value) -> Value | None:
    """x of e = exp(select(positive, -x, x)), where `positive` is 0 <= x or 0 < x."""
    test = positive.node
    if e.node.op.name != "exp" or test.op.name not in ("less_equal", "less"):
        return None
    half = e.node.args[0].node
    if half.op.name != "select" or half.args[0] is not positive:
        return None
    zero, x = test.args
    minus, same = half.args[1:]
    known = same is x and opposite(minus, x) and is_number(zero, ZERO)
    return x if known else None


def _of_softmax(n: Node, ct: Value, kept: Container[Value]) -> tuple[Value, Value] | None:
    """n makes exp(x) / sum(exp(x)), or exp(x) * (1 / sum(exp(x)))."""
    if n.op.name not in ("div", "mul"):
        return None
    turned = n.op.name == "mul" and n.args[1].node.op.name == "exp"
    e, other = n.args[::-1] if turned else n.args
    within = _to_sum(other, inverted=n.op.name == "mul") if e.node.op.name == "exp" else []
    if not within or within[-1].args[0] is not e or any(v.out in kept for v in (e.node, *within)):
        return None
    axes, ndim = within[-1].attrs["axes"], e.type.ndim
    if not puts_back([v for v in within if v.op.name in KEEPDIMS], axes, ndim):
        return None
    c = Tensor(ct)
    mean = prim.reduce_sum(c * Tensor(e), axes) / Tensor(within[-1].out)
    kept_axes = tuple(a for a in range(ndim) if a not in axes)
    slope = Tensor(n.out) * (c - prim.broadcast(mean, e.type.shape, kept_axes))
    return e.node.args[0], slope._value


def _to_sum(v: Value, *, inverted: bool) -> list[Node]:
    """The nodes from v to a sum that it repeats, or of which it repeats 1 / sum; else nothing."""
    within, n = [], v.node
    while n.op.name in KEEPDIMS or (inverted and n.op.name == "div"):
        if n.op.name == "div":
            if not is_number(n.args[0], ONE):
                return []
            inverted = False
        within.append(n)
        n = n.args[-1].node
    return [*within, n] if n.op.name == "reduce_sum" and not inverted else []
