"""One block of a matrix product: all of k for some rows and columns of C, on one thread.

    block(m, n, k, A, a_row, a_col, B, b_row, b_col, C, c_row, scratch)

with m <= ROWS, k >= 1, strides in bytes, scratch aligned. The loops are: blocks of k; panels of
columns; tiles of columns; tiles of rows (in the micro-kernel). A panel of B is packed just before
its use where B's layout or the reuse makes it worth it, a block of A as rows where its columns
are strided. Products of f16 and bf16 pack both, as f32, and add up in f32 scratch; so
does a product whose last registers would be partial on a target without masks.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emitter import Module
from graphc.codegen.matmul_ir import Function
from graphc.codegen.matmul_micro import (
    ROW_WIDTH,
    Tiling,
    micro_kernels,
    prefix,
    row_kernel,
    tiling,
)
from graphc.codegen.matmul_pack import define_pack, define_unpack
from graphc.codegen.matmul_row import define_row
from graphc.codegen.target import Target
from graphc.dims import Size
from graphc.types import DType

K_BLOCK = 384       # part of the numerical contract: sums of this many steps are added up
ROWS = 480          # most rows of a block: a multiple of every tile height
COLUMNS = 512       # most columns of a block: a multiple of every tile width
PANEL = 256         # bytes of a row of packed B, or a tile's row if that is more
LINE = 64           # between packed rows, so that they do not share cache sets
PACK_STRIDE = 2048  # copying B pays off if its rows are so many bytes apart, A has so many
PACK_ROWS = 12      # rows, and rows times stride are so many bytes, unless tiles are narrower
PACK_SPAN = 60 << 10  # than a panel: then each would go through all the pages of B


def block_scratch(dtype: DType, m: Size, n: Size, k: Size) -> Size:
    """Bytes of scratch that a block needs at most, on any target: a panel of B, A, and C.

    Copying goes 16 rows at a time, hence the rounding.
    """
    size = dtype.compute.itemsize
    depth = dims.minimum(k, K_BLOCK)
    row = depth * size + LINE
    rows = _up(dims.minimum(m, ROWS), 16)
    columns = _up(dims.minimum(n, COLUMNS) * size, LINE)
    return _up(depth, 16) * (dims.minimum(columns, PANEL) + LINE) + rows * row + rows * columns


def _up(x: Size, to: int) -> Size:
    return dims.floordiv(x + (to - 1), to) * to


def panel_columns(tiles: Tiling) -> int:
    """Columns of a panel: several tiles where tiles are narrow, for copying in whole pages."""
    return max(tiles.columns, PANEL // tiles.bytes)


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
    # scratch holds a panel of B, then A, then C: see block_scratch
    deepest = f.min("%k", str(K_BLOCK))
    widest = f.min(f.round_up("%n", tiles.lanes), str(panel_columns(tiles)))
    panel_row = f.add(f.mul(widest, tiles.bytes), str(LINE))
    packed_a = f.at("%scratch", f.mul(f.round_up(deepest, 16), panel_row))
    a_bytes = f.mul(f.round_up("%m", 16), f.add(f.mul(deepest, tiles.bytes), str(LINE)))
    staged_c = f.at(packed_a, a_bytes)
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
    narrow_tile = tiles.columns < panel_columns(tiles)
    reused = _both(
        f, f.cmp("sge", "%m", str(PACK_ROWS)), f.cmp("sge", "%b_row", str(PACK_STRIDE))
    )
    if not narrow_tile:
        span = f.cmp("sge", f.mul("%m", "%b_row"), str(PACK_SPAN))
        reused = _both(f, reused, span)
    pack_b = f(f"or i1 {f(f'or i1 {strided}, {reused}')}, {staged}")
    pack_a = "true" if narrow else _both(
        f, f.cmp("ne", "%a_col", elem), f.cmp("sgt", "%n", str(tiles.columns))
    )
    upright = _both(f, f.cmp("eq", "%m", "1"), _both(f, strided, f.cmp("eq", "%b_row", elem)))
    columns = panel_columns(tiles)
    step = f.select(pack_b, str(columns), "%n")
    run = _Tiles(f, tiles, kernels, row_kernel(module, target, tiles))
    with f.each("0", "%k", K_BLOCK) as block:
        depth = f.min(f.sub("%k", block.index), str(K_BLOCK))
        a = f.at("%a", f.mul(block.index, "%a_col"))
        b = f.at("%b", f.mul(block.index, "%b_row"))
        later = f.cmp("ne", block.index, "0")
        row = f.add(f.mul(depth, tiles.bytes), str(LINE))
        with f.when(pack_a):
            f.do(f"call void @{pack}(i64 %m, i64 {depth}, ptr {a}, i64 %a_row, i64 %a_col, "
                 f"ptr {packed_a}, i64 {row})")
        a = f.select(pack_a, packed_a, a, "ptr")
        a_row = f.select(pack_a, row, "%a_row")
        a_col = f.select(pack_a, str(tiles.bytes), "%a_col")
        begin = "0"
        if not narrow:
            begin = f.select(upright, f(f"and i64 %n, {-tiles.lanes}"), "0")
            f.do(f"call void @{define_row(module, target, dtype)}(i64 {begin}, i64 {depth}, "
                 f"ptr {a}, i64 {a_col}, ptr {b}, i64 %b_col, ptr {out}, i1 {later})")
        with f.each(begin, "%n", step) as panel:
            width = f.min(step, f.sub("%n", panel.index))
            source = f.at(b, f.mul(panel.index, "%b_col"))
            row = f.add(f.mul(f.round_up(width, tiles.lanes), tiles.bytes), str(LINE))
            with f.when(pack_b):
                f.do(f"call void @{pack}(i64 {depth}, i64 {width}, ptr {source}, i64 %b_row, "
                     f"i64 %b_col, ptr %scratch, i64 {row})")
            run(
                width, f"i64 %m, i64 {depth}, ptr {a}, i64 {a_row}, i64 {a_col}",
                f.select(pack_b, "%scratch", source, "ptr"), f.select(pack_b, row, "%b_row"),
                f.at(out, f.mul(panel.index, tiles.bytes)), out_row, later,
            )
    if narrow or not tiles.masked:
        unpack = define_unpack(module, target, dtype)
        with f.when(staged):
            f.do(f"call void @{unpack}(i64 %m, i64 %n, ptr {staged_c}, i64 {out_row}, "
                 f"ptr %c, i64 %c_row)")
    f.finish()
    return name


def _both(f: Function, a: str, b: str) -> str:
    return f(f"and i1 {a}, {b}")


class _Tiles:
    """Emits the loop over the register tiles of a panel."""

    def __init__(self, f: Function, tiles: Tiling, kernels: dict[int, str], single: str):
        self.f, self.tiles = f, tiles
        # (registers, kernel, condition beside the width), widest first
        self.kernels = [(ROW_WIDTH, single, f.cmp("eq", "%m", "1"))]
        self.kernels += [(width, name, "true") for width, name in kernels.items()]

    def __call__(
        self, columns: str, a: str, b: str, b_row: str, c: str, c_row: str, later: str
    ) -> None:
        f, lanes, size = self.f, self.tiles.lanes, self.tiles.bytes
        with f.each("0", columns) as col:
            left = f.sub(columns, col.index)
            skip = f.mul(col.index, size)
            b, c = f.at(b, skip), f.at(c, skip)
            end, widths = f.fresh("done"), []
            for registers, kernel, condition in self.kernels:
                width, last = str(registers * lanes), str(lanes)
                if registers > 1:
                    then, other = f.fresh("wide"), f.fresh("narrow")
                    fits = f.cmp("sge", left, width)
                    if condition != "true":
                        fits = _both(f, fits, condition)
                    f.do(f"br i1 {fits}, label %{then}, label %{other}")
                    f.label(then)
                else:
                    width = last = f.min(left, last)
                f.do(f"call void @{kernel}({a}, ptr {b}, i64 {b_row}, ptr {c}, i64 {c_row}, "
                     f"i64 {last}, i1 {later})")
                widths.append(f"[{width}, %{f.block}]")
                f.do(f"br label %{end}")
                f.label(other if registers > 1 else end)
            col.step = f(f"phi i64 {', '.join(widths)}")
