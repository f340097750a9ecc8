"""Looking at graphs: as networkx, as DOT and SVG, and as counts and formulas.

None of this is the storage; views are made on demand. networkx is imported when asked for.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from graphc.dims import Size
from graphc.errors import ExecutionError, UsageError
from graphc.ir import Graph, Literal, Node, Value
from graphc.ops import Kind
from graphc.text import node_text, value_names

# Fill colours by kind, light enough for black text (after ColorBrewer's pastel sets).
_COLOURS = {
    Kind.LEAF: "#f2f2f2",
    Kind.ELEMENTWISE: "#deebf7",
    Kind.LAYOUT: "#fff7dc",
    Kind.INDEX: "#fde0dd",
    Kind.REDUCE: "#e5f5e0",
    Kind.SCAN: "#e5f5e0",
    Kind.CONTRACT: "#fdd0a2",
    Kind.RANDOM: "#e5d8f0",
    Kind.REGION: "#ffffff",
    Kind.META: "#f2f2f2",
}
_FREE = frozenset({"reshape", "stop_gradient", "barrier"})  # the same bytes, seen otherwise


def to_networkx(g: Graph) -> Any:
    """A networkx.MultiDiGraph: one vertex per node, inputs included, one edge per operand.

    Vertices are the Nodes themselves, with `op`, `types`, `name`, `scope`, `loc` and, where the
    graph returns them, `outputs` (positions). Edges have `position` (which operand) and `result`
    (which result of the source). Bodies of region nodes are graphs of their own.
    """
    import networkx as nx

    view = nx.MultiDiGraph(name=g.name, inputs=g.inputs, outputs=g.outputs)
    names = value_names(g)
    for n in (*(v.node for v in g.inputs), *g.nodes):
        name = names[n.outs[0]] if n.outs else ""
        view.add_node(
            n, op=n.op.name, types=tuple([o.type for o in n.outs]), name=name, scope=n.scope,
            loc=n.loc,
        )
        for k, a in enumerate(n.args):
            view.add_edge(a.node, n, key=k, position=k, result=a.index)
    for k, v in enumerate(g.outputs):
        vertex = view.nodes[v.node]
        vertex["outputs"] = (*vertex.get("outputs", ()), k)
    return view


def to_dot(g: Graph) -> str:
    """The graph in Graphviz's language; the same graph gives the same text.

    Name scopes, fused kernels and composites are clusters; bodies are drawn in place.
    """
    return _Drawing(g).text()


def to_svg(g: Graph) -> str:
    """The drawing as SVG. Raises UsageError where Graphviz's `dot` is not installed."""
    dot = shutil.which("dot")
    if dot is None:
        raise UsageError(
            "to_svg: needs Graphviz, whose `dot` is not on the PATH; install it, or draw the text "
            "of to_dot() elsewhere"
        )
    done = subprocess.run(
        [dot, "-Tsvg"], input=to_dot(g), capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise ExecutionError(f"to_svg: dot failed: {done.stderr.strip()}")
    return done.stdout


def op_counts(g: Graph) -> dict[str, int]:
    """How often each op occurs, bodies included; the most frequent first, then by name."""
    counts: dict[str, int] = {}
    for n, _ in _nodes(g):
        counts[n.op.name] = counts.get(n.op.name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def flops(g: Graph) -> Size:
    """Operations of one run, as a formula in the dimensions.

    One per element of an elementwise result (exp as well as add; casts count none), one per
    element reduced, scanned or added by scatter_add, two per multiply-add of a dot or a linear
    recurrence.
    """
    total: Size = 0
    for n, _ in _nodes(g):
        total = total + _flops(n)
    return total


def bytes_moved(g: Graph) -> Size:
    """Bytes that one run reads and writes, as a formula in the dimensions.

    Every outermost node reads its operands once and writes its results once (a fused kernel so
    counts as one); reshape and barriers move nothing.
    """
    total: Size = 0
    for n in g.nodes:
        if n.op.kind is Kind.LEAF or n.op.name in _FREE:
            continue
        for v in (*dict.fromkeys(n.args), *n.outs):
            total = total + v.type.bytes
    return total


def _flops(n: Node) -> Size:
    kind = n.op.kind
    if kind is Kind.ELEMENTWISE:
        return 0 if n.op.name in ("cast", "bitcast") else n.out.type.size
    if kind in (Kind.REDUCE, Kind.SCAN):
        return n.args[0].type.size * len(n.args)
    if kind is Kind.CONTRACT:
        a, (axes, _) = n.args[0].type, n.attrs["contract"]
        size = n.out.type.size * 2
        for axis in axes:
            size = size * a.shape[axis]
        return size
    return n.args[2].type.size if n.op.name == "scatter_add" else 0


def _nodes(g: Graph) -> Iterator[tuple[Node, Graph]]:
    """Every node, those of bodies after their region node, each with its graph."""
    stack = [iter([(n, g) for n in g.nodes])]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            continue
        yield found
        for body in reversed(found[0].bodies):
            stack.append(iter([(n, body) for n in body.nodes]))


class _Cluster:
    """A box in the drawing: a scope, a kernel or a composite."""

    def __init__(self, label: str, region: bool):
        self.label, self.region = label, region
        self.lines: list[str] = []
        self.children: dict[str, _Cluster] = {}

    def child(self, key: str, label: str, region: bool) -> _Cluster:
        if key not in self.children:
            self.children[key] = _Cluster(label, region)
        return self.children[key]


class _Frame:
    """A graph being drawn inside a cluster; `scope` is the path that the cluster stands for."""

    def __init__(self, g: Graph, cluster: _Cluster, scope: list[str], region: Node | None):
        self.g, self.cluster, self.scope, self.region = g, cluster, scope, region
        self.nodes = iter(g.nodes)
        self.names = value_names(g)


class _Drawing:
    """Collects vertices into clusters, and edges."""

    def __init__(self, g: Graph):
        self.g = g
        self.root = _Cluster("", False)
        self.edges: list[str] = []
        self.source: dict[Value, str] = {}  # the vertex that a value comes from
        self.count = 0

    def text(self) -> str:
        g = self.g
        top = _Frame(g, self.root, [], None)
        for v in g.inputs:
            label = f"{top.names[v][1:]}\n{v.type}"
            self.source[v] = self.vertex(self.root, label, "shape=ellipse, fillcolor=white")
        self.bodies([top])
        for name, v in zip(g.output_names, g.outputs, strict=True):
            label = f"return {name}".rstrip() + f"\n{v.type}"
            end = self.vertex(self.root, label, "shape=ellipse, fillcolor=white, penwidth=2")
            self.edges.append(f"{self.source[v]} -> {end};")
        for s, v in g.updates:
            style = "shape=cylinder, fillcolor=white, penwidth=2"
            end = self.vertex(self.root, f"update @{s.name}\n{v.type}", style)
            self.edges.append(f"{self.source[v]} -> {end};")
        lines = [
            f"digraph {_quote(g.name)} {{",
            '  graph [fontname="sans-serif", fontsize=11, color="#999999", rankdir=TB];',
            '  node [fontname="sans-serif", fontsize=11, shape=box, style="filled,rounded", '
            'color="#666666"];',
            '  edge [color="#666666", fontsize=8, fontcolor="#888888", arrowsize=0.6];',
            *_cluster_lines(self.root),
            *(f"  {e}" for e in self.edges),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def bodies(self, stack: list[_Frame]) -> None:
        while stack:
            frame = stack[-1]
            n = next(frame.nodes, None)
            if n is None:
                stack.pop()
                if frame.region is not None:
                    for o, v in zip(frame.region.outs, frame.g.outputs, strict=True):
                        self.source[o] = self.source[v]
                continue
            cluster, scope = self.place(frame, n)
            bodies = n.bodies
            if len(bodies) == 1 and len(bodies[0].outputs) == len(n.outs):
                label = str(n.attrs.get("name") or n.op.name)
                self.count += 1
                inner = cluster.child(f"region {self.count}", label, True)
                for p, a in zip(bodies[0].inputs, n.args, strict=True):
                    self.source[p] = self.source[a]
                stack.append(_Frame(bodies[0], inner, scope, n))
            else:
                self.node(frame, cluster, n)

    def place(self, frame: _Frame, n: Node) -> tuple[_Cluster, list[str]]:
        """The cluster of a node's scope, inside that of its frame."""
        parts = n.scope.split("/") if n.scope else []
        common = 0
        while parts[common : common + 1] == frame.scope[common : common + 1] != []:
            common += 1
        cluster = frame.cluster
        for part in parts[common:]:
            cluster = cluster.child(f"scope {part}", part, False)
        return cluster, [*frame.scope[:common], *parts[common:]]

    def node(self, frame: _Frame, cluster: _Cluster, n: Node) -> None:
        title = n.op.name
        shape = ""
        if n.op.name == "variable":
            title, shape = f"@{n.attrs['state'].name}", "shape=cylinder, "
        elif n.op.name == "constant":
            title, shape = _constant(n.attrs["value"]), "shape=plain, style=filled, "
        label = "\n".join([title, *(str(o.type) for o in n.outs)])
        tip = node_text(n, frame.names) + (f" ({n.loc})" if n.loc else "")
        style = f"{shape}fillcolor={_quote(_COLOURS[n.op.kind])}, tooltip={_quote(tip)}"
        vertex = self.vertex(cluster, label, style)
        for o in n.outs:
            self.source[o] = vertex
        for k, a in enumerate(n.args):
            position = f' [headlabel="{k}"]' if len(n.args) > 1 else ""
            self.edges.append(f"{self.source[a]} -> {vertex}{position};")

    def vertex(self, cluster: _Cluster, label: str, style: str) -> str:
        name = f"n{self.count}"
        self.count += 1
        cluster.lines.append(f"{name} [label={_quote(label)}, {style}];")
        return name


def _cluster_lines(root: _Cluster) -> list[str]:
    """The vertices of every cluster, nested and indented."""
    lines: list[str] = []
    number = 0
    todo: list[tuple[_Cluster | None, int]] = [(root, 1)]
    while todo:
        cluster, depth = todo.pop()
        indent = "  " * depth
        if cluster is None:
            lines.append(f"{indent}}}")
            continue
        if cluster is not root:
            style = 'style="rounded,filled", fillcolor="#fafafa"' if cluster.region else (
                'style="rounded,dashed"'
            )
            lines.append(f"{indent}subgraph cluster_{number} {{")
            lines.append(f"{indent}  label={_quote(cluster.label)}; {style.replace(', ', '; ')};")
            number += 1
            todo.append((None, depth))
            indent += "  "
            depth += 1
        lines.extend(f"{indent}{line}" for line in cluster.lines)
        todo.extend((c, depth) for c in reversed(cluster.children.values()))
    return lines


def _constant(literal: Literal) -> str:
    if literal.type.size != 1:
        return "constant"
    try:
        return str(literal.array.reshape(-1)[0])
    except ExecutionError:  # its .npz was not there
        return "constant"


def _quote(s: str) -> str:
    escaped = s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
