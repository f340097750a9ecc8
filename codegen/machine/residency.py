"""Memory that a loaded library's file takes of this process: given back when it will not be needed.

Loading LLVM runs through its relocations and the constructors of its thousand options, and the
system maps what lies around each: 37 MB, of which compiling needs a third again. Pages that stand
in a file as they do in memory can be dropped at any time; who needs one finds it in the file's
cache. Of 130 MB that a cold process held at most for the training step of an MLP 20 are saved, and
when the compiled functions run, all that compiling took.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys

from graphc.dims import round_up

_PT_LOAD, _WRITABLE = 1, 2  # kind and flag of a program header
_DONT_NEED = 4              # of madvise
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def drop_pages(path: str) -> None:
    """Drop what is read-only of a library that is loaded from `path`; nothing where that is not
    to be done (Linux, 64 bits, an ELF file)."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or sys.byteorder != "little":
        return
    with contextlib.suppress(OSError, struct.error):
        base = _base(os.path.realpath(path))
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for begin, end in _constant(path) if base else []:
            madvise(base + begin, end - begin, _DONT_NEED)


def _base(path: str) -> int:
    """Where the first page of a file is mapped; 0 if it is not."""
    name = path.encode()
    with open("/proc/self/maps", "rb") as f:
        for line in f:
            place, _, offset, _, _, *file = line.split(maxsplit=5)
            if file and file[0].rstrip(b"\n") == name and not int(offset, 16):
                return int(place.partition(b"-")[0], 16)
    return 0


def _constant(path: str) -> list[tuple[int, int]]:
    """The pages, from the first on, of segments that nothing writes to: no relocation either."""
    with open(path, "rb") as f:
        head = f.read(64)
        at, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
        if head[:5] != b"\x7fELF\x02":
            return []
        f.seek(at)
        table = f.read(size * count)
    found = []
    for k in range(count):
        kind, flags, _, begin, _, _, length, _ = struct.unpack_from("<IIQQQQQQ", table, k * size)
        if kind == _PT_LOAD and not flags & _WRITABLE:
            found.append((begin // _PAGE * _PAGE, round_up(begin + length, _PAGE)))
    return found
