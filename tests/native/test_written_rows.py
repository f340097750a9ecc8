"""Short rows within loops, written out: their values, and the bits of rows of undeclared length."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(28)
LENGTHS = (10, 16, 17, 31, 49, 63, 64, 65, 100, 128, 200)  # longer than there are rows
LEVELS = ["v2", "v3", "v4"]


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    """A CPU level, if this CPU has it: another has other widths, and masks of its own."""
    monkeypatch.setenv("GRAPHC_CPU", request.param)


def bits(results):
    return [np.asarray(r).tobytes() for r in results]


def sums(m, n, dtype):
    """Sums, extremes and products over the first and last axis of (m, 5, n)."""
    x = gx.input("x", (m, 5, n), dtype)
    over = {"axis": (0, 2)}
    found = [gx.sum(x, **over), gx.max(x, **over), gx.min(x, **over), gx.any(x > 2, **over)]
    if np.dtype(dtype).kind == "f":
        found += [gx.mean(x, **over), gx.var(x, **over), gx.prod(1 + x / 1024, **over)]
    return gx.function([x], found)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
def test_values_and_bits_at_ends_of_vectors(dtype, level):
    free = sums("m", "n", dtype)
    for n in LENGTHS:
        a = (3 * RNG.normal(size=(9, 5, n))).astype(dtype)
        a[:, 1] = -0.0
        got = sums(9, n, dtype)(a)
        assert bits(got) == bits(free(a))
        wide = a.astype(np.float64)
        eps = np.finfo(dtype).eps if a.dtype.kind == "f" else 0
        np.testing.assert_allclose(got[0], wide.sum((0, 2)), rtol=0, atol=eps * np.abs(wide).sum())
        np.testing.assert_array_equal(got[1], a.max((0, 2)))
        np.testing.assert_array_equal(got[2], a.min((0, 2)))
        np.testing.assert_array_equal(got[3], (a > 2).any((0, 2)))
        if eps:
            np.testing.assert_allclose(got[5], wide.var((0, 2)), rtol=40 * eps)
            np.testing.assert_allclose(
                got[6], (1 + wide / 1024).prod((0, 2)), rtol=10 * n * eps
            )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_stored_as_well(dtype, level):
    """A batch norm and its gradient: what a sweep needs of an earlier one is kept beside it."""
    def norm(m, n):
        x, w = gx.input("x", (m, 6, n), dtype), gx.input("w", (n,), dtype)
        mean, var = (f(x, axis=(0, 2), keepdims=True) for f in (gx.mean, gx.var))
        y = gx.exp((x - mean) / gx.sqrt(var + 0.5)) * w
        total = gx.sum(y * y, axis=(0, 2))
        return gx.function([x, w], [y, total, *gx.grad(gx.sum(total), [x, w])])

    free = norm("m", "n")
    for n in (10, 33, 49, 64, 100):
        a, w = RNG.normal(size=(8, 6, n)).astype(dtype), RNG.normal(size=n).astype(dtype)
        got = norm(8, n)(a, w)
        assert bits(got) == bits(free(a, w))
        wide = a.astype(np.float64)
        mean, var = (f(wide, axis=(0, 2), keepdims=True) for f in (np.mean, np.var))
        y = np.exp((wide - mean) / np.sqrt(var + 0.5)) * w
        rtol = 100 * np.finfo(dtype).eps
        np.testing.assert_allclose(got[0], y, rtol=rtol)
        np.testing.assert_allclose(got[1], (y * y).sum((0, 2)), rtol=rtol)


def test_all_of_a_transposed_array_in_parts_for_threads():
    def total(m, n):
        x, y = gx.input("x", (m, 60, n)), gx.input("y", (60, m, n))
        return gx.function([x, y], gx.sum(gx.transpose(x, (1, 0, 2)) * y))

    a = RNG.normal(size=(200, 60, 49)).astype("float32")
    b = RNG.normal(size=(60, 200, 49)).astype("float32")
    got = total(200, 49)(a, b)
    assert bits([got]) == bits([total("m", "n")(a, b)])
    want = (a.transpose(1, 0, 2).astype(np.float64) * b).sum()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)


def test_no_rows_and_no_results():
    for m, k in [(0, 5), (4, 0)]:
        x = gx.input("x", (m, k, 49))
        got = gx.function([x], gx.sum(x, axis=(0, 2)))(np.zeros((m, k, 49), "float32"))
        np.testing.assert_array_equal(got, np.zeros(k, "float32"))
