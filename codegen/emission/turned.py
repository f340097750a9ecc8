"""Transposed operands and unroll-and-jam: grid items of several rows, side by side in registers.

    out[i, j] = f(a[j, i], ...)                    j is the vector axis, `a` contiguous along i
    out[i, j] = sum over k of f(a[i, k], b[j, k])  likewise, `b` contiguous along k

Read vector by vector, each element of `a` or `b` would come from another cache line, and the line
would have left the caches when its next element is wanted. So COLUMNS of j are taken at a time:
what the block needs is transposed in registers into a buffer, which the elements then read in the
order of j.

    out[i] = sum over j of f(a[i, j], b[j, i])     j is the vector axis of a sweep over a row

Hardware does not see what block follows, whose rows lie in other pages: it is asked for while this
one is computed. Where results go past the caches (`streaming`) blocks begin where lines of a result
do. On Zen 4 transposes of 4096 x 4096 f32 take 15.5 ms without either, 11.4 with the first, 7.4
with both, of f64 28 and 11.4.

Rows that are swept follow one another (`Rows`): what some of them need of `b` is transposed when
the first of these comes. The rows, and what is added up in which order, stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.matmul.pack import define_pack
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.tiles import COLUMNS, TurnedRows, least_turned, most_beside, turned_loads
from graphc.types import f32, f64, u8, u16

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along
    from graphc.codegen.emission.frame import Frame

FAR = 6 << 20  # bytes of results from which the next block is asked for: no near cache has it


class Block(NamedTuple):
    """Where the elements of a block stand: buffers by load, the block's origin."""

    axis: str  # along which they were contiguous, that of the buffers' rows
    buffers: dict[Expr, str]
    row: str
    column: str
    pitch: str  # elements between rows

    def at(self, scope: Scope, x: Expr) -> str:
        """The address of the element of `x` that a scope (its lane 0) is at."""
        e, s = scope.e, scope.frame.schedule
        assert s.vector is not None
        i = scope.axis_register(self.axis)
        if self.row != "0":
            i = e(f"sub nsw i64 {i}, {self.row}")
        j = e(f"sub nsw i64 {scope.axis_register(s.vector)}, {self.column}")
        to = e(f"add nsw i64 {e(f'mul nsw i64 {i}, {self.pitch}')}, {j}")
        return e(
            f"getelementptr inbounds [{x.dtype.itemsize} x i8], ptr {self.buffers[x]}, i64 {to}"
        )


def run(body: Along, grid: Scope, first: str, low: str, high: str) -> None:
    """The elements of a grid item: rows from `first` on, columns from low to high."""
    f, s, e, nest = body.f, body.s, body.e, body.nest
    tile, vector = s.tile, s.vector
    assert tile is not None and vector is not None
    last = ""
    if tile.rows is not None:
        every = nest.sizes[tile.rows]
        last = f.top.size(every)
        if not (isinstance(every, int) and every <= tile.count):
            last = least(e, e(f"add nsw i64 {first}, {tile.count}"), last)
    if tile.turned is None:
        _rows(body, grid, (first, last), (low, high), partial=False)
        return
    other = tile.turned
    loads = turned_loads(nest, vector, other, least_turned(nest, f.target))
    origin, held = "0", dims.most(nest.sizes[other])
    if other == tile.rows:
        origin, held = first, tile.count
    assert held is not None
    pitch = COLUMNS + f.target.vector_bits // (8 * loads[0].dtype.itemsize)  # see `pack`
    room = held * pitch * loads[0].dtype.itemsize
    turn = Turn(f, other, {x: f.alloca(f"[{room} x i8]") for x in loads}, str(pitch))
    count = f.top.size(nest.sizes[other])
    if other == tile.rows:
        count = e(f"sub nsw i64 {last}, {first}")

    far = _far(f) if other == tile.rows else ""
    begin = low
    if f.streaming is not None and f.streaming.heads:  # blocks begin where lines of a result do
        corner = Scope(f, grid, e.section(), {tile.rows or "": first})
        aligned = f.streaming.aligned(corner, low, high)
        moved = e(f"icmp sgt i64 {aligned}, {low}")
        begin = e(f"select i1 {moved}, i64 {e(f'sub nsw i64 {aligned}, {COLUMNS}')}, i64 {low}")

    def block(at: str) -> None:
        start = at
        if begin != low:
            start = e(f"select i1 {e(f'icmp slt i64 {at}, {low}')}, i64 {low}, i64 {at}")
        end = least(e, e(f"add nsw i64 {at}, {COLUMNS}"), high)
        columns = e(f"sub nsw i64 {end}, {start}")
        turn.copy(Scope(f, grid, e.section(), {other: origin, vector: start}), count, columns)
        if far:  # of the next rows after the last columns; of those that are there
            more = e(f"icmp slt i64 {end}, {high}")
            further = least(e, last, e(f"sub nsw i64 {f.top.size(nest.sizes[other])}, 1"))
            row = e(f"select i1 {more}, i64 {origin}, i64 {further}")
            following = e(f"select i1 {more}, i64 {end}, i64 {low}")
            until = least(e, e(f"add nsw i64 {following}, {COLUMNS}"), high)
            turn.ask(grid, row, (following, until), held, far)
        f.turned = turn.block(origin, start)
        n = nest.sizes[vector]
        whole = isinstance(n, int) and n <= COLUMNS
        _rows(body, grid, (first, last), (start, end), partial=not whole)
        f.turned = None

    e.for_each(begin, high, block, COLUMNS)


def _far(f: Frame) -> str:
    """Whether what is turned comes from beyond the near caches."""
    points = f.nest.points
    each = sum(f.nest.outputs[x.output].dtype.itemsize for x in f.nest.stores)
    if isinstance(points, int):
        return "true" if points * each > FAR else ""
    return f.top.e(f"icmp ugt i64 {f.top.size(points)}, {FAR // each}")


class Turn:
    """Copies rows of some loads, turned, into a buffer of each; all have elements of one size."""

    def __init__(self, f: Frame, axis: str, buffers: dict[Expr, str], pitch: str):
        self.f, self.axis, self.buffers, self.pitch = f, axis, buffers, pitch
        (self.itemsize,) = {x.dtype.itemsize for x in buffers}
        dtype = {1: u8, 2: u16, 4: f32, 8: f64}[self.itemsize]  # the bits are only moved
        self.pack = define_pack(f.module, f.target, dtype)

    def copy(self, corner: Scope, rows: str, columns: str) -> None:
        """Turn so many rows and columns, the first of which the scope `corner` is at."""
        f, e, size, vector = self.f, self.f.e, self.itemsize, self.f.schedule.vector
        assert vector is not None
        row = e(f"mul i64 {self.pitch}, {size}")
        for x, buffer in self.buffers.items():
            param, offset, _ = x.attrs
            source = e(
                f"getelementptr inbounds [{size} x i8], ptr {f.params[param]}, "
                f"i64 {corner.size(offset)}"
            )
            stride = coefficient(offset, vector)
            assert stride is not None
            step = e(f"mul i64 {f.top.size(stride)}, {size}")
            e.do(f"call void @{self.pack}(i64 {rows}, i64 {columns}, ptr {source}, i64 {size}, "
                 f"i64 {step}, ptr {buffer}, i64 {row})")

    def ask(self, grid: Scope, row: str, columns: tuple[str, str], rows: int, far: str) -> None:
        """Ask for the elements of the next block, so many in each of its columns."""
        f, e = self.f, self.f.e
        vector = f.schedule.vector
        assert vector is not None
        first, last = columns
        if far != "true":
            last = e(f"select i1 {far}, i64 {last}, i64 {first}")

        def column(j: str) -> None:
            corner = Scope(f, grid, e.section(), {self.axis: row, vector: j})
            bytes_ = rows * self.itemsize
            for x in self.buffers:
                at = corner.element(f.params[x.attrs[0]], self.itemsize, x.attrs[1])
                for k in (*range(0, bytes_, LINE), bytes_ - 1):
                    e.prefetch(e(f"getelementptr i8, ptr {at}, i64 {k}"), 2)

        e.for_each(first, last, column)

    def block(self, row: str, column: str) -> Block:
        """What was copied from a row and column on."""
        return Block(self.axis, self.buffers, row, column, self.pitch)


class Rows:
    """Rows that are swept one by one: some of them are turned when the first of these comes.

    fits: whether there is room for several, as a register where it is not known before.
    """

    def __init__(self, f: Frame, what: TurnedRows):
        self.f, self.what, e = f, what, f.top.e
        begin, buffers = "%scratch", {}
        for x in what.loads:
            buffers[x] = begin
            begin = e(f"getelementptr i8, ptr {begin}, i64 {f.top.size(what.buffer)}")
        self.turn = Turn(f, what.axis, buffers, f.top.size(what.pitch))
        most = f.top.size(what.most)
        self.rows = least(e, str(what.rows), most)
        self.fits = "" if isinstance(what.most, int) else e(f"icmp sgt i64 {most}, 1")
        self.end, self.first = f.alloca("i64", 8), f.alloca("i64", 8)
        f.allocas.append(f"  store i64 0, ptr {self.end}, align 8")  # a task begins with some

    def begin(self, grid: Scope, row: str) -> None:
        """Before the frame's item, the row at the place `row`: turn it and those that follow it, if
        it was not turned with others."""
        f, e, what, vector = self.f, self.f.e, self.what, self.f.schedule.vector
        assert vector is not None
        done = e.fresh("turned")
        over = e(f"icmp sge i64 {f.item}, {e(f'load i64, ptr {self.end}, align 8')}")
        e.require(over, done)
        count = least(e, self.rows, e(f"sub nsw i64 {f.top.size(what.count)}, {row}"))
        corner = Scope(f, grid, e.section(), {what.axis: row, vector: "0"})
        self.turn.copy(corner, count, f.top.size(what.length))
        e.do(f"store i64 {e(f'add nsw i64 {f.item}, {count}')}, ptr {self.end}, align 8")
        e.do(f"store i64 {row}, ptr {self.first}, align 8")
        e.do(f"br label %{done}")
        e.label(done)
        f.turned = self.turn.block(e(f"load i64, ptr {self.first}, align 8"), "0")


def _rows(
    body: Along, grid: Scope, rows: tuple[str, str], columns: tuple[str, str], partial: bool,
) -> None:
    """Some rows of an item, as many side by side as the tile says, then the rest one by one;
    `partial`: columns need not be all."""
    f, e, tile, nest = body.f, body.e, body.s.tile, body.nest
    assert tile is not None
    axis, jam = tile.rows, 1 if f.streaming is not None else tile.jam
    tells = not (nest.reduced or isinstance(nest.points, int))  # whether the call's sizes do
    if axis is None:
        body.run(grid, *columns, partial)
        return

    def at(i: str) -> Scope:
        return Scope(f, grid, e.section(), {axis: i})

    def single(i: str) -> None:
        body.run(at(i), *columns, partial)

    def several(i: str) -> None:
        beside = [e(f"add nuw nsw i64 {i}, {q}") if q else i for q in range(jam)]
        body.run(grid, *columns, partial, [at(x) for x in beside])

    first, last = rows
    if jam > 1:
        over = e(f"urem i64 {e(f'sub nsw i64 {last}, {first}')}, {jam}")
        whole = e(f"sub nsw i64 {last}, {over}")
        if tells:
            few = f.top.e(f"icmp ule i64 {f.top.size(nest.points)}, {most_beside(nest)}")
            whole = e(f"select i1 {few}, i64 {whole}, i64 {first}")
        e.for_each(first, whole, several, jam)
        first = whole
    every = nest.sizes[axis]
    even = isinstance(every, int) and every % jam == 0 and tile.count % jam == 0 and not tells
    if jam == 1 or not even:
        e.for_each(first, last, single)
