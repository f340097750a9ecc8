"""Rows of one operand, elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphc import prim
from graphc.ops import special
from graphc.ops.batching import elementwise_batch
from graphc.ops.numeric import quiet, wide
from graphc.ops.row import Attrs, Grads, Kind, op
from graphc.ops.typerules import (
    BITS,
    FLOAT,
    NUMBER,
    Types,
    bad_argument,
    check_dtype,
    elementwise,
)
from graphc.types import Array, TensorType, bool_

if TYPE_CHECKING:
    from graphc.tensor import Tensor

Vjp: TypeAlias = "Callable[..., Grads]"


def _unary(
    name: str,
    kinds: str,
    ref: Callable[..., Array],
    vjp: Callable[[Tensor, Tensor, Tensor], Tensor] | None,
    result: Any = None,
) -> None:
    rule: Vjp | None = None
    if vjp is not None:
        formula = vjp

        def rule(ct: Tensor, y: Tensor, x: Tensor) -> list[Tensor | None]:
            return [formula(ct, y, x)]

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
_unary("sqrt", FLOAT, quiet(np.sqrt), lambda ct, y, x: ct / (y + y))
_unary("rsqrt", FLOAT, wide(lambda x: 1.0 / np.sqrt(x)), lambda ct, y, x: ct * y / x * -0.5)
_unary("sin", FLOAT, wide(np.sin), lambda ct, y, x: ct * prim.cos(x))
_unary("cos", FLOAT, wide(np.cos), lambda ct, y, x: -(ct * prim.sin(x)))
_unary("tanh", FLOAT, wide(np.tanh), lambda ct, y, x: ct * ((1.0 - y) * (1.0 + y)))
_unary("atan", FLOAT, wide(np.arctan), lambda ct, y, x: ct / (x * x + 1.0))
_unary(
    "erf", FLOAT, wide(special.erf),
    lambda ct, y, x: ct * prim.exp(-(x * x)) * (2.0 / math.sqrt(math.pi)),
)
_unary(
    "normal_cdf", FLOAT, wide(special.normal_cdf),
    lambda ct, y, x: ct * prim.exp(x * x * -0.5) * (1.0 / math.sqrt(2.0 * math.pi)),
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
