"""Attributes of every kind, on an op from outside, come back equal and of the same type."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_graphs import CONSTANTS, B, N
from sample_graphs import given as graph_input

from graphc import ir
from graphc.dims import dim, floordiv, maximum, minimum, mod
from graphc.ops import OPS
from graphc.ops.row import Kind, Op
from graphc.text import parse, to_text
from graphc.types import DTYPES, TensorType, f32
from graphc.verify import verify

ODD = Op(
    "outside.odd_op", Kind.ELEMENTWISE, 1, attrs=("first", "second"),
    type=lambda types, attrs: types[0],
)
DIMS = [
    B, N * 2 - 1, -B, B * N + 3, floordiv(B, 3), mod(N, B), maximum(B, N) * 2, minimum(B - 1, N),
    dim("nan") + 1, dim("literal"), dim("i8"), floordiv(dim("size"), dim("none")), dim("é"),
]
ATTRIBUTES = st.recursive(
    st.one_of(
        st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False), st.text(max_size=8),
        st.sampled_from(DIMS), st.sampled_from([d for d in DTYPES if d.name != "bf16"]),
        st.builds(TensorType, st.sampled_from([f32]), st.lists(st.sampled_from(DIMS[:6]))),
        st.sampled_from([ir.Literal(np.asarray(c)) for c in CONSTANTS[:-1]]),
    ),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)


@pytest.fixture(autouse=True, scope="module")
def the_op():
    OPS[ODD.name] = ODD
    yield
    del OPS[ODD.name]


def identical(a, b) -> bool:
    """Equality that tells 1 from True and 0.0 from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return a == b


@settings(max_examples=200, deadline=None)
@given(ATTRIBUTES, ATTRIBUTES)
def test_round_trip(first, second):
    known = [graph_input(n, f32, dim(n)) for n in ("batch", "n", "nan", "literal", "i8", "size",
                                                   "none", "é")]
    (y,) = ir.apply(ODD, (known[0],), first=first, second=second)
    g = ir.collect("f", known, [y])
    verify(g)
    text = to_text(g)
    parsed = parse(text)
    assert to_text(parsed) == text
    (node,) = parsed.nodes
    assert identical(tuple(node.attrs.values()), (first, second))


def test_states_and_large_constants_as_attributes():
    x = graph_input("x", f32, 2)
    state = ir.State("w", TensorType(f32, (2,)), np.ones(2, np.float32))
    large = ir.Literal(np.arange(20))
    (y,) = ir.apply(ODD, (x,), first=state, second=(large, large))
    text = to_text(ir.collect("f", [x], [y]), locs=False)
    assert ("outside.odd_op %x {first=@w: f32[2], second=(literal(i64[20], @c0), "
            "literal(i64[20], @c0))}") in text
    (node,) = parse(text, {"c0": np.arange(20), "@w": np.ones(2, np.float32)}).nodes
    assert node.attrs["second"] == (large, large)
    assert node.attrs["first"].array.tolist() == [1, 1]
    assert to_text(parse(text)) == text
