"""Every batch rule against a Python loop, for every choice of batched operands."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from op_cases import FLAT, NO_OPERANDS, REGIONS, SMOOTH, evaluate, inputs

from graphc import prim
from graphc.ops import OPS

SIZE = 3


def entries(a: np.ndarray, k: int) -> np.ndarray:
    """SIZE variations of an operand, each as valid as the first."""
    if a.dtype.kind == "f":
        return np.stack([a * (1 + 0.07 * i) for i in range(SIZE)])
    if a.dtype.kind == "b":
        return np.stack([np.roll(a, i, -1) if a.ndim else a for i in range(SIZE)])
    return np.stack([np.roll(a, i, -1) if a.ndim else a for i in range(SIZE)])


def cases():
    for c in SMOOTH + FLAT:
        for batched in itertools.product((True, False), repeat=len(c.args)):
            if any(batched) and len(c.args) <= 3:
                yield pytest.param(c, batched, id=f"{c.id}-{''.join('bn'[not b] for b in batched)}")


@pytest.mark.parametrize(("case", "batched"), list(cases()))
def test_against_a_loop(case, batched):
    stacked = [
        entries(a, k) if b else a for k, (a, b) in enumerate(zip(case.args, batched, strict=True))
    ]
    xs = [inputs(a) for a in stacked]
    outs = OPS[case.op].batch(SIZE, batched, *xs, **case.attrs)
    got = evaluate(xs, stacked, outs if isinstance(outs, tuple) else (outs,))
    each = []
    for i in range(SIZE):
        rows = [a[i] if b else a for a, b in zip(stacked, batched, strict=True)]
        ys = [inputs(np.asarray(r)) for r in rows]
        each.append(evaluate(ys, rows, prim.many(case.op, *ys, **case.attrs)))
    for k, g in enumerate(got):
        want = np.stack([e[k] for e in each])
        assert g.dtype == want.dtype
        if g.dtype.kind == "f":
            np.testing.assert_allclose(g, want, rtol=1e-13, atol=1e-13)
        else:
            np.testing.assert_array_equal(g, want)


def test_every_row_has_a_rule_and_a_case():
    have = {c.op for c in SMOOTH + FLAT}
    for name, row in OPS.items():
        if name in NO_OPERANDS or name in REGIONS:
            assert row.batch is None
            continue
        assert row.batch is not None, name
        assert name in have, name


def test_every_row_has_a_reference():
    for name, row in OPS.items():
        assert (row.ref is None) == (name == "input" or name in REGIONS), name
