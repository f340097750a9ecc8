"""Float references: bits of arithmetic, special values, and functions against mpmath."""

from __future__ import annotations

import ml_dtypes
import mpmath
import numpy as np
import pytest
from op_cases import run, same

from graphc.ops import special

# Floats

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, -1.5, 7.0, 1e30]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic_equals_numpy_bit_for_bit(dtype):
    a, b = (v.ravel().astype(dtype) for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        for op, fn in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                       ("div", np.divide), ("rem", np.remainder)]:
            same(run(op, a, b), fn(a, b))
        same(run("sqrt", a), np.sqrt(a))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_arithmetic_is_f32_rounded(dtype):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500)).astype(dtype)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for op, fn in [("add", np.add), ("mul", np.multiply), ("div", np.divide)]:
        same(run(op, a, b), fn(wide_a, wide_b).astype(dtype))
    many = rng.uniform(0, 1, 4096).astype(dtype)
    total = many.astype(np.float64).sum()
    assert run("reduce_sum", many, axes=(0,)) == np.float32(total).astype(dtype)


def test_float_remainder_is_pythons():
    for x in (5.3, -5.3, 0.0, 1e20):
        for y in (1.4, -1.4, 3.0):
            assert run("rem", np.array(x), np.array(y)) == x % y
    assert np.isnan(run("rem", np.array(1.0), np.array(0.0)))


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_extrema_propagate_nan(op):
    x = np.array([np.nan, 1.0, np.nan, 3.0, -np.inf])
    y = np.array([1.0, np.nan, np.nan, 4.0, np.inf])
    pick = max if op == "maximum" else min
    same(run(op, x, y), np.array([np.nan, np.nan, np.nan, pick(3.0, 4.0), pick(-np.inf, np.inf)]))
    reduce = "reduce_max" if op == "maximum" else "reduce_min"
    rows = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0]])
    same(run(reduce, rows, axes=(1,)), np.array([np.nan, pick(1.0, 3.0)]))


def test_rounding_and_sign():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, np.inf, np.nan, 2.0**60])
    same(run("round", x), np.array([0.0, 2.0, 2.0, -0.0, -2.0, np.inf, np.nan, 2.0**60]))
    same(run("floor", np.array([-0.5, 0.5, -0.0])), np.array([-1.0, 0.0, -0.0]))
    same(run("ceil", np.array([-0.5, 0.5, -0.0])), np.array([-0.0, 1.0, -0.0]))
    same(run("sign", np.array([-3.0, 0.0, 2.0, np.nan, -np.inf])),
         np.array([-1.0, 0.0, 1.0, np.nan, -1.0]))
    same(run("is_finite", np.array([1.0, np.inf, np.nan])), np.array([True, False, False]))
    same(run("rsqrt", np.array([4.0, 0.0, np.inf, -1.0])), np.array([0.5, np.inf, 0.0, np.nan]))


def test_pow_specials():
    x = np.array([0.0, 0.0, 1.0, -1.0, -2.0, -2.0, np.nan, 2.0, -0.0])
    y = np.array([0.0, -1.0, np.nan, np.inf, 3.0, 0.5, 0.0, -np.inf, -1.0])
    same(run("pow", x, y),
         np.array([1.0, np.inf, 1.0, 1.0, -8.0, np.nan, 1.0, 0.0, -np.inf]))


FUNCTIONS = {
    "exp": mpmath.exp, "expm1": mpmath.expm1, "log": mpmath.log, "log1p": mpmath.log1p,
    "log2": lambda x: mpmath.log(x, 2), "log10": mpmath.log10, "tan": mpmath.tan,
    "sinh": mpmath.sinh, "cosh": mpmath.cosh, "asinh": mpmath.asinh,
    "sin": mpmath.sin, "cos": mpmath.cos, "tanh": mpmath.tanh, "atan": mpmath.atan,
    "erf": mpmath.erf, "normal_cdf": mpmath.ncdf, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}
POSITIVE = ("log", "log1p", "log2", "log10", "rsqrt")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_against_mpmath(name, dtype):
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.normal(0, 3, 60), rng.normal(0, 1e-3, 20), [30.5, 1e-20]])
    x = np.abs(x).astype(dtype) if name in POSITIVE else x.astype(dtype)
    got = run(name, x)
    with mpmath.workprec(200):
        for g, v in zip(got, x, strict=True):
            want = FUNCTIONS[name](mpmath.mpf(float(v)))
            unit = mpmath.mpf(float(np.spacing(np.abs(dtype(float(want))))))
            error = abs(mpmath.mpf(float(g)) - want) / unit
            assert error <= (0.51 if dtype is np.float32 else 2.0), (name, v, error)


def relative(got, want):
    return abs(mpmath.mpf(float(got)) - want) / abs(want)


def test_lgamma_against_mpmath():
    x = np.concatenate([np.linspace(0.01, 20, 301), [1 + 1e-9, 2 - 1e-7, 1.5, 2.5, 100.0, 1e5,
                        1e-10, 1e300, 0.5]])
    with mpmath.workprec(200):
        for v, g in zip(x, special.lgamma(x), strict=True):
            want = mpmath.loggamma(mpmath.mpf(float(v)))
            if want != 0:
                assert relative(g, want) < 2e-15, v
        for v in (-0.3, -1.7, -2.9, -10.4, -55.55, -1e-9):
            want = mpmath.re(mpmath.loggamma(mpmath.mpf(v)))
            assert abs(float(special.lgamma(np.array(v))) - want) < 4e-15 * max(1, abs(want)), v
    same(run("lgamma", np.array([0.0, -0.0, -1.0, -5.0, 1.0, 2.0, np.inf, -np.inf, np.nan])),
         np.array([np.inf] * 4 + [0.0, 0.0, np.inf, np.inf, np.nan]))


def test_digamma_around_its_zero_against_mpmath():
    zero = 1.4616321449683622
    near = zero + np.ldexp([[1.0], [-1.0]], -np.arange(2, 53)).ravel()
    x = np.array([*near, zero, np.nextafter(zero, 2), np.nextafter(zero, 1)])
    with mpmath.workprec(200):
        for v, g in zip(x, special.polygamma(0, x), strict=True):
            assert relative(g, mpmath.digamma(mpmath.mpf(float(v)))) < 4e-15, v


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_polygamma_against_mpmath(n):
    x = np.concatenate([np.linspace(0.05, 12.05, 60), [0.01, 30.3, 1e4, 1e8, -0.3, -1.7, -12.4]])
    got = special.polygamma(n, x)
    with mpmath.workprec(200):
        for v, g in zip(x, got, strict=True):
            want = mpmath.polygamma(n, mpmath.mpf(float(v)))
            scale = max(abs(want), abs(mpmath.mpf(1)) if n == 0 else 0)
            assert abs(mpmath.mpf(float(g)) - want) < 2e-14 * scale, (n, v, g, want)


def test_polygamma_at_poles_and_infinities():
    x = np.array([0.0, -0.0, -1.0, -3.0, np.inf, -np.inf, np.nan])
    same(special.polygamma(0, x), np.array([-np.inf, np.inf, *[np.nan] * 2, np.inf, *[np.nan] * 2]))
    same(special.polygamma(1, x), np.array([np.inf] * 4 + [0.0, np.nan, np.nan]))
    same(special.polygamma(2, x), np.array([-np.inf, np.inf, *[np.nan] * 2, -0.0, *[np.nan] * 2]))
