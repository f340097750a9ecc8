"""A training step against NumPy and, where installed, JAX: python tests/benchmarks/training.py

The network of examples/digits.py (64-128-128-10, Adam, float32) on batches of 32 and 256. The
peers are those of cases/training.py and get their images scaled already. Printed are microseconds
a step, best of many runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import digits

from tests.benchmarks.cases import training

LR = 1e-3


def microseconds(step: Callable[[], Any], seconds: float = 0.5) -> float:
    """Best time of one step."""
    timer = timeit.Timer(step)
    timer.timeit(50)
    number = 20
    repeat = max(5, int(seconds / max(1e-6, timer.timeit(number))))
    return min(timer.repeat(repeat, number)) / number * 1e6


def main() -> None:
    print(f"{os.cpu_count()} CPUs")
    rng = np.random.default_rng(0)
    for batch in (32, 256):
        x = rng.integers(0, 17, (batch, 64)).astype("float32")
        y = rng.integers(0, 10, batch)
        arrays = (x / np.float32(16), y, *(p.value for p in digits.params))
        peers = {"NumPy": training.in_numpy(True, LR, arrays).fresh}
        with contextlib.suppress(ImportError):
            peers["JAX"] = training.in_jax(True, LR, arrays).fresh
        first = digits.step.with_state()(x, y)["loss"]
        for peer in peers.values():
            np.testing.assert_allclose(np.asarray(peer()), first, rtol=1e-4)
        ours = microseconds(lambda x=x, y=y: digits.step(x, y))
        line = f"batch {batch:4}: graphc {ours:7.1f} us"
        for name, peer in peers.items():
            t = microseconds(peer)
            line += f", {name} {t:7.1f} us ({t / ours:.1f}x)"
        print(line)


if __name__ == "__main__":
    main()
