"""pow on lanes: 2^(y log2 |x|) and C99's special cases.

The logarithm is a sum of two floats, because the exponent of the result magnifies its error up to
104 times in f32 and 745 times in f64.
"""

from __future__ import annotations

import math
import struct
from decimal import Context, Decimal

from graphc.codegen.elementwise.floats import INF, NAN, Floats, Pair
from graphc.codegen.elementwise.rare import outlined, unless
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.exp import exp_16th, exp_reduced, reduce_16th
from graphc.codegen.vecmath.lookup import lookup, lookups
from graphc.codegen.vecmath.powers import power_to

# Powers of 1 +- 1 ulp to so much overflow and underflow already.
LARGE = (2.0**36, 2.0**64)
NORMAL = 2.0**-126  # the smallest normal f32


def pow(F: Floats, x: str, y: str) -> str:
    """x > 0 and finite operands in all lanes need no care for special values."""
    base = F.L.constant(x)
    if base is not None and 0 < base < INF:
        return _power_of(F, base, y)
    exponent = F.L.constant(y)
    if exponent is not None:
        known = power_to(F, x, exponent, lambda: _outlined(F, x, y))
        if known is not None:
            return known
    above = F.cmp("ogt", x, 0.0) if F.double else F.cmp("oge", x, NORMAL)
    plain = F.both(F.both(above, F.cmp("olt", x, INF)), F.cmp("ole", F.abs(y), LARGE[F.double]))
    return unless(
        F.L, F.negate(plain), F.t, lambda: _plain(F, x, y), lambda: _outlined(F, x, y)
    )


def _outlined(F: Floats, x: str, y: str) -> str:
    """x^y for any operands, by a function of the module."""
    return outlined(F.L, "pow", F.t, [x, y], lambda L, args: _any(Floats(L, F.t), *args))


def _plain(F: Floats, a: str, y: str, down: str | None = None) -> str:
    """(a 2^down)^y for finite a > 0, in f32 normal, and |y| <= LARGE."""
    hi, lo = _log_f64(F, a) if F.double else _log_f32(F, a, down)
    p, q = F.two_prod(hi, y)
    return _exp_dd(F, p, F.fma(lo, y, q))


def _any(F: Floats, x: str, y: str) -> str:
    """x^y with all special cases of C99."""
    a, large = F.abs(x), LARGE[F.double]
    normal, down = a, None
    if not F.double:
        subnormal = F.cmp("olt", a, NORMAL)
        normal = F.select(subnormal, F.mul(a, 2.0**24), a)
        down = F.select(subnormal, -24.0, 0.0)
    r = _plain(F, normal, F.at_least(F.at_most(y, large), -large), down)
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


def _exp_dd(F: Floats, p: str, q: str) -> str:
    """e^(p + q); in f64 only the sign matters beyond 1100, and the low part may be NaN."""
    if not F.double:
        return _exp_dd_f32(F, p, q)
    beyond = F.cmp("oge", F.abs(p), 1100.0)
    p = F.select(beyond, F.copysign(1100.0, p), p)
    n, counted, r = reduce_16th(F, p, F.select(beyond, 0.0, q))
    return F.scale_16th(exp_16th(F, lookup(F, co.EXP16, counted), r, r), n, counted)


def _exp_dd_f32(F: Floats, p: str, q: str) -> str:
    """e^(p + q), f32. Far out n is cut, and what is then left from going far below 0, where the
    polynomial would turn; far above it makes the result larger still."""
    s = F.at_least(F.at_most(F.add(p, q), 100.0), -120.0)
    n, counted = F.nearest_fma(s, 1 / math.log(2))
    hi, lo = co.LN2_F32
    r = F.add(F.fma(n, -hi, p), F.fma(n, -lo, q))
    return F.scale(exp_reduced(F, F.at_least(r, -1.0)), n, counted)


def _log_f32(F: Floats, x: str, down: str | None) -> Pair:
    """log(x 2^down) for normal x > 0, f32, as a sum of two floats, to some 2^-32 of itself.

    As `_log_f64`, from mantissas of 1 to 2; the low part may overlap the high one.
    """
    e, m = F.binade(x)
    e = e if down is None else F.add(e, down)
    place = F.ints("lshr", F.to_bits(m), F.mantissa - 4)
    tables = (co.LOG16_C_F32, co.LOG16_HI_F32, co.LOG16_LOW_F32)
    c, log_c, log_c_low = lookups(F, tables, place)
    r = F.residue(m, c, 1.0)
    hi, lo = co.LN2_F32
    whole = F.fma(e, hi, log_c)  # exact
    first, first_low = F.fast_two_sum(whole, r)
    square, square_low = F.two_prod(r, F.mul(r, -0.5))
    second, second_low = F.fast_two_sum(first, square)
    low = F.add(F.fma(e, lo, log_c_low), first_low)
    low = F.add(F.add(low, square_low), second_low)
    return second, F.fma(F.mul(square, r), F.poly(r, co.LOG16_POW_F32), low)


def _log_f64(F: Floats, x: str) -> Pair:
    """log x for finite x > 0, f64, as a sum of two doubles, to some 2^-65 of itself.

    log m = log(1 + r) - log c as in `log`, with c so short that r = m c - 1 is exact;
    log(1 + r) = r - r^2/2 + r^3 P(r), whose last term is small enough for plain arithmetic.
    """
    e, m = F.split_exponent(x)
    _, counted = F.nearest_16th(m)
    tables = (co.LOG16_POW_C, co.LOG16_POW, co.LOG16_POW_LOW)
    c, log_c, log_c_low = lookups(F, tables, counted)
    r = F.residue(m, c, 1.0)
    hi, lo = co.LN2_F64
    whole = F.fma(e, hi, log_c)  # exact
    first, first_low = F.fast_two_sum(whole, r)
    half = F.mul(r, -0.5)
    square, square_low = F.two_prod(r, half)
    second, second_low = F.fast_two_sum(first, square)
    low = F.add(F.fma(e, lo, log_c_low), first_low)
    low = F.add(F.add(low, square_low), second_low)
    cube = F.mul(F.mul(r, r), r)
    low = F.fma(cube, F.poly_wide(r, co.LOG16_POW_F64), low)
    return F.fast_two_sum(second, low)


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
            return F.scale_16th(exp_16th(F, lookup(F, co.EXP16, counted), r, r), n, counted)
        n, counted = F.nearest(y)
        return F.scale(exp_reduced(F, F.mul(F.sub(y, n), math.log(2))), n, counted)
    log = Decimal(a).ln(Context(prec=50))
    hi = float(log)
    if not F.double:
        hi = struct.unpack("f", struct.pack("f", hi))[0]
        y = F.at_most(F.at_least(y, -LARGE[0]), LARGE[0])
    p, q = F.two_prod(y, hi)
    return _exp_dd(F, p, F.fma(y, float(log - Decimal(hi)), q))
