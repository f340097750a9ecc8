"""Losses of gx.nn: the mean unless `reduction=` says "sum" or "none"."""

from __future__ import annotations

from graphc import elementwise as ew
from graphc import prim, reals
from graphc import reductions as red
from graphc.activations import shifted, softplus
from graphc.composite import composite
from graphc.convert import (
    ArrayLike,
    as_float,
    as_tensor,
    axis_of,
    broadcast_to,
    cast,
    promote_args,
    require_dtype,
    require_elements,
    strict,
)
from graphc.errors import ArgumentError, ShapeError, user_loc
from graphc.manipulation import expand_dims, moveaxis
from graphc.tensor import Tensor
from graphc.types import DType

__all__ = [
    "binary_cross_entropy_with_logits", "cross_entropy", "huber", "huber_loss", "l1_loss",
    "mse", "mse_loss", "nll_loss",
]


def _reduce(op: str, loss: Tensor, reduction: str, dtype: DType) -> Tensor:
    """The reduced loss in `dtype`: losses of 16-bit floats are computed in f32."""
    if reduction == "mean":
        loss = red.mean(loss)
    elif reduction == "sum":
        loss = red.sum(loss)
    elif reduction != "none":
        raise ArgumentError(
            f"{op}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}", user_loc()
        )
    return cast(loss, dtype)


def cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, axis: int = -1, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(logits) at the labels: class numbers, or probabilities of logits' shape.

    Class numbers have the shape of logits without `axis`; one outside 0..n-1 is an error at run
    time. The mean is over everything but the classes; with reduction="none" that is the shape of
    the result, else it is a scalar.

        logits = x @ w                      # (batch, classes)
        loss = gx.nn.cross_entropy(logits, labels)
    """
    x, y = as_float(logits), as_tensor(labels)
    i = axis_of("cross_entropy", x, axis)
    require_elements("cross_entropy", x, (i,))
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(
            f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}", user_loc()
        )
    want = x.shape if y.dtype.is_float else x.shape[:i] + x.shape[i + 1 :]
    require_dtype("cross_entropy", y, "iuf", "integer classes or float probabilities")
    if y.shape != want:
        classes = y.dtype.is_float and y.shape == x.shape[:i] + x.shape[i + 1 :]
        advice = "; class numbers are y.astype('int64')" if classes else ""
        raise ShapeError(
            "cross_entropy: labels must be integers of the shape of logits without the class "
            f"axis, or floats of their shape, got logits {x.type} and labels {y.type}"
            f"{advice}", user_loc(),
        )
    x = moveaxis(x, i, -1)
    if y.dtype.is_float:
        y = moveaxis(cast(y, x.dtype), i, -1)
    _reduce("cross_entropy", prim.constant(0.0), reduction, x.dtype)  # checks the word
    return _cross_entropy(x, y, float(label_smoothing), reduction)


@composite(name="cross_entropy")
def _cross_entropy(x: Tensor, y: Tensor, smoothing: float, reduction: str) -> Tensor:
    s = shifted(cast(x, x.dtype.compute), x.ndim - 1)
    total = reals.log(red.sum(reals.exp(s), -1))
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
    return _reduce("cross_entropy", loss, reduction, x.dtype)


def _classes(x: Tensor) -> Tensor:
    return as_tensor(x.shape[-1], x.dtype)


def nll_loss(log_probabilities: ArrayLike, labels: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """Minus the log-probabilities (..., classes) at integer labels (...); a scalar unless
    reduction="none". A label outside 0..classes-1 is an error at run time.
    """
    x, y = as_float(log_probabilities), as_tensor(labels)
    require_dtype("nll_loss", y, "iu", "integer classes")
    if y.shape != x.shape[:-1]:
        raise ShapeError(
            f"nll_loss: labels must have the shape without the class axis, got {x.type} and "
            f"{y.type}", user_loc(),
        )
    n = x.ndim - 1
    loss = prim.neg(prim.gather(x, y, axis=n, batch=n, negative=False))
    return _reduce("nll_loss", loss, reduction, x.dtype)


def binary_cross_entropy_with_logits(
    logits: ArrayLike, targets: ArrayLike, *, pos_weight: ArrayLike = None, reduction: str = "mean",
) -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))); pos_weight multiplies the first term.

    Logits and targets of one shape; a scalar unless reduction="none".
    """
    x, t = strict("binary_cross_entropy_with_logits", logits, targets, floating=True)
    dtype = x.dtype
    x, t = cast(x, dtype.compute), cast(t, dtype.compute)
    if pos_weight is None:
        # softplus(x) - t x, x's part put together first: the tail of a confident hit stays
        above = ew.greater(x, 0.0)
        tail = softplus(ew.where(above, ew.negative(x), x))
        missed = ew.where(above, ew.subtract(1.0, t), ew.negative(t))
        loss = ew.add(ew.multiply(x, missed), tail)
    else:
        positive = ew.multiply(ew.multiply(t, pos_weight), softplus(ew.negative(x)))
        loss = ew.add(positive, ew.multiply(ew.subtract(1.0, t), softplus(x)))
    return _reduce("binary_cross_entropy_with_logits", loss, reduction, dtype)


def _difference(op: str, prediction: ArrayLike, target: ArrayLike) -> tuple[Tensor, DType]:
    """The difference of two of one shape, wide enough to be squared, and their dtype."""
    a, b = promote_args(prediction, target, floating=True)
    if a.shape != b.shape:
        raise ShapeError(
            f"{op}: prediction and target must have one shape, got {a.type} and {b.type}; "
            "broadcast one explicitly if that is meant", user_loc(),
        )
    wide = a.dtype.compute
    return ew.subtract(cast(a, wide), cast(b, wide)), a.dtype


def mse_loss(prediction: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """The squared difference of two of one shape (else ShapeError): its mean, sum, or itself."""
    d, dtype = _difference("mse_loss", prediction, target)
    return _reduce("mse_loss", ew.square(d), reduction, dtype)


def l1_loss(prediction: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """The absolute difference of two of one shape (else ShapeError): its mean, sum, or itself."""
    d, dtype = _difference("l1_loss", prediction, target)
    return _reduce("l1_loss", ew.abs(d), reduction, dtype)


def huber_loss(
    prediction: ArrayLike, target: ArrayLike, *, delta: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """d**2 / 2 up to |d| = delta, then delta * (|d| - delta / 2), for the difference d of two of
    one shape (else ShapeError): its mean, sum, or itself.
    """
    d, dtype = _difference("huber_loss", prediction, target)
    size = ew.abs(d)
    near = ew.less_equal(size, delta)
    inner = ew.where(near, d, 0.0)  # keeps the gradient of the unused branch finite
    far = ew.multiply(ew.subtract(size, 0.5 * delta), delta)
    loss = ew.where(near, ew.multiply(ew.square(inner), 0.5), far)
    return _reduce("huber_loss", loss, reduction, dtype)


mse = mse_loss
huber = huber_loss
