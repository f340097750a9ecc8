"""Stable forms as users declare them, through the whole pipeline: values and gradients.

`simplify` runs before `stabilize` and respells forms, so these start from the front end. The truth
is mpmath's.
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
from graphc.passes import run_pipeline

DIGITS = 1000  # 1 + exp(-1000) is not 1


def _s(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


log, exp = mpmath.log, mpmath.exp

FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "log sigmoid of -x": (
        lambda x: gx.log(gx.nn.sigmoid(-x)), lambda v: log(_s(-v)), lambda v: -_s(v),
    ),
    "log sigmoid of -2x": (
        lambda x: gx.log(gx.nn.sigmoid(-2.0 * x)), lambda v: log(_s(-2 * v)),
        lambda v: -2 * _s(2 * v),
    ),
    "log sigmoid of 0 - x": (
        lambda x: gx.log(gx.nn.sigmoid(-0.0 - x)), lambda v: log(_s(-v)), lambda v: -_s(v),
    ),
    "log of 1 - sigmoid of -x": (
        lambda x: -gx.log(1.0 - gx.nn.sigmoid(-x)), lambda v: -log(_s(v)), lambda v: -_s(-v),
    ),
    "log of 1 - sigmoid": (
        lambda x: gx.log(1.0 - gx.nn.sigmoid(x)), lambda v: log(_s(-v)), lambda v: -_s(v),
    ),
    "1 - sigmoid": (
        lambda x: 1.0 - gx.nn.sigmoid(x), lambda v: _s(-v), lambda v: -_s(v) * _s(-v),
    ),
    "1 - sigmoid of -x": (
        lambda x: 1.0 - gx.nn.sigmoid(-x), lambda v: _s(v), lambda v: _s(v) * _s(-v),
    ),
    "1 - 1 / (1 + exp(-x))": (
        lambda x: 1.0 - 1.0 / (1.0 + gx.exp(-x)), lambda v: _s(-v), lambda v: -_s(v) * _s(-v),
    ),
    "silu": (
        lambda x: x / (1.0 + gx.exp(-x)), lambda v: v * _s(v),
        lambda v: _s(v) * (1 + v * _s(-v)),
    ),
    "silu by exp(x)": (
        lambda x: x * gx.exp(x) / (gx.exp(x) + 1.0), lambda v: v * _s(v),
        lambda v: _s(v) * (1 + v * _s(-v)),
    ),
    "x / (1 + exp(x))": (
        lambda x: x / (1.0 + gx.exp(x)), lambda v: v * _s(-v),
        lambda v: _s(-v) * (1 - v * _s(v)),
    ),
    "3 / (1 + exp(-x))": (
        lambda x: 3.0 / (1.0 + gx.exp(-x)), lambda v: 3 * _s(v), lambda v: 3 * _s(v) * _s(-v),
    ),
    "log of two exp": (
        lambda x: gx.log(gx.exp(x) + gx.exp(2.0 * x)), lambda v: log(exp(v) + exp(2 * v)),
        lambda v: 1 + _s(v),
    ),
    "log of 1 and two exp": (
        lambda x: gx.log(1.0 + gx.exp(x) + gx.exp(2.0 * x)),
        lambda v: log(1 + exp(v) + exp(2 * v)),
        lambda v: (exp(v) + 2 * exp(2 * v)) / (1 + exp(v) + exp(2 * v)),
    ),
    "log of exp": (lambda x: gx.log(gx.exp(x)), lambda v: v, lambda v: mpmath.mpf(1)),
    "log of reversed sigmoid": (
        lambda x: gx.flip(gx.log(gx.flip(gx.nn.sigmoid(-x)))), lambda v: log(_s(-v)),
        lambda v: -_s(v),
    ),
}  # fmt: skip

POINTS = np.array(
    [s * v for v in (1e-3, 0.4, 1, 3, 16, 30, 63.9, 64, 64.1, 86, 88, 88.6, 90, 100, 511, 512.5,
                     700, 709, 720, 1000) for s in (-1, 1)] + [0.0]
)  # fmt: skip


def _close(got: np.ndarray, truth: list[Any], xs: np.ndarray) -> None:
    eps, least = np.finfo(got.dtype).eps, np.finfo(got.dtype).smallest_subnormal
    for g, t, x in zip(got, truth, xs, strict=True):
        allowed = 6 * eps * abs(t) + 1.01 * max(1.0, abs(float(x))) * float(least)
        if abs(x) > 20:  # what underflow of the smaller factor costs
            allowed += 4 * eps * float(np.finfo(got.dtype).tiny)
        assert np.isfinite(g) and abs(mpmath.mpf(float(g)) - t) <= allowed, (
            f"at {x}: {g}, not {mpmath.nstr(t, 17)}"
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients(name: str, dtype: str) -> None:
    declare, value, slope = FORMS[name]
    x = gx.input("x", ("n",), dtype=dtype)
    y = declare(x)
    d = gx.grad(gx.sum(y), x)
    xs = POINTS.astype(dtype)
    with mpmath.workdps(DIGITS):
        wide = [mpmath.mpf(float(v)) for v in xs]
        values, slopes = [value(v) for v in wide], [slope(v) for v in wide]
        graph = run_pipeline(ir.collect("f", [x._value], [y._value, d._value]))
        got, got_slopes = evaluate(graph, [xs])[0]
        _close(got, values, xs)
        top = np.array([max(1e-30, abs(float(s))) for s in slopes])
        np.testing.assert_allclose(
            got_slopes / top, np.array([float(s) for s in slopes]) / top,
            rtol=0, atol=64 * np.finfo(dtype).eps,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_silu_is_never_further_off_than_as_written(dtype: str) -> None:
    x = gx.input("x", ("n",), dtype=dtype)
    graph = ir.collect("silu", [x._value], [(x / (1.0 + gx.exp(-x)))._value])
    xs = np.linspace(-100, 100, 4001).astype(dtype)
    got = evaluate(run_pipeline(graph), [xs])[0][0].astype(np.float64)
    with np.errstate(all="ignore"):
        naive = evaluate(graph, [xs])[0][0].astype(np.float64)
    wide = xs.astype(np.longdouble)
    truth = wide / (1 + np.exp(-wide))
    ulp = np.spacing(np.abs(truth).astype(dtype)).astype(np.float64)
    off = np.abs(got - truth) / ulp
    assert (off <= np.maximum(np.abs(naive - truth) / ulp, 2.5)).all()


def test_a_factor_with_more_axes() -> None:
    c, b = gx.input("c", ("m", "n")), gx.input("b", ("n",))
    y = c / (1.0 + gx.exp(-b))
    d = gx.grad(gx.sum(y), b)
    graph = run_pipeline(ir.collect("f", [c._value, b._value], [y._value, d._value]))
    bs = np.array([-1000, -90, -1, 0, 2, 1000], np.float32)
    cs = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    got, slopes = evaluate(graph, [cs, bs])[0]
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(-bs.astype(np.longdouble)))
    np.testing.assert_allclose(got, (cs * s).astype(np.float64), rtol=1e-6, atol=1e-44)
    np.testing.assert_allclose(
        slopes, (cs.sum(0) * s * (1 - s)).astype(np.float64), rtol=1e-5, atol=1e-38
    )


@pytest.mark.parametrize("shape", [("n",), (6,), (8,)])
@pytest.mark.parametrize("offset", [-1000.0, 0.0, 1000.0])
def test_log_of_a_mean_of_exp(shape: Any, offset: float) -> None:
    size = 7 if shape == ("n",) else shape[0]
    x = gx.input("x", shape)
    y = gx.log(gx.mean(gx.exp(x)))
    d = gx.grad(y, x)
    graph = run_pipeline(ir.collect("f", [x._value], [y._value, d._value]))
    xs = (np.random.default_rng(size).normal(size=size) + offset).astype(np.float32)
    got, slopes = evaluate(graph, [xs])[0]
    wide = xs.astype(np.longdouble)
    e = np.exp(wide - wide.max())
    np.testing.assert_allclose(got, float(np.log(e.mean()) + wide.max()), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slopes, (e / e.sum()).astype(np.float64), rtol=1e-5)
    zeros = np.zeros_like(xs)
    assert evaluate(graph, [zeros])[0][0] == 0  # log(n) - log(n) might not be


def test_log_add_exp_of_infinities_and_ties() -> None:
    a, b = gx.input("a", ("n",)), gx.input("b", ("n",))
    y = gx.log(gx.exp(a) + gx.exp(b))
    da, db = gx.grad(gx.sum(y), [a, b])
    graph = run_pipeline(ir.collect("f", [a._value, b._value], [y._value]))
    inf = np.inf
    x = np.array([inf, -inf, inf, -inf, np.nan, 1, 500], np.float32)
    z = np.array([inf, -inf, -inf, 3, 1, np.nan, -500], np.float32)
    np.testing.assert_array_equal(
        evaluate(graph, [x, z])[0][0], np.array([inf, -inf, inf, 3, np.nan, np.nan, 500])
    )
    slopes = run_pipeline(ir.collect("d", [a._value, b._value], [da._value, db._value]))
    ties = np.array([-200.0, 0.0, 200.0], np.float32)
    for got in evaluate(slopes, [ties, ties])[0]:
        np.testing.assert_array_equal(got, np.full(3, 0.5))


def _picks(p: Any, labels: Any) -> dict[str, Any]:
    return {
        "index": p[:, 2],
        "slice": p[:, 1:3],
        "take_along_axis": gx.take_along_axis(p, labels, axis=1),
        "transpose": gx.matrix_transpose(p),
        "reshape": gx.reshape(p, (12,)),
        "flip": gx.flip(p, axis=1),
    }


@pytest.mark.parametrize("spelling", ["nn", "by hand"])
@pytest.mark.parametrize("pick", ["index", "slice", "take_along_axis", "transpose", "reshape",
                                  "flip"])  # fmt: skip
def test_log_of_picked_softmax(pick: str, spelling: str) -> None:
    x, labels = gx.input("x", (3, 4)), gx.input("labels", (3, 1), dtype="int64")
    e = gx.exp(x)
    p = gx.nn.softmax(x) if spelling == "nn" else e / gx.sum(e, axis=1, keepdims=True)
    y = gx.log(_picks(p, labels)[pick])
    d = gx.grad(gx.sum(y), x)
    f = _picks(gx.nn.log_softmax(x), labels)[pick]
    fd = gx.grad(gx.sum(f), x)
    graph = run_pipeline(
        ir.collect("f", [x._value, labels._value], [y._value, d._value, f._value, fd._value])
    )
    xs = np.array([[1, 2, 3, 4], [-1000, 0, 1000, 3], [200, -200, 0, 0]], np.float32)
    got, slopes, wanted, wanted_slopes = evaluate(graph, [xs, np.array([[3], [0], [1]])])[0]
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slopes, wanted_slopes, rtol=1e-5, atol=1e-6)


SUMS_ELSEWHERE = {  # of a square, so that the wrong axis has the right size
    "axis 1 along rows": lambda e: e.sum(axis=1),
    "axis 0 along columns": lambda e: e.sum(axis=0)[:, None, :],
    "exchanged": lambda e: e.sum(axis=1, keepdims=True).swapaxes(0, 2),
    "both, exchanged": lambda e: e.sum(axis=(0, 1))[:, None, None],
}


@pytest.mark.parametrize("n", [3, "n"])
@pytest.mark.parametrize("name", SUMS_ELSEWHERE)
def test_sums_that_divide_other_rows_are_no_softmax(name: str, n: Any) -> None:
    x = gx.input("x", (n, n, n))
    e = gx.exp(x)
    p = e / SUMS_ELSEWHERE[name](e)
    q = e * (1.0 / SUMS_ELSEWHERE[name](e))
    weight = gx.input("w", (n, n, n))
    d = gx.grad(gx.sum(p * weight), x)
    outputs = [p, gx.log(p), gx.log(q), d]
    graph = run_pipeline(
        ir.collect("f", [x._value, weight._value], [t._value for t in outputs])
    )
    xs, ws = np.random.default_rng(3).normal(size=(2, 3, 3, 3)).astype(np.float32)
    got = evaluate(graph, [xs, ws])[0]

    def wanted(v: Any) -> Any:
        e = np.exp(v.astype(np.longdouble))
        return e / SUMS_ELSEWHERE[name](e)

    want = wanted(xs)
    for v, w in zip(got[:3], (want, np.log(want), np.log(want)), strict=True):
        np.testing.assert_allclose(v, w.astype(np.float64), rtol=1e-5, atol=1e-6)
    steps = np.eye(27).reshape(27, 3, 3, 3) * 1e-5
    slopes = [((wanted(xs + h) - wanted(xs - h)) * ws).sum() / 2e-5 for h in steps]
    np.testing.assert_allclose(
        got[3], np.array(slopes, np.float64).reshape(3, 3, 3), rtol=1e-4, atol=1e-5
    )


MAXIMA_ELSEWHERE = {  # of a square; only x's own along the last axis keeps each row's sum above 0
    "another tensor's": lambda xp, x, z: x - xp.max(z, axis=1, keepdims=True),
    "along the other axis": lambda xp, x, z: x - xp.max(x, axis=0),
    "of other rows": lambda xp, x, z: x - xp.max(x, axis=1),
    "of all": lambda xp, x, z: x - xp.max(x),
}


@pytest.mark.parametrize("n", [3, "n"])
@pytest.mark.parametrize("name", MAXIMA_ELSEWHERE)
def test_only_the_own_maximum_is_not_taken_out_again(name: str, n: Any) -> None:
    x, z = gx.input("x", (n, n), gx.float64), gx.input("z", (n, n), gx.float64)
    shifted = MAXIMA_ELSEWHERE[name](gx, x, z)
    e = gx.exp(shifted)
    p = e / gx.sum(e, axis=1, keepdims=True)
    total = gx.log(gx.sum(e, axis=1))
    outputs = [p, gx.log(p), total, gx.grad(gx.sum(total), x)]
    xs, zs = np.array([[800.0, 1, 2], [3, 900, 5], [-2000, -2001, -2000]]), np.zeros((3, 3))
    got = gx.function([x, z], outputs, mode="interpret")(xs, zs)
    v = MAXIMA_ELSEWHERE[name](np, xs, zs)
    own = np.max(v, axis=1, keepdims=True)
    logs = own + np.log(np.exp(v - own).sum(axis=1, keepdims=True))
    wanted = [np.exp(v - logs), v - logs, logs[:, 0]]
    for a, b in zip(got, wanted, strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert np.isfinite(got[3]).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_the_own_maximum_is_taken_out_once(axis: int) -> None:
    x = gx.input("x", (3, 4))
    for t in (x, x.T, gx.exp(x).T):
        shifted = t - gx.max(t, axis=axis, keepdims=True)
        e = gx.exp(shifted)
        outputs = [gx.nn.softmax(t, axis=axis), e / gx.sum(e, axis=axis, keepdims=True),
                   gx.log(gx.sum(e, axis=axis)), gx.logsumexp(t, axis=axis)]
        for o in outputs:
            graph = run_pipeline(ir.collect("f", [x._value], [o._value]))
            assert str(graph).count("reduce_max") == 1


def test_a_gap_is_of_the_larger_of_the_two() -> None:
    x, z = gx.input("x", (4,)), gx.input("z", (4,))
    first = gx.less(z, 1.0)  # says nothing of which is larger
    gap = gx.where(first, x, z) - gx.where(first, z, x)
    outputs = [gx.log1p(gx.exp(gap)), gx.log(1.0 + gx.exp(gap))]
    xs, zs = np.float32([200, -200, 1, 300]), np.float32([0, 0, 0, 2])
    wanted = np.float32([200, 0, np.log1p(np.e), 0])
    for got in gx.function([x, z], outputs, mode="interpret")(xs, zs):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["sigmoid", "softmax"])
def test_a_further_result_of_a_composite_of_such_a_name_is_not_its_first(name: str) -> None:
    form = gx.nn.sigmoid if name == "sigmoid" else gx.nn.softmax
    both = gx.composite(lambda x: (form(x), x * x + 2.0), name=name)
    x = gx.input("x", (3,), "float64")
    f = gx.function(
        [x], [gx.log(r) for r in both(x)], mode="interpret", pipeline=("stabilize",)
    )
    values = np.array([-1.0, 0.5, 2.0])
    e = np.exp(values)
    first = e / (1 + e) if name == "sigmoid" else e / e.sum()
    np.testing.assert_allclose(f(values)[0], np.log(first), rtol=1e-14)
    np.testing.assert_allclose(f(values)[1], np.log(values * values + 2), rtol=1e-14)
