"""The grid items of a task, one after the other: what each is, and where along the grid's axes."""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emission import columns, in_turns, turned
from graphc.codegen.emission.across import Across
from graphc.codegen.emission.along import Along
from graphc.codegen.emission.frame import Frame
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.nests.schedule import BLOCK
from graphc.dims import Size


def tiles_of(f: Frame, body: Across | Along) -> None:
    """Emit all tiles of results, for the rows that the frame's band has."""
    s = f.schedule
    count = dims.product(dims.ceildiv(f.nest.sizes[n], s.rows_of(n)) for n in s.grid)
    walk(f, body, "0", f.top.size(count), some=False)


def walk(
    f: Frame, body: Across | Along, low: str, high: str, some: bool = True, whole: bool = False,
) -> None:
    """Emit the grid items from low to high; `some`: there are some for certain; `whole`: the vector
    axis is a block at most. Where rows may be too long to be turned, items are written twice."""
    e, rows = f.e, f.turned_rows
    if rows is None or not rows.fits:
        _walk(f, body, low, high, some, whole)
        return
    ways, done = (e.fresh("turned"), e.fresh("long")), e.fresh("walked")
    e.do(f"br i1 {rows.fits}, label %{ways[0]}, label %{ways[1]}")
    for way, f.turned_rows in zip(ways, (rows, None), strict=True):
        e.label(way)
        _walk(f, body, low, high, some, whole)
        e.do(f"br label %{done}")
    e.label(done)
    f.turned_rows = rows


def _walk(
    f: Frame, body: Across | Along, low: str, high: str, some: bool, whole: bool
) -> None:
    """Emit the grid items from low to high, counting their places.

    An item's number is its place along the axes of the grid. Where their sizes are named, dividing
    by them takes as long as a short row does: places are counted up then, from item to item.
    """
    if isinstance(body, Across) and in_turns.suits(body):
        in_turns.walk(body, low, high, some)
        return
    e, radices = f.e, _radices(f, whole)
    fixed = all(isinstance(n, int) for n in radices)
    counted = [] if fixed else [("i64", p) for p in _places(f, low, radices)]
    sums = columns.Carried(body) if isinstance(body, Across) else None

    def one(i: str, state: list[str]) -> list[str]:
        places = _places(f, i, radices) if fixed else state[: len(counted)]
        f.item = i
        if sums is not None:
            sums.begin_row(state[len(counted) :])
        item(f, body, places, whole)
        return [
            *(() if fixed else _following(f, places, radices)),
            *(sums.end_row() if sums is not None else ()),
        ]

    carried = [*counted, *(sums.start() if sums is not None else ())]
    left = e.loop(low, high, 1, carried, one, some=some)
    if sums is not None:
        sums.put_back(left[len(counted) :])


def _following(f: Frame, places: list[str], radices: list[Size]) -> list[str]:
    """The places of the next item."""
    e, following, carry = f.e, [], "1"
    for place, n in zip(places, radices, strict=False):
        up = e(f"add nuw nsw i64 {place}, {carry}")
        full = e(f"icmp eq i64 {up}, {f.top.size(n)}")
        following.append(e(f"select i1 {full}, i64 0, i64 {up}"))
        carry = e(f"zext i1 {full} to i64")
    return [*following, e(f"add nuw nsw i64 {places[-1]}, {carry}")]


def _radices(f: Frame, whole: bool) -> list[Size]:
    """How many places there are along the axes of the grid, innermost first, without the last;
    before them blocks of the vector axis, unless that is whole."""
    s, sizes = f.schedule, f.nest.sizes
    blocks: list[Size] = []
    if s.vector is not None and not (s.flat or s.across or whole):
        blocks = [n for n in [dims.ceildiv(sizes[s.vector], s.block)] if n != 1]
    rows: list[Size] = [dims.ceildiv(sizes[name], s.rows_of(name)) for name in reversed(s.grid)]
    return [*blocks, *rows][:-1]


def _places(f: Frame, i: str, radices: list[Size]) -> list[str]:
    """Item number i as places, innermost first."""
    places = []
    for size in radices:
        n = f.top.size(size)
        places.append(f.e(f"urem i64 {i}, {n}"))
        i = f.e(f"udiv i64 {i}, {n}")
    return [*places, i]


def item(
    f: Frame, body: Across | Along, places: list[str], whole: bool
) -> None:
    """Emit a grid item: the values of the grid's axes, the range of the vector axis."""
    s, e, nest = f.schedule, f.e, f.nest
    low, high = "0", ""
    rows = places
    if s.flat:
        first = nest.reduced[0]
        size = f.top.size(nest.sizes[first])
        if first == s.vector:
            low = e(f"mul nsw i64 {places[0]}, {BLOCK}")
            high = least(e, e(f"add nsw i64 {low}, {BLOCK}"), size)
        else:
            low = e(f"mul nsw i64 {places[0]}, {s.band}")
            high = least(e, e(f"add nsw i64 {low}, {s.band}"), size)
    elif s.vector is not None and not s.across:
        n = nest.sizes[s.vector]
        high = f.top.size(n)
        if not whole and dims.ceildiv(n, s.block) != 1:
            low, rows = e(f"mul nsw i64 {places[0]}, {s.block}"), places[1:]
            high = least(e, e(f"add nsw i64 {low}, {s.block}"), high)
    bound = dict(zip(reversed(s.grid), rows, strict=False))
    if s.tile is None:
        grid = Scope(f, f.top, e.section(), bound)
        if f.turned_rows is not None:
            f.turned_rows.begin(grid, places[0])
        body.run(grid, low, high)
        f.turned = None
        return
    row = ""
    if s.tile.rows is not None:
        row = e(f"mul nsw i64 {bound.pop(s.tile.rows)}, {s.tile.count}")
    assert isinstance(body, Along)
    turned.run(body, Scope(f, f.top, e.section(), bound), row, low, high)
