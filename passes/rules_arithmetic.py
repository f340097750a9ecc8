"""Rules for numbers: + - * / pow, negation, extrema, shifts, casts.

Constants stand on the right of commutative ops, so no rule has a commuted twin. For floats `exact`
forbids much that algebra allows: x + 0.0 loses -0.0, x * 0 hides NaN, x - x is NaN for infinities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir import Value, splat
from graphc.passes.patterns import (
    C,
    F,
    G,
    I,
    J,
    K,
    Rule,
    X,
    Y,
    attr,
    const,
    exact,
    floats,
    heads,
    ints,
    once,
    rule,
    unsigned,
    var,
)
from graphc.passes.rewrite import Match
from graphc.types import DType, lossless

add, sub, mul, div, rem, pow = heads("add sub mul div rem pow")
neg, abs_, exp = heads("neg abs exp")
maximum, minimum, shift_left, shift_right = heads("maximum minimum shift_left shift_right")
cast, bitcast, and_, broadcast = heads("cast bitcast and broadcast")

IK, FK = const("k", ints), const("k", floats)
U = var("u", unsigned)
N = var("s", lambda v: not unsigned(v))
T, S, A = attr("dtype"), attr("inner dtype"), attr("axes")


def left_alone(m: Match) -> bool:
    """Whether the operand beside a constant is none."""
    return splat(m[X]) is None


def _exponent(x: Any) -> int | None:
    """k with x == 2**k, for a positive power of two."""
    if x.dtype.kind in "iu":
        n = int(x)
        return n.bit_length() - 1 if n > 0 and n & (n - 1) == 0 else None
    f = float(x)
    if not (f > 0 and math.isfinite(f)):
        return None
    mantissa, e = math.frexp(f)
    return e - 1 if mantissa == 0.5 else None


def _is_power_of_two(m: Match) -> bool:
    return _exponent(m.number(IK)) is not None


def _log2(m: Match) -> Value:
    return m.full(_exponent(m.number(IK)))


def _reciprocal(m: Match) -> Value | None:
    """x * (1/k), where 1/k is exactly representable: k is a power of two, of either sign."""
    k = m.number(FK)
    if _exponent(abs(k)) is None:
        return None
    with np.errstate(all="ignore"):
        r = np.asarray(1 / k.astype(np.float64)).astype(k.dtype)
    if not np.isfinite(r.astype(np.float64)) or r == 0:
        return None
    return m.emit("mul", m[F], m.full(r))


def _is_least(m: Match) -> bool:
    """Whether k is the smallest value of its dtype (-inf for floats)."""
    return bool(m.number(K) == _limits(m.type.dtype)[0])


def _is_greatest(m: Match) -> bool:
    return bool(m.number(K) == _limits(m.type.dtype)[1])


def _limits(d: DType) -> tuple[Any, Any]:
    if d.is_float:
        return -math.inf, math.inf
    if d.kind == "b":
        return False, True
    info = np.iinfo(d.numpy)
    return info.min, info.max


def _casts_join(m: Match) -> bool:
    """Whether cast(cast(x, s), t) == cast(x, t): x -> s -> t."""
    x, s, t = m[X].type.dtype, m[S], m[T]
    if x.is_int and s.is_int and t.is_int and t.bits <= s.bits:
        return True  # modulo 2**bits either way
    if not lossless(x, s):
        return False
    # float -> int saturates where int -> int wraps
    return not (x.is_int and s.is_float and t.is_int) or lossless(x, t)


def _repeated_product(m: Match) -> Value:
    return m.emit("mul", m.emit("broadcast", m[X], shape=m.type.shape, axes=m[A]), m[Y])


# fmt: off
RULES: tuple[Rule, ...] = (
    # constants go right
    rule("c + x == x + c", add(C, X) >> add(X, C), exact, where=left_alone),
    rule("c * x == x * c", mul(C, X) >> mul(X, C), exact, where=left_alone),
    rule("max(c, x) == max(x, c)", maximum(C, X) >> maximum(X, C), exact, where=left_alone),
    rule("min(c, x) == min(x, c)", minimum(C, X) >> minimum(X, C), exact, where=left_alone),

    # identities
    rule("x + -0.0 == x", add(X, -0.0) >> X, exact),
    rule("i + 0 == i", add(I, 0) >> I, exact),
    rule("x - 0 == x", sub(X, 0) >> X, exact),
    rule("x * 1 == x", mul(X, 1) >> X, exact),
    rule("x / 1 == x", div(X, 1) >> X, exact),
    rule("pow(x, 1) == x", pow(X, 1) >> X, exact),
    rule("pow(x, 0) == 1", pow(X, 0) >> 1, exact),                # also of NaN, as in C
    rule("pow(x, -0.0) == 1", pow(X, -0.0) >> 1, exact),
    rule("i * 0 == 0", mul(I, 0) >> 0, exact),
    rule("i rem 1 == 0", rem(I, 1) >> 0, exact),
    rule("i - i == 0", sub(I, I) >> 0, exact),
    rule("pow(i, 2) == i * i", pow(I, 2) >> mul(I, I), exact),    # stable for floats

    # signs
    rule("-(-x) == x", neg(neg(X)) >> X, exact),
    rule("x + (-y) == x - y", add(X, neg(Y)) >> sub(X, Y), exact),
    rule("(-x) + y == y - x", add(neg(X), Y) >> sub(Y, X), exact),
    rule("x - (-y) == x + y", sub(X, neg(Y)) >> add(X, Y), exact),
    rule("(-x) * (-y) == x * y", mul(neg(X), neg(Y)) >> mul(X, Y), exact),
    rule("(-f) / (-g) == f / g", div(neg(F), neg(G)) >> div(F, G), exact),
    rule("(-x) * c == x * (-c)", mul(neg(X), C) >> mul(X, neg(C)), exact),
    rule("(-f) / c == f / (-c)", div(neg(F), C) >> div(F, neg(C)), exact),
    rule("(-x) - x == -(x + x)", sub(neg(X), X) >> neg(add(X, X)), exact),
    rule("-((-x) * y) == x * y", neg(once(mul(neg(X), Y))) >> mul(X, Y), exact),
    rule("-(y * (-x)) == y * x", neg(once(mul(Y, neg(X)))) >> mul(Y, X), exact),
    rule("-((-x)[..] * y) == x[..] * y",
         neg(once(mul(once(broadcast(neg(X), axes=A)), Y))) >> _repeated_product, exact),
    rule("-(y * (-x)[..]) == x[..] * y",
         neg(once(mul(Y, once(broadcast(neg(X), axes=A))))) >> _repeated_product, exact),
    rule("x * -1 == -x", mul(X, -1) >> neg(X), exact),
    rule("f / -1 == -f", div(F, -1) >> neg(F), exact),
    rule("-0.0 - f == -f", sub(-0.0, F) >> neg(F), exact),
    rule("0 - i == -i", sub(0, I) >> neg(I), exact),
    rule("-(i - j) == j - i", neg(sub(I, J)) >> sub(J, I), exact),
    rule("|-s| == |s|", abs_(neg(N)) >> abs_(N), exact),           # not unsigned: |-1| is 255
    rule("||x|| == |x|", abs_(abs_(X)) >> abs_(X), exact),
    rule("|f * f| == f * f", abs_(mul(F, F)) >> mul(F, F), exact),
    rule("|exp(x)| == exp(x)", abs_(exp(X)) >> exp(X), exact),
    rule("|u| == u", abs_(U) >> U, exact),

    # strength
    rule("f / 2^k == f * 2^-k", div(F, FK) >> _reciprocal, exact),
    rule("i * 2^k == i << k", mul(I, IK) >> shift_left(I, _log2), exact, where=_is_power_of_two),
    rule("i // 2^k == i >> k", div(I, IK) >> shift_right(I, _log2), exact, where=_is_power_of_two),
    rule("i rem 2^k == i & (2^k - 1)", rem(I, IK) >> and_(I, sub(IK, 1)), exact,
         where=_is_power_of_two),
    rule("i << 0 == i", shift_left(I, 0) >> I, exact),
    rule("i >> 0 == i", shift_right(I, 0) >> I, exact),

    # integer constants collect
    rule("i - k == i + (-k)", sub(I, IK) >> add(I, neg(IK)), exact),
    rule("(i + c) + k == i + (c + k)", add(add(I, C), IK) >> add(I, add(C, IK)), exact),
    rule("(i * c) * k == i * (c * k)", mul(mul(I, C), IK) >> mul(I, mul(C, IK)), exact),

    # extrema
    rule("max(x, x) == x", maximum(X, X) >> X, exact),
    rule("min(x, x) == x", minimum(X, X) >> X, exact),
    rule("max(x, least) == x", maximum(X, K) >> X, exact, where=_is_least),
    rule("min(x, greatest) == x", minimum(X, K) >> X, exact, where=_is_greatest),
    rule("max(max(x, c), k) == max(x, max(c, k))",
         maximum(maximum(X, C), K) >> maximum(X, maximum(C, K)), exact),
    rule("min(min(x, c), k) == min(x, min(c, k))",
         minimum(minimum(X, C), K) >> minimum(X, minimum(C, K)), exact),
    rule("max(max(x, y), y) == max(x, y)", maximum(maximum(X, Y), Y) >> maximum(X, Y), exact),
    rule("min(min(x, y), y) == min(x, y)", minimum(minimum(X, Y), Y) >> minimum(X, Y), exact),

    # casts
    rule("cast(x, its dtype) == x", cast(X, dtype=T) >> X, exact,
         where=lambda m: m[X].type.dtype is m[T]),
    rule("cast(cast(x, s), t) == cast(x, t)", cast(cast(X, dtype=S), dtype=T) >> cast(X, dtype=T),
         exact, where=_casts_join),
    rule("bitcast(x, its dtype) == x", bitcast(X, dtype=T) >> X, exact,
         where=lambda m: m[X].type.dtype is m[T]),
    rule("bitcast(bitcast(x, s), t) == bitcast(x, t)",
         bitcast(bitcast(X, dtype=S), dtype=T) >> bitcast(X, dtype=T), exact),
)
# fmt: on
