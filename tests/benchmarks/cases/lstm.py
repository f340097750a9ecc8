"""(d) An LSTM layer over a batch of sequences, forward, and forward and backward.

32 steps of 32 sequences, 64 features, 128 units; the sum of the outputs weighted is what is
differentiated. JAX scans, PyTorch has a layer of its own, the others write the steps in a loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Arrays, Built, Call, Case

STEPS, BATCH, FEATURES, UNITS = 32, 32, 64, 128
SHAPES = (
    (STEPS, BATCH, FEATURES), (FEATURES, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,),
    (STEPS, BATCH, UNITS),
)


def sigmoid(xp: Any, x: Any) -> Any:
    return 1.0 / (1.0 + xp.exp(-x))


def step(xp: Any, x: Any, h: Any, c: Any, wx: Any, wh: Any, b: Any) -> tuple[Any, Any]:
    """One step's output and cell: gates i, f, g, o in PyTorch's order."""
    z = x @ wx + h @ wh + b
    i, f, g, o = (z[:, k * UNITS:(k + 1) * UNITS] for k in range(4))
    c = sigmoid(xp, f) * c + sigmoid(xp, i) * xp.tanh(g)
    return sigmoid(xp, o) * xp.tanh(c), c


def last(xp: Any, x: Any, wx: Any, wh: Any, b: Any) -> Any:
    """The last step's output."""
    h = c = (x[0] @ wx)[:, :UNITS] * 0.0
    for t in range(STEPS):
        h, c = step(xp, x[t], h, c, wx, wh, b)
    return h


def loss(xp: Any, x: Any, wx: Any, wh: Any, b: Any, weights: Any) -> Any:
    """All steps' outputs, weighted and summed."""
    h = c = (x[0] @ wx)[:, :UNITS] * 0.0
    total = 0.0
    for t in range(STEPS):
        h, c = step(xp, x[t], h, c, wx, wh, b)
        total = total + xp.sum(h * weights[t])
    return total


def by_hand(x: Any, wx: Any, wh: Any, b: Any, weights: Any) -> tuple[Any, ...]:
    """The loss and its gradient in NumPy: back through time."""
    from ..peers.numpy_peer import NumpyNames

    xp = NumpyNames()
    h = c = np.zeros((x.shape[1], UNITS), x.dtype)
    kept, value = [], 0.0
    for t in range(STEPS):
        z = x[t] @ wx + h @ wh + b
        i, f, o = (sigmoid(xp, z[:, k * UNITS:(k + 1) * UNITS]) for k in (0, 1, 3))
        g = np.tanh(z[:, 2 * UNITS:3 * UNITS])
        before, c_before = h, c
        c = f * c + i * g
        s = np.tanh(c)
        h = o * s
        kept.append((i, f, g, o, s, before, c_before))
        value += (h * weights[t]).sum()
    dx, dwx, dwh, db = np.empty_like(x), np.zeros_like(wx), np.zeros_like(wh), np.zeros_like(b)
    dh, dc = np.zeros_like(h), np.zeros_like(c)
    for t in reversed(range(STEPS)):
        i, f, g, o, s, before, c_before = kept[t]
        dh = dh + weights[t]
        dc = dc + dh * o * (1 - s * s)
        dz = np.concatenate([
            dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g * g),
            dh * s * o * (1 - o),
        ], 1)
        dc = dc * f
        dx[t], dh = dz @ wx.T, dz @ wh.T
        dwx += x[t].T @ dz
        dwh += before.T @ dz
        db += dz.sum(0)
    return np.asarray(value), dx, dwx, dwh, db


def in_numpy(peer: Any, case: Case, arrays: Arrays) -> Built:
    return Built(Call(by_hand, arrays))


def in_jax(peer: Any, case: Case, arrays: Arrays) -> Built:
    import jax
    import jax.numpy as jnp

    from ..peers.jax_peer import JaxNames

    def outputs(x: Any, wx: Any, wh: Any, b: Any) -> Any:
        def body(state: Any, x: Any) -> Any:
            h, c = step(JaxNames(), x, *state, wx, wh, b)
            return (h, c), h

        zero = jnp.zeros((BATCH, UNITS), x.dtype)
        return jax.lax.scan(body, (zero, zero), x)

    if not case.wrt:
        return peer.jitted(lambda *a: outputs(*a)[0][0], arrays)
    total = jax.value_and_grad(lambda *a: (outputs(*a[:4])[1] * a[4]).sum(), argnums=case.wrt)
    return peer.jitted(total, arrays)


def in_torch(peer: Any, case: Case, arrays: Arrays) -> Built:
    import torch

    layer = torch.nn.LSTM(FEATURES, UNITS)
    with torch.no_grad():
        for into, a in ((layer.weight_ih_l0, arrays[1].T), (layer.weight_hh_l0, arrays[2].T),
                        (layer.bias_ih_l0, arrays[3]), (layer.bias_hh_l0, 0 * arrays[3])):
            into.copy_(torch.from_numpy(a.copy()))
    torch.set_grad_enabled(bool(case.wrt))
    x = torch.from_numpy(arrays[0].copy()).requires_grad_(bool(case.wrt))
    if not case.wrt:
        return Built(Call(lambda x: layer(x)[1][0][0], (x,)))
    weights = torch.from_numpy(arrays[4].copy())
    wrt = [x, layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0]

    def both(x: Any, weights: Any) -> Any:
        value = (layer(x)[0] * weights).sum()
        dx, dwx, dwh, db = torch.autograd.grad(value, wrt)
        return value.detach(), dx, dwx.T, dwh.T, db

    return Built(Call(both, (x, weights)))


def _arrays(rng: np.random.Generator) -> Arrays:
    scale = (1.0, FEATURES**-0.5, UNITS**-0.5, 1.0, 1.0)
    return tuple(
        (rng.normal(size=shape) * s).astype("float32")
        for shape, s in zip(SHAPES, scale, strict=True)
    )


def cases() -> list[Case]:
    size = f"{STEPS}x{BATCH}x{UNITS}"
    left_out = {"numexpr": "no matrix products", "numba": "no loop was written"}
    builders = {"jax": in_jax, "torch": in_torch}
    common = {"tolerance": 1e-3, "threads": (1, 2), "compilers": False}
    return [
        Case(f"d/lstm/f32/{size}", lambda rng: _arrays(rng)[:-1], last, SHAPES[:-1],
             builders=builders, skip=left_out, **common),
        Case(f"d/lstm_grad/f32/{size}", _arrays, loss, SHAPES, wrt=(0, 1, 2, 3), reference=by_hand,
             primal=f"d/lstm/f32/{size}", builders={**builders, "numpy": in_numpy},
             skip={**left_out, "onnxruntime": "no gradients"}, **common),
    ]
