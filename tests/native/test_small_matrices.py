"""Products and sums of many small matrices: vectors run along the matrices, whose elements shuffles
bring into registers of their own."""

from __future__ import annotations

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine import target
from graphc.codegen.machine.target import x86

ROWS = (0, 1, 2, 7, 8, 15, 16, 17, 33, 300)


def by(m, a, x):
    return m.einsum("nij,nj->ni", a, x)


def turned(m, a):
    return m.matrix_transpose(a)


FORMULAS = {
    "by a vector": lambda m, a, b, x, y: by(m, a, x),
    "a vector by it": lambda m, a, b, x, y: m.einsum("ni,nij->nj", x, a) + y,
    "both": lambda m, a, b, x, y: by(m, a, x) * m.einsum("ni,nij->nj", y, a),
    "two": lambda m, a, b, x, y: a @ b,
    "with one turned": lambda m, a, b, x, y: a @ turned(m, b) - b,
    "with the other": lambda m, a, b, x, y: turned(m, a) @ b,
    "three": lambda m, a, b, x, y: a @ b @ turned(m, a),
    "a form": lambda m, a, b, x, y: m.sum(x * by(m, a, y), axis=1),
    "of an error": lambda m, a, b, x, y: m.sum((by(m, a, x) - y) ** 2),
    "of errors": lambda m, a, b, x, y: m.sum((by(m, a, x) - y) ** 2, axis=1),
    "the greatest": lambda m, a, b, x, y: m.max(by(m, a, x) - y, axis=1),
    "beside its sum": lambda m, a, b, x, y: by(m, a, x) * m.sum((by(m, a, x)), axis=1)[:, None],
    "of a product": lambda m, a, b, x, y: m.sum((a @ b) * a),
    "of vectors": lambda m, a, b, x, y: x[:, :, None] * y[:, None, :] + a,
    "by elements": lambda m, a, b, x, y: m.sum(a * x[:, None, :], axis=2),
    "of columns": lambda m, a, b, x, y: m.sum(a * x[:, :, None], axis=1) - y,
    "distances": lambda m, a, b, x, y: m.sum((x[:, :, None] - y[:, None, :]) ** 2 * a, axis=2),
    "the greatest of rows": lambda m, a, b, x, y: m.max(a - x[:, None, :], axis=2),
    "less it": lambda m, a, b, x, y: a - m.max(a * x[:, None, :], axis=2, keepdims=True),
    "and its turned": lambda m, a, b, x, y: a + turned(m, a),
    "error by vector": lambda m, a, b, x, y: (by(m, a, x) - y)[:, :, None] * x[:, None, :],
}


def arrays(k, n, dtype):
    """Whole numbers, of which any order of sums gives the same."""
    rng = np.random.default_rng(k * 1000 + n)
    shapes = (n, k, k), (n, k, k), (n, k), (n, k)
    return [rng.integers(-3, 4, s).astype(dtype) for s in shapes]


def inputs(k, dtype, n="n"):
    shapes = (n, k, k), (n, k, k), (n, k), (n, k)
    return [gx.input(name, s, dtype) for name, s in zip("abxy", shapes, strict=True)]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 9])
def test_values(k, dtype, level, monkeypatch):
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    given = inputs(k, dtype)
    f = gx.function(given, [formula(gx, *given) for formula in FORMULAS.values()])
    for n in ROWS:
        made = arrays(k, n, dtype)
        for (what, formula), got in zip(FORMULAS.items(), f(*made), strict=True):
            np.testing.assert_array_equal(got, formula(np, *made), err_msg=what)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [2, 4, 7])
@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("what", FORMULAS)
def test_each_by_itself(what, level, k, dtype, monkeypatch):
    """Kernels that nothing else is in, whose text may grow."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    given = inputs(k, dtype)
    f = gx.function(given, FORMULAS[what](gx, *given))
    for n in (15, 16, 100):
        made = arrays(k, n, dtype)
        np.testing.assert_array_equal(f(*made), FORMULAS[what](np, *made))


@pytest.mark.parametrize("k", [2, 4, 6])
def test_gradients(k):
    given = inputs(k, "float64")
    made = arrays(k, 37, "float64")
    a, _, x, y = made
    got = gx.function(given, gx.grad(FORMULAS["of an error"](gx, *given), [given[0], given[2]]))(
        *made)
    r = 2 * (by(np, a, x) - y)
    np.testing.assert_array_equal(got[0], r[:, :, None] * x[:, None, :])
    np.testing.assert_array_equal(got[1], np.einsum("ni,nij->nj", r, a))


@pytest.mark.parametrize("what", [
    "of an error", "of errors", "of a product", "three", "by elements", "of columns", "less it",
])
def test_bits_are_the_same_at_all_levels_and_for_any_threads(what, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    rng = np.random.default_rng(3)
    n, k = 20_001, 4
    made = [rng.normal(size=a.shape).astype("float32") for a in arrays(k, n, "float32")]
    found = set()
    for level in [v for v in levels() if v != "v2"]:
        here = at_level(level)
        monkeypatch.setattr(target, "host", lambda here=here: here)
        for threads in (1, 2, 4):
            given = inputs(k, "float32")
            f = gx.function(given, FORMULAS[what](gx, *given), threads=threads)
            found.add(f(*made).tobytes())
    assert len(found) == 1
    want = FORMULAS[what](np, *[a.astype("float64") for a in made])
    got = np.frombuffer(found.pop(), "float32").reshape(np.shape(want))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("what", [
    "two", "three", "of an error", "of errors", "of vectors", "by elements", "of columns",
    "distances", "the greatest of rows", "less it", "and its turned",
])
def test_what_is_unrolled(what):
    """Loops over matrices alone, of which vectors are read and shuffled, and none is gathered."""
    given = inputs(3, "float32", 40)
    f = gx.function(given, FORMULAS[what](gx, *given))
    (kernel,) = f.kernels
    assert "reduce" not in kernel.text.splitlines()[0] and ", " not in kernel.text.splitlines()[0]
    text = compile_graph(f.optimized, x86("v4")).llvm
    assert "masked.gather" not in text and "shufflevector" in text


def test_a_vector_that_overlaps_another_reads_what_was_not_written():
    """The sum has no place of its own but that of the product before it, if all is read once."""
    x, w = gx.input("x", ("n", 20)), gx.input("w", (20, 9))
    b, c, v = gx.input("b", ("n", 3, 3)), gx.input("c", ("n", 3, 3)), gx.input("v", (9, 30))
    y = gx.reshape(x @ w, (x.shape[0], 3, 3)) + b @ c
    f = gx.function([x, w, b, c, v], gx.reshape(y, (x.shape[0], 9)) @ v)
    rng = np.random.default_rng(5)
    for n in ROWS:
        shapes = (n, 20), (20, 9), (n, 3, 3), (n, 3, 3), (9, 30)
        p, q, r, s, t = made = [rng.integers(-3, 4, shape).astype("f4") for shape in shapes]
        want = ((p @ q).reshape(n, 3, 3) + r @ s).reshape(n, 9) @ t
        np.testing.assert_array_equal(f(*made), want)
