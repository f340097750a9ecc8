"""Functions of the reals that are written with the primitives: cbrt, hypot, logaddexp, sinc, ...

Formulas are chosen to be accurate over the whole range, and so that every derivative is right too:
a branch is taken with `select` between formulas that are each analytic where they meet, never
with |x|, whose derivatives at 0 are lost. f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from graphc import prim, types
from graphc.convert import ArrayLike, as_float, cast, strict
from graphc.tensor import Tensor

__all__ = [
    "arctan2", "atan2", "cbrt", "deg2rad", "degrees", "exp2", "hypot", "logaddexp", "logaddexp2",
    "rad2deg", "radians", "sinc",
]


def _k(x: Tensor, value: float) -> Tensor:
    return prim.full_like(x, value)


def _wide(op: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Promote and broadcast operands, and compute 16-bit floats in f32."""

    def decorate(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(fn)
        def apply(*xs: ArrayLike) -> Tensor:
            ts = [as_float(xs[0])] if len(xs) == 1 else strict(op, *xs, floating=True)
            dtype = ts[0].dtype
            return cast(fn(*[cast(t, dtype.compute) for t in ts]), dtype)

        return apply

    return decorate


@_wide("atan2")
def atan2(x1: Tensor, x2: Tensor) -> Tensor:
    """The angle of the point (x2, x1), in [-pi, pi]."""
    return prim.atan2(x1, x2)


def exp2(x: ArrayLike) -> Tensor:
    """2**x"""
    t = as_float(x)
    return prim.pow(_k(t, 2.0), t)


@_wide("cbrt")
def cbrt(x: Tensor) -> Tensor:
    """The real cube root; its slope at 0 is inf."""
    return prim.cbrt(x)


@_wide("logaddexp")
def logaddexp(x1: Tensor, x2: Tensor) -> Tensor:
    """log(exp(x1) + exp(x2)), without overflow."""
    top, below = _larger(x1, x2)
    return prim.add(top, prim.log1p(prim.exp(below)))


@_wide("logaddexp2")
def logaddexp2(x1: Tensor, x2: Tensor) -> Tensor:
    """log2(2**x1 + 2**x2), without overflow."""
    top, below = _larger(x1, x2)
    tail = prim.log1p(prim.pow(_k(x1, 2.0), below))
    return prim.add(top, prim.mul(tail, _k(x1, 1.0 / math.log(2.0))))


def _larger(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of two, and the smaller less the larger: 0 where both are one infinity."""
    first = prim.less(x2, x1)
    same = prim.and_(prim.equal(x1, x2), prim.not_(prim.is_finite(x1)))  # inf - inf would be NaN
    below = prim.select(first, prim.sub(x2, x1), prim.sub(x1, x2))
    return prim.select(first, x1, x2), prim.select(same, _k(x1, 0.0), below)


@_wide("hypot")
def hypot(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(x1**2 + x2**2), without overflow or underflow on the way."""
    power, scale = _power_of_two(prim.maximum(prim.abs(x1), prim.abs(x2)))
    a, b = prim.mul(x1, scale), prim.mul(x2, scale)
    total = prim.add(prim.mul(a, a), prim.mul(b, b))
    zero = prim.equal(total, _k(x1, 0.0))  # where sqrt has no derivative, 0 is taken
    root = prim.sqrt(prim.select(zero, _k(x1, 1.0), total))
    y = prim.select(zero, _k(x1, 0.0), prim.mul(root, power))
    inf = _k(x1, math.inf)
    is_inf = prim.or_(prim.equal(prim.abs(x1), inf), prim.equal(prim.abs(x2), inf))
    return prim.select(is_inf, inf, y)  # also beside a NaN


def _power_of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    """The power of 2 not above x >= 0, between ends that have an inverse, and that inverse: so
    scaled, gradients are in range as well, which a power common to all small x would make 0."""
    wide = x.dtype is types.f64
    digits, exponents = (52, 2047) if wide else (23, 255)
    bits = prim.bitcast(x, dtype=types.BY_NAME[f"i{x.dtype.bits}"])

    def at(exponent: int) -> Tensor:
        return prim.full_like(bits, exponent << digits)

    bits = prim.and_(bits, at(exponents))
    bits = prim.minimum(prim.maximum(bits, at(1)), at(exponents - 2))
    inverse = prim.sub(at(exponents - 1), bits)
    return prim.bitcast(bits, dtype=x.dtype), prim.bitcast(inverse, dtype=x.dtype)


# Angles and others


def deg2rad(x: ArrayLike) -> Tensor:
    """Degrees as radians."""
    return as_float(x) * (math.pi / 180.0)


def rad2deg(x: ArrayLike) -> Tensor:
    """Radians as degrees."""
    return as_float(x) * (180.0 / math.pi)


@_wide("sinc")
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0; 0 at the other integers."""
    near = prim.less_equal(prim.abs(x), _k(x, 0.5))
    # Taylor's series, whose two first derivatives are right to the last digit too
    s = prim.select(near, prim.mul(x, x), _k(x, 0.0))
    series = _k(x, 0.0)
    for k in range(11 if x.dtype is types.f64 else 7, -1, -1):
        term = (-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1)
        series = prim.add(prim.mul(series, s), _k(x, term))
    # sin(pi x) is sin(pi (x - n)), for odd n its negative
    whole = prim.stop_gradient(prim.round(x))
    half = prim.mul(whole, _k(x, 0.5))
    odd = prim.not_(prim.equal(prim.floor(half), half))
    sine = prim.sin(prim.mul(prim.sub(x, whole), _k(x, math.pi)))
    far = prim.mul(prim.select(near, _k(x, 1.0), x), _k(x, math.pi))
    return prim.select(near, series, prim.div(prim.select(odd, prim.neg(sine), sine), far))


# NumPy's other names
arctan2 = atan2
degrees = rad2deg
radians = deg2rad
