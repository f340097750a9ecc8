"""Reading little-endian ELF files: sections, symbols, and what an object asks of others."""

from __future__ import annotations

import struct
from functools import cached_property

SYMTAB, RELA = 2, 4    # kinds of sections
FUNCTION = 2           # kind of a symbol
LOCAL, WEAK = 0, 2     # bindings
_HIDDEN = (1, 2)       # visibility: internal, hidden


# Plain classes: to make one of NamedTuple takes 0.2 ms of the 8 that loading a program takes.
class Section:
    """A section header: `at` is the offset in the file."""

    __slots__ = (
        "address", "alignment", "at", "entry", "flags", "info", "kind", "link", "name", "size",
    )

    def __init__(
        self, name: int, kind: int, flags: int, address: int, at: int, size: int, link: int,
        info: int, alignment: int, entry: int,
    ):
        self.name, self.kind, self.flags, self.address, self.at = name, kind, flags, address, at
        self.size, self.link, self.info, self.alignment, self.entry = (
            size, link, info, alignment, entry
        )


class Symbol:
    """An entry of the symbol table: section 0 where it is another object's."""

    __slots__ = ("binding", "kind", "name", "section", "size", "value", "visibility")

    def __init__(
        self, name: str, binding: int, kind: int, visibility: int, section: int, value: int,
        size: int,
    ):
        self.name, self.binding, self.kind, self.visibility = name, binding, kind, visibility
        self.section, self.value, self.size = section, value, size


class File:
    """An ELF file of 32 or 64 bits; ValueError for other bytes."""

    def __init__(self, data: bytes):
        if data[:4] != b"\x7fELF" or data[5] != 1:
            raise ValueError("not a little-endian ELF file")
        self.data = data
        self.bits = 64 if data[4] == 2 else 32
        self.kind, self.machine = struct.unpack_from("<HH", data, 16)

    @cached_property
    def sections(self) -> list[Section]:
        wide = self.bits == 64
        (begin,) = struct.unpack_from("<Q", self.data, 40) if wide else struct.unpack_from(
            "<I", self.data, 32
        )
        (count,) = struct.unpack_from("<H", self.data, 60 if wide else 48)
        header = struct.Struct("<IIQQQQIIQQ" if wide else "<10I")
        return [
            Section(*header.unpack_from(self.data, begin + k * header.size)) for k in range(count)
        ]

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The symbol table in its order, which relocations count in."""
        wide, data, found = self.bits == 64, self.data, []
        for s in self.sections:
            if s.kind != SYMTAB:
                continue
            strings = self.sections[s.link].at
            table = data[s.at : s.at + s.size]
            for item in struct.iter_unpack("<IBBHQQ" if wide else "<IIIBBH", table):
                if wide:
                    name, info, other, section, value, size = item
                else:
                    name, value, size, info, other, section = item
                begin = strings + name
                text = data[begin : data.index(b"\0", begin)].decode()
                found.append(Symbol(text, info >> 4, info & 15, other & 3, section, value, size))
        return found


class Symbols:
    """Of an object: word size, machine number, names."""

    __slots__ = ("bits", "exported", "machine", "undefined")

    def __init__(
        self, bits: int, machine: int, exported: tuple[str, ...], undefined: tuple[str, ...]
    ):
        self.bits, self.machine, self.exported, self.undefined = bits, machine, exported, undefined


def read(obj: bytes) -> Symbols:
    """The names that an ELF object defines for others, and asks for; ValueError for other files."""
    file = File(obj)
    named = [s for s in file.symbols if s.name and s.binding != LOCAL]
    return Symbols(
        file.bits, file.machine,
        tuple([s.name for s in named if s.section and s.visibility not in _HIDDEN]),
        tuple([s.name for s in named if not s.section]),
    )
