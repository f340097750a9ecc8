"""Recomputation: the docstring's graphs, memory of training steps, the same bits."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

import golden_files as gf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import graphs

import graphc as gx
from graphc import dims
from graphc.errors import ExecutionError, ShapeError
from graphc.ir import Graph, collect
from graphc.passes import recompute
from graphc.text import parse
from graphc.verify import verify

PIPELINE = (*gx.PIPELINE[:-1], "recompute", "fuse")


def training_step(activation: Callable[[gx.Tensor], gx.Tensor], **options: object) -> gx.Function:
    """Eight square layers, and sgd."""
    rng = np.random.default_rng(0)
    x = gx.input("x", ("batch", 32))
    y = gx.input("y", ("batch",), "int64")
    h, params = x, []
    for k in range(8):
        w = gx.variable(rng.normal(size=(32, 32)) / 6, f"w{k}", "float32")
        b = gx.variable(np.zeros(32), f"b{k}", "float32")
        params += [w, b]
        h = activation(h @ w + b)
    loss = gx.nn.cross_entropy(h, y)
    updates = gx.optim.sgd(params, gx.grad(loss, params), lr=0.1)
    return gx.function([x, y], loss, updates=updates, name="step", **options)  # type: ignore[arg-type]


def growth(f: gx.Function) -> int:
    """Bytes of the arena for 1,000 more rows: without what does not depend on the batch."""
    low, high = (dims.evaluate(f.program.arena, {"batch": n}) for n in (1024, 2024))
    return high - low


def wave(h: gx.Tensor) -> gx.Tensor:
    return h * gx.tanh(gx.nn.softplus(h))


def test_docstring() -> None:
    texts = re.findall(r"^    graph @.*?^    }$", recompute.__doc__ or "", re.S | re.M)
    before, after = (parse(textwrap.dedent(t)) for t in texts)
    assert str(recompute.run(before)) == str(after)


@pytest.mark.parametrize(
    ("activation", "share"), [(gx.nn.gelu, 0.65), (gx.nn.silu, 0.7), (wave, 0.7)]
)
def test_the_arena_of_a_training_step_falls(
    activation: Callable[[gx.Tensor], gx.Tensor], share: float
) -> None:
    plain, again = training_step(activation), training_step(activation, pipeline=PIPELINE)

    assert growth(again) <= share * growth(plain)
    assert again.memory_plan() != plain.memory_plan()
    rng = np.random.default_rng(1)
    for batch in (0, 1, 33):
        x, y = rng.normal(size=(batch, 32)).astype(np.float32), np.arange(batch) % 32
        np.testing.assert_array_equal(plain(x, y), again(x, y))
    for name, value in plain.state.items():
        np.testing.assert_array_equal(again.state[name], value)


def attention_step(**options: object) -> gx.Function:
    """Two blocks with normalised inputs, attention, dropout, GELU and residuals; Adam."""
    rng = np.random.default_rng(0)
    params: list[gx.Tensor] = []

    def weight(*shape: int) -> gx.Tensor:
        values = rng.normal(size=shape) / shape[0] ** 0.5
        params.append(gx.variable(values, f"w{len(params)}", "float32"))
        return params[-1]

    def normal(h: gx.Tensor) -> gx.Tensor:
        h = h - gx.mean(h, axis=-1, keepdims=True)
        return h / gx.sqrt(gx.mean(h * h, axis=-1, keepdims=True) + 1e-5)

    x, key = gx.input("x", ("batch", 8, 16)), gx.input("key", (2,), "uint32")
    h = x
    for k in range(2):
        q, r, v = (normal(h) @ weight(16, 16) for _ in range(3))
        mixed = gx.nn.softmax(q @ gx.matrix_transpose(r) / 4, axis=-1) @ v
        h = h + gx.nn.dropout(mixed, gx.random.fold_in(key, k), 0.1)
        h = h + gx.nn.gelu(normal(h) @ weight(16, 64)) @ weight(64, 16)
    loss = gx.mean(h * h)
    updates = gx.optim.adam(params, gx.grad(loss, params))  # type: ignore[arg-type]
    return gx.function([x, key], loss, updates=updates, name="step", **options)  # type: ignore[arg-type]


def test_attention_with_dropout() -> None:
    plain, again = attention_step(), attention_step(pipeline=PIPELINE)
    assert growth(again) <= 0.9 * growth(plain)
    rng, key = np.random.default_rng(1), np.array([1, 2], np.uint32)
    for batch in (1, 3):
        x = rng.normal(size=(batch, 8, 16)).astype(np.float32)
        np.testing.assert_array_equal(plain(x, key), again(x, key))
    for name, value in plain.state.items():
        np.testing.assert_array_equal(again.state[name], value)


def test_a_predictor_is_unchanged() -> None:
    x = gx.input("x", ("batch", 8))
    g = gx.function([x], wave(x @ gx.constant(np.ones((8, 8), np.float32)))).graph
    assert recompute.run(g) is g


@given(g=graphs(), seed=st.integers(0, 100))
@settings(
    max_examples=100, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
def test_random_graphs(g: Graph, seed: int) -> None:
    if g.outputs:  # the smallest result as the loss, so that much is left for the backward part
        order = sorted(g.outputs, key=lambda v: v.type.ndim)
        g = collect(g.name, g.inputs, order)
    after = recompute.run(g)
    verify(after)
    assert str(parse(str(after))) == str(after)
    assert str(recompute.run(after)) == str(after)
    inputs = gf.random_inputs(g, seed, gf.sizes(g))
    try:
        wanted = gf.run(g, inputs)
    except (ExecutionError, ShapeError):
        return
    for w, v in zip(wanted, gf.run(after, inputs), strict=True):
        assert gf.same_bits(w, v)
