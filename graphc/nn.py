"""Neural-network functions: activations, normalisation, losses. Formulas are PyTorch's.

Each is stable by construction over the whole range of its dtype. softmax, log_softmax, gelu,
layer_norm, rms_norm and cross_entropy are composites: one `call` node with a body. f16 and bf16
are computed in f32 inside them. Losses average unless `reduction=` says "sum" or "none".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphc import elementwise as ew
from graphc import prim, reals, types
from graphc import reductions as red
from graphc.activations import (
    elu,
    gelu,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
)
from graphc.composite import composite
from graphc.convert import (
    ArrayLike,
    Axes,
    as_float,
    as_tensor,
    axes_of,
    cast,
    promote_args,
    require_dtype,
)
from graphc.creation import ones
from graphc.dims import Dim
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.losses import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber,
    huber_loss,
    l1_loss,
    mse,
    mse_loss,
    nll_loss,
)
from graphc.manipulation import matrix_transpose
from graphc.products import matmul
from graphc.reals import erf, tanh
from graphc.refused import module_hooks
from graphc.selection import one_hot, tril
from graphc.tensor import Tensor
from graphc.types import shape_text

__all__ = [
    "binary_cross_entropy_with_logits", "cross_entropy", "dropout", "elu", "embedding", "erf",
    "gelu", "huber", "huber_loss", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_sigmoid",
    "log_softmax", "mse", "mse_loss", "nll_loss", "one_hot", "relu", "rms_norm",
    "scaled_dot_product_attention", "sigmoid", "silu", "softmax", "softplus", "softsign", "tanh",
]

if not TYPE_CHECKING:  # types are checked by what is there
    __getattr__, __dir__ = module_hooks("nn", __all__)


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None) -> Tensor:
    """x @ weight.T + bias: x (..., in), weight (out, in) as PyTorch has it, bias (out,) give
    (..., out). ShapeError for a weight of other axes or sizes.
    """
    w = as_tensor(weight)
    if w.ndim != 2:
        raise ShapeError(f"linear: the weight must be (out, in), got {w.type}", user_loc())
    y = matmul(x, matrix_transpose(w))
    return y if bias is None else ew.add(y, bias)


def embedding(indices: ArrayLike, weight: ArrayLike) -> Tensor:
    """Rows of `weight` (n, d) at integer indices, of shape indices.shape + (d,).

    DTypeError for indices that are no integers; calls refuse those outside 0..n-1.
    """
    idx, w = as_tensor(indices), as_tensor(weight)
    require_dtype("embedding", idx, "iu", "integer indices")
    if w.ndim != 2:
        raise ShapeError(f"embedding: the weight must have 2 axes, got {w.type}", user_loc())
    return prim.gather(w, idx, axis=0, batch=0, negative=False)


def dropout(x: ArrayLike, key: ArrayLike, p: float = 0.5, *, training: bool = True) -> Tensor:
    """x with elements zeroed with probability p and the others divided by 1 - p.

    `key` is a gx.random key: the same key drops the same elements. `training=False` gives x.

        count = gx.variable(0, "count")    # another mask at every step
        h = gx.nn.dropout(x, gx.random.fold_in(gx.random.key(0), count), 0.1)
        updates = [(count, count + 1)]
    """
    from graphc import random

    if isinstance(p, Tensor) or not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p must be in [0, 1], got {p}", user_loc())
    if isinstance(training, Tensor):
        raise UsageError(
            f"dropout: training must be True or False, got {training.type}; declare one function "
            "that trains, and one that predicts from what was made with training=False", user_loc(),
        )
    t = as_float(x)
    if not training or p == 0.0:
        return t
    if p == 1.0:
        return prim.full_like(t, 0.0)
    kept = random.bernoulli(random.as_key("dropout", key), 1.0 - p, t.shape)
    return ew.where(kept, ew.multiply(t, 1.0 / (1.0 - p)), 0.0)


def scaled_dot_product_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, attn_mask: ArrayLike = None, *,
    is_causal: bool = False, scale: ArrayLike = None,
) -> Tensor:
    """softmax(query @ key.mT * scale) @ value, with scale 1 / sqrt(e) unless given.

    query (..., l, e), key (..., s, e), value (..., s, d) give (..., l, d); leading axes broadcast.
    attn_mask (..., l, s): bools, where False takes no part, or numbers that are added to the
    scores. is_causal lets position i see those up to i. A row that sees nothing is NaN.

        heads = x.reshape(batch, n, 8, 16).swapaxes(1, 2)
        y = gx.nn.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    """
    op = "scaled_dot_product_attention"
    q, k, v = promote_args(query, key, value, what=f"{op}: an operand", floating=True)
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ShapeError(f"{op}: query, key and value take at least 2 axes, got {q.type}, "
                         f"{k.type} and {v.type}", user_loc())
    if scale is None:
        size = q.shape[-1]
        scale = reals.rsqrt(as_tensor(size, q.dtype)) if isinstance(size, Dim) else size**-0.5
    scores = matmul(ew.multiply(q, scale), matrix_transpose(k))
    below = prim.full_like(scores, -math.inf)
    if is_causal:
        seen = tril(ones(scores.shape[-2:], "bool"))
        scores = ew.where(seen, scores, below)
    if attn_mask is not None:
        mask = as_tensor(attn_mask)
        chosen = mask.dtype is types.bool_
        scores = ew.where(mask, scores, below) if chosen else ew.add(scores, mask)
    return matmul(softmax(scores), v)


def layer_norm(
    x: ArrayLike, weight: ArrayLike = None, bias: ArrayLike = None, *, axis: Axes = -1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the last axis or axes, times weight, plus bias.

    weight and bias have the sizes of the normalised axes, or ShapeError; the result has x's shape.
    """
    t, w, b = _norm_operands("layer_norm", x, weight, bias, axis)
    axes = axes_of("layer_norm", t, axis)
    return _scaled(_layer_norm(t, axes, float(eps)), w, b)


@composite(name="layer_norm")
def _layer_norm(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    t = cast(x, x.dtype.compute)
    centred = ew.subtract(t, red.mean(t, axes, keepdims=True))
    variance = red.mean(ew.square(centred), axes, keepdims=True)
    return cast(ew.multiply(centred, reals.rsqrt(ew.add(variance, eps))), x.dtype)


def rms_norm(
    x: ArrayLike, weight: ArrayLike = None, *, axis: Axes = -1, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x**2) + eps) over the last axis or axes, times weight.

    Without `eps`, the spacing of floats at 1. weight has the sizes of the normalised axes.
    """
    from graphc.dtypes import finfo

    t, w, _ = _norm_operands("rms_norm", x, weight, None, axis)
    small = float(finfo(t.dtype).eps) if eps is None else float(eps)
    return _scaled(_rms_norm(t, axes_of("rms_norm", t, axis), small), w, None)


@composite(name="rms_norm")
def _rms_norm(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    t = cast(x, x.dtype.compute)
    power = red.mean(ew.square(t), axes, keepdims=True)
    return cast(ew.multiply(t, reals.rsqrt(ew.add(power, eps))), x.dtype)


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
                f"{shape_text(sizes)}, got {u.type}", user_loc(),
            )
        pair.append(u)
    return t, pair[0], pair[1]


def _scaled(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        y = ew.multiply(y, weight)
    return y if bias is None else ew.add(y, bias)
