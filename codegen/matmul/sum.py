"""Matrix products whose steps of k come a few at a time, as the blocks of a chain make them.

    define internal void @NAME(i64 %batch, i64 %m, i64 %n, i64 %k, i64 %begin, i64 %whole,
        ptr %a, i64 %a_batch, i64 %a_row, i64 %a_col, ptr %b, i64 %b_batch, i64 %b_row, i64 %b_col,
        ptr %c, ptr %begun, ptr %scratch)

A call adds the steps [begin, begin + k) of `whole`, of which A and B hold no more; calls come in
the order of their steps, and there is one even if `whole` is 0. Strides are in elements, C and
`begun` contiguous.

After the last call C is, bit for bit, what `block` makes of all steps at once: chains of K_BLOCK
multiply-adds, each from zero, that are added to C. A chain that a call leaves unfinished waits in
`begun` for the next call; a finished one is stored to C, or added there if it is not the first.
Columns fill whole registers and are MOST_COLUMNS at most (`passes/labels`), so that a block of B is
packed at once.
"""

from __future__ import annotations

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import LONG_ROWS, k_block
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.micro import strip
from graphc.codegen.matmul.pack import define_pack
from graphc.codegen.matmul.strips import Strips, strips_scratch
from graphc.codegen.matmul.tiling import prefix, tiling
from graphc.dims import Size
from graphc.types import DType

_FIELDS = (
    "m", "n", "k", "begin", "whole", "a", "a_batch", "a_row", "a_col", "b", "b_batch", "b_row",
    "b_col", "c", "begun", "row_blocks",
)
_POINTERS = ("a", "b", "c", "begun")


def sum_scratch(dtype: DType, n: int) -> Size:
    """Bytes of scratch that a call needs: panels of B on any target, and a strip of A."""
    depth, size = k_block(dtype), dtype.itemsize
    return depth * dims.round_up(n * size, 2 * LINE) + strips_scratch(depth, n, size) + 2 * LINE


def define_sum(module: Module, target: Target, dtype: DType) -> str:
    """Define the product and what it calls for f32 or f64; returns its name."""
    name = f"{prefix(dtype)}_sum"
    if name in module.functions:
        return name
    _define_task(module, target, dtype, f"{name}_task")
    f = Function(
        module, name,
        "i64 %batch, i64 %m, i64 %n, i64 %k, i64 %begin, i64 %whole, "
        "ptr %a, i64 %a_batch, i64 %a_row, i64 %a_col, ptr %b, i64 %b_batch, i64 %b_row, "
        "i64 %b_col, ptr %c, ptr %begun, ptr %scratch",
        target,
    )
    record = f(f"alloca [{len(_FIELDS)} x i64], align 16")
    row_blocks = f.ceildiv("%m", LONG_ROWS)
    values = {field: f"%{field}" for field in _FIELDS} | {"row_blocks": row_blocks}
    for field in _FIELDS:
        if field.endswith(("_batch", "_row", "_col")):
            values[field] = f.mul(values[field], dtype.itemsize)
    f.store_fields(record, values, _POINTERS)
    f.parallel(f"@{name}_task", record, f.mul("%batch", row_blocks))
    f.finish()
    return name


def _define_task(module: Module, target: Target, dtype: DType, name: str) -> None:
    """Define task(record, begin, end, scratch): blocks of rows [begin, end) of all members."""
    piece = _define_piece(module, target, dtype)
    f = Function(module, name, "ptr %record, i64 %first, i64 %end, ptr %room", target)
    scratch = f.aligned("%room")
    v = f.load_fields("%record", _FIELDS, _POINTERS)
    c_row = f.mul(v["n"], dtype.itemsize)
    depth = k_block(dtype)
    with f.each("%first", "%end") as task:
        member = f.udiv(task.index, v["row_blocks"])
        row = f.mul(f(f"urem i64 {task.index}, {v['row_blocks']}"), LONG_ROWS)
        m = f.min(f.sub(v["m"], row), str(LONG_ROWS))
        a = f.at(f.at(v["a"], f.mul(member, v["a_batch"])), f.mul(row, v["a_row"]))
        b = f.at(v["b"], f.mul(member, v["b_batch"]))
        place = f.mul(f.add(f.mul(member, v["m"]), row), c_row)
        c, begun = f.at(v["c"], place), f.at(v["begun"], place)
        with f.each("0", v["k"], depth) as at:
            step = f.add(v["begin"], at.index)
            done = f(f"urem i64 {step}, {depth}")  # of this chain, in calls before
            at.step = f.min(f.sub(str(depth), done), f.sub(v["k"], at.index))
            after = f.add(step, at.step)
            whole = f.cmp("eq", f.add(done, at.step), str(depth))
            ends = f(f"or i1 {whole}, {f.cmp('eq', after, v['whole'])}")
            later = f(f"and i1 {ends}, {f.cmp('sge', step, str(depth))}")
            f.do(f"call void @{piece}(i64 {m}, i64 {v['n']}, i64 {at.step}, "
                 f"ptr {f.at(a, f.mul(at.index, v['a_col']))}, i64 {v['a_row']}, i64 {v['a_col']}, "
                 f"ptr {f.at(b, f.mul(at.index, v['b_row']))}, i64 {v['b_row']}, i64 {v['b_col']}, "
                 f"ptr {f.select(ends, c, begun, 'ptr')}, i64 {c_row}, i1 {later}, "
                 f"ptr {begun}, i1 {f.cmp('ne', done, '0')}, ptr {scratch})")
        zeros = f.select(f.cmp("eq", v["whole"], "0"), f.mul(m, c_row), "0")
        with f.each("0", zeros, dtype.itemsize) as byte:
            f.do(f"store i{dtype.bits} 0, ptr {f.at(c, byte.index)}, align {dtype.itemsize}")
    f.finish()


def _define_piece(module: Module, target: Target, dtype: DType) -> str:
    """Define the product of at most K_BLOCK steps, some rows of A; returns its name."""
    name = f"{prefix(dtype)}_piece"
    tiles = tiling(target, dtype)
    pack, panel = define_pack(module, target, dtype), tiles.columns * tiles.bytes
    f = Function(
        module, name,
        "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_col, ptr %b, i64 %b_row, i64 %b_col, "
        "ptr %c, i64 %c_row, i1 %later, ptr %begun, i1 %on, ptr %scratch",
        target,
    )
    strips = Strips(
        f, dtype, tiles,
        f.at("%scratch", f.mul(f.mul(f.round_up("%n", tiles.columns), tiles.bytes), "%k")), "%n",
    )
    strips.begin("0", "%k")
    with f.each("0", "%n", tiles.columns) as col:
        width = f.min(str(tiles.columns), f.sub("%n", col.index))
        f.do(f"call void @{pack}(i64 %k, i64 {width}, "
             f"ptr {f.at('%b', f.mul(col.index, '%b_col'))}, i64 %b_row, i64 %b_col, "
             f"ptr {f.at('%scratch', f.mul(f.mul(col.index, '%k'), tiles.bytes))}, i64 {panel})")
    row = "0"
    for height, _ in tiles.tiles:
        end = f.add(row, f.mul(f.udiv(f.sub("%m", row), height), height))
        kernel = strip(module, target, tiles, height, begun=True)
        with f.each(row, end, height) as at:
            place = f.mul(at.index, "%c_row")
            f.do(f"call void @{kernel}(i64 %n, i64 %k, {strips(at.index, height)}, ptr %scratch, "
                 f"i64 {panel}, i64 {f.mul('%k', panel)}, ptr {f.at('%c', place)}, i64 %c_row, "
                 f"i1 %later, ptr {f.at('%begun', place)}, i1 %on)")
        row = end
    f.finish()
    return name
