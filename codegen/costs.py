"""What computing costs, in cycles of one vector: by it nests are scheduled and work is cut.

`grain` says from how much work on threads share it.
"""

from __future__ import annotations

from graphc.codegen.loops import Expr

# Cycles that a vector of an expression takes, roughly: the mean of f32 and f64 on AVX-512 at
# 3.9 GHz, by tests/benchmarks/math_speed.py. Quotients and roots count less than the 14, 20 and 32
# cycles that they hold the divider, since they leave the other units alone: with those, a layer
# norm unrolls too little and takes a ninth longer; lgamma and polygamma less than their 700 and
# 1200, since they are calls, of which straight-line functions may make some.
VECTOR_COST = {
    "exp": 10, "expm1": 16, "log": 12, "log1p": 22, "log2": 12, "log10": 14, "sin": 24, "cos": 24,
    "tan": 24, "sinh": 20, "cosh": 18, "tanh": 20, "asinh": 48, "acosh": 38, "atanh": 24,
    "asin": 20, "acos": 22, "atan": 20, "atan2": 36, "erf": 40, "normal_cdf": 40, "pow": 40,
    "lgamma": 200, "polygamma": 300, "div": 8, "sqrt": 10, "rsqrt": 16, "rem": 32,
}
COSTLY = 8  # from which reading back beats computing again
INSTRUCTIONS = ("div", "sqrt", "rsqrt")  # costly, but no longer for scalars


def cost_of(e: Expr) -> int:
    """Of a vector of one expression, in cycles."""
    if e.kind == "op":
        return VECTOR_COST.get(e.attrs[0], 1)
    return 0 if e.kind in ("const", "index") else 40 if e.kind == "philox" else 1


def is_long(e: Expr) -> bool:
    """Whether an op takes a scalar dozens of instructions."""
    return e.attrs[0] in VECTOR_COST and e.attrs[0] not in INSTRUCTIONS
