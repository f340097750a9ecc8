"""What the code generator hands to the JIT and to the library writer.

The entry point of a Program is one LLVM function

    i32 @NAME(ptr %args, ptr %dims, ptr %arena)

`args` is an array of pointers: inputs, outputs, states, constants, each in the order given here;
`dims` an array of i64, one per name in `dims`; `arena` has `arena` bytes at any address. It
returns a status code (see below), allocates nothing, and writes states only when it succeeds.
"""

from __future__ import annotations

from typing import NamedTuple

from graphc.dims import Size
from graphc.errors import Loc
from graphc.ir import Graph, Literal, State
from graphc.types import TensorType


class Param(NamedTuple):
    """An input or output of the entry point."""

    name: str
    type: TensorType


class Site(NamedTuple):
    """A place in the user's program that can fail at run time; its code is FIRST_SITE + index."""

    op: str
    reason: str
    loc: Loc | None
    kind: str  # "index" | "division" | "dimension"

    def message(self) -> str:
        return f"{self.op}: {self.reason}"


class Kernel(NamedTuple):
    """One native loop nest: for listings, counting and profiling."""

    name: str
    ops: int
    text: str  # the printable loop nest
    lines: tuple[Loc, ...] = ()  # of the user's program that it computes
    title: str = ""              # its name with its ops: step.k3[dot,add]


class Program(NamedTuple):
    """A compiled graph as LLVM text, and everything a caller must know to call it."""

    name: str
    graph: Graph
    llvm: str
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    states: tuple[State, ...]
    updated: tuple[bool, ...]          # per state: does the entry write it
    constants: tuple[Literal, ...]     # those too large to stand in the text
    dims: tuple[str, ...]
    arena: Size                        # bytes
    sites: tuple[Site, ...]
    kernels: tuple[Kernel, ...]
    plan: str                          # printable memory plan

    @property
    def parallel(self) -> bool:
        """Whether it uses the thread pool."""
        return "@graphc_parallel(" in self.llvm


# Status codes of an entry point; a site's code is FIRST_SITE + its index.
OK = 0
NULL_ARGUMENT = 1
NEGATIVE_DIMENSION = 2
SIZE_OVERFLOW = 3
OVERLAP = 4
ARENA_TOO_SMALL = 5
OUT_OF_MEMORY = 6
UNSUPPORTED_CPU = 7
FILE_ERROR = 8
NOT_A_STATE = 9
OTHER_LAYOUT = 10
STATE_CUT = 11
FIRST_SITE = 16
STATUS_TEXT = {
    OK: "success",
    NULL_ARGUMENT: "a pointer argument is null",
    NEGATIVE_DIMENSION: "a dimension is negative",
    SIZE_OVERFLOW: "a dimension is so large that the size of an array overflows",
    OVERLAP: "an output, the state or the arena overlaps another argument",
    ARENA_TOO_SMALL: "the arena is too small",
    OUT_OF_MEMORY: "out of memory",
    UNSUPPORTED_CPU: "the library needs a newer CPU",
    FILE_ERROR: "the file cannot be read or written",
    NOT_A_STATE: "this is not a state file, or one of another version",
    OTHER_LAYOUT: "the state file belongs to a library with other variables",
    STATE_CUT: "the state file is cut short or damaged",
}
