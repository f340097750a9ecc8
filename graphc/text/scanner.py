"""A cursor over text: what is expected next, and the error where something else stands."""

from __future__ import annotations

import re
from typing import NoReturn

from graphc import size_text
from graphc.dims import Size
from graphc.errors import ParseError, ShapeError
from graphc.text.literals import STRING, string_value
from graphc.types import BY_NAME, DType, TensorType

_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_NAME = re.compile(rf"([A-Za-z_][A-Za-z0-9_.]*)|({STRING})")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_INT = re.compile(r"-?[0-9]+(?![A-Za-z0-9_.])")
_STRING = re.compile(STRING)
_TYPE = re.compile(r"[a-z]+[0-9]*\[[^\]\n]*\]")
_FOUND = re.compile(r'-?[A-Za-z0-9_.%@]+|"[^"\n]*"?|[^\s]')
_WIDTH = 100  # columns of source shown in a message


class Scanner:
    """Text and a position in it. Every method either moves on or raises ParseError."""

    __slots__ = ("pos", "source", "text")
    _types: dict[str, TensorType] = {}  # noqa: RUF012

    def __init__(self, text: str, source: str = ""):
        self.text, self.pos, self.source = text, 0, source

    def fail(self, expected: str, pos: int | None = None, found: bool = True) -> NoReturn:
        """ParseError: `expected` (a noun phrase), what stands there instead, and a caret line."""
        at = min(self.pos if pos is None else pos, len(self.text))
        m = _FOUND.match(self.text, at)
        what = repr(m.group()) if m else "the end of the line" if at < len(self.text) else "the end"
        message = f"expected {expected}, found {what}" if found else expected
        raise ParseError(f"{self._place(at)}: {message}\n{self._caret(at)}")

    def _place(self, at: int) -> str:
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return f"{self.source + ': ' if self.source else ''}line {line}, column {column}"

    def _caret(self, at: int) -> str:
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        first = max(start, at - _WIDTH // 2)
        shown = self.text[first : min(end if end >= 0 else len(self.text), first + _WIDTH)]
        before = "".join(c if c == "\t" else " " for c in self.text[first:at])
        printable = "".join(c if c.isprintable() or c == "\t" else "?" for c in shown)
        return f"  {printable}\n  {before}^"

    def skip(self) -> None:
        """Over spaces, line ends and comments."""
        if self.text[self.pos : self.pos + 1] <= "#":  # nothing else that counts is as low
            m = _SPACE.match(self.text, self.pos)
            if m is not None:
                self.pos = m.end()

    def at(self, symbol: str) -> bool:
        """Whether `symbol` comes next."""
        self.skip()
        return self.text.startswith(symbol, self.pos)

    def take(self, symbol: str) -> bool:
        """Move over a punctuation symbol if it comes next."""
        self.skip()
        if self.text.startswith(symbol, self.pos):
            self.pos += len(symbol)
            return True
        return False

    def expect(self, symbol: str, what: str = "") -> None:
        if not self.take(symbol):
            self.fail(what or f"{symbol!r}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move over a match of `pattern` if it comes next."""
        self.skip()
        m = pattern.match(self.text, self.pos)
        if m is not None:
            self.pos = m.end()
        return m

    def word(self, what: str) -> str:
        m = self.match(_WORD)
        return m.group() if m else self.fail(what)

    def keyword(self, word: str) -> bool:
        """Move over a word if exactly it comes next."""
        self.skip()
        m = _WORD.match(self.text, self.pos)
        if m is None or m.group() != word:
            return False
        self.pos = m.end()
        return True

    def integer(self, what: str = "an integer") -> int:
        m = self.match(_INT)
        return self.number(m.group(), m.start()) if m else self.fail(what)

    def number(self, word: str, pos: int) -> int:
        try:
            return int(word)
        except ValueError:  # Python's limit on digits
            self.fail("an integer of fewer digits", pos)

    def string(self, what: str = "a quoted string") -> str:
        m = self.match(_STRING)
        return self._unquote(m.group(), m.start()) if m else self.fail(what)

    def name(self, what: str) -> str:
        """A plain or quoted name."""
        m = self.match(_NAME)
        if m is None:
            self.fail(what)
        return m.group(1) or self._unquote(m.group(2), m.start())

    def _unquote(self, text: str, pos: int) -> str:
        if "\\" not in text:
            return text[1:-1]
        try:
            return string_value(text)
        except ValueError:
            self.fail("a string with valid escapes", pos)

    def type(self) -> TensorType:
        """`f32[batch,64]`."""
        m = self.match(_TYPE)
        if m is None:
            self.fail("a type such as f32[2,3]")
        found = self._types.get(m.group())
        if found is None:
            found = self._new_type(m.group(), m.start())
            if len(self._types) < 4096:
                self._types[m.group()] = found
        return found

    def _new_type(self, text: str, pos: int) -> TensorType:
        name, inside = text[:-1].split("[", 1)
        dtype = self.dtype(name, pos)
        shape: list[Size] = []
        inner = Scanner(self.text, self.source)
        inner.pos = pos + len(name) + 1
        end = pos + len(text) - 1
        while inside.strip():
            inner.skip()
            start = inner.pos
            size = inner.size()
            if isinstance(size, int) and size < 0:
                inner.fail("a size >= 0", start)
            shape.append(size)
            inner.skip()
            if inner.pos >= end:
                break
            inner.expect(",", "',' or ']' after a size")
        try:
            return TensorType(dtype, shape)
        except ShapeError as e:  # too large to be
            self.fail(e.message, pos, found=False)

    def dtype(self, name: str, pos: int) -> DType:
        """An element type by its short name."""
        found = BY_NAME.get(name)
        if found is None or found.name != name:
            known = sorted({d.name for d in BY_NAME.values()})
            self.fail(f"a dtype (one of {', '.join(known)})", pos)
        return found

    def size(self) -> Size:
        """An integer or an expression over dimension names."""
        self.skip()
        try:
            size, self.pos = size_text.parse_prefix(self.text, self.pos)
        except (ValueError, ArithmeticError):
            self.fail("a size: an integer, a dimension name, or an expression of them")
        except RecursionError:
            self.fail("a size nested less deeply")
        return size

