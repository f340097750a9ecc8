"""Elements that lanes of a vector share: what a row has once, moved by a padding or a shift."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

SHIFTS = (0, 1, 3, -2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("columns", [3, 16, 40])
def test_a_row_and_its_own_number_are_shifted(columns: int, named: bool, dtype: str) -> None:
    """What a row has once is read by lanes within bounds, and by none where there are none."""
    x = gx.input("x", ("n", "m" if named else columns), dtype)
    once = gx.input("once", ("n", 1), dtype)
    both = gx.where(x, once, ~x) if dtype == "bool" else x + once
    shifted = [gx.roll(both, k, axis=1) for k in SHIFTS]
    edged = gx.pad(both, [(0, 0), (2, 1)])
    f = gx.function([x, once], [*shifted, edged], name="f")
    rng = np.random.default_rng(0)
    for n in (0, 1, 5, 64):
        a = rng.integers(0, 2 if dtype == "bool" else 50, (n, columns)).astype(dtype)
        b = rng.integers(0, 2 if dtype == "bool" else 50, (n, 1)).astype(dtype)
        sums = np.where(a, b, ~a) if dtype == "bool" else a + b
        *got, padded = f(a, b)
        for k, g in zip(SHIFTS, got, strict=True):
            np.testing.assert_array_equal(g, np.roll(sums, k, axis=1))
        np.testing.assert_array_equal(padded, np.pad(sums, [(0, 0), (2, 1)]))


def test_of_rows_that_are_not_there_nothing_is_read() -> None:
    """A long padding after the last row: lanes beyond it would read where nothing is."""
    x = gx.input("x", ("n",))
    rows = gx.broadcast_to(gx.reshape(x, ("n", 1)), ("n", 4))
    f = gx.function([x], gx.pad(rows * 2.0, [(3, 70), (1, 2)]), name="f")
    for n in (0, 1, 9):
        a = np.arange(1, n + 1, dtype="float32")
        want = np.pad(np.repeat(2 * a[:, None], 4, axis=1), [(3, 70), (1, 2)])
        np.testing.assert_array_equal(f(a), want)
