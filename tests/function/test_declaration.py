"""Mistakes in what `gx.function` is given: each is refused with a message that says why."""

import numpy as np
import pytest

import graphc as gx
from graphc.errors import ArgumentError, DTypeError, ShapeError, UsageError

X = gx.input("x", ("n",))
Y = gx.input("y", ("n",))
V = gx.variable(np.zeros(3, np.float32), "v")
SAME = gx.variable(np.zeros(3, np.float32), "v")

MISTAKES = [
    (
        lambda: gx.function(3, X), UsageError,
        "inputs must be a list of Tensors made by gx.input, got int",
    ),
    (lambda: gx.function([3], X), UsageError, "inputs must be Tensors made by gx.input, got int"),
    (
        lambda: gx.function([X + 1], X), UsageError,
        "inputs must be Tensors made by gx.input, got <Tensor add",
    ),
    (lambda: gx.function([V], X), UsageError, "variable 'v' cannot be an input"),
    (lambda: gx.function([X, X], X), UsageError, "input 'x' is listed twice"),
    (
        lambda: gx.function([X, gx.input("x", ())], X), UsageError,
        "input 'x' names two different inputs",
    ),
    (lambda: gx.function([X], X + Y), UsageError, "the outputs need input 'y' (f32[n])"),
    (lambda: gx.function([X], "x"), UsageError, "the output must be a Tensor, got str"),
    (lambda: gx.function([X], [X, None]), UsageError, "output 1 must be a Tensor, got NoneType"),
    (
        lambda: gx.function([X], {"a": object()}), UsageError,
        "output 'a' must be a Tensor, got object",
    ),
    (lambda: gx.function([X], {1: X}), UsageError, "the keys of outputs must be strings, got 1"),
    (lambda: gx.function([X], X, name="a b"), UsageError, "must be a C identifier"),
    (lambda: gx.function([X], X, name=7), UsageError, "must be a C identifier"),
    (
        lambda: gx.function([X], X, mode="fast"), ArgumentError,
        "mode must be one of jit, interpret, debug",
    ),
    (lambda: gx.function([X], X, threads=0), ArgumentError, "threads must be a whole number of at"),
    (lambda: gx.function([X], X, threads="2"), ArgumentError, "of at least 1, got '2'"),
    (lambda: gx.function([X], X, pipeline="fold"), UsageError, "must be a list of passes, such"),
    (
        lambda: gx.function([X], X, pipeline=("inline", "fusse")), UsageError,
        "function: there is no pass 'fusse'; known: inline, ",
    ),
    (
        lambda: gx.function([X], X, pipeline=(3,)), UsageError,
        "function: a pass is a name or a function Graph -> Graph, got 3",
    ),
    (lambda: gx.Function.from_graph(3), UsageError, "from_graph: takes a graph, got int"),
    (lambda: gx.function([], None, updates=3), UsageError, "updates must be a dict or a list"),
    (
        lambda: gx.function([], None, updates=[V]), UsageError,
        "(variable, new value) pairs, got Variable",
    ),
    (
        lambda: gx.function([X], None, updates={X: X}), UsageError,
        "only variables can be updated, got <Tensor x",
    ),
    (
        lambda: gx.function([], None, updates=[(V, V), (V, V)]), UsageError,
        "variable 'v' is updated twice",
    ),
    (
        lambda: gx.function([], None, updates={V: V.astype("float64")}), DTypeError,
        "the update of variable 'v' must be f32[3], got f64[3]; cast it with .astype('float32')",
    ),
    (lambda: gx.function([X], None, updates={V: X}), ShapeError, "must be f32[3], got f32[n]"),
    (
        lambda: gx.function([], None, updates={V: gx.sum(V)}), ShapeError,
        "must be f32[3], got f32[]",
    ),
    (lambda: gx.function([], V + SAME), UsageError, "two different variables are both called 'v'"),
]


@pytest.mark.parametrize("case", range(len(MISTAKES)))
def test_mistake(case):
    call, kind, text = MISTAKES[case]
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)


def test_the_line_is_the_users():
    with pytest.raises(UsageError, match=r"\(test_declaration\.py:\d+\)"):
        gx.function([X, X], X)


def test_constants_may_be_outputs_and_updates():
    ones = np.ones(3, np.float32)
    f = gx.function([], [1, 2.5, np.arange(3)], updates={V: ones}, mode="interpret")
    before = V.value
    try:
        one, half, three = f()
        assert (one, half) == (1, 2.5) and three.tolist() == [0, 1, 2]
        assert V.value.tolist() == [1, 1, 1]
    finally:
        V.value = before


def test_nothing_compiles_before_the_first_call():
    f = gx.function([X], X + 1)
    assert f.compilations == 0 and "not compiled" in repr(f)
    assert f.graph.name == "graph" and len(f.graph.inputs) == 1
