"""fastmath counts subnormal numbers as zero, whichever thread works; nothing else does."""

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.fpmode import can_flush
from graphc.codegen.machine.target import host

TINY = np.float32(1e-40)


@pytest.mark.parametrize("n", [64, 1 << 20])
@pytest.mark.parametrize("fastmath", [False, True])
def test_subnormals(n, fastmath):
    if not can_flush(host()):
        pytest.skip("this machine has no such mode")
    x = gx.input("x", ("n",))
    f = gx.function([x], [x * 0.5, x * 1e30], fastmath=fastmath)
    half, large = f(np.full(n, TINY))
    assert half.shape == (n,)
    expected = (0.0, 0.0) if fastmath else (TINY * np.float32(0.5), TINY * np.float32(1e30))
    assert set(half.tolist()) == {float(expected[0])}
    assert set(large.tolist()) == {float(expected[1])}
    assert np.full(1, TINY) * np.float32(0.5) > 0.0, "the caller's mode is as it was"
