"""The intermediate representation: Value, Node, Graph, and the ways to make them.

    Graph ::= inputs, nodes (in an explicit order), outputs, updates
    Node  ::= op, args: Value*, attrs, outs: Value*
    Value ::= node, index, type

Nodes are immutable, compared by identity, and do not know their users. Loc, scope and name ride
along on a node but are never part of what makes two nodes equal.

`apply` makes a node at declaration, uninterned. `collect` gathers what some values need into a
Graph. `rebuild` is how passes make a new Graph from an old one; it interns equal pure nodes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.aligned import aligned_copy
from graphc.dims import Dim, Size
from graphc.dims import names as dim_names
from graphc.errors import GraphcError, Loc, UsageError, user_loc
from graphc.ops.row import OPS, Kind, Op
from graphc.types import TensorType, as_dtype

_serial = itertools.count()
_scope = threading.local()


class Literal:
    """The value of a constant: equal when dtype, shape and bytes are (so 0.0 is not -0.0)."""

    __slots__ = ("_key", "array", "type")

    def __init__(self, array: np.ndarray[Any, Any]):
        a = aligned_copy(np.asarray(array))
        a.flags.writeable = False
        self.array = a
        self.type = TensorType(as_dtype(a.dtype), a.shape)
        self._key: tuple[Any, ...] | None = None

    def key(self) -> tuple[Any, ...]:
        if self._key is None:
            self._key = (self.type, self.array.tobytes())
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self is other or self.key() == other.key())

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return f"Literal({self.array!r})"


class State:
    """What a variable holds: an array, shared by every function that uses it, and its lock.

    `array` may be None for a graph parsed without its .npz: it verifies but does not run.
    """

    __slots__ = ("array", "initial", "lock", "name", "type")

    def __init__(self, name: str, type: TensorType, array: np.ndarray[Any, Any] | None):
        self.name, self.type = name, type
        self.array = None if array is None else aligned_copy(np.asarray(array))
        self.initial = None if self.array is None else _kept(self.array)
        self.lock = threading.RLock()

    def __repr__(self) -> str:
        return f"@{self.name}: {self.type}"


def _kept(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy. One of zero bits, as optimizers start with, takes no memory until it is read."""
    if array.reshape(-1).view(np.uint8).any():
        return array.copy()
    return np.zeros(array.shape, array.dtype)


class Value:
    """One result of a node."""

    __slots__ = ("index", "node", "type")

    def __init__(self, node: Node, index: int, type: TensorType):
        self.node, self.index, self.type = node, index, type

    def __repr__(self) -> str:
        return f"<{self.node.op.name}: {self.type}>"


class Node:
    """An op applied to values. Never mutated after it is made."""

    __slots__ = ("__weakref__", "args", "attrs", "loc", "name", "op", "outs", "scope", "serial")

    def __init__(
        self,
        op: Op,
        args: tuple[Value, ...],
        attrs: Mapping[str, Any],
        types: Sequence[TensorType],
        loc: Loc | None = None,
        scope: str = "",
        name: str = "",
    ):
        self.op, self.args, self.attrs = op, args, attrs
        self.outs = tuple([Value(self, i, t) for i, t in enumerate(types)])
        self.loc, self.scope, self.name = loc, scope, name
        self.serial = next(_serial)

    def __repr__(self) -> str:
        types = ", ".join(str(o.type) for o in self.outs)
        return f"<{self.op.name} -> {types}{f' at {self.loc}' if self.loc else ''}>"

    @property
    def out(self) -> Value:
        """The only result."""
        (out,) = self.outs
        return out


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
    current = getattr(_scope, "current", None)
    loc = current.loc if current is not None and current.loc is not None else user_loc()
    ordered = {k: attrs[k] for k in row.attrs if k in attrs}
    if len(ordered) != len(attrs):
        ordered = attrs
    try:
        types = infer(row, [a.type for a in args], ordered)
    except GraphcError as e:
        if e.loc is None and loc is not None:
            raise type(e)(e.message, loc) from None
        raise
    return Node(
        row, tuple(args), ordered, types, loc, current.scope if current is not None else ""
    ).outs


class DeclaringAs:
    """While active, declared nodes take this loc and/or an inner scope name.

    Gradients carry the forward node's line this way; `gx.name_scope` adds a scope.
    """

    __slots__ = ("_outer", "loc", "scope")

    def __init__(self, loc: Loc | None = None, scope: str | None = None, push: str | None = None):
        outer = getattr(_scope, "current", None)
        self.loc = loc if loc is not None or outer is None else outer.loc
        base = outer.scope if outer is not None else ""
        self.scope = scope if scope is not None else base
        if push:
            self.scope = f"{base}/{push}" if base else push

    def __enter__(self) -> DeclaringAs:
        self._outer = getattr(_scope, "current", None)
        _scope.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        _scope.current = self._outer


class Graph:
    """Inputs, nodes in a valid order, outputs, and updates of variables.

    `output_names` are the keys of a dict output or ("",) * n; `inputs` are results of `input`
    nodes, which do not stand in `nodes`. Bodies of region ops are Graphs without updates.
    """

    __slots__ = ("__weakref__", "inputs", "name", "nodes", "output_names", "outputs", "updates")

    def __init__(
        self,
        name: str,
        inputs: Iterable[Value],
        nodes: Iterable[Node],
        outputs: Iterable[Value],
        updates: Iterable[tuple[State, Value]] = (),
        output_names: Iterable[str] | None = None,
    ):
        self.name = name
        self.inputs = tuple(inputs)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)
        self.updates = tuple(updates)
        self.output_names = (
            tuple(output_names) if output_names is not None else ("",) * len(self.outputs)
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
        """Dimension names in order of first appearance: inputs first, then nodes."""
        seen: dict[str, None] = {}
        for v in itertools.chain(self.inputs, (o for n in self.nodes for o in n.outs)):
            for s in v.type.shape:
                if isinstance(s, Dim):
                    for name in dim_names(s):
                        seen.setdefault(name)
        for n in self.nodes:
            if n.op.name == "dim":
                for name in dim_names(n.attrs["size"]):
                    seen.setdefault(name)
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


class Builder:
    """Collects the nodes of a new Graph, merging equal pure ones as they come."""

    __slots__ = ("_table", "nodes")

    def __init__(self) -> None:
        self._table: dict[Any, Node] = {}
        self.nodes: list[Node] = []

    def emit(
        self, op: Op | str, args: Sequence[Value], like: Node | None = None, **attrs: Any
    ) -> tuple[Value, ...]:
        """A node with inferred types; loc, scope and name come from `like`."""
        row = OPS[op] if isinstance(op, str) else op
        ordered = {k: attrs[k] for k in row.attrs}
        args = tuple(args)
        if not row.unique:
            found = self._table.get((row, args, tuple(ordered.values())))
            if found is not None:
                return found.outs
        types = infer(row, [a.type for a in args], ordered)
        loc, scope, name = (like.loc, like.scope, like.name) if like is not None else (None, "", "")
        return self.keep(Node(row, args, ordered, types, loc, scope, name))

    def one(
        self, op: Op | str, args: Sequence[Value], like: Node | None = None, **attrs: Any
    ) -> Value:
        """`emit` for an op with a single result."""
        (out,) = self.emit(op, args, like, **attrs)
        return out

    def constant(self, array: Any, like: Node | None = None) -> Value:
        return self.one("constant", (), like, value=Literal(np.asarray(array)))

    def keep(self, node: Node) -> tuple[Value, ...]:
        """Take over a node as it is, or the equal node that is already here."""
        if node.op.unique:
            self.nodes.append(node)
            return node.outs
        key = (node.op, node.args, tuple(node.attrs.values()))
        found = self._table.setdefault(key, node)
        if found is node:
            self.nodes.append(node)
        return found.outs


Rewrite = Callable[[Builder, Node, tuple[Value, ...]], "Sequence[Value] | None"]


def rebuild(g: Graph, rewrite: Rewrite) -> Graph:
    """Re-emit g node by node.

    `rewrite(builder, node, args)` sees each node with its already rewritten operands and returns
    replacement values, or None to keep the node. Dead nodes drop out; updates and names stay.
    """
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for n in g.nodes:
        args = tuple([env[a] for a in n.args])
        new = rewrite(b, n, args)
        if new is None:
            new = b.keep(n) if args == n.args else b.emit(n.op, args, n, **n.attrs)
        for o, v in zip(n.outs, new, strict=True):
            env[o] = v
    return finish(
        b,
        g.name,
        g.inputs,
        [env[o] for o in g.outputs],
        [(s, env[v]) for s, v in g.updates],
        g.output_names,
    )


def finish(
    b: Builder,
    name: str,
    inputs: Iterable[Value],
    outputs: Sequence[Value],
    updates: Sequence[tuple[State, Value]] = (),
    output_names: Iterable[str] | None = None,
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
    stack = [v for v in values if v not in barrier]
    while stack:
        n = stack.pop().node
        if n not in seen:
            seen.add(n)
            stack.extend(a for a in n.args if a not in barrier)
    return sorted(seen, key=lambda n: n.serial)


def collect(
    name: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    updates: Sequence[tuple[State, Value]] = (),
    output_names: Iterable[str] | None = None,
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


def free_sizes(attrs: Mapping[str, Any]) -> list[Size]:
    """Every symbolic size that stands somewhere in a node's attributes."""
    out: list[Size] = []
    stack: list[Any] = list(attrs.values())
    while stack:
        a = stack.pop()
        if isinstance(a, Dim):
            out.append(a)
        elif isinstance(a, tuple):
            stack.extend(a)
        elif isinstance(a, TensorType):
            stack.extend(a.shape)
    return out
