"""Rules that hold for real numbers but not for every float: opt-in (`fastmath=True`).

They lose -0.0, hide NaN and infinity, or round differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.dims import is_nonnegative, product
from graphc.dtypes import finfo
from graphc.ir import Value, splat
from graphc.passes.patterns import (
    Const,
    F,
    G,
    Pattern,
    Rule,
    attr,
    const,
    fastmath,
    floats,
    heads,
    once,
    rule,
    var,
)
from graphc.passes.rewrite import Match
from graphc.passes.rules_layout import AX, AXI
from graphc.passes.rules_reduce import joined_axes

add, sub, mul, div, pow, neg, abs_ = heads("add sub mul div pow neg abs")
sqrt, rsqrt, exp, log, reduce_sum = heads("sqrt rsqrt exp log reduce_sum")
broadcast, dot = heads("broadcast dot")
FK, FC = const("k", floats), const("c", floats)
H = var("h", floats)
CO, BA = attr("contract"), attr("batch")


def _out_of_sum(m: Match) -> Value | None:
    """sum(f) * g, where g is the same for all that is summed."""
    axes, inner = m[AX], m[AXI]
    if any(a in axes for a in inner):
        return None
    left = [a for a in range(m[F].type.ndim) if a not in axes]
    to = tuple(left.index(a) for a in inner)
    g = m.emit("broadcast", m[G], shape=m.type.shape, axes=to)
    return m.emit("mul", m.emit("reduce_sum", m[F], axes=axes), g)


def _by_reciprocal(m: Match) -> Value | None:
    """f * broadcast(1 / g), where the broadcast repeats g; constants have a rule of their own."""
    shape, axes = m.type.shape, m[AXI]
    if any(splat(a) is not None for a in m.args):
        return None
    if all(n == 1 for a, n in enumerate(shape) if a not in axes):
        return None
    r = m.emit("div", m.full(1.0, m[G].type), m[G])
    return m.emit("mul", m[F], m.emit("broadcast", r, shape=shape, axes=axes))


def _scale_after(side: int, constant: bool) -> Rule:
    """One number that an operand of a product is multiplied by, where that is no smaller than the
    result."""

    def build(m: Match) -> Value | None:
        if not constant and m[G].type.ndim:
            return None
        if not is_nonnegative(product(m[F].type.shape) - product(m.type.shape)):
            return None
        args = [m[F], m[H]] if side == 0 else [m[H], m[F]]
        out = m.emit("dot", *args, contract=m[CO], batch=m[BA])
        if constant:
            return m.emit("mul", out, m.full(m.number(FC)))
        return m.emit("mul", out, m.emit("broadcast", m[G], shape=m.type.shape, axes=()))

    scale: Pattern = FC if constant else broadcast(G, axes=())
    scaled = once(mul(F, scale))
    s = "c" if constant else "g"
    if side == 0:
        return rule(f"(f * {s}) @ h == (f @ h) * {s}",
                    dot(scaled, H, contract=CO, batch=BA) >> build, fastmath)
    return rule(f"h @ (f * {s}) == (h @ f) * {s}",
                dot(H, scaled, contract=CO, batch=BA) >> build, fastmath)


def _number(m: Match, make: Callable[..., Any], *cs: Const) -> float:
    """The size of a constant made of others."""
    d = m.type.dtype
    with np.errstate(all="ignore"):
        number = make(*[m.number(c).astype(np.float64) for c in cs])
        return abs(float(np.asarray(number).astype(d.numpy)))


def _is_factor(make: Callable[..., Any], *cs: Const) -> Callable[[Match], bool]:
    """Whether that number is normal: one that overflowed, or lost its digits, would be the end of
    results that did not."""

    def check(m: Match) -> bool:
        least = float(finfo(m.type.dtype).smallest_normal)
        return least <= _number(m, make, *cs) < math.inf

    return check


def _is_finite_sum(m: Match) -> bool:
    return math.isfinite(_number(m, np.add, FC, FK))


# fmt: off
RULES: tuple[Rule, ...] = (
    # identities
    rule("f + 0.0 == f", add(F, 0.0) >> F, fastmath),                       # -0.0
    rule("f - -0.0 == f", sub(F, -0.0) >> F, fastmath),                     # -0.0
    rule("f * 0 == 0", mul(F, 0.0) >> 0.0, fastmath),                       # NaN, inf, -0.0
    rule("f - f == 0", sub(F, F) >> 0.0, fastmath),                         # NaN, inf
    rule("f / f == 1", div(F, F) >> 1.0, fastmath),                         # NaN, inf, 0
    rule("0.0 - f == -f", sub(0.0, F) >> neg(F), fastmath),                 # 0.0
    rule("-(f - g) == g - f", neg(sub(F, G)) >> sub(G, F), fastmath),       # 0.0

    # constants collect
    rule("(f + c) + k == f + (c + k)", add(add(F, FC), FK) >> add(F, add(FC, FK)), fastmath,
         where=_is_finite_sum),
    rule("(f * c) * k == f * (c * k)", mul(mul(F, FC), FK) >> mul(F, mul(FC, FK)), fastmath,
         where=_is_factor(np.multiply, FC, FK)),
    rule("f - k == f + (-k)", sub(F, FK) >> add(F, neg(FK)), fastmath),
    rule("f / k == f * (1 / k)", div(F, FK) >> mul(F, div(1.0, FK)), fastmath,
         where=_is_factor(np.reciprocal, FK)),

    # powers and roots
    rule("pow(f, 0.5) == sqrt(f)", pow(F, 0.5) >> sqrt(F), fastmath),       # -0.0, -inf
    rule("pow(f, -0.5) == rsqrt(f)", pow(F, -0.5) >> rsqrt(F), fastmath),
    rule("pow(f, -1) == 1 / f", pow(F, -1) >> div(1.0, F), fastmath),
    rule("1 / sqrt(f) == rsqrt(f)", div(1.0, sqrt(F)) >> rsqrt(F), fastmath),
    rule("f / sqrt(g) == f * rsqrt(g)", div(F, once(sqrt(G))) >> mul(F, rsqrt(G)), fastmath),
    rule("sqrt(f * f) == |f|", sqrt(mul(F, F)) >> abs_(F), fastmath),       # overflow
    rule("sqrt(f) * sqrt(f) == f", mul(sqrt(F), sqrt(F)) >> F, fastmath),   # negative f
    rule("exp(log(f)) == f", exp(log(F)) >> F, fastmath),
    rule("log(exp(f)) == f", log(exp(F)) >> F, fastmath),
    rule("exp(f) * exp(g) == exp(f + g)",
         mul(once(exp(F)), once(exp(G))) >> exp(add(F, G)), fastmath),
    rule("log(pow(f, c)) == log(f) * c", log(pow(F, FC)) >> mul(log(F), FC), fastmath),

    # scales and sums
    rule("(f / g) / h == f / (g * h)", div(once(div(F, G)), H) >> div(F, mul(G, H)), fastmath),
    rule("f / (g / h) == f * h / g", div(F, once(div(G, H))) >> div(mul(F, H), G), fastmath),
    rule("f * g + f * h == f * (g + h)",
         add(once(mul(F, G)), once(mul(F, H))) >> mul(F, add(G, H)), fastmath),
    rule("sum(f * c) == sum(f) * c",
         reduce_sum(once(mul(F, FC)), axes=AX) >> mul(reduce_sum(F, axes=AX),
             lambda m: m.full(m.number(FC))), fastmath),
    rule("sum(-f) == -sum(f)", reduce_sum(once(neg(F)), axes=AX) >> neg(reduce_sum(F, axes=AX)),
         fastmath),                                                         # 0.0
    rule("sum(f * g) == sum(f) * g",
         reduce_sum(once(mul(F, broadcast(G, axes=AXI))), axes=AX) >> _out_of_sum, fastmath),
    rule("sum(g * f) == sum(f) * g",
         reduce_sum(once(mul(broadcast(G, axes=AXI), F)), axes=AX) >> _out_of_sum, fastmath),
    rule("f / g == f * (1 / g), g repeated",
         div(F, broadcast(G, axes=AXI)) >> _by_reciprocal, fastmath),
    *[_scale_after(side, constant) for side in (0, 1) for constant in (True, False)],
    rule("sum(sum(f)) == sum(f)",
         reduce_sum(reduce_sum(F, axes=AXI), axes=AX) >> reduce_sum(F, axes=joined_axes), fastmath),
)
# fmt: on
