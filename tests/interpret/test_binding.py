"""Dimension names bound from shapes, and the messages where shapes do not fit."""

from __future__ import annotations

import pytest

from graphc.binding import bind_dims, lone_name, size_value
from graphc.dims import dim, floordiv
from graphc.errors import ShapeError
from graphc.types import TensorType, f32

B, N = dim("batch"), dim("n")
X, Y = ("x", TensorType(f32, (B, 64))), ("y", TensorType(f32, (B,)))


def test_names_bind_where_they_stand_alone():
    assert bind_dims([X, Y], [(3, 64), (3,)]) == {"batch": 3}
    assert bind_dims([X], [(0, 64)]) == {"batch": 0}
    assert bind_dims([], []) == {}
    later = [("a", TensorType(f32, (B * N + 1,))), ("b", TensorType(f32, (N, B)))]
    assert bind_dims(later, [(7,), (2, 3)]) == {"n": 2, "batch": 3}
    assert bind_dims([("a", TensorType(f32, (N * 2,)))], [(6,)], {"n": 3}) == {"n": 3}


@pytest.mark.parametrize(("params", "shapes", "message"), [
    ([X], [(3, 65)], "input 'x': expected f32[batch,64], got shape [3,65]: axis 1 must be 64"),
    ([X], [(3,)], "input 'x': expected f32[batch,64], which has 2 axes, got shape [3] with 1"),
    ([X, Y], [(3, 64), (4,)], "input 'y': expected f32[batch], got shape [4]: axis 0 is 4, but "
     "batch is 3 in input 'x'"),
    ([X, ("z", TensorType(f32, (B * 2,)))], [(3, 64), (5,)], "input 'z': expected f32[2*batch], "
     "got shape [5]: axis 0 must be 2*batch = 6 with batch=3"),
    ([("z", TensorType(f32, (B * 2,)))], [(6,)], "dimension 'batch' has no value: it stands alone "
     "in no input"),
    ([X, ("z", TensorType(f32, (floordiv(64, B),)))], [(0, 64), (5,)],
     "dimension floordiv(64, batch) divides by zero with batch=0"),
])
def test_messages(params, shapes, message):
    with pytest.raises(ShapeError) as info:
        bind_dims(params, shapes)
    assert message in str(info.value)


def test_a_given_name_is_checked():
    with pytest.raises(ShapeError, match=r"axis 0 is 4, but batch is 5$"):
        bind_dims([Y], [(4,)], {"batch": 5})


def test_lone_names_and_values():
    assert lone_name(B) == "batch"
    assert [lone_name(s) for s in (B + 1, B * 2, B * B, 3, floordiv(B, 2))] == [None] * 5
    assert size_value(B * 2 + N, {"batch": 3, "n": 1}) == 7
