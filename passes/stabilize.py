"""Numerical stabilisation: forms that overflow or cancel become forms that do not.

    graph @f(%x: f32[4]) {
      %0: f32[4] = exp %x
      %1: f32[] = constant 1.0
      %2: f32[4] = broadcast %1 {shape=(4), axes=()}
      %3: f32[4] = sub %0, %2
      return %3
    }

becomes

    graph @f(%x: f32[4]) {
      %0: f32[4] = expm1 %x
      return %0
    }

The list of forms is closed; x, y, c are any expressions, and what `simplify` makes of a form counts
as that form:

    log(sum(exp(x)))  log(mean(exp(x)))  log(exp(x) + exp(y) + ..)  log(exp(x))
    exp(x) / sum(exp(x))  log(exp(x) / sum(exp(x)))  log(softmax(x))
    1 / (1 + exp(-x))  exp(x) / (1 + exp(x))  c / (1 + exp(-x))  c * exp(x) / (1 + exp(x))
    1 - sigmoid(x)  log(sigmoid(x))  log(1 - sigmoid(x))
    log(1 + exp(x))  log1p(exp(x))  log(1 + x)  log(1 - x)  exp(x) - 1  1 - exp(x)
    pow(x, 2)  pow(x, 3)

What each becomes, and what is not on the list, stands in `rules_stable`. On by default
(`stabilise=False` turns it off); `grad` runs it on the cost before differentiating.
"""

from __future__ import annotations

from graphc.ir import Graph, Value
from graphc.passes.rewrite import apply_rules
from graphc.passes.rules import STABLE


def run(g: Graph, protect: frozenset[Value] = frozenset()) -> Graph:
    """g in stable forms.

    Values in `protect`, and all that they are computed from, stay as they are, and no form
    reaches across them.
    """
    return apply_rules(g, STABLE, protect)
