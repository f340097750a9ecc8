"""The schedule of a loop nest: vector width, sweeps over a row, what a task's items are.

Two ways of running a nest with reductions:

    across   inner-loop vectorisation, the vector axis is reduced: a row is swept with vectors,
             partial results stand in VIRTUAL_BITS of lanes and are combined in a fixed tree
    along    outer-loop vectorisation: every lane is a row of its own; the reduced axes are scalar
             loops around vector accumulators. A nest without reductions has none of these loops.

Grid items (all outer axes but the vector axis, times blocks of it) are what tasks are made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from graphc import dims
from graphc.codegen.emission import bands, interleaving, narrow, packed
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.nests import tiles
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.costs import (
    cost_of,
    fill_registers,
    halved,
    in_steps,
    interleaved,
    reads_neighbours,
    short_of_registers,
)
from graphc.codegen.nests.flattened import rows
from graphc.codegen.nests.loops import Expr, Nest, Store, axis
from graphc.codegen.nests.stages import Stages, stages_of
from graphc.codegen.nests.sweeps import columns_in_step, few_vectors, keep, steps, sweeps_of, wanted
from graphc.codegen.nests.tiles import Tile, TurnedRows
from graphc.codegen.nests.vector_axis import axis_and_tile, is_less, lane_bits
from graphc.dims import Size

BLOCK = 4096              # elements of the vector axis in a grid item
FINAL = 1 << 20           # "ready" after all items
SHORT_COLUMN = 512        # elements summed over that are added up without blocks between
COLUMN_BYTES = 512        # likewise of columns that are summed: their share of a row, ..
MANY_BLOCKS = 16          # .. where there are fewer blocks than so many
ROW_BLOCK = 512           # rows in lanes in an item, where each is some work
MOST_ABREAST = 100        # cycles of a nest whose end may be written for each of some vectors
SCANNED_ROWS = 4          # rows scanned side by side: the lines of more would push each other out
CHEAP_SCAN = 10           # of the nearest cache where strides are even; for scans of so little cost
# Of a nest that looks up bytes: no instruction gathers them, and taking indices out of registers
# and putting bytes into one takes longer than going byte by byte. 900,000 pixels by a table take
# 0.57 ms, by vectors 0.92; with a product and a sum 1.0 either way. By twos vectors are faster.
CHEAP_LOOKUP = 6


@dataclass
class Schedule:
    """A nest and the decisions about it."""

    nest: Nest
    vector: str | None            # the vectorised axis
    width: int
    lanes: int                    # virtual lanes of a reduction
    grid: list[str]               # outer axes that items are numbered by, outermost first
    loops: list[str]              # scalar loops inside an item: reduced axes, outermost first
    across: bool                  # the vector axis is reduced
    sweep: dict[Expr, int]        # reductions: the sweep over the row that feeds them
    ready: dict[Expr, int]        # how many sweeps must be over before the value is known
    final: set[Expr]              # known only after all items
    sweeps: int
    flat: bool                    # no outer axes: items are pieces of the first reduced axis
    cost: int                     # of one vector of the nest, in cycles, roughly
    unroll: int
    interleave: int               # vectors that are computed side by side, as one wide register,
    stepped: list[bool]           # whether each sweep does so in step; or all, where there is none
    cycles: Size                  # of one grid item
    items: Size
    sums: list[Expr] = field(default_factory=list)  # reductions over all items
    columns: list[Expr] = field(default_factory=list)  # sums over the items, per element of a row
    cached: dict[Expr, int] = field(default_factory=dict)  # kept from this sweep for later ones, ..
    lent: dict[Expr, Store] = field(default_factory=dict)  # .. where this store will be, or aside
    block: int = BLOCK         # elements of the vector axis in an item
    tile: Tile | None = None   # an axis of the grid of which an item takes several rows
    bands: bool = False        # items are bands of the rows summed over, for all of the grid
    band: int = 1              # rows of an item that are swept down, or of a part of all
    few: int = 0               # vectors of a row that is short enough to be written out, or 0
    packed: bool = False       # whose vectors hold several rows
    narrow: dict[Expr, int] = field(default_factory=dict)  # bits of lanes, of `narrow.sums`
    passing: bool = True       # stores may go past the caches
    turned_rows: TurnedRows | None = None  # of rows that are swept one by one
    filled: bool = False       # vectors side by side leave no register to operands
    stages: Stages | None = None  # in which blocks of vectors are computed
    tree: str = ""             # rows in lanes are added up as if this were the vector axis

    @property
    def line(self) -> int:
        """Elements of 64 bytes, whatever the registers' width."""
        return self.lanes // 4

    @property
    def place(self) -> Size:
        """Where an element of a row is kept: beside those that stand in a vector with it."""
        if self.stages is not None and self.vector:
            return axis(self.vector)
        total: Size = 0
        for name in [*self.loops, self.vector] if self.across and self.vector else self.loops:
            total = total * self.nest.sizes[name] + axis(name)
        return total

    @property
    def merges(self) -> bool:
        """Whether items side by side are run as one: blocks of columns, which leave no trace in
        the order of sums. Rows are read in long pieces so, by a task of many items."""
        return self.block < BLOCK and self.tile is None

    @property
    def spans(self) -> bool:
        """Whether the vector axis is all there is, so that items side by side are one."""
        return self.vector is not None and not (
            self.grid or self.nest.reduced or self.tile or self.sums or self.columns
        )

    @property
    def turns(self) -> bool:
        """Whether blocks of what is read across the rows written are transposed (`turned`)."""
        return self.tile is not None and self.tile.turned is not None

    def rows_of(self, axis: str) -> int:
        """How many rows of an axis of the grid an item takes."""
        return self.tile.count if self.tile is not None and self.tile.rows == axis else 1

    @property
    def short(self) -> int:
        """The vectors of a short row, whose sweeps are written out without loops, or 0."""
        return 0 if self.loops or self.flat else self.few

    @property
    def straight(self) -> int:
        """Those of one whose sweeps are written out as one, in registers, or 0."""
        return 0 if self.in_turns else self.short

    @property
    def in_turns(self) -> bool:
        """Whether rows may be swept some at a time, one sweep after the other; short ones are.
        Of others `emission.in_turns` tells how many, which may be one."""
        if self.sweeps < 2 or not self.across or self.flat or len(self.grid) != 1:
            return False
        return self.turned_rows is None and self.stages is None

    @property
    def written(self) -> int:
        """The vectors of a short row within loops, whose states these carry, or 0."""
        if not self.loops or self.narrow or any(r.name == "argmax" for r in self.sweep):
            return 0
        return self.few

    def is_late(self, s: Store) -> bool:
        """Whether a store is made once, after all items."""
        once = bool(self.sums or self.flat or self.nest.outer)
        return s.expr in self.final or (once and not s.axes)


def plan(
    nest: Nest, target: Target, vector: str | None = None, beside: bool = False,
    fused: bool = False,
) -> Schedule:
    """Decide how a coalesced nest is run; `vector` fixes the vector axis ("": none). `beside`: rows
    of an elementwise nest may be written some at a time. `fused`: products and sums may be one
    instruction."""
    if nest.columns:
        vector = rows(nest, nest.columns)
    fixed = vector is not None
    scans = any(e.kind == "scan" for e in nest.exprs)
    sums_rows = {
        e for e in nest.exprs if e.kind == "reduce" and set(e.over) - set(nest.reduced)
    }
    tile, tree = None, ""
    if vector is None:
        vector, tile, tree = axis_and_tile(nest, scans, bool(sums_rows))
    vector = vector or None
    across = vector in nest.reduced
    bits = lane_bits(nest, vector)
    cost = sum(cost_of(e) for e in nest.exprs)
    if nest.columns:
        length = nest.sizes[nest.columns]
        assert isinstance(length, int)
        cost *= length
    scattered = scans and cost <= CHEAP_SCAN and vector is not None and any(
        coefficient(x.offset, vector) != 1 for x in nest.stores
    )
    looked_up = not (fixed or nest.reduced or cost > CHEAP_LOOKUP) and any(
        e.kind == "load" and e.dtype.itemsize == 1 and nest.dynamic(e.offset) for e in nest.exprs
    )
    sweep, ready, final, sweeps = sweeps_of(nest, sums_rows)
    flat = not nest.outer and bool(nest.reduced) and not scans and sweeps == 1
    lanes = target.vector_bits // bits
    if (not across or flat) and halved(nest, target, bits, cost):
        lanes //= 2
    width = 1 if vector is None or scattered or looked_up else filled(nest.sizes[vector], lanes)
    if flat:
        final |= {e for e in nest.exprs if ready[e] > 0}
    for e in final:
        ready[e] = FINAL
    grid = [n for n in nest.outer if n != vector]
    items, cycles = _work(nest, vector, flat, cost)
    # cycles decide how items are split, and so the order of sums: not by this target's width
    woven = interleaving.axis(nest) is not None
    stepped = target.steps and vector is not None and in_steps(
        [e for e in nest.exprs if vector in e.axes], cost
    )
    # whether items may be bands, or blocks of some rows where no tile says how
    free = vector is not None and width > 1 and not (fixed or across or woven)
    blocks = free and tile is None and not (sums_rows or scans or tree)
    if blocks:
        assert vector is not None
        tile = tiles.across_rows(nest, vector, target)
    interleave = 1 if scattered or woven else interleaved(
        nest, target, vector, width, bits, cost, stepped, fused, tile
    )
    if vector is not None and short_of_registers(nest, vector, interleave, target):
        stepped = True
    unroll = min(unroll_of(cost), 2 if woven else 4)
    schedule = Schedule(
        nest, vector, width, lanes=VIRTUAL_BITS // bits, grid=grid,
        loops=[n for n in nest.reduced if n != vector], across=across, sweep=sweep, ready=ready,
        final=final, sweeps=sweeps, flat=flat, cost=cost,
        unroll=SCANNED_ROWS if scattered else 1 if interleave > 1 else unroll,
        interleave=interleave, stepped=[stepped] * max(1, sweeps),
        filled=fill_registers(interleave, stepped, target),
        cycles=dims.floordiv(cycles, 512 // bits) + 20, items=items,
        sums=[
            e for e in nest.exprs
            if (e in sums_rows and not e.axes) or (flat and e.kind == "reduce")
        ],
        columns=[e for e in nest.exprs if e in sums_rows and e.axes], tree=tree,
        narrow=dict.fromkeys(narrow.sums(nest), bits) if flat and across and bits < 64 else {},
    )
    plain = vector is not None and not (across or scattered or interleave > 1)
    if plain and sweeps and cost <= MOST_ABREAST:
        schedule.unroll = min(_unroll_of_sweeps(schedule), 2 if woven else 4)
    if across and flat:
        packed.take(schedule)
    if across and width > 1 and not (nest.columns or schedule.packed):
        assert vector is not None
        follow = nest.reduced[0] if flat else grid[-1] if grid else vector
        schedule.turned_rows = tiles.turned_rows(nest, vector, follow, schedule.loops)
    if not schedule.in_turns:
        schedule.few = few_vectors(schedule)
    keep(schedule, target)
    if schedule.in_turns:
        schedule.few = few_vectors(schedule)
    if target.steps and vector is not None and sweeps:
        schedule.stepped = [stepped or steps(schedule, p) for p in range(sweeps)]
    if free:
        assert vector is not None
        if blocks and tile is None:
            tile = _side_by_side(schedule)
            if tile is None and beside and target.registers >= 32:
                tile = tiles.beside(nest, vector, grid)
        _take_more(schedule, tile, target.registers, 8 * COLUMN_BYTES // bits)
    if not (fixed or woven or nest.overlaps or schedule.tile or schedule.bands):
        _take_stages(schedule, target)
    if plain and any(schedule.stepped) and not (scans or woven or schedule.tile or schedule.bands):
        assert vector is not None
        if sweeps and reads_neighbours(nest, vector):
            schedule.interleave = max(columns_in_step(schedule, p) for p in range(sweeps))
    return schedule


def _take_stages(s: Schedule, target: Target) -> None:
    """Compute a long formula by stages."""
    vector, width = s.vector, s.width
    if vector is None or width == 1 or is_less(s.nest.sizes[vector], 2 * width) or s.cached:
        return
    if (s.sweeps and not (s.across and s.sweeps == 1)) or any(
        e.kind == "scan" for e in s.nest.exprs
    ):
        return
    if s.across and (s.straight or s.written or s.narrow or s.packed or s.turned_rows):
        return
    if any(r.name == "argmax" for r in s.sweep) or s.columns or (s.sums and not s.flat):
        return
    s.stages = stages_of(s.nest, vector, width, target)
    if s.stages is not None:
        s.cached = s.stages.kept
        if not s.across:
            s.interleave, s.unroll = s.stages.abreast, 1


def filled(size: Size, lanes: int) -> int:
    """Lanes of a vector along an axis: few where that is known to be short."""
    while isinstance(size, int) and lanes > 2 and lanes // 2 >= size:
        lanes //= 2
    return lanes


def _work(nest: Nest, vector: str | None, flat: bool, cost: int) -> tuple[Size, Size]:
    """How many items there are, and cycles of one if vectors were an element wide."""
    row = nest.row
    if flat:
        first = nest.reduced[0]
        each = BLOCK if first == vector else 1
        rest = dims.product(nest.sizes[n] for n in nest.reduced[1:])
        return (
            dims.ceildiv(nest.sizes[first], each),
            dims.minimum(nest.sizes[first], each) * rest * cost,
        )
    items = dims.product(nest.sizes[n] for n in nest.outer if n != vector)
    if vector is None or vector in nest.reduced:
        return items, row * cost
    size = nest.sizes[vector]
    return items * dims.ceildiv(size, BLOCK), dims.minimum(size, BLOCK) * row * cost


def _take_more(s: Schedule, tile: Tile | None, registers: int, columns: int) -> None:
    """Let an item be several rows, where a tile says so, a band of them, or so many columns."""
    if tile is not None:
        _take_rows(s, tile, registers)
    if (tile is None or tile.turned is None) and bands.suit(s):
        bands.take(s)
    elif not (tile or s.grid or s.sums or s.columns) and s.nest.reduced:
        _take_columns(s, columns)


def _take_rows(s: Schedule, tile: Tile, registers: int) -> None:
    """Make items of several rows of an axis of the grid, or of few of the vector axis."""
    sizes, rows = s.nest.sizes, tile.rows
    assert s.vector is not None
    if rows is None:
        s.block, s.unroll = ROW_BLOCK, max(2, s.unroll)
        s.cycles = dims.floordiv(s.cycles, BLOCK // ROW_BLOCK)
    elif s.sweeps:
        if tile.turned is not None:  # sums are short: chains need not be many
            s.unroll, registers = 4, min(registers, 16)
        states = max(list(s.sweep.values()).count(p) for p in range(s.sweeps))
        vectors = group_of(s) * max(1, states)
        tile = replace(tile, jam=tiles.jam(sizes[rows], tile.count, vectors, registers))
    if rows is not None:
        s.cycles = s.cycles * dims.minimum(sizes[rows], tile.count)
    s.tile = tile
    s.items = dims.product(
        dims.ceildiv(sizes[n], s.rows_of(n)) for n in s.grid
    ) * dims.ceildiv(sizes[s.vector], s.block)


def _take_columns(s: Schedule, columns: int) -> None:
    """Make items of few columns, or all rows of a matrix would be one, for one thread."""
    assert s.vector is not None
    size = s.nest.sizes[s.vector]
    if isinstance(size, int) and size >= MANY_BLOCKS * BLOCK:
        return
    s.block = columns
    s.items = dims.ceildiv(size, columns)
    each = s.cost * s.nest.row
    s.cycles = dims.floordiv(dims.minimum(size, columns) * each, s.lanes // 4) + 20


def _side_by_side(s: Schedule) -> Tile | None:
    """Rows that are summed side by side, where what is read for one serves the others."""
    nest = s.nest
    assert s.vector is not None
    size, row = nest.sizes[s.vector], nest.row
    short = isinstance(row, int) and row <= SHORT_COLUMN
    if not (short or (isinstance(size, int) and size <= tiles.SIDE_BY_SIDE * s.width)):
        return None  # long columns side by side: see `stripes`
    if not s.sweep or any(e.name == "argmax" for e in s.sweep):
        return None
    rows = tiles.shared(nest, s.vector, s.grid)
    return None if rows is None else Tile(rows, tiles.count(nest.sizes[rows]))


def group_of(s: Schedule) -> int:
    """How many registers of rows are written side by side."""
    if s.interleave > 1:
        return 1
    group, n = s.unroll, s.nest.sizes[s.vector] if s.vector is not None else 1
    while isinstance(n, int) and group > 1 and n < group * s.width:
        group //= 2
    return group


def unroll_of(cost: int) -> int:
    """How many vectors of a cost go side by side: what is cheap waits for itself."""
    return 4 if cost <= 10 else 2 if cost <= 24 else 1


def _unroll_of_sweeps(s: Schedule) -> int:
    """Likewise of sweeps down columns: what the costliest does for an element is done often.

    Of mean, variance and their quotient no sweep is costly, and each waits for its own sums: the
    columns of 64 x 100 x 64 f32 take 79 us to be standardised, by single vectors 174.
    """
    reduced = set(s.nest.reduced)
    return unroll_of(max(
        sum(cost_of(e) for e in wanted(s, p, {}) if e.axes & reduced) for p in range(s.sweeps)
    ))
