"""Objects linked into the memory of this process, on x86-64 Linux.

LLVM's ORC links objects, too, and does it for other systems; but a process that finds its program
in the cache needs nothing else of LLVM, and loading it takes 20 ms and 45 MB. What the objects of
graphc need is little: they are position-independent code of the small code model, without threads'
own variables, constructors or exceptions. Source of the rules: System V ABI, AMD64 supplement,
section 4.4 (relocation).

The memory is one mapping in three parts, each of whole pages: code with the stubs through which it
calls what is far away, constants with the global offset table, variables.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.codegen.machine import elf
from graphc.dims import round_up
from graphc.errors import CompileError

_X86_64, _RELOCATABLE = 62, 1                # machine and kind of file
_ABS64, _PC32, _PLT32, _GOT = 1, 2, 4, (9, 41, 42)  # R_X86_64_64, ..., GOTPCREL and GOTPCRELX
_KNOWN = frozenset((_ABS64, _PC32, _PLT32, *_GOT))
_WRITE, _ALLOCATE, _EXECUTE, _TLS = 1, 2, 4, 1 << 10  # flags of sections
_PROGBITS, _NOBITS = 1, 8
_ABSOLUTE, _RESERVED = 0xFFF1, 0xFF00        # numbers in the place of sections
_RELOCATION = np.dtype([("at", "<i8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_CODE, _CONSTANTS, _VARIABLES = range(3)
# Of mmap and mprotect; importing `mmap` takes 0.2 ms of the 8 that loading a program takes.
_PAGE = 4096
_READ, _STORE, _RUN = 1, 2, 4
_PRIVATE, _ANONYMOUS = 2, 32
_PROTECTION = (_READ | _RUN, _READ)
_STUB = 8  # bytes: jmp *slot(%rip), and two that are not reached


class Linked:
    """Linked objects: the addresses of symbols, valid until this is dropped.

    Not even then while the interpreter shuts down, since workers may still be running in it.
    """

    def __init__(self, address: int, size: int, symbols: Mapping[str, int]):
        self._symbols = symbols
        weakref.finalize(self, _libc().munmap, address, size).atexit = False

    def __getitem__(self, name: str) -> int:
        return self._symbols[name]


def usable() -> bool:
    """Whether this is a process that `link` knows."""
    return sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 1 << 32


def link(objects: Sequence[bytes], imports: Mapping[str, int]) -> Linked | None:
    """Link objects with each other, with `imports` (name -> address) and with the process.

    None where one of them has something that is for ORC. CompileError if a symbol is nowhere, or
    in two places.
    """
    files = [elf.File(o) for o in objects]
    relocations = [_relocations(f) for f in files]
    if any(r is None for r in relocations) or not all(map(_plain, files)):
        return None
    return _Linker(files, [r for r in relocations if r is not None], imports).link()


def process_symbol(name: str) -> int:
    """The address of a C function of this process; 0 where there is none."""
    try:
        found = getattr(ctypes.pythonapi, name)
    except AttributeError:
        return 0
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def _plain(file: elf.File) -> bool:
    """Whether all sections and symbols are of the kinds that graphc's code has."""
    return all(
        s.kind in (_PROGBITS, _NOBITS) and not s.flags & _TLS and s.alignment <= _PAGE
        for s in file.sections if s.flags & _ALLOCATE
    ) and all(s.section < _RESERVED or s.section == _ABSOLUTE for s in file.symbols)


def _relocations(file: elf.File) -> list[tuple[int, Any]] | None:
    """(section, its relocations) for all that have some; None if one is not among those known."""
    if (file.machine, file.kind, file.bits) != (_X86_64, _RELOCATABLE, 64):
        return None
    found = []
    for s in file.sections:
        if s.kind == elf.RELA and file.sections[s.info].flags & _ALLOCATE:
            table = np.frombuffer(file.data, _RELOCATION, s.size // _RELOCATION.itemsize, s.at)
            if not _KNOWN.issuperset(table["kind"].tolist()):
                return None
            found.append((s.info, table))
    return found


class _Linker:
    def __init__(
        self, files: Sequence[elf.File], relocations: Sequence[list[tuple[int, Any]]],
        imports: Mapping[str, int],
    ):
        self.files, self.relocations, self.imports = files, relocations, imports
        self.at: dict[tuple[int, int], int] = {}     # (file, section) -> offset in the mapping
        self.slots: dict[int, int] = {}              # address -> number in the offset table

    def link(self) -> Linked:
        # Every far symbol of a file may have a stub and a slot: more than are used, but few.
        far = sum(len({i for _, t in r for i in t["symbol"].tolist()}) for r in self.relocations)
        begins = [0, 0, 0, 0]
        end = 0
        for part in (_CODE, _CONSTANTS, _VARIABLES):
            begins[part] = end = round_up(end, _PAGE)
            if part == _CODE:
                self.stubs, end = end, end + far * _STUB
            if part == _CONSTANTS:
                self.table, end = end, end + far * 8
            end = self.place(part, end)
        begins[3] = size = max(round_up(end, _PAGE), _PAGE)
        self.base = _map(size)
        self.memory = np.frombuffer(_bytes(self.base, size), np.uint8)
        linked = Linked(self.base, size, symbols := self.symbols())
        self.fill()
        for k, file in enumerate(self.files):
            self.relocate(k, file, symbols)
        for part, protection in enumerate(_PROTECTION):
            _protect(self.base + begins[part], begins[part + 1] - begins[part], protection)
        return linked

    def place(self, part: int, end: int) -> int:
        """Give the sections of a part their places from `end` on; where the last one ends."""
        for k, file in enumerate(self.files):
            for number, s in enumerate(file.sections):
                if s.flags & _ALLOCATE and _part(s) == part:
                    begin = round_up(end, max(1, s.alignment))
                    self.at[k, number] = begin
                    end = begin + s.size
        return end

    def fill(self) -> None:
        for (k, number), at in self.at.items():
            s, data = self.files[k].sections[number], self.files[k].data
            if s.kind != _NOBITS:
                self.memory[at : at + s.size] = np.frombuffer(data, np.uint8, s.size, s.at)

    def symbols(self) -> dict[str, int]:
        """The addresses of what the objects define for each other; a strong one beats weak ones."""
        strong: dict[str, int] = {}
        weak: dict[str, int] = {}
        for k, file in enumerate(self.files):
            for s in file.symbols:
                if s.binding == elf.LOCAL or not s.section:
                    continue
                if s.binding == elf.WEAK:
                    weak.setdefault(s.name, self.address(k, s))
                elif s.name in strong:
                    raise CompileError(f"the generated code does not link: {s.name} is there twice")
                else:
                    strong[s.name] = self.address(k, s)
        return weak | strong

    def address(self, k: int, s: elf.Symbol) -> int:
        """Of a symbol that file k defines."""
        if s.section == _ABSOLUTE:
            return s.value
        at = self.at.get((k, s.section))
        return 0 if at is None else self.base + at + s.value  # 0: of debug information

    def relocate(self, k: int, file: elf.File, symbols: Mapping[str, int]) -> None:
        """Write the addresses that file k's code and data ask for."""
        where = np.array([self.target(k, s, symbols) for s in file.symbols], np.int64)
        for section, table in self.relocations[k]:
            for kind in set(table["kind"].tolist()):
                chosen = table[table["kind"] == kind]
                value = where[chosen["symbol"]]
                at = self.at[k, section] + chosen["at"]
                if kind in _GOT:
                    value = self.base + self.table + 8 * self.numbers(value)
                elif kind == _PLT32:
                    distant = ~_near(value - (self.base + at))
                    stubs = self.base + self.stubs + _STUB * self.numbers(value[distant])
                    value[distant] = stubs
                value = value + chosen["addend"]
                if kind == _ABS64:
                    self.write(at, value)
                    continue
                value = value - (self.base + at)
                if not _near(value).all():
                    raise CompileError("the generated code does not link: a symbol is out of reach")
                self.write(at, value.astype("<i4"))

    def target(self, k: int, s: elf.Symbol, symbols: Mapping[str, int]) -> int:
        """The address that a symbol of file k means."""
        if s.binding == elf.LOCAL:
            return self.address(k, s) if s.section else 0
        found = symbols.get(s.name)
        if found is None:
            found = self.imports.get(s.name)
        if found is None:
            found = process_symbol(s.name)  # LLVM calls memcpy and the like unasked
            if not found and s.binding != elf.WEAK:
                raise CompileError(f"the generated code does not link: there is no {s.name}")
        return found

    def numbers(self, addresses: Any) -> Any:
        """The numbers of the slots that hold these addresses, each with a stub that jumps there."""
        for address in addresses.tolist():
            if address not in self.slots:
                n = self.slots[address] = len(self.slots)
                slot, stub = self.table + 8 * n, self.stubs + _STUB * n
                self.write(np.array([slot]), np.array([address]))
                self.memory[stub : stub + 2] = 0xFF, 0x25
                self.write(np.array([stub + 2]), np.array([slot - (stub + 6)], "<i4"))
        return np.array([self.slots[a] for a in addresses.tolist()], np.int64)

    def write(self, at: Any, values: Any) -> None:
        """Numbers of 4 or 8 bytes at offsets in the mapping, on any byte."""
        size = values.dtype.itemsize
        self.memory[at[:, None] + np.arange(size)] = values.view(np.uint8).reshape(-1, size)


def _part(s: elf.Section) -> int:
    return _CODE if s.flags & _EXECUTE else _VARIABLES if s.flags & _WRITE else _CONSTANTS


def _near(distance: Any) -> Any:
    """Which distances fit 32 bits, with a page to spare for addends."""
    return np.abs(distance) < (1 << 31) - _PAGE


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _map(size: int) -> int:
    address = _libc().mmap(None, size, _READ | _STORE, _PRIVATE | _ANONYMOUS, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise _refused(f"{size} bytes for code")
    return int(address)


def _bytes(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * size).from_address(address))


def _protect(address: int, size: int, protection: int) -> None:
    if size and _libc().mprotect(address, size, protection):
        raise _refused("memory for code")


def _refused(what: str) -> CompileError:
    return CompileError(f"the system gives no {what}: {os.strerror(ctypes.get_errno())}")
