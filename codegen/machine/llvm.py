"""LLVM text to object files, made by llvmlite and kept on disk.

    obj = compile_object(text, target)

No optimiser pipeline runs: the text is as it should be, and LLVM only selects and schedules
instructions. Every compilation has its own LLVM context and may run beside others. What is in the
cache takes nothing of LLVM, which is loaded by the first compilation, as are `generator`, `cross`
and `residency`: a program that is found compiled would wait 0.3 ms for them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import llvmlite

from graphc.codegen.machine import cache
from graphc.codegen.machine.target import Target, host
from graphc.errors import CompileError
from graphc.forks import held

OPTIMISATION = 2  # of instruction selection, register allocation and scheduling
PLAIN = 0         # for code around kernels: as fast to run, several times as fast to compile
# Of text that are worth a thread: some 20 ms of LLVM, of which 1 is what a module takes by itself.
SHARD_BYTES = 1 << 15


@functools.cache
def binding() -> Any:
    """llvmlite's binding, loaded, with the code generator of this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    with contextlib.suppress(AttributeError):  # others use llvmlite, too, and other locks of it
        held(_lock(llvm))
    _drop_pages(llvm)
    return llvm


def _lock(llvm: Any) -> Any:
    """llvmlite's lock for all of LLVM, that a thread may take again."""
    return llvm.ffi.lib._lock._lock


def _has_lock() -> bool:
    """Whether this thread has that lock, as a finaliser does that is run in a call of LLVM."""
    with contextlib.suppress(AttributeError):
        return is_loaded() and bool(_lock(binding())._is_owned())
    return False


def _drop_pages(llvm: Any) -> None:
    from graphc.codegen.machine import residency

    with contextlib.suppress(AttributeError):  # where it is loaded from
        residency.drop_pages(llvm.ffi.lib._lib_handle._name)


def release() -> None:
    """Give back the memory that is for compiling only; the next time takes some 2 ms more."""
    if is_loaded():
        from graphc.codegen.machine import generator

        generator.release()
        _drop_pages(binding())
        with contextlib.suppress(AttributeError):  # glibc keeps what the modules took
            ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def versions() -> str:
    """What compiles: graphc, llvmlite, and the LLVM in it by its file, without loading it."""
    import graphc

    version = getattr(graphc, "__version__", "")
    found = [f"graphc {version} llvmlite {llvmlite.__version__}"]
    for f in _libraries():
        info = f.stat()
        found.append(f"{f.name} {info.st_size} {info.st_mtime_ns}")
    return " ".join(found)


def _libraries() -> list[os.DirEntry[str]]:
    """The shared libraries in llvmlite, of which one is LLVM."""
    with os.scandir(os.path.join(os.path.dirname(llvmlite.__file__), "binding")) as files:
        found = [f for f in files if f.name.endswith((".so", ".dylib", ".dll"))]
    return sorted(found, key=lambda f: f.name)


def is_loaded() -> bool:
    """Whether `binding` is there."""
    return binding.cache_info().currsize > 0


def preload() -> None:
    """Load what `binding` does but its Python, which other threads have no need to wait for."""
    for f in _libraries():
        with contextlib.suppress(OSError):  # `binding` will say what is wrong with it
            ctypes.CDLL(f.path)


def _generate(text: str, target: Target, optimisation: int) -> bytes:
    """The object file of a module's text for this kind of machine, made in the calling thread."""
    from graphc.codegen.machine import generator

    binding()
    with _rejected():
        return generator.generate(text, *_machine(target, optimisation))


def _machine(target: Target, optimisation: int) -> tuple[str, str, str, str, int]:
    """What `cross.machine` takes."""
    return target.triple, target.cpu, target.features, target.abi, optimisation


@contextlib.contextmanager
def _rejected() -> Iterator[None]:
    """What LLVM says is wrong, as a CompileError."""
    try:
        yield
    except RuntimeError as e:
        raise CompileError(f"LLVM rejects the generated code: {str(e).strip()}") from None


def compile_object(
    text: str, target: Target, *, optimisation: int = OPTIMISATION, use_cache: bool = True,
) -> bytes:
    """The object file of a module's text; one for another machine is made by a child process."""
    name = cache.key(
        text, versions(), target.triple, target.cpu, target.features, target.abi, str(optimisation)
    )
    if use_cache and (found := cache.load(name)) is not None:
        return found
    if target.triple == host().triple:
        obj = _generate(text, target, optimisation)
    else:
        from graphc.codegen.machine import cross

        obj = cross.generate(text, target, optimisation)
    if use_cache:
        cache.store(name, obj)
    return obj


def compile_objects(
    texts: Sequence[str], target: Target, *, parts: Sequence[str] = (), plain: Sequence[str] = (),
    beside: Sequence[Callable[[], object]] = (),
) -> list[bytes]:
    """The objects that modules' texts become, made side by side where there are CPUs: one of each,
    several of a long one; then those of `parts`, which are not cut, and of `plain` texts. `beside`:
    what else is to be done, and begun before them all."""
    count = cpus()
    parts = [*(p for t in texts for p in cut(t, count)), *parts]
    modules = [(t, OPTIMISATION) for t in parts] + [(t, PLAIN) for t in plain]
    jobs = [functools.partial(compile_object, t, target, optimisation=o) for t, o in modules]
    sizes = [float(len(t)) for t, _ in modules] + [math.inf] * len(beside)
    made = _side_by_side([*jobs, *beside], sizes, count)
    return made[: len(jobs)]


def cut(text: str, most: int) -> list[str]:
    """A text in at most so many parts, of which each is worth a thread."""
    from graphc.codegen.machine import units

    return units.shards(text, min(most, len(text) // SHARD_BYTES))


def _side_by_side(
    jobs: Sequence[Callable[[], Any]], sizes: Sequence[float], most: int
) -> list[Any]:
    """What the jobs return, of which the largest begin; the first mistake of one is raised."""
    if _has_lock():
        most = 1  # others would wait for it, and this thread for them
    made: list[Any] = [None] * len(jobs)
    waiting = sorted(range(len(jobs)), key=lambda i: sizes[i])
    failed: list[BaseException] = []

    def work() -> None:
        while not failed:
            try:
                i = waiting.pop()
            except IndexError:
                return
            try:
                made[i] = jobs[i]()
            except BaseException as e:  # Ctrl-C, too, waits for what others are at
                failed.append(e)

    helpers = []
    for _ in range(min(most, len(jobs)) - 1):
        h = threading.Thread(target=work)
        try:
            h.start()
        except RuntimeError:  # where the system allows no more threads, this one does it all
            break
        helpers.append(h)
    work()
    for h in helpers:
        h.join()
    if failed:
        raise failed[0]
    return made


def cpus() -> int:
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
    from graphc.codegen.machine import cross

    if target.triple != host().triple:
        return cross.generate(text, target, optimisation, assembly=True).decode()
    binding()
    with _rejected():
        machine = cross.machine(*_machine(target, optimisation))
        return str(machine.emit_assembly(cross.parse(text, machine)))
