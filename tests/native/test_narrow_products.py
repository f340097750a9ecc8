"""Products of a vector with a matrix of short rows, and losses of short rows: as sums."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

ROWS = (0, 1, 15, 17, 64, 129, 700, 5001)


def operands(c, dtype):
    return [gx.input(k, s, dtype) for k, s in (("x", ("n", c)), ("w", (c,)), ("y", ("n",)))]


def whole(rng, *shape):
    return rng.integers(-9, 10, shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("c", [2, 5, 8, 10, 16, 17, 31, 32, 33])
def test_values(c, dtype) -> None:
    """Along rows and down them, by vectors that are given, computed, or matrices of one column."""
    x, w, y = operands(c, dtype)
    f = gx.function([x, w, y], [
        x @ w, gx.maximum(x @ (w + 1), 0.0) * y, y @ x, (y * y - 3.0) @ x, x @ w[:, None],
        x.T @ y[:, None],
    ])
    rng = np.random.default_rng(c)
    for n in ROWS:
        a, b, d = (whole(rng, *s).astype(dtype) for s in ((n, c), (c,), (n,)))
        want = [a @ b, np.maximum(a @ (b + 1), 0) * d, d @ a, (d * d - 3) @ a, a @ b[:, None],
                a.T @ d[:, None]]
        found = f(a, b, d)
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, expected)
        for product in (found[0], *found[2:]):
            assert not np.signbit(product[product == 0]).any()


@pytest.mark.parametrize("dtype, rtol", [("float32", 2e-4), ("float64", 1e-11)])
@pytest.mark.parametrize("c", [3, 8, 16])
def test_a_regression_and_its_gradient(c, dtype, rtol) -> None:
    """Residuals, their squares' mean, and what the weights get: for any number of threads."""
    x, w, y = operands(c, dtype)
    loss = gx.mean((x @ w - y) ** 2)
    rng = np.random.default_rng(c)
    for n in (1, 130, 5001):
        a, b, d = (rng.normal(size=s).astype(dtype) for s in ((n, c), (c,), (n,)))
        runs = [gx.function([x, w, y], [loss, gx.grad(loss, w)], threads=t)(a, b, d)
                for t in (1, 2, 4)]
        off = a.astype("f8") @ b - d
        np.testing.assert_allclose(runs[0][0], np.mean(off**2), rtol=rtol)
        slope = 2 * off @ a.astype("f8") / n
        np.testing.assert_allclose(runs[0][1], slope, rtol=rtol, atol=rtol * np.abs(slope).max())
        assert len({tuple(v.tobytes() for v in run) for run in runs}) == 1


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-5), ("float64", 1e-13)])
@pytest.mark.parametrize("c", [3, 8, 16, 20, 31])
def test_losses_of_short_rows(c, dtype, rtol) -> None:
    """Added up in a kernel of their own, where rows have lanes."""
    x, r, s = (gx.input(k, v, dtype) for k, v in (("x", ("n", c)), ("r", ("n",)), ("s", ("n",))))
    norms = gx.sqrt(gx.sum(x * x, axis=1))
    f = gx.function([x, r, s], [gx.sum(norms * r), norms * r + s, gx.mean(gx.max(x, axis=1) - s)])
    rng = np.random.default_rng(c)
    for n in (1, 17, 64, 700, 5001):
        a, b, d = (rng.uniform(0.5, 1, size).astype(dtype) for size in ((n, c), n, n))
        found = np.sqrt((a.astype("f8") ** 2).sum(1))
        want = [(found * b).sum(), found * b + d, (a.max(1) - d.astype("f8")).mean()]
        for got, expected in zip(f(a, b, d), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-6 if c < 4 else 0)


@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_numbers_of_rows_choose_no_axis(numbers) -> None:
    """Rows of 24 are read along them, however many numbers of their own go with their sums."""
    x = gx.input("x", ("n", 24))
    rows = [gx.input(f"r{k}", ("n",)) for k in range(numbers)]
    total = gx.sum(x, axis=1)
    for r in rows:
        total = total * r
    f = gx.function([x, *rows], total)
    a = np.random.default_rng(0).integers(-9, 10, (300, 24)).astype("float32")
    given = [np.full(300, 2.0, "float32")] * numbers
    np.testing.assert_array_equal(f(a, *given), a.sum(1) * 2.0**numbers)
    assert "gather" not in f.llvm_ir()
