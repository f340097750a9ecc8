"""Floating-point classes, signs and neighbours, and operations that tell NaN from numbers."""

from __future__ import annotations

from graphc import prim, types
from graphc.convert import ArrayLike, as_tensor, require_dtype, strict
from graphc.elementwise import NUMERIC, add, equal, logical_or, maximum, minimum, not_equal, where
from graphc.tensor import Tensor
from graphc.types import bool_

__all__ = [
    "copysign", "fmax", "fmin", "fmod", "isclose", "isfinite", "isinf", "isnan", "nan_to_num",
    "nextafter", "signbit",
]


def isnan(x: ArrayLike) -> Tensor:
    """Whether x is NaN."""
    t = as_tensor(x)
    return prim.not_(prim.equal(t, t)) if t.dtype.is_float else _all(t, False)


def isfinite(x: ArrayLike) -> Tensor:
    """Whether x is neither NaN nor infinite."""
    t = as_tensor(x)
    return prim.is_finite(t) if t.dtype.is_float else _all(t, True)


def isinf(x: ArrayLike) -> Tensor:
    """Whether x is an infinity."""
    t = as_tensor(x)
    if not t.dtype.is_float:
        return _all(t, False)
    return prim.equal(prim.abs(t), prim.full_like(t, float("inf")))


def _all(t: Tensor, value: bool) -> Tensor:
    return prim.full(t.type.with_dtype(bool_), value)


def nan_to_num(
    x: ArrayLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN and infinities replaced (by 0 and the largest finite numbers)."""
    t = as_tensor(x)
    if not t.dtype.is_float:
        return t
    from graphc.dtypes import finfo

    high = float(finfo(t.dtype).max) if posinf is None else posinf
    low = -float(finfo(t.dtype).max) if neginf is None else neginf
    t = where(isnan(t), nan, t)
    t = where(t == float("inf"), high, t)
    return where(t == float("-inf"), low, t)


def signbit(x: ArrayLike) -> Tensor:
    """Whether the sign bit is set (of -0.0 and of negative NaN too)."""
    t = as_tensor(x)
    if t.dtype.kind in "bu":
        return _all(t, False)
    if t.dtype.is_float:
        t = prim.bitcast(t, dtype=types.BY_NAME[f"i{t.dtype.bits}"])
    return prim.less(t, prim.full_like(t, 0))


def copysign(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """|x1| with the sign of x2."""
    a, b = strict("copysign", x1, x2, floating=True)
    flip = prim.xor(signbit(a), signbit(b))
    return prim.select(flip, prim.neg(a), a)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The next representable number from x1 towards x2; the gradient is that of x1."""
    a, b = strict("nextafter", x1, x2, floating=True)
    ints = types.BY_NAME[f"i{a.dtype.bits}"]
    bits = prim.bitcast(a, dtype=ints)
    one = prim.full_like(bits, 1)
    # Away from zero the bit pattern grows; from zero the first step is the smallest subnormal.
    outward = equal(prim.less(a, b), prim.less(prim.full_like(a, 0), a))
    stepped = prim.select(outward, prim.add(bits, one), prim.sub(bits, one))
    zero = prim.equal(a, prim.full_like(a, 0))
    tiny = copysign(prim.bitcast(one, dtype=a.dtype), b)
    out = prim.select(zero, tiny, prim.bitcast(stepped, dtype=a.dtype))
    out = prim.select(prim.equal(a, b), b, out)
    # a plus an exact step, so that gradients pass; zeros keep the sign that they have got
    step = prim.stop_gradient(prim.sub(out, a))
    by_step = prim.and_(prim.is_finite(a), prim.not_(prim.equal(out, prim.full_like(a, 0))))
    out = prim.select(by_step, prim.add(a, step), out)
    return where(logical_or(isnan(a), isnan(b)), add(a, b), out)


def isclose(
    x1: ArrayLike, x2: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False,
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|; infinities are close to themselves only."""
    a, b = strict("isclose", x1, x2, floating=True)
    finite = prim.and_(prim.is_finite(a), prim.is_finite(b))
    near = abs(a - b) <= atol + rtol * abs(b)
    out = where(finite, near, equal(a, b))
    return logical_or(out, prim.and_(isnan(a), isnan(b))) if equal_nan else out


def fmod(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The remainder with the sign of x1, as C's fmod."""
    a, b = strict("fmod", x1, x2)
    require_dtype("fmod", a, "iuf", NUMERIC)
    if a.dtype.kind == "u":
        return prim.rem(a, b)
    if a.dtype.is_float:
        size = prim.select(signbit(a), prim.neg(a), a)  # whose slope at 0 is not that of |a|
        return copysign(prim.rem(size, prim.abs(b)), a)
    r, zero = prim.rem(a, b), prim.full_like(a, 0)
    turned = prim.xor(prim.less(r, zero), prim.less(a, zero))
    return prim.select(prim.and_(turned, not_equal(r, zero)), prim.sub(r, b), r)


def fmax(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The larger; a NaN counts as missing."""
    a, b = strict("fmax", x1, x2)
    return where(isnan(a), b, where(isnan(b), a, maximum(a, b)))


def fmin(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The smaller; a NaN counts as missing."""
    a, b = strict("fmin", x1, x2)
    return where(isnan(a), b, where(isnan(b), a, minimum(a, b)))
