"""Seconds of every stage for large graphs: python tests/benchmarks/large_graphs.py [scale]

Cold: declaration, gradient, passes, code generation, LLVM, and one call. The caches are off.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import numpy as np

import graphc as gx
from graphc.tensor import Tensor

WIDTH = 16


def alike(x: Tensor, nodes: int) -> Tensor:
    """sin after sin."""
    for _ in range(nodes):
        x = gx.sin(x)
    return x


def deep(x: Tensor, nodes: int) -> Tensor:
    """A recurrence of products and sums, each step on the one before."""
    first = x
    for _ in range(nodes // 2):
        x = x * 0.9999 + first
    return x


def mixed(x: Tensor, nodes: int) -> Tensor:
    """Elementwise ops on earlier values, products, sums with broadcasts, views, constants."""
    rng, values, made = np.random.default_rng(0), [x], 0
    w = gx.constant(rng.normal(size=(WIDTH, WIDTH)) / 4)
    while made < nodes:
        a = values[-1]
        b = values[int(rng.integers(max(0, len(values) - 20), len(values)))]
        kind = int(rng.integers(0, 9))
        if kind == 0:
            v, made = gx.sin(a @ w), made + 2
        elif kind == 1:
            v, made = a - gx.mean(a, axis=1, keepdims=True), made + 4
        elif kind == 2:
            v, made = gx.concat([a[:, 1:], b[:, :1]], axis=1), made + 3
        elif kind == 3:
            v, made = a[:, ::-1] * 0.9 + 0.1, made + 5
        elif kind == 4:
            v, made = gx.where(a < b, a, gx.cos(b)), made + 3
        elif kind == 5:
            v, made = gx.tanh(a) + gx.exp(-(b * b)), made + 5
        else:
            v, made = (gx.cos(a), a + b * 0.5, gx.maximum(a, b * 0.5))[kind - 6], made + 2
        values.append(gx.tanh(v) if kind == 7 else v)
    return values[-1]


def stages(build, nodes: int, dtype: str = "float64") -> tuple[gx.Function, dict[str, float]]:
    """A compiled function of a graph and its gradient, and the seconds that each stage took."""
    seconds, start = {}, time.perf_counter()

    def lap(name: str) -> None:
        nonlocal start
        now = time.perf_counter()
        seconds[name], start = now - start, now

    x = gx.input("x", ("n", WIDTH), dtype)
    y = build(x, nodes)
    lap("declaration")
    slope = gx.grad(gx.sum(y), x)
    lap("gradient")
    f = gx.function([x], [y, slope], name=build.__name__)
    lap("function")
    _ = f.optimized
    lap("passes")
    _ = f.program
    lap("code generation")
    f.compile()
    lap("LLVM")
    f(np.zeros((3, WIDTH), dtype))
    lap("call")
    return f, seconds


# Declared nodes; with the gradient some 10,000 in the first two, 100,000 in the last.
SIZES = {alike: 3_400, mixed: 3_700, deep: 50_000}


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    for build, nodes in SIZES.items():
        os.environ["GRAPHC_CACHE_DIR"] = tempfile.mkdtemp()
        f, seconds = stages(build, int(nodes * scale))
        print(f"{build.__name__}: {len(f.graph.nodes)} nodes, {len(f.program.kernels)} kernels")
        for name, s in seconds.items():
            print(f"  {name:<16}{s:8.2f} s")
        print(f"  {'total':<16}{sum(seconds.values()):8.2f} s")


if __name__ == "__main__":
    main()
