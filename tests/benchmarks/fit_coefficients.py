"""Fit the polynomials of the vector math library and write codegen/vecmath/coefficients.py.

    python tests/benchmarks/fit_coefficients.py > codegen/vecmath/coefficients.py

Each coefficient is fitted in 50-digit arithmetic (`approximation`), then rounded to the format.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, zip_longest
from textwrap import fill
from typing import Any, TypeAlias

import mpmath as mp
from approximation import Real, minimax, near0, rational, root, single, split, split_at

Put: TypeAlias = "Callable[[str, list[Any]], None]"  # a table under a name
PutSum: TypeAlias = "Callable[..., None]"            # a constant as a sum of floats


def by_low_bits(value: Real) -> list[Any]:
    """A table of 16 with value(i) for i = 12 to 24 at i modulo 16, 0 in places that none has."""
    return [value(i) if i <= 24 else mp.mpf(0) for i in (*range(16, 28), *range(12, 16))]


def round_inverse(i: int, log: Real = mp.log, power: Real = mp.exp) -> Any:
    """A number c near 16 / i whose logarithm is a multiple of 2^-42 to some 2^-66.

    Gal 1986. The next doubles from the middle of i's interval on are tried.
    """
    if i == 16:
        return mp.mpf(1)
    low, high = max(mp.mpf(i) - 0.5, 12) / 16, min(mp.mpf(i) + 0.5, 24) / 16
    if i == 15:  # log(1 + r) below 1/32, where it and -log c cancel most
        low += mp.mpf("0.004")
    start = mp.mpf(float(2 / (low + high)))
    ulp = mp.mpf(2) ** (-53 if start < 1 else -52)
    first = -log(start)
    target = mp.nint(first * mp.mpf(2) ** 42) / mp.mpf(2) ** 42
    # the double next to exp(-target) misses it by a random part of an ulp
    for k in range(100_000):
        for sign in (1, -1):
            goal = target + sign * k * mp.mpf(2) ** -42
            c = mp.nint(power(-goal) / ulp) * ulp
            if abs(-log(c) - goal) < mp.mpf(2) ** -66:
                return c
    raise ArithmeticError(f"no inverse of {i}/16")


# Inverses of 12/16 to 24/16: times a double of their interval, less 1, they give a double exactly.
SHORT_INVERSES = (1.3125, 1.25, 1.125, 1.0625, 1, 0.9375, 0.875, 0.84375, 0.8125, 0.75, 0.71875,
                  0.6875, 0.6875)


def short_inverse(low: Any, high: Any) -> Any:
    """The multiple c of 1/32 for which |m c - 1| stays smallest for m from low to high."""
    places = [mp.mpf(k) / 32 for k in range(16, 33)]
    return min(places, key=lambda c: max(abs(low * c - 1), abs(high * c - 1)))


def put_exponential(put: Put) -> None:
    """exp r = 1 + r + r^2 P(r)."""
    M, half_ln2 = mp.mpf, mp.log(2) / 2 * mp.mpf("1.02")
    g = near0(lambda r: (mp.expm1(r) - r) / r**2, lambda r: M(1) / 2 + r / 6)
    put("EXP_F32", minimax(g, -half_ln2, half_ln2, 4))
    put("EXP_F64", minimax(g, -half_ln2, half_ln2, 9))


def put_natural_logarithm(put: Put) -> None:
    """log(1 + f) = f - f^2/2 + f^3 P(f); atanh s = s + s^3/3 + s^5 P(s^2) for f64."""
    M = mp.mpf
    a, b = -M("0.25"), M("0.5")
    g = near0(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: M(1) / 3 - f / 4)
    put("LOG_F32", minimax(g, a, b, 8, lambda f: abs(f**3 / mp.log1p(f)) if f else M(0)))
    g = near0(root(lambda s: (mp.atanh(s) / s - 1 - s**2 / 3) / s**4), lambda z: M(1) / 5 + z / 7)
    top = (3 - 2 * mp.sqrt(2)) ** 2 * M("1.01")
    put("LOG_TAIL_F64", minimax(g, 0, top, 7))


def put_sixteenths(put: Put) -> None:
    """Tables and polynomials of f64 functions that round their arguments to sixteenths.

    EXP16: 2^(i/16), and what its rounding lost over it. LOG16_C and LOG16: c and -log c, c near
    16 / i, for i as in `by_low_bits`. LOG16_POW..: the same with short c, -log c as sums.
    LOG16_.._F32: for mantissas from 1 + i/16 on, so short that r is exact in f32, and 1 and 1/2
    at both ends of the binade; -log c as sums, whose first part stays exact beside n ln 2.
    """
    M = mp.mpf
    powers = [mp.power(2, M(i) / 16) for i in range(16)]
    put("EXP16", powers)
    put("EXP16_LOW", [p / float(p) - 1 for p in powers])
    g = near0(lambda r: (mp.expm1(r) - r) / r**2, lambda r: M(1) / 2 + r / 6)
    top = mp.log(2) / 32 * M("1.01")
    put("EXP16_F64", minimax(g, -top, top, 4, lambda r: r**2))

    inverses = by_low_bits(round_inverse)
    put("LOG16_C", inverses)
    put("LOG16", [-mp.log(c) if c else M(0) for c in inverses])
    g = near0(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: M(1) / 3 - f / 4)
    # relative to the logarithm: |f| itself where c = 1, more than 0.13 where |f| exceeds 1/32
    put("LOG16_F64", minimax(
        g, -M("0.0386"), M("0.0386"), 7,
        lambda f: abs(f**3) / (abs(f) if abs(f) < M("0.0325") else M("0.13")) if f else M(0)))
    short = by_low_bits(lambda i: M(SHORT_INVERSES[i - 12]))
    put("LOG16_POW_C", short)
    logs = [split_at(-mp.log(c), 42) if c else (M(0), M(0)) for c in short]
    put("LOG16_POW", [v[0] for v in logs])
    put("LOG16_POW_LOW", [v[1] for v in logs])
    put("LOG16_POW_F64", minimax(g, -M("0.0548"), M("0.0548"), 9, lambda f: abs(f**3)))
    floors = [M(1), *(short_inverse(M(i) / 16 + 1, M(i + 1) / 16 + 1) for i in range(1, 15)),
              M(1) / 2]
    put("LOG16_C_F32", floors)
    logs = [split_at(-mp.log(c), 15) for c in floors]
    put("LOG16_HI_F32", [v[0] for v in logs])
    put("LOG16_LOW_F32", [v[1] for v in logs])
    # -2 P in log(1 + f) = f - f^2/2 + f^3 P, as f^3 is made of -f^2/2
    put("LOG16_POW_F32", minimax(
        lambda f: -2 * g(f), -M("0.0375"), M("0.0631"), 3, lambda f: max(f**2, M("1e-9"))))


def put_logarithm(put: Put, base: int) -> None:
    """log2 or log10: log_b(1 + f) = f P(f), P(0) = 1 / ln b; f64 by tables, see above."""
    M, ln = mp.mpf, mp.log(base)

    def log(x: Any) -> Any:
        return mp.log(x, base)

    g = near0(lambda f: (mp.log1p(f) - f) / f**2 / ln, lambda f: (-M(1) / 2 + f / 3) / ln)
    put(f"LOG{base}_F32", [1 / ln, *minimax(
        g, -M("0.25"), M("0.5"), 8, lambda f: abs(f**2 / mp.log1p(f)) if f else M(0))])
    inverses = by_low_bits(lambda i: round_inverse(i, log, lambda v: mp.power(base, v)))
    put(f"LOG{base}_C", inverses)
    put(f"LOG{base}_16", [-log(c) if c else M(0) for c in inverses])
    put(f"LOG{base}_F64", [1 / ln, *minimax(g, -M("0.0386"), M("0.0386"), 8, lambda f: f * f)])


def put_hyperbolic(put: Put) -> None:
    """sinh r = r + r^3 S(r^2), cosh r = 1 + r^2 C(r^2), atanh s = s + s^3 P(s^2)."""
    M, top = mp.mpf, (mp.log(2) / 2 * mp.mpf("1.02")) ** 2
    sinh = near0(root(lambda r: (mp.sinh(r) / r - 1) / r**2), lambda z: M(1) / 6 + z / 120)
    cosh = near0(root(lambda r: (mp.cosh(r) - 1) / r**2), lambda z: M(1) / 2 + z / 24)
    atanh = near0(root(lambda s: (mp.atanh(s) / s - 1) / s**2), lambda z: M(1) / 3 + z / 5)
    put("SINH_F32", minimax(sinh, 0, top, 2, lambda z: z))
    put("SINH_F64", minimax(sinh, 0, top, 6, lambda z: z))
    put("COSH_F32", minimax(cosh, 0, top, 2, lambda z: z))
    put("COSH_F64", minimax(cosh, 0, top, 6, lambda z: z))
    put("ATANH_F32", minimax(atanh, 0, M("0.21") ** 2, 2, lambda z: z))
    put("ATANH_F64", minimax(atanh, 0, M("0.21") ** 2, 7, lambda z: z))


def put_tangent(put: Put) -> None:
    """tan r = r + r^3 T(r^2), or r (1 + r^2 P(r^2)) / (1 + r^2 Q(r^2)), to pi/4;
    asin s = s + s^3 A(s^2) to 1/2."""
    M, top = mp.mpf, (mp.pi / 4 * mp.mpf("1.02")) ** 2
    g = near0(root(lambda x: (mp.tan(x) / x - 1) / x**2), lambda z: M(1) / 3 + 2 * z / 15)
    put("TAN_F32", minimax(g, 0, top, 5, lambda z: z))
    a, b = rational(g, 0, top, 3, 3, lambda z: z)
    put("TAN_Q_F64", b[1:])
    put("TAN_P_F64", [u + v for u, v in zip_longest(a, b[1:], fillvalue=M(0))])
    g = near0(root(lambda s: (mp.asin(s) / s - 1) / s**2), lambda z: M(1) / 6 + 3 * z / 40)
    put("ASIN_F32", minimax(g, 0, M("0.2501"), 4, lambda z: z))
    put("ASIN_F64", minimax(g, 0, M("0.2501"), 11, lambda z: z))


def erf_centre(low: Any, high: Any) -> Any:
    """A double near the middle whose erf is next to a double, to some 2^-62 (Gal 1986)."""
    middle, ulp = (mp.mpf(low) + high) / 2, mp.mpf(2) ** -53
    first = mp.nint(mp.erf(middle) / ulp)
    for k in range(4000):
        goal, x = (first + k // 2 * (-1) ** k) * ulp, middle
        for _ in range(3):
            x -= (mp.erf(x) - goal) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
        x = mp.mpf(float(x))
        if abs(mp.erf(x) - goal) < mp.mpf(2) ** -62:
            return x
    raise ArithmeticError(f"no centre of {low} to {high}")


def put_erf_on_intervals(put: Put) -> None:
    """ERF_8_F64: erf on eight intervals, a table of 8 for each of: the centre m, erf m, and what
    belongs to 1, h, h^2, ... in (erf(m + h) - erf m) / h; below 1/2 erf(h) / h - 1 with m = 0."""
    M, columns = mp.mpf, []
    edges = (0, M("0.5"), 1, M("1.5"), 2, 3, 4, 5, 6)
    slope = 2 / mp.sqrt(mp.pi)
    g = near0(lambda a: mp.erf(a) / a - 1, lambda a: slope * (1 - a * a / 3) - 1)
    columns.append([M(0), M(0), *minimax(g, 0, M("0.5"), 15)])
    for low, high in pairwise(edges[1:]):
        m = erf_centre(low, high)
        at, first = M(float(mp.erf(m))), slope * mp.exp(-m * m)
        g = near0(lambda h, m=m, at=at: (mp.erf(m + h) - at) / h,
                  lambda h, m=m, first=first: first * (1 - m * h), "1e-10")
        columns.append([m, at, *minimax(g, low - m, high - m, 15, abs)])
    put("ERF_8_F64", [c[k] for k in range(len(columns[0])) for c in columns])


def put_sines(put: Put) -> None:
    """sin x = x + x^3 S(x^2), cos x = 1 - x^2/2 + x^4 C(x^2), to pi/4."""
    M = mp.mpf
    top = (mp.pi / 4 * M("1.02")) ** 2
    sin = near0(root(lambda x: (mp.sin(x) / x - 1) / x**2), lambda z: -M(1) / 6 + z / 120)
    cos = near0(root(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4), lambda z: M(1) / 24 - z / 720)
    put("SIN_F32", minimax(sin, 0, top, 3, lambda z: z))
    put("SIN_F64", minimax(sin, 0, top, 6, lambda z: z))
    put("COS_F32", minimax(cos, 0, top, 2, lambda z: z * z))
    put("COS_F64", minimax(cos, 0, top, 5, lambda z: z * z))


def put_tanh(put: Put) -> None:
    """tanh x = x + x^3 P(x^2) / Q(x^2) near 0; elsewhere exp 2r - 1 = r E(r)."""
    M, half_ln2 = mp.mpf, mp.log(2) / 2 * mp.mpf("1.02")
    g = near0(root(lambda x: (mp.tanh(x) / x - 1) / x**2), lambda z: -M(1) / 3 + 2 * z / 15)
    for name, top, above, below in (("F32", "0.64", 1, 1), ("F64", "0.76", 2, 3)):
        p, q = rational(g, 0, M(top) ** 2, above, below, lambda z: z)
        put(f"TANH_P_{name}", p)
        put(f"TANH_Q_{name}", q)
    g = near0(lambda r: mp.expm1(2 * r) / r, lambda r: 2 + 2 * r)
    put("EXP_2_F32", [1, *minimax(g, -half_ln2 / 2, half_ln2 / 2, 5, abs)])
    put("EXP_2_F64", [1, *minimax(g, -half_ln2 / 2, half_ln2 / 2, 10, abs)])


def put_erf(put: Put) -> None:
    """erf x = x + x E(x^2), erfc t = exp(-t - t C(t)), from where erf is 1 - erfc."""
    M = mp.mpf
    g = near0(root(lambda x: mp.erf(x) / x - 1), lambda z: 2 / mp.sqrt(mp.pi) * (1 - z / 3) - 1)
    put("ERF_F32", minimax(g, 0, M("0.85") ** 2, 6))
    put("ERFC_F32", minimax(
        lambda t: -mp.log(mp.erfc(t)) / t - 1, M("0.83"), 4, 6, lambda t: t * mp.erfc(t)))


def put_normal(put: Put) -> None:
    """P(Z > a) = exp(-a^2 / 2) / (a + 4) N(t) for a standard normal Z, t = (a - 4) / (a + 4)."""
    M = mp.mpf

    def beyond(t: Any) -> Any:  # P(Z > a) exp(a^2 / 2) (a + 4) at t = (a - 4) / (a + 4)
        a = 4 * (1 + t) / (1 - t)
        return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2) * (a + 4)

    for name, far, degree in (("NORMAL_F32", M("14.4"), 9), ("NORMAL_F64", M("38.7"), 23)):
        put(name, minimax(beyond, -1, (far - 4) / (far + 4), degree, lambda t: 1 / beyond(t)))


def put_arctangent(put: Put) -> None:
    """atan x = x + x^3 A(x^2), to tan(pi / 8), or to 1."""
    M = mp.mpf
    top = (mp.tan(mp.pi / 8) * M("1.01")) ** 2
    g = near0(root(lambda x: (mp.atan(x) / x - 1) / x**2), lambda z: -M(1) / 3 + z / 5)
    put("ATAN_F32", minimax(g, 0, top, 4, lambda z: z))
    put("ATAN_F64", minimax(g, 0, top, 11, lambda z: z))
    put("ATAN_TO_1_F32", minimax(
        g, 0, M(1), 7, lambda z: z**1.5 / mp.atan(mp.sqrt(z)) if z else M(0)))


def put_gamma(put: Put, put_sum: PutSum) -> None:
    """c + t Q(t) is log-gamma over t around its zeros 1 and 2, log-gamma itself around 1.5;
    digamma around its zero is t Q(t)."""
    M = mp.mpf
    zeta, middle, peak = mp.zeta, mp.loggamma(M("1.5")), mp.psi(0, M("1.5"))
    one = near0(lambda t: (mp.loggamma(1 + t) / t + mp.euler) / t,
                lambda t: zeta(2) / 2 - zeta(3) * t / 3)
    half = near0(lambda t: (mp.loggamma(M("1.5") + t) - middle) / t,
                 lambda t: peak + mp.psi(1, M("1.5")) * t / 2)
    two = near0(lambda t: (mp.loggamma(2 + t) / t - 1 + mp.euler) / t,
                lambda t: (zeta(2) - 1) / 2 - (zeta(3) - 1) * t / 3)
    put("LGAMMA_1_F64", minimax(one, M("-0.255"), M("0.255"), 20))
    put("LGAMMA_1_5_F64", minimax(half, -M("0.255"), M("0.255"), 16))
    put("LGAMMA_2_F64", minimax(two, M("-0.255"), M("0.505"), 20))

    def tail(v: Any) -> Any:  # what Stirling's formula lacks, times b, at v = 1 / b^2
        b = 1 / mp.sqrt(v)
        return b * (mp.loggamma(b) - (b - M(1) / 2) * mp.log(b) + b - mp.log(2 * mp.pi) / 2)

    put("LGAMMA_TAIL_F32_F64", minimax(tail, 0, M(1) / 16, 7, mp.sqrt))
    put_sum("LGAMMA_1_DD", -mp.euler, [None, None])
    put_sum("LGAMMA_1_5_DD", middle, [None, None])
    put_sum("LGAMMA_2_DD", 1 - mp.euler, [None, None])

    z = mp.findroot(mp.digamma, M("1.4616"))
    put_sum("DIGAMMA_ZERO_DD", z, [None, None])
    slope = near0(lambda t: mp.digamma(z + t) / t, lambda t: mp.psi(1, z) + mp.psi(2, z) * t / 2)
    put("DIGAMMA_ZERO_F64", minimax(slope, -M(1) / 64, M(1) / 64, 8))


def put_cube_root(put: Put) -> None:
    """1 / cbrt(1 - h) = 1 + h P(h), for what a guess from the bits leaves."""
    M = mp.mpf
    g = near0(lambda h: (1 / mp.cbrt(1 - h) - 1) / h, lambda h: M(1) / 3 + 2 * h / 9)
    series = minimax(g, -M("0.108"), M("0.108"), 2, abs)
    for name in ("CBRT_F32", "CBRT_F64"):
        put(name, series)


def put_constants(put_sum: PutSum) -> None:
    """Constants as sums, whose leading parts end in zeros: integers times them are exact."""
    M = mp.mpf
    put_sum("LN2_F32", mp.log(2), [15, None], narrow=True)
    put_sum("LN2_F64", mp.log(2), [38, None])  # 15 bits times it are exact
    put_sum("LOG10_2_F32", mp.log10(2), [15, None], narrow=True)
    put_sum("LOG10_2_F64", mp.log10(2), [38, None])
    put_sum("LN2_DD", mp.log(2), [None, None])
    put_sum("THIRD_DD", M(1) / 3, [None, None])
    put_sum("PI_DD", mp.pi, [None, None])
    put_sum("PIO2_F64", mp.pi / 2, [33, 33, None])
    put_sum("PIO2_F32_3", mp.pi / 2, [None, None, None], narrow=True)
    put_sum("PIO2_DD", mp.pi / 2, [None, None])
    put_sum("PIO4_DD", mp.pi / 4, [None, None])
    put_sum("PI_F32", mp.pi, [None, None], narrow=True)
    put_sum("PIO2_F32", mp.pi / 2, [None, None], narrow=True)
    put_sum("PIO4_F32", mp.pi / 4, [None, None], narrow=True)
    put_sum("HALF_LOG_2PI_DD", mp.log(2 * mp.pi) / 2, [None, None])
    put_sum("LOG_PI_DD", mp.log(mp.pi), [None, None])


def tables() -> dict[str, list[float]]:
    """All polynomials, tables and constants, in the order of the file."""
    found: dict[str, list[float]] = {}

    def put(name: str, c: list[Any]) -> None:
        found[name] = [single(v) if name.endswith("F32") else float(v) for v in c]

    def put_sum(name: str, value: Any, bits: list[int | None], narrow: bool = False) -> None:
        found[name] = split(value, bits, narrow)

    put_exponential(put)
    put_natural_logarithm(put)
    put_sixteenths(put)
    put_logarithm(put, 2)
    put_logarithm(put, 10)
    put_hyperbolic(put)
    put_tangent(put)
    put_sines(put)
    put_tanh(put)
    put_erf(put)
    put_erf_on_intervals(put)
    put_normal(put)
    put_arctangent(put)
    put_gamma(put, put_sum)
    put_cube_root(put)
    put_constants(put_sum)
    return found


HEADER = '''"""Polynomials and split constants of the vector math library.

Made by tests/benchmarks/fit_coefficients.py, which says what each is; do not edit. Polynomials
start with the constant term. `X_DD` is X as a sum of two doubles, `LN2_F64` and `PIO2_F64` are
sums whose leading parts have trailing zeros, so that small integers times them are exact.
"""
'''


def main() -> None:
    print(HEADER)
    for name, values in tables().items():
        print(f"{name} = (")
        print(fill(" ".join(f"{v!r}," for v in values), 100, initial_indent="    ",
                   subsequent_indent="    ", break_on_hyphens=False))
        print(")")
    with mp.workprec(1400):
        bits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** (64 * 20)))
    print("# 2/pi = sum of TWO_OVER_PI[i] * 2^(-64 i); the first word is 0")
    print("TWO_OVER_PI = (\n    0,")
    for i in range(19, -1, -1):
        print(f"    {bits >> (64 * i) & (2**64 - 1):#018x},")
    print(")")


if __name__ == "__main__":
    main()
