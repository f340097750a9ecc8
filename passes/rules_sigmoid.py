"""Stable rules for sigmoid, softplus and log(exp(a) + exp(b)), part of the list of `rules_stable`.

All are made of exp(-|x|), which cannot overflow. -|x| is chosen by select, so that derivatives are
right at 0 too. `simplify` may have cancelled signs in a form before: both spellings of -|x| count,
select(0 <= x, -x, x) and, where x = -u, select(0 <= x, u, x).
"""

from __future__ import annotations

import math

from graphc.ir import Node, Value
from graphc.passes.forms import (
    ONE,
    VIEWS,
    ZERO,
    exponent,
    is_number,
    negated,
    node_of,
    opposite,
    peel,
    plus_one,
    wrap,
)
from graphc.passes.patterns import F, G
from graphc.passes.rewrite import Match

# Below -FAR, exp(x) is nothing beside 1, but a normal number still: half the way to underflow.
_FAR = {"f16": 8.0, "f64": 512.0}
_FAR_F32 = 64.0
# Longer sums of exp written out stay as they are, for the passes to be linear in the nodes.
_MOST_TERMS = 8


def _parts(m: Match, x: Value) -> tuple[Value, Value, Value]:
    """0 <= x, exp(-|x|), and 0: what all of these are made of."""
    zero = m.full(0.0, x.type)
    positive = m.emit("less_equal", zero, x)
    return positive, m.emit("exp", m.emit("select", positive, negated(m, x), x)), zero


def _make_sigmoid(m: Match, x: Value, flipped: bool = False) -> Value:
    """1 / (1 + e) for x >= 0 and e / (1 + e) for x < 0, with e = exp(-|x|); flipped: of -x."""
    positive, e, _ = _parts(m, x)
    one = m.full(1.0, x.type)
    top = m.emit("select", positive, *((e, one) if flipped else (one, e)))
    return m.emit("div", top, m.emit("add", e, one))


def _make_weighted(m: Match, c: Value, x: Value, around: list[Node]) -> Value:
    """c * sigmoid(x) as c / (1 + e) for x >= 0 and c * e / (1 + e) for x < 0.

    Far below 0, e would lose digits to underflow that c * e has: there exp(x + far) stands for e,
    the result is multiplied by exp(-far), and 1 + e is 1.
    """
    far = _FAR.get(x.type.dtype.name, _FAR_F32)
    zero, one, limit = (m.full(k, x.type) for k in (0.0, 1.0, far))
    positive = m.emit("less_equal", zero, x)
    is_far = m.emit("less", x, m.full(-far, x.type))
    below = m.emit("select", is_far, m.emit("add", x, limit), x)
    e = m.emit("exp", m.emit("select", positive, negated(m, x), below))
    bottom = wrap(m, m.emit("add", m.emit("select", is_far, zero, e), one), around)
    scale = wrap(m, m.emit("select", is_far, m.full(math.exp(-far), x.type), one), around)
    low = m.emit("mul", c, wrap(m, e, around))
    top = m.emit("select", wrap(m, positive, around), c, low)
    return m.emit("mul", m.emit("div", top, bottom), scale)


def _make_softplus(m: Match, x: Value) -> Value:
    """max(x, 0) + log1p(exp(-|x|))."""
    positive, e, zero = _parts(m, x)
    return m.emit("add", m.emit("select", positive, x, zero), m.emit("log1p", e))


def _make_log_sigmoid(m: Match, x: Value) -> Value:
    """min(x, 0) - log1p(exp(-|x|))."""
    positive, e, zero = _parts(m, x)
    return m.emit("sub", m.emit("select", positive, zero, x), m.emit("log1p", e))


def _half(m: Match, v: Value) -> Value | None:
    """x of select(0 <= x, -x, x) or select(0 < x, -x, x), that is -|x|."""
    n = node_of(m, v, "select")
    if n is None:
        return None
    test = node_of(m, n.args[0], "less_equal") or node_of(m, n.args[0], "less")
    if test is None or not is_number(test.args[0], ZERO):
        return None
    minus, x = n.args[1:]
    return x if test.args[1] is x and opposite(minus, x) else None


def _is_gap(v: Value) -> bool:
    """Whether v is the smaller of two less the larger, as _make_logaddexp gives it."""
    if v.node.op.name != "sub":
        return False
    low, top = (a.node for a in v.node.args)
    if low.op.name != "select" or top.op.name != "select":
        return False
    if top.args[0].node.op.name == "is_finite":
        top = top.args[1].node
    first, b, a = low.args
    ordered = first.node.op.name == "less_equal" and first.node.args == (b, a)
    return ordered and top.op.name == "select" and top.args == (first, a, b)


def _is_nonpositive(m: Match, v: Value) -> bool:
    n = node_of(m, v, "neg")
    is_minus_abs = n is not None and n.args[0].node.op.name == "abs"
    return is_minus_abs or _half(m, v) is not None or _is_gap(v)


def sigmoid_argument(m: Match, v: Value) -> tuple[Value, bool] | None:
    """x of sigmoid(x), and whether of sigmoid(-x), in the form that _make_sigmoid gives."""
    n = node_of(m, v, "div")
    top = None if n is None else node_of(m, n.args[0], "select")
    if n is None or top is None:
        return None
    flipped = is_number(top.args[2], ONE)
    e, one = top.args[1 if flipped else 2], top.args[2 if flipped else 1]
    half = exponent(m, e)
    if half is None or plus_one(m, n.args[1]) is not e or not is_number(one, ONE):
        return None
    x = _half(m, half)
    return (x, flipped) if x is not None and half.node.args[0] is top.args[0] else None


def _opened(m: Match, v: Value, name: str) -> Value:
    """v; what a composite of this name makes, where it is one."""
    n = node_of(m, v, "call")
    return m.inline(v) if n is not None and n.attrs["name"] == name else v


def one_minus_sigmoid(m: Match) -> Value | None:
    """1 - sigmoid(x) == sigmoid(-x), which shares exp(-|x|) with sigmoid(x)."""
    v, around = peel(m, m[F])
    found = sigmoid_argument(m, _opened(m, v, "sigmoid"))
    return None if found is None else wrap(m, _make_sigmoid(m, found[0], not found[1]), around)


def log_sigmoid(m: Match) -> Value | None:
    """log(sigmoid(x)) == -softplus(-x), also where elements of it are picked."""
    v, around = peel(m, m[F], VIEWS)
    found = sigmoid_argument(m, _opened(m, v, "sigmoid"))
    if found is None:
        return None
    x, flipped = found
    if flipped:
        return wrap(m, m.emit("neg", _make_softplus(m, x)), around)
    return wrap(m, _make_log_sigmoid(m, x), around)


def over_one_plus_exp(m: Match) -> Value | None:
    """1 / (1 + exp(y)) == sigmoid(-y), exp(y) / (1 + exp(y)) == sigmoid(y); times c likewise."""
    bottom, around = peel(m, m[G])
    e = plus_one(m, bottom)
    y = exponent(m, e)
    if e is None or y is None or _is_nonpositive(m, y):
        return None
    if is_number(m[F], ONE):
        return wrap(m, _make_sigmoid(m, negated(m, y)), around)
    spread = wrap(m, e, around)
    if m[F] is spread:
        return wrap(m, _make_sigmoid(m, y), around)
    n = node_of(m, m[F], "mul")
    if n is not None and spread in n.args:
        return _make_weighted(m, n.args[n.args[0] is spread], y, around)
    return _make_weighted(m, m[F], negated(m, y), around)


def softplus(m: Match) -> Value | None:
    """log(1 + exp(y)) == softplus(y); log1p(exp(y)) where exp(y) is surely not above 1."""
    e = plus_one(m, m[F])
    y = exponent(m, e)
    if e is None or y is None:
        return None
    return m.emit("log1p", e) if _is_nonpositive(m, y) else _make_softplus(m, y)


def softplus_of_log1p(m: Match) -> Value | None:
    y = exponent(m, m[F])
    return None if y is None or _is_nonpositive(m, y) else _make_softplus(m, y)


def log_of_exp(m: Match) -> Value | None:
    v, around = peel(m, m[F], VIEWS)
    x = exponent(m, v)
    return None if x is None else wrap(m, x, around)


# log(exp(a) + exp(b))


def _make_logaddexp(m: Match, a: Value, b: Value) -> Value:
    """The larger + log1p(exp(the smaller - the larger)); nothing is taken off an infinite one."""
    first = m.emit("less_equal", b, a)
    top, low = m.emit("select", first, a, b), m.emit("select", first, b, a)
    taken = m.emit("select", m.emit("is_finite", top), top, m.full(0.0, top.type))
    return m.emit("add", top, m.emit("log1p", m.emit("exp", m.emit("sub", low, taken))))


def log_add_exp(m: Match) -> Value | None:
    """log(exp(a) + exp(b) + ...), up to eight terms; 1 counts as exp(0)."""
    waiting, terms = [m[F]], []
    while waiting:
        v = waiting.pop()
        n = node_of(m, v, "add")
        if n is not None:
            waiting += reversed(n.args)
        elif is_number(v, ONE):
            terms.append(m.full(0.0, v.type))
        else:
            inner, around = peel(m, v)
            x = exponent(m, inner)
            if x is None:
                return None
            terms.append(wrap(m, x, around))
        if len(terms) + len(waiting) > _MOST_TERMS:
            return None
    if len(terms) < 2:
        return None
    total = terms[0]
    for x in terms[1:]:
        total = _make_logaddexp(m, total, x)
    return total
