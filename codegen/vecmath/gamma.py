"""log-gamma and polygamma on lanes: right everywhere rather than fast.

Both are functions of the module, worked out in f64 with sums of two doubles where terms cancel;
f32 is f64 rounded, of log-gamma and digamma above 0 a plain one: digamma takes Zen 5 0.9 ns, with
such sums 11. Below 0 the reflection formulas are exact to some 2^-56 of their terms: some ULP
remain close to the zeros between negative integers, where the terms cancel.
Sources: NIST DLMF 5.5.3, 5.11.1, 5.11.2, 5.15.5, 5.15.6, 5.15.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from graphc.codegen.elementwise.floats import INF, NAN, Floats, Pair
from graphc.codegen.elementwise.rare import outlined, unless
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.log import log
from graphc.codegen.vecmath.trig import sincospi

if TYPE_CHECKING:
    from fractions import Fraction

STIRLING = 8.0  # log-gamma's asymptotic series serves from here on
TERMS = 13


@cache
def bernoulli(count: int) -> tuple[Fraction, ...]:
    """B_2, B_4, ..., `count` of them, exactly."""
    from fractions import Fraction  # 1.5 ms with what it imports, of a first compilation

    b = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        b.append(-sum(math.comb(m + 1, j) * b[j] for j in range(m)) / Fraction(m + 1))
    return tuple(b[2::2])


def _log_dd(F: Floats, x: str, low: str | None = None) -> Pair:
    """log(x + low) for finite x > 0 as a sum of two doubles, to some 2^-63 of itself.

    x = 2^e m, log m = 2 atanh(s) = 2 s (1 + z/3 + z^2 Q(z)), s = (m - 1) / (m + 1), z = s^2. Low
    parts are carried as plain sums where they are small enough.
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
    log_m = F.add(hi, hi), F.add(lo, lo)
    ln2, ln2_low = co.LN2_DD
    whole, error = F.two_prod(e, ln2)
    return F.add_dd((whole, F.fma(e, ln2_low, error)), log_m)


def _in_f64(F: Floats, name: str, x: str, body: Callable[[Floats, str], str]) -> str:
    """A function of the module in f64, of a number of either format."""
    L = F.L
    wide = x if F.double else L.convert("fpext", x, "float", "double")
    y = outlined(L, name, "double", [wide], lambda l, args: body(Floats(l, "double"), args[0]))
    return y if F.double else L.convert("fptrunc", y, "double", "float")


def lgamma(F: Floats, x: str) -> str:
    """log |gamma(x)|; +inf at 0 and the negative integers and at both infinities."""
    if F.double:
        return _in_f64(F, "lgamma", x, _lgamma)
    return _plain_above(
        F, x, F.abs(x), "lgammaf", _lgamma_f32, lambda: _in_f64(F, "lgamma", x, _lgamma))


def _plain_above(
    F: Floats, x: str, a: str, name: str, above: Callable[[Floats, str], str],
    everywhere: Callable[[], str],
) -> str:
    """A function of f32 x: `above` of a, which is x there, in f64 where no lane is below 0."""
    L = F.L
    wide = L.convert("fpext", a, "float", "double")
    y = outlined(L, name, "double", [wide], lambda l, v: above(Floats(l, "double"), *v))
    y = L.convert("fptrunc", y, "double", "float")
    below = F.cmp("olt", x, 0.0)
    return unless(L, below, F.t, lambda: y, lambda: F.select(below, everywhere(), y))


def _lgamma_f32(F: Floats, a: str) -> str:
    """lgamma in f64 of an f32 a >= 0, whose distance from the zeros 1 and 2 is 2^-24 and more.

    From b = 4 on (b - 1/2)(log b - 1) + log(2 pi)/2 - 1/2 + P(1/b^2) / b; below b = a + 4, less
    the logarithm of a (a + 1) (a + 2) (a + 3).
    """
    low = F.cmp("olt", a, 4.0)
    b = F.select(low, F.add(a, 4.0), a)
    t = F.fma(a, a, F.mul(a, 3.0))
    product = log(F, F.select(low, F.mul(t, F.add(t, 2.0)), 1.0))
    inverse = F.div(1.0, b)
    tail = F.mul(inverse, F.poly_wide(F.mul(inverse, inverse), co.LGAMMA_TAIL_F32_F64))
    y = F.fma(F.sub(b, 0.5), F.sub(log(F, b), 1.0), F.add(tail, co.HALF_LOG_2PI_DD[0] - 0.5))
    zero = F.either(F.cmp("oeq", a, 1.0), F.cmp("oeq", a, 2.0))
    return F.select(zero, 0.0, F.sub(y, product))


def _lgamma(F: Floats, x: str) -> str:
    """lgamma in f64: below 0 by the reflection formula."""
    a = F.abs(x)
    hi, lo = _lgamma_positive(F, a)
    f = F.sub(a, F.L.intrinsic("roundeven", "double", a))
    reflect = F.cmp("olt", x, -(2.0**-60))

    def mirrored() -> str:
        """log(pi / (a |sin pi a|)) - lgamma(a); above -2^-60 both sides are -log a."""
        sine, _ = sincospi(F, F.abs(f))
        down = _log_dd(F, *F.mul_dd(sine, (a, 0.0)))
        y = F.add_dd(co.LOG_PI_DD, (F.neg(down[0]), F.neg(down[1])))
        y = F.add_dd(y, (F.neg(hi), F.neg(lo)))
        return F.select(reflect, y[0], F.add(hi, lo))

    y = unless(F.L, reflect, F.t, lambda: F.add(hi, lo), mirrored)
    pole = F.either(F.cmp("oeq", a, 0.0), F.both(F.cmp("olt", x, 0.0), F.cmp("oeq", f, 0.0)))
    y = F.select(F.either(pole, F.cmp("oeq", a, INF)), INF, y)
    return F.keep_nan(x, y)


def _lgamma_positive(F: Floats, x: str) -> Pair:
    """lgamma for finite x > 0.

    Up to 8: polynomials around 1, 1.5 and 2, reached by gamma(x + 1) = x gamma(x). From 8 on
    (x - 1/2)(log x - 1) + log(2 pi)/2 - 1/2 + 1/(12 x) - ...
    """
    low, high = F.cmp("olt", x, 0.75), F.cmp("oge", x, STIRLING)
    y, p = x, (F.k(1.0), F.k(0.0))
    for _ in range(6):
        more = F.cmp("ogt", y, 2.5)
        y = F.select(more, F.sub(y, 1.0), y)
        q = F.mul_dd(p, (y, 0.0))
        p = F.select(more, q[0], p[0]), F.select(more, q[1], p[1])
    own = F.either(low, high)
    logarithm = _log_dd(F, F.select(own, x, p[0]), F.select(own, 0.0, p[1]))
    # below 0.75 the polynomials are taken at x + 1, from the distance to their centre
    one = F.select(low, x, F.sub(y, 1.0))
    half, two = F.sub(one, 0.5), F.sub(y, 2.0)
    around_1 = F.mul_dd((one, 0.0), _around(F, one, co.LGAMMA_1_DD, co.LGAMMA_1_F64))
    around_1_5 = _around(F, half, co.LGAMMA_1_5_DD, co.LGAMMA_1_5_F64)
    around_2 = F.mul_dd((two, 0.0), _around(F, two, co.LGAMMA_2_DD, co.LGAMMA_2_F64))
    first, second = F.cmp("olt", one, 0.25), F.cmp("olt", one, 0.75)
    near = tuple(
        F.select(first, u, F.select(second, v, w))
        for u, v, w in zip(around_1, around_1_5, around_2, strict=True)
    )
    signed = tuple(F.select(low, F.neg(v), v) for v in logarithm)
    small = F.add_dd((signed[0], signed[1]), (near[0], near[1]))
    inverse = F.div(1.0, x)
    terms = [float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(bernoulli(10), 1)]
    series = F.mul(inverse, F.poly_wide(F.mul(inverse, inverse), terms))
    less = F.add_dd(logarithm, (-1.0, 0.0))
    large = F.mul_dd(F.two_sum(x, -0.5), less)
    constant = F.add_dd(co.HALF_LOG_2PI_DD, (-0.5, 0.0))
    large = F.add_dd(large, constant)
    large = F.add_dd(large, (series, 0.0))
    overflowing = F.cmp("ogt", x, 1e300)
    big = F.mul(x, less[0])
    hi = F.select(overflowing, big, F.select(high, large[0], small[0]))
    lo = F.select(overflowing, 0.0, F.select(high, large[1], small[1]))
    return hi, lo


def _around(F: Floats, t: str, c: tuple[float, float], rest: Sequence[float]) -> Pair:
    """c + t rest(t)."""
    s, e = F.two_sum(c[0], F.mul(t, F.poly(t, rest)))
    return s, F.add(e, c[1])


def polygamma(F: Floats, x: str, n: int) -> str:
    """The n-th derivative of digamma.

    Poles: +inf for odd n; for even n -inf at 0, +inf at -0, NaN at the negative integers.
    """
    def any_sign() -> str:
        return _in_f64(F, f"polygamma{n}", x, lambda D, v: _polygamma(D, v, n))

    if n or F.double:
        return any_sign()
    return _plain_above(F, x, x, "digammaf", _digamma_f32, any_sign)


def _digamma_f32(F: Floats, a: str) -> str:
    """digamma in f64 of an f32 a that is 0 or more, or -0.

    log b - 1/(2 b) - 1/(12 b^2) + ... from b = 6 on; below b = a + 6, less 1/a + ... + 1/(a + 5),
    which is (2 a + 5) (1/u + 1/(u + 4) + 1/(u + 6)), u = a (a + 5).
    """
    low = F.cmp("olt", a, 6.0)
    b = F.select(low, F.add(a, 6.0), a)
    u = F.mul(a, F.add(a, 5.0))
    over = F.mul(F.add(F.add(a, a), 5.0), F.poly(u, [24.0, 20.0, 3.0]))
    less = F.div(over, F.mul(u, F.poly(u, [24.0, 10.0, 1.0])))
    inverse = F.div(1.0, b)
    square = F.mul(inverse, inverse)
    terms = [float(number / (2 * k)) for k, number in enumerate(bernoulli(5), 1)]
    series = F.fma(inverse, 0.5, F.mul(square, F.poly(square, terms)))
    y = F.sub(F.sub(log(F, b), series), F.select(low, less, 0.0))
    return F.select(F.cmp("oeq", a, 0.0), F.neg(F.copysign(INF, a)), _digamma_at_zero(F, a, y))


def _polygamma(F: Floats, x: str, n: int) -> str:
    """The n-th derivative of digamma, in f64."""
    sign = 1.0 if n % 2 else -1.0
    a = F.abs(x)
    negative = F.cmp("olt", x, 0.0)
    # digamma^(n) of x, or of 1 - x for negative x: then the sum starts at 1 + a
    pair = _positive(F, a, n, F.select(negative, 1.0, 0.0))
    # reflection: psi_n(x) = (-1)^n psi_n(1 - x) - (d/dx)^n pi cot(pi x)
    f = F.sub(x, F.L.intrinsic("roundeven", "double", x))
    sine, cosine = sincospi(F, f)
    cot = F.div_dd(cosine, sine)
    *rest, first = _cot_derivative(n)
    turned: Pair = (F.k(first), F.k(0.0))
    for c in reversed(rest):
        turned = F.add_dd(F.mul_dd(turned, cot), (c, 0.0))
    for _ in range(n + 1):
        turned = F.mul_dd(turned, co.PI_DD)
    back = [F.neg(v) if n % 2 else v for v in pair]
    mirrored = F.add_dd((back[0], back[1]), (F.neg(turned[0]), F.neg(turned[1])))
    y = F.select(negative, mirrored[0], F.add(*pair))
    if n == 0:
        y = _digamma_at_zero(F, x, y)
    # the leading term alone where it is so large that sums of two doubles would overflow
    lead = F.mul(sign * _factorial(n), _plain_power(F, F.div(1.0, x), n + 1))
    y = F.select(F.cmp("ogt", F.abs(lead), 1e290), lead, y)
    whole = F.both(negative, F.cmp("oeq", f, 0.0))
    y = F.select(whole, INF if n % 2 else NAN, y)
    zero = F.k(INF) if n % 2 else F.neg(F.copysign(INF, x))
    y = F.select(F.cmp("oeq", x, 0.0), zero, y)
    y = F.select(F.cmp("oeq", x, INF), math.copysign(0.0, sign) if n else INF, y)
    y = F.select(F.cmp("oeq", x, -INF), NAN, y)
    return F.keep_nan(x, y)


def _digamma_at_zero(F: Floats, x: str, y: str) -> str:
    """y, but digamma around its positive zero, where sums of two doubles have too few digits."""
    zero, low = co.DIGAMMA_ZERO_DD
    t = F.sub(F.sub(x, zero), low)
    near = F.cmp("olt", F.abs(t), 2.0**-6)
    return F.select(near, F.mul(t, F.poly_wide(t, co.DIGAMMA_ZERO_F64)), y)


def _factorial(n: int) -> float:
    return float(math.factorial(n)) if n <= 170 else INF


def _plain_power(F: Floats, x: str, n: int) -> str:
    y = x
    for _ in range(n - 1):
        y = F.mul(y, x)
    return y


def _power_dd(F: Floats, x: Pair, n: int) -> Pair:
    """x^n by squaring, n >= 1."""
    result: Pair | None = None
    while True:
        if n & 1:
            result = x if result is None else F.mul_dd(result, x)
        n >>= 1
        if not n:
            assert result is not None
            return result
        x = F.mul_dd(x, x)


def _cot_derivative(n: int) -> list[float]:
    """(d/dx)^n of cot x as a polynomial in cot x: cot' = -1 - cot^2."""
    p = [0, 1]
    for _ in range(n):
        d = [i * c for i, c in enumerate(p)][1:]
        p = [-(a + b) for a, b in zip([*d, 0, 0], [0, 0, *d], strict=True)]
    return [float(c) for c in p]


def _positive(F: Floats, a: str, n: int, first: str) -> Pair:
    """digamma^(n)(a + first), first 0 or 1, for a + first > 0.

    n! (-1)^(n+1) times the sum of 1 / (a + k)^(n+1) up to a + k >= 14 + n, and there the
    asymptotic series in 1/z.
    """
    L, e = F.L, F.L.e
    v, least = L.vec("double"), 14.0 + n
    before, loop, done = e.block, e.fresh("sum"), e.fresh("summed")
    k, hi, lo, nk, nhi, nlo = (f"%{e.fresh('s')}" for _ in range(6))
    zero = F.k(0.0)
    e.do(f"br label %{loop}")
    e.label(loop)
    for name, start, then in ((k, first, nk), (hi, zero, nhi), (lo, zero, nlo)):
        e.do(f"{name} = phi {v} [{start}, %{before}], [{then}, %{loop}]")
    w = F.two_sum(a, k)
    inverse = F.div_dd((1.0, 0.0), w)
    total = F.add_dd((hi, lo), _power_dd(F, inverse, n + 1))
    more = F.cmp("olt", w[0], least)
    cond = L.vec("i1")
    e.do(f"{nk} = select {cond} {more}, {v} {F.add(k, 1.0)}, {v} {k}")
    e.do(f"{nhi} = select {cond} {more}, {v} {total[0]}, {v} {hi}")
    e.do(f"{nlo} = select {cond} {more}, {v} {total[1]}, {v} {lo}")
    e.do(f"br i1 {L.any(more)}, label %{loop}, label %{done}")
    e.label(done)
    # w and its inverse are now those of the first argument of 14 + n and more
    sign = 1.0 if n % 2 else -1.0
    square = F.mul(inverse[0], inverse[0])
    numbers = list(enumerate(bernoulli(TERMS), 1))
    if n == 0:
        # digamma has a zero near 1.46: the two largest terms in double-double
        terms = [float(b / (2 * i)) for i, b in numbers[1:]]
        series = F.mul(F.mul(square, square), F.poly(square, terms))
        twelfth = F.mul_dd(F.mul_dd(inverse, inverse), (co.THIRD_DD[0] / 4, co.THIRD_DD[1] / 4))
        rest = F.add_dd(F.mul_dd(inverse, (0.5, 0.0)), twelfth)
        rest = F.add_dd(F.add_dd(rest, (series, 0.0)), (nhi, nlo))
        return F.add_dd(_log_dd(F, *w), (F.neg(rest[0]), F.neg(rest[1])))
    base = math.factorial(n - 1)
    terms = [
        float(b * math.factorial(2 * i + n - 1) / (math.factorial(2 * i) * base))
        for i, b in numbers
    ]
    series = F.mul(square, F.poly(square, terms))
    bracket = F.add_dd(F.mul_dd(inverse, (n / 2, 0.0)), (series, 0.0))
    bracket = F.add_dd((1.0, 0.0), bracket)
    tail = F.mul_dd(bracket, _power_dd(F, inverse, n))
    # (n-1)! tail + n! sum
    total = F.add_dd(tail, F.mul_dd((nhi, nlo), (float(n), 0.0)))
    factor = sign * _factorial(n - 1)
    low = float(base - int(_factorial(n - 1))) if n <= 171 else 0.0
    return F.mul_dd(total, (factor, sign * low))
