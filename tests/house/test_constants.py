"""Relations between constants of codegen and passes that the code which uses them counts on."""

from __future__ import annotations

import pytest

from graphc import dims
from graphc.codegen import grain
from graphc.codegen.chain import kernel as chain
from graphc.codegen.chain import masks
from graphc.codegen.emission import bands, pieces
from graphc.codegen.machine.platforms import PLATFORMS
from graphc.codegen.machine.target import VIRTUAL_BITS
from graphc.codegen.matmul import block, product, split, strips
from graphc.codegen.matmul.tiling import tiling
from graphc.codegen.nests import schedule, tiles
from graphc.codegen.nests import vector_axis as axis
from graphc.codegen.pool.runtime import SCRATCH_BYTES
from graphc.types import bf16, f16, f32, f64


def test_work_that_is_shared_is_a_chunk_at_least():
    """`launch` divides the one by the other, and then by the quotient."""
    assert grain.SHARED_CYCLES >= grain.COLUMN_CHUNK_CYCLES >= grain.CHUNK_CYCLES > 0
    assert grain.MAX_CHUNKS > 0


def test_blocks_of_columns_are_whole_groups_of_vectors():
    """Four registers go side by side; in an item of fewer they meet columns of the next one."""
    for size in (schedule.COLUMN_BYTES, schedule.BLOCK, schedule.ROW_BLOCK):
        assert size % (VIRTUAL_BITS // 8) == 0
    assert schedule.BLOCK % schedule.ROW_BLOCK == 0 and schedule.BLOCK > schedule.COLUMN_BYTES
    assert pieces.PIECE >= pieces.LEAST_PIECE and pieces.LEAST_COLUMNS <= schedule.BLOCK


def test_turned_blocks_have_elements_of_any_size():
    """What is read across is cut into pieces of so many bytes, none of which may be empty."""
    assert tiles.TURNED_BYTES // f64.itemsize > 0
    assert tiles.COLUMNS > 0 and tiles.SPREAD_ROWS > 0 and tiles.SIDE_BY_SIDE > 0


def test_rows_that_have_a_lane_each_are_short():
    """Shorter than a sweep's lanes, whose tree `short` follows: no two elements meet before it; nor
    are such rows cut into bands."""
    few = (axis.FEW, axis.FEW_PLACES, axis.FEW_ENDS, axis.FEW_STORED)
    assert max(few) < axis.LONG_ROW <= VIRTUAL_BITS // 64
    assert axis.LONG_ROW <= 2 * bands.ROWS


def test_columns_are_left_out_by_whole_lanes():
    assert masks.STEP % (VIRTUAL_BITS // 32) == 0 and masks.LEAST >= masks.STEP


@pytest.mark.parametrize("platform", PLATFORMS)
def test_blocks_of_products_are_whole_strips(platform):
    """Cut elsewhere, each block would end in strips of fewer rows, and each of these reads B."""
    p = PLATFORMS[platform]
    for target in [p.base, *p.targets(p.levels).values()]:
        for dtype in (f32, f64):
            height = tiling(target, dtype).rows
            assert height <= strips.HEIGHT
            assert block.ROWS % height == 0
            if tiling(target, dtype).masked:
                assert block.LONG_ROWS % height == 0


def test_a_product_fits_scratch_at_any_size():
    large = 1 << 40
    for m in (1, large):
        for n in (1, 512, large):
            for dtype in (f16, bf16, f32, f64):
                size = dims.evaluate(product.product_scratch(dtype, m, n, large), {})
                assert size <= SCRATCH_BYTES, (dtype, m, n)
    for dtype in (f32, f64):
        fits = [n for n in range(2, 100_000) if split.passing_rows(dtype, large, n)]
        for n in (fits[0], 512, fits[-1]):
            size = product.product_scratch(dtype, large, n, large, passing=True)
            assert dims.evaluate(size, {}) <= SCRATCH_BYTES, (dtype, n)
    assert split.PASSING_ROWS >= split.LEAST_ROWS
    assert chain.MOST_BYTES <= SCRATCH_BYTES
