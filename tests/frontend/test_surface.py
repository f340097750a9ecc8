"""Manipulation, reductions, creation, products and promotion against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(7)
A = RNG.normal(size=(2, 3, 4)).astype("f4")


@pytest.fixture
def x():
    return gx.input("x", ("n", 3, 4))


def same(run, t, want, /, **arrays):
    got = run(t, **arrays)
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


MANIPULATION = [
    lambda m, x: m.reshape(x, (-1, 4)), lambda m, x: m.reshape(x, (-1,)),
    lambda m, x: m.reshape(x, (-1, 2, 6)), lambda m, x: m.transpose(x),
    lambda m, x: m.transpose(x, (1, 2, 0)), lambda m, x: m.permute_dims(x, (2, 0, 1)),
    lambda m, x: m.matrix_transpose(x), lambda m, x: m.swapaxes(x, 0, -1),
    lambda m, x: m.moveaxis(x, 0, 2), lambda m, x: m.moveaxis(x, (0, 1), (-1, -2)),
    lambda m, x: m.expand_dims(x, 1), lambda m, x: m.expand_dims(x, (0, -1)),
    lambda m, x: m.squeeze(m.expand_dims(x, 1), 1), lambda m, x: m.ravel(x),
    lambda m, x: m.concat([x, x + 1], axis=1), lambda m, x: m.concat([x, x], axis=None),
    lambda m, x: m.concatenate([x, x[:, :1]], 1), lambda m, x: m.stack([x, -x]),
    lambda m, x: m.stack([x, -x], axis=-1), lambda m, x: m.split(x, 2, axis=2)[1],
    lambda m, x: m.split(x, [1, 3], axis=2)[1], lambda m, x: m.unstack(x, axis=1)[2],
    lambda m, x: m.tile(x, (2, 1, 3)), lambda m, x: m.tile(x, (2, 1, 1, 2)),
    lambda m, x: m.tile(x, 2), lambda m, x: m.repeat(x, 3, axis=1), lambda m, x: m.repeat(x, 2),
    lambda m, x: m.flip(x), lambda m, x: m.flip(x, axis=1), lambda m, x: m.flip(x, axis=(0, 2)),
    lambda m, x: m.roll(x, 1, axis=0), lambda m, x: m.roll(x, -5, axis=2),
    lambda m, x: m.roll(x, (1, 2), axis=(0, 1)), lambda m, x: m.roll(x, 3),
    lambda m, x: m.pad(x, 1), lambda m, x: m.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=5),
    lambda m, x: m.broadcast_to(x[0], (5, 3, 4)), lambda m, x: m.vstack([x[0], x[1]]),
    lambda m, x: m.hstack([x[0], x[1]]), lambda m, x: m.atleast_2d(x[0, 0]),
    lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0])[0], lambda m, x: m.cross(x[..., :3], x[..., 1:]),
    lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0], indexing="ij")[1],
]


@pytest.mark.parametrize("fn", MANIPULATION)
def test_manipulation(run, x, fn):
    same(run, fn(gx, x), fn(np, A), x=A)


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_diag(run, x, k):
    for n in (0, 1, 3):
        v = np.arange(n, dtype="f4") + 1
        same(run, gx.diag(gx.input("v", ("n",)), k), np.diag(v, k), v=v)
    same(run, gx.diag(x[0], k), np.diag(A[0], k), x=A)
    same(run, np.diag(x[0, 0], k), np.diag(A[0, 0], k), x=A)
    holes = np.array([np.nan, np.inf], "f4")  # elsewhere stays 0
    same(run, gx.diag(gx.input("v", ("n",)), k), np.diag(holes, k), v=holes)


def test_diag_refusals(x):
    with pytest.raises(gx.GraphcError, match=r"diag: takes a vector or .* f32\[n,3,4\]"):
        gx.diag(x)
    with pytest.raises(gx.GraphcError, match=r"an int k, got f32\[4\] and 0.5"):
        gx.diag(x[0, 0], 0.5)


AXES = [None, 0, 1, -1, (0, 2), (-1, 0, 1), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all",
                                  "count_nonzero"])
def test_reductions(run, x, name, axis, keepdims):
    want = getattr(np, name)(A, axis=axis, keepdims=keepdims)
    same(run, getattr(gx, name)(x, axis=axis, keepdims=keepdims), want, x=A)
    if name != "count_nonzero":
        same(run, getattr(x, name)(axis, keepdims=keepdims), want, x=A)


def test_divisors_as_numpy_names_them(run, x):
    for name in ("var", "std"):
        for got in (getattr(x, name)(ddof=1), getattr(x, name)(correction=1)):
            same(run, got, getattr(np, name)(A, ddof=1), x=A)


def test_reduction_dtypes(run):
    for dtype, total, mean in [("int8", "int64", "float32"), ("uint8", "uint64", "float32"),
                               ("bool", "int64", "float32"), ("int64", "int64", "float32"),
                               ("float16", "float16", "float16"), ("float64",) * 3]:
        t = gx.input("t", (3,), dtype)
        assert gx.sum(t).dtype.long == total
        assert gx.prod(t).dtype.long == total
        assert gx.cumulative_sum(t).dtype.long == total
        assert gx.mean(t).dtype.long == mean
        assert gx.var(t).dtype.long == mean
    t = gx.input("t", ("n",), "float16")
    same(run, gx.mean(t), 60000.0, t=np.full(100, 60000, "f2"))  # the sum would overflow
    asked = gx.mean(gx.input("f", (2,)), dtype="float64")  # summed in the dtype asked for
    assert gx.input("f", (2,)).mean(dtype="float64").dtype is gx.float64
    assert run(asked, f=np.array([2**24, 1], "f4")) == (2**24 + 1) / 2
    large = np.array([100000001, 100000003])
    same(run, gx.std(gx.input("i", (2,), "int64")), 1.0, i=large)  # in f32 both are 1e8
    same(run, gx.sum(gx.input("b", ("n",), "bool")), 3, b=[True, True, False, True])


def test_sums_within_reductions_of_halves_do_not_overflow(run):
    t = gx.input("t", ("n",), "float16")
    many, large = np.zeros(70000, "f2"), np.array([300, -400], "f2")
    half = {"rtol": 1e-3, "atol": 1e-7}
    for cost, v, want, slope in [
        (gx.logsumexp(t), many, np.log(70000), 1 / 70000),
        (gx.max(t), many, 0, 1 / 70000),
        (gx.linalg.vector_norm(t), large, 500, [0.6, -0.8]),
        (gx.linalg.vector_norm(t, ord=3), large, 91e6 ** (1 / 3), [0.4449, -0.7909]),
    ]:
        assert cost.dtype.long == "float16"
        np.testing.assert_allclose(run(cost, t=v), want, **half)
        got = run(gx.grad(cost, t), t=v)
        np.testing.assert_allclose(got, np.broadcast_to(np.float16(slope), v.shape), **half)


def test_nothing_reduced(run):
    t = gx.input("t", ("n",))
    empty = np.zeros(0, "f4")
    same(run, gx.sum(t), 0, t=empty)
    same(run, gx.prod(t), 1, t=empty)
    same(run, gx.any(t), False, t=empty)
    same(run, gx.all(t), True, t=empty)
    assert np.isnan(run(gx.mean(t), t=empty))


@pytest.mark.parametrize("op", [
    gx.max, gx.min, gx.argmax, gx.argmin, gx.logsumexp, gx.nn.softmax, gx.nn.log_softmax,
])
def test_what_needs_an_element_is_refused_by_its_name(op):
    t = gx.input("t", (2, 0))
    want = f"{op.__name__}: an axis must not be empty, got f32[2,0] over axes (1,) (test_surface"
    with pytest.raises(gx.errors.ShapeError, match=rf"^{re.escape(want)}"):
        op(t, axis=1)
    assert op(t, axis=0).size == 0


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "bool"])
def test_argmax(run, dtype):
    a = RNG.integers(0, 3, size=(3, 5)).astype(dtype)
    if dtype == "int8":
        a[0, 0] = -128
    t = gx.input("t", ("n", 5), dtype)
    for name in ("argmax", "argmin"):
        for axis in (None, 0, 1, -1):
            for keepdims in (False, True):
                want = getattr(np, name)(a, axis=axis, keepdims=keepdims)
                same(run, getattr(gx, name)(t, axis=axis, keepdims=keepdims), want, t=a)


def test_running(run, x):
    for axis in (0, 1, 2):
        same(run, gx.cumulative_sum(x, axis=axis), np.cumsum(A, axis=axis), x=A)
        same(run, gx.cumulative_prod(x, axis=axis), np.cumprod(A, axis=axis), x=A)
        same(run, gx.cumulative_max(x, axis=axis), np.maximum.accumulate(A, axis=axis), x=A)
    want = np.cumulative_sum(A, axis=1, include_initial=True) if hasattr(np, "cumulative_sum") \
        else None
    if want is not None:
        same(run, gx.cumulative_sum(x, axis=1, include_initial=True), want, x=A)
    same(run, gx.cumsum(x), np.cumsum(A), x=A)


def test_logsumexp(run):
    t = gx.input("t", (2, 3))
    a = np.array([[1000, 1000, 1000], [-np.inf, 0, 1]], "f4")
    want = [1000 + np.log(3), np.log(1 + np.e)]
    same(run, gx.logsumexp(t, axis=1), want, t=a)
    same(run, gx.logsumexp(t, axis=1, keepdims=True), np.array(want)[:, None], t=a)
    nothing = np.full((2, 3), -np.inf)
    np.testing.assert_array_equal(run(gx.logsumexp(t), t=nothing), -np.inf)
    assert np.isnan(run(gx.grad(gx.logsumexp(t), t), t=nothing)).all()  # as said


CREATION = [
    lambda m: m.arange(5), lambda m: m.arange(2, 11, 3), lambda m: m.arange(10, 0, -4),
    lambda m: m.arange(0.5, 3), lambda m: m.arange(5, 2), lambda m: m.linspace(0, 1, 7),
    lambda m: m.linspace(-5, 0, 7, dtype="int64"),
    lambda m: m.linspace(-2, 3, 4, endpoint=False), lambda m: m.linspace(1, 5, 1),
    lambda m: m.eye(3), lambda m: m.eye(3, 4, k=1), lambda m: m.eye(2, k=-1), lambda m: m.zeros(3),
    lambda m: m.ones((2, 3)), lambda m: m.full((2, 2), 7), lambda m: m.full((2,), 1.5),
    lambda m: m.zeros_like(A), lambda m: m.ones_like(A), lambda m: m.full_like(A, 3),
    lambda m: m.identity(3), lambda m: m.asarray([[1, 2], [3, 4]]),
]


@pytest.mark.parametrize("fn", CREATION)
def test_creation(run, fn):
    want = fn(np)
    t = fn(gx)
    same(run, t, want)
    assert t.dtype.numpy == want.dtype or (want.dtype == np.float64 and t.dtype is gx.float32)


def test_creation_with_symbolic_sizes(run):
    x = gx.input("x", ("n",))
    n = x.shape[0]
    assert gx.ones(n**2).shape == (n * n,) and gx.ones((n + 1) ** 0).shape == (1,)
    for k in (0, 1, 4):
        a = np.zeros(k, "f4")
        both = run([x + gx.arange(n), gx.arange(n), gx.eye(n), gx.linspace(0, 1, n), gx.ones(n),
                    gx.arange(1, n), x * n, gx.dim_value(n)], x=a)
        np.testing.assert_array_equal(both[1], np.arange(k))
        np.testing.assert_array_equal(both[2], np.eye(k))
        np.testing.assert_allclose(both[3], np.linspace(0, 1, k), rtol=1e-6)
        np.testing.assert_array_equal(both[5], np.arange(1, k))
        assert both[7] == k and both[7].dtype == np.int64


B = RNG.normal(size=(4, 5)).astype("f4")
PRODUCTS = [
    lambda m, a, b: a @ b, lambda m, a, b: a[0] @ b, lambda m, a, b: a[0, 0] @ b,
    lambda m, a, b: a @ b[:, 0], lambda m, a, b: a[0, 0] @ b[:, 0],
    lambda m, a, b: b[:3].T @ a, lambda m, a, b: b[:3, 0] @ a,
    lambda m, a, b: a[:, None] @ m.stack([b, b + 1, b * 2]),
    lambda m, a, b: m.tensordot(a, b, axes=1), lambda m, a, b: m.tensordot(a, b, axes=((2,), (0,))),
    lambda m, a, b: m.tensordot(a, a, axes=((0, 2), (0, 2))), lambda m, a, b: m.dot(a, b),
    lambda m, a, b: m.inner(a, b.T), lambda m, a, b: m.outer(b[0], b[:, 0]),
    lambda m, a, b: m.vecdot(a, a), lambda m, a, b: m.vecdot(a, b[:, 0]),
    lambda m, a, b: m.vecdot(a, a, axis=1), lambda m, a, b: m.trace(b),
    lambda m, a, b: m.diagonal(b), lambda m, a, b: m.diagonal(b, offset=2),
    lambda m, a, b: m.diagonal(b, offset=-2), lambda m, a, b: m.einsum("nij,jk->nik", a, b),
    lambda m, a, b: m.einsum("nij,jk", a, b), lambda m, a, b: m.einsum("...ij,jk->...ik", a, b),
    lambda m, a, b: m.einsum("nij->n", a), lambda m, a, b: m.einsum("nij->jin", a),
    lambda m, a, b: m.einsum("ii->i", b[:, :4]), lambda m, a, b: m.einsum("ii", b[:, :4]),
    lambda m, a, b: m.einsum("nij,nkj,nk->ni", a, a, a[:, :, 0]),
    lambda m, a, b: m.einsum("i,j->ij", b[0], b[:, 0]),
    lambda m, a, b: m.einsum("nij,nij->", a, a), lambda m, a, b: m.einsum("ij,ij->ij", b, b),
    lambda m, a, b: m.einsum("...,...->...", a, a), lambda m, a, b: m.einsum("nij,k->nk", a, b[0]),
    lambda m, a, b: m.linalg.norm(a), lambda m, a, b: m.linalg.norm(b, axis=0),
    lambda m, a, b: m.linalg.norm(b, ord=1), lambda m, a, b: m.linalg.norm(b, ord=np.inf, axis=0),
    lambda m, a, b: m.linalg.norm(b, ord=1, axis=(1, 0)),
    lambda m, a, b: m.linalg.norm(a, ord=-np.inf, axis=(-1, 0), keepdims=True),
    lambda m, a, b: m.linalg.matrix_norm(a), lambda m, a, b: m.linalg.vector_norm(a, ord=3, axis=1),
    lambda m, a, b: m.linalg.cross(a[..., :3], a[..., 1:]),
    lambda m, a, b: m.linalg.matrix_power(b[:, :4], 5),
    lambda m, a, b: m.linalg.matrix_power(b[:, :4], 0),
    lambda m, a, b: m.linalg.multi_dot([b.T, b, b.T]),
]


@pytest.mark.parametrize("i", range(len(PRODUCTS)))
def test_products(run, x, i):
    b = gx.input("b", (4, 5))
    t = PRODUCTS[i](gx, x, b)
    got = run(t, x=A, b=B)
    np.testing.assert_allclose(got, PRODUCTS[i](np, A, B), rtol=1e-4, atol=1e-5)


def test_integer_products(run):
    i = gx.input("i", ("n", 3), "int8")
    a = np.array([[100, 100, 100], [1, 2, 3]], "i1")
    same(run, i @ i.T, a @ a.T, i=a)


PROMOTION = [
    ("float32", "float64", "float64"), ("float16", "float32", "float32"),
    ("int8", "int32", "int32"),
    ("uint8", "int8", "int16"), ("uint32", "int32", "int64"), ("bool", "int8", "int8"),
    ("bool", "float16", "float16"), ("int64", "float32", "float32"),
    ("uint64", "int64", "float64"), ("float16", "bfloat16", "float32"),
]


@pytest.mark.parametrize("a,b,want", PROMOTION)
def test_promotion(a, b, want):
    x, y = gx.input("x", (), a), gx.input("y", (), b)
    assert (x + y).dtype.long == (y * x).dtype.long == want
    assert gx.result_type(x, y).long == gx.result_type(a, b).long == want


def test_python_numbers_are_weak():
    def at(dtype):
        return gx.input("x", (), dtype)

    assert (at("int8") + 1).dtype is gx.int8
    assert (at("float16") + 1).dtype is gx.float16
    assert (at("float16") + 1.5).dtype is gx.float16
    assert (at("int8") + 1.5).dtype is gx.float32
    assert (at("bool") + 1).dtype is gx.int64
    assert (at("float32") + np.float64(1)).dtype is gx.float64  # an array scalar is strong
    assert (at("int32") / at("int32")).dtype is gx.float32
    assert gx.exp(at("int32")).dtype is gx.float32
    assert gx.constant(1).dtype is gx.int64
    assert gx.constant([1.0]).dtype is gx.float32
    assert gx.constant(np.ones(2)).dtype is gx.float64
    assert gx.constant(True).dtype is gx.bool


def test_dtype_questions():
    assert gx.isdtype(gx.float32, "real floating") and not gx.isdtype(gx.int8, "real floating")
    assert gx.isdtype("int8", ("bool", "integral")) and gx.isdtype(gx.uint8, gx.uint8)
    assert gx.can_cast(gx.int8, gx.float32) and not gx.can_cast(gx.int64, gx.float32)
    assert gx.finfo(gx.float32).bits == 32 and gx.iinfo("int8").max == 127


def test_numpy_dispatch(run, x):
    same(run, np.exp(x), np.exp(A), x=A)
    same(run, A[0] + x, A[0] + A, x=A)
    same(run, np.float32(2) * x, 2 * A, x=A)
    same(run, np.mean(x, axis=1), np.mean(A, axis=1), x=A)
    same(run, np.sum(x, 0), np.sum(A, 0), x=A)
    same(run, np.concatenate([x, A], axis=0), np.concatenate([A, A]), x=A)
    same(run, np.where(x > 0, x, 0), np.where(A > 0, A, 0), x=A)
    same(run, np.add.reduce(x), np.add.reduce(A), x=A)
    same(run, np.multiply.reduce(x, axis=1), np.multiply.reduce(A, axis=1), x=A)
    same(run, np.multiply.outer(x, A[0]), np.multiply.outer(A, A[0]), x=A)
    same(run, np.subtract.outer(A[:, 0, 0], x), np.subtract.outer(A[:, 0, 0], A), x=A)
    same(run, np.maximum.outer(0.5, x), np.maximum(A, 0.5), x=A)
    same(run, np.clip(x, -1, 1), np.clip(A, -1, 1), x=A)
    same(run, np.linalg.norm(x), np.linalg.norm(A), x=A)
    same(run, np.einsum("nij->ij", x), A.sum(0), x=A)
    same(run, np.transpose(x), A.T, x=A)
    same(run, np.var(x, ddof=1), np.var(A, ddof=1), x=A)
    same(run, np.zeros_like(x) + x, A, x=A)
    same(run, np.around(x, 1), np.around(A, 1), x=A)
    same(run, np.cross(x[..., :3], x[..., 1:]), np.cross(A[..., :3], A[..., 1:]), x=A)
    same(run, np.isclose(x, A[0]), np.isclose(A, A[0]), x=A)
    assert np.shape(x) == x.shape and np.ndim(x) == 3
    y = gx.input("y", A.shape)  # graphc's own defaults are the last two axes
    same(run, np.trace(y), np.trace(A), y=A)
    same(run, np.diagonal(y, 1), np.diagonal(A, 1), y=A)
    same(run, np.linalg.trace(y), np.linalg.trace(A), y=A)
    same(run, gx.trace(y), np.linalg.trace(A), y=A)
    same(run, A[0, :, :3] @ x[:, :, 0].T, A[0, :, :3] @ A[:, :, 0].T, x=A)


NUMPY_CALLS = [  # with arguments by position where NumPy has them
    "np.diff(a, 2)", "np.diff(a, 1, 0)", "np.diff(a, 2, axis=1)", "np.diff(a, prepend=1.5)",
    "np.diff(a, 2, 0, a[:1], a)", "np.diff(a, axis=1, append=0)", "np.nan_to_num(a, True, 5.0)",
    "np.sum(a, 1, None, None, True)", "np.std(a, 1, None, None, 1, True)",
    "np.var(a, 0, None, None, 1)", "np.max(a, 1, None, True)", "np.mean(a, 0, None, None, True)",
    "np.reshape(a, (-1,), 'C')", "np.roll(a, 1, 2)", "np.isclose(a, a, 1, 1, True)",
    "np.linspace(a[1, 1, 1], 2, 5, False)", "np.concatenate([a, a], 1)", "np.round(a, 1, None)",
    "np.linspace(a[0, 0, 0], 2)", "np.pad(a, (2,))", "np.pad(a, [(1, 2)])",
]


@pytest.mark.parametrize("call", NUMPY_CALLS)
def test_arguments_stand_where_numpy_has_them(run, x, call):
    want = eval(call, {"np": np, "a": A})
    same(run, eval(call, {"np": np, "a": x}), want, x=A)


def test_known_length_iterates(run):
    t = gx.input("t", (3, 2))
    a = np.arange(6, dtype="f4").reshape(3, 2)
    assert len(t) == 3
    p, q, r = t
    same(run, p + q + r, a.sum(0), t=a)


def test_tensor_is_a_key():
    x, y = gx.input("x"), gx.input("y")
    table = {x: 1, y: 2}
    assert table[x] == 1 and table[y] == 2


def test_stop_gradient(run):
    x = gx.input("x")
    same(run, [gx.grad(x * gx.stop_gradient(x), x)][0], 3.0, x=3.0)


@pytest.mark.parametrize("call", [
    lambda x: np.add(x, x, dtype="int32"), lambda x: np.multiply(x, 3, dtype=np.int64),
    lambda x: np.add.outer(x, x, dtype="int16"), lambda x: np.left_shift(x, 4, dtype="int32"),
    lambda x: np.einsum("i,i->", x, x, dtype="int64"), lambda x: np.sqrt(x, dtype="float64"),
    lambda x: np.less(x, 101, dtype=bool),
])
def test_the_dtype_given_to_numpy_is_the_one_computed_in(call, refuses):
    a = np.array([100, 127], np.int8)
    x = gx.input("x", (2,), "int8")
    got, want = gx.function([x], call(x), mode="interpret")(a), call(a)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-15)
    with refuses("np.add: dtype=int32 cannot take f32[2]"):
        np.add(gx.input("y", (2,)), 1, dtype="int32")
