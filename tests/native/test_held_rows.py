"""Rows that few vectors hold are written without loops of their own."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine.target import host, neon, x86

OPS = {
    "bias": lambda m, x: x + x[0],
    "roll": lambda m, x: m.roll(x, 3, axis=1) + x,
    "differences": lambda m, x: x[:, 1:] - x[:, :-1],
    "pad": lambda m, x: m.pad(x, ((0, 0), (2, 1))),
    "tril": lambda m, x: m.tril(x),
    "middle": lambda m, x: m.permute_dims(x.reshape(1, *x.shape), (1, 0, 2)) * x[0],
}


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def check(f, name, dtype, n, m):
    """Values, and that nothing beside the result is written."""
    a = np.random.default_rng(m).integers(-99, 99, (n, m)).astype(dtype)
    want = OPS[name](np, a)
    around = np.full(want.size + 256, 77, dtype)
    out = around[128 : 128 + want.size].reshape(want.shape)
    f(a, out=out)
    np.testing.assert_array_equal(out, want)
    assert (around[:128] == 77).all() and (around[128 + want.size :] == 77).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16"])
@pytest.mark.parametrize("name", OPS)
def test_values_of_rows_around_vectors(name, dtype):
    """Each number of vectors, one element more and less, and no rows or elements."""
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], OPS[name](gx, x))
    lanes = host().vector_bits // (8 * np.dtype(dtype).itemsize)
    for m in sorted({1, 2, 3, 5, *(k * lanes + d for k in (1, 2, 4) for d in (-3, -1, 0, 1, 3))}):
        for n in (1, 2, 7):
            check(f, name, dtype, n, m)
    if name in ("roll", "differences", "pad"):
        for n, m in ((0, 5), (3, 0)):
            check(f, name, dtype, n, m)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("name", OPS)
def test_values_of_rows_of_known_length(name, dtype):
    """Their masks are constants."""
    lanes = host().vector_bits // (8 * np.dtype(dtype).itemsize)
    for n, m in ((7, 3), (40, 5), (7, lanes - 3), (9, lanes - 1), (9, lanes), (9, lanes + 1),
                 (5, 2 * lanes - 5), (5, 4 * lanes - 1), (5, 4 * lanes + 2)):
        x = gx.input("x", (n, m), dtype)
        check(gx.function([x], OPS[name](gx, x)), name, dtype, n, m)


def test_what_a_vector_holds_is_not_cut():
    """In pieces the ends of rows were columns of their own, and lines written three times: 20,000 x
    7 f32 padded took AVX2 138 us, rolled 115; 16 and 71 whole."""
    for m in (8, 13):
        x = gx.input("x", (1000, m))
        text = compile_graph(
            gx.function([x], gx.pad(x, ((0, 0), (1, 1)))).optimized, x86("v4")
        ).llvm
        assert text.count("call void @llvm.masked.store.v16f32") == 1
        assert "icmp sge <" not in text and ".p1" not in text


def ways(formula, dtype, target):
    """How often rows are written without loops."""
    x, r = gx.input("x", ("n", "m"), dtype), gx.input("r", ("m",), dtype)
    f = gx.function([x, r], formula(x, r))
    return compile_graph(f.optimized, target).llvm.count("\nheld")


@pytest.mark.parametrize("dtype, target, masks", [
    ("float32", x86("v4"), True), ("int8", x86("v4"), True), ("int8", x86("v3"), False),
    ("float64", x86("v3"), True), ("float32", x86("v2"), False),
    ("float32", neon("aarch64-unknown-linux-gnu"), False),
])
def test_where_lanes_have_masks(dtype, target, masks):
    """More than two vectors gain by conditions alone. LLVM has a branch for each lane where there
    are no masks for these, and what takes long is not written again."""
    assert ways(lambda x, r: x + r, dtype, target) == (2 if masks else 0)
    assert ways(lambda x, r: gx.roll(x, 1, axis=1) + r, dtype, target) == (3 if masks else 0)
    assert ways(lambda x, r: gx.lgamma(gx.lgamma(x)) + r, "float32", target) == 0


def test_threads_give_the_bits_of_one():
    x = gx.input("x", ("n", "m"))
    y = gx.exp(gx.roll(x, 1, axis=1)) * x[0]
    one, two = gx.function([x], y, threads=1), gx.function([x], y, threads=2)
    for m in (5, 16, 17, 40, 64, 65):
        a = np.random.default_rng(m).normal(size=(3000, m)).astype("f4")
        np.testing.assert_array_equal(one(a), two(a))
