"""Reading the symbols of an ELF object: what it defines for others, and what it asks of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SYMTAB = 2
_LOCAL = 0
_HIDDEN = (1, 2)     # visibility: internal, hidden


@dataclass(frozen=True)
class Symbols:
    """Of an object: word size, machine number, names."""

    bits: int
    machine: int
    exported: tuple[str, ...]
    undefined: tuple[str, ...]


def read(obj: bytes) -> Symbols:
    """The symbols of a little-endian ELF object; ValueError for other files."""
    if obj[:4] != b"\x7fELF" or obj[5] != 1:
        raise ValueError("not a little-endian ELF file")
    bits = 64 if obj[4] == 2 else 32
    machine = struct.unpack_from("<H", obj, 18)[0]
    if bits == 64:
        header, size, count = _fields(obj, "<Q", 40), 64, struct.unpack_from("<H", obj, 60)[0]
        entry, section = "<IBBHQQ", "<IIQQQQIIQQ"
    else:
        header, size, count = _fields(obj, "<I", 32), 40, struct.unpack_from("<H", obj, 48)[0]
        entry, section = "<IIIBBH", "<IIIIIIIIII"
    sections = [struct.unpack_from(section, obj, header + k * size) for k in range(count)]
    exported, undefined = [], []
    for s in sections:
        if s[1] != _SYMTAB:
            continue
        names = sections[s[6]][4]
        for item in struct.iter_unpack(entry, obj[s[4]:s[4] + s[5]]):
            name, info, other, index = item[:4] if bits == 64 else (item[0], *item[3:6])
            if not name or info >> 4 == _LOCAL:
                continue
            start = names + name
            text = obj[start:obj.index(b"\0", start)].decode()
            if index == 0:
                undefined.append(text)
            elif other & 3 not in _HIDDEN:
                exported.append(text)
    return Symbols(bits, machine, tuple(exported), tuple(undefined))


def _fields(obj: bytes, layout: str, at: int) -> int:
    return int(struct.unpack_from(layout, obj, at)[0])
