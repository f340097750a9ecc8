"""gx.optim against hand-written NumPy of PyTorch's documented formulas, over several steps."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc import ir
from graphc.interpret import evaluate

RNG = np.random.default_rng(5)
START = RNG.normal(size=(3, 2))
TARGETS = RNG.normal(size=(6, 3, 2))


def train(make, steps=6, dtype="float64"):
    """Minimise ||w - target_k||**2 / 2 with the optimiser; the values of w after each step."""
    w = gx.variable(START.astype(dtype), "w")
    t = gx.input("t", (3, 2), dtype)
    loss = gx.sum(gx.square(w - t)) * 0.5
    updates = make([w], gx.grad(loss, [w]))
    g = ir.collect("step", [t._value], [loss._value],
                   [(v.state, u._value) for v, u in updates])
    values = []
    for k in range(steps):
        _, new = evaluate(g, [TARGETS[k].astype(dtype)])
        for state, array in new.items():
            state.array[...] = array
        values.append(w.value)
    return values


def sgd(lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    w, b = START.copy(), None
    for t in TARGETS:
        g = w - t + weight_decay * w
        if momentum:
            b = g if b is None else momentum * b + (1 - dampening) * g
            g = g + momentum * b if nesterov else b
        w = w - lr * g
        yield w


def adam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    w, m, v = START.copy(), 0.0, 0.0
    for k, t in enumerate(TARGETS, 1):
        g = w - t
        if decoupled:
            w = w * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * w
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        step = lr / (1 - betas[0] ** k)
        w = w - step * m / (np.sqrt(v) / np.sqrt(1 - betas[1] ** k) + eps)
        yield w


def rmsprop(lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    w, v, a, b = START.copy(), 0.0, 0.0, 0.0
    for t in TARGETS:
        g = w - t + weight_decay * w
        v = alpha * v + (1 - alpha) * g * g
        a = alpha * a + (1 - alpha) * g
        d = g / (np.sqrt(v - a * a if centered else v) + eps)
        b = momentum * b + d
        w = w - lr * (b if momentum else d)
        yield w


CASES = [
    ("sgd", sgd, {"lr": 0.1}), ("sgd", sgd, {"lr": 0.1, "momentum": 0.9}),
    ("sgd", sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("sgd", sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("adam", adam, {}), ("adam", adam, {"lr": 0.1, "betas": (0.5, 0.9), "weight_decay": 0.1}),
    ("adam", adam, {"betas": (0.0, 0.9)}),
    ("rmsprop", rmsprop, {}),
    ("rmsprop", rmsprop, {"lr": 0.1, "alpha": 0.5, "momentum": 0.9, "weight_decay": 0.1}),
    ("rmsprop", rmsprop, {"centered": True, "momentum": 0.5}),
]


@pytest.mark.parametrize("name,formula,options", CASES)
def test_formulas(name, formula, options):
    got = train(lambda p, g: getattr(gx.optim, name)(p, g, **options))
    for a, b in zip(got, formula(**options), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_adamw():
    got = train(lambda p, g: gx.optim.adamw(p, g))
    for a, b in zip(got, adam(weight_decay=1e-2, decoupled=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop"])
def test_float32_and_tensor_rates(name):
    rate = gx.variable(np.float32(0.05), "rate")
    a = train(lambda p, g: getattr(gx.optim, name)(p, g, lr=0.05), dtype="float32")
    b = train(lambda p, g: getattr(gx.optim, name)(p, g, lr=rate), dtype="float32")
    for u, v in zip(a, b, strict=True):
        assert u.dtype == np.float32
        np.testing.assert_allclose(u, v, rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop"])
def test_steps_of_float16_are_those_of_float32(name):
    """The square of 300 is more than f16 holds, and eps = 1e-8 less: NaN where a gradient is 0."""
    gradient = np.array([0.0, 0.25, 300.0], "float32")
    values = {}
    for dtype in ("float16", "float32"):
        w = gx.variable(np.ones(3, dtype), "w")
        g = gx.input("g", (3,), dtype)
        step = gx.function([g], [], updates=getattr(gx.optim, name)([w], [g], lr=1e-3))
        for _ in range(4):
            step(gradient.astype(dtype))
        values[dtype] = w.value
    np.testing.assert_allclose(values["float16"], values["float32"], rtol=2e-3)


def test_state_is_named_after_the_parameter():
    w = gx.variable(START, "layer.w")
    names = [v.name for v, _ in gx.optim.adam([w], [w * 1.0])]
    assert names == ["layer.w.adam_step", "layer.w", "layer.w.adam_m", "layer.w.adam_v"]


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clip_grad_norm(limit):
    a = [np.array([[3.0, -4.0]]), np.array(12.0, "f4"), np.array([300.0, 400.0], "f2")]
    clipped, norm = gx.optim.clip_grad_norm([gx.constant(g) for g in a], limit)
    assert norm.dtype is gx.float64 and [g.dtype.long for g in clipped] == [
        "float64", "float32", "float16"]
    want = np.sqrt(25.0 + 144.0 + 250000.0)
    *got, length = gx.function([], [*clipped, norm])()
    np.testing.assert_allclose(length, want, rtol=1e-6)  # 400**2 is more than f16 holds
    for g, was in zip(got, a, strict=True):
        np.testing.assert_allclose(g, was * min(1.0, limit / want), rtol=2e-3)
    kept, norm = gx.optim.clip_grad_norm([gx.constant(a[0])], 6.0)
    np.testing.assert_array_equal(kept[0].eval(), a[0])


def test_clip_grad_norm_refusals(refuses):
    with refuses("clip_grad_norm: takes at least one gradient"):
        gx.optim.clip_grad_norm([], 1.0)
    with refuses("clip_grad_norm: max_norm must be a scalar, got f32[2]"):
        gx.optim.clip_grad_norm([gx.constant(np.ones(2, "f4"))], np.ones(2, "f4"))


def test_refusals(refuses):
    w, x = gx.variable(START, "w"), gx.input("x", (3, 2), "float64")
    with refuses("adam: needs one gradient for each parameter, got 1 parameters and 2 gradients"):
        gx.optim.adam([w], [w, w])
    with refuses("sgd: takes a list, got a dict; pass list(d.values())"):
        gx.optim.sgd({"w": w}, [x])
    with refuses("sgd: parameters must be variables"):
        gx.optim.sgd([x], [x])
    with refuses("sgd: the gradient of 'w' must be f64[3,2], got f64[2]"):
        gx.optim.sgd([w], [w[0]])
    with refuses("sgd: Nesterov needs momentum > 0 and dampening = 0"):
        gx.optim.sgd([w], [x], nesterov=True)
    with refuses("adam: lr must be >= 0, got -1"):
        gx.optim.adam([w], [x], lr=-1)
    with refuses("adam: beta1 must be in [0, "):
        gx.optim.adam([w], [x], betas=(1.0, 0.5))
    with refuses("lr: must be a scalar, got f64[3,2]"):
        gx.optim.rmsprop([w], [x], lr=x)


@pytest.mark.parametrize("make", [gx.optim.adam, gx.optim.adamw])
def test_adam_takes_one_division_and_one_root_for_each_number(make):
    """Divisions are what its time goes to; all else of them is of single numbers."""
    w, t = gx.variable(START.astype("f4"), "w"), gx.input("t", (3, 2))
    f = gx.function([t], [], updates=make([w], [t]))
    large = [n.op.name for n in f.optimized.nodes[-1].attrs["body"].nodes if n.out.type.shape]
    assert [large.count(name) for name in ("div", "sqrt")] == [1, 1]
