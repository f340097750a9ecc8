"""Functions of graphs that were read or made by passes."""

import numpy as np
import pytest

import graphc as gx
from graphc.errors import ArgumentError, CompileError, UsageError
from graphc.passes.stages import flatten, has_kernels, is_lowered, lower
from graphc.text import parse, to_text

TWO = """\
graph @two(%x: f32[n], %y: f32[n]) {{
  %0: f32[n] = add %x, %y
  %1: f32[n] = sub %x, %y
  return {}
}}
"""


def test_outputs_have_the_structure_their_names_give():
    x, y = np.float32([3, 4]), np.float32([1, 2])

    def result(returned):
        return gx.Function.from_graph(parse(TWO.format(returned)))(x, y)

    assert result("%0").tolist() == [4, 6]
    assert [a.tolist() for a in result("%0, %1")] == [[4, 6], [2, 2]]
    named = result("sum=%0, difference=%1")
    assert {k: a.tolist() for k, a in named.items()} == {"sum": [4, 6], "difference": [2, 2]}
    assert result("") is None


def test_updates_and_modes():
    v = gx.variable(np.float32(1), "v")
    x = gx.input("x")
    declared = gx.function([x], v * x, updates={v: v + x}, name="f")
    for mode in ("jit", "interpret", "debug"):
        f = gx.Function.from_graph(declared.graph, mode=mode)
        before = float(v.value)
        assert f(2) == before * 2
        assert v.value == before + 2


def test_refusals():
    g = parse(TWO.format("%0"))
    with pytest.raises(ArgumentError, match=r"mode must be one of jit, interpret, debug"):
        gx.Function.from_graph(g, mode="fast")
    twice = parse(TWO.format("%0").replace("%y: f32[n])", '%y: f32[n] = "x")'))
    with pytest.raises(UsageError, match=r"two: two inputs are both called 'x'"):
        gx.Function.from_graph(twice)


def test_kernels_are_kept_and_what_has_none_gets_them():
    x = gx.input("x", ("n", 3))
    f = gx.function([x], gx.nn.softmax(x * 2) @ np.eye(3, dtype="float32"), name="f")
    assert not has_kernels(f.graph) and not is_lowered(f.graph)
    assert is_lowered(f.optimized) and lower(f.optimized) is f.optimized
    read = parse(to_text(f.optimized))
    again = gx.Function.from_graph(read)
    assert again.optimized is read
    a = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    np.testing.assert_array_equal(again(a), f(a))
    flat = flatten(f.optimized)
    assert not has_kernels(flat) and is_lowered(lower(flat))


def test_a_pipeline_without_fusion_compiles():
    x = gx.input("x", ("n", 4))
    y = gx.nn.layer_norm(x)
    a = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    expected = gx.function([x], y)(a)
    for pipeline in ((), ("inline",), ("cse", "dce")):
        f = gx.function([x], y, pipeline=pipeline)
        np.testing.assert_allclose(f(a), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("made", "op"), [(gx.sum, "reduce_sum"), (gx.cumsum, "cumsum")])
def test_kernels_that_do_not_name_what_they_reduce_are_refused(made, op):
    x = gx.input("x", ("n", "m"))
    text = to_text(gx.function([x], made(x, axis=1), name="f").optimized)
    assert text.count("reduced=(1)") == 1
    with pytest.raises(CompileError, match=f"{op}: runs along no axis that its kernel names"):
        gx.Function.from_graph(parse(text.replace("reduced=(1)", "reduced=()"))).compile()
