"""The loop over k of a register tile (see `micro`).

A step multiplies a row of B, in registers, by an element of each of the tile's rows of A, adds
the products to the tile's sums, and asks for what comes later: rows of B, or the tile of C. Several
steps are one turn of a loop, and ask for nothing, where operands are `Near`.
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
TURN = 4              # steps of a turn of the loop where B is near: 2 give half as much, 8 no more
NEAR_BYTES = 1 << 14  # from the first of a panel's rows of B to its last, which are then near

Multiples = list[tuple[str, int]]  # of a stride: registers or constants, and how far to shift them


class Near(NamedTuple):
    """The steps of a strip that are TURN at a time, where A's rows are contiguous and B is near:
    how many, and where those of a turn, and the next turn, have their rows of B.

    A step of 12 multiply-adds has 8 loads, two requests, and four instructions that count, for
    which it waits where two threads share a core. A near B need not be asked for, and what counts
    does so for all of a turn. On Zen 3, beside another thread, products of 128, 512, 1024 and 2048
    take 7 to 15 % less, 32x256x256 7 %; alone 0 to 7 %.
    """

    steps: str
    rows: Multiples

    @classmethod
    def of(cls, f: Function, tiles: Tiling) -> Near:
        """As many of k as fill turns; none where A or B lie otherwise."""
        unit = f.cmp("eq", "%a_col", str(tiles.bytes))
        close = f.cmp("sle", f.mul("%b_row", "%k"), str(NEAR_BYTES))
        steps = f.select(f.all_of([unit, close]), f(f"and i64 %k, {-TURN}"), "0")
        return cls(steps, multiples(f, "%b_row", TURN + 1))


class Strip(NamedTuple):
    """Where a strip of A has its rows, and the bytes from step to step; whether all that is
    constant; which steps may be taken together."""

    rows: Multiples
    step: str
    constant: bool
    near: Near | None


def multiples(f: Function, stride: str, count: int) -> Multiples:
    """A stride's first multiples. Even ones are shifts of odd ones, made in the loop over k, where
    they are part of an address."""
    odd = {i: f.opaque(f.mul(stride, i)) for i in range(1, count, 2)}
    return [("0", 0)] + [(odd[i // (i & -i)], (i & -i).bit_length() - 1) for i in range(1, count)]


def _is_large(tiles: Tiling, height: int, registers: int) -> bool:
    """Whether a tile has half of the sums of the largest, at least: others are not worth the code.
    """
    return 2 * height * registers >= tiles.chains


class Register(NamedTuple):
    """One of a tile's registers of columns: its lanes, and the bytes from the tile's first."""

    lanes: Lanes
    place: str | int


Sums = list[list[str]]  # of a tile: for each row its registers


class _Carried(NamedTuple):
    """What a step of the loop over k hands on to the next: its name, type, start and next value."""

    name: str
    type: str
    start: str
    following: str


def chains(
    f: Function, tiles: Tiling, registers: list[Register], a: Strip, b: str,
    packed: str, starts: Sums, asked: str,
) -> Sums:
    """The loops over k (at least one step) from `starts`: what is near comes first.

    `asked` is the tile of C where a step has room to ask for a row of it, empty elsewhere.
    """
    near = a.near
    if near is None or not _is_large(tiles, len(a.rows), len(registers)):
        return _single_steps(f, tiles, registers, a, "%a", b, "%k", packed, starts, asked)
    starts, pa, pb = _near_steps(f, tiles, registers, a, b, starts, near)
    left, end, before = f.fresh("left"), f.fresh("all"), f.block
    steps = f.sub("%k", near.steps)
    f.do(f"br i1 {f.cmp('ne', steps, '0')}, label %{left}, label %{end}")
    f.label(left)
    sums = _single_steps(f, tiles, registers, a, pa, pb, steps, packed, starts, asked)
    after, t = f.block, registers[0].lanes.reg(tiles.dtype)
    f.branch(end)
    return [
        [f(f"phi {t} [{x}, %{before}], [{y}, %{after}]") for x, y in zip(*rows, strict=True)]
        for rows in zip(starts, sums, strict=True)
    ]


def _near_steps(
    f: Function, tiles: Tiling, registers: list[Register], a: Strip, b: str,
    starts: Sums, near: Near,
) -> tuple[Sums, str, str]:
    """The steps that are `near`, none or more; what they add up to, and where A and B go on."""
    head, end, before = f.fresh("near"), f.fresh("far"), f.block
    f.do(f"br i1 {f.cmp('ne', near.steps, '0')}, label %{head}, label %{end}")
    f.label(head)
    at = len(f.lines)
    index, pa, pb = (f"%{head}{x}" for x in "iab")
    names = _names(head, starts)
    sums = names
    for i, row in enumerate(near.rows[:TURN]):
        loaded = _row_of_b(f, tiles, registers, f.at(pb, _shifted(f, *row)), "")
        place = f.at(pa, i * tiles.bytes)
        sums = _multiplied(f, tiles, registers[0].lanes, a, place, loaded, sums, lambda: None)
    skip = _shifted(f, *near.rows[TURN])
    carried = [
        _Carried(index, "i64", near.steps, f.add(index, str(-TURN))),
        _Carried(pa, "ptr", "%a", f.opaque(f.at(pa, TURN * tiles.bytes), "ptr")),
        _Carried(pb, "ptr", b, f.opaque(f.at(pb, skip), "ptr")),
        *_carried_sums(registers[0].lanes.reg(tiles.dtype), names, starts, sums),
    ]
    f.lines[at:at] = [
        f"  {c.name} = phi {c.type} [{c.start}, %{before}], [{c.following}, %{head}]"
        for c in carried
    ]
    more = f.cmp("ne", carried[0].following, "0")
    f.do(f"br i1 {more}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    pa, pb, *flat = [
        f(f"phi {c.type} [{c.start}, %{before}], [{c.following}, %{head}]") for c in carried[1:]
    ]
    width = len(registers)
    return [flat[i : i + width] for i in range(0, len(flat), width)], pa, pb


def _single_steps(
    f: Function, tiles: Tiling, registers: list[Register], a: Strip, first_a: str, b: str,
    steps: str, packed: str, starts: Sums, asked: str,
) -> Sums:
    """The loop over `steps` (at least one), a step at a turn."""
    head = f.fresh("k")
    first = f.min(steps, str(len(a.rows))) if asked else steps
    rest = f.sub(steps, first) if asked else ""
    before = f.block
    f.branch(head)
    at = len(f.lines)
    pa, pb, pc, pp = (f"%{head}{x}" for x in "abcp")
    step = len(registers) * tiles.lanes * tiles.bytes
    loaded = _row_of_b(f, tiles, registers, pb, pp if packed else "")
    names = _names(head, starts)
    sums = _multiplied(f, tiles, registers[0].lanes, a, pa, loaded, names, lambda: _ask_for_b(
        f, tiles, len(registers), pb, pc if asked else "", bool(packed), len(a.rows)
    ))
    carried = _carried_sums(registers[0].lanes.reg(tiles.dtype), names, starts, sums)
    carried.append(_Carried(pa, "ptr", first_a, f.opaque(f.at(pa, a.step), "ptr")))
    carried.append(_Carried(pb, "ptr", b, f.opaque(f.at(pb, "%b_row"), "ptr")))
    if packed:
        carried.append(_Carried(pp, "ptr", packed, f.opaque(f.at(pp, step), "ptr")))
    if asked:
        carried.append(_Carried(pc, "ptr", asked, f.opaque(f.at(pc, f"%{head}down"), "ptr")))
    _repeat(f, head, before, at, carried, first, rest)
    return sums


def _names(head: str, starts: Sums) -> Sums:
    """The registers of a loop's sums."""
    return [[f"%{head}s{i}_{j}" for j in range(len(row))] for i, row in enumerate(starts)]


def _carried_sums(t: str, names: Sums, starts: Sums, sums: Sums) -> list[_Carried]:
    return [
        _Carried(name, t, start, following) for rows in zip(names, starts, sums, strict=True)
        for name, start, following in zip(*rows, strict=True)
    ]


def _multiplied(
    f: Function, tiles: Tiling, L: Lanes, a: Strip, pa: str, loaded: list[str],
    names: Sums, ask: Callable[[], None],
) -> Sums:
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
    sums: Sums = []
    for i, ((at, shift), row) in enumerate(zip(a.rows, names, strict=True)):
        places.append(f.at(pa, _shifted(f, at, shift)))
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


def _shifted(f: Function, register: str, shift: int) -> str:
    """One of `Multiples`."""
    return f(f"shl i64 {register}, {shift}") if shift else register


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
    f: Function, tiles: Tiling, registers: list[Register], b: str, packed: str
) -> list[str]:
    """The registers of a step's row of B, which is copied to `packed` if that is not empty."""
    loaded = []
    for j, (L, place) in enumerate(registers):
        panel, at = f.mul("%b_panel", j // tiles.panel), place
        if j >= tiles.panel:
            at = j % tiles.panel * tiles.lanes * tiles.bytes
        loaded.append(L.load(tiles.dtype, f.at(f.at(b, panel), at)))
    if packed:
        for (L, place), x in zip(registers, loaded, strict=True):
            L.store(tiles.dtype, x, f.at(packed, place))
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
    if 2 * height * registers > tiles.chains:
        ahead = f.at(b, "%ahead")
        f.prefetch(ahead)
        last = asked or f.at(ahead, LINE - 1)
        for along in range(0, width, LINE):
            f.prefetch(f.at(last, along))
