"""Functions of rows that are written out: one call for some elements has the bits of each alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import called
from graphc.codegen.machine.target import x86

ROWS = (0, 1, 15, 16, 17, 64, 70, 301)
LESS = {"keepdims": True, "axis": 1}
FORMULAS = {
    "tanh": lambda x: gx.tanh(x) - gx.max(x, **LESS),
    "nested": lambda x: gx.sin(gx.exp(-gx.sin(x) ** 2) + x) - gx.mean(gx.tanh(gx.tanh(x)), **LESS),
    "sine beside cosine": lambda x: gx.sin(x) * gx.cos(x) + gx.cos(gx.sum(gx.sin(x), **LESS)),
    "two operands": lambda x: gx.abs(x) ** gx.mean(x, **LESS) - gx.sum(x ** 1.7, **LESS),
    "masked": lambda x: gx.where(x > 0, gx.log1p(gx.abs(x)), gx.sinh(x)) - gx.min(x, **LESS),
    "a total": lambda x: gx.sum(gx.log(gx.sum(gx.cosh(x) ** 2, axis=1))),
}


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def data(rows, length, dtype):
    """Some numbers, and arguments that functions have ways of their own for."""
    a = np.random.default_rng(length).normal(size=(rows, length))
    odd = [np.inf, -np.inf, np.nan, 1e4, -1e-4, 0.0, -0.0]
    a.flat[: min(a.size, 7)] = odd[: a.size]
    return a.astype(dtype)


def bits(a):
    """Those of an array's elements; NaN may have any sign."""
    return np.where(np.isnan(a), a.dtype.type(np.nan), a).tobytes()


def called_always(monkeypatch, always):
    for limit in ("MOST_COST", "MOST_COST_OF_FEW"):
        monkeypatch.setattr(called, limit, -1 if always else 1 << 30)


@pytest.mark.parametrize("what", FORMULAS)
@pytest.mark.parametrize("length", [2, 3, 5, 10, 15, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.filterwarnings("ignore:.*(overflow|invalid|divide):RuntimeWarning")
def test_bits_of_what_is_written_out(what, length, dtype, monkeypatch):
    found = []
    for always in (False, True):
        called_always(monkeypatch, always)
        x = gx.input("x", ("r", length), dtype)
        f = gx.function([x], FORMULAS[what](x))
        found.append([f(data(rows, length, dtype)) for rows in ROWS])
    for one, other in zip(*found, strict=True):
        assert bits(one) == bits(other)
    want = gx.function([x], FORMULAS[what](x), mode="interpret")(data(301, length, dtype))
    close = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(found[1][-1], want, rtol=close, atol=close)


def calls(formula, length, level):
    """The calls of functions in the text of a formula of rows, by name."""
    x = gx.input("x", ("r", length))
    text = compile_graph(gx.function([x], formula(x)).graph, x86(level)).llvm
    return re.findall(r"= call .* @graphc\.(\w+)\.f32\.(\w+)\(", text)


def test_one_call_computes_some_elements():
    assert calls(FORMULAS["tanh"], 16, "v4") == [("tanh", "v16f32x4")] * 4
    assert calls(FORMULAS["tanh"], 16, "v3") == [("tanh", "v8f32x2")] * 8
    of_fifteen = calls(lambda x: gx.log1p(x) - gx.max(x, **LESS), 15, "v4")
    assert of_fifteen == [("log1p", "v16f32x4")] * 3 + [("log1p", "v16f32x2")]


def test_what_gains_nothing_is_written_out():
    assert not calls(lambda x: gx.nn.softmax(x, axis=1), 10, "v4")
    assert not calls(FORMULAS["sine beside cosine"], 16, "v4")
    assert not calls(lambda x: gx.atan2(x, gx.sum(x, **LESS)), 16, "v4")
    x = gx.input("x", ("r", 16))
    whole = compile_graph(gx.function([x], gx.tanh(gx.exp(gx.sin(x)))).graph, x86("v4")).llvm
    assert "@graphc.tanh.f32" not in whole


def test_a_library_of_several_levels(tmp_path):
    x = gx.input("x", ("r", 12))
    f = gx.function([x], FORMULAS["nested"](x), name="nested")
    gx.export(f, tmp_path / "libnested.so")
    a = data(70, 12, "float32")
    assert bits(gx.load(tmp_path / "libnested.so").nested(a)) == bits(f(a))
