"""Rows swept with the states of reductions in registers, from the first vector to the last."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.emission import abreast


def quotient(xp, x):
    low = x - xp.mean(x, axis=1, keepdims=True)
    return [xp.sum(x * xp.abs(x), axis=1) / xp.sum(xp.exp(low), axis=1)]


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return [e / xp.sum(e, axis=1, keepdims=True)]


PROGRAMS = {  # sweeps with one reduction, with two alike, with others of other types
    "var": lambda xp, x: [xp.var(x, axis=1)],
    "sums": lambda xp, x: [xp.sum(x * x + 1, axis=1) / xp.sum(xp.maximum(x, 0) + 2, axis=1)],
    "ends": lambda xp, x: [xp.max(x, axis=1), xp.min(x, axis=1)],
    "place": lambda xp, x: [xp.argmax(x, axis=1), xp.max(x, axis=1)],
    "quotient": quotient,
    "softmax": softmax,
}
CLOSE = {"float16": 0.01, "float32": 1e-5, "float64": 1e-13, "int64": 0}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("program, dtype", [
    (p, d) for p in PROGRAMS for d in CLOSE if d != "int64" or p in ("ends", "place")
])
def test_what_is_left_of_a_row(program, dtype, named, monkeypatch):
    """No, some and all but one of a group's vectors, and of a vector's lanes: the bits of states
    that stand in memory."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    group = 32 if dtype in ("float64", "int64") else 64
    left = (0, 1, 8, 9, 17, group // 2, group - 1)
    if named:
        left += (7, 15, 16, 24, 25)
    lengths = [4 * group + k for k in left]

    def made():
        found = []
        for d in ["d"] if named else lengths:
            x = gx.input("x", ("n", d), dtype)
            found.append(gx.function([x], PROGRAMS[program](gx, x)).compile())
        return found

    kept = made()
    monkeypatch.setattr(abreast, "suits", lambda *of: False)
    other = made()
    assert any(f.llvm_ir() != g.llvm_ir() for f, g in zip(kept, other, strict=True))
    for k, d in enumerate([5, group - 1, group, *lengths] if named else lengths):
        a = np.random.default_rng(d).normal(size=(7, d)) * (9 if dtype == "int64" else 1)
        a = a.astype(dtype)  # sums of exponentials stay within 16 bits
        a[1], a[2, ::3] = -0.0, a[2, 0]
        if a.dtype.kind == "f":
            a[3, -1] = a[4, d // 2] = np.nan
        j = 0 if named else k
        wide = PROGRAMS[program](np, a.astype("f8") if a.dtype.kind == "f" else a)
        for got, want, w in zip(kept[j](a), other[j](a), wide, strict=True):
            np.testing.assert_allclose(got, w, rtol=CLOSE[dtype], atol=CLOSE[dtype])
            np.testing.assert_array_equal(got, want)
            assert got[:3].tobytes() == want[:3].tobytes()  # NaN may differ in its sign


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_left_of_a_part_of_the_only_row(dtype):
    x, y = gx.input("x", ("n",), dtype), gx.input("y", ("n",), dtype)
    f = gx.function([x, y], [gx.sum(x * y), gx.max(x), gx.argmin(y), gx.sum(x > y)])
    for n in (1, 63, 64, 65, 4097, 70001):
        a, b = np.random.default_rng(n).integers(-9, 9, (2, n)).astype(dtype)
        want = (a @ b, a.max(), b.argmin(), (a > b).sum())
        for got, w in zip(f(a, b), want, strict=True):
            assert got == w
