"""Loops that read operands ahead of stores: same results, and nothing beyond an operand is read."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.codegen.emission import ahead, streaming
from graphc.codegen.machine.target import X86, host

RNG = np.random.default_rng(3)
CARRIED = re.compile(r"phi <\d+ x (float|double|i\d+)>")

pytestmark = pytest.mark.skipif(host().arch not in X86, reason="loads go ahead on x86-64")


@pytest.fixture(autouse=True, params=["v3", "v4"])
def small(monkeypatch, request):
    """Arrays of all sizes may be mistaken for each other; no program of others is found."""
    monkeypatch.setattr(ahead, "ALIASED", 0)
    monkeypatch.setattr(ahead, "LONG_ROW", 7)
    monkeypatch.setenv("GRAPHC_CPU", request.param)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def filled(values, at_end):
    a = guarded(values.shape, values.dtype.name, at_end)
    a[...] = values
    return a


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
@pytest.mark.parametrize("past", [0, 1 << 40])
def test_sizes_around_groups(monkeypatch, dtype, past):
    """One group, the last one read twice, and what is left; by symbolic and by declared size."""
    monkeypatch.setattr(streaming, "BYTES", past)
    sizes = [k * g + d for g in (16, 32, 64, 128, 256) for k in (1, 2, 3) for d in (-1, 0, 1)]
    cases = [("n", sizes), *((n, [n]) for n in (63, 128, 193, 1000))]
    for declared, found in cases:
        x, y = gx.input("x", (declared,), dtype), gx.input("y", (declared,), dtype)
        f = gx.function([x, y], [x * y + x, y - x])
        for n in (0, 1, *found) if declared == "n" else found:
            a, b = (RNG.integers(0, 9, n).astype(dtype) for _ in range(2))
            for at_end in (False, True):
                outs = [guarded((n,), dtype, at_end) for _ in range(2)]
                f(filled(a, at_end), filled(b, at_end), out=outs)
                np.testing.assert_array_equal(outs[0], a * b + a)
                np.testing.assert_array_equal(outs[1], b - a)
        if declared == "n":
            assert CARRIED.search(f.llvm_ir())


def test_states_in_place():
    """A group is read before the one ahead of it is written, over what it was made of."""
    for n in (31, 64, 128, 192, 1000, 1024):
        start = RNG.integers(0, 9, n).astype("float32")
        w, x = gx.variable(start, "w"), gx.input("x", (n,))
        f = gx.function([x], [], updates={w: w * 2.0 + x})
        a = RNG.integers(0, 9, n).astype("float32")
        f(a)
        f(a)
        np.testing.assert_array_equal(w.value, start * 4 + a * 3)
        assert n < 1000 or CARRIED.search(f.llvm_ir())


def test_spans_of_threads():
    """Each thread goes ahead up to the end of its own."""
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    one, two = (gx.function([x, y], x / (y + 1.0), threads=k, name=f"on{k}") for k in (1, 2))
    for n in (100_000, 262_144, 300_001):
        a, b = (filled(RNG.uniform(0, 1, n).astype("float32"), True) for _ in range(2))
        outs = [guarded((n,), "float32", True) for _ in range(2)]
        one(a, b, out=outs[0])
        two(a, b, out=outs[1])
        np.testing.assert_array_equal(outs[0], a / (b + np.float32(1)))
        np.testing.assert_array_equal(outs[1], outs[0])
    assert CARRIED.search(two.llvm_ir())


@pytest.mark.parametrize("m", [5, 200, "m"])
def test_rows_and_a_broadcast(m):
    """Rows have loops of their own, and what all rows share is read when it is wanted."""
    x, r = gx.input("x", ("n", m)), gx.input("r", (m,))
    f = gx.function([x, r], x * 2.0 + r)
    for columns in (3, 64, 1100) if m == "m" else (m,):
        a = filled(RNG.integers(0, 9, (5, columns)).astype("float32"), True)
        b = filled(RNG.integers(0, 9, columns).astype("float32"), True)
        out = guarded((5, columns), "float32", True)
        f(a, b, out=out)
        np.testing.assert_array_equal(out, a * 2 + b)
    assert bool(CARRIED.search(f.llvm_ir())) == (m != 5)


def test_loads_stand_before_the_stores_of_what_comes_first():
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    f = gx.function([x, y], x / (y + 1.0))
    loop = f.llvm_ir()
    loop = loop[CARRIED.search(loop).start() :]
    loop = loop[: loop.index("!llvm.loop")]
    read, divided = (
        sum(int(n) for n in re.findall(rf"{what} <(\d+) x", loop))
        for what in ("load(?: volatile)?", "fdiv")
    )
    assert read == 2 * divided
    assert loop.rindex("load ") < loop.index("store <")


def test_formulas_that_want_all_registers():
    """Chains side by side do not give theirs away."""
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    v = x
    for k in range(12):
        v = v * x + float(k)
    assert not CARRIED.search(gx.function([x, y], v * y).llvm_ir())
