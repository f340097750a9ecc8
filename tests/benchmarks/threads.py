"""What a second thread brings: python tests/benchmarks/threads.py [CASE ...]

One process runs with one thread and one with two, the same cases in turn, and the ratio of the
best times is printed. 1.6 is asked of the product and of the chain, and the two branches must run
side by side. "kept" writes into one array by `out=`; "fresh" allocates its result in every call.
Waits for an idle machine, up to a minute in all, and marks the cases for which it was busy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS = 15
IDLE = 0.9        # of all CPUs' time
PATIENCE = 60.0   # seconds
Case = tuple[str, Callable[[], Any]]


def product(n: int) -> Callable[[], Any]:
    import graphc as gx

    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(n, n)).astype(np.float32) for _ in range(2))
    x, y = gx.input("x", (n, n)), gx.input("y", (n, n))
    f = gx.function([x, y], x @ y, name="product")
    out = np.empty((n, n), np.float32)
    return lambda: f(a, b, out=out)


def chain(keep: bool) -> Callable[[], Any]:
    import graphc as gx

    x = gx.input("x", ("n",))
    y = x
    for k in range(5):
        y = gx.tanh(y * (1.0 + k / 8)) - y * 0.25
    f = gx.function([x], y, name="chain")
    a = np.linspace(-4, 4, 1 << 22, dtype=np.float32)
    out = np.empty_like(a)
    return (lambda: f(a, out=out)) if keep else (lambda: f(a))


def short_chain() -> Callable[[], Any]:
    import graphc as gx

    x = gx.input("x", ("n",))
    f = gx.function([x], (x * 2.0 + 1.0) * x - 0.5, name="short_chain")
    a = np.linspace(-4, 4, 1 << 22, dtype=np.float32)
    out = np.empty_like(a)
    return lambda: f(a, out=out)


def softmax() -> Callable[[], Any]:
    import graphc as gx

    x = gx.input("x", ("rows", 1024))
    f = gx.function([x], gx.nn.softmax(x, axis=1), name="softmax")
    a = np.random.default_rng(0).normal(size=(4096, 1024)).astype(np.float32)
    out = np.empty_like(a)
    return lambda: f(a, out=out)


def two_sums() -> Callable[[], Any]:
    import graphc as gx

    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    f = gx.function([x, y], [gx.cumulative_sum(x), gx.cumulative_sum(y)], name="two_sums")
    a, b = np.ones(1 << 19, np.float32), np.ones(1 << 19, np.float32)
    out = [np.empty_like(a), np.empty_like(b)]
    return lambda: f(a, b, out=out)


def two_products() -> Callable[[], Any]:
    import graphc as gx

    n = 96
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(n, n)).astype(np.float32) for _ in range(4)]
    p, q, r, s = (gx.input(name, (n, n)) for name in "pqrs")
    f = gx.function([p, q, r, s], [p @ q, r @ s], name="two_products")
    out = [np.empty((n, n), np.float32) for _ in range(2)]
    return lambda: f(*arrays, out=out)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "product 1024": lambda: product(1024),
    "chain of 4M, kept": lambda: chain(True),
    "chain of 4M, fresh": lambda: chain(False),
    "5 cheap ops on 4M": short_chain,
    "softmax 4096x1024": softmax,
    "two running sums": two_sums,
    "two products of 96": two_products,
}


def child() -> None:
    """Prepare a case for every line read, run it, and print the best seconds a call took."""
    ready: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = CASES[name]()
            ready[name]()
        run, best, spent = ready[name], float("inf"), 0.0
        while spent < 0.03:
            start = time.perf_counter()
            run()
            took = time.perf_counter() - start
            best, spent = min(best, took), spent + took
        print(best, flush=True)


def ask(process: subprocess.Popen[str], name: str) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def idle_share(seconds: float = 0.3) -> float:
    """The share of CPU time that nobody uses; 1 where the system does not tell."""
    def read() -> tuple[int, int]:
        with open("/proc/stat") as f:
            numbers = [int(v) for v in f.readline().split()[1:]]
        return numbers[3] + numbers[4], sum(numbers)

    try:
        idle, total = read()
        time.sleep(seconds)
        later_idle, later = read()
    except OSError:
        return 1.0
    return (later_idle - idle) / max(1, later - total)


def wait_until_idle(deadline: float) -> bool:
    while idle_share() < IDLE:
        if time.monotonic() > deadline:
            return False
    return True


def main() -> None:
    wanted = sys.argv[1:] or list(CASES)
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "GRAPHC_NUM_THREADS": str(n)},
        )
        for n in (1, 2)
    ]
    for name in wanted:
        for process in children:
            ask(process, name)
    deadline = time.monotonic() + PATIENCE
    print(f"{'':22}{'one thread':>12}{'two':>12}{'ratio':>8}")
    for name in wanted:
        was_idle = wait_until_idle(deadline)
        best = [float("inf"), float("inf")]
        for _ in range(ROUNDS):
            for k, process in enumerate(children):
                best[k] = min(best[k], ask(process, name))
        note = "" if was_idle else "   (the machine was busy)"
        one, two = best
        print(f"{name:22}{one * 1e3:9.3f} ms{two * 1e3:9.3f} ms{one / two:8.2f}{note}", flush=True)
    for process in children:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    child() if sys.argv[1:] == ["--child"] else main()
