"""pow on lanes: 2^(y log2 |x|) and C99's special cases.

f64 takes the logarithm as a sum of two doubles, because the exponent of the result magnifies its
error up to 1075 times; f32 is worked out in f64, where plain logarithms are exact enough.
"""

from __future__ import annotations

import math

from graphc.codegen import coefficients as co
from graphc.codegen.floats import INF, NAN, Floats, Pair, outlined
from graphc.codegen.rare import unless


def log_dd(F: Floats, x: str, low: str | None = None) -> tuple[str, Pair]:
    """(e, h): log(x + low) = e ln 2 + h for finite x > 0, f64; h to about 2^-63 of itself.

    log m = 2 atanh(s) = 2 s (1 + z/3 + z^2 Q(z)), s = (m - 1) / (m + 1), z = s^2. Low parts are
    carried as plain sums where they are small enough.
    """
    e, m = F.split_exponent(x)
    above = F.cmp("ogt", m, math.sqrt(2))  # the smaller s, the smaller what is dropped
    e, m = F.select(above, F.add(e, 1.0), e), F.select(above, F.mul(m, 0.5), m)
    f = F.sub(m, 1.0)
    d, d_low = F.fast_two_sum(2.0, f)
    inverse = F.div(1.0, d)
    s = F.mul(f, inverse)
    p, p_low = F.two_prod(s, d)
    rest = F.sub(F.sub(F.sub(f, p), p_low), F.mul(s, d_low))
    if low is not None:  # f and d change by low * m / x, to first order
        change = F.mul(F.div(low, x), m)
        rest = F.add(rest, F.sub(change, F.mul(s, change)))
    s_low = F.mul(rest, inverse)
    z, z_low = F.two_prod(s, s)
    z_low = F.fma(F.add(s, s), s_low, z_low)
    third, third_low = co.THIRD_DD
    t, t_low = F.two_prod(z, third)
    t_low = F.add(t_low, F.fma(z, third_low, F.mul(z_low, third)))
    t_low = F.fma(F.mul(z, z), F.poly_wide(z, co.LOG_TAIL_F64), t_low)
    t, t_low = F.fast_two_sum(t, t_low)
    q, q_low = F.two_prod(s, t)
    q_low = F.add(q_low, F.fma(s, t_low, F.mul(s_low, t)))
    hi, lo = F.fast_two_sum(s, q)
    hi, lo = F.fast_two_sum(hi, F.add(lo, F.add(q_low, s_low)))
    return e, (F.add(hi, hi), F.add(lo, lo))


def full_log_dd(F: Floats, x: str, low: str | None = None) -> Pair:
    """log(x + low) as a sum of two doubles."""
    e, h = log_dd(F, x, low)
    hi, lo = co.LN2_DD
    big, err = F.two_prod(e, hi)
    return F.add_dd((big, F.fma(e, lo, err)), h)


def _exp2_dd(F: Floats, hi: str, lo: str) -> str:
    """2^(hi + lo) for |hi| <= 2000 and lo small beside it, f64."""
    n, counted = F.nearest(hi)
    r, r_low = F.fast_two_sum(F.sub(hi, n), lo)
    t, t_low = F.two_prod(r, co.LN2_DD[0])
    t_low = F.fma(r, co.LN2_DD[1], F.fma(r_low, co.LN2_DD[0], t_low))
    s, e = F.fast_two_sum(1.0, t)
    e = F.add(e, F.fma(t, t_low, t_low))
    p = F.add(s, F.fma(F.mul(t, t), F.poly_wide(t, co.EXP_F64), e))
    return F.scale(p, n, counted)


def pow(F: Floats, x: str, y: str) -> str:
    """x > 0 and finite operands in all lanes need no care for special values."""
    plain = F.both(F.both(F.cmp("ogt", x, 0.0), F.cmp("olt", x, INF)),
                   F.cmp("olt", F.abs(y), INF))
    return unless(
        F.L, F.negate(plain), F.t, lambda: _plain(F, x, y),
        lambda: outlined(F.L, "pow", F.t, [x, y], lambda L, args: _any(Floats(L, F.t), *args)),
    )


def _plain(F: Floats, a: str, y: str) -> str:
    return _pow_f64(F, a, y) if F.double else _pow_f32(F, a, y)


def _any(F: Floats, x: str, y: str) -> str:
    a = F.abs(x)
    r = _plain(F, a, y)
    # 0 and infinity: to a positive power themselves, to a negative one the other
    at_zero, at_infinity = F.cmp("oeq", a, 0.0), F.cmp("oeq", a, INF)
    up = F.L.op("xor", "i1", at_zero, F.cmp("ogt", y, 0.0))
    r = F.select(F.either(at_zero, at_infinity), F.select(up, INF, 0.0), r)
    # negative x: the sign of odd y, NaN for fractions
    fraction = F.cmp("one", F.floor(y), y)
    half = F.mul(y, 0.5)
    odd = F.both(F.cmp("one", F.floor(half), half), F.negate(fraction))
    r = F.select(F.both(odd, F.negative(x)), F.neg(r), r)
    below = F.both(F.cmp("olt", x, 0.0), F.negate(at_infinity))
    r = F.select(F.both(fraction, below), NAN, r)
    # NaN, but not where the other operand decides alone; |x| = 1 with infinite y
    r = F.select(F.cmp("uno", x, y), NAN, r)
    one = F.either(F.cmp("oeq", x, 1.0), F.cmp("oeq", y, 0.0))
    sure = F.both(F.cmp("oeq", a, 1.0), F.cmp("oeq", F.abs(y), INF))
    return F.select(F.either(one, sure), 1.0, r)


def _pow_f64(F: Floats, a: str, y: str) -> str:
    """a^y for finite a > 0."""
    e, h = log_dd(F, a)
    c = F.mul_dd(h, co.INV_LN2_DD)
    log2 = F.fast_two_sum(e, c[0])
    p, q = F.two_prod(log2[0], y)
    q = F.fma(F.add(log2[1], c[1]), y, q)
    # beyond 2000 only the sign matters, and the low part may be NaN
    beyond = F.cmp("oge", F.abs(p), 2000.0)
    p = F.select(beyond, F.copysign(2000.0, p), p)
    return _exp2_dd(F, p, F.select(beyond, 0.0, q))


def _pow_f32(F: Floats, a: str, y: str) -> str:
    """a^y for finite a > 0, in f64 (where f32's subnormals are normal numbers)."""
    L, D = F.L, Floats(F.L, "double")
    wide, power = (L.convert("fpext", v, "float", "double") for v in (a, y))
    e, m = D.split_exponent(wide)
    f = D.sub(m, 1.0)
    p = D.mul(D.fma(f, D.poly(f, co.LOG2_POW_F32_F64), e), power)
    p = D.at_least(D.at_most(p, 200.0), -200.0)
    n, counted = D.nearest(p)
    r = D.poly(D.sub(p, n), co.EXP2_POW_F32_F64)
    return L.convert("fptrunc", D.scale_normal(r, counted), "double", "float")
