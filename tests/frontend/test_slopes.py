"""Derivatives of elementwise functions, first and second, against mpmath and at their limits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from exact import ulps

import graphc as gx
from graphc import prim

HARD = {  # where a formula of the derivatives might cancel, or another one takes over
    "sinc": (mpmath.sincpi, [1e-6, 0.003, 0.0064, -0.02, 0.3, 0.5, 0.5001, -0.9, 1.0, 7.0]),
    "asin": (mpmath.asin, [1e-6, -0.003, 0.4999, 0.5001, 0.99]),
    "acos": (mpmath.acos, [1e-6, -0.003, 0.4999, 0.5001, 0.99]),
    "atanh": (mpmath.atanh, [1e-6, -0.003, 0.4999, 0.5001, 0.99]),
    "tanh": (mpmath.tanh, [1e-6, -0.003, 0.05]),
    "erf": (mpmath.erf, [1e-6, 0.7, -2.2470703, 4.43, -8.039, 8.9]),
    "normal_cdf": (mpmath.ncdf, [-1e-6, 1.3, 5.1, -7.055, -11.03, 12.7]),
    "softsign": (lambda v: v / (1 + abs(v)), [1e-6, -0.9, 1.1, 7.232, -300.7, 9.615e5]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", HARD)
def test_derivatives_keep_their_digits(run, name, dtype):
    exact, points = HARD[name]
    at = np.array(points, dtype)
    x = gx.input("x", ("n",), dtype)
    fn = next(getattr(m, name) for m in (gx, gx.nn, prim) if hasattr(m, name))
    first = gx.grad(gx.sum(fn(x)), x)
    got = run([first, gx.grad(gx.sum(first), x)], x=at)
    with mpmath.workdps(40):
        for n in (1, 2):
            want = [mpmath.diff(exact, mpmath.mpf(float(v)), n) for v in at]
            assert ulps(got[n - 1], want, dtype) <= (4, 8)[n - 1]


def test_slopes_that_overflow_nowhere(run):
    x = gx.input("x", ("n",))
    at = np.array([1e13, -1e13, 1e20, -1e20, 3e38, -3e38, np.inf, -np.inf], "f4")
    for kind in ("none", "tanh"):
        y = gx.nn.gelu(x, kind)
        first = gx.grad(gx.sum(y), x)
        finite = np.isfinite(at) | (at < 0)
        np.testing.assert_array_equal(run(y, x=at), np.maximum(at, 0))
        np.testing.assert_array_equal(run(first, x=at)[finite], (at > 0)[finite])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, slope", [
    ("log2", lambda v: 1 / (v * mpmath.log(2))), ("log10", lambda v: 1 / (v * mpmath.log(10))),
    ("rsqrt", lambda v: -1 / (2 * v * mpmath.sqrt(v))),
])
def test_slopes_at_the_ends_of_the_range(run, name, slope, dtype):
    """x log 10 and rsqrt(x) / x overflow before the slope vanishes or does."""
    x = gx.input("x", ("n",), dtype)
    top = float(np.finfo(dtype).max)
    at = np.array([0.3, top, 0.9 * top, 0.35 * top, 4 / top, 0.72 * top ** (-2 / 3)], dtype)
    got = run(gx.grad(gx.sum(getattr(gx, name)(x)), x), x=at)
    assert ulps(got, [slope(mpmath.mpf(float(v))) for v in at], dtype) <= 2


@pytest.mark.parametrize("name, slope", [
    ("tanh", lambda v: mpmath.sech(v) ** 2), ("erf", lambda v: mpmath.diff(mpmath.erf, v)),
    ("silu", lambda v: mpmath.diff(lambda u: u / (1 + mpmath.exp(-u)), v)),
])
def test_slopes_of_halves(run, name, slope):
    x = gx.input("x", ("n",), "float16")
    at = np.array([0.01, -0.3, 1.7, -2.3, 2.9, -3.3], "float16")
    fn = next(getattr(m, name) for m in (gx, gx.nn) if hasattr(m, name))
    got = run(gx.grad(gx.sum(fn(x)), x), x=at)
    np.testing.assert_allclose(got, [float(slope(float(v))) for v in at], rtol=2 * 2.0**-10)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_slopes_far_out_are_zero(run, dtype):
    x = gx.input("x", ("n",), dtype)
    at = np.array([300, -np.finfo(dtype).max, np.inf, -np.inf], dtype)
    for fn in (gx.erf, prim.normal_cdf):
        np.testing.assert_array_equal(run(gx.grad(gx.sum(fn(x)), x), x=at), 0)
    np.testing.assert_array_equal(run(gx.nn.softsign(x), x=at)[2:], [1, -1])
    zero = run(gx.nn.softsign(x), x=np.array([0.0, -0.0], dtype))
    np.testing.assert_array_equal(np.signbit(zero), [False, True])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_second_slopes_at_the_ends(run, dtype):
    """Where a first one is infinite, or vanishes, no 0 meets an infinity, nor underflows early."""
    far = {"float16": 120.0, "float32": 1e17, "float64": 1e150}[dtype]
    inf = np.inf
    wants = {
        "asin": ([1, -1], [inf, -inf]), "acos": ([1, -1], [-inf, inf]),
        "atanh": ([1, -1], [inf, -inf]), "acosh": ([1, inf], [-inf, 0]),
        "asinh": ([far, -far, inf], [-(far**-2), far**-2, 0]),
    }
    x = gx.input("x", ("n",), dtype)
    for name, (at, want) in wants.items():
        second = gx.grad(gx.sum(gx.grad(gx.sum(getattr(gx, name)(x)), x)), x)
        got = run(second, x=np.array(at, dtype))
        np.testing.assert_allclose(got, want, rtol=2 * np.finfo(dtype).eps, err_msg=name)


def test_floor_quotients_have_zero_slopes(run):
    """Also where the quotient itself is infinite, by whose slope 0 would be multiplied."""
    x, y = gx.input("x", (4,)), gx.input("y", (4,))
    at = {"x": np.array([7, 3e38, 5, 1], "f4"), "y": np.array([2, 0.5, np.inf, 0], "f4")}
    for slope in gx.grad(gx.sum(x // y), [x, y]):
        np.testing.assert_array_equal(run(slope, **at), 0)


def test_nextafter_has_the_slope_of_its_first_operand(run):
    x, y = gx.input("x", ("n",), "float64"), gx.input("y", ("n",), "float64")
    z = gx.nextafter(x, y)
    got = run([z, *gx.grad(gx.sum(z * z), [x, y])], x=np.array([1.0, -3.0]), y=np.ones(2))
    after = np.array([1, -3 + 2.0**-51])
    np.testing.assert_array_equal(got, [after, 2 * after, [0, 0]])


@pytest.mark.parametrize("name,at", [
    ("sinh", 0.0), ("asinh", 0.0), ("tan", 0.0), ("atanh", 0.0), ("asin", 0.0), ("asinh", -0.7),
    ("cosh", 0.0), ("log2", 3.0), ("log10", 3.0), ("acosh", 2.0), ("cbrt", 2.0), ("cbrt", -2.0),
    ("sinc", 0.004), ("sinc", 0.008),
])
def test_derivatives_of_composed(run, name, at):
    """First and second derivatives, also where a formula changes branch."""
    x = gx.input("x", (), "float64")
    y = getattr(gx, name)(x)
    first = gx.grad(y, x)
    second = gx.grad(first, x)
    exact = getattr(mpmath, {"log2": "log", "sinc": "sincpi"}.get(name, name))
    scale = 1 / float(mpmath.log(2)) if name == "log2" else 1.0
    if name == "cbrt" and at < 0:
        def exact(v):
            return -mpmath.cbrt(-v)
    got = run([first, second], x=at)
    want = scale * float(mpmath.diff(exact, at))
    np.testing.assert_allclose(got[0], want, rtol=1e-15, atol=1e-14)
    want = scale * float(mpmath.diff(exact, at, 2))
    np.testing.assert_allclose(got[1], want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cbrt_at_zero_and_infinity(run, dtype):
    x = gx.input("x", ("n",), dtype)
    first = gx.grad(gx.sum(gx.cbrt(x)), x)
    second = gx.grad(gx.sum(first), x)
    got = run([first, second], x=np.array([0.0, -0.0, np.inf, -np.inf], dtype))
    np.testing.assert_array_equal(got[0], [np.inf, np.inf, 0, 0])
    np.testing.assert_array_equal(got[1], [-np.inf, np.inf, 0, 0])


@pytest.mark.parametrize("dtype, far", [("float32", 1e37), ("float64", 1e300)])
def test_slopes_of_cbrt_far_out(run, dtype, far):
    """The rounding of 1/3 and 2/3 is not felt, as it would be in powers."""
    x = gx.input("x", ("n",), dtype)
    at = np.array([far, -far / 7, 1 / far, -0.3, 1e30], dtype)
    got = run(gx.grad(gx.sum(gx.cbrt(x)), x), x=at)
    want = [1 / (3 * mpmath.cbrt(abs(mpmath.mpf(float(v)))) ** 2) for v in at]
    assert ulps(got, want, dtype) <= 4


def test_power_zero_has_a_gradient(run):
    x = gx.input("x", ("n",), "float64")
    y = x**0
    got = run([y, gx.grad(gx.sum(y), x)], x=np.array([0.0, 2.0, np.inf, np.nan]))
    np.testing.assert_array_equal(got, [np.ones(4), np.zeros(4)])


def test_derivatives_at_kinks(run):
    x = gx.input("x", (), "float64")
    two = gx.stack([x, x])
    for y in (gx.hypot(x, 0.0), gx.linalg.vector_norm(two), gx.linalg.vector_norm(two, ord=3),
              gx.linalg.vector_norm(two, ord=0.5), gx.linalg.vector_norm(two, ord=-2), gx.std(two)):
        np.testing.assert_array_equal(run([y, gx.grad(y, x)], x=0.0), [0.0, 0.0])
    beside = gx.linalg.vector_norm(gx.stack([x, gx.constant(4.0, "float64")]), ord=0.5)
    np.testing.assert_array_equal(run([beside, gx.grad(beside, x)], x=0.0), [4.0, 0.0])
    reciprocal = gx.linalg.vector_norm(gx.stack([x, gx.constant(4.0, "float64")]), ord=-1)
    first = gx.grad(reciprocal, x)
    np.testing.assert_allclose(run([reciprocal, first], x=0.0), [0.0, 0.0])
    np.testing.assert_allclose(run([reciprocal, first], x=-4.0), [2.0, -0.25])
    first = gx.grad(gx.sinc(x), x)
    np.testing.assert_allclose(
        run([gx.sinc(x), first, gx.grad(first, x)], x=0.0), [1, 0, -np.pi**2 / 3]
    )
    for zero in (0.0, -0.0):  # no kink, though |x| has one
        y = gx.fmod(x, 3.0)
        np.testing.assert_array_equal(run([y, gx.grad(y, x)], x=zero), [zero, 1])
