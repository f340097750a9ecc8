"""Random programs on arrays of moderate size: native code agrees with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from random_programs import Program

import graphc as gx
from graphc import interpret

PROGRAMS, EACH = 160, 20
MOST_LINES = 60_000  # of LLVM text: what takes seconds to compile is a mistake of ours


@pytest.mark.parametrize("first", range(0, PROGRAMS, EACH))
def test_native_equals_interpreter(first):
    for seed in range(first, first + EACH):
        p = Program(seed)
        f = gx.function(p.inputs, p.outputs(), name=f"program{seed}", threads=1 + seed % 2)
        arrays = p.arrays()
        assert f.llvm_ir().count("\n") < MOST_LINES, seed
        close = 1e-2 if p.dtype == "float32" else 1e-9
        for got, want in zip(f(*arrays), interpret.evaluate(f.graph, arrays)[0], strict=True):
            scale = np.max(np.abs(want), initial=1e-2)
            np.testing.assert_allclose(
                got, want, rtol=0, atol=close * scale, err_msg=f"program {seed}")
