"""The floating-point mode of a thread: its control word, kept, set, and changed for `fastmath`.

The control word says how to round and whether subnormal numbers count as zero. Workers of the
thread pool take the caller's over with every region (`pool`). `fastmath` permits subnormals as
zero for the time of a call: a multiply-add with a subnormal number costs some 150 cycles on x86,
and training makes many: the moments of a weight that gets no gradient any more decay to the least
number there is and stay. The caller's word is in force again afterwards. Small graphs that are one
straight function keep the caller's mode: setting it takes as long as they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import ARM, X86, Target


class Control(NamedTuple):
    """How an architecture reads and sets its control word, as LLVM text.

    read: makes %fp.all, an i32, from what is in force; %fp is an i32 in memory for that.
    write: the text that puts the i32 of a name in force.
    modes: its bits that are no sticky flags of exceptions.
    flush: the bits for subnormal numbers, results and operands, to count as zero; 0 where there
        are none.
    """

    declarations: str
    read: str
    write: Callable[[str], str]
    modes: int = -1
    flush: int = 0

    @property
    def save(self) -> str:
        """Makes %fp.word, an i32, of the modes in force."""
        return f"{self.read}\n  %fp.word = and i32 %fp.all, {self.modes}"


_X86 = Control(
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
    "  call void @llvm.x86.sse.stmxcsr(ptr %fp)\n  %fp.all = load i32, ptr %fp",
    lambda word: f"  store i32 {word}, ptr %fp\n  call void @llvm.x86.sse.ldmxcsr(ptr %fp)",
    modes=-64, flush=0x8040,  # FTZ and DAZ of MXCSR
)
_AARCH64 = Control(
    "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)",
    "  %fp.wide = call i64 @llvm.aarch64.get.fpcr()\n  %fp.all = trunc i64 %fp.wide to i32",
    lambda word: f"  {word}.wide = zext i32 {word} to i64\n"
    f"  call void @llvm.aarch64.set.fpcr(i64 {word}.wide)",
    flush=1 << 24,  # FZ of FPCR
)
_ARMV7 = Control(  # its vectors flush in any mode
    "declare i32 @llvm.arm.get.fpscr()\ndeclare void @llvm.arm.set.fpscr(i32)",
    "  %fp.all = call i32 @llvm.arm.get.fpscr()",
    lambda word: f"  call void @llvm.arm.set.fpscr(i32 {word})",
    modes=0x07C00000,
)
_RISCV = Control(
    "declare i32 @llvm.get.rounding()\ndeclare void @llvm.set.rounding(i32)",
    "  %fp.all = call i32 @llvm.get.rounding()",
    lambda word: f"  call void @llvm.set.rounding(i32 {word})",
)
CONTROLS = (
    dict.fromkeys(X86, _X86) | dict.fromkeys(ARM, _AARCH64)
    | {"armv7": _ARMV7, "riscv64": _RISCV}
)


def can_flush(target: Target) -> bool:
    """Whether the machine has such a mode that costs nothing; RISC-V and wasm have none."""
    return target.arch in CONTROLS and CONTROLS[target.arch].flush != 0


def define_flushed(module: Module, target: Target, name: str, inner: str) -> None:
    """The entry point `name` that calls the entry point `inner` and counts subnormals as zero."""
    control = CONTROLS[target.arch]
    for line in control.declarations.splitlines():
        module.declare(line.partition("@")[2].partition("(")[0], line)
    module.define(name, f"""define i32 @{name}(ptr %args, ptr %dims, ptr %arena) nounwind {{
entry:
  %fp = alloca i32, align 4
{control.read}
  %fp.flushed = or i32 %fp.all, {control.flush}
{control.write("%fp.flushed")}
  %status = call i32 @{inner}(ptr %args, ptr %dims, ptr %arena)
{control.write("%fp.all")}
  ret i32 %status
}}""")
