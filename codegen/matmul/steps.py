"""The loop over k of a register tile (see `micro`).

A step multiplies a row of B, in registers, by an element of each of the tile's rows of A, adds
the products to the tile's sums, and asks for what comes later: rows of B, or the tile of C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphc.aligned import LINE
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.tiling import Tiling

# Rows of B between what is read and what is asked for. Rows that are 4 KiB apart share a set of the
# nearest cache, which holds 8 or 12 of them: with 20, a product of few rows took a fifth longer.
AHEAD = 8


class Strip(NamedTuple):
    """Where a strip of A has its rows, as registers or constants and how far these are shifted,
    and the bytes from step to step; whether all that is constant."""

    rows: list[tuple[str, int]]
    step: str
    constant: bool


class _Carried(NamedTuple):
    """What a step of the loop over k hands on to the next: its name, type, start and next value."""

    name: str
    type: str
    start: str
    following: str


def chains(
    f: Function, tiles: Tiling, vectors: list[Lanes], a: Strip, b: str,
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
    carried.append(_Carried(pa, "ptr", "%a", f.opaque(f.at(pa, a.step), "ptr")))
    carried.append(_Carried(pb, "ptr", b, f.opaque(f.at(pb, "%b_row"), "ptr")))
    if packed:
        carried.append(_Carried(pp, "ptr", packed, f.opaque(f.at(pp, step), "ptr")))
    if asked:
        carried.append(_Carried(pc, "ptr", asked, f.opaque(f.at(pc, f"%{head}down"), "ptr")))
    _repeat(f, head, before, at, carried, first, rest)
    return sums


def _multiplied(
    f: Function, tiles: Tiling, L: Lanes, a: Strip, pa: str, loaded: list[str],
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
