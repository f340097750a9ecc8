"""erf, log-gamma and polygamma in NumPy, f64: the references of those rows.

Sources: Abramowitz & Stegun, Handbook of Mathematical Functions, 6.1.33, 6.1.41, 6.3.18, 6.4.11;
NIST DLMF 5.5.3, 5.7.3, 5.11.1, 5.15.6.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from graphc.types import Array

_erf, _erfc = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)
_ROOT_HALF = (0.7071067811865476, -4.833646656726457e-17)  # as a sum
# Bernoulli numbers B_2, B_4, ... B_24.
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)
_EULER = 0.5772156649015329
_DIGAMMA_ZERO = (1.4616321449683622, 9.549995429965697e-17)  # the positive one, as a sum


def erf(x: Array) -> Array:
    return np.asarray(_erf(x), np.float64)


def normal_cdf(x: Array) -> Array:
    """P(Z <= x) for a standard normal Z: erfc(z) / 2 at z = -x / sqrt(2), whose rounding error,
    by which erfc changes much where x is far below 0, is made good."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        z = -x * _ROOT_HALF[0]
        (a, b), (c, d) = _halves(-x), _halves(np.asarray(_ROOT_HALF[0]))
        lost = ((a * c - z) + a * d + b * c) + b * d - x * _ROOT_HALF[1]
        slope = -2 / math.sqrt(math.pi) * np.exp(-z * z)
        change = np.where(np.abs(x) < 40, slope * lost, 0.0)
    return (np.asarray(_erfc(z), np.float64) + change) / 2


def _halves(x: Array) -> tuple[Array, Array]:
    """Veltkamp's split: x as a sum of two numbers whose products are exact."""
    t = x * 134217729.0
    high = t - (t - x)
    return high, x - high


def lgamma(x: Array) -> Array:
    """log|gamma(x)|; +inf at 0 and the negative integers, +inf at both infinities."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        positive = np.where(x > 0, x, 1.0 - x)
        out = _lgamma_positive(positive)
        # DLMF 5.5.3: gamma(x) gamma(1-x) = pi / sin(pi x)
        sine = np.abs(np.sin(np.pi * (x - np.rint(x))))
        reflected = math.log(math.pi) - np.log(sine) - out
        out = np.where(x > 0, out, reflected)
        out = np.where((x <= 0) & (x == np.floor(x)), np.inf, out)
        out = np.where(np.abs(x) < 1e-16, -np.log(np.abs(x)), out)
        return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), np.inf, out))


@cache
def _zeta_minus_one(k: int) -> float:
    """zeta(k) - 1 by Euler-Maclaurin."""
    n = 12
    tail = n ** (1.0 - k) / (k - 1) + 0.5 * n**-float(k)
    rising = float(k)
    for j, b in enumerate(_BERNOULLI[:8], 1):
        tail += b / math.factorial(2 * j) * rising * n ** (1.0 - k - 2 * j)
        rising *= (k + 2 * j - 1) * (k + 2 * j)
    return math.fsum([m ** -float(k) for m in range(2, n)] + [tail])


def _lgamma_near_two(z: Array) -> Array:
    """log gamma(2 + z) for |z| <= 1/2, DLMF 5.7.3; keeps relative accuracy at the zero."""
    out = np.zeros_like(z)
    for k in range(32, 1, -1):
        out = (-1) ** k * _zeta_minus_one(k) / k + z * out
    return z * ((1.0 - _EULER) + z * out)


def _lgamma_positive(x: Array) -> Array:
    """Below 12, gamma(x + 1) = x gamma(x) leads to the series about 2; above, A&S 6.1.41.

    Every sum is of terms of one sign or nearly so, so that nothing cancels.
    """
    tiny, below_two = x < 0.5, (x >= 0.5) & (x < 1.5)
    reduced, factor = np.where(x < 12.0, x, 2.0), np.ones_like(x)
    for _ in range(10):
        more = reduced > 2.5
        reduced = np.where(more, reduced - 1.0, reduced)
        factor = np.where(more, factor * reduced, factor)
    z = np.where(tiny, x, np.where(below_two, x - 1.0, reduced - 2.0))
    near = _lgamma_near_two(z) + np.log(factor)
    near = near - np.where(tiny | below_two, np.log1p(z), 0.0) - np.where(tiny, np.log(x), 0.0)
    big = np.maximum(x, 12.0)
    correction = np.zeros_like(x)
    for k in range(len(_BERNOULLI), 0, -1):
        correction = correction / (big * big) + _BERNOULLI[k - 1] / (2 * k * (2 * k - 1))
    log = np.log(big)
    far = (big - 0.5) * (log - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + correction / big
    return np.where(x < 12.0, near, far)


def polygamma(n: int, x: Array) -> Array:
    """The n-th derivative of digamma.

    Poles: +inf for odd n; for even n, -inf at 0, +inf at -0 and NaN at the negative integers.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        out = _polygamma_positive(n, np.where(x > 0, x, 1.0 - x))
        # DLMF 5.15.6: (-1)^n psi_n(1-x) - psi_n(x) = (d/dx)^n pi cot(pi x)
        reflected = (-1) ** n * out - _cot_derivative(n, x)
        out = np.where(x > 0, out, reflected)
        if n == 0:
            t = (x - _DIGAMMA_ZERO[0]) - _DIGAMMA_ZERO[1]
            out = np.where(np.abs(t) < 0.125, _digamma_at_zero(t), out)
        tiny = np.where(np.signbit(x), 1.0, -1.0) * np.inf if n % 2 == 0 else np.inf
        pole = np.where(x == 0, tiny, np.nan if n % 2 == 0 else np.inf)
        out = np.where((x <= 0) & (x == np.floor(x)), pole, out)
        infinite = np.where(x < 0, np.nan, np.inf if n == 0 else 0.0 * (-1) ** (n + 1))
        return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), infinite, out))


@cache
def _digamma_series() -> list[float]:
    """Taylor's, about the zero: of t, t^2, .."""
    zero = np.array(_DIGAMMA_ZERO[0])
    return [float(_polygamma_positive(k, zero)) / math.factorial(k) for k in range(1, 17)]


def _digamma_at_zero(t: Array) -> Array:
    """digamma at t from its zero, |t| <= 1/8, where sums would cancel."""
    out = np.zeros_like(t)
    for c in reversed(_digamma_series()):
        out = (out + c) * t
    return out


def _cot_derivative(n: int, x: Array) -> Array:
    """(d/dx)^n of pi cot(pi x), as a polynomial in cot: d cot = -pi (1 + cot^2)."""
    r = np.pi * (x - np.rint(x))
    cot = np.cos(r) / np.sin(r)
    poly = [0.0, 1.0]
    for _ in range(n):
        d = [i * c for i, c in enumerate(poly)][1:]
        poly = [-(a + b) for a, b in zip([*d, 0.0, 0.0], [0.0, 0.0, *d], strict=True)]
    out = np.zeros_like(x)
    for c in reversed(poly):
        out = out * cot + c
    return out * math.pi ** (n + 1)


def _polygamma_positive(n: int, x: Array) -> Array:
    """Recurrence up to a large argument, then A&S 6.3.18 and 6.4.11."""
    least = 14.0 + n
    total, z = np.zeros_like(x), x.copy()
    sign = -1.0 if n % 2 == 0 else 1.0
    for _ in range(int(least)):
        more = z < least
        total = np.where(more, total + math.factorial(n) * z ** -(n + 1.0), total)
        z = np.where(more, z + 1.0, z)
    series = np.zeros_like(z)
    for k in range(len(_BERNOULLI), 0, -1):
        c = _BERNOULLI[k - 1] * math.exp(math.lgamma(2 * k + n) - math.lgamma(2 * k + 1))
        series = (series + c) / (z * z)
    if n == 0:
        return np.log(z) - 0.5 / z - series - total
    head = math.factorial(n - 1) + 0.5 * math.factorial(n) / z + series
    return np.asarray(sign * (total + head * z ** -float(n)))
