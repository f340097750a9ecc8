"""Kernels while they grow: their nodes and axes, what they read, and how.

A group has loop axes (with sizes) and, for every value it computes, a label: the axis that each
dimension of the value runs over (ONE for dimensions of size 1, which need no loop). `grouping` has
the rules by which groups become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphc.dims import Size, product
from graphc.ir import Node, Value

ONE = -1   # the label of a dimension without a loop: of size 1, or a stack that is written out
WILD = -2  # the label of an axis that is read at a position taken from data
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
    "random_bits": 20, "gather": 4, "cumsum": 8, "linear_recurrence": 8,
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
        self, value: Value, label: Label | None, injective: bool, part: Value, reader: Node
    ):
        """part: what of `value` is read, before it is repeated; reader: the node that does."""
        self.value, self.label, self.injective = value, label, injective
        self.part, self.reader = part, reader

    def renamed(self, to: dict[int, int]) -> Use:
        """The same use when the node's axes are called otherwise."""
        if self.label is None:
            return self
        return Use(self.value, renamed(self.label, to), self.injective, self.part, self.reader)


class Place(NamedTuple):
    """Where in a kernel a node is computed."""

    depth: int  # conditions within conditions around it, on where elements come from
    times: int  # different indices


OWN = Place(0, 1)  # at the group's own index


class Group:
    """Nodes that will be one kernel."""

    __slots__ = (
        "axes", "computed", "depth", "ends", "finals", "ident", "kind", "labels", "level", "merged",
        "met", "nodes", "once", "open", "others", "places", "read", "reduced", "scan", "work",
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
        self.scan: bool | None = None          # the direction of its running reductions
        self.places: dict[Node, Place] = {}    # of nodes at other indices than the group's own
        self.computed = 0                      # all nodes, each as often as it is computed
        self.depth = 0                         # of conditions on where elements come from
        self.open = 0                          # uses of its values by nodes outside
        self.work = 0                          # the most expensive op in it
        self.ends = False                      # has functions of rows' sums (`row_ends`)
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
        g.reduced, g.finals = self.reduced, set(self.finals)
        g.scan, g.open, g.work, g.depth = self.scan, self.open, self.work, self.depth
        g.ends, g.places, g.computed = self.ends, dict(self.places), self.computed
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
