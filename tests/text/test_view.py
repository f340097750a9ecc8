"""Graphs as networkx, DOT, SVG, counts and formulas."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from sample_graphs import B, constant, every_op, given, one

from graphc import ir
from graphc.dims import dim, evaluate
from graphc.errors import UsageError
from graphc.origins import DeclaringAs
from graphc.types import TensorType, f32, i64
from graphc.view import bytes_moved, flops, op_counts, to_dot, to_networkx, to_svg


def small() -> ir.Graph:
    """A scope with a kernel inside, two results, an update."""
    x = given("x", f32, B, 4)
    a = given("a", f32, B, 4)
    body = ir.collect("double", [a], [one("add", a, a)])
    state = ir.State("w", TensorType(f32, (4, 3)), np.ones((4, 3), np.float32))
    w = one("variable", state=state)
    with DeclaringAs(push="net"):
        (h,) = ir.apply("call", (x,), name="double", body=body)
        with DeclaringAs(push="dense"):
            y = one("dot", h, w, contract=((1,), (0,)), batch=((), ()))
    half = one("broadcast", constant(np.float32(0.5)), shape=(4, 3), axes=())
    return ir.collect("f", [x], [y, x], [(state, one("mul", w, half))], ["y", "x"])


def test_networkx():
    g = small()
    view = to_networkx(g)
    assert len(view) == len(g.nodes) + len(g.inputs)
    assert type(view).__name__ == "MultiDiGraph" and view.graph["name"] == "f"
    dot = next(n for n in g.nodes if n.op.name == "dot")
    sources = sorted(view.in_edges(dot, data="position"), key=lambda e: e[2])
    assert [u for u, _, _ in sources] == [a.node for a in dot.args]
    assert view.nodes[dot]["op"] == "dot" and view.nodes[dot]["outputs"] == (0,)
    assert view.nodes[dot]["scope"] == "net/dense"
    x = given("x", f32, 2)
    twice = to_networkx(ir.collect("f", [x], [one("mul", x, x)]))
    assert [p for _, _, p in twice.edges(data="position")] == [0, 1]


def test_dot():
    text = to_dot(small())
    assert text == to_dot(small())
    lines = [line.split(" [")[0] for line in text.splitlines()]
    labels = {line.split('label="')[1].split('"')[0]: line for line in text.splitlines()
              if "label=" in line and "->" not in line and "headlabel" not in line}
    assert "x\\nf32[batch,4]" in labels and "dot\\nf32[batch,3]" in labels
    assert "return y\\nf32[batch,3]" in labels and "update @w\\nf32[4,3]" in labels
    order = list(labels)
    assert order.index("net") < order.index("double") < order.index("add\\nf32[batch,4]")
    assert order.index("dense") < order.index("dot\\nf32[batch,3]")
    assert text.count("subgraph") == 3 and text.count("{") == text.count("}")
    assert len([line for line in lines if "->" in line]) == 10


def test_dot_of_every_op_and_of_odd_names():
    assert to_dot(every_op()).count("{") > 10
    x = given('a "quoted"\n\\name', f32, B)
    text = to_dot(ir.collect('f"', [x], [one("exp", x)]))
    assert text.startswith('digraph "f\\"" {')


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_svg():
    assert "<svg" in to_svg(every_op())


def test_svg_without_graphviz(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="to_svg: needs Graphviz"):
        to_svg(small())


def test_counts_and_formulas():
    g = small()
    assert op_counts(g) == {
        "add": 1, "broadcast": 1, "call": 1, "constant": 1, "dot": 1, "mul": 1, "variable": 1
    }
    assert next(iter(op_counts(every_op()).items())) == ("add", 3)
    assert str(flops(g)) == "28*batch+12"  # 24 for the product, 4 for the sum; 12 for the update
    moved = 2 * 4 * B + (4 + 3) * B + 12 + 13 + 36  # call; dot; broadcast; mul
    assert bytes_moved(g) == moved * 4
    n = dim("n")
    x, i, u = given("x", f32, B, 4), given("i", i64, n), given("u", f32, n, 4)
    s = one("scatter_add", x, i, u, axis=0, batch=0, negative=False)
    assert flops(ir.collect("f", [x, i, u], [one("reduce_sum", s, axes=(0,))])) == n * 4 + B * 4
    y = one("linear_recurrence", x, x, axis=0, reverse=False)
    assert flops(ir.collect("f", [x], [one("cumsum", y, axis=0, reverse=True)])) == 3 * B * 4
    assert evaluate(flops(g), {"batch": 10}) == 292
