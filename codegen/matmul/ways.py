"""What a product asks of the block that it goes by: see `block.Ways`."""

from __future__ import annotations

from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import Ways, is_near
from graphc.codegen.matmul.strips import may_be_packed
from graphc.codegen.matmul.tiling import Tiling, tiling
from graphc.dims import Size
from graphc.types import DType

PARTIAL_TILES = 4    # up to so many panels of columns a partial tile is worth its code


def ways(
    target: Target, dtype: DType, m: Size, n: Size, k: Size, *, a_rows: bool, b_rows: bool
) -> Ways:
    """Those of m rows, n columns and k steps, of which those are known that are numbers; whether
    the rows of A and of B are certain to be contiguous."""
    tiles = tiling(target, dtype.compute)
    rows = m != 1
    partial = rows and _wants_partial(target, tiles, n)
    if dtype is not dtype.compute:  # both operands are packed before, as the compute type
        return Ways(rows, False, True, False, partial)
    several = not isinstance(m, int) or m > tiles.rows
    return Ways(
        rows, not b_rows, may_be_packed(tiles, m, n, a_rows),
        b_rows and several and not is_near(dtype, n, k), partial,
    )


def _wants_partial(target: Target, tiles: Tiling, columns: Size) -> bool:
    """Whether a product gains by a tile for a register and a part of one.

    It takes an eighth more time to compile. Few columns gain by it: 512x30x512 f32 takes 24 % less,
    128x10x128 f64 22 %, 128x84x120 f32 6 %, 512x500x512 as long as before. By AVX2, where the six
    sums of one register wait for one another, 1000x10x64 f32 takes half as long, 256x14x256 and
    100x30x100 0.6 as long, 100x5x1000 f64 half: there columns that are not known have it, too.
    """
    if not isinstance(columns, int):
        return tiles.masked and not target.masked
    few = columns < PARTIAL_TILES * tiles.columns
    return tiles.masked and few and columns % tiles.columns > tiles.lanes
