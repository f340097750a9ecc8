"""Sums over all elements of rows that are swept for others: one kernel, and values."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx


def standardised(x):
    d = x - gx.mean(x, axis=-1, keepdims=True)
    return d / gx.sqrt(gx.mean(d * d, axis=-1, keepdims=True) + 1e-5)


def by_hand(x):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


LOSSES = {
    "soft labels": (lambda x, y: -gx.sum(y * gx.nn.log_softmax(x, axis=-1)),
                    lambda x, y: -(y * log_softmax(x)).sum()),
    "squared errors": (lambda x, y: gx.mean((standardised(x) - y) ** 2),
                       lambda x, y: ((by_hand(x) - y) ** 2).mean()),
    "greatest": (lambda x, y: gx.max(gx.abs(standardised(x)) - y),
                 lambda x, y: (abs(by_hand(x)) - y).max()),
    "least": (lambda x, y: gx.min(gx.nn.softmax(x, axis=-1) * y),
              lambda x, y: (np.exp(log_softmax(x)) * y).min()),
}
SHAPES = [(1, 5), (3, 16), (300, 3), (1000, 10), (37, 64), (129, 100), (20, 1000), (4, 6, 20)]


def kernels(f):
    return [n for n in f.optimized.nodes if n.op.name == "fused"]


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_of_normalised_rows(what, named, dtype):
    rng = np.random.default_rng(5)
    formula, reference = LOSSES[what]
    for shape in SHAPES:
        dims = tuple("abc"[: len(shape)]) if named else shape
        x, y = (gx.input(n, dims, dtype) for n in "xy")
        loss = formula(x, y)
        f = gx.function([x, y], [loss, gx.grad(loss, x)], threads=1 + len(shape) % 2)
        a, b = (rng.normal(size=shape).astype(dtype) for _ in "xy")
        got, slope = f(a, b)
        close = {"float32": 2e-5, "float64": 1e-12}[dtype]
        want = reference(a.astype(float), b.astype(float))
        np.testing.assert_allclose(got, want, rtol=close, atol=close)
        step = rng.normal(size=shape)
        ends = [reference(a.astype(float) + h * step, b.astype(float)) for h in (1e-6, -1e-6)]
        along = (ends[0] - ends[1]) / 2e-6
        scale = np.abs(slope * step).sum()
        np.testing.assert_allclose(
            (slope * step).sum(), along, rtol=1e-3, atol=1e-4 * scale + 1e-6)


@pytest.mark.parametrize("shape", [("n", 10), ("n", 64), ("n", "m")])
@pytest.mark.parametrize("what", LOSSES)
def test_no_elements_are_stored(what, shape):
    """A number for each row at most, of rows that take a lane each."""
    x, y = (gx.input(n, shape) for n in "xy")
    made = [v for k in kernels(gx.function([x, y], LOSSES[what][0](x, y))) for v in k.outs]
    assert made
    assert all(v.type.ndim < 2 for v in made)


def test_sums_of_some_axes():
    rng = np.random.default_rng(6)
    x = gx.input("x", ("a", "b", 20))
    f = gx.function([x], [gx.sum(standardised(x) ** 3, axis=(1, 2)),
                          gx.sum(gx.nn.softmax(x, axis=-1) ** 2, axis=(0, 2))])
    a = rng.normal(size=(5, 7, 20)).astype("float32")
    cubes, squares = f(a)
    e = a.astype(float)
    np.testing.assert_allclose(cubes, (by_hand(e) ** 3).sum((1, 2)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(squares, np.exp(2 * log_softmax(e)).sum((0, 2)), rtol=1e-5)


def test_sums_of_sixteen_bits_are_rounded_once():
    x = gx.input("x", ("n", 64), "float16")
    f = gx.function([x], gx.sum(x - gx.max(x, axis=1, keepdims=True)))
    a = np.random.default_rng(7).normal(size=(50, 64)).astype("float16")
    want = (a - a.max(1, keepdims=True)).astype(float).sum()
    assert abs(float(f(a)) - want) <= abs(want) * 2**-11
