"""Time per kernel: the program with a cycle counter read around every kernel call."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from graphc.codegen.calling import fastcall
from graphc.codegen.machine import jit
from graphc.codegen.machine.target import Target
from graphc.codegen.program import Kernel, Program
from graphc.codegen.waves import TICKS
from graphc.errors import Loc
from graphc.ir import State
from graphc.types import Array


@dataclass(frozen=True)
class KernelTime:
    """What one kernel of the entry point took in all runs together."""

    kernel: Kernel
    calls: int
    total: float  # seconds
    share: float  # of the whole

    @property
    def mean(self) -> float:
        """Seconds a call."""
        return self.total / self.calls if self.calls else 0.0

    @property
    def nest(self) -> str:
        """The head of the loop nest."""
        return self.kernel.text.split("\n", 1)[0].rstrip(":")

    @property
    def lines(self) -> str:
        """The user's lines that the kernel computes: `digits.py:9-11,14 nn.py:3`."""
        return _ranges(self.kernel.lines)


@dataclass(frozen=True)
class Profile:
    """Seconds per call, as a whole and per kernel in the order they run; prints as a table.

    Kernels that run side by side count in full each, so that shares may add up to more than 1.
    """

    name: str
    runs: int
    seconds: float  # a call
    kernels: tuple[KernelTime, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.seconds * 1e6:.1f} us a call, mean of {self.runs}"]
        width = max((len(k.kernel.name) for k in self.kernels), default=6)
        head = f"  {'kernel':<{width}} {'calls':>6} {'total ms':>9} {'mean us':>9} {'share':>6}"
        lines.append(f"{head} {'ops':>4}  loops, lines")
        for k in sorted(self.kernels, key=lambda k: -k.total):
            row = (
                f"  {k.kernel.name:<{width}} {k.calls:6} {k.total * 1e3:9.3f} {k.mean * 1e6:9.1f} "
                f"{k.share:6.1%} {k.kernel.ops:4}  {k.nest}  {k.lines}"
            )
            lines.append(row.rstrip())
        return "\n".join(lines)


def measure(
    program: Program,
    target: Target,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    dims: Mapping[str, int],
    states: Sequence[State],
    runs: int,
    threads: int | None = None,
) -> tuple[int, Profile]:
    """The status of the first run of a timed program, and the profile of `runs` more."""
    native = fastcall.Native(
        fastcall.compile_program(program, target), target, states=states, threads=threads,
        exports=(TICKS,),
    )
    count = len(program.kernels)
    ticks = (ctypes.c_int64 * max(1, count)).from_address(native.address(TICKS))
    if status := native.run(inputs, outputs, dims):
        return status, Profile(program.name, 0, 0.0, ())
    ctypes.memset(ticks, 0, ctypes.sizeof(ticks))
    # What a tick is depends on the machine; it follows from the time of the whole.
    start, first = time.perf_counter(), jit.cycles()
    for _ in range(runs):
        native.run(inputs, outputs, dims)
    seconds, elapsed = time.perf_counter() - start, jit.cycles() - first
    return 0, Profile(
        program.name, runs, seconds / runs,
        tuple(
            KernelTime(k, runs, seconds * ticks[i] / elapsed, ticks[i] / elapsed)
            for i, k in enumerate(program.kernels)
        ),
    )


def _ranges(lines: Sequence[Loc]) -> str:
    """Lines by file, neighbours as ranges."""
    parts = []
    for _, locs in groupby(sorted(lines), key=lambda loc: loc.file):
        spans: list[list[int]] = []
        for loc in (found := list(locs)):
            if spans and loc.line == spans[-1][1] + 1:
                spans[-1][1] = loc.line
            else:
                spans.append([loc.line, loc.line])
        name = str(found[0]).rpartition(":")[0]
        parts.append(name + ":" + ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans))
    return " ".join(parts)
