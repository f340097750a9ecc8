"""How a loop nest is run: merged axes, the vector axis, sweeps over a row, tasks.

Two ways of running a nest with reductions:

    across   the vector axis is reduced: a row is swept with vectors, partial results stand in
             VIRTUAL_BITS of lanes and are combined in a fixed tree
    along    the vector axis is an outer one: every lane is a row of its own; the reduced axes are
             scalar loops around vector accumulators. A nest without reductions is the same with
             no inner loops.

Grid items (all outer axes but the vector axis, times blocks of it) are what tasks are made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from graphc import dims
from graphc.codegen import bands, tiles
from graphc.codegen.axes import coefficient, expr_polynomials
from graphc.codegen.costs import COSTLY, VECTOR_COST, cost_of, divides, interleaved, is_long
from graphc.codegen.loops import Expr, Nest, Store, axis
from graphc.codegen.target import VIRTUAL_BITS, Target
from graphc.codegen.tiles import Tile
from graphc.dims import Size

BLOCK = 4096          # elements of the vector axis in a grid item
MAX_CACHED_ROW = 1 << 12  # elements of a row whose costly parts are kept between sweeps
MAX_CACHED = 1 << 16  # bytes of stack that they may take: threads of musl have 128 KiB
FEW = 4               # elements of a row up to which every lane takes a row of its own
FEW_PLACES = 16       # likewise where places are looked for: registers fold slowly there
FEW_ENDS = 31         # likewise where a row ends in a function that takes a scalar dozens of
FEW_STORED = 8        # instructions; and where elements of such rows are stored, lane by lane
STRAIGHT = 256        # cycles of a row of known length up to which it is written out, no loop;
STRAIGHT_VECTORS = 4  # and vectors of it that meet in one lane
FINAL = 1 << 20       # "ready" after all items
LONG_ROW = 32         # elements of a row beside which what is read or stored once for it is
                      # nothing; shorter ones fill no more than the lanes of a sweep once
LONG_COLUMN = 64     # elements summed over beside which reading operands once costs little
SHORT_COLUMN = 512   # elements summed over that are added up without blocks between
COLUMN_BYTES = 512   # likewise of columns that are summed: their share of a row ..
MANY_BLOCKS = 16     # .. where there are fewer blocks than so many
ROW_BLOCK = 512      # rows in lanes in an item, where each is some work
SCANNED_ROWS = 4      # rows scanned side by side: the lines of more would push each other out of
CHEAP_SCAN = 10       # the nearest cache where strides are even; for scans of so little cost


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
    interleave: int               # vectors that are computed side by side, as one wide register
    cycles: Size                  # of one grid item
    items: Size
    sums: list[Expr] = field(default_factory=list)  # reductions over all items
    columns: list[Expr] = field(default_factory=list)  # sums over the items, per element of a row
    cached: dict[Expr, int] = field(default_factory=dict)  # kept from this sweep for later ones
    block: int = BLOCK         # elements of the vector axis in an item
    tile: Tile | None = None   # an axis of the grid of which an item takes several rows
    bands: bool = False        # items are bands of the rows summed over, for all of the grid
    tree: str = ""             # rows in lanes are added up as if this were the vector axis

    @property
    def place(self) -> Size:
        """Where an element of a row is kept: beside those that stand in a vector with it."""
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

    def rows_of(self, axis: str) -> int:
        """How many rows of an axis of the grid an item takes."""
        return self.tile.count if self.tile is not None and self.tile.rows == axis else 1

    @property
    def straight(self) -> int:
        """The vectors of a short row of known length that is written out in registers, or 0."""
        n = self.nest.sizes[self.vector] if self.vector is not None and self.across else 0
        if self.loops or self.flat or not isinstance(n, int):
            return 0
        vectors = -(-n // self.width)
        each = sum(cost_of(e) for e in self.nest.exprs if self.vector in e.axes)
        short = vectors == 1 or vectors * each <= STRAIGHT
        most = STRAIGHT_VECTORS * self.lanes // self.width
        return vectors if short and vectors <= most else 0

    def is_late(self, s: Store) -> bool:
        """Whether a store is made once, after all items."""
        once = bool(self.sums or self.flat or self.nest.outer)
        return s.expr in self.final or (once and not s.axes)


def plan(nest: Nest, target: Target, vector: str | None = None) -> Schedule:
    """Decide how a coalesced nest is run; `vector` fixes the vector axis ("": none)."""
    fixed = vector is not None
    scans = any(e.kind == "scan" for e in nest.exprs)
    sums_rows = {
        e for e in nest.exprs if e.kind == "reduce" and set(e.attrs[1]) - set(nest.reduced)
    }
    tile: Tile | None = None
    tree = ""
    if vector is None:
        vector, tile, tree = _axis_and_tile(nest, scans, bool(sums_rows))
    vector = vector or None
    across = vector in nest.reduced
    bits = _lane_bits(nest, vector)
    cost = sum(cost_of(e) for e in nest.exprs)
    width = target.vector_bits // bits
    halved = target.vector_bits == 512 and divides(nest, bits)
    if halved:
        width //= 2
    scattered = scans and cost <= CHEAP_SCAN and vector is not None and any(
        coefficient(x.offset, vector) != 1 for x in nest.stores
    )
    if scattered:
        width = min(width, SCANNED_ROWS)
    if vector is None:
        width = 1
    elif isinstance(size := nest.sizes[vector], int):
        while width > 2 and width // 2 >= size:
            width //= 2
    sweep, ready, final, sweeps = _sweeps(nest, sums_rows)
    flat = not nest.outer and bool(nest.reduced) and not scans and sweeps == 1
    if flat:
        final |= {e for e in nest.exprs if ready[e] > 0}
    for e in final:
        ready[e] = FINAL
    loops = [n for n in nest.reduced if n != vector]
    grid = [n for n in nest.outer if n != vector]
    unroll = 1 if scattered else 4 if cost <= 10 else 2 if cost <= 24 or halved else 1
    row: Size = dims.product(nest.sizes[n] for n in nest.reduced)
    items: Size = dims.product(nest.sizes[n] for n in grid)
    if flat:
        first = nest.reduced[0]
        per = BLOCK if first == vector else 1
        items = dims.ceildiv(nest.sizes[first], per)
        rest = dims.product(nest.sizes[n] for n in nest.reduced[1:])
        cycles: Size = dims.minimum(nest.sizes[first], per) * rest * cost
    elif across:
        cycles = row * cost
    elif vector is not None:
        items = items * dims.ceildiv(nest.sizes[vector], BLOCK)
        cycles = dims.minimum(nest.sizes[vector], BLOCK) * row * cost
    else:
        cycles = row * cost
    # cycles decide how items are split, and so the order of sums: not by this target's width
    interleave = 1 if scattered else interleaved(nest, target, vector, width, bits, cost)
    if interleave > 1:
        unroll = 1
    schedule = Schedule(
        nest, vector, width, VIRTUAL_BITS // bits, grid, loops, across, sweep, ready, final,
        sweeps, flat, cost, unroll, interleave, dims.floordiv(cycles, 512 // bits) + 20, items,
        [e for e in nest.exprs
         if (e in sums_rows and not e.axes) or (flat and e.kind == "reduce")],
        [e for e in nest.exprs if e in sums_rows and e.axes],
    )
    schedule.cached = _cached(schedule)
    schedule.tree = tree
    if vector is not None and width > 1 and not fixed and not across:
        if tile is None and not sums_rows and not scans and not tree:
            tile = tiles.across_rows(nest, vector) or _side_by_side(schedule)
        if tile is not None:
            _take_rows(schedule, tile, target.registers)
        if (tile is None or tile.turned is None) and bands.suit(schedule):
            bands.take(schedule)
        elif not (tile or grid or schedule.sums or schedule.columns) and nest.reduced:
            _take_columns(schedule, 8 * COLUMN_BYTES // bits)
    return schedule


def _axis_and_tile(
    nest: Nest, scans: bool, rows_summed: bool
) -> tuple[str | None, Tile | None, str]:
    """The vector axis, blocks of it, and the one of long rows, whose order short ones keep."""
    found = tiles.spread(nest)
    if found is not None:
        return *found, ""
    long = _vector_axis(nest, scans, rows_summed)
    row = dims.product(nest.sizes[n] for n in nest.reduced)
    if not (nest.outer and nest.reduced and isinstance(row, int) and row < LONG_ROW):
        if long in nest.outer and _long_sums(nest) and not scans and not rows_summed:
            long = tiles.fuller(nest, long, VECTOR_COST, 512 // _lane_bits(nest, long))
        return long, None, ""
    found = tiles.ends(nest, FEW_ENDS, FEW_STORED, is_long)
    vector, tile = found or (_vector_axis(nest, scans, rows_summed, row), None)
    if row == 0 or vector not in nest.outer or long not in nest.reduced:
        return vector, tile, ""
    return vector, tile, long


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
    each = s.cost * dims.product(s.nest.sizes[n] for n in s.nest.reduced)
    s.cycles = dims.floordiv(dims.minimum(size, columns) * each, s.lanes // 4) + 20


def _side_by_side(s: Schedule) -> Tile | None:
    """Rows that are summed side by side, where what is read for one serves the others."""
    nest = s.nest
    assert s.vector is not None
    size, row = nest.sizes[s.vector], dims.product(nest.sizes[n] for n in nest.reduced)
    short = isinstance(row, int) and row <= SHORT_COLUMN
    if not (short or (isinstance(size, int) and size <= tiles.SIDE_BY_SIDE * s.width)):
        return None  # long columns side by side: see `stripes`
    if not s.sweep or any(e.attrs[0] == "argmax" for e in s.sweep):
        return None
    rows = tiles.shared(nest, s.vector, s.grid)
    return None if rows is None else Tile(rows, tiles.count(nest.sizes[rows]))


def _long_sums(nest: Nest) -> bool:
    """Whether what comes before and after the sums matters little."""
    row = dims.product(nest.sizes[n] for n in nest.reduced)
    return bool(nest.reduced) and not (isinstance(row, int) and row < LONG_COLUMN)


def group_of(s: Schedule) -> int:
    """How many vectors of rows are written side by side."""
    group, n = s.unroll, s.nest.sizes[s.vector] if s.vector is not None else 1
    while isinstance(n, int) and group > 1 and n < group * s.width:
        group //= 2
    return group


def _cached(s: Schedule) -> dict[Expr, int]:
    """Costly elements of a row that a later sweep wants again, and the sweep that makes them."""
    size = dims.product(s.nest.sizes[n] for n in s.nest.reduced)
    if not (s.across and s.sweeps > 1 and isinstance(size, int) and size <= MAX_CACHED_ROW):
        return {}
    if s.straight:  # registers keep everything
        return {}
    asked = [wanted(s, p, {}) for p in range(s.sweeps)]
    cached: dict[Expr, int] = {}
    left = MAX_CACHED
    for e in s.nest.exprs:
        if e.kind == "op" and s.vector in e.axes and VECTOR_COST.get(e.attrs[0], 0) >= COSTLY:
            uses = [p for p in range(s.sweeps) if e in asked[p]]
            takes = size * e.dtype.compute.itemsize
            if len(uses) > 1 and e.dtype.kind != "b" and takes <= left:
                cached[e] = uses[0]
                left -= takes
    again = [wanted(s, p, cached) for p in range(s.sweeps)]
    return {e: p for e, p in cached.items() if any(e in w for w in again[p + 1 :])}


def wanted(s: Schedule, p: int, cached: dict[Expr, int]) -> set[Expr]:
    """The expressions of the row that sweep p computes or reads back."""
    roots = [a for r, q in s.sweep.items() if q == p for a in r.args]
    roots += [r.args[0] for r in s.columns if s.ready[r.args[0]] == p]
    roots += [
        x.expr for x in s.nest.stores
        if set(x.axes) & set(s.nest.reduced) and s.ready[x.expr] == p
    ]
    seen: set[Expr] = set()
    while roots:
        e = roots.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.kind == "reduce" or cached.get(e, p) < p:
            continue
        roots += e.args
        roots += [d for q in expr_polynomials(e) for d in s.nest.dynamic(q)]
    return seen


def _vector_axis(nest: Nest, scans: bool, rows_summed: bool, row: int = LONG_ROW) -> str | None:
    """The axis along which most of what is read and written stands side by side.

    row: how many elements are reduced, or LONG_ROW for more and for numbers that are not known.
    """
    names = nest.outer + ([] if scans else nest.reduced)
    if row <= _few(nest, rows_summed):
        names = nest.outer
    elif rows_summed:
        names = list(nest.reduced)
    if not names:
        return None
    score = dict.fromkeys(names, 0)
    offsets = [(e.attrs[1], 2) for e in nest.exprs if e.kind == "load"]
    offsets += [(s.offset, 3) for s in nest.stores]
    if row >= LONG_ROW:
        inner = [x for x in offsets if any(coefficient(x[0], n) != 0 for n in nest.reduced)]
        offsets = inner or offsets  # what is done once for a row matters little
    for p, weight in offsets:
        for n in names:
            c = coefficient(p, n)
            if c == 1:
                score[n] += weight
            elif c != 0:
                score[n] -= weight
    order = {n: k for k, n in enumerate(nest.outer + nest.reduced)}
    return max(names, key=lambda n: (score[n], order[n]))


def _few(nest: Nest, rows_summed: bool) -> int:
    """How short rows must be that a lane for each beats a register for each."""
    inner = set(nest.reduced)
    if rows_summed and any(
        e.axes & inner for e in nest.exprs if e.kind == "reduce" and set(e.attrs[1]) - inner
    ):
        return -1  # a sum for each column
    most = 0 if rows_summed else FEW
    if any(e.kind == "op" and e.axes and not e.axes & inner and is_long(e) for e in nest.exprs):
        most = FEW_STORED if any(set(s.axes) & inner for s in nest.stores) else FEW_ENDS
    if any(e.kind == "reduce" and e.attrs[0] == "argmax" for e in nest.exprs):
        most = max(most, FEW_PLACES)
    return most


def _lane_bits(nest: Nest, vector: str | None) -> int:
    """Bits of the widest float that moves along the vector axis, else of the widest element."""
    moving = [
        e.dtype for e in nest.exprs
        if vector in e.axes and e.kind in ("load", "op", "philox", "scan")
    ]
    moving += [e.args[0].dtype for e in nest.exprs if e.kind == "reduce"]
    moving += [nest.outputs[s.output].dtype for s in nest.stores]
    floats = [d.compute.bits for d in moving if d.is_float]
    return max(floats or [max(8, d.bits) for d in moving] or [32])


def _sweeps(
    nest: Nest, sums_rows: set[Expr]
) -> tuple[dict[Expr, int], dict[Expr, int], set[Expr], int]:
    """(sweep by reduction, ready by expression, what waits for all items, how many sweeps)."""
    sweep: dict[Expr, int] = {}
    ready: dict[Expr, int] = {}
    final: set[Expr] = set()
    last = -1
    for e in nest.exprs:
        needs = [*e.args, *(d for p in expr_polynomials(e) for d in nest.dynamic(p))]
        at = max((ready[a] for a in needs), default=0)
        if any(a in final for a in needs) or e in sums_rows:
            final.add(e)
        if e.kind == "reduce" and e not in sums_rows:
            sweep[e] = at
            last = max(last, at)
            at += 1
        ready[e] = at
    for e in sums_rows:
        if e.axes:  # a sum per column, fed by the sweep that makes its operand
            last = max(last, ready[e.args[0]])
    for s in nest.stores:
        if set(s.axes) & set(nest.reduced) and s.expr not in final:
            last = max(last, ready[s.expr])
    return sweep, ready, final, last + 1
