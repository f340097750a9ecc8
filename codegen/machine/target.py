"""What code is generated for: a `Target` is a CPU as kernels see it."""

from __future__ import annotations

import os
import sys
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from graphc.errors import UsageError
from graphc.types import DType

# x86-64 psABI levels -> (LLVM CPU, register bits to use)
LEVELS = {"v2": ("x86-64-v2", 128), "v3": ("x86-64-v3", 256), "v4": ("x86-64-v4", 512)}
X86 = ("x86_64", "amd64")
_V3 = frozenset(("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"))
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Cores that are faster by other code than most CPUs of their level.
ZEN3, ZEN4, ZEN5, GOLDEN_COVE = "Zen 3", "Zen 4", "Zen 5", "Golden Cove"
# LLVM's names of what Linux calls otherwise
_LINUX = {"abm": "lzcnt", "bmi1": "bmi", "amx_tile": "amx-tile"}
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
    core: str = ""            # ZEN3, ZEN4, ZEN5, GOLDEN_COVE

    def lanes(self, dtype: DType) -> int:
        """Elements of dtype's compute type in a register."""
        return self.vector_bits // max(8, dtype.compute.bits)

    @property
    def steps(self) -> bool:
        """Whether vectors that go side by side are kept in step (`Emitter.step`).

        Where values of all of them do not fit 16 registers, LLVM's scheduler computes one vector
        after the other to save some: chains of dependent instructions, one at a time, by which a
        polynomial of f32 takes Zen 1 half as long again, and erf a third.
        """
        return self.arch in X86 and self.registers == 16

    @property
    def adds_beside(self) -> bool:
        """Whether two sums and two products of whole vectors are begun in a cycle, for which eight
        chains are too few (`nests.costs`)."""
        return self.core == ZEN5 and self.vector_bits == 512

    @property
    def reads_apart(self) -> bool:
        """Whether pieces of rows come as fast as whole ones (see `matmul.block`)."""
        return self.core in (ZEN5, GOLDEN_COVE)

    @property
    def decodes_enough(self) -> bool:
        """Whether multiply-adds are never short of instructions (see `matmul.strips`)."""
        return self.core == GOLDEN_COVE

    @property
    def halves_divide(self) -> bool:
        """Whether two quotients of half a register come faster than a whole one (`nests.costs`)."""
        return self.core == GOLDEN_COVE and self.vector_bits == 512

    @property
    def reads_in_order(self) -> bool:
        """Whether far memory comes faster as one stream, of which what follows soon is asked for
        (`emission.bands`, `pieces`, `prefetch` and `streaming`, `matmul.dot` and `row`)."""
        return self.core == ZEN4

    @property
    def reads_lines_in_order(self) -> bool:
        """Likewise of rows of less than a cache line (`emission.bands`)."""
        return self.core in (ZEN4, ZEN5)

    @property
    def reads_streams(self) -> bool:
        """Whether far memory comes faster as some streams than as one (`emission.prefetch`)."""
        return self.core == ZEN3

    @property
    def reads_ahead(self) -> bool:
        """Whether what lies beyond a core's own cache comes faster if it is asked for some pages
        ahead (`emission.prefetch` and `streaming`, `matmul`: `dot`, `row` and `pair`)."""
        return self.core == ZEN5

    @property
    def keeps_long_rows(self) -> bool:
        """Whether a core's own cache is of 2 MiB (`emission.prefetch`)."""
        return self.core == GOLDEN_COVE

    @property
    def shares_32_mib(self) -> bool:
        """Whether that is the last cache of eight cores, in which transposes of more than a part of
        it lose lines before these are full (`emission.streaming`)."""
        return self.core in (ZEN3, ZEN4)

    @property
    def waits_for_lines(self) -> bool:
        """Whether ordinary stores to lines beyond the last cache, which read these first, take
        longer than others from the first such line on (`emission.streaming`)."""
        return self.core in (ZEN3, ZEN5)

    @property
    def loses_lines(self) -> bool:
        """Whether rows read side by side that share sets of the nearest cache push each other out
        (`matmul.row.define_add`)."""
        return not self.masked and self.core != ZEN3

    @property
    def masks_late(self) -> bool:
        """Whether comparisons take long to get into masks (see `emission.pieces`)."""
        return self.core == ZEN5 and self.masked

    @property
    def arch(self) -> str:
        return self.triple.split("-")[0]


def x86(level: str, triple: str = "x86_64-unknown-linux-gnu") -> Target:
    """An x86-64 psABI level."""
    cpu, bits = LEVELS[level]
    return Target(
        triple, cpu, "+prefer-256-bit" if level == "v3" else "-prefer-256-bit", bits,
        has_fma=level != "v2", has_f16c=level != "v2", masked=level == "v4",
        registers=32 if level == "v4" else 16,
    )


def neon(triple: str, cpu: str = "generic") -> Target:
    """Any AArch64 CPU."""
    return Target(
        triple, cpu, "", 128, has_fma=True, has_f16c=True, masked=False, registers=32
    )


def level_of(target: Target) -> str:
    """The name of a target's level, of those that its platform has."""
    if target.arch in X86:
        return next(level for level, (cpu, _) in LEVELS.items() if cpu == target.cpu)
    return "v8.2" if target.has_dot else "v8"


@cache
def host() -> Target:
    """This machine, lowered to a level by GRAPHC_CPU: v2, v3 or v4, v8 or v8.2 on AArch64."""
    level = os.environ.get("GRAPHC_CPU", "")
    if getattr(sys.implementation, "_multiarch", "") == "x86_64-linux-gnu":
        known = _linux_cpu()
        own = _linux_x86(known)
        if own is not None:
            return _lowered(own, level, "x86_64-unknown-linux-gnu", _linux_core(known))
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    if triple.startswith(X86):
        there = {f for f, has in features.items() if has}
        zen = {"znver3": ZEN3, "znver4": ZEN4, "znver5": ZEN5}.get(llvm.get_host_cpu_name(), "")
        core = _core(there, zen)
        return _lowered(_x86_level(there), level, triple, core)
    from graphc.codegen.machine.platforms import platform_named

    platform = platform_named(triple)
    base = platform.base if platform is not None else neon(triple)
    if level and base.arch in ARM and level not in ARM_LEVELS:
        raise UsageError(f"GRAPHC_CPU={level!r}: expected v8 or v8.2")
    return base._replace(
        triple=triple, cpu=llvm.get_host_cpu_name(), features=features.flatten(),
        has_dot=base.arch in ARM and level != "v8" and bool(features.get("dotprod")),
    )


def _linux_cpu() -> dict[str, str]:
    """What Linux says of the first CPU: LLVM, which knows it too, takes 20 ms to load."""
    try:
        with open("/proc/cpuinfo") as f:
            fields = [line.partition(":") for line in takewhile(str.strip, f)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in fields}


def _linux_x86(cpu: dict[str, str]) -> str | None:
    """The level of a CPU as Linux knows it, None if it does not."""
    found = _linux_features(cpu)
    return _x86_level(found) if found else None


def _linux_core(cpu: dict[str, str]) -> str:
    """The core of a CPU as Linux knows it."""
    features, zen = _linux_features(cpu), ""
    if cpu.get("vendor_id") == "AuthenticAMD":
        known = {"25": ZEN4 if "avx512f" in features else ZEN3, "26": ZEN5}
        zen = known.get(cpu.get("cpu family", ""), "")
    return _core(features, zen)


def _linux_features(cpu: dict[str, str]) -> set[str]:
    return {_LINUX.get(f, f) for f in cpu.get("flags", "").split()}


def _core(features: set[str], zen: str) -> str:
    """The core of a CPU with these features, by LLVM's names. A virtual machine may call it a model
    that it is not, but has no reason to claim features; Intel's servers have AMX since Sapphire
    Rapids, whose core is Golden Cove, and no one else has.
    """
    return zen or (GOLDEN_COVE if "amx-tile" in features else "")


def _x86_level(features: set[str]) -> str:
    """The highest level all of whose features, by LLVM's names, are there.

    A virtual machine may hide any of them. `lzcnt` would not even fail then, but find other bits.
    """
    if features >= _V4:
        return "v4"
    return "v3" if features >= _V3 else "v2"


def _lowered(own: str, level: str, triple: str, core: str) -> Target:
    if level and level not in LEVELS:
        raise UsageError(f"GRAPHC_CPU={level!r}: expected v2, v3 or v4")
    return x86(min(level, own) if level else own, triple)._replace(core=core)
