"""Rows that are swept begin with a head where their stores do not begin a line: bits and guards."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import heads
from graphc.codegen.machine.target import neon, x86

LESS = {"axis": 1, "keepdims": True}
FORMULAS = {
    "softmax": lambda x: gx.nn.softmax(x, axis=1),
    "deviations": lambda x: x - gx.mean(x, **LESS),
    "two stores": lambda x: [x - gx.max(x, **LESS), gx.exp(x - gx.max(x, **LESS))],
    "beside sums": lambda x: [x / gx.sum(x * x, **LESS), gx.sum(x / gx.sum(x * x, **LESS), axis=0)],
    "gradient": lambda x: gx.grad(gx.sum(gx.nn.softmax(x, axis=1) ** 2), x),
}


def compiled(what, length, dtype):
    """A fresh function of one formula."""
    x = gx.input("x", ("r", length), dtype)
    return gx.function([x], FORMULAS[what](x)).compile()


def results(f, a, offset):
    """What a function gives, written from `offset` elements into a line on; the guards."""
    outs, whole = [], []
    for y in found if isinstance(found := f(a), list) else [found]:
        room = np.full(y.size + 192, 7, y.dtype)
        begin = -room.ctypes.data % 64 // y.itemsize + 64 + offset
        whole.append((room, begin, y.size))
        outs.append(room[begin : begin + y.size].reshape(y.shape))
    f(a, out=outs if len(outs) > 1 else outs[0])
    for room, begin, size in whole:
        assert (room[:begin] == 7).all() and (room[begin + size :] == 7).all()
    return [y.tobytes() for y in outs]


@pytest.mark.parametrize("what", FORMULAS)
@pytest.mark.parametrize("length", [511, 512, 513, 600, 1000, 1024, 1031, 5000, "n"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_bits_of_rows_without_heads(what, length, dtype, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    rng = np.random.default_rng(1)
    made = compiled(what, length, dtype)
    monkeypatch.setattr(heads, "LEAST_BYTES", 1 << 40)
    whole = compiled(what, length, dtype)
    for n in (3, 1001, 2048) if length == "n" else (length,):
        a = (rng.random((5, n)) + 0.5).astype(dtype)
        for offset in (0, 1, 4, 15):
            assert results(made, a, offset) == results(whole, a, offset), (n, offset)


def test_which_rows_have_heads():
    """Those that are long, whose last sweep waits for its stores, of whole registers."""

    def has(formula, length, target, dtype="float32"):
        x = gx.input("x", ("r", length), dtype)
        text = compile_graph(gx.function([x], formula(x)).graph, target).llvm
        return "ptrtoint ptr" in text

    less = FORMULAS["deviations"]
    for level in ("v4", "v3", "v2"):
        assert has(less, 1024, x86(level)) and has(less, "n", x86(level))
        assert not has(less, 300, x86(level))
    assert not has(less, 1024, neon("aarch64-unknown-linux-gnu"))
    assert not has(lambda x: gx.sum(x * x, axis=1), 1024, x86("v4"))
    costly = has(lambda x: gx.atan2(x, gx.sum(x, **LESS)), 1024, x86("v4"))
    assert not costly
