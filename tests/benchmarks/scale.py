"""Large graphs, from declaration to a first result: python tests/benchmarks/scale.py [NODES]

Forward and gradient together have about NODES nodes (10,000): layers that are all alike, and a mix
of ops; then a chain five times as deep. Objects are not cached. Each row is a process of its own.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

CASES = ("alike", "mixed", "chain")


def declare(case: str, nodes: int):
    """(x, y): an input and a result; with its gradient the graph has about `nodes` nodes."""
    import graphc as gx

    x = gx.input("x", ("n", 16))
    h = x
    rng = np.random.default_rng(0)
    if case == "chain":
        for _ in range(5 * nodes):
            h = gx.sin(h)
        return x, h
    if case == "alike":
        for k in range(nodes // 8):
            w = gx.variable(rng.normal(size=(16, 16)) / 4, f"w{k}", "float32")
            h = gx.tanh(h @ w)
        return x, h
    ops = (
        gx.sin, gx.tanh, lambda v: v * x, lambda v: v + gx.sum(v, axis=1, keepdims=True),
        lambda v: gx.where(v > 0, v, 0.1 * v), lambda v: v - gx.max(v, axis=1, keepdims=True),
        lambda v: gx.flip(v, axis=1), lambda v: gx.roll(v, 3, axis=1), lambda v: gx.exp(-v * v),
    )
    for k in rng.integers(0, len(ops), nodes // 7):
        h = ops[k](h)
    return x, h


def run(case: str, nodes: int) -> None:
    import graphc as gx

    times = [time.perf_counter()]

    def lap() -> None:
        times.append(time.perf_counter())

    x, y = declare(case, nodes)
    lap()
    outputs = [y] if case == "chain" else [y, gx.grad(gx.sum(y), x)]
    lap()
    f = gx.function([x], outputs, name=case)
    f.optimized  # noqa: B018
    lap()
    f.compile()
    lap()
    f(np.ones((3, 16), "float32"))
    parts = [b - a for a, b in pairwise(times)]
    cells = "".join(f"{t:9.2f}" for t in (*parts, sum(parts)))
    print(f"{case:8}{len(f.graph.nodes):8}{cells}{len(f.kernels):9}")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run(sys.argv[2], int(sys.argv[3]))
        return
    nodes = sys.argv[1] if sys.argv[1:] else "10000"
    heads = "".join(f"{h:>9}" for h in ("declare", "gradient", "passes", "code", "total"))
    for name in ("graphc", "passes", "codegen"):  # as pip does on installation
        compileall.compile_dir(Path(__file__).parents[2] / name, quiet=2)
    print(f"{'seconds':8}{'nodes':>8}{heads}{'kernels':>9}", flush=True)
    for case in CASES:
        subprocess.run(
            [sys.executable, __file__, "--one", case, nodes], check=True,
            env={**os.environ, "GRAPHC_CACHE_DIR": ""},
        )


if __name__ == "__main__":
    main()
