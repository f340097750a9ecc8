"""Time per kernel: the program with a cycle counter read around every kernel call."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.codegen import fastcall, jit
from graphc.codegen.program import Kernel, Program
from graphc.codegen.target import Target
from graphc.ir import State

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KernelTime:
    """One kernel call of the entry point, averaged over the runs."""

    kernel: Kernel
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Seconds per call, as a whole and per kernel in the order they run; prints as a table."""

    name: str
    runs: int
    seconds: float
    kernels: tuple[KernelTime, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.seconds * 1e6:.1f} us a call, mean of {self.runs}"]
        width = max((len(k.kernel.name) for k in self.kernels), default=6)
        for k in sorted(self.kernels, key=lambda k: -k.seconds):
            share = k.seconds / self.seconds if self.seconds else 0.0
            lines.append(
                f"  {k.kernel.name:<{width}} {k.seconds * 1e6:10.1f} us {share:6.1%}"
                f"  {k.kernel.ops} ops"
            )
        return "\n".join(lines)


def instrument(program: Program) -> Program:
    """The same program, adding the ticks of its k-th kernel call to `@gx_ticks[k]`."""
    head = f"define i32 @{program.name}("
    start = program.llvm.index(head)
    end = program.llvm.index("\n}", start)
    call = re.compile(rf"  call void @{re.escape(program.name)}\.k\d+\(.*")
    lines = []
    count = 0
    for line in program.llvm[start:end].split("\n"):
        if not call.fullmatch(line):
            lines.append(line)
            continue
        lines += [
            f"  %tick{count}.a = call i64 @llvm.readcyclecounter()",
            line,
            f"  %tick{count}.b = call i64 @llvm.readcyclecounter()",
            f"  %tick{count}.d = sub i64 %tick{count}.b, %tick{count}.a",
            f"  %tick{count}.p = getelementptr i64, ptr @gx_ticks, i64 {count}",
            f"  %tick{count}.n = atomicrmw add ptr %tick{count}.p, i64 %tick{count}.d monotonic",
        ]
        count += 1
    text = (
        "declare i64 @llvm.readcyclecounter()\n"
        f"@gx_ticks = global [{max(1, len(program.kernels))} x i64] zeroinitializer\n"
        + program.llvm[:start] + "\n".join(lines) + program.llvm[end:]
    )
    return replace(program, llvm=text)


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
    """The status of the first run, and the profile of `runs` more if that was a success."""
    timed = instrument(program)
    native = fastcall.Native(
        timed, fastcall.compile_program(timed, target), target, states=states, threads=threads,
        exports=("gx_ticks",),
    )
    count = len(program.kernels)
    ticks = (ctypes.c_int64 * max(1, count)).from_address(native.address("gx_ticks"))
    if status := native.run(inputs, outputs, dims):
        return status, Profile(program.name, 0, 0.0, ())
    ctypes.memset(ticks, 0, ctypes.sizeof(ticks))
    # What a tick is depends on the machine; it follows from the time of the whole.
    start, first = time.perf_counter(), jit.cycles()
    for _ in range(runs):
        native.run(inputs, outputs, dims)
    seconds, elapsed = time.perf_counter() - start, jit.cycles() - first
    per_tick = seconds / elapsed if elapsed > 0 else 0.0
    return 0, Profile(
        program.name, runs, seconds / runs,
        tuple(
            KernelTime(k, ticks[i] * per_tick / runs) for i, k in enumerate(program.kernels)
        ),
    )
