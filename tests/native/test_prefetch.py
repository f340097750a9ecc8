"""Sweeps over rows: what they ask for ahead, and what they keep in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc import types
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine import target
from graphc.codegen.machine.target import host, x86
from graphc.codegen.matmul import dot, row


@pytest.mark.parametrize(("m", "ahead"), [(16, False), (1000, True), ("m", True), (1 << 17, False)])
def test_sweeps_ask_for_the_next_row_where_one_fits_into_cache(m, ahead):
    x = gx.input("x", ("n", m))
    f = gx.function([x], gx.nn.softmax(x, axis=1))
    assert ("@llvm.prefetch" in f.llvm_ir()) == ahead
    a = np.arange(3 * 1000, dtype="float32").reshape(3, 1000) % 7
    if m in (1000, "m"):
        e = np.exp(a.astype(float))
        np.testing.assert_allclose(f(a), e / e.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("n", [30, 3000, "n"])
def test_cheap_sweeps_do_not_ask_for_far_rows_of_zen_4(n, monkeypatch):
    """Their sums are those of rows that were asked for; exponentials ask for all."""
    here = target.host()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    a = np.random.default_rng(1).normal(size=(30 if n == "n" else n, 2000)).astype("float32")
    results = []
    for core in (target.ZEN4, ""):
        monkeypatch.setattr(target, "host", lambda core=core: here._replace(core=core))
        x = gx.input("x", (n, 2000))
        cheap, costly = (gx.function([x], what(x, axis=1)) for what in (gx.var, gx.logsumexp))
        asked = "@llvm.prefetch" in cheap.llvm_ir()
        assert asked == (core == "" or n != 3000) and "@llvm.prefetch" in costly.llvm_ir()
        results.append([f(a).tobytes() for f in (cheap, costly)])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("what", "m", "asked"),
    [("ends", 1 << 16, True), ("ends", 1 << 17, True), ("ends", 1 << 18, False),
     ("stored", 1 << 16, False), ("two", 1 << 16, False)],
)
def test_golden_cove_asks_for_long_rows_that_are_alone(what, m, asked, monkeypatch):
    """Where its cache would hold more than two of them, they would push each other out."""
    here = target.host()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    a = np.random.default_rng(1).normal(size=(3, m)).astype("float32")
    results = []
    for core in (target.GOLDEN_COVE, ""):
        monkeypatch.setattr(target, "host", lambda core=core: here._replace(core=core))
        x, y = gx.input("x", ("n", m)), gx.input("y", ("n", m))
        f = gx.function([x, y], {
            "ends": gx.var(x, axis=1), "stored": gx.nn.softmax(x, axis=1),
            "two": gx.sum(y * gx.nn.log_softmax(x, axis=1), axis=1),
        }[what])
        assert ("@llvm.prefetch" in f.llvm_ir()) == (asked and core == target.GOLDEN_COVE)
        results.append(f(a, a).tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("rows, asked", [(2000, False), (4000, True), ("n", True)])
def test_far_rows_of_zen_3_come_as_streams(rows, asked, monkeypatch):
    """Of one operand, in cheap sweeps; no bit depends on it."""
    here = target.host()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    a = np.random.default_rng(2).normal(size=(257 if rows == "n" else rows, 1000)).astype("float32")
    a.ravel()[-1] = 9  # the last is the greatest
    results = []
    for core in (target.ZEN3, ""):
        monkeypatch.setattr(target, "host", lambda core=core: here._replace(core=core))
        x = gx.input("x", (rows, 1000))
        alone = [
            gx.function([x], y)
            for y in (gx.sum(x), gx.max(x), gx.sum(x, axis=1), gx.argmax(x, axis=1))
        ]
        two = gx.function([x], gx.sum(x * gx.roll(x, 1, axis=0), axis=1))
        for f in alone:
            assert ("@llvm.prefetch" in f.llvm_ir()) == (asked and core == target.ZEN3)
        assert "@llvm.prefetch" not in two.llvm_ir()
        results.append([f(a).tobytes() for f in (*alone, two)])
    assert results[0] == results[1]
    np.testing.assert_allclose(alone[2](a), a.sum(1, dtype=float), rtol=1e-4, atol=1e-3)
    assert alone[1](a) == 9 and alone[3](a)[-1] == 999


@pytest.mark.skipif(host().vector_bits < 256, reason="of AVX2, which this CPU lacks")
def test_far_products_with_a_vector_of_zen_3_ask_for_streams(monkeypatch):
    """Of rows that are no multiple of anything; no bit depends on it."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(dot, "STREAM_BYTES", 0)
    rng = np.random.default_rng(4)
    a, v = rng.normal(size=(11, 1499)).astype("float32"), rng.normal(size=1499).astype("float32")
    results = []
    for core in (target.ZEN3, ""):
        monkeypatch.setattr(target, "host", lambda core=core: x86("v3")._replace(core=core))
        x, y = gx.input("x", ("n", "k")), gx.input("y", ("k",))
        f = gx.function([x, y], x @ y)
        module = Module()
        name = dot.define_rows(module, target.host(), types.f32)
        assert ("@llvm.prefetch" in module.functions[name]) == (core == target.ZEN3)
        results.append(f(a, v))
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], a.astype(float) @ v, rtol=1e-4, atol=1e-3)


WITHIN, BEYOND, NAMED = 256, 4096, "n"  # rows of 1,000: in a core's own cache, and of 16 MB


@pytest.mark.skipif(host().vector_bits < 512, reason="of AVX-512, which this CPU lacks")
@pytest.mark.parametrize("rows", [WITHIN, BEYOND, NAMED])
def test_zen_5_asks_for_what_its_own_cache_does_not_hold(rows, monkeypatch):
    """Of one operand, in the order of memory, in cheap sweeps; no bit depends on it."""
    here = target.host()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    rng = np.random.default_rng(5)
    a = rng.normal(size=(257 if rows == NAMED else rows, 1000)).astype("float32")
    a[-1, -1] = 9  # the last is the greatest
    results = []
    for core in (target.ZEN5, ""):
        monkeypatch.setattr(target, "host", lambda core=core: here._replace(core=core))
        x = gx.input("x", (rows, 1000))
        eights = x.reshape(-1, 8)
        asking = [
            gx.function([x], y) for y in (
                gx.sum(x), gx.max(x), gx.sum(x, axis=1), gx.argmax(x, axis=1), gx.sum(x, axis=0),
                gx.sum(eights, axis=0))
        ]
        two = gx.function([x], gx.sum(x * gx.roll(x, 1, axis=0), axis=1))
        for f in asking:
            asked = "@llvm.prefetch" in f.llvm_ir()
            assert asked == (rows != WITHIN and core == target.ZEN5), f.kernels
        assert "@llvm.prefetch" not in two.llvm_ir()
        results.append([f(a).tobytes() for f in (*asking, two)])
    assert results[0] == results[1]
    np.testing.assert_allclose(asking[2](a), a.sum(1, dtype=float), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(asking[4](a), a.sum(0, dtype=float), rtol=1e-4, atol=1e-3)
    assert asking[1](a) == 9 and asking[3](a)[-1] == 999


def test_rows_that_pass_by_in_pieces_are_not_asked_for(monkeypatch):
    """Nor long ones: what is asked for would be other rows', or be gone when its turn comes."""
    monkeypatch.setattr(target, "host", lambda: x86("v4")._replace(core=target.ZEN5))
    for length, columns, asked in ((1024, 1024, True), (4096, 4096, False), (2048, 1024, False)):
        x = gx.input("x", ("n", length))
        f = gx.function([x], gx.sum(x[:, :columns], axis=0))
        assert ("@llvm.prefetch" in f.llvm_ir()) == asked


@pytest.mark.skipif(host().vector_bits < 512, reason="of AVX-512, which this CPU lacks")
@pytest.mark.parametrize("shape", [(11, 1499), (19, 256), (37, 4096), (8, 5000)])
def test_products_with_a_vector_of_zen_5_ask_ahead(shape, monkeypatch):
    """Of any size, of which nothing is near; no bit depends on it."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    for module in (dot, row):
        monkeypatch.setattr(module, "CORE_BYTES", 0)
    rng, here = np.random.default_rng(6), target.host()
    a = rng.normal(size=shape).astype("float32")
    v, w = (rng.normal(size=n).astype("float32") for n in shape)
    results = []
    for core in (target.ZEN5, ""):
        monkeypatch.setattr(target, "host", lambda core=core: here._replace(core=core))
        x, y, z = gx.input("x", ("m", "k")), gx.input("y", ("m",)), gx.input("z", ("k",))
        along, down = gx.function([x, z], x @ z), gx.function([x, y], y @ x)
        module = Module()
        names = [dot.define_rows(module, target.host(), types.f32)]
        row.define_stream(module, target.host(), types.f32, 256)
        names += [name for name in module.functions if name.endswith("_asking")]
        assert len(names) == (2 if core else 1)
        for name in names:
            asked = "i32 0, i32 3" in module.functions[name]  # for the nearest cache
            assert asked == (core == target.ZEN5)
        results.append((along(a, w), down(a, v)))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(results[0][0], a.astype(float) @ w, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(results[0][1], v @ a.astype(float), rtol=1e-4, atol=1e-3)


def test_products_by_avx2_on_zen_5_ask_for_nothing():
    """Nor do they read as few rows side by side as those that ask: a tenth longer."""
    module = Module()
    row.define_stream(module, x86("v3")._replace(core=target.ZEN5), types.f32, 256)
    assert not any(name.endswith("_asking") for name in module.functions)


@pytest.mark.parametrize("m", [1024, "m"])
def test_cheap_sweeps_of_a_long_nest_keep_their_sums_in_registers(m):
    """In memory each sum waited for the store before it: layer norms took up to a fifth longer."""
    x, w, b = gx.input("x", ("n", m)), gx.input("w", (m,)), gx.input("b", (m,))
    f = gx.function([x, w, b], gx.nn.layer_norm(x, w, b))
    loops = re.findall(r"((?:  %loop\S+ = phi <\d+ x float> .*\n)+)", f.llvm_ir())
    assert [found.count("phi") for found in loops] == [256 // (host().vector_bits // 8)] * 2
    rng = np.random.default_rng(3)
    for n in (1, 1023, 1024, 1025) if m == "m" else (m,):
        a, c, d = (rng.normal(size=s).astype("float32") for s in ((5, n), n, n))
        e = a.astype("float64") - a.mean(1, keepdims=True, dtype="float64")
        want = e / np.sqrt((e * e).mean(1, keepdims=True) + 1e-5) * c + d
        np.testing.assert_allclose(f(a, c, d), want, rtol=1e-4, atol=1e-5)
