"""What code is generated for: triple, CPU, features, and what follows from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from graphc.errors import UsageError
from graphc.types import DType

# x86-64 psABI levels -> (LLVM CPU, register bits to use)
LEVELS = {"v2": ("x86-64-v2", 128), "v3": ("x86-64-v3", 256), "v4": ("x86-64-v4", 512)}
# Partial sums use 4 x 64 bytes of virtual lanes on every target, so results do not depend on it.
VIRTUAL_BITS = 4 * 512


@dataclass(frozen=True)
class Target:
    """A machine: `vector_bits` is the register width that kernels are written for."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    has_fma: bool
    has_f16c: bool            # hardware f16 <-> f32 conversion
    masked: bool              # cheap masked loads and stores (AVX-512)
    registers: int            # vector registers

    def lanes(self, dtype: DType) -> int:
        """Elements of dtype's compute type in a register."""
        return self.vector_bits // max(8, dtype.compute.bits)

    @property
    def arch(self) -> str:
        return self.triple.split("-")[0]


@cache
def host() -> Target:
    """This machine, lowered to a level by GRAPHC_CPU=v2|v3|v4."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    cpu = llvm.get_host_cpu_name()
    level = os.environ.get("GRAPHC_CPU", "")
    if triple.startswith(("x86_64", "amd64")):
        own = "v4" if features.get("avx512vl") and features.get("avx512dq") else (
            "v3" if features.get("avx2") and features.get("fma") else "v2"
        )
        if level and level not in LEVELS:
            raise UsageError(f"GRAPHC_CPU={level!r}: expected v2, v3 or v4")
        return x86(min(level, own) if level else own, triple)
    return Target(
        triple, cpu, features.flatten(), 128, has_fma=True, has_f16c=True, masked=False,
        registers=32,
    )


def x86(level: str, triple: str = "x86_64-unknown-linux-gnu") -> Target:
    """An x86-64 psABI level."""
    cpu, bits = LEVELS[level]
    return Target(
        triple, cpu, "+prefer-256-bit" if level == "v3" else "-prefer-256-bit", bits,
        has_fma=level != "v2", has_f16c=level != "v2", masked=level == "v4",
        registers=32 if level == "v4" else 16,
    )
