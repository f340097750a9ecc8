"""The vector axis of a nest: the one along which most of what it reads and writes is contiguous.

A reduced axis gives sweeps over rows (`across`), an outer one a row in every lane (`along`). Rows
that are known to be short take a lane each where folding registers would take longer than they do.
"""

from __future__ import annotations

from graphc.codegen.emission import interleaving, narrow
from graphc.codegen.nests import tiles
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.costs import VECTOR_COST, is_long
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.tiles import Tile
from graphc.dims import Size

# Elements of a row up to which every lane takes a row of its own:
FEW = 4           # in general
FEW_PLACES = 8    # of an argmax, whose registers fold slowly
FEW_ENDS = 31     # where a row ends in a function that takes a scalar dozens of instructions
FEW_STORED = 8    # the same, if elements of the row are stored too, lane by lane
LONG_ROW = 32     # elements of a row beside which what is read or stored once for it is nothing;
                  # shorter ones fill no more than the lanes of a sweep once
SIDE_ROWS = 8     # rows side by side from which vectors that they share choose no axis: two had
                  # a matrix walked down its columns, sum(b * maximum(x + c, 0)[:, None], 0),
                  # in 1.1 to 40 times the time; of 5 rows, with exp, it is 0.4, of 3 0.3 to 0.6
LEAST_BACK = 8    # elements from which a row that is read backwards is a load and a shuffle: of 16
                  # f32 its sum takes 0.37 of the time of a row per lane, of 8 f64 0.84, of 5 1.7
NEAR = 4          # elements apart that are picked from whole vectors, not gathered: sums down the
                  # even columns of 1000 x 128 f32 take Zen 4 5 us, gathered 37
THIN_BITS = 256   # of a register that rows lying apart should fill
LONG_COLUMN = 64  # elements summed over beside which reading operands once costs little


def axis_and_tile(
    nest: Nest, scans: bool, rows_summed: bool
) -> tuple[str | None, Tile | None, str]:
    """The vector axis, blocks of it, and the one of long rows, whose order short ones keep."""
    woven = interleaving.axis(nest)
    if woven is not None:
        return woven, None, ""
    found = tiles.spread(nest)
    if found is not None:
        return *found, ""
    long = _vector_axis(nest, scans, rows_summed)
    row = nest.row
    if not (nest.outer and nest.reduced and isinstance(row, int) and row < LONG_ROW):
        if long in nest.outer and _long_sums(nest) and not scans and not rows_summed:
            long = tiles.fuller(nest, long, VECTOR_COST, 512 // lane_bits(nest, long))
        return long, None, ""
    found = tiles.ends(nest, FEW_ENDS, FEW_STORED, FEW_PLACES, is_long)
    vector, tile = found or (_vector_axis(nest, scans, rows_summed, row), None)
    if row == 0 or vector not in nest.outer or long not in nest.reduced:
        return vector, tile, ""
    return vector, tile, long


def _vector_axis(nest: Nest, scans: bool, rows_summed: bool, row: int = LONG_ROW) -> str | None:
    """The axis along which most of what is read and written stands side by side.

    row: how many elements are reduced, or LONG_ROW for more and for numbers that are not known.
    """
    names = nest.outer + ([] if scans else nest.reduced)
    if rows_summed and _sums_columns(nest):
        names = list(nest.reduced)
    elif row <= _few(nest):
        names = nest.outer
    if not names:
        return None
    score = dict.fromkeys(names, 0)
    loads = [e for e in nest.exprs if e.kind == "load"]
    offsets = [(e.offset, 2) for e in loads]
    # What is read across is turned in blocks, however much that is; what is stored across is not.
    # (x * y).T of 256 x 256 f32 takes Zen 3 37 us, stored lane by lane 250, of 300 x 300 40 and 71,
    # of f64 49 and 280, and as long; with a mask in y's place, whose bytes AVX2 takes one by one,
    # 50 and 245, 80 and 80, 80 and 280, 140 and 85.
    stored = 3 if nest.reduced else max(3, 1 + 2 * sum(not e.preds for e in loads))
    offsets += [(s.offset, stored) for s in nest.stores]
    if row >= LONG_ROW:
        inner = [x for x in offsets if any(_step(nest, x[0], n) != 0 for n in nest.reduced)]
        offsets = inner or offsets  # what is done once for a row matters little
        wide = [n for n in nest.outer if not is_less(nest.sizes[n], SIDE_ROWS)]
        if any(_step(nest, p, n) == 1 for p, _ in inner for n in wide):  # nor what rows share
            offsets = [x for x in inner if any(_step(nest, x[0], n) != 0 for n in nest.outer)]
    # Elements of a row are read as often as it has some: 8,192 rows of 24 f32, whose sums are
    # scaled and shifted by numbers of their own, take Zen 5 12 us along rows, 46 with a lane each.
    often = row if nest.reduced and row < LONG_ROW else 1
    for p, weight in offsets:
        if any(_step(nest, p, n) != 0 for n in nest.reduced):
            weight *= often
        for n in names:
            c = _step(nest, p, n)
            if c == 1 or (c == -1 and row >= LEAST_BACK):
                score[n] += weight
            elif c in range(2, NEAR + 1):
                score[n] -= 1
            elif c != 0:
                score[n] -= weight
    order = {n: k for k, n in enumerate(nest.outer + nest.reduced)}

    def rank(n: str) -> tuple[int, int]:
        return score[n], order[n]

    best = max(names, key=rank)
    long = [n for n in names if not is_less(nest.sizes[n], LONG_ROW)]
    if not nest.outer and _is_thin(nest, best):
        return max(long, key=rank, default=best)
    if nest.reduced or not _few_lanes(nest, best, offsets):
        return best
    even = [
        n for n in long if all(isinstance(coefficient(p, n), int) for p, _ in offsets)
        and all(coefficient(s.offset, n) == 1 for s in nest.stores)
    ]
    return max(even, key=rank, default=best)


def _step(nest: Nest, offset: Size, name: str) -> Size | None:
    """Elements from one to the next along an axis; None where data say what is the next one."""
    return None if any(name in e.axes for e in nest.dynamic(offset)) else coefficient(offset, name)


def is_less(size: Size, n: int) -> bool:
    """Whether a size is known to be less than n."""
    return isinstance(size, int) and size < n


def _few_lanes(nest: Nest, vector: str, offsets: list[tuple[Size, int]]) -> bool:
    """Whether an axis fills few lanes, which are not even contiguous everywhere: colours of pixels
    that are moved apart. Pixels in lanes, some elements apart, take a third to an eighth of the
    time; but not where their results are stored apart: x[::2, ::2] of 20,000 x 8 f32 takes Zen 4
    8 us by rows, 39 by pixels, and by AVX2 8 and 33."""
    size = nest.sizes[vector]
    return isinstance(size, int) and size <= FEW and any(
        coefficient(p, vector) not in (0, 1) for p, _ in offsets
    )


def _is_thin(nest: Nest, vector: str) -> bool:
    """Whether an axis that all is summed over fills a part of a register of each row, and rows lie
    apart (else see `packed`): a few columns of a table. With rows in lanes, which are gathered,
    sums of the squares of two, four and six columns of 6,000 x 8 f32 take Zen 3 7, 14 and 16 us,
    along rows 22 to 27, of sines 24, 41 and 48, 105 to 135; by SSE 6, 15 and 24, 23. The order of
    sums follows, so that the register is of THIN_BITS, whatever the target's."""
    size, lanes = nest.sizes[vector], THIN_BITS // lane_bits(nest, vector)
    if vector not in nest.reduced or not isinstance(size, int) or size >= lanes:
        return False
    rows = [n for n in nest.reduced if n != vector]
    return any(
        e.kind == "load" and coefficient(e.offset, vector) == 1
        and all(coefficient(e.offset, n) not in (0, size) for n in rows) for e in nest.exprs
    )


def _sums_columns(nest: Nest) -> bool:
    """Whether elements of rows are summed over all rows, into a number for each column."""
    inner = set(nest.reduced)
    return any(e.axes & inner for e in nest.exprs if e.kind == "reduce" and set(e.over) - inner)


def _few(nest: Nest) -> int:
    """How short rows must be that a lane for each beats a register for each."""
    inner = set(nest.reduced)
    most = FEW
    if any(e.kind == "op" and e.axes and not e.axes & inner and is_long(e) for e in nest.exprs):
        most = FEW_STORED if any(set(s.axes) & inner for s in nest.stores) else FEW_ENDS
    if any(e.kind == "reduce" and e.name == "argmax" for e in nest.exprs):
        most = max(most, FEW_PLACES)
    return most


def lane_bits(nest: Nest, vector: str | None) -> int:
    """Bits of the widest float that moves along the vector axis, else of the widest element. Of
    sums that lanes keep in fewer bits, these count."""
    short = narrow.sums(nest)
    casts = {r.args[0] for r in short}
    moving = [
        e.dtype for e in nest.exprs
        if vector in e.axes and e.kind in ("load", "op", "philox", "scan") and e not in casts
    ]
    moving += [narrow.UNSIGNED[bits] for bits in short.values()]
    moving += [e.args[0].dtype for e in nest.exprs if e.kind == "reduce" and e not in short]
    stored = [(nest.outputs[s.output].dtype, vector in s.axes) for s in nest.stores]
    floats = [d.compute.bits for d in (*moving, *(d for d, _ in stored)) if d.is_float]
    moving += [d for d, along in stored if along]  # a place of a byte is wider than bytes are
    return max(floats or [max(8, d.bits) for d in moving] or [32])


def _long_sums(nest: Nest) -> bool:
    """Whether what comes before and after the sums matters little."""
    row = nest.row
    return bool(nest.reduced) and not (isinstance(row, int) and row < LONG_COLUMN)
