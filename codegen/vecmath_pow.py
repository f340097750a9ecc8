"""pow on lanes: 2^(y log2 |x|) with the logarithm in double-double, and C99's special cases.

f32 is worked out in f64, where plain double logarithms are exact enough.
"""

from __future__ import annotations

from graphc.codegen import coefficients as co
from graphc.codegen.floats import INF, NAN, Floats, Operand, Pair
from graphc.codegen.vecmath_exp import normalized, split_exponent


def log_dd(F: Floats, x: str, low: str | None = None) -> tuple[str, Pair]:
    """(e, h): log(x + low) = e ln 2 + h for finite x > 0, f64; h to about 2^-65 of itself.

    log m = 2 atanh(s) = 2 s (1 + z/3 + z^2 Q(z)), s = (m - 1) / (m + 1), z = s^2.
    """
    up, correction = normalized(F, x)
    e, m = split_exponent(F, up)
    f = F.sub(m, 1.0)
    top, bottom = (f, F.k(0.0)), F.two_sum(f, 2.0)
    if low is not None:  # scaled as x was: low * m / x, to first order
        scaled = F.mul(F.div(low, x), m)
        top = F.two_sum(f, scaled)
        bottom = F.add_dd(bottom, (scaled, 0.0))
    s = F.div_dd(top, bottom)
    z = F.mul_dd(s, s)
    third = F.mul_dd(z, (1 / 3, 1.850371707708594e-17))
    rest = F.mul(F.mul(z[0], z[0]), F.poly(z[0], co.LOG_TAIL_F64))
    t = F.fast_two_sum(third[0], F.add(third[1], rest))
    product = F.mul_dd(s, t)
    total = F.fast_two_sum(s[0], F.add(product[0], F.add(s[1], product[1])))
    exact_low = F.add(F.sub(product[0], F.sub(total[0], s[0])), F.add(s[1], product[1]))
    return F.add(e, correction), (F.add(total[0], total[0]), F.add(exact_low, exact_low))


def full_log_dd(F: Floats, x: str, low: str | None = None) -> Pair:
    """log(x + low) as a sum of two doubles."""
    e, h = log_dd(F, x, low)
    hi, lo = co.LN2_DD
    big = F.two_prod(e, hi)
    return F.add_dd((big[0], F.fma(e, lo, big[1])), h)


def exp2_dd(F: Floats, hi: str, lo: str) -> str:
    """2^(hi + lo) for |hi| <= 2000 and lo small beside it, f64."""
    n, counted = F.nearest(hi)
    r = F.fast_two_sum(F.sub(hi, n), lo)
    t, tail = F.mul_dd(r, co.LN2_DD)
    s, e = F.fast_two_sum(1.0, t)
    g = F.poly_wide(t, co.EXP_F64)
    p = F.add(s, F.fma(F.mul(t, t), g, F.add(e, F.fma(t, tail, tail))))
    return F.scale(p, n, counted)


def pow(F: Floats, x: str, y: str) -> str:
    if F.double:
        return _pow(F, x, y, precise=True)
    L = F.L
    wide = [L.convert("fpext", v, "float", "double") for v in (x, y)]
    return L.convert(
        "fptrunc", _pow(Floats(L, "double"), wide[0], wide[1], precise=False), "double", "float"
    )


def _pow(F: Floats, x: str, y: str, precise: bool) -> str:
    a = F.abs(x)
    e, h = log_dd(F, a) if precise else _log_plain(F, a)
    inverse: tuple[Operand, Operand] = (co.INV_LN2_DD[0], co.INV_LN2_DD[1])
    if precise:
        log2 = F.add_dd((e, 0.0), F.mul_dd(h, inverse))
        p, q = F.two_prod(log2[0], y)
        q = F.fma(log2[1], y, q)
    else:
        log2 = (F.add(e, F.mul(h[0], inverse[0])), h[1])
        p, q = F.mul(log2[0], y), F.k(0.0)
    # log2 of 0 and of infinity; the product may overflow: beyond 2000 only its sign matters
    zero, infinite = F.cmp("oeq", a, 0.0), F.cmp("oeq", a, INF)
    edge = F.select(zero, -INF, F.select(infinite, INF, log2[0]))
    p = F.select(F.either(zero, infinite), F.mul(edge, y), p)
    beyond = F.cmp("oge", F.abs(p), 2000.0)
    p = F.select(beyond, F.copysign(2000.0, p), p)
    q = F.select(beyond, 0.0, q)
    r = exp2_dd(F, p, q)
    # negative x: the sign of odd y, NaN for fractions
    whole = F.cmp("oeq", F.floor(y), y)
    half = F.mul(y, 0.5)
    odd = F.both(whole, F.cmp("one", F.floor(half), half))
    negative = F.negative(x)
    r = F.select(F.both(odd, negative), F.neg(r), r)
    fraction = F.both(F.cmp("olt", x, 0.0), F.cmp("one", F.floor(y), y))
    r = F.select(F.both(fraction, F.cmp("one", a, INF)), NAN, r)
    # NaN, but not where the other operand decides alone; |x| = 1 with infinite y
    r = F.select(F.cmp("uno", x, y), NAN, r)
    one = F.either(F.cmp("oeq", x, 1.0), F.cmp("oeq", y, 0.0))
    sure = F.both(F.cmp("oeq", a, 1.0), F.cmp("oeq", F.abs(y), INF))
    return F.select(F.either(one, sure), 1.0, r)


def _log_plain(F: Floats, x: str) -> tuple[str, Pair]:
    """`log_dd` to double precision."""
    up, correction = normalized(F, x)
    e, m = split_exponent(F, up)
    f = F.sub(m, 1.0)
    s = F.div(f, F.add(f, 2.0))
    z = F.mul(s, s)
    h = F.fma(F.mul(s, z), F.poly_wide(z, co.LOG_F64), F.add(s, s))
    return F.add(e, correction), (h, F.k(0.0))
