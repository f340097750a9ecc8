"""Simplification as for real numbers: the `fastmath` rules beside the exact ones.

    graph @f(%x: f32[4], %y: f32[4]) {
      %c: f32[] = constant 3.0
      %three: f32[4] = broadcast %c {shape=(4), axes=()}
      %0: f32[4] = sqrt %y
      %1: f32[4] = div %x, %0
      %2: f32[4] = mul %1, %three
      %3: f32[4] = mul %2, %three
      return %3
    }

becomes

    graph @f(%x: f32[4], %y: f32[4]) {
      %0: f32[4] = rsqrt %y
      %1: f32[4] = mul %x, %0
      %2: f32[] = constant 9.0
      %3: f32[4] = broadcast %2 {shape=(4), axes=()}
      %4: f32[4] = mul %1, %3
      return %4
    }

It runs only where a function asks for `fastmath=True`.
"""

from __future__ import annotations

from graphc.ir import Graph
from graphc.passes.rewrite import apply_rules
from graphc.passes.rules import FASTMATH


def run(g: Graph) -> Graph:
    return apply_rules(g, FASTMATH)
