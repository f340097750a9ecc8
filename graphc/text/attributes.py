"""Reading attributes: tuples, sizes, types, floats, constants and variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphc.errors import GraphcError
from graphc.ir import Literal, State
from graphc.text.literals import (
    ELEMENT,
    RESERVED,
    MissingLiteral,
    element_value,
    float_value,
    literal_of,
)
from graphc.text.scanner import Scanner
from graphc.types import BY_NAME, Array, TensorType, array_text

_FLOAT = re.compile(r"-?(?:0x[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?p[+-]?[0-9]+|inf\b|[0-9]+\.[0-9]*|"
                    r"[0-9]+(?:\.[0-9]*)?e[+-]?[0-9]+)|nan\b")
_CONSTANT = re.compile(r"@(c[0-9]+)(?![A-Za-z0-9_.])")
_ATTR_WORD = re.compile(r"[A-Za-z_]\w*")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
_MAX_TUPLE_DEPTH = 50


class AttributeReader(Scanner):
    """A scanner that reads attributes; it knows the variables and constants met so far."""

    __slots__ = ("arrays", "literals", "states")

    def __init__(self, text: str, arrays: Mapping[str, Array], source: str):
        super().__init__(text, source)
        self.arrays = arrays
        self.states: dict[str, State] = {}
        self.literals: dict[str, Literal] = {}

    def state(self, name: str, type: TensorType, pos: int) -> State:
        s = self.states.get(name)
        if s is None:
            array = self.arrays.get(f"@{name}")
            if array is not None:
                array = self.stored(array, f"@{name}", type, pos)
            s = self.states[name] = State(name, type, array)
        elif s.type is not type:
            self.fail(f"@{name} has type {s.type}, not {type}", pos, found=False)
        return s

    def stored(
        self, array: Array, name: str, type: TensorType, pos: int
    ) -> Array:
        """The array of the .npz, which knows bf16 as raw bytes only."""
        self.usable(type, pos)
        if array.dtype.kind == "V" and array.dtype.itemsize == type.dtype.itemsize:
            array = array.view(type.dtype.numpy)
        if array.shape != type.shape or array.dtype != type.dtype.numpy:
            came = array_text(array)
            self.fail(f"{name} has type {type}, but the .npz has {came}", pos, found=False)
        return array

    def usable(self, type: TensorType, pos: int) -> None:
        """Refuse values of bf16 where its package is not installed; types alone do not need it."""
        try:
            _ = type.dtype.numpy
        except GraphcError as e:
            self.fail(e.message, pos, found=False)

    def elements(self, type: TensorType) -> Literal:
        self.skip()
        start = self.pos
        if self.at("@"):
            m = self.match(_CONSTANT)
            if m is None:
                self.fail("a constant's name such as @c0")
            return self.large(m.group(1), type, start)
        if not type.is_static:
            self.fail(f"a constant has a static type, not {type}", found=False)
        self.usable(type, start)
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
            self.fail(f"{type} has {type.size} elements, got {len(words)}", start, found=False)
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
            self.fail(f"@{name} has type {found.type}, not {type}", pos, found=False)
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
