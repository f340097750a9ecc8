"""Stable rewrites against extended precision: never less accurate, and accurate where naive fails.

Each law is written naively in f32; the truth is the same formula in a wide form that needs no care
(mpmath, 60 digits).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import graphc as gx
from graphc import ir
from graphc.interpret import evaluate
from graphc.ir import Graph
from graphc.passes import run_pipeline, stabilize
from graphc.tensor import Tensor
from graphc.text import parse

HEAD = """graph @law(%x: f32[n]) {
  %c: f32[] = constant 1.0
  %one: f32[n] = broadcast %c {shape=(n), axes=()}
  %e: f32[n] = exp %x
  %m: f32[n] = neg %x
  %em: f32[n] = exp %m
  %s: f32[n] = add %one, %em
  %p: f32[n] = div %one, %s
"""


def law(*lines: str) -> Graph:
    """The naive form; the last line's value is the result."""
    last = lines[-1].split(":")[0]
    return parse(HEAD + "".join(f"  {line}\n" for line in lines) + f"  return {last}\n}}\n")


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


ANY = np.concatenate(
    [sign * np.logspace(-8, 2.4, 60) for sign in (-1, 1)] + [np.array([0.0, 88.0, -88.0, 0.5])]
).astype(np.float32)
SMALL = ANY[np.abs(ANY) < 80]
ABOVE = ANY[ANY > -0.99]
BELOW = ANY[ANY < 0.99]

LAWS: dict[str, tuple[Graph, Callable[[Any], Any], Any]] = {
    "log1p": (law("%a: f32[n] = add %one, %x", "%r: f32[n] = log %a"), mpmath.log1p, ABOVE),
    "log1p of minus": (
        law("%a: f32[n] = sub %one, %x", "%r: f32[n] = log %a"),
        lambda x: mpmath.log1p(-x), BELOW,
    ),
    "expm1": (law("%r: f32[n] = sub %e, %one"), mpmath.expm1, SMALL),
    "minus expm1": (law("%r: f32[n] = sub %one, %e"), lambda x: -mpmath.expm1(x), SMALL),
    "sigmoid": (law("%r: f32[n] = div %one, %s"), _sigmoid, ANY),
    "sigmoid by exp(x)": (
        law("%t: f32[n] = add %e, %one", "%r: f32[n] = div %e, %t"), _sigmoid, ANY,
    ),
    "sigmoid of minus": (
        law("%t: f32[n] = add %e, %one", "%r: f32[n] = div %one, %t"),
        lambda x: _sigmoid(-x), ANY,
    ),
    "softplus": (
        law("%t: f32[n] = add %e, %one", "%r: f32[n] = log %t"),
        lambda x: mpmath.log1p(mpmath.exp(x)), ANY,
    ),
    "softplus of log1p": (
        law("%r: f32[n] = log1p %e"), lambda x: mpmath.log1p(mpmath.exp(x)), ANY,
    ),
    "log sigmoid": (law("%r: f32[n] = log %p"), lambda x: mpmath.log(_sigmoid(x)), ANY),
    "log of 1 - sigmoid": (
        law("%q: f32[n] = sub %one, %p", "%r: f32[n] = log %q"),
        lambda x: mpmath.log(_sigmoid(-x)), ANY,
    ),
    "square": (
        law("%k: f32[] = constant 2.0", "%t: f32[n] = broadcast %k {shape=(n), axes=()}",
            "%r: f32[n] = pow %x, %t"), lambda x: x**2, SMALL,
    ),
    "cube": (
        law("%k: f32[] = constant 3.0", "%t: f32[n] = broadcast %k {shape=(n), axes=()}",
            "%r: f32[n] = pow %x, %t"), lambda x: x**3, SMALL,
    ),
}  # fmt: skip


def ulps(got: np.ndarray, truth: list[Any]) -> np.ndarray:
    """Distance from the truth in units of the last place of f32."""
    out = []
    for g, t in zip(got, truth, strict=True):
        spacing = float(np.spacing(np.float32(abs(t)) if abs(t) < 3.4e38 else np.float32(3.4e38)))
        bad = not np.isfinite(g)
        out.append(np.inf if bad else float(abs(mpmath.mpf(float(g)) - t) / spacing))
    return np.array(out)


@pytest.mark.parametrize("name", LAWS)
def test_never_less_accurate(name: str) -> None:
    graph, formula, xs = LAWS[name]
    after = stabilize.run(graph)
    assert str(after) != str(graph), "nothing was rewritten"
    with mpmath.workdps(60):
        truth = [formula(mpmath.mpf(float(x))) for x in xs]
        naive = ulps(evaluate(graph, [xs])[0][0], truth)
        mine = ulps(evaluate(after, [xs])[0][0], truth)
    assert mine.max() <= 2.5, f"{mine.max()} ulp at {xs[mine.argmax()]}"
    assert (mine <= np.maximum(naive, 2.5)).all()


def _rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 10)) * np.array([0.1, 1, 10, 100, 1000, 1, 1, 1])[:, None]
    x[5] += 1e4
    x[6] -= 1e4
    x[7, 3:] = -np.inf
    return x.astype(np.float32)


def _declared(kind: str, keepdims: bool) -> tuple[Any, Any]:
    x = gx.input("x", ("batch", 10))
    e = gx.exp(x)
    if kind == "log_sum_exp":
        return x, gx.log(gx.sum(e, axis=1, keepdims=keepdims))
    p = e / gx.sum(e, axis=1, keepdims=True)
    return x, gx.log(p) if kind == "log_softmax" else p


def _truth(kind: str, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.longdouble)
    top = x.max(axis=1, keepdims=True)
    total = np.log(np.exp(x - top).sum(axis=1, keepdims=True)) + top
    if kind == "log_sum_exp":
        return total
    return x - total if kind == "log_softmax" else np.exp(x - total)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("kind", ["log_sum_exp", "log_softmax", "softmax"])
def test_sums_of_exponentials(kind: str, keepdims: bool) -> None:
    x, y = _declared(kind, keepdims)
    graph = ir.collect("law", [x._value], [y._value])
    after = stabilize.run(graph)
    assert "reduce_max" in str(after)
    rows = _rows()
    got = evaluate(after, [rows])[0][0].reshape(_truth(kind, rows).shape)
    truth = _truth(kind, rows).astype(np.float32)
    np.testing.assert_allclose(got, truth, rtol=1e-5, atol=1e-6)
    for n in (0, 1):
        assert evaluate(after, [np.zeros((n, 10), np.float32)])[0][0].shape[0] == n


def test_an_empty_axis_is_log_of_nothing() -> None:
    x = gx.input("x", ("n",))
    y = gx.log(gx.sum(gx.exp(x)))
    after = stabilize.run(ir.collect("law", [x._value], [y._value]))
    assert evaluate(after, [np.zeros(0, np.float32)])[0][0] == -np.inf
    huge = np.array([1000.0, np.inf], np.float32)
    assert evaluate(after, [huge])[0][0] == np.inf
    assert np.isnan(evaluate(after, [np.array([np.nan, 1], np.float32)])[0][0])


@pytest.mark.parametrize("kind", ["log_sum_exp", "log_softmax", "softmax"])
def test_gradients_are_finite_and_right(kind: str) -> None:
    x, y = _declared(kind, True)
    weights = np.random.default_rng(1).normal(size=(1 if kind == "log_sum_exp" else 10,))
    cost = gx.sum(y * gx.constant(weights, "float32"))
    (g,) = gx.grad(cost, [x])
    rows = _rows()[[0, 1, 4, 5]]
    graph = ir.collect("g", [x._value], [g._value])
    got = evaluate(graph, [rows])[0][0]

    def f(z: np.ndarray) -> Any:
        return (_truth(kind, z) * weights).sum()

    wide = rows.astype(np.longdouble)
    for i in np.ndindex(*rows.shape):
        step = np.zeros_like(wide)
        step[i] = 1e-6
        difference = (f(wide + step) - f(wide - step)) / 2e-6
        np.testing.assert_allclose(got[i], float(difference), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["sigmoid", "softplus", "log sigmoid", "log of 1 - sigmoid"])
def test_derivatives_at_zero(name: str) -> None:
    """First and second derivatives of the forms that choose by the sign of x."""
    graph, formula, _ = LAWS[name]
    x = Tensor(graph.inputs[0])
    first = gx.grad(gx.sum(Tensor(graph.outputs[0])), x)
    second = gx.grad(gx.sum(first), x)
    xs = np.array([-3.0, -1e-3, -0.0, 0.0, 1e-3, 3.0], np.float32)
    got = evaluate(ir.collect("d", [x._value], [first._value, second._value]), [xs])[0]
    with mpmath.workdps(40):
        for order, values in enumerate(got, 1):
            truth = [float(mpmath.diff(formula, float(v), order)) for v in xs]
            np.testing.assert_allclose(values, truth, rtol=1e-4, atol=1e-6)


def test_protected_values_stay() -> None:
    x = gx.input("x", ("n",))
    e = gx.exp(x)
    shifted = e + 1.0
    y = gx.log(shifted)
    graph = ir.collect("law", [x._value], [y._value, shifted._value, e._value])
    assert "log1p" in str(stabilize.run(graph))
    kept = stabilize.run(graph, frozenset([shifted._value]))
    assert kept.outputs[1] is shifted._value
    assert "log1p" not in str(kept), "looked through a protected value"
    inner = stabilize.run(graph, frozenset([e._value]))
    assert inner.outputs[2] is e._value
    assert "log1p" in str(inner)
    assert "select" not in str(inner), "softplus would look through exp"


def test_equal_protected_values_stay_two() -> None:
    g = parse("graph @f(%x: f32[4]) {\n  %0: f32[4] = exp %x\n  %1: f32[4] = neg %0\n"
              "  return %0, %1\n}")
    (again,) = ir.apply("exp", [g.inputs[0]])
    both = Graph("f", g.inputs, [*g.nodes, again.node], [*g.outputs, again])
    kept = stabilize.run(both, frozenset([g.outputs[0], again]))
    assert kept.outputs[0] is g.outputs[0]
    assert kept.outputs[2] is again


def test_option_switches_it_off() -> None:
    graph = LAWS["expm1"][0]
    passes = ("stabilize", "matrix_chain")
    assert "expm1" in str(run_pipeline(graph, passes))
    assert str(run_pipeline(graph, passes, stabilise=False)) == str(graph)


def test_composites_of_the_library_are_left_as_they_are() -> None:
    x = gx.input("x", (4, 10))
    for fn in (gx.nn.sigmoid, gx.nn.softplus, gx.nn.softmax, gx.nn.log_softmax, gx.logsumexp):
        y = fn(x) if fn is not gx.logsumexp else fn(x, axis=1)
        graph = run_pipeline(
            ir.collect("f", [x._value], [y._value]), ("inline", "simplify", "cse", "dce")
        )
        assert str(stabilize.run(graph)) == str(graph), fn.__name__


def test_logs_of_composites_are_seen_through() -> None:
    x = gx.input("x", (4, 10))
    for fn in (gx.nn.softmax, gx.nn.sigmoid):
        graph = ir.collect("f", [x._value], [gx.log(fn(x))._value])
        after = evaluate(stabilize.run(graph), [np.full((4, 10), -200.0, np.float32)])[0][0]
        want = -np.log(10.0) if fn is gx.nn.softmax else -200.0
        np.testing.assert_allclose(after, want, rtol=1e-6)
