"""The systems that libraries are written for.

A `Platform` is a system with its conventions, and names the targets that a library for it holds:
several CPU levels on x86-64 and on AArch64 under Linux, one ("base") elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from graphc.codegen.machine.target import ARM, ARM_LEVELS, LEVELS, X86, Target, host, neon, x86
from graphc.errors import UsageError


class Platform(NamedTuple):
    """A system that libraries are written for.

    base: what the code around the kernels is compiled for, which is any CPU of the architecture.
    format: of its objects: elf, coff, macho or wasm. shared: the suffix of its shared libraries.
    libc: what shared libraries say they need. threads: whether they carry the thread pool.
    stack: bytes to ask for a thread, where what it gets unasked is too little.
    libcalls: whether LLVM calls functions in the place of instructions, see machine.libcalls.
    """

    name: str
    base: Target
    format: str
    shared: str
    libc: str = ""
    threads: bool = False
    libcalls: bool = False
    stack: int = 0

    @property
    def triple(self) -> str:
        return self.base.triple

    @property
    def files(self) -> bool:
        """Whether there are files to save states to."""
        return self.format != "wasm"

    @property
    def levels(self) -> tuple[str, ...]:
        """The CPU levels there are, lowest first."""
        if self.base.arch in X86:
            return tuple(LEVELS)
        linux = "-linux" in self.triple  # which says what a CPU has
        return tuple(ARM_LEVELS) if self.base.arch in ARM and linux else ("base",)

    @property
    def alike(self) -> bool:
        """Whether kernels that are the same text at several levels are the same code."""
        return self.base.arch in ARM

    def targets(self, levels: Iterable[str]) -> dict[str, Target]:
        """The targets to compile kernels for, by level, lowest first."""
        wanted = set(levels)
        if self.levels == ("base",):
            return {"base": self.base}
        if self.base.arch in ARM:
            return {
                level: self.base._replace(features=features, has_dot=level == "v8.2")
                for level, features in ARM_LEVELS.items() if level in wanted
            }
        return {level: x86(level, self.triple) for level in self.levels if level in wanted}


def _x86_base(triple: str) -> Target:
    """Any x86-64 CPU."""
    return x86("v2", triple)._replace(cpu="x86-64", features="")


# No vectors: what kernels take for a register is two or four scalar ones.
_RISCV = Target(
    "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", 128,
    has_fma=True, has_f16c=False, masked=False, registers=8, abi="lp64d",
)
# NEON of ARMv7 flushes subnormal numbers to zero, so it is left alone.
_ARMV7 = Target(
    "armv7-unknown-linux-gnueabihf", "generic", "+vfp3d16,-d32,-neon", 128,
    has_fma=False, has_f16c=False, masked=False, registers=8, pointer_bits=32,
)
_WASM = Target(
    "wasm32-unknown-unknown", "generic",
    "+simd128,+bulk-memory,+nontrapping-fptoint,+sign-ext,+mutable-globals", 128,
    has_fma=False, has_f16c=False, masked=False, registers=16, pointer_bits=32,
)
_GLIBC, _MUSL = "libc.so.6", "libc.so"
_STACK = 8 << 20  # as glibc has it; musl gives 128 KiB, and kernels keep rows on the stack
PLATFORMS = {
    p.name: p for p in (
        Platform("x86_64-linux-gnu", _x86_base("x86_64-unknown-linux-gnu"), "elf", ".so", _GLIBC,
                 threads=True),
        Platform("x86_64-linux-musl", _x86_base("x86_64-unknown-linux-musl"), "elf", ".so", _MUSL,
                 threads=True, stack=_STACK),
        Platform("aarch64-linux-gnu", neon("aarch64-unknown-linux-gnu"), "elf", ".so", _GLIBC,
                 threads=True),
        Platform("aarch64-linux-musl", neon("aarch64-unknown-linux-musl"), "elf", ".so", _MUSL,
                 threads=True, stack=_STACK),
        Platform("riscv64-linux-gnu", _RISCV, "elf", ".so", _GLIBC, threads=True),
        Platform("armv7-linux-gnueabihf", _ARMV7, "elf", ".so", _GLIBC, threads=True,
                 libcalls=True),
        Platform("wasm32", _WASM, "wasm", ".wasm"),
        Platform("x86_64-windows-gnu", _x86_base("x86_64-w64-windows-gnu"), "coff", ".dll"),
        Platform("x86_64-macos", _x86_base("x86_64-apple-macosx11.0.0"), "macho", ".dylib"),
        Platform("aarch64-macos", neon("arm64-apple-macosx11.0.0", "apple-m1")._replace(
            has_dot=True), "macho", ".dylib"),
    )
}
_ARCH = {"amd64": "x86_64", "arm64": "aarch64", "riscv64gc": "riscv64", "armv7a": "armv7",
         "armv7l": "armv7", "arm": "armv7"}
_VENDORS = ("unknown", "pc", "w64", "apple", "none")
_SYSTEM = (  # what follows architecture and vendor -> how our names call it
    (r"linux(-gnu)?", "-linux-gnu"),
    (r"linux-gnueabihf", "-linux-gnueabihf"),
    (r"linux-musl", "-linux-musl"),
    (r"(windows(-gnu|-msvc)?|mingw32)", "-windows-gnu"),
    (r"(macosx?|darwin)[\d.]*(-none)?", "-macos"),
    (r"(wasip?1?|freestanding|wasm)?(-musl|-wasm)?", ""),
)


def platform_named(name: str) -> Platform | None:
    """The platform that a name of the table means, or a triple as clang, rustc or zig write it."""
    if name in PLATFORMS:
        return PLATFORMS[name]
    first, *rest = name.lower().split("-")
    arch = _ARCH.get(first, first)
    system = "-".join(part for part in rest if part not in _VENDORS)
    for pattern, ours in _SYSTEM:
        if re.fullmatch(pattern, system):
            return PLATFORMS.get(arch + ours)
    return None


def platform(name: str) -> Platform:
    """The platform of that name ("native" is this machine's); UsageError lists those there are."""
    if name == "native":
        return native()
    found = platform_named(name)
    if found is None:
        raise UsageError(
            f"target: there is no {name!r}; those there are: {', '.join(PLATFORMS)}, native"
        )
    return found


@cache
def native() -> Platform:
    """This machine's platform; for one that is not in the table, plain code without threads."""
    triple = host().triple
    found = platform_named(triple)
    if found is not None:
        return found._replace(base=found.base._replace(triple=triple))
    x86_64 = triple.startswith(X86)
    return Platform(triple, _x86_base(triple) if x86_64 else neon(triple), "elf", ".so")
