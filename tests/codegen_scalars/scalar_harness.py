"""Compile one elementwise op into a loop over arrays and run it: the tests' harness."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_type
from graphc.codegen.machine import jit, llvm
from graphc.codegen.machine.target import Target, host, x86
from graphc.types import DType, bool_

Body = Callable[[Lanes, Sequence[str]], str]
_names = itertools.count()
_keep: list[jit.Code] = []


def levels() -> list[str]:
    """The x86-64 levels that this machine can run, lowest first."""
    own = {128: 1, 256: 2, 512: 3}[host().vector_bits]
    return ["v2", "v3", "v4"][:own]


@cache
def at_level(level: str) -> Target:
    return x86(level, host().triple)


def kernel_text(
    body: Body, ins: Sequence[DType], out: DType, width: int, target: Target, name: str,
    fastmath: bool = False,
) -> str:
    """A module with `void NAME(i64 n, ptr fail, ptr out, ptr in...)`, n a multiple of width."""
    module = Module()
    e = Emitter(module)
    fail_bytes: list[str] = []
    lanes = Lanes(e, width, target, fastmath=fastmath, fail=fail_bytes.append)
    e.do("br label %loop")
    e.label("loop")
    e.do("%i = phi i64 [0, %entry], [%next, %latch]")

    def at(base: str, d: DType) -> str:
        return e(f"getelementptr {memory_type(d)}, ptr {base}, i64 %i")

    args = [lanes.load(d, at(f"%a{k}", d)) for k, d in enumerate(ins)]
    lanes.store(out, body(lanes, args), at("%out", out))
    for cond in fail_bytes:
        lanes.store(bool_, cond, at("%fail", bool_))
    e.do("br label %latch")
    e.label("latch")
    e.do(f"%next = add i64 %i, {width}")
    e.do("%more = icmp ult i64 %next, %n")
    e.do("br i1 %more, label %loop, label %done, !llvm.loop !0")
    e.label("done")
    e.do("ret void")
    params = "".join(f", ptr %a{k}" for k in range(len(ins)))
    module.define(name, f"define void @{name}(i64 %n, ptr %fail, ptr %out{params}) nounwind "
                        f"{{\nentry:\n{e.text()}\n}}")
    return module.text()


def compile_text(text: str, name: str, target: Target) -> int:
    """The address of a function of a module."""
    code = jit.load([llvm.compile_object(text, target, use_cache=False)], exports=[name])
    _keep.append(code)
    return code[name]


def loop_text(op: str, ins: Sequence[DType], out: DType, width: int, level: str) -> str:
    """The LLVM text of a loop over an op."""
    return kernel_text(lambda L, args: emit(L, op, args, ins, out, {}), ins, out, width,
                       at_level(level), "f")


@cache
def loop(
    op: str, ins: tuple[DType, ...], out: DType, width: int, level: str,
    attrs: tuple[tuple[str, Any], ...] = (), first: float | None = None, last: int | None = None,
) -> Any:
    """The compiled `f(n, failed, result, operands...)` on addresses of arrays.

    first, last: a number that stands before or behind the operands.
    """
    name, target = f"k{next(_names)}", at_level(level)

    def body(L: Lanes, args: Sequence[str]) -> str:
        if last is not None:
            return emit(L, op, [*args, L.const(out, last)], [*ins, out], out, dict(attrs))
        if first is None:
            return emit(L, op, args, ins, out, dict(attrs))
        return emit(L, op, [L.const(out, first), *args], [out, *ins], out, dict(attrs))

    text = kernel_text(body, ins, out, width, target, name)
    types = [ctypes.c_int64] + [ctypes.c_void_p] * (2 + len(ins))
    return ctypes.CFUNCTYPE(None, *types)(compile_text(text, name, target))


def run(
    op: str, arrays: Sequence[np.ndarray], ins: Sequence[DType], out: DType, *,
    level: str, width: int, attrs: Mapping[str, Any] | None = None, first: float | None = None,
    last: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(result, which elements failed) of `op`, native; the arrays are padded to whole registers."""
    n = len(arrays[0])
    padded = -(-n // width) * width
    data = [np.resize(np.ascontiguousarray(a), padded) for a in arrays]
    result = np.empty(padded, out.numpy)
    failed = np.zeros(padded, np.bool_)
    f = loop(op, tuple(ins), out, width, level, tuple((attrs or {}).items()), first, last)
    f(padded, failed.ctypes.data, result.ctypes.data, *(a.ctypes.data for a in data))
    return result[:n], failed[:n]
