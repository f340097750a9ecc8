"""Compiled programs between compiling and loading.

A process that finds its program on disk needs little of it. This file imports nothing for the
rest, which is read when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.ir import Literal, State
from graphc.types import TensorType

if TYPE_CHECKING:
    from graphc.codegen.program import Program

Params = tuple[tuple[str, TensorType], ...]


class Image:
    """A program compiled, as it is loaded: what loading takes is at hand, the rest on demand.

    inputs, outputs: their names and types.
    objects: those of its text. builtin: that of the function that Python calls, if there is one.
    program: the whole; an image that was found on disk reads it there at the first request.
    """

    def __init__(
        self,
        objects: tuple[bytes, ...],
        builtin: bytes | None,
        inputs: Params,
        outputs: Params,
        states: tuple[State, ...],
        constants: tuple[Literal, ...],
        dims: tuple[str, ...],
        name: str,
        parallel: bool,
        program: Callable[[], Program],
    ):
        self.objects, self.builtin = objects, builtin
        self.inputs, self.outputs, self.states, self.constants = inputs, outputs, states, constants
        self.dims, self.name, self.parallel = dims, name, parallel
        self._program: Program | None = None
        self._read = program

    @classmethod
    def of(cls, p: Program, objects: tuple[bytes, ...], builtin: bytes | None = None) -> Image:
        """The image of a program at hand."""
        return cls(
            objects, builtin, p.inputs, p.outputs, p.states, p.constants, p.dims, p.name,
            p.parallel, lambda: p,
        )

    @property
    def program(self) -> Program:
        if self._program is None:
            self._program = self._read()
        return self._program
