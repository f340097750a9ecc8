"""The invariants of the IR, checked.

A graph that breaks one is the fault of a pass (or of hand-written IR), never of the user. The
message shows the lines around the culprit:

    graph @step: add: operand 1 is used before it is defined
        %0: f32[2] = exp %x
      > %1: f32[2] = add %0, %?
        %2: f32[2] = log %1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphc.binding import lone_name
from graphc.dims import Dim, Size, names
from graphc.errors import GraphcError, VerifyError
from graphc.ir import Graph, Literal, Node, State, Value, infer
from graphc.ops import OPS
from graphc.types import DType, TensorType

_AROUND = 2  # lines shown on either side of the culprit
_ATTRIBUTES = (int, str, float, type(None), tuple, DType, TensorType, Dim, Literal, State, Graph)


def verify(g: Graph) -> None:
    """Check every invariant of a graph and of the graphs inside it. Raises VerifyError.

    - Inputs are results of distinct `input` nodes; no node stands twice; every operand is an input
      or a result of an earlier node of its graph.
    - Every node's op is in the table, has exactly the row's attributes, each of a hashable IR
      type, and its result types are what the row's type rule gives.
    - Bodies are closed: no variables, no updates, no values from outside.
    - A variable is updated once, with a value of its type; there is one name per output.
    - Every dimension name stands alone as an axis of some input, or a `dim` node declares it.
    """
    known = bound_names(g)
    seen = {g}
    stack = [(g, True)]
    while stack:
        graph, outermost = stack.pop()
        check = _Check(graph, outermost, known)
        check.inputs()
        for i, n in enumerate(graph.nodes):
            check.node(i, n)
            for body in n.bodies:
                if body not in seen:
                    seen.add(body)
                    stack.append((body, False))
        check.results()


def bound_names(g: Graph) -> set[str]:
    """The dimension names that a call of g gives a value: those alone in an input, and `dim`s."""
    found = {name for v in g.inputs for s in v.type.shape if (name := lone_name(s)) is not None}
    graphs, seen = [g], {g}  # a fused body may have taken the `dim` in
    while graphs:
        for n in graphs.pop().nodes:
            if n.op.name == "dim":
                found.update(names(n.attrs["size"]))
            for body in n.bodies:
                if body not in seen:
                    seen.add(body)
                    graphs.append(body)
    return found


def _all(found: Any, kinds: type | tuple[type, ...]) -> bool:
    """Whether these are a tuple of such values; bools are no integers."""
    return isinstance(found, tuple) and all(
        isinstance(x, kinds) and not isinstance(x, bool) for x in found
    )


class _Check:
    """One graph being checked; `known` are the dimension names of the outermost graph."""

    def __init__(self, g: Graph, outermost: bool, known: set[str]):
        self.g, self.outermost, self.known = g, outermost, known
        self.defined: set[Value] = set()
        self.nodes: set[Node] = set()
        self.checked: set[TensorType] = set()

    def fail(self, message: str, at: int | None = None) -> None:
        lines = "" if at is None else "\n" + "\n".join(_excerpt(self.g, at))
        raise VerifyError(f"graph @{self.g.name}: {message}{lines}")

    def inputs(self) -> None:
        for v in self.g.inputs:
            if v.node.op.name != "input" or v.node.outs != (v,):
                self.fail(f"an input is a result of {v.node.op.name}, not of an input node")
            name = v.node.attrs["name"]
            if v in self.defined:
                self.fail(f"input %{name} stands twice")
            if v.node.attrs["type"] is not v.type:
                self.fail(f"input %{name} has type {v.type}, declared {v.node.attrs['type']}")
            self.defined.add(v)
            self.dims(v.type.shape, f"input %{name}", None)

    def node(self, i: int, n: Node) -> None:
        op = n.op.name
        if OPS.get(op) is not n.op:
            self.fail(f"{op}: is not in the op table", i)
        if op == "input":
            self.fail("input: stands among the nodes, not in the inputs", i)
        if op == "variable" and not self.outermost:
            self.fail("variable: a body is closed, so it takes variables as operands", i)
        if n in self.nodes:
            self.fail(f"{op}: the node stands twice", i)
        self.nodes.add(n)
        for k, a in enumerate(n.args):
            if a not in self.defined:
                self.fail(f"{op}: operand {k} is used before it is defined", i)
        if tuple(n.attrs) != n.op.attrs:
            self.fail(f"{op}: has attributes {tuple(n.attrs)}, takes {n.op.attrs}", i)
        for key, a in n.attrs.items():
            self.attribute(f"{op}: attribute {key}", a, i)
        try:
            types = infer(n.op, [a.type for a in n.args], n.attrs)
        except GraphcError as e:
            self.fail(e.message, i)
        except Exception as e:
            self.fail(f"{op}: the type rule fails: {type(e).__name__}: {e}", i)
        else:
            self.types(n, types, i)
            if op == "fused":
                self.loops(n, i)
        self.defined.update(n.outs)
        if sizes := _sizes(n.attrs):
            self.dims(sizes, op, i)

    def types(self, n: Node, types: tuple[TensorType, ...], i: int) -> None:
        if len(types) != len(n.outs):
            self.fail(f"{n.op.name}: has {len(n.outs)} results, the row gives {len(types)}", i)
        for k, (o, t) in enumerate(zip(n.outs, types, strict=True)):
            if o.node is not n or o.index != k:
                self.fail(f"{n.op.name}: result {k} belongs to another node", i)
            if o.type is not t:
                self.fail(f"{n.op.name}: result {k} has type {o.type}, the row gives {t}", i)
            if t not in self.checked:
                self.checked.add(t)
                self.dims(t.shape, n.op.name, i)

    def loops(self, n: Node, i: int) -> None:
        """A kernel's axes are sizes, and those that it names for its results are theirs."""
        axes, reduced, outputs = (n.attrs[k] for k in ("axes", "reduced", "outputs"))
        if not _all(axes, (int, Dim)):
            self.fail("fused: axes must be sizes", i)
        if not _all(reduced, int) or not set(reduced) <= set(range(len(axes))):
            self.fail(f"fused: reduced must be numbers of its {len(axes)} axes", i)
        shapes = [o.type.shape for o in n.outs]
        if not _all(outputs, tuple) or [*map(len, outputs)] != [*map(len, shapes)]:
            self.fail("fused: outputs must name an axis for each dimension of each result", i)
        for k, (where, shape) in enumerate(zip(outputs, shapes, strict=True)):
            for a, size in zip(where, shape, strict=True):
                known = _all((a,), int) and -1 <= a < len(axes)  # -1: no loop of its own
                if not known or (a >= 0 and axes[a] != size):
                    self.fail(f"fused: result {k} is {n.outs[k].type}, axis {a} is not {size}", i)

    def attribute(self, what: str, a: Any, i: int) -> None:
        """Hashable, and of a type that prints."""
        stack = [a]
        while stack:
            x = stack.pop()
            if not isinstance(x, _ATTRIBUTES):
                self.fail(f"{what} is a {type(x).__name__}, not an attribute of the IR", i)
            if isinstance(x, tuple):
                stack.extend(x)
            elif isinstance(x, Graph) and x.updates:
                self.fail(f"{what} is a graph with updates; only the outermost has them", i)

    def dims(self, sizes: Iterable[Any], what: str, i: int | None) -> None:
        for s in sizes:
            if isinstance(s, Dim):
                for name in names(s):
                    if name not in self.known:
                        self.fail(
                            f"{what}: dimension {name} stands alone in no input, so it has no "
                            "value",
                            i,
                        )

    def results(self) -> None:
        g, last = self.g, len(self.g.nodes)
        if len(g.output_names) != len(g.outputs):
            self.fail(f"has {len(g.outputs)} outputs and {len(g.output_names)} names", last)
        named = [name for name in g.output_names if name]
        if len(set(named)) != len(named):
            self.fail(f"two outputs have one name: {', '.join(named)}", last)
        for k, v in enumerate(g.outputs):
            if v not in self.defined:
                self.fail(f"output {k} ({v.type}) is not defined in the graph", last)
        updated: set[State] = set()
        for s, v in g.updates:
            if v not in self.defined:
                self.fail(f"the new value of @{s.name} is not defined in the graph", last)
            if v.type is not s.type:
                self.fail(f"@{s.name} has type {s.type}, its new value {v.type}", last)
            if s in updated:
                self.fail(f"@{s.name} is updated twice", last)
            updated.add(s)


class _Names(dict[Value, str]):
    """Names of a graph's values; a value from elsewhere shows as %?."""

    def __missing__(self, value: Value) -> str:
        return "%?"


def _excerpt(g: Graph, at: int) -> list[str]:
    """The lines around node `at` (the return line when past the last), the culprit marked."""
    from graphc.text import node_text, value_names

    values = _Names(value_names(g))
    lines = []
    for i in range(max(0, at - _AROUND), min(len(g.nodes), at + _AROUND + 1)):
        n = g.nodes[i]
        try:
            line = node_text(n, values)
        except (TypeError, AttributeError, ValueError):  # what is wrong may not print
            line = repr(n)
        loc = f"  # {n.loc}" if n.loc is not None and i == at else ""
        lines.append(f"  {'>' if i == at else ' '} {line}{loc}")
    if at >= len(g.nodes):
        outputs = ", ".join(values[v] for v in g.outputs)
        lines.append(f"  > return {outputs}".rstrip())
        lines += [f"    update @{s.name} = {values[v]}" for s, v in g.updates]
    return lines


def _sizes(attrs: Mapping[str, Any]) -> list[Size]:
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
