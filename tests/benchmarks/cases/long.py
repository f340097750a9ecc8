"""(a), (b) Long formulas of one chain, as loops that are unrolled: Newton's method, an integration,
and the mean of a formula that is computed for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import DTYPES, Arrays, Case
from .elementwise import SIZES, black_scholes

NEWTON, STEPS = 10, 6
TREES = {"numexpr": "its expressions are trees, which here have 4^10 leaves"}


def kepler(xp: Any, m: Any, e: Any) -> Any:
    """Eccentric anomalies of mean anomalies m and eccentricities e, by steps of Newton's method."""
    x = m
    for _ in range(NEWTON):
        x = x - (x - e * xp.sin(x) - m) / (1.0 - e * xp.cos(x))
    return x


def pendulum(xp: Any, angle: Any, speed: Any) -> Any:
    """The angle of a damped pendulum after some steps of the classical Runge-Kutta method."""
    a, v, h = angle, speed, 0.05

    def slope(a: Any, v: Any) -> tuple[Any, Any]:
        return v, xp.sin(a) * -9.81 - v * 0.1

    for _ in range(STEPS):
        a1, v1 = slope(a, v)
        a2, v2 = slope(a + a1 * (h / 2), v + v1 * (h / 2))
        a3, v3 = slope(a + a2 * (h / 2), v + v2 * (h / 2))
        a4, v4 = slope(a + a3 * h, v + v3 * h)
        a = a + (a1 + a2 * 2.0 + a3 * 2.0 + a4) * (h / 6)
        v = v + (v1 + v2 * 2.0 + v3 * 2.0 + v4) * (h / 6)
    return a


def mean_price(xp: Any, s: Any, k: Any, t: Any) -> Any:
    """The mean of option prices."""
    return xp.mean(black_scholes(xp, s, k, t), axis=0)


FORMULAS: dict[str, tuple[Callable[..., Any], tuple[tuple[float, float], ...], tuple[str, ...]]] = {
    "a/kepler": (kepler, ((0, 3), (0, 0.6)), ("1k", "64k", "1M")),
    "a/pendulum": (pendulum, ((-2, 2), (-1, 1)), ("1k", "64k")),
    "b/mean_price": (mean_price, ((50, 150), (50, 150), (0.1, 3)), ("1k", "64k")),
}


def _case(what: str, dtype: str, size: str) -> Case:
    formula, ranges, _ = FORMULAS[what]
    n = SIZES[size]

    def make(rng: np.random.Generator) -> Arrays:
        return tuple(rng.uniform(a, b, n).astype(DTYPES[dtype]) for a, b in ranges)

    return Case(
        f"{what}/{dtype}/{size}", make, formula, (("n",),) * len(ranges), kept=n >= 1 << 20,
        threads=(1, 2) if n >= 1 << 20 else (1,), compilers=size == "64k",
        skip=TREES if what[0] == "a" else {},
        tolerance={"f32": 1e-4, "f64": 1e-11}[dtype],
    )


def cases() -> list[Case]:
    return [
        _case(what, dtype, size)
        for dtype in DTYPES for what, (_, _, sizes) in FORMULAS.items() for size in sizes
    ]
