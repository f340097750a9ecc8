"""Where expressions of a nest lie whatever the data are, and what the code of exp is told of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.nests.intervals import ANY, interval
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.lowering import lower

X, Y = gx.input("x", ("n", 50)), gx.input("y", ("n", 50))
TOP = gx.max(X, axis=1, keepdims=True)
MODEST = {
    "softmax": gx.nn.softmax(X, axis=1), "of columns": gx.nn.softmax(X, axis=0),
    "log-softmax": gx.nn.log_softmax(X, axis=1), "less the maximum": gx.exp(X - TOP),
    "square": gx.exp(-X * X), "a factor twice": gx.exp(-0.5 * X * X),
    "distance": gx.exp(-((X - Y) ** 2) / 8.0),
    "squares": X * gx.exp(-gx.sum(X * X, axis=1, keepdims=True)),
    "absolute": gx.exp(-2 * gx.abs(X)), "sigmoid": gx.nn.sigmoid(X), "root": gx.exp(-gx.sqrt(X)),
    "softplus": gx.nn.softplus(X), "logaddexp": gx.logaddexp(X, Y),
    "clipped": gx.exp(gx.clip(X, -5, 60)), "minimum": gx.exp(gx.minimum(X, 3.0)),
    "bounded": gx.exp(20 * gx.sin(X) + 3 * gx.tanh(Y)), "exp": gx.exp(-gx.exp(X)),
    "positive divisor": gx.exp(-X * X / (1 + Y * Y)),
}
OTHERS = {
    "anything": gx.exp(X), "less another's maximum": gx.exp(Y - TOP), "product": gx.exp(-X * Y),
    "less the minimum": gx.exp(X - gx.min(X, axis=1, keepdims=True)), "cube": gx.exp(-X * X * X),
    "large": gx.exp(65 * gx.sin(X)), "divisor that may be -0": gx.exp(-X * X / gx.sqrt(Y)),
    "maximum": gx.exp(gx.maximum(X, 3.0)), "difference": gx.exp(X * X - Y * Y),
    "condition on another": gx.exp(gx.where(Y < 0, X, -X)),
    "an unordered condition": gx.exp(gx.where(gx.tanh(Y) < X, 0.0, X)),
    "0 for an infinite maximum": gx.logsumexp(X, axis=1),
    "overflows": gx.exp((gx.tanh(X) * 3e38 + 3e38) * 1e-38),
    "a product that does": gx.exp(gx.tanh(X) * 1e38 * 10.0 * 1e-38),
    "roundings of 128": gx.exp(64 * gx.sin(X) + 2.0**30 - 2.0**30),
}


def nests(out: gx.Tensor) -> list[Nest]:
    """The loop nests of a function."""
    kernels = [n for n in gx.function([X, Y], out).optimized.nodes if n.op.name == "fused"]
    return [lower(*(n.attrs[k] for k in ("body", "axes", "reduced", "outputs"))) for n in kernels]


@pytest.mark.parametrize("name", [*MODEST, *OTHERS])
def test_what_exp_is_told(name: str) -> None:
    out = {**MODEST, **OTHERS}[name]
    told = [dict(e.attrs[1]) for nest in nests(out) for e in nest.exprs
            if e.kind == "op" and e.name == "exp"]
    assert told[-1] == ({"modest": True} if name in MODEST else {})


OPS = (
    lambda a, b, c, d: -a, lambda a, b, c, d: gx.abs(a), lambda a, b, c, d: gx.tanh(a),
    lambda a, b, c, d: gx.sin(a), lambda a, b, c, d: gx.exp(a), lambda a, b, c, d: gx.expm1(a),
    lambda a, b, c, d: gx.sqrt(a), lambda a, b, c, d: a * a, lambda a, b, c, d: a * b * a,
    lambda a, b, c, d: a * b, lambda a, b, c, d: a + b, lambda a, b, c, d: a - b,
    lambda a, b, c, d: a / b, lambda a, b, c, d: gx.minimum(a, b),
    lambda a, b, c, d: gx.where(a < b, c, d), lambda a, b, c, d: gx.where(a <= b, a, -a),
    lambda a, b, c, d: a - gx.max(a, axis=1, keepdims=True),
    lambda a, b, c, d: a + gx.sum(a * a, axis=1, keepdims=True),
    lambda a, b, c, d: gx.min(a, axis=1, keepdims=True) - b,
)


def formula(rng: np.random.Generator) -> gx.Tensor:
    """A formula of some twelve ops; most results of which something is known."""
    known = [X, Y, gx.full_like(X, 0.0), gx.full_like(X, -1.5), gx.full_like(X, 3.0)]
    for _ in range(12):
        operands = (known[k] for k in rng.integers(len(known), size=4))
        known.append(OPS[rng.integers(len(OPS))](*operands))
    return known[-1]


def test_values_lie_where_they_are_said_to() -> None:
    rng = np.random.default_rng(11)
    special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, -1e30, 700.0]
    told = 0
    for _ in range(300):
        out = formula(rng) + 1.0
        (store,) = nests(out)[-1].stores
        least, most = interval(store.expr)
        told += (least, most) != ANY
        a, b = 2 * rng.normal(size=(2, 40, 50)).astype("f4")
        a[:30] = rng.choice(special, (30, 50))
        b[20:] = rng.choice(special, (20, 50))
        found = gx.function([X, Y], out, mode="interpret")(a, b)
        wrong = (found < least) | (found > most)
        assert not wrong.any(), (str(out), (least, most), found[wrong][:3])
    assert told > 100
