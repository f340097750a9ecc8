"""A graph as a pair of files: NAME.gir, and NAME.npz with large constants and variables' values."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

from graphc.errors import CompileError, ParseError, user_loc
from graphc.files import check_path, npz_writer, read_npz, replace_files
from graphc.ir import Graph
from graphc.text.literals import MissingLiteral
from graphc.text.parser import parse
from graphc.text.printer import archive_names, to_text
from graphc.types import Array


def save(g: Graph, path: str | os.PathLike[str]) -> None:
    """Write `path` (.gir, added where missing) and, where there are arrays, the .npz beside it.

    Each file is written under another name and then renamed, so that none is ever half there.
    Raises CompileError where they cannot be written.
    """
    check_path("save", path)
    gir, npz = _pair(path)
    states, constants = archive_names(g)
    arrays: dict[str, Array] = {
        f"@{name}": s.array for s, name in states.items() if s.array is not None
    }
    for name, literal in constants.values():
        if not isinstance(literal, MissingLiteral):
            arrays[name] = literal.array
    text = to_text(g)
    files: list[tuple[str | os.PathLike[str], Callable[[BinaryIO], object]]] = []
    if arrays:
        files.append((npz, npz_writer(arrays)))
    try:
        replace_files([*files, (gir, lambda f: f.write(text.encode()))])
    except OSError as e:
        raise CompileError(f"save: cannot write {gir}: {e.strerror or e}") from None


def load(path: str | os.PathLike[str]) -> Graph:
    """Read what `save` wrote. Without the .npz the graph is whole but does not run.

    Raises CompileError where `path` cannot be read, as `save` does where it cannot be written, and
    ParseError where it is not a graph.
    """
    check_path("load", path)
    gir, npz = _pair(path)
    source = os.path.basename(gir)
    try:
        with open(gir, "rb") as f:
            data = f.read()
    except OSError as e:
        raise CompileError(f"load: cannot read {gir}: {e.strerror or e}", user_loc()) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise ParseError(f"{source}: line {line}: expected text in UTF-8") from None
    arrays: dict[str, Array] = {}
    if os.path.exists(npz):
        try:
            arrays = read_npz(npz)
        except (OSError, ValueError):
            raise ParseError(
                f"{os.path.basename(npz)}: expected an .npz of NumPy arrays, as save writes"
            ) from None
    return parse(text, arrays, source)


def _pair(path: str | os.PathLike[str]) -> tuple[str, str]:
    name = os.fspath(path)
    stem = name[:-4] if name.endswith(".gir") else name
    return f"{stem}.gir", f"{stem}.npz"
