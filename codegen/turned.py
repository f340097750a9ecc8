"""Elementwise nests that read across the rows they write: blocks are transposed into a buffer.

    out[i, j] = f(a[j, i], ...)      j is the vector axis, i the axis along which `a` is contiguous

Read vector by vector, each element of `a` would come from another cache line, and the line would
have left the caches when its next element is wanted. A grid item takes TURNED_BYTES of i instead,
and COLUMNS of j at a time: what the block needs of `a` is transposed in registers into a buffer,
which the elements then read in the order of j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.codegen.axes import coefficient
from graphc.codegen.loops import Expr
from graphc.codegen.matmul_pack import define_pack
from graphc.codegen.schedule import turned_loads
from graphc.codegen.scope import Scope
from graphc.codegen.sweep import Totals, least
from graphc.types import f32, f64

if TYPE_CHECKING:
    from graphc.codegen.along import Along

COLUMNS = 64  # of a block: with even strides more lines would not stand in a cache side by side


@dataclass(frozen=True)
class Block:
    """Where the elements of a block stand: buffers by load, the block's origin."""

    buffers: dict[Expr, str]
    row: str
    column: str
    pitch: int  # elements between rows

    def at(self, scope: Scope, x: Expr) -> str:
        """The address of the element of `x` that a scope (its lane 0) is at."""
        e, s = scope.e, scope.frame.schedule
        assert s.vector is not None and s.turned is not None
        i = e(f"sub nsw i64 {scope.axis_register(s.turned)}, {self.row}")
        j = e(f"sub nsw i64 {scope.axis_register(s.vector)}, {self.column}")
        to = e(f"add nsw i64 {e(f'mul nsw i64 {i}, {self.pitch}')}, {j}")
        return e(
            f"getelementptr inbounds [{x.dtype.itemsize} x i8], ptr {self.buffers[x]}, i64 {to}"
        )


def run(body: Along, grid: Scope, first: str, low: str, high: str, totals: Totals) -> None:
    """The elements of a grid item: rows from `first` on, columns from low to high."""
    f, s, e, nest = body.f, body.s, body.e, body.nest
    vector, other = s.vector, s.turned
    assert vector is not None and other is not None
    loads = turned_loads(nest, vector, other)
    size = loads[0].dtype.itemsize
    dtype = f32 if size == 4 else f64  # by size: the bits are only moved
    pitch = COLUMNS + f.target.lanes(dtype)  # pack writes up to a register more
    buffers = {x: f.alloca(f"[{s.turned_rows * pitch * size} x i8]") for x in loads}
    last = least(e, e(f"add nsw i64 {first}, {s.turned_rows}"), f.top.size(nest.sizes[other]))
    pack = define_pack(f.module, f.target, dtype)

    def block(start: str, _: list[str]) -> list[str]:
        end = least(e, e(f"add nsw i64 {start}, {COLUMNS}"), high)
        counts = [e(f"sub nsw i64 {last}, {first}"), e(f"sub nsw i64 {end}, {start}")]
        origin = Scope(f, grid, e.section(), {other: first, vector: start})
        for x in loads:
            param, offset, _ = x.attrs
            source = e(
                f"getelementptr inbounds [{size} x i8], ptr {f.params[param]}, "
                f"i64 {origin.size(offset)}"
            )
            stride = coefficient(offset, vector)
            assert stride is not None
            step = e(f"mul i64 {f.top.size(stride)}, {size}")
            e.do(f"call void @{pack}(i64 {counts[0]}, i64 {counts[1]}, ptr {source}, i64 {size}, "
                 f"i64 {step}, ptr {buffers[x]}, i64 {pitch * size})")
        f.turned = Block(buffers, first, start, pitch)

        def row(i: str, _: list[str]) -> list[str]:
            inside = Scope(f, grid, e.section(), {other: i})
            body.run(inside, start, end, totals, partial=True)
            return []

        e.loop(first, last, 1, [], row)
        f.turned = None
        return []

    e.loop(low, high, COLUMNS, [], block)

