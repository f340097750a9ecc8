"""erf on lanes: an odd polynomial near 0, 1 - exp(-polynomial) beyond."""

from __future__ import annotations

from graphc.codegen import coefficients as co
from graphc.codegen.floats import Floats
from graphc.codegen.vecmath_exp import exp_of_small


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
