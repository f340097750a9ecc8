"""(d) Training steps of networks with two hidden layers: SGD and Adam, float32, several batches.

A call makes one step and returns its loss; the losses of the first three are compared.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..case import Arrays, Built, Call, Case
from .gradients import LEFT_OUT

NETS = {"64-128-128-10": (64, 128, 128, 10), "784-512-256-10": (784, 512, 256, 10)}
BATCHES = (1, 32, 128, 1024)
B1, B2, EPS = 0.9, 0.999, 1e-8
RATES = {"sgd": 1e-3, "adam": 1e-3}
STEPS = 3


def _arrays(layers: tuple[int, ...], batch: int) -> Any:
    """x, labels, and weights and biases in turn."""

    def make(rng: np.random.Generator) -> Arrays:
        arrays = [
            rng.normal(size=(batch, layers[0])).astype("float32"),
            rng.integers(0, layers[-1], batch),
        ]
        for n, m in pairwise(layers):
            arrays.append((rng.normal(size=(n, m)) / n**0.5).astype("float32"))
            arrays.append(np.zeros(m, "float32"))
        return tuple(arrays)

    return make


def by_hand(adam: bool, lr: float, x: Any, y: Any, *given: Any) -> Any:
    """The step in NumPy, updating its own copy of the parameters."""
    params = [p.copy() for p in given]
    first, second = ([np.zeros_like(p) for p in params] for _ in range(2))
    rows, kind, count = np.arange(len(y)), x.dtype.type, 0

    def step() -> Any:
        nonlocal count
        w1, b1, w2, b2, w3, b3 = params
        h1 = np.maximum(x @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        logits = h2 @ w3 + b3
        logits -= logits.max(1, keepdims=True)
        e = np.exp(logits)
        total = e.sum(1, keepdims=True)
        loss = (np.log(total[:, 0]) - logits[rows, y]).mean()
        d = e / total
        d[rows, y] -= 1
        d /= kind(len(y))
        d2 = (d @ w3.T) * (h2 > 0)
        d1 = (d2 @ w2.T) * (h1 > 0)
        grads = [x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d, d.sum(0)]
        if not adam:
            for p, g in zip(params, grads, strict=True):
                p -= kind(lr) * g
            return loss
        count += 1
        c1, c2 = 1 - B1**count, (1 - B2**count) ** 0.5
        for p, m, v, g in zip(params, first, second, grads, strict=True):
            m += kind(1 - B1) * (g - m)
            v *= kind(B2)
            v += kind(1 - B2) * g * g
            p -= kind(lr / c1) * m / (np.sqrt(v) / kind(c2) + kind(EPS))
        return loss

    return step


def in_numpy(adam: bool, lr: float, arrays: Arrays) -> Built:
    return Built(Call(by_hand(adam, lr, *arrays)))


def in_graphc(adam: bool, lr: float, arrays: Arrays, fastmath: bool) -> Any:
    """The function; its state is its own."""
    import graphc as gx

    data, _, *given = arrays
    x, y = gx.input("x", ("batch", data.shape[1])), gx.input("y", ("batch",), "int64")
    params = [gx.variable(p, f"p{k}") for k, p in enumerate(given)]
    h = x
    for k in range(0, len(params), 2):
        h = (gx.nn.relu(h) if k else h) @ params[k] + params[k + 1]
    loss = gx.nn.cross_entropy(h, y)
    grads = gx.grad(loss, params)
    updates = (gx.optim.adam if adam else gx.optim.sgd)(params, grads, lr=lr)
    return gx.function([x, y], loss, updates=updates, fastmath=fastmath, name="step")


def in_jax(adam: bool, lr: float, arrays: Arrays) -> Built:
    """State is donated, so that JAX updates it in place."""
    import jax
    import jax.numpy as jnp

    data, labels, *given = (jnp.asarray(a) for a in arrays)

    def loss_of(params: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = params
        h = jax.nn.relu(data @ w1 + b1)
        logits = jax.nn.relu(h @ w2 + b2) @ w3 + b3
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    def step(params: Any, first: Any, second: Any, count: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params)
        if not adam:
            params = [p - lr * g for p, g in zip(params, grads, strict=True)]
            return params, first, second, count, loss
        count = count + 1
        c1, c2 = 1 - B1**count, jnp.sqrt(1 - B2**count)
        first = [m + (1 - B1) * (g - m) for m, g in zip(first, grads, strict=True)]
        second = [B2 * v + (1 - B2) * g * g for v, g in zip(second, grads, strict=True)]
        params = [
            p - lr / c1 * m / (jnp.sqrt(v) / c2 + EPS)
            for p, m, v in zip(params, first, second, strict=True)
        ]
        return params, first, second, count, loss

    f = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    zeros = [[jnp.zeros_like(p) for p in given] if adam else [] for _ in range(2)]
    state = [[jnp.array(p) for p in given], *zeros, jnp.float32(0)]

    def run() -> Any:
        *state[:], loss = f(*state)
        return jax.block_until_ready(loss)

    return Built(Call(run))


def in_torch(peer: Any, adam: bool, lr: float, arrays: Arrays) -> Built:
    """A module and torch.optim; under torch.compile the loss's function is compiled."""
    import torch
    import torch.nn.functional as F

    torch.set_grad_enabled(True)
    data, labels, *given = (torch.from_numpy(a.copy()) for a in arrays)
    layers: list[Any] = []
    for k in range(0, len(given), 2):
        linear = torch.nn.Linear(*given[k].shape)
        with torch.no_grad():
            linear.weight.copy_(given[k].T)
            linear.bias.copy_(given[k + 1])
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    if adam:
        optimizer: Any = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, fused=True)
    loss_of = peer.wrap(lambda x, y: F.cross_entropy(model(x), y))

    def run() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(data, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(Call(run))


def in_pytensor(adam: bool, lr: float, arrays: Arrays) -> Built:
    import pytensor
    import pytensor.tensor as pt

    pytensor.config.floatX = "float32"
    data, labels, *given = arrays
    x, y = pt.matrix("x", dtype="float32"), pt.vector("y", dtype="int64")
    params = [pytensor.shared(p.copy(), borrow=True) for p in given]
    h = x
    for k in range(0, len(params), 2):
        h = (pt.maximum(h, 0) if k else h) @ params[k] + params[k + 1]
    picked = pt.special.log_softmax(h, axis=1)[pt.arange(y.shape[0]), y]
    loss = -pt.mean(picked)
    grads = pytensor.grad(loss, params)
    updates: list[Any] = []
    if not adam:
        updates = [(p, p - np.float32(lr) * g) for p, g in zip(params, grads, strict=True)]
    else:
        count = pytensor.shared(np.float32(0))
        t = count + np.float32(1)
        updates.append((count, t))
        c1, c2 = 1 - pt.pow(np.float32(B1), t), pt.sqrt(1 - pt.pow(np.float32(B2), t))
        for p, g in zip(params, grads, strict=True):
            m = pytensor.shared(np.zeros_like(p.get_value()))
            v = pytensor.shared(np.zeros_like(p.get_value()))
            m1 = m + np.float32(1 - B1) * (g - m)
            v1 = np.float32(B2) * v + np.float32(1 - B2) * g * g
            updates += [
                (m, m1), (v, v1),
                (p, p - np.float32(lr) / c1 * m1 / (pt.sqrt(v1) / c2 + np.float32(EPS))),
            ]
    f = pytensor.function([x, y], loss, updates=updates)
    f.trust_input = True
    return Built(Call(f, (data, labels)))


def case(net: str, optimizer: str, batch: int) -> Case:
    adam, lr = optimizer == "adam", RATES[optimizer]

    def reference(*wide: Any) -> Any:
        step = by_hand(adam, lr, *wide)
        return [step() for _ in range(STEPS)]

    def ours(peer: Any, case: Case, arrays: Arrays) -> Built:
        peer.function = in_graphc(adam, lr, arrays, peer.fastmath)
        return Built(Call(peer.function, arrays[:2]))

    def torch_step(peer: Any, case: Case, arrays: Arrays) -> Built:
        return in_torch(peer, adam, lr, arrays)

    return Case(
        f"d/mlp {net} {optimizer}/f32/{batch}", _arrays(NETS[net], batch), None, (),
        reference=reference, calls=STEPS, tolerance=2e-4,
        builders={
            "graphc": ours, "graphc-fastmath": ours, "torch": torch_step,
            "torch.compile": torch_step,
            "numpy": lambda peer, case, arrays: in_numpy(adam, lr, arrays),
            "jax": lambda peer, case, arrays: in_jax(adam, lr, arrays),
            "pytensor": lambda peer, case, arrays: in_pytensor(adam, lr, arrays),
        },
        skip=LEFT_OUT,
        threads=(1, 2) if batch >= 128 else (1,),
        compilers=batch == 32 or (net, optimizer, batch) == ("784-512-256-10", "adam", 1024),
        quick=(net, optimizer, batch) == ("64-128-128-10", "adam", 32),
    )


def cases() -> list[Case]:
    return [case(n, o, b) for n in NETS for o in RATES for b in BATCHES]
