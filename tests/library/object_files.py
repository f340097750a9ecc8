"""Reading what object files and libraries define, need and hold: COFF, PE, Mach-O, wasm, archives.

    found = read(raw)      Found(defined, undefined, needed, writable)

Names are those of the format: Mach-O's begin with an underscore. `needed` are the libraries that a
linked one loads; `writable` the bytes of its writable data.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Found(NamedTuple):
    """Visible names that stand here, names that others must give, libraries, bytes of variables."""

    defined: set[str]
    undefined: set[str]
    needed: set[str] = frozenset()
    writable: int = 0


def read(raw: bytes) -> Found:
    if raw[:4] == b"\0asm":
        return _wasm(raw)
    if raw[:4] == b"\xcf\xfa\xed\xfe":
        return _macho(raw)
    return _pe(raw) if raw[:2] == b"MZ" else _coff(raw)


def text(raw: bytes, at: int) -> str:
    return raw[at:raw.index(b"\0", at)].decode()


# -- Windows -------------------------------------------------------------------------------------

WRITE, CODE, NO_BITS = 1 << 31, 1 << 5, 1 << 7


def _coff(raw: bytes) -> Found:
    machine, sections, _, symbols, count, optional, _ = struct.unpack_from("<2H3I2H", raw)
    assert (machine, optional) == (0x8664, 0)
    writable = 0
    for k in range(sections):
        size, flags = struct.unpack_from("<I16xI", raw, 20 + 40 * k + 16)
        writable += size * bool(flags & WRITE)
    names, k = symbols + 18 * count, 0
    defined, undefined = set(), set()
    while k < count:
        at = symbols + 18 * k
        zeros, offset = struct.unpack_from("<2I", raw, at)
        name = text(raw, names + offset) if not zeros else raw[at:at + 8].rstrip(b"\0").decode()
        value, section, _, storage, more = struct.unpack_from("<IhHBB", raw, at + 8)
        if storage == 2:  # external
            (defined if section > 0 else undefined).add(name)
            assert section or not value  # nothing common
        k += 1 + more
    return Found(defined, undefined, writable=writable)


def _pe(raw: bytes) -> Found:
    (pe,) = struct.unpack_from("<I", raw, 60)
    assert raw[pe:pe + 4] == b"PE\0\0"
    machine, count, _, _, _, optional, flags = struct.unpack_from("<2H3I2H", raw, pe + 4)
    assert machine == 0x8664 and flags & 0x2000  # a DLL
    head = pe + 24
    assert struct.unpack_from("<H", raw, head) == (0x20B,)
    exports, imports = (struct.unpack_from("<I", raw, head + 112 + 8 * k)[0] for k in (0, 1))
    sections = [struct.unpack_from("<8x4I12xI", raw, head + optional + 40 * k)
                for k in range(count)]
    writable = sum(size for size, _, _, _, f in sections if f & WRITE)

    def at(rva: int) -> int:
        for size, begin, stored, offset, _ in sections:
            if begin <= rva < begin + max(size, stored):
                return rva - begin + offset
        raise ValueError(f"no section at {rva:#x}")

    where = at(exports)
    (n,) = struct.unpack_from("<I", raw, where + 24)
    (names,) = struct.unpack_from("<I", raw, where + 32)
    defined = {text(raw, at(struct.unpack_from("<I", raw, at(names) + 4 * k)[0]))
               for k in range(n)}
    undefined, needed, where = set(), set(), at(imports)
    while any(row := struct.unpack_from("<5I", raw, where)):
        needed.add(text(raw, at(row[3])).lower())
        thunk = at(row[0])
        while (entry := struct.unpack_from("<Q", raw, thunk)[0]) != 0:
            undefined.add(text(raw, at(entry) + 2))
            thunk += 8
        where += 20
    return Found(defined, undefined, needed, writable)


# -- macOS ---------------------------------------------------------------------------------------


def _macho(raw: bytes) -> Found:
    _, cpu, _, kind, count, _, _, _ = struct.unpack_from("<8I", raw)
    assert cpu in (0x01000007, 0x0100000C) and kind in (1, 6)  # x86-64, arm64; object, dylib
    defined, undefined, needed, writable = set(), set(), set(), 0
    at, versions, signed = 32, [], False
    for _ in range(count):
        command, size = struct.unpack_from("<2I", raw, at)
        signed |= command == 0x1D
        if command == 0x19:  # a segment, here for its sections
            for k in range(struct.unpack_from("<I", raw, at + 64)[0]):
                section = at + 72 + 80 * k
                if raw[section:section + 16].rstrip(b"\0") in (b"__data", b"__bss", b"__common"):
                    writable += struct.unpack_from("<Q", raw, section + 40)[0]
        elif command == 0xC:
            needed.add(text(raw, at + struct.unpack_from("<I", raw, at + 8)[0]))
        elif command == 0x32:
            versions.append(struct.unpack_from("<2I", raw, at + 8))
        elif command == 2:
            symbols, n, names, _ = struct.unpack_from("<4I", raw, at + 8)
            for k in range(n):
                name, flags, _, _, _ = struct.unpack_from("<IBBHQ", raw, symbols + 16 * k)
                if flags & 1 and not flags & 0x10:  # external, and not only to this object
                    (defined if flags & 0xE else undefined).add(text(raw, names + name))
        at += size
    assert versions == [(1, 11 << 16)]  # for macOS from 11.0 on
    assert signed or (cpu, kind) != (0x0100000C, 6)  # without which arm64 Macs load nothing
    return Found(defined, undefined, needed, writable)


# -- WebAssembly ---------------------------------------------------------------------------------


class _Bytes:
    def __init__(self, raw: bytes, at: int = 0):
        self.raw, self.at = raw, at

    def number(self) -> int:
        out = shift = 0
        while True:
            byte = self.raw[self.at]
            self.at += 1
            out |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return out

    def take(self, n: int) -> bytes:
        self.at += n
        return self.raw[self.at - n:self.at]

    def name(self) -> str:
        return self.take(self.number()).decode()


def _wasm(raw: bytes) -> Found:
    """Of a module what it exports and imports; of an object, its symbols."""
    r = _Bytes(raw, 8)
    imports, exports, linking = [], set(), b""
    while r.at < len(raw):
        kind, size = r.take(1)[0], r.number()
        s = _Bytes(r.take(size))
        if kind == 2:
            for _ in range(s.number()):
                s.name()
                name, what = s.name(), s.take(1)[0]
                imports.append((what, name))
                if what == 0:
                    s.number()
                elif what == 3:
                    s.take(2)
                else:  # a table has an element type first
                    s.take(what == 1)
                    limits = s.take(1)[0]
                    s.number()
                    if limits & 1:
                        s.number()
        elif kind == 7:
            for _ in range(s.number()):
                exports.add(s.name())
                s.take(1)
                s.number()
        elif kind == 0 and s.name() == "linking":
            linking = s.raw[s.at:]
    if not linking:
        return Found(exports, {name for _, name in imports})
    return _wasm_symbols(_Bytes(linking), [n for what, n in imports if what == 0])


def _wasm_symbols(s: _Bytes, functions: list[str]) -> Found:
    defined, undefined = set(), set()
    assert s.number() == 2
    while s.at < len(s.raw):
        kind, size = s.take(1)[0], s.number()
        table = _Bytes(s.take(size))
        if kind != 8:
            continue
        for _ in range(table.number()):
            what, flags, missing = table.take(1)[0], table.number(), False
            missing = bool(flags & 0x10)
            if what == 1:  # data
                name = table.name()
                if not missing:
                    for _ in range(3):
                        table.number()
            elif what == 3:  # a section
                table.number()
                continue
            else:
                index = table.number()
                named = not missing or flags & 0x40
                name = table.name() if named else functions[index] if what == 0 else ""
            if missing and what == 0:
                undefined.add(name)
            elif not missing and not flags & (2 | 4):  # neither local nor hidden
                defined.add(name)
    return Found(defined, undefined)


# -- archives ------------------------------------------------------------------------------------


def members(raw: bytes) -> list[tuple[str, int, bytes]]:
    """(name, offset of the header, contents) of an archive, those of the index first."""
    assert raw[:8] == b"!<arch>\n"
    at, found = 8, []
    while at < len(raw):
        name, size = raw[at:at + 16].decode().rstrip(), int(raw[at + 48:at + 58])
        assert raw[at + 58:at + 60] == b"`\n" and len(raw) >= at + 60 + size
        body = raw[at + 60:at + 60 + size]
        if name.startswith("#1/"):
            length = int(name[3:])
            name, body = body[:length].rstrip(b"\0").decode(), body[length:]
        found.append((name, at, body))
        at += 60 + size + size % 2
    return found


def index(raw: bytes) -> dict[str, int]:
    """Symbol -> offset of its member's header, in every index that the archive has."""
    found: list[dict[str, int]] = []
    for name, _, body in members(raw):
        if name == "__.SYMDEF SORTED":
            (n,) = struct.unpack_from("<I", body)
            rows = struct.iter_unpack("<2I", body[4:4 + n])
            found.append({text(body, 8 + n + start): at for start, at in rows})
        elif name == "/" and not found:
            (n,) = struct.unpack_from(">I", body)
            names = body[4 + 4 * n:].split(b"\0")
            offsets = struct.unpack_from(f">{n}I", body, 4)
            found.append({names[k].decode(): at for k, at in enumerate(offsets)})
        elif name == "/":
            (m,) = struct.unpack_from("<I", body)
            offsets = struct.unpack_from(f"<{m}I", body, 4)
            (n,) = struct.unpack_from("<I", body, 4 + 4 * m)
            numbers = struct.unpack_from(f"<{n}H", body, 8 + 4 * m)
            names = body[8 + 4 * m + 2 * n:].split(b"\0")
            assert names[:n] == sorted(names[:n])
            found.append({names[k].decode(): offsets[i - 1] for k, i in enumerate(numbers)})
    assert all(i == found[0] for i in found)
    return found[0]
