"""Names of native code in memory, for Linux `perf`.

    GRAPHC_PERF_MAP=1 perf record python digits.py; perf report

With that environment variable set, every function that is loaded gets a line "address size name"
in /tmp/perf-PID.map, where `perf` looks for them; kernels are called like step.k3[dot,add,maximum].
Programs then are compiled anew in one piece, so that the templates they share have names, too.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence

from graphc.errors import CompileError

VARIABLE = "GRAPHC_PERF_MAP"
_SECTION = struct.Struct("<IIQQQQIIQQ")  # of an ELF64 file; name, type, ..., link at 6
_SYMBOL = struct.Struct("<IBBHQQ")       # name, info, other, section, value, size
_SYMTAB, _FUNCTION = 2, 2


def wanted() -> bool:
    """Whether the environment asks for a map."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def record(
    objects: Sequence[bytes], addresses: Mapping[str, int], titles: Mapping[str, str]
) -> None:
    """Append the functions of loaded objects.

    addresses: of some symbols, from which those of all others in the same section follow.
    titles: what to call functions, see `debug.full_title`.
    """
    from graphc.codegen.debug import full_title

    lines = []
    for obj in objects:
        found = list(functions(obj))
        base = {s: addresses[name] - at for name, s, at, _ in found if name in addresses}
        for name, section, at, size in found:
            if section in base:
                lines.append(f"{base[section] + at:x} {size:x} {full_title(name, titles)}\n")
    path = f"/tmp/perf-{os.getpid()}.map"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as f:
            f.write("".join(lines))
    except OSError as e:
        raise CompileError(f"{VARIABLE}: cannot write {path}: {e.strerror}") from None


def functions(obj: bytes) -> Iterator[tuple[str, int, int, int]]:
    """(name, section, offset in it, size) of the functions that a 64-bit ELF file defines."""
    if obj[:5] != b"\x7fELF\2":
        return
    (start,) = struct.unpack_from("<Q", obj, 40)
    count = struct.unpack_from("<H", obj, 60)[0]
    sections = [_SECTION.unpack_from(obj, start + k * _SECTION.size) for k in range(count)]
    for s in sections:
        if s[1] != _SYMTAB:
            continue
        strings = sections[s[6]][4]
        for at in range(s[4], s[4] + s[5], _SYMBOL.size):
            name, info, _, section, value, size = _SYMBOL.unpack_from(obj, at)
            if info & 15 == _FUNCTION and section and size:
                begin = strings + name
                yield obj[begin:obj.index(b"\0", begin)].decode(), section, value, size
