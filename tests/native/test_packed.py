"""Sums of short rows, by vectors that hold several of these."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.machine import target

ROWS = (1, 2, 15, 16, 17, 31, 512, 513, 700, 4095, 4096, 4097, 4111, 9001)


def whole(n, c, dtype):
    """Whole numbers, of which any order of sums gives the same."""
    return np.random.default_rng(16 * n + c).integers(-9, 10, (n, c)).astype(dtype)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint16"])
@pytest.mark.parametrize("c", [2, 3, 5, 7, 8, 15])
def test_every_number_of_rows(c, dtype, level, schedules, monkeypatch) -> None:
    """Whole blocks, what is left of them, and bands; numbers of columns and single ones beside."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    x, m, k = gx.input("x", ("n", c), dtype), gx.input("m", (c,), dtype), gx.input("k", (), dtype)
    f = gx.function([x, m, k], [
        gx.sum((x - m) * (x + k), axis=0), gx.max(gx.maximum(x, m), axis=0),
        gx.min(x, axis=0) + m, gx.any(x > k, axis=0),
    ])
    for n in ROWS:
        a, b, one = whole(n, c, dtype), whole(1, c, dtype)[0], np.array(3, dtype)
        total, most, least, some = f(a, b, one)
        np.testing.assert_array_equal(total, ((a - b) * (a + one)).sum(0, dtype=total.dtype))
        np.testing.assert_array_equal(most, np.maximum(a, b).max(0))
        np.testing.assert_array_equal(least, a.min(0) + b)
        np.testing.assert_array_equal(some, (a > one).any(0))
    assert any(s.packed for s in schedules) == (c * max(4, np.dtype(dtype).itemsize) < 64)


@pytest.mark.parametrize("c", [3, 4, 10])
@pytest.mark.parametrize("n", ["n", 9001])
def test_sums_that_round(n, c, monkeypatch) -> None:
    """Have the same bits at every level and for every number of threads, near those of f64."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    a = np.random.default_rng(5).normal(3, 1, (9001, c)).astype("float32")
    found = set()
    for level in [v for v in levels() if v != "v2"]:
        here = at_level(level)
        monkeypatch.setattr(target, "host", lambda here=here: here)
        for threads in (1, 2, 4):
            x = gx.input("x", (n, c))
            f = gx.function(
                [x], [gx.sum(x, axis=0), gx.var(x, axis=0), gx.mean(gx.exp(x), axis=0)],
                threads=threads,
            )
            got = f(a)
            found.add(tuple(v.tobytes() for v in got))
    assert len(found) == 1
    wide = a.astype("float64")
    for v, want in zip(got, (wide.sum(0), wide.var(0), np.exp(wide).mean(0)), strict=True):
        np.testing.assert_allclose(v, want, rtol=3e-6)


@pytest.mark.parametrize("bad", [0, 4099, 9000])
def test_the_first_nan_is_greatest(bad) -> None:
    a = np.random.default_rng(1).normal(size=(9001, 3)).astype("float32")
    a[bad, 1] = np.nan
    x = gx.input("x", ("n", 3))
    most, least = gx.function([x], [gx.max(x, axis=0), gx.min(x, axis=0)])(a)
    np.testing.assert_array_equal(most, a.max(0))
    np.testing.assert_array_equal(least, a.min(0))


@pytest.mark.parametrize("make, packs", [
    (lambda m, x, r: m.sum(x, axis=0), True),
    (lambda m, x, r: m.sum(m.abs(x * r[:, None]), axis=0), True),  # numbers of rows
    (lambda m, x, r: m.sum(x[::2], axis=0), False),                # every second row
    (lambda m, x, r: m.sum(x[:, :4], axis=0), False),              # part of rows
    (lambda m, x, r: m.sum(x[1:], axis=0), True),
    (lambda m, x, r: m.argmax(x, axis=0), False),
])
def test_where_it_is_done(make, packs, schedules) -> None:
    x, r = gx.input("x", ("n", 5)), gx.input("r", ("n",))
    f = gx.function([x, r], make(gx, x, r))
    a, b = whole(5001, 5, "float32"), whole(5001, 1, "float32")[:, 0]
    np.testing.assert_array_equal(f(a, b), make(np, a, b))
    assert any(s.packed for s in schedules) == packs


def test_a_vector_has_no_empty_lanes(monkeypatch) -> None:
    """Sums of 3 columns take whole vectors."""
    if "v4" not in levels():
        pytest.skip("the text is that of AVX-512")
    here = at_level("v4")
    monkeypatch.setattr(target, "host", lambda: here)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", 3))
    text = gx.function([x], gx.sum(x, axis=0)).llvm_ir()
    loops = re.findall(r"((?:  %loop\S+ = phi <16 x float> .*\n)+)", text)
    assert max(loop.count("phi") for loop in loops) == 3


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("c", [2, 3, 6, 8, 13, 16, 20, 64])
def test_all_of_short_rows(c, dtype, level, schedules, monkeypatch) -> None:
    """With numbers of columns and rows, of which some stand apart, and what is stored beside."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    x, m = gx.input("x", ("n", c), dtype), gx.input("m", (c,), dtype)
    r, k = gx.input("r", ("n", 3), dtype), gx.input("k", (), dtype)
    off = (x - m) * (r[:, 1, None] + k) + r[:, None, 0] * m
    f = gx.function([x, m, r, k], [gx.sum(off), gx.max(off) - k, off * 2])
    one = np.array(2, dtype)
    for n in ROWS:
        a, b, w = whole(n, c, dtype), whole(1, c, dtype)[0], whole(n, 3, dtype)
        want = (a - b) * (w[:, 1, None] + one) + w[:, None, 0] * b
        total, most, twice = f(a, b, w, one)
        assert total == want.sum() and most == want.max() - one
        np.testing.assert_array_equal(twice, want * 2)
    assert any(s.packed and s.flat for s in schedules)


def test_totals_that_round(monkeypatch) -> None:
    """Have the same bits at every level and for every number of threads."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    rng = np.random.default_rng(6)
    a, b = rng.normal(3, 1, (20_011, 3)).astype("f4"), rng.normal(size=20_011).astype("f4")
    found = set()
    for level in [v for v in levels() if v != "v2"]:
        here = at_level(level)
        monkeypatch.setattr(target, "host", lambda here=here: here)
        for threads in (1, 2, 4):
            x, r = gx.input("x", ("n", 3)), gx.input("r", ("n",))
            loss = gx.mean(r[:, None] * (x - gx.mean(x, axis=0)) ** 2)
            got = gx.function([x, r], loss, threads=threads)(a, b)
            found.add(got.tobytes())
    assert len(found) == 1
    wide = a.astype("f8")
    want = np.mean(b[:, None] * (wide - wide.mean(0)) ** 2)
    np.testing.assert_allclose(got, want, rtol=1e-5)
