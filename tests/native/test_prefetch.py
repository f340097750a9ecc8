"""Software prefetch of rows."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx


@pytest.mark.parametrize(("m", "ahead"), [(16, False), (1000, True), ("m", True), (1 << 17, False)])
def test_sweeps_ask_for_the_next_row_where_one_fits_into_cache(m, ahead):
    x = gx.input("x", ("n", m))
    f = gx.function([x], gx.nn.softmax(x, axis=1))
    assert ("@llvm.prefetch" in f.llvm_ir()) == ahead
    a = np.arange(3 * 1000, dtype="float32").reshape(3, 1000) % 7
    if m in (1000, "m"):
        e = np.exp(a.astype(float))
        np.testing.assert_allclose(f(a), e / e.sum(1, keepdims=True), rtol=1e-6)
