"""Functions of the reals that are one primitive each: exp, log2, tan, sinh, erf, ..."""

from __future__ import annotations

from collections.abc import Callable

from graphc import prim
from graphc.convert import ArrayLike, as_float
from graphc.tensor import Tensor

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin",
    "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1", "lgamma", "log", "log1p",
    "log2", "log10", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
]


def _real(fn: Callable[[Tensor], Tensor], doc: str) -> Callable[[ArrayLike], Tensor]:
    """A unary function of the reals from its primitive."""

    def apply(x: ArrayLike) -> Tensor:
        return fn(as_float(x))

    apply.__doc__ = f"{doc}, elementwise; integers and bools count as float32."
    apply.__name__ = apply.__qualname__ = fn.__name__
    return apply


exp = _real(prim.exp, "e**x")
expm1 = _real(prim.expm1, "e**x - 1 without cancellation near 0")
log = _real(prim.log, "The natural logarithm")
log1p = _real(prim.log1p, "log(1 + x) without cancellation near 0")
log2 = _real(prim.log2, "The logarithm to base 2, exact at powers of 2")
log10 = _real(prim.log10, "The logarithm to base 10")
sqrt = _real(prim.sqrt, "The square root, correctly rounded")
rsqrt = _real(prim.rsqrt, "1 / sqrt(x)")
sin = _real(prim.sin, "The sine of x radians")
cos = _real(prim.cos, "The cosine of x radians")
tan = _real(prim.tan, "The tangent of x radians")
sinh = _real(prim.sinh, "The hyperbolic sine")
cosh = _real(prim.cosh, "The hyperbolic cosine")
tanh = _real(prim.tanh, "The hyperbolic tangent")
asinh = _real(prim.asinh, "The inverse hyperbolic sine")
acosh = _real(prim.acosh, "The inverse hyperbolic cosine, NaN below 1")
atanh = _real(prim.atanh, "The inverse hyperbolic tangent, NaN outside [-1, 1]")
asin = _real(prim.asin, "The inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1]")
acos = _real(prim.acos, "The inverse cosine, in [0, pi]; NaN outside [-1, 1]")
atan = _real(prim.atan, "The inverse tangent, in [-pi/2, pi/2]")
erf = _real(prim.erf, "The error function")
lgamma = _real(prim.lgamma, "log|gamma(x)|")

# NumPy's other names
arctan = atan
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctanh = atanh
