"""Elementwise functions against NumPy, over special values; composed ones by their error in ULP."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from exact import ulps

import graphc as gx

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.7, -3.7, 1e-30, -1e-30, 1e10, -1e10,
           np.inf, -np.inf, np.nan]

SAME = [  # the same bits as NumPy (NaN as NaN)
    "negative", "absolute", "sign", "floor", "ceil", "trunc", "round", "square", "reciprocal",
    "sqrt", "isnan", "isinf", "isfinite", "signbit", "positive", "logical_not", "fabs",
]
SAME2 = [
    "add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "remainder", "mod",
    "fmod", "maximum", "minimum", "fmax", "fmin", "copysign", "nextafter", "equal", "not_equal",
    "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SAME)
def test_unary_bits(run, name, dtype):
    a = np.array(SPECIAL, dtype)
    x = gx.input("x", ("n",), dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(a)
    got = run(getattr(gx, name)(x), x=a)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        ok = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[ok]), np.signbit(want[ok]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SAME2)
def test_binary_bits(run, name, dtype):
    a, b = (m.ravel() for m in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
    x, y = gx.input("x", ("n",), dtype), gx.input("y", ("n",), dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(a, b)
    got = run(getattr(gx, name)(x, y), x=a, y=b)
    assert got.dtype == want.dtype
    wrong = ~((got == want) | (np.isnan(want) & np.isnan(got)))
    assert not wrong.any(), list(zip(a[wrong], b[wrong], got[wrong], want[wrong], strict=True))[:5]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("name", [
    "add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "bitwise_and",
    "bitwise_or", "bitwise_xor", "maximum", "minimum", "less", "greater_equal",
])
def test_integers(run, name, dtype):
    info = np.iinfo(dtype)
    a = np.array([0, 1, 2, 3, 100, info.max, info.min, info.max - 1], dtype)
    b = np.array([1, 1, 3, 2, 7, 2, 5, info.max], dtype)
    x, y = gx.input("x", (8,), dtype), gx.input("y", (8,), dtype)
    want = getattr(np, name)(a, b)
    got = run(getattr(gx, name)(x, y), x=a, y=b)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_fabs_of_integers(run):
    got = run(gx.fabs(gx.input("x", (2,), "int8")), x=np.array([-128, 5]))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [128, 5])  # abs(-128) is no int8


GRIDS = {
    "wide": np.concatenate([[0.0], np.logspace(-30, 30, 300), -np.logspace(-30, 30, 300)]),
    "exp": np.concatenate([np.linspace(-87, 88.5, 400), np.logspace(-20, 0, 60),
                           -np.logspace(-20, 0, 60)]),
    "unit": np.concatenate([np.linspace(-1, 1, 401), np.logspace(-20, -1, 60),
                            1 - np.logspace(-7, -1, 60)]),
    "above1": np.concatenate([1 + np.logspace(-7, 2, 200), np.logspace(2, 37, 200)]),
    "positive": np.logspace(-37, 38, 600),
    "angle": np.concatenate([np.linspace(-10, 10, 401), np.logspace(-20, 4, 100)]),
    "whole": np.concatenate([np.arange(400) + s * 2.0**-12 for s in (-2, -1, 0, 1, 900)]),
}
COMPOSED = [
    ("tan", mpmath.tan, "angle"), ("asin", mpmath.asin, "unit"),
    ("acos", mpmath.acos, "unit"), ("sinh", mpmath.sinh, "exp"),
    ("cosh", mpmath.cosh, "exp"), ("asinh", mpmath.asinh, "wide"),
    ("acosh", mpmath.acosh, "above1"), ("atanh", mpmath.atanh, "unit"),
    ("log2", lambda x: mpmath.log(x, 2), "positive"),
    ("log10", mpmath.log10, "positive"), ("cbrt", mpmath.cbrt, "positive"),
    ("exp2", lambda x: mpmath.mpf(2) ** x, "angle"), ("sinc", mpmath.sincpi, "angle"),
    ("sinc", mpmath.sincpi, "unit"), ("sinc", mpmath.sincpi, "whole"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["interpret", "jit"])
@pytest.mark.parametrize("name,exact,grid", COMPOSED, ids=[f"{c[0]}-{c[2]}" for c in COMPOSED])
def test_composed_accuracy(name, exact, grid, dtype, mode):
    a = GRIDS[grid].astype(dtype)
    with mpmath.workdps(40), np.errstate(all="ignore"):
        want = [exact(mpmath.mpf(float(v))) for v in a]
        x = gx.input("x", ("n",), dtype)
        got = gx.function([x], getattr(gx, name)(x), mode=mode)(a)
        assert got.dtype == dtype
        assert ulps(got, want, dtype) <= 2.5


@pytest.mark.parametrize("name", ["tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh",
                                  "log2", "log10", "cbrt", "exp2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_composed_special_values(run, name, dtype):
    a = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -1e30, 1e30], dtype)
    if name == "tan":
        a = a[:7]
    x = gx.input("x", ("n",), dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name if hasattr(np, name) else {"acos": "arccos"}[name])(a)
    got = run(getattr(gx, name)(x), x=a)
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "float32" else 1e-14)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_are_exact_at_powers(run, dtype):
    info = np.finfo(dtype)
    k = np.arange(info.minexp - info.nmant, info.maxexp)
    x = gx.input("x", ("n",), dtype)
    np.testing.assert_array_equal(run(gx.log2(x), x=np.ldexp(np.ones(len(k), dtype), k)), k)
    tens = np.array([float(f"1e{i}") for i in range(11 if dtype == "float32" else 23)], dtype)
    np.testing.assert_array_equal(run(gx.log10(x), x=tens), np.arange(len(tens)))


def test_hypot_and_logaddexp(run):
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    a = np.array([3, 1e30, 1e-30, 0, np.inf, np.nan, -5, 1e38], "f4")
    b = np.array([4, 1e30, 1e-30, 0, np.nan, 1, 12, 1], "f4")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(run(gx.hypot(x, y), x=a, y=b), np.hypot(a, b), rtol=2e-7)
    a = np.array([0, 1000, -1000, np.inf, -np.inf, np.inf, np.nan, 3, 3], "f4")
    b = np.array([0, 1000, -1000, np.inf, -np.inf, -np.inf, 1, 3, -200], "f4")
    with np.errstate(all="ignore"):
        want = np.logaddexp(a, b)
    np.testing.assert_allclose(run(gx.logaddexp(x, y), x=a, y=b), want, rtol=2e-7)
    with np.errstate(all="ignore"):
        want = np.logaddexp2(a, b)
    got = run(gx.logaddexp2(x, y), x=a, y=b)
    np.testing.assert_allclose(got, want, rtol=2e-7)
    np.testing.assert_array_equal(got[a == b], (a + 1)[a == b])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_of_the_largest_numbers(run, dtype):
    """a - a % b overflows where the signs differ."""
    x, y = gx.input("x", ("n",), dtype), gx.input("y", ("n",), dtype)
    top = np.finfo(dtype).max
    b = (top * np.array([0.28, 0.7, -0.36, -0.9, 0.28])).astype(dtype)
    a = np.array([-top, -top, top, top, top])
    np.testing.assert_array_equal(run(x // y, x=a, y=b), [-4, -2, -3, -2, 3])


def test_cbrt_of_subnormals(run):
    a = np.array([5e-324, 3e-320, -1e-310, 2.2250738585072014e-308, 1e-271, 1e-270])
    x = gx.input("x", ("n",), "float64")
    got = run(gx.cbrt(x), x=a)
    with mpmath.workdps(40):
        want = [mpmath.sign(v) * mpmath.cbrt(abs(mpmath.mpf(float(v)))) for v in a]
    assert ulps(got, want, "float64") <= 1.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hypot_of_all_sizes(run, dtype):
    info = np.finfo(dtype)
    a = np.ldexp(np.array(3, dtype), np.arange(info.minexp - info.nmant, info.maxexp - 2))
    x, y, ct = (gx.input(n, ("n",), dtype) for n in ("x", "y", "ct"))
    f = [gx.hypot(x, y), *gx.vjp(gx.hypot(x, y), [x, y], ct)]
    for size in (1, 1e-10):
        cts = np.full(len(a), size, dtype)
        h, dx, dy = run(f, x=a, y=-a / 3 * 4, ct=cts)
        np.testing.assert_array_equal(h, a / 3 * 5)
        whole = a * size > info.tiny * 2  # below, digits of ct * power are lost
        np.testing.assert_allclose(dx[whole], 0.6 * cts[whole], rtol=4 * info.eps)
        np.testing.assert_allclose(dy[whole], -0.8 * cts[whole], rtol=4 * info.eps)


def test_halves_round_once(run):
    a = np.linspace(0.01, 3, 50).astype("f2")
    x = gx.input("x", ("n",), "float16")
    got = run(gx.sinh(x), x=a)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, np.sinh(a.astype("f8")).astype("f2"))
    far = np.array([400.0, -400.0, 100.0], "f2")  # whose squares f16 does not hold
    y = gx.std(x)
    got, slope = run([y, gx.grad(y, x)], x=far)
    wide = far.astype("f8")
    np.testing.assert_allclose(got, wide.std(), rtol=1e-3)
    np.testing.assert_allclose(slope, (wide - wide.mean()) / (3 * wide.std()), rtol=1e-3)


def test_pow_of_constants(run):
    x, i = gx.input("x", ("n",)), gx.input("i", ("n",), "int32")
    a = np.array([1.5, -2, 0, np.inf], "f4")
    with np.errstate(all="ignore"):
        for p in (2, 3, 1, -1, 0.5, 2.5, -2):
            np.testing.assert_allclose(run(x**p, x=a), a**p, rtol=3e-7)
    np.testing.assert_array_equal(run(i**2, i=[1, -2, 3, 4]), [1, 4, 9, 16])
    z = gx.input("z", (4,))
    np.testing.assert_array_equal(run(z**0, z=[0, 1, np.inf, np.nan]), np.ones(4, "f4"))
    assert (i**2).dtype is gx.int32
    assert (i**0.5).dtype is gx.float32
    assert (2**x).dtype is gx.float32


def test_where_clip_and_nan_to_num(run):
    x = gx.input("x", ("n",))
    a = np.array([-2, 0.5, 3, np.nan, np.inf, -np.inf], "f4")
    np.testing.assert_array_equal(run(gx.where(x > 0, x, -1), x=a), np.where(a > 0, a, -1))
    np.testing.assert_array_equal(run(gx.clip(x, 0, 1), x=a), np.clip(a, 0, 1))
    np.testing.assert_array_equal(run(gx.clip(x, max=1), x=a), np.clip(a, None, 1))
    np.testing.assert_array_equal(run(gx.nan_to_num(x), x=a), np.nan_to_num(a))


def test_operators(run):
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    a, b = np.array([1, 2, -3], "f4"), np.array([2, -0.5, 4], "f4")
    given = {"x": a, "y": b}
    pairs = [
        (x + y, a + b), (x - 1, a - 1), (1 - x, 1 - a), (2 * x, 2 * a), (x / y, a / b),
        (1 / x, 1 / a), (x // y, a // b), (x % y, a % b), (-x, -a), (+x, a), (abs(x), abs(a)),
        (x**2, a**2), (x == y, a == b), (x != y, a != b), (x < y, a < b), (x <= 2, a <= 2),
        (x > y, a > b), (x >= y, a >= b), (divmod(x, y)[1], a % b), (5 // x, 5 // a),
    ]
    for t, want in pairs:
        got = run(t, **given)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    i = gx.input("i", (3,), "int32")
    c = np.array([5, -6, 7], "i4")
    for t, want in [(i & 3, c & 3), (i | 8, c | 8), (i ^ 1, c ^ 1), (~i, ~c), (i << 2, c << 2),
                    (i >> 1, c >> 1), (1 << (i & 3), 1 << (c & 3))]:
        np.testing.assert_array_equal(run(t, i=c), want)


def test_isclose(run):
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    a = np.array([1, 1, np.inf, -np.inf, np.nan, 0, 1e-9, 100], "f4")
    b = np.array([1.000001, 1.1, np.inf, np.inf, np.nan, 1e-9, 0, 100.0005], "f4")
    for equal_nan in (False, True):
        got = run(gx.isclose(x, y, equal_nan=equal_nan), x=a, y=b)
        np.testing.assert_array_equal(got, np.isclose(a, b, equal_nan=equal_nan))


def test_numbers_too_large_become_infinite(run):
    import warnings

    x = gx.input("x", ("n",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(run(x * 1e300, x=[1.0, -1.0]), [np.inf, -np.inf])
