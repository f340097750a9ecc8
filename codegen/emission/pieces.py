"""Which nests `stripes` runs, and how many of their columns and rows at a time.

Nests of several sweeps (a variance: the mean first) take so few columns at a time that these stay
in cache from sweep to sweep, if there is such a number: rows at the distance of pages get in each
other's way. Where elements are stored, pieces must stay in the nearest cache, or rows go by as they
stand: each row's store stands where the next row's load seems to (`ahead`), and lines are stored in
parts. By pieces softmax of 1000 x 1000 f32 takes 1.0 to 2.3 ms, else 0.8, of f64 5.6 and 2.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.emission.bands import FAR_BYTES, ROWS
from graphc.codegen.emission.literals import register_type
from graphc.codegen.emission.prefetch import CORE_BYTES
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.sweep import least
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coefficient, needs
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import BLOCK
from graphc.codegen.nests.sweeps import sweep_cost
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along

NEAR_BYTES = 1 << 15    # of what stands in memory for a piece: the nearest cache
LEAST_COLUMNS = 256     # of a piece, or too much would stand there
CACHED_BYTES = 1 << 20  # of rows that stay in cache from sweep to sweep: half of a core's 2 MiB
PIECE = 16              # lines of memory of a row, at most, of a piece that does
LEAST_PIECE = 8         # likewise at least: fewer are read more slowly than whole rows
PAGE = 4096             # rows so far apart, or a multiple, meet in the same few sets of a cache
LEAST_VECTORS = 8       # of a row, if its length is known: fewer are one group, or a few
LEAST_ROWS = 16         # or states would be read and written too often for what is added to them
EVEN = 1024             # bytes: rows a multiple of these apart meet in few sets of a cache as well
ROW_BYTES = 1 << 13     # of rows that go by one at a time, at most, on cores that read in order
LONE_BYTES = 1 << 11    # of far ones that one thread takes alone, at most
CHEAP = 10              # cost of a sweep, less than which waits for what the last cache holds


def fits(body: Along) -> bool:
    """Whether a nest can be run so, and is worth it."""
    s, nest = body.s, body.nest
    reduces = [r for rs in body.reduces for r in rs]
    if s.vector is None or s.width == 1 or len(s.loops) != 1 or not reduces:
        return False
    if body.scans or any(s.vector not in r.axes for r in reduces):
        return False
    row, column = nest.sizes[s.vector], nest.sizes[s.loops[0]]
    if isinstance(row, int) and row < LEAST_VECTORS * s.width:
        return False
    if isinstance(column, int) and column <= 2 * ROWS and not _suits_few(body, column):
        return False
    return columns_of(body) >= LEAST_COLUMNS


def _suits_few(body: Along, rows: int) -> bool:
    """Whether so few rows are better walked along than a group of vectors down at a time.

    A group's lines stand in a core's cache together, unless rows are an even distance apart: then
    they meet in few sets of it. Sums of 256 x 2048 f32 take 21 us, in groups 41, and of 256 x 2000
    20 and 18; standardised columns of 256 x 2048 81 and 557.
    """
    if rows < LEAST_ROWS or waits(body.f.target, body.s.sweep):
        return False
    pitches = [(size, coefficient(offset, body.s.loops[0])) for size, offset in _moved(body)]
    return any(
        isinstance(pitch, int) and pitch and pitch * size % EVEN == 0 for size, pitch in pitches
    )


def waits(target: Target, reduces: Iterable[Expr]) -> bool:
    """Whether rows had better come one at a time. Each element of an argmax waits for the last,
    where masks come late for longer than a state takes to be read and written: 1024 x 1024 f64
    take Zen 5 97 us by one row and 108 by four, 8192 x 512 1,150 and 1,650; AVX-512 of Intel 310
    and 270, 1,320 and 1,090, AVX2 146 and 118.
    """
    return target.masks_late and any(r.name == "argmax" for r in reduces)


def one_by_one(body: Along, p: int, columns: str, by_lines: str) -> str:
    """Whether sweep p takes rows one at a time, not strips of them, of whose columns there are so
    many: an i1. `by_lines` is one, too: whether vectors of columns begin with lines.

    A core that reads far memory in order takes one stream faster than the four of a strip. Sums of
    65,536 x 256 f32 take Zen 4 1.7 ms in the place of 4.8, of 8,192 x 2,048 1.7 and 2.3; variances
    of 32,768 x 256 f64 3.5 ms and 7.6. So it does what the last cache holds if it goes by lines:
    1024 x 1024 f64 take 88 us and 104, else 116 and 110, of f32 44 and 47, else 58 and 47. What
    stands in memory for longer rows would take longer to read and write, and parts of rows, which
    threads have, are no stream: two take the sums of 16,384 x 1024 2.2 ms, one at a time 2.8.
    """
    e, s, top = body.e, body.s, body.f.top
    if not body.f.target.reads_in_order or s.vector is None:
        return "false"
    each, n = sum(size for size, _ in _moved(body)), body.nest.sizes[s.vector]
    states = [t for r in body.reduces[p] for t in reduction_of(r).types]
    cheap = s.sweeps == len(states) == 1 and sweep_cost(s, p) < CHEAP and by_lines != "false"
    whole, least = dims.product(body.nest.sizes.values()) * each, CORE_BYTES if cheap else FAR_BYTES
    if (isinstance(n, int) and n * each > ROW_BYTES) or (isinstance(whole, int) and whole <= least):
        return "false"
    far = e(f"icmp sgt i64 {top.size(whole)}, {FAR_BYTES}")
    if cheap:
        near = e(f"icmp sgt i64 {top.size(whole)}, {CORE_BYTES}")
        far = e(f"or i1 {far}, {near if by_lines == 'true' else e(f'and i1 {near}, {by_lines}')}")
    conditions = [e(f"icmp eq i64 {columns}, {top.size(n)}"), far]
    if not isinstance(n, int):
        conditions.append(e(f"icmp sle i64 {top.size(n * each)}, {ROW_BYTES}"))
    return e.all_of(conditions)


def lone(body: Along) -> Size:
    """1 where one thread had better take all rows, else 0: two that share columns read no stream.

    Sums of 65,536 x 256 f32 take two threads of Zen 4 3.3 ms, one of them 1.8, softmax 20 and 10;
    sums of 32,768 x 512 3.0 and 1.8, of 8,192 x 2048 as long.
    """
    s, nest = body.s, body.nest
    n = nest.sizes[s.vector] if s.vector is not None and not s.grid else None
    if not (body.f.target.reads_in_order and isinstance(n, int) and fits(body)):
        return 0
    each = sum(size for size, _ in _moved(body))
    if n * each > LONE_BYTES:
        return 0
    return dims.minimum(dims.floordiv(n * nest.sizes[s.loops[0]] * each, FAR_BYTES), 1)


def columns_of(body: Along) -> int:
    """The columns of a piece: as many as NEAR_BYTES hold states of."""
    each = sum(_bytes(t) for rs in body.reduces for r in rs for t in reduction_of(r).types)
    each += max(sum(_bytes(t) for r in rs for t in reduction_of(r).types) for rs in body.reduces)
    each += sum(_bytes(register_type(x.dtype)) for x in between(body))
    columns = BLOCK
    while columns * each > NEAR_BYTES:
        columns //= 2
    return columns


def _bytes(t: str) -> int:
    """Of an element of a scalar type."""
    return {"float": 4, "double": 8}.get(t) or max(1, int(t[1:]) // 8)


def between(body: Along) -> list[Expr]:
    """What elements of rows, or reductions of these, need that is known for a column after some of
    the sweeps."""
    s, nest = body.s, body.nest
    loop, found = s.loops[0], dict[Expr, None]()
    for x in nest.exprs:
        if loop in x.axes or x in s.sweep:
            found.update((a, None) for a in needs(nest, x) if loop not in a.axes and s.ready[a])
    for st in nest.stores:
        if loop in st.axes and loop not in st.expr.axes and s.ready[st.expr]:
            found[st.expr] = None
    return [x for x in found if s.vector in x.axes]


def cached_columns(body: Along, most: int) -> str:
    """Columns of a piece whose rows stay in cache between sweeps; the most, if there are none."""
    s, e, f = body.s, body.e, body.f
    assert s.vector is not None
    moved = _moved(body)
    bytes_ = max(1, sum(size for size, _ in moved))
    rows = f.top.size(body.nest.sizes[s.loops[0]])
    some = e(f"select i1 {e(f'icmp eq i64 {rows}, 0')}, i64 1, i64 {rows}")
    cached = NEAR_BYTES if any(body.row_stores) else CACHED_BYTES
    share = e(f"udiv i64 {cached}, {some}")  # of a row
    columns = e(f"and i64 {e(f'udiv i64 {share}, {bytes_}')}, -64")
    line = s.lanes // 4
    enough = e(f"icmp sge i64 {columns}, {LEAST_PIECE * line}")
    for size, offset in dict.fromkeys(moved):
        pitch = coefficient(offset, s.loops[0])
        if pitch is None:
            continue
        # rows meet in the sets of a cache that their distance's lowest bit leaves them
        bits = e(f"mul i64 {f.top.size(pitch)}, {size}")
        lowest = e(f"and i64 {bits}, {e(f'sub i64 0, {bits}')}")
        apart = e(f"icmp sge i64 {share}, {least(e, lowest, str(PAGE))}")
        enough = e(f"and i1 {enough}, {apart}")
    piece = least(e, columns, str(min(most, PIECE * line)))  # of bytes, a few lines are too many
    return e(f"select i1 {enough}, i64 {piece}, i64 {most}")


def rows_read(body: Along) -> list[Expr]:
    """What rows read: the loads that differ from row to row and from column to column."""
    both = {body.s.vector, body.s.loops[0]}
    return [x for x in body.nest.exprs if x.kind == "load" and both <= x.axes]


def _moved(body: Along) -> list[tuple[int, Size]]:
    """Bytes of an element, and where it stands, of what rows read and store."""
    moved = [(x.dtype.itemsize, x.offset) for x in rows_read(body)]
    moved += [
        (body.nest.outputs[x.output].dtype.itemsize, x.offset)
        for xs in body.row_stores for x in xs
    ]
    return moved
