"""Errors, and where in the user's own code they come from.

Every message states the operation, the requirement, what came instead, and the user's line:

    matmul: inner dimensions must match, got f32[64,784] @ f32[512,10] (mlp.py:17)
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable
from types import FrameType
from typing import NamedTuple


class Loc(NamedTuple):
    """A line of the user's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


class GraphcError(Exception):
    """Base of every error that graphc raises on purpose; `loc` is the user's line, if known."""

    def __init__(self, message: str, loc: Loc | None = None):
        self.loc = loc
        self.message = message
        super().__init__(f"{message} ({loc})" if loc else message)


class ShapeError(GraphcError, ValueError):
    """Shapes that do not fit together."""


class DTypeError(GraphcError, TypeError):
    """Dtypes that an operation does not take."""


class ArgumentError(GraphcError, ValueError):
    """An argument outside what the operation allows."""


class UsageError(GraphcError, TypeError):
    """A use of graphc that cannot work; the message names the alternative."""


class GradientError(GraphcError, ValueError):
    """A gradient that does not exist."""


class ParseError(GraphcError, ValueError):
    """Text that is not a graph; the message has line, column and what was expected."""


class VerifyError(GraphcError):
    """A graph that breaks an invariant of the IR: a fault of a pass, never of the user."""


class CompileError(GraphcError, RuntimeError):
    """Native code could not be made (no linker, LLVM failed, unwritable output...)."""


class ExecutionError(GraphcError, RuntimeError):
    """A call that failed while running."""


class IndexOutOfRangeError(ExecutionError, IndexError):
    """An index outside its axis."""


class IntegerDivisionError(ExecutionError, ZeroDivisionError):
    """An integer division by zero, or a negative integer exponent."""


class OutOfMemoryError(ExecutionError, MemoryError):
    """A call for which there is not enough memory."""


class NonFiniteError(ExecutionError, ArithmeticError):
    """Debug mode: the first NaN or infinity made from finite operands."""


_HERE = os.path.dirname(os.path.abspath(__file__))
# The three rooms are one installed package but three folders of a checkout.
_ROOMS = tuple(
    d + os.sep
    for d in (
        _HERE,
        os.path.join(os.path.dirname(_HERE), "passes"),
        os.path.join(os.path.dirname(_HERE), "codegen"),
    )
)


def did_you_mean(name: str, *known: Iterable[str]) -> str:
    """`did you mean WORD?`, from the first words of which one is close; nothing if none is."""
    import difflib

    close = [w for words in known for w in difflib.get_close_matches(name, list(words), 1)]
    return f"did you mean {close[0]}?" if close else ""


@functools.cache
def is_ours(filename: str) -> bool:
    """Whether a file of source belongs to graphc itself."""
    return filename.startswith(_ROOMS) or filename.startswith("<frozen")


def user_loc() -> Loc | None:
    """The first frame outside graphc (a notebook cell and the REPL count as files)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename):
            return Loc(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None
