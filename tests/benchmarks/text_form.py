"""How long a graph takes to print, parse, verify and interpret.

    python tests/benchmarks/text_form.py [NODES]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from graphc import ir
from graphc.dims import dim
from graphc.interpret import evaluate
from graphc.text import parse, to_text
from graphc.types import TensorType, f32
from graphc.verify import verify


def chain(n: int) -> ir.Graph:
    """n nodes of three ops over one symbolic dimension."""
    (x,) = ir.apply("input", (), name="x", type=TensorType(f32, (dim("batch"), 3)))
    v = x
    for _ in range(n // 3):
        (v,) = ir.apply("add", (v, x))
        (v,) = ir.apply("tanh", (v,))
        (v,) = ir.apply("reverse", (v,), axes=(0,))
    return ir.collect("chain", [x], [v])


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    g = chain(n)
    text = to_text(g)
    x = np.ones((1, 3), np.float32)
    steps = {
        "print": lambda: to_text(g),
        "parse": lambda: parse(text),
        "verify": lambda: verify(g),
        "interpret": lambda: evaluate(g, [x]),
    }
    print(f"{len(g.nodes)} nodes, {len(text)} bytes; best of 5, ms")
    for name, step in steps.items():
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            step()
            best = min(best, time.perf_counter() - start)
        print(f"{name:<10}{best * 1e3:8.1f}")


if __name__ == "__main__":
    main()
