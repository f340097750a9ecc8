"""What a kernel would store across the way it walks is a kernel of its own (`passes/across`)."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.passes import run_pipeline

BESIDE = np.zeros(5000, "float32")  # with so much in memory a graph is loops (`straight`)


def turned(v):
    return gx.matrix_transpose(v) if isinstance(v, gx.Tensor) else np.swapaxes(v, -1, -2)


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def both(xp, x):
    y = xp.tanh(x)
    return [y, turned(y) + 1.0]


def of_what_is_not_stored(xp, x):
    y = xp.tanh(x)
    return [y * 2.0, turned(y), xp.max(y, axis=-1)]


def rows(xp, x):
    y = softmax(xp, x)
    return [y, turned(y) * 3.0, xp.sum(y * x, axis=-1)]


def rows_across(xp, x):
    return [turned(softmax(xp, x)) - 0.5]


def means(xp, x):
    y = (x - xp.mean(x, axis=-1, keepdims=True)) * 2.0
    return [turned(y), y * y, turned(y * x)[..., 1:, :]]


def scanned(xp, x):
    y = xp.cumsum(x * 0.1, axis=-1)
    return [y, turned(y) * turned(x)]


def wanted_again(xp, x):
    """Summed where it is stored, so that it cannot go by itself; and turned back."""
    y = xp.exp(x)
    z = turned(y) * 0.5
    return [y, z, xp.sum(z, axis=-1), turned(z + turned(x)) * y]


def of_a_read_transpose(xp, x):
    y = softmax(xp, turned(x))
    return [y, turned(y) + x]


MAKERS = [both, of_what_is_not_stored, rows, rows_across, means, scanned, wanted_again,
          of_a_read_transpose]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", MAKERS)
def test_values(make, dtype):
    tol = 2e-6 if dtype == "float32" else 1e-13
    rng = np.random.default_rng(23)

    def compiled(declared):
        x, beside = gx.input("x", declared, dtype), gx.input("beside", BESIDE.shape)
        return gx.function([x, beside], [*make(gx, x), beside + 1.0])

    named = {k: compiled(("a", "b", "c")[:k]) for k in (2, 3)}
    for shape in [(70, 40), (40, 70), (5, 300), (300, 3), (16, 16), (33, 130), (3, 20, 30)]:
        a = rng.normal(size=shape)
        want = make(np, a.astype(dtype).astype("f8"))
        for f in (named[len(shape)], compiled(shape)):
            *results, _ = f(a.astype(dtype), BESIDE)
            for got, expected in zip(results, want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=tol, atol=20 * tol)


def kernels(outputs, *inputs):
    """How many a program of these results has."""
    graph = run_pipeline(gx.function(list(inputs), outputs).graph)
    return sum(n.op.name == "fused" for n in graph.nodes)


@pytest.mark.parametrize("shape, make, count", [
    ((300, 300), both, 2),
    (("n", "m"), both, 2),
    ((300, 2), both, 2),
    ((15, 15), both, 1),                # so few elements that a kernel more is no gain
    ((300, 40), rows, 2),
    ((300, 8), rows, 1),                # rows that have a lane each go either way, ..
    ((300, 8), rows_across, 2),         # .. but not to be stored across alone,
    ((300, 4), rows_across, 1),         # unless they are very short
    ((300, 40), scanned, 2),
    ((300, 40), of_a_read_transpose, 2),
])
def test_how_many_kernels(shape, make, count):
    x = gx.input("x", shape)
    assert kernels(make(gx, x), x) == count


def test_what_goes_one_way_stays_one_kernel():
    x, y = gx.input("x", (300, 200)), gx.input("y", (200, 300))
    assert kernels([turned(gx.tanh(x)) + y], x, y) == 1
    assert kernels([turned(gx.tanh(x)), turned(gx.tanh(x)) * y], x, y) == 1
    z = gx.input("z", (30, 20, 50))
    inner = gx.tanh(z)  # neighbours stay neighbours
    assert kernels([inner, gx.swapaxes(inner, 0, 1) + 1.0], z) == 1


def test_three_ways():
    z = gx.input("z", (30, 20, 50))
    y = gx.tanh(z)
    outputs = [y, gx.permute_dims(y, (0, 2, 1)) + 1.0, gx.permute_dims(y, (1, 2, 0)) * 2.0]
    assert kernels(outputs, z) == 3
    a = np.random.default_rng(3).normal(size=z.shape).astype("f4")
    want = np.tanh(a)
    for got, expected in zip(
        gx.function([z], outputs)(a),
        [want, want.transpose(0, 2, 1) + 1, want.transpose(1, 2, 0) * 2], strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)
