"""Workers of the thread pool that sleep, or are held up: when they are woken, or left alone."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from pool_harness import loaded, regions

from graphc.codegen.machine import jit
from graphc.codegen.machine.target import host

pytestmark = pytest.mark.usefixtures("thread_count")


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
import pool_harness
import test_pool_sleep

jit.set_threads(2)
pool_harness.regions()(100, 10)
counts = np.zeros((2, 2), np.int64)
pool_harness.loaded(test_pool_sleep.HELD, "held", ctypes.c_int64)(counts.ctypes.data, 8)
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
