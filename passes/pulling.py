"""Kernels computed inside of another, at the indices where that one wants their elements.

    y = x * x;  y[1:] - y[:-1]         y at two moved indices, and nowhere in memory
    pad(y, ((1, 0),))                  where it is no padding

Other values of a group are used at the very index at which they are made (`grouping`); pulled ones
are made once for each place that reads them, which is less work than to store them as long as it is
little, or the place is one. Columns that are read apart are one place together: of differences of
points, which a cross product reads six times, each is made once. So are columns of a product that
are repeated for the next one: A B C of 10,000 4 x 4 f32 takes 33 us in the place of 42, A B A' 27.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from graphc.dims import exact_div
from graphc.ir import Node, Value
from graphc.ops.row import Kind
from graphc.passes.grouping import MAX_NODES
from graphc.passes.groups import EXPENSIVE, OWN, Group, Place, Use

# How many more nodes are computed for an element, by what its readers are computed for. 10,000 and
# 100,000 elements of chains of 10 nodes at two places take as long either way, of 6 two thirds, of
# 18 a quarter longer. Results of FAR_BYTES and more, from beyond the second cache, take half the
# time up to 14 nodes at two places, and 10 at three. Three filters of three rows, 48 more nodes:
# 1,000 x 1,000 of f64, OUT_BYTES and more, take 800 us in one kernel and 1,500 in two, of f32 410
# and 350.
AGAIN, AGAIN_FAR, AGAIN_OUT = 12, 24, 48
FAR_BYTES, OUT_BYTES = 1 << 20, 6 << 20
SPREAD = 8  # nodes that are computed for each element of a row, say, though all want the same one
MAX_DEPTH = 24  # conditions within conditions: each asks again for all around it, so that d of them
                # take d * d comparisons for an element, where memory takes d stores and loads
CONDITIONAL = frozenset({"concat", "pad", "update_slice"})  # where an element comes from depends


def can_pull(g: Group, h: Group, uses: Sequence[Use]) -> bool:
    """Whether h may be computed inside g, whose nodes' uses of it these are."""
    if h.open != len(uses) or h.kind != "loops" or h.reduced or g.kind != "loops":
        return False
    inside = _place(g, uses)
    if g.computed + inside.times * h.computed > MAX_NODES or inside.depth + h.depth > MAX_DEPTH:
        return False
    if any(m.can_fail for m in h.nodes):
        return False
    if g.reduced and len(g.nodes) > 1 and any(u.reader.op.kind is Kind.REDUCE for u in uses):
        return False
    if len(uses) == 1 and uses[0].injective and inside.times == 1:
        return True
    again = (inside.times - 1) * h.computed
    return h.work < EXPENSIVE and again <= _again(uses[0].value) and (
        h.computed <= SPREAD or all(u.injective for u in uses)
    )


def _again(v: Value) -> int:
    """How many more nodes may be computed not to store what is as large as a value."""
    size = v.type.bytes
    if not isinstance(size, int) or size < FAR_BYTES:
        return AGAIN
    return AGAIN_FAR if size < OUT_BYTES else AGAIN_OUT


def _place(g: Group, uses: Sequence[Use]) -> Place:
    """Where in g that is computed which its nodes use so."""
    readers = [(u.reader, g.places.get(u.reader, OWN)) for u in uses]
    return Place(max(p.depth + is_conditional(n) for n, p in readers), times(g, uses))


def times(g: Group, uses: Sequence[Use]) -> int:
    """How often elements are read, at different indices, by a group's nodes: three parts that are
    all of a value are one place together, and what reads at several places does so at each."""
    each: dict[tuple[Value, Value, Node | None], int] = {}
    for u in uses:
        key = u.part, u.value, u.reader if u.label is None else None
        each[key] = max(each.get(key, 0), g.places.get(u.reader, OWN).times)
    total: Counter[int] = Counter()  # by how many parts what is read is one of
    for (part, whole, _), n in each.items():
        parts = 1 if part.type.size == 0 else exact_div(whole.type.size, part.type.size)
        total[parts if isinstance(parts, int) and parts > 1 else 1] += n
    common = math.lcm(*total)
    return -(-sum(n * (common // parts) for parts, n in total.items()) // common)


def absorb(g: Group, h: Group, uses: Sequence[Use]) -> Group:
    """g, whose nodes' uses of h these are, with h's nodes computed at its own indices."""
    inside = _place(g, uses)
    for m in h.nodes:
        own = h.places.get(m, OWN)
        g.places[m] = Place(inside.depth + own.depth, inside.times * own.times)
    g.nodes.extend(h.nodes)
    g.computed += inside.times * h.computed
    g.others = {v: n for v, n in g.others.items() if v not in h.labels}
    g.use(h.others)
    g.work, g.depth = max(g.work, h.work), max(g.depth, inside.depth + h.depth)
    g.ends = g.ends or h.ends
    g.open += h.open - len(uses)
    return g


def is_conditional(n: Node) -> bool:
    """Whether it depends on the index which operand an element comes from."""
    return n.op.name in CONDITIONAL
