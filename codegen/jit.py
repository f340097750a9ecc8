"""LLVM text to native code in this process, through ORC.

    obj = compile_object(text, target)               cached on disk
    code = load([obj], exports=["f"], imports={"graphc_parallel": address})
    code["f"]                                        an address, valid while `code` lives

No optimiser pipeline runs: the text is as it should be, and LLVM only selects and schedules
instructions. Every compilation has its own LLVM context and may run beside others. All objects
are linked into one ORC JIT that lives as long as the process, since worker threads may run in it
to the very end.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
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
SHARD_BYTES = 1 << 17  # of text that are worth a thread: some 80 ms of LLVM
_lock = threading.RLock()
_serial = itertools.count()


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


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


@functools.cache
def _emit_to_memory() -> Any:
    """LLVM's code generator as a C function, or None if this llvmlite keeps it to itself.

    llvmlite calls all of LLVM under one lock, since a context is for one thread at a time. Here
    each module has a context and a machine of its own, so several threads may generate code.
    """
    try:
        emit = llvm.ffi.lib._lib_handle["LLVMPY_TargetMachineEmitToMemory"]
    except (AttributeError, TypeError):
        return None
    emit.argtypes = [
        llvm.ffi.LLVMTargetMachineRef, llvm.ffi.LLVMModuleRef, ctypes.c_int,
        ctypes.POINTER(ctypes.c_char_p),
    ]
    emit.restype = llvm.ffi.LLVMMemoryBufferRef
    return emit


def _generate(text: str, target: Target, optimisation: int) -> bytes:
    """The object file of a module's text for this kind of machine, made in the calling thread."""
    machine = _machine(target, optimisation)
    module = _parse(text, machine)
    emit = _emit_to_memory()
    if emit is None:
        return bytes(machine.emit_object(module))
    said = ctypes.c_char_p()
    made = emit(machine, module, 1, ctypes.byref(said))
    if not made:
        reason = (said.value or b"").decode(errors="replace")
        raise CompileError(f"LLVM makes no object of the generated code: {reason}")
    lib = llvm.ffi.lib
    try:
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(made), lib.LLVMPY_GetBufferSize(made))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(made)


def compile_object(
    text: str, target: Target, *, optimisation: int = OPTIMISATION, use_cache: bool = True,
) -> bytes:
    """The object file of a module's text; one for another machine is made by a child process."""
    name = cache.key(
        text, versions(), target.triple, target.cpu, target.features, target.abi, str(optimisation)
    )
    if use_cache and (found := cache.load(name)) is not None:
        return found
    make = _generate if target.triple == host().triple else cross.generate
    obj = make(text, target, optimisation)
    if use_cache:
        cache.store(name, obj)
    return obj


def compile_objects(texts: Sequence[str], target: Target) -> list[bytes]:
    """The objects that modules' texts become, made side by side where there are CPUs: one of each,
    several of a long one."""
    cpus = _cpus()
    parts = [p for t in texts for p in units.shards(t, min(cpus, len(t) // SHARD_BYTES))]
    made = [b""] * len(parts)
    waiting = sorted(range(len(parts)), key=lambda i: len(parts[i]))  # the longest is the first
    failed: list[BaseException] = []

    def work() -> None:
        while not failed:
            try:
                i = waiting.pop()
            except IndexError:
                return
            try:
                made[i] = compile_object(parts[i], target)
            except BaseException as e:  # Ctrl-C, too, waits for what others are at
                failed.append(e)

    helpers = [threading.Thread(target=work) for _ in range(min(cpus, len(parts)) - 1)]
    for h in helpers:
        h.start()
    work()
    for h in helpers:
        h.join()
    if failed:
        raise failed[0]
    return made


def _cpus() -> int:
    """How many threads may work for this one."""
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
