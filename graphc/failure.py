"""Status codes of native code as exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from graphc import dims
from graphc.errors import (
    ExecutionError,
    GraphcError,
    IndexOutOfRangeError,
    IntegerDivisionError,
    Loc,
    OutOfMemoryError,
    ShapeError,
    user_loc,
)

if TYPE_CHECKING:
    from graphc.codegen.program import Program
    from graphc.ir import Graph

BY_KIND: dict[str, type[GraphcError]] = {
    "index": IndexOutOfRangeError, "division": IntegerDivisionError, "dimension": ShapeError,
}
MOST_ELEMENTS = 1 << 28  # that the interpreter may make to tell which element failed


def failure(
    program: Program, status: int, sizes: Mapping[str, int],
    graph: Graph | None = None, again: Callable[[], object] | None = None,
) -> GraphcError:
    """The exception for a status other than success; it names the op and the user's line.

    sizes: the dimensions of the call, of which those that a message mentions are shown.
    again: the same call by the interpreter on `graph`, unless that is too much work: it knows the
    failing value and its position.
    """
    from graphc.codegen.program import FIRST_SITE, Status

    if FIRST_SITE <= status < FIRST_SITE + len(program.sites):
        site = program.sites[status - FIRST_SITE]
        kind = BY_KIND.get(site.kind, ExecutionError)
        text = site.message()
        words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", site.reason))
        here = ", ".join(f"{w} = {sizes[w]}" for w in words if w in sizes)
        if site.kind == "dimension" and here:
            text += f" where {here}"
        by_element = site.kind in ("index", "division")
        if by_element and graph and again and elements(graph, sizes) <= MOST_ELEMENTS:
            found = _detail(kind, site.loc, again)
            if found.startswith(site.reason):
                text += found.removeprefix(site.reason)
            elif found:
                text += f"; {found}"
        return kind(f"{program.name}: {text}", site.loc)
    text = {s.value: s.text for s in Status}.get(
        status, f"native code returned status {status}"
    )
    if status != Status.OUT_OF_MEMORY:
        return ExecutionError(f"{program.name}: {text}", user_loc())
    text += f"; the arena takes {dims.evaluate(program.arena, sizes)} bytes"
    if sizes:
        text += f" where {', '.join(f'{name} = {n}' for name, n in sizes.items())}"
    return OutOfMemoryError(f"{program.name}: {text}", user_loc())


def elements(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Of all values of a graph, for given dimensions."""
    values = (v for n in graph.nodes for v in n.outs)
    return sum(dims.evaluate(v.type.size, sizes) for v in values)


def _detail(kind: type[GraphcError], loc: Loc | None, again: Callable[[], object]) -> str:
    """What the interpreter says of the same failure; nothing where it sees another one first."""
    try:
        again()
    except kind as e:
        if e.loc == loc:
            return e.message.split(": ", 1)[-1].split(", in ")[0]
    except (GraphcError, MemoryError):
        pass
    return ""
