"""asin, acos, atan, atan2 on lanes, f32 and f64, whole range, within 2.5 ULP."""

from __future__ import annotations

import math

from graphc.codegen.elementwise.floats import Floats
from graphc.codegen.vecmath import coefficients as co

TAN_3PI_8, TAN_PI_8 = 1 + math.sqrt(2), math.sqrt(2) - 1


def atan(F: Floats, x: str) -> str:
    return F.copysign(_atan_quotient(F, F.abs(x), F.k(1.0)), x)


def _atan_quotient(F: Floats, b: str, a: str) -> str:
    """atan(b / a) for b, a >= 0, a > 0, not both infinite: one division, |t| <= tan(pi/8).

    tan(pi/2 - u) = 1 / tan u, tan(u - pi/4) = (tan u - 1) / (tan u + 1).
    """
    steep = F.cmp("ogt", b, F.mul(a, TAN_3PI_8))
    middle = F.cmp("ogt", b, F.mul(a, TAN_PI_8))
    num = F.select(steep, F.neg(a), F.select(middle, F.sub(b, a), b))
    den = F.select(steep, b, F.select(middle, F.add(b, a), a))
    half, quarter = F.pick(co.PIO2_F32, co.PIO2_DD), F.pick(co.PIO4_F32, co.PIO4_DD)
    base, low = (F.select(steep, half[i], F.select(middle, quarter[i], 0.0)) for i in range(2))
    t = F.div(num, den)
    z = F.mul(t, t)
    s = F.fma(F.mul(t, z), F.series(z, co.ATAN_F32, co.ATAN_F64), low)
    return F.add(base, F.add(t, s))


def _atan_ratio(F: Floats, b: str, a: str) -> str:
    """atan(b / a) of f32 for b, a >= 0, also both infinite, or 0: from the smaller over the larger.

    A polynomial to 1 takes less than to choose among three of the quotient to tan(pi/8).
    """
    steep = F.cmp("ogt", b, a)
    small, large = F.select(steep, a, b), F.select(steep, b, a)
    den = F.select(F.cmp("oeq", large, 0.0), 1.0, large)
    t = F.select(F.cmp("oeq", small, den), 1.0, F.div(small, den))
    z = F.mul(t, t)
    r = F.fma(F.mul(t, z), F.poly(z, co.ATAN_TO_1_F32), t)
    hi, lo = co.PIO2_F32
    return F.select(steep, F.sub(hi, F.sub(r, lo)), r)


def atan2(F: Floats, y: str, x: str) -> str:
    """The angle of the point (x, y), signed zeros and infinities as in C99."""
    b, a = F.abs(y), F.abs(x)
    r = _atan_point(F, b, a) if F.double else _atan_ratio(F, b, a)
    pi = F.pick(co.PI_F32, co.PI_DD)
    r = F.select(F.negative(x), F.sub(pi[0], F.sub(r, pi[1])), r)
    r = F.copysign(r, y)
    return F.select(F.cmp("uno", x, y), F.add(x, y), r) if F.double else r


def _atan_point(F: Floats, b: str, a: str) -> str:
    """atan(b / a) of f64 for b, a >= 0, also both infinite, or 0."""
    # keep b + a and 2.42 a from overflowing
    big = 2.0**1020
    huge = F.either(F.cmp("ogt", b, big), F.cmp("ogt", a, big))
    factor = F.select(huge, 2.0**-4, 1.0)
    # infinity with infinity, zero with zero: the quotients of 1, 1 and 0, 1
    infinite = F.both(F.cmp("oeq", b, math.inf), F.cmp("oeq", a, math.inf))
    origin = F.both(F.cmp("oeq", b, 0.0), F.cmp("oeq", a, 0.0))
    bs = F.select(infinite, 1.0, F.mul(b, factor))
    as_ = F.select(F.either(infinite, origin), 1.0, F.mul(a, factor))
    return _atan_quotient(F, bs, as_)


def _asin_core(F: Floats, x: str) -> tuple[str, str, str]:
    """(far, s, t): asin s = s + t for s = |x| to 1/2, for s = sqrt((1 - |x|) / 2) beyond: `far`,
    where asin |x| = pi/2 - 2 asin s. NaN where |x| > 1."""
    a = F.abs(x)
    far = F.cmp("ogt", a, 0.5)
    z = F.fma(a, -0.5, 0.5)
    s = F.select(far, F.sqrt(z), a)
    z = F.select(far, z, F.mul(a, a))
    return far, s, F.mul(F.mul(s, z), F.series(z, co.ASIN_F32, co.ASIN_F64))


def asin(F: Floats, x: str) -> str:
    far, s, t = _asin_core(F, x)
    hi, lo = F.pick(co.PIO2_F32, co.PIO2_DD)
    y = F.sub(hi, F.add(F.add(s, s), F.fma(t, 2.0, -lo)))
    return F.copysign(F.select(far, y, F.add(s, t)), x)


def acos(F: Floats, x: str) -> str:
    """pi/2 - asin x; beyond 1/2 2 asin s, or pi - 2 asin s for negative x."""
    far, s, t = _asin_core(F, x)
    negative = F.both(far, F.negative(x))
    factor = F.ints("xor", F.to_bits(F.select(far, 2.0, -1.0)),
                    F.ints("and", F.to_bits(x), -1 << (F.bits - 1)))
    factor = F.from_bits(factor)
    half, whole = F.pick(co.PIO2_F32, co.PIO2_DD), F.pick(co.PI_F32, co.PI_DD)
    hi, lo = (F.select(negative, w, F.select(far, 0.0, h))
              for w, h in zip(whole, half, strict=True))
    return F.add(hi, F.fma(factor, s, F.fma(factor, t, lo)))
