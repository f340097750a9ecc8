"""One block of a matrix product: all of k for some rows and columns of C, on one thread.

    block(m, n, k, A, a_row, a_col, B, b_row, b_col, C, c_row, scratch)

with m <= most_rows(), n <= COLUMNS, k >= 1, strides in bytes, scratch aligned. The loops are:
blocks of k; strips of rows; tiles of columns (in the micro-kernel). B is packed once for each block
of k, as panels: by the first strip's kernel on its way where B's rows are contiguous, before it
where they are not. A strip of A is packed just before its use where its rows are strided. Products
of f16 and bf16 pack both, as f32, and add up in f32 scratch; so does a product whose last registers
would be partial on a target without masks.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emitter import Module
from graphc.codegen.matmul_ir import Function
from graphc.codegen.matmul_micro import Tiling, prefix, strip, tiling
from graphc.codegen.matmul_pack import define_pack, define_unpack
from graphc.codegen.matmul_row import define_row
from graphc.codegen.target import Target
from graphc.dims import Size
from graphc.types import DType

# Part of the numerical contract: sums of so many steps are added up. So deep a strip of A and a
# panel of B fit the nearest cache side by side. By bytes of an element of the compute type.
K_BLOCK = {4: 256, 8: 192}
ROWS = 504          # most rows of a block whose C is added up in scratch: whole strips anywhere
LONG_ROWS = 2100    # of other blocks: each reads and packs B again; likewise
COLUMNS = 512       # most columns of a block: with K_BLOCK rows they fit the second cache
LINE = 64           # between packed rows, so that they do not share cache sets
PACK_BYTES = 1 << 14  # of B from which it is packed for several strips: it leaves the nearest cache
NEAR_ROWS = 1 << 12   # bytes between rows of B from which too many share sets of the second cache
FLAT_TILES = 4      # up to so many tiles lines of A are read where they are, not packed
WAY_BYTES = 1 << 12  # between rows of A that share sets of the nearest cache: see `Strips`
HEIGHT = 14         # rows that a packed strip of A has room for: no tile has more


def k_block(dtype: DType) -> int:
    """Most steps of a chain."""
    return K_BLOCK[dtype.compute.itemsize]


def most_rows(target: Target, dtype: DType) -> int:
    """Most rows of a block."""
    narrow = dtype is not dtype.compute
    return ROWS if narrow or not tiling(target, dtype.compute).masked else LONG_ROWS


def block_scratch(dtype: DType, m: Size, n: Size, k: Size) -> Size:
    """Bytes of scratch that a block needs at most, on any target: B, a strip of A, and C.

    Transposing goes up to 16 rows at a time, hence the rounding.
    """
    size = dtype.compute.itemsize
    depth = dims.round_up(dims.minimum(k, k_block(dtype)), 16)
    columns = dims.round_up(dims.minimum(n, COLUMNS) * size, 2 * LINE)
    return depth * columns + HEIGHT * (depth * size + LINE) + dims.minimum(m, ROWS) * columns


def define_block(module: Module, target: Target, dtype: DType) -> str:
    """Define `block` and what it calls for a float dtype; returns its name."""
    name = f"{prefix(dtype)}_block"
    if name in module.functions:
        return name
    tiles = tiling(target, dtype.compute)
    narrow = dtype is not dtype.compute
    f = Function(
        module, name,
        "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_col, "
        "ptr %b, i64 %b_row, i64 %b_col, ptr %c, i64 %c_row, ptr %scratch",
        target,
    )
    pack = define_pack(module, target, dtype)
    elem, panel = str(dtype.itemsize), tiles.columns * tiles.bytes
    # scratch holds panels of B, then a strip of A, then C: see block_scratch
    deepest = f.round_up(f.min("%k", str(k_block(dtype))), 16)
    padded = f.mul(f.round_up("%n", tiles.columns), tiles.bytes)
    packed_a = f.at("%scratch", f.mul(deepest, padded))
    strided = f.cmp("ne", "%b_col", elem)
    staged, out, out_row = "false", "%c", "%c_row"
    if narrow or not tiles.masked:
        # C is added up in scratch, in whole registers
        staged_c = f.at(packed_a, f.mul(f.add(f.mul(deepest, tiles.bytes), str(LINE)), HEIGHT))
        staged = "true"
        if not narrow:
            staged = f.cmp("ne", f(f"urem i64 %n, {tiles.lanes}"), "0")
        out = f.select(staged, staged_c, "%c", "ptr")
        out_row = f.select(staged, padded, "%c_row")
    n, first = "%n", "%b"
    if not narrow:
        # a single row takes whole registers of columns of B as they are
        upright = _all(f, f.cmp("eq", "%m", "1"), strided, f.cmp("eq", "%b_row", elem))
        begin = f.select(upright, f(f"and i64 %n, {-tiles.lanes}"), "0")
        n, first = f.sub("%n", begin), f.at("%b", f.mul(begin, "%b_col"))
    before = f(f"or i1 {strided}, {staged}")
    full, eights = _strips_of(f, tiles)
    keep = "false" if narrow else _all(
        f, f(f"xor i1 {before}, true"), f.cmp("sgt", "%m", str(tiles.rows)),
        f.cmp("sgt", full, "0"),
        f.cmp("sgt", f.mul(n, f.mul(deepest, tiles.bytes)), str(PACK_BYTES)),
    )
    in_panels = f(f"or i1 {before}, {keep}")
    whole = f.mul(f.udiv(n, tiles.columns), tiles.columns)
    rest = f.select(before, "0", f.select(keep, whole, n))
    a = Strips(f, dtype, tiles, pack, packed_a, n)
    with f.each("0", "%k", k_block(dtype)) as block:
        depth = f.min(f.sub("%k", block.index), str(k_block(dtype)))
        a.begin(block.index, depth)
        later = f.cmp("ne", block.index, "0")
        b, c = f.at(first, f.mul(block.index, "%b_row")), out
        if not narrow:
            f.do(f"call void @{define_row(module, target, dtype)}(i64 {begin}, i64 {depth}, "
                 f"ptr {a.source}, i64 %a_col, ptr {f.at('%b', f.mul(block.index, '%b_row'))}, "
                 f"i64 %b_col, ptr {out}, i1 {later})")
            c = f.at(out, f.mul(begin, tiles.bytes))
        with f.each(rest, n, tiles.columns) as col:  # all of B, or what is less than a panel
            width = f.min(str(tiles.columns), f.sub(n, col.index))
            f.do(f"call void @{pack}(i64 {depth}, i64 {width}, "
                 f"ptr {f.at(b, f.mul(col.index, '%b_col'))}, i64 %b_row, i64 %b_col, "
                 f"ptr {f.at('%scratch', f.mul(f.mul(col.index, depth), tiles.bytes))}, "
                 f"i64 {panel})")
        row = "0"
        if not narrow:
            with f.when(keep):
                height = tiles.rows
                x = a("0", height)
                kernel = strip(module, target, tiles, height, keep=True)
                f.do(f"call void @{kernel}(i64 {whole}, i64 {depth}, {x}, ptr {b}, i64 %b_row, "
                     f"i64 {panel}, ptr {c}, i64 {out_row}, i1 {later}, ptr %scratch)")
                skip = f.mul(whole, tiles.bytes)
                f.do(f"call void @{strip(module, target, tiles, height)}(i64 {f.sub(n, whole)}, "
                     f"i64 {depth}, {x}, ptr {f.at('%scratch', f.mul(skip, depth))}, "
                     f"i64 {panel}, i64 0, ptr {f.at(c, skip)}, i64 {out_row}, i1 {later})")
            row = f.select(keep, str(tiles.rows), "0")
        source = f.select(in_panels, "%scratch", b, "ptr")
        b_row = f.select(in_panels, str(panel), "%b_row")
        b_panel = f.select(in_panels, f.mul(depth, panel), str(panel))
        for height, _ in tiles.tiles:
            end = f.add(row, f.mul(f.udiv(f.sub("%m", row), height), height))
            if height == tiles.rows:
                end = f.mul(full, height)
            elif height == 8:
                end = f.add(row, f.mul(eights, height))
            kernel = strip(module, target, tiles, height)
            with f.each(row, end, height) as at:
                x = a(at.index, height)
                f.do(f"call void @{kernel}(i64 {n}, i64 {depth}, {x}, ptr {source}, i64 {b_row}, "
                     f"i64 {b_panel}, ptr {f.at(c, f.mul(at.index, out_row))}, i64 {out_row}, "
                     f"i1 {later})")
            row = end
    if narrow or not tiles.masked:
        unpack = define_unpack(module, target, dtype)
        with f.when(staged):
            f.do(f"call void @{unpack}(i64 %m, i64 %n, ptr {out}, i64 {out_row}, "
                 f"ptr %c, i64 %c_row)")
    f.finish()
    return name


def _strips_of(f: Function, tiles: Tiling) -> tuple[str, str]:
    """How many strips of the greatest height, and of 8: strips of 2 rows would be half as fast.

    14 rows leave from 0 to 13. 2 of them, and 4 if 14s remain, are better taken with a 14: as twice
    8, as thrice 6; and 10 as thrice 8, for 4 rows want more than two registers of columns: 24 x 32
    takes an eighth less. Of others 8 is a strip, and 6, 4, 2 and 1 take the rest. But 16 rows of A
    take B as it is, and want it in a cache for the second time.
    """
    full = f.udiv("%m", tiles.rows)
    if tiles.rows != 14:
        return full, "0"
    rest = f.sub("%m", f.mul(full, 14))
    few = f.select(f.cmp("sgt", full, "1"), "6", "4")
    least = f.select(f.cmp("sgt", "%b_row", str(NEAR_ROWS)), "1", "0")
    short = f(f"and i1 {f.cmp('sge', rest, '2')}, {f.cmp('slt', rest, few)}")
    short = f(f"or i1 {short}, {f.cmp('eq', rest, '10')}")
    fewer = f(f"and i1 {f.cmp('sgt', full, least)}, {short}")
    full = f.sub(full, f.select(fewer, "1", "0"))
    rest = f.add(rest, f.select(fewer, "14", "0"))
    whole = f.cmp("eq", f(f"and i64 {rest}, 6"), "0")  # 8 and 16, or one more
    return full, f.select(whole, f.udiv(rest, 8), "0")


class Strips:
    """Emits the packing of strips of A, where they are packed.

    Rows are copied as they are where they lie a multiple of WAY_BYTES apart: a near cache holds 8
    or 12 lines of a set, so 14 such rows throw each other out at every step, and come from the
    second cache again: 1024x1024x1024 f32 and 512x512x512 f64 took 2 to 3 % longer.
    """

    def __init__(
        self, f: Function, dtype: DType, tiles: Tiling, pack: str, packed: str, n: str
    ):
        self.f, self.pack, self.packed, self.size = f, pack, packed, tiles.bytes
        self.height = tiles.rows
        elem = str(dtype.itemsize)
        self.flat = f.cmp("eq", "%a_row", elem)  # its columns are contiguous, not its rows
        rows = f.cmp("eq", "%a_col", elem)
        either = f(f"or i1 {rows}, {self.flat}")
        most = f.select(either, str(FLAT_TILES * tiles.columns), str(tiles.columns))
        apart = f(f"xor i1 {rows}, true")
        if tiles.rows == HEIGHT:
            even = f.cmp("eq", f(f"and i64 %a_row, {WAY_BYTES - 1}"), "0")
            apart = f(f"or i1 {apart}, {_all(f, even, f.cmp('sge', '%m', str(HEIGHT)))}")
        narrow = dtype is not dtype.compute
        self.wanted = "true" if narrow else _all(f, f.cmp("sgt", n, most), apart)

    def begin(self, index: str, depth: str) -> None:
        """The block of k from `index` on."""
        f, size = self.f, self.size
        self.depth, self.source = depth, f.at("%a", f.mul(index, "%a_col"))
        self.row = f.select(
            self.flat, str(self.height * size), f.add(f.mul(depth, size), str(LINE))
        )
        self.a_row = f.select(self.wanted, f.select(self.flat, str(size), self.row), "%a_row")
        self.a_col = f.select(
            self.wanted, f.select(self.flat, self.row, str(size)), "%a_col"
        )

    def __call__(self, row: str, height: int) -> str:
        """The kernel's arguments for the strip at `row`."""
        f = self.f
        a = f.at(self.source, f.mul(row, "%a_row"))
        with f.when(self.wanted):
            f.do(f"call void @{self.pack}(i64 {f.select(self.flat, self.depth, str(height))}, "
                 f"i64 {f.select(self.flat, str(height), self.depth)}, ptr {a}, "
                 f"i64 {f.select(self.flat, '%a_col', '%a_row')}, "
                 f"i64 {f.select(self.flat, '%a_row', '%a_col')}, "
                 f"ptr {self.packed}, i64 {self.row})")
        a = f.select(self.wanted, self.packed, a, "ptr")
        return f"ptr {a}, i64 {self.a_row}, i64 {self.a_col}"


def _all(f: Function, *conditions: str) -> str:
    """An i1: whether all conditions hold."""
    found = conditions[0]
    for condition in conditions[1:]:
        found = f(f"and i1 {found}, {condition}")
    return found
