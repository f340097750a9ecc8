"""Graph -> text. The grammar is the docstring of `graphc.text`.

Nested graphs are printed with an explicit stack, so neither depth nor nesting can overflow. Source
paths are written relative to the folder of the file that declares the first input (or node), as
far as two folders up; other files, say of an installed library, by their base name. The text is
therefore the same wherever the program lies. Paths that are not absolute are kept as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from graphc.dims import Dim, names
from graphc.errors import Loc
from graphc.ir import Graph, Literal, Node, State, Value
from graphc.text.literals import INLINE, RESERVED, elements_text, float_text, name_text, string_text
from graphc.types import BY_NAME, DType, TensorType


def to_text(g: Graph, locs: bool = True) -> str:
    """The graph as text; without source lines when `locs` is False."""
    return _Printer(g, locs).text(g)


def node_text(node: Node, names: dict[Value, str]) -> str:
    """One node as a line, with these value names and without its source line and bodies."""
    printer = _Printer(None, False)
    attrs = printer.attrs(node)
    return printer.head(node, names) + attrs


NAMELESS = "variable"  # what a variable without a name is printed as, so that it reads back


def value_names(g: Graph) -> dict[Value, str]:
    """How every value of a graph is printed: %name or %N, bodies excluded."""
    out: dict[Value, str] = {}
    taken: set[str] = set()
    for v in g.inputs:
        out[v] = _value_text(_unique(v.node.attrs["name"], taken))
    number = 0
    for n in g.nodes:
        name = n.name
        if not name and n.op.name == "variable":
            name = n.attrs["state"].name or NAMELESS
        if not name:
            for o in n.outs:
                out[o] = f"%{number}"
                number += 1
        elif n.outs:
            name = _unique(name, taken)
            out[n.outs[0]] = _value_text(name)
            for i, o in enumerate(n.outs[1:], 1):
                out[o] = _value_text(_unique(f"{name}.{i}", taken))
    return out


def _value_text(name: str) -> str:
    return f"%{name_text(name)}"


def _unique(name: str, taken: set[str]) -> str:
    unique, i = name, 0
    while unique in taken:
        i += 1
        unique = f"{name}.{i}"
    taken.add(unique)
    return unique


def archive_names(g: Graph) -> tuple[dict[State, str], dict[int, tuple[str, Literal]]]:
    """Names of the variables and, by identity, of the large constants that the text refers to."""
    printer = _Printer(g, False)
    printer.text(g)
    return printer.states, printer.constants


class _Printer:
    """What one printing keeps: names of states and constants, formatted paths, lines so far."""

    def __init__(self, g: Graph | None, locs: bool):
        self.states: dict[State, str] = {}
        self.taken: set[str] = set()
        self.constants: dict[int, tuple[str, Literal]] = {}
        self.locs = locs
        self.base = _base_folder(g) if g is not None and locs else None
        self.files: dict[str, str] = {}

    def text(self, g: Graph) -> str:
        lines: list[str] = []
        stack = [self.body(g, self.open(g, "graph ", "", lines), "  ", lines)]
        while stack:
            inner = next(stack[-1], None)
            if inner is None:
                stack.pop()
            else:
                stack.append(inner)
        lines.append("")
        return "\n".join(lines)

    def open(self, g: Graph, before: str, prefix: str, lines: list[str]) -> dict[Value, str]:
        """Append a graph's first line; the names of its values."""
        values = value_names(g)
        params = []
        for v in g.inputs:
            name, text = v.node.attrs["name"], values[v]
            renamed = "" if text == _value_text(name) else f" = {string_text(name)}"
            params.append(f"{text}: {v.type}{renamed}")
        lines.append(f"{prefix}{before}@{name_text(g.name)}({', '.join(params)}) {{")
        return values

    def body(
        self, g: Graph, values: dict[Value, str], indent: str, lines: list[str]
    ) -> Iterator[Iterator[Any]]:
        """Append a graph's lines up to its closing brace; yields where a region is to be run."""
        for n in g.nodes:
            line = indent + self.head(n, values) + self.attrs(n)
            regions = [(k, a) for k, a in n.attrs.items() if isinstance(a, Graph)]
            for key, inner in regions:
                values_inside = self.open(inner, f"{key}=", f"{line} ", lines)
                yield self.body(inner, values_inside, indent + "  ", lines)
                line = lines.pop()
            lines.append(line + self.where(n))
        outs = ", ".join(
            f"{name_text(name)}={values[v]}" if name else values[v]
            for name, v in zip(g.output_names, g.outputs, strict=True)
        )
        lines.append(f"{indent}return {outs}" if outs else f"{indent}return")
        lines.extend(f"{indent}update {self.state(s)} = {values[v]}" for s, v in g.updates)
        lines.append(indent[:-2] + "}")

    def head(self, n: Node, values: dict[Value, str]) -> str:
        """`%0: f32[2] = add %x, %y`."""
        args = ", ".join([values[a] for a in n.args])
        op = f"{n.op.name} {args}" if args else n.op.name
        if len(n.outs) == 1:
            out = n.outs[0]
            return f"{values[out]}: {out.type._text} = {op}"
        outs = ", ".join([f"{values[o]}: {o.type}" for o in n.outs])
        return f"{outs} = {op}" if outs else op

    def attrs(self, n: Node) -> str:
        if not n.attrs:
            return ""
        if len(n.attrs) == 1 and not n.args:
            (only,) = n.attrs.values()
            if isinstance(only, State):
                return f" {self.state(only)}"
            if isinstance(only, Literal):
                return f" {self.elements(only)}"
        words = [
            f"{k}={_FORMAT[type(a)](self, a) if type(a) in _FORMAT else _attr(self, a)}"
            for k, a in n.attrs.items()
            if not isinstance(a, Graph)
        ]
        return f" {{{', '.join(words)}}}" if words else ""

    def where(self, n: Node) -> str:
        loc = f" loc({self.file(n.loc)}:{n.loc.line})" if self.locs and n.loc is not None else ""
        return f"{loc} scope({string_text(n.scope)})" if n.scope else loc

    def file(self, loc: Loc) -> str:
        text = self.files.get(loc.file)
        if text is None:
            text = self.files[loc.file] = string_text(_relative(loc.file, self.base))
        return text

    def state(self, s: State) -> str:
        name = self.states.get(s)
        if name is None:
            name = self.states[s] = _unique(s.name or NAMELESS, self.taken)
        return f"@{name_text(name)}"

    def elements(self, literal: Literal) -> str:
        size = literal.type.size
        if isinstance(size, int) and size <= INLINE:
            return elements_text(literal)
        name, _ = self.constants.setdefault(id(literal), (f"c{len(self.constants)}", literal))
        return f"@{name}"


def _tuple(p: _Printer, a: tuple[Any, ...]) -> str:
    return f"({', '.join([_attr(p, x) for x in a])})"


def _attr(p: _Printer, a: Any) -> str:
    for kind in type(a).__mro__:
        if kind in _FORMAT:
            return _FORMAT[kind](p, a)
    raise TypeError(f"no text form for an attribute of type {type(a).__name__}: {a!r}")


def _dim(p: _Printer, a: Dim) -> str:
    clash = any(n in RESERVED or n in BY_NAME for n in names(a))
    return f"size({a})" if clash else str(a)


def _literal(p: _Printer, a: Literal) -> str:
    return f"literal({a.type}, {p.elements(a)})"


_FORMAT: dict[type, Callable[[_Printer, Any], str]] = {
    bool: lambda p, a: "true" if a else "false",
    int: lambda p, a: str(int(a)),
    float: lambda p, a: float_text(a),
    str: lambda p, a: string_text(a),
    type(None): lambda p, a: "none",
    tuple: _tuple,
    Dim: _dim,
    DType: lambda p, a: str(a.name),
    TensorType: lambda p, a: str(a),
    Literal: _literal,
    State: lambda p, a: f"{p.state(a)}: {a.type}",
}


def _base_folder(g: Graph) -> str | None:
    for v in g.inputs:
        if v.node.loc is not None and os.path.isabs(v.node.loc.file):
            return os.path.dirname(v.node.loc.file)
    for n in g.nodes:
        if n.loc is not None and os.path.isabs(n.loc.file):
            return os.path.dirname(n.loc.file)
    return None


def _relative(file: str, base: str | None) -> str:
    if base is None or not os.path.isabs(file):
        return file
    try:
        path = os.path.relpath(file, base).replace(os.sep, "/")
    except ValueError:  # another drive
        return os.path.basename(file)
    return os.path.basename(file) if path.startswith("../../../") else path
