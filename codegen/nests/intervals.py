"""Between which numbers an expression of a nest lies, whatever the data are: interval arithmetic
(Moore 1966), as compilers do it for integers (Patterson 1995).

    x - max(x)      -0.5 * d * d      x < 0 ? x : -x      sum(-(p - q)**2)        at most 0

So the code of a function may leave out what it would do for other arguments (`vecmath.exp`). NaN
counts for nothing: what lies between two numbers may be NaN as well. Ends are rounded outward, as
results may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.codegen.nests.loops import Expr
from graphc.types import bf16, f16, f32, f64

Interval = tuple[float, float]

DEPTH = 6      # of the expressions that are looked through
MODEST = 64.0  # up to which `vecmath.exp` has a shorter code
ANY: Interval = -math.inf, math.inf
FROM_0: Interval = 0.0, math.inf
# Beyond these results may overflow, and are taken for infinite.
LARGE = {f16: 2.0**15, bf16: 2.0**127, f32: 2.0**127, f64: 2.0**1023}
# Where functions lie, whatever their argument.
RANGES: dict[str, Interval] = {
    "abs": FROM_0, "sqrt": FROM_0, "exp": FROM_0, "expm1": (-1.0, math.inf), "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0), "tanh": (-1.0, 1.0), "erf": (-1.0, 1.0), "normal_cdf": (0.0, 1.0),
}


def attributes(op: str, args: Sequence[Expr]) -> Mapping[str, Any]:
    """What the code of an op is told of its operands."""
    return {"modest": True} if op == "exp" and interval(args[0])[1] <= MODEST else {}


def interval(e: Expr, depth: int = DEPTH) -> Interval:
    """(least, greatest) value of a float expression."""
    if not (depth and e.dtype.is_float):
        return ANY
    if e.kind == "const":
        x = float(np.frombuffer(e.attrs[0], e.dtype.numpy)[0])
        return ANY if math.isnan(x) else (x, x)
    if e.kind == "reduce":
        return _reduced(e.name, interval(e.args[0], depth - 1))
    if e.kind != "op":
        return ANY
    rule = RULES.get(e.name)
    least, most = RANGES.get(e.name, ANY) if rule is None else rule(e, depth - 1)
    digit, top = 2.0 ** (1 - e.dtype.digits), LARGE[e.dtype]
    least, most = least - digit * abs(least), most + digit * abs(most)
    return (least if least >= -top else -math.inf), (most if most <= top else math.inf)


def _reduced(name: str, x: Interval) -> Interval:
    """A reduction of what lies in x: of any number of elements, none as well."""
    if name == "reduce_max":
        return -math.inf, x[1]
    if name == "reduce_min":
        return x[0], math.inf
    if name == "reduce_sum":
        return 0.0 if x[0] >= 0 else -math.inf, 0.0 if x[1] <= 0 else math.inf
    return ANY


def _negative(x: Interval) -> Interval:
    return -x[1], -x[0]


def _neg(e: Expr, depth: int) -> Interval:
    return _negative(interval(e.args[0], depth))


def _cast(e: Expr, depth: int) -> Interval:
    return interval(e.args[0], depth)


def _add(e: Expr, depth: int) -> Interval:
    return _sum(*(interval(x, depth) for x in e.args))


def _sum(a: Interval, b: Interval) -> Interval:
    least, most = a[0] + b[0], a[1] + b[1]
    return (-math.inf if math.isnan(least) else least), (math.inf if math.isnan(most) else most)


def _sub(e: Expr, depth: int) -> Interval:
    """a - b, which is at most 0 where b is the greatest a."""
    a, b = e.args
    least, most = _sum(interval(a, depth), _negative(interval(b, depth)))
    if b.kind == "reduce" and b.name == "reduce_max" and b.args[0] is a:
        most = min(most, 0.0)
    return least, most


def _mul(e: Expr, depth: int) -> Interval:
    """A product, which has a sign where all but numbers are there twice: results overflow on the
    way, but not to the other side."""
    least, most = _product(*(interval(x, depth) for x in e.args))
    odd: set[Expr] = set()
    sign, left = (1.0, 1.0), [(e, depth)]
    while left:
        x, below = left.pop()
        if below and x.kind == "op" and x.name in ("mul", "neg"):
            left += [(a, below - 1) for a in x.args]
            sign = _negative(sign) if x.name == "neg" else sign
        else:
            odd ^= {x}
    for x in odd:
        low, high = interval(x, depth)
        sign = _product(sign, (min(max(low, -1.0), 1.0), min(max(high, -1.0), 1.0)))
    return (max(least, 0.0) if sign[0] >= 0 else least), (min(most, 0.0) if sign[1] <= 0 else most)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    ends = [0.0 if math.isnan(x) else x for x in ends]  # what is next to 0 times what is large
    return min(ends), max(ends)


def _div(e: Expr, depth: int) -> Interval:
    """a / b for b on one side of 0."""
    least, most = interval(e.args[1], depth)
    if least <= 0 <= most:
        return ANY
    return _product(interval(e.args[0], depth), (1 / most, 1 / least))


def _maximum(e: Expr, depth: int) -> Interval:
    a, b = (interval(x, depth) for x in e.args)
    return max(a[0], b[0]), max(a[1], b[1])


def _minimum(e: Expr, depth: int) -> Interval:
    a, b = (interval(x, depth) for x in e.args)
    return min(a[0], b[0]), min(a[1], b[1])


def _select(e: Expr, depth: int) -> Interval:
    """Either branch, as far as the condition allows."""
    condition, then, other = e.args
    a, b = _where(then, condition, True, depth), _where(other, condition, False, depth)
    return min(a[0], b[0]), max(a[1], b[1])


def _where(x: Expr, condition: Expr, holds: bool, depth: int) -> Interval:
    """x where a comparison with a number holds, or where it does not."""
    if depth and x.kind == "op" and x.name == "neg":
        return _negative(_where(x.args[0], condition, holds, depth - 1))
    least, most = interval(x, depth)
    if condition.kind == "op" and condition.name in ("less", "less_equal"):
        low, high = condition.args if holds else condition.args[::-1]
        if x is high and low.kind == "const":
            least = max(least, interval(low)[0])
        if x is low and high.kind == "const":
            most = min(most, interval(high)[1])
    return least, most


RULES: dict[str, Callable[[Expr, int], Interval]] = {
    "neg": _neg, "cast": _cast, "add": _add, "sub": _sub, "mul": _mul, "div": _div,
    "maximum": _maximum, "minimum": _minimum, "select": _select,
}
