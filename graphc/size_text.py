"""Sizes from text, as `dims` prints them.

    size := ["-"] term (("+" | "-") term)*      term := atom ("*" atom)*
    atom := INT | NAME | ("floordiv" | "mod" | "max" | "min") "(" size "," size ")"
"""

from __future__ import annotations

from graphc.dims import FUNCTIONS, Size, dim


def parse(text: str) -> Size:
    """The inverse of str(); ValueError says where the text stops making sense."""
    size, end = parse_prefix(text, 0)
    if text[end:].strip():
        raise ValueError(f"unexpected {text[end:].strip()!r} in dimension {text!r}")
    return size


def parse_prefix(text: str, i: int) -> tuple[Size, int]:
    """Parse a size that starts at text[i]; returns it and the position after it."""
    total: Size = 0
    sign = 1
    if text[i : i + 1] == "-":
        sign, i = -1, i + 1
    while True:
        term, i = _parse_term(text, i)
        total = total + term * sign
        if text[i : i + 1] not in ("+", "-"):
            return total, i
        sign = 1 if text[i] == "+" else -1
        i += 1


def _parse_term(text: str, i: int) -> tuple[Size, int]:
    out: Size = 1
    while True:
        j = i
        while j < len(text) and (text[j].isalnum() or text[j] == "_"):
            j += 1
        word = text[i:j]
        if not word:
            raise ValueError(f"expected a number or a name at column {i + 1} of {text!r}")
        atom: Size
        if word.isdigit():
            atom = int(word)
        elif word in FUNCTIONS and text[j : j + 1] == "(":
            a, j = parse_prefix(text, j + 1)
            if text[j : j + 1] != ",":
                raise ValueError(f"expected ',' at column {j + 1} of {text!r}")
            while text[j + 1 : j + 2] == " ":
                j += 1
            b, j = parse_prefix(text, j + 1)
            if text[j : j + 1] != ")":
                raise ValueError(f"expected ')' at column {j + 1} of {text!r}")
            atom, j = FUNCTIONS[word](a, b), j + 1
        else:
            atom = dim(word)
        out = out * atom
        if text[j : j + 1] != "*":
            return out, j
        i = j + 1
