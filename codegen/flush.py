"""Subnormal numbers as zero, for the time of a call: part of what `fastmath` permits.

A multiply-add with a subnormal number costs some 150 cycles on x86, and training makes many: the
moments of a weight that gets no gradient any more decay to the least number there is and stay.
The control word is the caller's again afterwards; workers take it over with every region. Small
graphs that are one straight function keep the caller's: setting it takes as long as they do.
"""

from __future__ import annotations

from graphc.codegen.emitter import Emitter, Module
from graphc.codegen.target import ARM, X86, Target

X86_FLUSH = 0x8040    # of MXCSR: results (FTZ) and operands (DAZ) that are subnormal count as zero
ARM_FLUSH = 1 << 24   # of FPCR: FZ


def can_flush(target: Target) -> bool:
    """Whether the machine has such a mode that costs nothing; RISC-V and wasm have none."""
    return target.arch in X86 or target.arch in ARM


def define_flushed(module: Module, target: Target, name: str, inner: str) -> None:
    """The entry point `name` that calls the entry point `inner` and counts subnormals as zero."""
    e = Emitter(module)
    e.label("entry")
    call = f"call i32 @{inner}(ptr %args, ptr %dims, ptr %arena)"
    if target.arch in X86:
        for op in ("stmxcsr", "ldmxcsr"):
            module.declare(f"llvm.x86.sse.{op}", f"declare void @llvm.x86.sse.{op}(ptr)")
        kept, word = e("alloca i32, align 4"), e("alloca i32, align 4")
        e.do(f"call void @llvm.x86.sse.stmxcsr(ptr {kept})")
        flushed = e(f"or i32 {e(f'load i32, ptr {kept}, align 4')}, {X86_FLUSH}")
        e.do(f"store i32 {flushed}, ptr {word}, align 4")
        e.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {word})")
        status = e(call)
        e.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {kept})")
    else:
        module.declare("llvm.aarch64.get.fpcr", "declare i64 @llvm.aarch64.get.fpcr()")
        module.declare("llvm.aarch64.set.fpcr", "declare void @llvm.aarch64.set.fpcr(i64)")
        kept = e("call i64 @llvm.aarch64.get.fpcr()")
        e.do(f"call void @llvm.aarch64.set.fpcr(i64 {e(f'or i64 {kept}, {ARM_FLUSH}')})")
        status = e(call)
        e.do(f"call void @llvm.aarch64.set.fpcr(i64 {kept})")
    e.do(f"ret i32 {status}")
    module.define(
        name,
        f"define i32 @{name}(ptr %args, ptr %dims, ptr %arena) nounwind {{\n{e.text()}\n}}",
    )
