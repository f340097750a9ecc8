"""Sums over rows beside what rows give: accumulators of short rows stay in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.emission import columns

ROWS = (0, 1, 2, 17, 300, 5003)


def shifted(x):
    return x - gx.max(x, axis=1, keepdims=True)


FORMULAS = {
    "one": lambda x: [shifted(x), gx.sum(shifted(x), axis=0)],
    "of softmax": lambda x: [gx.nn.softmax(x, axis=1), gx.sum(gx.nn.softmax(x, axis=1), axis=0)],
    "three": lambda x: [gx.logsumexp(x, axis=1), gx.sum(shifted(x), axis=0),
                        gx.sum(gx.exp(shifted(x)), axis=0), gx.sum(shifted(x) ** 2, axis=0)],
    "a total beside": lambda x: [gx.sum(gx.logsumexp(x, axis=1)),
                                 gx.sum(gx.nn.softmax(x, axis=1), axis=0)],
}


@pytest.mark.parametrize("what", FORMULAS)
@pytest.mark.parametrize("length", [2, 8, 10, 16, 17, 31, 70])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_bits_of_sums_in_memory(what, length, dtype, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    rng, found = np.random.default_rng(length), []
    data = [rng.normal(size=(r, length)).astype(dtype) for r in ROWS]
    for most in (1 << 20, columns.CARRIED):
        monkeypatch.setattr(columns, "CARRIED", most)
        x = gx.input("x", ("r", length), dtype)
        f = gx.function([x], FORMULAS[what](x), threads=1 + most % 2)
        found.append([np.asarray(y).tobytes() for a in data for y in f(a)])
    assert found[0] == found[1]
    reference = gx.function([x], FORMULAS[what](x), mode="interpret")
    close = {"float16": 3e-2, "float32": 2e-4, "float64": 1e-10}[dtype]
    for got, want in zip(f(data[4]), reference(data[4]), strict=True):
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=close, atol=close)


@pytest.mark.parametrize("length", [16, 13])
def test_a_loop_over_rows_carries_accumulators(length, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    carried, masked = [], []
    for most in (1 << 20, columns.CARRIED):
        monkeypatch.setattr(columns, "CARRIED", most)
        x = gx.input("x", ("r", length))
        text = gx.function([x], FORMULAS["one"](x)).llvm_ir()
        (task,) = (t for t in text.split("\n}\n") if ".task(ptr" in t and "fcmp uno" in t)
        carried.append(len(re.findall(r"%loop\d+\.c\d+ = phi <\d+ x float>", task)))
        masked.append(task.count("call void @llvm.masked.store"))
    assert carried[0] == 0 < carried[1]
    assert masked[0] == masked[1]  # what stands behind a row's sums may be another thread's


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("length", [2, 3, 7, 8, 16, 24, 100, 1000])
def test_extremes_of_rows_with_nan(length, dtype):
    """A NaN at any place of a row is its greatest and its least element; infinities are numbers."""
    rng = np.random.default_rng(length)
    a = rng.normal(size=(2 * length + 3, length)).astype(dtype)
    for k in range(length):
        a[k, k] = np.nan
    a[length] = -np.inf
    a[length + 1] = np.inf
    a[length + 2, ::2] = np.nan
    x = gx.input("x", ("r", length), dtype)
    f = gx.function([x], [gx.max(x, axis=1), gx.min(x, axis=1), gx.max(x), gx.argmax(x, axis=1)])
    for rows in (a, a[length:], a[length + 3 :]):
        for got, want in zip(
            f(rows), (rows.max(1), rows.min(1), rows.max(), rows.argmax(1)), strict=True
        ):
            np.testing.assert_array_equal(got, want)
