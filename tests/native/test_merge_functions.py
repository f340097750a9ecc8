"""Functions of a program that differ in a few numbers are one, with these as parameters."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.machine import target

RNG = np.random.default_rng(0)
SIZES = (0, 1, 7, 1000)


def test_functions_that_differ_in_numbers_are_one():
    """Epilogues of several widths are one function; the kernels' contexts have the widths."""
    x = gx.input("x", ("n", 48))
    shapes = [(48, width) for width in (64, 96, 160)]
    weights = [RNG.normal(size=s).astype("f4") for s in shapes]
    f = gx.function([x], [gx.tanh(x @ gx.constant(w)) for w in weights], name="f")
    for n in SIZES:
        a = RNG.normal(size=(n, 48)).astype("f4")
        for got, w in zip(f(a), weights, strict=True):
            np.testing.assert_allclose(got, np.tanh(a @ w), rtol=1e-4, atol=1e-5)
    assert len(f.program.kernels) == 3
    assert len(re.findall(r"^define .*\.epilogue\(", f.llvm_ir(), re.M)) == 1


@pytest.mark.parametrize("core", ["", target.ZEN3, target.ZEN4, target.GOLDEN_COVE])
def test_updates_by_sums_down_columns_are_one(core, monkeypatch):
    """As of the biases of a network's layers; Zen 5 asks for later rows by constants in a loop."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    here = target.host()
    monkeypatch.setattr(target, "host", lambda: here._replace(core=core))
    xs = [gx.input(f"x{k}", ("n", width)) for k, width in enumerate((512, 256, 320))]
    biases = [gx.input(f"b{x.shape[1]}", (x.shape[1],)) for x in xs]
    f = gx.function(
        [*xs, *biases], [b - 0.1 * gx.sum(x, axis=0) for x, b in zip(xs, biases, strict=True)],
    )
    for n in SIZES:
        a = [RNG.normal(size=(n, x.shape[1])).astype("f4") for x in xs]
        old = [RNG.normal(size=x.shape[1]).astype("f4") for x in xs]
        for got, x, b in zip(f(*a, *old), a, old, strict=True):
            np.testing.assert_allclose(got, b - 0.1 * x.astype(float).sum(0), rtol=1e-4, atol=1e-4)
    assert len(f.program.kernels) == 3
    assert len(re.findall(r"^define .*\.task\(", f.llvm_ir(), re.M)) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_functions_that_differ_in_factors_and_places_are_one(dtype, monkeypatch):
    """Steps of unrolled loops: factors and terms of all kinds, and where they read; every bit."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x, y = gx.input("x", ("n",), dtype), gx.input("y", (24, 3000), dtype)
    scales = [0.1, -0.0, 1.0, -1.0, 2.0, 1e-40, 1e37, -7.25, *RNG.normal(size=12)]
    np_scales = [np.dtype(dtype).type(s) for s in scales]
    outs = [x * s - (1.5 - s) for s in np_scales]
    parts = [gx.abs(y[k]) for k in range(24)]
    f = gx.function([x, y], [*outs, *parts], name="f")
    tasks = re.findall(r"^define .*?\.task\(", f.llvm_ir(), re.M)
    assert len(f.program.kernels) > 40 and len(tasks) < 6
    rows = RNG.normal(size=(24, 3000)).astype(dtype)
    for n in SIZES:
        a = RNG.normal(size=n).astype(dtype)
        got = f(a, rows)
        for k, s in enumerate(np_scales):
            want = a * s - (np.dtype(dtype).type(1.5) - s)
            assert got[k].tobytes() == want.tobytes(), s
        for k in range(24):
            assert np.array_equal(got[len(scales) + k], np.abs(rows[k]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_functions_that_differ_in_a_factor_of_each_row_are_one(dtype):
    """The factor is one number, in no lanes."""
    rows = [gx.input(f"y{k}", ("n", 300), dtype) for k in range(9)]
    scales = np.array([0.1, -0.0, 1e-40, 1e37, -7.25, *RNG.normal(size=4)], dtype)
    outs = [y * (gx.max(y, axis=1, keepdims=True) * s) for y, s in zip(rows, scales, strict=True)]
    f = gx.function(rows, outs, name="f")
    tasks = re.findall(r"^define .*?\.task\(", f.llvm_ir(), re.M)
    assert len(f.program.kernels) == 9 and len(tasks) == 1
    for n in (0, 1, 7):
        a = [RNG.normal(size=(n, 300)).astype(dtype) for _ in rows]
        for got, y, s in zip(f(*a), a, scales, strict=True):
            assert got.tobytes() == (y * (y.max(axis=1, keepdims=True) * s)).tobytes(), s


@pytest.mark.parametrize("order", [1, -1])
def test_functions_whose_numbers_have_other_places_are_not_one(monkeypatch, order):
    """They stand behind the sizes in a kernel's context, of which a declared product has none."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    shapes = (("a", 64), (64, 10)), ((64, 10), (10, 15)), (("a", 31), (31, 12)), ((40, 9), (9, 17))
    inputs, outs, arrays, want = [], [], [], []
    rng = np.random.default_rng(9)
    for k, pair in enumerate(shapes[::order]):
        x, y = (gx.input(f"{n}{k}", s, "float64") for n, s in zip("xy", pair, strict=True))
        a, b = (rng.normal(size=[70 if n == "a" else n for n in s]) for s in pair)
        inputs += [x, y]
        arrays += [a, b]
        outs.append((x @ y) * 0.25)
        want.append(a @ b * 0.25)
    for got, w in zip(gx.function(inputs, outs)(*arrays), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12, atol=1e-12)
