"""Rows of one operand, elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphc import prim
from graphc.ops import special
from graphc.ops.batching import elementwise_batch
from graphc.ops.halves import through_f32
from graphc.ops.numeric import quiet, wide
from graphc.ops.row import Attrs, Grads, Kind, op
from graphc.ops.typerules import BITS, FLOAT, NUMBER, Types, bad_argument, check_dtype, elementwise
from graphc.types import BY_NAME, Array, TensorType, bool_, f64

if TYPE_CHECKING:
    from graphc.tensor import Tensor

Vjp: TypeAlias = "Callable[..., Grads]"


def _unary(
    name: str, kinds: str, ref: Callable[..., Array],
    vjp: Callable[[Tensor, Tensor, Tensor], Tensor] | None, result: Any = None,
    wide: bool = False,
) -> None:
    """`wide`: the vjp of 16-bit floats is computed in f32."""
    rule: Vjp | None = None
    if vjp is not None:
        formula = vjp

        def rule(ct: Tensor, y: Tensor, x: Tensor) -> list[Tensor | None]:
            return [formula(ct, y, x)]

        if wide:
            rule = through_f32(name, rule)

    op(
        name, Kind.ELEMENTWISE, 1,
        type=elementwise(name, kinds, result), ref=ref, vjp=rule,
        batch=elementwise_batch(name), differentiable=vjp is not None,
    )


def _polygamma_type(types: Types, attrs: Attrs) -> TensorType:
    n = attrs["n"]
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        bad_argument("polygamma", "n must be an integer >= 0", n)
    check_dtype("polygamma", FLOAT, types, types)
    return types[0]


def _polygamma(x: Array, n: int) -> Array:
    return wide(lambda v: special.polygamma(n, v))(x)


def _factored(plain: Tensor, factors: Tensor) -> Tensor:
    """x**2 - 1 or 1 - x**2, `plain`, by its factors, which do not cancel near 1, with the slope of
    the plain one: it does not cancel near 0, or meet a 0 times infinity at 1."""
    return plain + prim.stop_gradient(factors - plain)


def _cofactor(x: Tensor) -> Tensor:
    return _factored(1.0 - x * x, (1.0 - x) * (1.0 + x))


def _root_beside_one(x: Tensor, square: Callable[[Tensor], Tensor]) -> Tensor:
    """sqrt(square(x)), a square of x plus or minus 1: to the last digit |x| far out, where x**2
    might overflow, and powers of the result in derivatives of this one vanish."""
    far = prim.less(prim.full_like(x, 2.0**28 if x.dtype is f64 else 2.0**13), prim.abs(x))
    near = prim.select(far, prim.full_like(x, 1.0), x)
    return prim.select(far, prim.abs(x), prim.sqrt(square(near)))


def _acosh_slope(x: Tensor) -> Tensor:
    """The inverse of acosh's derivative, NaN below 1 as acosh is."""
    x = prim.select(prim.less(x, prim.full_like(x, 0.0)), prim.full_like(x, math.nan), x)
    return _root_beside_one(x, lambda u: _factored(u * u - 1.0, (u - 1.0) * (u + 1.0)))


def _tanh_slope(y: Tensor, x: Tensor) -> Tensor:
    """1 - y**2, right to one ULP of 1. That of 16-bit floats is large, so theirs is made in f32."""
    if x.dtype.bits > 16:
        return 1.0 - y * y
    wide = prim.tanh(prim.cast(x, dtype=x.dtype.compute))
    return prim.cast(1.0 - wide * wide, dtype=x.dtype)


def _exp_of_square(x: Tensor, factor: float) -> Tensor:
    """exp(factor * x**2), factor a power of 2, with what the rounding of x**2 loses made good.

    Far out that is hundreds of ULP. Dekker's product, of an x split by masking half its digits;
    squares of 16-bit floats are exact in f32. Where the result is 0 nothing is lost, lest
    derivatives of this one multiply that 0 by an infinity.
    """
    if x.dtype.bits == 16:
        wide = prim.cast(x, dtype=x.dtype.compute)
        return prim.cast(prim.exp(wide * wide * factor), dtype=x.dtype)
    bits = prim.bitcast(x, dtype=BY_NAME[f"i{x.dtype.bits}"])
    mask = prim.full_like(bits, -1 << (27 if x.dtype is f64 else 12))
    high = prim.bitcast(prim.and_(bits, mask), dtype=x.dtype)
    square = x * x
    lost = (high * high - square) + (x - high) * (x + high)
    lost = prim.select(prim.less(square, prim.full_like(x, 2.0**13)), lost, prim.full_like(x, 0.0))
    return prim.exp(square * factor) * (prim.stop_gradient(lost) * factor + 1.0)


def _cbrt(x: Array) -> Array:
    """In extended precision, where there is one: that of f64 is off by several ULP in glibc, which
    NumPy calls where it has no AVX-512."""
    with np.errstate(all="ignore"):
        return np.asarray(np.cbrt(x.astype(np.longdouble))).astype(x.dtype)


def _cbrt_vjp(ct: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """1 / (3 y**2), by a reciprocal so that the second derivatives at 0 are infinite, not NaN."""
    r = 1.0 / y
    return ct * (r * (1.0 / 3.0)) * r


_unary("neg", NUMBER, quiet(np.negative), lambda ct, y, x: -ct)
_unary("abs", NUMBER, quiet(np.abs), lambda ct, y, x: ct * prim.sign(x))
_unary("sign", NUMBER, quiet(np.sign), None)
_unary("floor", FLOAT, quiet(np.floor), None)
_unary("ceil", FLOAT, quiet(np.ceil), None)
_unary("round", FLOAT, quiet(np.rint), None)
_unary("exp", FLOAT, wide(np.exp), lambda ct, y, x: ct * y)
_unary("expm1", FLOAT, wide(np.expm1), lambda ct, y, x: ct * prim.exp(x))
_unary("log", FLOAT, wide(np.log), lambda ct, y, x: ct / x)
_unary("log1p", FLOAT, wide(np.log1p), lambda ct, y, x: ct / (x + 1.0))
_unary("log2", FLOAT, wide(np.log2), lambda ct, y, x: ct * (1.0 / math.log(2.0)) / x)
_unary("log10", FLOAT, wide(np.log10), lambda ct, y, x: ct * (1.0 / math.log(10.0)) / x)
_unary("sqrt", FLOAT, quiet(np.sqrt), lambda ct, y, x: ct / (y + y))
_unary("rsqrt", FLOAT, wide(lambda x: 1.0 / np.sqrt(x)), lambda ct, y, x: ct * -0.5 * y / x)
_unary("cbrt", FLOAT, _cbrt, _cbrt_vjp)
_unary("sin", FLOAT, wide(np.sin), lambda ct, y, x: ct * prim.cos(x))
_unary("cos", FLOAT, wide(np.cos), lambda ct, y, x: -(ct * prim.sin(x)))
_unary("tan", FLOAT, wide(np.tan), lambda ct, y, x: ct * (y * y + 1.0))
_unary("sinh", FLOAT, wide(np.sinh), lambda ct, y, x: ct * prim.cosh(x))
_unary("cosh", FLOAT, wide(np.cosh), lambda ct, y, x: ct * prim.sinh(x))
_unary("tanh", FLOAT, wide(np.tanh), lambda ct, y, x: ct * _tanh_slope(y, x))
_unary("asin", FLOAT, wide(np.arcsin), lambda ct, y, x: ct * prim.rsqrt(_cofactor(x)), wide=True)
_unary("acos", FLOAT, wide(np.arccos), lambda ct, y, x: -(ct * prim.rsqrt(_cofactor(x))), wide=True)
_unary("atan", FLOAT, wide(np.arctan), lambda ct, y, x: ct / (x * x + 1.0), wide=True)
_unary(
    "asinh", FLOAT, wide(np.arcsinh),
    lambda ct, y, x: ct / _root_beside_one(x, lambda u: u * u + 1.0), wide=True,
)
_unary("acosh", FLOAT, wide(np.arccosh), lambda ct, y, x: ct / _acosh_slope(x), wide=True)
_unary("atanh", FLOAT, wide(np.arctanh), lambda ct, y, x: ct / _cofactor(x), wide=True)
_unary(
    "erf", FLOAT, wide(special.erf),
    lambda ct, y, x: ct * _exp_of_square(x, -1.0) * (2.0 / math.sqrt(math.pi)),
)
_unary(
    "normal_cdf", FLOAT, wide(special.normal_cdf),
    lambda ct, y, x: ct * _exp_of_square(x, -0.5) * (1.0 / math.sqrt(2.0 * math.pi)),
)
_unary("lgamma", FLOAT, wide(special.lgamma), lambda ct, y, x: ct * prim.polygamma(x, 0))
op(
    "polygamma", Kind.ELEMENTWISE, 1, attrs=("n",),
    type=_polygamma_type, ref=_polygamma,
    vjp=lambda ct, y, x, n: [ct * prim.polygamma(x, n + 1)],
    batch=elementwise_batch("polygamma"),
)
_unary("is_finite", FLOAT, quiet(np.isfinite), None, bool_)
_unary("not", BITS, quiet(np.invert), None)
