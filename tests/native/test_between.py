"""Sums of what is put together go from bound to bound, without conditions between them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import between
from graphc.codegen.machine.target import neon, x86

SIZES = (1, 5, 63, 64, 65, 130, 513, 1000)


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def put_together(m, x, y, axis):
    beside = m.concatenate([x, y * 2, y], axis=axis)
    around = m.pad(x, [(2, 3)] * x.ndim)
    return beside, around, m.roll(x, 3, axis=axis) * x


def outputs(x, y, axis):
    found = []
    for part in put_together(gx, x, y, axis):
        found += [gx.sum(part * part), gx.max(part) if x.dtype != "int32" else gx.sum(part)]
        if x.ndim == 2:
            found += [gx.sum(part, axis=1), gx.sum(part, axis=0)]
    return found


def numbers(shape, dtype, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * 9).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("named", [True, False])
def test_rows_of_any_length_have_the_bits_of_conditions(monkeypatch, dtype, named):
    sizes = SIZES if named else (5, 64, 513)
    made = {}
    for n in sizes:
        for m in (7, 600) if named else (600,):
            key = () if named else (n, m)
            if key not in made:
                shapes = (("n",), ("m",)) if named else ((n,), (m,))
                x, y = (gx.input(k, s, dtype) for k, s in zip("xy", shapes, strict=True))
                several = outputs(x, y, 0)
                split = gx.function([x, y], several)
                with monkeypatch.context() as patch:
                    patch.setattr(between, "MOST", 0)
                    whole = gx.function([x, y], several).compile()
                assert split.compile().llvm_ir() != whole.llvm_ir()
                made[key] = split, whole
            a, b = numbers(n, dtype), numbers(m, dtype, 1)
            split, whole = made[key]
            for k, (got, want) in enumerate(zip(split(a, b), whole(a, b), strict=True)):
                assert got.tobytes() == want.tobytes(), (n, m, k)
            beside, around, rolled = put_together(np, a, b, 0)
            for k, part in ((0, beside), (2, around), (4, rolled)):
                wide = part.astype(np.float64 if dtype != "int32" else np.int64)
                np.testing.assert_allclose(split(a, b)[k], (wide * wide).sum(), 1e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_and_columns_of_matrices(monkeypatch, dtype, axis):
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", ("n", "m"), dtype)
    several = outputs(x, y, axis)
    split = gx.function([x, y], several)
    with monkeypatch.context() as patch:
        patch.setattr(between, "MOST", 0)
        whole = gx.function([x, y], several).compile()
    for n, m in ((1, 1), (3, 9), (40, 64), (5, 700), (2, 1030), (70, 3)):
        a, b = numbers((n, m), dtype), numbers((n, m), dtype, 1)
        got = split(a, b)
        for k, (x_, y_) in enumerate(zip(got, whole(a, b), strict=True)):
            assert x_.tobytes() == y_.tobytes(), (n, m, k)
        for k, part in enumerate(put_together(np, a, b, axis)):
            wide = part.astype(np.float64)
            want = (wide * wide).sum(), part.max(), wide.sum(axis=1), wide.sum(axis=0)
            for g, w in zip(got[4 * k : 4 * k + 4], want, strict=True):
                np.testing.assert_allclose(g, w, 2e-5, 2e-4)


def test_elements_that_are_stored_beside_their_sums():
    x, y = gx.input("x", ("n", "m")), gx.input("y", ("n", "m"))
    c = gx.concatenate([x, y], axis=1)
    p = gx.nn.softmax(c, axis=1)
    f = gx.function([x, y], [p, gx.sum(gx.tanh(c) ** 2), *gx.grad(gx.sum(gx.tanh(c) ** 2), [x, y])])
    for n, m in ((3, 5), (4, 600), (2, 1031)):
        a, b = numbers((n, m), "f4") / 9, numbers((n, m), "f4", 1) / 9
        wide = np.concatenate([a, b], axis=1).astype(np.float64)
        e = np.exp(wide - wide.max(axis=1, keepdims=True))
        t = np.tanh(wide)
        slope = 2 * t * (1 - t * t)
        want = e / e.sum(axis=1, keepdims=True), (t * t).sum(), slope[:, :m], slope[:, m:]
        for got, w in zip(f(a, b), want, strict=True):
            np.testing.assert_allclose(got, w, 2e-5, 1e-6)


def test_conditions_on_short_rows_are_on_their_elements():
    """Rows put together are walked as one, by full vectors, where their ends are certain."""
    for shape in ((700, 3), ("n", 3), ("n", "m")):
        x, y = gx.input("x", shape), gx.input("y", shape)
        c = gx.concatenate([x, y * 2, x * y], axis=0)
        f = gx.function([x, y], [gx.sum(c * c), gx.sum(gx.pad(x, [(2, 3), (0, 0)]) ** 2)])
        assert all(re.match(r"for \(\) reduce i\d<[^,]*:", k.text) for k in f.kernels)
        for n in (700,) if shape[0] == 700 else (1, 2, 50, 700):
            a, b = numbers((n, 3), "f4"), numbers((n, 3), "f4", 1)
            wide = np.concatenate([a, b * 2, a * b]).astype(np.float64)
            np.testing.assert_allclose(f(a, b)[0], (wide**2).sum(), 1e-5)
            np.testing.assert_allclose(f(a, b)[1], (a.astype(np.float64) ** 2).sum(), 1e-5)


@pytest.mark.parametrize(
    "target", [x86("v3"), x86("v4"), neon("aarch64-unknown-linux-gnu")], ids=["v3", "v4", "neon"],
)
def test_between_bounds_one_operand_is_read(target):
    x, y = gx.input("x", (4096,)), gx.input("y", (4096,))
    c = gx.concatenate([x, y])
    f = gx.function([x, y], gx.sum(c * c), name="f")
    text = compile_graph(f.optimized, target, kernels=True).llvm
    lanes = target.vector_bits // 32
    plain = re.findall(rf"= load (?:volatile )?<{lanes} x float>, ptr %t\d+, align 4", text)
    assert len(plain) >= 8  # four vectors of each operand, side by side


@pytest.mark.parametrize("target", [x86("v3"), x86("v4")], ids=["v3", "v4"])
def test_where_no_lane_is_read_nothing_far_is_asked_for(target):
    """Masked loads of pages that are not there take hundreds of cycles."""
    x, y = gx.input("x", ("n",)), gx.input("y", ("m",))
    far, near = gx.concatenate([x, y]), gx.pad(x, [(1, 1)])
    for part, guarded in ((far, True), (near, False)):
        f = gx.function([x, y], gx.sum(part * part))
        text = compile_graph(f.optimized, target).llvm
        assert (re.search(r"select i1 %t\d+, ptr %t\d+, ptr %ctx", text) is not None) == guarded
