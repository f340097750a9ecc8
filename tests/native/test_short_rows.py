"""Rows so short that every lane takes one of its own: their ends, and sums over all of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(14)
ROWS = (1, 15, 16, 17, 33, 4097)


def logsumexp(a):
    top = a.max(axis=1, keepdims=True)
    return np.log(np.exp(a - top).sum(axis=1)) + top[:, 0]


def several(results):
    return [results] if isinstance(results, np.ndarray) else results


@pytest.mark.parametrize("m", [1, 3, 5, 8, 9, 10, 16, 17, 25, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_of_rows_and_their_sums(m, dtype):
    x, y = gx.input("x", ("n", m), dtype), gx.input("y", ("n",), "int64")
    each = gx.log(gx.sum(gx.exp(x), axis=1))
    f = gx.function([x, y], [
        each, gx.sum(each), gx.max(each), gx.nn.log_softmax(x, axis=1), gx.nn.cross_entropy(x, y),
    ])
    for n in ROWS:
        a, labels = RNG.normal(size=(n, m)).astype(dtype), RNG.integers(0, m, n)
        wide = a.astype(np.float64)
        ends = logsumexp(wide)
        want = [
            ends, ends.sum(), ends.max(), wide - ends[:, None],
            (ends - wide[np.arange(n), labels]).mean(),
        ]
        for got, w in zip(f(a, labels), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_short_rows_and_their_column_sums(dtype):
    x, y = gx.input("x", ("n", 8), dtype), gx.input("y", ("n",), "int64")
    loss, bias = gx.nn.cross_entropy(x, y), gx.input("b", (8,), dtype)
    moved = gx.sum(gx.logsumexp(x + bias, axis=1))
    f = gx.function([x, y, bias], [loss, gx.grad(loss, x), moved, *gx.grad(moved, [x, bias])])
    for n in ROWS:
        a, labels = RNG.normal(size=(n, 8)).astype(dtype), RNG.integers(0, 8, n)
        b = RNG.normal(size=8).astype(dtype)
        wide, shifted = a.astype(np.float64), a.astype(np.float64) + b
        slope = np.exp(wide - logsumexp(wide)[:, None])
        slope[np.arange(n), labels] -= 1
        other = np.exp(shifted - logsumexp(shifted)[:, None])
        want = [
            (logsumexp(wide) - wide[np.arange(n), labels]).mean(), slope / n,
            logsumexp(shifted).sum(), other, other.sum(axis=0),
        ]
        for got, w in zip(f(a, labels, b), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("m", [9, 10, 16, 25, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_that_need_the_ends_of_their_rows(m, dtype):
    """Stored and added up by column, they have their bits whether m is declared or not."""
    def outputs(m):
        x, bias = gx.input("x", ("n", m), dtype), gx.input("bias", (m,), dtype)
        ends = gx.logsumexp(x * bias, axis=1)
        total = gx.sum(ends)
        return gx.function([x, bias], [ends, *gx.grad(total, [x, bias]), total])

    declared, free = outputs(m), outputs("m")
    for n in (0, 1, 63, 1000):
        a, b = RNG.normal(size=(n, m)).astype(dtype), RNG.normal(size=m).astype(dtype)
        wide = a.astype(np.float64) * b
        ends = logsumexp(wide) if n else np.zeros(0)
        slopes = np.exp(wide - ends[:, None])
        want = [ends, slopes * b, (slopes * a).sum(axis=0), ends.sum()]
        got = declared(a, b)
        for x, w in zip(got, want, strict=True):
            np.testing.assert_allclose(x, w, rtol=1e-5, atol=2e-4 if dtype == "float32" else 1e-12)
        chunks = n > 63  # whose length is not the same; and totals have places for each column
        for x, y in zip(got[: 2 if chunks else 3], free(a, b), strict=False):
            assert x.tobytes() == y.tobytes()


def test_elements_of_short_rows_over_two_outer_axes():
    x = gx.input("x", (5, "n", 12))
    ends = gx.logsumexp(x, axis=2, keepdims=True)
    y = gx.tanh(x * 2)
    f = gx.function([x], [gx.exp(y - gx.logsumexp(y, axis=2, keepdims=True)), x / ends])
    a = RNG.normal(size=(5, 41, 12)).astype("f4")
    t, wide = np.tanh(a.astype(np.float64) * 2), a.astype(np.float64)
    got = f(a)
    np.testing.assert_allclose(got[0], np.exp(t) / np.exp(t).sum(2, keepdims=True), rtol=3e-6)
    np.testing.assert_allclose(
        got[1], wide / np.log(np.exp(wide).sum(2, keepdims=True)), rtol=3e-6)


@pytest.mark.parametrize("bad", [-1, 8])
def test_a_label_out_of_range_is_found_in_the_last_lane(bad):
    x, y = gx.input("x", ("n", 8)), gx.input("y", ("n",), "int64")
    f = gx.function([x, y], gx.nn.cross_entropy(x, y))
    labels = np.zeros(37, np.int64)
    a = RNG.normal(size=(37, 8)).astype("f4")
    f(a, labels)
    labels[36] = bad
    with pytest.raises(gx.errors.GraphcError, match="range"):
        f(a, labels)


def test_totals_of_short_rows_have_a_place_for_each_of_64_columns():
    x = gx.input("x", ("n", 8), "float64")
    each = gx.log(gx.sum(gx.exp(x), axis=1))
    total, rows = gx.function([x], gx.sum(each)), gx.function([x], each)
    a = RNG.normal(size=(450, 8))
    ends = np.pad(rows(a), (0, 512 - 450)).reshape(-1, 64)
    places = np.add.accumulate(ends)[-1]
    while len(places) > 1:
        places = places[: len(places) // 2] + places[len(places) // 2 :]
    assert total(a) == places[0]


@pytest.mark.parametrize("m", [3, 5])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_totals_of_short_rows_of_narrow_elements(dtype, m):
    """A register may hold 64 rows: as many as the bits of the number that counts them."""
    x = gx.input("x", ("n", m), dtype)
    y = x - gx.max(x, axis=1, keepdims=True)
    rows = gx.min(y, axis=1)
    f = gx.function([x], [gx.max(rows), gx.min(rows), rows, gx.argmax(y, axis=1) > 1])
    for n in (1, 63, 64, 65, 700):
        a = RNG.integers(0, 100, size=(n, m)).astype(dtype)
        b = a - a.max(axis=1, keepdims=True)
        want = b.min(axis=1)
        wanted = want.max(), want.min(), want, b.argmax(axis=1) > 1
        for got, w in zip(f(a), wanted, strict=True):
            np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_rows_written_out_have_the_bits_of_rows_in_loops(dtype):
    """Several of their vectors meet in one lane; the last may be cut; short ones have a lane."""
    def outputs(m):
        x = gx.input("x", ("n", m), dtype)
        outs = [gx.sum(x, axis=1), gx.max(x, axis=1), gx.argmax(x, axis=1)]
        if dtype != "int16":
            outs += [gx.nn.softmax(x, axis=1), gx.var(x, axis=1)]
        return gx.function([x], outs)

    loops = outputs("m")
    for m in (1, 2, 3, 4, 5, 8, 15, 16, 17, 24, 30, 31, 32, 33, 64, 65, 100, 128, 129, 250, 256):
        a = (RNG.normal(size=(5, m)) * 40).astype(dtype)
        a[1] = -0.0
        a[2, m // 2 :] = a[2].max()
        for got, want in zip(outputs(m)(a), loops(a), strict=True):
            assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_short_row_has_its_bits_whether_its_length_is_declared_or_not(dtype):
    """With ends that take long, with one output and many, with its places, turned or not."""
    def outputs(m):
        x = gx.input("x", ("n", m), dtype)
        total, top = gx.sum(x, axis=1), gx.max(x, axis=1)
        centred = x - total[:, None] * 0.25
        return [
            gx.function([x], gx.logsumexp(x, axis=1)),
            gx.function([x], [gx.mean(x, axis=1), gx.var(x, axis=1)]),
            gx.function([x], [gx.prod(x, axis=1), gx.sum(gx.tanh(centred), axis=1), top]),
            gx.function([x], [gx.log(gx.sum(gx.exp(x), axis=1)), gx.argmax(x, axis=1)]),
            gx.function([x], [gx.exp(total), gx.sum(x * gx.expand_dims(top, 1), axis=1)]),
            gx.function([x], [centred * gx.expand_dims(gx.sum(centred * x, axis=1), 1), top]),
        ]

    loops = outputs("m")
    for m in (2, 3, 6, 13, 16, 17, 31):
        a = RNG.normal(size=(77, m)).astype(dtype)
        a[1] = -0.0
        for declared, free in zip(outputs(m), loops, strict=True):
            for got, want in zip(several(declared(a)), several(free(a)), strict=True):
                assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_two_axes_have_their_bits_whether_declared_or_not(dtype):
    def outputs(m, k):
        x = gx.input("x", (m, "n", k), dtype)
        e = gx.exp(x)
        return [
            gx.function([x], [gx.sum(x, axis=(0, 2)), gx.max(x, axis=(0, 2))]),
            gx.function([x], [gx.log(gx.sum(e, axis=(0, 2))), gx.sum(e * e * e, axis=(0, 2))]),
        ]

    loops = outputs("m", "k")
    for m, k in [(2, 2), (3, 5), (5, 3), (2, 15), (6, 5)]:
        a = RNG.normal(size=(m, 41, k)).astype(dtype)
        for declared, free in zip(outputs(m, k), loops, strict=True):
            for got, want in zip(several(declared(a)), several(free(a)), strict=True):
                assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("m", [4, 5, 8, 13, 16, 17, 25, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_reductions_of_a_row(m, dtype):
    x = gx.input("x", ("n", m), dtype)
    centred = x - gx.mean(x, axis=1, keepdims=True)
    f = gx.function([x], [gx.var(x, axis=1), gx.max(x, axis=1) - gx.min(x, axis=1)])
    g = gx.function([x], centred / (gx.sum(centred * centred, axis=1, keepdims=True) + 1))
    for n in (0, *ROWS):
        a = RNG.normal(size=(n, m)).astype(dtype)
        wide = a.astype(np.float64)
        c = wide - wide.mean(axis=1, keepdims=True)
        want = [wide.var(axis=1), np.ptp(wide, axis=1), c / ((c * c).sum(1, keepdims=True) + 1)]
        for got, w in zip([*f(a), g(a)], want, strict=True):
            np.testing.assert_allclose(got, w, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("m", [1, 5, 16, 17, 31, 64, 100, 257])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_truths_of_a_row_are_counted(dtype, m):
    """By the bits of its conditions where masks have registers, which is as exact as a sum."""
    x = gx.input("x", ("n", m), dtype)
    hit = gx.equal(x, gx.max(x, axis=1, keepdims=True))
    count = gx.sum(gx.astype(hit, dtype), axis=1)
    f = gx.function([x], [count, x / gx.expand_dims(count, 1), gx.grad(gx.sum(gx.max(x, 1)), x)])
    a = RNG.integers(0, 4, (37, m)).astype(dtype)
    a[3], a[5, 0] = 1, np.nan
    want = (a == a.max(axis=1, keepdims=True)).astype(np.float64)
    total = want.sum(axis=1, keepdims=True)
    got = f(a)
    np.testing.assert_array_equal(got[0], total[:, 0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got[1], a / total.astype(dtype))
        np.testing.assert_array_equal(got[2], (want / np.maximum(total, 1)).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths_that_have_a_version_of_their_own(dtype):
    """Rows of two to four elements take a lane each, declared or not, and have the same bits."""
    def results(m):
        x, w = gx.input("x", ("n", m), dtype), gx.input("w", (m,), dtype)
        made = [gx.sqrt(gx.sum(x * x, axis=1)), gx.max(x * w, axis=1) * gx.dim_value(m)]
        return [gx.function([x, w], y, name=f"rows{i}") for i, y in enumerate(made)]

    undeclared = results("m")
    for f in undeclared:
        assert {f"{f.name}.k0.of{n}" for n in (2, 3, 4)} < set(
            re.findall(r"call void @([.\w]+)\(ptr %ctx", f.llvm_ir())
        )
    for m in (1, 2, 3, 4, 5, 40):
        declared = results(m)
        for n in (0, 1, 7, 17, 1000):
            a, w = RNG.normal(size=(n, m)).astype(dtype), RNG.normal(size=m).astype(dtype)
            wants = [np.sqrt((a * a).sum(axis=1)), (a * w).max(axis=1) * m]
            for f, g, want in zip(undeclared, declared, wants, strict=True):
                assert f(a, w).tobytes() == g(a, w).tobytes(), (m, n)
                np.testing.assert_allclose(f(a, w), want, rtol=1e-5)
    assert [f.compilations for f in undeclared] == [1, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_sums_begin_with_zero(dtype):
    """Of -0 alone, too, whatever the length of a row, and whether it is known; of others the bits
    are those of rows of unknown length."""
    x = gx.input("x", ("n", "m"), dtype)
    swept = gx.function([x], gx.sum(x, axis=1))
    for m in (1, 2, 3, 4, 7, 8, 12, 16, 17, 31, 32, 33, 64, 100):
        a = RNG.normal(size=(37, m)).astype(dtype)
        a[::3] = -0.0
        a[1::6, : m // 2] = 0.0
        k = gx.input("k", (37, m), dtype)
        f = gx.function([k], gx.sum(k, axis=1))
        got = f(a)
        assert got.tobytes() == swept(a).tobytes(), m
        assert not np.signbit(got[::3]).any(), m
