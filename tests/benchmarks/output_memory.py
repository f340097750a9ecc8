"""What new pages cost: python tests/benchmarks/output_memory.py [ELEMENTS]

y = x1 * x2 + x1 on f32, 4M elements unless said otherwise, single thread. "new pages": the result
is kept, and nothing waits for reuse, so the output is memory from the system; "recycled": it is
dropped at once, or when the next one takes its name; "out=": the caller brings the output. Beside
them NumPy and, where installed, JAX, dropping their results. Minimum and median of interleaved
rounds, and bytes moved per second.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

import graphc as gx

ROUNDS = 15


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4 << 20
    rng = np.random.default_rng(0)
    a, b = (rng.random(n, dtype=np.float32) for _ in range(2))
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    f = gx.function([x, y], x * y + x, threads=1)
    out = f(a, b)
    held: list[Any] = []
    name = [None]

    def rebind() -> None:
        name[0] = f(a, b)

    cases: dict[str, Callable[[], Any]] = {
        "new pages": lambda: held.append(f(a, b)),
        "recycled": lambda: f(a, b),
        "recycled, rebound": rebind,
        "out=": lambda: f(a, b, out=out),
        "numpy": lambda: a * b + a,
    }
    if importlib.util.find_spec("jax"):
        import jax

        compiled, p, q = jax.jit(lambda x, y: x * y + x), jax.device_put(a), jax.device_put(b)
        cases["jax"] = lambda: compiled(p, q).block_until_ready()
    times: dict[str, list[float]] = {k: [] for k in cases}
    for _ in range(ROUNDS):
        for k, call in cases.items():
            if k == "new pages":
                held.clear()
                gx.release_memory()
            else:
                call()
            start = time.perf_counter()
            call()
            times[k].append(time.perf_counter() - start)
    print(f"{n} elements")
    for k, t in times.items():
        best, median = min(t), statistics.median(t)
        print(f"{k:18} {best * 1e6:9.0f} us best {median * 1e6:9.0f} median "
              f"{12 * n / median / 1e9:6.1f} GB/s")


if __name__ == "__main__":
    main()
