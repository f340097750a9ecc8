"""Printed graphs parse back to the same graph, and print the same bytes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from sample_graphs import CONSTANTS, B, constant, every_op, graphs, one
from sample_graphs import given as graph_input

from graphc import ir
from graphc.dims import dim
from graphc.errors import Loc
from graphc.interpret import evaluate
from graphc.ops import OPS
from graphc.origins import DeclaringAs
from graphc.text import parse, to_text
from graphc.types import TensorType, f32
from graphc.verify import verify


def same(a: ir.Graph, b: ir.Graph) -> None:
    """Assert that two graphs are equal but for identities; bodies in the same loop."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        assert x.name == y.name and x.output_names == y.output_names
        assert len(x.nodes) == len(y.nodes) and len(x.inputs) == len(y.inputs)
        match = {}
        for n, m in zip([v.node for v in x.inputs], [v.node for v in y.inputs], strict=True):
            match.update(zip(n.outs, m.outs, strict=True))
        for n, m in zip(x.nodes, y.nodes, strict=True):
            match.update(zip(n.outs, m.outs, strict=True))
            assert n.op is m.op and n.scope == m.scope
            assert [match[v] for v in n.args] == list(m.args)
            for key, attr in n.attrs.items():
                other = m.attrs[key]
                if isinstance(attr, ir.Graph):
                    stack.append((attr, other))
                elif isinstance(attr, ir.State):
                    assert attr.type is other.type
                elif isinstance(attr, ir.Literal) and attr.type.size > 16:
                    assert attr.type is other.type  # its values stand in the .npz
                else:
                    assert attr == other and type(attr) is type(other)
        assert [match[v] for v in x.outputs] == list(y.outputs)
        assert [match[v] for _, v in x.updates] == [v for _, v in y.updates]


def round_trip(g: ir.Graph) -> ir.Graph:
    text = to_text(g)
    parsed = parse(text)
    assert to_text(parsed) == text
    same(g, parsed)
    verify(parsed)
    return parsed


def test_every_op():
    g = every_op()
    verify(g)
    standing = {n.op.name for n in g.nodes}
    assert set(OPS) - standing == {"input"}, "sample_graphs.every_op lacks an op of the table"
    round_trip(g)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_random_graphs(g):
    verify(g)
    round_trip(g)


@pytest.mark.parametrize("array", CONSTANTS[:-1], ids=lambda a: f"{a.dtype}{a.shape}")
def test_small_constants_keep_every_bit(array):
    g = ir.collect("k", [], [constant(array)])
    (found,), _ = evaluate(round_trip(g), [])
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == np.asarray(array).tobytes()


def test_bfloat16_constant():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -0.0, np.nan], ml_dtypes.bfloat16)
    g = ir.collect("k", [], [constant(array)])
    assert "bf16[3] = constant [0x1.8p+0, -0x0p+0, nan]" in to_text(g)
    assert evaluate(round_trip(g), [])[0][0].tobytes() == array.tobytes()
    signalling = "graph @f() {\n  %0: bf16[] = constant nan(0x7f81)\n  return %0\n}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_text(parse(signalling)) == signalling


def test_the_form():
    x = graph_input("x", f32, B, 64)
    state = ir.State("w", TensorType(f32, (64, 10)), None)
    w = one("variable", state=state)
    with DeclaringAs(push="dense"):
        y = one("dot", x, w, contract=((1,), (0,)), batch=((), ()))
    half = one("mul", y, one("broadcast", constant(np.float32(0.5)), shape=(B, 10), axes=()))
    half.node.origin = half.node.origin._replace(name="half y")
    inner = graph_input("a", f32, B, 10)
    body = ir.collect("norm", [inner], [one("exp", inner), one("reduce_max", inner, axes=(1,))])
    outs = ir.apply("call", (half,), name="norm", body=body)
    g = ir.collect("step", [x], [outs[0], outs[1]], [(state, w)], ["y", "top"])
    assert to_text(g, locs=False) == """\
graph @step(%x: f32[batch,64]) {
  %w: f32[64,10] = variable @w
  %0: f32[batch,10] = dot %x, %w {contract=((1), (0)), batch=((), ())} scope("dense")
  %1: f32[] = constant 0x1p-1
  %2: f32[batch,10] = broadcast %1 {shape=(batch, 10), axes=()}
  %"half y": f32[batch,10] = mul %0, %2
  %3: f32[batch,10], %4: f32[batch] = call %"half y" {name="norm"} body=@norm(%a: f32[batch,10]) {
    %0: f32[batch,10] = exp %a
    %1: f32[batch] = reduce_max %a {axes=(1)}
    return %0, %1
  }
  return y=%3, top=%4
  update @w = %w
}
"""
    round_trip(g)


def test_variables_with_one_name_are_told_apart():
    a, b = (ir.State("w", TensorType(f32, (1,)), np.float32([k])) for k in (1, 2))
    va, vb = one("variable", state=a), one("variable", state=b)
    g = ir.collect("swap", [], [], [(a, vb), (b, va)])
    assert to_text(g, locs=False) == """\
graph @swap() {
  %w: f32[1] = variable @w
  %w.1: f32[1] = variable @w.1
  return
  update @w = %w.1
  update @w.1 = %w
}
"""
    round_trip(g)


def test_paths_are_relative_to_the_declaring_folder():
    def at(file, op, *args):
        with DeclaringAs(loc=Loc(file, 7)):
            return one(op, *args)

    with DeclaringAs(loc=Loc("/srv/project/job/main.py", 3)):
        x = graph_input("x", f32, B)
    y = at("/srv/project/job/main.py", "exp", x)
    y = at("/srv/project/job/lib/layers.py", "exp", y)
    y = at("/srv/project/shared.py", "exp", y)
    y = at("/opt/python/site/package.py", "exp", y)
    y = at("<stdin>", "exp", y)
    text = to_text(ir.collect("f", [x], [y]))
    found = [line.split(" loc(")[1] for line in text.splitlines() if "loc" in line]
    assert found == [
        '"main.py":7)', '"lib/layers.py":7)', '"../shared.py":7)', '"package.py":7)',
        '"<stdin>":7)',
    ]
    parsed = parse(text)
    assert to_text(parsed) == text
    assert parsed.nodes[1].loc == Loc("lib/layers.py", 7)


def test_dimension_names_that_are_words_of_the_text():
    sizes = [dim(n) for n in ("true", "inf", "f32", "size", "none", "nan")]
    x = graph_input("x", f32, *sizes)
    g = ir.collect("f", [x], [one("dim", size=s + 1) for s in sizes])
    assert "dim {size=size(f32+1)}" in to_text(g)
    round_trip(g)


def test_deep_and_nested_graphs_do_not_recurse():
    x = graph_input("x", f32, 2)
    v = x
    for _ in range(5000):
        v = one("exp", v)
    round_trip(ir.collect("deep", [x], [v]))
    g = ir.collect("inner", [x], [one("exp", x)])
    for _ in range(1500):
        x = graph_input("x", f32, 2)
        g = ir.collect("outer", [x], ir.apply("call", (x,), name="inner", body=g))
    text = to_text(g)
    parsed = parse(text)
    assert to_text(parsed) == text
    verify(parsed)
    (found,), _ = evaluate(parsed, [np.zeros(2, np.float32)])
    assert found.tolist() == [1, 1]


def test_comments_spaces_and_decimals_are_read():
    g = parse("""
    # a graph by hand
    graph @f ( %x : f32[ 2 ] )   # inputs
    { %1 : f32[2]=constant [ 0.1,2 ]
      %2: f32[2] = add %x,%1 return %2 }""")
    assert evaluate(g, [np.ones(2, np.float32)])[0][0].tolist() == [
        float(np.float32(1) + np.float32(0.1)), 3
    ]
