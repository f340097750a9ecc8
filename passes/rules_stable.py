"""Rules that make a result more accurate: the closed list of `stable` rewrites.

    log(sum(exp(x)))            log-sum-exp: the largest x is taken out first
    exp(x) / sum(exp(x))        softmax, likewise
    log(exp(x) / sum(exp(x)))   log-softmax, also of a `call` named softmax
    log(1 + x), log(1 - x)      log1p
    exp(x) - 1, 1 - exp(x)      expm1
    1 / (1 + exp(-x)), exp(x) / (1 + exp(x))         sigmoid without overflow
    log(1 + exp(x)), log1p(exp(x))                   softplus without overflow
    log(sigmoid(x)), log(1 - sigmoid(x))             likewise
    pow(x, 2), pow(x, 3)        products: at most as far off as pow itself may be

(The pass `matrix_chain` is the other member of the list.) The forms are differentiable where the
originals are, at 0 too, so `grad` stabilises first: the shift is behind stop_gradient, and halves
are chosen by select rather than by |x|, whose derivative at 0 is 0.

Reshapes and broadcasts between the parts (keepdims) are looked through and put back.
"""

from __future__ import annotations

import math

from graphc.dims import is_nonnegative
from graphc.ir import Node, Value
from graphc.passes.patterns import F, Lit, Rule, floats, heads, rule, stable, var
from graphc.passes.rewrite import Match, splat

log, log1p, exp, expm1, div, sub, add = heads("log log1p exp expm1 div sub add")
mul, pow, neg = heads("mul pow neg")
G = var("g", floats)
_ONE, _ZERO = Lit(1.0), Lit(0.0)


def _node(m: Match, v: Value, op: str) -> Node | None:
    """v's node if it is this op and may be looked into."""
    return v.node if v.node.op.name == op and v not in m.rewriter.opaque else None


def _is(v: Value, number: Lit) -> bool:
    x = splat(v)
    return x is not None and number.holds(x)


def _peel(m: Match, v: Value) -> tuple[Value, list[Node]]:
    """v without the reshapes and broadcasts around it, and these, outermost first."""
    around: list[Node] = []
    while (n := _node(m, v, "reshape") or _node(m, v, "broadcast")) is not None:
        if n.attrs.get("checked"):
            break
        around.append(n)
        v = n.args[0]
    return v, around


def _wrap(m: Match, v: Value, around: list[Node]) -> Value:
    for n in reversed(around):
        v = m.emit(n.op.name, v, **n.attrs)
    return v


def _plus_one(m: Match, v: Value) -> Value | None:
    """x of 1 + x or x + 1."""
    n = _node(m, v, "add")
    if n is None:
        return None
    x, y = n.args
    return x if _is(y, _ONE) else y if _is(x, _ONE) else None


def _exponent(m: Match, v: Value | None) -> Value | None:
    """x of exp(x)."""
    n = None if v is None else _node(m, v, "exp")
    return None if n is None else n.args[0]


def _negated(m: Match, v: Value) -> Value:
    """-v, without a double negation."""
    n = _node(m, v, "neg")
    return n.args[0] if n is not None else m.emit("neg", v)


# log-sum-exp and softmax


def _is_shifted(v: Value) -> bool:
    """Whether v is something minus a maximum."""
    if v.node.op.name != "sub":
        return False
    v = v.node.args[1]
    while v.node.op.name in ("reshape", "broadcast", "stop_gradient", "select"):
        v = v.node.args[v.node.op.name == "select"]
    return v.node.op.name == "reduce_max"


def _shift(m: Match, x: Value, axes: tuple[int, ...]) -> Value:
    """The largest x along the axes, 0 where it is infinite: what log-sum-exp takes out first.

    An axis that may be empty gets one more element, -inf: the sum over nothing is 0, but there is
    no largest of nothing.
    """
    shape = x.type.shape
    high = tuple(
        int(i in axes and not is_nonnegative(s - 1)) for i, s in enumerate(shape)
    )
    if any(high):
        none = (0,) * len(shape)
        low = m.full(-math.inf, x.type.with_shape(()))
        x = m.emit("pad", x, low, low=none, high=high, interior=none)
    top = m.emit("reduce_max", x, axes=axes)
    finite = m.emit("select", m.emit("is_finite", top), top, m.full(0.0, top.type))
    return m.emit("stop_gradient", finite)


def _spread(m: Match, v: Value, like: Value, axes: tuple[int, ...]) -> Value:
    """v, which lacks the axes, broadcast along them."""
    rest = tuple(i for i in range(like.type.ndim) if i not in axes)
    return m.emit("broadcast", v, shape=like.type.shape, axes=rest)


def _sum_of_exp(m: Match, v: Value) -> tuple[Value, tuple[int, ...], list[Node]] | None:
    """x, axes and what stands around, for v = sum(exp(x), axes)."""
    total, around = _peel(m, v)
    n = _node(m, total, "reduce_sum")
    x = None if n is None else _exponent(m, _peel_same(m, n.args[0]))
    return None if n is None or x is None else (x, n.attrs["axes"], around)


def _peel_same(m: Match, v: Value) -> Value:
    """v without reshapes that change nothing."""
    while (n := _node(m, v, "reshape")) is not None and n.args[0].type is v.type:
        v = n.args[0]
    return v


def _log_sum_exp(m: Match) -> Value | None:
    found = _sum_of_exp(m, m[F])
    if found is None or _is_shifted(found[0]):
        return None
    x, axes, around = found
    top = _shift(m, x, axes)
    e = m.emit("exp", m.emit("sub", x, _spread(m, top, x, axes)))
    total = m.emit("log", m.emit("reduce_sum", e, axes=axes))
    return _wrap(m, m.emit("add", total, top), around)


def _softmax_parts(
    m: Match, numerator: Value, denominator: Value
) -> tuple[Value, tuple[int, ...], list[Node]] | None:
    """x and the sum's axes and surroundings, for exp(x) / sum(exp(x))."""
    x = _exponent(m, numerator)
    found = None if x is None else _sum_of_exp(m, denominator)
    return found if found is not None and found[0] is x else None


def _softmax(m: Match) -> Value | None:
    found = _softmax_parts(m, m[F], m[G])
    if found is None or _is_shifted(found[0]):
        return None
    x, axes, around = found
    e = m.emit("exp", m.emit("sub", x, _spread(m, _shift(m, x, axes), x, axes)))
    return m.emit("div", e, _wrap(m, m.emit("reduce_sum", e, axes=axes), around))


def _log_softmax(m: Match) -> Value | None:
    inner, around = _peel(m, m[F])
    n = _node(m, inner, "call")
    if n is not None and n.attrs["name"] in ("softmax", "sigmoid"):
        inner = m.inline(n)
    n = _node(m, inner, "div")
    if n is None:
        return _log_sigmoid(m, inner, around)
    found = _softmax_parts(m, *n.args)
    if found is None:
        return _log_sigmoid(m, inner, around)
    x, axes, around_sum = found
    if not _is_shifted(x):
        x = m.emit("sub", x, _spread(m, _shift(m, x, axes), x, axes))
    total = m.emit("reduce_sum", m.emit("exp", x), axes=axes)
    out = m.emit("sub", x, _wrap(m, m.emit("log", total), around_sum))
    return _wrap(m, out, around)


# sigmoid and softplus


def _parts(m: Match, x: Value) -> tuple[Value, Value, Value]:
    """0 <= x, exp(-|x|), and 0: what all of these are made of."""
    zero = m.full(0.0, x.type)
    positive = m.emit("less_equal", zero, x)
    return positive, m.emit("exp", m.emit("select", positive, m.emit("neg", x), x)), zero


def _make_sigmoid(m: Match, x: Value) -> Value:
    """1 / (1 + e) for x >= 0 and e / (1 + e) for x < 0, with e = exp(-|x|)."""
    positive, e, _ = _parts(m, x)
    one = m.full(1.0, x.type)
    return m.emit("div", m.emit("select", positive, one, e), m.emit("add", e, one))


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
    n = _node(m, v, "select")
    if n is None:
        return None
    test = _node(m, n.args[0], "less_equal") or _node(m, n.args[0], "less")
    x = n.args[2]
    minus = _node(m, n.args[1], "neg")
    if test is None or minus is None or not _is(test.args[0], _ZERO):
        return None
    return x if test.args[1] is x and minus.args[0] is x else None


def _is_nonpositive(m: Match, v: Value) -> bool:
    n = _node(m, v, "neg")
    return _half(m, v) is not None or (n is not None and n.args[0].node.op.name == "abs")


def _sigmoid_argument(m: Match, v: Value) -> Value | None:
    """x of sigmoid(x), in the form that _make_sigmoid gives."""
    n = _node(m, v, "div")
    top = None if n is None else _node(m, n.args[0], "select")
    if n is None or top is None:
        return None
    e = top.args[2]
    half = _exponent(m, e)
    if half is None or _plus_one(m, n.args[1]) is not e or not _is(top.args[1], _ONE):
        return None
    x = _half(m, half)
    return x if x is not None and half.node.args[0] is top.args[0] else None


def _log_sigmoid(m: Match, v: Value, around: list[Node]) -> Value | None:
    """log(sigmoid(x)) and log(1 - sigmoid(x)) == -softplus(x)."""
    x = _sigmoid_argument(m, v)
    if x is not None:
        return _wrap(m, _make_log_sigmoid(m, x), around)
    n = _node(m, v, "sub")
    if n is None or not _is(n.args[0], _ONE):
        return None
    inner = n.args[1]
    called = _node(m, inner, "call")
    if called is not None and called.attrs["name"] == "sigmoid":
        inner = m.inline(called)
    x = _sigmoid_argument(m, inner)
    return None if x is None else _wrap(m, m.emit("neg", _make_softplus(m, x)), around)


def _one_over_one_plus_exp(m: Match) -> Value | None:
    """1 / (1 + exp(y)) == sigmoid(-y), exp(y) / (1 + exp(y)) == sigmoid(y)."""
    e = _plus_one(m, m[G])
    y = _exponent(m, e)
    if e is None or y is None or _is_nonpositive(m, y):
        return None
    if _is(m[F], _ONE):
        return _make_sigmoid(m, _negated(m, y))
    return _make_sigmoid(m, y) if m[F] is e else None


def _softplus(m: Match) -> Value | None:
    y = _exponent(m, _plus_one(m, m[F]))
    return None if y is None or _is_nonpositive(m, y) else _make_softplus(m, y)


def _softplus_of_log1p(m: Match) -> Value | None:
    y = _exponent(m, m[F])
    return None if y is None or _is_nonpositive(m, y) else _make_softplus(m, y)


def _log1p(m: Match) -> Value | None:
    x = _plus_one(m, m[F])
    return None if x is None else m.emit("log1p", x)


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("log(softmax(x)) == log-softmax(x), log(sigmoid(x)) == log-sigmoid(x)",
         log(F) >> _log_softmax, stable),
    rule("log(sum(exp(x))) == log-sum-exp(x)", log(F) >> _log_sum_exp, stable),
    rule("exp(x) / sum(exp(x)) == softmax(x)", div(F, G) >> _softmax, stable),
    rule("log(1 + exp(x)) == softplus(x)", log(F) >> _softplus, stable),
    rule("log1p(exp(x)) == softplus(x)", log1p(F) >> _softplus_of_log1p, stable),
    rule("1 / (1 + exp(-x)) == sigmoid(x)", div(F, G) >> _one_over_one_plus_exp, stable),
    rule("log(1 + x) == log1p(x)", log(F) >> _log1p, stable),
    rule("log(1 - x) == log1p(-x)", log(sub(1.0, F)) >> log1p(neg(F)), stable),
    rule("exp(x) - 1 == expm1(x)", sub(exp(F), 1.0) >> expm1(F), stable),
    rule("exp(x) + -1 == expm1(x)", add(exp(F), -1.0) >> expm1(F), stable),
    rule("1 - exp(x) == -expm1(x)", sub(1.0, exp(F)) >> neg(expm1(F)), stable),
    rule("pow(x, 2) == x * x", pow(F, 2) >> mul(F, F), stable),
    rule("pow(x, 3) == x * x * x", pow(F, 3) >> mul(mul(F, F), F), stable),
)
# fmt: on
