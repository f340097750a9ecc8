"""Matrix products: batches, blocks of C, threads and epilogues around the block functions.

`product(module, target, dtype)` adds everything a product of that dtype needs to a module, once,
and returns the name of

    define internal void @NAME(i64 %batch, i64 %m, i64 %n, i64 %k,
        ptr %a, i64 %a_batch, i64 %a_row, i64 %a_col,
        ptr %b, i64 %b_batch, i64 %b_row, i64 %b_col,
        ptr %c, i64 %c_batch, i64 %c_row,
        ptr %epilogue, ptr %ctx, ptr %scratch)

C = A @ B for every member of the batch; strides in elements, any; C has unit column stride and
overlaps neither A nor B; k = 0 gives zeros. `epilogue`, if not null, is called as

    void (ptr ctx, i64 batch_index, i64 row_begin, i64 row_end, i64 col_begin, i64 col_end,
          ptr c, ptr scratch)

once for each of the disjoint blocks that cover C, when its values are final and in cache (in a
`symmetric` product, when all are); it may rewrite them. `scratch` has `product_scratch` bytes.

A `passing` product has no C: each block stands in scratch until the epilogue has used it up, and
`c` is such that the block's elements have the addresses they would have in a whole C.

Large products are split into tasks (member, block of columns, block of rows). The split follows
from the shapes alone; those that a thread is given one after the other it takes as one, to pack B
once. No split changes the arithmetic of an element: a product is bit-identical for any number of
threads, for a row alone and among others, and on every CPU level with fma.
"""

from __future__ import annotations

import re

from graphc import dims
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import (
    EVERY,
    ROWS,
    Ways,
    block_of,
    block_scratch,
    define_block,
    k_block,
    most_rows,
)
from graphc.codegen.matmul.dot import define_dots, dots_scratch
from graphc.codegen.matmul.integer import define_int_block
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.row import define_stream, stream_scratch
from graphc.codegen.matmul.short_rows import is_short
from graphc.codegen.matmul.split import ROW_UNIT, most_together, passing_rows, split, streamed
from graphc.codegen.matmul.symmetric import by_stripes
from graphc.codegen.matmul.tiling import prefix, tiling
from graphc.dims import Size
from graphc.types import DType

STREAMED_ROW = 1024  # bytes of a row of B from which a single row's product may go by `stream`


_FIELDS = (
    "m", "n", "k", "a", "a_batch", "a_row", "a_col", "b", "b_batch", "b_row", "b_col",
    "c", "c_batch", "c_row", "epilogue", "ctx", "rows", "cols", "row_blocks", "col_blocks",
)
_POINTERS = ("a", "b", "c", "epilogue", "ctx")
_PRODUCT = re.compile(r"graphc_matmul_([a-z0-9]+)_(\w+)_product")
_OTHERS = {"passing", "symmetric"}  # what no other product stands in for


def product_scratch(
    dtype: DType, m: Size, n: Size, k: Size, *, passing: bool = False
) -> Size:
    """Bytes of scratch that a product needs of the thread that calls it: at most SCRATCH_BYTES.

    m counts the rows of all members of the batch: where B is shared they are one product.
    """
    if not dtype.is_float:
        return 64
    if passing:
        m = dims.minimum(m, passing_rows(dtype, m, n))
        rows = dims.round_up(m, ROW_UNIT)
        return rows * n * dtype.itemsize + product_scratch(dtype, m, n, k) + 64
    total: Size = 0
    if n != 1 or dtype.bits == 16:
        total = block_scratch(dtype, m, n, k)
    if dtype.bits > 16 and (n == 1 or not isinstance(n, int)):
        total = dims.maximum(total, dots_scratch(dtype, m, k))
    if dtype.bits > 16 and (m == 1 or not isinstance(m, int)):
        total = dims.maximum(total, stream_scratch(dtype, n))
    return total + 128  # room to align


def goes_by_block(dtype: DType, columns: Size | None) -> bool:
    """Whether a product has a block: not one of a vector, but in types that are computed as others.
    """
    return dtype.is_float and (columns != 1 or dtype.compute is not dtype)


def product(
    module: Module, target: Target, dtype: DType, *, rows: int | None = None,
    columns: int | None = None, depth: int | None = None, ways: Ways = EVERY,
    passing: bool = False, symmetric: bool = False,
) -> str:
    """Add the matrix product of a dtype (not bool) to the module; returns the function's name.

    `rows` and `columns` are m and n where they are known: the function then serves all n > 1, or
    n = 1 alone, may be slow for a single row if there are several, and costs less to compile. Its
    results are the same. A `passing` one needs `passing_rows`.
    `depth` is k where it is known: short rows times a vector have a function for their length
    alone. `ways`: what it asks of its block, which is one that the module has if that will do. In a
    `symmetric` one B is A's transpose, in the same place (see `symmetric`).
    """
    block = goes_by_block(dtype, columns) or not dtype.is_float
    dots = stream = False
    if dtype.is_float and dtype.compute is dtype:
        dots = columns in (None, 1)
        wide = columns is None or columns * dtype.itemsize >= STREAMED_ROW
        stream = block and (rows == 1 or (rows is None and wide))
    kinds = ["block"] * block
    if block and dtype.is_float:
        ways = block_of(module, dtype, ways) or ways
        kinds += ways.names
    kinds += ["dots"] * dots + ["stream"] * stream
    kinds += ["passing"] * passing + ["symmetric"] * symmetric
    name, length = f"{prefix(dtype)}_{'_'.join(kinds)}_product", None
    if kinds == ["dots"] and depth is not None and is_short(target, dtype, depth):
        name, length = f"{name}_of_{depth}", depth
    if name in module.functions:
        return name
    task = _define_task(module, target, dtype, f"{name}_task", kinds, length, ways)
    if symmetric:
        _define_end(module, target, f"{task}_end")
    f = Function(
        module, name,
        "i64 %batch, i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_batch, i64 %a_row, i64 %a_col, "
        "ptr %b, i64 %b_batch, i64 %b_row, i64 %b_col, ptr %c, i64 %c_batch, i64 %c_row, "
        "ptr %epilogue, ptr %ctx, ptr %scratch",
        target,
    )
    record = f(f"alloca [{len(_FIELDS)} x i64], align 16")
    empty = f("or i1 " + ", ".join((
        f.cmp("sle", "%m", "0"), f(f"or i1 {f.cmp('sle', '%n', '0')}, "
                                  f"{f.cmp('sle', '%batch', '0')}"),
    )))
    with f.when(f(f"xor i1 {empty}, true")):
        batch, m = _merge_batch(f)
        tiles = tiling(target, dtype.compute)
        most = most_rows(target, dtype) if dtype.is_float else ROWS
        height, cols, row_blocks, col_blocks, tasks, large = split(
            f, batch, m, most, tiles.rows, tiles.columns, dtype, kinds
        )
        values = {field: f"%{field}" for field in _FIELDS} | {
            "m": m, "rows": height, "cols": cols, "row_blocks": row_blocks,
            "col_blocks": col_blocks,
        }
        for field in _FIELDS:
            if field.endswith(("_batch", "_row", "_col")):
                values[field] = f.mul(values[field], dtype.itemsize)
        f.store_fields(record, values, _POINTERS)
        for part in (task, f"{task}_end")[: 1 + symmetric]:
            with f.either(large) as branches:
                whole = f.sub("0", tasks)  # a thread's share in one piece: it packs B once
                f.parallel(f"@{part}", record, whole)
                f.otherwise(*branches)
                f.do(f"call void @{part}(ptr {record}, i64 0, i64 {tasks}, ptr %scratch)")
    f.finish()
    return name


def unite(module: Module) -> None:
    """Let each product that another one of the module can stand in for give way to it.

    A program's kernels know more or less of m and n. What serves any of them serves those that are
    known, with the same results; and each product is 3 KB of code and 8 ms of compile time.
    """
    found = {
        name: (m[1], frozenset(m[2].split("_")))
        for name in module.functions if (m := _PRODUCT.fullmatch(name)) is not None
    }
    for name, (dtype, kinds) in found.items():
        wider = [
            other for other, (d, k) in found.items()
            if d == dtype and kinds & _OTHERS == k & _OTHERS and kinds < k
        ]
        if wider:
            best = max(wider, key=lambda o: len(found[o][1]))
            del module.functions[name], module.functions[f"{name}_task"]
            for user, text in module.functions.items():
                if f"@{name}(" in text:
                    module.functions[user] = text.replace(f"@{name}(", f"@{best}(")


def _merge_batch(f: Function) -> tuple[str, str]:
    """A batch whose members are adjacent rows and share B is one taller product.

    With an epilogue it stays a batch, for the epilogue is told the member.
    """
    conditions = (
        f("icmp eq ptr %epilogue, null"),
        f.cmp("eq", "%b_batch", "0"),
        f.cmp("eq", "%a_batch", f.mul("%m", "%a_row")),
        f.cmp("eq", "%c_batch", f.mul("%m", "%c_row")),
    )
    merge = conditions[0]
    for condition in conditions[1:]:
        merge = f(f"and i1 {merge}, {condition}")
    return (
        f.select(merge, "1", "%batch"),
        f.select(merge, f.mul("%m", "%batch"), "%m"),
    )


def _define_task(
    module: Module, target: Target, dtype: DType, name: str, kinds: list[str],
    length: int | None, ways: Ways,
) -> str:
    """Define task(record, begin, end, scratch): blocks [begin, end) of the product; `length`: k, if
    rows are short."""
    f = Function(
        module, name, "ptr %record, i64 %begin, i64 %end, ptr %room", target,
    )
    scratch = f.aligned("%room")
    v = f.load_fields("%record", _FIELDS, _POINTERS)
    unit = f.cmp("eq", v["b_col"], str(dtype.itemsize))
    across = streamed(f, dtype, v["m"], v["n"], v["k"], unit) if "stream" in kinds else "false"
    together = most_together(f, target, dtype, kinds, v, across)
    with f.each("%begin", "%end") as task:
        left = f.sub("%end", task.index)
        above = f.udiv(task.index, v["row_blocks"])
        line = f(f"urem i64 {task.index}, {v['row_blocks']}")
        member = f.udiv(above, v["col_blocks"])
        block = f(f"urem i64 {above}, {v['col_blocks']}")
        row, col = f.mul(line, v["rows"]), f.mul(block, v["cols"])
        rows, cols = v["rows"], v["cols"]
        if "passing" not in kinds:  # blocks that this thread has one after the other are one
            down = f.min(f.min(left, f.sub(v["row_blocks"], line)), together[0])
            beside = f.min(f.udiv(left, v["row_blocks"]), f.sub(v["col_blocks"], block))
            beside = f.min(beside, together[1])
            beside = f.select(f.cmp("eq", down, v["row_blocks"]), beside, "1")
            task.step = f.mul(down, beside)
            rows, cols = f.mul(down, rows), f.mul(beside, cols)
        row_end = f.min(f.add(row, rows), v["m"])
        col_end = f.min(f.add(col, cols), v["n"])
        m, n = f.sub(row_end, row), f.sub(col_end, col)
        a = f.at(f.at(v["a"], f.mul(member, v["a_batch"])), f.mul(row, v["a_row"]))
        b = f.at(f.at(v["b"], f.mul(member, v["b_batch"])), f.mul(col, v["b_col"]))
        place = f.add(f.mul(member, v["c_batch"]), f.mul(row, v["c_row"]))
        place = f.add(place, f.mul(col, dtype.itemsize))
        whole, room = v["c"], scratch
        if "passing" in kinds:
            whole = f.at(scratch, f.sub("0", place))
            room = f.at(scratch, f.round_up(f.mul(v["rows"], v["c_row"]), 64))
        c = f.at(whole, place)

        def compute(m: str, at: str, n: str) -> None:
            """m rows of n columns, from column `at` of the block on."""
            beside, out = f.at(b, f.mul(at, v["b_col"])), f.at(c, f.mul(at, dtype.itemsize))
            _compute(f, target, dtype, kinds, length, ways, v, across, m, n, a, beside, out, room)

        with f.either(f.cmp("sgt", v["k"], "0")) as branches:
            if "symmetric" in kinds:
                own = f.at(whole, f.mul(member, v["c_batch"]))
                by_stripes(f, dtype, row, col, m, n, c, own, v["c_row"], v["n"], compute)
            else:
                compute(m, "0", n)
            f.otherwise(*branches)
            _clear(f, dtype, m, n, c, v["c_row"])
        if "symmetric" not in kinds:
            _end(f, v, member, row, row_end, col, col_end, whole, room)
    f.finish()
    return name


def _define_end(module: Module, target: Target, name: str) -> None:
    """Define task(record, begin, end, scratch), which calls the epilogue on blocks [begin, end):
    where others have copied some of a block it is final when they are done, too."""
    f = Function(module, name, "ptr %record, i64 %begin, i64 %end, ptr %room", target)
    room = f.aligned("%room")
    v = f.load_fields("%record", _FIELDS, _POINTERS)
    with f.each("%begin", "%end") as task:
        above = f.udiv(task.index, v["row_blocks"])
        row = f.mul(f(f"urem i64 {task.index}, {v['row_blocks']}"), v["rows"])
        col = f.mul(f(f"urem i64 {above}, {v['col_blocks']}"), v["cols"])
        row_end = f.min(f.add(row, v["rows"]), v["m"])
        col_end = f.min(f.add(col, v["cols"]), v["n"])
        _end(f, v, f.udiv(above, v["col_blocks"]), row, row_end, col, col_end, v["c"], room)
    f.finish()


def _end(
    f: Function, v: dict[str, str], member: str, row: str, row_end: str, col: str, col_end: str,
    c: str, scratch: str,
) -> None:
    """Call the epilogue, if there is one, on a block."""
    with f.when(f(f"icmp ne ptr {v['epilogue']}, null")):
        f.do(f"call void {v['epilogue']}(ptr {v['ctx']}, i64 {member}, i64 {row}, i64 {row_end}, "
             f"i64 {col}, i64 {col_end}, ptr {c}, ptr {scratch})")


def _compute(
    f: Function, target: Target, dtype: DType, kinds: list[str], length: int | None,
    ways: Ways, v: dict[str, str], across: str, m: str, n: str, a: str, b: str, c: str,
    scratch: str,
) -> None:
    """C = A @ B for one block, k >= 1; `across` says whether it goes by `stream`."""

    def block() -> None:
        if dtype.is_float:
            name = define_block(f.module, target, dtype, ways)
        else:
            name = define_int_block(f.module, target, dtype)
        f.do(f"call void @{name}(i64 {m}, i64 {n}, i64 {v['k']}, "
             f"ptr {a}, i64 {v['a_row']}, i64 {v['a_col']}, ptr {b}, i64 {v['b_row']}, "
             f"i64 {v['b_col']}, ptr {c}, i64 {v['c_row']}, ptr {scratch})")

    def dots() -> None:
        name = define_dots(f.module, target, dtype, length)
        f.do(f"call void @{name}(i64 {m}, i64 {v['k']}, ptr {a}, i64 {v['a_row']}, "
             f"i64 {v['a_col']}, ptr {b}, i64 {v['b_row']}, ptr {c}, i64 {v['c_row']}, "
             f"ptr {scratch}, i64 {v['m']})")

    def stream() -> None:
        name = define_stream(f.module, target, dtype, k_block(dtype))
        f.do(f"call void @{name}(i64 {n}, i64 {v['k']}, ptr {a}, i64 {v['a_col']}, ptr {b}, "
             f"i64 {v['b_row']}, ptr {c}, ptr {scratch})")

    def block_or_stream() -> None:
        if "stream" not in kinds:
            block()
            return
        with f.either(across) as branches:
            stream()
            f.otherwise(*branches)
            block()

    if "block" not in kinds:
        dots()
    elif "dots" not in kinds:
        block_or_stream()
    else:
        with f.either(f.cmp("eq", v["n"], "1")) as branches:
            dots()
            f.otherwise(*branches)
            block_or_stream()


def _clear(f: Function, dtype: DType, m: str, n: str, c: str, c_row: str) -> None:
    """Zeros: an empty sum."""
    with f.each("0", m) as row:
        line = f.at(c, f.mul(row.index, c_row))
        with f.each("0", n) as col:
            place = f.at(line, f.mul(col.index, dtype.itemsize))
            f.do(f"store i{dtype.bits} 0, ptr {place}, align {dtype.itemsize}")
