"""Sums over all rows of what each row gives: places that take turns lose and repeat none."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(3)
ROWS = (1, 15, 16, 17, 63, 64, 65, 130, 4097)


def totals(xp, x, axis):
    """Sums over rows along `axis` of what each gives, exact in any order for small integers."""
    inner = xp.sum(x, axis=axis)
    most = xp.max(x, axis=axis)
    return {
        "sum": xp.sum(inner * 2), "least": xp.min(most - inner), "greatest": xp.max(inner),
        "any": xp.any(xp.all(x > 0, axis=axis)), "all": xp.all(xp.any(x > 2, axis=axis)),
        "count": xp.sum(xp.astype(most > 1, x.dtype)),
        "ends": xp.sum(xp.round(xp.log2(xp.exp2(xp.astype(most, "float64"))))),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "int8"])
@pytest.mark.parametrize("length", [1, 3, 4, 7, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_no_row_is_lost(dtype, length, axis):
    shape = ("n", length) if axis == 1 else (length, "n")
    x = gx.input("x", shape, dtype)
    f = gx.function([x], totals(gx, x, axis))
    for n in ROWS:
        a = RNG.integers(-4, 4, (n, length) if axis == 1 else (length, n)).astype(dtype)
        if dtype == "float16":  # whose sums over all rows would not be exact
            a = (a == 3).astype(dtype) if n < 1000 else np.zeros_like(a)
        got = f(a)
        for k, want in totals(np, a, axis).items():
            exact = np.asarray(want).astype(got[k].dtype)
            np.testing.assert_array_equal(got[k], exact, err_msg=f"{k} of {n}")


@pytest.mark.parametrize("shape", [(63, 3), (4097, 4), (257, 9), (3, 1000), (300, 2, 5)])
def test_sums_of_norms(shape):
    x = gx.input("x", shape)
    axis = int(np.argmin(shape))
    norms = gx.sqrt(gx.sum(x * x, axis=axis))
    f = gx.function([x], [gx.sum(norms), gx.mean(norms), gx.prod(norms * 0.01 + 1)])
    a = RNG.normal(size=shape).astype("f4")
    want = np.sqrt(np.sum(a.astype("f8") ** 2, axis=axis))
    for got, w in zip(f(a), (want.sum(), want.mean(), np.prod(want * 0.01 + 1)), strict=True):
        np.testing.assert_allclose(got, w, rtol=2e-5)


def test_two_threads_share_the_rows():
    x = gx.input("x", (100_000, 3))
    a = RNG.integers(-4, 4, (100_000, 3)).astype("f4")
    total = gx.sum(gx.max(x, axis=1))
    for threads in (1, 2):
        f = gx.function([x], total, threads=threads)
        assert f(a) == a.max(axis=1).sum()
