"""Random numbers from explicit keys: the same numbers on every machine.

    key = gx.random.key(0)
    k1, k2 = gx.random.split(key)
    x = gx.random.normal(k1, (batch, 64))

A key is a u32[2] Tensor; a function of a key has no state: use each key once. The generator is
Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import elementwise as ew
from graphc import prim, reals, types
from graphc.convert import (
    ArrayLike,
    as_float,
    as_shape,
    as_tensor,
    axis_of,
    broadcast_to,
    cast,
    dtype_of,
    require_dtype,
)
from graphc.errors import ArgumentError, ShapeError, user_loc
from graphc.floats import nextafter
from graphc.manipulation import concat, cut, reshape
from graphc.reductions import argmax
from graphc.refused import module_hooks
from graphc.tensor import Tensor
from graphc.types import DType, Shape

__all__ = [
    "bernoulli", "bits", "categorical", "fold_in", "key", "normal", "randint", "split",
    "uniform",
]

if not TYPE_CHECKING:  # types are checked by what is there
    __getattr__, __dir__ = module_hooks("random", __all__)


# split and fold_in draw from streams of their own: the key is changed by one of these first.
_SPLIT = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
_FOLD = np.array([0x3C6EF372, 0xA54FF53A], np.uint32)


def key(seed: ArrayLike) -> Tensor:
    """The key of an integer seed, u32[2]: its low and high 32 bits.

    The seed may be a Tensor, such as an input, so that a compiled function draws anew.

        seed = gx.input("seed", (), "int64")
        noise = gx.random.normal(gx.random.key(seed), (3,))
    """
    if isinstance(seed, (int, np.integer)):
        n = int(seed) % 2**64
        return prim.constant(np.array([n & 0xFFFFFFFF, n >> 32], np.uint32))
    return _words("key", seed)


def _words(op: str, n: ArrayLike) -> Tensor:
    """An integer scalar as its low and high 32 bits."""
    t = as_tensor(n)
    require_dtype(op, t, "iu", "an integer scalar")
    if t.ndim:
        raise ShapeError(f"{op}: takes an integer scalar, got {t.type}", user_loc())
    wide = cast(cast(t, types.i64), types.u64)
    low = cast(prim.and_(wide, prim.full_like(wide, 0xFFFFFFFF)), types.u32)
    high = cast(prim.shift_right(wide, prim.full_like(wide, 32)), types.u32)
    return concat([reshape(low, (1,)), reshape(high, (1,))])


def as_key(op: str, k: ArrayLike) -> Tensor:
    """k as a Tensor; ShapeError, which begins with `op`, unless it is a key."""
    t = as_tensor(k)
    if t.dtype is not types.u32 or t.shape != (2,):
        raise ShapeError(
            f"{op}: a key is u32[2] made by gx.random.key, got {t.type}", user_loc()
        )
    return t


def split(key: ArrayLike, n: int = 2) -> list[Tensor]:
    """n new keys, whose numbers are independent of each other and of this key's.

        k1, k2 = gx.random.split(key)
    """
    k = prim.xor(as_key("split", key), prim.constant(_SPLIT))
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"split: n must be an int from 1 on, got {n!r}", user_loc())
    words = prim.random_bits(k, shape=(n, 2))
    return [reshape(cut(words, 0, i, i + 1), (2,)) for i in range(n)]


def fold_in(key: ArrayLike, data: ArrayLike) -> Tensor:
    """A new key from a key and an integer scalar, such as a variable that counts the steps."""
    k = prim.xor(as_key("fold_in", key), prim.constant(_FOLD))
    mixed = prim.random_bits(k, shape=(2,))
    return prim.random_bits(prim.xor(mixed, _words("fold_in", data)), shape=(2,))


def bits(key: ArrayLike, shape: Any = ()) -> Tensor:
    """Uniform 32-bit words, u32 of that shape, whose sizes may be symbolic."""
    return prim.random_bits(as_key("bits", key), shape=as_shape(shape))


def _float_dtype(op: str, dtype: Any) -> DType:
    d = dtype_of(dtype)
    if not d.is_float:
        raise ArgumentError(f"{op}: takes a float dtype, got {d}", user_loc())
    return d


# How many bits a uniform number has: no more than the dtype holds, or it would be rounded up to 1.
_BITS = {types.f16: 11, types.bf16: 8, types.f32: 24, types.f64: 52}


def _unit(k: Tensor, shape: Shape, dtype: DType, lift: float = 0.0) -> Tensor:
    """(n + lift) * 2**-b for uniform n < 2**b, with b = _BITS[dtype]; halves come as f32."""
    if dtype is types.f64:
        words = prim.random_bits(k, shape=(2, *shape))
        high, low = (
            cast(reshape(cut(words, 0, i, i + 1), shape), types.f64) for i in range(2)
        )
        low = prim.floor(ew.multiply(low, 2.0**-12))
        n = ew.add(ew.multiply(high, 2.0**20), low)
        return ew.multiply(ew.add(n, lift), 2.0**-52)
    word, b = prim.random_bits(k, shape=shape), _BITS[dtype]
    n = cast(cast(prim.shift_right(word, prim.full_like(word, 32 - b)), types.i32), types.f32)
    return ew.multiply(ew.add(n, lift), 2.0**-b)


def uniform(
    key: ArrayLike, shape: Any = (), dtype: Any = "float32", low: ArrayLike = 0.0,
    high: ArrayLike = 1.0,
) -> Tensor:
    """Numbers from [low, high), in a shape that may be symbolic: multiples of 2**-24, scaled.

    Of 2**-52 in float64, 2**-11 in float16 and 2**-8 in bfloat16, which hold no finer ones near 1.
    """
    d = _float_dtype("uniform", dtype)
    want = as_shape(shape)
    u = _unit(as_key("uniform", key), want, d)
    if _is(low, 0) and _is(high, 1):
        return cast(u, d)
    a, b = _of_shape("uniform", want, u.dtype, low, high)
    y = cast(ew.add(ew.multiply(u, ew.subtract(b, a)), a), d)
    # b - b * 2**-24 is below b, so from 0 on nothing is rounded up to it; a sum may be.
    return y if d is d.compute and _is(low, 0) else _inside(y, a, b)


def _inside(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """y, which was rounded, between the dtype's numbers in [low, high)."""
    bottom, top = cast(low, y.dtype), cast(high, y.dtype)
    up, down = (prim.full_like(t, v) for t, v in ((bottom, math.inf), (top, -math.inf)))
    bottom = ew.where(ew.less(bottom, low), nextafter(bottom, up), bottom)
    top = ew.where(ew.less(top, high), top, nextafter(top, down))
    return ew.maximum(ew.minimum(y, top), bottom)


def _of_shape(op: str, shape: Shape, dtype: DType, *xs: ArrayLike) -> list[Tensor]:
    """Parameters of a distribution, which may not make it larger: one number would serve many."""
    ts = [as_tensor(x, dtype) for x in xs]
    for t in ts:
        broadcast_to(t, shape, op=op)
    return ts


def _is(x: Any, value: float) -> bool:
    return isinstance(x, (int, float)) and x == value


def normal(
    key: ArrayLike, shape: Any = (), dtype: Any = "float32", mean: ArrayLike = 0.0,
    std: ArrayLike = 1.0,
) -> Tensor:
    """Normal numbers, in a shape that may be symbolic, by Box and Muller:
    sqrt(-2 log u) cos(2 pi v).

        noise = gx.random.normal(key, x.shape, x.dtype, std=0.1)
    """
    d = _float_dtype("normal", dtype)
    want, c = as_shape(shape), d.compute
    k = as_key("normal", key)
    if c is types.f64:
        pair = _unit(k, (2, *want), c, lift=0.5)  # never 0, so the logarithm is finite
        u, v = (reshape(cut(pair, 0, i, i + 1), want) for i in range(2))
    else:
        words = prim.random_bits(k, shape=(2, *want))
        first, second = (reshape(cut(words, 0, i, i + 1), want) for i in range(2))
        # All 32 bits near 0, where the tail of the distribution is made.
        u = ew.multiply(ew.add(cast(first, types.f32), 0.5), 2.0**-32)
        angle = cast(prim.shift_right(second, prim.full_like(second, 8)), types.i32)
        v = ew.multiply(cast(angle, types.f32), 2.0**-24)
    radius = reals.sqrt(ew.multiply(reals.log(u), -2.0))
    z = ew.multiply(radius, reals.cos(ew.multiply(v, 2.0 * math.pi)))
    if not _is(std, 1):
        z = ew.multiply(z, *_of_shape("normal", want, c, std))
    if not _is(mean, 0):
        z = ew.add(z, *_of_shape("normal", want, c, mean))
    return cast(z, d)


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Any = None) -> Tensor:
    """Bools that are true with probability p, in the shape of p unless given."""
    chance = as_tensor(p, types.f32) if isinstance(p, (int, float)) else as_tensor(p)
    want = chance.shape if shape is None else as_shape(shape)
    u = _unit(as_key("bernoulli", key), want, types.f32)
    return prim.less(u, cast(broadcast_to(chance, want, op="bernoulli"), types.f32))


def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1) -> Tensor:
    """Class numbers, int64, drawn with the probabilities softmax(logits, axis); shape of the
    logits without `axis`. A class at -inf is never drawn.

    It is where logits - log(e) is largest, for e of the exponential distribution.
    """
    t = as_float(logits)
    t = cast(t, t.dtype.compute)
    i = axis_of("categorical", t, axis)
    word = cast(prim.random_bits(as_key("categorical", key), shape=t.shape), t.dtype)
    below = ew.multiply(ew.add(word, 0.5), 2.0**-32)  # of f32, all bits near 0
    below = ew.minimum(below, 1.0 - 2.0**-24)  # rounded up to 1, it would put every class at -inf
    drawn = ew.negative(reals.log(ew.negative(reals.log1p(ew.negative(below)))))
    return argmax(ew.add(t, drawn), i)


def randint(key: ArrayLike, shape: Any, low: int, high: int, dtype: Any = "int64") -> Tensor:
    """Integers from [low, high), at most 2**32 apart; bias below 2**-32 times the range.

    The dtype must hold all of them.
    """
    for bound in (low, high):
        if isinstance(bound, (float, np.floating)) and not float(bound).is_integer():
            raise ArgumentError(
                f"randint: bounds must be integers, got {bound}; round them", user_loc()
            )
    span = int(high) - int(low)
    if not 0 < span <= 2**32:
        raise ArgumentError(
            f"randint: needs low < high at most 2**32 apart, got {low} and {high}", user_loc()
        )
    d = dtype_of(dtype)
    if d.is_int and not np.iinfo(d.numpy).min <= int(low) < int(high) <= np.iinfo(d.numpy).max + 1:
        raise ArgumentError(f"randint: {d} does not hold all from {low} to {high} - 1", user_loc())
    word = cast(bits(key, shape), types.u64)
    scaled = prim.shift_right(
        prim.mul(word, prim.full_like(word, span)), prim.full_like(word, 32)
    )
    return cast(ew.add(cast(scaled, types.i64), int(low)), d)
