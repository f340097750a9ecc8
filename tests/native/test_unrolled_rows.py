"""Short rows whose elements are vectors of rows: values, bits, and what is read and written."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine.target import host, neon, x86

ROWS = (1, 15, 16, 17, 31, 32, 47, 64, 65, 100)
OPS = {
    "softmax": lambda x: gx.nn.softmax(x, axis=1),
    "norm": lambda x: x / gx.sqrt(gx.sum(x * x, axis=1, keepdims=True) + 1e-6),
    "standard": lambda x: (
        (x - gx.mean(x, axis=1, keepdims=True)) / gx.std(x, axis=1, keepdims=True)
    ),
    "ends": lambda x: gx.logsumexp(x, axis=1),
    "least": lambda x: x - gx.min(x, axis=1, keepdims=True),
    "sum": lambda x: gx.sum(x, axis=1),
    "product": lambda x: gx.prod(x, axis=1) / gx.max(x, axis=1),
}


def reference(name, a):
    """In f64, by NumPy."""
    a = a.astype(np.float64)
    top = a.max(axis=1, keepdims=True)
    e = np.exp(a - top)
    total = e.sum(axis=1, keepdims=True)
    return {
        "softmax": lambda: e / total,
        "norm": lambda: a / np.sqrt((a * a).sum(axis=1, keepdims=True) + 1e-6),
        "standard": lambda: (a - a.mean(axis=1, keepdims=True)) / a.std(axis=1, keepdims=True),
        "ends": lambda: (np.log(total) + top)[:, 0],
        "least": lambda: a - a.min(axis=1, keepdims=True),
        "sum": lambda: a.sum(axis=1),
        "product": lambda: a.prod(axis=1) / a.max(axis=1),
    }[name]()


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16, 17])
def test_rows_have_the_bits_of_named_lengths_and_nothing_else_is_written(m, dtype):
    """Named lengths are swept by vectors; the last vector of rows may lie over the one before."""
    shapes = [("n", m), ("n", "m")]
    inputs = [gx.input("x", s, dtype) for s in shapes]
    rng = np.random.default_rng(m)
    known, named = (gx.function([x], [op(x) for op in OPS.values()]) for x in inputs)
    for n in ROWS:
        around = np.full(n * m + 64, 1e30, dtype)
        a = around[32 : 32 + n * m].reshape(n, m)
        a[:] = rng.normal(size=(n, m))
        outs, guarded = [], []
        for want in named(a):
            guarded.append(np.full(want.size + 64, 7, dtype))
            outs.append(guarded[-1][32 : 32 + want.size].reshape(want.shape))
        known(a, out=outs)
        for name, got, want, guard in zip(OPS, outs, named(a), guarded, strict=True):
            assert got.tobytes() == want.tobytes(), (name, n)
            assert (guard[:32] == 7).all() and (guard[32 + want.size :] == 7).all()
            tolerance = 3e-5 if dtype == "float32" else 1e-13
            if m > 2 or name != "standard":  # of two elements all are 1 or -1, or 0 / 0
                np.testing.assert_allclose(got, reference(name, a), tolerance, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_that_are_none_or_have_a_sign_alone(dtype):
    """Sums begin with 0 and are never -0; NaN is the greatest, and the least."""
    x = gx.input("x", ("n", 5), dtype)
    f = gx.function([x], [gx.sum(x, axis=1), gx.max(x, axis=1), gx.min(x, axis=1)])
    a = np.full((70, 5), -0.0, dtype)
    a[3, 2], a[69, 4], a[20, 1], a[21, 1] = np.nan, np.nan, np.inf, -np.inf
    total, top, low = f(a)
    assert not np.signbit(total[0])
    for got, want in ((total, a.sum(axis=1)), (top, a.max(axis=1)), (low, a.min(axis=1))):
        np.testing.assert_array_equal(got, want)


def test_rows_beside_numbers_of_their_own_and_of_columns():
    x, w = gx.input("x", ("n", 6), "float64"), gx.input("w", ("n",), "float64")
    b = gx.input("b", (6,), "float64")
    y = gx.exp(x * w[:, None] + b)
    total = gx.sum(y, axis=1, keepdims=True)
    f = gx.function([x, w, b], [y / total, gx.log(total[:, 0]) * w])
    a, v, c = (np.random.default_rng(33).normal(size=s) for s in ((101, 6), 101, 6))
    e = np.exp(a * v[:, None] + c)
    got = f(a, v, c)
    np.testing.assert_allclose(got[0], e / e.sum(axis=1, keepdims=True), 1e-13)
    np.testing.assert_allclose(got[1], np.log(e.sum(axis=1)) * v, 1e-13)


def test_a_state_is_changed_once():
    """Where vectors of rows overlap, what they read must not be what they wrote."""
    x, s = gx.input("x", (37, 8)), gx.variable(np.zeros(37, "f4"), "s")
    t = gx.variable(np.ones((37, 8), "f4"), "t")
    ends = gx.logsumexp(x, axis=1)
    f = gx.function([x], [], updates={s: s + ends, t: t * gx.nn.softmax(x, axis=1)})
    a = np.random.default_rng(34).normal(size=(37, 8)).astype("f4")
    f(a)
    f(a)
    np.testing.assert_allclose(s.value, 2 * reference("ends", a), 1e-6)
    np.testing.assert_allclose(t.value, reference("softmax", a) ** 2, 1e-5)


@pytest.mark.parametrize("n", [40, 20_000])
def test_losses_of_classes_and_their_gradients(n):
    """Labels read elements by their positions; the mean adds up all rows."""
    x, labels = gx.input("x", ("n", 10)), gx.input("labels", ("n",), "int64")
    loss = gx.nn.cross_entropy(x, labels)
    f = gx.function([x, labels], [loss, gx.grad(loss, x)])
    rng = np.random.default_rng(n)
    a, at = rng.normal(size=(n, 10)).astype("f4"), rng.integers(0, 10, n)
    wide = a.astype(np.float64)
    slope = reference("softmax", a)
    picked = reference("ends", a) - wide[np.arange(n), at]
    slope[np.arange(n), at] -= 1
    value, grad = f(a, at)
    np.testing.assert_allclose(value, picked.mean(), 2e-6)
    np.testing.assert_allclose(grad, slope / n, 1e-4, 1e-7 / n)
    at[n - 1] = 10
    with pytest.raises(gx.errors.GraphcError, match="range"):
        f(a, at)


def test_threads_that_share_rows_write_the_same(monkeypatch):
    x = gx.input("x", ("n", 12))
    a = np.random.default_rng(35).normal(size=(8192 * 3 + 5, 12)).astype("f4")
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    got = [gx.function([x], gx.nn.softmax(x, axis=1), threads=t)(a) for t in (1, 4)]
    assert got[0].tobytes() == got[1].tobytes()
    np.testing.assert_allclose(got[0], reference("softmax", a), 1e-5)


@pytest.mark.parametrize(
    "target", [x86("v2"), x86("v3"), x86("v4"), neon("aarch64-unknown-linux-gnu")],
    ids=["v2", "v3", "v4", "neon"],
)
def test_lanes_are_neither_gathered_nor_scattered(target):
    x = gx.input("x", (4096, 4))
    f = gx.function([x], gx.nn.softmax(x, axis=1))
    text = compile_graph(f.optimized, target).llvm
    assert "gather" not in text and "scatter" not in text
    assert text.count("shufflevector") >= 16  # two by two, in and out


def test_what_a_register_of_zeros_is_not_made_with():
    """By lanes that LLVM knows, zeros beside a row are a vexpandpd, which takes Zen 5 30 cycles."""
    x = gx.input("x", ("n", 14), "float64")
    f = gx.function([x], x - gx.mean(x, axis=1, keepdims=True))
    if host().masked:
        assert "vexpand" not in f.assembly()
