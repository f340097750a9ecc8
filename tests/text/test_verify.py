"""Every invariant has a graph that breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from sample_graphs import B, constant, every_op, given, one

from graphc import ir
from graphc.errors import VerifyError
from graphc.ir import Graph, Node, State
from graphc.ops import OPS
from graphc.ops.row import Kind, Op
from graphc.types import TensorType, f32
from graphc.verify import verify

X = given("x", f32, B, 2)
Y = one("exp", X)
Z = one("log", Y)
T = X.type


def node(op, *args, type=T, **attrs):
    return Node(op if isinstance(op, Op) else OPS[op], args, attrs, [type])


def nodes(*more, outputs=None, inputs=(X,), **rest):
    last = more[-1].outs[0] if more else Z
    return Graph("f", inputs, [Y.node, Z.node, *more], outputs or [last], **rest)


def kernel(axes=(B, 2), reduced=(), outputs=((0, 1),)):
    body = Graph("b", [X], [Y.node], [Y])
    return nodes(node("fused", X, body=body, axes=axes, reduced=reduced, outputs=outputs))


def call(g):
    return node("call", X, name="b", body=g)


STATE = State("w", TensorType(f32, (3,)), None)
OTHER = Op("exp", Kind.ELEMENTWISE, 1, type=lambda types, attrs: types[0])
stranger = one("exp", given("other", f32, B, 2))
BAD = [
    (Graph("f", [X], [Z.node, Y.node], [Z]), "log: operand 0 is used before it is defined"),
    (nodes(Y.node), "exp: the node stands twice"),
    (nodes(X.node), "input: stands among the nodes"),
    (nodes(inputs=(X, X)), "input %x stands twice"),
    (nodes(inputs=(Y,)), "an input is a result of exp"),
    (nodes(node("exp", X, type=TensorType(f32, (2, B)))), "result 0 has type f32[2,batch], the row "
     "gives f32[batch,2]"),
    (nodes(node("exp", X, extra=1)), "exp: has attributes ('extra',), takes ()"),
    (nodes(node("transpose", X, perm=[0, 1])), "attribute perm is a list"),
    (nodes(node("transpose", X, perm=(0, 0))), "transpose: "),
    (nodes(node("transpose", X, perm=None)), "transpose: the type rule fails: "),
    (nodes(node(OTHER, X)), "exp: is not in the op table"),
    (nodes(outputs=[stranger]), "output 0 (f32[batch,2]) is not defined"),
    (nodes(output_names=["a", "b"]), "has 1 outputs and 2 names"),
    (nodes(outputs=[Y, Z], output_names=["a", "a"]), "two outputs have one name"),
    (nodes(updates=[(STATE, Z)]), "@w has type f32[3], its new value f32[batch,2]"),
    (nodes(updates=[(State("w", T, None), stranger)]), "the new value of @w is not defined"),
    (Graph("f", [given("n", f32, B * 2)], [], []), "input %n: dimension batch stands alone in no"),
    (nodes(node("call", X, name="b", body=Graph("b", [X], [], [Z]))), "graph @b: output 0"),
    (nodes(call(Graph("b", [X], [Y.node, (v := one("variable", state=STATE)).node], [Y]))),
     "graph @b: variable: a body is closed"),
    (nodes(call(Graph("b", [X], [Y.node], [Y], [(STATE, Y)]))),
     "attribute body is a graph with updates"),
    (kernel(axes=(B, f32)), "fused: axes must be sizes"),
    (kernel(reduced=(2,)), "fused: reduced must be numbers of its 2 axes"),
    (kernel(outputs=((0,),)), "fused: outputs must name an axis for each dimension"),
    (kernel(outputs=((0, f32),)), "fused: result 0 is f32[batch,2], axis f32 is not 2"),
    (kernel(outputs=((0, 2),)), "fused: result 0 is f32[batch,2], axis 2 is not 2"),
    (kernel(axes=(B * 2, 2)), "fused: result 0 is f32[batch,2], axis 0 is not batch"),
]


@pytest.mark.parametrize(("graph", "message"), BAD, ids=[m[:40] for _, m in BAD])
def test_broken(graph, message):
    with pytest.raises(VerifyError) as info:
        verify(graph)
    assert message in str(info.value)


def test_good_graphs():
    verify(every_op())
    verify(Graph("f", [], [], []))
    verify(kernel())
    state = State("w", TensorType(f32, ()), None)
    two = [(state, constant(np.float32(1)))]
    verify(ir.collect("f", [], [], two))
    with pytest.raises(VerifyError, match="@w is updated twice"):
        verify(Graph("f", [], [two[0][1].node], [], two * 2))


def test_a_dimension_may_be_declared_by_a_dim_node():
    d = one("dim", size=B)
    filled = one("iota", dtype=f32, shape=(B, 2), axis=0)
    with pytest.raises(VerifyError, match="iota: dimension batch stands alone in no input"):
        verify(ir.collect("f", [], [filled]))
    verify(ir.collect("f", [], [filled, d]))


def test_message_shows_the_lines_around():
    with pytest.raises(VerifyError) as info:
        verify(Graph("f", [X], [Y.node, (bad := node("add", Y, stranger)), Z.node], [bad.outs[0]]))
    assert str(info.value) == """\
graph @f: add: operand 1 is used before it is defined
    %0: f32[batch,2] = exp %x
  > %1: f32[batch,2] = add %0, %?
    %2: f32[batch,2] = log %0"""
