"""Operator fusion: nodes that can run in one loop nest become one `fused` node.

Each computed node tries to join the kernels of its operands, highest level first, and pulls in
what only it needs; `grouping` decides what is legal. Layout ops (broadcast, transpose, slice,
reshape, reverse) are index arithmetic: they are copied into every kernel that looks through them
and are computed on their own only where a buffer is wanted (an output, an operand of `dot`).

    %0: f32[b,n] = mul %x, %y                 %0: f32[b] = fused %x, %y {body={
    %1: f32[b] = reduce_sum %0 {axes=(1)}  ->     %0: f32[b,n] = mul %x, %y
    return %1                                     %1: f32[b] = reduce_sum %0 {axes=(1)}
                                                  return %1 }, axes=(b,n), reduced=(1), ...}

After this pass every node is a leaf, a `fused`, a view (reshape) or a `barrier`.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from graphc.dims import Size
from graphc.ir import Builder, Graph, Node, Value, finish
from graphc.ops.row import OPS, Kind
from graphc.passes.grouping import (
    MAX_NODES,
    ONE,
    WILD,
    Group,
    Label,
    Use,
    absorb,
    can_pull,
    combine,
    complete,
    cost,
    may_merge,
    operand_labels,
    own_label,
    through_layout,
    unify,
)

LAZY = frozenset({"broadcast", "transpose", "slice", "reshape", "reverse"})
SCALARS = 16  # ops on single numbers that a kernel may repeat for itself
VIEWS = frozenset({"reshape", "stop_gradient"})


def is_lazy(n: Node) -> bool:
    """Whether n is index arithmetic alone."""
    return n.op.name in LAZY or n.op.name == "stop_gradient"


def is_kept(n: Node) -> bool:
    """Whether n stays as it is: a kernel made before, or a barrier, which only orders (what
    follows it starts when all of its operands are there)."""
    return n.op.kind is Kind.REGION or (n.op.kind is Kind.META and n.op.unique)


def is_free(v: Value) -> bool:
    """Whether v is made from nothing inside any kernel: a scalar or splat constant, iota, dim."""
    n = v.node
    if n.op.name == "constant":
        a = n.attrs["value"].array
        return a.size > 0 and (a.size == 1 or bool(np.all(_bits(a) == _bits(a).reshape(-1)[0])))
    return n.op.name in ("iota", "dim")


def _bits(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.itemsize in (1, 2, 4, 8) else a


def is_opaque(n: Node) -> bool:
    """Whether n wants its operands as buffers, having a template of its own or no code at all."""
    if n.op.kind is Kind.CONTRACT or is_kept(n):
        return True
    return n.op.name in ("scatter", "scatter_add") and n.args[1].type.ndim != n.attrs["batch"]


class Fusion:
    """One run of the pass over one graph."""

    def __init__(self, g: Graph):
        self.g = g
        self.needed = self._buffers()
        self.scalars = self._scalars()
        self.group_of: dict[Value, Group] = {}
        self.count = 0
        self.uses: dict[Node, list[Use]] = {}
        self.remaining: dict[Value, int] = {}   # uses not yet inside the value's own group
        self.readers: dict[Value, list[Node]] = {}  # elementwise nodes placed so far, by operand

    def _buffers(self) -> set[Value]:
        """Values that must exist in memory because something outside kernels reads them."""
        needed = set(self.g.results)
        for n in reversed(self.g.nodes):
            if is_opaque(n) or (n.op.name in VIEWS and not needed.isdisjoint(n.outs)):
                needed.update(n.args)
        return needed

    def _scalars(self) -> set[Node]:
        """Short chains of ops on single numbers that start at leaves: every kernel that wants
        one computes it for itself, once."""
        length: dict[Value, int] = {}
        for n in self.g.nodes:
            if n.op.kind not in (Kind.ELEMENTWISE, Kind.LAYOUT) or n.outs[0].type.size != 1:
                continue
            if n.op.fails_on([a.type for a in n.args]) or not all(
                a.node.op.kind is Kind.LEAF or a in length for a in n.args
            ):
                continue
            total = 1 + sum(length.get(a, 0) for a in n.args)
            if total <= SCALARS and n.outs[0] not in self.needed:
                length[n.outs[0]] = total
        return {v.node for v in length}

    def is_lazy(self, n: Node) -> bool:
        """Whether kernels that want n contain it, so that it needs no place of its own."""
        return is_lazy(n) or n in self.scalars

    def is_view(self, n: Node) -> bool:
        return n.op.name in VIEWS

    def is_computed(self, n: Node) -> bool:
        """Whether n itself must stand in a group."""
        if n.op.kind is Kind.LEAF:
            return is_free(n.outs[0]) and n.outs[0] in self.needed and n.op.name != "constant"
        if self.is_lazy(n):
            return not self.is_view(n) and n.outs[0] in self.needed
        return True

    def resolve(self, v: Value, label: Label | None, injective: bool) -> Use:
        """The computed or given value behind lazy layout ops, and the label it is used at."""
        while v.node.args and is_lazy(v.node) and not self.is_computed(v.node):
            if v.node in self.scalars:
                break
            if v.node.op.name == "broadcast":
                injective = False
            label = through_layout(v.node, label)
            v = v.node.args[0]
        return Use(v, label, injective)

    def plan(self) -> list[Group]:
        computed = [n for n in self.g.nodes if self.is_computed(n)]
        self.proto: dict[Node, tuple[list[Size], Label, frozenset[int], Label]] = {}
        for n in computed:
            sizes, space, reduced, result = own_label(n)
            self.proto[n] = (sizes, space, reduced, result)
            labels = [(None, False)] * len(n.args) if is_opaque(n) else operand_labels(n, space)
            self.uses[n] = [
                self.resolve(a, lab, inj) for a, (lab, inj) in zip(n.args, labels, strict=True)
            ]
            for u in self.uses[n]:
                self.remaining[u.value] = self.remaining.get(u.value, 0) + 1
        for v in self.needed:
            root = self.resolve(v, None, False).value
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
        sizes, _, reduced, result = self.proto[n]
        kind = "dot" if n.op.kind is Kind.CONTRACT else "alone" if is_opaque(n) else "loops"
        g = Group(self.count, kind, sizes, 0)
        self.count += 1
        g.nodes.append(n)
        g.reduced = reduced
        g.work = cost(n)
        if n.op.kind is Kind.SCAN and reduced:
            g.scan = bool(n.attrs["reverse"])
        for o in n.outs:
            g.labels[o] = result
            g.open += self.remaining.get(o, 0)
            self.group_of[o] = g
        by_group: dict[Group, list[Use]] = {}
        for u in self.uses[n]:
            if u.value in self.group_of:
                by_group.setdefault(self.group_of[u.value].root(), []).append(u)
        order = sorted(by_group, key=lambda h: (-h.level, h.kind != "dot", -len(h.nodes), h.ident))
        top = order[0].level if order else -1
        g.level = top + 1
        if kind != "loops":
            return
        mains = [h for h in order if h.level == top]
        joined = self.join(n, g, mains, by_group, top) if mains else None
        if joined is not None:
            g = joined
        for h in order:
            if h.merged is None and h is not g and h.open == len(by_group[h]):
                g = self.join(n, g, [h], by_group, g.level) or g
        if n.op.kind is Kind.REDUCE and len(g.nodes) == 1:
            self.join_reader(n, g)
        for u in self.uses[n]:
            if n.op.kind is Kind.ELEMENTWISE:
                self.readers.setdefault(u.value, []).append(n)

    def join_reader(self, n: Node, g: Group) -> None:
        """Reduce a value in a row kernel that reads it anyway."""
        for u in self.uses[n]:
            for m in self.readers.get(u.value, [])[-4:]:
                h = self.group_of[m.outs[0]].root()
                if h.level < g.level or not h.reduced or h is g or m.outs[0] in h.pulled:
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
            if rename is not None:
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
        moved = any(u.label is None or (WILD in u.label and not h.reduced) for u in uses)
        if moved:
            if not can_pull(n, g, h, uses):
                return None
            return absorb(g.copy() if copy else g, h, len(uses)), None
        to = unify(g, h, uses)
        full = None if to is None else complete(g, h, to)
        if full is None or not may_merge(g, h, full, uses, n):
            return None
        if copy:
            return combine(g.copy(), h.copy(), full, uses), full
        return combine(g, h, full, uses), full

    def emit(self, groups: list[Group]) -> Graph:
        """The graph of fused nodes, in dependency order and otherwise in program order."""
        g = self.g
        groups = [h for h in groups if not is_kept(h.nodes[0])]
        position = {n: k for k, n in enumerate(g.nodes)}
        for h in groups:
            h.nodes.sort(key=lambda n: position[n])
        owner: dict[Node, Group] = {n: h for h in groups for n in h.nodes}
        bodies = {h: self.body(h, owner) for h in groups}
        b = Builder()
        env: dict[Value, Value] = {v: v for v in g.inputs}
        # units: groups, and nodes that stand by themselves (leaves and needed views)
        units: list[Group | Node] = [*groups]
        for n in g.nodes:
            if n in owner:
                continue
            leaf = n.op.kind is Kind.LEAF and (n.op.name == "constant" or not is_free(n.outs[0]))
            view = self.is_view(n) and not self.needed.isdisjoint(n.outs)
            if leaf or view or is_kept(n):
                units.append(n)
        made_by: dict[Value, Group | Node] = {}
        for u in units:
            for v in bodies[u][1] if isinstance(u, Group) else u.outs:
                made_by[v] = u
        reads: dict[Group | Node, list[Value]] = {
            u: list(bodies[u][0]) if isinstance(u, Group) else list(u.args) for u in units
        }
        users: dict[Group | Node, list[Group | Node]] = {u: [] for u in units}
        waiting: dict[Group | Node, int] = {}
        for u in units:
            sources = {made_by[v] for v in reads[u] if v in made_by}
            waiting[u] = len(sources)
            for s in sources:
                users[s].append(u)
        rank = {
            u: position[u.nodes[0]] if isinstance(u, Group) else position[u] for u in units
        }
        ready = [(rank[u], u.ident if isinstance(u, Group) else -1) for u in units
                 if not waiting[u]]
        by_rank = {(rank[u], u.ident if isinstance(u, Group) else -1): u for u in units}
        heapq.heapify(ready)
        while ready:
            u = by_rank[heapq.heappop(ready)]
            if isinstance(u, Group):
                args, outs, attrs = bodies[u]
                like = u.nodes[-1]
                new = b.emit(OPS["fused"], [env[a] for a in args], like, **attrs)
                for v, w in zip(outs, new, strict=True):
                    env[v] = w
            else:
                new = b.emit(u.op, [env[a] for a in u.args], u, **u.attrs) if u.args else b.keep(u)
                for v, w in zip(u.outs, new, strict=True):
                    env[v] = w
            for t in users[u]:
                waiting[t] -= 1
                if not waiting[t]:
                    heapq.heappush(ready, (rank[t], t.ident if isinstance(t, Group) else -1))
        return finish(
            b, g.name, g.inputs, [env[v] for v in g.outputs],
            [(s, env[v]) for s, v in g.updates], g.output_names,
        )

    def body(
        self, h: Group, owner: dict[Node, Group]
    ) -> tuple[list[Value], list[Value], dict[str, object]]:
        """(operands, results, attributes of the fused node)."""
        inside = {v for n in h.nodes for v in n.outs}
        buffers = {a for n in h.nodes if is_opaque(n) for a in n.args}
        params: dict[Value, Value] = {}
        env: dict[Value, Value] = {}
        b = Builder()

        def given(v: Value) -> Value:
            if v not in params:
                (params[v],) = _input(f"p{len(params)}", v)
            return params[v]

        def need(v: Value) -> Value:
            """v inside the body; lazy ops and free leaves are copied in."""
            stack = [v]
            while stack:
                w = stack[-1]
                if w in env:
                    stack.pop()
                    continue
                m = w.node
                local = w not in buffers and (
                    w in inside or is_free(w)
                    or (m.args and self.is_lazy(m) and not self.is_computed(m))
                )
                if not local:
                    env[w] = given(w)
                    continue
                missing = [a for a in m.args if a not in env]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                outs = b.keep(m) if not m.args else b.emit(
                    m.op, [env[a] for a in m.args], m, **m.attrs
                )
                for o, e in zip(m.outs, outs, strict=True):
                    env[o] = e
            return env[v]

        for n in h.nodes:
            for o in n.outs:
                need(o)
        wanted = [
            o for n in h.nodes for o in n.outs
            if o not in h.pulled and (o in self.needed or self._used_outside(o, h, owner))
        ]
        body = finish(b, "body", list(params.values()), [env[o] for o in wanted])
        live = [v for v in params if _is_used(body, params[v])]
        body = Graph("body", [params[v] for v in live], body.nodes, body.outputs)
        attrs: dict[str, object] = {
            "body": body,
            "axes": tuple(h.axes),
            "reduced": tuple(sorted(h.reduced)),
            "outputs": tuple(h.labels[o] for o in wanted),
        }
        return live, wanted, attrs

    def _used_outside(self, v: Value, h: Group, owner: dict[Node, Group]) -> bool:
        return v in self._readers and any(owner[n] is not h for n in self._readers[v])

    def run(self) -> Graph:
        groups = self.plan()
        self._readers: dict[Value, list[Node]] = {}
        for n, uses in self.uses.items():
            for u in uses:
                self._readers.setdefault(u.value, []).append(n)
        for v in sorted(self.needed, key=lambda v: v.node.serial):
            root = self.resolve(v, None, False).value
            if root in self.group_of:
                self.needed.add(root)
        return self.emit(groups)


def _input(name: str, v: Value) -> tuple[Value, ...]:
    return Node(OPS["input"], (), {"name": name, "type": v.type}, [v.type], v.node.loc).outs


def _is_used(body: Graph, v: Value) -> bool:
    return v in body.outputs or any(v in n.args for n in body.nodes)


def run(g: Graph) -> Graph:
    """Group the nodes of g into kernels."""
    return Fusion(g).run()
