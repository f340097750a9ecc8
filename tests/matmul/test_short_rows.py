"""Rows of a few registers times a vector: the bits of rows of any length, and nothing beyond."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import guarded
from native import call, compiled
from operands import FLOATS, check, numbers
from scalar_harness import levels

import graphc as gx
from graphc.codegen.machine.target import host, x86
from graphc.codegen.matmul.short_rows import is_short
from graphc.types import as_dtype

LENGTHS = (4, 5, 8, 9, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129)
SHORT = {  # of LENGTHS; without masks, whole registers alone
    ("float32", "v2"): [], ("float64", "v2"): [],
    ("float32", "v3"): [9, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128],
    ("float64", "v3"): [5, 8, 9, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64],
    ("float32", "v4"): [17, 20, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128],
    ("float64", "v4"): [9, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("level", levels())
def test_which_rows_are_short(dtype, level):
    target = x86(level, host().triple)
    assert [k for k in LENGTHS if is_short(target, as_dtype(dtype), k)] == SHORT[dtype, level]
    assert not is_short(target, as_dtype(dtype), gx.input("x", ("n",)).shape[0])


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("level", levels())
def test_rows_that_turn_out_to_be_short_have_the_bits_of_each_alone(dtype, level, at_end):
    """Where nothing is known of k: as many together as a register has lanes, and what is left."""
    rng, product = np.random.default_rng(8), compiled(dtype, level, columns=1)
    for k in (1, 2, 3, *LENGTHS):
        for m in (8, 19):
            a, b = guarded((1, m, k), dtype, at_end), guarded((1, k, 1), dtype, at_end)
            a[:], b[:] = numbers(rng, a.shape, dtype), numbers(rng, b.shape, dtype)
            together, apart = guarded((1, m, 1), dtype, at_end), np.zeros((1, m, 2), dtype)
            call(product, a, b, together)
            call(product, a, b, apart[:, :, :1])
            check(together, a, b)
            for i, (row, other) in enumerate(zip(together[0], apart[0, :, :1], strict=True)):
                alone = guarded((1, 1, 1), dtype, at_end)
                call(product, a[:, i : i + 1], b, alone)
                assert row.tobytes() == other.tobytes() == alone.tobytes(), (k, m, i)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("level", levels())
def test_bits_are_those_of_any_length_and_nothing_beyond_is_touched(dtype, level, at_end):
    """Numbers of rows around a register's lanes; rows side by side and apart, columns that lie."""
    rng = np.random.default_rng(7)
    general = compiled(dtype, level, columns=1)
    for k in SHORT[dtype, level]:
        short = compiled(dtype, level, columns=1, depth=k)
        for m in (1, 7, 8, 9, 15, 16, 17, 40):
            a, b = guarded((1, m, k), dtype, at_end), guarded((1, k, 1), dtype, at_end)
            c = guarded((1, m, 1), dtype, at_end)
            a[:], b[:] = numbers(rng, a.shape, dtype), numbers(rng, b.shape, dtype)
            want = np.empty_like(c)
            call(general, a, b, want)
            call(short, a, b, c)
            check(c, a, b)
            assert c.tobytes() == want.tobytes()
        wide = numbers(rng, (1, 40, k + 3), dtype)[:, :, :k]
        lying = np.ascontiguousarray(wide.transpose(0, 2, 1)).transpose(0, 2, 1)
        apart, strided = np.zeros((1, 40, 3), dtype), np.repeat(b, 2, axis=1)[:, ::2]
        call(general, wide, b, want := np.empty((1, 40, 1), dtype))
        for x, y, out in (
            (wide, b, np.empty_like(want)), (lying, b, np.empty_like(want)),
            (wide, strided, np.empty_like(want)), (wide, b, apart[:, :, 1:2]),
        ):
            call(short, x, y, out)
            assert out.tobytes() == want.tobytes()
        assert not apart[:, :, ::2].any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(dtype):
    """Infinities and NaNs stay in their rows, and no sum is -0."""
    k, m = 20, 37
    a, b = np.full((1, m, k), -0.0, dtype), np.ones((1, k, 1), dtype)
    a[0, 3, 19], a[0, 5, 0], a[0, 36, 7] = np.inf, np.nan, -np.inf
    c = np.empty((1, m, 1), dtype)
    call(compiled(dtype, levels()[-1], columns=1, depth=k), a, b, c)
    want = np.zeros(m)
    want[3], want[5], want[36] = np.inf, np.nan, -np.inf
    np.testing.assert_array_equal(c[0, :, 0], want)
    assert not np.signbit(c[0, np.isfinite(want), 0]).any()


@pytest.mark.parametrize("n", [33, 50, 100])
def test_a_regression_gives_the_bits_of_columns_whose_number_is_not_known(n):
    """One reading of A for its products with two vectors, or products apart; any level of CPU."""
    rng = np.random.default_rng(n)
    a, w, y = (rng.normal(size=s).astype("float32") for s in ((3000, n), n, 3000))
    found = []
    for columns in (n, "n"):
        x, v, t = (gx.input(s, d) for s, d in (("x", (3000, columns)), ("v", (columns,)),
                                               ("t", (3000,))))
        r = gx.tanh(x @ v) - t
        f = gx.function([x, v, t], [r, r @ x], name="f")
        assert (f"_of_{n}" in f.llvm_ir()) == (columns == n and is_short(host(), x.dtype, n))
        found.append(f(a, w, y))
    for given, known in zip(*found, strict=True):
        np.testing.assert_array_equal(given, known)
    wide = a.astype("f8")
    np.testing.assert_allclose(found[0][0], np.tanh(wide @ w) - y, atol=1e-5)
    np.testing.assert_allclose(found[0][1], (np.tanh(wide @ w) - y) @ wide, atol=1e-3)
