"""Reductions: what is accumulated, how partial results meet, and in which fixed order.

A state is a list of registers. Sums and products of 16-bit floats accumulate in f32 and are
rounded once. Lanes are folded in halves: lane i meets lane i + n/2 of the VIRTUAL_BITS of lanes,
whatever the register width, so every CPU level adds in the same order.

An argmax keeps, in each lane, the greatest element so far and the number of the group of lanes
that it came in; which of several equal ones is first is settled when the lanes are folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphc.codegen.elementwise import casts
from graphc.codegen.elementwise.halves import narrow_to_odd
from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.loops import Expr
from graphc.types import DType, bool_, f16, f64


@dataclass(frozen=True)
class Reduction:
    """One reduction over a dtype."""

    name: str
    dtype: DType
    position: str = "i64"  # type of an argmax's positions
    tells: bool = False  # whether its state says if there was no NaN, as a mask

    @property
    def types(self) -> tuple[str, ...]:
        """LLVM scalar types of the state."""
        t = register_type(self.dtype)
        if self.name != "argmax":
            return (t,)
        return (t, self.position, "i1") if self.tells else (t, self.position)

    @property
    def in_memory(self) -> tuple[str, ...]:
        """Those of a state outside the loop whose states stay in registers."""
        return replace(self, tells=False).types

    @property
    def in_lanes(self) -> Reduction:
        """What a sweep accumulates: an argmax's lanes count groups, no wider than its elements.

        2**31 groups are 2**37 elements of 32 bits.
        """
        wide = self.dtype.compute.bits == 64 if self.dtype.is_float else self.dtype.bits == 64
        return Reduction(self.name, self.dtype, "i64" if wide else "i32")

    def in_registers(self, target: Target) -> Reduction:
        """What a loop accumulates whose states stay in registers: an argmax says in a mask, where
        that is one, if there was no NaN. To ask that of the greatest element would hold up the next
        by a second comparison: 8 x 131072 f64 take 130 us then, and 97 so."""
        if self.name != "argmax" or not self.dtype.is_float or not target.masked:
            return self
        return replace(self, tells=True)

    def entered(self, L: Lanes, state: Sequence[str]) -> list[str]:
        """A state as the loop's that `in_registers` is for; it begins with the state outside."""
        if not self.tells:
            return list(state)
        return [*state, L.cmp("ord", self.types[0], state[0], state[0])]

    @property
    def in_block(self) -> Reduction:
        """What a sweep over a block of short integers accumulates: positions are as wide as these,
        since 2**12 of 8 bits are 16 groups, and of 16 bits 32."""
        return Reduction(self.name, self.dtype, f"i{self.dtype.bits}")

    def exceeds(self, L: Lanes, x: str, y: str) -> str:
        """Whether an argmax's element x takes the place of an earlier y: if it is greater, or the
        first NaN."""
        d, t = self.dtype, self.types[0]
        if d.is_float:
            return L.op("and", "i1", L.cmp("ugt", t, x, y), L.cmp("ord", t, y, y))
        return L.cmp("sgt" if d.kind == "i" else "ugt", t, x, y)

    @property
    def absorbed(self) -> bool:
        """Whether a state of 0 is the last one."""
        return self.name == "reduce_and" or (
            self.name == "reduce_prod" and not self.dtype.is_float
        )

    @property
    def associative(self) -> bool:
        """Whether neighbours may be merged first: a float's sums and products round."""
        return not self.dtype.is_float or self.name not in ("reduce_sum", "reduce_prod")

    @property
    def unordered(self) -> bool:
        """Whether elements may come in any order. Of zeros that differ in their signs the last one
        is the greatest, and the least, so that order tells."""
        return self.name == "argmax" or not self.dtype.is_float

    @property
    def short(self) -> bool:
        """Whether elements are integers of few enough bits to be counted within a block alone."""
        return not self.dtype.is_float and self.dtype.bits <= 16

    def top(self, e: Expr) -> int:
        """What no element of the argmax `e` exceeds, where they are short."""
        x = e.args[0]
        if x.kind == "op" and x.name == "cast" and x.args[0].dtype is bool_:
            return 1
        return int(np.iinfo(self.dtype.numpy).max)

    def counting(self, rows: int | None) -> Reduction:
        """What columns of at most so many rows accumulate: an argmax counts these in integers as
        wide as its elements, if they do. Masks of elements serve both then."""
        bits = self.dtype.compute.bits
        if self.name != "argmax" or rows is None or rows > 1 << bits:
            return self
        return replace(self, position=f"i{bits}")

    def numbered(self, L: Lanes, number: str) -> list[str]:
        """What follows an element in a state, for the row of that number, an i64."""
        if self.name != "argmax":
            return []
        p = self.position
        return [L.spread(p, number if p == "i64" else L.e(f"trunc i64 {number} to {p}"))]

    def within(self, L: Lanes, state: Sequence[str], first: str) -> list[str]:
        """A state of all rows as one of those from row `first` on."""
        if self.name != "argmax":
            return list(state)
        near, p = L.op("sub", "i64", state[1], L.spread("i64", first)), self.position
        return [state[0], near if p == "i64" else L.convert("trunc", near, "i64", p)]

    def behind(self, L: Lanes, state: Sequence[str], first: str) -> list[str]:
        """A state of the rows from row `first` on as one of all rows."""
        if self.name != "argmax":
            return list(state)
        p = self.position
        far = state[1] if p == "i64" else L.convert("zext", state[1], p, "i64")
        return [state[0], L.op("add", "i64", L.spread("i64", first), far)]

    def identity(self) -> tuple[float | int, ...]:
        """The state of no elements, as numbers."""
        if self.name in ("reduce_sum", "cumsum", "linear_recurrence"):
            return (0,)
        if self.name in ("reduce_prod", "cumprod"):
            return (1,)
        if self.name == "reduce_and":
            return (-1,)
        d = self.dtype
        top = self.name == "reduce_min"
        if d.is_float:
            low: float | int = float("inf") if top else float("-inf")
        else:
            info = np.iinfo(d.numpy)
            low = int(info.max if top else info.min)
        # an element that does not exceed this is the first, if it is the greatest at all
        return (low, 0, 1)[: len(self.types)]

    def start(self, L: Lanes) -> list[str]:
        """The state of no elements."""
        return [L.k(t, v) for t, v in zip(self.types, self.identity(), strict=True)]

    def merge(self, L: Lanes, a: Sequence[str], b: Sequence[str]) -> list[str]:
        """Both states in one; of equal elements an argmax takes the earlier position."""
        d, t = self.dtype, self.types[0]
        if self.name in ("reduce_sum", "cumsum"):
            return [L.op("fadd" if d.is_float else "add", t, a[0], b[0])]
        if self.name in ("reduce_prod", "cumprod"):
            return [L.op("fmul" if d.is_float else "mul", t, a[0], b[0])]
        if self.name == "reduce_and":
            return [L.op("and", t, a[0], b[0])]
        if self.name in ("reduce_max", "cummax"):
            return [emit(L, "maximum", [a[0], b[0]], [d, d], d, {})]
        if self.name in ("greatest", "least") and d.is_float:  # of numbers: one instruction
            better = "ogt" if self.name == "greatest" else "olt"
            return [L.select(L.cmp(better, t, a[0], b[0]), t, a[0], b[0])]
        if self.name == "greatest":
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
        numbers = [L.op("and", "i1", a[2], b[2])] if self.tells else []
        return [L.select(take, t, b[0], a[0]), L.select(take, "i64", b[1], a[1]), *numbers]

    def follow(self, L: Lanes, state: Sequence[str], x: Sequence[str]) -> list[str]:
        """The state with one more element, which stands behind those in the state: of a recurrence
        a factor of the state, and a term."""
        if self.name == "linear_recurrence":
            d, t, (factor, term) = self.dtype, self.types[0], x
            mul, add = ("fmul", "fadd") if d.is_float else ("mul", "add")
            return [L.op(add, t, L.op(mul, t, factor, state[0]), term)]
        if self.name != "argmax":
            return self.merge(L, state, x)
        more = []
        if self.tells:
            t, numbers = self.types[0], state[2]
            take = L.op("and", "i1", L.cmp("ugt", t, x[0], state[0]), numbers)
            more = [L.op("and", "i1", L.cmp("ord", t, x[0], x[0]), numbers)]
        else:
            take = self.exceeds(L, x[0], state[0])
        return [*(
            L.select(take, ty, b, a) for ty, a, b in zip(self.types[:2], state[:2], x, strict=True)
        ), *more]

    def step(self, L: Lanes, state: Sequence[str], x: Sequence[str]) -> list[str]:
        """The state with one more element in every active lane, behind those in the state."""
        new = self.follow(L, state, x)
        if L.mask is None:
            return new
        return [
            L.select(L.mask, t, n, s) for t, n, s in zip(self.types, new, state, strict=True)
        ]

    def first(self, L: Lanes, x: Sequence[str]) -> list[str]:
        """The state after one element in every active lane: `step` from `start`, with less code.
        What is made of such states is `begun` at its end."""
        if L.mask is None:
            return list(x)
        start = self.start(L)
        return [L.select(L.mask, t, n, s) for t, n, s in zip(self.types, x, start, strict=True)]

    def begun(self, L: Lanes, state: list[str]) -> list[str]:
        """A state that did begin from nothing: sums of floats are never -0 then.

        (0 + a) + (0 + b) is 0 + (a + b), to the bit, so that one 0 does for all lanes.
        """
        if self.dtype.is_float and self.name == "reduce_sum":
            return self.merge(L, self.start(L), state)
        return state

    def count(self, L: Lanes, hits: Sequence[str]) -> str:
        """In how many lanes of vectors of conditions these hold, as a state."""
        (t,) = self.types
        total = "0"
        L.e.module.declare("llvm.ctpop.i32", "declare i32 @llvm.ctpop.i32(i32)")
        for hit in hits:
            bits = L.e(f"bitcast {L.vec('i1')} {hit} to i{L.width}")
            bits = L.e(f"zext i{L.width} {bits} to i32")
            total = L.e(f"add i32 {total}, {L.e(f'call i32 @llvm.ctpop.i32(i32 {bits})')}")
        return L.e(f"sitofp i32 {total} to {t}")

    def finish(self, L: Lanes, state: Sequence[str], out: DType) -> str:
        """The result from a state."""
        if self.name == "argmax":
            return state[1]
        return casts.round_to(L, out, state[0])

    @property
    def aligned(self) -> int:
        """Of what address a stored state may be: int8 columns begin at any."""
        return min(4, self.dtype.compute.itemsize)

    def accumulate(self, L: Lanes, cell: str, x: Sequence[str]) -> None:
        """Add one more element of every active lane to the state stored at `cell`."""
        self.put(L, cell, self.merge(L, [self.state(L, cell)], x)[0])

    def state(self, L: Lanes, cell: str) -> str:
        """The state of every active lane that is stored at `cell`."""
        (t,) = self.types
        v, m, aligned = L.vec(t), L.vec("i1"), self.aligned
        if L.mask is None:
            return L.e(f"load {v}, ptr {cell}, align {aligned}")
        load = f"llvm.masked.load.{L.suffix(t)}.p0"
        L.e.module.declare(load, f"declare {v} @{load}(ptr, i32, {m}, {v})")
        given = f"(ptr {cell}, i32 {aligned}, {m} {L.mask}, {v} zeroinitializer)"
        return L.e(f"call {v} @{load}{given}")

    def put(self, L: Lanes, cell: str, state: str) -> None:
        """Store the state of every active lane at `cell`."""
        (t,) = self.types
        v, m, aligned = L.vec(t), L.vec("i1"), self.aligned
        if L.mask is None:
            L.e.do(f"store {v} {state}, ptr {cell}, align {aligned}")
            return
        store = f"llvm.masked.store.{L.suffix(t)}.p0"
        L.e.module.declare(store, f"declare void @{store}({v}, ptr, i32, {m})")
        L.e.do(f"call void @{store}({v} {state}, ptr {cell}, i32 {aligned}, {m} {L.mask})")

    @property
    def wide(self) -> Reduction:
        """What totals over items accumulate in: sums of floats in f64."""
        return Reduction(self.name, f64) if self.widens else self

    @property
    def widens(self) -> bool:
        """Whether totals are kept in a wider type than rows are."""
        return self.name == "reduce_sum" and self.dtype.is_float and self.dtype.bits < 64

    def widen(self, L: Lanes, state: Sequence[str]) -> list[str]:
        """A state of rows as one of totals."""
        if not self.widens:
            return list(state)
        return [L.convert("fpext", state[0], "float", "double")]

    def narrow(self, L: Lanes, state: Sequence[str]) -> list[str]:
        """A state of totals as one of rows."""
        if not self.widens:
            return list(state)
        if self.dtype is f16:  # LLVM may make one rounding of two, by a function of its library
            return [narrow_to_odd(L, state[0])]
        return [L.convert("fptrunc", state[0], "double", "float")]


def reduction_of(e: Expr) -> Reduction:
    """The reduction that a `reduce` or `scan` expression stands for."""
    return Reduction(e.name, e.args[0].dtype if e.name == "argmax" else e.dtype)


def counted(e: Expr, target: Target) -> Expr | None:
    """The condition of a sum of ones and zeros of floats, where its bits are counted instead: that
    is exact for the rows of a sweep without loops, and short where masks have registers."""
    x = e.args[0]
    if not (target.masked and e.name == "reduce_sum" and e.dtype.is_float):
        return None
    if x.kind != "op" or x.name != "cast" or x.args[0].dtype is not bool_:
        return None
    return x.args[0]
