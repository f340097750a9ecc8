"""Optimisers: sgd, adam, adamw, rmsprop, with PyTorch's formulas and defaults.

    grads = gx.grad(loss, params)
    step = gx.function([x, y], loss, updates=gx.optim.adam(params, grads, lr=1e-3))

Each returns pairs (variable, new value) for `updates=`. State lives in variables of its own, named
after the parameter: w.adam_m, w.adam_v. The learning rate may be a Tensor. Of f16 and bf16 a step
is computed in f32, and what it leaves is rounded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphc import elementwise as ew
from graphc import prim, reals, reductions
from graphc.convert import ArrayLike, as_float, as_tensor, cast, listed
from graphc.declare import Variable, variable
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.refused import module_hooks
from graphc.tensor import Tensor

__all__ = ["adam", "adamw", "clip_grad_norm", "rmsprop", "sgd"]

if not TYPE_CHECKING:  # types are checked by what is there
    __getattr__, __dir__ = module_hooks("optim", __all__)


Updates: TypeAlias = list[tuple[Variable, Tensor]]


def _pairs(op: str, params: Any, grads: Any) -> list[tuple[Variable, Tensor]]:
    ps, gs = listed(op, params), listed(op, grads)
    if len(ps) != len(gs):
        raise ArgumentError(
            f"{op}: needs one gradient for each parameter, got {len(ps)} parameters and "
            f"{len(gs)} gradients", user_loc(),
        )
    for p, g in zip(ps, gs, strict=True):
        if not isinstance(p, Variable):
            raise UsageError(
                f"{op}: parameters must be variables (gx.variable), got {p!r}", user_loc()
            )
        if not isinstance(g, Tensor) or g.type is not p.type:
            got, advice = repr(g), ""
            if isinstance(g, Tensor):
                got = str(g.type)
                if g.type.shape == p.type.shape:
                    advice = f"; cast it with .astype({p.dtype.long!r})"
            raise ShapeError(
                f"{op}: the gradient of {p.name!r} must be {p.type}, got {got}{advice}", user_loc()
            )
    return list(zip(ps, gs, strict=True))


def _check(op: str, **values: tuple[Any, float, float]) -> None:
    for name, (value, low, high) in values.items():
        if isinstance(value, (int, float)) and not low <= value <= high:
            bound = f"in [{low}, {high})" if math.isfinite(high) else f">= {low}"
            raise ArgumentError(f"{op}: {name} must be {bound}, got {value}", user_loc())


def _like(p: Variable, suffix: str) -> Variable:
    """A zero variable of the parameter's type."""
    return variable(np.zeros(p.state.type.shape, p.dtype.numpy), f"{p.name}.{suffix}")


def _wide(t: Tensor) -> Tensor:
    """16-bit floats as f32: of f16, the square of 300 is infinite and eps is 0."""
    return cast(t, t.dtype.compute)


def _set(state: Variable, new: Tensor) -> tuple[Variable, Tensor]:
    """The update of a variable, rounded to its dtype."""
    return state, cast(new, state.dtype)


def _rate(lr: ArrayLike, p: Tensor) -> Tensor:
    t = as_tensor(lr, p.dtype)
    if t.ndim:
        raise ShapeError(f"lr: must be a scalar, got {t.type}", user_loc())
    return t


def _lerp(a: Tensor, b: Tensor, weight: float) -> Tensor:
    """a + weight * (b - a)"""
    return ew.add(a, ew.multiply(ew.subtract(b, a), weight))


def _decayed(g: Tensor, p: Tensor, weight_decay: float) -> Tensor:
    return ew.add(g, ew.multiply(p, weight_decay)) if weight_decay else g


def _counter(name: str) -> tuple[Variable, Tensor]:
    """A step counter, and its value in this step (1 in the first)."""
    count = variable(np.int64(0), name)
    return count, ew.add(count, 1)


def sgd(
    params: Sequence[Variable], grads: Sequence[Tensor], lr: ArrayLike = 1e-3, *,
    momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Updates:
    """p -= lr * d, where d is the gradient, or with momentum its running sum
    b = momentum * b + (1 - dampening) * g (b = g at first), or g + momentum * b (Nesterov).
    ArgumentError unless each variable has its gradient, ShapeError for one of another type.

        updates = gx.optim.sgd([w], [gx.grad(loss, w)], lr=0.1, momentum=0.9)
    """
    pairs = _pairs("sgd", params, grads)
    _check("sgd", lr=(lr, 0, math.inf), momentum=(momentum, 0, math.inf),
           weight_decay=(weight_decay, 0, math.inf))
    if nesterov and (momentum <= 0 or dampening != 0):
        raise ArgumentError("sgd: Nesterov needs momentum > 0 and dampening = 0", user_loc())
    updates: Updates = []
    first: Tensor | None = None
    if momentum and dampening:
        count, step = _counter(f"{pairs[0][0].name}.sgd_step" if pairs else "sgd_step")
        updates.append((count, step))
        first = ew.equal(step, 1)
    for p, g in pairs:
        w = _wide(p)
        d = _decayed(_wide(g), w, weight_decay)
        if momentum:
            buffer = _like(p, "sgd_momentum")
            taken = ew.multiply(d, 1.0 - dampening) if dampening else d
            b = ew.add(ew.multiply(_wide(buffer), momentum), taken)
            if first is not None:
                b = ew.where(first, d, b)
            updates.append(_set(buffer, b))
            d = ew.add(d, ew.multiply(b, momentum)) if nesterov else b
        updates.append(_set(p, ew.subtract(w, ew.multiply(_rate(lr, w), d))))
    return updates


def adam(
    params: Sequence[Variable], grads: Sequence[Tensor], lr: ArrayLike = 1e-3, *,
    betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
) -> Updates:
    """p -= lr / (1 - b1**t) * m / (sqrt(v) / sqrt(1 - b2**t) + eps), where m and v are running
    means of the gradient and its square (Kingma and Ba, 2015); weight decay adds to the gradient.
    Both sides of the quotient are multiplied by sqrt(1 - b2**t). Errors as of `sgd`.

        count = gx.variable(0, "count")    # a learning rate that falls
        rate = 1e-3 * 0.99 ** (count / 100)
        updates = gx.optim.adam([w], [gx.grad(loss, w)], lr=rate) + [(count, count + 1)]
    """
    return _adam("adam", params, grads, lr, betas, eps, weight_decay, decoupled=False)


def adamw(
    params: Sequence[Variable], grads: Sequence[Tensor], lr: ArrayLike = 1e-3, *,
    betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
) -> Updates:
    """`adam` with decoupled weight decay: p *= 1 - lr * weight_decay before the step
    (Loshchilov and Hutter, 2019).
    """
    return _adam("adamw", params, grads, lr, betas, eps, weight_decay, decoupled=True)


def _adam(
    op: str, params: Sequence[Variable], grads: Sequence[Tensor], lr: ArrayLike,
    betas: tuple[float, float], eps: float, weight_decay: float, decoupled: bool,
) -> Updates:
    pairs = _pairs(op, params, grads)
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise UsageError(f"{op}: betas must be two numbers, got {betas!r}", user_loc())
    b1, b2 = betas
    below = math.nextafter(1.0, 0.0)
    _check(op, lr=(lr, 0, math.inf), beta1=(b1, 0, below), beta2=(b2, 0, below),
           eps=(eps, 0, math.inf), weight_decay=(weight_decay, 0, math.inf))
    if not pairs:
        return []
    count, step = _counter(f"{pairs[0][0].name}.{op}_step")
    updates: Updates = [(count, step)]
    for p, g in pairs:
        m, v = _like(p, f"{op}_m"), _like(p, f"{op}_v")
        w, d = _wide(p), _wide(g)
        rate = _rate(lr, w)
        if decoupled:
            start = ew.multiply(w, ew.subtract(1.0, ew.multiply(rate, weight_decay)))
        else:
            start, d = w, _decayed(d, w, weight_decay)
        m1 = _lerp(_wide(m), d, 1.0 - b1)
        v1 = ew.add(ew.multiply(_wide(v), b2), ew.multiply(ew.square(d), 1.0 - b2))
        c1, c2 = _correction(b1, count, w), _correction(b2, count, w)
        root = reals.sqrt(c2)  # one number: divided by it, every element would take two divisions
        size = ew.divide(ew.multiply(rate, root), c1)
        new = ew.subtract(
            start, ew.multiply(size, ew.divide(m1, ew.add(reals.sqrt(v1), ew.multiply(root, eps))))
        )
        updates += [_set(p, new), _set(m, m1), _set(v, v1)]
    return updates


def _correction(beta: float, count: Tensor, p: Tensor) -> Tensor:
    """1 - beta**t for t = count + 1, without cancellation: -expm1(t * log(beta)).

    From the count and not from its new value, so that no parameter waits for that.
    """
    if beta == 0.0:
        return as_tensor(1.0, p.dtype)
    t = ew.add(cast(count, p.dtype), 1.0)
    return prim.neg(prim.expm1(ew.multiply(t, math.log(beta))))


def rmsprop(
    params: Sequence[Variable], grads: Sequence[Tensor], lr: ArrayLike = 1e-2, *,
    alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
    centered: bool = False,
) -> Updates:
    """p -= lr * g / (sqrt(v) + eps), where v is the running mean of g**2, minus the square of
    that of g if `centered`; with momentum, p -= lr * b and b = momentum * b + g / (sqrt(v) + eps).
    """
    pairs = _pairs("rmsprop", params, grads)
    _check("rmsprop", lr=(lr, 0, math.inf), alpha=(alpha, 0, math.inf), eps=(eps, 0, math.inf),
           momentum=(momentum, 0, math.inf), weight_decay=(weight_decay, 0, math.inf))
    updates: Updates = []
    for p, g in pairs:
        w = _wide(p)
        d = _decayed(_wide(g), w, weight_decay)
        v = _like(p, "rmsprop_v")
        v1 = ew.add(ew.multiply(_wide(v), alpha), ew.multiply(ew.square(d), 1.0 - alpha))
        updates.append(_set(v, v1))
        spread = v1
        if centered:
            a = _like(p, "rmsprop_mean")
            a1 = _lerp(_wide(a), d, 1.0 - alpha)
            updates.append(_set(a, a1))
            spread = ew.subtract(v1, ew.square(a1))
        d = ew.divide(d, ew.add(reals.sqrt(spread), eps))
        if momentum:
            buffer = _like(p, "rmsprop_momentum")
            d = ew.add(ew.multiply(_wide(buffer), momentum), d)
            updates.append(_set(buffer, d))
        updates.append(_set(p, ew.subtract(w, ew.multiply(_rate(lr, w), d))))
    return updates


def clip_grad_norm(grads: Sequence[Tensor], max_norm: ArrayLike) -> tuple[list[Tensor], Tensor]:
    """The gradients, scaled down together to a norm of at most max_norm, and the norm they had.

        grads, norm = gx.optim.clip_grad_norm(gx.grad(loss, params), 1.0)

    The factor is min(1, max_norm / (norm + 1e-6)), as PyTorch has it.
    """
    gs = [as_float(g) for g in listed("clip_grad_norm", grads)]
    if not gs:
        raise ArgumentError("clip_grad_norm: takes at least one gradient", user_loc())
    squares = [reductions.sum(ew.square(_wide(g))) for g in gs]
    norm = reals.sqrt(functools.reduce(ew.add, squares))
    limit = as_tensor(max_norm, norm.dtype)
    if limit.ndim:
        raise ShapeError(f"clip_grad_norm: max_norm must be a scalar, got {limit.type}", user_loc())
    factor = ew.minimum(ew.divide(limit, ew.add(norm, 1e-6)), 1.0)
    scaled = [
        cast(ew.multiply(_wide(g), cast(factor, g.dtype.compute)), g.dtype) for g in gs
    ]
    return scaled, norm
