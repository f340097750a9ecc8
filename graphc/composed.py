"""Functions of the reals that are written with the primitives: tan, asin, sinh, log2, hypot, ...

Formulas are chosen to be accurate over the whole range, and so that every derivative is right too:
a branch is taken with `select` between formulas that are each analytic where they meet, never
with |x|, whose derivatives at 0 are lost. f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from graphc import prim, types
from graphc.convert import ArrayLike, as_float, cast, promote_args, strict
from graphc.floats import signbit
from graphc.tensor import Tensor

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan2",
    "atanh",
    "cbrt",
    "cosh",
    "deg2rad",
    "degrees",
    "exp2",
    "hypot",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "rad2deg",
    "radians",
    "sinc",
    "sinh",
    "tan",
]

LN2 = math.log(2.0)


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


# Trigonometric


@_wide("tan")
def tan(x: Tensor) -> Tensor:
    """The tangent: sin(x) / cos(x)."""
    return prim.div(prim.sin(x), prim.cos(x))


def _cofactor(x: Tensor) -> Tensor:
    """sqrt(1 - x**2), without cancellation near 1; NaN outside [-1, 1]."""
    one = _k(x, 1.0)
    return prim.sqrt(prim.mul(prim.sub(one, x), prim.add(one, x)))


@_wide("asin")
def asin(x: Tensor) -> Tensor:
    """The inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1]."""
    return prim.atan2(x, _cofactor(x))


@_wide("acos")
def acos(x: Tensor) -> Tensor:
    """The inverse cosine, in [0, pi]; NaN outside [-1, 1]."""
    return prim.atan2(_cofactor(x), x)


@_wide("atan2")
def atan2(x1: Tensor, x2: Tensor) -> Tensor:
    """The angle of the point (x2, x1), in [-pi, pi]."""
    return prim.atan2(x1, x2)


# Hyperbolic


@_wide("sinh")
def sinh(x: Tensor) -> Tensor:
    """The hyperbolic sine: 2 sinh(x/2) cosh(x/2) by expm1, which overflows only where sinh does."""
    h = prim.mul(x, _k(x, 0.5))
    p, q = prim.expm1(h), prim.expm1(prim.neg(h))
    return prim.mul(
        prim.mul(prim.sub(p, q), _k(x, 0.5)), prim.add(prim.add(p, q), _k(x, 2.0))
    )


@_wide("cosh")
def cosh(x: Tensor) -> Tensor:
    """The hyperbolic cosine: (exp(x/2)**2 + exp(-x/2)**2) / 2."""
    h = prim.mul(x, _k(x, 0.5))
    t, u = prim.exp(h), prim.exp(prim.neg(h))
    half = _k(x, 0.5)
    return prim.add(prim.mul(prim.mul(t, half), t), prim.mul(prim.mul(u, half), u))


def _log1p_or_log(z: Tensor, far: Tensor) -> Tensor:
    """log1p(z), plus log 2 where the argument was taken as z for 2z; log1p(-0.0) stays -0.0."""
    y = prim.log1p(z)
    return prim.select(far, prim.add(y, _k(z, LN2)), y)


@_wide("asinh")
def asinh(x: Tensor) -> Tensor:
    """The inverse hyperbolic sine: log1p(x + x**2 / (1 + sqrt(1 + x**2))), odd in x."""
    negative = prim.less(x, _k(x, 0.0))
    a = prim.select(negative, prim.neg(x), x)
    far = prim.less(_k(x, 2.0**60), a)  # there asinh(a) = log(2a), and a**2 might overflow
    near = prim.select(far, _k(x, 1.0), a)
    one = _k(x, 1.0)
    root = prim.add(one, prim.sqrt(prim.add(one, prim.mul(near, near))))
    z = prim.mul(near, prim.add(one, prim.div(near, root)))
    y = _log1p_or_log(prim.select(far, a, z), far)
    return prim.select(negative, prim.neg(y), y)


@_wide("acosh")
def acosh(x: Tensor) -> Tensor:
    """The inverse hyperbolic cosine: with t = x - 1, log1p(t + sqrt(t) sqrt(t + 2)); NaN below 1.
    """
    far = prim.less(_k(x, 2.0**60), x)
    t = prim.sub(prim.select(far, _k(x, 2.0), x), _k(x, 1.0))
    z = prim.add(t, prim.mul(prim.sqrt(t), prim.sqrt(prim.add(t, _k(x, 2.0)))))
    return _log1p_or_log(prim.select(far, x, z), far)


@_wide("atanh")
def atanh(x: Tensor) -> Tensor:
    """The inverse hyperbolic tangent: (log1p(x) - log1p(-x)) / 2."""
    return prim.mul(prim.sub(prim.log1p(x), prim.log1p(prim.neg(x))), _k(x, 0.5))


# Logarithms and exponentials to other bases


def _split_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = m * 2**k with m in about [0.7, 1.5] and k a whole float; (x, 0) where x is 0, negative
    or not finite. The scaling is a constant to gradients, so that those of m are exact.
    """
    wide = x.dtype is types.f64
    ints, mantissa, bias = (types.i64, 52, 1023) if wide else (types.i32, 23, 127)
    normal = _k(x, 2.0**-1022 if wide else 2.0**-126)
    ordinary = prim.and_(prim.less(_k(x, 0.0), x), prim.is_finite(x))
    # Subnormal numbers and the largest are brought to where 2**-k is normal.
    tiny, huge = prim.less(x, normal), prim.less(_k(x, 2.0 ** (bias - 2)), x)
    lift = prim.select(tiny, _k(x, 2.0**54), prim.select(huge, _k(x, 0.25), _k(x, 1.0)))
    y = prim.mul(x, lift)
    bits = prim.bitcast(y, dtype=ints)
    root = 0x3FE6A09E667F3BCD if wide else 0x3F3504F3  # the bits of sqrt(1/2)
    width = prim.full_like(bits, mantissa)
    k = prim.shift_right(prim.sub(bits, prim.full_like(bits, root)), width)
    scale = prim.bitcast(
        prim.shift_left(prim.sub(prim.full_like(bits, bias), k), width), dtype=x.dtype
    )
    scale = prim.select(ordinary, scale, _k(x, 1.0))
    lifted = prim.select(tiny, _k(x, 54.0), prim.select(huge, _k(x, -2.0), _k(x, 0.0)))
    whole = prim.sub(cast(k, x.dtype), lifted)
    m = prim.select(ordinary, prim.mul(y, scale), x)
    return m, prim.select(ordinary, whole, _k(x, 0.0))


@_wide("log2")
def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2, exact at powers of 2."""
    m, k = _split_exponent(x)
    return prim.add(k, prim.mul(prim.log(m), _k(x, 1.0 / LN2)))


def log10(x: ArrayLike) -> Tensor:
    """The logarithm to base 10; 16- and 32-bit floats are computed in float64."""
    t = as_float(x)
    if t.dtype is not types.f64:
        y = prim.cast(t, dtype=types.f64)
        return cast(prim.mul(prim.log(y), _k(y, 1.0 / math.log(10.0))), t.dtype)
    # k log10(2) in two parts, the first with trailing zeros so that its product is exact.
    m, k = _split_exponent(t)
    high = prim.mul(k, _k(t, 3.01029995663611771306e-01))
    low = prim.mul(k, _k(t, 3.69423907715893078616e-13))
    return prim.add(high, prim.add(low, prim.mul(prim.log(m), _k(t, 1.0 / math.log(10.0)))))


def exp2(x: ArrayLike) -> Tensor:
    """2**x"""
    t = as_float(x)
    return prim.pow(_k(t, 2.0), t)


def cbrt(x: ArrayLike) -> Tensor:
    """The real cube root; its slope at 0 is inf."""
    t = as_float(x)
    negative = signbit(t)  # of -0.0 too: a zero keeps its sign
    wide = prim.cast(prim.select(negative, prim.neg(t), t), types.f64)
    if t.dtype is types.f64:
        # (2**600 a)^(1/3) = 2**200 a^(1/3): the cube of the root of a subnormal loses its bits.
        tiny = prim.less(wide, _k(wide, 2.0**-900))
        wide = prim.mul(wide, prim.select(tiny, _k(wide, 2.0**600), _k(wide, 1.0)))
        y = prim.mul(_cube_root(wide), prim.select(tiny, _k(wide, 2.0**-200), _k(wide, 1.0)))
    else:
        y = cast(prim.pow(wide, _k(wide, 1 / 3)), t.dtype)
    return prim.select(negative, prim.neg(y), y)


def _cube_root(x: Tensor) -> Tensor:
    """x^(1/3) of x >= 0 in f64, with a Newton step: the rounding of 1/3 counts for large x."""
    y = prim.pow(x, _k(x, 1 / 3))
    square = prim.mul(y, y)
    off = prim.sub(prim.mul(square, y), x)
    step = prim.div(off, prim.mul(square, _k(x, 3.0)))
    step = prim.select(prim.is_finite(step), step, _k(x, 0.0))  # 0 and inf are right as they are
    return prim.sub(y, prim.stop_gradient(step))  # and so are pow's slopes


@_wide("logaddexp")
def logaddexp(x1: Tensor, x2: Tensor) -> Tensor:
    """log(exp(x1) + exp(x2)), without overflow."""
    first = prim.less(x2, x1)
    top = prim.select(first, x1, x2)
    same = prim.and_(prim.equal(x1, x2), prim.not_(prim.is_finite(x1)))  # inf - inf would be NaN
    below = prim.select(first, prim.sub(x2, x1), prim.sub(x1, x2))
    below = prim.select(same, _k(x1, 0.0), below)
    return prim.add(top, prim.log1p(prim.exp(below)))


def logaddexp2(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """log2(2**x1 + 2**x2), without overflow."""
    a, b = promote_args(x1, x2, floating=True)
    return logaddexp(a * LN2, b * LN2) * (1.0 / LN2)


@_wide("hypot")
def hypot(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(x1**2 + x2**2), without overflow or underflow on the way."""
    wide = x1.dtype is types.f64
    big, small, shrink, grow = (500, -500, -600, 600) if wide else (50, -40, -70, 100)
    top = prim.maximum(prim.abs(x1), prim.abs(x2))
    is_big = prim.less(_k(x1, 2.0**big), top)
    is_small = prim.less(top, _k(x1, 2.0**small))
    one = _k(x1, 1.0)
    scale = prim.select(is_big, _k(x1, 2.0**shrink),
                        prim.select(is_small, _k(x1, 2.0**grow), one))
    back = prim.select(is_big, _k(x1, 2.0**-shrink),
                       prim.select(is_small, _k(x1, 2.0**-grow), one))
    a, b = prim.mul(x1, scale), prim.mul(x2, scale)
    total = prim.add(prim.mul(a, a), prim.mul(b, b))
    zero = prim.equal(total, _k(x1, 0.0))  # where sqrt has no derivative, 0 is taken
    root = prim.sqrt(prim.select(zero, one, total))
    y = prim.select(zero, _k(x1, 0.0), prim.mul(root, back))
    inf = _k(x1, math.inf)
    is_inf = prim.or_(prim.equal(prim.abs(x1), inf), prim.equal(prim.abs(x2), inf))
    return prim.select(is_inf, inf, y)  # also beside a NaN


# Angles and others


def deg2rad(x: ArrayLike) -> Tensor:
    """Degrees as radians."""
    return as_float(x) * (math.pi / 180.0)


def rad2deg(x: ArrayLike) -> Tensor:
    """Radians as degrees."""
    return as_float(x) * (180.0 / math.pi)


@_wide("sinc")
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0."""
    t = prim.mul(x, _k(x, math.pi))
    near = prim.less(prim.abs(t), _k(x, 0.02))
    s = prim.select(near, prim.mul(t, t), _k(x, 0.0))
    series = _k(x, -1.0 / 5040.0)  # 1 - t**2/3! + t**4/5! - t**6/7!, so derivatives are right too
    for c in (1.0 / 120.0, -1.0 / 6.0, 1.0):
        series = prim.add(prim.mul(series, s), _k(x, c))
    far = prim.select(near, _k(x, 1.0), t)
    return prim.select(near, series, prim.div(prim.sin(far), far))


# NumPy's other names
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan2 = atan2
arctanh = atanh
degrees = rad2deg
radians = deg2rad
