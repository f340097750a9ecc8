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

from collections.abc import Iterator

from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.steps import AHEAD, Near, Register, Strip, Sums, chains, multiples
from graphc.codegen.matmul.tiling import Tiling, prefix, tail_mask

PARAMS = (
    "i64 %columns, i64 %k, ptr %a{s}, i64 %a_row, i64 %a_col, ",
    "ptr %b, i64 %b_row, i64 %b_panel, ptr noalias %c{s}, i64 %c_row, i1 %accumulate",
)
PITCH = 16  # elements between steps of an upright strip of A: whole registers
MANY_CHAINS = 24  # of a tile, from which a step has room: see `_ask_for_c` and `Near`
NEXT_PARAMS = "ptr %next{s}, i64 %next_row, "
STEPPED_ROWS = 8  # from so many rows on each row of C is found from the one before: see `_places`


def strip(
    module: Module, target: Target, tiles: Tiling, height: int, *, keep: bool = False,
    begun: bool = False, upright: bool = False, partial: bool = False,
) -> str:
    """Define the kernel for `height` rows; its name. For `partial` see `_strip`."""
    partial = partial and 2 in dict(tiles.tiles)[height] and not (keep or begun or upright)
    name = f"{prefix(tiles.dtype)}_strip_{height}"
    name += "_keeping" * keep + "_going_on" * begun + "_upright" * upright + "_partial" * partial
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
    a = _upright(tiles, height) if upright else _strided(f, tiles, height, keep)
    if several:
        with f.each("0", "%strips") as at:
            for p in ("a", "c", "next"):
                skip = f.mul(f.mul(at.index, height), f"%{p}_row")
                f.do(f"%{p} = getelementptr i8, ptr %{p}s, i64 {skip}")
            _strip(f, tiles, a, keep, begun, partial)
    else:
        _strip(f, tiles, a, keep, begun, partial)
    f.finish()
    return name


def _strided(f: Function, tiles: Tiling, height: int, keep: bool) -> Strip:
    """Rows of A a stride apart. A B that is packed on the way is not near."""
    near = Near.of(f, tiles) if by_turns(f.target, tiles) and not keep else None
    return Strip(multiples(f, "%a_row", height), "%a_col", False, near)


def _upright(tiles: Tiling, height: int) -> Strip:
    rows = [(str(i * tiles.bytes), 0) for i in range(height)]
    return Strip(rows, str(PITCH * tiles.bytes), True, None)


def by_turns(target: Target, tiles: Tiling) -> bool:
    """Whether steps are taken together where they can be (`Near`): those that have no room, but for
    targets without fused multiply-adds, where a product would take 5 % more."""
    return target.has_fma and not _has_room(tiles)


def _has_room(tiles: Tiling) -> bool:
    """Whether a step of the largest tile has room for instructions beside its multiply-adds."""
    return tiles.chains >= MANY_CHAINS


def _strip(
    f: Function, tiles: Tiling, a: Strip, keep: bool, begun: bool, partial: bool
) -> None:
    """A strip's tiles, the widest first.

    If more than one register is left and there is a `partial` tile of two, it is that: see
    `product`. What is packed has many columns, and is not worth the code.
    """
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
        if partial and width == 2:
            more = f.cmp("sgt", f.sub("%columns", done), str(tiles.lanes))
            with f.when(more):
                _tile(f, tiles, a, width, done, keep, begun, partial)
            done = f.select(more, "%columns", done)


def _tile(
    f: Function, tiles: Tiling, a: Strip, width: int, col: str, keep: bool, begun: bool,
    partial: bool = False,
) -> None:
    """The tile of `width` registers at column `col`, of which the last may be `partial`."""
    height, size, lanes = len(a.rows), tiles.bytes, tiles.lanes
    registers = _registers(f, tiles, width, col, partial)
    b = f.at("%b", f.mul(f.udiv(col, tiles.columns), "%b_panel"))
    packed = f.at("%packed", f.mul(f.mul(col, size), "%k")) if keep else ""
    if width < tiles.panel:
        b = f.at(b, f.mul(f(f"urem i64 {col}, {tiles.columns}"), size))
    c = f.at("%c", f.mul(col, size))
    t = registers[0].lanes.reg(tiles.dtype)
    starts = [["zeroinitializer"] * width] * height
    if begun:
        first = f.at("%begun", f.mul(col, size))
        places = [f.at(first, f.mul("%c_row", i)) for i in range(height)]
        starts = [[
            f.select("%on", L.load(tiles.dtype, f.at(p, place)), "zeroinitializer", t)
            for L, place in registers
        ] for p in places]
    asked = ""
    if height == tiles.rows and width == tiles.tiles[0][1][0] and not partial:
        line = f.at("%next", f.mul(f.udiv(col, width * lanes), LINE))
        with f.each("0", "%asked") as i:
            f.prefetch(f.at(line, f.mul(i.index, "%next_row")), 2)
        if not keep:  # whose B may come from memory, and is asked for at every step
            asked = _ask_for_c(f, tiles, c)
    sums = chains(f, tiles, registers, a, b, packed, starts, asked)
    with f.either("%accumulate") as branches:
        _store(f, tiles, registers, c, [
            [f(f"fadd {t} {L.load(tiles.dtype, p)}, {x}")
             for (L, _), p, x in zip(registers, places, chains, strict=True)]
            for places, chains in zip(_places(f, registers, c, height), sums, strict=True)
        ])
        f.otherwise(*branches)
        _store(f, tiles, registers, c, sums)


def _registers(
    f: Function, tiles: Tiling, width: int, col: str, partial: bool
) -> list[Register]:
    """The registers of a tile at column `col`.

    Where masks are registers, of which 6 x 2 sums leave none, the last of a `partial` two ends with
    the last column: some columns are in both, with the same sums.
    """
    lanes = tiles.lanes
    length = lanes * tiles.bytes
    plain = Lanes(f, lanes, f.target)
    registers = [Register(plain, j * length) for j in range(width)]
    if partial and not f.target.masked:
        back = f.sub("%columns", f.add(col, str(lanes)))
        registers[-1] = Register(plain, f.mul(back, tiles.bytes))
    elif partial or (width == 1 and tiles.masked):
        left = f.min(f.sub("%columns", f.add(col, str((width - 1) * lanes))), str(lanes))
        mask = tail_mask(f, tiles.dtype, lanes, left)
        if partial:  # LLVM would compare in the loop over k, and spill
            mask = f(f'call <{lanes} x i1> asm "", "=^Yk,0"(<{lanes} x i1> {mask})')
        masked = Lanes(f, lanes, f.target, mask=mask)
        registers[-1] = Register(masked, registers[-1].place)
    return registers


def _ask_for_c(f: Function, tiles: Tiling, c: str) -> str:
    """Ask for a full tile of C, which may be far away; c where the steps over k had better do it.

    A step of many multiply-adds has room for it: 512x512x512 f64 takes 5 to 9 % less, a batch of
    32 128x64x128 f32 10 %. One of 12 has none, and what will be added to is asked for before the
    first: 1024x1024x1024 takes 4 to 6 % less on AVX2.
    """
    if _has_room(tiles):
        return c
    height, (width, *_) = tiles.tiles[0]
    with f.each("0", f.select("%accumulate", str(height), "0")) as i:
        line = f.at(c, f.mul(i.index, "%c_row"))
        for along in range(0, width * tiles.lanes * tiles.bytes, LINE):
            f.prefetch(f.at(line, along), 2)
    return ""


def _store(
    f: Function, tiles: Tiling, registers: list[Register], c: str, values: Sums
) -> None:
    """A tile of C, after all loads: those of rows that are 4 KiB apart would wait for stores."""
    for places, row in zip(_places(f, registers, c, len(values)), values, strict=True):
        for (L, _), p, x in zip(registers, places, row, strict=True):
            L.store(tiles.dtype, x, p)


def _places(
    f: Function, registers: list[Register], c: str, height: int
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
            line = f.opaque(f.at(line, "%c_row"), "ptr")
        yield [f.at(line, place) for _, place in registers]
