"""Reverse-mode differentiation: append the nodes of a gradient.

    graph @f(%x: f32[]) {
      %0: f32[] = sin %x
      return %0
    }

becomes

    graph @f(%x: f32[]) {
      %0: f32[] = sin %x
      %1: f32[] = constant 0x1p+0
      %2: f32[] = cos %x
      %3: f32[] = mul %1, %2
      return %0, %3
    }

Gradients are ordinary nodes: each row's vjp is written with public ops, so the gradient of a
gradient is this same sweep once more. The sweep visits the nodes between `wrt` and `outputs`
latest first, with an explicit stack, and adds up the cotangents of a value in the order in which
its consumers were visited: linear in nodes, no recursion, the same result in every process.

A `call` is differentiated through a copy of its body made when the sweep reaches it; inlining and
cse merge that copy with the forward one. The copy of a call named `CHECKPOINT` stands behind a
`barrier` with a fresh id, together with the arriving cotangents, so that nothing merges and the
recomputation starts no earlier than the backward pass needs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from graphc import ir, prim
from graphc.copies import inline
from graphc.errors import GradientError
from graphc.ir import Graph, Node, Value
from graphc.ops import Kind
from graphc.origins import NO_LINE, DeclaringAs
from graphc.passes.batch_sums import into_product
from graphc.passes.bodies import collector_paused
from graphc.passes.cotangents import add_up
from graphc.passes.factors import out_of_sum
from graphc.passes.slopes import of_form
from graphc.tensor import Tensor
from graphc.types import TensorType

CHECKPOINT = "checkpoint"
_barrier_ids = itertools.count(1)


def run(g: Graph) -> Graph:
    """g with the gradients of its first output appended to its outputs.

    The first output must be a float scalar. One gradient is appended for each float input and
    then for each float variable, in their order; zeros where the output does not depend on it.
    Named outputs get the names `grad_NAME`.
    """
    if not g.outputs or not is_float_scalar(g.outputs[0].type):
        came = g.outputs[0].type if g.outputs else "no output"
        raise GradientError(f"autodiff: the first output of @{g.name} must be a float scalar, "
                            f"got {came}")
    cost = g.outputs[0]
    wrt = [v for v in g.inputs if v.type.dtype.is_float]
    names = [str(v.node.attrs["name"]) for v in wrt]
    for n in g.nodes:
        if n.op.name == "variable" and n.out.type.dtype.is_float:
            wrt.append(n.out)
            names.append(n.attrs["state"].name)
    with DeclaringAs(loc=NO_LINE, scope=""):
        found = backward([cost], [prim.full(cost.type, 1)._value], wrt)
        grads = [zeros(w.type) if v is None else v for w, v in zip(wrt, found, strict=True)]
    named = any(g.output_names)
    extra = [f"grad_{name}" if named else "" for name in names]
    return ir.collect(
        g.name, g.inputs, [*g.outputs, *grads], g.updates, [*g.output_names, *extra]
    )


def backward(
    outputs: Sequence[Value], cotangents: Sequence[Value], wrt: Sequence[Value],
    stop: Iterable[Value] = (),
) -> list[Value | None]:
    """The cotangent of each of `wrt`, or None where no differentiable path leads to it.

    The sweep records the cotangents of values in `stop` but does not go on below them.
    """
    if not wrt:
        return []
    with collector_paused():
        return _Sweep(wrt, stop).run(outputs, cotangents)


class _Sweep:
    """One reverse sweep: active values, and cotangents that wait for their value's node."""

    def __init__(self, wrt: Sequence[Value], stop: Iterable[Value]):
        self.wrt = wrt
        self.wanted = set(wrt)
        self.stop = set(stop)
        self.kept = self.wanted | self.stop
        self.active = set(wrt)
        self.pending: dict[Value, list[Value]] = {}

    def run(self, outputs: Sequence[Value], cotangents: Sequence[Value]) -> list[Value | None]:
        stack = nodes_between(outputs, self.wrt, self.stop)
        mark_active(stack, self.active)
        for o, ct in zip(outputs, cotangents, strict=True):
            self.add(o, ct)
        found: dict[Value, Value] = {}
        while stack:
            n = stack.pop()
            cts = [None if o in self.stop else self.take(o) for o in n.outs]
            for o, total in zip(n.outs, cts, strict=True):
                if total is not None and o in self.wanted:
                    found[o] = total
            if all(ct is None for ct in cts) or self.active.isdisjoint(n.args):
                continue
            with DeclaringAs(loc=n.loc, scope=n.scope):
                if n.op.kind is Kind.REGION:
                    stack += self.enter_body(n, cts)
                elif not self.pull_form(n, cts):
                    self.pull(n, cts)
        return [found[w] if w in found else self.take(w) for w in self.wrt]

    def add(self, v: Value, ct: Value) -> None:
        if v in self.active:
            self.pending.setdefault(v, []).append(ct)

    def take(self, v: Value) -> Value | None:
        """The sum of the cotangents of v; it has no unvisited consumers by now."""
        parts = self.pending.pop(v, None)
        if parts is None or len(parts) == 1:
            return parts[0] if parts else None
        with DeclaringAs(loc=v.node.loc, scope=v.node.scope):
            return add_up(parts)

    def pull_form(self, n: Node, cts: Sequence[Value | None]) -> bool:
        """Whether n ends a form whose derivative is known as a whole; then that is handed on."""
        ct = cts[0]
        if ct is None:
            return False
        found = of_form(n, ct, self.kept)
        if found is not None:
            self.add(*found)
        return found is not None

    def pull(self, n: Node, cts: Sequence[Value | None]) -> None:
        """Apply the row's vjp."""
        if n.op.vjp is None:
            raise GradientError(f"{n.op.name}: has no gradient", n.loc)
        full_cts = [
            Tensor(ct if ct is not None else zeros(o.type))
            for o, ct in zip(n.outs, cts, strict=True)
        ]
        ys = [Tensor(o) for o in n.outs]
        xs = [Tensor(a) for a in n.args]
        # a barrier has as many results as operands: a tuple even of one
        if len(n.outs) == 1 and n.op.kind is not Kind.META:
            pulled = n.op.vjp(full_cts[0], ys[0], *xs, **n.attrs)
        else:
            pulled = n.op.vjp(tuple(full_cts), tuple(ys), *xs, **n.attrs)
        if not isinstance(pulled, (list, tuple)) or len(pulled) != len(n.args):
            raise GradientError(
                f"{n.op.name}: its vjp must return a list of a cotangent, or None, for each of "
                f"its {len(n.args)} operands, got {pulled!r}", n.loc,
            )
        for a, x_ct in zip(n.args, pulled, strict=True):
            if x_ct is not None and a in self.active:
                ct = x_ct._value
                if ct.type is not a.type:
                    raise GradientError(
                        f"{n.op.name}: the cotangent of an operand must have the operand's type "
                        f"{a.type}, the vjp row gave {ct.type}", n.loc,
                    )
                self.pending.setdefault(a, []).append(into_product(out_of_sum(ct)))

    def enter_body(self, n: Node, cts: Sequence[Value | None]) -> list[Node]:
        """Hand the cotangents of a call to the results of a copy of its body."""
        args = list(n.args)
        if n.attrs.get("name") == CHECKPOINT:
            given = [ct for ct in cts if ct is not None]
            held = ir.apply("barrier", [*args, *given], id=fresh_barrier_id())
            # what stands behind the barrier is the operand itself: cotangents pass through
            args, late = list(held[: len(args)]), iter(held[len(args) :])
            cts = [None if ct is None else next(late) for ct in cts]
        copies, results = inline(n, args)
        entry = [args[0].node] if args and args[0] is not n.args[0] else []
        mark_active([*entry, *copies], self.active)
        for r, ct in zip(results, cts, strict=True):
            if ct is not None:
                self.add(r, ct)
        return [*entry, *copies]


def fresh_barrier_id() -> int:
    """An id no other barrier of this process has."""
    return next(_barrier_ids)


def mark_active(nodes: Iterable[Node], active: set[Value]) -> None:
    """Add to `active` the results of `nodes` (in a valid order) that vary smoothly with it."""
    for n in nodes:
        if n.op.differentiable and not active.isdisjoint(n.args):
            active.update([o for o in n.outs if o.type.dtype.is_float])


def nodes_between(
    outputs: Iterable[Value], wrt: Sequence[Value], stop: Iterable[Value] = ()
) -> list[Node]:
    """The nodes that `outputs` need, not below `stop` nor older than all of `wrt`, oldest first."""
    oldest = min(w.node.serial for w in wrt)
    hidden = set(stop)
    seen: set[Node] = set()
    stack = [v.node for v in outputs if v not in hidden]
    while stack:
        n = stack.pop()
        if n.serial >= oldest and n not in seen:
            seen.add(n)
            stack.extend([a.node for a in n.args if a not in hidden])
    return sorted(seen, key=lambda n: n.serial)


def is_float_scalar(t: TensorType) -> bool:
    """Whether a cost may have this type."""
    return t.dtype.is_float and t.shape == ()


def zeros(t: TensorType) -> Value:
    """The cotangent of what nothing depends on."""
    return prim.full(t, 0)._value
