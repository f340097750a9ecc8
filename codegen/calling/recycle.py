"""A caching allocator for large outputs: the next ones stand in what dropped arrays leave.

A store into pages that the system has yet to find and clear runs at a twentieth of the speed of
one into pages that are there. So arrays from FROM_BYTES on that compiled functions return come
from NumPy's allocation hook: they own their data as any array does, and when the last reference to
one is gone its block is kept for a request that it fits (`allocator`).

Kept are at most 32 blocks and LIMIT bytes in the process, whatever the number of functions.
GRAPHC_RECYCLE_BYTES is another limit, 0 turns all this off, and `release` gives everything back.
Blocks in use are nobody's business but their array's. The hook is never unloaded, as arrays outlive
the functions that returned them.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from typing import Any

import numpy as np

from graphc.codegen.calling import allocator, pylayout
from graphc.codegen.calling.allocator import FROM_BYTES
from graphc.codegen.machine import jit, linker, llvm
from graphc.errors import UsageError
from graphc.types import Array, TensorType

LIMIT = 256 << 20
ARENAS = 4  # that a function keeps from call to call, if so many ran at once
_VARIABLE = "GRAPHC_RECYCLE_BYTES"
_CAPSULE = b"mem_handler"  # NumPy looks for this name, at this address for ever


class Cell(ctypes.Structure):
    """What wrappers read at `gx_recycler`: the bytes from which to use the hook, and the hook."""

    _fields_ = (("from_bytes", ctypes.c_int64), ("handler", ctypes.c_void_p))


class _State(ctypes.Structure):
    _fields_ = (("limit", ctypes.c_int64), ("bytes", ctypes.c_int64), ("blocks", ctypes.c_int64))


def _limit() -> int:
    """Bytes that may be kept, as the environment says."""
    given = os.environ.get(_VARIABLE, "")
    if given and not (given.isascii() and given.isdecimal() and int(given) < 1 << 62):
        raise UsageError(f"{_VARIABLE}: must be a number of bytes, got {given!r}")
    return int(given) if given else LIMIT


@functools.cache
def _code() -> tuple[jit.Code, _State]:
    """The hook's functions and what they keep, for the life of the process."""
    text = allocator.TEXT
    if sys.platform != "linux":  # other systems have other flags, and other advice
        text = text.replace("br i1 %large, label %map", "br i1 false, label %map")
    code = jit.load(
        [llvm.compile_resident("recycle", lambda: text)], exports=allocator.EXPORTS,
        imports={n: a for n in allocator.LIBC if (a := linker.process_symbol(n))},
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return code, _State.from_address(code["state"])


def may_be_large(t: TensorType) -> bool:
    """Whether an array of this type can be one that the hook is for."""
    size = t.bytes
    return not isinstance(size, int) or size >= FROM_BYTES


@functools.cache
def cell() -> Cell:
    """Where wrappers find the hook; one that no array is large enough for where it is off."""
    off = Cell((1 << 63) - 1, None)
    if not pylayout.usable() or not pylayout.hooks() or not (limit := _limit()):
        return off
    code, state = _code()
    state.limit = limit
    new = ctypes.PYFUNCTYPE(
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    )(("PyCapsule_New", ctypes.pythonapi))
    return Cell(FROM_BYTES, new(code["handler"], _CAPSULE, None))


@functools.cache
def _set_handler() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(
        pylayout.symbols()["PyDataMem_SetHandler"]
    )


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """np.empty, from recycled memory where the array is large: for calls by way of Python."""
    place = cell()
    if not place.handler or math.prod(shape) * dtype.itemsize < place.from_bytes:
        return np.empty(shape, dtype)
    before = _set_handler()(ctypes.cast(place.handler, ctypes.py_object).value)
    try:
        return np.empty(shape, dtype)
    finally:
        _set_handler()(before)


def kept() -> tuple[int, int]:
    """The blocks that wait for their next use, and their bytes."""
    if not cell().handler:
        return 0, 0
    state = _code()[1]
    return state.blocks, state.bytes


def release() -> int:
    """Give the memory kept back to the system; how many bytes that were."""
    held = kept()[1]
    if held:
        ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(_code()[0]["trim"])(0, 0)
    return held


def drop_arena(cell: int) -> int:
    """Free the arena that a wrapper keeps at this address, unless a call has it; its bytes."""
    drop = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(_code()[0]["drop_arena"])
    return int(drop(cell))
