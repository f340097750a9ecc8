"""A loaded program: its entry point, and the builtin that Python calls.

The builtin is a METH_FASTCALL function made in memory (see `wrapper`), with no ctypes between the
caller and the kernel. Where `pylayout.usable()` says no, or a dimension stands alone in no input,
there is none, and calls go through `Native.run`, which uses ctypes.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.binding import lone_name
from graphc.codegen import jit, perf_map, pylayout, recycle, units
from graphc.codegen.program import OUT_OF_MEMORY, Program
from graphc.codegen.target import Target
from graphc.codegen.wrapper import Wrapper
from graphc.dims import evaluate
from graphc.ir import State

Array = np.ndarray[Any, Any]
_FASTCALL_KEYWORDS = 0x80 | 0x02
_free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(jit.process_symbol("free"))


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object
)(("PyCFunction_NewEx", ctypes.pythonapi))


def _builtin(code: jit.Code, slow: Callable[..., Any], name: str) -> Any:
    """The builtin at `gx_call`; its self is `slow`, and in place of a module it holds the code.

    Its method definition is never freed: CPython reads it while it destroys the function, which
    may come after everything else of a garbage cycle is gone. It takes some hundred bytes.
    """
    definition = _MethodDef(name.encode(), code["gx_call"], _FASTCALL_KEYWORDS, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    return _new_function(ctypes.addressof(definition), slow, code)


def compile_program(program: Program, target: Target) -> tuple[bytes, ...]:
    """The objects of a program's text; they know nothing of Python."""
    texts = [program.llvm] if perf_map.wanted() else units.split(program.llvm)
    return tuple(jit.compile_object(text, target) for text in texts)


def _binds_all(program: Program) -> bool:
    """Whether every dimension stands alone as an axis of some input."""
    alone = {lone_name(s) for p in program.inputs for s in p.type.shape}
    return all(d in alone for d in program.dims)


class Native:
    """A program loaded into this process with the arrays of its states and constants.

    call: the builtin, or None where there can be none; it hands on to `slow`.
    converted: the same for arguments that `slow` has converted; it hands on to `plain`.
    into(): the same with the outputs as further arguments; it hands on to `given`.
    shape, keys: what the builtin returns: "none", "one", "list", "tuple" or "dict" of these keys.
    locks: held while a call updates, in this order.
    exports: further symbols of the program's text whose addresses are wanted.
    imports: what the text needs beside the thread pool: symbol -> address.
    Without `slow` there is no builtin.
    """

    def __init__(
        self,
        program: Program,
        objects: Sequence[bytes],
        target: Target,
        *,
        slow: Callable[..., Any] | None = None,
        plain: Callable[..., Any] | None = None,
        given: Callable[..., Any] | None = None,
        shape: str = "none",
        keys: Sequence[str] = (),
        states: Sequence[State] | None = None,
        locks: Sequence[Any] = (),
        threads: int | None = None,
        exports: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
    ):
        self.program = program
        self._into: Any = None
        self._arena = ctypes.c_void_p(None)
        self._spare: list[Array] = []
        arrays = [s.array for s in (program.states if states is None else states)]
        arrays += [c.array for c in program.constants]
        table = (ctypes.c_void_p * max(1, len(arrays)))(
            *[None if a is None else a.ctypes.data for a in arrays]
        )
        self._table = table[: len(arrays)]
        imports = dict(imports or {})
        if "@graphc_parallel(" in program.llvm:
            imports["graphc_parallel"] = jit.parallel_address(threads)
        linked, exported = list(objects), [program.name, *exports]
        keep: list[object] = [table, arrays, self._arena]
        fast = slow is not None and pylayout.usable() and _binds_all(program)
        fast = fast and (not locks or pylayout.rlock_readable())
        if fast:
            wrapper = Wrapper(program, shape, len(locks))
            text = wrapper.text()
            linked.append(jit.compile_object(text, target, optimisation=jit.PLAIN))
            exported.append("gx_call")
            imports |= pylayout.symbols()
            imports |= {n: jit.process_symbol(n) for n in ("malloc", "free")}
            names = [[sys.intern(q.name)] for q in program.inputs]
            imports |= _addresses(keep, "gx_names", names)
            imports |= _addresses(keep, "gx_keys", [[k] for k in keys])
            imports |= _addresses(keep, "gx_locks", [[k, k.acquire, k.release] for k in locks])
            if wrapper.recycles:
                imports["gx_recycler"] = ctypes.addressof(recycle.cell())
            imports["gx_table"] = ctypes.addressof(table)
            imports["gx_arena"] = ctypes.addressof(self._arena)
            self._given, self._locks, self._target = given, len(locks), target
            self._imports = imports
        _natives.add(self)
        titles = {k.name: k.title for k in program.kernels}
        titles["gx_call"] = f"{program.name} (called from Python)"
        self._code = jit.load(
            linked, exports=exported, imports=imports, keep=keep, titles=titles
        )
        self._entry = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )(self._code[program.name])
        self.call: Any = None
        self.converted: Any = None
        if fast and slow is not None:
            self.call = _builtin(self._code, slow, program.name)
            if plain is not None:
                self.converted = _builtin(self._code, plain, program.name)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array for an output."""
        return recycle.empty(shape, dtype)

    def release(self) -> int:
        """Give back the arenas kept for the next call; their bytes."""
        spare = sum(a.nbytes for a in self._spare)
        self._spare.clear()
        return spare + (recycle.drop_arena(self._arena) if self._arena.value else 0)

    def __del__(self) -> None:
        block, self._arena.value = self._arena.value, None
        if block and _free is not None:  # None while the interpreter goes down
            _free(block)

    def into(self) -> Any:
        """The builtin that takes the outputs as arguments too; made at first use."""
        if self._into is None:
            assert self._given is not None
            text = Wrapper(self.program, "none", self._locks, given=True).text()
            code = jit.load(
                [jit.compile_object(text, self._target, optimisation=jit.PLAIN)],
                exports=["gx_call"],
                imports=self._imports | {self.program.name: self._code[self.program.name]},
                keep=[self._code],
            )
            self._into = _builtin(code, self._given, self.program.name)
        return self._into

    def address(self, name: str) -> int:
        """The address of one of `exports`."""
        return self._code[name]

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int]
    ) -> int:
        """Call the entry through ctypes; the status. Arrays must be as the program expects."""
        p = self.program
        pointers = [a.ctypes.data for a in (*inputs, *outputs)] + list(self._table)
        args = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        sizes = (ctypes.c_int64 * max(1, len(p.dims)))(*[dims[d] for d in p.dims])
        need = evaluate(p.arena, dims)
        try:
            arena = self._spare.pop()  # fresh memory would cost page faults
        except IndexError:
            arena = None
        if arena is None or arena.size < need:
            try:
                arena = np.empty(max(64, need), np.uint8)
            except (MemoryError, ValueError):
                return OUT_OF_MEMORY
        status = int(self._entry(args, sizes, arena.ctypes.data))
        self._spare[:] = [arena]
        return status


_natives: weakref.WeakSet[Native] = weakref.WeakSet()


def release() -> int:
    """Give back the arenas that functions keep for their next calls; their bytes."""
    return sum(n.release() for n in [*_natives])


def _addresses(keep: list[object], name: str, rows: Sequence[Sequence[object]]) -> dict[str, int]:
    """A table of object pointers as an import; the objects and the table are kept."""
    flat = [o for row in rows for o in row]
    table = (ctypes.c_void_p * max(1, len(flat)))(*[id(o) for o in flat])
    keep += [table, flat]
    return {name: ctypes.addressof(table)}
