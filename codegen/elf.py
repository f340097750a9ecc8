"""Reading the symbols of an ELF object: what it defines, and what it asks of others."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

FUNCTION = 2         # kind of a symbol
_SYMTAB = 2
_LOCAL = 0
_HIDDEN = (1, 2)     # visibility: internal, hidden


class Symbol(NamedTuple):
    """An entry of a symbol table; `section` is 0 where the object does not define it."""

    name: str
    binding: int
    kind: int
    visibility: int
    section: int
    value: int       # in an object, the offset in the section
    size: int


class Symbols(NamedTuple):
    """Of an object: word size, machine number, names."""

    bits: int
    machine: int
    exported: tuple[str, ...]
    undefined: tuple[str, ...]


def is_elf(obj: bytes) -> bool:
    """Whether a file is a little-endian ELF one."""
    return obj[:4] == b"\x7fELF" and obj[5] == 1


def symbols(obj: bytes) -> Iterator[Symbol]:
    """The symbols with names of a little-endian ELF object."""
    wide = obj[4] == 2
    (header,) = struct.unpack_from(*("<Q", obj, 40) if wide else ("<I", obj, 32))
    (count,) = struct.unpack_from("<H", obj, 60 if wide else 48)
    section = struct.Struct("<IIQQQQIIQQ" if wide else "<IIIIIIIIII")
    sections = [section.unpack_from(obj, header + k * section.size) for k in range(count)]
    for s in sections:
        if s[1] != _SYMTAB:
            continue
        names = sections[s[6]][4]
        for item in struct.iter_unpack("<IBBHQQ" if wide else "<IIIBBH", obj[s[4] : s[4] + s[5]]):
            if wide:
                name, info, other, index, value, size = item
            else:
                name, value, size, info, other, index = item
            if name:
                start = names + name
                text = obj[start : obj.index(b"\0", start)].decode()
                yield Symbol(text, info >> 4, info & 15, other & 3, index, value, size)


def read(obj: bytes) -> Symbols:
    """The names of a little-endian ELF object; ValueError for other files."""
    if not is_elf(obj):
        raise ValueError("not a little-endian ELF file")
    exported, undefined = [], []
    for s in symbols(obj):
        if s.binding == _LOCAL:
            continue
        if s.section == 0:
            undefined.append(s.name)
        elif s.visibility not in _HIDDEN:
            exported.append(s.name)
    return Symbols(
        64 if obj[4] == 2 else 32, struct.unpack_from("<H", obj, 18)[0], tuple(exported),
        tuple(undefined),
    )
