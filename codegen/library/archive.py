"""Static libraries of one object, with the symbol index that the linkers of each system want.

    elf, wasm   GNU: "/" is the index, "//" holds names of members
    coff        the same index twice, as Microsoft's linkers read it: by member, and sorted
    macho       BSD: "__.SYMDEF", names of members before their data, which begin at 8-byte offsets

Dates and owners are zero, so the same object gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

MAGIC = b"!<arch>\n"


def archive(
    obj: Sequence[Any], member: str, symbols: Sequence[str], format: str = "elf"
) -> list[Any]:
    """The archive, as parts to write one after another; `symbols` as C writes them."""
    if format == "macho":
        return _bsd(obj, member, [f"_{s}" for s in symbols])
    if format == "coff":
        return _microsoft(obj, member, symbols)
    return _gnu(obj, member, symbols)


def import_library(library: str, names: Sequence[str]) -> bytes:
    """A COFF archive by which LLVM's linker finds x86-64 functions of a DLL, without the DLL."""
    members = []
    for n in names:
        text = n.encode() + b"\0" + library.encode() + b"\0"
        code_by_name = 1 << 2
        head = struct.pack("<4H2I2H", 0, 0xFFFF, 0, 0x8664, 0, len(text), 0, code_by_name)
        members.append(_even(header(f"{library}/", len(head) + len(text)) + head + text))
    symbols = [s for n in names for s in (f"__imp_{n}", n)]
    texts = _texts(symbols)
    size = 4 + 4 * len(symbols) + len(texts)
    at = len(MAGIC) + 60 + size + size % 2
    offsets = []
    for m in members:
        offsets += [at, at]
        at += len(m)
    index = struct.pack(f">{1 + len(symbols)}I", len(symbols), *offsets) + texts
    return MAGIC + _even(header("/", size + size % 2) + index) + b"".join(members)


def header(name: str, size: int, mode: str = "0") -> bytes:
    """The 60 bytes before a member."""
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{mode:<8}{size:<10}`\n".encode()


def _gnu(obj: Sequence[Any], member: str, symbols: Sequence[str]) -> list[Any]:
    """The index by name, the names of members, the member."""
    texts, size = _texts(symbols), sum(map(len, obj))
    index_size = 4 + 4 * len(symbols) + len(texts)
    index_size += index_size % 2
    long_names = _even(f"{member}/\n".encode(), b"\n")
    at = len(MAGIC) + 60 + index_size + 60 + len(long_names)
    index = struct.pack(f">{1 + len(symbols)}I", len(symbols), *[at] * len(symbols)) + texts
    return [
        MAGIC, header("/", index_size), _even(index), header("//", len(long_names)), long_names,
        header("/0", size, "100644"), *obj, b"\n" * (size % 2),
    ]


def _microsoft(obj: Sequence[Any], member: str, symbols: Sequence[str]) -> list[Any]:
    """The index twice, the names of members, the member."""
    texts, size = _texts(symbols), sum(map(len, obj))
    first_size = 4 + 4 * len(symbols) + len(texts)
    first_size += first_size % 2
    second_size = 12 + 2 * len(symbols) + len(texts)
    second_size += second_size % 2
    at = len(MAGIC) + 60 + first_size + 60 + second_size
    first = struct.pack(f">{1 + len(symbols)}I", len(symbols), *[at] * len(symbols)) + texts
    second = struct.pack("<3I", 1, at, len(symbols))
    second += struct.pack(f"<{len(symbols)}H", *[1] * len(symbols)) + _texts(sorted(symbols))
    name = member if len(member) < 16 else "library.obj"  # so that no table of names is needed
    return [
        MAGIC, header("/", first_size), _even(first), header("/", second_size), _even(second),
        header(f"{name}/", size, "100644"), *obj, b"\n" * (size % 2),
    ]


def _bsd(obj: Sequence[Any], member: str, symbols: Sequence[str]) -> list[Any]:
    """The index with offsets of names, the member behind its name."""
    symbols = sorted(symbols)
    texts, size = _texts(symbols), sum(map(len, obj))
    texts += b"\0" * (-len(texts) % 8)
    index_name = _padded("__.SYMDEF SORTED", len(MAGIC) + 60)
    index_size = 4 + 8 * len(symbols) + 4 + len(texts)
    at = len(MAGIC) + 60 + len(index_name) + index_size
    starts, k = [], 0
    for s in symbols:
        starts.append(k)
        k += len(s) + 1
    index = struct.pack("<I", 8 * len(symbols))
    index += b"".join(struct.pack("<2I", start, at) for start in starts)
    index += struct.pack("<I", len(texts)) + texts
    name, tail = _padded(member, at + 60), b"\0" * (-size % 8)
    return [
        MAGIC, header(f"#1/{len(index_name)}", len(index_name) + index_size), index_name, index,
        header(f"#1/{len(name)}", len(name) + size + len(tail), "100644"), name, *obj, tail,
    ]


def _padded(name: str, at: int) -> bytes:
    """A member's name at offset `at`, with zeros up to the next offset that 8 divides."""
    raw = name.encode() + b"\0"
    return raw + b"\0" * (-(at + len(raw)) % 8)


def _texts(symbols: Sequence[str]) -> bytes:
    return b"".join(s.encode() + b"\0" for s in symbols)


def _even(raw: bytes, filler: bytes = b"\0") -> bytes:
    return raw + filler * (len(raw) % 2)
