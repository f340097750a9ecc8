"""What takes long and is wanted by several sweeps of a row: computed once, and kept."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.nests import sweeps

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_takes_long_is_kept_between_sweeps_of_rows_that_are_not(dtype, monkeypatch):
    """Once computed, whatever the length of a row is said to be; the same bits as computed anew."""
    def results():
        x = gx.input("x", ("n", "m"), dtype)
        return [gx.function([x], y, name=f"rows{i}") for i, y in enumerate(
            [gx.nn.softmax(gx.nn.gelu(x), axis=1), gx.var(gx.tanh(x), axis=1)]
        )]

    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    kept = results()
    assert all(f"call void @{f.name}.k0.near(" in f.llvm_ir() for f in kept)
    monkeypatch.setattr(sweeps, "MAX_CACHED_ROW", 0)
    anew = results()
    assert not any(".near" in f.llvm_ir() for f in anew)
    for m in (1, 16, 64, 65, 130, 1000, 4095, 4096, 4097):
        a = RNG.normal(size=(3, m)).astype(dtype)
        for f, g in zip(kept, anew, strict=True):
            got = f(a)
            assert got.tobytes() == g(a).tobytes(), m
        np.testing.assert_allclose(got, np.tanh(a.astype("f8")).var(1), rtol=0.01, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_formulas_of_rows_of_a_named_length_keep_what_takes_long(dtype, monkeypatch):
    """However many expressions they are; the same bits as computed anew by each sweep."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", "m"), dtype)
    y = x
    for _ in range(3):
        y = gx.tanh(gx.nn.softmax(gx.sin(y), axis=1) * x) - gx.mean(y, axis=1, keepdims=True)

    def made():
        f = gx.function([x], [y, gx.grad(gx.sum(y * y), x)], name="rows")
        return f, sum(t.count("= call ") for t in f.llvm_ir().split("define ") if ".near" in t)

    kept, calls = made()
    assert calls
    monkeypatch.setattr(sweeps, "MAX_CACHED_ROW", 0)
    anew, none = made()
    assert not none
    for m in (1, 3, 17, 64, 65, 300, 4096, 4097):
        a = RNG.normal(size=(3, m)).astype(dtype)
        assert [v.tobytes() for v in kept(a)] == [v.tobytes() for v in anew(a)], m


def normalised(x, times):
    """Rows again and again less their greatest element, and over their sum of squares."""
    h = x
    for k in range(times):
        h = h - gx.max(h, axis=1, keepdims=True) if k % 2 else (
            h * (1 / (0.1 + gx.sum(h * h, axis=1, keepdims=True))))
    return h


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("m", [13, 32, 65, 100, 1000])
def test_what_is_made_of_many_cheap_elements_is_kept(dtype, m, monkeypatch):
    """Each sweep begins with what the one before it had; the same bits as from the beginning."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")

    def multiplications(f):
        return len(re.findall(r" = fmul <", f.llvm_ir()))

    x = gx.input("x", ("n", m), dtype)
    outs = [normalised(x, 6), gx.sum(gx.abs(normalised(x, 4)) + x, axis=1)]
    kept = gx.function([x], outs).compile()
    monkeypatch.setattr(sweeps, "LEAST_SAVED", 1 << 30)
    anew = gx.function([x], outs).compile()
    assert multiplications(kept) < multiplications(anew)
    for n in (1, 7, 8, 9, 40):
        a = (0.2 * RNG.normal(size=(n, m))).astype(dtype)
        for got, want in zip(kept(a), anew(a), strict=True):
            assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("times", [4, 20])
def test_short_ones_among_rows_of_a_named_length_keep_cheap_elements_too(
    times, dtype, monkeypatch
):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", "m"), dtype)
    kept = gx.function([x], normalised(x, times), name="rows")
    counts = {
        name: body.count(" = fmul <") for name, body in re.findall(
            r"define [^@]*@rows\.k0\.(\w+)\.task\((.*?)\n}", kept.llvm_ir(), re.S)
    }
    assert 0 < counts["nearest"] < counts["other"], counts
    monkeypatch.setattr(sweeps, "LEAST_SAVED", 1 << 30)
    anew = gx.function([x], normalised(x, times), name="rows")
    assert ".nearest" not in anew.llvm_ir()
    for m in (1, 64, 1000, 1024, 1025):
        a = (0.2 * RNG.normal(size=(9, m))).astype(dtype)
        assert kept(a).tobytes() == anew(a).tobytes(), m


def long_rows(dtype, n):
    """(inputs, functions) of rows whose exponentials are wanted after their sum."""
    x, labels = gx.input("x", (3, n), dtype), gx.input("labels", (3,), "int64")
    p = gx.nn.softmax(x, axis=1)
    loss = gx.nn.cross_entropy(x, labels)
    e = gx.exp(gx.tanh(x))
    total = gx.sum(e, axis=1, keepdims=True)
    return [x, labels], [
        [p], [p, x - total], [p * x, p + x], [gx.sum(p * x, axis=1), p], [loss, gx.grad(loss, x)],
        [e / total + x[:, ::-1], total], [p.astype("float16")], [p.T], [p[:, 1:]],
        [gx.sum(p, axis=0)], [gx.nn.softmax(gx.reshape(x, (3 * n,)), axis=0)],
    ]


def lend(inputs, programs, samples, monkeypatch):
    """(functions, in how many of them a result lends its place): the same bits as where none does,
    and nothing is written beside the results, for each sample of arrays."""
    kept = [gx.function(inputs, p, name="f") for p in programs]
    texts = [f.llvm_ir() for f in kept]
    monkeypatch.setattr(sweeps, "_lender", lambda *of: None)
    lent = 0
    for f, p, text in zip(kept, programs, texts, strict=True):
        g = gx.function(inputs, p, name="f")
        lent += g.llvm_ir() != text
        for arrays in samples:
            want = g(*arrays)
            held = [np.full(a.size + 32, 77, a.dtype) for a in want]
            places = [h[16:-16].reshape(a.shape) for h, a in zip(held, want, strict=True)]
            f(*arrays, out=places)
            for h, got, a in zip(held, places, want, strict=True):
                assert got.tobytes() == a.tobytes()
                assert (h[:16] == 77).all() and (h[-16:] == 77).all()
    return kept, lent


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [4097, 5003])
def test_long_rows_keep_in_a_result_what_takes_long(dtype, n, monkeypatch):
    """The same bits as computed anew, and nothing is written beside the results."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    inputs, programs = long_rows(dtype, n)
    arrays = [RNG.normal(size=(3, n)).astype(dtype), RNG.integers(0, n, 3)]
    kept, lent = lend(inputs, programs, [arrays], monkeypatch)
    assert lent >= 5
    x = arrays[0].astype("f8")
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(kept[0](*arrays)[0], p, rtol=1e-5)
    np.testing.assert_allclose(kept[2](*arrays)[0], p * x, rtol=1e-5, atol=1e-12)


def columns(x):
    """Programs whose exponentials are wanted after their columns' sums, and the softmax itself."""
    p = gx.nn.softmax(x, axis=1)
    e = gx.exp(gx.tanh(x))
    total = gx.sum(e, axis=1, keepdims=True)
    return [
        [p], [p, x - total], [p * x, p + x], [gx.sum(p * x, axis=1), p], [p[:, ::-1]],
        [gx.grad(gx.sum(p * p), x)], [e / total + x[:, ::-1], total], [p.astype("float16")],
        [gx.grad(gx.sum(gx.logsumexp(x, axis=1)), x)],
    ]


SHAPES = [
    (2, 5, 300), (1, 600, 40), (1, 700, 333), (3, 30, 9), (1, 513, 3), (2, 260, 70), (1, 1, 100),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("known", [*SHAPES[:3], None])
def test_columns_keep_in_a_result_what_takes_long(dtype, known, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", known or ("b", "n", "m"), dtype)
    samples = [(3 * RNG.normal(size=s)).astype(dtype) for s in ([known] if known else SHAPES)]
    kept, lent = lend([x], columns(x), [[a] for a in samples], monkeypatch)
    assert lent >= 3
    for a in samples:
        w = np.exp(a.astype("f8") - a.max(1, keepdims=True))
        w /= w.sum(1, keepdims=True)
        for f, want in ((kept[0], w), (kept[8], w), (kept[2], w * a)):
            np.testing.assert_allclose(f(a)[0], want, rtol=2e-5, atol=1e-12)
        for f in (*kept[:3], kept[8]):
            want, over = f(a), a.copy()
            f(over, out=[over, *map(np.empty_like, want[1:])])
            assert over.tobytes() == want[0].tobytes()


def test_a_state_of_long_rows_takes_its_own_softmax():
    a = RNG.normal(size=(3, 5003))
    s = gx.variable(a, "s")
    p = gx.nn.softmax(s, axis=1)
    step = gx.function([], gx.sum(p * s), updates={s: p + s * 0.5})
    scaled = gx.function([], [], updates={s: p * 3.0})
    for _ in range(3):
        q = np.exp(a - a.max(1, keepdims=True))
        q /= q.sum(1, keepdims=True)
        np.testing.assert_allclose(step(), (q * a).sum(), rtol=1e-12)
        a = q + a * 0.5
        np.testing.assert_allclose(s.value, a, rtol=1e-12)
    assert "state 0" in scaled.memory_plan() and scaled.memory_plan().endswith("arena: 0 bytes")
    scaled()
    q = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(s.value, q * 3 / q.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("n", [5003, "n"])
def test_a_result_may_be_written_over_what_it_is_made_of(n):
    x = gx.input("x", (3, n))
    a = RNG.normal(size=(3, 5003)).astype("f4")
    p = gx.nn.softmax(x, axis=1)
    for y in (p, p * x, x * 2.0 + p):
        f = gx.function([x], y)
        want, over = f(a), a.copy()
        f(over, out=over)
        np.testing.assert_array_equal(over, want)
        held = np.zeros(a.size + 16, "f4")
        first, shifted = (held[k : k + a.size].reshape(a.shape) for k in (0, 16))
        first[...] = a
        f(first, out=shifted)
        np.testing.assert_array_equal(shifted, want)
