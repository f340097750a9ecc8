"""Nanoseconds per element of every math function, one thread, beside NumPy's.

    python tests/benchmarks/math_speed.py [--ops exp,sin] [--levels v3,v4]

The arrays (8192 elements) stay in the first- or second-level cache.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen_scalars"))
from scalar_harness import at_level, levels, loop

from graphc.types import f32, f64

NUMPY: dict[str, Callable[..., Any] | None] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "expm1": np.expm1, "log1p": np.log1p, "atan": np.arctan, "erf": None, "pow": np.power,
    "atan2": np.arctan2, "rem": np.remainder, "sqrt": np.sqrt, "lgamma": None,
}
PAIRS = ("pow", "atan2", "rem")
N = 8192


def best(f: Callable[[], object], repeats: int = 60) -> float:
    """The shortest of many runs, in nanoseconds per element."""
    shortest = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        f()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest / N * 1e9


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ops", default=",".join(NUMPY))
    p.add_argument("--levels", default=",".join(levels()))
    a = p.parse_args()
    chosen = a.levels.split(",")
    print(f"{'op':8}{'dtype':6}{'NumPy':>8}" + "".join(f"{v:>8}" for v in chosen))
    rng = np.random.default_rng(0)
    for op in a.ops.split(","):
        for d in (f32, f64):
            xs = [rng.uniform(0.1, 10, N).astype(d.numpy) for _ in range(1 + (op in PAIRS))]
            out, failed, peer = np.empty(N, d.numpy), np.zeros(N, np.bool_), NUMPY[op]
            row = [best(lambda f=peer, xs=xs, out=out: f(*xs, out)) if peer else float("nan")]
            pointers = [failed.ctypes.data, out.ctypes.data, *(x.ctypes.data for x in xs)]
            for level in chosen:
                target = at_level(level)  # as many vectors side by side as kernels take at most
                width = target.lanes(d) * (4 if target.registers >= 32 else 2)
                f = loop(op, (d,) * len(xs), d, width, level)
                row.append(best(lambda f=f, pointers=pointers: f(N, *pointers)))
            print(f"{op:8}{d.name:6}" + "".join(f"{v:8.2f}" for v in row), flush=True)


if __name__ == "__main__":
    main()
