"""Sums of short rows: vectors of what lies side by side, whichever rows that is of.

    for a band of rows, each of 3 elements:
        for 16 rows:  state[k] = state[k] + f(elements 16 k .. 16 k + 15)      for k < 3
        down columns: the states in memory are 16 rows of sums, which are added up by pairs
        over all:     their lanes are folded

A vector of one row would hold 3 elements of 16, and its lanes would be folded for each. Which
column a lane is of is the same for all blocks of rows, so that numbers of columns (a mean that is
taken off) are vectors made once, and numbers of rows (their weights) are spread by a shuffle, as in
`flat`. A line of 64 bytes is a vector at every CPU level, so that all add up in one order. In us on
Zen 5, 2^16 f32 in rows of 2, 3, 8 and 12, before and so:

    sums down columns                4.8  1.5     3.6  1.2     2.0  1.5     2.0  1.5
    greatest elements                 10  2.2     7.6  2.8     3.2  2.2     3.3  2.7
    sums of exponentials              66  6.7      46  6.8      16  6.7     9.5  6.7
    all of (x - m)**2, m of columns   90  1.3      60  1.3      21  1.3      15  1.4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.folds import fold
from graphc.codegen.emission.lane_masks import below
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.prefetch import Streams
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope, constant
from graphc.codegen.emission.sweep import Body
from graphc.codegen.machine.target import VIRTUAL_BITS
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.dims import Size
from graphc.types import DType

if TYPE_CHECKING:
    from graphc.codegen.nests.schedule import Schedule

PART = 1 << 12  # elements of a part of all rows
CHAINS = 4  # vectors that wait for themselves alone: 8 at most, or rows would not meet by halves
CHEAP = 24  # cycles of a vector beyond which one does not wait for its sum
MOST, MOST_CODE = 16, 400  # vectors of a block, and cycles of all, which are written out


def take(s: Schedule) -> None:
    """Go by vectors of several rows, where that suits. Bands are of as many vectors as they have
    rows else, and all columns are one vector; parts of all rows are some blocks."""
    if not _suits(s):
        return
    s.packed, rows = True, _block(s)[0]
    if s.bands:
        s.width = 1 << (_length(s) - 1).bit_length()
        s.band *= rows
        return
    s.band = max(1, PART // (rows * _length(s))) * rows
    s.items = dims.ceildiv(s.nest.sizes[s.loops[0]], s.band)
    s.cycles = dims.floordiv(s.band * _length(s) * s.cost, s.line) + 20


def _suits(s: Schedule) -> bool:
    """Whether a nest adds up short rows, each of which follows the one before it: by bands, or all
    of them."""
    nest, columns = s.nest, s.vector
    length = nest.sizes[columns] if columns is not None else None
    if not isinstance(length, int) or length < 2 or len(s.loops) != 1 or s.width == 1:
        return False
    if s.grid or nest.sites or s.narrow or any(r.name == "argmax" for r in s.sweep):
        return False
    if s.flat and nest.reduced[0] == columns:  # parts of all are of columns (`items`)
        return False
    vectors = _block(s)[1]
    if (s.bands and length >= s.line) or vectors > MOST or vectors * s.cost > MOST_CODE:
        return False
    return all(_is_row(s, e) for e in _moving(s)) and all(
        coefficient(x.offset, s.loops[0]) == length and coefficient(x.offset, str(columns)) == 1
        for x in nest.stores if s.loops[0] in x.axes
    )


def _is_row(s: Schedule, e: Expr) -> bool:
    """Whether an expression is of elements of rows, as they lie, or of their numbers."""
    if e.kind != "load":
        return e.kind == "op"
    by_row, by_column = (coefficient(e.offset, str(a)) for a in (s.loops[0], s.vector))
    if e.preds or s.nest.dynamic(e.offset):
        return False
    if s.vector not in e.axes:
        return isinstance(by_row, int) and by_row > 0
    return by_row == _length(s) and by_column == 1


def _moving(s: Schedule) -> list[Expr]:
    """What is computed for each row, and each element."""
    return [e for e in s.nest.exprs if s.loops[0] in e.axes]


def _block(s: Schedule) -> tuple[int, int]:
    """How many rows make whole vectors, and how many of these."""
    shared = gcd(_length(s), s.line)
    rows, vectors = s.line // shared, _length(s) // shared
    copies = max(1, CHAINS // vectors) if s.cost <= CHEAP else 1
    return rows * copies, vectors * copies


def _length(s: Schedule) -> int:
    length = s.nest.sizes[s.vector or ""]
    assert isinstance(length, int)
    return length


class Packed:
    """Adds up a part of the rows. `c`: the scope of their columns, where these are results."""

    def __init__(self, body: Body, grid: Scope, c: Scope | None = None):
        self.body, self.f, self.e, self.s, self.grid = body, body.f, body.e, body.s, grid
        self.length = _length(self.s)
        self.rows, self.vectors = _block(self.s)
        self.moving = _moving(self.s)
        self.kinds: list[tuple[Expr, Reduction]] = [(r, reduction_of(r)) for r in body.reduces[0]]
        self.stores = body.row_stores[0]
        self.L = Lanes(self.e, self.s.line, self.f.target)
        self.c = c or self._columns()
        self.streams = Streams(self.s, self.f.target)
        self.repeated: dict[tuple[Expr, int], str] = {}

    def _columns(self) -> Scope:
        """A scope of all columns."""
        assert self.s.vector is not None
        width = 1 << (self.length - 1).bit_length()
        section = self.e.section()
        mask = None
        if width > self.length:
            mask = below(Lanes(section, width, self.f.target), "0", str(self.length), 32)
        return Scope(self.f, self.grid, section, {self.s.vector: "0"}, mask=mask, width=width)

    def columns(self, low: str, high: str) -> dict[Expr, list[str]]:
        """The states of all columns after the rows from low to high, in lanes of `c`."""
        found = self._states(low, high)
        return {r: self._by_rows(kind, [x[r] for x in found]) for r, kind in self.kinds}

    def totals(self, low: str, high: str) -> dict[Expr, list[str]]:
        """Scalar states of all elements of the rows from low to high."""
        found = self._states(low, high)
        left: list[None] = [None] * ((1 << (self.vectors - 1).bit_length()) - self.vectors)
        out: dict[Expr, list[str]] = {}
        for r, kind in self.kinds:
            self.e.note(r.node)
            out[r] = fold(kind, self.L, [*(x[r] for x in found), *left])
        return out

    def _states(self, low: str, high: str) -> list[dict[Expr, list[str]]]:
        """The states of a block's vectors after all of these blocks."""
        e, L = self.e, self.L
        asked = [a for x in [*self.moving, *(r for r, _ in self.kinds)] for a in x.args]
        self.c.demand({*asked, *(x.expr for x in self.stores)} - {*self.moving})
        rest = e(f"srem i64 {e(f'sub nsw i64 {high}, {low}')}, {self.rows}")
        whole = e(f"sub nsw i64 {high}, {rest}")
        found: list[dict[Expr, list[str]]] = []
        per = self.vectors if self.stores else self._abreast()
        for first in range(0, self.vectors, per):
            ks = range(first, min(first + per, self.vectors))
            types = [L.vec(t) for _ in ks for _, kind in self.kinds for t in kind.types]
            state = [v for _ in ks for _, kind in self.kinds for v in kind.start(L)]
            parts = [(low, whole, ""), (whole, high, high)]
            for begin, end, stop in parts if self.rows > 1 else parts[:1]:
                carried = list(zip(types, state, strict=True))
                block = partial(self._block, ks=ks, high=stop)
                state = e.loop(begin, end, self.rows, carried, block)
            found += self._by_vector(ks, state)
        return found

    def _abreast(self) -> int:
        """How many vectors' states leave half of the registers to what is computed."""
        target = self.f.target
        line = max(1, VIRTUAL_BITS // 4 // target.vector_bits)  # in registers
        return max(1, target.registers // (2 * line * len(self.kinds)))

    def _by_vector(self, ks: range, state: Sequence[str]) -> list[dict[Expr, list[str]]]:
        left = iter(state)
        return [{r: [next(left) for _ in kind.types] for r, kind in self.kinds} for _ in ks]

    def _block(self, i: str, state: Sequence[str], ks: range, high: str) -> list[str]:
        """The states of some vectors with rows from `i` on: a whole block, or those before high."""
        e, s = self.e, self.s
        assert s.vector is not None
        rows = Scope(self.f, self.grid, e.section(), {s.loops[0]: i, s.vector: "0"})
        left = e(f"sub nsw i64 {high}, {i}") if high else ""
        elements = e(f"mul nsw i64 {left}, {self.length}") if high else ""
        numbers = self._numbers(rows, left)
        new: list[str] = []
        for k, old in zip(ks, self._by_vector(ks, state), strict=True):
            mask = below(self.L, str(k * s.line), elements, 32) if high else None
            L = self._lanes(s.line, mask)
            values = self._values(rows, L, k, numbers)
            for x in self.stores:
                d = self.body.nest.outputs[x.output].dtype
                e.note(x.expr.node)
                at = self._at(rows, self.f.outputs[x.output], d, x.offset, k)
                L.store(d, self._operand(x.expr, k, values, numbers), at)
            for r, kind in self.kinds:
                e.note(r.node)
                new += kind.step(L, old[r], [self._operand(r.args[0], k, values, numbers)])
        e.note(None)
        return new

    def _lanes(self, width: int, mask: str | None) -> Lanes:
        f = self.f
        return Lanes(self.e, width, f.target, fastmath=f.fastmath, mask=mask)

    def _numbers(self, rows: Scope, left: str) -> dict[Expr, str]:
        """What depends on the row alone, a lane for each of a block."""
        found = dict[Expr, str]()
        own = [x for x in self.moving if self.s.vector not in x.axes]
        if not own:
            return found
        L = self._lanes(self.rows, None)
        if left:
            L = self._lanes(self.rows, below(L, "0", left, 32))
        for x in own:
            self.e.note(x.node)
            if x.kind != "load":
                found[x] = self._op(L, x, lambda a: self._number(a, found))
                continue
            at = rows.element(self.f.params[x.param], x.dtype.itemsize, x.offset)
            step = coefficient(x.offset, self.s.loops[0])
            assert isinstance(step, int)
            places = L.constants("i64", [step * k for k in range(self.rows)])
            found[x] = L.load(x.dtype, at) if step == 1 else L.gather(x.dtype, at, places)
        return found

    def _number(self, x: Expr, numbers: dict[Expr, str]) -> str:
        """An operand of what depends on the row alone."""
        if x in numbers:
            return numbers[x]
        if x.kind == "const":
            return self._lanes(self.rows, None).const(x.dtype, constant(x))
        return Lanes(self.c.e, self.rows, self.f.target).splat(x.dtype, self.c.scalar(x))

    def _values(
        self, rows: Scope, L: Lanes, k: int, numbers: dict[Expr, str]
    ) -> dict[Expr, str]:
        """What the k-th vector of a block computes."""
        values = dict[Expr, str]()
        for x in self.moving:
            if x in numbers:
                continue
            self.e.note(x.node)
            if x.kind == "load":
                at = self._at(rows, self.f.params[x.param], x.dtype, x.offset, k)
                if L.mask is None:
                    self.streams.ask_at(self.f, self.e, x, at, self.s.line)
                values[x] = L.load(x.dtype, at)
            else:
                values[x] = self._op(L, x, lambda a: self._operand(a, k, values, numbers))
        return values

    def _op(self, L: Lanes, x: Expr, operand: Callable[[Expr], str]) -> str:
        name, attrs = x.attrs
        args = [operand(a) for a in x.args]
        return emit(L, name, args, [a.dtype for a in x.args], x.dtype, dict(attrs))

    def _at(self, rows: Scope, base: str, d: DType, offset: Size, k: int) -> str:
        """The address of the k-th vector of a block."""
        at = rows.element(base, d.itemsize, offset)
        ahead = k * self.s.line * d.itemsize
        return self.e(f"getelementptr i8, ptr {at}, i64 {ahead}") if k else at

    def _operand(
        self, x: Expr, k: int, values: dict[Expr, str], numbers: dict[Expr, str]
    ) -> str:
        """The k-th vector of an expression: numbers of columns are repeated, of rows spread."""
        if x in values:
            return values[x]
        c, n, t = self.c, self.s.line, register_type(x.dtype)
        if x.kind == "const":
            return self.L.const(x.dtype, constant(x))
        if x in numbers and self.rows == 1:
            return self.L.splat(x.dtype, numbers[x])
        if x in numbers:
            row = [(k * n + lane) // self.length for lane in range(n)]
            return self._picked(self.e, t, numbers[x], self.rows, row)
        if not c.is_vector(x):
            k = 0
        if (x, k) not in self.repeated:
            column = [(k * n + lane) % self.length for lane in range(n)]
            self.repeated[x, k] = (
                self._picked(c.e, t, c.vector(x), c.width, column) if c.is_vector(x)
                else Lanes(c.e, n, self.f.target).splat(x.dtype, c.scalar(x))
            )
        return self.repeated[x, k]

    def _picked(self, e: Emitter, t: str, v: str, width: int, lanes: Sequence[int]) -> str:
        """Lanes of a register as one of a line."""
        order, given = ", ".join(f"i32 {lane}" for lane in lanes), f"<{width} x {t}>"
        return e(f"shufflevector {given} {v}, {given} poison, <{len(lanes)} x i32> <{order}>")

    def _by_rows(self, kind: Reduction, states: Sequence[Sequence[str]]) -> list[str]:
        """One state of all columns from those of whole vectors: row meets row, by halves."""
        e, n, wide = self.e, self.s.line, Lanes(self.e, self.c.width, self.f.target)
        places = []
        for j, t in enumerate(kind.types):
            m = memory_of(t)
            cell = self.f.alloca(f"[{len(states) * n + wide.width} x {m}]")
            for k, state in enumerate(states):
                v = state[j] if m == t else self.L.convert("zext", state[j], t, m)
                at = e(f"getelementptr inbounds {m}, ptr {cell}, i64 {k * n}")
                e.do(f"store {self.L.vec(m)} {v}, ptr {at}, align 1")
            places.append((t, m, cell))
        rows: list[list[str]] = []
        for r in range(self.rows):
            row = []
            for t, m, cell in places:
                at = e(f"getelementptr inbounds {m}, ptr {cell}, i64 {r * self.length}")
                v = e(f"load {wide.vec(m)}, ptr {at}, align 1")
                row.append(v if m == t else wide.convert("trunc", v, m, t))
            rows.append(row)
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [kind.merge(wide, rows[k], rows[k + half]) for k in range(half)]
        return rows[0]
