"""Functions compiled while others are still being written."""

import threading
import time

import numpy as np
import pytest

import graphc as gx
from graphc.codegen import compile, templates
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine import jit, llvm, overlap
from graphc.codegen.machine.target import host
from graphc.codegen.straight import blocks
from graphc.codegen.straight import function as straight
from graphc.errors import CompileError


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Two CPUs, parts of a few kernels, and nothing from the cache."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(llvm, "cpus", lambda: 2)
    monkeypatch.setattr(overlap, "PART_BYTES", 6000)


def program():
    """Kernels of which most are like no other, some alike but for a number, and products."""
    x, w = gx.input("x", ("n", 16)), gx.input("w", (16, 16))
    ops = (gx.sin, lambda v: gx.roll(v, 3, axis=1), lambda v: gx.flip(v, axis=1) * x, gx.exp)
    h, outs = x, []
    for k in range(40):
        h = ops[k * k % 7 % 4](h) - gx.max(ops[k % 4](h), axis=1, keepdims=True)
        if k % 8 == 0:
            h = gx.tanh(h @ w)
        if k % 3 == 0:
            outs.append(gx.cumsum(h * float(k), axis=1))
    return gx.function([x, w], [h, *outs, *gx.grad(gx.sum(h), [x, w])], name="f")


def test_parts_compute_what_the_whole_does(monkeypatch):
    """To the bit, and with the same text; the first part is compiled before all is written."""
    events = []
    compile_object, text = llvm.compile_object, Module.text

    def compiled(t, target, **options):
        if threading.current_thread() is not threading.main_thread():
            events.append("part")
        return compile_object(t, target, **options)

    def written(module):
        events.append("whole")
        return text(module)

    monkeypatch.setattr(llvm, "compile_object", compiled)
    monkeypatch.setattr(compile.Module, "text", written)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("f4") / 4 for s in ((7, 16), (16, 16))]
    a = program().compile()
    assert events.index("part") < events.index("whole")
    monkeypatch.setattr(llvm, "cpus", lambda: 1)
    b = program().compile()
    assert a.llvm_ir() == b.llvm_ir()
    for got, want in zip(a(*arrays), b(*arrays), strict=True):
        assert got.tobytes() == want.tobytes()
    assert len(a._image.objects) > len(b._image.objects)


def test_what_products_share_comes_first(monkeypatch, tmp_path):
    """LLVM has it before a kernel is written, in the same parts for every program, so that the next
    finds them in the cache."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    events, kernel, generate = [], compile.define_kernel, llvm._generate

    def written(*args, **options):
        while not any("define hidden" in e for e in events):  # the other thread is on its way
            time.sleep(0.001)
        events.append("kernel")
        return kernel(*args, **options)

    monkeypatch.setattr(compile, "define_kernel", written)
    monkeypatch.setattr(llvm, "_generate", lambda t, *a: (events.append(t), generate(t, *a))[1])
    x, w = gx.input("x", ("n", 300)), gx.input("w", (300, 200))
    f = gx.function([x, w], gx.tanh(x @ w), name="f").compile()
    strips = [e for e in events[: events.index("kernel")] if "@graphc_matmul_f32_strip" in e]
    assert strips
    for again in (x @ w * 2.0, gx.exp(w.T @ x.T)):
        events[:] = ["define hidden"]
        g = gx.function([x, w], again, name="g").compile()
        assert not any("define hidden void @graphc_matmul_f32_strip" in e for e in events)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 300)).astype("f4"), rng.normal(size=(300, 200)).astype("f4") / 20
    assert np.allclose(f(a, b), np.tanh(a @ b), atol=1e-5)
    assert np.allclose(g(a, b), np.exp(b.T @ a.T), rtol=1e-4)


def test_products_that_may_be_written_out_wait(monkeypatch):
    """Which are in no function of straight-line code is known when all of these are."""
    begun = []
    begin = overlap.Overlap.begin
    monkeypatch.setattr(
        overlap.Overlap, "begin", lambda o, m, f: (begun.append([*m.functions]), begin(o, m, f))[1]
    )
    small, large = gx.input("s", (8, 8)), gx.input("l", (64, 64))
    f = gx.function([small], small @ small).compile()
    assert not begun and "graphc_matmul" not in f.llvm_ir()
    f = gx.function([small, large], [small @ small, large @ large]).compile()
    assert not begun and "@graphc_matmul_f32_strip_1(" in f.llvm_ir()
    f = gx.function([large], large @ large).compile()
    assert "graphc_matmul_f32_strip_1" in begun[0]
    # no function of straight-line code has room for more
    most = straight.MAX_LINES // blocks.SHARE * straight.VECTOR_BITS // 32
    assert max(most, straight.MAX_STEPS) <= templates.WRITTEN_OUT


def test_mistakes_and_missing_threads(monkeypatch):
    """A mistake in a part is told when all is compiled; without threads the parts are left."""
    module = Module()
    module.define("f", "define i32 @f() {\n  ret i32 %y\n}" + 6000 * " ")
    with overlap.Overlap(host()) as o:
        o.settle(module, ["f"])
        o._wait()
        assert o.left() == []
        with pytest.raises(CompileError, match="use of undefined value '%y'"):
            o.objects()

    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    f = program()
    assert np.isfinite(f(np.ones((2, 16), "f4"), np.eye(16, dtype="f4"))[0]).all()


def test_llvm_is_loaded_meanwhile(monkeypatch):
    """By another thread, for a long program, where it is not there yet."""
    loading = []
    monkeypatch.setattr(llvm, "preload", lambda: loading.append(threading.current_thread()))
    for nodes, there, wanted in ((overlap.LONG_NODES, False, 1), (overlap.LONG_NODES, True, 0),
                                 (overlap.LONG_NODES - 1, False, 0)):
        monkeypatch.setattr(llvm, "is_loaded", lambda there=there: there)
        loading.clear()
        with overlap.Overlap(host(), nodes):
            pass
        assert len(loading) == wanted
        assert threading.main_thread() not in loading


def test_what_waits_for_the_whole():
    """A variable must be one for all; what a function calls may come later."""
    variable = "@v = internal global i32 0"
    for body, whole in (("load i32, ptr @v", True), ("call i32 @later()", True),
                        ("add i32 1, 1", False)):
        module = Module()
        module.define_global("@v", variable)
        module.define("f", f"define i32 @f() {{\n  %y = {body}\n  ret i32 %y\n}}" + 6000 * " ")
        with overlap.Overlap(host()) as o:
            o.settle(module, ["f"])
            rest = o.rest(module.text())
            assert ("define i32 @f" in rest) == whole
            if not whole:
                objects = [*map(llvm.compile_object, o.left(), [host()] * 2), *o.objects()]
                assert jit.load(objects, exports=["f"])["f"]
