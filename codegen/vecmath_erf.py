"""erf and the normal distribution on lanes.

erf is an odd polynomial near 0, 1 - exp(-polynomial) beyond. P(Z > a) is exp(-a^2 / 2) times a
polynomial in (a - 4) / (a + 4) over a + 4, to the last digit however far out.
"""

from __future__ import annotations

from graphc.codegen import coefficients as co
from graphc.codegen.floats import Floats
from graphc.codegen.vecmath_exp import exp_of_small, exp_reduced, reduce_ln2


def erf(F: Floats, x: str) -> str:
    a, z = F.abs(x), F.mul(x, x)
    small = F.fma(F.series(z, co.ERF_F32, co.ERF_F64), a, a)
    b = F.at_most(a, 5.95 if F.double else 4.0)  # 1 from there on
    P = F.poly(b, F.pick(co.ERFC_F32, co.ERFC_F64))
    y = F.fma(b, P, b)
    e = exp_of_small(F, F.neg(y))
    lost = F.fma(b, P, F.sub(b, y))  # what rounding took from y; it matters for small b only
    large = F.sub(1.0, F.sub(e, F.mul(e, lost)))
    near = F.cmp("ult", a, 0.84)
    return F.copysign(F.select(near, small, large), x)


def normal_cdf(F: Floats, x: str) -> str:
    """P(Z <= x) for a standard normal Z, within 5 ULP: a part of gelu, which rounds as often."""
    zero, one = (-38.6, 9.0) if F.double else (-14.2, 6.0)
    gone = F.either(F.cmp("olt", x, zero), F.cmp("ogt", x, one))  # made of zeros, see exp
    a = F.select(gone, one, F.abs(x))
    square, lost = F.two_prod(a, a)
    n, r = reduce_ln2(F, F.mul(square, -0.5))
    r = F.fma(lost, -0.5, r)
    q = F.div(1.0, F.add(a, 4.0))
    p = F.poly(F.mul(F.sub(a, 4.0), q), F.pick(co.NORMAL_F32, co.NORMAL_F64))
    tail = F.mul(F.mul(p, q), exp_reduced(F, r))
    tail = F.scale(F.select(gone, 0.0, tail), *n)
    return F.select(F.cmp("olt", x, 0.0), tail, F.sub(1.0, tail))
