"""random_bits: Philox4x32-10, counter-based, so the same numbers on every machine.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), and
the Random123 library's known-answer tests.

Element i of the result is word i % 4 of the block whose counter is (i // 4 as its low and high 32
bits, 0, 0), under the key (key[0], key[1]).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc import prim
from graphc.dims import Size
from graphc.ops.batching import add_batch
from graphc.ops.row import Attrs, Condition, Kind, op
from graphc.ops.typerules import Types, bad_dtype, bad_shape, certainly_negative
from graphc.types import Array, Shape, TensorType, i64, u32, u64

if TYPE_CHECKING:
    from graphc.tensor import Tensor


ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: Sequence[Array], key: Sequence[Array]) -> list[Array]:
    """Four u64 arrays below 2**32 from four counter words and two key words of that kind."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    w0, w1 = (np.uint64(w) for w in WEYL)
    for _ in range(ROUNDS):
        p0, p1 = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + w0) & _LOW, (k1 + w1) & _LOW
    return [c0, c1, c2, c3]


def _random_bits_type(types: Types, attrs: Attrs) -> TensorType:
    (key,), shape = types, attrs["shape"]
    if key.dtype is not u32:
        bad_dtype("random_bits", "the key must be u32[2]", types)
    if key.shape != (2,):
        bad_shape("random_bits", "the key must be u32[2]", types)
    if any(certainly_negative(s) for s in shape):
        bad_shape("random_bits", "sizes must be >= 0", types, f" for shape {shape}")
    return TensorType(u32, shape)


def _random_bits(key: Array, shape: tuple[int, ...]) -> Array:
    n = int(np.prod(shape, dtype=np.int64))
    block = np.arange(-(-n // 4), dtype=np.uint64)
    zero = np.zeros_like(block)
    low, high = key.astype(np.uint64)
    words = philox4x32((block & _LOW, block >> _HALF, zero, zero), (low, high))
    return np.stack(words, 1).reshape(-1)[:n].astype(np.uint32).reshape(shape)


def _random_bits_batch(size: Size, batched: Sequence[bool], key: Tensor, shape: Shape) -> Tensor:
    """One key per batch entry: the same function written with primitives, on u64.

    Every element computes its whole block and selects its own word.
    """
    if not batched[0]:
        return add_batch(size, prim.random_bits(key, shape))
    full: Shape = (size, *shape)
    kind = TensorType(u64, full)

    def fixed(value: int) -> Tensor:
        return prim.full(kind, value)

    def high(x: Tensor) -> Tensor:
        return prim.shift_right(x, fixed(32))

    def low(x: Tensor) -> Tensor:
        return prim.and_(x, fixed(0xFFFFFFFF))

    def key_word(i: int) -> Tensor:
        word = prim.reshape(prim.slice(key, (0, i), (size, i + 1), (1, 1)), (size,))
        return prim.cast(prim.broadcast(word, full, (0,)), u64)

    index = prim.cast(_linear_index(full), u64)
    block, place = prim.shift_right(index, fixed(2)), prim.and_(index, fixed(3))
    c0, c1, c2, c3 = low(block), high(block), fixed(0), fixed(0)
    k0, k1 = key_word(0), key_word(1)
    m0, m1 = (fixed(m) for m in MULTIPLIERS)
    w0, w1 = (fixed(w) for w in WEYL)
    for _ in range(ROUNDS):
        p0, p1 = prim.mul(c0, m0), prim.mul(c2, m1)
        c0, c1, c2, c3 = (
            prim.xor(prim.xor(high(p1), c1), k0), low(p1),
            prim.xor(prim.xor(high(p0), c3), k1), low(p0),
        )
        k0, k1 = low(prim.add(k0, w0)), low(prim.add(k1, w1))
    out = c0
    for i, word in ((1, c1), (2, c2), (3, c3)):
        out = prim.select(prim.equal(place, fixed(i)), word, out)
    return prim.cast(out, u32)


def _linear_index(shape: Shape) -> Tensor:
    """Row-major position within each entry of axis 0, i64."""
    out = prim.full(TensorType(i64, shape), 0)
    stride: Size = 1
    for axis in reversed(range(1, len(shape))):
        scale = prim.broadcast(prim.dim(stride), shape, ())
        out = prim.add(out, prim.mul(prim.iota(i64, shape, axis), scale))
        stride = stride * shape[axis]
    return out


op(
    "random_bits", Kind.RANDOM, 1, attrs=("shape",), unique=True, differentiable=False,
    conditions=lambda types, attrs: [Condition(s, "sizes must be >= 0") for s in attrs["shape"]],
    type=_random_bits_type, ref=_random_bits, batch=_random_bits_batch,
)
