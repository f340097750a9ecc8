"""Lanes: constants, memory access with and without masks, failures, and what is emitted."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scalar_harness import at_level, compile_text, kernel_text, levels

from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.machine import llvm
from graphc.types import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8

LEVELS = levels()
_names = itertools.count()


def call(level: str, width: int, body: Callable[[Lanes, Emitter], None], *arrays: Any,
         active: int | None = None) -> None:
    """Run `body` once on pointers %p0, %p1, ...; `active` lanes of a masked tail."""
    target, name = at_level(level), f"lanes{next(_names)}"
    module = Module()
    e = Emitter(module)
    mask = None
    if active is not None:
        text = ", ".join(f"i1 {'true' if i < active else 'false'}" for i in range(width))
        mask = e(f"and <{width} x i1> splat (i1 true), <{text}>")
    body(Lanes(e, width, target, mask=mask), e)
    params = ", ".join(f"ptr %p{i}" for i in range(len(arrays)))
    module.define(name, f"define void @{name}({params}) {{\nentry:\n{e.text()}\n  ret void\n}}")
    address = compile_text(module.text(), name, target)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(address)(
        *(a.ctypes.data for a in arrays))


def numbers(d: DType, n: int) -> Any:
    if d is bool_:
        return np.arange(n) % 3 == 0
    return np.arange(1, n + 1).astype(d.numpy)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_masked_tail_touches_active_lanes_only(d: DType, level: str) -> None:
    width = 8
    for active in (1, 5, 8):
        page = numbers(d, width)
        out = np.zeros(width, d.numpy)
        call(level, width, lambda L, e: L.store(d, L.load(d, "%p0"), "%p1"), page, out,
             active=active)
        assert (out[:active] == page[:active]).all()
        assert (out[active:] == np.zeros(width - active, d.numpy)).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 4, 8])
def test_gather_scatter_splat(d: DType, level: str, width: int) -> None:
    x, index = numbers(d, 16), np.array([3, 0, 15, 7, 7, 2, 9, 1], np.int64)[:width]
    got, spread = np.zeros(width, d.numpy), np.zeros(width, d.numpy)

    def body(L: Lanes, e: Emitter) -> None:
        L.store(d, L.gather(d, "%p0", L.load(i64, "%p1")), "%p2")
        L.store(d, L.load_splat(d, "%p0"), "%p3")

    call(level, width, body, x, index, got, spread)
    assert (got == x[index]).all() and (spread == x[0]).all()
    out = np.zeros(16, d.numpy)
    call(level, width, lambda L, e: L.scatter(d, L.load(d, "%p0"), "%p2", L.load(i64, "%p1")),
         x[:width].copy(), index, out)
    want = np.zeros(16, d.numpy)
    for i, v in zip(index, x[:width], strict=True):
        want[i] = v  # equal positions: the last lane wins
    assert (out == want).all()


@pytest.mark.parametrize("level", LEVELS)
def test_masked_gather_reads_no_inactive_address(level: str) -> None:
    x = numbers(f32, 4)
    index = np.array([1, 2, 1 << 60, 1 << 60], np.int64)
    out = np.zeros(4, np.float32)
    call(level, 4, lambda L, e: L.store(f32, L.gather(f32, "%p0", L.load(i64, "%p1")), "%p2"),
         x, np.concatenate([index, index]), out, active=2)
    assert (out == [2, 3, 0, 0]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_masked_lanes_never_fail_or_trap(level: str) -> None:
    """The divisors of inactive lanes read as 0: no failure is reported, nothing traps."""
    x = np.array([7, -8, 9, 10], np.int64)
    failed = np.zeros(4, np.bool_)
    for active in (2, 3):
        for d in (i64, i32, i8):
            a = x.astype(d.numpy)
            out = np.zeros(4, d.numpy)
            conds: list[str] = []

            def body(L: Lanes, e: Emitter, d: DType = d, conds: list[str] = conds) -> None:
                M = Lanes(e, 4, L.target, fail=conds.append, mask=L.mask)
                y = emit(M, "div", [M.load(d, "%p0"), M.load(d, "%p0")], [d, d], d, {})
                M.store(d, y, "%p1")
                Lanes(e, 4, L.target).store(bool_, conds[0], "%p2")

            call(level, 4, body, a, out, failed, active=active)
            assert (out[:active] == 1).all() and not failed.any()


@pytest.mark.parametrize("width", [1, 8])
def test_constants(width: int) -> None:
    cases: list[tuple[DType, Any, Any]] = [
        (f32, 0.1, np.float32(0.1)), (f64, -0.0, np.float64(-0.0)),
        (f32, np.inf, np.float32("inf")),
        (f32, 1e300, np.float32("inf")), (f16, 0.1, np.float16(0.1)), (f16, 1e6, np.float16("inf")),
        (u8, 255, np.uint8(255)), (i8, -128, np.int8(-128)), (u8, 300, np.uint8(44)),
        (i64, -(2**63), np.int64(-(2**63))), (bool_, True, np.True_),
        (f64, np.nan, np.float64("nan")),
        (bf16, 0.1, np.float32(0.1).astype(bf16.numpy)), (f32, 2.0**-149, np.float32(2.0**-149)),
    ]
    for d, v, want in cases:
        out = np.zeros(width, d.numpy)
        call(LEVELS[0], width, lambda L, e, d=d, v=v: L.store(d, L.const(d, v), "%p0"), out)
        assert out.tobytes() == np.full(width, want, d.numpy).tobytes(), (d, v, out)


def test_lane_index() -> None:
    start, out = np.array([40], np.int64), np.zeros(8, np.int64)

    def body(L: Lanes, e: Emitter) -> None:
        L.store(i64, L.lane_index(e("load i64, ptr %p0")), "%p1")

    call(LEVELS[-1], 8, body, start, out)
    assert (out == np.arange(40, 48)).all()


def test_a_mask_needs_lanes() -> None:
    with pytest.raises(ValueError, match="more than one lane"):
        Lanes(Emitter(Module()), 1, at_level(LEVELS[0]), mask="%m")


FLOAT_OPS = [
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "atan", "erf",
    "log2", "log10", "tan", "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos",
    "normal_cdf", "lgamma", "cbrt",
    "floor", "ceil", "round", "polygamma", "pow", "atan2", "rem", "add", "div",
]


@pytest.mark.parametrize("level", LEVELS)
def test_no_library_is_called(level: str) -> None:
    """Neither libm nor compiler-rt: every call in the assembly goes to our own functions."""
    target = at_level(level)
    cases = [(op, d, d) for op in FLOAT_OPS for d in (f16, bf16, f32, f64)]
    cases += [("cast", a, b) for a in DTYPES for b in DTYPES]
    cases += [(op, d, d) for op in ("div", "rem", "pow") for d in DTYPES if d.is_int]
    for op, d, out in cases:
        ins = [d] * (2 if op in ("pow", "atan2", "rem", "add", "div") else 1)
        text = kernel_text(lambda L, a, op=op, ins=ins, out=out: emit(L, op, a, ins, out, {"n": 1}),
                           ins, out, max(4, target.lanes(out)), target, "k")
        asm = llvm.assembly(text, target)
        called = set(re.findall(r"\b(?:call|jmp)q?\s+\*?([A-Za-z_][\w.]*)", asm))
        assert all(c.startswith("graphc.") for c in called), (op, d, out, called)


def test_fastmath_marks_arithmetic_only() -> None:
    target = at_level(LEVELS[0])
    for fast in (False, True):
        text = kernel_text(lambda L, a: emit(L, "mul", a, [f32, f32], f32, {}), [f32, f32], f32, 4,
                           target, "k", fastmath=fast)
        assert ("fmul reassoc arcp contract" in text) == fast
        text = kernel_text(lambda L, a: emit(L, "exp", a, [f32], f32, {}), [f32], f32, 4, target,
                           "k", fastmath=fast)
        assert "reassoc" not in text
