"""any and all: masks as wide as what is compared, put together by `and`."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

DTYPES = ["bool", "uint8", "int16", "float16", "int32", "float32", "int64", "float64"]


def conditions(xp, x, y):
    """Of which each holds almost nowhere or almost everywhere, as x and y have it."""
    near = xp.isclose(x, y) if x.dtype in ("float32", "float64") else x == y
    return [
        x > y, ~(x <= y), (x > 3) & (y < 4), (x > 5) | (x < 0) | (y != y), (x > 3) ^ (y > 3),
        xp.where(x > 2, y > 3, x < 1), xp.isfinite(x) & near,
    ]


def any_and_all(shape, dtype):
    """Of each condition, over columns, rows and all."""
    x, y = gx.input("x", shape, dtype), gx.input("y", shape, dtype)
    found = conditions(gx, x, y)
    outs = [r(c, axis=k) for c in found for r in (gx.any, gx.all) for k in (0, 1, (0, 1))]
    return gx.function([x, y], outs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype: str) -> None:
    """Any and all of rows and columns, of declared and of named lengths."""
    rng = np.random.default_rng(31)
    named = any_and_all(("n", "m"), dtype)
    for n, m in ((1, 1), (3, 5), (40, 7), (7, 16), (5, 33), (9, 100), (2, 301), (130, 260), (0, 4)):
        a = rng.integers(0, 2 if dtype == "bool" else 6, (n, m)).astype(dtype)
        b = a.copy()
        hits = rng.random((n, m)) < 1 / (1 + m)
        b[hits] = rng.integers(0, 5, hits.sum()).astype(dtype)
        if dtype.startswith("float"):
            a[rng.random((n, m)) < 0.3 / (1 + m)] = np.nan
        wanted = conditions(np, a, b)
        want = [r(c, axis=k) for c in wanted for r in (np.any, np.all) for k in (0, 1, (0, 1))]
        for f in (named, any_and_all((n, m), dtype)):
            for got, exact in zip(f(a, b), want, strict=True):
                np.testing.assert_array_equal(got, exact, f"{n} {m} {f is named}")


@pytest.mark.parametrize("dtype", ["bool", "float32", "float64"])
def test_long_rows_by_several_threads(dtype: str) -> None:
    """What one chunk has found stays found in those after it."""
    x = gx.input("x", ("n",), dtype)
    f = gx.function([x], [gx.any(x), gx.all(x)])
    a = np.zeros(3_000_001, dtype)
    for place in (0, 70_000, 1_500_000, 3_000_000):
        a[place] = 1
        assert list(map(bool, f(a))) == [True, False]
        assert list(map(bool, f(1 - a if dtype != "bool" else ~a))) == [True, False]
        a[place] = 0
    assert list(map(bool, f(a))) == [False, False]
    assert list(map(bool, f(np.ones_like(a)))) == [True, True]


def test_masks_are_as_wide_as_what_is_compared() -> None:
    for dtype, mask in (("float64", "i64"), ("float32", "i32"), ("float16", "i32"),
                        ("int16", "i16"), ("bool", "i8")):
        x = gx.input("x", (30, 100), dtype)
        held = x if dtype == "bool" else (x > 2) & (x < 5)
        f = gx.function([x], gx.any(held, axis=1))
        assert f"{mask} = reduce_and over" in f.kernels[0].text
