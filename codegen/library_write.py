"""Writing a library of one kind or several, and its header: whole or not at all.

Everything is made in a temporary directory beside the output, then renamed into place.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from graphc.codegen.library import Library
from graphc.codegen.library_abi import identifier
from graphc.codegen.library_cpp import cpp_text
from graphc.codegen.library_link import archive, link_shared, write_parts
from graphc.codegen.target import PLATFORMS, Platform
from graphc.errors import CompileError

SHARED = tuple(dict.fromkeys(p.shared for p in PLATFORMS.values()))
KINDS = (*SHARED, ".a", ".o", ".ll", ".s", ".h", ".hpp")


def prefix_of(path: Path) -> str:
    """The prefix of C names: `build/libdigits.so` -> `digits`; CompileError for unknown kinds."""
    if path.suffix not in KINDS:
        raise CompileError(
            f"export: the name must end in one of {', '.join(KINDS)}, got {path.name!r}"
        )
    stem = path.name.removesuffix(path.suffix)
    if stem.startswith("lib") and stem != "lib":
        stem = stem[3:]
    return identifier(stem).removesuffix("_") or "lib"


def files_of(path: Path, kinds: Sequence[str] = ()) -> list[Path]:
    """What is written: `path`, the same of other kinds ("a", ".ll"), and the header, each once."""
    for kind in kinds:
        if f".{kind.removeprefix('.')}" not in KINDS:
            raise CompileError(
                f"export: kinds are {', '.join(k[1:] for k in KINDS)}, got {kind!r}"
            )
    suffixes = [path.suffix, *(f".{kind.removeprefix('.')}" for kind in kinds), ".h"]
    return [path.with_suffix(s) for s in dict.fromkeys(suffixes)]


def check_kinds(files: Sequence[Path], platform: Platform) -> None:
    """CompileError for a shared library of another system than the platform's."""
    for p in files:
        if p.suffix in SHARED and p.suffix != platform.shared:
            raise CompileError(
                f"export: a shared library for {platform.name} ends in {platform.shared}, got "
                f"{p.name!r}"
            )


def write_library(library: Library, path: Path, kinds: Sequence[str] = ()) -> None:
    """Write the files of `files_of`: all of them or none."""
    files = files_of(path, kinds)
    for p in files:
        if p.is_dir():
            raise CompileError(f"export: cannot write {p}: it is a directory")
    try:
        with tempfile.TemporaryDirectory(prefix=".graphc-", dir=path.parent) as name:
            work = Path(name)
            _place([(_MAKERS[p.suffix](library, p, work), p) for p in reversed(files)])
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
    return link_shared(library.object(), path.name, work, library.platform)


def _archive(library: Library, path: Path, work: Path) -> Path:
    out = work / "library.a"
    member = path.name.removesuffix(".a") + ".o"
    write_parts(out, archive(library.object(), member, library.symbols))
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
    out.write_text(library.assembly(), newline="\n")
    return out


_MAKERS: dict[str, Callable[[Library, Path, Path], Path]] = {
    **dict.fromkeys(SHARED, _shared), ".a": _archive, ".o": _object, ".ll": _llvm, ".s": _assembly,
    ".h": _header, ".hpp": _cpp,
}


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
