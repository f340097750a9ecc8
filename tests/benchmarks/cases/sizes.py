"""(g) A new size on a function that is already compiled: time of the first call at each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Arrays, Case
from .gradients import mixture
from .reductions import softmax

FIRST = 100
NEW = (101, 57, 333, 1000, 64)


def _softmax(n: int) -> Case:
    def make(rng: np.random.Generator) -> Arrays:
        return (rng.normal(size=(n, 128)).astype("float32"),)

    return Case("g/softmax/f32/n x128", make, softmax, (("n", 128),), quick=True)


def _mixture_grad(n: int) -> Case:
    def make(rng: np.random.Generator) -> Arrays:
        return tuple(a.astype("float64") for a in (
            rng.normal(size=(n, 10)), rng.normal(size=25), rng.normal(size=(25, 10)),
            0.3 * rng.normal(size=(25, 10)),
        ))

    return Case(
        "g/mixture_grad/f64/n x10", make, mixture, (("n", 10), (25,), (25, 10), (25, 10)),
        wrt=(1, 2, 3),
    )


def families() -> dict[str, Any]:
    """Name -> the case at a size."""
    return {f(FIRST).name: f for f in (_softmax, _mixture_grad)}
