"""What kernels would walk across: reads and stores against the order of their loops.

A kernel of two may be slower than both, where what one reads lies across the way the other goes.
`joining` asks before it makes one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.ir import Node, Value
from graphc.ops.row import Kind
from graphc.passes.groups import ONE, WILD, Group, is_against, renamed

if TYPE_CHECKING:
    from graphc.passes.joining import Joining


def turns(
    groups: Joining, n: Node, g: Group, h: Group, to: dict[int, int], full: dict[int, int]
) -> bool:
    """Whether n would walk what it reads, or stores, against its layout in the loops of h.

    So it is where an axis that nothing ties to a reduced one (`full` has it, `to` has not) is
    given to it for its size alone, and comes before axes that the reduced one comes after:

        h[i] = sum_j a[i, j],  y[o, i] = b[o, i] * h[i]    would read b[j, i] along j

    as b[i, j] is where a is read as a[j, i]. The transpose of b beside a is walked as a is, and
    may be a itself, which is read once then. Storing h is nothing beside b: joined, sums of
    such an y took 1.4 times as long with 40 x 40 of f32, 2.7 with 200 x 200, 14 with
    1024 x 1024, and y itself 0.85, 2 and 9 times; with both transposed, sums 2.6, 3 and 24
    times, and y itself 1, 1.1 and 3.3.
    """
    if len(full) == len(to) or not h.reduced or n.op.kind is Kind.REDUCE:
        return False
    space = groups.proto[n][1]
    own = dict(zip(space, g.labels[n.outs[0]], strict=True))
    at = {a: full[b] for a, b in own.items() if b >= 0}
    guessed = {b for a, b in full.items() if a not in to}
    reads = [renamed(u.label, at) for u in groups.uses[n] if u.label is not None]
    large = [w for w in reads if len({*w} - {ONE, WILD}) > 1 and not guessed.isdisjoint(w)]
    ways = large or [renamed(space, at)]
    made, read = h.orders()
    if all(is_against(order, way) for order in made for way in ways):
        return True
    against = bool(read) and all(is_against(order, way) for order in read for way in ways)
    return against and not _has_wanted_rows(groups, h)


def crosses(groups: Joining, n: Node, g: Group, h: Group, to: dict[int, int]) -> bool:
    """Whether a product's rows would be walked across what g or h reads, or n stores.

        x @ w + c.T        tanh of x @ w as (rows, heads, d), transposed to (heads, rows, d)

    A block of the product is in cache when it goes through the rest, but not what is walked
    across: a kernel that turns all of it at once, tile by tile, takes less. With 1024 x 256 by
    256 x 256 f32 and c above 966 us are 545, with 5000 x 16 by 16 x 128 in 8 heads and a bias
    712 are 137.
    """
    if "dot" not in (g.kind, h.kind):
        return False
    if h.kind == "dot":
        own = dict(zip(groups.proto[n][1], g.labels[n.outs[0]], strict=True))
        reads = (
            renamed(u.label, own) for u in groups.uses[n]
            if u.label is not None and not _may_join(groups, u.value)
        )
        dot, labels = h, [*g.labels.values(), *(label for _, label in g.read), *reads]
    else:
        dot, labels, to = g, [label for _, label in h.read], {b: a for a, b in to.items()}
    order = tuple(range(len(dot.axes)))
    labels = [renamed(label, to) for label in labels]
    return any(dot.is_whole(label) and is_against(order, label) for label in labels)


def _may_join(groups: Joining, v: Value) -> bool:
    """Whether v is of a kernel that takes in others, so that it may need no memory."""
    return v in groups.group_of and groups.group_of[v].root().kind == "loops"


def _has_wanted_rows(groups: Joining, h: Group) -> bool:
    """Whether h makes elements of rows that nodes outside of it read."""
    left = {v: groups.remaining.get(v, 0) for v, label in h.labels.items() if h.is_whole(label)}
    for u in (u for m in h.nodes for u in groups.uses[m]):
        if u.value in left:
            left[u.value] -= 1
    return any(left.values())
