"""Elementwise operations under their array-API names; NumPy's other names stand as aliases.

Operands are promoted (Python numbers are weak) and broadcast. exp, sin and their like are in
`reals`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc import prim, types
from graphc.convert import (
    ArrayLike,
    as_float,
    as_tensor,
    broadcast_args,
    cast,
    check_device,
    common_dtype,
    require_dtype,
    strict,
)
from graphc.errors import ArgumentError, DTypeError, UsageError, user_loc
from graphc.tensor import Tensor
from graphc.types import bool_

__all__ = [
    "abs", "absolute", "add", "around", "astype", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "clip", "digamma", "divide", "equal", "fabs", "floor", "floor_divide", "greater",
    "greater_equal", "invert", "left_shift", "less", "less_equal", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "negative", "not_equal",
    "polygamma", "positive", "pow", "power", "reciprocal", "remainder", "right_shift", "round",
    "sign", "square", "subtract", "true_divide", "trunc", "where",
]

NUMERIC = "an integer or float dtype"


def polygamma(n: int, x: ArrayLike) -> Tensor:
    """The n-th derivative of digamma, n >= 0."""
    return prim.polygamma(as_float(x), n=n)


def digamma(x: ArrayLike) -> Tensor:
    """The derivative of lgamma."""
    return polygamma(0, x)


# Arithmetic


def add(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 + x2; of bools, `or`."""
    a, b = strict("add", x1, x2)
    return prim.or_(a, b) if a.dtype is bool_ else prim.add(a, b)


def subtract(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 - x2. Bools are refused: use `^`."""
    a, b = strict("subtract", x1, x2)
    if a.dtype is bool_:
        raise DTypeError(
            f"subtract: takes {NUMERIC}, got {a.type} and {b.type}; use ^ for bools", user_loc()
        )
    return prim.sub(a, b)


def multiply(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 * x2; of bools, `and`."""
    a, b = strict("multiply", x1, x2)
    return prim.and_(a, b) if a.dtype is bool_ else prim.mul(a, b)


def divide(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 / x2, in a float dtype (float32 for integers)."""
    return prim.div(*strict("divide", x1, x2, floating=True))


def floor_divide(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """floor(x1 / x2), of gradient 0. Integer division by zero fails at run time; floats follow
    NumPy.
    """
    a, b = strict("floor_divide", x1, x2)
    require_dtype("floor_divide", a, "iuf", NUMERIC)
    if not a.dtype.is_float:
        return prim.div(a, b)
    if a.dtype.bits == 16:
        return cast(floor_divide(cast(a, types.f32), cast(b, types.f32)), a.dtype)
    x, y = a, b
    a, b = prim.stop_gradient(x), prim.stop_gradient(y)
    # (a - r) / b is an integer up to rounding; the correction is NumPy's. Where the signs differ, r
    # leads away from 0: beside the largest numbers by halves, which do not overflow.
    r = prim.rem(a, b)
    far = prim.less(prim.full_like(a, 2.0**126 if a.dtype is types.f32 else 2.0**1022), prim.abs(a))
    part = prim.select(far, prim.full_like(a, 0.5), prim.full_like(a, 1.0))
    rest = prim.sub(prim.mul(a, part), prim.mul(r, part))
    q = prim.div(rest, prim.mul(b, part))
    down = prim.floor(q)
    up = prim.less(prim.full_like(q, 0.5), prim.sub(q, down))
    whole = prim.add(down, cast(up, a.dtype))
    exact = prim.equal(whole, prim.full_like(q, 0.0))  # then only the sign of zero is open
    signed = prim.select(exact, prim.mul(prim.full_like(q, 0.0), prim.div(a, b)), whole)
    # r is infinite where b is and the signs differ: the quotient lies in (-1, 0).
    near = prim.select(prim.is_finite(r), prim.div(a, b), prim.full_like(q, -1.0))
    far = prim.equal(prim.abs(b), prim.full_like(b, float("inf")))
    inner = prim.select(prim.and_(far, prim.is_finite(a)), near, signed)
    zero = prim.equal(b, prim.full_like(b, 0.0))
    return _flat(prim.select(zero, prim.div(a, b), inner), x, y)


def _flat(value: Tensor, *operands: Tensor) -> Tensor:
    """The value, of which the operands have a gradient: zeros."""
    always = prim.full(value.type.with_dtype(bool_), True)
    for x in operands:
        value = prim.select(always, value, x)
    return value


def remainder(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 - floor(x1/x2)*x2 with the sign of x2, as Python's %."""
    a, b = strict("remainder", x1, x2)
    require_dtype("remainder", a, "iuf", NUMERIC)
    return prim.rem(a, b)


def pow(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 ** x2. Small constant exponents become products, 0.5 becomes sqrt, as in NumPy.

    Integers to a negative integer power are an error.
    """
    dtype = common_dtype(x1, x2)
    if isinstance(x2, (int, float)) and not isinstance(x2, (bool, np.generic)):
        x = as_tensor(x1, dtype)
        if x.dtype.is_int and x2 < 0:
            raise ArgumentError(
                f"pow: integers to the negative power {x2} are not integers, got {x.type}; "
                "use x.astype('float32')", user_loc(),
            )
        power = _CONSTANT_POWERS.get(float(x2))
        if power is not None and (x.dtype.is_float or x2 == int(x2)) and x.dtype is not bool_:
            return power(x)
    a, b = strict("pow", x1, x2)
    require_dtype("pow", a, "iuf", NUMERIC)
    return prim.pow(a, b)


_CONSTANT_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    -1.0: lambda x: prim.div(prim.full_like(x, 1), x),
    0.0: lambda x: _flat(prim.full_like(x, 1), x),  # 1 for NaN too
    0.5: prim.sqrt,
    1.0: lambda x: x,
    2.0: lambda x: prim.mul(x, x),
    3.0: lambda x: prim.mul(prim.mul(x, x), x),
}


def negative(x: ArrayLike) -> Tensor:
    """-x; unsigned integers wrap. Bools are refused: use `~`."""
    t = as_tensor(x)
    require_dtype("negative", t, "iuf", f"{NUMERIC} (use ~ for bools)")
    return prim.neg(t)


def positive(x: ArrayLike) -> Tensor:
    """x itself."""
    return as_tensor(x)


def abs(x: ArrayLike) -> Tensor:
    """|x|; the smallest integer stays as it is; the gradient at 0 is 0."""
    t = as_tensor(x)
    return t if t.dtype.kind in "bu" else prim.abs(t)


def fabs(x: ArrayLike) -> Tensor:
    """|x| in a float dtype, NumPy's name; float32 of integers and bools."""
    return abs(as_float(x))


def sign(x: ArrayLike) -> Tensor:
    """-1, 0 or 1; NaN stays."""
    t = as_tensor(x)
    require_dtype("sign", t, "iuf", NUMERIC)
    return prim.sign(t)


def square(x: ArrayLike) -> Tensor:
    """x * x. Bools are refused: NumPy's int8 would be the only product of theirs in numbers."""
    t = as_tensor(x)
    require_dtype("square", t, "iuf", NUMERIC)
    return multiply(t, t)


def reciprocal(x: ArrayLike) -> Tensor:
    """1 / x"""
    return divide(1, x)


def maximum(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The larger; NaN wins; ties share the gradient evenly."""
    a, b = strict("maximum", x1, x2)
    return prim.or_(a, b) if a.dtype is bool_ else prim.maximum(a, b)


def minimum(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The smaller; NaN wins; ties share the gradient evenly."""
    a, b = strict("minimum", x1, x2)
    return prim.and_(a, b) if a.dtype is bool_ else prim.minimum(a, b)


def clip(x: ArrayLike, min: ArrayLike = None, max: ArrayLike = None) -> Tensor:
    """x limited to [min, max]; where min > max, max."""
    t = as_tensor(x)
    if min is not None:
        t = maximum(*strict("clip", t, min))
    if max is not None:
        t = minimum(*strict("clip", t, max))
    return t


# Rounding


def _rounding(fn: Callable[[Tensor], Tensor], doc: str) -> Callable[[ArrayLike], Tensor]:
    def apply(x: ArrayLike) -> Tensor:
        t = as_tensor(x)
        return fn(t) if t.dtype.is_float else t

    apply.__doc__ = f"{doc}; integers stay as they are."
    apply.__name__ = apply.__qualname__ = fn.__name__
    return apply


floor = _rounding(prim.floor, "The largest integer not above x")
ceil = _rounding(prim.ceil, "The smallest integer not below x")


def trunc(x: ArrayLike) -> Tensor:
    """x without its fraction; integers stay as they are."""
    t = as_tensor(x)
    if not t.dtype.is_float:
        return t
    return prim.select(prim.less(t, prim.full_like(t, 0)), prim.ceil(t), prim.floor(t))


def round(x: ArrayLike, decimals: int = 0) -> Tensor:
    """To the nearest integer, halves to even; with `decimals`, as NumPy: scaled, rounded, unscaled.
    """
    t = as_tensor(x)
    if isinstance(decimals, bool) or not isinstance(decimals, (int, np.integer)):
        raise UsageError(f"round: decimals must be an int, got {decimals!r}", user_loc())
    require_dtype("round", t, "iuf", NUMERIC)
    if not t.dtype.is_float:
        if decimals < 0:
            raise ArgumentError(
                "round: negative decimals need a float dtype; use x.astype('float32')", user_loc()
            )
        return t
    if decimals == 0:
        return prim.round(t)
    scale = float(10 ** int(decimals if decimals > 0 else -decimals))
    if decimals > 0:
        return divide(prim.round(multiply(t, scale)), scale)
    return multiply(prim.round(divide(t, scale)), scale)


# Comparison and logic


def equal(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 == x2, elementwise"""
    return prim.equal(*strict("equal", x1, x2))


def not_equal(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 != x2, elementwise"""
    return prim.not_(prim.equal(*strict("not_equal", x1, x2)))


def less(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 < x2, elementwise"""
    return prim.less(*strict("less", x1, x2))


def less_equal(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 <= x2, elementwise"""
    return prim.less_equal(*strict("less_equal", x1, x2))


def greater(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 > x2, elementwise"""
    a, b = strict("greater", x1, x2)
    return prim.less(b, a)


def greater_equal(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 >= x2, elementwise"""
    a, b = strict("greater_equal", x1, x2)
    return prim.less_equal(b, a)


def as_bool(x: ArrayLike) -> Tensor:
    """x != 0"""
    return cast(as_tensor(x), bool_)


def logical_and(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Both differ from 0."""
    return prim.and_(*strict("logical_and", as_bool(x1), as_bool(x2)))


def logical_or(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Either differs from 0."""
    return prim.or_(*strict("logical_or", as_bool(x1), as_bool(x2)))


def logical_xor(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Exactly one differs from 0."""
    return prim.xor(*strict("logical_xor", as_bool(x1), as_bool(x2)))


def logical_not(x: ArrayLike) -> Tensor:
    """x is 0."""
    return prim.not_(as_bool(x))


def _bits(op: str, x1: ArrayLike, x2: ArrayLike, kinds: str = "biu") -> list[Tensor]:
    a, b = strict(op, x1, x2)
    what = "bools or integers" if "b" in kinds else "integers"
    require_dtype(op, a, kinds, f"{what} (conditions on floats: gx.logical_and, ...)")
    return [a, b]


def bitwise_and(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 & x2 of bools or integers"""
    return prim.and_(*_bits("bitwise_and", x1, x2))


def bitwise_or(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 | x2 of bools or integers"""
    return prim.or_(*_bits("bitwise_or", x1, x2))


def bitwise_xor(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 ^ x2 of bools or integers"""
    return prim.xor(*_bits("bitwise_xor", x1, x2))


def bitwise_invert(x: ArrayLike) -> Tensor:
    """~x of bools or integers"""
    t = as_tensor(x)
    require_dtype("bitwise_invert", t, "biu", "bools or integers")
    return prim.not_(t)


def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 << x2; 0 from the width of the dtype on"""
    return prim.shift_left(*_bits("bitwise_left_shift", x1, x2, "iu"))


def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 >> x2; 0 or the sign from the width of the dtype on"""
    return prim.shift_right(*_bits("bitwise_right_shift", x1, x2, "iu"))


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 where condition, else x2; the gradient of what is not chosen is 0.

    0 times an infinite slope is NaN, so keep what is not chosen away from it as well:

        safe = gx.where(x > 0, gx.log(gx.where(x > 0, x, 1)), 0)
    """
    c = as_tensor(condition)
    require_dtype("where", c, "b", "a bool condition (write x != 0)")
    a, b = strict("where", x1, x2)
    return prim.select(*broadcast_args("where", c, a, b))


def astype(
    x: ArrayLike, dtype: Any, *, copy: bool = True, device: str | None = None
) -> Tensor:
    """x in another dtype: float to integer saturates (NaN gives 0), integers wrap, to bool is != 0.
    """
    check_device("astype", device)
    return as_tensor(x, dtype)


# NumPy's other names
absolute = abs
around = round
bitwise_not = invert = bitwise_invert
left_shift = bitwise_left_shift
mod = remainder
power = pow
right_shift = bitwise_right_shift
true_divide = divide
