"""Transposed operands and unroll-and-jam: grid items of several rows, side by side in registers.

    out[i, j] = f(a[j, i], ...)                    j is the vector axis, `a` contiguous along i
    out[i, j] = sum over k of f(a[i, k], b[j, k])  likewise, `b` contiguous along k

Read vector by vector, each element of `a` or `b` would come from another cache line, and the line
would have left the caches when its next element is wanted. So COLUMNS of j are taken at a time:
what the block needs is transposed in registers into a buffer, which the elements then read in the
order of j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphc import dims
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.matmul.pack import define_pack
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.tiles import COLUMNS, least_turned, turned_loads
from graphc.types import f32, f64, u8, u16

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along


class Block(NamedTuple):
    """Where the elements of a block stand: buffers by load, the block's origin."""

    buffers: dict[Expr, str]
    row: str
    column: str
    pitch: int  # elements between rows

    def at(self, scope: Scope, x: Expr) -> str:
        """The address of the element of `x` that a scope (its lane 0) is at."""
        e, s = scope.e, scope.frame.schedule
        assert s.vector is not None and s.tile is not None and s.tile.turned is not None
        i = scope.axis_register(s.tile.turned)
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
    size = loads[0].dtype.itemsize
    dtype = {1: u8, 2: u16, 4: f32, 8: f64}[size]  # by size: the bits are only moved
    pitch = COLUMNS + f.target.lanes(dtype)  # pack writes up to a register more
    origin, held = "0", dims.most(nest.sizes[other])
    if other == tile.rows:
        origin, held = first, tile.count
    assert held is not None
    buffers = {x: f.alloca(f"[{held * pitch * size} x i8]") for x in loads}
    pack = define_pack(f.module, f.target, dtype)
    count = f.top.size(nest.sizes[other])
    if other == tile.rows:
        count = e(f"sub nsw i64 {last}, {first}")

    def block(start: str) -> None:
        end = least(e, e(f"add nsw i64 {start}, {COLUMNS}"), high)
        columns = e(f"sub nsw i64 {end}, {start}")
        corner = Scope(f, grid, e.section(), {other: origin, vector: start})
        for x in loads:
            param, offset, _ = x.attrs
            source = e(
                f"getelementptr inbounds [{size} x i8], ptr {f.params[param]}, "
                f"i64 {corner.size(offset)}"
            )
            stride = coefficient(offset, vector)
            assert stride is not None
            step = e(f"mul i64 {f.top.size(stride)}, {size}")
            e.do(f"call void @{pack}(i64 {count}, i64 {columns}, ptr {source}, i64 {size}, "
                 f"i64 {step}, ptr {buffers[x]}, i64 {pitch * size})")
        f.turned = Block(buffers, origin, start, pitch)
        n = nest.sizes[vector]
        whole = isinstance(n, int) and n <= COLUMNS
        _rows(body, grid, (first, last), (start, end), partial=not whole)
        f.turned = None

    e.for_each(low, high, block, COLUMNS)


def _rows(
    body: Along, grid: Scope, rows: tuple[str, str], columns: tuple[str, str], partial: bool,
) -> None:
    """Some rows of an item, as many side by side as the tile says, then the rest one by one;
    `partial`: columns need not be all."""
    f, e, tile = body.f, body.e, body.s.tile
    assert tile is not None
    axis, jam = tile.rows, tile.jam
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
        e.for_each(first, whole, several, jam)
        first = whole
    every = body.nest.sizes[axis]
    even = isinstance(every, int) and every % jam == 0 and tile.count % jam == 0
    if jam == 1 or not even:
        e.for_each(first, last, single)
