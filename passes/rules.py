"""The rule tables, in the order in which rules are tried.

A new law is one row in one of these tables (and a golden under `tests/passes/golden/simplify`):

    rules_arithmetic   numbers, casts
    rules_logic        bools, comparisons, select
    rules_layout       transpose, reshape, broadcast, slice, pad, concat, reverse
    rules_views        elementwise ops before a broadcast
    rules_reduce       reductions, dot, gather
    rules_stable       accurate forms (the pass `stabilize`), with rules_sigmoid
    rules_fastmath     opt-in
"""

from __future__ import annotations

from graphc.passes import (
    rules_arithmetic,
    rules_fastmath,
    rules_layout,
    rules_logic,
    rules_reduce,
    rules_stable,
    rules_views,
)
from graphc.passes.rewrite import RuleSet

EXACT = RuleSet(
    (
        *rules_arithmetic.RULES,
        *rules_logic.RULES,
        *rules_layout.RULES,
        *rules_views.RULES,
        *rules_reduce.RULES,
    )
)
STABLE = RuleSet(rules_stable.RULES)
FASTMATH = RuleSet((*EXACT.rules, *rules_fastmath.RULES))
