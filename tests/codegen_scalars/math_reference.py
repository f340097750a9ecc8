"""Exact enough values of the math functions, sample points, and errors in units of last place.

References are NumPy's longdouble functions where they exist (64 digits on x86), else mpmath.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np

from graphc.types import DType, f32

Array = np.ndarray[Any, np.dtype[Any]]

# largest permitted error in ULP, at every level and for f32 and f64
BOUNDS = {
    "exp": 1.1, "log": 1.1, "erf": 1.1, "tanh": 1.5, "sin": 1.5, "cos": 1.5, "expm1": 2.5,
    "log1p": 2.5, "log2": 2.5, "log10": 2.5, "tan": 2.5, "sinh": 2.5, "cosh": 2.5, "asinh": 2.5,
    "acosh": 2.5, "atanh": 2.5, "asin": 2.5, "acos": 2.5, "atan": 2.5, "rsqrt": 2.5, "pow": 2.5,
    "atan2": 2.5, "lgamma": 2.5,
    "normal_cdf": 2.5,
    "polygamma": 2.5, "cbrt": 1.1,
}
WIDE: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "expm1": np.expm1, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "pow": np.power,
    "atan2": np.arctan2, "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
}


def _mp_each(f: Callable[..., Any], *xs: Array) -> Array:
    out = np.empty(len(xs[0]), np.longdouble)
    with mp.workdps(40):
        for i, args in enumerate(zip(*xs, strict=True)):
            v = f(*(mp.mpf(float(a)) for a in args))
            hi = float(v)
            out[i] = np.longdouble(hi)
            if hi == 0:
                out[i] = np.copysign(out[i], xs[0][i])  # mpmath has one zero only
            elif np.isfinite(hi):
                out[i] += np.longdouble(float(v - mp.mpf(hi)))
    return out


def _lgamma(x: Any) -> Any:
    if mp.isnan(x):
        return mp.nan
    if mp.isinf(x) or (x <= 0 and x == mp.floor(x)):
        return mp.inf
    if x > 0:
        return mp.loggamma(x)
    extra = 40 + max(0, int(-mp.log10(abs(x)))) if x else 40
    with mp.workdps(extra):
        return mp.log(mp.pi / abs(x * mp.sinpi(x))) - mp.loggamma(-x)


def _normal_cdf(x: Any) -> Any:
    return x if mp.isnan(x) else mp.erfc(min(max(-x, -100), 100) / mp.sqrt(2)) / 2


def exact(op: str, xs: Sequence[Array], n: int = 0) -> Array:
    """The function's values at the given points, as longdouble."""
    with np.errstate(all="ignore"):
        if op in WIDE:
            return np.asarray(WIDE[op](*(x.astype(np.longdouble) for x in xs)))
        if op == "erf":
            return _mp_each(mp.erf, *xs)
        if op == "normal_cdf":
            return np.abs(_mp_each(_normal_cdf, *xs))
        if op == "lgamma":
            return _mp_each(_lgamma, *xs)
        return _mp_each(lambda x: mp.polygamma(n, x), *xs)


def ulps(got: Array, want: Array, d: DType) -> Array:
    """|got - want| in units of the last place of want's binade (the smallest step for subnormals).

    Infinite where only one of them is NaN, or infinite beyond rounding; signs of zeros count.
    """
    digits, least = (24, -149) if d is f32 else (53, -1074)
    with np.errstate(all="ignore"):
        nearest = want.astype(got.dtype)
        _, exponent = np.frexp(want)
        step = np.ldexp(np.longdouble(1), np.maximum(exponent - digits, least).astype(np.int32))
        error = np.abs(got.astype(np.longdouble) - want) / step
        same = (got == nearest) & (np.signbit(got) == np.signbit(nearest))
        error = np.where(same & ~np.isfinite(nearest), 0, error)
        # an overflow one step too early or late counts as one
        edge = np.isinf(got) != np.isinf(nearest)
        largest = np.finfo(got.dtype).max
        near = (np.abs(want) >= largest * (1 - 2.0 ** (3 - digits))) & (
            np.abs(got) >= largest * (1 - 2.0 ** (3 - digits)))
        error = np.where(edge, np.where(near & (np.sign(got) == np.sign(want)), 1, np.inf), error)
        wrong_zero = (got == 0) & (nearest == 0) & (np.signbit(got) != np.signbit(want))
        error = np.where(wrong_zero, np.inf, error)
        nans = np.isnan(got) | np.isnan(want)
        return np.asarray(np.where(nans, np.where(np.isnan(got) == np.isnan(want), 0, np.inf),
                                   error), np.float64)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0]
# dense ranges around what is hard for each function
DENSE: dict[str, list[tuple[float, float]]] = {
    "exp": [(-1, 1), (-110, 90), (-750, 711)],
    "expm1": [(-1, 1), (-45, 90), (-1e-3, 1e-3), (0.3, 0.5)],
    "log": [(0.5, 2), (0, 10), (0.99, 1.01)], "log1p": [(-1, 2), (-0.5, 0.5), (-1e-3, 1e-3)],
    "log2": [(0.5, 2), (0, 10), (0.99, 1.01)], "log10": [(0.5, 2), (0, 10), (0.99, 1.01)],
    "sinh": [(-1, 1), (-90, 90), (-711, 711), (-1e-3, 1e-3)],
    "cosh": [(-1, 1), (-90, 90), (-711, 711)],
    "asinh": [(-1, 1), (-100, 100), (-1e-3, 1e-3)],
    "acosh": [(1, 1.001), (1, 1.01), (1, 2), (1, 100)],
    "atanh": [(-1, 1), (-0.2, 0.2), (0.15, 0.22), (0.99, 1)],
    "asin": [(-1, 1), (0.45, 0.55), (-1e-3, 1e-3), (0.99, 1)],
    "acos": [(-1, 1), (0.45, 0.55), (-0.55, -0.45), (0.99, 1), (-1, -0.99)],
    "tan": [(-1, 1), (-100, 100), (-1e5, 1e5), (-2e6, 2e6)],
    "tanh": [(-1, 1), (-10, 10), (-20, 20), (0.5, 0.8)],
    "erf": [(-1.1, 1.1), (-6.1, 6.1), (0.8, 0.88)],
    "normal_cdf": [(-1, 1), (-15, 15), (-39, 0), (-1e-3, 1e-3)],
    "sin": [(-4, 4), (-100, 100), (-1e5, 1e5), (-2e6, 2e6)],
    "cos": [(-4, 4), (-100, 100), (-1e5, 1e5), (-2e6, 2e6)],
    "atan": [(-1, 1), (-5, 5), (0.4, 0.42), (2.4, 2.42)], "rsqrt": [(0, 4)],
    "cbrt": [(-1, 1), (0.5, 4), (1, 8), (-1e3, 1e3)],
    "lgamma": [(0, 3), (0.9, 1.1), (1.9, 2.1), (0, 20), (0, 1e4)],
    "polygamma": [(0.1, 3), (0, 20), (0, 1e3)],
}


def bit_patterns(d: DType, count: int, rng: np.random.Generator) -> Array:
    """Random bit patterns: every exponent alike, NaN and infinities among them."""
    bits = rng.integers(0, 1 << d.bits, count, dtype=np.uint64 if d.bits == 64 else np.uint32)
    return bits.view(d.numpy)


def beside_simple_numbers(d: DType) -> Array:
    """Numbers of four binary digits and their neighbours: there the pieces of functions meet."""
    simple = np.ldexp(np.arange(8.0, 16.0)[:, None], np.arange(-11, 4)).ravel().astype(d.numpy)
    x = np.concatenate([simple + k * np.spacing(simple) for k in (-3, -1, 0, 1)])
    return np.concatenate([x, -x]).astype(d.numpy)


def samples(op: str, d: DType, count: int, seed: int = 0) -> list[Array]:
    """About `count` points per kind of sample; operand arrays of equal length."""
    rng = np.random.default_rng(seed)
    if op in ("pow", "atan2"):
        return _pairs(op, d, count, rng)
    info = np.finfo(d.numpy)
    edges = [*SPECIAL, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal,
             info.max, -info.max, info.eps, np.pi / 2, np.pi, -np.pi]
    with np.errstate(over="ignore"):
        parts = [np.array(edges).astype(d.numpy), bit_patterns(d, count, rng)]
    parts.append(beside_simple_numbers(d))
    parts += [rng.uniform(a, b, count).astype(d.numpy) for a, b in DENSE[op]]
    if op in ("sin", "cos", "tan"):  # close to multiples of pi / 2
        n = rng.integers(1, 1 << 40, count).astype(np.longdouble)
        parts.append((n * (np.longdouble(np.pi) + 1.2246467991473532e-16) / 2).astype(d.numpy))
    if op == "polygamma":  # the negative side has its own test
        parts = [np.abs(p) for p in parts]
        parts = [p[(p > 1e-3) & (p < 1e6)] for p in parts]
    if op == "lgamma":
        parts = [p[~((p < 0) & (p > -1e9) & (p < -1e-3))] for p in parts]
    return [np.concatenate(parts)]


def _pairs(op: str, d: DType, count: int, rng: np.random.Generator) -> list[Array]:
    grid = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    with np.errstate(invalid="ignore"):  # signalling NaN
        parts = [grid, np.array([bit_patterns(d, count, rng).astype(float) for _ in range(2)])]
    if op == "pow":
        x = np.exp(rng.uniform(-80, 80, count))
        parts.append(np.array([x, rng.uniform(-1, 1, count) * (88 if d is f32 else 700)
                               / np.abs(np.log(x))]))
        x = rng.uniform(0.5, 2, count)
        parts.append(np.array([x, rng.uniform(-1, 1, count) * (88 if d is f32 else 700)
                               / np.abs(np.log(x))]))
        parts.append(np.array([rng.uniform(-20, 20, count), np.rint(rng.uniform(-30, 30, count))]))
        parts.append(np.array([rng.uniform(0, 20, count), rng.uniform(-10, 10, count)]))
    else:
        parts.append(rng.uniform(-3, 3, (2, count)))
        parts.append(np.exp(rng.uniform(-40, 40, (2, count))) * rng.choice([-1, 1], (2, count)))
    both = np.concatenate(parts, axis=1)
    with np.errstate(all="ignore"):
        return [both[0].astype(d.numpy), both[1].astype(d.numpy)]
