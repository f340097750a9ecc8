"""One block of a matrix product: all of k for some rows and columns of C, on one thread.

    block(m, n, k, A, a_row, a_col, B, b_row, b_col, C, c_row, scratch)

with m <= most_rows(), n <= most_columns(), k >= 1, strides in bytes, scratch aligned. Loops are:
blocks of k; strips of rows; tiles of columns (in the micro-kernel). B is packed once for each block
of k, as panels: by the first strip's kernel on its way where B's rows are contiguous, before it
where they are not, or come from far away (see `_Block._pack_b`). How the rows of A are cut and
packed: `strips`. Products of f16 and bf16 pack both, as f32, and add up in f32 scratch; so does one
whose last registers would be partial on a target without masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.micro import PITCH, strip
from graphc.codegen.matmul.pack import define_pack, define_spread, define_unpack
from graphc.codegen.matmul.row import MOST_ROWS, define_few, define_row
from graphc.codegen.matmul.strips import (
    FLAT_TILES,
    HEIGHT,
    TOGETHER,
    Strips,
    strips_of,
    strips_scratch,
)
from graphc.codegen.matmul.tiling import prefix, tiling
from graphc.dims import Size
from graphc.types import DType

# Part of the numerical contract: sums of so many steps are added up. So deep a strip of A and a
# panel of B fit the nearest cache side by side. By bytes of an element of the compute type.
K_BLOCK = {4: 256, 8: 192}
ROWS = 504          # most rows of a block whose C is added up in scratch: whole strips anywhere
LONG_ROWS = 2100    # of other blocks: each reads and packs B again; likewise
COLUMNS = 512       # most columns of a block: with K_BLOCK rows they fit the second cache
LONG_BYTES = 4096   # of a row of a block where registers are wide: see `most_columns`
PACK_BYTES = 1 << 14  # of B from which it is packed for several strips: it leaves the nearest cache
FAR_BYTES = 3 << 20   # from B's first row to its last, with more of which it is packed row by row
MANY_ROWS = 128     # with more, packing B asks for the next panel, not block: `_keeping_strip`
UPRIGHT_BYTES = 1 << 18  # of B with contiguous columns, from which a few rows take it as it is


class Ways(NamedTuple):
    """What products may ask of a block, which has no code for what none of them does.

    rows: more than one of A and of C. columns: a B whose rows are not contiguous. strips: of A, to
    be packed. panels: of B, to be packed by the first strip on its way, or row by row before it.
    partial: tiles whose last register is in part.

    A network of known layers has weights whose rows are contiguous, and where they are small
    nothing is packed: half of the code.
    """

    rows: bool = True
    columns: bool = True
    strips: bool = True
    panels: bool = True
    partial: bool = False

    def __or__(self, other: Ways) -> Ways:
        return Ways(*(a or b for a, b in zip(self, other, strict=True)))

    @property
    def names(self) -> list[str]:
        """Those that are asked for."""
        return [name for name, asked in zip(self._fields, self, strict=True) if asked]


EVERY = Ways()


def k_block(dtype: DType) -> int:
    """Most steps of a chain."""
    return K_BLOCK[dtype.compute.itemsize]


def most_rows(target: Target, dtype: DType) -> int:
    """Most rows of a block."""
    narrow = dtype is not dtype.compute
    return ROWS if narrow or not tiling(target, dtype.compute).masked else LONG_ROWS


def most_columns(target: Target, dtype: DType) -> int:
    """Most columns of a block. Each packs A again, if its strips are high: with 1024 columns in the
    place of 512, 2048x2048x2048 f32 takes 3 to 4 % less, but on AVX2 3 % more.
    """
    if dtype is not dtype.compute or tiling(target, dtype).rows != HEIGHT:
        return COLUMNS
    return max(COLUMNS, LONG_BYTES // dtype.itemsize)


def block_scratch(dtype: DType, m: Size, n: Size, k: Size) -> Size:
    """Bytes of scratch that a block needs at most, on any target: B, a strip of A, and C.

    Transposing goes up to 16 rows at a time, hence the rounding.
    """
    size = dtype.compute.itemsize
    depth = dims.round_up(dims.minimum(k, k_block(dtype)), 16)
    long = LONG_BYTES // size if dtype is dtype.compute else COLUMNS
    b, c = (dims.round_up(dims.minimum(n, most) * size, 2 * LINE) for most in (long, COLUMNS))
    return depth * b + strips_scratch(depth, n, size) + dims.minimum(m, ROWS) * c


def is_near(dtype: DType, n: Size, k: Size) -> bool:
    """Whether B is known to be so small that no panels of it are packed for several strips."""
    if not (isinstance(n, int) and isinstance(k, int)):
        return False
    return n * min(dims.round_up(k, 16), k_block(dtype)) * dtype.compute.itemsize <= PACK_BYTES


def block_of(module: Module, dtype: DType, ways: Ways) -> Ways | None:
    """What a block of the module may be asked for, of which these are a part; None if there is no
    such block."""
    name = re.compile(f"{prefix(dtype)}_block((?:_(?:{'|'.join(Ways._fields)}))*)")
    for m in filter(None, map(name.fullmatch, module.functions)):
        has = Ways(*(f"_{way}" in m[1] for way in Ways._fields))
        if has | ways == has:
            return has
    return None


def define_block(module: Module, target: Target, dtype: DType, ways: Ways) -> str:
    """Define `block` and what it calls for a float dtype, unless there is one that will do; its
    name."""
    has = block_of(module, dtype, ways)
    name = "_".join([prefix(dtype), "block", *(has or ways).names])
    if has is None:
        f = Function(
            module, name,
            "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_col, "
            "ptr %b, i64 %b_row, i64 %b_col, ptr %c, i64 %c_row, ptr %scratch",
            target,
        )
        block = _Block(f, dtype, ways)
        with f.each("0", "%k", k_block(dtype)) as start:
            block.steps(start.index)
        block.round()
        f.finish()
    return name


# What the ways of a block add to it, by the ends of names; what packs serves several ways.
_ADDED = {
    "few": "columns", "row": "columns", "slices": "strips", "upright": "strips",
    "spread": "panels", "keeping": "panels", "pack": "packing",
}


def families(names: Iterable[str]) -> list[list[str]]:
    """The functions of blocks in groups, of which many programs have the same ones: first strips of
    rows, which all have and LLVM takes longest for, then what a way adds, and blocks themselves."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in sorted(names):
        dtype, end = name.split("_")[2], name.rpartition("_")[2]
        group = _ADDED.get(end) or ("rows" if "_strip_" in name else "block")
        found.setdefault((dtype, group), []).append(name)
    return sorted(found.values(), key=lambda group: "_strip_" not in group[0])


class _Block:
    """Emits `block`: what holds for all of k first, then a block of k, then C where it belongs.

    staged: whether C is added up in scratch, `out`. begin: columns that few rows take from B as it
    stands, before the n others from `b` on. keep: whether the first strip packs B on its way,
    which are `whole` columns; coming: whether it asks for those of the next block meanwhile; far:
    whether they are packed before it, row by row; before: whether all of B is, panel by panel.
    """

    def __init__(self, f: Function, dtype: DType, ways: Ways):
        self.f, self.dtype, self.ways = f, dtype, ways
        self.tiles = tiles = tiling(f.target, dtype.compute)
        self.narrow = dtype is not dtype.compute
        self.panel = tiles.columns * tiles.bytes
        # scratch holds panels of B, then a strip of A, then C: see block_scratch
        deepest = f.round_up(f.min("%k", str(k_block(dtype))), 16)
        padded = f.mul(f.round_up("%n", tiles.columns), tiles.bytes)
        packed_a = f.at("%scratch", f.mul(deepest, padded))
        strided = f.cmp("ne", "%b_col", str(dtype.itemsize)) if ways.columns else "false"
        self._place_c(packed_a, deepest, padded)
        self.n, self.b = "%n", "%b"
        self.begin = "0"
        if ways.columns and not self.narrow:
            elem = str(dtype.itemsize)
            large = f.cmp("sge", f.mul(f.mul("%n", "%k"), elem), str(UPRIGHT_BYTES))
            several = f.all_of([large, f.cmp("sle", "%m", str(MOST_ROWS))])
            few = f.any_of([f.cmp("eq", "%m", "1"), several])
            upright = f.all_of([few, strided, f.cmp("eq", "%b_row", elem)])
            self.begin = f.select(upright, f(f"and i64 %n, {-tiles.lanes}"), "0")
            self.n = f.sub("%n", self.begin)
            self.b = f.at("%b", f.mul(self.begin, "%b_col"))
        self.before = f.any_of([strided, self.staged])
        self.a = Strips(f, dtype, tiles, packed_a, self.n, ways.strips)
        self.full, self.eights = strips_of(f, tiles, self.a.crowded) if ways.rows else ("0", "0")
        self.keep = self.far = self.coming = "false"
        self.whole = f.mul(f.udiv(self.n, tiles.columns), tiles.columns)
        if ways.panels:
            self._place_panels(deepest)
        self.in_panels = f.any_of([self.before, self.far, self.keep])

    def _place_panels(self, deepest: str) -> None:
        """Whether panels of B are packed for several strips, and by what."""
        f, tiles = self.f, self.tiles
        again = f.all_of([
            f.negated(self.before), f.cmp("sgt", "%m", str(tiles.rows)),
            f.cmp("sgt", self.full, "0"),
        ])
        far = "false"
        if not f.target.reads_apart:
            far = f.cmp("sgt", f.mul("%b_row", "%k"), str(FAR_BYTES))
            if self.a.wide:
                self.coming = f.all_of([again, far, f.cmp("sle", "%m", str(MANY_ROWS))])
                far = f.all_of([far, f.negated(self.coming)])
        self.far = f.all_of([again, far, f.cmp("sge", self.n, str(tiles.columns))])
        self.keep = f.all_of([
            again, f.negated(far),
            f.cmp("sgt", f.mul(self.n, f.mul(deepest, tiles.bytes)), str(PACK_BYTES)),
        ])

    def _place_c(self, packed_a: str, deepest: str, padded: str) -> None:
        """Where C is added up: in whole registers, if need be in scratch."""
        f, tiles = self.f, self.tiles
        self.staged, self.out, self.out_row = "false", "%c", "%c_row"
        if self.narrow or not tiles.masked:
            strip = f.mul(f.add(f.mul(deepest, tiles.bytes), str(LINE)), PITCH)
            many = f.cmp("sgt", "%n", str(FLAT_TILES * tiles.columns))
            together = f.select(many, str(TOGETHER), "1") if tiles.rows == HEIGHT else "1"
            room = f.at(packed_a, f.mul(strip, together))
            self.staged = "true"
            if not self.narrow:
                self.staged = f.cmp("ne", f(f"urem i64 %n, {tiles.lanes}"), "0")
            self.out = f.select(self.staged, room, "%c", "ptr")
            self.out_row = f.select(self.staged, padded, "%c_row")

    def steps(self, index: str) -> None:
        """The steps of k from `index` on that make one block."""
        f = self.f
        depth = f.min(f.sub("%k", index), str(k_block(self.dtype)))
        self.a.begin(index, depth)
        later = f.cmp("ne", index, "0")
        b, c = f.at(self.b, f.mul(index, "%b_row")), self.out
        if self.begin != "0":
            self._upright(f.at("%b", f.mul(index, "%b_row")), depth, later)
            c = f.at(self.out, f.mul(self.begin, self.tiles.bytes))
        if self.in_panels != "false":
            self._pack_b(b, depth)
        first = "0"
        if self.keep != "false":
            with f.when(self.keep):
                self._keeping_strip(index, b, c, depth, later)
            first = f.select(self.keep, str(self.tiles.rows), "0")
        self._strips(first, b, c, depth, later)

    def _upright(self, b: str, depth: str, later: str) -> None:
        """The columns that few rows take from B as it stands."""
        f = self.f
        row, few = (g(f.module, f.target, self.dtype) for g in (define_row, define_few))
        with f.when(f.cmp("ne", self.begin, "0")):
            a, a_row = self.a.in_rows()
            with f.either(f.cmp("eq", "%m", "1")) as branches:
                f.do(f"call void @{row}(i64 {self.begin}, i64 {depth}, ptr {a}, "
                     f"ptr {b}, i64 %b_col, ptr {self.out}, i1 {later})")
                f.otherwise(*branches)
                f.do(f"call void @{few}(i64 %m, i64 {self.begin}, i64 {depth}, ptr {a}, "
                     f"i64 {a_row}, ptr {b}, i64 %b_col, ptr {self.out}, i64 {self.out_row}, "
                     f"i1 {later})")

    def _pack_b(self, b: str, depth: str) -> None:
        """All of B, or what is less than a panel beside those that the first strip packs.

        What comes from far away is read row by row and spread over the panels: hardware looks ahead
        along a row, and asking for a panel's pieces of rows does not make up for it. 32x4096x256
        f64 takes a quarter less where strangers use the shared cache, 1024x1024x1024 1 %. Zen 5 and
        Intel's Golden Cove fetch pieces as fast, also beside strangers, and compute meanwhile: read
        by rows that product would take Zen 5 37 % more, 64x4096x512 f32 15 %. Where registers are
        wide and rows few it is not done either: see `_keeping_strip`.
        """
        f, tiles = self.f, self.tiles
        if self.far != "false":
            spread = define_spread(f.module, f.target, tiles)
            f.do(f"call void @{spread}(i64 {f.select(self.far, depth, '0')}, i64 {depth}, "
                 f"i64 {self.whole}, ptr {b}, i64 %b_row, ptr %scratch)")
        pack = define_pack(f.module, f.target, self.dtype)
        some = f.any_of([self.far, self.keep])
        first = f.select(self.before, "0", f.select(some, self.whole, self.n))
        with f.each(first, self.n, tiles.columns) as col:
            width = f.min(str(tiles.columns), f.sub(self.n, col.index))
            f.do(f"call void @{pack}(i64 {depth}, i64 {width}, "
                 f"ptr {f.at(b, f.mul(col.index, '%b_col'))}, i64 %b_row, i64 %b_col, "
                 f"ptr {f.at('%scratch', f.mul(f.mul(col.index, depth), tiles.bytes))}, "
                 f"i64 {self.panel})")

    def _keeping_strip(self, index: str, b: str, c: str, depth: str, later: str) -> None:
        """The first strip, which packs whole panels of B on its way.

        Its rows may come from memory, a piece from each: the next panel's are asked for with those
        of this one, which takes 1 to 3 % off 1024x1024x1024. For few rows those of the next block
        are, below this one or beside it, which is thus in the second cache when its turn comes:
        20x256x4096 takes a quarter less than with B read row by row before, 32 rows 15 to 18 %, 64
        rows 10 %, 32x1024x1024 3 to 10 %, 32x4096x256 12 to 15 %, 20x2048x2048 f64 10 to 18 %. But
        where pieces come fast the next panel is enough: the next block would take Golden Cove 9 to
        11 % more of 20 to 128 rows, 20 % of 15x512x4096 f64 and 40x2048x2048 f32.
        """
        f, height = self.f, self.tiles.rows
        beyond = f.select(f.cmp("sgt", "%m", str(MANY_ROWS)), str(self.panel), "0")
        more = f.cmp("slt", f.add(index, depth), "%k")
        beside = f.sub(f.mul(self.n, self.tiles.bytes), f.mul(index, "%b_row"))
        following = f.select(more, f.mul(depth, "%b_row"), beside)
        beyond = f.select(self.coming, following, beyond)
        x = self.a("0", height)
        kernel = strip(f.module, f.target, self.tiles, height, keep=True)
        f.do(f"call void @{kernel}(i64 {self.whole}, i64 {depth}, {x}, ptr {b}, i64 %b_row, "
             f"i64 {self.panel}, ptr {c}, i64 {self.out_row}, i1 {later}, ptr %scratch, "
             f"i64 {beyond})")
        skip = f.mul(self.whole, self.tiles.bytes)
        kernel = strip(f.module, f.target, self.tiles, height, partial=self.ways.partial)
        f.do(f"call void @{kernel}(i64 1, i64 {f.sub(self.n, self.whole)}, i64 {depth}, {x}, "
             f"ptr {f.at('%scratch', f.mul(skip, depth))}, i64 {self.panel}, i64 0, "
             f"ptr {f.at(c, skip)}, i64 {self.out_row}, i1 {later})")

    def _strips(self, row: str, b: str, c: str, depth: str, later: str) -> None:
        """The strips from `row` on, the highest first."""
        f, tiles = self.f, self.tiles
        source = f.select(self.in_panels, "%scratch", b, "ptr")
        b_row = f.select(self.in_panels, str(self.panel), "%b_row")
        b_panel = f.select(self.in_panels, f.mul(depth, self.panel), str(self.panel))

        def run(end: str, height: int, *, upright: bool = False) -> None:
            kernel = strip(
                f.module, f.target, tiles, height, upright=upright, partial=self.ways.partial
            )
            with f.each(row, end, height) as at:
                count = ""
                if height == tiles.rows and not upright:  # those that stand as they are: one call
                    at.step = f.select(self.a.wanted, str(height), f.sub(end, at.index))
                    count = f"i64 {f.udiv(at.step, height)}, "
                x = self.a(at.index, height)
                f.do(f"call void @{kernel}({count}i64 {self.n}, i64 {depth}, {x}, ptr {source}, "
                     f"i64 {b_row}, i64 {b_panel}, ptr {f.at(c, f.mul(at.index, self.out_row))}, "
                     f"i64 {self.out_row}, i1 {later})")

        for height, _ in tiles.tiles if self.ways.rows else tiles.tiles[-1:]:
            end = f.add(row, f.mul(f.udiv(f.sub("%m", row), height), height))
            if height == tiles.rows:
                end = f.mul(self.full, height)
                if self.a.wide and self.a.may:
                    packed = f.select(self.a.near, end, row)
                    run(packed, height, upright=True)
                    row = packed
            elif height == 8:
                end = f.add(row, f.mul(self.eights, height))
            run(end, height)
            row = end

    def round(self) -> None:
        """Put C where it belongs, if it was added up in scratch."""
        f = self.f
        if self.narrow or not self.tiles.masked:
            unpack = define_unpack(f.module, f.target, self.dtype)
            with f.when(self.staged):
                f.do(f"call void @{unpack}(i64 %m, i64 %n, ptr {self.out}, i64 {self.out_row}, "
                     f"ptr %c, i64 %c_row)")
