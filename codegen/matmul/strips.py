"""Strips of rows of A in a block of a matrix product: how high, and which are packed.

A strip is packed just before its use where its rows are strided, and copied where they share cache
sets; `block` runs the kernels of `micro` on it.
"""

from __future__ import annotations

from graphc.aligned import LINE
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.micro import PITCH, by_turns
from graphc.codegen.matmul.pack import define_pack, define_slices
from graphc.codegen.matmul.tiling import Tiling
from graphc.dims import Size
from graphc.types import DType

NEAR_ROWS = 1 << 12   # bytes between rows of B from which too many share sets of the second cache
FLAT_TILES = 4      # up to so many tiles A is read where it is, not packed
MANY_TILES = 8      # with more, the kernel asks for the next strip of rows while at one
WAY_BYTES = 1 << 12  # between rows of A that share sets of the nearest cache: see `Strips`
TALL_ROWS = 42      # of A from which strips of rows are transposed: likewise
TOGETHER = 8        # strips of A that are packed at once where its columns are contiguous, ..
APART_BYTES = 1 << 19  # .. with more from the first to the last: likewise
HEIGHT = 14         # rows of a strip of A: no tile has more
LOW = 6             # likewise where registers are few


def strips_scratch(depth: Size, n: Size, size: int) -> Size:
    """Bytes that strips of A need when packed, of so many steps; `size` is that of an element."""
    rows = TOGETHER * PITCH
    if isinstance(n, int) and n * size <= FLAT_TILES * LINE:
        rows = PITCH
    elif isinstance(n, int) and n * size <= FLAT_TILES * 2 * LINE:  # few panels of wide registers
        rows = TOGETHER * LOW
    return rows * (depth * size + LINE)


def may_be_packed(tiles: Tiling, m: Size, n: Size, rows: bool) -> bool:
    """Whether strips of A may be packed, of m rows beside n columns, where it is known whether its
    rows are contiguous: see `Strips`."""
    few = isinstance(n, int) and n <= tiles.columns * (FLAT_TILES if rows else 1)
    low = tiles.rows != HEIGHT or (isinstance(m, int) and m < HEIGHT)
    return not few and not (rows and low)


def strips_of(f: Function, tiles: Tiling, crowded: str) -> tuple[str, str]:
    """How many strips of the greatest height, and of 8: strips of 2 rows would be half as fast.

    14 rows leave from 0 to 13. 2 of them, and 4 if 14s remain, are better taken with a 14: as twice
    8, as thrice 6; and 10 as thrice 8, for 4 rows want more than two registers of columns: 24 x 32
    takes an eighth less. 4 beside a panel of columns, where strips of 6 have two registers as well,
    and few 14s, are better taken with two of them: as four times 8. Of others 8 is a strip, and 6,
    4, 2 and 1 take the rest. But rows without a 14 take B as it is, and want it in a cache for the
    second time. For `crowded` rows see `_small_strips_of`.
    """
    full = f.udiv("%m", tiles.rows)
    if tiles.rows != 14:
        return full, "0"
    rest = f.sub("%m", f.mul(full, 14))
    few = f.select(f.cmp("sgt", full, "1"), "6", "4")
    least = f.select(f.cmp("sgt", "%b_row", str(NEAR_ROWS)), "1", "0")
    short = f(f"and i1 {f.cmp('sge', rest, '2')}, {f.cmp('slt', rest, few)}")
    short = f(f"or i1 {short}, {f.cmp('eq', rest, '10')}")
    fewer = f.all_of([f.cmp("sgt", full, least), short])
    narrow = f.all_of([
        f.cmp("sgt", full, f.add(least, "1")), f.cmp("sle", full, "4"), f.cmp("eq", rest, "4"),
        f.cmp("sle", "%n", str(tiles.columns)),
    ])
    back = f.select(narrow, "2", f.select(fewer, "1", "0"))
    full, rest = f.sub(full, back), f.add(rest, f.mul(back, 14))
    whole = f.cmp("eq", f(f"and i64 {rest}, 6"), "0")  # 8 and 16, or one more
    eights = f.select(whole, f.udiv(rest, 8), "0")
    first, small = _small_strips_of(f, tiles)
    dense = f.cmp("sle", "%b_row", str(FLAT_TILES * tiles.columns * tiles.bytes))
    crowded = f.all_of([crowded, dense])
    return f.select(crowded, first, full), f.select(crowded, small, eights)


def _small_strips_of(f: Function, tiles: Tiling) -> tuple[str, str]:
    """The same for rows of A that share cache sets and stay where they are, beside few columns.

    14 of them throw each other out of the nearest cache; 6 have wide tiles as well, and take all
    with some 8s. Where a last register of each row is alone, its 6 sums would wait for one another,
    and of one panel there is nothing wider: there it is 8s, with some 6s. One 14 packs B if the
    rows are many. 32x32x4096 f64 takes 4 % less, 40x20x1024 12 %, 100x64x1024 15 %, 500x64x4096
    4 %; 64x64x1024 f32 3 %, 500x128x1024 3 %.
    """
    columns = str(tiles.columns)
    wide = f.cmp("sgt", "%n", columns)
    # 6s and 8s make any even number from 12 on
    tall = f.all_of([wide, f.cmp("sgt", "%m", str(max(TALL_ROWS, 2 * HEIGHT)))])
    first = f.select(tall, "1", "0")
    rest = f.sub("%m", f.mul(first, 14))
    whole = f.cmp("eq", f(f"urem i64 %n, {columns}"), "0")
    sixes = f(f"and i64 {f.sub('0', f.udiv(rest, 2))}, 3")  # beside 8s
    few, most = f.udiv(f(f"urem i64 {rest}, 6"), 2), f.udiv(f.sub(rest, f.mul(sixes, 6)), 8)
    return first, f.select(f.all_of([wide, whole]), few, most)


class Strips:
    """Emits the packing of strips of A, where they are packed.

    Rows are copied where they lie a multiple of WAY_BYTES apart: a near cache holds 8 or 12 lines
    of a set, so 14 such rows throw each other out at every step, and come from the second cache
    again. Where registers are wide and rows are many they are transposed, for there is a kernel for
    that: see `micro`. Intel's Golden Cove has no need of that kernel, and transposing takes it 6 %
    of 256x256x256 and 500x500x500 f64, 4 % of 512x784x512 f32, 2 % of 1024x1024x1024. For
    FLAT_TILES the copy takes more than it gives, 2 % of 101x103x107 f64; for few rows too, 4 % of
    32x4096x256. Where columns are contiguous a strip has but a line of each, and if they are far
    apart these are in as many pages: several strips are copied at once, which takes 2 to 5 % off
    A.T @ B of 512 and 1024, where 256 would take 1 % longer, and 9 % off 600x136x2000. Where steps
    are taken together (`micro.by_turns`), which wants contiguous rows, they are transposed, all
    rows of several strips at once: A.T @ B of 128 to 1024 takes Zen 3 8 to 20 % less, beside
    another thread, 784x128x512 15 %.

    may: whether any may be packed; wide: whether there is that kernel; upright: whether packed with
    contiguous columns; near: both, and packed; several: whether several are at once; crowded:
    whether they share cache sets where they are, and stay there.
    """

    def __init__(
        self, f: Function, dtype: DType, tiles: Tiling, packed: str, n: str, may: bool = True
    ):
        self.f, self.dtype, self.may = f, dtype, may
        self.packed, self.size = packed, tiles.bytes
        self.height = tiles.rows
        elem = str(dtype.itemsize)
        self.flat = f.cmp("eq", "%a_row", elem)  # its columns are contiguous, not its rows
        rows = f.cmp("eq", "%a_col", elem)
        self.asked = f.all_of([rows, f.cmp("sgt", n, str(MANY_TILES * tiles.columns))])
        self.wide, tall, even = tiles.rows == HEIGHT, "false", "false"
        if self.wide:
            if may and not f.target.decodes_enough:
                tall = f.all_of([rows, f.cmp("sge", "%m", str(TALL_ROWS))])
            even = f.cmp("eq", f(f"and i64 %a_row, {WAY_BYTES - 1}"), "0")
            even = f.all_of([even, f.cmp("sge", "%m", str(HEIGHT))])
        self.wanted = self.upright = self.several = "false"
        if may:
            narrow = dtype is not dtype.compute
            flat, one = (str(tiles.columns * count) for count in (FLAT_TILES, 1))
            many = f.cmp("sgt", n, f.select(f.any_of([self.flat, rows]), flat, one))
            apart = f.any_of([f.negated(rows), even, tall])
            self.wanted = "true" if narrow else f.all_of([many, apart])
            turns = by_turns(f.target, tiles) and not narrow
            self.upright = "false" if turns else f.any_of([self.flat, tall])
            if self.wide or turns:
                far = f.cmp("sgt", f.mul("%a_col", "%k"), str(APART_BYTES))
                self.several = f.all_of([self.wanted, self.flat, many, *[far] * self.wide])
        self.near = f.all_of([self.wanted, self.upright])
        self.crowded = f.all_of([even, f.negated(self.wanted)])

    def begin(self, index: str, depth: str) -> None:
        """The block of k from `index` on."""
        f, size = self.f, self.size
        self.depth, self.source = depth, f.at("%a", f.mul(index, "%a_col"))
        step = str((PITCH if self.wide else self.height) * size)
        self.row = f.select(self.upright, step, f.add(f.mul(depth, size), str(LINE)))
        self.a_row = f.select(self.wanted, f.select(self.upright, str(size), self.row), "%a_row")
        self.a_col = f.select(self.wanted, f.select(self.upright, self.row, str(size)), "%a_col")

    def in_rows(self) -> tuple[str, str]:
        """All of A, which has few rows, with contiguous ones; how far apart they are."""
        f = self.f
        row = f.add(f.mul(self.depth, self.size), str(LINE))
        apart = f.cmp("ne", "%a_col", str(self.size))
        with f.when(apart):
            f.do(f"call void @{self._pack()}(i64 %m, i64 {self.depth}, ptr {self.source}, "
                 f"i64 %a_row, i64 %a_col, ptr {self.packed}, i64 {row})")
        return f.select(apart, self.packed, self.source, "ptr"), f.select(apart, row, "%a_row")

    def __call__(self, row: str, height: int) -> str:
        """The kernel's arguments for the strip at `row`."""
        f = self.f
        a = here = f.at(self.source, f.mul(row, "%a_row"))
        if self.may:
            here = f.select(self.wanted, self._packed(a, row, height), a, "ptr")
        strip = f"ptr {here}, i64 {self.a_row}, i64 {self.a_col}"
        if height == self.height:
            after = f.at(a, f.mul("%a_row", height))
            strip += f", ptr {f.select(self.asked, after, 'null', 'ptr')}, i64 %a_row"
        return strip

    def _packed(self, a: str, row: str, height: int) -> str:
        """Pack the strip at `row`, which is at `a`, if that is wanted; where it is then."""
        f, packed, alone = self.f, self.packed, self.wanted
        if self.several != "false" and height == self.height:
            packed = self._together(a, f.udiv(row, height))
            alone = f.all_of([alone, f.negated(self.several)])
        with f.when(alone):
            f.do(f"call void @{self._pack()}("
                 f"i64 {f.select(self.upright, self.depth, str(height))}, "
                 f"i64 {f.select(self.upright, str(height), self.depth)}, ptr {a}, "
                 f"i64 {f.select(self.upright, '%a_col', '%a_row')}, "
                 f"i64 {f.select(self.upright, '%a_row', '%a_col')}, "
                 f"ptr {self.packed}, i64 {self.row})")
        return packed

    def _pack(self) -> str:
        return define_pack(self.f.module, self.f.target, self.dtype)

    def _together(self, a: str, number: str) -> str:
        """Pack strips of columns from number `number` on, if it is their turn; where this one is.

        They are asked for in order, from the first on.
        """
        f = self.f
        place = f(f"urem i64 {number}, {TOGETHER}")
        with f.when(f.all_of([self.several, f.cmp("eq", place, "0")])):
            count = f.min(str(TOGETHER), f.sub(f.udiv("%m", self.height), number))
            if self.wide:
                slices = define_slices(f.module, f.target, self.dtype, self.height, PITCH)
                f.do(f"call void @{slices}(i64 {count}, i64 {self.depth}, "
                     f"ptr {a}, i64 %a_col, ptr {self.packed})")
            else:
                f.do(f"call void @{self._pack()}("
                     f"i64 {f.mul(count, self.height)}, i64 {self.depth}, "
                     f"ptr {a}, i64 %a_row, i64 %a_col, ptr {self.packed}, i64 {self.row})")
        each = f.mul(self.depth, PITCH * self.size) if self.wide else f.mul(self.row, self.height)
        return f.at(self.packed, f.select(self.several, f.mul(place, each), "0"))
