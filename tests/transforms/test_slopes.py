"""Derivatives of forms as a whole: values, digits, and what their kernels compute."""

import numpy as np
import pytest

import graphc as gx


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_a_sigmoid_is_one_quotient_and_keeps_its_digits(dtype):
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
