"""Names of native code in memory, for Linux `perf`.

    GRAPHC_PERF_MAP=1 perf record python digits.py; perf report

With that environment variable set, every function that is loaded gets a line "address size name"
in /tmp/perf-PID.map, where `perf` looks for them; kernels are called like step.k3[dot,add,maximum].
Programs then are compiled anew in one piece, so that the templates they share have names, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from graphc.errors import CompileError

VARIABLE = "GRAPHC_PERF_MAP"


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
    """(name, section, offset in it, size) of the functions that an ELF file defines."""
    from graphc.codegen.machine import elf

    try:
        symbols = elf.File(obj).symbols
    except ValueError:
        return
    for s in symbols:
        if s.kind == elf.FUNCTION and s.section and s.size:
            yield s.name, s.section, s.value, s.size
