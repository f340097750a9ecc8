"""How a matrix product is shared: blocks of its rows and columns, and tasks made of them.

All of it follows from the shapes alone, and no split changes the arithmetic of an element.
"""

from __future__ import annotations

from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import COLUMNS, ROWS, most_columns, most_rows
from graphc.codegen.matmul.ir import Function
from graphc.dims import Size
from graphc.types import DType, f32, f64

# Products from SPLIT_FLOPS on, some 12 us, are shared by threads: two of them take 13 us for
# 32x512x128 f32 in the place of 23, 15 us for 512x512 f64 with a vector in the place of 27.
SPLIT_FLOPS = 1 << 21
TASK_FLOPS = 1 << 23     # a task has about this much work, some 60 us, or there are two
VECTOR_WEIGHT = 16.0     # times as long takes an operation beside a vector: memory is the limit
MOST_TASKS = 8           # split no further: each task packs B again, 20 of 512x512x512 lose 5 %
FEW_TASKS = 8            # accept small blocks up to so many tasks
LEAST_BYTES = 1024       # of a row of a block: every block of columns packs a transposed A again
LEAST_ROWS = 120         # of a block: every block of rows packs B again
KEPT_BYTES = 1 << 20     # of a B as large as A and C, which each thread had better read whole, ..
KEPT_ROWS = 16           # .. for so many rows and more: see `_rows_first`
KEPT_UNIT = 4            # of their number
LONG_BYTES = 4096        # of what a task reads of each row of the matrix beside a vector
LONG_PARTS = 4           # or a share of the row, if that is longer
FEW_ROWS = 112           # with so few, a B of more than LARGE_BYTES is packed in rows of ..
FEW_BYTES = 2048         # .. FEW_BYTES: what is packed is read a few times only; 6 % of 32x4096x256
LARGE_BYTES = 1 << 19    # .. f64, and 3 to 8 % of 32x1024x256: both fit the second cache
STREAMED = 1 << 19       # bytes of B from which a single row's product is read in long pieces
PASSING_ROWS = 240       # most rows of a block that passes through scratch; with ..
PASSING_BYTES = 2 << 20  # .. bytes at most from its first row to its last, packing fits beside it
THIN = 32                # steps of k up to which there is little to pack: blocks may be small, ..
THIN_BYTES = 1 << 15     # .. of so many bytes, which stay in the nearest cache

NEAR_BYTES = 1 << 20     # of blocks taken together, for an epilogue to find them in a near cache

ROW_UNIT = 12  # of the rows of a passing block, whatever the height of tiles: scratch depends on it

def passing_rows(dtype: DType, m: Size, n: Size) -> int:
    """The most rows of a block of a `passing` product; 0 where there had better be none."""
    if not isinstance(n, int) or n < 2 or m == 1 or dtype not in (f32, f64):
        return 0
    rows = min(PASSING_ROWS, PASSING_BYTES // (n * dtype.itemsize)) // ROW_UNIT * ROW_UNIT
    return rows if rows >= LEAST_ROWS else 0


def split(
    f: Function, batch: str, m: str, most_down: int, row_unit: int, col_unit: int, dtype: DType,
    kinds: list[str],
) -> tuple[str, str, str, str, str, str]:
    """Rows and columns of a block, how many of them, the number of tasks, and if it is large."""
    row_blocks = f.ceildiv(m, most_down)
    across = most_across(f, dtype, m, "%n", "%k", "%epilogue")
    col_blocks = f.ceildiv("%n", across)
    least_rows, least_columns = str(LEAST_ROWS), str(LEAST_BYTES // dtype.compute.itemsize)
    units = str(col_unit)

    def long(size: str) -> str:
        return f.max(f.ceildiv(size, LONG_PARTS), str(LONG_BYTES // dtype.itemsize))

    if "dots" in kinds:  # of any number of rows
        one = f.cmp("eq", "%n", "1")
        row_blocks = f.select(one, "1", row_blocks)
        down = f(f"and i1 {one}, {f.cmp('eq', '%a_row', '1')}")
        least_rows = f.select(down, long(m), least_rows)
    if "passing" in kinds:
        row = f.mul("%n", dtype.itemsize)
        room = f.select(f.cmp("sle", "%k", str(THIN)), str(THIN_BYTES), str(PASSING_BYTES))
        fitting = f.min(f.udiv(room, row), str(PASSING_ROWS))
        fitting = f.max(f.mul(f.udiv(fitting, ROW_UNIT), ROW_UNIT), str(ROW_UNIT))
        row_blocks, row_unit = f.ceildiv(m, fitting), ROW_UNIT
    if "stream" in kinds:  # of any number of columns
        whole = streamed(f, dtype, m, "%n", "%k", f.cmp("eq", "%b_col", "1"))
        col_blocks = f.select(whole, "1", col_blocks)
        least_columns = f.select(whole, long("%n"), least_columns)
        units = f.select(whole, least_columns, units)
    wanted, large = _wanted(f, batch, m)

    def more(blocks: str, tasks: str, others: str, size: str, least: str) -> str:
        share = f.ceildiv(tasks, f.mul(batch, others))
        return f.max(blocks, f.min(share, f.ceildiv(size, least)))

    unit = str(row_unit)
    if "passing" not in kinds:
        kept = _rows_first(f, dtype, m)
        unit = f.select(kept, str(KEPT_UNIT), unit)
        first = more(row_blocks, wanted, "1", m, str(KEPT_ROWS))
        row_blocks = f.select(kept, first, row_blocks)
    col_blocks = more(col_blocks, wanted, row_blocks, "%n", least_columns)
    row_blocks = more(row_blocks, wanted, col_blocks, m, least_rows)
    few = f.min(wanted, str(FEW_TASKS))
    col_blocks = more(col_blocks, few, row_blocks, "%n", units)
    rows = f.mul(f.ceildiv(f.ceildiv(m, row_blocks), unit), unit)
    cols = f.round_up(f.ceildiv("%n", col_blocks), col_unit)
    row_blocks, col_blocks = f.ceildiv(m, rows), f.ceildiv("%n", cols)
    tasks = f.mul(batch, f.mul(row_blocks, col_blocks))
    return rows, cols, row_blocks, col_blocks, tasks, large


def _wanted(f: Function, batch: str, m: str) -> tuple[str, str]:
    """How many tasks the work is worth, and whether it is shared by threads at all."""
    # in floating point, where it cannot overflow
    flops = "2.0"
    for size in (batch, m, "%n", "%k"):
        flops = f(f"fmul double {flops}, {f(f'uitofp i64 {size} to double')}")
    # a product with a vector waits for memory, not for multiplications
    narrow = f(f"or i1 {f.cmp('eq', m, '1')}, {f.cmp('eq', '%n', '1')}")
    weight = f.select(narrow, str(VECTOR_WEIGHT), "1.0", "double")
    flops = f(f"fmul double {flops}, {weight}")
    large = f(f"fcmp oge double {flops}, {float(SPLIT_FLOPS)}")
    fraction = f(f"fmul double {flops}, {1 / TASK_FLOPS}")
    most = f(f"fcmp olt double {fraction}, {float(MOST_TASKS)}")
    bounded = f(f"select i1 {most}, double {fraction}, double {float(MOST_TASKS)}")
    wanted = f.max(f(f"fptoui double {bounded} to i64"), f.select(large, "2", "1"))
    return wanted, large


def _rows_first(f: Function, dtype: DType, m: str) -> str:
    """Whether threads share rows rather than columns: where B is no smaller than A and C, but no
    more than a near cache keeps, and need not be transposed by each. Such a B is often the same
    from step to step, whereas C is the next step's A. A line that another core has just written
    takes 14 ns: the 32 steps of an LSTM, 32 rows by 128x512 each, took two threads 1.16 ms by
    columns, 0.94 by rows.
    """
    small = f.cmp("sle", f.mul(f.mul("%n", "%k"), dtype.itemsize), str(KEPT_BYTES))
    larger = f(f"and i1 {f.cmp('sge', '%k', m)}, {f.cmp('sge', '%n', m)}")
    plain = f.cmp("eq", "%b_col", "1")
    return f(f"and i1 {f(f'and i1 {larger}, {small}')}, {plain}")


def most_across(f: Function, dtype: DType, m: str, n: str, k: str, epilogue: str) -> str:
    """Most columns of a block: fewer where a large B is packed for few rows, or where an epilogue
    wants many rows of C in a near cache: each group of them packs B again.
    """
    few = min(COLUMNS, FEW_BYTES // dtype.compute.itemsize)
    long = most_columns(f.target, dtype) if dtype.is_float else COLUMNS
    far = f.cmp("sgt", f.mul(f.mul(n, k), dtype.itemsize), str(LARGE_BYTES))
    short = f(f"and i1 {far}, {f.cmp('sle', m, str(FEW_ROWS))}")
    most = f.select(f(f"icmp eq ptr {epilogue}, null"), str(long), str(COLUMNS))
    return f.select(short, str(few), most)


def streamed(f: Function, dtype: DType, m: str, n: str, k: str, unit: str) -> str:
    """Whether a product of whole sizes m, n, k goes by `stream`, if B's rows are contiguous."""
    far = f.cmp("sge", f.mul(f.mul(n, k), dtype.itemsize), str(STREAMED))
    return f(f"and i1 {f(f'and i1 {unit}, {far}')}, {f.cmp('eq', m, '1')}")


def most_together(
    f: Function, target: Target, dtype: DType, kinds: list[str], v: dict[str, str], across: str
) -> tuple[str, str]:
    """How many blocks of rows and of columns may be one: B is then packed once for all."""
    most = most_rows(target, dtype) if dtype.is_float else ROWS
    near = f.udiv(str(NEAR_BYTES // dtype.itemsize), f.min(f.max(v["n"], "1"), str(COLUMNS)))
    far = f(f"icmp eq ptr {v['epilogue']}, null")
    rows = f.select(far, str(most), f.min(near, str(most)))
    down = f.max(f.udiv(rows, v["rows"]), "1")
    if "dots" in kinds:
        down = f.select(f.cmp("eq", v["n"], "1"), "1", down)
    widest = most_across(f, dtype, v["m"], v["n"], v["k"], v["epilogue"])
    beside = f.max(f.udiv(widest, v["cols"]), "1")
    if "stream" in kinds:  # the longer its rows the better
        beside = f.select(across, v["col_blocks"], beside)
    return down, beside
