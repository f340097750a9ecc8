"""The cases, by letter; every family of cases is one file with a function `cases()`."""

from __future__ import annotations

from ..case import Case
from . import (
    elementwise,
    gradients,
    long,
    lstm,
    products,
    reductions,
    small,
    training,
    transformer,
    weights,
)

FAMILIES = (
    elementwise, long, reductions, products, weights, gradients, training, transformer, lstm, small,
)

LETTERS = {
    "a": "elementwise", "b": "reductions", "c": "matrix products", "d": "gradients and training",
    "e": "small calls", "f": "compile time and memory", "g": "a new size",
}


def all_cases() -> dict[str, Case]:
    """Every case that workers time, by name, in order."""
    return {c.name: c for family in FAMILIES for c in family.cases()}
