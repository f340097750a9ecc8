"""Modules merged into one: what is shared, what is renamed."""

import ctypes
import re

import numpy as np
from library_samples import export_loaded, same_bits

import graphc as gx
from graphc.codegen.library.merge import Merger
from graphc.codegen.machine.target import x86

A = """declare void @graphc_parallel(ptr)
@c = private constant [1 x i8] c"x"
define internal i32 @inner() nounwind {
  ret i32 1
}
define internal i32 @helper() nounwind {
  %r = call i32 @inner()
  ret i32 %r
}
define i32 @one() nounwind {
  %r = call i32 @helper()
  call void @graphc_parallel(ptr @c)
  ret i32 %r
}

!0 = distinct !{!0}
"""


def merged(*texts, level="v3"):
    merger = Merger()
    names = [merger.add(t, level, x86(level), keep=("graphc_parallel",)) for t in texts]
    return merger, names


def test_equal_functions_are_kept_once():
    merger, (a, b) = merged(A, A.replace("@one", "@two"))
    assert a["helper"] == b["helper"] == "helper.v3" and a["c"] == b["c"] == "c"
    assert (a["one"], b["two"]) == ("one.v3", "two.v3")
    text = merger.text()
    assert text.count("define ") == 4 and "declare" not in text
    assert 'define internal i32 @one.v3() nounwind "target-cpu"="x86-64-v3"' in text
    assert "call i32 @inner.v3()" in text and "@graphc_parallel(ptr @c)" in text


def test_what_calls_something_different_is_different():
    other = A.replace("@one", "@two").replace("ret i32 1", "ret i32 2")
    merger, (a, b) = merged(A, other)
    assert (b["inner"], b["helper"]) == ("inner.v3.1", "helper.v3.1")
    assert "call i32 @inner.v3.1()" in merger.definitions["helper.v3.1"]
    assert "call i32 @helper.v3.1()" in merger.definitions["two.v3"]
    assert "call i32 @inner.v3()" in merger.definitions[a["helper"]]


def test_levels_share_constants_only():
    merger = Merger()
    a = merger.add(A, "v3", x86("v3"), keep=("graphc_parallel",))
    b = merger.add(A, "v4", x86("v4"), keep=("graphc_parallel",))
    c = merger.add(A.replace('"x"', '"y"'), "v2", x86("v2"), keep=("graphc_parallel",))
    assert a["c"] == b["c"] == "c" and c["c"] == "c.1"
    assert (a["one"], b["one"], c["one"]) == ("one.v3", "one.v4", "one.v2")
    assert '"target-features"="-prefer-256-bit"' in merger.definitions["one.v4"]
    assert "@graphc_parallel(ptr @c.1)" in merger.definitions["one.v2"]


def test_levels_that_share_functions():
    """As AArch64's: up from a lower level, never down, and not what calls something else."""
    merger = Merger(alike=True)
    other = A.replace("ret i32 1", "ret i32 2")
    low, high = (merger.add(t, v, x86("v3"), keep=("graphc_parallel",))
                 for t, v in ((A, "low"), (other, "high")))
    assert (high["inner"], high["helper"], high["one"]) == ("inner.high", "helper.high", "one.high")
    assert "call i32 @inner.high()" in merger.definitions["helper.high"]
    again = merger.add(A.replace("@one", "@two"), "high", x86("v3"), keep=("graphc_parallel",))
    assert (again["inner"], again["helper"]) == ("inner.low", "helper.low")
    down = merger.add(other.replace("@one", "@two"), "low", x86("v3"), keep=("graphc_parallel",))
    assert (low["inner"], down["inner"], down["helper"]) == (
        "inner.low", "inner.low.1", "helper.low.1")


def test_functions_compiled_in_different_ways(tmp_path):
    """Kernels of the same names that differ, side by side."""
    rng = np.random.default_rng(0)
    x, w = gx.input("x", ("n", 64)), gx.input("w", (64, 40))
    i, j = gx.input("i", ("n", 20), "int32"), gx.input("j", (20, 12), "int32")
    functions = [
        gx.function([x, w], gx.nn.softmax(x @ w, axis=1), name="plain"),
        gx.function([x, w], gx.nn.softmax(x @ w, axis=1), name="quick", fastmath=True),
        gx.function([x, w], gx.exp(x @ w), name="alone", threads=1),
        gx.function([i, j], i @ j, name="whole"),
    ]
    lib = export_loaded(functions, tmp_path / "libways.so")
    a, b = rng.normal(size=(33, 64)).astype("float32"), rng.normal(size=(64, 40)).astype("float32")
    c, d = rng.integers(-99, 99, (7, 20), "int32"), rng.integers(-99, 99, (20, 12), "int32")
    for f in functions:
        args = (c, d) if f.name == "whole" else (a, b)
        assert same_bits(lib.call(f.name, None, *args)[0], f(*args)), f.name


def test_sizes_that_no_input_has(tmp_path):
    x = gx.input("x", ("n",))
    m = gx.dim("m")
    size = gx.dim_value(m).astype("float32")
    f = gx.function([x], gx.sum(x) + gx.arange(m, dtype="float32") * size, name="f")
    path = gx.export(f, tmp_path / "libsizes.so")
    header = " ".join(path.with_suffix(".h").read_text().split())
    assert "int64_t n, int64_t m, void *arena" in header
    lib = ctypes.CDLL(str(path))
    a, out = np.ones(4, "float32"), np.zeros(6, "float32")
    status = lib.sizes_f(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(out.ctypes.data),
                     ctypes.c_int64(4), ctypes.c_int64(5), None)
    assert status == 0 and out.tolist() == [4, 9, 14, 19, 24, 0]
    assert same_bits(out[:5], f(a, m=5))


def test_long_code_around_kernels_is_not_optimised(tmp_path):
    """The entries of a long program, at every level; those of a short one are, and kernels."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 16)).astype("f4"), rng.normal(size=(16, 16)).astype("f4")
    for layers in (2, 150):
        x, w = gx.input("x", ("n", 16)), gx.input("w", (16, 16))
        h = x
        for _ in range(layers):
            h = gx.nn.softmax(gx.tanh(h @ w) + x, axis=1)
        f = gx.function([x, w], h, name="f")
        lib = export_loaded([f], tmp_path / f"libf{layers}.so", kinds=("ll",))
        assert same_bits(lib.call("f", None, a, b)[0], f(a, b))
        text = (tmp_path / f"libf{layers}.ll").read_text()
        eased = re.findall(r"^define [^@]*@(f\.[^(]*).* optnone ", text, re.M)
        assert sum(n.startswith("f.v") for n in eased) == 3 * (layers > 2)
        assert not any(".task" in n for n in eased)
