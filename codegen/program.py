"""What the code generator hands to the JIT and to the library writer.

The entry point of a Program is one LLVM function

    i32 @NAME(ptr %args, ptr %dims, ptr %arena)

`args` is an array of pointers: inputs, outputs, states, constants, each in the order given here;
`dims` an array of i64, one per name in `dims`; `arena` has `arena` bytes at any address. It
returns a status code (see below), allocates nothing, and writes states only when it succeeds.
"""

from __future__ import annotations

from enum import IntEnum
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


FIRST_SITE = 16  # the code of the first place that can fail; others follow


class Status(IntEnum):
    """The other codes that an entry point, or a function of a library, returns."""

    text: str

    OK = 0, "success"
    NULL_ARGUMENT = 1, "a pointer argument is null"
    NEGATIVE_DIMENSION = 2, "a dimension is negative"
    SIZE_OVERFLOW = 3, "a dimension is so large that the size of an array overflows"
    OVERLAP = 4, "an output, the state or the arena overlaps another argument"
    ARENA_TOO_SMALL = 5, "the arena is too small"
    OUT_OF_MEMORY = 6, "out of memory"
    UNSUPPORTED_CPU = 7, "the library needs a newer CPU"
    FILE_ERROR = 8, "the file cannot be read or written"
    NOT_A_STATE = 9, "this is not a state file, or one of another version"
    OTHER_LAYOUT = 10, "the state file belongs to a library with other variables"
    STATE_CUT = 11, "the state file is cut short or damaged"

    def __new__(cls, code: int, text: str) -> Status:
        made = int.__new__(cls, code)
        made._value_, made.text = code, text
        return made
