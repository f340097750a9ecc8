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


def test_a_cotangent_that_comes_twice_counts_twice():
    """x + x hands one cotangent back twice, here one of a part, beside that of another part."""
    x = gx.input("x", (8,))
    for y in (x + x, (x + 1.0) + (x * 1.0 + x) - x, (x + 1.0) + (x + 2.0)):
        cost = gx.sum(gx.exp(y[:4])) + gx.sum(x[4:] * 5.0)
        v = np.linspace(-1, 1, 8, dtype="f4")
        value, slope = gx.function([x], [y, gx.grad(cost, x)])(v)
        want = np.concatenate([2 * np.exp(value[:4]), np.full(4, 5)])
        np.testing.assert_allclose(slope, want, rtol=1e-6)


def test_parts_of_rows():
    """Elements, rows and blocks of a whole are put together, not added with zeros around each."""
    u = gx.input("u", (40, 2), "float64")
    cost = sum(gx.sin(u[t, 0]) * u[t, 1] + gx.sum(u[t] ** 3) for t in range(40))
    f = gx.function([u], gx.grad(cost, u))
    v = np.random.default_rng(2).normal(size=(40, 2))
    want = 3 * v**2 + np.stack([np.cos(v[:, 0]) * v[:, 1], np.sin(v[:, 0])], 1)
    np.testing.assert_allclose(f(v), want, rtol=1e-12)
    assert not any(n.op.name == "add" and n.out.type.shape == (40, 2) for n in f.graph.nodes)


def test_stencils_are_added():
    u = gx.input("u", (7, 6), "float64")
    shifted = [u[2:, 1:-1], u[:-2, 1:-1], u[1:-1, 2:], u[1:-1, :-2]]
    f = gx.function([u], gx.grad(gx.sum(sum(shifted) ** 2), u))
    v = np.random.default_rng(3).normal(size=(7, 6))
    ct = 2 * (v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2])
    want = np.zeros((7, 6))
    for at in np.s_[2:, 1:-1], np.s_[:-2, 1:-1], np.s_[1:-1, 2:], np.s_[1:-1, :-2]:
        want[at] += ct
    np.testing.assert_allclose(f(v), want, rtol=1e-12)
    assert ops(f).count("pad") == 4 and "concat" not in ops(f)


def test_symbolic_places_are_added():
    x = gx.input("x", ("n", 4))
    n = x.shape[0]
    cost = gx.sum(x[0 : n - 1] * 2.0) + gx.sum(x[1:n] * 5.0)
    f = gx.function([x], gx.grad(cost, [x]))
    got = f(np.ones((3, 4), "f4"))[0]
    np.testing.assert_array_equal(got, np.repeat([[2.0], [7.0], [5.0]], 4, 1))


def kernels_of(f):
    return [n.attrs["axes"] for n in f.optimized.nodes if n.op.name == "fused"]


def test_factors_leave_sums_that_get_smaller():
    """A Hessian's product: sum over n of v[k, d] * m[n, k] is v[k, d] * (sum over n of m[n, k])."""
    x, c, v = gx.input("x", ("n", 3)), gx.input("c", (5, 3)), gx.input("v", (5, 3))
    w = gx.input("w", ("n", 5))
    cost = gx.sum(w * gx.sum((gx.expand_dims(x, 1) - c) ** 2, axis=2))
    f = gx.function([x, c, v, w], [gx.grad(cost, c), gx.hvp(cost, c, v)])
    rng = np.random.default_rng(2)
    for n in (0, 1, 70):
        a, m, u, s = (rng.normal(size=size).astype("f4") for size in
                      ((n, 3), (5, 3), (5, 3), (n, 5)))
        slope, product = f(a, m, u, s)
        np.testing.assert_allclose(
            slope, np.einsum("nk,nkd->kd", 2 * s, m - a[:, None]), rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(product, 2 * s.sum(0)[:, None] * u, rtol=1e-5, atol=1e-4)
    g = gx.function([x, c, v, w], gx.hvp(cost, c, v))
    assert ("n", 5, 3) not in [tuple(map(str, axes)) for axes in kernels_of(g)]
    assert all(len(axes) == 2 for axes in kernels_of(g))


def test_last_factors_leave_sums():
    """x - m, divided by a scale for each column: with respect to m, 1/scale comes after the sum of
    what was there before; z, which is declared, stays whole."""
    x, m, s = gx.input("x", ("n", 4)), gx.input("m", (4,)), gx.input("s", (4,))
    z = (x - m) * gx.exp(-s)
    f = gx.function([x, m, s], gx.grad(gx.sum(z * z * z), [m, s]))
    names = ops(f)
    sums = [k for k, name in enumerate(names) if name == "reduce_sum"]
    assert len(sums) == 2 and "mul" in names[sums[0] :]
    rng = np.random.default_rng(3)
    a, u, v = (rng.normal(size=k).astype("f4") for k in ((300, 4), 4, 4))
    scaled = (a - u) * np.exp(-v)
    dm, ds = f(a, u, v)
    np.testing.assert_allclose(dm, (-3 * scaled**2 * np.exp(-v)).sum(0), rtol=2e-5)
    np.testing.assert_allclose(ds, (-3 * scaled**3).sum(0), rtol=2e-4, atol=1e-3)
    tiny = np.float32(1e-30)  # (x - m) ** 2 would be nothing
    dm, ds = f(a * tiny, u * tiny, v + np.log(tiny))
    np.testing.assert_allclose(dm * tiny, (-3 * scaled**2 * np.exp(-v)).sum(0), rtol=1e-4)
    np.testing.assert_allclose(ds, (-3 * scaled**3).sum(0), rtol=2e-4, atol=1e-3)


def test_factors_that_stay():
    """Those that vary along what is summed, numbers, and those of sums that are declared."""
    x, c = gx.input("x", ("n", 4)), gx.input("c", (4,))
    for cost in (gx.sum(gx.exp(x * c)), gx.mean(gx.exp(gx.exp(x) + c))):
        f = gx.function([x, c], gx.grad(cost, c))
        assert ops(f)[-1] == "reduce_sum"
    v, m = gx.input("v", (5, 4)), gx.input("m", ("n", 5))
    f = gx.function([v, m], gx.sum(gx.expand_dims(m, 2) * v, axis=0))
    assert ops(f)[-1] == "reduce_sum"
