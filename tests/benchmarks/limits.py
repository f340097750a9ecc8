"""What the machine can do: copying, multiply-adds and divisions, measured in the same run.

Runs in a process of its own with so many threads: python -m tests.benchmarks.limits THREADS
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

COPY_SIZES = {
    "8 KiB": 1 << 13, "32 KiB": 1 << 15, "512 KiB": 1 << 19, "8 MiB": 1 << 23, "64 MiB": 1 << 26,
    "256 MiB": 1 << 28,
}
LARGEST_COPY = max(COPY_SIZES.values())
# Bytes of a case beside which copies take turns: memory is shared, and what others leave of it
# changes from minute to minute by a third; copies timed at other moments told little.
FAR_CASE = 1 << 26
STEPS = {"fma": 1_000_000, "divide": 100_000}  # some ms: waking a thread takes up to 0.1 ms
Limits = dict[str, dict[str, float]]


def chains_text(dtype: str, op: str, lanes: int, bits: int, chains: int) -> str:
    """f(n, pointer): n steps of independent multiply-adds, or divisions, in full registers."""
    t = "float" if dtype == "float32" else "double"
    v = f"<{lanes} x {t}>"
    width = 32 if dtype == "float32" else 64
    fma = f"llvm.fma.v{lanes}f{width}"

    def step(c: int) -> str:
        if op == "divide":
            return f"  %b{c} = fdiv {v} %x, %a{c}"
        return f"  %b{c} = call {v} @{fma}({v} %x, {v} %x, {v} %a{c})"

    lines = [
        f"declare {v} @{fma}({v}, {v}, {v})",
        f'define void @f(i64 %n, ptr %p) "prefer-vector-width"="{bits}" {{',
        "entry:", f"  %x = load {v}, ptr %p, align 4", "  br label %head", "head:",
        "  %i = phi i64 [%n, %entry], [%j, %head]",
        *(f"  %a{c} = phi {v} [%x, %entry], [%b{c}, %head]" for c in range(chains)),
        *(step(c) for c in range(chains)),
        "  %j = sub i64 %i, 1", "  %more = icmp ne i64 %j, 0",
        "  br i1 %more, label %head, label %done", "done:",
    ]
    total = "%b0"
    for c in range(1, chains):
        lines.append(f"  %s{c} = fadd {v} {total}, %b{c}")
        total = f"%s{c}"
    return "\n".join([*lines, f"  store {v} {total}, ptr %p, align 4", "  ret void", "}"])


def chains_function(
    dtype: str, op: str, target: Any = None
) -> tuple[Callable[..., None], int]:
    """The compiled function, for this machine or a level of it, and elements of a step."""
    from graphc.codegen.machine import jit, llvm
    from graphc.codegen.machine.target import host
    from graphc.types import as_dtype

    target = target or host()
    lanes = target.lanes(as_dtype(dtype))
    chains = target.registers - 2  # x takes a register; four units of latency 4 want 16
    text = chains_text(dtype, op, lanes, target.vector_bits, chains)
    loaded = jit.load([llvm.compile_object(text, target, use_cache=False)], exports=["f"])
    f = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(loaded["f"])
    f.loaded = loaded
    return f, lanes * chains


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def best(run: Callable[[], object], seconds: float) -> float:
    """The shortest of many runs."""
    run()
    shortest, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 8 or time.perf_counter() < end:
        runs += 1
        shortest = min(shortest, timed(run))
    return shortest


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """The one of this process: its threads live as long."""
    return ThreadPoolExecutor(threads)


def copier(size: int, threads: int, fresh: bool = False, times: int = 1) -> Callable[[], object]:
    """A function that copies `size` bytes so many times, into kept or fresh memory."""
    a = np.ones(size, np.uint8)
    out = np.zeros_like(a)
    cuts = [size * k // threads for k in range(threads + 1)]
    spans = [slice(i, j) for i, j in pairwise(cuts)]

    def part(s: slice) -> None:
        for _ in range(times):
            if fresh:
                a[s].copy()
            else:
                np.copyto(out[s], a[s])

    if threads == 1:
        return lambda: part(spans[0])
    return lambda: list(pool(threads).map(part, spans))


def copy_speed(size: int, threads: int, fresh: bool) -> float:
    """Bytes read and written a second by a copy of `size` bytes."""
    times = max(1, (1 << 22) // size)
    return 2 * size * times / best(copier(size, threads, fresh, times), 0.1)


def measure(threads: int) -> Limits:
    """{"copy": {size: bytes/s}, "copy fresh": ..., "fma": {dtype: flop/s}, "divide": {...}}."""
    found: Limits = {
        "copy": {n: copy_speed(s, threads, False) for n, s in COPY_SIZES.items()},
        "copy fresh": {n: copy_speed(s, threads, True) for n, s in COPY_SIZES.items()
                       if s >= 1 << 23},
        "fma": {}, "divide": {},
    }
    for dtype in ("float32", "float64"):
        for op, each in (("fma", 2), ("divide", 1)):
            f, width = chains_function(dtype, op)
            steps = STEPS[op]
            arrays = [np.ones(64, dtype) for _ in range(threads)]

            def run(a: np.ndarray, f: Callable[..., None] = f, steps: int = steps) -> None:
                f(steps, a.ctypes.data)

            def everywhere(
                run: Callable[[np.ndarray], None] = run, arrays: list[np.ndarray] = arrays
            ) -> list[None]:
                return list(pool(threads).map(run, arrays))

            alone = functools.partial(run, arrays[0])
            took = best(alone if threads == 1 else everywhere, 0.2)
            found[op][dtype] = threads * steps * width * each / took
    return found


def faster(a: Limits, b: Limits) -> Limits:
    """The better figure of each: what the machine can do when nothing disturbs it."""
    return {k: {n: max(v, b[k][n]) for n, v in each.items()} for k, each in a.items()}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
