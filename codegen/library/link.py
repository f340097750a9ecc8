"""ELF objects to shared libraries, with whatever linker is at hand.

A shared library is linked against a stub of libc made on the spot: empty functions with the names
that native code may use, and libc's soname. So it depends on no symbol versions of the machine it
was built on, needs no C headers or development files, and refers to nothing but these names.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from graphc.codegen.machine import llvm
from graphc.codegen.machine.platforms import Platform, native
from graphc.errors import CompileError

LIBC = (
    "fclose", "ferror", "fflush", "fileno", "fopen", "fread", "free", "fsync", "fwrite",
    "getauxval", "getenv", "getpid", "madvise", "malloc", "memcmp", "memcpy", "memmove", "memset",
    "mmap", "munmap",
    "pthread_attr_init", "pthread_attr_setstacksize", "pthread_create", "pthread_join",
    "pthread_sigmask", "remove", "rename", "sched_getaffinity", "sched_yield", "strlen", "syscall",
)
_OPTIONS = (
    "-z", "defs", "-z", "relro", "-z", "now", "-z", "noexecstack", "--build-id=none",
    "--hash-style=gnu", "--as-needed", "-Bsymbolic",
)


def _advice(platform: Platform) -> str:
    compiler = "cc" if _ours(platform) else _cross_compiler(platform)
    return (
        f"install a C compiler ({compiler}), LLVM's ld.lld, or the linker from PyPI: pip install "
        "ziglang; or write an object (.o) or an archive (.a)"
    )


def _ours(platform: Platform) -> bool:
    """Whether this machine's own linker serves the platform."""
    here = native()
    return (platform.format, platform.base.arch) == (here.format, here.base.arch)


def _cross_compiler(platform: Platform) -> str:
    """What Linux distributions call their compiler for the platform."""
    return platform.name.replace("armv7", "arm") + "-gcc"


def linkers(platform: Platform) -> list[tuple[list[str], bool]]:
    """Commands that link, best first, and whether each is a compiler driver (takes -Wl,)."""
    found = []
    ours = _ours(platform)
    compiler = "cc" if ours else _cross_compiler(platform)
    for name, driver in ((compiler, True), ("ld.lld", False), *[("ld", False)] * ours):
        if (path := shutil.which(name)) is not None:
            found.append(([path], driver))
    if importlib.util.find_spec("ziglang") is not None:
        found.append(([sys.executable, "-m", "ziglang", "ld.lld"], False))
    return found


def write_parts(path: Path, parts: Iterable[Any]) -> None:
    """Write buffers one after another."""
    with open(path, "wb") as f:
        for p in parts:
            f.write(p)


def link_shared(obj: Iterable[Any], soname: str, directory: Path, platform: Platform) -> Path:
    """A shared library, in `directory`, of one object; CompileError if no linker can."""

    def attempt(command: Sequence[str], driver: bool) -> str:
        def link(inputs: Sequence[str], output: str, soname: str) -> str:
            options = [*_OPTIONS, "-soname", soname]
            if driver:
                options = ["-nostdlib", *(f"-Wl,{o}" for o in options)]
            return run_linker(
                [*command, "-shared", "-o", output, *inputs, *options], directory
            )

        return (
            link(["stub.o"], "stub.so", platform.libc)
            or link(["library.o", "stub.so"], "library.so", soname)
        )

    commands = linkers(platform)
    write_parts(directory / "library.o", obj)
    stub = "".join(f"define void @{n}() nounwind {{\n  ret void\n}}\n" for n in LIBC)
    (directory / "stub.o").write_bytes(llvm.compile_object(stub, platform.base))
    try_linkers(commands, attempt, soname, platform, _advice(platform))
    return directory / "library.so"


def try_linkers(
    commands: Sequence[tuple[Sequence[str], bool]], attempt: Callable[[Sequence[str], bool], str],
    name: str, platform: Platform, advice: str,
) -> None:
    """Link by the first command that can; CompileError says why none could.

    attempt: (command, whether it is a compiler driver) -> what went wrong, or nothing.
    """
    if not commands:
        raise CompileError(
            f"export: no linker for {platform.name} was found to make {name}; {advice}"
        )
    reasons = []
    for command, driver in commands:
        if not (reason := attempt(command, driver)):
            return
        reasons.append(f"{' '.join(command)}: {reason}")
    raise CompileError(f"export: linking {name} failed: {'; '.join(reasons)}; {advice}")


def run_linker(command: Sequence[str], directory: Path) -> str:
    """Run a linker in a directory; what went wrong, or nothing."""
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as e:
        return str(e.strerror)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return " ".join(lines[-3:]) or f"exit code {done.returncode}"
