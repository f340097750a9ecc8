"""Few results of long sums: rows in bands, shared by threads, read once by all results."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.emission import bands, packed
from graphc.codegen.machine import target

RNG = np.random.default_rng(31)
ROWS = (0, 1, 255, 257, 700, 20_011)


def tiles(dtype, m, k):
    """Sums of r[n, i] * (x[n, j] - c[i, j]) and of its square, and what follows from these."""
    r, x, c = (gx.input(n, s, dtype) for n, s in (("r", ("n", m)), ("x", ("n", k)), ("c", (m, k))))
    apart = r[:, :, None] * (x[:, None, :] - c)
    first, second = gx.sum(apart, axis=0), gx.sum(apart * apart, axis=0)
    return [r, x, c], [2 * first + c, gx.max(apart, axis=0), second - first]


def expected(r, x, c):
    r, x, c = (a.astype(np.float64) for a in (r, x, c))
    apart = r[:, :, None] * (x[:, None, :] - c)
    first = apart.sum(0)
    return [2 * first + c, apart.max(0), (apart * apart).sum(0) - first]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("m, k", [(25, 10), (3, 5), (8, 16), (17, 9)])
def test_tiles_of_results(dtype, m, k, schedules):
    inputs, outputs = tiles(dtype, m, k)
    f = gx.function(inputs, outputs)
    tolerance = {"float32": 1e-4, "float64": 1e-12, "float16": 0.05}[dtype]
    for n in ROWS[1:] if dtype != "float16" else (1, 257):
        arrays = [RNG.normal(size=s).astype(dtype) for s in ((n, m), (n, k), (m, k))]
        for got, want in zip(f(*arrays), expected(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * n**0.5)
    assert any(s.bands for s in schedules)


def test_any_number_of_threads_has_the_same_bits(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    arrays = [RNG.normal(size=s) for s in ((20_011, 25), (20_011, 10), (25, 10))]
    runs = [gx.function(*tiles("float64", 25, 10), threads=t)(*arrays) for t in (1, 2, 4)]
    for got in runs[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(got, runs[0], strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", [gx.sum, gx.max])
@pytest.mark.parametrize("m", [16, 17, 25])
def test_bands_of_few_columns_go_side_by_side(m, what, dtype, schedules):
    """One chain of sums would wait for each of them; the bits are those of columns among others."""
    x, y = gx.input("x", ("n", m), dtype), gx.input("y", ("n", "m"), dtype)
    few, many = (gx.function([t], what(t, axis=0)) for t in (x, y))
    chains = re.findall(r"((?:  %loop\S+ = phi <\d+ x \w+> .*\n)+)", few.llvm_ir())
    assert schedules[-1].bands
    assert max(c.count("phi") for c in chains) >= 4 or what is gx.max  # rows are merged first
    for n in (1, 255, 1023, 1024, 1025, 1280, 40_011):
        a = (RNG.normal(size=(n, 40)) - 1).astype(dtype)
        got, want = few(np.ascontiguousarray(a[:, :m])), many(a)[:m]
        if n <= 1280 or what is gx.max:  # of more, chunks of bands are added up
            assert got.tobytes() == want.tobytes()
        np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("m", [8, "m"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_rows_of_extremes_are_read_in_order(m, dtype, level, monkeypatch):
    """Several at a time: of zeros the last one has its sign, of NaN and of equals the first its
    place, whatever rows are merged first and whatever the registers' width. Which zero comes last
    nobody knows of rows that share vectors (`packed`): these are set aside."""
    monkeypatch.setattr(packed, "_suits", lambda s: False)
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    x = gx.input("x", ("n", m), dtype)
    both = [gx.max(x, axis=0), gx.argmax(x, axis=0)]
    fs = [gx.function([x], [y]) for y in (*both, gx.min(x, axis=0))]
    together = gx.function([x], both)
    rng = np.random.default_rng(7)
    for n in (1, 3, 256, 511, 1023, 1024, 1027, 2048, 9000):
        a = rng.integers(-2, 3, (n, 8)).astype(dtype)
        if dtype != "int16":
            zeros = np.where(rng.random((n, 7)) < 0.5, -0.0, 0.0)
            a[:, :7] = np.where(rng.random((n, 7)) < 0.5, zeros, [-1, -1, -1, -1, 1, 1, 1])
            a[rng.random(n) < 2 / n, 7] = np.nan
        want = [last(a, np.maximum), a.argmax(0), last(a, np.minimum)]
        for f, w in zip(fs, want, strict=True):
            same(f(a)[0], w)
        for got, w in zip(together(a), want, strict=False):
            same(got, w)


def last(a, pick):
    """The extremes of columns: of equals the last one, but the first NaN."""
    with np.errstate(invalid="ignore"):
        best = pick.reduce(a, axis=0)
    at = len(a) - 1 - np.argmax((a == best)[::-1], axis=0)
    return np.where(np.isnan(best), best, a[at, np.arange(a.shape[1])])


def same(got, want):
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[:7], np.signbit(want)[:7])


@pytest.mark.parametrize("what", [gx.sum, gx.var])
@pytest.mark.parametrize("n", ["n", 2000])
def test_far_rows_come_in_order_where_that_is_faster(n, what, monkeypatch, schedules):
    """One band, or block, at a time: with the bits of some side by side."""
    monkeypatch.setattr(bands, "FAR_BYTES", 30_000)
    zen4, other = (target.host()._replace(core=core) for core in (target.ZEN4, ""))
    a = RNG.normal(size=(2000, 16)).astype("float32")
    results, texts = [], []
    for machine in (zen4, other):
        monkeypatch.setattr(target, "host", lambda machine=machine: machine)
        f = gx.function([x := gx.input("x", (n, 16))], what(x, axis=0))
        near = a[:400] if n == "n" else a  # with a known size there is the one form alone
        results.append(f(a).tobytes() + f(near).tobytes())
        texts.append(f.llvm_ir())
    assert results[0] == results[1]
    assert texts[0] != texts[1]
    if n == 2000:
        few, several = (t.count("= load <") for t in texts)
        assert few < several


def test_integers_are_exact_and_no_rows_give_nothing():
    x = gx.input("x", ("n", 10), "int32")
    f = gx.function([x], [gx.sum(x * x, axis=0), gx.sum(x, axis=0) + 1])
    for n in ROWS:
        a = RNG.integers(-999, 999, (n, 10), "int32")
        squares, plain = f(a)
        np.testing.assert_array_equal(squares, (a * a).sum(0))
        np.testing.assert_array_equal(plain, a.sum(0) + 1)


def test_a_result_may_take_the_place_of_what_it_is_made_of():
    """The variance's second kernel writes over the mean that it reads for every row."""
    x = gx.input("x", ("n", 10))
    f = gx.function([x], gx.sum((x - gx.stop_gradient(gx.mean(x, axis=0))) ** 2, axis=0))
    a = RNG.normal(size=(5000, 10)).astype("float32") + 3
    np.testing.assert_allclose(f(a), ((a - a.mean(0)) ** 2).sum(0), rtol=1e-4)


@pytest.mark.parametrize(
    "shape, bands",
    [(("n", 25), True), ((5000, 25), True), ((512, 25), False), (("n", 128), False),
     (("n", "m"), False)],
)
def test_where_it_is_done(shape, bands, schedules):
    x = gx.input("x", shape)
    gx.function([x], gx.sum(gx.exp(x), axis=0)).compile()
    assert [s.bands for s in schedules] == [bands]


def test_the_workspace_ends_at_the_most_chunks():
    x = gx.input("x", ("n", 16))
    plan = gx.function([x], gx.sum(x, axis=0)).memory_plan()
    assert "slot 0: 128*min(64, floordiv(n+255, 256)) bytes" in plan


def test_long_rows_of_a_kernel_with_a_version_for_short_ones(schedules):
    """Their bands have a workspace: without one the sums went over the last operand."""
    z, x, w = gx.input("z", (16, "n")), gx.input("x", ("n", 16)), gx.input("w", ("n", 16))
    y = z[None] * gx.matrix_transpose(x)[:, None] + gx.matrix_transpose(w)[None]
    f = gx.function([z, x, w], gx.sum(gx.abs(y), axis=-1), name="f")
    for n in (0, 3, 100, 513, 2000):
        a, b, c = (RNG.normal(size=s).astype("f4") for s in ((16, n), (n, 16), (n, 16)))
        before = c.copy()
        want = np.abs(a.astype("f8")[None] * b.T[:, None] + c.T[None]).sum(-1)
        np.testing.assert_allclose(f(a, b, c), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(c, before)
    assert "f.k0.short.task" in f.llvm_ir() and any(s.bands for s in schedules)
