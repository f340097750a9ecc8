"""Rules that make a result more accurate: the closed list of `stable` rewrites.

    log(sum(exp(x)))            log-sum-exp: the largest x is taken out first
    log(mean(exp(x)))           likewise: sum * k, 0 < k <= 1, sum / k, k >= 1, sum / size
    log(exp(x) + exp(y) + ..)   log-add-exp, up to eight terms, also where one of them is 1
    log(exp(x))                 x
    exp(x) / sum(exp(x))        softmax, likewise
    log(exp(x) / sum(exp(x)))   log-softmax, also of a `call` named softmax
    log(1 + x), log(1 - x)      log1p
    exp(x) - 1, 1 - exp(x)      expm1
    1 / (1 + exp(-x)), exp(x) / (1 + exp(x))         sigmoid without overflow
    c / (1 + exp(-x)), c * exp(x) / (1 + exp(x))     c * sigmoid(x), as in SiLU
    1 - sigmoid(x)                                   sigmoid(-x)
    log(1 + exp(x)), log1p(exp(x))                   softplus without overflow
    log(sigmoid(x)), log(1 - sigmoid(x))             likewise
    pow(x, 2), pow(x, 3)        products: at most as far off as pow itself may be

(The pass `matrix_chain` is the other member of the list.) The forms are differentiable where the
originals are, at 0 too, so `grad` stabilises first: the shift is behind stop_gradient, and halves
are chosen by select rather than by |x|, whose derivative at 0 is 0.

Reshapes and broadcasts between the parts (keepdims) are looked through and put back; between log
and softmax, sigmoid or exp so are transpose, slice, reverse and gather: log(softmax(x)[i]) is
log-softmax(x)[i]. The rules for sigmoid, softplus and log-add-exp stand in `rules_sigmoid`.

Not on the list, so computed as written: log(sum(w * exp(x))), as w may be negative or 0, and
tanh as (exp(x) - exp(-x)) / (exp(x) + exp(-x)).
"""

from __future__ import annotations

import math

from graphc.dims import is_nonnegative
from graphc.ir import Node, Value, splat
from graphc.passes.forms import (
    ONE,
    VIEWS,
    carried,
    exponent,
    is_number,
    node_of,
    peel,
    plus_one,
    puts_back,
    wrap,
)
from graphc.passes.patterns import F, G, Lit, Rule, heads, rule, stable
from graphc.passes.rewrite import Match
from graphc.passes.rules_sigmoid import (
    log_add_exp,
    log_of_exp,
    log_sigmoid,
    one_minus_sigmoid,
    over_one_plus_exp,
    softplus,
    softplus_of_log1p,
)

log, log1p, exp, expm1, div, sub, add = heads("log log1p exp expm1 div sub add")
mul, pow, neg = heads("mul pow neg")


# log-sum-exp and softmax

_SAME_PLACES = ("stop_gradient", "select")  # that a maximum may stand behind


def _is_shifted(v: Value, axes: tuple[int, ...]) -> bool:
    """Whether v is something minus its own maximum along these axes; that of others may be far from
    it."""
    if v.node.op.name != "sub":
        return False
    x, top = v.node.args
    around: list[Node] = []
    while (name := top.node.op.name) in ("reshape", "broadcast", "transpose", *_SAME_PLACES):
        if name not in _SAME_PLACES:
            around.append(top.node)
        top = top.node.args[name == "select"]
    if top.node.op.name != "reduce_max":
        return False
    (of,), over = top.node.args, top.node.attrs["axes"]
    if of.node.op.name == "pad" and is_number(of.node.args[1], Lit(-math.inf)):
        of = of.node.args[0]
    place = tuple(range(x.type.ndim))
    if of is not x and x.node.op.name == "transpose":
        x, place = x.node.args[0], x.node.attrs["perm"]
    came = carried(around, [a for a in range(of.type.ndim) if a not in over])
    return (
        of is x and came is not None and {place[a] for a in axes} == {*over}
        and all(a is None or a == p for a, p in zip(came, place, strict=True))
    )


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
    total, around = peel(m, v)
    n = node_of(m, total, "reduce_sum")
    x = None if n is None else exponent(m, _peel_same(m, n.args[0]))
    return None if n is None or x is None else (x, n.attrs["axes"], around)


def _peel_same(m: Match, v: Value) -> Value:
    """v without reshapes that change nothing."""
    while (n := node_of(m, v, "reshape")) is not None and n.args[0].type is v.type:
        v = n.args[0]
    return v


def _log_sum_exp(m: Match) -> Value | None:
    """log(sum(exp(x))), and log(mean(exp(x))): the sum times or over a number."""
    v, outside = peel(m, m[F])
    found, scale = _sum_of_exp(m, v), None
    if found is None and v.node.op.name in ("mul", "div") and v not in m.rewriter.opaque:
        found, scale = _sum_of_exp(m, v.node.args[0]), _scale(m, v.node)
        found = None if scale is None else found
    if found is None or _is_shifted(found[0], found[1]):
        return None
    x, axes, around = found
    top = _shift(m, x, axes)
    e = m.emit("exp", m.emit("sub", x, _spread(m, top, x, axes)))
    total = m.emit("reduce_sum", e, axes=axes)
    if scale is not None:
        # Inside the logarithm: outside, log(n) - log(n) would cancel.
        if total.type.shape:
            scale = m.emit("broadcast", scale, shape=total.type.shape, axes=())
        total = m.emit(v.node.op.name, total, scale)
    total = m.emit("add", m.emit("log", total), top)
    return wrap(m, wrap(m, total, around), outside)


def _scale(m: Match, n: Node) -> Value | None:
    """The number, as a 0-d value, of sum * number or sum / number that makes a mean.

    One that makes sums larger could overflow where the largest x is far below 0.
    """
    k = splat(n.args[1])
    if k is not None:
        x = float(k)
        fits = 0 < x <= 1 if n.op.name == "mul" else 1 <= x < math.inf
        return m.full(k, n.args[1].type.with_shape(())) if fits else None
    v, _ = peel(m, n.args[1])
    counts = v.node.op.name == "cast" and v.node.args[0].node.op.name == "dim"
    return v if counts and n.op.name == "div" and not v.type.shape else None


def _softmax_parts(
    m: Match, numerator: Value, denominator: Value
) -> tuple[Value, tuple[int, ...], list[Node]] | None:
    """x and the sum's axes and surroundings, for exp(x) / sum(exp(x))."""
    x = exponent(m, numerator)
    found = None if x is None else _sum_of_exp(m, denominator)
    return found if found is not None and found[0] is x else None


def _softmax(m: Match) -> Value | None:
    found = _softmax_parts(m, m[F], m[G])
    if found is None or _is_shifted(found[0], found[1]):
        return None
    x, axes, around = found
    if not puts_back(around, axes, x.type.ndim):
        return None
    e = m.emit("exp", m.emit("sub", x, _spread(m, _shift(m, x, axes), x, axes)))
    return m.emit("div", e, wrap(m, m.emit("reduce_sum", e, axes=axes), around))


def _quotient_parts(m: Match, v: Value) -> tuple[Value, tuple[int, ...], list[Node]] | None:
    """`_softmax_parts` of v, where it is exp(x) / sum(exp(x)) or exp(x) * (1 / sum(exp(x)))."""
    if (n := node_of(m, v, "div")) is not None:
        return _softmax_parts(m, *n.args)
    n = node_of(m, v, "mul")
    for x, y in () if n is None else (n.args, n.args[::-1]):
        over, outside = peel(m, y)
        r = node_of(m, over, "div")
        if r is not None and is_number(r.args[0], ONE):
            found = _softmax_parts(m, x, r.args[1])
            if found is not None:
                return found[0], found[1], [*outside, *found[2]]
    return None


def _log_softmax(m: Match) -> Value | None:
    inner, around = peel(m, m[F], VIEWS)
    n = node_of(m, inner, "call")
    if n is not None and n.attrs["name"] == "softmax":
        inner, more = peel(m, m.inline(inner), VIEWS)
        around += more
    found = _quotient_parts(m, inner)
    if found is None:
        return None
    x, axes, around_sum = found
    if not puts_back(around_sum, axes, x.type.ndim):
        return None
    if not _is_shifted(x, axes):
        x = m.emit("sub", x, _spread(m, _shift(m, x, axes), x, axes))
    total = m.emit("reduce_sum", m.emit("exp", x), axes=axes)
    out = m.emit("sub", x, wrap(m, m.emit("log", total), around_sum))
    return wrap(m, out, around)


def _log1p(m: Match) -> Value | None:
    x = plus_one(m, m[F])
    return None if x is None else m.emit("log1p", x)


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("log(exp(x)) == x", log(F) >> log_of_exp, stable),
    rule("log(softmax(x)) == log-softmax(x)", log(F) >> _log_softmax, stable),
    rule("log(sigmoid(x)) == log-sigmoid(x)", log(F) >> log_sigmoid, stable),
    rule("1 - sigmoid(x) == sigmoid(-x)", sub(1.0, F) >> one_minus_sigmoid, stable),
    rule("log(sum(exp(x))) == log-sum-exp(x)", log(F) >> _log_sum_exp, stable),
    rule("exp(x) / sum(exp(x)) == softmax(x)", div(F, G) >> _softmax, stable),
    rule("log(1 + exp(x)) == softplus(x)", log(F) >> softplus, stable),
    rule("log1p(exp(x)) == softplus(x)", log1p(F) >> softplus_of_log1p, stable),
    rule("log(exp(x) + exp(y)) == log-add-exp(x, y)", log(F) >> log_add_exp, stable),
    rule("c / (1 + exp(-x)) == c * sigmoid(x)", div(F, G) >> over_one_plus_exp, stable),
    rule("log(1 + x) == log1p(x)", log(F) >> _log1p, stable),
    rule("log(1 - x) == log1p(-x)", log(sub(1.0, F)) >> log1p(neg(F)), stable),
    rule("exp(x) - 1 == expm1(x)", sub(exp(F), 1.0) >> expm1(F), stable),
    rule("exp(x) + -1 == expm1(x)", add(exp(F), -1.0) >> expm1(F), stable),
    rule("1 - exp(x) == -expm1(x)", sub(1.0, exp(F)) >> neg(expm1(F)), stable),
    rule("pow(x, 2) == x * x", pow(F, 2) >> mul(F, F), stable),
    rule("pow(x, 3) == x * x * x", pow(F, 3) >> mul(mul(F, F), F), stable),
)
# fmt: on
