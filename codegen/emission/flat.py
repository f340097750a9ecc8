"""Vectors of elements that lie side by side, of whichever short rows (see `nests.flattened`).

For as many rows as a register has lanes, of C elements each:

    w = the rows' numbers, a lane each
    C times:  a = the next elements;  store a * (w spread over them) + (the columns' numbers)

Which lane of w an element takes, and which column it is of, is the same for all such blocks. So
spreading is a shuffle, and the columns' numbers are vectors that are made once. In us, AVX-512, so
and with a register for each row, or a vector for each column, which shuffles put in order:

    100,000 x 5 f32 by row 48 and 104, plus columns 43 and 77; by four 39 and 37, 33 and 48
    pixels of four u8 by their alpha, 512 x 512, 34 and 69; blended by it 69 and 113
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.along import Along
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.axes import substitute
from graphc.codegen.nests.loops import Expr
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame


class Flat(Along):
    """Emits blocks of rows."""

    def __init__(self, frame: Frame):
        super().__init__(frame)
        length = self.nest.sizes[self.nest.columns]
        assert isinstance(length, int)
        self.length = length

    def run(
        self, grid: Scope, low: str, high: str, partial: bool = False,
        beside: Sequence[Scope] = (),
    ) -> None:
        """The rows from low to high."""
        columns = {
            e: [self._columns(grid, e, k) for k in range(self.length)]
            for e in self.nest.exprs
            if e.kind == "load" and self.nest.columns in e.axes and self.s.vector not in e.axes
        }

        def emit_block(scopes: list[Scope]) -> None:
            for c in scopes:
                Block(self, c, columns).store()

        self.vectors(grid, low, high, emit_block, partial, group=1)

    def place(self, k: int, lane: int) -> tuple[int, int]:
        """The row and the column of a lane of the k-th vector of a block."""
        return divmod(k * self.s.width + lane, self.length)

    def _columns(self, grid: Scope, x: Expr, k: int) -> str:
        """The k-th vector of numbers of columns."""
        param, offset, _ = x.attrs
        lanes = range(self.s.width)
        around = Scope(self.f, grid, self.e.section(), {})
        places: dict[int, str] = {}
        L = Lanes(around.e, self.s.width, self.f.target)
        one = Lanes(around.e, 1, self.f.target)
        t = register_type(x.dtype)
        v = "poison"
        for lane in lanes:
            column = self.place(k, lane)[1]
            if column not in places:
                at = around.element(
                    self.f.params[param], x.dtype.itemsize, self.first(offset, column)
                )
                places[column] = one.load(x.dtype, at)
            v = around.e(f"insertelement {L.vec(t)} {v}, {t} {places[column]}, i64 {lane}")
        return v

    def first(self, offset: Size, column: int = 0) -> Size:
        """An offset for a column of rows."""
        return substitute(offset, {self.nest.columns: column})


class Block:
    """The elements of as many rows as a register has lanes, or less."""

    def __init__(self, body: Flat, rows: Scope, columns: dict[Expr, list[str]]):
        self.body, self.rows, self.columns = body, rows, columns
        self.spread: dict[tuple[Expr, int], str] = {}

    def store(self) -> None:
        """Compute the elements and write them, vector by vector."""
        body, nest = self.body, self.body.nest
        self.rows.demand(
            a for e in nest.exprs if nest.columns in e.axes
            for a in e.args if nest.columns not in a.axes
        )
        self.rows.demand(s.expr for s in nest.stores if nest.columns not in s.expr.axes)
        for k in range(body.length):
            mask = None
            if self.rows.mask is not None:
                mask = self._spread("i1", self.rows.mask, k)
            values: dict[Expr, str] = {}
            for e in nest.exprs:
                if nest.columns in e.axes:
                    values[e] = self._value(e, k, mask, values)
            for s in nest.stores:
                d = nest.outputs[s.output].dtype
                at = self._at(body.f.outputs[s.output], d.itemsize, s.offset, k)
                L = self._lanes(mask)
                self.rows.e.note(s.expr.node)
                L.store(d, self._operand(s.expr, k, values), at)
                self.rows.e.note(None)

    def _lanes(self, mask: str | None) -> Lanes:
        f = self.body.f
        return Lanes(self.rows.e, self.body.s.width, f.target, fastmath=f.fastmath, mask=mask)

    def _value(self, e: Expr, k: int, mask: str | None, values: dict[Expr, str]) -> str:
        """The k-th vector of an expression that depends on the column."""
        L = self._lanes(mask)
        if e in self.columns:
            return self.columns[e][k]
        self.rows.e.note(e.node)
        if e.kind == "load":
            at = self._at(self.body.f.params[e.param], e.dtype.itemsize, e.offset, k)
            value = L.load(e.dtype, at)
        else:
            name, attrs = e.attrs
            args = [self._operand(a, k, values) for a in e.args]
            value = emit(L, name, args, [a.dtype for a in e.args], e.dtype, dict(attrs))
        self.rows.e.note(None)
        return value

    def _operand(self, e: Expr, k: int, values: dict[Expr, str]) -> str:
        """The k-th vector of an expression: one of rows is spread over their elements."""
        if e in values:
            return values[e]
        v = self.rows.vector(e)
        if not self.rows.is_vector(e):
            return v
        if (e, k) not in self.spread:
            self.spread[e, k] = self._spread(register_type(e.dtype), v, k)
        return self.spread[e, k]

    def _spread(self, t: str, v: str, k: int) -> str:
        L = self._lanes(None)
        return L.shuffle(t, v, v, [self.body.place(k, lane)[0] for lane in range(L.width)])

    def _at(self, base: str, itemsize: int, offset: Size, k: int) -> str:
        """Where the k-th vector of a block of rows stands."""
        at = self.rows.element(base, itemsize, self.body.first(offset))
        if not k:
            return at
        ahead = k * self.body.s.width * itemsize
        return self.rows.e(f"getelementptr inbounds i8, ptr {at}, i64 {ahead}")
