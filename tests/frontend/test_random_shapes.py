"""Broadcasting, indexing and reshaping on random shapes, against NumPy (hypothesis)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphc as gx
from graphc import ir
from graphc.interpret import evaluate

FEW = settings(max_examples=150, deadline=None)
SIZES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def value(t, inputs, arrays):
    g = ir.collect("test", [x._value for x in inputs], [t._value])
    return evaluate(g, arrays)[0][0]


def array(shape, dtype="f4"):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@FEW
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=3))
def test_broadcasting(shapes):
    arrays = [array(s) for s in shapes.input_shapes]
    xs = [gx.input(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    got = value(xs[0] * xs[1] + xs[2], xs, arrays)
    want = arrays[0] * arrays[1] + arrays[2]
    assert got.shape == want.shape == (xs[0] * xs[1] + xs[2]).shape
    np.testing.assert_array_equal(got, want)


@FEW
@given(st.data())
def test_basic_indices(data):
    shape = data.draw(SIZES)
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    a = array(shape)
    want = a[key]
    for sizes in (shape, tuple(f"n{i}" for i in range(len(shape)))):
        x = gx.input("x", sizes)
        got = value(x[key], [x], [a])
        np.testing.assert_array_equal(got, want)
        changed = value(x.at[key].add(1), [x], [a])
        expected = a.copy()
        expected[key] += 1
        np.testing.assert_array_equal(changed, expected)


@FEW
@given(st.data())
def test_reductions(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
    axis = data.draw(st.one_of(st.none(), hnp.valid_tuple_axes(len(shape))))
    keepdims = data.draw(st.booleans())
    a = array(shape, "i8")
    for sizes in (shape, tuple(f"n{i}" for i in range(len(shape)))):
        x = gx.input("x", sizes, "int64")
        for name in ("sum", "prod", "any", "all", "count_nonzero"):
            got = value(getattr(gx, name)(x, axis=axis, keepdims=keepdims), [x], [a])
            want = getattr(np, name)(a, axis=axis, keepdims=keepdims)
            np.testing.assert_array_equal(got, want)
            assert got.dtype == np.asarray(want).dtype


@FEW
@given(st.data())
def test_matmul(data):
    shapes = data.draw(hnp.mutually_broadcastable_shapes(
        signature=np.matmul.signature, max_dims=3, min_side=0, max_side=3))
    arrays = [array(s) for s in shapes.input_shapes]
    xs = [gx.input(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    np.testing.assert_array_equal(value(xs[0] @ xs[1], xs, arrays), arrays[0] @ arrays[1])
