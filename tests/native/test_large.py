"""Large and deep graphs, from declaration to native results, at the default recursion limit."""

from __future__ import annotations

import os
import re
import sys

import numpy as np
import pytest

import graphc as gx
from graphc import interpret
from graphc.codegen import addresses
from graphc.codegen import compile as compiler

WIDTH = 16


def alike(x, nodes):
    """sin after sin."""
    for _ in range(nodes):
        x = gx.sin(x)
    return x


def deep(x, nodes):
    """A recurrence of products and sums, each step on the one before."""
    first = x
    for _ in range(nodes // 2):
        x = x * 0.9999 + first
    return x


def mixed(x, nodes):
    """Elementwise ops on earlier values, products, sums with broadcasts, views, constants."""
    rng, values, made = np.random.default_rng(0), [x], 0
    w = gx.constant(rng.normal(size=(WIDTH, WIDTH)) / 4)
    while made < nodes:
        a = values[-1]
        b = values[int(rng.integers(max(0, len(values) - 20), len(values)))]
        kind = int(rng.integers(0, 9))
        if kind == 0:
            v, made = gx.sin(a @ w), made + 2
        elif kind == 1:
            v, made = a - gx.mean(a, axis=1, keepdims=True), made + 4
        elif kind == 2:
            v, made = gx.concat([a[:, 1:], b[:, :1]], axis=1), made + 3
        elif kind == 3:
            v, made = a[:, ::-1] * 0.9 + 0.1, made + 5
        elif kind == 4:
            v, made = gx.where(a < b, a, gx.cos(b)), made + 3
        elif kind == 5:
            v, made = gx.tanh(a) + gx.exp(-(b * b)), made + 5
        else:
            v, made = (gx.cos(a), a + b * 0.5, gx.maximum(a, b * 0.5))[kind - 6], made + 2
        values.append(gx.tanh(v) if kind == 7 else v)
    return values[-1]


def compiled(build, nodes):
    """A function of a graph and its gradient."""
    x = gx.input("x", ("n", WIDTH), "float64")
    y = build(x, nodes)
    return gx.function([x], [y, gx.grad(gx.sum(y), x)], name=build.__name__).compile()


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """Checking the IR after every pass takes longer than the passes."""
    monkeypatch.setenv("GRAPHC_VERIFY", "0")


@pytest.mark.parametrize(("build", "nodes"), [(alike, 3_400), (mixed, 3_700)])
def test_ten_thousand_nodes(build, nodes):
    assert sys.getrecursionlimit() <= 1000
    f = compiled(build, nodes)
    assert len(f.graph.nodes) >= 10_000
    for rows in (5, 1):
        x = np.random.default_rng(rows).normal(size=(rows, WIDTH))
        want, _ = interpret.evaluate(f.graph, [x])
        for got, w in zip(f(x), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-6, atol=1e-9 * np.abs(w).max())
    assert f.compilations == 1


def test_fifty_thousand_deep():
    assert sys.getrecursionlimit() <= 1000
    f = compiled(deep, 50_000)
    assert len(f.graph.nodes) >= 100_000
    x = np.random.default_rng(0).normal(size=(3, WIDTH))
    y, slope = x, np.ones_like(x)
    for _ in range(25_000):
        y, slope = y * 0.9999 + x, slope * 0.9999 + 1
    got = f(x)
    assert np.array_equal(got[0], y)
    np.testing.assert_allclose(got[1], slope, rtol=1e-9)


@pytest.mark.parametrize("rows", ["n", 24])
def test_nothing_lives_throughout_a_long_entry_point(rows):
    """What LLVM takes for a function grows with the square of that."""
    rng = np.random.default_rng(0)
    x, w = gx.input("x", (rows, WIDTH)), gx.input("w", (WIDTH, WIDTH))
    states = [gx.variable(np.full((2, 3), k, "f4"), f"s{k}") for k in range(60)]
    h, outputs = x, []
    for k in range(60):
        h = gx.tanh(h @ w + float(k % 7))
        outputs.append(gx.sum(h, axis=0))
    slope = gx.grad(gx.mean(h * h), w)
    updates = dict(zip(states, [*states[1:], states[0] + gx.sum(h)], strict=True))
    f = gx.function([x, w], [*outputs, slope, *states], updates=updates, name="long").compile()
    entry = f.llvm_ir().split("define i32 @long(")[1].split("\n}")[0].split("\n")
    made, read = {}, {}
    for k, line in enumerate(entry):
        for register in re.findall(r"%[\w.]+", line):
            made.setdefault(register, k)
            read[register] = k
    long = [r for r in made if read[r] - made[r] > 3 * addresses.STRETCH]
    tables = {"%args", "%dims", "%arena", "%ctx", "%bases", "%error"}
    assert len(entry) > 10 * addresses.STRETCH and len({*long} - tables) < 20, long
    shapes = (24, WIDTH), (WIDTH, WIDTH)
    arrays = [0.2 * rng.normal(size=s).astype("f4") for s in shapes]
    want, _ = interpret.evaluate(f.graph, arrays)
    for got, expected in zip(f(*arrays), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(states[3].value, np.full((2, 3), 4))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_of_many_kernels_are_called(monkeypatch, dtype):
    """Each is written once where kernels that differ are many, and no bit changes."""
    x, w = gx.input("x", ("n", WIDTH), dtype), gx.input("w", (WIDTH, WIDTH), dtype)
    h = x
    for op in (gx.sin, gx.exp, gx.tanh, gx.log1p, gx.cos, lambda v: (v * v + 1) ** x, gx.erf):
        h = op(h - gx.max(h, axis=1, keepdims=True) * 0.1) @ w
        h = gx.cos(h) - gx.sum(gx.sin(h), axis=1, keepdims=True) * 0.01
    rng = np.random.default_rng(0)
    arrays = [(rng.normal(size=s) / 4).astype(dtype) for s in ((37, WIDTH), (WIDTH, WIDTH))]
    arrays[0][3, 2], arrays[0][5, 1], arrays[0][6, 0] = np.nan, -0.0, np.inf
    written = gx.function([x, w], [h, gx.grad(gx.sum(h), w)], name="f")
    assert "@graphc.reduce_max" not in written.compile().llvm_ir()
    expected = written(*arrays)
    monkeypatch.setattr(compiler, "MOST_LONG", 3)
    called = gx.function([x, w], [h, gx.grad(gx.sum(h), w)], name="f")
    text = called.compile().llvm_ir()
    for name in ("sin", "exp", "reduce_max"):
        assert f" @graphc.{name}.{dtype.replace('loat', '')}." in text
    assert len(text) < len(written.llvm_ir())
    for a, b in zip(called(*arrays), expected, strict=True):
        assert a.tobytes() == b.tobytes()


MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


@pytest.mark.skipif(MEMORY < 8 << 30, reason="takes 2 GiB of memory")
def test_updates_of_rows_beyond_31_bits():
    """What is left of a row is counted in 64 bits; of the operands only pages of zeros are read."""
    size = 2**31 + 70
    x, u = gx.input("x", ("n", "m"), "int8"), gx.input("u", (2, "m"), "int8")
    i = gx.input("i", (2,), "int64")
    f = gx.function([x, i, u], x.at[i].set(u))
    new = np.zeros((2, size), np.int8)
    places = [0, 1, 69, 70, 1 << 30, size - 1]
    new[1, places] = range(1, 7)
    got = f(np.zeros((1, size), np.int8), np.array([0, -1]), new)
    assert got[0, places].tolist() == [1, 2, 3, 4, 5, 6]
    assert np.count_nonzero(got) == 6
