"""Text -> graph. The grammar is the docstring of `graphc.text`.

Whatever the text, the only error is ParseError, with line, column, what was expected and a caret.
Nested graphs are kept on an explicit stack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from graphc.errors import GraphcError, Loc, did_you_mean
from graphc.ir import Graph, Node, State, Value, infer
from graphc.ops import OPS, Op
from graphc.origins import Origin
from graphc.text.attributes import AttributeReader
from graphc.text.literals import STRING, string_value
from graphc.types import Array, TensorType

_VALUE = re.compile(rf"%([0-9]+|[A-Za-z_][A-Za-z0-9_.]*|{STRING})")
_REGION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(?=@)")
# A node's start as printed, without quoted names; whatever else goes the long way.
_HEAD = re.compile(
    r"%([A-Za-z0-9_.]+): ([a-z]+[0-9]*\[[^\]\n]*\]) = ([a-z_0-9]+) "
    r"%([A-Za-z0-9_.]+(?:, %[A-Za-z0-9_.]+)*)(?![A-Za-z0-9_.])(?! *,)"
)
_LOC = re.compile(r'loc\("([^"\\\x00-\x1f]*)":([0-9]{1,9})\)')  # as printed; others go the long way
_OPERAND = re.compile(r"[ \t]*%")  # on the op's line; a line further it is the next node's result
_UPDATE = re.compile(r"update(?=\s*@)")
_FLAGS = frozenset({"checked", "negative", "reverse"})  # attributes that are true or false
_SIMPLE_ATTRS = re.compile(r'\{[^{}"@\[\n]*\}')


def parse(
    text: str, constants: Mapping[str, Array] | None = None, source: str = ""
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


class _Parser(AttributeReader):
    """Reads one file."""

    __slots__ = ("cache", "files")

    def __init__(self, text: str, arrays: Mapping[str, Array], source: str):
        super().__init__(text, arrays, source)
        self.cache: dict[tuple[Op, str], dict[str, Any]] = {}
        self.files: dict[str, str] = {}

    def file(self) -> Graph:
        if not self.keyword("graph"):
            self.fail("'graph'")
        stack = [self.header()]
        while True:
            top = stack[-1]
            if self.at("r") and self.keyword("return"):
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
                self.fail("a nested graph has no updates", pos, found=False)
            updates.append((self.state(name, v.type, pos), v))
        self.expect("}", "'update' or '}'" if outermost else "'}'")
        return Graph(g.name, g.inputs, g.nodes, outputs, updates, names)

    # --- nodes ----------------------------------------------------------------------------------

    def node(self, g: _Open) -> _Pending:
        """A node up to its attributes."""
        self.skip()
        n = self.plain_head(g)
        if n is None:
            n = self.head(g)
        if self.at("{"):
            self.attrs(n)
        return n

    def plain_head(self, g: _Open) -> _Pending | None:
        """The usual start of a node in one step, or None where anything is unusual or wrong."""
        m = _HEAD.match(self.text, self.pos)
        if m is None:
            return None
        name, written, word, args = m.groups()
        type, op = self._types.get(written), OPS.get(word)
        if type is None or op is None or name in g.values or not _VALUE.fullmatch(f"%{name}"):
            return None
        n = _Pending(self.pos, [(name, type, self.pos)])
        try:
            n.args = [g.values[a] for a in args.split(", %")]
        except KeyError:
            return None
        n.op = op
        self.pos = m.end()
        return n

    def head(self, g: _Open) -> _Pending:
        """Results, op, operands, and the attribute that stands alone."""
        n = _Pending(self.pos, [])
        while self.at("%"):
            name, pos = self.new_value(g)
            if n.results and any(name == other for other, _, _ in n.results):
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
            known = list(OPS) if n.results else [*OPS, "return"]
            hint = did_you_mean(word, known)
            self.fail(f"an operation ({hint})" if hint else "an operation", pos)
        if op.name == "input":
            self.fail("inputs stand in the graph's header only", pos, found=False)
        n.op = op
        if _OPERAND.match(self.text, self.pos):
            n.args.append(self.value(g))
            while self.take(","):
                n.args.append(self.value(g))
        elif len(op.attrs) == 1 and len(n.results) == 1 and not self.at("{"):
            self.bare(n, op.attrs[0])
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
            self.skip()
            start = self.pos
            value = n.attrs[n.key] = self.attr(0)
            if n.key in _FLAGS and not isinstance(value, bool):
                self.fail("true or false", start)
        if m is not None and m.end() == self.pos:
            self.cache[n.op, m.group()] = dict(n.attrs)

    def check_key(self, n: _Pending, pos: int) -> None:
        if n.key in n.attrs:
            self.fail(f"attribute {n.key!r} comes twice", pos, found=False)
        if n.key not in n.op.attrs:
            known = ", ".join(n.op.attrs) or "none"
            self.fail(f"an attribute of {n.op.name} ({known})", pos)

    def finish(self, g: _Open, n: _Pending) -> None:
        """Read where the node comes from, check it against the op's row, and keep it."""
        op = n.op
        attrs = {k: n.attrs[k] for k in op.attrs if k in n.attrs}
        if len(attrs) != len(op.attrs):
            missing = next(k for k in op.attrs if k not in attrs)
            self.fail(f"{op.name} lacks its attribute {missing!r}", n.pos, found=False)
        loc, scope = self.where()
        try:
            inferred = infer(op, [a.type for a in n.args], attrs)
        except GraphcError as e:
            self.fail(e.message, n.pos, found=False)
        except Exception as e:  # a type rule met attributes of a wrong kind
            self.fail(f"the attributes of {op.name} do not fit: {e}", n.pos, found=False)
        types = tuple([t for _, t, _ in n.results])
        if types != inferred:
            self.wrong_types(n, inferred)
        name = "" if not n.results else _plain_name(n.results[0][0])
        if op.name == "variable" and name == attrs["state"].name:
            name = ""
        node = Node(op, tuple(n.args), attrs, types, Origin(loc, scope, name))
        for (key, _, _), out in zip(n.results, node.outs, strict=True):
            g.values[key] = out
        g.nodes.append(node)
        g.pending = None

    def wrong_types(self, n: _Pending, inferred: tuple[TensorType, ...]) -> NoReturn:
        op = n.op.name
        if len(inferred) != len(n.results):
            message = f"{op} has {len(inferred)} results here, not {len(n.results)}"
            self.fail(message, n.pos, found=False)
        for (_, written, pos), t in zip(n.results, inferred, strict=True):
            if written is not t:
                self.fail(f"{op} gives {t} here, not {written}", pos, found=False)
        raise AssertionError("types differ and are equal")

    def where(self) -> tuple[Loc | None, str]:
        loc, scope = None, ""
        if m := self.match(_LOC):
            loc = Loc(self.files.setdefault(m.group(1), m.group(1)), int(m.group(2)))
        elif self.keyword("loc"):
            self.expect("(")
            file = self.string("a quoted file name")
            self.expect(":", "':' and a line number")
            loc = Loc(file, self.integer("a line number"))
            self.expect(")")
        if self.at("s") and self.keyword("scope"):
            self.expect("(")
            scope = self.string()
            self.expect(")")
        return loc, scope

    # --- values --------------------------------------------------------------------------

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


def _plain_name(key: str) -> str:
    """The name that a value's text gives to its node: none for a number."""
    if key[0] == '"':
        return string_value(key)
    return "" if key[0].isdigit() else key
