"""Running sums along each axis: rows side by side, of sizes around the number taken together."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(13)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 100), (5, 64), (17, 33), (2, 3, 50)])
def test_running_sums_add_in_order(dtype, shape):
    a = (9 * RNG.normal(size=shape)).astype(dtype)
    for declared in (shape, tuple("abc"[: len(shape)])):
        x = gx.input("x", declared, dtype)
        for axis in range(len(shape)):
            f = gx.function([x], gx.cumulative_sum(x, axis=axis, dtype=dtype))
            np.testing.assert_array_equal(f(a), np.cumsum(a, axis=axis, dtype=dtype))
