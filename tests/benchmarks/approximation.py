"""Fitting polynomials and cutting constants, in 50-digit arithmetic (mpmath).

A polynomial minimises the largest weighted error over its interval: weighted least squares on
Chebyshev nodes with the weights of Lawson's iteration. Splits of constants are cut exactly, with
fractions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp

mp.mp.dps = 50
Real = Callable[[Any], Any]


def minimax(f: Real, a: Any, b: Any, degree: int, weight: Real | None = None) -> list[Any]:
    """Coefficients c_0..c_degree of a polynomial near `f` on [a, b], error times `weight`."""
    n = 6 * (degree + 1)
    middle, half = (mp.mpf(a) + b) / 2, (mp.mpf(b) - a) / 2
    # powers of (x - middle) / half keep the normal equations well conditioned
    us = [mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    xs = [middle + half * u for u in us]
    values = [f(x) for x in xs]
    weights = [weight(x) if weight else mp.mpf(1) for x in xs]
    lawson = [mp.mpf(1) / n] * n
    for _ in range(12):
        rows, right = mp.matrix(n, degree + 1), mp.matrix(n, 1)
        for i, u in enumerate(us):
            s = mp.sqrt(lawson[i]) * weights[i]
            for j in range(degree + 1):
                rows[i, j] = s * u**j
            right[i] = s * values[i]
        c = mp.lu_solve(rows.T * rows, rows.T * right)
        errors = [
            abs(weights[i] * (mp.polyval(list(c)[::-1], u) - values[i]))
            for i, u in enumerate(us)
        ]
        total = sum(w * e for w, e in zip(lawson, errors, strict=True))
        lawson = [w * e / total for w, e in zip(lawson, errors, strict=True)]
    shifted = [mp.mpf(0)] * (degree + 1)  # back to powers of x
    for j in range(degree + 1):
        for i in range(j + 1):
            shifted[i] += c[j] * mp.binomial(j, i) * (-middle) ** (j - i) / half**j
    return shifted


def rational(
    f: Real, a: Any, b: Any, above: int, below: int, weight: Real
) -> tuple[list[Any], list[Any]]:
    """(p, q) with P / Q near `f`, error times `weight`; degrees `above` and `below`, q_0 = 1.

    Least squares of (P - f Q) over the Q of the step before, with the weights of Lawson.
    """
    n = 6 * (above + below + 2)
    middle, half = (mp.mpf(a) + b) / 2, (mp.mpf(b) - a) / 2
    xs = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    values, weights = [f(x) for x in xs], [weight(x) for x in xs]
    lawson, last = [mp.mpf(1) / n] * n, [mp.mpf(1)] * n
    for _ in range(25):
        rows, right = mp.matrix(n, above + below + 1), mp.matrix(n, 1)
        for i, x in enumerate(xs):
            s = mp.sqrt(lawson[i]) * weights[i] / last[i]
            for j in range(above + 1):
                rows[i, j] = s * x**j
            for j in range(1, below + 1):
                rows[i, above + j] = -s * values[i] * x**j
            right[i] = s * values[i]
        c = list(mp.lu_solve(rows.T * rows, rows.T * right))
        p, q = c[: above + 1], [mp.mpf(1), *c[above + 1 :]]
        last = [mp.polyval(q[::-1], x) for x in xs]
        errors = [
            abs(w * (mp.polyval(p[::-1], x) / d - v))
            for x, v, w, d in zip(xs, values, weights, last, strict=True)
        ]
        total = sum(w * e for w, e in zip(lawson, errors, strict=True))
        lawson = [w * e / total for w, e in zip(lawson, errors, strict=True)]
    return p, q


def near0(f: Real, series: Real, eps: str = "1e-12") -> Real:
    """`f` away from 0, its first Taylor terms close to 0, where `f` cancels."""
    return lambda x: series(x) if abs(x) < mp.mpf(eps) else f(x)


def split(value: Any, bits: list[int | None], narrow: bool = False) -> list[float]:
    """`value` as a sum of doubles, or of `narrow` floats: each of `bits` significant bits, None for
    all of the format's."""
    rest, out = Fraction(int(mp.floor(value * mp.mpf(2) ** 160)), 2**160), []
    for b in bits:
        if b is None:
            part = float(rest)
            if narrow:
                part = single(part)
        else:
            scale = Fraction(2) ** (b - math.frexp(float(rest))[1])
            part = float(Fraction(math.floor(rest * scale)) / scale)
        out.append(part)
        rest -= Fraction(part)
    return out


def root(f: Real) -> Real:
    """f of the square root: an even function as one of the square."""
    return lambda z: f(mp.sqrt(z))


def split_at(value: Any, place: int) -> tuple[Any, Any]:
    """A value as a multiple of 2^-place and the rest."""
    high = mp.nint(value * mp.mpf(2) ** place) / mp.mpf(2) ** place
    return high, value - high


def single(value: Any) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
