"""What is broadcast, repeated and transposed, and then reduced over any axes, as NumPy has it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gx

BESIDE = np.zeros(5000, "float32")  # with so much in memory a graph is loops (`straight`)
SIZES = (1, 2, 3, 5, 8, 12, 16, 33, 64, 100, 256, 520)


def reduced(make, arrays):
    """What a program gives of these arrays, as loops."""
    inputs = [gx.input(f"x{k}", a.shape, str(a.dtype)) for k, a in enumerate(arrays)]
    beside = gx.input("beside", BESIDE.shape)
    return gx.function([*inputs, beside], [make(gx, *inputs), beside + 1.0])(*arrays, BESIDE)[0]


@st.composite
def layouts(draw):
    """(dtype, shapes of operands, repetitions and their axis, order of axes, reduced ones, name)"""
    ndim = draw(st.integers(1, 3))
    shape = [draw(st.sampled_from(SIZES)) for _ in range(ndim)]
    while np.prod(shape) > 100_000:
        shape[int(np.argmax(shape))] = 3
    operands = draw(st.lists(
        st.tuples(*[st.sampled_from([s, s, 1]) for s in shape]), min_size=1, max_size=2))
    return (
        draw(st.sampled_from(["float32", "float64", "int32", "int8"])), shape, operands,
        draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(0, ndim - 1)),
        draw(st.permutations(range(ndim))),
        draw(st.lists(st.integers(0, ndim - 1), min_size=1, unique=True)),
        draw(st.sampled_from(["sum", "sum", "mean", "max"])),
    )


@settings(deadline=None, max_examples=120)
@given(layouts())
def test_any_layout(case):
    dtype, shape, operands, times, axis, order, over, name = case
    rng = np.random.default_rng(len(operands) + times)
    arrays = [rng.integers(-3, 4, s).astype(dtype) for s in operands]

    def make(xp, *xs):
        x = xs[0] if len(xs) == 1 else xs[0] * xs[1]
        x = xp.repeat(xp.broadcast_to(x, tuple(shape)), times, axis=axis)
        x = gx.permute_dims(x, order) if xp is gx else x.transpose(order)
        name_ = "sum" if dtype.startswith("int") and name == "mean" else name
        return getattr(xp, name_)(x, axis=tuple(over))

    got = reduced(make, arrays)
    want = make(np, *(a.astype("f8") for a in arrays))
    if dtype == "int8" and name != "max":
        want = want.astype("i8").astype(got.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape, over, times", [
    ((256,), 0, 3), ((16, 16), 1, 2), ((64, 64), 0, 5), ((4096,), 0, 2), ((12,), 0, 2),
])
def test_all_of_what_is_repeated(shape, over, times):
    """Was added up as often as there are elements: its axis was taken for one of rows."""
    a = np.arange(np.prod(shape)).reshape(shape) % 7
    x = a.astype("float32")
    assert reduced(lambda xp, v: xp.sum(xp.repeat(v, times, axis=over)), [x]) == times * a.sum()
    scaled = reduced(lambda xp, v: xp.mean(xp.repeat(v * 2.0 + 1.0, times, axis=over)), [x])
    np.testing.assert_allclose(scaled, np.mean(2.0 * a + 1.0), rtol=1e-6)
