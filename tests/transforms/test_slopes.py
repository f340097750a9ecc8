"""Derivatives of forms as a whole: values, digits, and what their kernels compute."""

import numpy as np
import pytest

import graphc as gx
from graphc.testing import check_grad


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_a_sigmoid_keeps_its_digits(dtype):
    """Far from 0 on both sides, where y * (1 - y) would be 0; and the slope of the slope."""
    x = gx.input("x", ("n",), dtype)
    far = {"float32": 80.0, "float64": 700.0}[dtype]
    at = np.concatenate([[0.0, -0.0, 1e-30, far, -far], np.linspace(-30, 30, 101)]).astype(dtype)
    e = np.exp(-np.abs(at.astype(np.longdouble)))
    first, eps = e / (1 + e) ** 2, np.finfo(dtype).eps
    second = -np.sign(at) * e * (1 - e) / (1 + e) ** 3
    plain = gx.function([x], gx.nn.sigmoid(x))
    for y, sign in ((gx.nn.sigmoid(x), 1), (1.0 / (1.0 + gx.exp(-x)), 1), (gx.nn.sigmoid(-x), -1),
                    (1.0 - gx.nn.sigmoid(x), -1)):
        slope = gx.grad(gx.sum(y), x)
        f = gx.function([x], [slope, gx.grad(gx.sum(slope), x)])
        for got, want in zip(f(at), (sign * first, sign * second), strict=True):
            np.testing.assert_array_less(np.abs(got - want), 8 * eps * np.abs(want) + 4 * eps * e)
        assert np.all(np.isnan(f(np.full(3, np.nan, dtype))))
        g = gx.function([x], slope)
        assert not np.any(np.abs(g(at) - sign * first) > 6 * eps * first)
        assert elementwise(g, "div") == elementwise(plain, "div") == 1


def test_the_slope_of_a_sigmoid_takes_no_quotient_of_its_own():
    """A gate beside what it leaves has two, and one slope."""
    x, a, b = (gx.input(k, ("n",)) for k in "xab")
    g = gx.nn.sigmoid(x)
    f = gx.function([x], [g, gx.grad(gx.sum(g), x)])
    assert elementwise(f, "div") == 1
    mixed = gx.function([x, a, b], gx.grad(gx.sum(g * a + (1.0 - g) * b), x))
    at = np.linspace(-9, 9, 50, dtype="f4")
    s = 1 / (1 + np.exp(-at.astype("f8")))
    np.testing.assert_allclose(mixed(at, at + 2, at * at), s * (1 - s) * (at + 2 - at * at), 1e-5)
    assert elementwise(mixed, "div") == 1


def elementwise(f, name):
    """How many nodes of a name its kernels have."""
    f.compile()
    bodies = [k.attrs["body"] for k in f.optimized.nodes if k.op.name == "fused"]
    return len([n for body in bodies for n in body.nodes if n.op.name == name])


def test_values_within_a_sigmoid_have_their_own_gradient():
    x = gx.input("x", ("n",))
    positive = x >= 0.0
    e = gx.exp(gx.where(positive, -x, x))
    y = gx.where(positive, 1.0, e) / (e + 1.0)
    f = gx.function([x], gx.grad(gx.sum(y), [e, x]))
    at = np.array([-3, -0.5, 0.0, 2.0], "f4")
    s = 1 / (1 + np.exp(-np.abs(at))) ** 2
    by_e, by_x = f(at)
    np.testing.assert_allclose(by_e, np.where(at >= 0, -s, s), rtol=1e-6)
    np.testing.assert_allclose(by_x, np.exp(-np.abs(at)) * s, rtol=1e-6)


def softmaxes(x):
    """Along axis 0, written in four ways."""
    e = gx.exp(x)
    total = gx.sum(e, axis=0)
    whole = gx.broadcast_to(gx.expand_dims(total, 0), x.shape)
    return [gx.nn.softmax(x, axis=0), e / total, (1.0 / total) * e, e * (1.0 / whole)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_a_softmax_keeps_its_digits(dtype):
    """Also where a mask leaves one weight, and where one is as small as the dtype has them."""
    x, w = gx.input("x", ("n", 4), dtype), gx.input("w", ("n", 4), dtype)
    rng = np.random.default_rng(0)
    at, by = (rng.normal(size=(7, 4)).astype(dtype) for _ in range(2))
    at[0] = at.max(0)
    at -= at[0]
    at[1:, 1], at[2, 2] = -np.inf, {"float32": -85.0, "float64": -700.0}[dtype]
    e = np.exp(at.astype(np.longdouble))
    p = e / e.sum(0)
    want, most = p * (by - (p * by).sum(0)), p * (np.abs(by) + (p * np.abs(by)).sum(0))
    for y in softmaxes(x):
        f = gx.function([x, w], gx.grad(gx.sum(y * w), x))
        assert np.all(np.abs(f(at, by) - want) <= 8 * np.finfo(dtype).eps * most)
        assert np.all(np.isnan(f(np.full_like(at, np.nan), by)))


@pytest.mark.parametrize("way", range(4))
def test_the_slope_of_a_softmaxs_slope(way):
    rng = np.random.default_rng(1)
    args = [rng.normal(size=(5, 3)), rng.normal(size=(5, 3))]
    check_grad(lambda x, w: gx.sum(softmaxes(x)[way] * w), args, order=2)


def test_a_product_hands_a_softmax_one_array():
    x, w = gx.input("x", ("n", 32)), gx.input("w", (32, 8))
    z = gx.tanh(gx.nn.softmax(x) @ w)
    f = gx.function([x, w], gx.grad(gx.sum(z * z), [x, w]))
    f.compile()
    products = [k for k in f.optimized.nodes if k.op.name == "fused"
                and any(n.op.name == "dot" for n in k.attrs["body"].nodes)]
    assert [len(k.outs) for k in products] == [1, 1, 1]


def test_values_within_a_softmax_have_their_own_gradient():
    x, w = gx.input("x", (3, 4)), gx.input("w", (3, 4))
    e = gx.exp(x)
    total = gx.sum(e, axis=1, keepdims=True)
    y = e / total
    f = gx.function([x, w], gx.grad(gx.sum(y * w), [total, e, x]))
    at, by = (np.random.default_rng(2).normal(size=(3, 4)).astype("f4") for _ in range(2))
    p, s = np.exp(at), np.exp(at).sum(1, keepdims=True)
    by_total = -(p * by).sum(1, keepdims=True) / s**2
    want = by_total, by / s + by_total, p * (by / s + by_total)
    for got, expected in zip(f(at, by), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_what_is_no_softmax_is_not_taken_for_one():
    """Sums over other axes, of other values, and exponentials times them."""
    x, w = gx.input("x", (3, 3), "float64"), np.arange(9.0).reshape(3, 3)
    e = gx.exp(x)
    rows, columns = gx.sum(e, axis=1), gx.sum(e, axis=0)
    ways = [e / rows, e * columns, e / gx.sum(e * e, axis=0), e / (1.0 / columns),
            e * (2.0 / columns), gx.exp(-x) / columns, e * e / columns]
    at = np.random.default_rng(3).normal(size=(3, 3))
    f = gx.function([x], [gx.grad(gx.sum(y * w), x) for y in ways])
    ge = np.exp(at)
    r, c, q = ge.sum(1), ge.sum(0), (ge * ge).sum(0)
    slopes = [
        ge * (w / r - ((w * ge) / r**2).sum(0)[:, None]), ge * (w * c + (w * ge).sum(0)),
        ge * (w / q - 2 * ge * (w * ge).sum(0) / q**2), ge * (w * c + (w * ge).sum(0)),
        2 * ge * (w / c - (w * ge).sum(0) / c**2),
        -w / ge / c - ge * (w / ge).sum(0) / c**2,
        2 * ge * ge * w / c - ge * (w * ge * ge).sum(0) / c**2,
    ]
    for got, want in zip(f(at), slopes, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_a_gelu_has_no_ties_where_it_ends(dtype):
    x = gx.input("x", ("n",), dtype)
    y = gx.nn.gelu(x)
    f = gx.function([x], [y, gx.grad(gx.sum(y), x)])
    at = np.array([-np.inf, -1e30, -41, -40, -39, -1, 0, 1, 40, np.nan], dtype)
    value, slope = f(at)
    np.testing.assert_allclose(value[5:], [-0.15865525, 0, 0.84134475, 40, np.nan], 1e-6)
    np.testing.assert_allclose(slope[5:], [-0.08331547, 0.5, 1.08331547, 1, np.nan], 1e-6)
    np.testing.assert_allclose([value[:5], slope[:5]], 0, atol=1e-300)
    assert elementwise(f, "equal") == elementwise(f, "maximum") == 0
