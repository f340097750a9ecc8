"""pow on lanes: 2^(y log2 |x|) and C99's special cases.

f64 takes the logarithm as a sum of two doubles, because the exponent of the result magnifies its
error up to 1075 times; f32 is worked out in f64, where plain logarithms are exact enough.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal

from graphc.codegen.floats import INF, NAN, Floats, Pair
from graphc.codegen.rare import outlined, unless
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.exp import exp_16th, exp_reduced, reduce_16th

# Powers of 1 +- 1 ulp to so much overflow and underflow already. In f32 it is small enough too for
# 150 times it to be rounded to sixteenths.
LARGE = (2.0**36, 2.0**64)


def pow(F: Floats, x: str, y: str) -> str:
    """x > 0 and finite operands in all lanes need no care for special values."""
    base = F.L.constant(x)
    if base is not None and 0 < base < INF:
        return _power_of(F, base, y)
    plain = F.both(F.both(F.cmp("ogt", x, 0.0), F.cmp("olt", x, INF)),
                   F.cmp("ole", F.abs(y), LARGE[F.double]))
    return unless(
        F.L, F.negate(plain), F.t, lambda: _plain(F, x, y),
        lambda: outlined(F.L, "pow", F.t, [x, y], lambda L, args: _any(Floats(L, F.t), *args)),
    )


def _plain(F: Floats, a: str, y: str) -> str:
    """a^y for finite a > 0 and |y| <= LARGE."""
    return _pow_f64(F, a, y) if F.double else _pow_f32(F, a, y)


def _any(F: Floats, x: str, y: str) -> str:
    """x^y with all special cases of C99."""
    a, large = F.abs(x), LARGE[F.double]
    r = _plain(F, a, F.at_least(F.at_most(y, large), -large))
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
    hi, lo = _log_16th(F, a)
    p, q = F.two_prod(hi, y)
    q = F.fma(lo, y, q)
    return _exp_dd(F, p, q)


def _exp_dd(F: Floats, p: str, q: str) -> str:
    """e^(p + q), f64; beyond 1100 only the sign matters, and the low part may be NaN."""
    beyond = F.cmp("oge", F.abs(p), 1100.0)
    p = F.select(beyond, F.copysign(1100.0, p), p)
    n, counted, r = reduce_16th(F, p, F.select(beyond, 0.0, q))
    return F.scale_16th(exp_16th(F, counted, r, r), n, counted)


def _log_16th(F: Floats, x: str) -> Pair:
    """log x for finite x > 0, f64, as a sum of two doubles, to some 2^-65 of itself.

    log m = log(1 + r) - log c as in `log`, with c so short that r = m c - 1 is exact;
    log(1 + r) = r - r^2/2 + r^3 P(r), whose last term is small enough for plain arithmetic.
    """
    e, m = F.split_exponent(x)
    _, counted = F.nearest_16th(m)
    r = F.residue(m, F.lookup(co.LOG16_POW_C, counted), 1.0)
    hi, lo = co.LN2_F64
    whole = F.fma(e, hi, F.lookup(co.LOG16_POW, counted))  # exact
    first, first_low = F.fast_two_sum(whole, r)
    half = F.mul(r, -0.5)
    square, square_low = F.two_prod(r, half)
    second, second_low = F.fast_two_sum(first, square)
    low = F.add(F.fma(e, lo, F.lookup(co.LOG16_POW_LOW, counted)), first_low)
    low = F.add(F.add(low, square_low), second_low)
    cube = F.mul(F.mul(r, r), r)
    low = F.fma(cube, F.poly_wide(r, co.LOG16_POW_F64), low)
    return F.fast_two_sum(second, low)


def _pow_f32(F: Floats, a: str, y: str) -> str:
    """a^y for finite a > 0 and |y| <= LARGE, in f64 (there f32's subnormals are normal)."""
    L, D = F.L, Floats(F.L, "double")
    wide, power = (L.convert("fpext", v, "float", "double") for v in (a, y))
    e, m = D.binade(wide)
    place = D.ints("lshr", D.to_bits(m), 48)
    r = D.residue(m, D.lookup(co.LOG16_2_C, place), 1.0)
    p = D.fma(r, D.poly(r, co.LOG16_2_POW_F32_F64), D.add(e, D.lookup(co.LOG16_2, place)))
    p = D.mul(p, power)
    # scaling itself looks after overflow in AVX-512
    return _exp2_narrowed(D, p if D.avx512 else D.at_least(D.at_most(p, 200.0), -200.0))


def _exp2_narrowed(D: Floats, p: str) -> str:
    """2^p as f32 of an f64."""
    n, counted = D.nearest_16th(p)
    r = D.mul(D.poly(D.sub(p, n), co.EXP16_POW_F32_F64), D.lookup(co.EXP16, counted))
    return D.L.convert("fptrunc", D.scale_normal_16th(r, n, counted), "double", "float")


def _power_of(F: Floats, a: float, y: str) -> str:
    """a^y for a known a > 0, whose logarithm need not be computed."""
    if a == 1:
        return F.k(1.0)
    if a == 2:
        low, high = (-1100.0, 1100.0) if F.double else (-160.0, 160.0)
        y = F.at_most(F.at_least(y, low), high)
        if F.double:
            n, counted = F.nearest_16th(y)
            r = F.mul(F.sub(y, n), math.log(2))
            return F.scale_16th(exp_16th(F, counted, r, r), n, counted)
        n, counted = F.nearest(y)
        return F.scale(exp_reduced(F, F.mul(F.sub(y, n), math.log(2))), n, counted)
    log = Decimal(a).ln(Context(prec=50))
    if F.double:
        hi = float(log)
        p, q = F.two_prod(y, hi)
        return _exp_dd(F, p, F.fma(y, float(log - Decimal(hi)), q))
    D = Floats(F.L, "double")
    p = D.mul(F.L.convert("fpext", y, "float", "double"), float(log / Decimal(2).ln()))
    return _exp2_narrowed(D, D.at_least(D.at_most(p, 200.0), -200.0))
