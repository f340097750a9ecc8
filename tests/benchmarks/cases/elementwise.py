"""(a) Elementwise formulas: option prices, sea water, polynomials, broadcasts, masks, distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import DTYPES, Arrays, Case

SIZES = {"1k": 1 << 10, "64k": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}


def black_scholes(xp: Any, s: Any, k: Any, t: Any) -> Any:
    """Price of a European call: spot s, strike k, years t; rate 2%, volatility 30%."""
    spread = 0.3 * xp.sqrt(t)
    d1 = (xp.log(s / k) + 0.065 * t) / spread
    d2 = d1 - spread

    def cdf(x: Any) -> Any:
        return 0.5 + 0.5 * xp.erf(x * 0.7071067811865476)

    return s * cdf(d1) - k * xp.exp(-0.02 * t) * cdf(d2)


def sea_water(xp: Any, sa: Any, ct: Any, p: Any) -> Any:
    """Density of sea water by the 48 terms of McDougall et al. (TEOS-10, 2011): absolute salinity
    in g/kg, conservative temperature in degrees C, pressure in dbar."""
    root = xp.sqrt(sa)
    over = (
        9.998420897506056e2 + ct * (2.839940833161907 + ct * (-3.147759265588511e-2
        + 1.181805545074306e-3 * ct)) + sa * (-6.698001071123802 + ct * (-2.986498947203215e-2
        + 2.327859407479162e-4 * ct) + root * (-3.988822378968490e-2 + ct * (5.095422573880500e-4
        + ct * (-1.426984671633621e-5 + 1.645039373682922e-7 * ct))))
        + p * (-2.233269627352527e-2 + ct * (-3.436090079851880e-4 + 3.726050720345733e-6 * ct)
        + sa * (-1.806789763745328e-4 + 6.876837219536232e-7 * ct)
        + p * (-3.087032500374211e-7 + ct * (-1.988366587925593e-8
        + -1.061519070296458e-11 * ct) + 1.550932729220080e-10 * sa))
    )
    under = (
        1.0 + ct * (2.775927747785646e-3 + ct * (-2.349607444135925e-5
        + ct * (1.119513357486743e-6 + 6.743689325042773e-10 * ct)))
        + sa * (-7.521448093615448e-3 + ct * (-2.764306979894411e-5 + ct * (1.262937315098546e-7
        + ct * (9.527875081696435e-10 + -1.811147201949891e-11 * ct)))
        + 5.419326551148740e-6 * sa + root * (-3.303308871386421e-5 + ct * (3.801564588876298e-7
        + ct * (-7.672876869259043e-9 + ct * (-4.634182341116144e-11
        + 2.681097235569143e-12 * ct)))))
        + p * (-2.742185394906099e-5 + ct * (-3.212746477974189e-7 + ct * (3.191413910561627e-9
        + -1.931012931541776e-12 * ct)) + sa * (-1.105097577149576e-7
        + 6.211426728363857e-10 * ct) + p * (-1.119011592875110e-10
        + ct * (-1.941660213148725e-11 + -1.864826425365600e-14 * ct + 1.119522344879478e-14 * sa)
        + p * (-1.200507748551599e-15 + 6.057902487546866e-17 * ct)))
    )
    return over / under


def polynomial(xp: Any, x: Any, y: Any) -> Any:
    """A Horner chain of degree 12 in x, then of degree 3 in y."""
    v = x * 0.0125 + 0.5
    for k in range(11):
        v = v * x + (0.3 - 0.05 * k)
    return ((v * y + 0.25) * y - 0.75) * y + 1.5


def broadcasts(xp: Any, x: Any, row: Any, scale: Any, shift: Any) -> Any:
    """A matrix with a column and two rows."""
    return xp.tanh((x - row) * scale + shift) * row


def masks(xp: Any, x: Any, y: Any) -> Any:
    """Piecewise: a clipped ramp, a parabola, or a root."""
    inside = (x > -1.0) & (x < 1.0)
    return xp.where(inside, x * x * y, xp.where(x > 0.0, xp.sqrt(xp.abs(x)) + y, x * 0.01 - y))


def haversine(xp: Any, lat1: Any, lon1: Any, lat2: Any, lon2: Any) -> Any:
    """Distance in km of points on a sphere, angles in radians."""
    a = xp.sin((lat2 - lat1) * 0.5)
    b = xp.sin((lon2 - lon1) * 0.5)
    h = a * a + xp.cos(lat1) * xp.cos(lat2) * b * b
    return 12742.0 * xp.arctan2(xp.sqrt(h), xp.sqrt(1.0 - h))


def exp_log(xp: Any, x: Any, y: Any) -> Any:
    """A chain of exp and log: a smooth maximum, and an entropy."""
    return xp.log(xp.exp(x) + xp.exp(y)) * xp.exp(-x * x) + y * xp.log(y)


def _uniform(*ranges: tuple[float, float]) -> Callable[..., Arrays]:
    def make(rng: np.random.Generator, n: int, dtype: str) -> Arrays:
        return tuple(rng.uniform(a, b, n).astype(dtype) for a, b in ranges)

    return make


FORMULAS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "black_scholes": (
        black_scholes, _uniform((50, 150), (50, 150), (0.1, 3)), ("1k", "64k", "1M", "16M")),
    "sea_water": (sea_water, _uniform((1, 40), (-1, 30), (0, 4000)), ("1k", "64k", "1M")),
    "polynomial": (polynomial, _uniform((-1, 1), (-1, 1)), ("1k", "64k", "1M", "16M")),
    "masks": (masks, _uniform((-3, 3), (-1, 1)), ("1k", "64k", "1M", "16M")),
    "haversine": (
        haversine, _uniform((-1.5, 1.5), (-3, 3), (-1.5, 1.5), (-3, 3)), ("1k", "64k", "1M")),
    "exp_log": (exp_log, _uniform((-3, 3), (0.1, 4)), ("1k", "64k", "1M")),
}
SHAPES = {"32x32": (32, 32), "256x256": (256, 256), "1024x1024": (1024, 1024)}


def _flat_case(what: str, dtype: str, size: str) -> Case:
    formula, make, _ = FORMULAS[what]
    count = len(make(np.random.default_rng(0), 1, "float32"))
    n = SIZES[size]
    return Case(
        f"a/{what}/{dtype}/{size}", lambda rng: make(rng, n, DTYPES[dtype]), formula,
        (("n",),) * count, kept=n >= 1 << 20, quick=(what, size) == ("polynomial", "64k"),
        threads=(1, 2) if n >= 1 << 20 else (1,),
        compilers=size == "64k" or (size, dtype) == ("1M", "f32"),
        tolerance={"f32": 1e-4, "f64": 1e-11}[dtype],
    )


def _broadcast_case(dtype: str, size: str) -> Case:
    r, c = SHAPES[size]

    def make(rng: np.random.Generator) -> Arrays:
        shapes = ((r, c), (r, 1), (c,), (c,))
        return tuple(rng.normal(size=s).astype(DTYPES[dtype]) for s in shapes)

    return Case(
        f"a/broadcasts/{dtype}/{size}", make, broadcasts, (("r", c), ("r", 1), (c,), (c,)),
        kept=r * c >= 1 << 20, quick=size == "256x256", threads=(1, 2) if r * c > 1 << 19 else (1,),
        compilers=size == "256x256",
    )


def cases() -> list[Case]:
    made = []
    for dtype in DTYPES:
        for what, (_, _, sizes) in FORMULAS.items():
            for size in sizes:
                if size != "16M" or dtype == "f32":
                    made.append(_flat_case(what, dtype, size))
        made += [_broadcast_case(dtype, size) for size in SHAPES]
    return made
