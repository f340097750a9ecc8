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

The list of forms is closed and stands in `rules_stable`. On by default (`stabilise=False` turns it
off); `grad` runs it on the cost before differentiating.
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
