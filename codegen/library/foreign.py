"""Linking for systems other than ELF ones: wasm modules, Windows DLLs, macOS dylibs.

LLVM's linker does all three, under its names (wasm-ld, lld-link, ld64.lld), as ld.lld with a
flavour, or from the ziglang wheel; a Mac has its own. What a system provides is described to the
linker by a file made on the spot, so neither an SDK nor headers are needed.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graphc.codegen.library import wasm, windows
from graphc.codegen.library.archive import import_library
from graphc.codegen.library.link import run_linker, try_linkers, write_parts
from graphc.codegen.machine import llvm
from graphc.codegen.machine.platforms import Platform, native

STACK = 1 << 20  # bytes of a wasm module's stack, below its data: overflow traps
MACOS = "11.0"   # the oldest that dylibs run on, as the triples say
# What a macOS library may need of libSystem, as C writes it.
LIBSYSTEM = (
    "__bzero", "bzero", "fchmod", "fclose", "ferror", "fflush", "fileno", "fopen", "fread", "free",
    "fsync", "fwrite", "getenv", "getpid", "malloc", "memcmp", "memcpy", "memset", "remove",
    "rename", "stat", "stat$INODE64", "strlen",
)
_TBD = """--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '/usr/lib/libSystem.B.dylib'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ {symbols} ]
...
"""
# Format -> (LLVM's linker for it, its flavour)
_LLD = {"wasm": ("wasm-ld", "wasm"), "coff": ("lld-link", "link"), "macho": ("ld64.lld", "darwin")}


def link_foreign(
    obj: Iterable[Any], name: str, symbols: Sequence[str], directory: Path, platform: Platform
) -> Path:
    """The library called `name`, made in `directory` of one object that exports `symbols`.

    A DLL's import library is made beside it. CompileError if no linker can.
    """
    def attempt(command: Sequence[str], driver: bool) -> str:
        options = ORDERS[platform.format](name, symbols, directory, platform, driver)
        return run_linker([*command, *options], directory)

    write_parts(directory / "library.o", obj)
    advice = f"install {_LLD[platform.format][0]} (LLVM's lld), or the linker from PyPI: " \
             "pip install ziglang; or write an object (.o) or an archive (.a)"
    try_linkers(linkers(platform), attempt, name, platform, advice)
    return directory / name


def linkers(platform: Platform) -> list[tuple[list[str], bool]]:
    """Commands that link for the platform, best first, and whether each is a compiler driver."""
    own, flavour = _LLD[platform.format]
    found: list[tuple[list[str], bool]] = []
    if platform.format == "macho" and native().format == "macho" and shutil.which("cc"):
        own_mac = ["cc", "-arch", platform.base.arch, f"-mmacosx-version-min={MACOS}"]
        found.append((own_mac, True))
    if (path := shutil.which(own)) is not None:
        found.append(([path], False))
    if (path := shutil.which("ld.lld")) is not None:
        found.append(([path, "-flavor", flavour], False))
    if importlib.util.find_spec("ziglang") is not None:
        zig = [sys.executable, "-m", "ziglang"]
        if platform.format == "macho":
            found.append(([*zig, "cc", "-target", f"{platform.name}.{MACOS}"], True))
        else:
            found.append(([*zig, own], False))
    return found


def _wasm(
    name: str, symbols: Sequence[str], directory: Path, platform: Platform, driver: bool
) -> list[str]:
    """A module with an allocator of its own."""
    allocator = llvm.compile_object(wasm.ALLOCATOR, platform.base)
    (directory / "allocator.o").write_bytes(allocator)
    exports = [f"--export={s}" for s in (*symbols, *wasm.EXPORTS)]
    return ["--no-entry", "--stack-first", "-z", f"stack-size={STACK}", *exports,
            "-o", name, "library.o", "allocator.o"]


def _windows(
    name: str, symbols: Sequence[str], directory: Path, platform: Platform, driver: bool
) -> list[str]:
    """A DLL; kernel32 is described by an import library."""
    kernel = import_library("kernel32.dll", windows.IMPORTS)
    (directory / "kernel32.lib").write_bytes(kernel)
    exports = [f"/export:{s}" for s in symbols]
    return ["/dll", "/noentry", "/nodefaultlib", "/machine:x64", "/brepro", *exports,
            f"/out:{name}", f"/implib:{name}.lib", "library.o", "kernel32.lib"]


def _macos(
    name: str, symbols: Sequence[str], directory: Path, platform: Platform, driver: bool
) -> list[str]:
    """A dylib; libSystem is described by a text file."""
    names = ", ".join(f"_{s}" for s in LIBSYSTEM)
    (directory / "libSystem.tbd").write_text(_TBD.format(symbols=f"{names}, dyld_stub_binder"))
    (directory / "exports").write_text("".join(f"_{s}\n" for s in symbols))
    options = ["-install_name", f"@rpath/{name}", "-o", name, "library.o"]
    if driver:
        return ["-dynamiclib", "-nostdlib", *options, "-lSystem",
                "-Wl,-exported_symbols_list,exports"]
    arch = platform.base.arch
    return ["-dylib", "-arch", arch, "-platform_version", "macos", MACOS, MACOS,
            "-exported_symbols_list", "exports", *options, "libSystem.tbd"]


# Format -> what makes the options, and writes the files that they name.
ORDERS = {"wasm": _wasm, "coff": _windows, "macho": _macos}
