"""(d) A transformer block, forward, and forward and backward: width 256, 4 heads, 128 positions,
a batch of 8; attention, layer norms before each half, a GELU network four times as wide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..case import Arrays, Case

WIDTH, HEADS, LENGTH, BATCH = 256, 4, 128, 8
EACH = WIDTH // HEADS
NAMES = ("x", "g1", "n1", "wq", "wk", "wv", "wo", "g2", "n2", "w1", "b1", "w2", "b2", "c")
SHAPES: dict[str, tuple[int, ...]] = {
    "x": (BATCH, LENGTH, WIDTH), "c": (BATCH, LENGTH, WIDTH),
    "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH),
    "w1": (WIDTH, 4 * WIDTH), "b1": (4 * WIDTH,), "w2": (4 * WIDTH, WIDTH), "b2": (WIDTH,),
    "g1": (WIDTH,), "n1": (WIDTH,), "g2": (WIDTH,), "n2": (WIDTH,),
}


def block(
    xp: Any, x: Any, g1: Any, n1: Any, wq: Any, wk: Any, wv: Any, wo: Any, g2: Any, n2: Any,
    w1: Any, b1: Any, w2: Any, b2: Any,
) -> Any:
    """x + attention(norm(x)), then + network(norm(...))."""
    h = xp.layer_norm(x, g1, n1)

    def heads(w: Any) -> Any:
        return xp.swap(xp.reshape(h @ w, (BATCH, LENGTH, HEADS, EACH)), 1, 2)

    mixed = xp.swap(xp.attention(heads(wq), heads(wk), heads(wv), 1 / math.sqrt(EACH)), 1, 2)
    x = x + xp.reshape(mixed, (BATCH, LENGTH, WIDTH)) @ wo
    h = xp.layer_norm(x, g2, n2)
    return x + xp.gelu(h @ w1 + b1) @ w2 + b2


def loss(xp: Any, *arrays: Any) -> Any:
    """A scalar of the block's result and constants."""
    return xp.sum(block(xp, *arrays[:-1]) * arrays[-1])


def by_hand(*arrays: Any) -> Any:
    """The loss and its gradient in NumPy."""
    from ..peers.numpy_peer import NumpyNames

    xp = NumpyNames()
    x, g1, n1, wq, wk, wv, wo, g2, n2, w1, b1, w2, b2, c = arrays
    scale = 1 / math.sqrt(EACH)

    def norm(x: Any, g: Any, b: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        rstd = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return centred * rstd * g + b, centred * rstd, rstd

    def norm_back(d: Any, z: Any, rstd: Any, g: Any) -> Any:
        dz = d * g
        dx = rstd * (dz - dz.mean(-1, keepdims=True) - z * (dz * z).mean(-1, keepdims=True))
        return dx, (d * z).sum((0, 1)), d.sum((0, 1))

    def split(a: Any) -> Any:
        return a.reshape(BATCH, LENGTH, HEADS, EACH).swapaxes(1, 2)

    def join(a: Any) -> Any:
        return a.swapaxes(1, 2).reshape(BATCH, LENGTH, WIDTH)

    def over(a: Any, d: Any) -> Any:
        """The gradient of a weight: a^T d over all positions."""
        return a.reshape(-1, a.shape[-1]).T @ d.reshape(-1, d.shape[-1])

    h1, z1, r1 = norm(x, g1, n1)
    q, k, v = split(h1 @ wq), split(h1 @ wk), split(h1 @ wv)
    p = xp.softmax(q @ k.swapaxes(-1, -2) * scale)
    mixed = join(p @ v)
    x2 = x + mixed @ wo
    h2, z2, r2 = norm(x2, g2, n2)
    a = h2 @ w1 + b1
    cdf = 0.5 * (1 + xp.erf(a * math.sqrt(0.5)))
    ga = a * cdf
    value = ((x2 + ga @ w2 + b2) * c).sum()

    da = (c @ w2.T) * (cdf + a * np.exp(-0.5 * a * a) / math.sqrt(2 * math.pi))
    dx2, dg2, dn2 = norm_back(da @ w1.T, z2, r2, g2)
    dx2 = dx2 + c
    dm = split(dx2 @ wo.T)
    dp = dm @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    dq, dk, dv = join(ds @ k), join(ds.swapaxes(-1, -2) @ q), join(p.swapaxes(-1, -2) @ dm)
    dx, dg1, dn1 = norm_back(dq @ wq.T + dk @ wk.T + dv @ wv.T, z1, r1, g1)
    return (
        value, dx + dx2, dg1, dn1, over(h1, dq), over(h1, dk), over(h1, dv), over(mixed, dx2),
        dg2, dn2, over(h2, da), da.sum((0, 1)), over(ga, c), c.sum((0, 1)),
    )


def _arrays(rng: np.random.Generator) -> Arrays:
    made = []
    for name in NAMES:
        shape = SHAPES[name]
        a = rng.normal(size=shape)
        if len(shape) == 2:
            a /= shape[0] ** 0.5
        made.append((a + 1 if name[0] == "g" else a).astype("float32"))
    return tuple(made)


def cases() -> list[Case]:
    dims = tuple(SHAPES[n] for n in NAMES)
    common = {"tolerance": 1e-3, "threads": (1, 2)}
    size = f"{BATCH}x{LENGTH}x{WIDTH}"
    left_out = {"numexpr": "no matrix products", "numba": "no loop was written"}
    return [
        Case(f"d/transformer/f32/{size}", lambda rng: _arrays(rng)[:-1], block, dims[:-1],
             skip=left_out, **common),
        Case(f"d/transformer_grad/f32/{size}", _arrays, loss, dims, wrt=tuple(range(13)),
             reference=by_hand, primal=f"d/transformer/f32/{size}",
             skip={**left_out, "onnxruntime": "no gradients"}, **common),
    ]
