"""(f) Graphs of 100, 1,000 and 10,000 nodes, forward and with gradient, and what memory is for.

These are built and called once in processes of their own (first.py), not timed over and over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..case import Arrays, Case
from . import elementwise, training

ROWS, WIDTH = 8, 16
SIZES = (100, 1_000, 10_000)


def alike(xp: Any, x: Any, w: Any, nodes: int) -> Any:
    """Layers of a product and a tanh."""
    for _ in range(nodes // 2):
        x = xp.tanh(x @ w)
    return xp.sum(x)


def mixed(xp: Any, x: Any, w: Any, nodes: int) -> Any:
    """Elementwise ops, row sums and maxima, products, in an order drawn by chance."""
    rng, h, made = np.random.default_rng(0), x, 0
    while made < nodes:
        kind = int(rng.integers(0, 7))
        if kind == 0:
            h, made = xp.tanh(h @ w), made + 2
        elif kind == 1:
            h, made = h - xp.mean(h, axis=1, keepdims=True), made + 3
        elif kind == 2:
            h, made = xp.where(h > 0.0, h, 0.1 * h), made + 3
        elif kind == 3:
            h, made = h - xp.max(h, axis=1, keepdims=True) * 0.1, made + 4
        elif kind == 4:
            h, made = xp.exp(-h * h) + x, made + 4
        else:
            h, made = (xp.sin(h), h * 0.9 + x)[kind - 5], made + 2
    return xp.sum(h)


def _arrays(rng: np.random.Generator) -> Arrays:
    return (
        rng.normal(size=(ROWS, WIDTH)).astype("float32"),
        (rng.normal(size=(WIDTH, WIDTH)) / 4).astype("float32"),
    )


def graphs() -> list[Case]:
    """With gradient, so that forward and backward together have about that many nodes."""
    made = []
    for formula in (alike, mixed):
        for nodes in SIZES:
            for gradient in (False, True):

                def run(
                    xp: Any, x: Any, w: Any, formula: Any = formula,
                    nodes: int = nodes // 3 if gradient else nodes,
                ) -> Any:
                    return formula(xp, x, w, nodes)

                what = formula.__name__ + ("_grad" if gradient else "")
                made.append(Case(
                    f"f/{what}/f32/{nodes}", _arrays, run, (("n", WIDTH), (WIDTH, WIDTH)),
                    wrt=(0,) if gradient else (), quick=nodes == 100 and formula is mixed,
                ))
    return made


def steps() -> list[Case]:
    """A training step and a fused chain: time to the first result, and memory."""
    step = training.case("784-512-256-10", "adam", 32)
    chain = next(
        c for c in elementwise.cases() if c.name == "a/black_scholes/f32/16M"
    )
    return [replace(c, name="f" + c.name[1:], quick=False) for c in (step, chain)]
