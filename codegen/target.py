"""What code is generated for: machines, and the platforms that libraries are written for.

A `Target` is a CPU as kernels see it. A `Platform` is a system with its conventions, and names the
targets that a library for it holds: several CPU levels on x86-64 and on AArch64 under Linux, one
("base") elsewhere.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from graphc.errors import UsageError
from graphc.types import DType

# x86-64 psABI levels -> (LLVM CPU, register bits to use)
LEVELS = {"v2": ("x86-64-v2", 128), "v3": ("x86-64-v3", 256), "v4": ("x86-64-v4", 512)}
X86 = ("x86_64", "amd64")
# AArch64 levels -> LLVM features: v8.2 has the dot products of bytes (optional before Armv8.4)
ARM_LEVELS = {"v8": "", "v8.2": "+dotprod"}
ARM = ("aarch64", "arm64")
# Partial sums use 4 x 64 bytes of virtual lanes on every target, so results do not depend on it.
VIRTUAL_BITS = 4 * 512


class Target(NamedTuple):  # as a dataclass it would take a millisecond of every start
    """A machine: `vector_bits` is the register width that kernels are written for."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    has_fma: bool
    has_f16c: bool            # hardware f16 <-> f32 conversion
    masked: bool              # cheap masked loads and stores (AVX-512)
    registers: int            # vector registers
    pointer_bits: int = 64
    abi: str = ""             # the calling convention's name, where LLVM does not guess it
    has_dot: bool = False     # dot products of four bytes into 32 bits (AArch64)

    def lanes(self, dtype: DType) -> int:
        """Elements of dtype's compute type in a register."""
        return self.vector_bits // max(8, dtype.compute.bits)

    @property
    def arch(self) -> str:
        return self.triple.split("-")[0]


class Platform(NamedTuple):
    """A system that libraries are written for.

    base: what the code around the kernels is compiled for, which is any CPU of the architecture.
    format: of its objects: elf, coff, macho or wasm. shared: the suffix of its shared libraries.
    libc: what shared libraries say they need. threads: whether they carry the thread pool.
    stack: bytes to ask for a thread, where what it gets unasked is too little.
    libcalls: whether LLVM calls functions in the place of instructions; see codegen.libcalls.
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


def x86(level: str, triple: str = "x86_64-unknown-linux-gnu") -> Target:
    """An x86-64 psABI level."""
    cpu, bits = LEVELS[level]
    return Target(
        triple, cpu, "+prefer-256-bit" if level == "v3" else "-prefer-256-bit", bits,
        has_fma=level != "v2", has_f16c=level != "v2", masked=level == "v4",
        registers=32 if level == "v4" else 16,
    )


def _x86_base(triple: str) -> Target:
    """Any x86-64 CPU."""
    return x86("v2", triple)._replace(cpu="x86-64", features="")


def _neon(triple: str, cpu: str = "generic") -> Target:
    """Any AArch64 CPU."""
    return Target(
        triple, cpu, "", 128, has_fma=True, has_f16c=True, masked=False, registers=32
    )


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
        Platform("aarch64-linux-gnu", _neon("aarch64-unknown-linux-gnu"), "elf", ".so", _GLIBC,
                 threads=True),
        Platform("aarch64-linux-musl", _neon("aarch64-unknown-linux-musl"), "elf", ".so", _MUSL,
                 threads=True, stack=_STACK),
        Platform("riscv64-linux-gnu", _RISCV, "elf", ".so", _GLIBC, threads=True),
        Platform("armv7-linux-gnueabihf", _ARMV7, "elf", ".so", _GLIBC, threads=True,
                 libcalls=True),
        Platform("wasm32", _WASM, "wasm", ".wasm"),
        Platform("x86_64-windows-gnu", _x86_base("x86_64-w64-windows-gnu"), "coff", ".dll"),
        Platform("x86_64-macos", _x86_base("x86_64-apple-macosx11.0.0"), "macho", ".dylib"),
        Platform("aarch64-macos", _neon("arm64-apple-macosx11.0.0", "apple-m1")._replace(
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


def level_of(target: Target) -> str:
    """The name of a target's level, of those that its platform has."""
    if target.arch in X86:
        return next(level for level, (cpu, _) in LEVELS.items() if cpu == target.cpu)
    return "v8.2" if target.has_dot else "v8"


@cache
def native() -> Platform:
    """This machine's platform; for one that is not in the table, plain code without threads."""
    triple = host().triple
    found = platform_named(triple)
    if found is not None:
        return found._replace(base=found.base._replace(triple=triple))
    x86_64 = triple.startswith(X86)
    return Platform(triple, _x86_base(triple) if x86_64 else _neon(triple), "elf", ".so")


@cache
def host() -> Target:
    """This machine, lowered to a level by GRAPHC_CPU: v2, v3 or v4, v8 or v8.2 on AArch64."""
    level = os.environ.get("GRAPHC_CPU", "")
    if getattr(sys.implementation, "_multiarch", "") == "x86_64-linux-gnu":
        own = _linux_x86()
        if own is not None:
            return _lowered(own, level, "x86_64-unknown-linux-gnu")
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    if triple.startswith(X86):
        return _lowered(_x86_level({f for f, there in features.items() if there}), level, triple)
    known = platform_named(triple)
    base = known.base if known is not None else _neon(triple)
    if level and base.arch in ARM and level not in ARM_LEVELS:
        raise UsageError(f"GRAPHC_CPU={level!r}: expected v8 or v8.2")
    return base._replace(
        triple=triple, cpu=llvm.get_host_cpu_name(), features=features.flatten(),
        has_dot=base.arch in ARM and level != "v8" and bool(features.get("dotprod")),
    )


def _linux_x86() -> str | None:
    """The level that Linux says this machine has: LLVM, which knows it too, takes 20 ms to load."""
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return None
    return _x86_level(set(flags.partition(":")[2].split())) if flags else None


def _x86_level(features: set[str]) -> str:
    if features >= {"avx512vl", "avx512dq"}:
        return "v4"
    return "v3" if features >= {"avx2", "fma"} else "v2"


def _lowered(own: str, level: str, triple: str) -> Target:
    if level and level not in LEVELS:
        raise UsageError(f"GRAPHC_CPU={level!r}: expected v2, v3 or v4")
    return x86(min(level, own) if level else own, triple)
