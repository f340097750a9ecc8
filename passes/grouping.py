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

from collections.abc import Mapping

from graphc.dims import Size, product
from graphc.ir import Node, Value
from graphc.ops.row import Kind

ONE = -1   # the label of a dimension without a loop: of size 1, or a stack that is written out
WILD = -2  # the label of an axis that is read at a position taken from data
MAX_NODES = 400
MAX_SWEEPS = 16  # reductions of a kernel that wait for each other: each may repeat all before it
MAX_COLUMNS = 4096  # elements of a row that may be summed over all rows beside a row kernel
FEW_COLUMNS = 8  # that are still walked one after the other, for the sums of rows beside theirs
SHORT_ROW = 16  # elements of a row that has a lane to itself, with others
MAX_ROW = 1 << 16  # elements that a lone row may have and still run in one multi-phase kernel

# Cycles an element costs, roughly; anything not listed costs 1. At 8 and above an op is not worth
# computing twice.
COST = {
    "exp": 10, "expm1": 14, "log": 12, "log1p": 14, "log2": 12, "log10": 12, "sin": 16, "cos": 16,
    "tan": 16, "sinh": 16, "cosh": 16, "tanh": 16, "asinh": 30, "acosh": 30, "atanh": 20,
    "asin": 16, "acos": 16, "atan": 16, "atan2": 20, "erf": 18, "normal_cdf": 20, "pow": 30,
    "lgamma": 60, "polygamma": 80, "div": 8, "sqrt": 8, "rsqrt": 10, "cbrt": 20, "rem": 20,
    "random_bits": 20, "gather": 4, "cumsum": 8,
}
EXPENSIVE = 8


def cost(n: Node) -> int:
    """Rough cycles that an element of n costs."""
    return COST.get(n.op.name, 1)


Label = tuple[int, ...]


def renamed(label: Label, to: Mapping[int, int]) -> Label:
    """The same label where axes are called otherwise."""
    return tuple(a if a < 0 else to[a] for a in label)


def is_against(order: Label, label: Label) -> bool:
    """Whether a label has axes in another order."""
    places = [order.index(a) for a in label if a >= 0]
    return places != sorted(places)


class Use:
    """How a node uses a computed value: at which axes of the node, or None if it moves about."""

    __slots__ = ("injective", "label", "part", "reader", "value")

    def __init__(
        self, value: Value, label: Label | None, injective: bool, part: Value,
        reader: Node | None = None,
    ):
        """part: the operand, which is `value` but for index arithmetic; reader: the node, if it
        moves what it reads."""
        self.value, self.label, self.injective = value, label, injective
        self.part, self.reader = part, reader

    def renamed(self, to: dict[int, int]) -> Use:
        """The same use when the node's axes are called otherwise."""
        if self.label is None:
            return self
        return Use(self.value, renamed(self.label, to), self.injective, self.part, self.reader)


class Group:
    """Nodes that will be one kernel."""

    __slots__ = (
        "axes", "depth", "finals", "ident", "kind", "labels", "level", "merged", "met", "nodes",
        "once", "open", "others", "pulled", "read", "reduced", "scan", "work",
    )

    def __init__(self, ident: int, kind: str, axes: list[Size], level: int, once: bool = False):
        self.ident = ident
        self.once = once                       # no second sweep over what it reduces
        self.kind = kind                       # loops | dot | alone: never merged
        self.axes = axes
        self.level = level
        self.nodes: list[Node] = []
        self.labels: dict[Value, Label] = {}
        self.read: dict[tuple[Value, Label], None] = {}  # what it reads, as memory has it
        self.others: dict[Value, int] = {}     # uses of what other groups make, ..
        self.met: dict[Value, None] = {}       # .. of which there are more since it was asked
        self.reduced: frozenset[int] = frozenset()
        self.finals: set[Value] = set()        # scalars made after the loops
        self.pulled: set[Value] = set()        # computed at other indices than the group's own
        self.scan: bool | None = None          # the direction of its running reductions
        self.depth = 0                         # of conditions on where elements come from
        self.open = 0                          # uses of its values by nodes outside
        self.work = 0                          # the most expensive op in it
        self.merged: Group | None = None

    def root(self) -> Group:
        g = self
        while g.merged is not None:
            g = g.merged
        return g

    def copy(self) -> Group:
        g = Group(self.ident, self.kind, list(self.axes), self.level, self.once)
        g.nodes, g.labels, g.read = list(self.nodes), dict(self.labels), dict(self.read)
        g.others, g.met = dict(self.others), dict(self.met)
        g.reduced, g.finals, g.pulled = self.reduced, set(self.finals), set(self.pulled)
        g.scan, g.open, g.work, g.depth = self.scan, self.open, self.work, self.depth
        return g

    @property
    def outer(self) -> frozenset[int]:
        return frozenset(range(len(self.axes))) - self.reduced

    def note_read(self, u: Use) -> None:
        """Remember how an operand from outside is read, where its axes are the group's."""
        if u.label is not None and WILD not in u.label:
            self.read[u.value, u.label] = None

    def use(self, others: Mapping[Value, int]) -> None:
        """Count uses of what other groups make."""
        for v, n in others.items():
            if v in self.others:
                self.met[v] = None
            self.others[v] = self.others.get(v, 0) + n

    def is_whole(self, label: Label) -> bool:
        """Whether a label has all axes."""
        return len({*label} - {ONE}) == len(self.axes)

    def orders(self) -> tuple[list[Label], list[Label]]:
        """The axes as memory has them, the one of neighbours last, of values with all of them: of
        the first that is made, and of those that are read."""
        made, read = (
            [tuple(a for a in label if a != ONE) for label in labels if self.is_whole(label)]
            for labels in (self.labels.values(), (label for _, label in self.read))
        )
        return made[:1] or [tuple(range(len(self.axes)))], read

    def columns_fit(self) -> bool:
        """Whether sums of the rows of a row kernel may be kept beside it, per thread.

        What it calls a row must be one in memory. Where it reduces columns, sums of the rows
        walk these one after the other: 1024 x 1024 of f32 take 11 to 27 times as long as in two
        kernels, 300 x 40 1.6 to 3.4 times, 1000 x 12 1.3 and 1.9; a softmax of 8 columns takes
        0.85 of the time, of 3 columns 0.22. So too where all that is read is transposed: a softmax
        over axis 0 and a sum over axis 1 of the transpose of 1000 x 1000 take 0.05 of the time, of
        1000 x 40 a quarter, of 1000 x 3 twice as long.
        """
        n = product(self.axes[a] for a in self.reduced)
        if not self.outer or not isinstance(n, int) or n > MAX_COLUMNS:
            return False
        (made,), read = self.orders()
        width = self.axes[made[-1]]
        if made[-1] in self.reduced or (isinstance(width, int) and width <= FEW_COLUMNS):
            return True
        return n > FEW_COLUMNS and bool(read) and all(order[-1] in self.reduced for order in read)

    def has_short_rows(self) -> bool:
        """Whether rows are so short that lanes have one each (`codegen.nests.unrolled_rows`), but,
        unless they compute functions, not where what they give is added up: a loss of 20,000 rows
        of 8 f32 by their norms, with its gradient, takes Zen 5 45 us with the sum in their kernel,
        17 with one of its own."""
        row = product(self.axes[a] for a in self.reduced)
        return isinstance(row, int) and row <= SHORT_ROW and self.work <= EXPENSIVE

    def is_swept_once(self) -> bool:
        """Whether a kernel may make no more than one sweep over what it reduces, such as one long
        row."""
        if self.outer or self.once:
            return self.once
        n = product(self.axes[a] for a in self.reduced)
        return not isinstance(n, int) or n > MAX_ROW


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
    if len(g.nodes) + len(h.nodes) > MAX_NODES or "alone" in (g.kind, h.kind):
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
        return closed and h.work < EXPENSIVE and not h.reduced
    if g.scan is not None or h.scan is not None:
        if partial or (None not in (g.scan, h.scan) and g.scan != h.scan):
            return False
        if g.reduced and h.reduced and g_reduced != h.reduced:
            return False
        return all(n.op.kind in (Kind.ELEMENTWISE, Kind.SCAN) for n in (*g.nodes, *h.nodes))
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
    big.pulled |= small.pulled
    big.open = g.open + h.open - len(uses)
    big.work, big.depth = max(g.work, h.work), max(g.depth, h.depth)
    big.nodes.extend(small.nodes)
    return big
