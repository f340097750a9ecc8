"""Running sums and products down columns: rows outside, columns inside, as they stand in memory.

    for STRIP rows:
        for a vector of columns:
            for each of the rows:    state[j] = state[j] + x[i, j];  out[i, j] = state[j]

As in `stripes`: a group of columns walked down all of its rows would read and write a few lines of
each. There are no blocks of rows here, since every element needs what stands above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.aligned import LINE
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of
from graphc.codegen.emission.pieces import LEAST_COLUMNS, LEAST_VECTORS, NEAR_BYTES
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.stripes import STRIP
from graphc.codegen.emission.sweep import least, read_states, under, write_states
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import BLOCK

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along


def fits(body: Along) -> bool:
    """Whether a nest can be run so, and is worth it: nothing but scans, of long enough rows."""
    s = body.s
    if s.vector is None or s.width == 1 or len(s.loops) != 1 or not body.scans or s.sweeps != 1:
        return False
    if any(body.reduces) or body.late_stores or body.f.places:
        return False
    if any(coefficient(x.offset, s.vector) != 1 for x in body.nest.stores):
        return False
    row = body.nest.sizes[s.vector]
    if isinstance(row, int) and row < LEAST_VECTORS * s.width:
        return False
    return _columns(body) >= LEAST_COLUMNS


def _columns(body: Along) -> int:
    """The columns of a piece: as many as NEAR_BYTES hold states of."""
    each = sum(reduction_of(x).dtype.compute.itemsize for x in body.scans)
    columns = BLOCK
    while columns * each > NEAR_BYTES:
        columns //= 2
    return columns


def run(body: Along, grid: Scope, low: str, high: str) -> None:
    """Columns from low to high of one grid item, in pieces."""
    columns = _columns(body)
    piece = _Piece(body, columns)
    if columns == BLOCK:
        piece.run(grid, low, high)
        return

    def one(first: str) -> None:
        end = least(body.e, body.e(f"add nsw i64 {first}, {columns}"), high)
        piece.run(grid, first, end)

    body.e.for_each(low, high, one, columns)


class _Piece:
    """Emits some columns; the states of their scans stand in memory."""

    def __init__(self, body: Along, columns: int):
        self.body, self.s, self.e = body, body.s, body.e
        room = columns + body.s.width  # columns beyond the last are held as well, and never used
        self.kinds = {x: reduction_of(x) for x in body.scans}
        self.cells = {
            x: [body.f.alloca(f"[{room} x {memory_of(t)}]") for t in kind.types]
            for x, kind in self.kinds.items()
        }
        self.early = _without_scans(body)
        self.low = ""

    def run(self, grid: Scope, low: str, high: str) -> None:
        """Columns from low to high, of all rows."""
        e, s = self.e, self.s
        assert s.vector is not None
        self.low = low
        length = e(f"sub nsw i64 {high}, {low}")
        around = Scope(self.body.f, grid, e.section(), {})
        begin = self.aligned(around, low, high)
        whole = e(f"sub nsw i64 {high}, {begin}")
        whole = e(f"sub nsw i64 {high}, {e(f'srem i64 {whole}, {s.width}')}")
        free = Lanes(e, s.width, self.body.f.target)

        def clear(at: str) -> None:
            for x, kind in self.kinds.items():
                write_states(free, kind.types, self.cells[x], at, kind.start(free))

        e.for_each("0", length, clear, s.width)
        rows = self.body.f.top.size(self.body.nest.sizes[s.loops[0]])
        columns = low, begin, whole, high
        strip = STRIP if s.unroll > 1 else 1
        main = e(f"sub nsw i64 {rows}, {e(f'srem i64 {rows}, {strip}')}") if strip > 1 else rows
        e.for_each("0", main, lambda i: self.rows(around, i, strip, columns), strip)
        if strip > 1:
            e.for_each(main, rows, lambda i: self.rows(around, i, 1, columns))

    def aligned(self, around: Scope, low: str, high: str) -> str:
        """The first column whose result in the first row begins a line, as in `streaming`."""
        e, s, body = self.e, self.s, self.body
        assert s.vector is not None
        first = body.nest.stores[0]
        size = body.nest.outputs[first.output].dtype.itemsize
        row = Scope(body.f, around, e.section(), {s.vector: low, s.loops[0]: "0"})
        place = row.element(body.f.outputs[first.output], size, first.offset)
        ahead = e(f"sub i64 0, {e(f'ptrtoint ptr {place} to i64')}")
        left = e(f"udiv i64 {e(f'and i64 {ahead}, {LINE - 1}')}, {size}")
        return least(e, e(f"add nsw i64 {low}, {left}"), high)

    def rows(self, around: Scope, i: str, count: int, columns: tuple[str, str, str, str]) -> None:
        """Some rows from the i-th on: whole vectors of columns, then those before and after."""
        e, body = self.e, self.body
        low, begin, whole, high = columns
        at = [e(f"add nuw nsw i64 {i}, {k}") if k else i for k in range(count)]
        rows = [Scope(body.f, around, e.section(), {self.s.loops[0]: a}) for a in at]

        def vector(j: str) -> None:
            self.vector(body.vectors_at(around, j, None), rows)

        def side(k: str) -> None:
            before = e(f"icmp eq i64 {k}, 0")
            start = e(f"select i1 {before}, i64 {low}, i64 {whole}")
            end = e(f"select i1 {before}, i64 {begin}, i64 {high}")
            e.for_each(start, end, lambda j: self.vector(
                body.vectors_at(around, j, body.mask(j, end)), rows), self.s.width)

        e.for_each(begin, whole, vector, self.s.width, strided=True)
        e.for_each("0", "2", side)

    def vector(self, c: Scope, rows: list[Scope]) -> None:
        """A vector of columns in some rows, one after the other."""
        body, axis = self.body, self.s.vector
        assert axis is not None
        L = c.lanes(True)
        at = self.e(f"sub nsw i64 {c.axis_register(axis)}, {self.low}")
        before = {
            x: read_states(Lanes(self.e, L.width, L.target), kind.types, self.cells[x], at)
            for x, kind in self.kinds.items()
        }
        now = dict(before)
        inners = [under(body.f, c, row, {}) for row in rows]
        for inner in inners:  # reads come before writes, which may be a page's multiple away
            inner.demand(self.early)
        for inner in inners:
            for x in self.kinds:
                (inner.running[x],) = now[x]
            body.evaluate_row(inner, [], body.row_stores[0], True)
            now = {x: [inner.running[x]] for x in self.kinds}
        free = Lanes(self.e, L.width, L.target)
        for x, kind in self.kinds.items():
            (t,), (new,), (old,) = kind.types, now[x], before[x]
            if L.mask is not None:  # the other lanes are columns of other vectors
                new = free.select(L.mask, t, new, old)
            write_states(free, kind.types, self.cells[x], at, [new])


def _without_scans(body: Along) -> list[Expr]:
    """What scans take that follows from none of them; of a formula of one, its other operands."""
    late: set[Expr] = set()
    for x in body.nest.exprs:
        if x.kind == "scan" or any(a in late for a in x.args):
            late.add(x)
    found: dict[Expr, None] = {}
    stack = [a for x in body.scans for a in x.args]
    while stack:
        x = stack.pop()
        if x not in late:
            found[x] = None
        elif x.kind != "scan":  # whose operands are there already
            stack += x.args
    return list(found)
