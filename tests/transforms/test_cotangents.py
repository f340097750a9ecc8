"""Cotangents of parts of a value: side by side where they lie apart, added where they overlap."""

import numpy as np

import graphc as gx


def ops(f):
    return [n.op.name for n in f.graph.nodes]


def test_parts_of_a_whole():
    x = gx.input("x", (6, 8))
    a, b, c = x[:, 0:3], x[:, 3:4], x[:, 6:8]
    cost = gx.sum(a * a) + gx.sum(gx.exp(b)) + 3.0 * gx.sum(c)
    f = gx.function([x], gx.grad(cost, [x]))
    v = np.random.default_rng(0).normal(size=(6, 8)).astype("f4")
    expected = np.concatenate(
        [2 * v[:, 0:3], np.exp(v[:, 3:4]), np.zeros((6, 2)), np.full((6, 2), 3)], 1
    )
    np.testing.assert_allclose(f(v)[0], expected, rtol=1e-6)
    assert ops(f).count("concat") == 1 and "add" not in ops(f)[ops(f).index("concat"):]


def test_parts_that_overlap_and_second_order():
    x = gx.input("x", (9,))
    cost = gx.sum(x[0:4] ** 3) + gx.sum(x[2:6] ** 3) + gx.sum(x[6:9] ** 3) + gx.sum(x)
    (g,) = gx.grad(cost, [x])
    f = gx.function([x], [g, *gx.grad(gx.sum(g * g), [x])])
    v = np.random.default_rng(1).normal(size=9).astype("f4")
    times = np.array([1, 1, 2, 2, 1, 1, 1, 1, 1])
    first = 3 * times * v**2 + 1
    np.testing.assert_allclose(f(v)[0], first, rtol=1e-5)
    np.testing.assert_allclose(f(v)[1], 2 * first * 6 * times * v, rtol=1e-5)


def test_symbolic_places_are_added():
    x = gx.input("x", ("n", 4))
    n = x.shape[0]
    cost = gx.sum(x[0 : n - 1] * 2.0) + gx.sum(x[1:n] * 5.0)
    f = gx.function([x], gx.grad(cost, [x]))
    got = f(np.ones((3, 4), "f4"))[0]
    np.testing.assert_array_equal(got, np.repeat([[2.0], [7.0], [5.0]], 4, 1))
