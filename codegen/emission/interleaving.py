"""Interleaved stores: results of which vectors hold every second, third, .. element.

    out0[3*i0] = e0;  out0[3*i0+1] = e1;  out0[3*i0+2] = e2

`unrolling` makes such nests. Stored one by one, lanes would be scattered; shuffles put those of all
the registers in the order of memory, and whole vectors are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Nest, Store
from graphc.types import DType


def axis(nest: Nest) -> str | None:
    """The axis along which stores interleave, if there is one."""
    if nest.reduced or len(nest.stores) < 2:
        return None
    for name in nest.outer:
        if all(len(g) > 1 for g in groups(nest.stores, name)):
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


def store(L: Lanes, d: DType, values: Sequence[str], at: str) -> None:
    """Write registers so that their first lanes come first, then their second ones, and so on.

    Of more registers than they have lanes, as many as these at a time: then each vector is a part
    of one row, and the shuffles are those of a square, few even where the rows' length is odd.
    """
    moved = [L.to_memory(d, v) for v in values]
    if (n := len(moved)) <= L.width:
        _store(L, d, moved, at, [k * L.width for k in range(n)])
        return
    for first in (*range(0, n - L.width, L.width), n - L.width):  # the last ones once more
        places = [first + k * n for k in range(L.width)]
        _store(L, d, moved[first : first + L.width], at, places)


def _store(L: Lanes, d: DType, moved: Sequence[str], at: str, places: Sequence[int]) -> None:
    """Write the interleaved lanes of registers, vector by vector, at these elements."""
    t = L.moved(d)
    parts = _interleaved(L, t, moved)
    masks: Sequence[str | None] = [None] * len(moved)
    if L.mask is not None:
        masks = _interleaved(L, "i1", [L.mask] * len(moved))
    for part, mask, k in zip(parts, masks, places, strict=True):
        to = L.e(f"getelementptr inbounds {t}, ptr {at}, i64 {k}") if k else at
        Lanes(L.e, L.width, L.target, mask=mask).store_moved(d, part, to)


def _interleaved(L: Lanes, t: str, registers: Sequence[str]) -> list[str]:
    """The lanes of registers in turn. An even number goes by halves, which takes the logarithm of
    it in shuffles; else each result picks what it has of every register."""
    n, width = len(registers), L.width
    if n == 1:
        return list(registers)
    if n % 2 == 0:
        even = _interleaved(L, t, registers[0::2])
        odd = _interleaved(L, t, registers[1::2])
        return [
            L.shuffle(t, a, b, [(half * width + k) // 2 + (k % 2) * width for k in range(width)])
            for a, b in zip(even, odd, strict=True) for half in range(2)
        ]
    out = []
    for r in range(n):
        places = [divmod(r * width + k, n) for k in range(width)]  # (lane, register)
        found, order = registers[0], [lane if j == 0 else -1 for lane, j in places]
        for j in range(1, n):
            picked = [
                width + lane if j == there else (order[k] if j == 1 else k)
                for k, (lane, there) in enumerate(places)
            ]
            found = L.shuffle(t, found, registers[j], picked)
        out.append(found)
    return out
