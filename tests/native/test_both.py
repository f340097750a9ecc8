"""Both products of a matrix in one reading: the bits of separate kernels, for any rows and columns,
threads, and as a library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphc as gx
from graphc.passes.fuse import Fusion

APART = (*gx.PIPELINE[:-1], lambda g: Fusion(g).run())
# around groups of rows, blocks of 256 and of 192, registers, lanes and blocks of 4096 columns
SIZES = [(0, 3), (1, 1), (3, 2), (5, 17), (129, 31), (191, 64), (193, 65), (255, 20), (257, 21),
         (773, 257), (1153, 40), (131, 4096), (12, 4101), (70, 8200)]


def chained(a, x, w):
    return [a.T @ (a @ x)]


def apart(a, x, w):
    return [w - a @ x, 2.0 * (w @ a) + x]


def gradient(a, x, w):
    r = gx.tanh(a @ x) * w
    return [r, r @ a + 0.5 * x, gx.sum(r)]


def columns(a, x, w):
    u, v = gx.reshape(x, (-1, 1)), gx.reshape(w, (-1, 1))
    return [a @ u + v, a.T @ v]


def lying(a, x, w):
    u, v = gx.reshape(x, (1, -1)), gx.reshape(w, (1, -1))
    return [v @ a, w @ a, u @ a.T, (v + 1.0) @ a]


def lying_alone(a, x, w):
    return [gx.reshape(w, (1, -1)) @ a, w @ a]


def function(formula, dtype, pipeline=gx.PIPELINE, shape=("m", "n"), **options):
    m, n = shape
    a, x, w = gx.input("a", (m, n), dtype), gx.input("x", (n,), dtype), gx.input("w", (m,), dtype)
    return gx.function([a, x, w], formula(a, x, w), pipeline=pipeline, name="both", **options)


def arrays(dtype, m, n):
    rng = np.random.default_rng(m + n)
    return [rng.normal(size=s).astype(dtype) for s in ((m, n), n, m)]


def products(f):
    """How many products each kernel has."""
    fused = [n for n in f.optimized.nodes if n.op.name == "fused"]
    return [sum(m.op.name == "dot" for m in n.attrs["body"].nodes) for n in fused]


def same(got, want):
    return all(p.tobytes() == q.tobytes() for p, q in zip(got, want, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", [chained, apart, gradient, columns, lying])
def test_bits_of_separate_kernels(formula, dtype):
    one, two = function(formula, dtype), function(formula, dtype, APART)
    assert 2 in products(one) and 2 not in products(two)
    for m, n in SIZES:
        given = arrays(dtype, m, n)
        got = one(*given)
        assert same(got, two(*given)), (m, n)
        want = function(formula, "float64", mode="interpret")(*(a.astype("f8") for a in given))
        close = {"float32": 1e-4, "float64": 1e-12}[dtype]
        for p, q in zip(got, want, strict=True):
            assert np.all(np.abs(p - q) <= close * (1 + np.abs(q).max(initial=0))), (m, n)


def in_double(a, x, w):
    """`gradient` by NumPy."""
    r = np.tanh(a.astype("f8") @ x) * w
    return [r, r @ a + 0.5 * x, r.sum()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wherever_a_line_of_the_cache_begins(dtype):
    """Rows of whole lines are read by these, of which the first and the last have others' elements;
    what stands there reaches no sum."""
    f, line = function(gradient, dtype), 64 // np.dtype(dtype).itemsize
    for m, n in ((9, line), (21, 4 * line), (13, 16 * line + line), (7, 64 * line), (5, 33)):
        a, x, w = arrays(dtype, m, n)
        want = None
        for behind in range(line):
            room = np.full(m * n + 3 * line, np.nan, dtype)
            first = -room.ctypes.data // room.itemsize % line + behind
            there = room[first : first + m * n].reshape(m, n)
            there[...] = a
            got = f(there, x, w)
            want = want or got
            assert same(got, want), (m, n, behind)
        for p, q in zip(want, in_double(a, x, w), strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-3, atol=1e-3)


def test_two_products_with_vectors_on_the_left_stay_apart():
    f = function(lying_alone, "float64")
    assert 2 not in products(f)
    for m, n in ((1024, 1024), (1153, 40), (3, 5)):
        a, x, w = arrays("float64", m, n)
        for got, want in zip(f(a, x, w), (w[None, :] @ a, w @ a), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("formula", [chained, gradient])
def test_any_number_of_threads(formula, monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    given = arrays("float32", 2501, 300)
    want = function(formula, "float32", threads=1)(*given)
    for threads in (2, 4):
        assert same(function(formula, "float32", threads=threads)(*given), want), threads


def test_in_a_library(tmp_path: Path):
    f = function(gradient, "float32")
    lib = gx.load(gx.export(f, tmp_path / "libboth.so"))
    given = arrays("float32", 900, 70)
    assert same(lib.both(*given), f(*given))


def test_states_are_updated_together():
    rng = np.random.default_rng(0)
    data, aims = rng.normal(size=(800, 40)), rng.normal(size=800)
    w = gx.variable(np.zeros(40), "w", dtype="float64")
    x, y = gx.input("x", ("m", 40), "float64"), gx.input("y", ("m",), "float64")
    r = x @ w - y
    step = gx.function([x, y], gx.mean(r * r), updates=[(w, w - 1e-3 * (r @ x))], name="descend")
    assert 2 in products(step)
    want = np.zeros(40)
    for _ in range(3):
        gap = data @ want - aims
        np.testing.assert_allclose(step(data, aims), np.mean(gap * gap))
        want = want - 1e-3 * (gap @ data)
    np.testing.assert_allclose(w.value, want)


def test_memory_holds_no_copy_of_the_matrix():
    """A sum for every 192 rows, and the vector between."""
    f = function(chained, "float64", shape=(2048, 2048))
    given = arrays("float64", 2048, 2048)
    np.testing.assert_allclose(f(*given)[0], given[0].T @ (given[0] @ given[1]), atol=1e-9)
    arena = int(f.memory_plan().rpartition("arena: ")[2].split()[0])
    assert arena < 8 * 2048 * (2 + 11 + 1)
