"""Conditions on sizes, gathered from whole graphs."""

from __future__ import annotations

import pytest
from op_cases import T

from graphc import dims, ir, prim
from graphc.conditions import check, requirements
from graphc.errors import ShapeError

n = dims.dim("n")


def graph():
    """A slice, the same slice again inside a call, and a checked reshape."""
    x = prim.input("x", T("f32[n]"))
    inner = prim.input("a", T("f32[n]"))
    body = ir.collect("tail", [inner._value], [prim.slice(inner, (1,), (n,), (1,))._value])
    (y,) = prim.call(x, name="tail", body=body)
    z = prim.slice(x, (1,), (n,), (1,))
    halves = prim.reshape(prim.add(y, z), (2, dims.floordiv(n, 2)), checked=True)
    return ir.collect("f", [x._value], [halves._value])


def test_each_condition_once_in_node_order():
    found = requirements(graph())
    assert [(r.node.op.name, str(r.condition.size), r.condition.zero) for r in found] == [
        ("slice", "n-1", False),
        ("reshape", str(n - 1 - 2 * dims.floordiv(n, 2)), True),
    ]
    assert found[0].message == "slice: needs 0 <= start <= stop <= size, got f32[n]"


def test_check_names_the_line_and_the_sizes():
    g = graph()
    check(g, {"n": 5})
    with pytest.raises(ShapeError) as caught:
        check(g, {"n": 0})
    assert "slice: needs 0 <= start <= stop <= size, got f32[n] where n = 0" in str(caught.value)
    assert caught.value.loc.file == __file__
    with pytest.raises(ShapeError, match=r"^reshape: element counts must be equal, got f32\[n-1\] "
                                         r"to \(2,floordiv\(n, 2\)\) where n = 4 "
                                         r"\(test_conditions\.py:\d+\)$"):
        check(g, {"n": 4})


def test_static_graphs_have_none():
    x = prim.input("x", T("f32[5]"))
    y = prim.reduce_max(prim.slice(x, (1,), (4,), (2,)), (0,))
    assert requirements(ir.collect("f", [x._value], [y._value])) == []
