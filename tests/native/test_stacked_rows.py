"""Sums of short rows that are put together of parts: each element is written for itself."""

from __future__ import annotations

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.machine import target

ROWS = (0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 700)


def whole(seed, *shape):
    """Whole numbers, of which any order of sums gives the same."""
    return np.random.default_rng(seed).integers(-9, 10, shape)


def cross(m, a, b, axis=-1):
    p, q = (m.moveaxis(x, axis, 0) for x in (a, b))
    return m.stack([
        p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0],
    ], axis=axis)


FORMULAS = {
    "the volume": lambda m, a, b: m.sum(cross(m, a, b) * (a + b), axis=1),
    "each of them": lambda m, a, b: m.stack([
        f(cross(m, a, b), axis=1) for f in (m.sum, m.prod, m.max, m.min)
    ], axis=1),
    "less its mean": lambda m, a, b: 3 * cross(m, a, b) - m.sum(
        cross(m, a, b), axis=1, keepdims=True),
    "of the differences": lambda m, a, b: m.sum(cross(m, a - b, a + 2 * b) ** 2, axis=1),
    "turned": lambda m, a, b: m.max(cross(m, a.T, b.T, axis=0) - b.T, axis=0),
    "of all": lambda m, a, b: m.sum((cross(m, a, b) - b) ** 2),
    "and their sum": lambda m, a, b: m.sum(m.sum(cross(m, a, b) * a, axis=1) ** 2),
    "of all columns": lambda m, a, b: m.sum(cross(m, a, b) * b, axis=0),
    "two together": lambda m, a, b: m.sum(m.concatenate([a, b, a * b], axis=1), axis=1),
    "between zeros": lambda m, a, b: m.sum(
        m.pad(a, ((0, 0), (1, 2))) * m.pad(b, ((0, 0), (2, 1))), axis=1),
    "of matrices": lambda m, a, b: m.sum(
        m.stack([cross(m, a, b), a, a - b], axis=2) ** 2, axis=(1, 2)),
    "of all matrices": lambda m, a, b: m.sum(
        m.stack([cross(m, a, b), a, a - b], axis=2) * b[:, None, :]),
    "rolled": lambda m, a, b: m.max(m.roll(a, 1, axis=1) - b, axis=1),
}


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("what", FORMULAS)
def test_values(what, dtype, level, monkeypatch):
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    a, b = gx.input("a", ("n", 3), dtype), gx.input("b", ("n", 3), dtype)
    f = gx.function([a, b], FORMULAS[what](gx, a, b))
    for n in ROWS:
        x, y = whole(n, n, 3).astype(dtype), whole(n + 1, n, 3).astype(dtype)
        np.testing.assert_array_equal(f(x, y), FORMULAS[what](np, x, y))
    assert all(" reduce " not in k.text.splitlines()[0] for k in f.kernels[-1:]) == (
        what not in ("of all columns", "and their sum"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 3, 5, 8, 11, 16])
def test_sums_that_round_have_the_bits_of_rows_that_lie_so(n, dtype):
    """Elements meet in the same order, of which the least and the greatest leave the smallest."""
    x = gx.input("x", ("rows", n), dtype)
    columns = [(3 * k + 1) % n if n % 3 else (n - 1 - k) for k in range(n)]
    a = np.random.default_rng(n).normal(size=(90, n)).astype(dtype) * 10.0 ** np.arange(n)
    a = a.astype(dtype)
    put = gx.stack([x[:, k] for k in columns], axis=1)
    plain, stacked = (
        gx.function([x], [gx.sum(v, axis=1), gx.mean(v * v, axis=1)])
        for v in (x, put)
    )
    for got, want in zip(stacked(a), plain(a[:, columns].copy()), strict=True):
        assert got.tobytes() == want.tobytes()


def test_sums_of_all_have_the_same_bits_at_all_levels_and_for_any_threads(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=(50_001, 3)).astype("float32") for _ in range(2))
    found = set()
    for level in [v for v in levels() if v != "v2"]:
        here = at_level(level)
        monkeypatch.setattr(target, "host", lambda here=here: here)
        for threads in (1, 2, 4):
            a, b = gx.input("a", ("n", 3)), gx.input("b", ("n", 3))
            f = gx.function([a, b], FORMULAS["of all"](gx, a, b), threads=threads)
            found.add(f(x, y).tobytes())
    assert len(found) == 1
    want = FORMULAS["of all"](np, x.astype("float64"), y.astype("float64"))
    np.testing.assert_allclose(np.frombuffer(found.pop(), "float32"), want, rtol=1e-6)


def test_special_values_are_those_of_the_element():
    """NaN of one element is of its row alone; a sum of zeros is no -0."""
    a, b = gx.input("a", ("n", 3)), gx.input("b", ("n", 3))
    made = gx.stack([a[:, 0] * b[:, 1], a[:, 1] - 0.0, -b[:, 2]], axis=1)
    f = gx.function([a, b], [gx.sum(made, axis=1), gx.max(made, axis=1)])
    x, y = np.zeros((37, 3), "float32"), np.zeros((37, 3), "float32")
    x[:, 1] = -0.0
    x[5, 0], y[5, 1] = np.inf, 0.0
    x[20, 1], y[36, 2] = np.nan, -np.inf
    total, most = f(x, y)
    want = np.zeros(37, "float32")
    want[[5, 20]], want[36] = np.nan, np.inf
    np.testing.assert_array_equal(total, want)
    np.testing.assert_array_equal(most, want)
    assert not np.signbit(total[~np.isnan(total)]).any()


def test_text():
    """Nothing is asked, differences are computed once, and the last meets the first."""
    a, b = gx.input("a", ("n", 2)), gx.input("b", ("n", 2))
    d = a - b
    f = gx.function([a, b], gx.sum(gx.stack([d[:, 1] * 2, d[:, 0], d[:, 1]], axis=1), axis=1))
    (kernel,) = f.kernels
    assert kernel.text == """\
for i0<n:
  e0: f32 = in0[2*i0]
  e1: f32 = in0[2*i0+1]
  e2: f32 = in1[2*i0]
  e3: f32 = in1[2*i0+1]
  e4: f32 = sub e0 e2
  e5: f32 = sub e1 e3
  e6: f32 = 2.0
  e7: f32 = mul e5 e6
  e8: f32 = add e7 e5
  e9: f32 = add e8 e4
  e10: f32 = 0.0
  e11: f32 = add e10 e9
  out0[i0] = e11"""


@pytest.mark.parametrize("made", [
    lambda m, a, b: cross(m, a, b),
    lambda m, a, b: m.einsum("nij,nj->ni", a[:, :, None] * b[:, None, :], a),
], ids=["a stack", "many products"])
@pytest.mark.parametrize("what", [
    lambda m, y: m.std(y), lambda m, y: y / m.max(y), lambda m, y: m.sum(m.exp(y - m.max(y))),
], ids=["std", "scaled", "exp"])
@pytest.mark.parametrize("n", [5, 40, 2000])
def test_what_waits_for_a_sum_of_all(n, what, made):
    """All elements are one row, which is swept again."""
    a, b = gx.input("a", (n, 3), "float64"), gx.input("b", (n, 3), "float64")
    f = gx.function([a, b], what(gx, made(gx, a, b)))
    x, y = np.random.default_rng(n).normal(size=(2, n, 3))
    np.testing.assert_allclose(f(x, y), what(np, made(np, x, y)), rtol=1e-12)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [20, 40, 161, 1200])
def test_totals_of_rows_with_conditions(n, dtype, level, monkeypatch):
    """Rows that are rolled are chosen among two places. A total was that of the last of the parts
    at which such nests are cut, or missed vectors that did not begin where places do."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    a = np.random.default_rng(n).normal(size=(2, n)).astype(dtype)
    beside = np.ones((100, 100), dtype)
    x, w = gx.input("x", a.shape, dtype), gx.input("w", beside.shape, dtype)

    def parts(m, v):
        rolled = m.roll(m.stack([v, m.flip(v, axis=0), -v], axis=-1), 2, axis=1)
        high = m.exp(rolled - m.max(rolled, axis=2, keepdims=True))
        p = high / m.sum(high, axis=2, keepdims=True)
        return m.sum(p * p), p * (p - m.sum(p * p, axis=2, keepdims=True))

    f = gx.function([x, w], [*parts(gx, x), w + w])
    for got, want in zip(f(a, beside), parts(np, a), strict=False):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
