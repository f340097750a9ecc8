"""Products on the thread pool: the bits and the epilogue do not depend on the threads."""

from __future__ import annotations

import numpy as np
import pytest
from native import call, compiled, pool
from scalar_harness import levels


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("shape", [
    (1, 300, 300, 300), (1, 20, 2000, 400), (1, 1500, 1, 6000), (20, 100, 90, 100),
    (1, 32, 512, 127), (1, 32, 512, 128), (1, 33, 521, 131), (1, 250, 65, 130),  # about the least
    (1, 47, 49, 1000), (3, 19, 130, 259),  # by rows, not of equal number
])
def test_bits_for_any_number_of_threads(dtype, shape):
    batch, m, n, k = shape
    rng = np.random.default_rng(1)
    a, b = (10 * rng.normal(size=(batch, *s)) for s in ((m, k), (k, n)))
    a, b = a.astype(dtype), b.astype(dtype)
    results = []
    for threads in (1, 2, 4):
        f = compiled(dtype, levels()[-1], pool(threads))
        for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            c = np.empty((batch, m, n), dtype)
            call(f, x, y, c)
            results.append(c.tobytes())
    assert len(set(results)) == 1
