"""Objects in memory: `linker` against LLVM's ORC, and what it refuses."""

import ctypes
import io
import os
import subprocess
import sys

import pytest

from graphc.codegen.machine import jit, linker, llvm, target
from graphc.codegen.machine.platforms import PLATFORMS
from graphc.errors import CompileError

pytestmark = pytest.mark.skipif(not linker.usable(), reason="LLVM's ORC links on this system")

# Constants, a table of addresses, variables, zeroed memory, and calls near and far; `counted` is
# in both objects, and the strong one is used; `far` and `cell` are wherever the process has them.
ONE = """
@table = private unnamed_addr constant [2 x ptr] [ptr @twice, ptr @other]
@weights = private unnamed_addr constant [2 x double] [double 1.5, double 2.5], align 32
@total = internal global double 100.0
@room = internal global [1000 x i64] zeroinitializer, align 64
@cell = external global i64
declare double @far(double)
declare double @other(double)
define internal double @twice(double %x) nounwind {
  %y = fmul double %x, 2.0
  ret double %y
}
define weak i64 @counted() nounwind {
  ret i64 -1
}
define double @run(i64 %which, double %x) nounwind {
  %at = getelementptr [2 x ptr], ptr @table, i64 0, i64 %which
  %f = load ptr, ptr %at
  %y = call double %f(double %x)
  %w.at = getelementptr [2 x double], ptr @weights, i64 0, i64 %which
  %w = load double, ptr %w.at
  %z = call double @far(double %w)
  %s = fadd double %y, %z
  %old = load double, ptr @total
  %new = fadd double %old, %s
  store double %new, ptr @total
  %n = load i64, ptr @cell
  %r.at = getelementptr [1000 x i64], ptr @room, i64 0, i64 999
  store i64 %n, ptr %r.at
  ret double %new
}
define i64 @kept() nounwind {
  %at = getelementptr [1000 x i64], ptr @room, i64 0, i64 999
  %n = load i64, ptr %at
  %c = call i64 @counted()
  %s = add i64 %n, %c
  ret i64 %s
}
"""
TWO = """
@count = internal global i64 7
define double @other(double %x) nounwind {
  %y = fadd double %x, 0.25
  ret double %y
}
define i64 @counted() nounwind {
  %n = load i64, ptr @count
  %m = add i64 %n, 1
  store i64 %m, ptr @count
  ret i64 %m
}
"""
FAR = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x * 1000)


def objects(*texts):
    return [llvm.compile_object(t, target.host()) for t in texts]


def results(code):
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(code["run"])
    kept = ctypes.CFUNCTYPE(ctypes.c_int64)(code["kept"])
    return [kept(), run(0, 3.0), kept(), run(1, 3.0), kept()]


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("order", [(ONE, TWO), (TWO, ONE)])
def test_linked_as_by_llvm(monkeypatch, ours, order):
    if ours:
        monkeypatch.setattr(jit, "_orc", lambda: pytest.fail("given to LLVM"))
    else:
        monkeypatch.setattr(linker, "usable", lambda: False)
    cell = ctypes.c_int64(5000)
    imports = {
        "far": ctypes.cast(FAR, ctypes.c_void_p).value, "cell": ctypes.addressof(cell),
    }
    code = jit.load(objects(*order), exports=["run", "kept"], imports=imports)
    assert results(code) == [8, 1606.0, 5009, 4109.25, 5010]
    again = jit.load(objects(*order), exports=["run", "kept"], imports=imports)
    assert results(again)[0] == 8  # its own variables


def test_code_is_never_writable():
    code = jit.load(objects(TWO), exports=["counted", "other"])
    with open("/proc/self/maps") as f:
        spans = [line.split()[:2] for line in f]
    (mode,) = [
        mode for span, mode in spans
        if int(span.split("-")[0], 16) <= code["other"] < int(span.split("-")[1], 16)
    ]
    assert mode == "r-xp"


def test_memory_is_given_back():
    obj = objects(TWO)

    def mapped():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[0])

    for _ in range(50):
        jit.load(obj, exports=["counted"])
    before = mapped()
    for _ in range(500):
        jit.load(obj, exports=["counted"])
    assert mapped() - before < 500  # pages; each takes two or three


@pytest.mark.parametrize(("parts", "message"), [
    ((ONE,), "there is no (far|other|cell)"),
    ((TWO, TWO), "(other|counted) is there twice"),
])
def test_symbols_that_are_nowhere_or_twice(parts, message):
    with pytest.raises(CompileError, match=message):
        jit.load(objects(*parts), exports=[])


def test_what_graphc_never_makes_is_for_llvm():
    text = TWO.replace("internal global", "internal thread_local global")
    assert linker.link(objects(text), {}) is None
    other = llvm.compile_object(TWO, PLATFORMS["aarch64-linux-gnu"].base)
    assert linker.link([other], {}) is None
    with pytest.raises(ValueError, match="not a little-endian ELF"):
        linker.link([b"MZ" + bytes(100)], {})


def test_the_machine_is_what_llvm_finds():
    found = {f for f, there in llvm.binding().get_host_cpu_features().items() if there}
    assert target._linux_x86(target._linux_cpu()) == target._x86_level(found)
    name = llvm.binding().get_host_cpu_name()
    zen = {"znver3": target.ZEN3, "znver4": target.ZEN4, "znver5": target.ZEN5}.get(name, "")
    known = target._linux_core(target._linux_cpu())
    assert target.host().core == known == target._core(found, zen)


@pytest.mark.parametrize("vendor, family, flags, core", [
    ("AuthenticAMD", "25", "avx2", target.ZEN3),
    ("AuthenticAMD", "25", "avx2 avx512f", target.ZEN4),
    ("AuthenticAMD", "26", "avx2 avx512f", target.ZEN5),
    ("AuthenticAMD", "23", "avx2", ""),
    ("GenuineIntel", "25", "avx2 avx512f", ""),
    ("GenuineIntel", "6", "avx2 avx512f amx_tile", target.GOLDEN_COVE),
])
def test_cores_by_what_linux_says(vendor, family, flags, core):
    cpu = {"vendor_id": vendor, "cpu family": family, "flags": flags}
    assert target._linux_core(cpu) == core


@pytest.mark.parametrize("hidden, level", [
    ("", "v4"), *((f, "v3") for f in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    *((f, "v2") for f in ("avx2", "fma", "f16c", "abm", "bmi1", "bmi2", "movbe")),
])
def test_a_machine_that_lacks_a_feature_is_of_a_lower_level(monkeypatch, hidden, level):
    """Whatever a virtual machine hides: code of a level uses all that the level has."""
    flags = {
        "sse4_2", "avx", "avx2", "fma", "f16c", "abm", "bmi1", "bmi2", "movbe", "avx512f",
        "avx512bw", "avx512cd", "avx512dq", "avx512vl",
    }
    text = f"processor : 0\nflags\t\t: {' '.join(sorted(flags - {hidden}))}\n"
    monkeypatch.setattr(target, "open", lambda path: io.StringIO(text), raising=False)
    assert target._linux_x86(target._linux_cpu()) == level


def test_a_program_in_the_cache_starts_without_llvm(tmp_path):
    program = (
        "import sys, numpy as np, graphc as gx\n"
        "w = gx.variable(np.ones((70, 300)), 'w', 'float32')\n"
        "x = gx.input('x', ('n', 70))\n"
        "f = gx.function([x], gx.sum(gx.tanh(x @ w), axis=0), updates={w: w * 2})\n"
        "print(f(np.full((9, 70), 0.01, 'float32'))[:2], 'llvmlite.binding' in sys.modules)"
    )
    env = {**os.environ, "GRAPHC_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True,
                       check=True).stdout.split("]")
        for _ in range(2)
    ]
    assert said[0][0] == said[1][0]
    assert [s[1].strip() for s in said] == ["True", "False"]
