"""Rows of two operands of one type, elementwise, and select."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import prim
from graphc.errors import IntegerDivisionError
from graphc.ops.batching import elementwise_batch
from graphc.ops.halves import through_f32
from graphc.ops.numeric import quiet, wide
from graphc.ops.row import Attrs, Grads, Kind, Known, op
from graphc.ops.typerules import (
    ANY,
    BITS,
    FLOAT,
    INT,
    NUMBER,
    Types,
    bad_dtype,
    bad_shape,
    check_same,
    comparison,
    elementwise,
)
from graphc.types import Array, TensorType, bool_

if TYPE_CHECKING:
    from graphc.tensor import Tensor


# References


def _is_float(x: Array) -> bool:
    return x.dtype.kind not in "biu"


def _first(bad: Array) -> str:
    """Where the lowest failing element stands."""
    if not bad.ndim:
        return ""
    at = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return f" at [{','.join(str(int(i)) for i in at)}]"


def _nonzero(name: str, y: Array) -> None:
    if not np.all(y):
        raise IntegerDivisionError(f"{name}: integer division by zero{_first(y == 0)}")


def _div(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        if _is_float(x):
            return np.asarray(np.true_divide(x, y))
        _nonzero("div", y)
        if x.dtype.kind == "u":
            return np.asarray(np.floor_divide(x, y))
        minus_one = y == -1  # MIN // -1 is MIN, as negation wraps
        return np.where(minus_one, np.negative(x), np.floor_divide(x, np.where(minus_one, 1, y)))


def _rem(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        if not _is_float(x):
            _nonzero("rem", y)
            if x.dtype.kind == "i":
                y = np.where(y == -1, np.ones_like(y), y)
        return np.asarray(np.remainder(x, y))


def _pow(x: Array, y: Array) -> Array:
    if _is_float(x):
        return wide(np.power)(x, y)
    if np.any(y < 0):
        raise IntegerDivisionError(
            f"pow: negative integer exponent{_first(np.asarray(y < 0))}; use a float base"
        )
    with np.errstate(all="ignore"):
        return np.asarray(np.power(x, y))


def _shift(name: str, fn: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def ref(x: Array, y: Array) -> Array:
        width = x.dtype.itemsize * 8
        beyond = (y < 0) | (y >= width)
        shifted = fn(x, np.where(beyond, np.zeros_like(y), y))
        fill = np.where(x < 0, x.dtype.type(-1 if x.dtype.kind == "i" else 0), x.dtype.type(0))
        rest = fill if name == "shift_right" else np.zeros_like(x)
        return np.asarray(np.where(beyond, rest, shifted), x.dtype)

    return ref


# Gradients


def _maximum_vjp(sign: int) -> Callable[..., Any]:
    """Ties get half each."""

    def vjp(ct: Tensor, out: Tensor, x: Tensor, y: Tensor) -> Grads:
        zero, tie = prim.full_like(ct, 0), prim.equal(x, y)
        low, high = (y, x) if sign > 0 else (x, y)
        shared = ct * 0.5
        first = prim.select(prim.less(low, high), ct, zero)
        second = prim.select(prim.less(high, low), ct, zero)
        return [prim.select(tie, shared, first), prim.select(tie, shared, second)]

    return vjp


def _mul_vjp(ct: Tensor, out: Tensor, x: Tensor, y: Tensor) -> Grads:
    if x._value is y._value:  # 2 ct x; ct is doubled, for that of a sum is one number, repeated
        return [(ct + ct) * x, None]
    return [ct * y, ct * x]


def _pow_vjp(ct: Tensor, out: Tensor, x: Tensor, y: Tensor) -> Grads:
    """d/dx = y x^(y-1), which is 0 at x = y = 0; d/dy = out log x, which is 0 at x = 0 <= y."""
    zero, one = prim.full_like(x, 0), prim.full_like(x, 1)
    at_zero = prim.equal(x, zero)
    exponent = prim.select(prim.and_(at_zero, prim.equal(y, zero)), one, y) - 1.0
    base = prim.select(prim.and_(at_zero, prim.less_equal(zero, y)), one, x)
    return [ct * y * prim.pow(x, exponent), ct * out * prim.log(base)]


def _atan2_vjp(ct: Tensor, out: Tensor, y: Tensor, x: Tensor) -> Grads:
    """d/dy = x / (x^2 + y^2), d/dx = -y / (x^2 + y^2); 0 at the origin.

    Divided through by the larger of the two, so that no square overflows or vanishes.
    """
    zero, one = prim.full_like(x, 0), prim.full_like(x, 1)
    x_leads = prim.less_equal(prim.abs(y), prim.abs(x))
    larger, smaller = prim.select(x_leads, x, y), prim.select(x_leads, y, x)
    at_origin = prim.equal(larger, zero)
    larger = prim.select(at_origin, one, larger)
    ratio = smaller / larger
    first = prim.select(at_origin, zero, ct / (larger * (ratio * ratio + 1.0)))
    second = first * ratio
    return [prim.select(x_leads, first, second), -prim.select(x_leads, second, first)]


def _rem_vjp(ct: Tensor, out: Tensor, x: Tensor, y: Tensor) -> Grads:
    """rem = x - floor(x / y) y; the quotient is recovered exactly from the remainder. That is
    infinite where y is, and x has the other sign."""
    endless = prim.equal(prim.abs(out), prim.full_like(out, math.inf))
    floor = prim.select(endless, prim.full_like(out, -1.0), prim.round((x - out) / y))
    return [ct, -(ct * floor)]


def _select_vjp(ct: Tensor, out: Tensor, cond: Tensor, x: Tensor, y: Tensor) -> Grads:
    zero = prim.full_like(ct, 0)
    return [None, prim.select(cond, ct, zero), prim.select(cond, zero, ct)]


def _select_type(types: Types, attrs: Attrs) -> TensorType:
    cond, x, y = types
    if cond.dtype is not bool_:
        bad_dtype("select", "the condition must be bool", types)
    check_same("select", types, (x, y))
    if cond.shape != x.shape:
        bad_shape("select", "condition and operands must have one shape", types)
    return x


# Rows


def _binary(
    name: str, kinds: str, ref: Callable[..., Array], vjp: Any = None, hint: str = "",
    fails: Callable[[Array], bool] | None = None,
) -> None:
    """fails: for which integers as second operands it does."""
    def may_fail(types: Types, known: Known) -> bool:
        assert fails is not None
        return types[0].dtype.is_int and (known[1] is None or fails(known[1]))

    op(
        name, Kind.ELEMENTWISE, 2,
        type=elementwise(name, kinds, hint=hint), ref=ref, vjp=vjp, batch=elementwise_batch(name),
        differentiable=vjp is not None, fallible=fails is not None,
        may_fail=may_fail if fails is not None else None,
    )


def _comparison(name: str, ref: Callable[..., Any]) -> None:
    op(
        name, Kind.ELEMENTWISE, 2, type=comparison(name), ref=quiet(ref),
        batch=elementwise_batch(name), differentiable=False,
    )


def _is_zero(divisor: Array) -> bool:
    return not divisor


_binary("add", NUMBER, quiet(np.add), lambda ct, out, x, y: [ct, ct],
        hint="for bools use or / xor")
_binary("mul", NUMBER, quiet(np.multiply), _mul_vjp,
        hint="for bools use and")
_binary("sub", NUMBER, quiet(np.subtract), lambda ct, out, x, y: [ct, -ct],
        hint="for bools use xor")
_binary("div", NUMBER, _div,
        through_f32("div", lambda ct, out, x, y: [ct / y, -(ct / y * out)]),
        hint="cast bools first", fails=_is_zero)
_binary("rem", NUMBER, _rem, through_f32("rem", _rem_vjp), hint="cast bools first",
        fails=_is_zero)
_binary("pow", NUMBER, _pow, through_f32("pow", _pow_vjp), hint="cast bools first",
        fails=lambda exponent: bool(exponent < 0))
_binary("atan2", FLOAT, wide(np.arctan2), _atan2_vjp)
_binary("maximum", ANY, quiet(np.maximum), _maximum_vjp(1))
_binary("minimum", ANY, quiet(np.minimum), _maximum_vjp(-1))
_binary("and", BITS, quiet(np.bitwise_and))
_binary("or", BITS, quiet(np.bitwise_or))
_binary("xor", BITS, quiet(np.bitwise_xor))
_binary("shift_left", INT, _shift("shift_left", np.left_shift))
_binary("shift_right", INT, _shift("shift_right", np.right_shift))
_comparison("equal", np.equal)
_comparison("less", np.less)
_comparison("less_equal", np.less_equal)
op(
    "select", Kind.ELEMENTWISE, 3,
    type=_select_type, ref=np.where, vjp=_select_vjp, batch=elementwise_batch("select"),
)
