"""Who joins whom: the nodes of a graph, one after the other, each into the groups of its operands.

What may join is decided in `grouping`; here is the order of trying. A node looks at the groups that
make its operands. It joins all of those on the highest level, or none of them; of the others it
takes in those that nothing else reads.
"""

from __future__ import annotations

from graphc.dims import Size
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes import row_ends
from graphc.passes.across import crosses, turns
from graphc.passes.grouping import (
    MAX_NODES,
    MAX_SWEEPS,
    combine,
    complete,
    may_merge,
    operand_labels,
    own_label,
    through_layout,
    unify,
)
from graphc.passes.groups import ONE, WILD, Group, Label, Use, cost
from graphc.passes.pulling import absorb, can_pull, is_conditional, times
from graphc.passes.roles import VIEWS, in_memory, is_free, is_lazy, is_opaque, written_in_place
from graphc.passes.stacks import is_stack, written_out

MOST_READERS = 4  # places of a kernel's values at moved indices, at which they are computed
WITHOUT_LOSS = frozenset({"broadcast", "reshape", "transpose"})  # leave out no element
SCALARS = 16  # ops on single numbers that a kernel may repeat for itself


class Joining:
    """Groups the nodes of one graph."""

    def __init__(self, g: Graph, once: bool = False):
        """once: no kernel makes more than one sweep over what it reduces."""
        self.g, self.once = g, once
        in_place = written_in_place(g)
        self.opaque = {n for n in g.nodes if is_opaque(n) or n in in_place}
        self.lazy = {n for n in g.nodes if is_lazy(n)}
        self.needed = self._buffers()
        self.ends = row_ends.find(g)
        self.scalars = self._scalars()
        self.computed = {n for n in g.nodes if self._is_computed(n)}  # what must stand in a group
        self.group_of: dict[Value, Group] = {}
        self.count = 0
        self.sweeps: dict[Value, int] = {}  # how many reductions of its kernel a value waits for
        self.uses: dict[Node, list[Use]] = {}
        self.remaining: dict[Value, int] = {}   # uses not yet inside the value's own group
        self.readers: dict[Value, list[Node]] = {}  # elementwise nodes placed so far, by operand

    def _buffers(self) -> set[Value]:
        """Values that must exist in memory because something outside kernels reads them."""
        needed = set(self.g.results)
        for n in reversed(self.g.nodes):
            if self.is_opaque(n):
                needed.update(in_memory(n))
            elif n.op.name in VIEWS and not needed.isdisjoint(n.outs):
                needed.update(n.args)
        return needed

    def _scalars(self) -> set[Node]:
        """Short chains of ops on single numbers that start at leaves: every kernel that wants
        one computes it for itself, once."""
        length: dict[Value, int] = {}
        for n in self.g.nodes:
            if n.op.kind not in (Kind.ELEMENTWISE, Kind.LAYOUT) or n.outs[0].type.size != 1:
                continue
            if n.can_fail or not all(
                a.node.op.kind is Kind.LEAF or a in length for a in n.args
            ):
                continue
            total = 1 + sum(length.get(a, 0) for a in n.args)
            if total <= SCALARS and n.outs[0] not in self.needed:
                length[n.outs[0]] = total
        return {v.node for v in length}

    def is_lazy(self, n: Node) -> bool:
        """Whether kernels that want n contain it, so that it needs no place of its own."""
        return n in self.lazy or n in self.scalars

    def is_opaque(self, n: Node) -> bool:
        """Whether n wants its operands as buffers."""
        return n in self.opaque

    def is_view(self, n: Node) -> bool:
        """Whether n is another shape of its operand in memory."""
        return n.op.name in VIEWS

    def _is_computed(self, n: Node) -> bool:
        """Whether n itself must stand in a group."""
        if n.op.kind is Kind.LEAF:
            return is_free(n.outs[0]) and n.outs[0] in self.needed and n.op.name != "constant"
        if self.is_lazy(n):
            return not self.is_view(n) and n.outs[0] in self.needed
        return True

    def is_passed(self, n: Node) -> bool:
        """Whether what reads n reads its operand, at other indices."""
        return n in self.lazy and n not in self.computed and n not in self.scalars

    def source(self, v: Value) -> Value:
        """The computed or given value behind lazy layout ops."""
        while self.is_passed(v.node):
            v = v.node.args[0]
        return v

    def resolve(self, v: Value, label: Label | None, injective: bool, reader: Node) -> Use:
        """How a node reads the source of its operand, v, which it uses at a label."""
        part = v
        while self.is_passed(v.node):
            if v.node.op.name == "broadcast":
                injective = False
            label = through_layout(v.node, label)
            if part is v and v.node.op.name in WITHOUT_LOSS:
                part = v.node.args[0]
            v = v.node.args[0]
        return Use(v, label, injective, part, reader)

    def plan(self) -> list[Group]:
        """The groups, in the order of their first nodes."""
        computed = [n for n in self.g.nodes if n in self.computed]
        self.proto: dict[Node, tuple[list[Size], Label, frozenset[int], Label]] = {}
        for n in computed:
            sizes, space, reduced, result = own_label(n)
            self.proto[n] = (sizes, space, reduced, result)
            opaque = self.is_opaque(n)
            labels = [(None, False)] * len(n.args) if opaque else operand_labels(n, space)
            self.uses[n] = [
                self.resolve(a, lab, inj, n)
                for a, (lab, inj) in zip(n.args, labels, strict=True)
            ]
            for u in self.uses[n]:
                self.remaining[u.value] = self.remaining.get(u.value, 0) + 1
        for v in self.needed:
            root = self.source(v)
            self.remaining[root] = self.remaining.get(root, 0) + 1
        for n in computed:
            self.place(n)
        self.adopt(computed)
        seen: dict[Group, None] = {}
        for n in computed:
            seen.setdefault(self.group_of[n.outs[0]].root())
        return list(seen)

    def adopt(self, computed: list[Node]) -> None:
        """Give outputs that are single numbers, unconnected to any kernel, to a kernel that is
        there anyway (the step counter of an optimizer, say)."""
        groups = dict.fromkeys(self.group_of[n.outs[0]].root() for n in computed)
        read = {u.value for us in self.uses.values() for u in us}
        host = next(
            (h for h in reversed(groups) if h.kind == "loops" and h.outer and h.scan is None), None
        )
        if host is None:
            return
        for g in groups:
            if g.kind != "loops" or g.axes or any(v in read for v in g.labels):
                continue
            if any(u.value in self.group_of for n in g.nodes for u in self.uses[n]):
                continue
            if len(host.nodes) + len(g.nodes) <= MAX_NODES:
                both = combine(g, host, {}, [])
                (host if both is g else g).merged = both
                host = both

    def place(self, n: Node) -> None:
        """Give n a group of its own, then merge it with its operands' groups where allowed.

        Of those on the highest level all are joined or none, so that levels grow along every edge;
        whatever is left and read by n alone may come in from any level.
        """
        if is_stack(n) and self.write_out(n):
            return
        g, by_group = self.begin(n)
        for o in n.outs:
            self.group_of[o] = g
        order = sorted(by_group, key=lambda h: (-h.level, h.kind != "dot", -len(h.nodes), h.ident))
        top = order[0].level if order else -1
        g.level = top + 1
        if g.kind != "loops":
            return
        mains = [h for h in order if h.level == top]
        joined = self.join(n, g, mains, by_group, top) if mains else None
        if joined is not None:
            g = joined
        self.take_in(n, g, order, by_group)

    def begin(self, n: Node) -> tuple[Group, dict[Group, list[Use]]]:
        """A group of n alone, and by group what n uses of others."""
        sizes, _, reduced, result = self.proto[n]
        kind = "dot" if n.op.kind is Kind.CONTRACT else "alone" if self.is_opaque(n) else "loops"
        g = Group(self.count, kind, sizes, 0, self.once)
        self.count += 1
        g.nodes.append(n)
        g.computed = 1
        g.reduced = reduced
        g.work, g.depth, g.ends = cost(n), int(is_conditional(n)), n in self.ends
        if n.op.kind is Kind.SCAN and reduced:
            g.scan = bool(n.attrs["reverse"])
        for o in n.outs:
            g.labels[o] = result
            g.open += self.remaining.get(o, 0)
        by_group: dict[Group, list[Use]] = {}
        for u in self.uses[n]:
            if u.value in self.group_of:
                by_group.setdefault(self.group_of[u.value].root(), []).append(u)
            else:
                g.note_read(u)
        return g, by_group

    def write_out(self, n: Node) -> bool:
        """Let the kernel that makes the parts of a stack store each in its place, where that is one
        kernel and too much to be computed for the stack alone: the steps of a recurrence.

            s = a * s + x[t] for all t, then stack(s)        all s in registers, none in memory
        """
        g, by_group = self.begin(n)
        if all(can_pull(g, h, uses) for h, uses in by_group.items()):
            return False
        given, dims = (self.proto[n], self.uses[n]), tuple(range(n.out.type.ndim))
        uses = [self.resolve(a, dims, injective=True, reader=n) for a in n.args]
        if any(u.label is None for u in uses if u.value in self.group_of):
            return False
        found = written_out(n, [self.without_loops(u) for u in uses])
        if found is None:
            return False
        sizes, label = found
        self.proto[n] = sizes, label, frozenset(), label
        self.uses[n] = [self.resolve(a, label, injective=True, reader=n) for a in n.args]
        g, by_group = self.begin(n)
        order = sorted(by_group, key=lambda h: (-h.level, -len(h.nodes), h.ident))
        mains = [h for h in order if h.level == order[0].level]
        joined = self.join(n, g, mains, by_group, order[0].level)
        if joined is None:
            self.proto[n], self.uses[n] = given
            return False
        self.group_of[n.out] = joined
        self.take_in(n, joined, order, by_group)
        return True

    def without_loops(self, u: Use) -> list[int]:
        """The dimensions of a stack that a part has, but no loop over: it is one itself."""
        made = self.group_of[u.value].root() if u.value in self.group_of else None
        if made is None or made.kind == "alone" or u.label is None:
            return []
        return [
            k for k, a, s in zip(u.label, made.labels[u.value], u.value.type.shape, strict=True)
            if a == ONE and s != 1
        ]

    def take_in(
        self, n: Node, g: Group, order: list[Group], by_group: dict[Group, list[Use]]
    ) -> None:
        """Let g, the group of n, have what n alone reads; note what it reads of others."""
        for h in order:
            if h.merged is not None or h is g:
                continue
            if h.open == len(by_group[h]):
                g = self.join(n, g, [h], by_group, g.level) or g
        for u in (u for h, us in by_group.items() if h.root() is not g for u in us):
            g.note_read(u)
            g.use({u.value: 1})
            g.met[u.value] = None
        self.take_shared(g)
        if n.op.kind is Kind.REDUCE and len(g.nodes) == 1:
            self.join_reader(n, g)
        waits = [
            self.sweeps[u.value] for u in self.uses[n]
            if u.value in self.sweeps and self.is_in(u.value, g.root())
        ]
        self.sweeps[n.outs[0]] = max(waits, default=0) + (n.op.kind is Kind.REDUCE)
        for u in self.uses[n]:
            if n.op.kind is Kind.ELEMENTWISE:
                self.readers.setdefault(u.value, []).append(n)

    def take_back(self, g: Group, h: Group) -> None:
        """Let g compute h where it has all readers, some of them at moved indices.

            (t[1:, :] - t[:-1, :]) + s[:, 1:] - s[:, :-1]        s is read by two nodes
            s - roll(s, 1)                                       and where it is made, too
        """
        uses = [u for m in g.nodes for u in self.uses[m] if u.value in h.labels]
        if times(g, uses) > MOST_READERS or all(u.label is not None for u in uses):
            return
        if can_pull(g, h, uses):
            for key in [k for k in g.read if k[0] in h.labels]:
                del g.read[key]
            h.merged = absorb(g, h, uses)

    def take_shared(self, g: Group) -> None:
        """The same of all that g reads, where its last node has brought readers together.

            pad(s, ((1, 0), (0, 0))) - pad(s, ((0, 1), (0, 0)))  the gradient of t[1:] - t[:-1]
        """
        while g.met:
            v = next(iter(g.met))
            del g.met[v]
            h = self.group_of[v].root()
            if h is not g and h.open == sum(g.others.get(x, 0) for x in h.labels):
                self.take_back(g, h)

    def is_in(self, v: Value, g: Group) -> bool:
        """Whether g computes v."""
        return v in self.group_of and self.group_of[v].root() is g

    def join_reader(self, n: Node, g: Group) -> None:
        """Reduce a value in a row kernel that reads it anyway."""
        for u in self.uses[n]:
            for m in self.readers.get(u.value, [])[-4:]:
                h = self.group_of[m.outs[0]].root()
                if h.level < g.level or not h.reduced or h is g or m in h.places:
                    continue
                to_h = dict(zip(self.proto[m][3], h.labels[m.outs[0]], strict=True))
                seen = next(w for w in self.uses[m] if w.value is u.value)
                if seen.label is None or u.label is None or len(seen.label) != len(u.label):
                    continue
                to = {
                    a: to_h.get(b, ONE) for a, b in zip(u.label, seen.label, strict=True)
                    if a >= 0
                }
                if min(to.values(), default=ONE) < 0 or len(set(to.values())) != len(to):
                    continue
                if len(to) < len(g.axes):  # n also runs over an axis that the operand has not
                    continue
                if may_merge(g, h, to, [], n):
                    merged = combine(g, h, to, [])
                    merged.level = h.level
                    for old in (g, h):
                        if old is not merged:
                            old.merged = merged
                    return

    def join(
        self, n: Node, g: Group, hs: list[Group], by_group: dict[Group, list[Use]], level: int
    ) -> Group | None:
        """Merge all of hs into g, the group of n, or change nothing and return None."""
        trial, uses = g, dict(by_group)
        merged: list[Group] = []
        for h in hs:
            result = self.merged(n, trial, h, uses[h], copy=len(hs) > 1)
            if result is None:
                return None
            trial, rename = result
            merged.append(h)
            if rename is not None and any(a != b for a, b in rename.items()):
                for k in uses:
                    uses[k] = [u.renamed(rename) for u in uses[k]]
        trial.level = level
        for h in [g, *merged]:
            if h is not trial:
                h.merged = trial
        for k in by_group:
            by_group[k] = uses[k]
        return trial

    def merged(
        self, n: Node, g: Group, h: Group, uses: list[Use], copy: bool
    ) -> tuple[Group, dict[int, int] | None] | None:
        """g and h as one group and how g's axes are called in it; None where it is not allowed."""
        if "alone" in (g.kind, h.kind):
            return None
        waits = max(self.sweeps.get(u.value, 0) for u in uses)
        if n.op.kind is Kind.REDUCE and waits >= MAX_SWEEPS:
            return None
        moved = any(u.label is None or (WILD in u.label and not h.reduced) for u in uses)
        if moved:
            if not can_pull(g, h, uses):
                return None
            return absorb(g.copy() if copy else g, h, uses), None
        to = unify(g, h, uses)
        full = None if to is None else complete(g, h, to)
        if to is None or full is None or not may_merge(g, h, full, uses, n):
            return None
        if g.ends and not g.reduced and h.outer.issuperset(full.values()) and row_ends.are_long(h):
            return None
        if turns(self, n, g, h, to, full) or crosses(self, n, g, h, full):
            return None
        if copy:
            g, h = g.copy(), h.copy()
        if g.kind == "dot":  # what a product's elements go through runs over its axes, in order
            return combine(h, g, {b: a for a, b in full.items()}, uses), None
        return combine(g, h, full, uses), full
