"""Sums of rows that are put together are cut between them (`index_splitting`)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine.target import x86
from graphc.codegen.nests import index_splitting


def outputs(m, x, y, z):
    both = m.concatenate([x, y * 2, x[1:]], axis=0)
    around = m.pad(x, [(2, 1), (0, 0)])
    top = m.max(both, axis=1, keepdims=True)
    e = m.exp(both - top)
    return [
        m.sum(both * both, axis=1), e / m.sum(e, axis=1, keepdims=True), m.max(around, axis=1),
        z * m.sum(both, axis=1, keepdims=True) - m.sum(both * z, axis=1, keepdims=True),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", ["m", 3, 10, 40, 600])
def test_values_and_bits_of_rows(monkeypatch, dtype, m):
    shapes = {"x": ("n", m), "y": ("k", m), "z": (1, m)}
    inputs = [gx.input(k, s, dtype) for k, s in shapes.items()]
    rng = np.random.default_rng(35)
    several = outputs(gx, *inputs)
    cut = gx.function(inputs, several)
    with monkeypatch.context() as patch:
        patch.setattr(index_splitting, "_sums_rows", lambda nest: False)
        whole = gx.function(inputs, several).compile()
    assert cut.compile().llvm_ir() != whole.llvm_ir()
    for length in (m,) if m != "m" else (1, 2, 5, 33, 700):
        for n, k in ((1, 1), (5, 3), (70, 20), (2, 100)):
            a, b, c = (rng.normal(size=(rows, length)).astype(dtype) for rows in (n, k, 1))
            got = cut(a, b, c)
            for x_, y_ in zip(got, whole(a, b, c), strict=True):
                assert x_.tobytes() == y_.tobytes()
            for x_, y_ in zip(got, outputs(np, *(v.astype("f8") for v in (a, b, c))), strict=True):
                np.testing.assert_allclose(x_, y_, 2e-5, 2e-4)


@pytest.mark.parametrize("target", [x86("v2"), x86("v3"), x86("v4")], ids=["v2", "v3", "v4"])
def test_pieces_are_kernels_without_conditions(target):
    x, y = gx.input("x", ("n", 600)), gx.input("y", ("k", 600))
    f = gx.function([x, y], gx.nn.softmax(gx.concatenate([x, y], axis=0), axis=1), name="f")
    text = compile_graph(f.optimized, target).llvm
    assert "@f.k0.p0" in text and "@f.k0.p1" in text and "@f.k0.p2" not in text
    assert re.search(r"select i1 %t\d+, ptr %t\d+, ptr %ctx", text) is None


def test_states_that_later_sweeps_read_are_not_written_over():
    """The new state of an element is known before the sum that the old one is multiplied with; the
    rows are longer than registers hold."""
    rng = np.random.default_rng(36)
    s = gx.variable(rng.normal(size=(40, 600)).astype("f4"), "s")
    x = gx.input("x", (20, 600))
    both = gx.concatenate([x, x * 2], axis=0)
    scaled = s * gx.sum(both * s, axis=1, keepdims=True)
    f = gx.function([x], scaled, updates={s: s * 3 + both})
    a = rng.normal(size=(20, 600)).astype("f4")
    wide, old = np.concatenate([a, a * 2]).astype("f8"), s.value.astype("f8")
    np.testing.assert_allclose(
        f(a), old * (wide * old).sum(axis=1, keepdims=True), 1e-4, 1e-4)
    np.testing.assert_allclose(s.value, old * 3 + wide, 1e-5, 1e-5)
