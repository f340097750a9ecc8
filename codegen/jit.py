"""LLVM text to native code in this process, through ORC.

    obj = compile_object(text, target)               cached on disk
    code = load([obj], exports=["f"], imports={"graphc_parallel": address})
    code["f"]                                        an address, valid while `code` lives

No optimiser pipeline runs: the text is as it should be, and LLVM only selects and schedules
instructions. Every compilation has its own LLVM context. All objects are linked into one ORC JIT
that lives as long as the process, since worker threads may run in it to the very end.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from graphc.codegen import cache, cross, perf_map, units
from graphc.codegen.target import Target, host, native
from graphc.errors import CompileError, UsageError

OPTIMISATION = 2  # of instruction selection, register allocation and scheduling
PLAIN = 0         # for code around kernels: as fast to run, several times as fast to compile
SHARD_BYTES = 1 << 20  # of text that are worth a process: half a second of LLVM, against 0.1 s
_lock = threading.RLock()
_serial = itertools.count()


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.cache
def _machine(target: Target, optimisation: int) -> Any:
    _initialise()
    try:
        return cross.machine(target.triple, target.cpu, target.features, target.abi, optimisation)
    except RuntimeError as e:
        raise CompileError(f"no code generator for {target.triple}: {e}") from None


@functools.cache
def versions() -> str:
    """What compiles: graphc, llvmlite and LLVM."""
    import graphc

    version = getattr(graphc, "__version__", "")
    return f"graphc {version} llvmlite {llvmlite.__version__} llvm {llvm.llvm_version_info}"


def _parse(text: str, machine: Any) -> Any:
    try:
        return cross.parse(text, machine)
    except RuntimeError as e:
        raise CompileError(f"LLVM rejects the generated code: {str(e).strip()}") from None


def compile_object(
    text: str, target: Target, *, optimisation: int = OPTIMISATION, use_cache: bool = True,
    elsewhere: bool = False,
) -> bytes:
    """The object file of a module's text.

    One for another machine is made by a child process, and so is any that is wanted `elsewhere`.
    """
    name = cache.key(
        text, versions(), target.triple, target.cpu, target.features, target.abi, str(optimisation)
    )
    if use_cache and (found := cache.load(name)) is not None:
        return found
    obj: bytes
    if elsewhere or target.triple != host().triple:
        obj = cross.generate(text, target, optimisation)
    else:
        with _lock:
            machine = _machine(target, optimisation)
            obj = machine.emit_object(_parse(text, machine))
    if use_cache:
        cache.store(name, obj)
    return obj


def compile_objects(text: str, target: Target) -> list[bytes]:
    """The objects that a module's text becomes: several where it is long and there are CPUs.

    The parts are compiled side by side, all but the first by child processes, because llvmlite
    lets one thread at a time into LLVM. What a child cannot do is done here.
    """
    count = min(_cpus(), len(text) // SHARD_BYTES)
    parts = units.shards(text, count) if count > 1 and target.triple == host().triple else [text]
    made: dict[int, bytes] = {}

    def in_child(i: int) -> None:
        with contextlib.suppress(CompileError):
            made[i] = compile_object(parts[i], target, elsewhere=True)

    children = [threading.Thread(target=in_child, args=(i,)) for i in range(1, len(parts))]
    for c in children:
        c.start()
    made[0] = compile_object(parts[0], target)
    for c in children:
        c.join()
    return [made[i] if i in made else compile_object(p, target) for i, p in enumerate(parts)]


def _cpus() -> int:
    """How many processes may work for this one; 1 where it cannot start another Python."""
    if getattr(sys, "frozen", False) or "python" not in os.path.basename(sys.executable or ""):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_resident(name: str, make_text: Callable[[], str]) -> bytes:
    """The object of code that belongs to graphc itself; its text is made if nothing is cached."""
    target = host()
    entry = cache.key(
        name, versions(), cache.installation(), target.triple, target.cpu, target.features
    )
    found = cache.load(entry)
    if found is None:
        found = compile_object(make_text(), target, optimisation=PLAIN, use_cache=False)
        cache.store(entry, found)
    return found


def assembly(text: str, target: Target, *, optimisation: int = OPTIMISATION) -> str:
    """The machine code of a module's text, as assembly."""
    if target.triple != host().triple:
        return cross.generate(text, target, optimisation, assembly=True).decode()
    with _lock:
        machine = _machine(target, optimisation)
        return str(machine.emit_assembly(_parse(text, machine)))


# Code that is no longer wanted. It is not unmapped at once, because the cyclic collector calls the
# finalisers of a garbage cycle in any order, and one of the user's may still call the function:
# what was retired before one `load` is freed by the next that no collection surrounds.
_retired: list[Any] = []
_doomed: list[Any] = []
_collecting = False


def _watch(phase: str, info: Mapping[str, int]) -> None:
    global _collecting
    _collecting = phase == "start"


gc.callbacks.append(_watch)


class Code:
    """Loaded objects: exported symbols by name; the code is freed some time after this object."""

    __slots__ = ("__weakref__", "_addresses", "_keep")

    def __init__(self, tracker: Any, addresses: Mapping[str, int], keep: Iterable[object]):
        self._addresses, self._keep = dict(addresses), tuple(keep)
        weakref.finalize(self, _retired.append, (tracker, self._keep)).atexit = False

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


@functools.cache
def _orc() -> Any:
    _initialise()
    orc = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    # Never disposed of, not even while the interpreter shuts down: workers may still be spinning.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(orc))
    return orc


def load(
    objects: Sequence[bytes],
    *,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    keep: Iterable[object] = (),
    titles: Mapping[str, str] | None = None,
) -> Code:
    """Link objects with each other and with `imports` (name -> address).

    `keep` are objects that must outlive the code, such as those whose addresses it imports;
    `titles` what `perf` shows in the place of symbols.
    """
    builder = llvm.JITLibraryBuilder()
    for o in objects:
        builder.add_object_img(o)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    with _lock:
        if not _collecting:
            _doomed.clear()
            while _retired:
                _doomed.append(_retired.pop())
        try:
            tracker = builder.link(_orc(), f"graphc.{next(_serial)}")
        except RuntimeError as e:
            raise CompileError(f"the generated code does not link: {str(e).strip()}") from None
    addresses = {n: tracker[n] for n in exports}
    if perf_map.wanted():
        perf_map.record(objects, addresses, titles or {})
    return Code(tracker, addresses, keep)


_POOL_EXPORTS = ("parallel", "parallel_limited", "set_threads", "threads")
_LIBC = (
    "mmap", "munmap", "madvise", "getpid", "sched_yield", "sched_getaffinity", "getenv", "syscall",
    "pthread_attr_init", "pthread_attr_setstacksize", "pthread_create", "pthread_join",
    "pthread_sigmask",
)


def process_symbol(name: str) -> int:
    """The address of a C function of this process; 0 where there is none."""
    try:
        found = getattr(ctypes.pythonapi, name)
    except AttributeError:
        return 0
    return ctypes.cast(found, ctypes.c_void_p).value or 0


@functools.cache
def _pool() -> Code:
    wanted = os.environ.get("GRAPHC_NUM_THREADS", "")
    if wanted and not (wanted.isascii() and wanted.isdecimal() and int(wanted) > 0):
        raise UsageError(f"GRAPHC_NUM_THREADS: must be an integer from 1 on, got {wanted!r}")

    def text() -> str:
        from graphc.codegen.runtime import runtime_text

        return runtime_text(native())

    with _lock:
        imports = {n: a for n in _LIBC if (a := process_symbol(n))}
        code = load(
            [compile_resident("pool", text)], exports=[f"graphc_{n}" for n in _POOL_EXPORTS],
            imports=imports,
        )
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
        return code


@functools.cache
def parallel_address(threads: int | None = None) -> int:
    """The address of `graphc_parallel`, for all threads of the pool or for at most `threads`."""
    pool = _pool()
    if threads is None:
        return pool["graphc_parallel"]
    text = f"""
declare void @graphc_parallel_limited(ptr, ptr, i64, ptr, i32)
define void @limited(ptr %task, ptr %ctx, i64 %n, ptr %scratch) nounwind {{
  call void @graphc_parallel_limited(ptr %task, ptr %ctx, i64 %n, ptr %scratch, i32 {threads})
  ret void
}}
"""
    code = load(
        [compile_object(text, host(), optimisation=PLAIN)],
        exports=["limited"],
        imports={"graphc_parallel_limited": pool["graphc_parallel_limited"]},
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return code["limited"]


@functools.cache
def _cycle_counter() -> Any:
    text = """
declare i64 @llvm.readcyclecounter()
define i64 @cycles() {
  %c = call i64 @llvm.readcyclecounter()
  ret i64 %c
}
"""
    code = load([compile_object(text, host(), optimisation=PLAIN)], exports=["cycles"])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return ctypes.CFUNCTYPE(ctypes.c_int64)(code["cycles"])


def cycles() -> int:
    """The CPU's cycle counter, in whatever unit it counts."""
    return int(_cycle_counter()())


def set_threads(n: int) -> None:
    """Use at most n threads from now on; 1 never creates one. GRAPHC_NUM_THREADS is the default."""
    if n < 1:
        raise ValueError(f"set_threads: the number of threads must be at least 1, got {n}")
    ctypes.CFUNCTYPE(None, ctypes.c_int)(_pool()["graphc_set_threads"])(n)


def threads() -> int:
    """The number of threads in force."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(_pool()["graphc_threads"])())
