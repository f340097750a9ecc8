"""Both products of a matrix with vectors, y = A @ x and z = v @ A, in one reading of A.

    both(m, n, A, x, y, v, z, task, epilogue, ctx, scratch)      A in C order

The rows of A go through the caches in groups. A group's dot products come first; then `epilogue`,

    void (ptr ctx, i64 row_begin, i64 row_end, ptr scratch)

may compute what v holds for these rows from y; and while the next group is read from memory, this
one is added to the sums z, from a near cache. Every element is computed in the order that `dots`
and `stream` have. z holds sums of k_block() rows one after the other, `sums_bytes` in all, which
are the tasks that threads share; in the end it begins with the total.

Both products that a library like BLAS calls one after the other read A from memory twice:
Jessup, Karlin, Siek, "Build to order linear algebra kernels", IPDPS 2008.
"""

from __future__ import annotations

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.aliasing import PAGE, half_a_page_from
from graphc.codegen.emission.emitter import Module
from graphc.codegen.grain import BOTH_ELEMENTS
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import k_block
from graphc.codegen.matmul.dot import DOT_BLOCK, define_rows
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.lines import off_line
from graphc.codegen.matmul.pair import define_pair, rows_at_once
from graphc.codegen.matmul.row import add_up, clear, copy, define_add, row_parts
from graphc.codegen.matmul.short_rows import is_short
from graphc.codegen.matmul.tiling import prefix
from graphc.dims import Size
from graphc.types import DType

# Of the rows of a group, which stays in a near cache until it is added; where lines are read whole
# (`pair`) in the nearest one. GB/s of A of f32 on Zen 5 by groups of 8, 16 and 32 KiB: 4096 x 256
# 91, 85, 67, 1024 x 1024 92, 85, 67, 24000 x 1024 38, 34, 31; by AVX2 46, 43, 47 of 1024 x 1024.
GROUP_BYTES, GROUP_BYTES_BY_LINES = 1 << 15, 1 << 13
LEAST_GROUP_ROWS, MOST_GROUP_ROWS = 4, 128
# Bytes of rows that are taken by two there: four and those to be added would push each other out of
# the nearest cache, and of longer ones two do. 1024 x 2048 76 GB/s for 61, 1024 x 4096 45 for 54.
BY_TWO = (1 << 11, 1 << 13)

_FIELDS = ("m", "n", "a", "x", "y", "v", "z", "epilogue", "ctx", "row", "sum")
_POINTERS = ("a", "x", "y", "v", "z", "epilogue", "ctx")


def sums_bytes(dtype: DType, m: Size, n: Size) -> Size:
    """Bytes of z."""
    blocks = dims.ceildiv(m, k_block(dtype))
    return dims.maximum(blocks, 1) * dims.round_up(n * dtype.itemsize, LINE) + PAGE


def define_both(module: Module, target: Target, dtype: DType, n: Size) -> str:
    """Define `both` for f32 or f64, or for short rows if n is known to be of some; its name."""
    length = n if isinstance(n, int) and is_short(target, dtype, n) else None
    name = f"{prefix(dtype)}_both" + (f"_of_{length}" if length else "")
    if name in module.functions:
        return name
    task = _define_task(module, target, dtype, f"{name}_task", length)
    f = Function(
        module, name,
        "i64 %m, i64 %n, ptr %a, ptr %x, ptr %y, ptr %v, ptr %z, ptr %epilogue, ptr %ctx, "
        "ptr %scratch",
        target,
    )
    record = f(f"alloca [{len(_FIELDS)} x i64], align 16")
    row = f.mul("%n", dtype.itemsize)
    values = {field: f"%{field}" for field in _FIELDS}
    values |= {"row": row, "sum": f.round_up(row, LINE)}
    total = half_a_page_from(f, f("ptrtoint ptr %a to i64"), "%z")
    values["z"] = total = f.at(total, off_line(f, target, "%a", row))
    f.store_fields(record, values, _POINTERS)
    parts = row_parts(f, dtype, "0", row)
    with f.when(f.cmp("eq", "%m", "0")):
        clear(f, dtype, parts, total)
    tasks = f.ceildiv("%m", k_block(dtype))
    elements = [f(f"uitofp i64 {size} to double") for size in ("%m", "%n")]
    large = f(f"fcmp oge double {f(f'fmul double {elements[0]}, {elements[1]}')}, "
              f"{float(BOTH_ELEMENTS)}")
    with f.either(large) as branches:
        f.parallel(f"@{task}", record, tasks)
        f.otherwise(*branches)
        f.do(f"call void @{task}(ptr {record}, i64 0, i64 {tasks}, ptr %scratch)")
    with f.each("1", tasks) as block:
        add_up(f, dtype, parts, total, f.at(total, f.mul(block.index, values["sum"])))
    copy(f, dtype, parts, "%z", total)  # which begins before it: what is written has been read
    f.finish()
    return name


def _define_task(
    module: Module, target: Target, dtype: DType, name: str, length: int | None
) -> str:
    """Define task(record, begin, end, scratch): blocks [begin, end) of k_block() rows."""
    f = Function(module, name, "ptr %record, i64 %begin, i64 %end, ptr %scratch", target)
    p = f.load_fields("%record", _FIELDS, _POINTERS)
    pair, step = ("", "1") if length else _pair(f, dtype, p["row"])
    by_lines = target.masked and pair
    least = step if by_lines else str(LEAST_GROUP_ROWS)
    bytes_ = GROUP_BYTES_BY_LINES if by_lines else GROUP_BYTES
    fitting = f.udiv(str(bytes_), f.max(p["row"], "1"))
    height = f.max(f(f"and i64 {fitting}, {f.sub('0', least)}"), least)
    height = f.min(height, str(MOST_GROUP_ROWS))
    parts = row_parts(f, dtype, "0", p["row"])
    with f.each("%begin", "%end") as block:
        start = f.mul(block.index, k_block(dtype))
        stop = f.min(f.add(start, str(k_block(dtype))), p["m"])
        sums = f.at(p["z"], f.mul(block.index, p["sum"]))
        clear(f, dtype, parts, sums)
        # one group more than there are: it has no rows to multiply, the first has none to add
        with f.each(start, f.add(stop, height), height) as group:
            end = f.min(f.add(group.index, height), stop)
            rows = f.max(f.sub(end, group.index), "0")
            before = f.max(f.sub(group.index, height), start)
            added = f.sub(f.min(group.index, stop), before)
            _group(f, dtype, p, group.index, rows, before, added, sums, length, pair, step)
            with f.when(f.cmp("sgt", rows, "0")):
                f.do(f"call void {p['epilogue']}(ptr {p['ctx']}, i64 {group.index}, i64 {end}, "
                     "ptr %scratch)")
    f.finish()
    return name


def _group(
    f: Function, dtype: DType, p: dict[str, str], first: str, rows: str, before: str, added: str,
    sums: str, length: int | None, pair: str, step: str,
) -> None:
    """Multiply `rows` rows of A from `first` on; add `added` rows from `before` on to the sums.

    A group of short rows is multiplied and then added: what `pair` shares is less than it takes to
    end the sums of a few rows.
    """
    size = dtype.itemsize
    dots = define_rows(f.module, f.target, dtype, length)
    add = define_add(f.module, f.target, dtype)
    both = f(f"and i64 {f.min(rows, added)}, {f.sub('0', step)}") if pair else "0"
    # rows longer than DOT_BLOCK have their sums added up; a matrix without columns has one block
    with f.each("0", f.max(p["n"], "1"), DOT_BLOCK) as columns:
        depth = f.min(f.sub(p["n"], columns.index), str(DOT_BLOCK))
        shift = f.mul(columns.index, size)
        later = f.cmp("ne", columns.index, "0")
        a, x, z = (f.at(q, shift) for q in (p["a"], p["x"], sums))

        def at(row: str, count: str) -> tuple[str, str, str]:
            """A, y and v from the `count`-th row after `row` on."""
            i = f.add(row, count)
            here = f.mul(i, size)
            return f.at(a, f.mul(i, p["row"])), f.at(p["y"], here), f.at(p["v"], here)

        if pair:
            with f.each("0", both, step) as k:
                source, y, _ = at(first, k.index)
                near, _, v = at(before, k.index)
                f.do(f"call void {pair}(i64 {depth}, ptr {source}, ptr {near}, i64 {p['row']}, "
                     f"ptr {x}, ptr {y}, ptr {v}, ptr {z}, i1 {later})")
        left, behind = f.sub(rows, both), f.sub(added, both)
        with f.when(f.cmp("sgt", left, "0")):
            source, y, _ = at(first, both)
            f.do(f"call void @{dots}(i64 {left}, i64 {depth}, ptr {source}, i64 {p['row']}, "
                 f"ptr {x}, ptr {y}, i64 {size}, i1 {later}, i64 {left})")
        with f.when(f.cmp("sgt", behind, "0")):
            near, _, v = at(before, both)
            f.do(f"call void @{add}(i64 {depth}, i64 {behind}, ptr {v}, i64 {size}, ptr {near}, "
                 f"i64 {p['row']}, ptr {z})")


def _pair(f: Function, dtype: DType, row: str) -> tuple[str, str]:
    """The `pair` for rows of so many bytes, and how many of them it takes."""
    counts = rows_at_once(f.target)
    names = [define_pair(f.module, f.target, dtype, count) for count in counts]
    if len(names) == 1:
        return f"@{names[0]}", str(counts[0])
    above, most = BY_TWO
    by_two = f.all_of([f.cmp("sgt", row, str(above)), f.cmp("sle", row, str(most))])
    four, two = (f"@{name}" for name in names)
    return f.select(by_two, two, four, "ptr"), f.select(by_two, *map(str, counts[::-1]))
