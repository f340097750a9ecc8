"""Elementwise kernels of much data store past the caches: the bits are those of ordinary stores."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import streaming, turned
from graphc.codegen.machine.target import X86, ZEN3, ZEN4, host, x86

RNG = np.random.default_rng(7)
SIZES = (0, 1, 15, 70, 1000, 4096, 9001)
MARK = 77

pytestmark = pytest.mark.skipif(host().arch not in X86, reason="stores stream on x86-64")


@pytest.fixture(autouse=True, params=[0, 1 << 40])
def caches(monkeypatch, request):
    """Every kernel takes its data for too large, or none of those of symbolic size; and no program
    of others is found."""
    monkeypatch.setattr(streaming, "BYTES", request.param)
    monkeypatch.setattr(streaming, "FEWER", request.param)
    monkeypatch.setattr(streaming, "TURNED", request.param)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def place(shape, dtype, shift):
    """An array that begins `shift` elements after a line's start, and all of its memory."""
    dtype = np.dtype(dtype)
    around = np.full(int(np.prod(shape)) * dtype.itemsize + 512, MARK, np.uint8)
    first = -around.ctypes.data % 64 + 64 + shift * dtype.itemsize
    end = first + int(np.prod(shape)) * dtype.itemsize
    return around[first:end].view(dtype).reshape(shape), around, (first, end)


def checked(call, outputs, want):
    call()
    for (out, around, (first, end)), w in zip(outputs, want, strict=True):
        np.testing.assert_array_equal(out, w)
        assert (around[:first] == MARK).all() and (around[end:] == MARK).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
def test_outputs_anywhere_in_a_line(dtype):
    x, y = gx.input("x", ("n",), dtype), gx.input("y", ("n",), dtype)
    f = gx.function([x, y], x * y + x)
    for n in SIZES:
        a, b = RNG.integers(0, 9, n).astype(dtype), RNG.integers(0, 9, n).astype(dtype)
        for shift in (0, 1, 5):
            out = place((n,), dtype, shift)
            checked(lambda a=a, b=b, o=out[0]: f(a, b, out=o), [out], [a * b + a])
    if dtype != "float16":  # which no register holds sixteen bytes of on every machine
        assert "!nontemporal" in f.llvm_ir() and "sfence" in f.llvm_ir()
        assert "call void @llvm.prefetch" in f.llvm_ir(), "short formulas too ask for operands"


@pytest.mark.parametrize("n", SIZES)
def test_outputs_that_begin_lines_apart(n):
    """Of several outputs all begin a line at one element, or none is stored so."""
    x = gx.input("x", (n,))
    f = gx.function([x], [x + 1.0, gx.astype(x, "float64") * 0.5, gx.astype(x, "int32")])
    if n >= 1000 and host().vector_bits >= 256:  # sixteen bytes of every output in a vector
        assert ("!nontemporal" in f.llvm_ir()) == (streaming.BYTES == 0)
    a = RNG.integers(0, 9, n).astype("float32")
    for shifts in ((0, 0, 0), (3, 1, 0), (4, 4, 4), (12, 12, 12)):
        dtypes = ("float32", "float64", "int32")
        outs = [place((n,), d, s) for d, s in zip(dtypes, shifts, strict=True)]
        checked(lambda a=a, o=outs: f(a, out=[k[0] for k in o]), outs, [a + 1, a * 0.5, a])


@pytest.mark.parametrize("columns", [64, 100, 250, 5000, "m"])
def test_rows_and_a_broadcast(columns):
    """Each row has a head of its own; the formula goes several vectors at a time."""
    x, r = gx.input("x", ("n", columns)), gx.input("r", (columns,))
    v = x + r
    for k in range(6):
        v = v * x + float(k)
    f = gx.function([x, r], v)
    if columns == "m":
        assert "call void @llvm.prefetch" in f.llvm_ir()
    for m in (16, 70, 300) if columns == "m" else (columns,):
        a = RNG.integers(-1, 2, (7, m)).astype("float32")
        b = RNG.integers(-1, 2, m).astype("float32")
        want = a + b
        for k in range(6):
            want = want * a + np.float32(k)
        for shift in (0, 3):
            out = place((7, m), "float32", shift)
            checked(lambda a=a, b=b, o=out[0]: f(a, b, out=o), [out], [want])


@pytest.mark.parametrize("m", [32, 96, "m"])
def test_rows_too_short_for_heads(m):
    """Rows of a cheap formula are written without looking for beginnings of lines, unless they are
    long or go past the caches: 10,000 gathered rows of four took five times as long by that."""
    x, r = gx.input("x", ("n", m)), gx.input("r", (m,))
    f = gx.function([x, r], x + r)
    plain = re.search(r"plain\d+:.*?longer\d+:", f.llvm_ir(), re.S)
    assert plain is not None and "store" in plain[0]
    assert "ptrtoint" not in plain[0] and "nontemporal" not in plain[0]
    assert "udiv" not in plain[0], "such rows are one block, so the places of rows are the items"
    for columns in (4, 100, 1023, 1024, 1500) if m == "m" else (m,):
        a = RNG.integers(-9, 9, (7, columns)).astype("float32")
        b = RNG.integers(-9, 9, columns).astype("float32")
        for shift in (0, 3):
            out = place((7, columns), "float32", shift)
            checked(lambda a=a, b=b, o=out[0]: f(a, b, out=o), [out], [a + b])


@pytest.mark.parametrize("columns, past", [
    (100, False), (112, True), (239, False), (240, True), (241, True), (2000, True),
])
def test_rows_share_few_lines(columns, past):
    """Where rows end in lines that the next ones begin, each kind of store waits for the other:
    short rows of less than whole lines are stored plainly, also where their length has a name."""
    x, r = gx.input("x", ("n", columns)), gx.input("r", (columns,))
    assert ("!nontemporal" in gx.function([x, r], x + r).llvm_ir()) == past
    named = gx.input("x", ("n", "m"))
    f = gx.function([named], named[:, 1:] * 2.0)
    assert re.search(rf"icmp sge i64 %\w+, {streaming.SHARING_ROW}\b", f.llvm_ir())
    a = RNG.normal(size=(9, columns + 1)).astype("float32")
    for shift in (0, 1, 8):
        out = place((9, columns), "float32", shift)
        checked(lambda o=out[0]: f(a, out=o), [out], [a[:, 1:] * np.float32(2)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_of_rows_count_as_one_and_wait_once(dtype):
    """What tells is how much all parts of rows write, and there is one fence for all of them."""
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", ("n", "k"), dtype)
    f = gx.function([x, y], gx.concat([x + 1.0, y, x * 3.0], axis=1))
    tasks = dict(re.findall(r"^define [^@]*@([\w.]+)\([^\n]*\n(.*?)^}", f.llvm_ir(), re.M | re.S))
    parts = [t for n, t in tasks.items() if re.search(r"\.parts\.of\d+\.task$", n)]
    assert len(parts) == 3 and all("!nontemporal" in t and "sfence" not in t for t in parts)
    (whole,) = (t for n, t in tasks.items() if n.endswith(".parts.task"))
    assert whole.count("call void @llvm.x86.sse.sfence") == 1
    for n, m, k in ((1, 300, 300), (9, 70, 100), (40, 64, 1), (300, 33, 17)):
        a, b = RNG.normal(size=(n, m)).astype(dtype), RNG.normal(size=(n, k)).astype(dtype)
        want = np.concatenate([a + 1, b, a * 3], axis=1)
        for shift in (0, 1, 5):
            out = place(want.shape, dtype, shift)
            checked(lambda a=a, b=b, o=out[0]: f(a, b, out=o), [out], [want])


def test_in_place_and_read_next():
    """A state is written where it was read; a kernel that follows sees what was stored."""
    w = gx.variable(np.arange(3000), "w", "float32")
    x = gx.input("x", (3000,))
    y = x + w * 2.0
    f = gx.function([x], [y, gx.cumsum(y)[-1]], updates={w: w - x})
    a = np.ones(3000, "float32")
    for step in range(3):
        out, last = f(a)
        want = 1 + 2 * (np.arange(3000, dtype="float32") - step)
        np.testing.assert_array_equal(out, want)
        np.testing.assert_allclose(last, want.sum(), rtol=1e-5)
    np.testing.assert_array_equal(w.value, np.arange(3000) - 3)


def test_operands_at_positions_that_data_give():
    """Those are not asked for: where the next ones stand is not known yet."""
    x, i = gx.input("x", ("n", 1)), gx.input("i", ("n",), "int64")
    f = gx.function([x, i], gx.tanh(gx.take_along_axis(x, i[:, None], axis=1)))
    a = RNG.normal(size=(300, 1)).astype("float32")
    at = RNG.integers(-1, 1, 300)
    np.testing.assert_allclose(f(a, at), np.tanh(a), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("sizes", [("n", "m"), (70, 192), (200, 33)])
def test_transposes_anywhere_in_a_line(sizes, dtype, monkeypatch):
    """Blocks begin where lines do, of rows whose length is a multiple of them or not; the next
    block is asked for, and nothing beyond the last."""
    monkeypatch.setattr(turned, "FAR", 0)
    x, y = gx.input("x", sizes, dtype), gx.input("y", (sizes[1], sizes[0]), dtype)
    f = gx.function([x, y], x.T * y)
    if dtype == "float32" and not isinstance(sizes[0], int):
        assert "!nontemporal" in f.llvm_ir() and "call void @llvm.prefetch" in f.llvm_ir()
    shapes = [sizes] if sizes[0] != "n" else [(0, 3), (1, 1), (8, 70), (64, 40), (200, 192)]
    for n, m in shapes:
        a = RNG.integers(0, 9, (n, m)).astype(dtype)
        b = RNG.integers(0, 9, (m, n)).astype(dtype)
        for shift in (0, 1, 5, 15):
            out = place((m, n), dtype, shift)
            checked(lambda a=a, b=b, o=out[0]: f(a, b, out=o), [out], [a.T * b])


def test_only_rows_of_whole_lines_are_turned_past_the_caches_without_masked_stores():
    """Known or found at run time, where others go by ordinary stores."""
    large = streaming.BYTES == 0
    for sizes, avx2, avx512 in (
        ((640, 200), large, large), ((650, 200), False, large), (("n", "m"), True, True),
    ):
        x = gx.input("x", sizes)
        f = gx.function([x], x.T + 1.0)
        for level, passes in (("v3", avx2), ("v4", avx512)):
            text = compile_graph(f.optimized, x86(level)).llvm
            assert ("!nontemporal" in text) == passes


@pytest.mark.parametrize("level, core, mib, turned_mib", [
    ("v3", "", 96, 96), ("v3", ZEN3, 24, 12), ("v4", ZEN4, 96, 12),
])
def test_how_much_is_too_large_for_the_caches(level, core, mib, turned_mib, monkeypatch):
    """Of f32 that are read and written."""
    monkeypatch.undo()
    here = x86(level)._replace(core=core)
    for most, turning in ((mib, False), (turned_mib, True)):
        for columns, past in ((most * 2 - 2, False), (most * 2 + 2, True)):
            x = gx.input("x", (1 << 16, columns) if turning else (columns, 1 << 16))
            f = gx.function([x], x.T + 1.0 if turning else x + 1.0)
            text = compile_graph(f.optimized, here).llvm
            assert ("!nontemporal" in text) == past
