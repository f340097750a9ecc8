"""Activations of gx.nn, stable over the whole range of their dtype."""

from __future__ import annotations

import math

from graphc import elementwise as ew
from graphc import prim, reals
from graphc import reductions as red
from graphc.composite import composite
from graphc.convert import ArrayLike, as_float, as_tensor, axis_of, cast, require_elements
from graphc.errors import ArgumentError, user_loc
from graphc.tensor import Tensor

__all__ = [
    "elu", "gelu", "leaky_relu", "log_sigmoid", "log_softmax", "relu", "sigmoid", "silu",
    "softmax", "softplus", "softsign",
]


def relu(x: ArrayLike) -> Tensor:
    """max(x, 0); the derivative at 0 is 0, and NaN stays."""
    t = as_tensor(x)
    return ew.where(ew.less_equal(t, 0), 0, t)


def leaky_relu(x: ArrayLike, negative_slope: float = 0.01) -> Tensor:
    """x above 0, negative_slope * x below."""
    t = as_float(x)
    return ew.where(ew.greater(t, 0.0), t, ew.multiply(t, negative_slope))


def elu(x: ArrayLike, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (exp(x) - 1) below."""
    t = as_float(x)
    positive = ew.greater(t, 0.0)
    below = ew.where(positive, 0.0, t)  # keeps the unused branch, and its gradient, finite
    return ew.where(positive, t, ew.multiply(reals.expm1(below), alpha))


def sigmoid(x: ArrayLike) -> Tensor:
    """1 / (1 + exp(-x)), with full relative accuracy on both sides."""
    t = as_float(x)
    positive = ew.greater_equal(t, 0.0)
    e = reals.exp(ew.where(positive, ew.negative(t), t))
    return ew.divide(ew.where(positive, 1.0, e), ew.add(e, 1.0))


def silu(x: ArrayLike) -> Tensor:
    """x * sigmoid(x), also called swish."""
    t = as_float(x)
    wide = cast(t, t.dtype.compute)
    return cast(ew.multiply(wide, sigmoid(wide)), t.dtype)


def softplus(x: ArrayLike, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, without overflow."""
    of = as_float(x)
    t = cast(of, of.dtype.compute)
    z = t if beta == 1.0 else ew.multiply(t, beta)  # may overflow, where only its sign counts
    positive = ew.greater(z, 0.0)
    tail = reals.log1p(reals.exp(ew.where(positive, ew.negative(z), z)))
    y = ew.add(ew.where(positive, t, 0.0), tail if beta == 1.0 else ew.divide(tail, beta))
    return cast(y, of.dtype)


def log_sigmoid(x: ArrayLike) -> Tensor:
    """log(sigmoid(x)), without underflow."""
    return ew.negative(softplus(ew.negative(as_float(x))))


def softsign(x: ArrayLike) -> Tensor:
    """x / (1 + |x|)"""
    t = as_float(x)
    sign = ew.sign(t)
    # sign - sign / (1 + |x|) where the slope, 1 / (1 + |x|)**2, would cancel
    far = ew.greater(ew.abs(t), 1.0)
    quotient = ew.divide(ew.where(far, ew.negative(sign), t), ew.add(ew.abs(t), 1.0))
    return ew.add(ew.where(far, sign, -0.0), quotient)


def gelu(x: ArrayLike, approximate: str = "none") -> Tensor:
    """x * P(Z <= x) for a standard normal Z; "tanh" is the usual approximation.

    Relatively accurate far below 0 too, where 1 + erf(x / sqrt(2)) would cancel.
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}", user_loc()
        )
    return (_gelu if approximate == "none" else _gelu_tanh)(as_float(x))


@composite(name="gelu")
def _gelu(x: Tensor) -> Tensor:
    t = cast(x, x.dtype.compute)
    near = ew.where(ew.less(t, -40.0), -40.0, t)  # not -inf * 0, and a slope without ties
    return cast(ew.multiply(near, prim.normal_cdf(t)), x.dtype)


@composite(name="gelu_tanh")
def _gelu_tanh(x: Tensor) -> Tensor:
    # 0.5 (1 + tanh(u)) = sigmoid(2u), which does not cancel for negative u.
    t = cast(x, x.dtype.compute)
    # Beyond 22 it is t or 0 in f64 too; no cube may overflow, nor may -inf meet 0.
    t = ew.where(ew.less(t, -22.0), -22.0, t)
    u = ew.where(ew.greater(t, 22.0), 22.0, t)
    cubic = ew.add(u, ew.multiply(ew.pow(u, 3), 0.044715))
    y = ew.multiply(t, sigmoid(ew.multiply(cubic, 2.0 * math.sqrt(2.0 / math.pi))))
    return cast(y, x.dtype)


def softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    return _softmax(*_over("softmax", x, axis))


@composite(name="softmax")
def _softmax(x: Tensor, axis: int) -> Tensor:
    e = reals.exp(shifted(cast(x, x.dtype.compute), axis))
    total = red.sum(e, axis, keepdims=True)  # 1 at least, so one division serves the row
    return cast(ew.multiply(e, ew.divide(1.0, total)), x.dtype)


def log_softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """x - log(sum(exp(x))) along an axis."""
    return _log_softmax(*_over("log_softmax", x, axis))


@composite(name="log_softmax")
def _log_softmax(x: Tensor, axis: int) -> Tensor:
    s = shifted(cast(x, x.dtype.compute), axis)
    y = ew.subtract(s, reals.log(red.sum(reals.exp(s), axis, keepdims=True)))
    return cast(y, x.dtype)


def _over(op: str, x: ArrayLike, axis: int) -> tuple[Tensor, int]:
    t = as_float(x)
    i = axis_of(op, t, axis)
    require_elements(op, t, (i,))
    return t, i


def shifted(x: Tensor, axis: int) -> Tensor:
    """x minus its maximum, which is a constant to gradients: results do not depend on it."""
    return ew.subtract(x, prim.stop_gradient(red.max(x, axis, keepdims=True)))
