"""Kernels that sweep down few long columns, taken apart: values, threads, what stays one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx


def softmax(m, x):
    z = m.exp(x - m.max(x, axis=0))
    return z / m.sum(z, axis=0)


def standardised(m, x):
    u = x - m.mean(x, axis=0)
    return u / m.sqrt(m.mean(u * u, axis=0))


def scaled(m, x):
    low = m.min(x, axis=0)
    return (x - low) / (m.max(x, axis=0) - low)


def whitened(m, x):
    """Two sums that wait for each other, and one over what these give."""
    u = x - m.mean(x, axis=0)
    return u * m.sum(m.sqrt(m.mean(u * u, axis=0)))


@pytest.mark.parametrize("make", [softmax, standardised, scaled, whitened])
@pytest.mark.parametrize("c", [2, 3, 8, 10])
@pytest.mark.parametrize("named", [True, False])
def test_values(make, c, named) -> None:
    """Near those of f64, the same for any number of threads."""
    rng = np.random.default_rng(c)
    for n in (1, 5, 512, 700, 5001) if named else (5001,):
        a = rng.normal(size=(n, c)).astype("float32")
        a[0] = 3 + np.arange(c)  # so that nothing is divided by 0
        if n == 1 and make is not softmax:
            continue
        x = gx.input("x", ("n" if named else n, c))
        got = [gx.function([x], make(gx, x), threads=t)(a) for t in (1, 2, 4)]
        np.testing.assert_allclose(got[0], make(np, a.astype("f8")), rtol=2e-4, atol=1e-6)
        assert len({g.tobytes() for g in got}) == 1


@pytest.mark.parametrize("make, shape, kernels", [
    (softmax, ("n", 3), 4), (standardised, ("n", 8), 3), (scaled, ("n", 4), 2),
    (softmax, ("n", 10), 4), (scaled, ("n", 10), 2), (whitened, ("n", 10), 3),
    (softmax, ("n", 16), 1), (softmax, (50_000, 16), 4),    # threads share what is long
    (softmax, (100, 8), 1), (softmax, ("n", "m"), 1),
])
def test_how_many_kernels(make, shape, kernels) -> None:
    x = gx.input("x", shape)
    assert len(gx.function([x], make(gx, x)).kernels) == kernels


def test_rows_stay_one_kernel() -> None:
    """Few of them are long, and vectors run along them."""
    x = gx.input("x", (8, 131072))
    z = gx.exp(x - gx.max(x, axis=1, keepdims=True))
    f = gx.function([x], z / gx.sum(z, axis=1, keepdims=True))
    assert len(f.kernels) == 1


def test_gradients_of_standardised_columns() -> None:
    x, y = gx.input("x", ("n", 4), "float64"), gx.input("y", ("n", 4), "float64")
    loss = gx.sum(standardised(gx, x) ** 3 * y)
    f = gx.function([x, y], gx.grad(loss, x))
    rng = np.random.default_rng(0)
    a, b, d = rng.normal(size=(3, 700, 4))
    h = 1e-6
    ends = [np.sum(standardised(np, a + s * d) ** 3 * b) for s in (h, -h)]
    np.testing.assert_allclose(np.sum(f(a, b) * d), (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


def test_a_softmax_beside_its_gradient() -> None:
    x, w = gx.input("x", ("n", 3), "float64"), gx.input("w", ("n", 3), "float64")
    p = softmax(gx, x)
    loss = gx.sum(p * p * w)
    f = gx.function([x, w], [loss, gx.grad(loss, x)])
    assert len(f.kernels) > 2
    a, b = np.random.default_rng(1).normal(size=(2, 900, 3))
    value, slope = f(a, b)
    q = softmax(np, a)
    pull = 2 * q * b
    np.testing.assert_allclose(value, np.sum(q * q * b), rtol=1e-12)
    np.testing.assert_allclose(slope, q * (pull - np.sum(pull * q, axis=0)), rtol=1e-9, atol=1e-15)
