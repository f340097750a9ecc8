"""How many kernels the surface compiles to: one where a row stays in cache."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

X, Y, CT = gx.input("x", ("n", 10)), gx.input("y", ("n",), "int64"), gx.input("ct", ("n", 10))
W, B = gx.variable(np.ones(10, "f4"), "w"), gx.variable(np.zeros(10, "f4"), "b")

ROWS = {
    "softmax": gx.nn.softmax(X),
    "log_softmax": gx.nn.log_softmax(X),
    "layer_norm": gx.nn.layer_norm(X, W, B),
    "rms_norm": gx.nn.rms_norm(X, W),
    "gelu": gx.nn.gelu(X),
}
LOSS = gx.nn.cross_entropy(X, Y)
CASES = (
    ROWS
    | {f"gradient of {name}": gx.vjp(t, X, CT) for name, t in ROWS.items()}
    | {"cross_entropy": LOSS, "gradient of cross_entropy": gx.grad(LOSS, X),
       "both": [LOSS, gx.grad(LOSS, X)]}
)


def kernels(inputs, outputs, updates=None):
    fn = gx.function(inputs, outputs, updates=updates)
    fn.compile()
    return len(fn.program.kernels)


@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name):
    assert kernels([X, Y, CT], CASES[name]) == 1


def test_a_chain_with_broadcasts_is_one_kernel():
    t = X
    for i in range(10):
        t = gx.sin(t) * W + (i + 0.5)
    assert kernels([X], t) == 1


def test_sgd_needs_a_kernel_a_parameter():
    sizes = [(30, 400), 5000, (7, 800)]
    params = [gx.variable(np.ones(s, "f4"), f"p{i}") for i, s in enumerate(sizes)]
    grads = [gx.input(f"g{i}", p.shape) for i, p in enumerate(params)]
    assert kernels(grads, None, gx.optim.sgd(params, grads, momentum=0.9)) == 3
    assert kernels(grads, None, gx.optim.rmsprop(params, grads)) == 3
