"""Register blocking: grid items of several rows, and operands that are transposed for them.

j is the vector axis. An operand that is contiguous along another axis would take a load for each
lane; a block of it is transposed into a buffer instead (*turned*, see `turned`). What is looked
for, and the function that finds it:

    out[i, j] = f(a[j, i], ...)                     `across_rows`: `a` is turned along i
    out[i, j] = sum over k of f(a[i, k], b[j, k])   `spread`: k is short; `b` is turned along k, and
                                                    every lane adds up a sum of its own
    out[j] = log(sum over k of f(a[j, k]))          `ends`: likewise, so that the logarithm is one
                                                    of vectors; terms are added in the order of a
                                                    row that vectors sweep
    out[i] = sum over k of f(a[i, k], b[k, i])      `turned_rows`: k is the vector axis, `b` is
                                                    turned along i for some i in succession
    out[i, j] = sum over k of f(a[k, i], b[k, j])   `shared`, `jam`: some i side by side (unroll and
                                                    jam): one load of b[k, j] serves them all, and
                                                    their sums do not wait for one another
    out[i, j] = f(a[i, j], b[j], c[j], d[j])        `beside`: likewise, where little is computed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr, Nest
from graphc.dims import Size

TURNED_BYTES = 128   # of a contiguous piece of what is read across the rows written
TURNED_LEAST = 8     # rows and columns from which that beats taking elements singly
COLUMNS = 64         # of a turned block: with even strides more lines than that would not stand
                     # in a cache side by side
SPREAD_BYTES = 1 << 16  # of turned blocks of what is summed over, on the stack: twice the length of
                        # half as many takes a third to a half of the time of vectors along the rows
ROWS_BYTES = 1 << 21  # of turned rows that are swept; of scratch, of which a thread has twice that
SPREAD_ROWS = 64     # rows that a turned block serves: it costs as much as some two of them
FOLDS = 2            # sums over a short row from which folding registers takes longer than turning
                     # it, or an argmax: 100,000 x 8 f32 260 us by gathers, 116 turned, 1M 6.9 ms, 2
LEAST_FOLDED = 5     # elements of such a row: fewer are gathered as they stand
FILLED = 32          # bytes of rows that registers store whole: then lane by lane costs more
BESIDE = 4           # rows that share what they read, without sums; ..
LEAST_SHARED = 3     # .. so many loads of a vector, ..
BESIDE_ROW = 1 << 10    # .. in rows of at most so many elements, others are stored in lines, ..
BESIDE_BYTES = 1 << 22  # .. and results of at most so many bytes
SIDE_BY_SIDE = 8     # rows of a grid's axis in an item; their accumulators take half the registers


@dataclass(frozen=True)
class Tile:
    """Of a grid's axis, an item takes `count`, `jam` of them side by side in registers; `turned`
    is the axis along which some loads are contiguous, which are transposed into a buffer."""

    rows: str | None
    count: int = 1
    jam: int = 1
    turned: str | None = None


def turned_loads(nest: Nest, vector: str, other: str, least: int = 4) -> list[Expr]:
    """The loads that are contiguous along `other` and strided along the vector axis, of elements
    of `least` bytes and more."""
    return [
        e for e in nest.exprs
        if e.kind == "load" and not e.preds and least <= e.dtype.itemsize <= 8
        and coefficient(e.offset, other) == 1
        and coefficient(e.offset, vector) not in (None, 0, 1) and not nest.dynamic(e.offset)
    ]


def _few(nest: Nest, axes: Iterable[str]) -> list[str]:
    """The axes that are known to be short."""
    return [n for n in axes if isinstance(k := nest.sizes[n], int) and k < TURNED_LEAST]


def least_turned(nest: Nest, target: Target) -> int:
    """Bytes of the smallest elements that are turned: single bytes, of which there are squares of
    16, take AVX2 up to twice as long so."""
    return 4 if nest.reduced else 1 if target.vector_bits == 512 else 2


def across_rows(nest: Nest, vector: str, target: Target) -> Tile | None:
    """Blocks of a nest without reductions that reads across the rows it writes."""
    axes = [n for n in nest.outer if n != vector]
    few = _few(nest, nest.outer)
    if nest.reduced or vector in few:
        return None
    if any(e.kind in ("reduce", "scan") for e in nest.exprs):
        return None
    if any(set(nest.outer) - set(s.axes) for s in nest.stores):
        return None
    for n in axes:
        loads = turned_loads(nest, vector, n, least_turned(nest, target))
        if loads and n not in few and len({e.dtype.itemsize for e in loads}) == 1:
            return Tile(n, TURNED_BYTES // loads[0].dtype.itemsize, turned=n)
    return None


def spread(nest: Nest) -> tuple[str, Tile] | None:
    """A vector axis for sums over a few elements of rows that many results share."""
    length = dims.most(nest.sizes[nest.reduced[0]]) if len(nest.reduced) == 1 else None
    if length is None:
        return None
    return next(((j, tile) for j, tile, most in _spreads(nest) if length <= most), None)


def longest_spread(nest: Nest) -> int:
    """The elements of a row up to which `spread` finds an axis; 0 where it finds none at all."""
    return max((most for _, _, most in _spreads(nest)), default=0)


def _spreads(nest: Nest) -> Iterator[tuple[str, Tile, int]]:
    """What `spread` may find, and how long the rows may be for it."""
    if len(nest.reduced) != 1 or any(e.kind == "scan" for e in nest.exprs):
        return
    (k,) = nest.reduced
    inner = [e for e in nest.exprs if e.kind == "reduce" and k in e.over]
    totals = [e for e in nest.exprs if e.kind == "reduce" and k not in e.over]
    if not inner or any(e.axes for e in totals):
        return
    if any(e.name == "argmax" for e in (*inner, *totals)):
        return
    if any(k in s.axes for s in nest.stores) or any(e.kind == "philox" for e in nest.exprs):
        return
    few = _few(nest, nest.outer)
    for j in reversed(nest.outer):
        loads = turned_loads(nest, j, k)
        sizes = {e.dtype.itemsize for e in loads}
        if j in few or len(sizes) != 1 or not _in_step(nest, j, loads):
            continue
        for i in reversed(nest.outer):
            if i != j and i not in few and not any(
                coefficient(e.offset, i) != 0 for e in loads
            ):
                most = SPREAD_BYTES // ((COLUMNS + 16) * max(sizes) * len(loads))
                yield j, Tile(i, SPREAD_ROWS, turned=k), most
                break


def ends(
    nest: Nest, most: int, stored: int, places: int, long: Callable[[Expr], bool]
) -> tuple[str, Tile] | None:
    """A vector axis for short rows, turned, whose ends take longer than their elements.

    Ends are ops on scalars, and sums that a register's lanes would be folded for. most: elements of
    a row; stored: likewise where elements are stored, lane by lane; places: of an argmax. long:
    whether an op takes a scalar dozens of instructions.
    """
    if len(nest.reduced) != 1:
        return None
    (k,) = nest.reduced
    length = nest.sizes[k]
    stores = any(k in s.axes for s in nest.stores)
    if any(e.kind == "reduce" and e.name == "argmax" for e in nest.exprs):
        most = places
    if not isinstance(length, int) or length > min(most, stored if stores else most):
        return None
    if any(
        e.kind in ("scan", "philox") or (e.kind == "reduce" and k not in e.over and bool(e.axes))
        for e in nest.exprs
    ):
        return None
    folds = sum(
        FOLDS if e.name == "argmax" else 1
        for e in nest.exprs if e.kind == "reduce" and k in e.over
    )
    size = max([e.dtype.itemsize for e in nest.exprs if e.kind == "load" and k in e.axes] or [0])
    filled = stores and length * size % FILLED == 0
    if (folds < FOLDS or length < LEAST_FOLDED or filled) and not any(
        e.kind == "op" and e.axes and k not in e.axes and long(e) for e in nest.exprs
    ):
        return None
    few = _few(nest, nest.outer)
    for j in reversed(nest.outer):
        if not (stores or j in few) and _in_step(nest, j, []):
            return None  # lanes along this axis need no turning: tanh(a @ b), small, many
        loads = turned_loads(nest, j, k)
        sizes = {e.dtype.itemsize for e in loads}
        others = [e for e in nest.exprs if e.kind == "load" and k in e.axes and e not in loads]
        if j in few or len(sizes) != 1 or any(
            nest.dynamic(e.offset) or coefficient(e.offset, j) not in (0, 1) for e in others
        ):
            continue
        if length * (COLUMNS + 16) * max(sizes) * len(loads) <= SPREAD_BYTES:
            return j, Tile(None, turned=k)
    return None


@dataclass(frozen=True)
class TurnedRows:
    """Rows that are swept one after the other along `axis`, of which some are turned at a time.

    loads: what is turned, of elements of `itemsize` bytes; length: of a row; pitch: elements
    between those of a buffer, to each of which `pack` adds up to a register; count: of all rows.
    """

    axis: str
    loads: tuple[Expr, ...]
    length: Size
    count: Size

    @property
    def itemsize(self) -> int:
        return self.loads[0].dtype.itemsize

    @property
    def rows(self) -> int:
        """How many are turned at a time, unless they are long."""
        return TURNED_BYTES // self.itemsize

    @property
    def pitch(self) -> Size:
        return self.length + LINE // self.itemsize

    @property
    def most(self) -> Size:
        """How many rows there is room for."""
        return dims.floordiv(ROWS_BYTES // (self.itemsize * len(self.loads)), self.pitch)

    @property
    def buffer(self) -> Size:
        """Bytes of what is turned of one load: whole lines."""
        some = dims.minimum(dims.minimum(self.rows, self.most), self.count)
        return dims.round_up(some * self.pitch * self.itemsize, LINE)

    @property
    def bytes(self) -> Size:
        """Of scratch, for all loads."""
        return len(self.loads) * self.buffer


def turned_rows(
    nest: Nest, vector: str, rows: str, loops: Iterable[str]
) -> TurnedRows | None:
    """What is turned of rows along the vector axis, a reduced one, that follow one another along
    `rows`; `loops` are others within an item."""
    length, count = nest.sizes[vector], nest.sizes[rows]
    if rows == vector or _few(nest, [rows, vector]):
        return None
    inner = {*loops} - {rows}
    loads = tuple(e for e in turned_loads(nest, vector, rows) if not e.axes & inner)
    if len({e.dtype.itemsize for e in loads}) != 1:
        return None
    found = TurnedRows(rows, loads, length, count)
    return None if isinstance(found.most, int) and found.most < 2 else found


def _in_step(nest: Nest, vector: str, turned: list[Expr]) -> bool:
    """Whether all else that is read or written keeps step with the lanes, or does not move."""
    loads = [e for e in nest.exprs if e.kind == "load" and e not in turned]
    moving = [e.offset for e in loads] + [s.offset for s in nest.stores]
    if any(nest.dynamic(p) for p in moving):
        return False
    return all(coefficient(p, vector) in (0, 1) for p in moving) and any(
        coefficient(s.offset, vector) == 1 for s in nest.stores
    )


def shared(nest: Nest, vector: str, grid: list[str]) -> str | None:
    """The axis of the grid along which most of what is summed over is the same for all rows."""
    inner = set(nest.reduced)
    uses = {
        n: sum(
            e.kind == "load" and vector in e.axes and bool(e.axes & inner) and n not in e.axes
            for e in nest.exprs
        )
        for n in reversed(grid) if nest.sizes[n] != 1
    }
    found = max(uses, key=lambda n: uses[n], default=None)
    return found if found is not None and uses[found] else None


def beside(nest: Nest, vector: str, grid: list[str]) -> Tile | None:
    """Rows side by side that share most of what they read, where loads are more than all else.

    The statistics of 64 columns and what scales them, (x - m) * s * g + b of 1000 rows of f32, are
    read in 0.6 of the time so; a product and a sum alone, in 0.8 to 1.1 of it, exp(x * a - b) in
    1.1. Of 16 registers there are too few: up to 0.2 more or less, as it happens.
    """
    loads = [e for e in nest.exprs if e.kind == "load" and vector in e.axes]
    if nest.reduced or any(e.kind in ("reduce", "scan", "philox") for e in nest.exprs):
        return None
    points, row = nest.points, nest.sizes[vector]
    if (isinstance(row, int) and row > BESIDE_ROW) or (
        isinstance(points, int) and points > most_beside(nest)
    ):
        return None
    common = {n: sum(n not in e.axes for e in loads) for n in reversed(grid) if nest.sizes[n] != 1}
    rows = max(common, key=lambda n: common[n], default=None)
    if rows is None or common[rows] < LEAST_SHARED:
        return None
    if sum(e.kind == "op" for e in nest.exprs) > len(loads):
        return None
    some = count(nest.sizes[rows])
    return Tile(rows, some, jam=min(BESIDE, some)) if some > 1 else None


def most_beside(nest: Nest) -> int:
    """Elements of results of which rows are computed side by side: of more, it is memory that
    takes time, and rows are read and written faster one after the other: 4000 x 1000 f32 take 0.8
    of the time, 8000 x 500 half of it."""
    return BESIDE_BYTES // sum(nest.outputs[x.output].dtype.itemsize for x in nest.stores)


def fuller(nest: Nest, vector: str, costs: Mapping[str, int], lanes: int) -> str:
    """The vector axis of long sums: another outer one where more lanes are filled by it.

    What is read once, before or after the sums, may lie as it likes; what is read for every
    element must keep step with the lanes.
    """
    inner = set(nest.reduced)
    if any(e.kind not in ("load", "op", "const", "reduce") for e in nest.exprs):
        return vector
    within = [e for e in nest.exprs if e.axes & inner or e.kind == "reduce"]

    def cycles(v: str) -> int:
        """Instructions for one element of every sum; unknown sizes are taken as equal."""
        total = 0
        for e in within:
            axes = set(nest.outer) if e.kind == "reduce" else e.axes - inner
            times = costs.get(e.name, 1) if e.kind == "op" else 1
            for n in axes:
                size = nest.sizes[n]
                size = size if isinstance(size, int) else lanes
                times *= -(-size // lanes) if n == v else size
            total += times if v in axes else 2 * times  # it is spread over the lanes as well
        return total

    def in_step(v: str) -> bool:
        size = nest.sizes[v]
        return isinstance(size, int) and 1 < size <= SIDE_BY_SIDE * lanes and all(
            coefficient(e.offset, v) in (0, 1) for e in within if e.kind == "load"
        )

    return min([vector, *(n for n in nest.outer if n != vector and in_step(n))], key=cycles)


def count(size: object) -> int:
    """How many rows an item takes: of a known size, so that few are left to go singly."""
    if not isinstance(size, int):
        return SIDE_BY_SIDE
    return min(range(1, SIDE_BY_SIDE + 1), key=lambda n: (size // n + size % n, -n))


def jam(size: object, each: int, vectors: int, registers: int) -> int:
    """How many of an item's `each` rows go side by side, with so many vectors of sums each."""
    most = min(SIDE_BY_SIDE, max(1, registers // 2 // vectors))
    if not isinstance(size, int):
        return most
    items = [each] * (size // each) + [size % each]
    return min(range(1, most + 1), key=lambda n: (sum(c // n + c % n for c in items), n))
