"""Products of a batch with one matrix: it is never stored for each member."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

SIZES = [(1, 5, 7, 3), (3, 1, 9, 1), (4, 17, 33, 16), (0, 3, 4, 5), (5, 64, 64, 65), (2, 12, 0, 4)]
DTYPES = ["float32", "float64", "int32"]


def close(got, want, dtype, depth=1):
    if dtype == "int32":
        np.testing.assert_array_equal(got, want)
        return
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got, want, rtol=64 * eps, atol=8 * (depth + 1) * eps)


def arrays(rng, dtype, *shapes):
    if dtype == "int32":
        return [rng.integers(-99, 99, s, dtype) for s in shapes]
    return [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b, m, k, n", SIZES)
@pytest.mark.parametrize("named", [False, True])
def test_matrices_and_vectors(dtype, b, m, k, n, named):
    sizes = ("b", "m", "k", "n") if named else (b, m, k, n)
    f = gx.input("f", (sizes[1], sizes[2]), dtype)
    y = gx.input("y", (sizes[0], sizes[2], sizes[3]), dtype)
    z = gx.input("z", (sizes[0], sizes[3], sizes[2]), dtype)
    x = gx.input("x", (sizes[0], sizes[2]), dtype)
    ft = gx.matrix_transpose(f)
    repeated = gx.broadcast_to(ft, (sizes[0], sizes[2], sizes[1]))
    products = gx.function(
        [f, y, z, x], [f @ y, -(f @ y) * 2, z @ repeated, (f @ x[..., None])[..., 0],
                       gx.einsum("mk,bnk->bmn", f, z)],
    )
    p, q, r, v = arrays(np.random.default_rng(b + m), dtype, (m, k), (b, k, n), (b, n, k), (b, k))
    wide = [a.astype("float64" if dtype != "int32" else dtype) for a in (p, q, r, v)]
    want = [wide[0] @ wide[1], -(wide[0] @ wide[1]) * 2, wide[2] @ wide[0].T,
            wide[3] @ wide[0].T, wide[0] @ wide[2].transpose(0, 2, 1)]
    for got, exact in zip(products(p, q, r, v), want, strict=True):
        close(got, exact, dtype, k)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_of_two_axes_and_what_is_computed(dtype):
    f = gx.input("f", (24, 40), dtype)
    y = gx.input("y", ("b", 3, 40, 18), dtype)
    repeated = gx.broadcast_to(gx.sin(f), ("b", 3, 24, 40))
    g = gx.function([f, y], [gx.tanh(repeated @ y + 1), repeated])
    p, q = arrays(np.random.default_rng(0), dtype, (24, 40), (5, 3, 40, 18))
    got, stored = g(p, q)
    wide = np.sin(p.astype("float64"))
    close(got, np.tanh(wide @ q.astype("float64") + 1), dtype, 40)
    close(stored, np.broadcast_to(wide, stored.shape), dtype)


def test_gradients_are_those_of_a_matrix_for_each_member():
    f, y = gx.input("f", (12, 20), "float64"), gx.input("y", ("b", 20, 31), "float64")
    own = gx.input("own", ("b", 12, 20), "float64")
    one = gx.function([f, y], gx.grad(gx.sum(gx.tanh(f @ y)), [f, y]))
    each = gx.function([own, y], gx.grad(gx.sum(gx.tanh(own @ y)), [own, y]))
    p, q = arrays(np.random.default_rng(1), "float64", (12, 20), (6, 20, 31))
    of_f, of_y = one(p, q)
    of_own, of_y_each = each(np.broadcast_to(p, (6, 12, 20)).copy(), q)
    close(of_f, of_own.sum(axis=0), "float64", 6 * 31)
    close(of_y, of_y_each, "float64", 12)


def test_keys_that_all_members_share_in_attention():
    """Large enough for one kernel to go through it block by block."""
    q, k = gx.input("q", ("b", 256, 32)), gx.input("k", (512, 32))
    v = gx.input("v", (512, 32))
    keys, values = (gx.broadcast_to(t, ("b", 512, 32)) for t in (k, v))
    scores = gx.nn.softmax(q @ gx.matrix_transpose(keys), axis=-1)
    f = gx.function([q, k, v], [scores @ values, k @ gx.matrix_transpose(q)])
    a, b, c = arrays(np.random.default_rng(2), "float32", (9, 256, 32), (512, 32), (512, 32))
    wide = a.astype("float64") @ b.T
    e = np.exp(wide - wide.max(-1, keepdims=True))
    out, turned = f(a, b, c)
    close(out, e / e.sum(-1, keepdims=True) @ c, "float32", 512)
    close(turned, b @ a.transpose(0, 2, 1).astype("float64"), "float32", 32)


def test_no_memory_for_copies():
    f, y = gx.input("f", (64, 64)), gx.input("y", (1000, 64, 64))
    g = gx.function([f, y], f @ y).compile()
    assert g.program.arena < 1 << 20  # a matrix for each member would be 16 MB
