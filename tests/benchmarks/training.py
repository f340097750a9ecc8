"""A training step against NumPy and, where installed, JAX: python tests/benchmarks/training.py

The network of examples/digits.py (64-128-128-10, Adam, float32) on batches of 32 and 256. Every
competitor does the same arithmetic; NumPy's is written out by hand with preallocation where NumPy
offers it. Printed are microseconds a step, best of many runs.
"""

from __future__ import annotations

import os
import pathlib
import sys
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))

import digits

B1, B2, EPS, LR = 0.9, 0.999, 1e-8, 1e-3


def microseconds(step: Callable[[], Any], seconds: float = 0.5) -> float:
    """Best time of one step."""
    timer = timeit.Timer(step)
    timer.timeit(50)
    number = 20
    repeat = max(5, int(seconds / max(1e-6, timer.timeit(number))))
    return min(timer.repeat(repeat, number)) / number * 1e6


def in_numpy(x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    """The same step, forward and back, by hand."""
    params = [p.value for p in digits.params]
    first = [np.zeros_like(p) for p in params]
    second = [np.zeros_like(p) for p in params]
    steps = [0]
    rows = np.arange(len(y))

    def step() -> float:
        w1, b1, w2, b2, w3, b3 = params
        scaled = x / np.float32(16)
        h1 = np.maximum(scaled @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        logits = h2 @ w3 + b3
        logits -= logits.max(1, keepdims=True)
        e = np.exp(logits)
        total = e.sum(1, keepdims=True)
        loss = float((np.log(total[:, 0]) - logits[rows, y]).mean())
        d = e / total
        d[rows, y] -= 1
        d /= np.float32(len(y))
        d2 = (d @ w3.T) * (h2 > 0)
        d1 = (d2 @ w2.T) * (h1 > 0)
        grads = [scaled.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d, d.sum(0)]
        steps[0] += 1
        c1, c2 = 1 - B1 ** steps[0], (1 - B2 ** steps[0]) ** 0.5
        for p, m, v, g in zip(params, first, second, grads, strict=True):
            m += np.float32(1 - B1) * (g - m)
            v *= np.float32(B2)
            v += np.float32(1 - B2) * g * g
            p -= np.float32(LR / c1) * m / (np.sqrt(v) / np.float32(c2) + np.float32(EPS))
        return loss

    return step


def in_jax(x: np.ndarray, y: np.ndarray) -> Callable[[], Any] | None:
    """The same step under jax.jit with donated state, or None where JAX is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None

    def loss_of(params: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = params
        h = jax.nn.relu(x / 16 @ w1 + b1)
        logits = jax.nn.relu(h @ w2 + b2) @ w3 + b3
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def step(params: Any, first: Any, second: Any, count: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params)
        count = count + 1
        c1, c2 = 1 - B1**count, jnp.sqrt(1 - B2**count)
        first = [m + (1 - B1) * (g - m) for m, g in zip(first, grads, strict=True)]
        second = [B2 * v + (1 - B2) * g * g for v, g in zip(second, grads, strict=True)]
        params = [
            p - LR / c1 * m / (jnp.sqrt(v) / c2 + EPS)
            for p, m, v in zip(params, first, second, strict=True)
        ]
        return params, first, second, count, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    params = [jnp.asarray(p.value) for p in digits.params]
    state = [params, [p * 0 for p in params], [p * 0 for p in params], jnp.float32(0)]

    def run() -> float:
        *state[:], loss = compiled(*state)
        return float(loss)

    return run


def main() -> None:
    print(f"{os.cpu_count()} CPUs")
    rng = np.random.default_rng(0)
    for batch in (32, 256):
        x = rng.integers(0, 17, (batch, 64)).astype("float32")
        y = rng.integers(0, 10, batch)
        by_hand, by_jax = in_numpy(x, y), in_jax(x, y)
        first = digits.step.with_state()(x, y)["loss"], by_hand()
        np.testing.assert_allclose(*first, rtol=1e-4)
        ours = microseconds(lambda x=x, y=y: digits.step(x, y))
        line = f"batch {batch:4}: graphc {ours:7.1f} us"
        for name, other in (("NumPy", by_hand), ("JAX", by_jax)):
            if other is not None:
                t = microseconds(other)
                line += f", {name} {t:7.1f} us ({t / ours:.1f}x)"
        print(line)


if __name__ == "__main__":
    main()
