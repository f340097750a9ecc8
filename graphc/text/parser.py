"""Text -> graph. The grammar is the docstring of `graphc.text`.

Whatever the text, the only error is ParseError, with line, column, what was expected and a caret.
Nested graphs are kept on an explicit stack.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.errors import GraphcError, Loc
from graphc.ir import Graph, Literal, Node, State, Value, infer
from graphc.ops import OPS, Op
from graphc.text.literals import (
    ELEMENT,
    RESERVED,
    STRING,
    MissingLiteral,
    element_value,
    float_value,
    literal_of,
)
from graphc.text.scanner import Scanner
from graphc.types import BY_NAME, TensorType

_VALUE = re.compile(rf"%([0-9]+|[A-Za-z_][A-Za-z0-9_.]*|{STRING})")
_REGION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(?=@)")
_FLOAT = re.compile(r"-?(?:0x[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?p[+-]?[0-9]+|inf\b|[0-9]+\.[0-9]*|"
                    r"[0-9]+(?:\.[0-9]*)?e[+-]?[0-9]+)|nan\b")
_UPDATE = re.compile(r"update(?=\s*@)")
_CONSTANT = re.compile(r"@(c[0-9]+)(?![A-Za-z0-9_.])")
_ATTR_WORD = re.compile(r"[A-Za-z_]\w*")
_SIMPLE_ATTRS = re.compile(r'\{[^{}"@\[\n]*\}')
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
_MAX_TUPLE_DEPTH = 50


def parse(
    text: str, constants: Mapping[str, np.ndarray[Any, Any]] | None = None, source: str = ""
) -> Graph:
    """The graph that `text` describes.

    constants: arrays under "c0", "c1", ... and "@NAME", as `save` writes them; without them
        large constants and variables have no value. source: a file name for messages.
    Raises ParseError.
    """
    return _Parser(text, constants or {}, source).file()


class _Open:
    """A graph whose closing brace has not come yet."""

    __slots__ = ("inputs", "name", "nodes", "pending", "values")

    def __init__(self, name: str):
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.pending: _Pending | None = None


class _Pending:
    """A node being read; `key` is the region that is open."""

    __slots__ = ("args", "attrs", "key", "op", "pos", "results")

    def __init__(self, pos: int, results: list[tuple[str, TensorType, int]]):
        self.pos, self.results = pos, results
        self.args: list[Value] = []
        self.attrs: dict[str, Any] = {}
        self.key = ""
        self.op: Op


class _Parser(Scanner):
    """Reads one file."""

    __slots__ = ("arrays", "cache", "files", "literals", "states")

    def __init__(self, text: str, arrays: Mapping[str, np.ndarray[Any, Any]], source: str):
        super().__init__(text, source)
        self.arrays = arrays
        self.states: dict[str, State] = {}
        self.literals: dict[str, Literal] = {}
        self.cache: dict[tuple[Op, str], dict[str, Any]] = {}
        self.files: dict[str, str] = {}

    def file(self) -> Graph:
        if not self.keyword("graph"):
            self.fail("'graph'")
        stack = [self.header()]
        while True:
            top = stack[-1]
            if self.keyword("return"):
                graph = self.footer(top, outermost=len(stack) == 1)
                stack.pop()
                if not stack:
                    self.skip()
                    if self.pos < len(self.text):
                        self.fail("the end of the file after the graph")
                    return graph
                top = stack[-1]
                node = top.pending
                assert node is not None
                node.attrs[node.key] = graph
            else:
                node = top.pending = self.node(top)
            m = self.match(_REGION)
            if m is None:
                self.finish(top, node)
            else:
                node.key = m.group(1)
                self.check_key(node, m.start())
                stack.append(self.header())

    # --- graphs ---------------------------------------------------------------------------------

    def header(self) -> _Open:
        self.expect("@", "'@' and the graph's name")
        g = _Open(self.name("the graph's name"))
        self.expect("(")
        while not self.take(")"):
            if g.inputs:
                self.expect(",", "',' or ')'")
            name, pos = self.new_value(g)
            self.expect(":", "':' and the type of the input")
            type = self.type()
            own = self.string() if self.take("=") else _plain_name(name)
            node = Node(OPS["input"], (), {"name": own, "type": type}, (type,))
            g.inputs.append(node.out)
            g.values[name] = node.out
            if name[0].isdigit():
                self.fail("a name for the input, not a number", pos)
        self.expect("{")
        return g

    def footer(self, g: _Open, outermost: bool) -> Graph:
        """What follows `return`, up to the closing brace."""
        names: list[str] = []
        outputs: list[Value] = []
        if not self.at("}") and not _UPDATE.match(self.text, self.pos):
            while True:
                names.append("" if self.at("%") else self.name("%VALUE or NAME=%VALUE"))
                if names[-1]:
                    self.expect("=", "'=' and a value")
                outputs.append(self.value(g))
                if not self.take(","):
                    break
        updates: list[tuple[State, Value]] = []
        while self.match(_UPDATE):
            pos = self.pos
            self.expect("@", "'@' and a variable's name")
            name = self.name("a variable's name")
            self.expect("=")
            v = self.value(g)
            if not outermost:
                self.fail("no update inside a nested graph", pos, found=False)
            updates.append((self.state(name, v.type, pos), v))
        self.expect("}", "'update' or '}'" if outermost else "'}'")
        return Graph(g.name, g.inputs, g.nodes, outputs, updates, names)

    # --- nodes ----------------------------------------------------------------------------------

    def node(self, g: _Open) -> _Pending:
        """A node up to its attributes."""
        self.skip()
        n = _Pending(self.pos, [])
        while self.at("%"):
            name, pos = self.new_value(g)
            if any(name == other for other, _, _ in n.results):
                self.fail(f"%{name} is defined twice", pos, found=False)
            self.expect(":", "':' and the type of the result")
            n.results.append((name, self.type(), pos))
            if not self.take(","):
                self.expect("=", "'=' and an operation")
                break
        self.skip()
        pos = self.pos
        word = self.word("an operation" if n.results else "a node, 'return' or '}'")
        op = OPS.get(word)
        if op is None:
            close = difflib.get_close_matches(word, OPS, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            self.fail(f"an operation{hint}", pos)
        if op.name == "input":
            self.fail("inputs in the graph's header only", pos, found=False)
        n.op = op
        if self.at("%"):
            n.args.append(self.value(g))
            while self.take(","):
                n.args.append(self.value(g))
        elif len(op.attrs) == 1 and len(n.results) == 1 and not self.at("{"):
            self.bare(n, op.attrs[0])
        if self.at("{"):
            self.attrs(n)
        return n

    def bare(self, n: _Pending, key: str) -> None:
        """The one attribute of `variable` and `constant`, whose type is the result's."""
        type = n.results[0][1]
        if key == "state":
            pos = self.pos
            self.expect("@", "'@' and the variable's name")
            n.attrs[key] = self.state(self.name("the variable's name"), type, pos)
        elif key == "value":
            n.attrs[key] = self.elements(type)

    def attrs(self, n: _Pending) -> None:
        m = self.match(_SIMPLE_ATTRS)
        if m is not None:
            known = self.cache.get((n.op, m.group()))
            if known is not None:
                n.attrs = dict(known)
                return
            self.pos = m.start()
        self.expect("{")
        while not self.take("}"):
            if n.attrs:
                self.expect(",", "',' or '}'")
            self.skip()
            pos = self.pos
            n.key = self.word("the name of an attribute")
            self.check_key(n, pos)
            self.expect("=")
            n.attrs[n.key] = self.attr(0)
        if m is not None and m.end() == self.pos:
            self.cache[n.op, m.group()] = dict(n.attrs)

    def check_key(self, n: _Pending, pos: int) -> None:
        if n.key in n.attrs:
            self.fail(f"attribute {n.key!r} once, it came twice", pos, found=False)
        if n.key not in n.op.attrs:
            known = ", ".join(n.op.attrs) or "none"
            self.fail(f"an attribute of {n.op.name} ({known})", pos)

    def finish(self, g: _Open, n: _Pending) -> None:
        """Read where the node comes from, check it against the op's row, and keep it."""
        op = n.op
        attrs = {k: n.attrs[k] for k in op.attrs if k in n.attrs}
        if len(attrs) != len(op.attrs):
            missing = next(k for k in op.attrs if k not in attrs)
            self.fail(f"attribute {missing!r} of {op.name}")
        loc, scope = self.where()
        types = [t for _, t, _ in n.results]
        try:
            inferred = infer(op, [a.type for a in n.args], attrs)
        except GraphcError as e:
            self.fail(e.message, n.pos, found=False)
        except Exception as e:  # a type rule met attributes of a wrong kind
            self.fail(f"valid attributes of {op.name} ({e})", n.pos, found=False)
        for (_, written, pos), t in zip(n.results, inferred, strict=False):
            if written is not t:
                self.fail(f"type {t}, which {op.name} gives here, not {written}", pos, found=False)
        if len(inferred) != len(types):
            self.fail(f"{len(inferred)} results of {op.name}, not {len(types)}", n.pos, found=False)
        name = "" if not n.results else _plain_name(n.results[0][0])
        if op.name == "variable" and name == attrs["state"].name:
            name = ""
        node = Node(op, tuple(n.args), attrs, types, loc, scope, name)
        for (key, _, _), out in zip(n.results, node.outs, strict=True):
            g.values[key] = out
        g.nodes.append(node)
        g.pending = None

    def where(self) -> tuple[Loc | None, str]:
        loc, scope = None, ""
        if self.keyword("loc"):
            self.expect("(")
            file = self.string("a quoted file name")
            self.expect(":", "':' and a line number")
            loc = Loc(self.files.setdefault(file, file), self.integer("a line number"))
            self.expect(")")
        if self.keyword("scope"):
            self.expect("(")
            scope = self.string()
            self.expect(")")
        return loc, scope

    # --- values, states, attributes -------------------------------------------------------------

    def new_value(self, g: _Open) -> tuple[str, int]:
        m = self.match(_VALUE)
        if m is None:
            self.fail("'%' and a name")
        name = m.group(1)
        if name[0] == '"':
            self._unquote(name, m.start() + 1)
        if name in g.values:
            self.fail(f"%{name} is defined twice", m.start(), found=False)
        return name, m.start()

    def value(self, g: _Open) -> Value:
        m = self.match(_VALUE)
        if m is None:
            self.fail("a value such as %0")
        v = g.values.get(m.group(1))
        if v is None:
            self.fail(f"%{m.group(1)} is not defined before this place", m.start(), found=False)
        return v

    def state(self, name: str, type: TensorType, pos: int) -> State:
        s = self.states.get(name)
        if s is None:
            array = self.arrays.get(f"@{name}")
            if array is not None:
                array = self.stored(array, f"@{name}", type, pos)
            s = self.states[name] = State(name, type, array)
        elif s.type is not type:
            self.fail(f"type {s.type} of @{name}, as before, not {type}", pos, found=False)
        return s

    def stored(
        self, array: np.ndarray[Any, Any], name: str, type: TensorType, pos: int
    ) -> np.ndarray[Any, Any]:
        """The array of the .npz, which knows bf16 as raw bytes only."""
        if array.dtype.kind == "V" and array.dtype.itemsize == type.dtype.itemsize:
            array = array.view(type.dtype.numpy)
        if array.shape != type.shape or array.dtype != type.dtype.numpy:
            came = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            self.fail(f"{name} of type {type}, but the .npz has {came}", pos, found=False)
        return array

    def elements(self, type: TensorType) -> Literal:
        self.skip()
        start = self.pos
        if self.at("@"):
            m = self.match(_CONSTANT)
            if m is None:
                self.fail("a constant's name such as @c0")
            return self.large(m.group(1), type, start)
        if not type.is_static:
            self.fail(f"a static type for a constant, not {type}", found=False)
        words = []
        if not type.shape:
            words.append(self.element(type))
        else:
            self.expect("[", "'[' and the elements")
            while not self.take("]"):
                if words:
                    self.expect(",", "',' or ']'")
                words.append(self.element(type))
        if len(words) != type.size:
            self.fail(f"{type.size} elements of {type}, got {len(words)}", start, found=False)
        return literal_of(words, type)

    def element(self, type: TensorType) -> tuple[float | int, int | None]:
        m = self.match(ELEMENT)
        if m is None:
            self.fail(f"an element of dtype {type.dtype}")
        try:
            return element_value(m.group(), type.dtype)
        except ValueError as e:
            self.fail(str(e), m.start())

    def large(self, name: str, type: TensorType, pos: int) -> Literal:
        found = self.literals.get(name)
        if found is None:
            array = self.arrays.get(name)
            if array is None:
                found = MissingLiteral(name, type)
            else:
                found = Literal(self.stored(array, f"@{name}", type, pos))
            self.literals[name] = found
        elif found.type is not type:
            self.fail(f"type {found.type} of @{name}, as before, not {type}", pos, found=False)
        return found

    def attr(self, depth: int) -> Any:
        if depth > _MAX_TUPLE_DEPTH:
            self.fail("a tuple nested less deeply")
        if self.take("("):
            items: list[Any] = []
            while not self.take(")"):
                if items:
                    self.expect(",", "',' or ')'")
                items.append(self.attr(depth + 1))
            return tuple(items)
        if self.at('"'):
            return self.string()
        if self.at("@"):
            pos = self.pos
            self.pos += 1
            name = self.name("a variable's name")
            self.expect(":", "':' and the variable's type")
            return self.state(name, self.type(), pos)
        if m := self.match(_FLOAT):
            try:
                return float_value(m.group())
            except ValueError as e:
                self.fail(str(e), m.start())
        m = _ATTR_WORD.match(self.text, self.pos)
        return self.attr_word(m) if m else self.attr_size()

    def attr_word(self, m: re.Match[str]) -> Any:
        word, after = m.group(), self.text[m.end() : m.end() + 1]
        if word in _WORDS:
            self.pos = m.end()
            return _WORDS[word]
        if after == "[":
            return self.type()
        if after == "(" and word in RESERVED:
            self.pos = m.end() + 1
            value = self.attr_size() if word == "size" else self.literal()
            self.expect(")")
            return value
        if word in BY_NAME and BY_NAME[word].name == word:
            self.pos = m.end()
            return self.dtype(word, m.start())
        return self.attr_size()

    def attr_size(self) -> Any:
        try:
            return self.size()
        except GraphcError:
            self.fail("an attribute: a number, a word, a string, a type, a size or a tuple")

    def literal(self) -> Literal:
        type = self.type()
        self.expect(",")
        return self.elements(type)


def _plain_name(key: str) -> str:
    """The name that a value's text gives to its node: none for a number."""
    if key[0] == '"':
        from graphc.text.literals import string_value

        return string_value(key)
    return "" if key[0].isdigit() else key
