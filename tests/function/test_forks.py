"""Children forked while other threads compile, update and call can do all of that themselves."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import graphc as gx
from graphc import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def doubled(k=3, **options):
    """A function that no other k has, its result for ones."""
    x = gx.input("x", (k,))
    return gx.function([x], gx.sum(x * 2 + float(k)), name=f"doubled{k}", **options)


def right(k):
    return float(doubled(k)(np.ones(k, "f4"))) == k * (2 + k)


def child(work):
    """Fork; in the child, `work` says whether all is well."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return pid


def well(pid, seconds=60):
    """Whether a child ended as it should, in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def test_a_fork_waits_until_nobody_compiles():
    began, go_on, threads = threading.Event(), threading.Event(), []

    def slow(g):
        began.set()
        go_on.wait(20)
        return g

    def start(work):
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    f = doubled(4, pipeline=(slow, *gx.PIPELINE))
    start(f.compile)
    assert began.wait(20)
    timer = threading.Timer(0.1, go_on.set)
    timer.start()
    pid = child(lambda: f.compilations == 1 and right(5) and f(np.ones(4, "f4")) == 24)
    assert go_on.is_set() and well(pid)
    for t in threads:
        t.join()
    assert right(6)  # the parent goes on, too


def test_a_fork_within_a_compilation_waits_for_nobody():
    """Neither for itself, nor for a thread that waits for the same function."""
    pids, entered = [], threading.Event()

    def forking(g):
        entered.set()
        while len(forks._inside) < 2:
            time.sleep(0.001)
        pids.append(child(lambda: right(7)))
        return g

    f = doubled(8, pipeline=(*gx.PIPELINE, forking))
    start = time.monotonic()
    other = threading.Thread(target=lambda: entered.wait(20) and f.compile())
    other.start()
    f.compile()
    other.join()
    assert time.monotonic() - start < forks.MOST_SECONDS / 2
    assert len(pids) == 1 and well(pids[0])


def test_variables_are_whole_in_a_child():
    """A call that updates ends before the fork."""
    w = gx.variable(np.zeros(3), "w", "float32")
    step = gx.function([], None, updates={w: w + 1.0}, name="step")
    step()
    taken = threading.Event()

    def update():
        with w.node.attrs["state"].lock:
            taken.set()
            time.sleep(0.1)
            w.value = np.full(3, 5, "f4")

    t = threading.Thread(target=update)
    t.start()
    assert taken.wait(20)
    pid = child(lambda: w.value.tolist() == [5] * 3 and step() is None and w.value[0] == 6)
    t.join()
    assert well(pid) and w.value.tolist() == [5] * 3


# A process in which nothing is imported yet: threads compile, and call what uses the pool, while
# it forks directly, by multiprocessing and for an executor.
BUSY = f"""
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
import itertools, multiprocessing, os, threading, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import graphc as gx
from test_forks import child, right, well

stop = threading.Event()
def compiles():
    for k in itertools.count(10):
        assert right(k)
        if stop.is_set():
            break
def calls():
    x = gx.input("x", ("n",))
    f, ones = gx.function([x], gx.sum(gx.exp(x - 1))), np.ones(1 << 20, "f4")
    while not stop.is_set():
        assert f(ones) == 1 << 20
threads = [threading.Thread(target=t) for t in (compiles, calls)]
for t in threads:
    t.start()
pids = []
for k in range(6):
    time.sleep(0.01 * 3 ** (k % 4))
    pids.append(child(lambda: right(100 + k)))
assert all([well(pid) for pid in pids])
fork = multiprocessing.get_context("fork")
with fork.Pool(2) as pool:
    assert pool.map_async(right, range(110, 114)).get(60) == [True] * 4
with ProcessPoolExecutor(2, mp_context=fork) as pool:
    assert [*pool.map(right, range(120, 124), timeout=60)] == [True] * 4
stop.set()
for t in threads:
    t.join()
print("done")
"""


def test_forks_of_a_busy_process():
    done = subprocess.run(
        [sys.executable, "-c", BUSY], env={**os.environ, "GRAPHC_CACHE_DIR": ""}, timeout=300,
        capture_output=True, text=True, check=False,
    )
    assert done.stdout == "done\n", done.stderr


def test_an_interrupt_while_a_fork_waits_ends_the_waiting(monkeypatch):
    """What the fork has is given back, and the next compilations wait for nobody."""
    v = gx.variable(np.zeros(2, "f4"), "v")
    held, go_on, seen = threading.Event(), threading.Event(), []
    monkeypatch.setattr(sys, "unraisablehook", lambda e: seen.append(e.exc_type))

    def hold():
        with v.state.lock:
            held.set()
            go_on.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    try:
        timer.start()
        begin = time.monotonic()
        pid = child(lambda: True)
        waited = time.monotonic() - begin
    finally:
        signal.signal(signal.SIGINT, old)
        go_on.set()
        holder.join()
    assert seen == [KeyboardInterrupt] and waited < forks.MOST_SECONDS / 2 and well(pid)
    begin = time.monotonic()
    assert right(31) and time.monotonic() - begin < forks.MOST_SECONDS / 2
