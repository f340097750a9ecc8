"""Operator fusion: nodes that can run in one loop nest become one `fused` node.

Each computed node tries to join the kernels of its operands, highest level first, and pulls in
what only it needs; `grouping` decides what is legal. Layout ops (broadcast, transpose, slice,
reshape, reverse) are index arithmetic: they are copied into every kernel that looks through them
and are computed on their own only where a buffer is wanted (an output, an operand of `dot`).
Cheap values are copied likewise where that saves a buffer (`copies`). A stack is made by the kernel
of its parts, which stores each in its place, where they are too much to compute for it alone.

    %0: f32[b,n] = mul %x, %y                 %0: f32[b] = fused %x, %y {body={
    %1: f32[b] = reduce_sum %0 {axes=(1)}  ->     %0: f32[b,n] = mul %x, %y
    return %1                                     %1: f32[b] = reduce_sum %0 {axes=(1)}
                                                  return %1 }, axes=(b,n), reduced=(1), ...}

Kernels with large results between them become chains (`chains`).

After this pass every node is a leaf, a `fused`, a view (reshape) or a `barrier`.
"""

from __future__ import annotations

from graphc.ir import Builder, Graph, Node, Value, finish, finish_as
from graphc.ops.row import OPS, Kind
from graphc.passes import (
    across,
    apart,
    both,
    chains,
    copies,
    few_columns,
    one_sweep,
    repeated,
    totals,
)
from graphc.passes.bodies import operand
from graphc.passes.grouping import combine, own_label
from graphc.passes.groups import Group
from graphc.passes.joining import Joining
from graphc.passes.ordering import Step, in_order
from graphc.passes.roles import in_memory, is_free, is_kept


class Fusion(Joining):
    """One run of the pass over one graph: groups become `fused` nodes."""

    def emit(self, groups: list[Group]) -> Graph:
        """The graph of fused nodes, in dependency order and otherwise in program order."""
        g = self.g
        groups = [h for h in groups if not is_kept(h.nodes[0])]
        groups, read = self.make_once(groups)
        position = {n: k for k, n in enumerate(g.nodes)}
        for h in groups:
            h.nodes.sort(key=lambda n: position[n])
        owner: dict[Node, Group] = {n: h for h in groups for n in h.nodes}
        self.copied, self.stored = copies.choose(
            position, {h: self.reads(h, owner) for h in groups}, self.needed,
            self.source,
            lambda v: v.node in owner and v.node not in owner[v.node].places,
        )
        self.stored |= read
        steps = [Step((position[h.nodes[0]], h.ident), h.nodes[-1], *self.body(h)) for h in groups]
        for n in g.nodes:
            if n in owner:
                continue
            leaf = n.op.kind is Kind.LEAF and (n.op.name == "constant" or not is_free(n.outs[0]))
            view = self.is_view(n) and not self.needed.isdisjoint(n.outs)
            if leaf or view or is_kept(n):
                steps.append(Step((position[n], -1), n, n.args, n.outs))
        b = Builder()
        env: dict[Value, Value] = {v: v for v in g.inputs}
        for u in in_order(steps, [*g.outputs, *(v for _, v in g.updates)]):
            args = tuple([env[a] for a in u.reads])
            if u.kernel is None:
                new = b.copy(u.node, args)
            else:
                new = b.emit(OPS["fused"], args, u.node, **u.kernel)
            env.update(zip(u.makes, new, strict=True))
        return finish_as(b, g, env)

    def make_once(self, groups: list[Group]) -> tuple[list[Group], set[Value]]:
        """The groups, one of which makes numbers that others would repeat; what it stores."""
        found = repeated.find(
            groups, self.scalars,
            lambda n: bool(n.args) and self.is_lazy(n) and n not in self.computed,
        )
        if found is None:
            return groups, set()
        self.scalars.difference_update(found.made)
        self.computed.update(found.made)
        g = Group(self.count, "loops", [], found.host.level, self.once)
        g.nodes, g.computed = found.made, len(found.made)
        for n in found.made:
            g.labels[n.outs[0]] = own_label(n)[1]
            self.uses[n] = [self.resolve(a, None, False, n) for a in n.args]
        both = combine(g, found.host, {}, [])
        return [both if h is found.host else h for h in groups], {n.outs[0] for n in found.read}

    def body(self, h: Group) -> tuple[list[Value], list[Value], dict[str, object]]:
        """(operands, results, attributes of the fused node)."""
        inside = {v for n in h.nodes for v in n.outs}
        buffers = {a for n in h.nodes if self.is_opaque(n) for a in in_memory(n)}
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
                    or (m.args and self.is_lazy(m) and m not in self.computed)
                )
                if not local:
                    env[w] = given(w)
                    continue
                missing = [a for a in m.args if a not in env]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                b.repeat(m, env)
            return env[v]

        for n in h.nodes:
            for o in n.outs:
                need(o)
        wanted = [
            o for n in h.nodes if n not in h.places for o in n.outs if o in self.stored
        ]
        body = finish(b, "body", list(params.values()), [env[o] for o in wanted])
        read = {*body.outputs, *(a for n in body.nodes for a in n.args)}
        live = [v for v in params if params[v] in read]
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
        """The graph of kernels."""
        groups = self.plan()
        for v in sorted(self.needed, key=lambda v: v.node.serial):
            root = self.source(v)
            if root in self.group_of:
                self.needed.add(root)
        return self.emit(across.taken_apart(self, groups))


def run(g: Graph) -> Graph:
    """Group the nodes of g into kernels, and kernels into chains."""
    g = totals.run(apart.run(g))
    kernels = few_columns.run(_kernels(g), lambda body: Fusion(body, once=True).run())
    return chains.run(both.run(one_sweep.run(kernels)), _kernels)


def _kernels(g: Graph) -> Graph:
    return Fusion(g).run()
