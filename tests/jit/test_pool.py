"""The thread pool: every chunk exactly once, from any thread, after fork, at any thread count."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.machine import jit, linker, llvm
from graphc.codegen.machine.platforms import PLATFORMS
from graphc.codegen.machine.target import host
from graphc.codegen.pool.runtime import runtime_text

ADD = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
define internal void @task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %j, %loop ]
  %p = getelementptr i64, ptr %ctx, i64 %i
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @regions(ptr %ctx, i64 %n, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @graphc_parallel(ptr @task, ptr %ctx, i64 %n, ptr null)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def loaded(text, name, *kinds, threads=None):
    """A function of a module that calls the pool."""
    imports = {"graphc_parallel": jit.parallel_address(threads)}
    for symbol in ("sched_yield", "usleep"):
        if f"@{symbol}" in text:
            imports[symbol] = linker.process_symbol(symbol)
    code = jit.load([llvm.compile_object(text, host())], exports=[name], imports=imports)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *kinds)(code[name])
    call.code = code  # lives as long
    return call


def regions(threads=None):
    call = loaded(ADD, "regions", ctypes.c_int64, ctypes.c_int64, threads=threads)

    def run(n, count, whole=False):
        a = np.zeros(n, np.int64)
        call(a.ctypes.data, -n if whole else n, count)
        return a

    return run


@pytest.fixture(autouse=True)
def thread_count():
    before = jit.threads()
    yield
    jit.set_threads(before)


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
        "from test_pool import regions;"
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


# ctx: set by a worker; yields that the first chunk waits for that; whether it saw it.
HELPED = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
declare i32 @sched_yield()
define internal void @task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %worker = icmp ne ptr %scratch, null
  br i1 %worker, label %help, label %first
help:
  store atomic i64 1, ptr %ctx seq_cst, align 8
  ret void
first:
  %is = icmp eq i64 %begin, 0
  %limit.at = getelementptr i64, ptr %ctx, i64 1
  %limit = load i64, ptr %limit.at
  %most = select i1 %is, i64 %limit, i64 100000000
  br label %loop
loop:
  %i = phi i64 [ 0, %first ], [ %j, %yield ]
  %helped = load atomic i64, ptr %ctx seq_cst, align 8
  %alone = icmp eq i64 %helped, 0
  %early = icmp slt i64 %i, %most
  %more = and i1 %alone, %early
  br i1 %more, label %yield, label %waited
yield:
  %y = call i32 @sched_yield()
  %j = add i64 %i, 1
  br label %loop
waited:
  br i1 %is, label %tell, label %done
tell:
  %seen = getelementptr i64, ptr %ctx, i64 2
  store i64 %helped, ptr %seen
  br label %done
done:
  ret void
}
define void @helped(ptr %ctx, i64 %n) {
  call void @graphc_parallel(ptr @task, ptr %ctx, i64 %n, ptr null)
  ret void
}
"""


def helped(call, at_once, most):
    """Run HELPED while workers sleep; whether one helped, and whether amid the first chunk."""
    time.sleep(0.05)
    flags = np.array([at_once, most, 0])
    call(flags.ctypes.data, 16)
    return bool(flags[0]), bool(flags[2])


def test_sleeping_workers_are_woken_for_long_regions():
    """After the first chunk, and before it where this task has taken long."""
    jit.set_threads(2)
    regions()(100, 10)  # starts the worker
    call = loaded(HELPED, "helped", ctypes.c_int64)
    for _ in range(20):  # others may use the CPUs meanwhile
        helped(call, 1, 0)  # takes no time; which tasks are new depends on where code is loaded
        if helped(call, 0, 10_000) == (True, False):
            break
    else:
        pytest.fail("woken before what took no time")
    assert helped(call, 0, 10**8) == (True, True)


SHORT = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
declare i64 @llvm.readcyclecounter()
define internal void @task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %chunks = sub i64 %end, %begin
  %ticks = mul i64 %chunks, 16384
  %start = call i64 @llvm.readcyclecounter()
  br label %loop
loop:
  %now = call i64 @llvm.readcyclecounter()
  %took = sub i64 %now, %start
  %more = icmp ult i64 %took, %ticks
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @short(ptr %ctx, i64 %n) {
  call void @graphc_parallel(ptr @task, ptr %ctx, i64 %n, ptr null)
  ret void
}
"""


@pytest.mark.skipif(
    not (sys.platform.startswith("linux") and host().triple.startswith("x86_64")),
    reason="counts what the system did, and ticks",
)
def test_nobody_is_woken_for_short_regions_now_and_then():
    """What they owe is forgotten, though six of them would add up to a long one."""

    def woken():
        return sum(
            int(line.split()[1]) for path in Path("/proc/self/task").glob("*/status")
            if path.parent.name != str(threading.get_native_id())
            for line in path.read_text().splitlines() if line.startswith("voluntary")
        )

    jit.set_threads(2)
    call = loaded(SHORT, "short", ctypes.c_int64)
    call(None, 3)
    time.sleep(0.05)
    before = woken()
    for _ in range(200):
        time.sleep(0.002)
        call(None, 3)
    assert woken() - before < 15


HELD = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
declare i32 @usleep(i32)
define internal void @task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %pieces = getelementptr i64, ptr %ctx, i64 1
  %old = atomicrmw add ptr %pieces, i64 1 seq_cst
  %worker = icmp ne ptr %scratch, null
  br i1 %worker, label %hold, label %own
hold:
  %before = atomicrmw add ptr %ctx, i64 1 seq_cst
  %h = call i32 @usleep(i32 300000)
  ret void
own:
  %first = icmp eq i64 %begin, 0
  %u = call i32 @usleep(i32 1000)
  br i1 %first, label %done, label %wait
wait:
  %held = load atomic i64, ptr %ctx seq_cst, align 8
  %none = icmp eq i64 %held, 0
  br i1 %none, label %own, label %done
done:
  ret void
}
define void @held(ptr %ctx, i64 %n) {
  %next = getelementptr i64, ptr %ctx, i64 2
  call void @graphc_parallel(ptr @task, ptr %ctx, i64 %n, ptr null)
  call void @graphc_parallel(ptr @task, ptr %next, i64 %n, ptr null)
  ret void
}
"""


@pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="no counter of time elsewhere")
def test_a_worker_that_is_held_up_is_left_alone_for_a_while():
    """As where others have its CPU: the caller sleeps meanwhile, and does the next region alone."""
    jit.set_threads(2)
    regions()(100, 10)  # starts the worker
    counts = np.zeros((2, 2), np.int64)  # of each region: chunks begun by the worker; pieces
    held = loaded(HELD, "held", ctypes.c_int64)
    begin = time.thread_time()
    held(counts.ctypes.data, 8)
    busy = time.thread_time() - begin
    assert counts[0, 0] == 1 and counts[0, 1] > 2
    assert counts[1].tolist() == [0, 1]  # all of it in one piece
    assert busy < 0.15  # of 0.3 s that the worker was held
    time.sleep(0.4)
    assert helped(loaded(HELPED, "helped", ctypes.c_int64), 0, 10_000)[0]


LEFT_MEANWHILE = """
import ctypes, sys
import numpy as np
from graphc.codegen.machine import jit
from graphc.codegen.pool import runtime

sleep = "  %number = load atomic i32, ptr %at.work seq_cst, align 4"
assert runtime.AWAIT.count(sleep) == 1
runtime.AWAIT = runtime.AWAIT.replace("%turn.next, %sleep ]", "%turn.next, %late ]")
runtime.AWAIT = runtime.AWAIT.replace(sleep, '''
  br label %linger
linger:
  %here = load atomic i64, ptr %part acquire, align 8
  %left = icmp eq i64 %here, 0
  br i1 %left, label %late, label %linger
late:
''' + sleep)
sys.path.insert(0, sys.argv[1])
import test_pool

jit.set_threads(2)
test_pool.regions()(100, 10)
counts = np.zeros((2, 2), np.int64)
test_pool.loaded(test_pool.HELD, "held", ctypes.c_int64)(counts.ctypes.data, 8)
print(counts[0, 0])
"""


def test_nobody_sleeps_for_a_worker_that_has_left():
    """It may leave between the caller's last look and its word that it will sleep: then nobody
    wakes it. Here the caller lingers until that has happened."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_MEANWHILE, str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"GRAPHC_CACHE_DIR": ""},  # which knows the pool by its files alone
    )
    assert done.stdout == "1\n", done.stderr


def test_a_limit_that_no_integer_of_the_pool_holds_is_none(tmp_path):
    """2**32 would be no thread at all, and the caller would run alone."""
    assert jit.parallel_address(2**32) == jit.parallel_address(None) != jit.parallel_address(2)
    x = gx.input("x", ("n",))
    for threads, limited in ((2**32, False), (2, True)):
        f = gx.function([x], gx.exp(x), threads=threads, name="f")
        gx.export(f, tmp_path / "libf.ll", cpu="v2")
        assert ("@graphc.parallel." in (tmp_path / "libf.ll").read_text()) is limited
