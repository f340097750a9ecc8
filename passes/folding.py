"""Evaluates one op on known arrays, with the bits that it is to have at run time.

Mostly the op's NumPy reference, which computes the transcendental functions of f32 in f64 and
rounds once. Those of f64 are evaluated in extended precision, since NumPy's own f64 bits change
with the CPU, and float sums and products one precision up, but for running ones, whose order is the
same everywhere. Where the platform has nothing wider than f64, or NumPy no such function, f64 is
not folded. Random ops never are, nor what fails: it fails at run time, with the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphcError
from graphc.ops.row import Kind, Op
from graphc.types import Array, DType, f32, f64

# Correct rounding of f64 needs some bits to spare; MSVC's and many ARM long doubles have none.
_LONG = np.longdouble
_HAS_WIDE = np.finfo(_LONG).nmant > np.finfo(np.float64).nmant + 4

_EXTENDED: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "log2": np.log2, "log10": np.log10, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "pow": np.power,
}  # fmt: skip
_ONLY_F64 = frozenset(("erf", "normal_cdf", "lgamma", "polygamma"))  # have no longdouble version
_ACCUMULATE = frozenset(("reduce_sum", "reduce_prod", "dot", "scatter_add"))

_KINDS = frozenset(Kind) - {Kind.LEAF, Kind.RANDOM, Kind.REGION, Kind.META}


def evaluate(op: Op, arrays: Sequence[Array], attrs: Mapping[str, Any], out: DType) -> Array | None:
    """The result of a single-result op, or None where it is not to be folded."""
    if op.kind not in _KINDS or op.unique or op.ref is None:
        return None
    fn, attrs = op.ref, dict(attrs)
    if out is f64 and op.name in _ONLY_F64:
        return None
    if op.name in _ACCUMULATE and out.is_float:
        arrays = [_as_float(a, _LONG if out is f64 else np.float64) for a in arrays]
    elif op.name in _EXTENDED and out is f64:
        fn, attrs = _EXTENDED[op.name], {}
        arrays = [_as_float(a, _LONG) for a in arrays]
    elif op.kind is not Kind.LAYOUT and op.name != "bitcast":
        arrays = [_as_float(a, np.float32) if a.itemsize == 2 else a for a in arrays]
    if any(a.dtype == _LONG for a in arrays) and not _HAS_WIDE:
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(fn(*arrays, **attrs))
            return _round(result, out) if out.is_float else result
    except (GraphcError, ArithmeticError, ValueError, IndexError, TypeError):
        return None


def _as_float(a: Array, dtype: Any) -> Array:
    return a.astype(dtype) if a.dtype.kind not in "biu" else a  # bfloat16 is of kind V


def _round(wide: Array, out: DType) -> Array:
    """Rounded to the dtype; to a 16-bit float through f32, as at run time."""
    if wide.dtype == out.numpy:
        return wide
    return wide.astype((f32 if out.bits == 16 else out).numpy).astype(out.numpy)


def fold_splat(
    op: Op, numbers: Sequence[Array], attrs: Mapping[str, Any], out: DType
) -> Array | None:
    """An elementwise op on 0-d arrays."""
    result = evaluate(op, numbers, attrs, out)
    if result is None or result.shape != () or result.dtype != out.numpy:
        return None
    return result
