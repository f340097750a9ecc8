"""exp, expm1, tanh on lanes, f32 and f64, whole range.

Cody and Waite's reduction: x = n ln 2 + r with |r| <= ln(2)/2, and a polynomial of r; in f64 exp
takes sixteenths off by a table first (Tang 1989). Within 1.1 ULP (tanh 1.5).
"""

from __future__ import annotations

import math

from graphc.codegen.elementwise.floats import Floats, Pair
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.lookup import lookups


def reduce_ln2(F: Floats, x: str, low: str | None = None) -> tuple[Pair, str]:
    """((n, counted n), r): x + low = n ln 2 + r; |x| < 2^11 ln 2."""
    n, counted = F.nearest_fma(x, 1 / math.log(2))
    r, exact = _less_ln2(F, x, n)
    if low is not None:
        r = F.add(exact, F.fma(n, -F.pick(co.LN2_F32, co.LN2_F64)[1], low))
    return (n, counted), r


def reduce_ln2_power(F: Floats, x: str, down: int) -> tuple[str, str, str]:
    """(n, 2^(n - down), r): x = n ln 2 + r."""
    n, power = F.nearest_power(x, 1 / math.log(2), down)
    return n, power, _less_ln2(F, x, n)[0]


def _less_ln2(F: Floats, x: str, n: str) -> Pair:
    """x - n ln 2, and what it was before its last rounding: x less the high part, exactly."""
    hi, lo = F.pick(co.LN2_F32, co.LN2_F64)
    exact = F.fma(n, -hi, x)
    return F.fma(n, -lo, exact), exact


def exp_reduced(F: Floats, r: str) -> str:
    """e^r for |r| <= ln(2)/2; in f64 with the rounding of 1 + r made good."""
    if not F.double and F.L.target.has_fma:
        return F.poly(r, (1.0, 1.0, *co.EXP_F32))
    r2, g = F.mul(r, r), F.series(r, co.EXP_F32, co.EXP_F64)
    if not F.double:
        return F.add(F.fma(r2, g, r), 1.0)
    s, e = F.fast_two_sum(1.0, r)
    return F.add(s, F.fma(r2, g, e))


def exp(F: Floats, x: str, modest: bool = False) -> str:
    """n is cut where the result is 0. To round what underflows takes a CPU some hundred cycles, and
    masks of attention make many such arguments: they are scaled by 0, or where an instruction
    scales p is made 0, by a look at where n is counted, so that nothing but that is kept until
    then.

    modest: x is at most 64, which `nests.intervals` finds out.
    """
    low, high, least = (-745.8, 710.0, -1075.0) if F.double else (-104.7, 89.0, -150.0)
    x = F.at_least(x, low)
    if not modest:
        x = F.at_most(x, high)
    if F.double:
        n, counted, r = reduce_16th(F, x)
        power, lost = lookups(F, (co.EXP16, co.EXP16_LOW), counted)
        p = exp_16th(F, power, r, F.add(r, lost))
    else:
        (n, counted), r = reduce_ln2(F, x)
        p = exp_reduced(F, r)
    if F.avx512:
        magic = F.magic / 16 if F.double else F.magic
        gone = F.cmp("olt", F.from_bits(counted), magic + least)
        return F.scale(F.select(gone, 0.0, p), n, counted)
    whole = F.ints("lshr", counted, 4) if F.double else counted
    return F.scale_once(p, whole, None if modest else n)


def reduce_16th(F: Floats, x: str, low: str | None = None) -> tuple[str, str, str]:
    """(n, counted, r) as of `nearest_16th`: x + low = n ln 2 + r, |r| <= ln(2)/32; f64."""
    n, counted = F.nearest_16th(x, 1 / math.log(2))
    hi, lo = co.LN2_F64
    r = F.fma(n, -lo, F.fma(n, -hi, x))
    return n, counted, r if low is None else F.add(r, low)


def exp_16th(F: Floats, power: str, r: str, first: str) -> str:
    """e^r times a power of 2, of EXP16; `first`: r, or made good for the rounding of that power."""
    q = F.fma(F.mul(r, r), F.poly_wide(r, co.EXP16_F64), first)
    return F.fma(power, q, power)


def exp_of_small(F: Floats, x: str) -> str:
    """e^x where x and the result are well inside the normal range."""
    n, r = reduce_ln2(F, x)
    return F.scale_normal(exp_reduced(F, r), n[1])


def expm1(F: Floats, x: str) -> str:
    """2^n (e^r - 1) + (2^n - 1), halved until the last step so that 2^n may be 2^(max + 1).

    Near |x| = 0.4 the two terms cancel, so the rounding error of r is taken along.
    """
    low, high = (-40.0, 710.0) if F.double else (-20.0, 89.0)
    a = F.at_most(F.at_least(x, low), high)
    n, half = F.nearest_power(a, 1 / math.log(2), 1)
    r, exact = _less_ln2(F, a, n)
    error = F.fma(n, -F.pick(co.LN2_F32, co.LN2_F64)[1], F.sub(exact, r))
    q = F.add(r, F.fma(F.mul(r, r), F.series(r, co.EXP_F32, co.EXP_F64), error))
    y = F.fma(q, half, F.sub(half, 0.5))
    y = F.select(F.cmp("oeq", n, 0.0), q, F.add(y, y))
    return F.copysign(y, x)


def tanh(F: Floats, x: str) -> str:
    """|x| + |x| z P(z) / Q(z) with z = x^2 near 0, beyond it 1 - 2 / (e^(2|x|) + 1): one
    division serves both. Errors of e^(2|x|) reach the result diminished, so it is a plain one."""
    a, z = F.abs(x), F.mul(x, x)
    b = F.at_most(a, 19.2 if F.double else 9.2)  # 1 from there on
    n, power = F.nearest_power(b, 2 / math.log(2))
    r = F.fma(n, -math.log(2) / 2, b)
    e = F.fma(F.poly(r, F.pick(co.EXP_2_F32, co.EXP_2_F64)), power, 1.0)
    above = F.mul(F.mul(a, z), F.poly(z, F.pick(co.TANH_P_F32, co.TANH_P_F64)))
    below = F.poly(z, F.pick(co.TANH_Q_F32, co.TANH_Q_F64))
    small = F.cmp("ult", a, 0.75 if F.double else 0.625)
    quotient = F.div(F.select(small, above, -2.0), F.select(small, below, e))
    return F.copysign(F.add(F.select(small, a, 1.0), quotient), x)
