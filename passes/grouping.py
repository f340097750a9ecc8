"""Which nodes may share a kernel, and over which loop axes: the reasoning behind `fuse`.

A group has loop axes (with sizes) and, for every value it computes, a label: the axis that each
dimension of the value runs over (ONE for dimensions of size 1, which need no loop). Labels are
what makes fusion legal: inside a group every value is used at the very index at which it is made.

    softmax, axes b, n, reduced n:      x: (b,n)   max: (b)   exp: (b,n)   sum: (b)   out: (b,n)

Reductions of a group consume one set of axes, `reduced`; what they yield depends on the outer
axes alone. A second reduction over all outer axes yields scalars (`finals`) after the loops.

Groups have levels: along every edge between two groups the level grows. A node may therefore
join a group whenever its other operands come from lower levels, and two groups of one level may
always be merged: no cycle can arise, and no reachability needs to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.dims import Size
from graphc.ir import Node
from graphc.ops.row import Kind
from graphc.passes.groups import EXPENSIVE, ONE, WILD, Group, Label, Use, cost, renamed

MAX_NODES = 400
MAX_SWEEPS = 16  # reductions of a kernel that wait for each other: each may repeat all before it
# Ops of what is computed for an element and used for several side by side. (A x - y) x' of 5,000
# 4 x 4 f32, ten ops for each row, takes 24 us so, 11 where the rows are stored between.
REPEATED = 8
# Cycles of what is computed for each element beside running reductions along rows: of neighbours
# there are no vectors then. exp(cumsum(x)) of 300 x 64 f32 takes Zen 4 22 us in one kernel, 10 in
# two, log(cumsum(exp(x))) of 100,000 811 us in one, 126 in three; two or three sums beside one are
# as fast in it.
SCANNED = 4


def own_label(n: Node) -> tuple[list[Size], Label, frozenset[int], Label]:
    """Axes for a node by itself: (sizes, label of the iteration space, reduced, result label).

    The iteration space is the result's, but for reductions and scans, where it is the operand's.
    """
    reducing = n.op.kind in (Kind.REDUCE, Kind.SCAN)
    shape = n.args[0].type.shape if reducing else n.outs[0].type.shape
    sizes: list[Size] = []
    label: list[int] = []
    for s in shape:
        label.append(ONE if s == 1 else len(sizes))
        if s != 1:
            sizes.append(s)
    space = tuple(label)
    if not reducing:
        return sizes, space, frozenset(), space
    over = n.attrs["axes"] if "axes" in n.attrs else (n.attrs["axis"],)
    reduced = frozenset(space[k] for k in over if space[k] != ONE)
    if n.op.kind is Kind.SCAN:
        return sizes, space, reduced, space
    return sizes, space, reduced, tuple(a for k, a in enumerate(space) if k not in over)


def operand_labels(n: Node, space: Label) -> list[tuple[Label | None, bool]]:
    """For each operand: its label in terms of n's axes, or None where elements move; and whether
    each element of it is read at most once then."""
    name, at = n.op.name, n.attrs
    if n.op.kind in (Kind.ELEMENTWISE, Kind.REDUCE, Kind.SCAN):
        return [(space, True)] * len(n.args)
    if name == "gather":
        k, batch = at["axis"], at["batch"]
        ni = n.args[1].type.ndim - batch
        wild = (*space[:k], WILD, *space[k + ni :])
        return [(wild, False), ((*space[:batch], *space[k : k + ni]), True)]
    if name in ("scatter", "scatter_add"):
        k, batch = at["axis"], at["batch"]
        return [(space, True), (space[:batch], True), ((*space[:k], *space[k + 1 :]), True)]
    if name == "pad":
        return [(None, True), ((), True)]
    if name == "update_slice":
        return [(space, True), (None, True)]
    if name == "random_bits":
        return [(None, False)]
    if n.op.kind is Kind.LAYOUT:
        through = through_layout(n, space)
        return [(through, name != "broadcast")] * len(n.args)
    return [(None, False)] * len(n.args)


def through_layout(n: Node, label: Label | None) -> Label | None:
    """The label of a layout op's operand, given the result's; None where positions change."""
    if label is None:
        return None
    at, source = n.attrs, n.args[0].type.shape
    if n.op.kind is Kind.META:
        return label
    if n.op.name == "broadcast":
        picked = (label[k] for k in at["axes"])
        return tuple(ONE if s == 1 else a for a, s in zip(picked, source, strict=True))
    if n.op.name == "transpose":
        out = [ONE] * len(label)
        for j, k in enumerate(at["perm"]):
            out[k] = label[j]
        return tuple(out)
    if n.op.name == "reshape":
        target = n.outs[0].type.shape
        kept = [a for a, s in zip(label, target, strict=True) if s != 1]
        if [s for s in source if s != 1] != [s for s in target if s != 1]:
            return None
        rest = iter(kept)
        return tuple(ONE if s == 1 else next(rest) for s in source)
    return None


def unify(g: Group, h: Group, uses: list[Use]) -> dict[int, int] | None:
    """A map from g's axes to h's such that every use of h's values by g is at its own label."""
    to: dict[int, int] = {}
    for u in uses:
        if u.label is None:
            return None
        for a, b in zip(u.label, h.labels[u.value], strict=True):
            if a == WILD:  # one element of a row: fine where rows are what h reduces
                if b not in h.reduced or h.scan is not None:
                    return None
                continue
            if (a == ONE) != (b == ONE):
                return None
            if a == ONE:
                continue
            if to.setdefault(a, b) != b:
                return None
    if len(set(to.values())) != len(to):
        return None
    if any(g.axes[a] != h.axes[b] for a, b in to.items()):
        return None
    return to


def complete(g: Group, h: Group, to: dict[int, int]) -> dict[int, int] | None:
    """`to` with g's remaining axes given to h's reduced axes of equal size, or to new ones.

    What size alone says keeps the order of axes: sums over (199, 200) and (200, 199) would go
    through one of their operands against its layout. New axes may only be added where h is a plain
    map whose values nobody else needs.
    """
    free = [a for a in sorted(h.reduced) if a not in to.values()]
    full = dict(to)
    for a, size in enumerate(g.axes):
        if a in full:
            continue
        match = next((b for b in free if h.axes[b] == size), None)
        if match is not None:
            free = [b for b in free if b > match]
            full[a] = match
        elif h.reduced:
            return None
        else:
            full[a] = len(h.axes) + sum(1 for b in full.values() if b >= len(h.axes))
    return full


def may_merge(g: Group, h: Group, to: dict[int, int], uses: list[Use], node: Node) -> bool:
    """Whether g (holding `node`, a user of h's values) and h make one legal, worthwhile kernel.

    `to` maps all of g's axes into h's, some beyond its end (new ones).
    """
    if g.computed + h.computed > MAX_NODES or "alone" in (g.kind, h.kind):
        return False
    if g.kind == "dot" and h.kind == "dot":
        return False
    used = sum(1 for u in uses if u.value not in h.finals)
    final_use = len(uses) - used
    mapped = frozenset(to.values())
    grown = any(b >= len(h.axes) for b in mapped)
    partial = bool(frozenset(range(len(h.axes))) - mapped)
    g_reduced = frozenset(to[a] for a in g.reduced)
    if final_use:  # scalars after the loops meet only scalars
        return not used and not g.axes and g.kind == "loops" and g.scan is None
    if "dot" in (g.kind, h.kind):
        if g.reduced or h.reduced or grown or partial:
            return False
        other = h if g.kind == "dot" else g
        return all(n.op.kind is Kind.ELEMENTWISE for n in other.nodes)
    if grown:
        closed = h.open == len(uses)
        return closed and h.work < EXPENSIVE and not h.reduced and len(h.nodes) <= REPEATED
    if g.scan is not None or h.scan is not None:
        if partial or (None not in (g.scan, h.scan) and g.scan != h.scan):
            return False
        if g.reduced and h.reduced and g_reduced != h.reduced:
            return False
        nodes = (*g.nodes, *h.nodes)
        return all(n.op.kind in (Kind.ELEMENTWISE, Kind.SCAN) for n in nodes) and _scannable(nodes)
    if not h.reduced and not g.reduced:
        return not partial or (h.open == len(uses) and h.work < EXPENSIVE)
    if not h.reduced:  # g reduces what h maps
        stored = h.open > len(uses) and h.work >= EXPENSIVE
        return not partial and not (stored and g.once)
    if not g.reduced:  # g maps what h reduces: per row, or per element of the row
        sweeps_again = mapped == h.outer | h.reduced and bool(h.reduced)
        if sweeps_again and h.is_swept_once():
            return _whole(uses, h)
        return sweeps_again or mapped == h.outer
    if g_reduced == h.reduced and not partial:
        if not h.is_swept_once() or _is_behind(node, uses, h):
            return True
        return _whole(uses, h) if h.outer else _independent(uses, h)
    if g_reduced == h.outer and mapped == h.outer | h.reduced:
        return node.op.name == "reduce_sum" and len(g.nodes) == 1 and h.columns_fit()
    last = g_reduced == h.outer and mapped == h.outer and not h.has_short_rows()
    return last and bool(h.outer) and node.op.name != "argmax" and len(g.nodes) == 1


def _scannable(nodes: Sequence[Node]) -> bool:
    """Whether a kernel with running reductions may compute all of this for an element."""
    scans = [n for n in nodes if n.op.kind is Kind.SCAN]
    if not any(all(s == 1 for s in n.out.type.shape[n.attrs["axis"] + 1 :]) for n in scans):
        return True
    return sum(cost(n) for n in nodes if n.op.kind is Kind.ELEMENTWISE) <= SCANNED


def _independent(uses: list[Use], h: Group) -> bool:
    """Whether the uses do not wait for a reduction of h (so one sweep serves both)."""
    return not any(n.op.kind is Kind.REDUCE for n in h.nodes) and _whole(uses, h)


def _is_behind(node: Node, uses: list[Use], h: Group) -> bool:
    """Whether a node, which nothing reads yet, wants sums of h when they are over, as those of its
    own group: max(x) - min(x) takes one sweep."""
    labels = (h.labels[u.value] for u in uses)
    return node.op.kind is Kind.ELEMENTWISE and all(map(h.reduced.isdisjoint, labels))


def _whole(uses: list[Use], h: Group) -> bool:
    """Whether the uses are of values with all axes of h, which a lone long row has before it ends.

    None of them waits for the row's reduction: that would take another sweep, which was refused.
    """
    return all(sum(a != ONE for a in h.labels[u.value]) == len(h.axes) for u in uses)


def combine(g: Group, h: Group, to: dict[int, int], uses: list[Use]) -> Group:
    """g and h as one group with h's axes and the new ones; the smaller goes into the larger."""
    axes = list(h.axes)
    for a, b in sorted(to.items(), key=lambda ab: ab[1]):
        if b >= len(axes):
            axes.append(g.axes[a])
    mine = {v: renamed(lab, to) for v, lab in g.labels.items()}
    read = {(v, renamed(lab, to)): None for v, lab in g.read}
    g_reduced = frozenset(to[a] for a in g.reduced)
    sums_rows = bool(h.reduced and g.reduced and g_reduced != h.reduced)
    finals = g.finals | h.finals
    if sums_rows or any(u.value in h.finals for u in uses):
        finals |= mine.keys()
    big, small = (h, g) if len(h.nodes) >= len(g.nodes) else (g, h)
    mine.update(h.labels) if big is g else h.labels.update(mine)
    big.labels = mine if big is g else h.labels
    big.read = h.read | read
    big.use(small.others)
    big.met.update(small.met)
    big.axes, big.finals = axes, finals
    big.reduced = h.reduced if sums_rows else h.reduced | g_reduced
    big.scan = h.scan if g.scan is None else g.scan
    big.kind = "dot" if "dot" in (g.kind, h.kind) else "loops"
    big.open = g.open + h.open - len(uses)
    big.work, big.depth, big.ends = max(g.work, h.work), max(g.depth, h.depth), g.ends or h.ends
    big.nodes.extend(small.nodes)
    big.places.update(small.places)
    big.computed += small.computed
    return big
