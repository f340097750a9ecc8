"""Interleaved elements: of operands and results of which a vector holds every second, third, ..

    e0 = in0[3*i0];  e1 = in0[3*i0+1];  e2 = in0[3*i0+2];  ..
    out0[3*i0] = e3;  out0[3*i0+1] = e4;  out0[3*i0+2] = e5

`unrolling` and `unrolled_rows` make such nests. Read and stored one by one, lanes would be gathered
and scattered; whole vectors are read, whose lanes shuffles put in registers of their own, and those
of all results in the order of memory, and whole vectors are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.nests.axes import coefficient, step
from graphc.codegen.nests.loops import Expr, Nest, Store
from graphc.dims import Size
from graphc.types import DType

if TYPE_CHECKING:
    from graphc.codegen.nests.schedule import Schedule

# Shuffles within squares name what they move; others take a register of places, or are several, but
# those of few registers.
PICKED, FEW = 2, 4
BITS = {"float": 32, "double": 64}
Orders = Sequence[Sequence[int]]  # of lanes


def axis(nest: Nest) -> str | None:
    """The axis along which stores interleave, if there is one; others may go by vectors."""
    if nest.reduced or len(nest.stores) < 2:
        return None
    for name in nest.outer:
        found = list(groups(nest.stores, name))
        if any(len(g) > 1 for g in found) and all(
            len(g) > 1 or coefficient(g[0].offset, name) == 1 for g in found
        ):
            return name
    return None


def groups(stores: Sequence[Store], vector: str | None) -> Iterator[list[Store]]:
    """Stores that fill memory together, vector by vector, in the order of their places; all others
    singly."""
    left = list(stores)
    while left:
        first = left[0]
        count = coefficient(first.offset, vector) if vector is not None else 1
        found = [first]
        if isinstance(count, int) and count > 1:
            places = {s.offset - first.offset: s for s in left if s.output == first.output}
            if all(k in places for k in range(count)):
                found = [places[k] for k in range(count)]
        left = [s for s in left if s not in found]
        yield found


def rows(s: Schedule) -> dict[Expr, list[Expr]]:
    """Loads that read whole rows together, each with those of its row in their order."""
    if s.nest.reduced or s.vector is None or s.width == 1:
        return {}
    return whole_rows(s.nest, s.vector)


def whole_rows(nest: Nest, vector: str) -> dict[Expr, list[Expr]]:
    """The same of a nest's loads, where its vectors run along an axis."""
    loads: dict[tuple[int, Size], Expr] = {
        (e.param, e.offset): e for e in nest.exprs
        if e.kind == "load" and not e.preds and not nest.dynamic(e.offset) and e.dtype.itemsize >= 4
    }
    found: dict[Expr, list[Expr]] = {}
    for (param, offset), first in loads.items():
        n = coefficient(offset, vector)
        if first in found or not isinstance(n, int) or not 2 <= n <= len(loads):
            continue
        row = [e for k in range(n) if (e := loads.get((param, offset + k))) is not None]
        if len(row) == n and not any(e in found for e in row):
            found |= dict.fromkeys(row, row)
    return found


def reads_rows(nest: Nest, vector: str) -> bool:
    """Whether vectors along an axis read what lies side by side, or whole rows."""
    rows = whole_rows(nest, vector)
    return all(
        e in rows or step(nest, e.offset, vector) in (-1, 0, 1)
        for e in nest.exprs if e.kind == "load"
    )


def load(L: Lanes, d: DType, n: int, at: str) -> list[str]:
    """Rows of n elements from `at` on, one in each lane: a register for each element."""
    t = L.moved(d)
    if _goes_by_squares(L, n):
        out: list[str] = []
        for first in _squares(L, n):
            square = [_row(L, d, n, k, first, at) for k in range(L.width)]
            out += _interleaved(L, t, square)[len(out) - first :][: n - len(out)]
        return out
    masks: Sequence[str | None] = [None] * n
    if L.mask is not None:
        masks = _interleaved(L, "i1", [L.mask] * n)
    read = [
        Lanes(L.e, L.width, L.target, mask=mask).load(d, _place(L, t, at, k * L.width))
        for k, mask in enumerate(masks)
    ]
    return _apart(L, t, read)


def _row(L: Lanes, d: DType, n: int, k: int, first: int, at: str) -> str:
    """The k-th row from its element `first` on; where it is not wanted, the first row, which is."""
    here = _place(L, L.moved(d), at, k * n + first)
    if L.mask is not None and k:
        wanted = L.e(f"extractelement {L.vec('i1')} {L.mask}, i64 {k}")
        here = L.e(f"select i1 {wanted}, ptr {here}, ptr {_place(L, L.moved(d), at, first)}")
    return Lanes(L.e, L.width, L.target, mask=_ends(L, n, k)).load(d, here)


def _ends(L: Lanes, n: int, k: int) -> str | None:
    """The lanes of the k-th row that are its own, if others may not be touched: those of a short
    row reach into the next one, which is written after it."""
    if n >= L.width or (L.mask is None and (k + 1) * n + L.width - n <= L.width * n):
        return None
    return L.constants("i1", [lane < n for lane in range(L.width)])


def store(L: Lanes, d: DType, values: Sequence[str], at: str) -> None:
    """Write registers so that their first lanes come first, then their second ones, and so on."""
    moved, n, t = [L.to_memory(d, v) for v in values], len(values), L.moved(d)
    if not _goes_by_squares(L, n):
        masks: Sequence[str | None] = [None] * n
        if L.mask is not None:
            masks = _interleaved(L, "i1", [L.mask] * n)
        for k, (part, mask) in enumerate(zip(_interleaved(L, t, moved), masks, strict=True)):
            to = _place(L, t, at, k * L.width)
            Lanes(L.e, L.width, L.target, mask=mask).store_moved(d, part, to)
        return
    moved += ["poison"] * (L.width - n)
    for first in _squares(L, n):
        parts = _interleaved(L, t, moved[first : first + L.width])
        for k, part in enumerate(parts):
            mask = _ends(L, n, k)
            if L.mask is not None:
                wanted = L.spread("i1", L.e(f"extractelement {L.vec('i1')} {L.mask}, i64 {k}"))
                mask = wanted if mask is None else L.op("and", "i1", wanted, mask)
            to = _place(L, t, at, k * n + first)
            Lanes(L.e, L.width, L.target, mask=mask).store_moved(d, part, to)


def _place(L: Lanes, t: str, at: str, k: int) -> str:
    return L.e(f"getelementptr inbounds {t}, ptr {at}, i64 {k}") if k else at


def _goes_by_squares(L: Lanes, n: int) -> bool:
    """Whether rows of n elements are turned by as many registers as these have lanes: then each is
    a part of one row, and the shuffles are those of a square, few even where n is odd."""
    return n > L.width or (n > FEW and PICKED * _shuffles(n) > _shuffles(L.width))


def _squares(L: Lanes, n: int) -> list[int]:
    """Where the registers of squares begin in a row; the last ones once more."""
    return [*range(0, n - L.width, L.width), max(0, n - L.width)]


def _shuffles(n: int) -> int:
    """Of n registers that are interleaved."""
    return 0 if n == 1 else n * (n - 1) if n % 2 else n + 2 * _shuffles(n // 2)


def _interleaved(L: Lanes, t: str, registers: Sequence[str]) -> list[str]:
    """The lanes of registers in turn. An even number goes by halves, which takes the logarithm of
    it in shuffles; else each result picks what it has of every register."""
    n, width = len(registers), L.width
    if _is_square(L, t, n):
        return _transposed(L, t, registers)
    if n % 2 == 0:
        even = _interleaved(L, t, registers[0::2])
        odd = _interleaved(L, t, registers[1::2])
        return [
            L.shuffle(t, a, b, [(half * width + k) // 2 + (k % 2) * width for k in range(width)])
            for a, b in zip(even, odd, strict=True) for half in range(2)
        ]
    places = [[divmod(r * width + k, n) for k in range(width)] for r in range(n)]
    return [_picked(L, t, registers, [(j, lane) for lane, j in p]) for p in places]


def _picked(L: Lanes, t: str, registers: Sequence[str], places: Sequence[tuple[int, int]]) -> str:
    """One register of lanes of others, each by the number of its register and its lane there."""
    found, order = registers[0], [lane if j == 0 else -1 for j, lane in places]
    for j in range(1, len(registers)):
        picked = [
            L.width + lane if j == there else (order[k] if j == 1 else k)
            for k, (there, lane) in enumerate(places)
        ]
        found = L.shuffle(t, found, registers[j], picked)
    return found


def _apart(L: Lanes, t: str, registers: Sequence[str]) -> list[str]:
    """The inverse of `_interleaved`: every n-th lane of n registers in one."""
    n, width = len(registers), L.width
    if _is_square(L, t, n):
        return _transposed(L, t, registers)
    if n % 2 == 0:
        halves = [
            _apart(L, t, [
                L.shuffle(t, a, b, [2 * k + odd for k in range(width)])
                for a, b in zip(registers[0::2], registers[1::2], strict=True)
            ])
            for odd in (0, 1)
        ]
        return [v for pair in zip(*halves, strict=True) for v in pair]
    places = [[divmod(k * n + r, width) for k in range(width)] for r in range(n)]
    return [_picked(L, t, registers, p) for p in places]


def _is_square(L: Lanes, t: str, n: int) -> bool:
    """Whether n registers are a square that `_transposed` turns."""
    return n == L.width and n * BITS.get(t, 0) in (128, 256, 512)


def _transposed(L: Lanes, t: str, registers: Sequence[str]) -> list[str]:
    """As many registers as each has lanes, turned by unpacking and by whole pieces of 16 bytes. By
    halves, which take as many shuffles, but of any lanes, 50,000 inverses of 2 x 2 f64 take AVX2 60
    us in the place of 31, softmax of rows of 16 f32 AVX-512 18.1 in the place of 15.5.
    """
    n = len(registers)
    g = 128 // BITS[t]  # lanes of a piece
    half, begins = g // 2, range(0, n, g)

    def met(rows: Sequence[str], first: Orders, second: Orders) -> list[str]:
        """Two or four registers, by two orders of the lanes of two for each two of them."""
        if len(rows) == 1:
            return list(rows)
        if len(rows) == 4:
            near, far = ([L.shuffle(t, a, b, x) for x in first] for a, b in (rows[:2], rows[2:]))
        else:
            near, far = [rows[0]], [rows[1]]
        return [L.shuffle(t, a, b, x) for a, b in zip(near, far, strict=True) for x in second]

    unpack = [
        [k + at for at in begins for k in (low, n + low, low + 1, n + low + 1)] for low in (0, 2)
    ]
    halves = [
        [k + at + i for at in begins for k in (low, n + low) for i in range(half)]
        for low in (0, half)
    ]
    within = [met(registers[at : at + g], unpack, halves) for at in begins]
    count = len(begins)
    ends = [_pieces([low, low + 1, count + low, count + low + 1], g) for low in (0, 2)]
    turns = [_pieces([*range(odd, 2 * count, 2)], g) for odd in (0, 1)]
    columns = [met([rows[c] for rows in within], ends, turns) for c in range(g)]
    return [column[q] for q in range(count) for column in columns]


def _pieces(order: Sequence[int], size: int) -> list[int]:
    """The lanes of pieces of a size."""
    return [p * size + k for p in order for k in range(size)]
