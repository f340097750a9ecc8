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
    assert any(k.text.startswith("blocks") for k in f.kernels)
    close(out, e / e.sum(-1, keepdims=True) @ c, "float32", 512)
    close(turned, b @ a.transpose(0, 2, 1).astype("float64"), "float32", 32)


def test_no_memory_for_copies():
    f, y = gx.input("f", (64, 64)), gx.input("y", (1000, 64, 64))
    g = gx.function([f, y], f @ y).compile()
    assert g.program.arena < 1 << 20  # a matrix for each member would be 16 MB


@pytest.mark.parametrize("length", [1, 33, 400])
def test_heads_that_share_keys_and_values(length):
    """Attention of grouped queries, also of a single one, as when text is generated."""
    q = gx.input("q", ("b", 2, 4, length, 32))
    k, v = (gx.input(name, ("b", 2, 1, "t", 32)) for name in "kv")
    scores = gx.nn.softmax(q @ gx.matrix_transpose(k), axis=-1)
    f = gx.function([q, k, v], scores @ v)
    rng = np.random.default_rng(length)
    a, b, c = arrays(rng, "float32", (3, 2, 4, length, 32), *[(3, 2, 1, 257, 32)] * 2)
    wide = a.astype("float64") @ b.astype("float64").swapaxes(-1, -2)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    close(f(a, b, c), e / e.sum(-1, keepdims=True) @ c, "float32", 257)


@pytest.mark.parametrize("length", [1, 9])
def test_gradients_of_heads_that_share_keys(length):
    shapes = (2, 3, 4, length, 16), (2, 3, 1, 12, 16)
    q, k = (gx.input(n, s, "float64") for n, s in zip("qk", shapes, strict=True))
    own = gx.input("own", (2, 3, 4, 12, 16), "float64")

    def loss(keys):
        return gx.sum(gx.nn.softmax(q @ gx.matrix_transpose(keys), axis=-1)[..., 0])

    one = gx.function([q, k], gx.grad(loss(k), [q, k]))
    each = gx.function([q, own], gx.grad(loss(own), [q, own]))
    a, b = arrays(np.random.default_rng(5), "float64", *shapes)
    of_q, of_k = one(a, b)
    of_q_each, of_own = each(a, np.broadcast_to(b, (2, 3, 4, 12, 16)).copy())
    close(of_q, of_q_each, "float64", 12)
    close(of_k, of_own.sum(axis=2, keepdims=True), "float64", 48)
    of_each = [n for n in one.graph.nodes if n.op.name == "dot" and n.out.type == own.type]
    assert len(of_each) == (length > 1)  # of a single word heads are added up in the product


def test_the_gradient_of_one_matrix_by_vectors_is_one_product():
    f, x, c = gx.input("f", (40, 50)), gx.input("x", (300, 50)), gx.input("c", (300, 40))
    loss = gx.sum((f @ x[..., None])[..., 0] * c)
    g = gx.function([f, x, c], gx.grad(loss, [f, x]))
    p, q, r = arrays(np.random.default_rng(6), "float32", (40, 50), (300, 50), (300, 40))
    of_f, of_x = g(p, q, r)
    close(of_f, r.T.astype("float64") @ q, "float32", 300)
    close(of_x, r.astype("float64") @ p, "float32", 40)
    assert (300, 40, 50) not in [n.out.type.shape for n in g.graph.nodes if n.op.name == "dot"]


def repeated(v, *new):
    """v with new axes in front, along which it is the same."""
    return gx.broadcast_to(v, (*new, *v.shape))


# An einsum in NumPy, the shapes of its operands, and the same product with operands of a batch.
ORDERS = {
    "the first axis of a batch": (
        "hmk,bhk->bhm", (3, 5, 7), (4, 3, 7), lambda f, x: (repeated(f, 4) @ x[..., None])[..., 0]),
    "matrices of it": (
        "hmk,bhkn->bhmn", (3, 5, 7), (4, 3, 7, 6), lambda f, y: repeated(f, 4) @ y),
    "rows before the batch": (
        "mk,nbk->bnm", (5, 7), (6, 4, 7),
        lambda f, y: gx.einsum("nbk,bmk->bnm", y, repeated(f, 4))),
    "axes of a batch in another order": (
        "mk,cbk->bcm", (5, 7), (3, 4, 7),
        lambda f, x: gx.einsum("bcmk,cbk->bcm", repeated(f, 4, 3), x)),
    "axes that change places": (
        "pqk,bk->bqp", (3, 5, 7), (4, 7),
        lambda f, x: gx.einsum("bqpk,bk->bqp", repeated(gx.permute_dims(f, (1, 0, 2)), 4), x)),
    "axes that are one": (
        "mk,bk->bm", (10, 7), (4, 7),
        lambda f, x: (repeated(gx.reshape(gx.reshape(f, (2, 5, 7)) + 0, (10, 7)), 4)
                      @ x[..., None])[..., 0]),
    "a row for all": (
        "k,bkn->bn", (7,), (4, 7, 6), lambda v, y: (repeated(v, 4, 5) @ y)[:, 2]),
    "apart": (
        "ckm,bkchs->bchsm", (3, 7, 5), (2, 7, 3, 4, 6),
        lambda f, y: gx.einsum(
            "bkchs,bchkm->bchsm", y, gx.broadcast_to(f[None, :, None], (2, 3, 4, 7, 5)))),
}


@pytest.mark.parametrize("what", ORDERS)
def test_operands_in_other_orders(what):
    formula, left, right, product = ORDERS[what]
    f, y = gx.input("f", left, "float64"), gx.input("y", right, "float64")
    g = gx.function([f, y], product(f, y))
    p, q = arrays(np.random.default_rng(7), "float64", left, right)
    close(g(p, q), np.einsum(formula, p, q), "float64", 8)
    loss = gx.sum(gx.sin(product(f, y)))
    gradient = gx.function([f, y], gx.grad(loss, [f, y]))
    ins, out = formula.split("->")
    a, b = ins.split(",")
    ct = np.cos(np.einsum(formula, p, q))
    of_f, of_y = gradient(p, q)
    close(of_f, np.einsum(f"{out},{b}->{a}", ct, q), "float64", 200)
    close(of_y, np.einsum(f"{out},{a}->{b}", ct, p), "float64", 200)


def test_the_gradient_of_what_a_row_is_repeated_to():
    """A sum over rows of a product that has no batch is no product."""
    v, w = gx.input("v", (6,), "float64"), gx.input("w", (5, 4), "float64")
    loss = gx.sum(gx.sin(gx.broadcast_to(v[:, None], (6, 5)) @ w))
    p, q = arrays(np.random.default_rng(8), "float64", (6,), (5, 4))
    (got,) = gx.function([v, w], gx.grad(loss, [v]))(p, q)
    wide = np.broadcast_to(p[:, None], (6, 5)) @ q
    close(got, (np.cos(wide) @ q.T).sum(axis=1), "float64", 20)
