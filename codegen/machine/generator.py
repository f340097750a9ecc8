"""LLVM's code generator, called past the locks around it.

llvmlite takes a lock for all of LLVM at each call, since a context is for one thread at a time.
Here each module has a context of its own and each thread a machine, so several threads may parse,
and generate code, without.

A call from Python gives up Python's own lock. Another thread that runs Python then has it for 5 ms,
and waits for this one to have had it: beside a thread that imports and writes kernels, 75 KB of
text took LLVM 65 ms in the place of 30, for thirty calls each of a few microseconds. So what
returns at once keeps that lock (`_brief`), and what is left is done without any (`_long`).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from graphc.codegen.machine import cross

_own = threading.local()  # machines of this thread


def generate(
    text: str, triple: str, cpu: str, features: str, abi: str, optimisation: int
) -> bytes:
    """The object file of a module's text; RuntimeError says what LLVM rejects."""
    machine, head = _machine(triple, cpu, features, abi, optimisation)
    context = _brief("LLVMPY_ContextCreate")()
    try:
        with _Said() as said:
            module = _long("LLVMPY_ParseAssembly")(context, f"{head}{text}".encode(), said)
            if not module:
                raise RuntimeError(f"LLVM IR parsing error: {said}")
        with _Said() as said:
            if _brief("LLVMPY_VerifyModule")(module, said):
                raise RuntimeError(str(said))
        with _Said() as said:
            made = _long("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, said)
            if not made:
                raise RuntimeError(str(said))
        try:
            begin, size = (_brief(f"LLVMPY_GetBuffer{what}")(made) for what in ("Start", "Size"))
            return ctypes.string_at(begin, size)
        finally:
            _brief("LLVMPY_DisposeMemoryBuffer")(made)
    finally:
        _brief("LLVMPY_ContextDispose")(context)  # and of the module


def release() -> None:
    """Give back the machines of this thread."""
    _own.__dict__.clear()


def _machine(*options: Any) -> tuple[Any, str]:
    """This thread's machine, and what the text of a module for it begins with."""
    machines = _own.__dict__.setdefault("machines", {})
    if options not in machines:
        machine = cross.machine(*options)
        head = f'target triple = "{machine.triple}" target datalayout = "{machine.target_data}" '
        machines[options] = machine, head
    found: tuple[Any, str] = machines[options]
    return found


class _Said:
    """A text that LLVM may leave where it is told to."""

    def __enter__(self) -> _Said:
        self.pointer = ctypes.c_char_p()
        self._as_parameter_ = ctypes.byref(self.pointer)
        return self

    def __exit__(self, *_: object) -> None:
        if self.pointer:
            _brief("LLVMPY_DisposeString")(self.pointer)

    def __str__(self) -> str:
        return (self.pointer.value or b"").decode(errors="replace").strip()


@functools.cache
def _long(name: str) -> Any:
    """A function of LLVM's, without llvmlite's lock if it can be had."""
    function = getattr(_library(), name)
    return getattr(function, "_cfn", function)


@functools.cache
def _brief(name: str) -> Any:
    """The same with Python's lock kept."""
    known, library = _long(name), _library()
    handle = getattr(library, "_handle", None)
    if handle is None:
        return known
    function = ctypes.PyDLL(None, handle=handle)[name]
    function.argtypes, function.restype = known.argtypes, known.restype
    return function


def _library() -> Any:
    import llvmlite.binding

    return llvmlite.binding.ffi.lib
