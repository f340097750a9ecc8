"""Rows swept some at a time: the bits of rows one by one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.emission import abreast, in_turns
from graphc.codegen.nests import sweeps

ROWS = (0, 1, 2, 3, 4, 5, 8, 9, 31)


def centred(x):
    return x - gx.mean(x, axis=1, keepdims=True)


FORMULAS = {
    "softmax": lambda x: gx.nn.softmax(x, axis=1),
    "places beside": lambda x: [gx.logsumexp(x, axis=1), gx.argmax(x, axis=1)],
    "deviations": lambda x: gx.sqrt(gx.var(x, axis=1)),
    "standardised": lambda x: centred(x) / gx.sqrt(gx.var(x, axis=1, keepdims=True) + 1e-5),
    "a condition between": lambda x: gx.where(
        gx.any(x > 2.5, axis=1, keepdims=True), centred(x), x).astype("float64"),
    "sums of columns beside": lambda x: [
        gx.nn.softmax(x, axis=1), gx.sum(gx.nn.softmax(x, axis=1), axis=0)],
    "a sum of all": lambda x: gx.sum(gx.logsumexp(x, axis=1) ** 2),
    "groups of two axes": lambda x: gx.var(
        gx.concat([x[:, :, None], x[:, :, None] * 2], axis=2), axis=(1, 2)),
    "a gradient": lambda x: gx.grad(gx.sum(gx.logsumexp(centred(x) ** 2, axis=1)), x),
}


@pytest.mark.parametrize("what", FORMULAS)
@pytest.mark.parametrize("length", [37, 64, 1000, 1025, "m"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_of_rows_one_by_one(what, length, dtype, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(in_turns, "STRIP_BYTES", 1 << 16)
    rng, found = np.random.default_rng(7), []
    sizes = (1, 300, 1000, 5001) if length == "m" else (length,)
    data = [rng.normal(size=(r, m)).astype(dtype) for r in ROWS for m in sizes]
    for most in (1, in_turns.MOST):
        monkeypatch.setattr(in_turns, "MOST", most)
        x = gx.input("x", ("r", length), dtype)
        f = gx.function([x], FORMULAS[what](x))
        strip = re.search(r"alloca \[[2-8] x (float|double)\]", f.llvm_ir())
        assert (strip is not None) == (most > 1)
        found.append([np.asarray(y).tobytes() for a in data for y in _results(f(a))])
    assert found[0] == found[1]
    reference = gx.function([x], FORMULAS[what](x), mode="interpret")
    close = {"float32": 2e-4, "float64": 1e-10}[dtype]
    for got, want in zip(_results(f(data[-1])), _results(reference(data[-1])), strict=True):
        np.testing.assert_allclose(got, want, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [20, 24, 50])
def test_each_sweep_over_a_short_row_is_written_out(length, dtype, monkeypatch):
    """However many there are; the bits are those of loops, whose lanes stand in memory."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("r", length), dtype)
    y = x
    for _ in range(4):
        y = centred(gx.where(y > 0.0, y, 0.1 * y)) - 0.1 * gx.max(y, axis=1, keepdims=True)
    lanes = re.compile(r"alloca \[(64 x float|32 x double)\]")
    written = gx.function([x], [y, gx.grad(gx.sum(y * y), x)])
    assert not lanes.search(written.llvm_ir())
    monkeypatch.setattr(sweeps, "STRAIGHT_SWEEP", 0)
    monkeypatch.setattr(abreast, "suits", lambda *of: False)
    loops = gx.function([x], [y, gx.grad(gx.sum(y * y), x)])
    assert lanes.search(loops.llvm_ir())
    for r in ROWS:
        a = np.random.default_rng(r).normal(size=(r, length)).astype(dtype)
        assert [v.tobytes() for v in written(a)] == [v.tobytes() for v in loops(a)]


def _results(y):
    return y if isinstance(y, list) else [y]


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(threads):
    x = gx.input("x", ("r", 500))
    f = gx.function([x], gx.nn.softmax(x, axis=1), threads=threads)
    a = np.random.default_rng(8).normal(size=(1001, 500)).astype("float32")
    e = np.exp(a.astype(float) - a.max(1, keepdims=True))
    np.testing.assert_allclose(f(a), e / e.sum(1, keepdims=True), rtol=1e-5)
