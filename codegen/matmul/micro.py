"""Micro-kernels of the matrix product: a tile of C in registers, one pass over k.

For every element the order of arithmetic is one chain over k, from zero, rounded once per step;
the chain's value is stored, or added to C where C holds the sum of the k blocks before. No other
order is used anywhere for a product with more than one column, so that neither the tile an
element falls into nor the packing of operands can change its bits.

    strip_H(columns, k, A, a_row, a_col, B, b_row, b_panel, C, c_row, accumulate)

computes H rows of C, tile by tile, so that H rows of A stay in the nearest cache while B passes by
(as in K. Goto, R. van de Geijn, Anatomy of high-performance matrix multiplication, with rows and
columns exchanged). B comes in panels of some registers: rows of a panel are b_row apart, panels
b_panel, which serves packed panels and B as it is. C has unit column stride; strides are in bytes.

    strip_H(strips, .., a_col, next, next_row, B, ..)

of the greatest height takes several strips, one below the other. Where the strip of A that comes
next has contiguous rows and may be far away, it is at `next`, which is null elsewhere: each tile
asks for a line of each of its rows.

    strip_H_upright(columns, .., accumulate)

of the greatest height, where registers are wide, takes a strip that is packed: steps of k lie PITCH
elements apart, rows side by side. Its addresses are constants, so half of the broadcasts of A can
be operands of the multiply-adds, which saves as many instructions as it takes loads: beside
another thread, with which a core shares what it decodes, 512x512x512 f64 takes 5 to 6 % less,
256x256x256 f32 9 %. (A sum of registers as an address makes two instructions of one again.)

    strip_H_keeping(columns, .., accumulate, packed, beyond)

does the same for whole panels of one strip, and copies them to `packed` on the way: packing takes
no time, for the multiply-adds take longer than loads and stores. With every row of a panel it asks
for what is `beyond` bytes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from graphc.codegen.emitter import Module
from graphc.codegen.lanes import Lanes
from graphc.codegen.literals import register_type
from graphc.codegen.matmul.ir import Function
from graphc.codegen.target import Target
from graphc.types import DType

# Rows of B between what is read and what is asked for. Rows that are 4 KiB apart share a set of the
# nearest cache, which holds 8 or 12 of them: with 20, a product of few rows took a fifth longer.
AHEAD = 8

PARAMS = (
    "i64 %columns, i64 %k, ptr %a{s}, i64 %a_row, i64 %a_col, ",
    "ptr %b, i64 %b_row, i64 %b_panel, ptr noalias %c{s}, i64 %c_row, i1 %accumulate",
)
PITCH = 16  # elements between steps of an upright strip of A: whole registers
MANY_CHAINS = 24  # of a tile, from which a step has room to ask for C: see `_ask_for_c`
LINE = 64  # bytes of a line of a cache
NEXT_PARAMS = "ptr %next{s}, i64 %next_row, "
STEPPED_ROWS = 8  # from so many rows on each row of C is found from the one before: see `_places`


class Tiling(NamedTuple):
    """How C is cut into register tiles for a compute dtype on a target.

    `tiles` are (rows, (registers per row, ..., 1)), both in descending order. A panel of B has
    `panel` registers per row. `masked` tells whether a single register may be partial.
    """

    dtype: DType
    lanes: int
    tiles: tuple[tuple[int, tuple[int, ...]], ...]
    panel: int
    masked: bool

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.panel * self.lanes

    @property
    def rows(self) -> int:
        """Rows of a full strip."""
        return self.tiles[0][0]

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return self.dtype.itemsize


def tiling(target: Target, dtype: DType) -> Tiling:
    """14 rows of 2 registers where there are 32 wide ones; 6 of 4 or of 2, or 4 of 2, elsewhere.

    Loads of A are broadcasts from memory, so 28 multiply-adds take 16 loads, of which the two of B
    come from the second cache: half as many bytes for a multiply-add as 6 rows of 4 registers
    take. Few rows want more registers of each, to hide the latency, and as few strips as there may
    be: each reads all of B, which for few rows takes longer than they do.
    """
    lanes = target.lanes(dtype)
    small = ((2, (4, 2, 1)), (1, (8, 2, 1)))
    if target.masked:
        few = ((4, (4, 1)), (2, (4, 1)), (1, (8, 1)))
        return Tiling(dtype, lanes, ((14, (2, 1)), (8, (2, 1)), (6, (4, 2, 1)), *few), 2, True)
    if target.registers >= 32:
        return Tiling(dtype, lanes, ((6, (4, 2, 1)), *small), 4, False)
    most = 6 if target.has_fma else 4
    # AVX2 masks by a vector register, of which a 6 x 2 tile leaves none
    avx2 = target.vector_bits == 256 and target.triple.startswith(("x86_64", "amd64"))
    return Tiling(dtype, lanes, ((most, (2, 1)), *small), 2, avx2)


def prefix(dtype: DType) -> str:
    """What the names of a dtype's functions begin with."""
    return f"graphc_matmul_{dtype.name}"


def tail_mask(f: Function, dtype: DType, lanes: int, count: str) -> str:
    """`<lanes x i1>`, true in the first `count` lanes."""
    t = f"i{dtype.bits}"
    n = f(f"trunc i64 {count} to {t}") if dtype.bits < 64 else count
    one = f(f"insertelement <{lanes} x {t}> poison, {t} {n}, i64 0")
    wide = f(
        f"shufflevector <{lanes} x {t}> {one}, <{lanes} x {t}> poison, "
        f"<{lanes} x i32> zeroinitializer"
    )
    steps = ", ".join(f"{t} {i}" for i in range(lanes))
    return f(f"icmp ult <{lanes} x {t}> <{steps}>, {wide}")


def strip(
    module: Module, target: Target, tiles: Tiling, height: int, *, keep: bool = False,
    begun: bool = False, upright: bool = False,
) -> str:
    """Define the kernel for `height` rows; its name."""
    name = f"{prefix(tiles.dtype)}_strip_{height}"
    name += "_keeping" * keep + "_going_on" * begun + "_upright" * upright
    if name in module.functions:
        return name
    highest = height == tiles.rows
    several = highest and not keep and not begun and not upright
    params = (NEXT_PARAMS * highest).join(PARAMS).format(s="s" * several)
    params = "i64 %strips, " * several + params
    params += ", ptr noalias %packed, i64 %beyond" * keep + ", ptr %begun, i1 %on" * begun
    f = Function(module, name, params, target, tuned=True)
    f.do(f"%ahead = mul i64 %b_row, {AHEAD}")
    if highest:
        none = f("icmp eq ptr %next" + "s" * several + ", null")
        f.do(f"%asked = select i1 {none}, i64 0, i64 {height}")
    a = _upright(tiles, height) if upright else _strided(f, height)
    if several:
        with f.each("0", "%strips") as at:
            for p in ("a", "c", "next"):
                skip = f.mul(f.mul(at.index, height), f"%{p}_row")
                f.do(f"%{p} = getelementptr i8, ptr %{p}s, i64 {skip}")
            _strip(f, tiles, a, keep, begun)
    else:
        _strip(f, tiles, a, keep, begun)
    f.finish()
    return name


class _Strip(NamedTuple):
    """Where a strip of A has its rows, as registers or constants and how far these are shifted,
    and the bytes from step to step; whether all that is constant."""

    rows: list[tuple[str, int]]
    step: str
    constant: bool


def _strided(f: Function, height: int) -> _Strip:
    odd = {i: _opaque(f, f.mul("%a_row", i)) for i in range(1, height, 2)}
    rows = [("0", 0)] + [(odd[i // (i & -i)], (i & -i).bit_length() - 1) for i in range(1, height)]
    return _Strip(rows, "%a_col", False)


def _upright(tiles: Tiling, height: int) -> _Strip:
    rows = [(str(i * tiles.bytes), 0) for i in range(height)]
    return _Strip(rows, str(PITCH * tiles.bytes), True)


def _strip(f: Function, tiles: Tiling, a: _Strip, keep: bool, begun: bool) -> None:
    """A strip's tiles, the widest first."""
    done, height = "0", len(a.rows)
    widths = dict(tiles.tiles)[height]
    for width in widths[:1] if keep else widths:
        step = width * tiles.lanes
        end = "%columns"
        if width > 1:
            end = f(f"and i64 %columns, {-step}") if step & (step - 1) == 0 else f.mul(
                f.udiv("%columns", step), step
            )
        with f.each(done, end, step) as col:
            _tile(f, tiles, a, width, col.index, keep, begun)
        done = end


def _tile(
    f: Function, tiles: Tiling, a: _Strip, width: int, col: str, keep: bool, begun: bool
) -> None:
    """The tile of `width` registers at column `col`."""
    height, size, lanes = len(a.rows), tiles.bytes, tiles.lanes
    plain = Lanes(f, lanes, f.target)
    vectors = [plain] * width
    if width == 1 and tiles.masked:
        left = f.min(f.sub("%columns", col), str(lanes))
        vectors = [Lanes(f, lanes, f.target, mask=tail_mask(f, tiles.dtype, lanes, left))]
    b = f.at("%b", f.mul(f.udiv(col, tiles.columns), "%b_panel"))
    packed = f.at("%packed", f.mul(f.mul(col, size), "%k")) if keep else ""
    if width < tiles.panel:
        b = f.at(b, f.mul(f(f"urem i64 {col}, {tiles.columns}"), size))
    c = f.at("%c", f.mul(col, size))
    t = vectors[0].reg(tiles.dtype)
    starts = [["zeroinitializer"] * width] * height
    if begun:
        first = f.at("%begun", f.mul(col, size))
        places = [f.at(first, f.mul("%c_row", i)) for i in range(height)]
        starts = [[
            f.select("%on", L.load(tiles.dtype, f.at(p, j * lanes * size)), "zeroinitializer", t)
            for j, L in enumerate(vectors)
        ] for p in places]
    asked = ""
    if height == tiles.rows and width == tiles.tiles[0][1][0]:
        line = f.at("%next", f.mul(f.udiv(col, width * lanes), LINE))
        with f.each("0", "%asked") as i:
            f.prefetch(f.at(line, f.mul(i.index, "%next_row")), 2)
        if not keep:  # whose B may come from memory, and is asked for at every step
            asked = _ask_for_c(f, tiles, c)
    sums = _chains(f, tiles, vectors, a, b, packed, starts, asked)
    with f.either("%accumulate") as branches:
        _store(f, tiles, vectors, c, [
            [f(f"fadd {t} {L.load(tiles.dtype, p)}, {x}")
             for L, p, x in zip(vectors, places, chains, strict=True)]
            for places, chains in zip(_places(f, tiles, c, vectors, height), sums, strict=True)
        ])
        f.otherwise(*branches)
        _store(f, tiles, vectors, c, sums)


def _ask_for_c(f: Function, tiles: Tiling, c: str) -> str:
    """Ask for a full tile of C, which may be far away; c where the steps over k had better do it.

    A step of many multiply-adds has room for it: 512x512x512 f64 takes 5 to 9 % less, a batch of
    32 128x64x128 f32 10 %. One of 12 has none, and what will be added to is asked for before the
    first: 1024x1024x1024 takes 4 to 6 % less on AVX2.
    """
    height, (width, *_) = tiles.tiles[0]
    if height * width >= MANY_CHAINS:
        return c
    with f.each("0", f.select("%accumulate", str(height), "0")) as i:
        line = f.at(c, f.mul(i.index, "%c_row"))
        for along in range(0, width * tiles.lanes * tiles.bytes, LINE):
            f.prefetch(f.at(line, along), 2)
    return ""


def _store(
    f: Function, tiles: Tiling, vectors: list[Lanes], c: str, values: list[list[str]]
) -> None:
    """A tile of C, after all loads: those of rows that are 4 KiB apart would wait for stores."""
    for places, row in zip(_places(f, tiles, c, vectors, len(values)), values, strict=True):
        for L, p, x in zip(vectors, places, row, strict=True):
            L.store(tiles.dtype, x, p)


def _places(
    f: Function, tiles: Tiling, c: str, vectors: list[Lanes], height: int
) -> Iterator[list[str]]:
    """Where the registers of each row of a tile of C are.

    Of many rows neither the addresses nor the multiples of the stride stay in registers, so each
    is made from the one before: 4096x32x32 f32 takes 2 % less, and the kernel is a sixth smaller.
    """
    line = c
    for i in range(height):
        if i and height < STEPPED_ROWS:
            line = f.at(c, f.mul("%c_row", i))
        elif i:
            line = _opaque(f, f.at(line, "%c_row"), "ptr")
        yield [f.at(line, j * tiles.lanes * tiles.bytes) for j in range(len(vectors))]


def _opaque(f: Function, x: str, type: str = "i64") -> str:
    """x in a register of its own, of which LLVM does not know how it came about.

    Otherwise LLVM derives the addresses of A's rows from one another by additions in the loop over
    k, which take slots of the multiply-add units. Even multiples of a stride are shifts of odd
    ones, made in the loop, where they are part of an address.
    """
    return f(f'call {type} asm "", "=r,0"({type} {x})')


class _Carried(NamedTuple):
    """What a step of the loop over k hands on to the next: its name, type, start and next value."""

    name: str
    type: str
    start: str
    following: str


def _chains(
    f: Function, tiles: Tiling, vectors: list[Lanes], a: _Strip, b: str,
    packed: str, starts: list[list[str]], asked: str,
) -> list[list[str]]:
    """The loop over k (at least one step) from `starts`: sums[row][register].

    `asked` is the tile of C where a step has room to ask for a row of it, empty elsewhere.
    """
    head = f.fresh("k")
    first = f.min("%k", str(len(a.rows))) if asked else "%k"
    rest = f.sub("%k", first) if asked else ""
    before = f.block
    t = vectors[0].reg(tiles.dtype)
    f.branch(head)
    at = len(f.lines)
    pa, pb, pc, pp = (f"%{head}{x}" for x in "abcp")
    step = len(vectors) * tiles.lanes * tiles.bytes
    loaded = _row_of_b(f, tiles, vectors, pb, pp if packed else "")
    names = [[f"%{head}s{i}_{j}" for j in range(len(vectors))] for i in range(len(a.rows))]
    sums = _multiplied(f, tiles, vectors[0], a, pa, loaded, names, lambda: _ask_for_b(
        f, tiles, len(vectors), pb, pc if asked else "", bool(packed), len(a.rows)
    ))
    carried = [
        _Carried(s, t, x, y) for row, begin, following in zip(names, starts, sums, strict=True)
        for s, x, y in zip(row, begin, following, strict=True)
    ]
    carried.append(_Carried(pa, "ptr", "%a", f.at(pa, a.step)))
    carried.append(_Carried(pb, "ptr", b, f.at(pb, "%b_row")))
    if packed:
        carried.append(_Carried(pp, "ptr", packed, f.at(pp, step)))
    if asked:
        carried.append(_Carried(pc, "ptr", asked, f.at(pc, f"%{head}down")))
    _repeat(f, head, before, at, carried, first, rest)
    return sums


def _multiplied(
    f: Function, tiles: Tiling, L: Lanes, a: _Strip, pa: str, loaded: list[str],
    names: list[list[str]], ask: Callable[[], None],
) -> list[list[str]]:
    """A step's multiply-adds to the sums `names`.

    Where addresses are constants, those of every second row have its element from memory, each.
    LLVM takes two loads of one place as one unless there is something between that it must not
    move them across: requests are.
    """
    scalar = register_type(tiles.dtype)
    places: list[str] = []
    apart = a.constant and len(loaded) == 2
    if not apart:
        ask()
    sums: list[list[str]] = []
    for i, ((at, shift), row) in enumerate(zip(a.rows, names, strict=True)):
        places.append(f.at(pa, f(f"shl i64 {at}, {shift}") if shift else at))
        x = L.load_splat(tiles.dtype, places[-1])
        now = 1 if apart and i % 2 else len(row)
        some = zip(loaded[:now], row[:now], strict=True)
        sums.append([L.fma(scalar, x, y, s) for y, s in some])
    if apart:
        ask()
    for place, row, done in zip(places, names, sums, strict=True):
        if len(done) < len(row):
            x = L.load_splat(tiles.dtype, place)
            done.append(L.fma(scalar, x, loaded[1], row[1]))
    return sums


def _repeat(
    f: Function, head: str, before: str, at: int, carried: list[_Carried], first: str, rest: str
) -> None:
    """Close the loop that begins at `head`, whose phis belong at line `at`.

    If there is a `rest`, the `first` steps ask for C, row by row, and the others for B: a loop of
    its own for each would be a fifth more code, and asking for both at each step takes 2 % of
    256x256x256.
    """
    end, index = f.fresh("sums"), f"%{head}i"
    following = f.add(index, "-1")
    carried = [_Carried(index, "i64", first, following), *carried]
    where, again, later = end, "", {c.name: c.following for c in carried}
    if rest:
        left, down = f"%{head}left", f"%{head}down"
        carried += [_Carried(left, "i64", rest, left), _Carried(down, "i64", "%c_row", down)]
        where, again = f.fresh("turn"), f.fresh("again")
        later |= {index: left, left: "0", down: "%b_row", f"%{head}c": f"%{again}c"}
    f.lines[at:at] = [
        f"  {c.name} = phi {c.type} [{c.start}, %{before}], [{c.following}, %{head}]"
        + (f", [{later[c.name]}, %{again}]" if rest else "") for c in carried
    ]
    more = f.cmp("ne", following, "0")
    f.do(f"br i1 {more}, label %{head}, label %{where}, !llvm.loop !0")
    if rest:
        f.label(where)
        f.do(f"br i1 {f.cmp('ne', left, '0')}, label %{again}, label %{end}")
        f.label(again)
        ahead = f.at(later[f"%{head}b"], "%ahead")
        f.do(f"%{again}c = getelementptr i8, ptr {ahead}, i64 {LINE - 1}")
        f.do(f"br label %{head}")
    f.label(end)


def _row_of_b(
    f: Function, tiles: Tiling, vectors: list[Lanes], b: str, packed: str
) -> list[str]:
    """The registers of a step's row of B, which is copied to `packed` if that is not empty."""
    size = tiles.lanes * tiles.bytes
    loaded = []
    for j, L in enumerate(vectors):
        place = f.at(b, f.mul("%b_panel", j // tiles.panel))
        loaded.append(L.load(tiles.dtype, f.at(place, j % tiles.panel * size)))
    if packed:
        for j, (L, x) in enumerate(zip(vectors, loaded, strict=True)):
            L.store(tiles.dtype, x, f.at(packed, j * size))
    return loaded


def _ask_for_b(
    f: Function, tiles: Tiling, registers: int, b: str, asked: str, keep: bool, height: int
) -> None:
    """Large tiles leave time to ask for a later row of B, which may be far away, and begin within
    a line: for its first byte, and for the last of each line's length, if `asked` is not another
    place.
    """
    width = registers * tiles.lanes * tiles.bytes
    if keep:
        beyond = f.at(b, "%beyond")
        for along in range(0, width, LINE):
            f.prefetch(f.at(beyond, along), 2)
    if 2 * height * registers > tiles.rows * tiles.tiles[0][1][0]:
        ahead = f.at(b, "%ahead")
        f.prefetch(ahead)
        last = asked or f.at(ahead, LINE - 1)
        for along in range(0, width, LINE):
            f.prefetch(f.at(last, along))
