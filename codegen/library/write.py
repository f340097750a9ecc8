"""Writing a library of one kind or several, and its header: whole or not at all.

Everything is made in a temporary directory beside the output, then renamed into place.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from graphc.codegen.library.abi import identifier
from graphc.codegen.library.archive import archive
from graphc.codegen.library.cpp import cpp_text
from graphc.codegen.library.foreign import link_foreign
from graphc.codegen.library.link import link_shared, write_parts
from graphc.codegen.library.make import Library
from graphc.codegen.machine.platforms import PLATFORMS, Platform
from graphc.errors import CompileError

SHARED = tuple(dict.fromkeys(p.shared for p in PLATFORMS.values()))
WINDOWS = (".obj", ".lib")  # what objects and archives are called there
IMPORTS = ".dll.lib"        # by which programs find what a DLL exports
KINDS = (*SHARED, ".a", ".o", ".ll", ".s", ".h", ".hpp", *WINDOWS)
# Libraries (`-lm`) and headers (`<math.h>`) of C and of systems: ours would be found before these.
SYSTEM = re.compile(
    r"lib(c|m|pthread|dl|rt|util|gcc|gcc_s|(std)?c\+\+|System)|kernel32|ntdll|msvcrt|ucrtbase|"
    r"assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|"
    r"stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|"
    r"threads|time|uchar|wchar|wctype|dlfcn|fcntl|pthread|sched|unistd"
)


def prefix_of(path: Path) -> str:
    """The prefix of C names: `build/libdigits.so` -> `digits`; CompileError for unknown kinds
    and names of the system's."""
    if path.suffix not in KINDS:
        raise CompileError(
            f"export: the name must end in one of {', '.join(KINDS)}, got {str(path)!r}"
        )
    stem = path.name.removesuffix(path.suffix)
    if SYSTEM.fullmatch(stem):
        raise CompileError(
            f"export: programs would find {' or '.join(dict.fromkeys((path.name, f'{stem}.h')))} "
            "in the place of the system's; choose a name that the system does not have"
        )
    if stem.startswith("lib") and stem != "lib":
        stem = stem[3:]
    return identifier(stem).removesuffix("_") or "lib"


def files_of(path: Path, kinds: Sequence[str]) -> list[Path]:
    """What is written: `path`, the same of other kinds ("a", ".ll"), and the header, each once."""
    for kind in kinds:
        if f".{kind.removeprefix('.')}" not in KINDS:
            raise CompileError(
                f"export: kinds are {', '.join(k[1:] for k in KINDS)}, got {kind!r}"
            )
    suffixes = [path.suffix, *(f".{kind.removeprefix('.')}" for kind in kinds)]
    suffixes += [IMPORTS] * (".dll" in suffixes)
    return [path.with_suffix(s) for s in dict.fromkeys([*suffixes, ".h"])]


def check_kinds(files: Sequence[Path], platform: Platform) -> None:
    """CompileError for a file of another system than the platform's."""
    for p in files:
        if p.suffix in WINDOWS and platform.format != "coff":
            raise CompileError(
                f"export: {p.suffix} files are for Windows; {platform.name} has .o and .a, got "
                f"{p.name!r}"
            )
        if p.suffix in SHARED and p.suffix != platform.shared:
            raise CompileError(
                f"export: a shared library for {platform.name} ends in {platform.shared}, got "
                f"{p.name!r}; name another system by target= (--target)"
            )


def write_library(library: Library, path: Path, kinds: Sequence[str]) -> None:
    """Write the files of `files_of`: all of them or none."""
    files = files_of(path, kinds)
    for p in files:
        if p.is_dir():
            raise CompileError(f"export: cannot write {p}: it is a directory")
    try:
        with tempfile.TemporaryDirectory(prefix=".graphc-", dir=path.parent) as name:
            work = Path(name)
            _place([(_maker(p)(library, p, work), p) for p in reversed(files)])
    except OSError as e:
        raise CompileError(f"export: cannot write {path}: {e.strerror or e}") from None


def _header(library: Library, path: Path, work: Path) -> Path:
    out = work / "header.h"
    out.write_text(library.header, encoding="utf-8", newline="\n")
    return out


def _cpp(library: Library, path: Path, work: Path) -> Path:
    import graphc

    out = work / "header.hpp"
    text = cpp_text(library.api, path.with_suffix(".h").name, graphc.__version__)
    out.write_text(text, encoding="utf-8", newline="\n")
    return out


def _shared(library: Library, path: Path, work: Path) -> Path:
    if library.platform.format == "elf":
        return link_shared(library.object(), path.name, work, library.platform)
    return link_foreign(library.object(), path.name, library.symbols, work, library.platform)


def _imports(library: Library, path: Path, work: Path) -> Path:
    made = work / path.name  # linking the DLL makes it too
    if not made.exists():
        _shared(library, path.with_suffix(""), work)
    return made


def _archive(library: Library, path: Path, work: Path) -> Path:
    out, form = work / "library.a", library.platform.format
    member = path.with_suffix(".obj" if form == "coff" else ".o").name
    write_parts(out, archive(library.object(), member, library.symbols, form))
    return out


def _object(library: Library, path: Path, work: Path) -> Path:
    out = work / "alone.o"
    write_parts(out, library.object())
    return out


def _llvm(library: Library, path: Path, work: Path) -> Path:
    out = work / "library.ll"
    out.write_text(library.llvm(), newline="\n")
    return out


def _assembly(library: Library, path: Path, work: Path) -> Path:
    out = work / "library.s"
    # GNU's assembler takes a file with its directory in DWARF 5 only; "." is the unit's anyway
    out.write_text(re.sub(r'(?m)^(\t\.file\t\d+ )"\." ', r"\1", library.assembly()), newline="\n")
    return out


_MAKERS: dict[str, Callable[[Library, Path, Path], Path]] = {
    **dict.fromkeys(SHARED, _shared), IMPORTS: _imports, ".a": _archive, ".lib": _archive,
    ".o": _object, ".obj": _object, ".ll": _llvm, ".s": _assembly, ".h": _header, ".hpp": _cpp,
}


def _maker(path: Path) -> Callable[[Library, Path, Path], Path]:
    return _MAKERS[IMPORTS if path.name.endswith(IMPORTS) else path.suffix]


def _place(made: list[tuple[Path, Path]]) -> None:
    """Rename finished files into place; if one fails, those before it that are new go again."""
    placed: list[Path] = []
    try:
        for source, to in made:
            new = not to.exists()
            os.replace(source, to)
            if new:
                placed.append(to)
    except OSError:
        for p in placed:
            with contextlib.suppress(OSError):
                p.unlink()
        raise
