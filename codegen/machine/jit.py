"""Native code in this process.

    code = load([obj], exports=["f"], imports={"graphc_parallel": address})
    code["f"]                                        an address, valid while `code` lives

On x86-64 Linux objects are linked by `linker`, elsewhere by LLVM's ORC. Code that belongs to the
process, such as the pool, stays as long as it lives: worker threads may run in it to the very end.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphc.codegen import perf_map
from graphc.codegen.machine import linker
from graphc.codegen.machine.llvm import PLAIN, binding, compile_object, compile_resident
from graphc.codegen.machine.target import host
from graphc.errors import CompileError, UsageError
from graphc.forks import undivided

_lock = threading.RLock()
_serial = itertools.count()


# Code that nothing refers to any more is freed at once, but not while the cyclic collector is at
# work: it calls the finalisers of a garbage cycle in any order, and one of the user's may still
# call the function. What a collection retires is freed when it is over.
_retired: list[Any] = []
_collecting = False


def _watch(phase: str, info: Mapping[str, int]) -> None:
    """Know when the cyclic collector is at work (see `Code`)."""
    global _collecting
    _collecting = phase == "start"
    if not _collecting:
        _retired.clear()


def _retire(*held: object) -> None:
    if _collecting:
        _retired.append(held)


gc.callbacks.append(_watch)


class Code:
    """Loaded objects: exported symbols by name; the code is freed with this object, or when the
    collection that finds it is over."""

    __slots__ = ("__weakref__", "_addresses", "_held")

    def __init__(self, linked: Any, addresses: Mapping[str, int], keep: Iterable[object]):
        self._addresses, self._held = dict(addresses), (linked, tuple(keep))
        weakref.finalize(self, _retire, *self._held).atexit = False

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


@functools.cache
def _orc() -> Any:
    """The JIT that all code of the process is linked into."""
    orc = binding().create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    # Never disposed of, not even while the interpreter shuts down: workers may still be spinning.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(orc))
    return orc


def _orc_link(
    objects: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int]
) -> Any:
    builder = binding().JITLibraryBuilder()
    for o in objects:
        builder.add_object_img(o)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    try:
        return builder.link(_orc(), f"graphc.{next(_serial)}")
    except RuntimeError as e:
        raise CompileError(f"the generated code does not link: {str(e).strip()}") from None


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
    with _lock:
        linked = linker.link(objects, imports or {}) if linker.usable() else None
        if linked is None:
            linked = _orc_link(objects, exports, imports or {})
    addresses = {n: linked[n] for n in exports}
    if perf_map.wanted():
        perf_map.record(objects, addresses, titles or {})
    return Code(linked, addresses, keep)


_POOL_EXPORTS = ("parallel", "parallel_limited", "set_threads", "threads")
_LIBC = (
    "mmap", "munmap", "madvise", "getpid", "sched_yield", "sched_getaffinity", "getenv", "syscall",
    "pthread_attr_init", "pthread_attr_setstacksize", "pthread_create", "pthread_join",
    "pthread_sigmask",
)


def _pool() -> Code:
    """The thread pool, loaded at first use, whoever asks at the same time."""
    with _lock:
        return _loaded_pool()


@functools.cache
def _loaded_pool() -> Code:
    wanted = os.environ.get("GRAPHC_NUM_THREADS", "")
    if wanted and not (wanted.isascii() and wanted.isdecimal() and int(wanted) > 0):
        raise UsageError(f"GRAPHC_NUM_THREADS: must be an integer from 1 on, got {wanted!r}")

    def text() -> str:
        from graphc.codegen.machine.platforms import native
        from graphc.codegen.pool.runtime import runtime_text

        return runtime_text(native())

    imports = {n: a for n in _LIBC if (a := linker.process_symbol(n))}
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
    if threads is not None:
        from graphc.codegen.pool.runtime import MAX_THREADS
    if threads is None or threads >= MAX_THREADS:
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
    with undivided():
        pool = _pool()
    ctypes.CFUNCTYPE(None, ctypes.c_int)(pool["graphc_set_threads"])(n)


def threads() -> int:
    """The number of threads in force."""
    with undivided():
        pool = _pool()
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(pool["graphc_threads"])())
