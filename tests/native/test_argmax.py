"""argmax and argmin as native code: first of equals, NaN, lengths around vectors and blocks."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.emission import stripes
from graphc.codegen.machine.target import host
from graphc.errors import IndexOutOfRangeError, IntegerDivisionError

LENGTHS = (1, 5, 15, 16, 17, 63, 64, 65, 255, 257, 4095, 4096, 4097, 9000)


def samples(dtype, shape):
    """Few distinct values, NaN, nothing but the least value, the greatest in one place."""
    rng = np.random.default_rng(3)
    d = np.dtype(dtype)
    least = -np.inf if d.kind == "f" else np.iinfo(d).min
    yield rng.integers(0, 4, shape).astype(d)
    yield np.full(shape, least, d)
    x = np.full(shape, least, d)
    x[..., -1] = 1
    yield x
    if d.kind == "f":
        x = rng.normal(size=shape).astype(d)
        x[rng.random(shape) < 0.01] = np.nan
        yield x


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int64"])
def test_argmax_of_rows_columns_and_whole_arrays(dtype):
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], [gx.argmax(x, axis=1), gx.argmax(x, axis=0), gx.argmax(x)])
    g = gx.function([x], [gx.argmin(x, axis=1), gx.argmin(x, axis=0), gx.argmin(x)])
    for m in LENGTHS:
        for a in samples(dtype, (3, m)):
            for ours, theirs in ((f, np.argmax), (g, np.argmin)):
                want = [theirs(a, axis=1), theirs(a, axis=0), theirs(a)]
                for got, w in zip(ours(a), want, strict=True):
                    np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16"])
def test_argmax_of_short_integers_in_many_blocks(dtype):
    """A greater element in each block, equal ones in several, the greatest there is, none."""
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], [gx.argmax(x, axis=1), gx.argmax(x), gx.argmin(x, axis=1), gx.argmin(x)])
    found = re.findall(r"<(\d+) x i(?:8|16)>", f.llvm_ir())
    assert max(map(int, found)) * 8 * x.dtype.itemsize == host().vector_bits  # registers are full
    m = 3 * 4096 + 77
    d = np.dtype(dtype)
    least, top = (0, 1) if dtype == "bool" else (np.iinfo(d).min, np.iinfo(d).max)
    for at in (0, 5, 4095, 4096, 8191, 9000, m - 1):
        for a in (least, top - 1):
            for b in {top, min(a + 1, top)}:
                rows = np.full((3, m), a, d)
                rows[1, at] = rows[1, at // 2] = b
                rows[2, at:] = b
                rows[0] = np.sort(np.resize(np.arange(least, top + 1), m)).astype(d)
                want = [np.argmax(rows, 1), np.argmax(rows), np.argmin(rows, 1), np.argmin(rows)]
                for got, w in zip(f(rows), want, strict=True):
                    np.testing.assert_array_equal(got, w)


def test_argmax_looks_at_all_elements_that_may_fail():
    x, y = gx.input("x", ("n",), "uint8"), gx.input("y", ("n",), "uint8")
    f = gx.function([x, y], gx.argmax(x // y))
    a, b = np.full(9000, 255, np.uint8), np.ones(9000, np.uint8)
    assert f(a, b) == 0
    b[8999] = 0
    with pytest.raises(gx.GraphcError, match="division by zero"):
        f(a, b)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint64"])
@pytest.mark.parametrize("m", [1, 7, 16, 40, 63, 64, 65, 100, 128, 190, 1000])
def test_argmax_of_rows_of_known_length(dtype, m):
    x, y = gx.input("x", ("n", m), dtype), gx.input("y", (m,), dtype)
    f = gx.function([x, y], [gx.argmax(x, axis=1), gx.argmin(x + y, axis=1)])
    for a in samples(dtype, (9, m)):
        b = np.arange(m).astype(dtype) % 3
        for got, w in zip(f(a, b), [np.argmax(a, axis=1), np.argmin(a + b, axis=1)], strict=True):
            np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("named", [False, True])
def test_argmax_of_rows_by_groups_of_lanes(dtype, named):
    """The greatest at every place, twice, among equal ones in the group before, behind NaN."""
    for m in (128, 150, 700):
        x = gx.input("x", ("n", "m" if named else m), dtype)
        f = gx.function([x], gx.argmax(x, axis=1))
        carried = re.findall(r"%loop.* = phi <\d+ x i(?:32|64)>", f.llvm_ir())
        if m == 700 and not named:  # one number for all vectors of a group, and what is NaN
            assert 0 < len(carried) <= 2
        a = np.zeros((m, m), dtype)
        np.fill_diagonal(a, 1)
        np.testing.assert_array_equal(f(a), np.arange(m))
        a[:, -1] = a[:, m // 2] = 1
        np.testing.assert_array_equal(f(a), np.argmax(a, axis=1))
        if a.dtype.kind == "f":
            a[:, ::31][np.random.default_rng(5).random(a[:, ::31].shape) < 0.2] = np.nan
            np.testing.assert_array_equal(f(a), np.argmax(a, axis=1))
            np.testing.assert_array_equal(f(np.full_like(a, np.nan)), np.zeros(m))
            np.testing.assert_array_equal(f(np.copysign(0, a - 0.5)), np.zeros(m))


def test_argmax_beside_what_is_stored_along_a_row_or_found_before():
    x = gx.input("x", ("n", 300))
    low = x - gx.mean(x, axis=1, keepdims=True)
    f = gx.function([x], [gx.argmax(low, axis=1), gx.argmax(abs(x), axis=1), abs(x)])
    for a in samples("float32", (5, 300)):
        if np.isfinite(a).all():
            mean = gx.function([x], low)(a)
            want = [np.argmax(mean, 1), np.argmax(np.abs(a), 1), np.abs(a)]
            for got, w in zip(f(a), want, strict=True):
                np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int16", "int64"])
def test_argmax_of_rows_in_registers(dtype):
    """All of such a row stands in one group of lanes: places are bits, and no groups are folded."""
    for m in (9, 16, 31, "m"):
        x = gx.input("x", ("n", m), dtype)
        f = gx.function([x], gx.argmax(x, axis=1))
        if isinstance(m, int):
            text = f.llvm_ir()
            assert "gather" not in text
            assert "smin" not in text
        for length in (5, 8, 16) if m == "m" else (m,):
            for a in samples(dtype, (40, length)):
                a[::7] = np.finfo(dtype).min if a.dtype.kind == "f" else np.iinfo(dtype).min
                if a.dtype.kind == "f":
                    a[1::7] = -np.inf
                    a[2::7, length // 2 :] = -0.0
                    a[3::7, 1::3] = np.nan
                np.testing.assert_array_equal(f(a), np.argmax(a, axis=1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("late", [False, True])
def test_argmax_of_long_columns(monkeypatch, dtype, late):
    """Strips of rows or one at a time, blocks of them, and the rows that are left of either."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(stripes, "waits", lambda target, reduces: late)
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], [gx.argmax(x, axis=0), gx.argmin(x[::-1], axis=0)])
    for n in (4, 5, 7, 255, 258, 777):
        kind = "float32" if dtype == "bfloat16" else dtype
        for a in samples(kind, (n, 130)):
            a[: n // 2, :9] = a[0, :9]
            a = a.astype(x.dtype.numpy)
            b = a.astype(kind)
            for got, w in zip(f(a), [b.argmax(0), b[::-1].argmin(0)], strict=True):
                np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("n", [2, 255, 256, 257, 512])
def test_argmax_of_columns_of_known_length(dtype, n):
    """Rows are counted in integers as wide as elements, as long as they can be."""
    for m in (5, 40, 150, 1024):
        x = gx.input("x", (n, m), dtype)
        f = gx.function([x], [gx.argmax(x, axis=0), gx.max(x, axis=0)])
        for a in samples(dtype, (n, m)):
            a[-1, 1::4] = 5  # the last row wins, and in other columns the first
            a[0, 2::4] = a[-1, 2::4] = 5
            got, greatest = f(a)
            np.testing.assert_array_equal(got, np.argmax(a, axis=0))
            np.testing.assert_array_equal(greatest, np.max(a, axis=0))


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_of_one_element_the_place_is_known_and_what_can_fail_is_checked(dtype):
    """Rows that are looked up did not compile, or were read wherever their indices pointed."""
    x, i = gx.input("x", ("b", "n"), dtype), gx.input("i", ("k",), "int64")
    f = gx.function([x, i], gx.argmax(gx.expand_dims(gx.take(x, i, axis=0), axis=0), axis=0))
    a = np.ones((4, 300), dtype)
    np.testing.assert_array_equal(f(a, np.array([0, 3, -4])), np.zeros((3, 300)))
    with pytest.raises(IndexOutOfRangeError, match=r"index 9 at \[2\]"):
        f(a, np.array([0, 1, 9]))
    y = gx.input("y", ("b", 1), "int32")
    g = gx.function([y], gx.argmax(7 // y, axis=1))
    assert g(np.array([[2], [5]], "i4")).tolist() == [0, 0]
    with pytest.raises(IntegerDivisionError):
        g(np.array([[2], [0]], "i4"))
