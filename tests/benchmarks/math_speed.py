"""Nanoseconds per element of every math function, and how often as fast as its peers graphc is.

    python tests/benchmarks/math_speed.py [--ops exp,sin] [--sizes 4096] [--peers numpy,torch]

One thread, results into kept arrays, arguments that stay in a near cache. Rounds are interleaved,
the shortest counts. NumPy computes by SVML where it has that, torch by SLEEF, jax by XLA's own;
numba takes part where it finds SVML. GRAPHC_CPU=v3 lowers graphc's level.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

os.environ["GRAPHC_NUM_THREADS"] = "1"  # before any peer starts its pool

import numpy as np

import graphc as gx

Range = tuple[float, float]
# Arguments of each function, as graphc names them; two ranges for two operands.
RANGES: dict[str, tuple[Range, ...]] = {
    "exp": ((-10, 10),), "expm1": ((-5, 5),), "exp2": ((-10, 10),), "log": ((0.1, 10),),
    "log1p": ((-0.5, 10),), "log2": ((0.1, 10),), "log10": ((0.1, 10),), "tanh": ((-4, 4),),
    "sinh": ((-5, 5),), "cosh": ((-5, 5),), "asinh": ((-10, 10),), "acosh": ((1, 10),),
    "atanh": ((-1, 1),), "sin": ((-10, 10),), "cos": ((-10, 10),), "tan": ((-10, 10),),
    "asin": ((-1, 1),), "acos": ((-1, 1),), "atan": ((-5, 5),), "erf": ((-3, 3),),
    "sqrt": ((0.1, 10),), "rsqrt": ((0.1, 10),), "cbrt": ((0.1, 10),),
    "floor": ((-10, 10),), "lgamma": ((0.1, 10),), "digamma": ((0.1, 10),),
    "pow": ((0.1, 10), (-5, 5)), "atan2": ((-5, 5), (-5, 5)), "hypot": ((-5, 5), (-5, 5)),
    "remainder": ((-10, 10), (0.1, 10)), "divide": ((-10, 10), (0.1, 10)),
    "maximum": ((-10, 10), (-10, 10)),
}
# What others call it, None where they lack it; the same name where nothing stands here.
NUMPY: Mapping[str, str | None] = {
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "asin": "arcsin",
    "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power",
    "erf": None, "rsqrt": None, "lgamma": None, "digamma": None,
}
TORCH: Mapping[str, str | None] = {}
JAX: Mapping[str, str | None] = NUMPY | {
    "erf": "scipy.special.erf", "rsqrt": "lax.rsqrt", "lgamma": "scipy.special.gammaln",
    "digamma": "scipy.special.digamma",
}
Run = Callable[[], object]


def graphc_runs(op: str, xs: list[np.ndarray], out: np.ndarray) -> Run:
    f = getattr(gx, op, None) or getattr(gx.nn, op)
    ins = [gx.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(xs)]
    return partial(gx.function(ins, f(*ins)), *xs, out=out)


def numpy_runs(op: str, xs: list[np.ndarray], out: np.ndarray) -> Run | None:
    name = NUMPY.get(op, op)
    return None if name is None else partial(getattr(np, name), *xs, out=out)


def torch_runs(op: str, xs: list[np.ndarray], out: np.ndarray) -> Run | None:
    import torch

    torch.set_num_threads(1)
    name = TORCH.get(op, op)
    if name is None or not hasattr(torch, name):
        return None
    return partial(getattr(torch, name), *map(torch.from_numpy, xs), out=torch.from_numpy(out))


def jax_runs(op: str, xs: list[np.ndarray], out: np.ndarray) -> Run | None:
    import jax

    jax.config.update("jax_enable_x64", True)
    name = JAX.get(op, op)
    if name is None:
        return None
    f = jax if "." in name else jax.numpy
    for part in name.split("."):
        f = getattr(f, part)
    compiled, arrays = jax.jit(f), [jax.device_put(x) for x in xs]
    return lambda: compiled(*arrays).block_until_ready()


def numba_runs(op: str, xs: list[np.ndarray], out: np.ndarray) -> Run | None:
    import numba
    from numba.core import config

    names = {"pow": "pow", "remainder": None, "divide": None, "maximum": None, "rsqrt": None}
    name = names.get(op, op)
    if not config.USING_SVML or name is None:
        return None
    each, n = getattr(math, name), len(xs)
    letters = ", ".join(f"x{i}" for i in range(n))
    space: dict[str, Any] = {"each": each}
    exec(f"def f({letters}, out):\n    for i in range(len(out)):\n"
         f"        out[i] = each({', '.join(f'x{i}[i]' for i in range(n))})", space)
    return partial(numba.njit(space["f"], fastmath=True), *xs, out)


PEERS: dict[str, Callable[[str, list[np.ndarray], np.ndarray], Run | None]] = {
    "numpy": numpy_runs, "torch": torch_runs, "jax": jax_runs, "numba": numba_runs,
}


def shortest(runs: Mapping[str, Run], rounds: int) -> dict[str, float]:
    """The shortest call of each, in seconds, rounds interleaved."""
    best = dict.fromkeys(runs, math.inf)
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            for _ in range(3):  # the first of three finds its arguments in cache again
                begin = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - begin)
    return best


def offered(peers: list[str]) -> list[str]:
    """Those that are installed."""
    found = []
    for name in peers:
        try:
            PEERS[name]("sqrt", [np.ones(8)], np.ones(8))
        except ImportError:
            continue
        found.append(name)
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ops", default=",".join(RANGES))
    p.add_argument("--sizes", default="4096,65536", help="elements of the arrays")
    p.add_argument("--dtypes", default="float32,float64")
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--rounds", type=int, default=100)
    a = p.parse_args()
    peers = offered(a.peers.split(",")) if a.peers else []
    print(f"{'op':10}{'dtype':9}{'n':>6}{'graphc':>9}"
          + "".join(f"{v:>9}{'ratio':>6}" for v in peers))
    rng = np.random.default_rng(0)
    for op in a.ops.split(","):
        for dtype in a.dtypes.split(","):
            for n in map(int, a.sizes.split(",")):
                xs = [rng.uniform(*r, n).astype(dtype) for r in RANGES[op]]
                out = np.empty(n, dtype)
                runs = {v: PEERS[v](op, xs, out) for v in peers}
                some = {k: r for k, r in runs.items() if r is not None}
                best = shortest({"graphc": graphc_runs(op, xs, out), **some}, a.rounds)
                row = f"{op:10}{dtype:9}{n:6}{best['graphc'] / n * 1e9:9.3f}"
                for v in peers:
                    t = best.get(v, math.nan)
                    row += f"{t / n * 1e9:9.3f}{t / best['graphc']:6.2f}"
                print(row, flush=True)


if __name__ == "__main__":
    main()
