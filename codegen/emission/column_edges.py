"""The first and the last vector of the columns of a strip, where they are parts of one.

Where masks are registers they are read with the rows of a strip, behind its whole vectors. So
vectors may begin with lines of the cache, too, if rows lie across these alike: NumPy's arrays begin
16 bytes into one, and a vector of AVX-512 across two lines is read as two. Lanes are columns, so no
bit changes. Down the columns of such arrays, in us (Zen 4, one thread), before and with edges:

    of f32      sum          variance      of f64       sum          variance
    128 x 512    2.7   2.6    6.6   5.9    256 x 1024   27.6  23.0   58.5  49.4
    256 x 1024  11.4  10.6   28.6  23.5    1024 x 1024  109   90     245   236

Of arrays that begin with lines variances take 2 % longer. Rows that are longer than whole vectors
gain, too: sums of 1000 x 20 f32 1.9 for 2.5, of 500 x 333 7.8 for 8.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.pieces import rows_read
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.sweeps import columns_in_step
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along


def suits(body: Along) -> bool:
    """Whether there may be such vectors, of one register each, for which nothing but columns
    counts: rows are not stored, and sums over columns would be in another order."""
    s, f = body.s, body.f
    if not f.target.masked or f.places is not None or any(body.row_stores):
        return False
    if s.interleave > 1 and any(columns_in_step(s, p) > 1 for p in range(s.sweeps)):
        return False
    n = body.nest.sizes[s.vector or ""]
    return not isinstance(n, int) or n % s.width != 0 or _may_lie_alike(body)


def _may_lie_alike(body: Along) -> bool:
    """Whether all that is read of rows stands side by side, a line to a vector, and whole lines
    from row to row, if it turns out so."""
    s, loads = body.s, rows_read(body)

    def may(x: Expr) -> bool:
        pitch = _pitch(body, x)
        if pitch is None or (isinstance(pitch, int) and pitch % LINE):
            return False
        plain = not (x.preds or body.nest.dynamic(x.offset))
        side_by_side = s.vector is not None and coefficient(x.offset, s.vector) == 1
        return plain and side_by_side and s.width * x.dtype.itemsize == LINE

    return bool(loads) and all(map(may, loads))


def _pitch(body: Along, x: Expr) -> Size | None:
    """Bytes from row to row."""
    pitch = coefficient(x.offset, body.s.loops[0])
    return None if pitch is None else pitch * x.dtype.itemsize


def columns_before(body: Along, grid: Scope, low: str) -> tuple[str, str]:
    """How many columns before `low` a line begins, in all rows of all operands; and an i1, whether
    these lie alike: where they differ no column is."""
    e, s, f = body.e, body.s, body.f
    if s.vector is None or not _may_lie_alike(body):
        return "0", "false"
    row = Scope(f, grid, e.section(), {s.loops[0]: "0", s.vector: low})
    first, differ = "", "0"
    for x in rows_read(body):
        at = row.element(f.params[x.param], x.dtype.itemsize, x.offset)
        at = e(f"ptrtoint ptr {at} to i64")
        if first:
            differ = e(f"or i64 {differ}, {e(f'xor i64 {at}, {first}')}")
        first = first or at
        pitch = _pitch(body, x)
        if pitch is not None and not isinstance(pitch, int):
            differ = e(f"or i64 {differ}, {f.top.size(pitch)}")
    columns = e(f"udiv i64 {e(f'and i64 {first}, {LINE - 1}')}, {LINE // s.width}")
    if differ == "0":
        return columns, "true"
    alike = e(f"icmp eq i64 {e(f'and i64 {differ}, {LINE - 1}')}, 0")
    return e(f"select i1 {alike}, i64 {columns}, i64 0"), alike


class Edges:
    """Of the columns from low to high, a vector of them at least, in vectors from `first` on: how
    many edges there are, the place and the lanes of the first of them, and of the last.

    begin, end: the columns of the whole vectors between them.
    """

    def __init__(self, e: Emitter, width: int, first: str, low: str, high: str):
        self.e, self.width, self.t = e, width, f"i{width}"
        t, before = self.t, e(f"sub nsw i64 {low}, {first}")
        left = e(f"and i64 {e(f'sub nsw i64 {high}, {first}')}, {width - 1}")
        head, tail = (e(f"icmp ne i64 {n}, 0") for n in (before, left))
        behind = e(f"add nsw i64 {first}, {width}")
        self.begin = e(f"select i1 {head}, i64 {behind}, i64 {first}")
        self.end = e(f"sub nsw i64 {high}, {left}")
        self._last = e(f"sub {t} {e(f'shl {t} 1, {self._lane(left)}')}, 1")
        lanes = e(f"shl {t} -1, {self._lane(before)}")
        self._lanes = e(f"select i1 {head}, {t} {lanes}, {t} {self._last}")
        self._at = e(f"select i1 {head}, i64 {first}, i64 {self.end}")
        one, two = (e(f"zext i1 {x} to i64") for x in (head, tail))
        self._count = e(f"add i64 {one}, {two}")

    def _lane(self, number: str) -> str:
        return number if self.width == 64 else self.e(f"trunc i64 {number} to {self.t}")

    def each(self, body: Callable[[str, str], None]) -> None:
        """body(the column where it begins, its mask) for each edge."""
        def edge(_: str, now: list[str]) -> list[str]:
            at, lanes = now
            body(at, self.e(f"bitcast {self.t} {lanes} to <{self.width} x i1>"))
            return [self.end, self._last]

        self.e.loop("0", self._count, 1, [("i64", self._at), (self.t, self._lanes)], edge)
