"""The thread pool: every chunk exactly once, from any thread, after fork, at any thread count."""

import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from pool_harness import loaded, regions

import graphc as gx
from graphc.codegen.machine import jit, llvm
from graphc.codegen.machine.platforms import PLATFORMS
from graphc.codegen.machine.target import host
from graphc.codegen.pool.runtime import runtime_text

pytestmark = pytest.mark.usefixtures("thread_count")


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000])
def test_every_chunk_once(threads, n):
    jit.set_threads(threads)
    assert (regions()(n, 50) == 50).all()
    assert (regions()(n, 50, whole=True) == 50).all()


def test_limits_of_one_function():
    jit.set_threads(4)
    for limit in (1, 2, 3):
        assert (regions(limit)(100, 50) == 50).all()


def test_callers_on_many_threads(at_once):
    jit.set_threads(3)
    run = regions()
    assert all((a == 200).all() for a in at_once(8, lambda _: run(500, 200)))


WAITING = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
declare i32 @sched_yield()
define internal void @wait(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %started = getelementptr i64, ptr %ctx, i64 1
  %n = sub i64 %end, %begin
  %old = atomicrmw add ptr %started, i64 %n seq_cst
  br label %loop
loop:
  %y = call i32 @sched_yield()
  %flag = load atomic i64, ptr %ctx seq_cst, align 8
  %go = icmp ne i64 %flag, 0
  br i1 %go, label %done, label %loop
done:
  ret void
}
define void @waiting(ptr %ctx, i64 %n) {
  call void @graphc_parallel(ptr @wait, ptr %ctx, i64 %n, ptr null)
  ret void
}
"""


def test_no_call_waits_for_another():
    """While a region that cannot end holds the pool, callers of every size go on by themselves."""
    jit.set_threads(2)
    run = regions()
    wait = loaded(WAITING, "waiting", ctypes.c_int64)
    flag = np.zeros(2, np.int64)  # set when it may end; chunks that have begun
    held = threading.Thread(target=wait, args=(flag.ctypes.data, 64))
    held.start()
    while not flag[1]:
        time.sleep(0.001)
    right = []
    callers = [
        threading.Thread(target=lambda n=n: right.append((run(n, 20) == 20).all()))
        for n in (1, 2, 64, 1000, 100_000, 1, 7, 300)
    ]
    for t in callers:
        t.start()
    for t in callers:
        t.join(20)
    finished = [not t.is_alive() for t in callers]
    jit.set_threads(3)  # nor does this
    flag[0] = 1
    held.join(20)
    assert not held.is_alive() and all(finished) and all(right) and len(right) == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork():
    jit.set_threads(2)
    run = regions()
    assert (run(100, 20) == 20).all()
    pid = os.fork()
    if pid == 0:
        ok = bool((run(100, 20) == 20).all())
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (run(100, 20) == 20).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.parametrize(("setting", "more"), [("1", 0), ("3", 2), ("nonsense", None), ("0", None)])
def test_environment(setting, more):
    text = (
        f"import os, sys; sys.path.insert(0, {os.path.dirname(__file__)!r});"
        "from pool_harness import regions;"
        "run = regions(); before = len(os.listdir('/proc/self/task'));"
        "run(1000, 10); print(len(os.listdir('/proc/self/task')) - before)"
    )
    env = dict(os.environ, GRAPHC_NUM_THREADS=setting, OPENBLAS_NUM_THREADS="1")
    out = subprocess.run(
        [sys.executable, "-c", text], env=env, capture_output=True, text=True,
        check=more is not None,
    )
    if more is None:
        assert f"GRAPHC_NUM_THREADS: must be an integer from 1 on, got '{setting}'" in out.stderr
    else:
        assert int(out.stdout) == more


def test_control_word_reaches_workers():
    """Flush-to-zero, set by the caller, holds in every chunk."""
    if not host().triple.startswith("x86_64"):
        pytest.skip("reads MXCSR")
    text = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define internal void @task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %j, %loop ]
  %p = getelementptr i32, ptr %ctx, i64 %i
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @run(ptr %ctx, i64 %n, i32 %word) {
  %old = alloca i32
  %new = alloca i32
  store i32 %word, ptr %new
  call void @llvm.x86.sse.stmxcsr(ptr %old)
  call void @llvm.x86.sse.ldmxcsr(ptr %new)
  call void @graphc_parallel(ptr @task, ptr %ctx, i64 %n, ptr null)
  call void @llvm.x86.sse.ldmxcsr(ptr %old)
  ret void
}
"""
    jit.set_threads(3)
    run = loaded(text, "run", ctypes.c_int64, ctypes.c_int32)
    for word in (0x1F80, 0x9FC0):
        words = np.zeros(10_000, np.int32)
        run(words.ctypes.data, words.size, word)
        assert (words & ~0x3F == word & ~0x3F).all()


@pytest.mark.parametrize("name", sorted(PLATFORMS))
def test_other_targets_compile(name):
    text = runtime_text(PLATFORMS[name], prefix="lib", linkage="hidden")
    assert "@lib_parallel(" in text
    assert llvm.compile_object(text, PLATFORMS[name].base, use_cache=False)


def test_a_limit_that_no_integer_of_the_pool_holds_is_none(tmp_path):
    """2**32 would be no thread at all, and the caller would run alone."""
    assert jit.parallel_address(2**32) == jit.parallel_address(None) != jit.parallel_address(2)
    x = gx.input("x", ("n",))
    for threads, limited in ((2**32, False), (2, True)):
        f = gx.function([x], gx.exp(x), threads=threads, name="f")
        gx.export(f, tmp_path / "libf.ll", cpu="v2")
        assert ("@graphc.parallel." in (tmp_path / "libf.ll").read_text()) is limited
