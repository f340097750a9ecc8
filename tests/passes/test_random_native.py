"""Random graphs, compiled: native code agrees with the interpreter, and every op row occurs."""

from __future__ import annotations

from collections import Counter

import golden_files as gf
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_graphs import OWN, graphs, special_inputs

import graphc as gx
from graphc.errors import ExecutionError, ShapeError, UsageError
from graphc.ir import Graph
from graphc.tensor import Tensor

GRAPHS = 200
TOLERANCE = 1e-4


def test_native_equals_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    ops: Counter[str] = Counter()
    sizes: list[int] = []

    # The same graphs every time: where an ulp decides a floor or a comparison, results may differ.
    @settings(
        max_examples=GRAPHS, deadline=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), database=None,
    )  # fmt: skip
    @given(g=graphs(), seed=st.integers(0, 100))
    def check(g: Graph, seed: int) -> None:
        ops.update({n.op.name for n in g.nodes})
        sizes.append(len(g.nodes))
        try:
            f = gx.function(
                [Tensor(v) for v in g.inputs], [Tensor(v) for v in g.outputs], stabilise=False
            )
        except UsageError:
            return  # two variables of one name
        for n in (3, 1, 0):
            inputs = special_inputs(g, seed, n)
            try:
                wanted = gf.run(g, inputs)
            except (ExecutionError, ShapeError):
                continue
            for w, got in zip(wanted, f(*inputs), strict=True):
                if w.dtype.kind == "f":
                    np.testing.assert_allclose(got, w, rtol=TOLERANCE, atol=TOLERANCE)
                else:
                    np.testing.assert_array_equal(got, w)
        assert f.compilations == 1

    check()
    with capsys.disabled():
        print(f"\n{len(sizes)} random graphs, {np.mean(sizes):.0f} nodes each; graphs with:")
        print(", ".join(f"{name} {count}" for name, count in ops.most_common()))
    assert set(OWN) - set(ops) <= {"input", "fused"}
