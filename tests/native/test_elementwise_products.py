"""Products that sum over a few numbers: points in space, colours, many small matrices."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(97)


def whole(dtype, *shape):
    """Small whole numbers: their sums are exact in any order."""
    return RNG.integers(-8, 9, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 33, 1000])
def test_points_and_small_matrices(dtype, n):
    """From either side, turned, of a batch; nothing is stored between what stands around them."""
    shapes = {
        "p": ("n", 3), "r": (3, 4), "x": (4, "n"), "v": (4,), "a": ("n", 3, 2), "b": ("n", 2, 4),
    }
    p, r, x, v, a, b = ins = [gx.input(name, shape, dtype) for name, shape in shapes.items()]
    P, R, X, V, A, B = vals = [
        whole(dtype, *(n if s == "n" else s for s in shape)) for shape in shapes.values()
    ]
    cases = [
        (p @ r, P @ R), (v @ x, V @ X), (x.T @ v, X.T @ V), (a @ b, A @ B),
        (gx.exp2(p * 0) * p @ r[:, 0] + 1, P @ R[:, 0] + 1),
        (gx.einsum("nij,njk,kn->in", a, b, x), np.einsum("nij,njk,kn->in", A, B, X)),
    ]
    for got, want in cases:
        f = gx.function(ins, got)
        np.testing.assert_array_equal(f(*vals), want)
        assert " dot " not in str(f.optimized)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 33, 1000])
def test_rows_are_summed_over(dtype, n):
    """Covariances, and the gradient of a regression in one kernel; from 0, so that none is -0.0."""
    shapes = {"p": ("n", 3), "q": ("n", 8), "e": ("n",), "w": (3,)}
    p, q, e, w = ins = [gx.input(name, shape, dtype) for name, shape in shapes.items()]
    P, Q, E, W = vals = [
        whole(dtype, *(n if s == "n" else s for s in shape)) for shape in shapes.values()
    ]
    cases = [(p.T @ q, P.T @ Q), (p.T @ p, P.T @ P), (q.T @ e, Q.T @ E), (e @ p, E @ P),
             (p.T @ (p @ w - e), P.T @ (P @ W - E))]
    for got, want in cases:
        f = gx.function(ins, got)
        np.testing.assert_array_equal(f(*vals), want)
        assert " dot " not in str(f.optimized)
    assert len(f.kernels) == 1
    negative = [np.full_like(P, -0.0), np.abs(Q), E, W]
    assert not np.signbit(gx.function(ins, p.T @ q)(*negative)).any()


def test_colours_in_one_kernel():
    """Bytes in and out: the matrix product and all around it go through registers."""
    image, m = RNG.integers(0, 256, (31, 40, 3)).astype("u1"), whole("f4", 3, 3)
    i = gx.input("i", ("h", "w", 3), "uint8")
    y = gx.clip(gx.astype(i, "float32") @ gx.constant(m) + 0.25, 0, 255)
    f = gx.function([i], gx.astype(y, "uint8"))
    want = np.clip(image.astype("f4") @ m + np.float32(0.25), 0, 255).astype("u1")
    np.testing.assert_array_equal(f(image), want)
    assert len(f.kernels) == 1


def test_sums_are_never_minus_zero():
    """As of products, which begin with 0."""
    p, v = gx.input("p", ("n", 3)), gx.input("v", (3,))
    got = gx.function([p, v], p @ v)(np.full((20, 3), -0.0, "f4"), np.ones(3, "f4"))
    assert not np.signbit(got).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_of_a_batch_and_few_long_rows(dtype):
    """Sums in the place of products: of vectors of any size, along either axis, and of pairs of
    rows."""
    rng = np.random.default_rng(3)
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", ("n", "m"), dtype)
    f = gx.function([x, y], [gx.einsum("ij,ij->i", x, y), gx.einsum("ij,ij->j", x, y)])
    for shape in ((1, 1), (0, 3), (3, 0), (7, 5), (70, 33), (5, 5000), (5000, 5)):
        a, b = rng.normal(size=shape).astype(dtype), rng.normal(size=shape).astype(dtype)
        for got, want in zip(f(a, b), ((a * b).sum(1), (a * b).sum(0)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    for m, n, k in ((3, 4, 64), (1, 5, 700), (4, 6, 999)):
        p, q = gx.input("p", ("b", m, k), dtype), gx.input("q", ("b", n, k), dtype)
        g = gx.function([p, q], gx.matmul(p, gx.matrix_transpose(q)))
        a, b = rng.normal(size=(9, m, k)).astype(dtype), rng.normal(size=(9, n, k)).astype(dtype)
        np.testing.assert_allclose(g(a, b), a @ b.transpose(0, 2, 1), rtol=1e-4, atol=1e-3)
