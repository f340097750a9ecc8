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
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.binding import lone_name
from graphc.codegen import perf_map
from graphc.codegen.calling import pylayout, recycle
from graphc.codegen.machine import jit, linker, llvm
from graphc.codegen.machine.image import Image
from graphc.codegen.machine.target import Target
from graphc.dims import evaluate
from graphc.forks import undivided
from graphc.ir import State
from graphc.types import Array

if TYPE_CHECKING:
    from graphc.codegen.machine.overlap import Overlap
    from graphc.codegen.program import Program

_FASTCALL_KEYWORDS = 0x80 | 0x02
_OUT = sys.intern("out")
_free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linker.process_symbol("free"))


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


def _builtin(definition: _MethodDef, code: jit.Code, slow: Callable[..., Any], name: str) -> Any:
    """The builtin at `gx_call`; its self is `slow`, and in place of a module it holds the code.

    The code keeps the method definition: CPython reads it while it destroys the function, which
    may come after everything else of a garbage cycle is gone, but not after `jit` frees code.
    """
    definition.name, definition.function = name.encode(), code["gx_call"]
    definition.flags = _FASTCALL_KEYWORDS
    return _new_function(ctypes.addressof(definition), slow, code)


def compile_program(
    program: Program, target: Target, shape: str | None = None, locks: int = 0,
    overlap: Overlap | None = None,
) -> Image:
    """The objects of a program, and that of its builtin.

    shape: what the builtin returns, see `Native`; without it there is none. locks: their number.
    overlap: what has taken some of its functions already.
    """
    from graphc.codegen.machine import units

    begun = overlap.left() if overlap is not None else []
    text = program.llvm if overlap is None else overlap.rest(program.llvm)
    texts, plain = [text], list[str]()
    if not perf_map.wanted():
        own, *templates = units.split(text)
        kernels, calling = units.around(own)
        texts, plain = [kernels, *templates], [calling] * bool(calling)
    builtins = []
    if shape is not None and _callable(program, locks):
        builtins.append(_builtin_text(program, shape, locks))
    pool = [jit.parallel_address] if program.parallel else []
    objects = llvm.compile_objects(
        texts, target, parts=begun, plain=[*plain, *builtins], beside=pool)
    builtin = objects.pop() if builtins else None
    if overlap is not None:
        objects += overlap.objects()
    return Image.of(program, tuple(objects), builtin)


def _builtin_text(program: Program, shape: str, locks: int, *, given: bool = False) -> str:
    """A program's wrapper."""
    from graphc.codegen.calling.wrapper import Wrapper

    return Wrapper(program, shape, locks, given).text()


def _callable(program: Program, locks: int) -> bool:
    """Whether there can be a builtin; every dimension must stand alone as an axis of some input."""
    alone = {lone_name(s) for p in program.inputs for s in p.type.shape}
    bound = all(d in alone for d in program.dims)
    return bound and pylayout.usable() and (not locks or pylayout.rlock_readable())


class Native:
    """A program loaded into this process with the arrays of its states and constants.

    call: the builtin, or None where there can be none; it hands on to `slow`.
    converted: the same for arguments that `slow` has converted; it hands on to `plain`.
    vector: the address of the same for objects that hold `slow`, see `graphc.vectorcall`.
    into(): the same with the outputs as further arguments; it hands on to `given`.
    keys: those of the dict that the builtin returns, where it was compiled for "dict" (and not
        "none", "one", "list" or "tuple").
    locks: held while a call updates, in this order.
    exports: further symbols of the program's text whose addresses are wanted.
    imports: what the text needs beside the thread pool: symbol -> address.
    An image without a builtin has no `call`.
    """

    def __init__(
        self,
        image: Image,
        target: Target,
        *,
        slow: Callable[..., Any] | None = None,
        plain: Callable[..., Any] | None = None,
        given: Callable[..., Any] | None = None,
        keys: Sequence[str] = (),
        states: Sequence[State] | None = None,
        locks: Sequence[Any] = (),
        threads: int | None = None,
        exports: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
    ):
        self.image = image
        self._target, self._given, self._locks = target, given, len(locks)
        self._into: Any = None
        self._into_cell = ctypes.c_void_p(None)  # where `call` finds it, for `out=`
        self._arenas = (ctypes.c_void_p * recycle.ARENAS)()
        self._spare: list[Array] = []
        arrays = [s.array for s in (image.states if states is None else states)]
        arrays += [c.array for c in image.constants]
        table = (ctypes.c_void_p * max(1, len(arrays)))(
            *[None if a is None else a.ctypes.data for a in arrays]
        )
        self._table = table[: len(arrays)]
        imports = dict(imports or {})
        if image.parallel:
            imports["graphc_parallel"] = jit.parallel_address(threads)
        linked, exported = list(image.objects), [image.name, *exports]
        keep: list[object] = [table, arrays, self._arenas, self._into_cell]
        fast = slow is not None and image.builtin is not None and pylayout.usable()
        if image.builtin is not None and fast:
            linked.append(image.builtin)
            exported += ["gx_call", "gx_vector"]
            imports |= self._python_symbols(keys, locks, keep)
            imports["gx_table"] = ctypes.addressof(table)
            self._imports = imports
        definitions = _MethodDef(), _MethodDef()
        keep.append(definitions)
        _natives.add(weakref.ref(self, _natives.discard))
        self._code = jit.load(
            linked, exports=exported, imports=imports, keep=keep,
            titles=self._titles() if perf_map.wanted() else None,
        )
        self._entry = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )(self._code[image.name])
        self.call: Any = None
        self.converted: Any = None
        if fast and slow is not None:
            self.call = _builtin(definitions[0], self._code, slow, image.name)
            self.vector = self._code["gx_vector"]
            if plain is not None:
                self.converted = _builtin(definitions[1], self._code, plain, image.name)

    def _python_symbols(
        self, keys: Sequence[str], locks: Sequence[Any], keep: list[object]
    ) -> dict[str, int]:
        """What the builtin needs of CPython, NumPy and this object; `keep` takes what must live."""
        found = pylayout.symbols() | {n: linker.process_symbol(n) for n in ("malloc", "free")}
        found |= _addresses(keep, "gx_names", [[sys.intern(name)] for name, _ in self.image.inputs])
        found |= _addresses(keep, "gx_keys", [[k] for k in keys])
        found |= _addresses(keep, "gx_locks", [[k, k.acquire, k.release] for k in locks])
        if any(recycle.may_be_large(t) for _, t in self.image.outputs):
            found["gx_recycler"] = ctypes.addressof(recycle.cell())
        found["gx_into"] = ctypes.addressof(self._into_cell)
        found["gx_out"] = id(_OUT)
        found["gx_arena"] = ctypes.addressof(self._arenas)
        return found

    def _titles(self) -> dict[str, str]:
        """What `perf` shows for the functions of the program."""
        titles = {k.name: k.title for k in self.image.program.kernels}
        return titles | {"gx_call": f"{self.image.name} (called from Python)"}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array for an output."""
        return recycle.empty(shape, dtype)

    def release(self) -> int:
        """Give back the arenas kept for the next call; their bytes."""
        spare = sum(a.nbytes for a in self._spare)
        self._spare.clear()
        cells = ctypes.addressof(self._arenas)
        held = [cells + 8 * k for k, arena in enumerate(self._arenas) if arena]
        return spare + sum(map(recycle.drop_arena, held))

    def __del__(self) -> None:
        self._into_cell.value = None
        for k, block in enumerate(self._arenas):
            self._arenas[k] = None  # other finalisers may call the function yet
            if block and _free is not None:  # None while the interpreter goes down
                _free(block)

    def into(self) -> Any:
        """The builtin that takes the outputs as arguments too; made at first use."""
        if self._into is None:
            assert self._given is not None
            p, definition = self.image.program, _MethodDef()
            with undivided():
                text = _builtin_text(p, "none", self._locks, given=True)
                code = jit.load(
                    [llvm.compile_object(text, self._target, optimisation=llvm.PLAIN)],
                    exports=["gx_call"], imports=self._imports | {p.name: self._code[p.name]},
                    keep=[self._code, definition],
                )
            self._into = _builtin(definition, code, self._given, p.name)
            if all(name != _OUT for name, _ in self.image.inputs):
                self._into_cell.value = id(self._into)
        return self._into

    def address(self, name: str) -> int:
        """The address of one of `exports`."""
        return self._code[name]

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], dims: Mapping[str, int]
    ) -> int:
        """Call the entry through ctypes; the status. Arrays must be as the program expects."""
        from graphc.codegen.program import Status

        p = self.image.program
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
                return Status.OUT_OF_MEMORY
        status = int(self._entry(args, sizes, arena.ctypes.data))
        self._spare[:] = [arena]
        return status


# No WeakSet, whose iteration others' additions end: a set of references is copied in one step.
_natives: set[weakref.ref[Native]] = set()


def release() -> int:
    """Give back the arenas that functions keep for their next calls; their bytes."""
    return sum(n.release() for n in [found() for found in [*_natives]] if n is not None)


def _addresses(keep: list[object], name: str, rows: Sequence[Sequence[object]]) -> dict[str, int]:
    """A table of object pointers as an import; the objects and the table are kept."""
    flat = [o for row in rows for o in row]
    table = (ctypes.c_void_p * max(1, len(flat)))(*[id(o) for o in flat])
    keep += [table, flat]
    return {name: ctypes.addressof(table)}
