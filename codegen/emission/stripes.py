"""Strip-mining of long columns: rows outside, columns inside, as the rows stand in memory.

    for a block of ROWS rows:
        for STRIP rows of them:
            for a vector of columns:    state[j] = state[j] + x[i, j] + x[i + 1, j] + ..

Walking a group of columns down all of its rows would read a few lines of each row: a page of
memory for each, and nothing that a prefetcher could foresee. So what the columns accumulate stands
in memory near the core, and rows pass by, a strip of them at a time. The order of additions is
that of one group after the other (`along`): blocks are added up from nothing, and in order.

Nests of several sweeps (a variance: the mean first) take so few columns at a time that these stay
in cache from sweep to sweep, if there is such a number: rows at the distance of pages get in each
other's way. What a later sweep wants for each column is computed once between the sweeps. Where
elements are stored, pieces must stay in the nearest cache, or rows go by as they stand: each row's
store stands where the next row's load seems to (`ahead`), and lines are stored in parts. By pieces
softmax of 1000 x 1000 f32 takes 1.0 to 2.3 ms, else 0.8, of f64 5.6 and 2.0.

Columns that fill one vector at most are walked down at once, some blocks side by side (`along`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.bands import ROWS
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least, memory_of, read_states, under, write_states
from graphc.codegen.nests.axes import coefficient, needs
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import BLOCK

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along

NEAR_BYTES = 1 << 15  # of what stands in memory for a piece: the nearest cache
LEAST_COLUMNS = 256   # of a piece, or too much would stand there
STRIP = 4             # rows at a time, if they are cheap: states are read and written that seldom
CACHED_BYTES = 1 << 20  # of rows that stay in cache from sweep to sweep: half of a core's 2 MiB
PIECE = 16            # lines of memory of a row, at most, of a piece that does
LEAST_PIECE = 8       # likewise at least: fewer are read more slowly than whole rows
PAGE = 4096           # rows so far apart, or a multiple, meet in the same few sets of a cache
LEAST_VECTORS = 8   # of a row, if its length is known: fewer are one group, or a few


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
    if isinstance(column, int) and column <= 2 * ROWS:
        return False
    return _columns(body) >= LEAST_COLUMNS


def run(body: Along, grid: Scope, low: str, high: str) -> None:
    """Columns from low to high of one grid item, in pieces."""
    e, most = body.e, _columns(body)
    stripes = Stripes(body, most)
    if body.s.sweeps == 1 and most == BLOCK:
        stripes.piece(grid, low, high)
        return
    step = str(most) if body.s.sweeps == 1 else _cached_columns(body, most)
    length = e(f"sub nsw i64 {high}, {low}")
    up = e(f"add nsw i64 {length}, {e(f'sub nsw i64 {step}, 1')}")
    pieces = e(f"udiv i64 {up}, {step}")

    def piece(k: str) -> None:
        first = e(f"add nsw i64 {low}, {e(f'mul nsw i64 {k}, {step}')}")
        stripes.piece(grid, first, least(e, e(f"add nsw i64 {first}, {step}"), high))

    e.for_each("0", pieces, piece)


def _columns(body: Along) -> int:
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
    """What elements of rows need that is known for a column after some of the sweeps."""
    s, nest = body.s, body.nest
    loop, found = s.loops[0], dict[Expr, None]()
    for x in nest.exprs:
        if loop in x.axes and x.kind != "reduce":
            found.update((a, None) for a in needs(nest, x) if loop not in a.axes and s.ready[a])
    for st in nest.stores:
        if loop in st.axes and loop not in st.expr.axes and s.ready[st.expr]:
            found[st.expr] = None
    return [x for x in found if s.vector in x.axes]


def _cached_columns(body: Along, most: int) -> str:
    """Columns of a piece whose rows stay in cache between sweeps; the most, if there are none."""
    s, e, f = body.s, body.e, body.f
    assert s.vector is not None
    moved = [
        (x.dtype.itemsize, x.offset) for x in body.nest.exprs
        if x.kind == "load" and {s.vector, s.loops[0]} <= x.axes
    ]
    moved += [
        (body.nest.outputs[x.output].dtype.itemsize, x.offset)
        for xs in body.row_stores for x in xs
    ]
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


class Stripes:
    """Emits the columns of a nest piece by piece; the pieces share what stands in memory."""

    def __init__(self, body: Along, columns: int):
        self.body, self.s, self.e, self.f = body, body.s, body.e, body.f
        self.free = Lanes(self.e, self.s.width, self.f.target)  # columns beyond the last are held
        self.room = columns + self.s.width                      # as well, and never read

        def cells(types: tuple[str, ...]) -> list[str]:
            return [self.f.alloca(f"[{self.room} x {memory_of(t)}]") for t in types]

        self.totals = {
            r: cells(reduction_of(r).types) for rs in body.reduces for r in rs
        }
        self.blocks: dict[Expr, list[str]] = {}
        spare: dict[str, list[str]] = {}  # sweeps come one after the other
        for rs in body.reduces:
            left = {t: list(found) for t, found in spare.items()}
            for r in rs:
                self.blocks[r] = []
                for t in reduction_of(r).counting(ROWS).types:
                    if not left.get(t):
                        spare.setdefault(t, []).extend(cells((t,)))
                        left[t] = spare[t][-1:]
                    self.blocks[r].append(left[t].pop())
        self.between = {x: cells((register_type(x.dtype),))[0] for x in between(body)}
        self.low = ""

    # --- what stands in memory -----------------------------------------------------------------

    def read(self, e: Emitter, types: Sequence[str], cells: Sequence[str], at: str) -> list[str]:
        """A vector of states at a place."""
        return read_states(Lanes(e, self.s.width, self.f.target), types, cells, at)

    def write(
        self, types: Sequence[str], cells: Sequence[str], at: str, state: Sequence[str]
    ) -> None:
        """Put a vector of states to a place."""
        write_states(self.free, types, cells, at, state)

    def at(self, c: Scope) -> str:
        """Where a scope's columns stand in memory."""
        assert self.s.vector is not None
        return c.e(f"sub nsw i64 {c.axis_register(self.s.vector)}, {self.low}")

    def recall(self, c: Scope, p: int) -> None:
        """Make what is known for a column after `p` sweeps known to a scope of columns."""
        for x, cell in self.between.items():
            if self.s.ready[x] <= p:
                (c.vectors[x],) = self.read(c.e, [register_type(x.dtype)], [cell], self.at(c))

    def finish(self, c: Scope, p: int) -> None:
        """Make the results of the first `p` sweeps' reductions known to a scope of columns."""
        for r, cells in self.totals.items():
            if self.s.sweep[r] < p and r not in c.vectors:
                kind, L = reduction_of(r), Lanes(c.e, self.s.width, self.f.target)
                c.vectors[r] = kind.finish(
                    L, self.read(c.e, kind.types, cells, self.at(c)), r.dtype
                )

    # --- the sweeps ----------------------------------------------------------------------------

    def piece(self, grid: Scope, low: str, high: str) -> None:
        """All sweeps over the columns from low to high."""
        body, s, e, f = self.body, self.s, self.e, self.f
        self.low = low
        rows = f.top.size(body.nest.sizes[s.loops[0]])
        n = body.nest.sizes[s.vector or ""]
        length = e(f"sub nsw i64 {high}, {low}")
        whole = high
        if not isinstance(n, int) or n % s.width:
            whole = e(f"sub nsw i64 {high}, {e(f'srem i64 {length}, {s.width}')}")
        for p in range(s.sweeps):
            around = Scope(f, grid, e.section(), {}, ready=p)
            if whole == high:
                self.sweep(around, p, rows, (low, whole, high))
            else:
                few, many, done = e.fresh("few"), e.fresh("many"), e.fresh("swept")
                one = s.width - (not f.target.masked)  # masks cost nothing where they are registers
                e.do(f"br i1 {e(f'icmp sle i64 {length}, {one}')}, label %{few}, label %{many}")
                e.label(few)
                self.part(around, p, low, high, self.totals)
                e.do(f"br label %{done}")
                e.label(many)
                self.sweep(around, p, rows, (low, whole, high))
                e.do(f"br label %{done}")
                e.label(done)
            self.settle(grid, p + 1, low, high)

    def sweep(self, around: Scope, p: int, rows: str, columns: tuple[str, str, str]) -> None:
        """One sweep over `rows` rows, block by block.

        The first block's states are the totals' cells, for nothing and a block is the block; those
        of an argmax count rows of a block, and are others.
        """
        e, (low, _, high) = self.e, columns
        length = e(f"sub nsw i64 {high}, {low}")
        reduces = self.body.reduces[p]
        kinds = {r: reduction_of(r) for r in reduces}
        near = {r: kind.counting(ROWS) for r, kind in kinds.items()}
        self.clear(self.totals, kinds, length)

        def block(i: str) -> None:
            end, some = least(e, e(f"add nsw i64 {i}, {ROWS}"), rows), length
            states = {r: self.blocks[r] for r in reduces}
            if near == kinds:
                first = e(f"icmp eq i64 {i}, 0")
                some = e(f"select i1 {first}, i64 0, i64 {length}")
                states = {
                    r: [
                        e(f"select i1 {first}, ptr {a}, ptr {b}")
                        for a, b in zip(self.totals[r], cells, strict=True)
                    ]
                    for r, cells in states.items()
                }
            self.clear(self.blocks, near, some)
            self.strips(around, p, states, (i, end), columns)
            self.join(kinds, some, i)

        e.for_each("0", rows, block, ROWS)

    def part(
        self, around: Scope, p: int, at: str, high: str, states: dict[Expr, list[str]],
        rows: tuple[str, str] | None = None,
    ) -> None:
        """Columns that fill a part of a vector, in all rows or those given."""
        c = self.body.vectors_at(around, at, self.body.mask(at, high))
        self.recall(c, p)
        (now,) = self.body.reduce_rows(around, [c], p, True, rows)
        for r, state in now.items():
            kind = reduction_of(r)
            if rows is not None:
                kind = kind.counting(ROWS)
                state = kind.within(self.free, state, rows[0])
            self.write(kind.types, states[r], self.at(c), state)

    def clear(
        self, cells: dict[Expr, list[str]], kinds: dict[Expr, Reduction], length: str
    ) -> None:
        """The states of a sweep's reductions over no rows."""
        def vector(at: str) -> None:
            for r, kind in kinds.items():
                self.write(kind.types, cells[r], at, kind.start(self.free))

        if kinds:
            self.e.for_each("0", length, vector, self.s.width)

    def join(self, kinds: dict[Expr, Reduction], length: str, first: str) -> None:
        """The states of the block that begins at row `first` join the totals."""
        def vector(at: str) -> None:
            for r, kind in kinds.items():
                near = kind.counting(ROWS)
                old = self.read(self.e, kind.types, self.totals[r], at)
                new = self.read(self.e, near.types, self.blocks[r], at)
                new = near.behind(self.free, new, first)
                self.write(kind.types, self.totals[r], at, kind.merge(self.free, old, new))

        if kinds:
            self.e.for_each("0", length, vector, self.s.width)

    def strips(
        self, around: Scope, p: int, states: dict[Expr, list[str]], rows: tuple[str, str],
        columns: tuple[str, str, str],
    ) -> None:
        """The rows of a block: whole vectors of columns strip by strip, then the last columns."""
        s, e = self.s, self.e
        begin, end = rows
        low, whole, high = columns
        strip = STRIP if s.unroll > 1 and not self.waits(states) else 1
        kinds = {r: reduction_of(r).counting(ROWS).in_registers(self.f.target) for r in states}
        rest = e(f"srem i64 {e(f'sub nsw i64 {end}, {begin}')}, {strip}")
        main = e(f"sub nsw i64 {end}, {rest}")
        if whole != high:  # no row is walked along in vain
            some = e(f"icmp slt i64 {low}, {whole}")
            main = e(f"select i1 {some}, i64 {main}, i64 {begin}")
            end = e(f"select i1 {some}, i64 {end}, i64 {begin}")

        def rows_from(i: str, count: int) -> None:
            at = [e(f"add nuw nsw i64 {i}, {k}") if k else i for k in range(count)]
            numbers = [e(f"sub nuw nsw i64 {a}, {begin}") for a in at]
            rows = [
                (Scope(self.f, around, e.section(), {s.loops[0]: a}, ready=p),
                 {r: kind.numbered(self.free, k) for r, kind in kinds.items()})
                for a, k in zip(at, numbers, strict=True)
            ]

            def vector(j: str) -> None:
                self.vector(self.body.vectors_at(around, j, None), rows, kinds, states)

            e.for_each(low, whole, vector, s.width, strided=True)

        e.for_each(begin, main, lambda i: rows_from(i, strip), strip)
        if strip > 1:
            e.for_each(main, end, lambda i: rows_from(i, 1))
        if whole == high:
            return

        e.for_each(
            whole, high, lambda j: self.part(around, p, j, high, states, rows), s.width
        )

    def waits(self, reduces: Iterable[Expr]) -> bool:
        """Whether rows had better come one at a time. Each element of an argmax waits for the last,
        where masks are registers for longer than a state takes to be read and written: 1024 x 1024
        f64 take 97 us by one row and 108 by four, 8192 x 512 1,150 and 1,650. By AVX2 146 and 118.
        """
        return self.f.target.masked and any(r.name == "argmax" for r in reduces)

    def vector(
        self, c: Scope, rows: list[tuple[Scope, dict[Expr, list[str]]]],
        kinds: dict[Expr, Reduction], states: dict[Expr, list[str]],
    ) -> None:
        """A vector of columns in some rows, in order; with each row what follows its elements."""
        body, p = self.body, rows[0][0].ready
        self.recall(c, p)
        at = self.at(c)
        now = {
            r: kind.entered(self.free, self.read(self.e, kind.in_memory, states[r], at))
            for r, kind in kinds.items()
        }
        for row, numbers in rows:
            inner = under(self.f, c, row, {})
            body.evaluate_row(inner, body.reduces[p], body.row_stores[p], True)
            for r, kind in kinds.items():
                inner.e.note(r.node)
                x = [inner.vector(r.args[0]), *numbers[r]]
                now[r] = kind.follow(inner.lanes(True), now[r], x)
        for r, kind in kinds.items():
            self.write(kind.in_memory, states[r], at, now[r][:len(kind.in_memory)])

    def settle(self, grid: Scope, p: int, low: str, high: str) -> None:
        """What is known for each column after `p` sweeps: kept for later ones, or stored, or added
        to sums over all columns."""
        body, s = self.body, self.s
        new = [x for x in self.between if s.ready[x] == p]
        stores = body.late_stores if p == s.sweeps else []
        places = self.f.places if p == s.sweeps else None
        if not (new or stores or places):
            return
        over = Scope(self.f, grid, self.e.section(), {}, ready=p)

        def settled(scopes: list[Scope]) -> None:
            for c in scopes:
                self.recall(c, p - 1)
                self.finish(c, p)
                c.demand([*new, *(x.expr for x in stores), *(places.wanted if places else ())])
                for x in new:
                    self.write(
                        [register_type(x.dtype)], [self.between[x]], self.at(c), [c.vector(x)]
                    )
                for late in stores:
                    c.store(late.output, late.offset, late.expr, vector=True)
                if places is not None:
                    places.add(c, wide=True)

        body.vectors(over, low, high, settled, group=1)
