"""Status codes of native code as exceptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphc.errors import (
    ExecutionError,
    GraphcError,
    IndexOutOfRangeError,
    IntegerDivisionError,
    ShapeError,
    user_loc,
)

if TYPE_CHECKING:
    from graphc.codegen.program import Program

BY_KIND: dict[str, type[GraphcError]] = {
    "index": IndexOutOfRangeError, "division": IntegerDivisionError, "dimension": ShapeError,
}


def failure(program: Program, status: int, sizes: Mapping[str, int] | None = None) -> GraphcError:
    """The exception for a status other than success; it names the op and the user's line.

    sizes: the dimensions of the call, of which those that a message mentions are shown.
    """
    from graphc.codegen.program import FIRST_SITE, OUT_OF_MEMORY, STATUS_TEXT

    if FIRST_SITE <= status < FIRST_SITE + len(program.sites):
        site = program.sites[status - FIRST_SITE]
        kind = BY_KIND.get(site.kind, ExecutionError)
        text = site.message()
        words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", site.reason))
        here = ", ".join(f"{w} = {sizes[w]}" for w in words if sizes and w in sizes)
        if site.kind == "dimension" and here:
            text += f" where {here}"
        return kind(f"{program.name}: {text}", site.loc)
    text = STATUS_TEXT.get(status, f"native code returned status {status}")
    if status == OUT_OF_MEMORY:
        text += f"; the arena takes {program.arena} bytes"
    return ExecutionError(f"{program.name}: {text}", user_loc())
