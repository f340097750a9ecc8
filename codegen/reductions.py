"""Reductions: what is accumulated, how partial results meet, and in which fixed order.

A state is a list of registers. Sums and products of 16-bit floats accumulate in f32 and are
rounded once. Lanes are folded in halves: lane i meets lane i + n/2 of the VIRTUAL_BITS of lanes,
whatever the register width, so every CPU level adds in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphc.codegen import casts
from graphc.codegen.halves import narrow_to_odd
from graphc.codegen.lanes import Lanes, register_type
from graphc.codegen.loops import Expr
from graphc.codegen.scalars import emit
from graphc.types import DType, f16, f64

LAST = (1 << 63) - 1


@dataclass(frozen=True)
class Reduction:
    """One reduction over a dtype."""

    name: str
    dtype: DType

    @property
    def types(self) -> tuple[str, ...]:
        """LLVM scalar types of the state."""
        t = register_type(self.dtype)
        return (t, "i64") if self.name == "argmax" else (t,)

    def identity(self) -> tuple[float | int, ...]:
        if self.name in ("reduce_sum", "cumsum"):
            return (0,)
        if self.name in ("reduce_prod", "cumprod"):
            return (1,)
        d = self.dtype
        top = self.name == "reduce_min"
        if d.is_float:
            low: float | int = float("inf") if top else float("-inf")
        else:
            info = np.iinfo(d.numpy)
            low = int(info.max if top else info.min)
        return (low, LAST) if self.name == "argmax" else (low,)

    def start(self, L: Lanes) -> list[str]:
        return [L.k(t, v) for t, v in zip(self.types, self.identity(), strict=True)]

    def merge(self, L: Lanes, a: Sequence[str], b: Sequence[str]) -> list[str]:
        """Both states in one; a stands before b."""
        d, t = self.dtype, self.types[0]
        if self.name in ("reduce_sum", "cumsum"):
            return [L.op("fadd" if d.is_float else "add", t, a[0], b[0])]
        if self.name in ("reduce_prod", "cumprod"):
            return [L.op("fmul" if d.is_float else "mul", t, a[0], b[0])]
        if self.name in ("reduce_max", "cummax"):
            return [emit(L, "maximum", [a[0], b[0]], [d, d], d, {})]
        if self.name == "reduce_min":
            return [emit(L, "minimum", [a[0], b[0]], [d, d], d, {})]
        if d.is_float:
            better = L.cmp("ogt", t, b[0], a[0])
            nan_a, nan_b = L.cmp("uno", t, a[0], a[0]), L.cmp("uno", t, b[0], b[0])
            better = L.op("or", "i1", better, L.op("and", "i1", nan_b, L.negate(nan_a)))
            same = L.cmp("oeq", t, a[0], b[0])
            same = L.op("or", "i1", same, L.op("and", "i1", nan_a, nan_b))
        else:
            better = L.cmp("sgt" if d.kind == "i" else "ugt", t, b[0], a[0])
            same = L.cmp("eq", t, a[0], b[0])
        earlier = L.op("and", "i1", same, L.cmp("slt", "i64", b[1], a[1]))
        take = L.op("or", "i1", better, earlier)
        return [L.select(take, t, b[0], a[0]), L.select(take, "i64", b[1], a[1])]

    def step(self, L: Lanes, state: Sequence[str], x: Sequence[str]) -> list[str]:
        """The state with one more element in every active lane."""
        new = self.merge(L, state, x)
        if L.mask is None:
            return new
        return [
            L.select(L.mask, t, n, s) for t, n, s in zip(self.types, new, state, strict=True)
        ]

    def first(self, L: Lanes, x: Sequence[str]) -> list[str]:
        """The state after one element in every active lane: `step` from `start`, with less code
        (a sum of floats does need its zero: 0 + -0 is 0)."""
        start = self.start(L)
        if self.dtype.is_float and self.name == "reduce_sum":
            return self.step(L, start, x)
        if L.mask is None:
            return list(x)
        return [L.select(L.mask, t, n, s) for t, n, s in zip(self.types, x, start, strict=True)]

    def fold(self, L: Lanes, vectors: list[list[str] | None]) -> list[str]:
        """A scalar state from vector states; None stands for vectors no element reached."""
        n = len(vectors)
        while n > 1:
            n //= 2
            for k in range(n):
                a, b = vectors[k], vectors[k + n]
                if a is not None and b is not None:
                    vectors[k] = self.merge(L, a, b)
                elif a is None:
                    vectors[k] = b
        state = vectors[0]
        assert state is not None
        h = L.width
        while h > 1:
            h //= 2
            order = ", ".join(f"i32 {(k + h) % L.width}" for k in range(L.width))
            high = [
                L.e(
                    f"shufflevector {L.vec(t)} {r}, {L.vec(t)} poison, <{L.width} x i32> <{order}>"
                )
                for t, r in zip(self.types, state, strict=True)
            ]
            state = self.merge(L, state, high)
        if L.width == 1:
            return state
        return [
            L.e(f"extractelement {L.vec(t)} {r}, i64 0")
            for t, r in zip(self.types, state, strict=True)
        ]

    def finish(self, L: Lanes, state: Sequence[str], out: DType) -> str:
        """The result from a state."""
        if self.name == "argmax":
            return state[1]
        return casts.round_to(L, out, state[0])

    def accumulate(self, L: Lanes, cell: str, x: Sequence[str]) -> None:
        """Add one more element of every active lane to the state stored at `cell`."""
        (t,) = self.types
        v, m = L.vec(t), L.vec("i1")
        if L.mask is None:
            old = L.e(f"load {v}, ptr {cell}, align 4")
            L.e.do(f"store {v} {self.merge(L, [old], x)[0]}, ptr {cell}, align 4")
            return
        load, store = f"llvm.masked.load.{L.suffix(t)}.p0", f"llvm.masked.store.{L.suffix(t)}.p0"
        L.e.module.declare(load, f"declare {v} @{load}(ptr, i32, {m}, {v})")
        L.e.module.declare(store, f"declare void @{store}({v}, ptr, i32, {m})")
        old = L.e(
            f"call {v} @{load}(ptr {cell}, i32 4, {m} {L.mask}, {v} zeroinitializer)"
        )
        (new,) = self.merge(L, [old], x)
        L.e.do(f"call void @{store}({v} {new}, ptr {cell}, i32 4, {m} {L.mask})")

    @property
    def wide(self) -> Reduction:
        """What totals over items accumulate in: sums of floats in f64."""
        return Reduction(self.name, f64) if self.widens else self

    @property
    def widens(self) -> bool:
        return self.name == "reduce_sum" and self.dtype.is_float and self.dtype.bits < 64

    def widen(self, L: Lanes, state: Sequence[str]) -> list[str]:
        if not self.widens:
            return list(state)
        return [L.convert("fpext", state[0], "float", "double")]

    def narrow(self, L: Lanes, state: Sequence[str]) -> list[str]:
        if not self.widens:
            return list(state)
        if self.dtype is f16:  # LLVM may make one rounding of two, by a function of its library
            return [narrow_to_odd(L, state[0])]
        return [L.convert("fptrunc", state[0], "double", "float")]


def reduction_of(e: Expr) -> Reduction:
    """The reduction that a `reduce` or `scan` expression stands for."""
    return Reduction(e.attrs[0], e.args[0].dtype if e.attrs[0] == "argmax" else e.dtype)
