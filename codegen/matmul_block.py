"""One block of a matrix product: all of k for some rows and columns of C, on one thread.

    block(m, n, k, A, a_row, a_col, B, b_row, b_col, C, c_row, scratch)

with m <= ROWS, k >= 1, strides in bytes, scratch aligned. The loops are: blocks of k; panels of
columns as wide as a register tile; tiles of rows (in the micro-kernel). A panel of B is packed
just before its use where B's layout or the reuse makes it worth it, a block of A where its
columns are strided. Products of f16 and bf16 pack both, as f32, and add up in f32 scratch; so
does a product whose last registers would be partial on a target without masks.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.codegen.emitter import Module
from graphc.codegen.matmul_ir import Function
from graphc.codegen.matmul_micro import Tiling, micro_kernels, prefix, tiling
from graphc.codegen.matmul_pack import define_pack, define_unpack
from graphc.codegen.target import Target
from graphc.types import DType

K_BLOCK = 256       # part of the numerical contract: sums of this many steps are added up
ROWS = 480          # most rows of a block: a multiple of every tile height
COLUMNS = 512       # most columns of a block: a multiple of every tile width
PAD = 64            # bytes between rows of packed A, so that they do not share cache sets
PACK_ROWS = 48      # copying B pays off from so many rows on,
PACK_STRIDE = 2048  # if its rows are so many bytes apart


@dataclass(frozen=True)
class Layout:
    """Byte offsets of the parts of a block's scratch."""

    a: int
    c: int
    size: int


def layout(tiles: Tiling) -> Layout:
    """Scratch holds a panel of B, then a block of A, then a block of C."""
    a = K_BLOCK * tiles.columns * tiles.bytes
    by_rows = ROWS * (K_BLOCK * tiles.bytes + PAD)
    by_columns = K_BLOCK * (ROWS * tiles.bytes + PAD)
    c = a + max(by_rows, by_columns)
    return Layout(a, c, c + ROWS * COLUMNS * tiles.bytes)


def define_block(module: Module, target: Target, dtype: DType) -> str:
    """Define `block` and what it calls for a float dtype; returns its name."""
    name = f"{prefix(dtype)}_block"
    if name in module.functions:
        return name
    tiles = tiling(target, dtype.compute)
    kernels = micro_kernels(module, target, tiles)
    pack = define_pack(module, target, dtype)
    f = Function(
        module, name,
        "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_col, "
        "ptr %b, i64 %b_row, i64 %b_col, ptr %c, i64 %c_row, ptr %scratch",
        target,
    )
    place = layout(tiles)
    packed_a, staged_c = f.at("%scratch", place.a), f.at("%scratch", place.c)
    narrow = dtype is not dtype.compute
    staged = "false"
    out, out_row = "%c", "%c_row"
    if narrow or not tiles.masked:
        # C is added up in scratch, in whole registers
        staged = "true"
        if not narrow:
            staged = f.cmp("ne", f(f"urem i64 %n, {tiles.lanes}"), "0")
        row = f.mul(f.round_up("%n", tiles.lanes), tiles.bytes)
        out = f.select(staged, staged_c, "%c", "ptr")
        out_row = f.select(staged, row, "%c_row")
    elem = str(dtype.itemsize)
    strided = f.cmp("ne", "%b_col", elem)
    reused = f("and i1 " + ", ".join((
        f.cmp("sge", "%m", str(PACK_ROWS)), f.cmp("sge", "%b_row", str(PACK_STRIDE)),
    )))
    pack_b = f(f"or i1 {f(f'or i1 {strided}, {reused}')}, {staged}")
    a_unit = f.cmp("eq", "%a_col", elem)
    pack_a = "true" if narrow else f("and i1 " + ", ".join((
        f.cmp("ne", "%a_col", elem), f.cmp("sgt", "%n", str(tiles.columns)),
    )))
    with f.loop("0", "%k", K_BLOCK) as block:
        depth = f.min(f.sub("%k", block.index), str(K_BLOCK))
        a = f.at("%a", f.mul(block.index, "%a_col"))
        a, a_row, a_col = _pack_a(f, pack, tiles, depth, a, packed_a, pack_a, a_unit)
        b = f.at("%b", f.mul(block.index, "%b_row"))
        later = f.cmp("ne", block.index, "0")
        with f.loop("0", "%n") as col:
            width = _panel_width(f, tiles, f.sub("%n", col.index))
            source = f.at(b, f.mul(col.index, "%b_col"))
            registers = f.ceildiv(width, tiles.lanes)
            row = f.mul(registers, tiles.lanes * tiles.bytes)
            with f.when(pack_b):
                f.do(f"call void @{pack}(i64 {depth}, i64 {width}, ptr {source}, i64 %b_row, "
                     f"i64 %b_col, ptr %scratch, i64 {row})")
            panel = f.select(pack_b, "%scratch", source, "ptr")
            panel_row = f.select(pack_b, row, "%b_row")
            last = f.sub(width, f.mul(f.sub(registers, "1"), tiles.lanes))
            target_c = f.at(out, f.mul(col.index, tiles.bytes))
            arguments = (
                f"i64 %m, i64 {depth}, ptr {a}, i64 {a_row}, i64 {a_col}, ptr {panel}, "
                f"i64 {panel_row}, ptr {target_c}, i64 {out_row}, i64 {last}, i1 {later}"
            )
            _call_kernel(f, kernels, registers, arguments)
            col.step = width
    if narrow or not tiles.masked:
        unpack = define_unpack(module, target, dtype)
        with f.when(staged):
            f.do(f"call void @{unpack}(i64 %m, i64 %n, ptr {staged_c}, i64 {out_row}, "
                 f"ptr %c, i64 %c_row)")
    f.finish()
    return name


def _pack_a(
    f: Function, pack: str, tiles: Tiling, depth: str, a: str, packed: str, wanted: str, unit: str
) -> tuple[str, str, str]:
    """Address and strides of the block of A, copied if `wanted`.

    Rows are copied as rows if they are contiguous, otherwise columns as rows: the micro-kernel
    reads either.
    """
    by_rows = f.add(f.mul(depth, tiles.bytes), str(PAD))
    by_columns = f.add(f.mul("%m", tiles.bytes), str(PAD))
    row = f.select(unit, by_rows, by_columns)
    with f.when(wanted):
        rows, cols = f.select(unit, "%m", depth), f.select(unit, depth, "%m")
        down = f.select(unit, "%a_row", "%a_col")
        across = f.select(unit, "%a_col", "%a_row")
        f.do(f"call void @{pack}(i64 {rows}, i64 {cols}, ptr {a}, i64 {down}, i64 {across}, "
             f"ptr {packed}, i64 {row})")
    size = str(tiles.bytes)
    return (
        f.select(wanted, packed, a, "ptr"),
        f.select(wanted, f.select(unit, row, size), "%a_row"),
        f.select(wanted, f.select(unit, size, row), "%a_col"),
    )


def _panel_width(f: Function, tiles: Tiling, left: str) -> str:
    """Columns of the next panel: a full tile, or what is left of it in widths that exist."""
    width = f.min(left, str(tiles.lanes))
    for registers in reversed(tiles.widths[:-1]):
        size = str(registers * tiles.lanes)
        width = f.select(f.cmp("sge", left, size), size, width)
    return width


def _call_kernel(f: Function, kernels: dict[int, str], registers: str, arguments: str) -> None:
    """Call the kernel for so many registers of columns."""
    end = f.fresh("called")
    for width, name in kernels.items():
        if width == 1:
            f.do(f"call void @{name}({arguments})")
            break
        then, other = f.fresh("wide"), f.fresh("narrow")
        f.do(f"br i1 {f.cmp('eq', registers, str(width))}, label %{then}, label %{other}")
        f.label(then)
        f.do(f"call void @{name}({arguments})")
        f.do(f"br label %{end}")
        f.label(other)
    f.branch(end)
