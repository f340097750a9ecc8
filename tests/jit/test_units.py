"""Cutting a module's text: templates get the same text in every program, and the parts link."""

import ctypes
import threading

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.machine import generator, jit, llvm, units
from graphc.codegen.machine.target import host
from graphc.errors import CompileError

TEXT = """
declare double @llvm.fabs.f64(double)
declare double @llvm.sqrt.f64(double)
@two = internal constant double 2.0
define internal double @graphc_half(double %x, double (double)* %f) nounwind "a"="b" {
  %a = call double @llvm.fabs.f64(double %x)
  %y = fmul double %a, 0.5
  ret double %y
}
define double @own(double %x) {
  %h = call double @graphc_half(double %x, ptr null)
  %s = call double @llvm.sqrt.f64(double %h)
  %t = load double, ptr @two
  %y = fmul double %s, %t
  ret double %y
}
!0 = !{}
""".replace("double (double)* %f", "ptr %f")


def test_parts_compute_what_the_whole_does():
    own, templates = units.split(TEXT)
    assert "define hidden double @graphc_half" in templates and "@own" not in templates
    assert "declare hidden double @graphc_half(double %x, ptr %f)\n" in own
    assert "sqrt" not in templates and "fabs" not in own
    for parts in ([TEXT], [own, templates]):
        code = jit.load([llvm.compile_object(t, host()) for t in parts], exports=["own"])
        f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code["own"])
        assert f(-8.0) == 4.0


def test_left_whole():
    no_templates = TEXT.replace("graphc_", "other_")
    assert units.split(no_templates) == [no_templates]
    needs_own = TEXT.replace("%y = fmul double %a, 0.5", "%y = load double, ptr @two")
    assert units.split(needs_own) == [needs_own]


def test_programs_share_their_matrix_templates():
    """The products too, where they know the same of sizes; else what these call, where it has the
    same ways."""
    parts = []
    for k, n in ((4, 8), (50, 7), (500, 700), (500, "any"), ("k", 1)):
        x, w = gx.input("x", ("n", k)), gx.input("w", (k, n))
        f = gx.function([x, w], gx.exp(x @ w))
        parts.append(units.split(f.llvm_ir()))
        k, n = 5 if k == "k" else k, 300 if n == "any" else n
        a, b = np.ones((3, k), "f4"), np.full((k, n), 0.125, "f4")
        np.testing.assert_allclose(f(a, b), np.exp(a @ b), rtol=1e-6)
    few, other, many, any_number, vector = parts
    assert few[1:] == other[1:] and len(few) == 3 and few[0] != other[0]
    (block, product), (large, stream, other_product) = few[1:], many[1:]
    assert large != block and "_stream(" in stream and product != other_product
    partial = "_partial(" in any_number[1]  # AVX2 has these tiles where columns are not known
    assert any_number[-1] != other_product and (any_number[1] == large) is not partial
    assert "_product(" in vector[-1] and "_block(" not in "".join(vector)


def test_shards_compute_what_the_whole_does():
    for count, expected in ((1, 1), (2, 2), (5, 2)):
        parts = units.shards(TEXT, count)
        assert len(parts) == expected
        code = jit.load([llvm.compile_object(t, host()) for t in parts], exports=["own"])
        f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code["own"])
        assert f(-8.0) == 4.0
    variable = TEXT.replace("internal constant", "internal global")
    assert units.shards(variable, 2) == [variable]


def test_code_around_many_kernels_is_compiled_plainly(monkeypatch):
    """The entry point and what hands operands to templates are apart; kernels are not, nor is the
    code around few of them. No bit changes."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    plainly = []
    compile_object = llvm.compile_object

    def compiled(text, target, **options):
        if options.get("optimisation") == llvm.PLAIN:
            plainly.append(text)
        return compile_object(text, target, **options)

    monkeypatch.setattr(llvm, "compile_object", compiled)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 16)).astype("f4"), rng.normal(size=(16, 16)).astype("f4")
    results = []
    for layers, least in ((2, units.AROUND_BYTES), (150, units.AROUND_BYTES), (150, 1 << 40)):
        monkeypatch.setattr(units, "AROUND_BYTES", least)
        x, w = gx.input("x", ("n", 16)), gx.input("w", (16, 16))
        h = x
        for _ in range(layers):
            h = gx.nn.softmax(gx.tanh(h @ w) + x, axis=1)
        plainly.clear()
        f = gx.function([x, w], h, name="f")
        results.append(f(a, b))
        around = [t for t in plainly if "define i32 @f(" in t]
        assert len(around) == (layers == 150 and least < 1 << 40)
        for text in around:
            assert "@graphc_matmul" in text and "!llvm.loop" not in text and "float" not in text
    assert results[1].tobytes() == results[2].tobytes()


def test_modules_are_compiled_side_by_side(monkeypatch):
    """As one after the other: the same objects, in order; the first mistake is told."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(llvm, "cpus", lambda: 4)
    monkeypatch.setattr(llvm, "SHARD_BYTES", len(TEXT) // 2)
    parts = units.shards(TEXT, 2)
    others = [
        f"define double @f{i}(double %x) {{\n  %y = fmul double %x, {i}.0\n  ret double %y\n}}"
        for i in range(20)
    ]
    made = llvm.compile_objects([TEXT, *others], host())
    assert made == [llvm.compile_object(t, host()) for t in (*parts, *others)]
    code = jit.load(made, exports=["own", "f7"])
    f = {n: ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code[n]) for n in ("own", "f7")}
    assert f["own"](-8.0) == 4.0 and f["f7"](3.0) == 21.0
    with pytest.raises(CompileError, match="use of undefined value '%z'"):
        llvm.compile_objects([*others, others[0].replace("ret double %y", "ret double %z")], host())


def test_no_more_threads(monkeypatch):
    """Where the system starts none, or no second one, the caller's does all the work."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(llvm, "cpus", lambda: 4)
    texts = [TEXT.replace("@own", f"@own{i}") for i in range(5)]
    expected = [llvm.compile_object(t, host()) for t in texts]
    start = threading.Thread.start
    for most in (0, 1):
        started = []

        def limited(t, most=most, started=started):
            if len(started) == most:
                raise RuntimeError("can't start new thread")
            started.append(t)
            start(t)

        monkeypatch.setattr(threading.Thread, "start", limited)
        assert llvm.compile_objects(texts, host()) == expected
        assert len(started) == most


def test_no_thread_waits_for_the_lock_of_this_one(monkeypatch):
    """As where the garbage collector runs in a call of LLVM, and a finaliser compiles."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(llvm, "cpus", lambda: 4)
    texts = [TEXT.replace("@own", f"@own{i}") for i in range(3)]
    expected = [llvm.compile_object(t, host()) for t in texts]
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (started.append(t), start(t)))
    assert llvm.compile_objects(texts, host()) == expected and len(started) == 2
    monkeypatch.setattr(threading.Thread, "start", lambda t: pytest.fail("would wait"))
    with llvm.binding().ffi.lib._lock:
        assert llvm.compile_objects(texts, host()) == expected


def test_llvmlite_that_keeps_its_library_to_itself(monkeypatch):
    expected = llvm.compile_object(TEXT, host(), use_cache=False)
    lib = llvm.binding().ffi.lib
    for what in ("_long", "_brief"):
        monkeypatch.setattr(generator, what, lambda name: getattr(lib, name))
    assert llvm.compile_object(TEXT, host(), use_cache=False) == expected
