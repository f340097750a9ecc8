"""Graph -> machine code. `compile_graph` is the way in; `README.md` tells the way of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.codegen.compile import compile_graph

__all__ = ["compile_graph"]


def __getattr__(name: str) -> Any:
    """The compiler is imported when it is asked for: remembered programs do without."""
    if name != "compile_graph":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from graphc.codegen.compile import compile_graph

    return compile_graph
