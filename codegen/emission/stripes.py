"""Strip-mining of long columns: rows outside, columns inside, as the rows stand in memory.

    for a block of ROWS rows:
        for STRIP rows of them:
            for a vector of columns:    state[j] = state[j] + x[i, j] + x[i + 1, j] + ..

Walking a group of columns down all of its rows would read a few lines of each row: a page of
memory for each, and nothing that a prefetcher could foresee. So what the columns accumulate stands
in memory near the core, and rows pass by, a strip of them at a time, or one. The order of additions
is that of one group after the other (`along`): blocks are added up from nothing, and in order.

Which nests are run so, and how many rows, and columns of several sweeps, are taken at a time:
`pieces`. Where vectors begin, and what there is of parts of one: `column_edges`. What a later sweep
wants for each column is computed once between the sweeps.

Columns that fill one vector at most are walked down at once, some blocks side by side (`along`).

What columns accumulate stands half a page from where they are in the rows: see `aliasing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.emission import column_edges, lane_masks
from graphc.codegen.emission.aliasing import PAGE, half_a_page_from
from graphc.codegen.emission.bands import ROWS
from graphc.codegen.emission.column_edges import Edges, columns_before
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.pieces import between, cached_columns, columns_of, one_by_one, waits
from graphc.codegen.emission.prefetch import NextStrip
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import greatest, least, read_states, under, write_states
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr, dynamic
from graphc.codegen.nests.schedule import BLOCK
from graphc.codegen.nests.sweeps import columns_in_step

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along

STRIP = 4  # rows at a time, if they are cheap: states are read and written that seldom


def run(body: Along, grid: Scope, low: str, high: str) -> None:
    """Columns from low to high of one grid item, in pieces."""
    e, most = body.e, columns_of(body)
    stripes = Stripes(body, most)
    begin = low
    if stripes.has_edges:
        before, stripes.alike = columns_before(body, grid, low)
        begin = e(f"sub nsw i64 {low}, {before}")
    if body.s.sweeps == 1 and most == BLOCK:
        stripes.piece(grid, begin, low, high)
        return
    step = str(most) if body.s.sweeps == 1 else cached_columns(body, most)
    length = e(f"sub nsw i64 {high}, {begin}")
    up = e(f"add nsw i64 {length}, {e(f'sub nsw i64 {step}, 1')}")
    pieces = e(f"udiv i64 {up}, {step}")

    def piece(k: str) -> None:
        first = e(f"add nsw i64 {begin}, {e(f'mul nsw i64 {k}, {step}')}")
        wanted = first if begin == low else greatest(e, first, low)
        stripes.piece(grid, first, wanted, least(e, e(f"add nsw i64 {first}, {step}"), high))

    e.for_each("0", pieces, piece)


class Stripes:
    """Emits the columns of a nest piece by piece; the pieces share what stands in memory.

    rows: of a block. Columns known to be short are one, as they are where a group goes down them.
    """

    def __init__(self, body: Along, columns: int):
        self.body, self.s, self.e, self.f = body, body.s, body.e, body.f
        self.has_edges = column_edges.suits(body)
        # columns beyond the last are held as well, as are some before the first, and never read
        self.free = Lanes(self.e, self.s.width, self.f.target)
        self.room = columns + (1 + self.has_edges) * self.s.width
        most = dims.most(body.nest.sizes[self.s.loops[0]])
        self.rows = ROWS if most is None or most > 2 * ROWS else 2 * ROWS

        self.operand = _operand(body)
        self.next = NextStrip(self.s, self.f.target, STRIP)
        to_spare = f"[{PAGE} x i8]"  # see `place`

        def cells(types: tuple[str, ...]) -> list[str]:
            return [
                self.f.alloca(f"{{ [{self.room} x {memory_of(t)}], {to_spare} }}") for t in types
            ]

        self.totals = {
            r: cells(reduction_of(r).types) for rs in body.reduces for r in rs
        }
        self.blocks: dict[Expr, list[str]] = {}
        spare: dict[str, list[str]] = {}  # sweeps come one after the other
        for rs in body.reduces:
            left = {t: list(found) for t, found in spare.items()}
            for r in rs:
                self.blocks[r] = []
                for t in reduction_of(r).counting(self.rows).types:
                    if not left.get(t):
                        spare.setdefault(t, []).extend(cells((t,)))
                        left[t] = spare[t][-1:]
                    self.blocks[r].append(left[t].pop())
        self.between = {x: cells((register_type(x.dtype),))[0] for x in between(body)}
        self.alike = "false"  # an i1: whether vectors begin with lines
        self.edges: Edges | None = None
        self.low = self.first = ""  # the first column, and where its vector begins

    def place(self, grid: Scope, low: str) -> None:
        """Move the cells to half a page from the columns from `low` on of an operand: `aliasing`.

        Once only: all pieces are one loop.
        """
        self.low = low
        if self.operand is None:
            return
        x, e = self.operand, self.e
        assert self.s.vector is not None
        first = Scope(self.f, grid, e.section(), {self.s.loops[0]: "0", self.s.vector: low})
        offset = e(f"mul i64 {first.size(x.offset)}, {x.dtype.itemsize}")
        read = e(f"add i64 {e(f'ptrtoint ptr {self.f.params[x.param]} to i64')}, {offset}")
        moved: dict[str, str] = {}

        def apart(cell: str) -> str:
            if cell not in moved:
                moved[cell] = half_a_page_from(e, read, cell)
            return moved[cell]

        for states in (self.totals, self.blocks):
            states.update({r: [apart(c) for c in cells] for r, cells in states.items()})
        self.between = {x: apart(cell) for x, cell in self.between.items()}

    # --- what stands in memory -----------------------------------------------------------------

    def at(self, c: Scope) -> str:
        """Where a scope's columns stand in memory."""
        assert self.s.vector is not None
        return c.e(f"sub nsw i64 {c.axis_register(self.s.vector)}, {self.first}")

    def recall(self, c: Scope, p: int) -> None:
        """Make what is known for a column after `p` sweeps known to a scope of columns."""
        for x, cell in self.between.items():
            if self.s.ready[x] <= p:
                types = [register_type(x.dtype)]
                (c.vectors[x],) = read_states(c.lanes(True), types, [cell], self.at(c))

    def finish(self, c: Scope, p: int) -> None:
        """Make the results of the first `p` sweeps' reductions known to a scope of columns."""
        for r, cells in self.totals.items():
            if self.s.sweep[r] < p and r not in c.vectors:
                kind, L = reduction_of(r), Lanes(c.e, c.width, self.f.target)
                c.vectors[r] = kind.finish(
                    L, read_states(L, kind.types, cells, self.at(c)), r.dtype
                )

    # --- the sweeps ----------------------------------------------------------------------------

    def piece(self, grid: Scope, first: str, low: str, high: str) -> None:
        """All sweeps over the columns from low to high, the first of which are in a vector that
        begins at `first`."""
        body, s, e, f = self.body, self.s, self.e, self.f
        self.first = first
        self.place(grid, low)
        self.next.begin(f, low, high)
        self.edges = Edges(e, s.width, first, low, high) if self.has_edges else None
        rows = f.top.size(body.nest.sizes[s.loops[0]])
        n = body.nest.sizes[s.vector or ""]
        length = e(f"sub nsw i64 {high}, {low}")
        parts = not isinstance(n, int) or n % s.width != 0
        whole = high
        if parts and not self.has_edges:
            whole = e(f"sub nsw i64 {high}, {e(f'srem i64 {length}, {s.width}')}")
        for p in range(s.sweeps):
            f.sweeping = p
            around = Scope(f, grid, e.section(), {}, ready=p)
            if not parts:
                self.sweep(around, p, rows, (self.first, whole, high))
            else:
                few, many, done = e.fresh("few"), e.fresh("many"), e.fresh("swept")
                one = s.width - (not f.target.masked)  # masks cost nothing where they are registers
                e.do(f"br i1 {e(f'icmp sle i64 {length}, {one}')}, label %{few}, label %{many}")
                e.label(few)
                self.part(around, p, low, high, self.totals)
                e.do(f"br label %{done}")
                e.label(many)
                self.sweep(around, p, rows, (self.first, whole, high))
                e.do(f"br label %{done}")
                e.label(done)
            self.settle(grid, p + 1, low, high)

    def sweep(self, around: Scope, p: int, rows: str, columns: tuple[str, str, str]) -> None:
        """One sweep over `rows` rows, block by block. columns: where their first vector begins,
        where whole ones end, and where the last one does.

        The first block's states are the totals' cells, for nothing and a block is the block; those
        of an argmax count rows of a block, and are others.
        """
        e, (low, _, high) = self.e, columns
        length = e(f"sub nsw i64 {high}, {low}")
        reduces = self.body.reduces[p]
        kinds = {r: reduction_of(r) for r in reduces}
        near = {r: kind.counting(self.rows) for r, kind in kinds.items()}
        self.clear(self.totals, kinds, length)

        def block(i: str) -> None:
            end, some = least(e, e(f"add nsw i64 {i}, {self.rows}"), rows), length
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

        e.for_each("0", rows, block, self.rows)

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
                kind = kind.counting(self.rows)
                state = kind.within(self.free, state, rows[0])
            write_states(self.free, kind.types, states[r], self.at(c), state)

    def clear(
        self, cells: dict[Expr, list[str]], kinds: dict[Expr, Reduction], length: str
    ) -> None:
        """The states of a sweep's reductions over no rows."""
        def vector(at: str) -> None:
            for r, kind in kinds.items():
                write_states(self.free, kind.types, cells[r], at, kind.start(self.free))

        if kinds:
            self.e.for_each("0", length, vector, self.s.width)

    def join(self, kinds: dict[Expr, Reduction], length: str, first: str) -> None:
        """The states of the block that begins at row `first` join the totals."""
        def vector(at: str) -> None:
            for r, kind in kinds.items():
                near = kind.counting(self.rows)
                old = read_states(self.free, kind.types, self.totals[r], at)
                new = read_states(self.free, near.types, self.blocks[r], at)
                new = near.behind(self.free, new, first)
                both = kind.merge(self.free, old, new)
                write_states(self.free, kind.types, self.totals[r], at, both)

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
        kinds = {r: reduction_of(r).counting(self.rows).in_registers(self.f.target) for r in states}

        def rows_from(i: str, count: int, first: str, last: str, width: int) -> None:
            at = [e(f"add nuw nsw i64 {i}, {k}") if k else i for k in range(count)]
            numbers = [e(f"sub nuw nsw i64 {a}, {begin}") for a in at]
            rows = [
                (Scope(self.f, around, e.section(), {s.loops[0]: a}, ready=p),
                 {r: kind.numbered(self.free, k) for r, kind in kinds.items()})
                for a, k in zip(at, numbers, strict=True)
            ]

            def vector(j: str, mask: str | None = None) -> None:
                c = self.body.vectors_at(around, j, mask, width)
                self.vector(c, rows, kinds, states)

            if self.edges is None:
                e.for_each(first, last, vector, width, strided=True)
            else:
                e.for_each(self.edges.begin, self.edges.end, vector, width, strided=True)
                self.edges.each(vector)

        def strips(first: str, last: str, width: int, strip: int, alone: str = "false") -> None:
            """Vectors of columns from first to last, of which there may be none; `alone`: whether
            rows go by one at a time after all."""
            stop = end
            if first != low or last != high:  # no row is walked along in vain
                some = e(f"icmp slt i64 {first}, {last}")
                stop = e(f"select i1 {some}, i64 {end}, i64 {begin}")
            main = begin
            if strip > 1:
                rest = e(f"srem i64 {e(f'sub nsw i64 {stop}, {begin}')}, {strip}")
                main = e(f"sub nsw i64 {stop}, {rest}")
                if alone != "false":
                    main = e(f"select i1 {alone}, i64 {begin}, i64 {main}")
                e.for_each(begin, main, lambda i: rows_from(i, strip, first, last, width), strip)
            e.for_each(main, stop, lambda i: rows_from(i, 1, first, last, width))

        middle, abreast = low, columns_in_step(s, p) if s.interleave > 1 else 1
        if abreast > 1:
            left = e(f"srem i64 {e(f'sub nsw i64 {whole}, {low}')}, {abreast * s.width}")
            middle = e(f"sub nsw i64 {whole}, {left}")
            strips(low, middle, abreast * s.width, 1)
        if s.unroll > 1 and not waits(self.f.target, states):
            length = e(f"sub nsw i64 {high}, {self.low}")
            strips(middle, whole, s.width, STRIP, one_by_one(self.body, p, length, self.alike))
        else:
            strips(middle, whole, s.width, 1)
        if whole == high:
            return

        e.for_each(
            whole, high, lambda j: self.part(around, p, j, high, states, rows), s.width
        )

    def vector(
        self, c: Scope, rows: list[tuple[Scope, dict[Expr, list[str]]]],
        kinds: dict[Expr, Reduction], states: dict[Expr, list[str]],
    ) -> None:
        """A vector of columns in some rows, in order; with each row what follows its elements."""
        body, p = self.body, rows[0][0].ready
        self.recall(c, p)
        at, free = self.at(c), Lanes(self.e, c.width, self.f.target)
        now = {
            r: kind.entered(free, read_states(free, kind.in_memory, states[r], at))
            for r, kind in kinds.items()
        }
        for k, (row, numbers) in enumerate(rows):
            inner = under(self.f, c, row, {})
            if not k and len(rows) == STRIP:
                self.next.ask(inner, self.at(c))
            body.evaluate_row(inner, body.reduces[p], body.row_stores[p], True)
            for r, kind in kinds.items():
                inner.e.note(r.node)
                x = [inner.vector(r.args[0]), *numbers[r]]
                now[r] = kind.follow(inner.lanes(True), now[r], x)
        for r, kind in kinds.items():
            write_states(free, kind.in_memory, states[r], at, now[r][:len(kind.in_memory)])

    def settle(self, grid: Scope, p: int, low: str, high: str) -> None:
        """What is known for each column after `p` sweeps: kept for later ones, or stored, or added
        to sums over all columns."""
        body, s, f = self.body, self.s, self.f
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
                    types, cells = [register_type(x.dtype)], [self.between[x]]
                    L = Lanes(self.e, c.width, self.f.target)
                    write_states(L, types, cells, self.at(c), [c.vector(x)])
                for late in stores:
                    c.store(late.output, late.offset, late.expr, vector=True)
                if places is not None:
                    places.add(c, wide=True)

        if self.edges is None:
            body.vectors(over, low, high, settled, group=1)
            return

        def vector(j: str) -> None:
            below, beyond = (self.e(f"sub nsw i64 {end}, {j}") for end in (low, high))
            mask, _ = lane_masks.between(self.free, below, beyond, f.bits)
            settled([body.vectors_at(over, j, mask)])

        self.e.for_each(self.first, high, vector, s.width)


def _operand(body: Along) -> Expr | None:
    """One whose rows are read in the order of memory, if there is one."""
    s, exprs = body.s, body.nest.exprs
    assert s.vector is not None
    return next((
        x for x in exprs if x.kind == "load" and s.loops[0] in x.axes
        and coefficient(x.offset, s.vector) == 1 and not dynamic(exprs, x.offset)
    ), None)
