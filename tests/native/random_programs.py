"""Programs put together at random of the operations that users write, on arrays of some hundred
elements: large enough that a graph is loops, rows are vectors and what is left of them.

    x = input (30, 40);  y = tanh(x[:, 1:] - x[:, :-1]);  z = softmax(concat([y, flip(y)])) ...

Each step draws one of STEPS and an operand among the last values, mostly. Values stay of moderate
size, so that what an order of additions rounds otherwise stays small.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gx

SHAPES = (
    (12,), (64,), (100,), (300,), (8, 16), (30, 40), (17, 33), (64, 64), (3, 50), (5, 5),
    (4, 6, 10), (2, 3, 4, 5),
)
MOST = 20_000  # elements of a value
FEW = 3_000    # of one that a step makes larger
UNARY: tuple[Callable[[Any], Any], ...] = (
    gx.tanh, gx.sin, gx.abs, gx.nn.relu, gx.nn.gelu, lambda v: v * 0.5 + 0.1,
    lambda v: v * v * 0.3, lambda v: gx.exp(-v * v), lambda v: gx.sqrt(v * v + 1),
    lambda v: 1 / (1 + v * v), lambda v: gx.where(v > 0, v, v * 0.1),
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda u, v: u + v, lambda u, v: u * v * 0.5, lambda u, v: u - 0.3 * v, gx.maximum,
    lambda u, v: u / (1 + v * v),
)


class Program:
    """Inputs, and the values made of them so far."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.dtype = self.r.choice(["float32", "float64"])
        shapes = self.r.choices(SHAPES, k=self.r.choice([1, 2, 3]))
        self.inputs = [gx.input(f"x{k}", s, self.dtype) for k, s in enumerate(shapes)]
        self.values = list(self.inputs)
        for _ in range(self.r.choice([6, 12, 25, 50])):
            v = self.step()
            if v.size <= MOST:
                self.values.append(v)

    def outputs(self) -> list[gx.Tensor]:
        """Some of the values; or a loss of two of them, and its gradients."""
        last, others = self.values[-1], self.r.choices(self.values, k=self.r.randrange(3))
        if self.r.random() < 0.4:
            return [last, *others]
        loss = gx.mean(last * last) + gx.mean(others[0] if others else last)
        return [loss, *gx.grad(loss, self.inputs, unconnected="zero")]

    def arrays(self) -> list[np.ndarray]:
        """What to call it with."""
        rng = np.random.default_rng(self.r.randrange(1 << 30))
        return [(rng.normal(size=x.shape) * 0.5).astype(self.dtype) for x in self.inputs]

    def step(self) -> gx.Tensor:
        """One more value."""
        r = self.r
        x = r.choice(self.values[-4:] if r.random() < 0.7 else self.values)
        if not x.ndim:
            return r.choice(UNARY)(x)
        axis = r.randrange(x.ndim)
        return r.choice(STEPS)(self, x, axis, x.shape[axis])


Step = Callable[[Program, gx.Tensor, int, int], gx.Tensor]


def along(axis: int, part: Any) -> tuple[Any, ...]:
    """The index of a part of an axis."""
    return (*[slice(None)] * axis, part, ...)


def unary(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    return p.r.choice(UNARY)(x)


def binary(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    return p.r.choice(BINARY)(x, p.r.choice([v for v in p.values if v.shape == x.shape]))


def part(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    low, high = p.r.randrange(n // 2 + 1), p.r.randrange(n // 2 + 1)
    return x[along(axis, slice(low, max(low + 1, n - high)))]


def strided(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    return x[along(axis, slice(None, None, p.r.choice([2, 3, -1, -2])))]


def differences(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    if n == 1:
        return -x
    return x[along(axis, slice(1, None))] - x[along(axis, slice(None, -1))]


def joined(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    if x.size > FEW:
        return x * 0.9
    other = x[along(axis, slice(0, max(1, n // 2)))]
    return gx.concat(p.r.choice([[x, gx.sin(other)], [other, x * 0.3]]), axis=axis)


def stacked(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    if x.size > FEW or x.ndim > 3:
        return x * 0.9
    parts = p.r.choice([[x, x * x * 0.2], [x, gx.flip(x, axis=axis), -x]])
    return gx.stack(parts, axis=p.r.randrange(x.ndim + 1))


def padded(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    width = [(0, 0)] * x.ndim
    width[axis] = p.r.randrange(3), p.r.randrange(3)
    return gx.pad(x, tuple(width))


def moved(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    return p.r.choice([
        lambda: gx.flip(x, axis=axis), lambda: gx.roll(x, p.r.choice([1, -1, 2]), axis=axis),
        lambda: gx.permute_dims(x, p.r.sample(range(x.ndim), x.ndim)),
        lambda: gx.take(x, np.array(p.r.choices(range(n), k=3)), axis=axis),
    ])()


def reshaped(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    for k in (2, 3, 5):
        if n % k == 0 and x.ndim < 4:
            return gx.reshape(x, (*before, k, n // k, *after))
    return gx.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) if x.ndim > 1 else x


def repeated(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    return gx.repeat(x, p.r.choice([2, 3]), axis=axis) if x.size <= FEW else x * 0.9


def reduced(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    f = p.r.choice([gx.mean, gx.max, gx.min, lambda v, **k: gx.sum(v, **k) / n])
    if p.r.random() < 0.4:
        return x - f(x, axis=axis, keepdims=True)
    return f(x, axis=axis) * 0.5 if x.ndim > 1 else gx.cumsum(x) / n


def normalised(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    if p.r.random() < 0.5:
        return gx.nn.softmax(x, axis=axis)
    return x / gx.sqrt(1 + gx.sum(x * x, axis=axis, keepdims=True))


def scanned(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    return gx.cumsum(x, axis=axis) * 0.3


def updated(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    place = x.at[along(axis, p.r.randrange(n))]
    return place.set(0.25) if p.r.random() < 0.5 else place.add(0.5)


def product(p: Program, x: gx.Tensor, axis: int, n: int) -> gx.Tensor:
    if x.ndim < 2 or x.shape[-1] > 70:
        return x * 0.9
    fitting = [v for v in p.values if v.ndim == 2 and v.shape[0] == x.shape[-1]]
    other = p.r.choice(fitting) if fitting else gx.matrix_transpose(x)
    return gx.tanh(x @ other * 0.2)


STEPS: tuple[Step, ...] = (
    unary, unary, unary, binary, binary, part, strided, differences, joined, stacked, padded,
    moved, moved, reshaped, repeated, reduced, reduced, normalised, scanned, updated, product,
)
