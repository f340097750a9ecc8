"""Blocking of long sums with few results: rows in bands, each of which adds to all results.

    for a band of ROWS rows:                      threads share these
        for a tile of results:                    in registers
            for the rows of the band:    state = state + f(a[k, i], b[k, j])
            add the state to what the bands before left in memory

One tile after the other down all rows would read all rows as often as there are tiles, and there
would be no more to share than tiles. So a band is read once, by all tiles, while it is in cache.
What they add up stands in the kernel's workspace, one place of it for each chunk of bands, as the
split follows from shapes alone; the chunks are added up in order, and what ends the sums, what is
computed of them and stored, comes then. Within a chunk the order of additions is that of one tile
after the other (`along`): bands are added up from nothing, and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission import packed
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.sweep import least, read_states, write_states
from graphc.codegen.nests.loops import Expr
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along
    from graphc.codegen.emission.frame import Frame
    from graphc.codegen.emission.scope import Scope
    from graphc.codegen.nests.schedule import Schedule

ROWS = 256        # elements that are added up before they join the total: keeps long sums exact
MOST_LINES = 128  # of memory for the states of a chunk: the rows of a band are much more
MOST_ROW = 8      # lines of a row of results: longer ones go by as they stand (`stripes`)
FAR_BYTES = 20 << 20  # of rows that no cache holds,
FAR_ROW = 32          # and of one of them


def suit(s: Schedule) -> bool:
    """Whether a nest whose vector axis is an outer one is run so."""
    nest, vector = s.nest, s.vector
    if s.sweeps != 1 or s.sums or s.columns or len(s.loops) != 1 or vector is None:
        return False
    (rows,) = s.loops
    length, row = nest.sizes[rows], nest.sizes[vector]
    if isinstance(length, int) and length <= 2 * ROWS:
        return False
    if not isinstance(row, int) or row >= MOST_ROW * s.line:
        return False
    if any(e.kind == "scan" for e in nest.exprs) or any(rows in x.axes for x in nest.stores):
        return False
    if any(r.name == "argmax" or vector not in r.axes for r in s.sweep):
        return False
    places = _places(s)
    return isinstance(places, int) and len(s.sweep) * places <= MOST_LINES * s.line


def take(s: Schedule) -> None:
    """Make items of bands of rows, each for all results."""
    s.bands, s.band = True, ROWS
    packed.take(s)
    s.items = dims.ceildiv(s.nest.sizes[s.loops[0]], s.band)
    s.cycles = dims.floordiv(s.band * s.cost * s.nest.points, s.line) + 20


def _places(s: Schedule) -> Size:
    """Where a sum's states stand: rows of the vector axis, in whole lines."""
    return dims.product(s.nest.sizes[n] for n in s.grid) * _pitch(s)


def _pitch(s: Schedule) -> Size:
    """Places of a row of results: whole lines."""
    assert s.vector is not None
    return dims.round_up(s.nest.sizes[s.vector], s.line)


def chunk_bytes(s: Schedule) -> Size:
    """Bytes of the states of one chunk."""
    return 8 * len(s.sweep) * _places(s)


def stretches(f: Frame, sides: int) -> list[tuple[int, str]]:
    """How many whole bands, or blocks of rows, go side by side in each of the loops over them, and
    an i1 by which a loop is left out, or "". The last one, or part of it, comes after these.

    `sides` of them do not wait for their sums, but Zen 4 reads far memory faster in order than from
    some places in turns: sums of 1M x 8 f32 take 760 us by one block and 1,100 by four, of 2M x 4
    f64 1,880 and 2,690, variances 3,940 and 5,770; of 128k x 8 f32, in the cache, 84 and 48. Zen 5
    does so where rows are less than a line: sums of 1M x 8 f32 take 600 us and 678, variances 1,277
    and 1,607, of 2M x 4 f64 1,410 and 1,545, of 1M x 8 1,395 and 1,181. What does not round goes
    through blocks in order anyway (`down`).
    """
    s, nest = f.schedule, f.nest
    rows, row = s.loops[0], nest.sizes[s.vector or ""]
    apart = [(sides, "")]
    if not (f.target.reads_lines_in_order and isinstance(row, int)):
        return apart
    read = {
        x.attrs[:2]: x.dtype.itemsize for x in nest.exprs if x.kind == "load" and rows in x.axes
    }
    each = sum(read.values())
    if row * each < FAR_ROW or all(reduction_of(r).associative for r in s.sweep):
        return apart
    if row * each >= LINE and not f.target.reads_in_order:
        return apart
    bytes_ = nest.points * nest.sizes[rows] * each
    if isinstance(bytes_, int):
        return [(1, "")] if bytes_ > FAR_BYTES else apart
    far = f.e(f"icmp ugt i64 {f.top.size(bytes_)}, {FAR_BYTES}")
    return [(sides, far), (1, "")]


class Bands:
    """Where the states of a task's chunk stand, and the rows that are being added to them; or all
    chunks, when their sums come to an end."""

    def __init__(self, f: Frame, workspace: str, chunks: str = ""):
        self.f, self.s, self.workspace = f, f.schedule, workspace
        self.bytes = f.top.size(chunk_bytes(self.s))
        self.chunks = chunks     # how many to add up, at the end
        self.base = workspace    # of the task's chunk
        self.rows = ("", "")     # the band,
        self.sides = 0           # so many whole ones side by side; 0: one, or part of it
        self.first = ""          # whether it is the chunk's first

    def each(
        self, chunk: str, first: str, end: str, sides: int, tiles: Callable[[], None]
    ) -> None:
        """Write `tiles` for a chunk's bands, `sides` of them at a time while these are whole."""
        e = self.f.e
        rows = self.f.top.size(self.s.nest.sizes[self.s.loops[0]])
        self.base = self._of(chunk)

        def bands(i: str, sides: int) -> None:
            low = e(f"mul nsw i64 {i}, {self.s.band}")
            high = e(f"add nsw i64 {low}, {self.s.band}")
            self.rows = (low, high if sides else least(e, high, rows))
            self.first, self.sides = e(f"icmp eq i64 {i}, {first}"), sides
            tiles()

        if sides == 1:
            e.for_each(first, end, lambda i: bands(i, 0), some=True)
            return
        whole, start = least(e, e(f"udiv i64 {rows}, {ROWS}"), end), first
        for count, left_out in stretches(self.f, sides):
            left = e(f"srem i64 {e(f'sub nsw i64 {whole}, {start}')}, {count}")
            rest = e(f"sub nsw i64 {whole}, {left}")
            if left_out:
                rest = e(f"select i1 {left_out}, i64 {start}, i64 {rest}")
            e.for_each(start, rest, partial(bands, sides=count), count)
            start = rest
        e.for_each(start, end, lambda i: bands(i, 0))

    def _of(self, chunk: str) -> str:
        """Where a chunk's states begin."""
        e = self.f.e
        offset = e(f"mul nsw i64 {chunk}, {self.bytes}")
        return e(f"getelementptr inbounds i8, ptr {self.workspace}, i64 {offset}")

    def add(self, body: Along, grid: Scope, scopes: Sequence[Scope], wide: bool) -> None:
        """Add the rows of the bands to the states of a tile."""
        e = self.f.e
        L = Lanes(e, self.s.width if wide else 1, self.f.target)
        if self.sides:
            blocks = body.blocks(grid, scopes, wide, self.rows, self.sides)
        else:
            blocks = [body.reduce_rows(grid, scopes, 0, wide, self.rows)]
        for c, *found in zip(scopes, *blocks, strict=True):
            at = self._at(c)
            for k, r in enumerate(self.s.sweep):
                kind = reduction_of(r)
                cells = self._cells(self.base, k)
                old, new = read_states(L, kind.types, cells, at), found[0][r]
                both = kind.merge(L, old, new)
                joined = [  # for the first band, memory holds no sums yet
                    e(f"select i1 {self.first}, {L.vec(t)} {x}, {L.vec(t)} {y}")
                    for t, x, y in zip(kind.types, new, both, strict=True)
                ]
                for later in found[1:]:
                    joined = kind.merge(L, joined, later[r])
                write_states(L, kind.types, cells, at, joined)

    def totals(self, scopes: Sequence[Scope], wide: bool) -> list[dict[Expr, list[str]]]:
        """What all chunks have added up for a tile."""
        e = self.f.e
        L = Lanes(e, self.s.width if wide else 1, self.f.target)
        places = [self._at(c) for c in scopes]
        sums = [(at, k, reduction_of(r)) for at in places for k, r in enumerate(self.s.sweep)]
        start = [
            (L.vec(t), v) for _, _, kind in sums
            for t, v in zip(kind.types, kind.start(L), strict=True)
        ]

        def chunk(c: str, state: list[str]) -> list[str]:
            base, left = self._of(c), iter(state)
            return [
                x for at, k, kind in sums
                for x in kind.merge(
                    L, [next(left) for _ in kind.types],
                    read_states(L, kind.types, self._cells(base, k), at),
                )
            ]

        left = iter(e.loop("0", self.chunks, 1, start, chunk))
        return [
            {r: [next(left) for _ in reduction_of(r).types] for r in self.s.sweep} for _ in scopes
        ]

    def _cells(self, base: str, k: int) -> list[str]:
        """Where the states of a sum stand, in a chunk."""
        offset = 8 * k * _places(self.s)
        return [self.f.e(f"getelementptr inbounds i8, ptr {base}, i64 {self.f.top.size(offset)}")]

    def _at(self, c: Scope) -> str:
        """The place of the elements that a scope is at."""
        e, sizes = self.f.e, self.s.nest.sizes
        assert self.s.vector is not None
        row = "0"
        for n in self.s.grid:
            row = e(f"mul nsw i64 {row}, {self.f.top.size(sizes[n])}")
            row = e(f"add nsw i64 {row}, {c.axis_register(n)}")
        row = e(f"mul nsw i64 {row}, {self.f.top.size(_pitch(self.s))}")
        return e(f"add nsw i64 {row}, {c.axis_register(self.s.vector)}")
