"""erf and the normal distribution on lanes.

erf in f32 is an odd polynomial near 0, 1 - exp(-polynomial) beyond; in f64 it has a polynomial for
each of eight intervals, which takes fewer instructions than 22 terms and exp. P(Z > a) is
exp(-a^2 / 2) times a polynomial in (a - 4) / (a + 4) over a + 4, to the last digit however far out.
"""

from __future__ import annotations

from graphc.codegen.elementwise.floats import Floats
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.exp import exp_of_small, reduce_ln2
from graphc.codegen.vecmath.lookup import lookups


def erf(F: Floats, x: str) -> str:
    if F.double:
        return _erf_f64(F, x)
    a, z = F.abs(x), F.mul(x, x)
    small = F.fma(F.poly(z, co.ERF_F32), a, a)
    b = F.at_most(a, 4.0)  # 1 from there on
    P = F.poly(b, co.ERFC_F32)
    y = F.fma(b, P, b)
    e = exp_of_small(F, F.neg(y))
    lost = F.fma(b, P, F.sub(b, y))  # what rounding took from y; it matters for small b only
    large = F.sub(1.0, F.sub(e, F.mul(e, lost)))
    near = F.cmp("ult", a, 0.84)
    return F.copysign(F.select(near, small, large), x)


def _erf_f64(F: Floats, x: str) -> str:
    """erf m + h P(h) around the centre m of an interval, h + h P(h) below 1/2.

    The intervals are quarters of binades of a + 2, as it rounds: halves up to 2, then ones.
    """
    a = F.at_most(F.abs(x), 5.95)  # 1 from there on
    place = F.add(a, 2.0)
    at = F.ints("lshr", F.to_bits(place), F.mantissa - 2)
    tables = [co.ERF_8_F64[i:i + 8] for i in range(0, len(co.ERF_8_F64), 8)]
    middle, base, *terms = lookups(F, tables, at)
    h = F.sub(a, middle)
    p = F.poly_of(h, terms)
    return F.copysign(F.fma(h, p, F.select(F.cmp("olt", place, 2.5), a, base)), x)


def normal_cdf(F: Floats, x: str) -> str:
    """P(Z <= x) for a standard normal Z.

    The tail is e^(-a^2 / 2) q P(t) with q = 1 / (a + 4), t = 1 - 8 q. The exponent makes good for
    the rounding of a^2 and of q, sums of two floats for that of P and of its product with q.
    """
    zero, one = (-38.6, 9.0) if F.double else (-14.2, 6.0)
    gone = F.either(F.cmp("olt", x, zero), F.cmp("ogt", x, one))  # made of zeros, see exp
    a = F.select(gone, one, F.abs(x))
    d = F.add(a, 4.0)
    q = F.div(1.0, d)
    t = F.fma(q, -8.0, 1.0)
    off = F.fma(F.sub(a, F.sub(d, 4.0)), q, F.residue(q, d, 1.0))  # q (a + 4) - 1
    square, lost = F.two_prod(a, a)
    # q P(1 - 8 q) changes by 1 (far out) to 3.2 times as much as q, nearly by 1.9 - t
    low = F.fma(F.sub(t, 1.9), off, F.mul(lost, -0.5))
    n, r = reduce_ln2(F, F.mul(square, -0.5), low)
    g = F.fma(F.mul(r, r), F.series(r, co.EXP_F32, co.EXP_F64), r)  # e^r - 1
    first, *rest = F.pick(co.NORMAL_F32, co.NORMAL_F64)
    above = F.poly(t, rest)
    p = F.fma(t, above, first)
    p_low = F.fma(t, above, F.sub(first, p))
    w, w_low = F.two_prod(p, q)
    tail = F.add(w, F.fma(w, g, F.fma(p_low, q, w_low)))
    tail = F.scale(F.select(gone, 0.0, tail), *n)
    return F.select(F.cmp("olt", x, 0.0), tail, F.sub(1.0, tail))
