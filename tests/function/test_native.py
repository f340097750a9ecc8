"""What only native functions have: one compilation for every size, threads, fork, listings."""

import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest

import graphc as gx


def axpy(**options):
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    return gx.function([x, y], 2 * x + y, name="axpy", **options)


def test_one_compilation_for_every_size():
    f = axpy()
    for n in (0, 1, 7, 1000):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x, x), 3 * x)
    assert f.compilations == 1


def test_native_calls_use_neither_numpy_nor_the_interpreter(monkeypatch):
    f = axpy()
    x = np.ones(5, np.float32)
    f(x, x)

    def refuse(*args, **kwargs):
        raise AssertionError("called")

    import graphc.interpret

    monkeypatch.setattr(graphc.interpret, "evaluate", refuse)
    monkeypatch.setattr(graphc.function, "evaluate", refuse, raising=False)
    for name in ("empty", "asarray", "add", "multiply", "array"):
        monkeypatch.setattr(np, name, refuse)
    assert f(x, x).tolist() == [3] * 5


def test_sixteen_threads_on_one_function(at_once):
    f = axpy()

    def work(k):
        x = np.full(10_000 * (k % 3) + k, k, np.float32)
        for _ in range(30):
            assert (f(x, x) == 3 * k).all()

    at_once(16, work)
    assert f.compilations == 1


def test_a_finaliser_that_an_output_sets_off_may_let_others_update():
    """Where making an array collects garbage, whoever takes a variable's lock then has it."""
    x, v = gx.input("x", (20_000,)), gx.variable(0.0, "v")
    f = gx.function([x], x + v, updates={v: v + 1})
    ones = np.ones(20_000, "f4")
    assert f(ones)[0] == 1  # of 80 KB: from the allocator for large results
    taken, give_back, seen = threading.Event(), threading.Event(), []

    def hold():
        with v.state.lock:
            taken.set()
            give_back.wait(20)
            seen.append(float(v.state.array))

    def collected(phase, info):
        if phase == "start" and not taken.is_set():
            holder.start()
            assert taken.wait(20)
            timer.start()

    holder, timer = threading.Thread(target=hold), threading.Timer(0.1, give_back.set)
    old, _ = gc.get_threshold(), gc.collect()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        f(ones)
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*old)
        give_back.set()
    if taken.is_set():  # from CPython 3.12 on nothing is collected there
        holder.join()
        assert seen == [1.0]
    assert v.value == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork():
    f = axpy()
    x = np.ones(1_000_000, np.float32)
    assert (f(x, x) == 3).all()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (f(x, x) == 3).all() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_functions_are_collected():
    f = axpy()
    f(np.ones(3, "f4"), np.ones(3, "f4"))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_thread_counts_give_the_same_bits():
    x = np.random.default_rng(1).normal(size=300_000).astype(np.float32)
    want = None
    for threads in (1, 2, None):
        got = axpy(threads=threads)(x, x[::-1].copy()).tobytes()
        assert want in (None, got)
        want = got


def test_listings():
    f = axpy()
    assert "define" in f.llvm_ir() and "@axpy" in f.llvm_ir()
    assert "axpy" in f.assembly()
    assert isinstance(f.memory_plan(), str) and len(f.kernels) >= 1
    assert f.to_dot().startswith("digraph")
    assert "axpy" in repr(f) and "x: f32[n]" in repr(f)


def test_the_cache_serves_a_second_process(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "c"))
    x = np.ones(3, np.float32)
    axpy()(x, x)
    from graphc.codegen.machine import llvm

    monkeypatch.setattr(llvm, "_generate", lambda *a: pytest.fail("compiled again"))
    assert axpy()(x, x).tolist() == [3, 3, 3]


def test_without_the_native_call_path(monkeypatch):
    """As on builds whose structs differ: everything works through ctypes."""
    from graphc.codegen.calling import pylayout

    monkeypatch.setattr(pylayout, "usable", lambda: False)
    x, v = gx.input("x", ("n",)), gx.variable(np.zeros((), np.float32), "v")
    f = gx.function([x], {"y": x + v}, updates={v: v + 1}, name="f")
    a = np.arange(3, dtype=np.float32)
    assert f(a)["y"].tolist() == [0, 1, 2] and f(x=[5])["y"].tolist() == [6]
    out = {"y": np.empty(3, np.float32)}
    assert f(a, out=out) is out and out["y"].tolist() == [2, 3, 4] and v.value == 3
    assert type(f) is gx.Function and f.compilations == 1


def test_names_in_order_take_the_native_path(monkeypatch):
    f = axpy()
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    assert f(x, y).tolist() == [2, 2, 2] == f(y=y, x=x).tolist()
    monkeypatch.setattr(f, "_signature", None)
    assert f(x, y=y).tolist() == f(x=x, y=y).tolist() == [2, 2, 2]


@pytest.mark.parametrize("kind", ["one", "list", "tuple", "dict"])
def test_out_once_known_is_taken_directly(monkeypatch, kind):
    x = gx.input("x", ("n",))
    make = {
        "one": lambda p, q: p, "list": lambda p, q: [p, q], "tuple": lambda p, q: (p, q),
        "dict": lambda p, q: {"p": p, "q": q},
    }[kind]
    f = gx.function([x], make(x + 1, x + 2))
    a, p, q = np.arange(3, dtype=np.float32), np.empty(3, np.float32), np.empty(3, np.float32)
    out = make(p, q)
    if kind == "dict":
        out = dict(reversed(out.items()))
    assert f(a, out=out) is out
    monkeypatch.setattr(f, "_results", None)  # by way of Python it would fail
    before = [*map(sys.getrefcount, (a, p, q, out))]
    for k in range(100):
        assert f(a + k, out=out) is out and p[0] == k + 1 and (kind == "one" or q[0] == k + 2)
    assert [*map(sys.getrefcount, (a, p, q, out))] == before
    monkeypatch.undo()
    first = f(a, out=None)
    assert (first if kind == "one" else first["p"] if kind == "dict" else first[0])[0] == 1
    short = np.empty(2, np.float32)
    for args, wrong, error in (
        ((a,), make(short, q), gx.errors.ShapeError), ((a,), make([1], q), gx.errors.UsageError),
        ((a,), 3, gx.errors.UsageError), ((a, a), out, gx.errors.UsageError),
        ((), out, gx.errors.UsageError),
    ):
        with pytest.raises(error):
            f(*args, out=wrong)
    if kind != "one":
        with pytest.raises(gx.errors.UsageError, match="overlap"):
            f(a, out=make(p, p))


def test_an_input_may_be_called_out():
    x = gx.input("x", ("n",))
    a = np.arange(3, dtype=np.float32)
    named = gx.function([x, out := gx.input("out", ("n",))], x - out)
    for _ in range(2):
        assert named(a, out=a).tolist() == [0, 0, 0]
    named._native.into()
    assert named(a, out=a).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", [
    "memcpy", "memset", "malloc", "free", "gx_call", "gx_arena", "PyTuple_New", "graphc_parallel",
])
def test_a_function_may_have_the_name_of_one_that_code_calls(monkeypatch, name):
    """A copied input is memcpy's work; the builtin takes memory and makes a tuple."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", 4))
    f = gx.function([x], (x, gx.sum(gx.tanh(x @ gx.transpose(x)), axis=1)), name=name)
    a = np.full((100, 4), 0.25, "float32")
    copied, sums = f(a)
    np.testing.assert_array_equal(copied, a)
    np.testing.assert_allclose(sums, 100 * np.tanh(0.25), rtol=1e-5)
    assert f.name == name
