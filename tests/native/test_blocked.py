"""Sums of floats over long rows: by blocks, in the order that `codegen.blocked` says."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.schedule import BLOCK
from graphc.codegen.target import VIRTUAL_BITS

RNG = np.random.default_rng(11)


def by_blocks(rows):
    """The sums of rows in that order, with NumPy."""
    lanes = VIRTUAL_BITS // (8 * rows.itemsize)
    total = None
    for begin in range(0, rows.shape[1], BLOCK):
        block = rows[:, begin : begin + BLOCK]
        sums = np.zeros((len(rows), lanes), rows.dtype)
        for at in range(0, block.shape[1], lanes):
            part = block[:, at : at + lanes]
            sums[:, : part.shape[1]] += part
        total = sums if total is None else total + sums
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    return total[:, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("declared", [False, True])
def test_order_of_a_long_rows_sum(dtype, declared):
    """Beside a maximum in the same sweep, and before a sweep that stores the row."""
    for length in (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 77):
        x = gx.input("x", (2, length) if declared else ("n", "m"), dtype)
        total = gx.sum(x, axis=1)
        f = gx.function([x], [total, gx.max(x, axis=1), x / total[:, None]])
        a = RNG.random((2, length)).astype(dtype)
        want = by_blocks(a)
        for g, w in zip(f(a), (want, a.max(1), a / want[:, None]), strict=True):
            np.testing.assert_array_equal(g, w)


def test_errors_do_not_grow_with_the_row():
    x = gx.input("x", ("n", "m"))
    f = gx.function([x], [gx.mean(x, axis=1), gx.var(x, axis=1)])
    a = np.full((2, 1_000_000), 0.1, np.float32)
    np.testing.assert_allclose(f(a)[0], a[:, 0], rtol=40 * 2**-24)  # 2,000 without blocks
    a = RNG.random((2, 1_000_000), dtype=np.float32)
    for got, want in zip(f(a), (a.mean(1, dtype="f8"), a.var(1, dtype="f8")), strict=True):
        np.testing.assert_allclose(got, want, rtol=4 * 2**-24)
