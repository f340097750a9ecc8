"""Operands of products, and what their results must be."""

from __future__ import annotations

import numpy as np
from scalar_harness import levels

FLOATS = ["float32", "float64"]
FUSED = [level for level in levels() if level != "v2"]  # which give the same bits


def numbers(rng, shape, dtype):
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.normal(size=shape).astype(dtype)


def operand(rng, shape, dtype, transposed):
    """A (batch, rows, columns) array whose columns or rows are contiguous."""
    if transposed:
        return numbers(rng, (shape[0], shape[2], shape[1]), dtype).transpose(0, 2, 1)
    return numbers(rng, shape, dtype)


def check(c, a, b):
    """C is A @ B: exactly for integers, within the bound of a sum in any order for floats."""
    if c.dtype.kind in "iu":
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(c, np.matmul(a, b))
        return
    wide = np.longdouble if c.dtype == np.float64 else np.float64
    exact = np.matmul(a.astype(wide), b.astype(wide))
    size = np.matmul(np.abs(a.astype(wide)), np.abs(b.astype(wide)))
    narrow = c.dtype.itemsize == 2
    eps = np.finfo(np.float32 if narrow else c.dtype).eps
    bound = (2 + min(a.shape[-1], 256) / 2) * eps * size
    if narrow:
        bound = bound + np.abs(exact) * 2.0 ** (-11 if c.dtype == np.float16 else -8) + 2.0**-25
    assert (np.abs(c.astype(wide) - exact) <= bound).all()
