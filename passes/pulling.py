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

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from graphc.dims import exact_div
from graphc.ir import Node
from graphc.ops.row import Kind
from graphc.passes.grouping import MAX_NODES
from graphc.passes.groups import EXPENSIVE, Group, Use

# How many more times a node, all nodes together, is computed at several places. 10,000 and 100,000
# elements of chains of 10 nodes at two places take as long either way, of 6 two thirds, of 18 a
# quarter longer; from beyond the second cache, results of FAR_BYTES and more, half the time up to
# 14 nodes at two, and 10 at three.
AGAIN, AGAIN_FAR = 12, 24
FAR_BYTES = 1 << 20
SPREAD = 8  # nodes that are computed for each element of a row, say, though all want the same one
MAX_DEPTH = 24  # conditions within conditions: each asks again for all around it, so that d of them
                # take d * d comparisons for an element, where memory takes d stores and loads
CONDITIONAL = frozenset({"concat", "pad", "update_slice"})  # where an element comes from depends


def can_pull(readers: Sequence[Node], g: Group, h: Group, uses: Sequence[Use]) -> bool:
    """Whether h may be computed inside g, the group of its `readers`; `uses` are theirs of it."""
    if h.open != len(uses) or h.kind != "loops" or h.reduced or g.kind != "loops":
        return False
    if len(h.nodes) + len(g.nodes) > MAX_NODES or _depth(readers, h) > MAX_DEPTH:
        return False
    if any(m.can_fail for m in h.nodes):
        return False
    if g.reduced and len(g.nodes) > 1 and any(n.op.kind is Kind.REDUCE for n in readers):
        return False
    again, nodes = places(uses) - 1, len(h.nodes)
    if len(uses) == 1 and uses[0].injective:
        return True
    size = uses[0].value.type.bytes
    far = isinstance(size, int) and size >= FAR_BYTES
    return h.work < EXPENSIVE and again * nodes <= (AGAIN_FAR if far else AGAIN) and (
        nodes <= SPREAD or all(u.injective for u in uses)
    )


def places(uses: Sequence[Use]) -> int:
    """How often elements are read, at different indices: three parts that are all of a value are
    one place together."""
    total = Fraction(0)
    for part, whole, _ in dict.fromkeys((u.part, u.value, u.reader) for u in uses):
        times = 1 if part.type.size == 0 else exact_div(whole.type.size, part.type.size)
        total += Fraction(1, times) if isinstance(times, int) and times > 1 else 1
    return ceil(total)


def absorb(readers: Sequence[Node], g: Group, h: Group, uses: int) -> Group:
    """g, the group of h's readers, with h's nodes computed at g's indices."""
    g.pulled |= h.labels.keys() | h.pulled
    g.nodes.extend(h.nodes)
    g.others = {v: n for v, n in g.others.items() if v not in h.labels}
    g.use(h.others)
    g.work, g.depth = max(g.work, h.work), max(g.depth, _depth(readers, h))
    g.ends = g.ends or h.ends
    g.open += h.open - uses
    return g


def is_conditional(n: Node) -> bool:
    """Whether it depends on the index which operand an element comes from."""
    return n.op.name in CONDITIONAL


def _depth(readers: Sequence[Node], h: Group) -> int:
    """Conditions within conditions around h's nodes."""
    return h.depth + any(map(is_conditional, readers))
