"""Derivatives of forms as a whole, where those of their parts would take more to compute and keep.

    y = select(0 <= x, 1, e) / (e + 1), e = exp(-|x|)   ->   ct * (e / (e + 1)^2) for x

That is sigmoid as `rules_sigmoid` makes it. Part by part its derivative has two branches for each
place where the sign of x chose, and wants y and those signs beside e: for the gates of a loop's
steps, arrays that are kept until the way back. y * (1 - y) would lose all digits where y is near 1.
"""

from __future__ import annotations

from collections.abc import Container

from graphc import prim
from graphc.ir import Node, Value
from graphc.passes.forms import ONE, ZERO, is_number, opposite
from graphc.tensor import Tensor


def of_sigmoid(n: Node, ct: Value, kept: Container[Value]) -> tuple[Value, Value] | None:
    """x and its cotangent, where n makes sigmoid(x) or sigmoid(-x) and `ct` is that of the result;
    nothing if a value within the form is in `kept`, whose own cotangent is asked for."""
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
    s = Tensor(bottom.out)
    total = Tensor(ct) * prim.div(Tensor(e), s * s)
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
