"""Debug mode stops at the first NaN or infinity; watching records any value."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import ir
from graphc.dims import dim
from graphc.errors import NonFiniteError, UsageError
from graphc.interpret import evaluate
from graphc.types import TensorType, f16, f32, i32

B = dim("batch")


def one(op, *args, **attrs):
    return ir.apply(op, args, **attrs)[0]


def given(name, dtype, *shape):
    return one("input", name=name, type=TensorType(dtype, shape))


def debug(inputs, outputs, *arrays):
    return evaluate(ir.collect("f", inputs, outputs), arrays, debug=True)[0]


def test_the_first_nan_is_named():
    x = given("x", f32, B, 2)
    shifted = one("sub", x, one("broadcast", one("constant", value=ir.Literal(np.float32(1))),
                                shape=(B, 2), axes=()))
    shifted.node.origin = shifted.node.origin._replace(name="shifted")
    y = one("log", shifted)
    a = np.float32([[2, 3], [0.5, 1]])
    with pytest.raises(NonFiniteError) as info:
        debug([x], [one("exp", y)], a)
    assert info.value.message == (
        "log: made 1 NaN and 1 inf in f32[batch,2], first at [1,0] from finite operands "
        "%shifted: f32[batch,2] in [-0.5, 2.0]"
    )
    assert info.value.loc == y.node.loc and str(info.value).endswith(
        f"(test_debug_watch.py:{y.node.loc.line})"
    )
    assert debug([x], [one("exp", y)], a + 1)[0].shape == (2, 2)


def test_what_is_not_made_from_finite_operands_passes():
    x = given("x", f32, B)
    inf = np.float32([np.inf, np.nan])
    assert debug([x], [one("add", x, x)], inf)[0].shape == (2,)
    bits = given("bits", i32, B)
    assert np.isnan(debug([bits], [one("bitcast", bits, dtype=f32)], np.int32([-1])))
    limit = one("constant", value=ir.Literal(np.float32(-np.inf)))
    padded = one("pad", x, limit, low=(1,), high=(0,), interior=(0,))
    assert debug([x], [one("reduce_max", padded, axes=(0,))], np.float32([1]))[0] == 1


def test_divisions_scalars_casts_and_bodies():
    x = given("x", f32, B)
    with pytest.raises(NonFiniteError, match=r"div: made 1 inf in f32\[batch\], first at \[0\] "):
        debug([x], [one("div", x, one("sub", x, x))], np.float32([1]))
    with pytest.raises(NonFiniteError, match=r"cast: made 1 inf in f16\[batch\]"):
        debug([x], [one("cast", x, dtype=f16)], np.float32([1e6]))
    s = given("s", f32)
    with pytest.raises(NonFiniteError, match=r"exp: made 1 inf in f32\[\] from finite operands %s"):
        debug([s], [one("exp", s)], np.float32(1000))
    a = given("a", f32, B)
    body = ir.collect("inner", [a], [one("log", a)])
    (y,) = ir.apply("call", (x,), name="inner", body=body)
    with pytest.raises(NonFiniteError, match=r"log: made 1 NaN .* %a: f32\[batch\] in \[-1.0, 2.0"):
        debug([x], [y], np.float32([-1, 2]))
    i = given("i", i32, B)
    assert debug([i], [one("add", i, i)], np.int32([1]))[0].tolist() == [2]


def graph():
    x = given("x", f32, B)
    y = one("exp", x)
    y.node.origin = y.node.origin._replace(name="loss")
    a = given("a", f32, B)
    body = ir.collect("inner", [a], [one("neg", a)])
    (z,) = ir.apply("call", (y,), name="inner", body=body)
    w = one("add", z, z)
    return ir.collect("f", [x], [one("add", w, y)]), y, w, body


def test_watching_with_a_function():
    g, y, _, body = graph()
    seen = {}
    evaluate(g, [np.float32([0])], watch=lambda v, a: seen.update({v: a}))
    everything = {o for n in g.nodes for o in n.outs} | set(g.inputs)
    inside = {o for n in body.nodes for o in n.outs} | set(body.inputs)
    assert set(seen) == everything | inside
    assert seen[y].tolist() == [1] and seen[body.outputs[0]].tolist() == [-1]


def test_watching_names_and_values():
    g, _, w, _ = graph()
    watch = {"loss": None, "%1": None, w: None, "x": None, "%loss": None}
    evaluate(g, [np.float32([0])], watch=watch)
    assert watch["loss"].tolist() == watch["%loss"].tolist() == [1]
    assert watch["x"].tolist() == [0]
    assert watch[w].tolist() == [-2] and watch["%1"].tolist() == [-2]


def test_watching_what_is_not_there():
    g, *_ = graph()
    with pytest.raises(UsageError, match="watch: 'lose' is not in graph @f"):
        evaluate(g, [np.float32([0])], watch={"lose": None})
