"""Operator fusion: nodes that can run in one loop nest become one `fused` node.

Each computed node tries to join the kernels of its operands, highest level first, and pulls in
what only it needs; `grouping` decides what is legal. Layout ops (broadcast, transpose, slice,
reshape, reverse) are index arithmetic: they are copied into every kernel that looks through them
and are computed on their own only where a buffer is wanted (an output, an operand of `dot`).
Cheap values are copied likewise where that saves a buffer (`copies`).

    %0: f32[b,n] = mul %x, %y                 %0: f32[b] = fused %x, %y {body={
    %1: f32[b] = reduce_sum %0 {axes=(1)}  ->     %0: f32[b,n] = mul %x, %y
    return %1                                     %1: f32[b] = reduce_sum %0 {axes=(1)}
                                                  return %1 }, axes=(b,n), reduced=(1), ...}

Kernels with large results between them become chains (`chains`).

After this pass every node is a leaf, a `fused`, a view (reshape) or a `barrier`.
"""

from __future__ import annotations

import heapq

from graphc.ir import Builder, Graph, Node, Value, finish, finish_as
from graphc.ops.row import OPS, Kind
from graphc.passes import both, chains, copies
from graphc.passes.bodies import operand
from graphc.passes.grouping import Group
from graphc.passes.joining import Joining
from graphc.passes.roles import is_free, is_kept, is_opaque


class Fusion(Joining):
    """One run of the pass over one graph: groups become `fused` nodes."""

    def emit(self, groups: list[Group]) -> Graph:
        """The graph of fused nodes, in dependency order and otherwise in program order."""
        g = self.g
        groups = [h for h in groups if not is_kept(h.nodes[0])]
        position = {n: k for k, n in enumerate(g.nodes)}
        for h in groups:
            h.nodes.sort(key=lambda n: position[n])
        owner: dict[Node, Group] = {n: h for h in groups for n in h.nodes}
        self.copied, self.stored = copies.choose(
            position, {h: self.reads(h, owner) for h in groups}, self.needed,
            lambda v: self.resolve(v, None, False).value,
            lambda v: v.node in owner and v not in owner[v.node].pulled,
        )
        bodies = {h: self.body(h) for h in groups}
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
                env.update(zip(outs, new, strict=True))
            else:
                new = b.copy(u, tuple([env[a] for a in u.args]))
                env.update(zip(u.outs, new, strict=True))
            for t in users[u]:
                waiting[t] -= 1
                if not waiting[t]:
                    heapq.heappush(ready, (rank[t], t.ident if isinstance(t, Group) else -1))
        return finish_as(b, g, env)

    def body(self, h: Group) -> tuple[list[Value], list[Value], dict[str, object]]:
        """(operands, results, attributes of the fused node)."""
        inside = {v for n in h.nodes for v in n.outs}
        buffers = {a for n in h.nodes if is_opaque(n) for a in n.args}
        params: dict[Value, Value] = {}
        env: dict[Value, Value] = {}
        b = Builder()

        def given(v: Value) -> Value:
            if v not in params:
                params[v] = operand(f"p{len(params)}", v.type, v.node.loc)
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
                    w in inside or w in self.copied[h] or is_free(w)
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
            if o not in h.pulled and o in self.stored
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

    def reads(self, h: Group, owner: dict[Node, Group]) -> set[Value]:
        """What other kernels, or nobody, made for h."""
        return {
            u.value for n in h.nodes for u in self.uses[n]
            if owner.get(u.value.node) is not h and not is_free(u.value)
        }

    def run(self) -> Graph:
        groups = self.plan()
        for v in sorted(self.needed, key=lambda v: v.node.serial):
            root = self.resolve(v, None, False).value
            if root in self.group_of:
                self.needed.add(root)
        return self.emit(groups)


def _is_used(body: Graph, v: Value) -> bool:
    return v in body.outputs or any(v in n.args for n in body.nodes)


def run(g: Graph) -> Graph:
    """Group the nodes of g into kernels, and kernels into chains."""
    return chains.run(both.run(_kernels(g)), _kernels)


def _kernels(g: Graph) -> Graph:
    return Fusion(g).run()
