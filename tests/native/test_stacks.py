"""Stacks of what one kernel makes: it stores each part in its place (`passes/stacks`)."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc import prim
from tests.native.test_kernels import SIZES, agree, kernels

RNG = np.random.default_rng(0)


def smoothed(x, axis):
    """Exponential smoothing along an axis, and its last value; the parts of the stack."""
    at = [gx.take(x, k, axis=axis) for k in range(x.shape[axis])]
    parts = at[:1]
    for v in at[1:]:
        parts.append(gx.maximum(parts[-1] * 0.75, v) + v * 0.25)
    return parts


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [
    ((33, "n"), 0), (("n", 33), 1), (("n", 16), 1), (("n", 9, 5), 1), ((20, "n", 7), 0),
])
def test_steps_of_a_recurrence_are_stored_by_the_kernel_that_makes_them(shape, axis, dtype):
    x = gx.input("x", shape, dtype)
    parts = smoothed(x, axis)
    f = gx.function([x], [gx.stack(parts, axis=axis), parts[-1]])
    assert kernels(f) == 1
    for n in SIZES[:3]:
        agree(f, RNG.normal(size=[n if s == "n" else s for s in shape]).astype(dtype))


def test_a_stack_of_stacks_is_written_out_as_one():
    a = gx.input("a", ("n", 3, 3))
    m = [[a[:, i, j] for j in range(3)] for i in range(3)]
    minor = [[m[(i + 1) % 3][(j + 1) % 3] * m[(i + 2) % 3][(j + 2) % 3]
              - m[(i + 1) % 3][(j + 2) % 3] * m[(i + 2) % 3][(j + 1) % 3] for i in range(3)]
             for j in range(3)]
    det = sum(m[0][j] * minor[j][0] for j in range(3)) + 4.0
    rows = [gx.stack([v / det for v in row], axis=1) for row in minor]
    f = gx.function([a], [gx.stack(rows, axis=1), det])
    assert kernels(f) == 1
    for n in SIZES[:3]:
        agree(f, RNG.normal(size=(n, 3, 3)).astype(np.float32) / 4)


def test_parts_that_no_loop_makes_are_put_together():
    """Of a barrier, whose other result has an axis less."""
    x, i, z = gx.input("x", ("n", "m")), gx.input("i", ("n", 1), "int64"), gx.input("z", (1,))
    picked = gx.take_along_axis(x, i, axis=1)
    _, kept = prim.barrier(z, picked, id=0)
    f = gx.function([x, i, z], gx.concat([picked, kept], axis=1))
    for n, m in ((1, 1), (7, 20), (33, 4)):
        at = RNG.integers(-m, m, (n, 1))
        agree(f, RNG.normal(size=(n, m)).astype("float32"), at, np.zeros(1, "float32"))


def test_sums_of_a_row_are_stacked_by_its_kernel():
    x = gx.input("x", ("n", 50))
    mean = gx.mean(x, axis=1)
    centred = x - mean[:, None]
    features = [mean, gx.sum(centred ** 2, axis=1), gx.max(gx.abs(centred), axis=1), mean * 2]
    f = gx.function([x], gx.stack(features, axis=1))
    assert kernels(f) == 1
    for n in SIZES[:3]:
        agree(f, RNG.normal(size=(n, 50)).astype(np.float32))


def test_a_state_is_stacked_from_its_own_columns():
    start = RNG.normal(size=(40, 16)).astype(np.float32)
    s, u = gx.variable(start, "s"), gx.input("u", (40,))
    new = smoothed(s + u[:, None], 1)
    f = gx.function([u], new[-1], updates={s: gx.stack(new[::-1], axis=1)})
    by = np.linspace(-1, 1, 40, dtype=np.float32)
    last = f(by)
    at = start + by[:, None]
    rows = [at[:, 0]]
    for k in range(1, 16):
        rows.append(np.maximum(rows[-1] * 0.75, at[:, k]) + at[:, k] * 0.25)
    np.testing.assert_allclose(last, rows[-1], rtol=1e-5)
    np.testing.assert_allclose(s.value, np.stack(rows[::-1], axis=1), rtol=1e-5)


def test_operands_are_asked_for_once_beside_many_stores():
    """Each of 32 stores asked for 64 streams: LLVM took a minute."""
    x = gx.input("x", (32, "n"))
    text = gx.function([x], gx.stack(smoothed(x, 0))).llvm_ir()
    assert text.count("call void @llvm.prefetch") < 16 * 64
