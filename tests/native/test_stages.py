"""Long formulas, computed by stages for blocks of vectors."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.machine import target
from graphc.codegen.nests import schedule, stages

SIZES = (0, 1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1000, 4095, 4097, 9001)


def kepler(x, k, steps=10):
    """Newton's method for E - k sin E = x."""
    e = x
    for _ in range(steps):
        e = e - (e - k * gx.sin(e) - x) / (1 - k * gx.cos(e))
    return e


def logistic(x, k, steps=120):
    for _ in range(steps):
        x = x * (1 - x) * (k + 2.5)
    return x


def tanhs(x, k, steps=16):
    for _ in range(steps):
        x = gx.tanh(x * 1.25 + k)
    return x


def choices(x, k, steps=24):
    """What is kept has bits in it, and integers."""
    above, count = x > k, gx.zeros_like(x, dtype="int32")
    for n in range(steps):
        x = gx.where(above, gx.exp(-x * x), x * 1.5 - k)
        above = gx.logical_xor(above, x > 0.125 * n)
        count = count + gx.where(above, n, 1)
    return x + gx.astype(count, x.dtype)


def compiled(inputs, outputs, whole, monkeypatch, **options):
    """The function, by stages or as a whole."""
    with monkeypatch.context() as m:
        m.setenv("GRAPHC_CACHE_DIR", "")
        if whole:
            m.setattr(schedule, "stages_of", lambda *_: None)
        f = gx.function(inputs, outputs, **options)
        f.compile()
    return f


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", [kepler, logistic, tanhs, choices])
def test_bits_are_those_of_the_whole(formula, dtype, level, schedules, monkeypatch):
    """Elements, and their sums, for every number of them around vectors, blocks and items."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    x, k = gx.input("x", ("n",), dtype), gx.input("k", ("n",), dtype)
    y = formula(x, k)
    for outputs in ([y], [gx.sum(y)], [gx.mean(y), y, gx.max(y)]):
        del schedules[:]
        f = compiled([x, k], outputs, False, monkeypatch)
        assert any(s.stages is not None for s in schedules)
        g = compiled([x, k], outputs, True, monkeypatch)
        for n in SIZES[1:] if len(outputs) == 3 else SIZES:
            a, b = np.random.default_rng(n).uniform(0.1, 0.9, (2, n)).astype(dtype)
            for got, want in zip(f(a, b), g(a, b), strict=True):
                assert np.asarray(got).tobytes() == np.asarray(want).tobytes(), n


def test_values():
    a, b = np.random.default_rng(0).uniform(0.1, 0.9, (2, 3000))
    x, k = gx.input("x", ("n",), "float64"), gx.input("k", ("n",), "float64")
    e, total = gx.function([x, k], [kepler(x, k), gx.sum(kepler(x, k))])(a, b)
    np.testing.assert_allclose(e - b * np.sin(e), a, rtol=1e-13)
    np.testing.assert_allclose(total, e.sum(), rtol=1e-13)


class Formula:
    """A random chain, whose values are wanted near and far from where they are made, too."""

    OPS = (
        gx.sin, gx.tanh, gx.abs, lambda v: gx.exp(-v * v), lambda v: v * 0.75,
        lambda v, w: v + w, lambda v, w: v * w, lambda v, w: gx.maximum(v, w), gx.atan2,
        lambda v, w: gx.where(v > w, v - w, 0.5), lambda v, w: v / (1 + w * w),
    )

    def __init__(self, seed, inputs):
        rng = random.Random(f"stages {seed}")
        self.values = list(inputs)
        for _ in range(rng.choice((40, 60, 120))):
            op = rng.choice(self.OPS)
            reach = rng.choice((3, 5, 30))
            near = self.values[-reach:-1]
            args = [self.values[-1]] + ([] if op in self.OPS[:5] else [rng.choice(near)])
            self.values.append(gx.clip(op(*args), -4.0, 4.0))
        self.outputs = [self.values[-1], *rng.sample(self.values[3:], rng.choice((0, 1, 3)))]
        if rng.random() < 0.5:
            self.outputs = [gx.sum(self.outputs[0]), *self.outputs[1:]]


@pytest.mark.parametrize("seed", range(16))
def test_random_formulas(seed, schedules, monkeypatch):
    """Bits by stages of any length that keep as much as they want."""
    rng = random.Random(seed)
    shapes = [("n", "m"), ("m",), ("n", 1)] if seed % 3 == 0 else [("n",)] * 3
    inputs = [gx.input(f"x{k}", s, "float32") for k, s in enumerate(shapes)]
    outputs = Formula(seed, inputs).outputs
    whole = compiled(inputs, outputs, True, monkeypatch)
    with monkeypatch.context() as m:
        m.setattr(stages, "COST", rng.choice((8, 20, 48)))
        m.setattr(stages, "GAIN", 0.0)
        m.setattr(stages, "most_interleaved", lambda _: 0)
        m.setattr(stages, "BYTES", rng.choice((1, 1 << 14)))
        staged = compiled(inputs, outputs, False, monkeypatch)
    assert any(s.stages is not None for s in schedules)
    for n, m in ((1, 70), (3, 513), (40, 33)):
        sizes = {"n": n, "m": m, 1: 1}
        args = [
            np.random.default_rng(n).normal(size=[sizes[d] for d in s]).astype("float32")
            for s in shapes
        ]
        for got, want in zip(staged(*args), whole(*args), strict=True):
            assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


def whole(s):
    """A new state that is known early, and what is made of both for longer."""
    new = tanhs(s, gx.sin(s), steps=20)
    return new, tanhs(new, s, steps=20)


def cut(s):
    """By two nests, one behind the other."""
    n = s.shape[0] // 3
    (a, b), (c, d) = whole(s), whole(0.5 * s)
    return gx.concat([a[:n], c[n:]], axis=0), gx.concat([b[:n], d[n:]], axis=0)


def beside(s):
    """Neighbours, too, so that blocks wait."""
    new = tanhs(gx.pad(s[1:], ((0, 1),)), s, steps=20) * 0.5
    return new, tanhs(new, s, steps=20)


@pytest.mark.parametrize("threads, size", [(1, 60_000), (2, 60_000), (1, 61_440)])
@pytest.mark.parametrize("make", [whole, cut, beside])
def test_a_state_is_written_when_nothing_reads_it_any_more(
    make, threads, size, schedules, monkeypatch
):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "2")
    a = np.random.default_rng(2).uniform(0.1, 0.9, size).astype("float32")
    s = gx.variable(a, "s")
    new, other = make(s)
    step = gx.function([], other, updates={s: new}, threads=threads)
    step.compile()
    assert any(x.stages is not None for x in schedules)
    x = gx.input("x", a.shape)
    y = gx.function([x], make(x), threads=threads)
    want = a
    for _ in range(3):
        got = step()
        want, also = y(want)
        np.testing.assert_array_equal(got, also)
    np.testing.assert_array_equal(s.value, want)


def test_positions_that_data_give(schedules):
    """They are asked for where their elements are wanted, and may fail there."""
    t, i, x = gx.input("t", (50,)), gx.input("i", ("n",), "int64"), gx.input("x", ("n",))
    f = gx.function([t, i, x], tanhs(x, t[i]) + t[i])
    f.compile()
    assert any(s.stages is not None for s in schedules)
    table = np.linspace(-1, 1, 50, dtype="float32")
    at = np.random.default_rng(0).integers(0, 50, 2000)
    a = np.random.default_rng(1).normal(size=2000).astype("float32")
    want = a.astype("float64")
    for _ in range(16):
        want = np.tanh(want * 1.25 + table[at])
    np.testing.assert_allclose(f(table, at, a), want + table[at], rtol=2e-5)
    at[1234] = 50
    with pytest.raises(IndexError, match=r"t\[i\]|index|range"):
        f(table, at, a)


def test_neighbours_and_paddings(schedules):
    x = gx.input("x", ("n",), "float64")
    near = gx.pad(x, ((1, 1),))
    f = gx.function([x], tanhs(near[:-2] + near[2:], x))
    f.compile()
    assert any(s.stages is not None for s in schedules)
    for n in (1, 2, 17, 700):
        a = np.random.default_rng(n).normal(size=n)
        want = np.pad(a, 1)[:-2] + np.pad(a, 1)[2:]
        for _ in range(16):
            want = np.tanh(want * 1.25 + a)
        np.testing.assert_allclose(f(a), want, rtol=1e-12)


def test_what_has_no_stages(schedules):
    """Short formulas, broad ones, calls, and rows of a vector."""
    x, k = gx.input("x", ("n",)), gx.input("k", ("n",))
    broad = sum(gx.exp(-(x - 0.1 * n) ** 2 * k) for n in range(12))
    for y in (gx.tanh(x) + k, gx.sum(gx.exp(x) * k), broad, gx.sum(broad), gx.lgamma(gx.lgamma(x))):
        gx.function([x, k], y).compile()
    few = gx.input("few", (4,))
    gx.function([few, x], kepler(few, x[:, None])).compile()
    assert schedules
    assert all(s.stages is None for s in schedules)


def test_bits_that_are_kept_are_read_by_vectors_of_another_width(schedules):
    """Sums of choices, and these themselves, by a sweep of single vectors."""
    x, k = gx.input("x", ("b", "n")), gx.input("k", ("b", "n"))
    y = tanhs(x, k)
    above, below = y > gx.sin(x), gx.exp(y) < k
    f = gx.function([x, k], [above, below, gx.sum(gx.where(above, y, k), axis=1)])
    f.compile()
    assert any(s.stages is not None for s in schedules)
    for shape in ((7, 20), (3, 64), (2, 700), (1, 1)):
        a, b = np.random.default_rng(shape[1]).normal(size=(2, *shape)).astype("float32")
        z = a.astype("float64")
        for _ in range(16):
            z = np.tanh(z * 1.25 + b)
        sure = np.minimum(np.abs(z - np.sin(a)), np.abs(np.exp(z) - b)) > 1e-4
        p, q, total = f(a, b)
        np.testing.assert_array_equal(p[sure], (z > np.sin(a))[sure])
        np.testing.assert_array_equal(q[sure], (np.exp(z) < b)[sure])
        np.testing.assert_allclose(total, np.where(p, z, b).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_read_across_another(dtype, monkeypatch):
    """Of which blocks are transposed for some rows at a time."""
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", ("m", "n"), dtype)
    z = tanhs(x.T, y)
    outputs = [gx.sum(z, axis=1), gx.max(z * y, axis=1), z]
    f, g = (compiled([x, y], outputs, whole, monkeypatch) for whole in (False, True))
    for n, m in ((70, 3), (513, 40), (64, 64), (5, 300)):
        a = np.random.default_rng(n).uniform(0.1, 0.9, (n, m)).astype(dtype)
        for got, want in zip(f(a, a.T.copy()), g(a, a.T.copy()), strict=True):
            assert got.tobytes() == want.tobytes()
