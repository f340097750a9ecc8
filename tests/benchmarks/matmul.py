"""Matrix products against NumPy (its BLAS), one thread, in one process.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/matmul.py [--level v3] [--quick]

Prints GFLOP/s of both, their ratio, and the part of the multiply-add peak, which is measured
between the products because clock rates change.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "matmul"))
sys.path.insert(0, str(Path(__file__).parents[1] / "codegen_scalars"))

import llvmlite.binding as llvm
import native
import numpy as np
from limits import chains_function
from scalar_harness import levels

from graphc.codegen.machine.target import host, x86

PEAK_STEPS = 100_000  # long enough for the clock of sustained work
SQUARE = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048]
SHAPES = [
    # name, m, n, k, A transposed, B transposed
    ("mlp forward", 32, 128, 64, False, False),
    ("mlp dX", 32, 64, 128, False, True),
    ("mlp dW", 64, 128, 32, True, False),
    ("mlp logits", 32, 10, 128, False, False),
    ("mnist forward", 128, 512, 784, False, False),
    ("mnist dX", 128, 784, 512, False, True),
    ("mnist dW", 784, 512, 128, True, False),
    ("row times matrix", 1, 512, 512, False, False),
    ("row times transposed", 1, 512, 512, False, True),
    ("matrix times vector", 512, 1, 512, False, False),
    ("transposed times vector", 512, 1, 512, True, False),
    ("large row", 1, 2048, 2048, False, False),
    ("large vector", 2048, 1, 2048, False, False),
    ("tall", 4096, 32, 32, False, False),
    ("flat", 32, 4096, 256, False, False),
    ("inner", 32, 32, 4096, False, False),
    ("transposed A", 512, 512, 512, True, False),
    ("transposed B", 512, 512, 512, False, True),
    ("transposed both", 512, 512, 512, True, True),
    ("odd", 101, 103, 107, False, False),
    ("odd, transposed B", 101, 103, 107, False, True),
]


def best(functions: list, seconds: float) -> list[float]:
    """The shortest time of each, taken in turns."""
    shortest = [float("inf")] * len(functions)
    for f in functions:
        f()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, f in enumerate(functions):
            t = time.perf_counter()
            f()
            shortest[i] = min(shortest[i], time.perf_counter() - t)
    return shortest


def repeat_function():
    """repeat(n, f, 18 arguments): f called n times without Python in between."""
    arguments = ", ".join(f"i64 %x{i}" for i in range(18))
    lines = f"""define void @repeat(i64 %n, ptr %f, {arguments}) {{
entry:
  br label %head
head:
  %i = phi i64 [%n, %entry], [%j, %head]
  call void %f({arguments})
  %j = sub i64 %i, 1
  %more = icmp ne i64 %j, 0
  br i1 %more, label %head, label %done
done:
  ret void
}}"""
    address = native.address(lines, x86("v2", llvm.get_process_triple()), "repeat")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 20)(address)


def aligned(shape: tuple[int, ...], dtype: str):
    """An array that begins a cache line: where an array begins is worth several percent."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start:start + size].view(dtype).reshape(shape)


def operands(rng, m: int, n: int, k: int, ta: bool, tb: bool, dtype: str):
    a, b = aligned((k, m) if ta else (m, k), dtype), aligned((n, k) if tb else (k, n), dtype)
    a[...], b[...] = rng.normal(size=a.shape), rng.normal(size=b.shape)
    return (a.T if ta else a), (b.T if tb else b)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--dtype", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    level = options.level or levels()[-1]
    target = x86(level, host().triple)
    repeat = repeat_function()
    rng = np.random.default_rng(0)
    shapes = [(f"square {s}", s, s, s, False, False) for s in SQUARE] + SHAPES
    if options.quick:
        shapes = shapes[::4]
    for dtype in [options.dtype] if options.dtype else ["float32", "float64"]:
        start = time.perf_counter()
        f = native.compiled(dtype, level)
        print(f"{dtype} {level}: compiled in {1e3 * (time.perf_counter() - start):.0f} ms")
        address = ctypes.cast(f, ctypes.c_void_p).value
        peak, width = chains_function(dtype, "fma", target)
        flops_per_step = 2 * width
        ones = np.ones(64, dtype)
        print(f"{dtype} {level}: GFLOP/s{'':22}ours   numpy   ratio  of peak")
        for name, m, n, k, ta, tb in shapes:
            if options.only and options.only not in name:
                continue
            a, b = operands(rng, m, n, k, ta, tb, dtype)
            c, c2 = aligned((m, n), dtype), aligned((m, n), dtype)
            flops = 2 * m * n * k
            times = max(1, int(2e7 / flops))
            arguments = native.arguments(a[None], b[None], c[None])

            def ours(times=times, address=address, arguments=arguments):
                repeat(times, address, *arguments)

            def theirs(times=times, a=a, b=b, c2=c2):
                for _ in range(times):
                    np.matmul(a, b, out=c2)

            def limit(peak=peak, ones=ones):
                peak(PEAK_STEPS, ones.ctypes.data)

            t, t_numpy, *peaks = best([ours, theirs, *[limit] * 4], options.seconds)
            ours_rate, numpy_rate = (times * flops / x / 1e9 for x in (t, t_numpy))
            part = ours_rate / (PEAK_STEPS * flops_per_step / min(peaks) / 1e9)
            print(f"{name:25} {m:5} {n:5} {k:5} {ours_rate:8.1f} {numpy_rate:7.1f} "
                  f"{ours_rate / numpy_rate:6.2f} {part:7.2f}", flush=True)


if __name__ == "__main__":
    main()
