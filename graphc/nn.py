"""Neural-network functions: activations, normalisation, losses. Formulas are PyTorch's.

Each is stable by construction over the whole range of its dtype. softmax, log_softmax, gelu,
layer_norm, rms_norm and cross_entropy are composites: one `call` node with a body. f16 and bf16
are computed in f32 inside them. Losses average unless `reduction=` says "sum" or "none".
"""

from __future__ import annotations

import math

from graphc import elementwise as ew
from graphc import prim
from graphc import reductions as red
from graphc.composite import composite
from graphc.convert import (
    ArrayLike,
    Axes,
    as_float,
    as_tensor,
    axes_of,
    axis_of,
    broadcast_to,
    cast,
    promote_args,
    require_dtype,
    strict,
)
from graphc.elementwise import erf, tanh
from graphc.errors import ArgumentError, ShapeError, user_loc
from graphc.manipulation import expand_dims, matrix_transpose, moveaxis
from graphc.products import matmul
from graphc.selection import one_hot
from graphc.tensor import Tensor

__all__ = [
    "binary_cross_entropy_with_logits", "cross_entropy", "dropout", "elu", "embedding", "erf",
    "gelu", "huber", "huber_loss", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_sigmoid",
    "log_softmax", "mse", "mse_loss", "nll_loss", "one_hot", "relu", "rms_norm", "sigmoid", "silu",
    "softmax", "softplus", "softsign", "tanh",
]

# Activations


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
    return ew.where(positive, t, ew.multiply(ew.expm1(below), alpha))


def sigmoid(x: ArrayLike) -> Tensor:
    """1 / (1 + exp(-x)), with full relative accuracy on both sides."""
    t = as_float(x)
    positive = ew.greater_equal(t, 0.0)
    e = ew.exp(ew.where(positive, ew.negative(t), t))
    return ew.divide(ew.where(positive, 1.0, e), ew.add(e, 1.0))


def silu(x: ArrayLike) -> Tensor:
    """x * sigmoid(x), also called swish."""
    t = as_float(x)
    return ew.multiply(t, sigmoid(t))


def softplus(x: ArrayLike, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, without overflow."""
    t = as_float(x)
    if beta != 1.0:
        return ew.divide(softplus(ew.multiply(t, beta)), beta)
    positive = ew.greater(t, 0.0)
    tail = ew.log1p(ew.exp(ew.where(positive, ew.negative(t), t)))
    return ew.add(ew.where(positive, t, 0.0), tail)


def log_sigmoid(x: ArrayLike) -> Tensor:
    """log(sigmoid(x)), without underflow."""
    return ew.negative(softplus(ew.negative(as_float(x))))


def softsign(x: ArrayLike) -> Tensor:
    """x / (1 + |x|)"""
    t = as_float(x)
    return ew.divide(t, ew.add(ew.abs(t), 1.0))


def gelu(x: ArrayLike, approximate: str = "none") -> Tensor:
    """x * P(Z <= x) for a standard normal Z; "tanh" is the usual approximation."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}", user_loc()
        )
    return (_gelu if approximate == "none" else _gelu_tanh)(as_float(x))


@composite(name="gelu")
def _gelu(x: Tensor) -> Tensor:
    t = cast(x, x.dtype.compute)
    half = ew.multiply(t, 0.5)
    y = ew.multiply(half, ew.add(ew.erf(ew.multiply(t, math.sqrt(0.5))), 1.0))
    return cast(y, x.dtype)


@composite(name="gelu_tanh")
def _gelu_tanh(x: Tensor) -> Tensor:
    # 0.5 (1 + tanh(u)) = sigmoid(2u), which does not cancel for negative u.
    t = cast(x, x.dtype.compute)
    cubic = ew.add(t, ew.multiply(ew.pow(t, 3), 0.044715))
    y = ew.multiply(t, sigmoid(ew.multiply(cubic, 2.0 * math.sqrt(2.0 / math.pi))))
    return cast(y, x.dtype)


def softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    t = as_float(x)
    return _softmax(t, axis_of("softmax", t, axis))


@composite(name="softmax")
def _softmax(x: Tensor, axis: int) -> Tensor:
    e = ew.exp(_shifted(cast(x, x.dtype.compute), axis))
    return cast(ew.divide(e, red.sum(e, axis, keepdims=True)), x.dtype)


def log_softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """x - log(sum(exp(x))) along an axis."""
    t = as_float(x)
    return _log_softmax(t, axis_of("log_softmax", t, axis))


@composite(name="log_softmax")
def _log_softmax(x: Tensor, axis: int) -> Tensor:
    s = _shifted(cast(x, x.dtype.compute), axis)
    y = ew.subtract(s, ew.log(red.sum(ew.exp(s), axis, keepdims=True)))
    return cast(y, x.dtype)


def _shifted(x: Tensor, axis: int) -> Tensor:
    """x minus its maximum, which is a constant to gradients: results do not depend on it."""
    return ew.subtract(x, prim.stop_gradient(red.max(x, axis, keepdims=True)))


# Layers


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None) -> Tensor:
    """x @ weight.T + bias, for a weight of shape (out, in) as PyTorch has it."""
    w = as_tensor(weight)
    if w.ndim != 2:
        raise ShapeError(f"linear: the weight must be (out, in), got {w.type}", user_loc())
    y = matmul(x, matrix_transpose(w))
    return y if bias is None else ew.add(y, bias)


def embedding(indices: ArrayLike, weight: ArrayLike) -> Tensor:
    """Rows of `weight` at integer indices; negative ones are errors."""
    idx, w = as_tensor(indices), as_tensor(weight)
    require_dtype("embedding", idx, "iu", "integer indices")
    if w.ndim != 2:
        raise ShapeError(f"embedding: the weight must have 2 axes, got {w.type}", user_loc())
    return prim.gather(w, idx, axis=0, batch=0, negative=False)


def dropout(x: ArrayLike, key: ArrayLike, p: float = 0.5, *, training: bool = True) -> Tensor:
    """x with elements zeroed with probability p and the others divided by 1 - p.

    `key` is a gx.random key: the same key drops the same elements.
    """
    from graphc import random

    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p must be in [0, 1], got {p}", user_loc())
    t = as_float(x)
    if not training or p == 0.0:
        return t
    if p == 1.0:
        return prim.full_like(t, 0.0)
    kept = random.bernoulli(key, 1.0 - p, t.shape)
    return ew.where(kept, ew.multiply(t, 1.0 / (1.0 - p)), 0.0)


def layer_norm(
    x: ArrayLike,
    weight: ArrayLike = None,
    bias: ArrayLike = None,
    *,
    axis: Axes = -1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the last axis or axes, times weight, plus bias.

    weight and bias have the sizes of the normalised axes.
    """
    t, w, b = _norm_operands("layer_norm", x, weight, bias, axis)
    axes = axes_of("layer_norm", t, axis)
    return _scaled(_layer_norm(t, axes, float(eps)), w, b)


@composite(name="layer_norm")
def _layer_norm(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    t = cast(x, x.dtype.compute)
    centred = ew.subtract(t, red.mean(t, axes, keepdims=True))
    variance = red.mean(ew.square(centred), axes, keepdims=True)
    return cast(ew.multiply(centred, ew.rsqrt(ew.add(variance, eps))), x.dtype)


def rms_norm(
    x: ArrayLike, weight: ArrayLike = None, *, axis: Axes = -1, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x**2) + eps) over the last axis or axes, times weight.

    Without `eps`, the spacing of floats at 1.
    """
    from graphc.dtypes import finfo

    t, w, _ = _norm_operands("rms_norm", x, weight, None, axis)
    small = float(finfo(t.dtype).eps) if eps is None else float(eps)
    return _scaled(_rms_norm(t, axes_of("rms_norm", t, axis), small), w, None)


@composite(name="rms_norm")
def _rms_norm(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    t = cast(x, x.dtype.compute)
    power = red.mean(ew.square(t), axes, keepdims=True)
    return cast(ew.multiply(t, ew.rsqrt(ew.add(power, eps))), x.dtype)


def _norm_operands(
    op: str, x: ArrayLike, weight: ArrayLike, bias: ArrayLike, axis: Axes
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    t = as_float(x)
    axes = axes_of(op, t, axis)
    if axes != tuple(range(t.ndim - len(axes), t.ndim)):
        raise ArgumentError(f"{op}: axis must name the last axes of {t.type}, got {axis}",
                            user_loc())
    sizes = t.shape[t.ndim - len(axes):]
    pair: list[Tensor | None] = []
    for name, p in (("weight", weight), ("bias", bias)):
        u = None if p is None else as_tensor(p)
        if u is not None and u.shape != sizes:
            raise ShapeError(
                f"{op}: {name} must have the sizes of the normalised axes "
                f"[{','.join(map(str, sizes))}], got {u.type}",
                user_loc(),
            )
        pair.append(u)
    return t, pair[0], pair[1]


def _scaled(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        y = ew.multiply(y, weight)
    return y if bias is None else ew.add(y, bias)


# Losses


def _reduce(op: str, loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return red.mean(loss)
    if reduction == "sum":
        return red.sum(loss)
    if reduction != "none":
        raise ArgumentError(
            f"{op}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}", user_loc()
        )
    return loss


def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    axis: int = -1,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(logits) at the labels: class numbers, or probabilities of logits' shape.

    Class numbers have the shape of logits without `axis`; one outside 0..n-1 is an error at run
    time. The mean is over everything but the classes.
    """
    x, y = as_float(logits), as_tensor(labels)
    i = axis_of("cross_entropy", x, axis)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(
            f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}", user_loc()
        )
    want = x.shape if y.dtype.is_float else x.shape[:i] + x.shape[i + 1 :]
    require_dtype("cross_entropy", y, "iuf", "integer classes or float probabilities")
    if y.shape != want:
        raise ShapeError(
            "cross_entropy: labels must be integers of the shape of logits without the class "
            f"axis, or floats of their shape, got logits {x.type} and labels {y.type}",
            user_loc(),
        )
    x = moveaxis(x, i, -1)
    if y.dtype.is_float:
        y = moveaxis(cast(y, x.dtype), i, -1)
    _reduce("cross_entropy", prim.constant(0.0), reduction)  # checks the word
    return _cross_entropy(x, y, float(label_smoothing), reduction)


@composite(name="cross_entropy")
def _cross_entropy(x: Tensor, y: Tensor, smoothing: float, reduction: str) -> Tensor:
    s = _shifted(cast(x, x.dtype.compute), x.ndim - 1)
    total = ew.log(red.sum(ew.exp(s), -1))
    if y.dtype.is_float:
        # sum(p * (total - s)): p need not add up to 1
        p = cast(y, s.dtype)
        if smoothing:
            p = ew.add(ew.multiply(p, 1.0 - smoothing), ew.divide(smoothing, _classes(s)))
        wide = broadcast_to(expand_dims(total, -1), s.shape)
        loss = red.sum(ew.multiply(p, ew.subtract(wide, s)), -1)
    else:
        n = s.ndim - 1
        chosen = prim.gather(s, y, axis=n, batch=n, negative=False)
        if smoothing:
            chosen = ew.add(
                ew.multiply(chosen, 1.0 - smoothing), ew.multiply(red.mean(s, -1), smoothing)
            )
        loss = ew.subtract(total, chosen)
    return cast(_reduce("cross_entropy", loss, reduction), x.dtype)


def _classes(x: Tensor) -> Tensor:
    return as_tensor(x.shape[-1], x.dtype)


def nll_loss(log_probabilities: ArrayLike, labels: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """Minus the log-probabilities at the labels, classes on the last axis."""
    x, y = as_float(log_probabilities), as_tensor(labels)
    require_dtype("nll_loss", y, "iu", "integer classes")
    if y.shape != x.shape[:-1]:
        raise ShapeError(
            f"nll_loss: labels must have the shape without the class axis, got {x.type} and "
            f"{y.type}",
            user_loc(),
        )
    n = x.ndim - 1
    return _reduce(
        "nll_loss", prim.neg(prim.gather(x, y, axis=n, batch=n, negative=False)), reduction
    )


def binary_cross_entropy_with_logits(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    pos_weight: ArrayLike = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))); pos_weight multiplies the first term."""
    x, t = strict("binary_cross_entropy_with_logits", logits, targets, floating=True)
    if pos_weight is None:
        loss = ew.subtract(softplus(x), ew.multiply(x, t))
    else:
        positive = ew.multiply(ew.multiply(t, pos_weight), softplus(ew.negative(x)))
        loss = ew.add(positive, ew.multiply(ew.subtract(1.0, t), softplus(x)))
    return _reduce("binary_cross_entropy_with_logits", loss, reduction)


def _difference(op: str, prediction: ArrayLike, target: ArrayLike) -> Tensor:
    a, b = promote_args(prediction, target, floating=True)
    if a.shape != b.shape:
        raise ShapeError(
            f"{op}: prediction and target must have one shape, got {a.type} and {b.type}; "
            "broadcast one explicitly if that is meant",
            user_loc(),
        )
    return ew.subtract(a, b)


def mse_loss(prediction: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """The squared difference."""
    return _reduce("mse_loss", ew.square(_difference("mse_loss", prediction, target)), reduction)


def l1_loss(prediction: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """The absolute difference."""
    return _reduce("l1_loss", ew.abs(_difference("l1_loss", prediction, target)), reduction)


def huber_loss(
    prediction: ArrayLike, target: ArrayLike, *, delta: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """d**2 / 2 up to |d| = delta, then delta * (|d| - delta / 2)."""
    d = _difference("huber_loss", prediction, target)
    size = ew.abs(d)
    near = ew.multiply(ew.square(d), 0.5)
    far = ew.multiply(ew.subtract(size, 0.5 * delta), delta)
    return _reduce("huber_loss", ew.where(ew.less_equal(size, delta), near, far), reduction)


mse = mse_loss
huber = huber_loss
