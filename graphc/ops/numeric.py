"""What the NumPy references share: precision, and silence about NaN and overflow.

References of the mathematical functions on f32 compute in f64 and round once, so that they are an
oracle to within half an ulp; NumPy's own f32 functions change with the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.types import Array


def wide(fn: Callable[..., Array]) -> Callable[..., Array]:
    """fn computed in f64 and rounded once to the operands' dtype, without warnings."""

    def ref(*xs: Array, **attrs: Any) -> Array:
        with np.errstate(all="ignore"):
            out = fn(*(np.asarray(x, np.float64) for x in xs), **attrs)
            return np.asarray(out).astype(xs[0].dtype)

    return ref


def quiet(fn: Callable[..., Any]) -> Callable[..., Array]:
    """fn in the operands' own dtype, without warnings."""

    def ref(*xs: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(fn(*xs))

    return ref


def widened(x: Array) -> Array:
    """16-bit floats as f32, for what accumulates."""
    return x.astype(np.float32) if x.dtype.kind not in "biu" and x.dtype.itemsize == 2 else x
