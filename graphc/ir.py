"""The intermediate representation: Value, Node, Graph, and the ways to make them.

    Graph ::= inputs, nodes (in an explicit order), outputs, updates
    Node  ::= op, args: Value*, attrs, outs: Value*
    Value ::= node, index, type

Nodes are immutable, compared by identity, and do not know their users. Their origin rides along
but is never part of what makes two nodes equal.

`apply` makes a node at declaration, uninterned. `collect` gathers what some values need into a
Graph. `rebuild` is how passes make a new Graph from an old one; it interns equal pure nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from graphc.contents import Literal as Literal
from graphc.contents import State as State
from graphc.dims import Dim
from graphc.dims import names as dim_names
from graphc.errors import GraphcError, Loc, UsageError, user_loc
from graphc.ops.row import OPS, Kind, Op
from graphc.origins import NOWHERE, Origin, here
from graphc.types import Array, TensorType

_serial = itertools.count()


class Value:
    """One result of a node."""

    __slots__ = ("index", "node", "type")

    def __init__(self, node: Node, index: int, type: TensorType):
        self.node, self.index, self.type = node, index, type

    def __repr__(self) -> str:
        return f"<{self.node.op.name}: {self.type}>"


class Node:
    """An op applied to values. Never mutated after it is made."""

    __slots__ = ("__weakref__", "args", "attrs", "op", "origin", "outs", "serial")

    def __init__(
        self, op: Op, args: tuple[Value, ...], attrs: Mapping[str, Any],
        types: Sequence[TensorType], origin: Origin = NOWHERE,
    ):
        self.op, self.args, self.attrs, self.origin = op, args, attrs, origin
        self.outs = tuple([Value(self, i, t) for i, t in enumerate(types)])
        self.serial = next(_serial)

    def __repr__(self) -> str:
        types = ", ".join(str(o.type) for o in self.outs)
        return f"<{self.op.name} -> {types}{f' at {self.loc}' if self.loc else ''}>"

    @property
    def out(self) -> Value:
        """The only result."""
        (out,) = self.outs
        return out

    @property
    def bodies(self) -> list[Graph]:
        """The graphs inside it."""
        if self.op.kind is not Kind.REGION:
            return []
        return [a for a in self.attrs.values() if isinstance(a, Graph)]

    @property
    def can_fail(self) -> bool:
        """Whether bad data can make it fail at run time."""
        if not self.op.fallible:
            return False
        return self.op.fails_on([a.type for a in self.args], [splat(a) for a in self.args])

    @property
    def loc(self) -> Loc | None:
        """The user's line."""
        return self.origin.loc

    @property
    def scope(self) -> str:
        """The name scope, "encoder/layer1"."""
        return self.origin.scope

    @property
    def name(self) -> str:
        """A name of its own, which printing uses; mostly empty."""
        return self.origin.name


def attr_key(op: Op, attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The attributes of a node as part of a key: equal only where they are the same.

    Those of a user's elementwise op may be numbers: 1 is not 1.0 or True then, nor 0.0 -0.0.
    """
    if not attrs:
        return ()
    values = tuple(attrs.values())
    return (values, repr(values)) if op.kind is Kind.ELEMENTWISE else values


def _in_order(op: Op, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes in the order of the op's row; as they came where some are missing or more."""
    if tuple(attrs) == op.attrs:
        return attrs
    ordered = {k: attrs[k] for k in op.attrs if k in attrs}
    return ordered if len(ordered) == len(attrs) else attrs


def infer(op: Op, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    """Result types, by the op's own rule; arity and attribute names are checked here."""
    if op.arity is not None and len(types) != op.arity:
        raise UsageError(f"{op.name}: takes {op.arity} operands, got {len(types)}")
    if tuple(attrs) != op.attrs:
        raise UsageError(f"{op.name}: takes attributes {op.attrs}, got {tuple(attrs)}")
    out = op.type(types, attrs)
    return out if isinstance(out, tuple) else (out,)


def apply(op: Op | str, args: Sequence[Value], **attrs: Any) -> tuple[Value, ...]:
    """Declare a node: infer its types, remember the user's line and scope. Nothing is interned."""
    row = OPS[op] if isinstance(op, str) else op
    origin, ordered = here(), _in_order(row, attrs)
    try:
        types = infer(row, [a.type for a in args], ordered)
    except GraphcError as e:
        if e.loc is None and origin.loc is not None:
            raise type(e)(e.message, origin.loc) from None
        raise
    return Node(row, tuple(args), ordered, types, origin).outs


def splat(v: Value) -> Array | None:
    """The 0-d array that stands in every place of v, where v is such a constant.

    That is a constant of one element, or such a constant broadcast. (Larger constants with equal
    elements become a broadcast by a rule of their own.)
    """
    n = v.node
    if n.op.name == "broadcast":
        n = n.args[0].node
    if n.op.name != "constant" or n.outs[0].type.size != 1:
        return None
    array: Array = n.attrs["value"].array
    return array.reshape(())


class Graph:
    """Inputs, nodes in a valid order, outputs, and updates of variables.

    `output_names` are the keys of a dict output or ("",) * n; `inputs` are results of `input`
    nodes, which do not stand in `nodes`. Bodies of region ops are Graphs without updates.
    """

    __slots__ = ("__weakref__", "inputs", "name", "nodes", "output_names", "outputs", "updates")

    def __init__(
        self, name: str, inputs: Iterable[Value], nodes: Iterable[Node], outputs: Iterable[Value],
        updates: Iterable[tuple[State, Value]] = (), output_names: Iterable[str] | None = None,
    ):
        self.name = name
        self.inputs = tuple(inputs)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)
        self.updates = tuple(updates)
        self.output_names = (
            tuple(output_names) if output_names is not None else ("",) * len(self.outputs)
        )

    def __copy__(self) -> Graph:
        return self  # nothing changes a graph

    def __deepcopy__(self, memo: Any) -> Graph:
        return self

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self.name}: a graph cannot be pickled; use graph.save(path) and gx.Graph.load(path)",
            user_loc(),
        )

    def __repr__(self) -> str:
        return f"<graph @{self.name}: {len(self.nodes)} nodes>"

    def __str__(self) -> str:
        from graphc.text import to_text

        return to_text(self)

    @property
    def results(self) -> tuple[Value, ...]:
        """Outputs, then the new values of updated variables."""
        return self.outputs + tuple(v for _, v in self.updates)

    def variables(self) -> tuple[State, ...]:
        """Every variable read or updated, in order of first appearance."""
        seen: dict[State, None] = {}
        for n in self.nodes:
            if n.op.name == "variable":
                seen.setdefault(n.attrs["state"])
        for s, _ in self.updates:
            seen.setdefault(s)
        return tuple(seen)

    def dims(self) -> tuple[str, ...]:
        """Dimension names in order of first appearance: inputs first, then nodes, then bodies,
        which may be alone in naming one (a sum over an `iota`)."""
        seen: dict[str, None] = {}
        graphs = {self: None}
        todo = [self]
        for g in todo:
            types = dict.fromkeys([v.type for v in g.inputs])
            types.update(dict.fromkeys([o.type for n in g.nodes for o in n.outs]))
            for s in [s for t in types for s in t.shape if isinstance(s, Dim)]:
                seen.update(dict.fromkeys(dim_names(s)))
            for n in g.nodes:
                if n.op.name == "dim":
                    seen.update(dict.fromkeys(dim_names(n.attrs["size"])))
                elif n.op.kind is Kind.REGION:
                    new = [body for body in n.bodies if body not in graphs]
                    graphs.update(dict.fromkeys(new))
                    todo += new
        return tuple(seen)

    def to_networkx(self) -> Any:
        """A networkx.MultiDiGraph view: one vertex a node, one edge an operand (with position)."""
        from graphc.view import to_networkx

        return to_networkx(self)

    def save(self, path: Any) -> None:
        """Write PATH (.gir) and, where needed, the .npz of large constants and initial values."""
        from graphc.text import save

        save(self, path)

    @staticmethod
    def load(path: Any) -> Graph:
        """Read what `save` wrote."""
        from graphc.text import load

        return load(path)


Like = Node | Origin


class Builder:
    """Collects the nodes of a new Graph, merging equal pure ones as they come."""

    __slots__ = ("_table", "nodes")

    def __init__(self) -> None:
        self._table: dict[Any, Node] = {}
        self.nodes: list[Node] = []

    def emit(
        self, op: Op | str, args: Sequence[Value], like: Like = NOWHERE, **attrs: Any
    ) -> tuple[Value, ...]:
        """A node with inferred types; its origin is `like`, or that of the node `like`."""
        row = OPS[op] if isinstance(op, str) else op
        args, ordered = tuple(args), _in_order(row, attrs)
        key = (row, args, attr_key(row, ordered))
        found = None if row.unique else self._table.get(key)
        if found is not None:
            return found.outs
        types = infer(row, [a.type for a in args], ordered)
        origin = like.origin if isinstance(like, Node) else like
        return self._add(Node(row, args, ordered, types, origin), key)

    def one(
        self, op: Op | str, args: Sequence[Value], like: Like = NOWHERE, **attrs: Any
    ) -> Value:
        """`emit` for an op with a single result."""
        (out,) = self.emit(op, args, like, **attrs)
        return out

    def constant(self, array: Any, like: Like = NOWHERE) -> Value:
        """A constant of an array's elements."""
        return self.one("constant", (), like, value=Literal(np.asarray(array)))

    def keep(self, node: Node) -> tuple[Value, ...]:
        """Take over a node as it is, or the equal node that is already here."""
        key = (node.op, node.args, attr_key(node.op, node.attrs))
        found = None if node.op.unique else self._table.get(key)
        return self._add(node, key) if found is None else found.outs

    def copy(self, n: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """n on these operands; n itself where they are its own."""
        if args == n.args:
            return self.keep(n)
        if [a.type for a in args] != [a.type for a in n.args]:
            return self.emit(n.op, args, n, **n.attrs)
        key = (n.op, args, attr_key(n.op, n.attrs))
        found = None if n.op.unique else self._table.get(key)
        if found is not None:
            return found.outs
        return self._add(Node(n.op, args, n.attrs, [o.type for o in n.outs], n.origin), key)

    def _add(self, node: Node, key: Any) -> tuple[Value, ...]:
        """Take in a node that is not here yet."""
        self.nodes.append(node)
        if not node.op.unique:
            self._table[key] = node
        return node.outs

    def repeat(self, n: Node, env: dict[Value, Value]) -> None:
        """n on what stands in env for its operands; env gets what stands for its results."""
        new = self.copy(n, tuple([env[a] for a in n.args]))
        env.update(zip(n.outs, new, strict=True))


Rewrite = Callable[[Builder, Node, tuple[Value, ...]], "Sequence[Value] | None"]


def rebuild(g: Graph, rewrite: Rewrite) -> Graph:
    """Re-emit g node by node.

    `rewrite(builder, node, args)` sees each node with its already rewritten operands and returns
    replacement values, or None to keep the node. Dead nodes drop out; updates and names stay.
    """
    b = Builder()
    env: dict[Value, Value] = {}  # what takes the place of values that do not stay
    for n in g.nodes:
        args = tuple([env.get(a, a) for a in n.args])
        new = rewrite(b, n, args)
        if new is None:
            new = b.copy(n, args)
        elif not isinstance(new, (list, tuple)) or len(new) != len(n.outs):
            raise UsageError(
                f"rebuild: what takes the place of {n.op.name} must be None or a list with a "
                f"Value for each of its {len(n.outs)} results, got {new!r}"
            )
        if new is not n.outs:
            env.update(zip(n.outs, new, strict=True))
    return finish_as(b, g, env)


def finish_as(b: Builder, g: Graph, env: Mapping[Value, Value]) -> Graph:
    """The Graph of a builder's live nodes that gives what g gives, g itself where it has the same.

    env: g's values -> new ones; those that stay may be missing.
    """
    new = finish(
        b, g.name, g.inputs, [env.get(o, o) for o in g.outputs],
        [(s, env.get(v, v)) for s, v in g.updates], g.output_names,
    )
    return g if new.nodes == g.nodes and new.results == g.results else new


def finish(
    b: Builder, name: str, inputs: Iterable[Value], outputs: Sequence[Value],
    updates: Sequence[tuple[State, Value]] = (), output_names: Iterable[str] | None = None,
) -> Graph:
    """The Graph of a builder's live nodes."""
    live = set(outputs)
    live.update(v for _, v in updates)
    kept: list[Node] = []
    for n in reversed(b.nodes):
        if not live.isdisjoint(n.outs):
            kept.append(n)
            live.update(n.args)
    return Graph(name, inputs, reversed(kept), outputs, updates, output_names)


def reachable(values: Iterable[Value], stop: Iterable[Value] = ()) -> list[Node]:
    """Every node that `values` need, in declaration order; nothing below a value in `stop`."""
    barrier = set(stop)
    seen: set[Node] = set()
    stack = [v.node for v in values if v not in barrier]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            stack += [a.node for a in n.args if a not in barrier]
    return sorted(seen, key=lambda n: n.serial)


def collect(
    name: str, inputs: Sequence[Value], outputs: Sequence[Value],
    updates: Sequence[tuple[State, Value]] = (), output_names: Iterable[str] | None = None,
) -> Graph:
    """The Graph that computes `outputs` and `updates` from `inputs`, equal pure nodes merged."""
    given = set(inputs)
    nodes = reachable([*outputs, *(v for _, v in updates)], stop=inputs)
    for n in nodes:
        if n.op.kind is Kind.LEAF and n.op.name == "input" and n.outs[0] not in given:
            raise UsageError(
                f"{name}: the outputs need input {n.attrs['name']!r} ({n.outs[0].type}), which is "
                "not in the list of inputs; add it there",
                n.loc,
            )
    g = Graph(name, inputs, nodes, outputs, updates, output_names)
    return rebuild(g, lambda b, n, args: None)
