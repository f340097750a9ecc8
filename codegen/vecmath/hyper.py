"""sinh, cosh, asinh, acosh, atanh on lanes, f32 and f64, whole range, within 2.5 ULP."""

from __future__ import annotations

import math

from graphc.codegen.elementwise.floats import INF, NAN, Floats
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.exp import reduce_ln2_power
from graphc.codegen.vecmath.log import log_of_sum

FAR = 2.0**40  # from here on asinh and acosh of a are log(2 a)


def _parts(F: Floats, x: str) -> tuple[str, str, str, str, str]:
    """(n, A, B, s, c) of a = |x| = n ln 2 + r: quarters of 2^n + 2^-n and 2^n - 2^-n, sinh r and
    cosh r - 1. e^a and e^-a come from one reduction, and 2^(n - 2) overflows only where they do.
    """
    a = F.at_most(F.abs(x), 710.6 if F.double else 89.6)  # both overflow before
    n, up, r = reduce_ln2_power(F, a, 2)
    # 2^(-n - 2), 0 where it were subnormal
    down = F.ints("sub", (2 * F.bias - 4) << F.mantissa, F.to_bits(up))
    down = F.from_bits(F.L.intrinsic("smax", F.i, down, F.ki(0)))
    z = F.mul(r, r)
    s = F.fma(F.mul(r, z), F.series(z, co.SINH_F32, co.SINH_F64), r)
    c = F.mul(z, F.series(z, co.COSH_F32, co.COSH_F64))
    return n, F.add(up, down), F.sub(up, down), s, c


def sinh(F: Floats, x: str) -> str:
    """sinh(n ln 2 + r) = (2^n + 2^-n)/2 sinh r + (2^n - 2^-n)/2 cosh r."""
    n, A, B, s, c = _parts(F, x)
    y = F.add(B, F.fma(A, s, F.mul(B, c)))
    y = F.select(F.cmp("oeq", n, 0.0), s, F.add(y, y))  # s alone may be subnormal
    return F.copysign(y, x)


def cosh(F: Floats, x: str) -> str:
    """cosh(n ln 2 + r) = (2^n + 2^-n)/2 cosh r + (2^n - 2^-n)/2 sinh r."""
    _, A, B, s, c = _parts(F, x)
    y = F.add(A, F.fma(B, s, F.mul(A, c)))
    return F.add(y, y)


def asinh(F: Floats, x: str) -> str:
    """log(1 + z) with z = a + a^2 / (1 + sqrt(1 + a^2)); log a + log 2 for large a."""
    a = F.abs(x)
    far = F.cmp("ogt", a, FAR)
    square = F.mul(a, a)
    root = F.add(F.sqrt(F.fma(a, a, 1.0)), 1.0)
    z = F.add(a, F.div(square, root))
    return F.copysign(_log_or_twice(F, a, z, far), x)


def acosh(F: Floats, x: str) -> str:
    """log(1 + z) with z = t + sqrt(t^2 + 2 t), t = x - 1; log x + log 2 for large x."""
    far = F.cmp("ogt", x, FAR)
    t = F.sub(x, 1.0)
    z, low = F.fast_two_sum(F.sqrt(F.fma(t, t, F.add(t, t))), t)
    y = _log_or_twice(F, x, z, far, F.select(far, 0.0, low))
    return F.select(F.cmp("ult", x, 1.0), NAN, y)


def _log_or_twice(F: Floats, a: str, z: str, far: str, low: str | None = None) -> str:
    """log(1 + z + low), but log(2 a) where a is `far`; infinity and NaN for such a."""
    y, _ = log_of_sum(F, F.select(far, 0.0, 1.0), F.select(far, a, z), low)
    y = F.select(far, F.add(y, math.log(2)), y)
    return F.select(F.cmp("ueq", a, INF), a, y)


def atanh(F: Floats, x: str) -> str:
    """(k/2) ln 2 + atanh s: (1 + a) / (1 - a) = 2^k (1 + s) / (1 - s), |s| <= 0.21.

    2^k is near the quotient that need not be taken; with it
    s = ((1 + a) - 2^k (1 - a)) / ((1 + a) + 2^k (1 - a)), just a for k = 0.
    """
    a = F.abs(x)
    above, below = F.add(a, 1.0), F.sub(1.0, a)
    one, half = F.bias << F.mantissa, 1 << (F.mantissa - 1)
    ratio = F.ints("add", F.ints("sub", F.to_bits(above), F.to_bits(below)), one + half)
    k = F.ints("lshr", ratio, F.mantissa)  # and the bias
    power = F.from_bits(F.ints("shl", k, F.mantissa))
    scaled = F.mul(power, below)
    if F.L.target.has_fma:  # below 2^mantissa both sums with 2^k are exact
        s = F.fma(a, F.add(power, 1.0), F.sub(1.0, power))
        s = F.select(F.icmp("sge", k, F.bias + F.mantissa), F.sub(above, scaled), s)
    else:  # what rounding took from 1 + a and 1 - a
        lost = F.sub(F.sub(a, F.sub(above, 1.0)), F.mul(power, F.sub(F.sub(1.0, below), a)))
        s = F.add(F.sub(above, scaled), lost)
    s = F.div(s, F.add(above, scaled))
    z = F.mul(s, s)
    hi, lo = (v / 2 for v in F.pick(co.LN2_F32, co.LN2_F64))
    n = F.from_exponent(k)
    rest = F.fma(F.mul(s, z), F.series(z, co.ATANH_F32, co.ATANH_F64), F.mul(n, lo))
    y = F.fma(n, hi, F.add(s, rest))
    y = F.select(F.cmp("oeq", a, 1.0), INF, F.select(F.cmp("ule", a, 1.0), y, NAN))
    return F.copysign(y, x)
