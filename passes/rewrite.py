"""Applies rule tables to a graph.

Nodes are re-emitted in order, so a node's operands are already in normal form when the node is
tried; what a rule builds is emitted the same way. So one sweep reaches the fixpoint (but for rules
that wait for a use to go) and costs time linear in the nodes: rules are found by the op's and its
operands' names in one table look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.errors import ShapeError, VerifyError
from graphc.ir import Builder, Graph, Node, Value, infer, reachable, rebuild, splat
from graphc.ops.row import OPS, Kind, Op
from graphc.origins import Origin
from graphc.passes.bodies import deep
from graphc.passes.folding import fold_splat
from graphc.passes.patterns import Apply, Attr, Const, Lit, Pattern, Right, Rule, Var
from graphc.types import Array, TensorType

# A chain of rules, each fired inside the right side of another, ends here: the node stays as it
# is, which is correct. No table comes near it; it guards against rules that feed each other.
MAX_DEPTH = 40
# Rarely more than two; each further one needs a use that only the one before removed.
MAX_SWEEPS = 8


class RuleSet:
    """Rules in the order in which they are tried."""

    def __init__(self, rules: Iterable[Rule]):
        self.rules = tuple(rules)
        self._by_root: dict[str, list[Rule]] = {}
        for r in self.rules:
            self._by_root.setdefault(r.left.op, []).append(r)
        self._candidates: dict[tuple[str, ...], tuple[Rule, ...]] = {}
        self.outermost = frozenset(r.left.op for r in self.rules if r.outermost)

    def candidates(self, op: Op, args: Sequence[Value]) -> tuple[Rule, ...]:
        """The rules whose first two levels fit these op names."""
        if op.name not in self._by_root:
            return ()
        key = (op.name, *[a.node.op.name for a in args])
        found = self._candidates.get(key)
        if found is None:
            found = tuple(r for r in self._by_root[op.name] if _may_match(r.left, key[1:]))
            self._candidates[key] = found
        return found


def _may_match(p: Apply, names: Sequence[str]) -> bool:
    """Whether a pattern fits operands that these ops made."""
    if p.args is None:
        return True
    return len(p.args) == len(names) and all(
        name == a.op
        if isinstance(a, Apply)
        else not isinstance(a, (Lit, Const)) or name in ("constant", "broadcast")
        for a, name in zip(p.args, names, strict=True)
    )


class Match:
    """What a rule's left side took, and the means to build its right side."""

    __slots__ = ("args", "attrs", "bound", "origin", "rewriter", "type")

    def __init__(
        self, rewriter: Rewriter, args: Sequence[Value], attrs: Mapping[str, Any], type: TensorType,
        origin: Origin,
    ):
        self.rewriter, self.args, self.attrs = rewriter, args, attrs
        self.type, self.origin = type, origin
        self.bound: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        return self.bound[key]

    def number(self, c: Const) -> Array:
        """The 0-d array that a constant variable took."""
        value = splat(self.bound[c])
        assert value is not None
        return value

    def emit(self, op: str, *args: Value, **attrs: Any) -> Value:
        """A new node, itself simplified."""
        return self.rewriter.emit(OPS[op], args, self.origin, attrs)

    def full(self, number: Any, type: TensorType | None = None) -> Value:
        """A constant with `number` in every place; of the whole's type unless said otherwise."""
        t = self.type if type is None else type
        return self.rewriter.full(np.asarray(number, t.dtype.numpy), t, self.origin)

    def inline(self, result: Value) -> Value:
        """A result of a call by the call's body on its operands, simplified."""
        call = result.node
        body: Graph = call.attrs["body"]
        env = dict(zip(body.inputs, call.args, strict=True))
        for n in body.nodes:
            args = [env[a] for a in n.args]
            env.update(zip(n.outs, self.rewriter.emit_all(n, args, self.origin), strict=True))
        return env[body.outputs[result.index]]

    def single_use(self, v: Value) -> bool:
        """Whether nothing but the whole uses v."""
        single = self.rewriter.uses.get(v, 0) <= 1
        self.rewriter.refused |= not single
        return single

    def match(self, p: Apply, args: Sequence[Value], attrs: Mapping[str, Any]) -> bool:
        """Whether an op with these operands and attributes has the form of p."""
        for name, want in p.attrs.items():
            if isinstance(want, Attr):
                if self.bound.setdefault(want, attrs[name]) != attrs[name]:
                    return False
            elif attrs[name] != want:
                return False
        if p.args is None:
            return True
        return len(args) == len(p.args) and all(
            self._match_value(q, a) for q, a in zip(p.args, args, strict=True)
        )

    def _match_value(self, p: Pattern, v: Value) -> bool:
        """Whether an operand has the form of a part of a pattern."""
        if isinstance(p, Var):
            if isinstance(p, Const) and splat(v) is None:
                return False
            if p.accepts is not None and not p.accepts(v):
                return False
            return bool(self.bound.setdefault(p, v) is v)
        if isinstance(p, Lit):
            number = splat(v)
            return number is not None and p.holds(number)
        assert isinstance(p, Apply)
        n = v.node
        if n.op.name != p.op or v in self.rewriter.opaque:
            return False
        if p.single_use and not self.single_use(v):
            return False
        return self.match(p, n.args, n.attrs)

    def build(self, right: Right, type: TensorType) -> Value | None:
        """The value of a right side; `type` is what a number takes."""
        if isinstance(right, Var):
            taken: Value = self.bound[right]
            return taken
        if isinstance(right, Lit):
            return self.full(right.number, type)
        if isinstance(right, Apply):
            return self._build_op(right)
        assert callable(right)
        return right(self)

    def _build_op(self, p: Apply) -> Value | None:
        """The node of a right side; a number takes the type of the operand beside it."""
        assert p.args is not None
        args: list[Value | None] = [
            None if isinstance(a, Lit) else self.build(a, self.type) for a in p.args
        ]
        beside = next((a.type for a in args if a is not None), self.type)
        for k, a in enumerate(p.args):
            if isinstance(a, Lit):
                args[k] = self.full(a.number, beside)
        if any(a is None for a in args):
            return None
        attrs = {
            k: self.bound[a] if isinstance(a, Attr) else a(self) if callable(a) else a
            for k, a in p.attrs.items()
        }
        return self.emit(p.op, *[a for a in args if a is not None], **attrs)


class Rewriter:
    """One sweep over one graph."""

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self.builder = Builder()
        self.depth = 0
        self.fired: list[Rule] = []
        self.refused = False  # whether something was not done because of another use
        self.uses: dict[Value, int] = {}
        self.opaque: frozenset[Value] = frozenset()
        self.nested: frozenset[Value] = frozenset()  # which `outermost` rules pass by

    def emit(
        self, op: Op, args: Sequence[Value], origin: Origin, attrs: Mapping[str, Any]
    ) -> Value:
        """The value of a single-result op, simplified."""
        new = self.try_rules(op, args, origin, attrs) if self.depth < MAX_DEPTH else None
        if new is None:
            new = self._fold(op, args, origin, attrs)
        if new is None:
            new = self.builder.one(op, args, origin, **attrs)
        return new

    def emit_all(self, n: Node, args: Sequence[Value], origin: Origin) -> tuple[Value, ...]:
        """Every result of a node like n on other operands."""
        if len(n.outs) == 1:
            return (self.emit(n.op, args, origin, n.attrs),)
        return self.builder.emit(n.op, args, origin, **n.attrs)

    def try_rules(
        self, op: Op, args: Sequence[Value], origin: Origin, attrs: Mapping[str, Any],
        old: Value | None = None,
    ) -> Value | None:
        """What the first rule that applies makes of a node, in the place of `old`, or None."""
        type = None if old is None else old.type
        for r in self.rules.candidates(op, args):
            if r.outermost and old in self.nested:
                continue
            if type is None:
                (type,) = infer(op, [a.type for a in args], {k: attrs[k] for k in op.attrs})
            m = Match(self, args, attrs, type, origin)
            if not m.match(r.left, args, attrs) or (r.where is not None and not r.where(m)):
                continue
            self.depth += 1
            try:
                new = m.build(r.right, type)
            except ShapeError:  # what it builds is not provably well typed for symbolic sizes
                new = None
            finally:
                self.depth -= 1
            if new is not None:
                self.fired.append(r)
                if new.type is not type:
                    raise VerifyError(f"rule {r.law!r} made {new.type} of {type}", origin.loc)
                return new
        return None

    def _fold(
        self, op: Op, args: Sequence[Value], origin: Origin, attrs: Mapping[str, Any]
    ) -> Value | None:
        """An elementwise op on numbers, at once, so that rules see the number it gives."""
        if op.kind is not Kind.ELEMENTWISE or op.unique:
            return None
        numbers: list[Array] = []
        for a in args:
            number = splat(a)
            if number is None:
                return None
            numbers.append(number)
        (type,) = infer(op, [a.type for a in args], {k: attrs[k] for k in op.attrs})
        out = fold_splat(op, numbers, attrs, type.dtype)
        return None if out is None else self.full(out, type, origin)

    def full(self, number: Array, type: TensorType, origin: Origin) -> Value:
        """A 0-d constant, broadcast where `type` has axes."""
        c = self.builder.constant(number, origin)
        if type.shape:
            c = self.builder.one("broadcast", (c,), origin, shape=type.shape, axes=())
        return c

    def rewrite(self, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """What takes the place of a node on these operands, or None to keep it."""
        if len(n.outs) != 1 or n.op.unique:
            return None
        origin = n.origin.unnamed() if n.origin.name else n.origin
        new = self.try_rules(n.op, args, origin, n.attrs, n.outs[0])
        if new is None:
            new = self._fold(n.op, args, origin, n.attrs)
        return None if new is None else (new,)


def count_uses(g: Graph) -> dict[Value, int]:
    """How often each value is an operand or a result."""
    uses: dict[Value, int] = {}
    for n in g.nodes:
        for a in n.args:
            uses[a] = uses.get(a, 0) + 1
    for v in g.results:
        uses[v] = uses.get(v, 0) + 1
    return uses


def _nested(g: Graph, ops: frozenset[str], uses: Mapping[Value, int]) -> frozenset[Value]:
    """What nodes of these ops hand to one like them, and to nobody else."""
    return frozenset(
        a for n in g.nodes if n.op.name in ops
        for a in n.args if a.node.op is n.op and a.node.attrs == n.attrs and uses[a] == 1
    )


def apply_rules(
    g: Graph, rules: RuleSet, protect: frozenset[Value] = frozenset(),
    fired: list[Rule] | None = None,
) -> Graph:
    """g in the rules' normal form, bodies of region nodes included.

    Values in `protect`, and all that they are computed from, stay the very same; no rule looks
    through them, and bodies stay as they are. `fired` is filled with the rules that were applied.
    """
    log = [] if fired is None else fired
    if protect:
        return _sweep(g, rules, protect, log)
    return deep(g, lambda graph: _sweep(graph, rules, protect, log))


def _sweep(g: Graph, rules: RuleSet, protect: frozenset[Value], fired: list[Rule]) -> Graph:
    """g rewritten; once more where a use that stood in the way of a rule may have gone since."""
    for _ in range(MAX_SWEEPS):
        r = Rewriter(rules)
        r.opaque = protect
        g = _sweep_once(g, r, set(reachable(protect)))
        fired += r.fired
        if not (r.refused and r.fired):
            break
    return g


def _sweep_once(g: Graph, r: Rewriter, fixed: set[Node]) -> Graph:
    """g with every node tried once; nodes of `fixed` stay the very same."""
    old_uses = count_uses(g)
    r.uses = dict(old_uses)
    r.nested = _nested(g, r.rules.outermost, old_uses)
    r.refused = bool(r.nested)  # what is passed by may come to stand alone

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value]:
        r.builder = b
        if n in fixed:
            b.nodes.append(n)  # not interned: an equal node elsewhere is not this one
            new: Sequence[Value] = n.outs
        else:
            found = r.rewrite(n, args)
            new = b.copy(n, args) if found is None else found
        for o, v in zip(n.outs, new, strict=True):
            if v is not o:  # what used o now uses v
                r.uses[v] = r.uses.get(v, 0) + old_uses.get(o, 0)
        return new

    return rebuild(g, rewrite)
