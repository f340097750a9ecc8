"""What kernels would walk across: reads and stores against the order of their loops.

A kernel of two may be slower than both, where what one reads lies across the way the other goes.
`joining` asks before it makes one of them. Where what one stores lies across it, they are taken
apart again once it is known what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphc.dims import product
from graphc.ir import Node, Value
from graphc.ops.row import Kind
from graphc.passes.groups import ONE, SHORT_ROW, WILD, Group, Label, is_against, renamed

if TYPE_CHECKING:
    from graphc.passes.joining import Joining

LEAST = 256  # elements that are stored across, of fewer a kernel more is no gain
FEW = 4      # elements of a row that has a lane to itself, if it is stored across alone


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


def taken_apart(groups: Joining, kernels: Sequence[Group]) -> list[Group]:
    """The kernels, and what they would store across the way they go as kernels of their own.

        y = softmax(x),  y.T + 1        stored row by row, and column by column

    The second kernel reads what the first one has stored, in blocks that it turns; lane by lane a
    row of y.T would fill as many lines as it has elements. On Zen 3 tanh(x) and tanh(x).T + 1 of
    300 x 300 f32 take 0.6 of the time apart, of 2000 x 32 0.5 to 0.6, of 20000 x 4 0.4, of
    1024 x 1024, as others use the last cache, 0.1 to 0.35; softmax(x).T of 300 x 300 0.4 to 0.6,
    of 1024 x 1024 0.15 to 0.35. Short rows have a lane each, which goes either way.
    """
    readers: dict[Value, list[Node]] = {}
    for n, uses in groups.uses.items():
        for u in uses:
            readers.setdefault(u.value, []).append(n)
    return [part for h in kernels for part in _parts(groups, h, readers)]


def _parts(
    groups: Joining, h: Group, readers: Mapping[Value, list[Node]]
) -> Iterator[Group]:
    """h, or what it is taken apart into."""
    moved = _stored_across(groups, h, readers)
    if not moved:
        yield h
        return
    order = [a for a in h.labels[moved[0].out] if a != ONE]
    to = {a: k for k, a in enumerate(order)}
    part = Group(groups.count, "loops", [h.axes[a] for a in order], h.level + 1, h.once)
    groups.count += 1
    part.nodes, part.computed = moved, len(moved)
    for n in moved:
        own = dict(zip(groups.proto[n][1], h.labels[n.out], strict=True))
        for u in groups.uses[n]:
            if u.label is not None and own.keys() >= {*u.label} - {ONE}:
                part.note_read(u.renamed({a: to[b] for a, b in own.items() if b != ONE}))
    for n in moved:
        part.labels[n.out] = renamed(h.labels.pop(n.out), to)
        groups.group_of[n.out] = part
    h.nodes = [n for n in h.nodes if n.out not in part.labels]
    h.computed -= len(moved)
    yield h
    yield from _parts(groups, part, readers)


def _stored_across(
    groups: Joining, h: Group, readers: Mapping[Value, list[Node]]
) -> list[Node]:
    """The nodes of h that are stored across the way it goes, and what only they read, if all that
    reads them can go with them."""
    size = product(h.axes)
    if h.kind != "loops" or h.places or len(h.axes) < 2 or (isinstance(size, int) and size < LEAST):
        return []
    inside = {*h.nodes}
    stored = {
        n for n in h.nodes
        if not groups.needed.isdisjoint(n.outs) or any(
            m not in inside for o in n.outs for m in readers.get(o, ())
        )
    }
    ends = {n: _last(h, h.labels[n.outs[0]]) for n in h.nodes}
    ways = [e for n in h.nodes if n in stored and (e := ends[n]) is not None]
    row = product(h.axes[a] for a in h.reduced)
    for way in _ways(h, ways):
        short = SHORT_ROW if way in ways else FEW
        if h.reduced and isinstance(row, int) and row <= short:
            return []
        moved: dict[Node, None] = {}
        for n in sorted(h.nodes, key=lambda n: -n.serial):
            across = ends[n] not in (None, way) and n.op.kind in (Kind.ELEMENTWISE, Kind.LAYOUT)
            wanted = [m for o in n.outs for m in readers.get(o, ()) if m in inside]
            if across and (n in stored or wanted) and all(m in moved for m in wanted):
                moved[n] = None
        if moved:
            return list(reversed(moved))
    return []


def _last(h: Group, label: Label) -> int | None:
    """The axis of neighbours of a value with all axes."""
    return [a for a in label if a != ONE][-1] if h.is_whole(label) else None


def _ways(h: Group, stored: Sequence[int]) -> list[int]:
    """The axes along which h may walk, the best one first: that of most of what it reads, but
    where nothing is summed one of what it stores; none if all that it stores goes one way."""
    (made,), read = h.orders()
    ends = [order[-1] for order in read]
    most = max(dict.fromkeys([*ends, made[-1]]), key=ends.count)
    found = [most] if h.reduced or most in stored else []
    ways = [*dict.fromkeys([*found, *stored])]
    return ways if len(ways) > 1 else []
