"""Partial results of a reduction folded: vectors of lanes in halves, then lanes in halves.

    fold      a scalar state from vector states
    place     of an argmax whose elements stand in one group: the place alone

Lane i meets lane i + n/2 of VIRTUAL_BITS of lanes, whatever the registers' width (`reductions`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphc.codegen.elementwise.rare import outlined
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import literal
from graphc.codegen.emission.reductions import Reduction
from graphc.codegen.machine.target import X86
from graphc.types import i8, i16, i32, i64

EXTREMES = {"reduce_max": "greatest", "reduce_min": "least"}  # without NaN
SIGNED = {"i8": i8, "i16": i16, "i32": i32, "i64": i64}


def fold(kind: Reduction, L: Lanes, vectors: list[list[str] | None]) -> list[str]:
    """A scalar state from vector states; None stands for vectors no element reached."""
    if kind.name == "argmax":
        return _fold_positions(kind, L, vectors)
    n = len(vectors)
    while n > 1:
        n //= 2
        for k in range(n):
            a, b = vectors[k], vectors[k + n]
            if a is not None and b is not None:
                vectors[k] = kind.merge(L, a, b)
            elif a is None:
                vectors[k] = b
    state = vectors[0]
    assert state is not None
    if L.e.module.sparing and L.width > 1:
        return [outlined(
            L, f"{kind.name}.{kind.dtype.name}", kind.types[0], state,
            lambda lanes, given: _across(kind, lanes, given)[0], across=True,
        )]
    return _across(kind, L, state)


def _across(kind: Reduction, L: Lanes, state: Sequence[str]) -> list[str]:
    """A scalar state from one of a vector."""
    if kind.name in EXTREMES and kind.dtype.is_float and L.width > 2 and L.target.arch in X86:
        return _extreme(kind, L, state)
    h = L.width
    while h > 1:
        h //= 2
        order = ", ".join(f"i32 {(k + h) % L.width}" for k in range(L.width))
        high = [
            L.e(
                f"shufflevector {L.vec(t)} {r}, {L.vec(t)} poison, <{L.width} x i32> <{order}>"
            )
            for t, r in zip(kind.types, state, strict=True)
        ]
        state = kind.merge(L, state, high)
    if L.width == 1:
        return list(state)
    return [
        L.e(f"extractelement {L.vec(t)} {r}, i64 0")
        for t, r in zip(kind.types, state, strict=True)
    ]


def _extreme(kind: Reduction, L: Lanes, state: Sequence[str]) -> list[str]:
    """The greatest or least of a vector's lanes, found as if there were no NaN, which one
    comparison tells. With NaN each of the steps would be four instructions, not two."""
    t, (x,) = kind.types[0], state
    (best,) = _across(Reduction(EXTREMES[kind.name], kind.dtype), L, state)
    nan = L.e(f"bitcast {L.vec('i1')} {L.cmp('uno', t, x, x)} to i{L.width}")
    some = L.e(f"icmp ne i{L.width} {nan}, 0")
    return [L.e(f"select i1 {some}, {t} {literal(t, math.nan)}, {t} {best}")]


def _fold_positions(
    kind: Reduction, L: Lanes, vectors: Sequence[list[str] | None]
) -> list[str]:
    """The greatest element, and the first of the lanes that hold it in the first group."""
    t, p = kind.types
    greatest = fold(Reduction("reduce_max", kind.dtype), L, [v and v[:1] for v in vectors])
    top = L.spread(t, greatest[0])
    hits: dict[int, str] = {}
    groups: list[list[str] | None] = [None] * len(vectors)
    for k, v in enumerate(vectors):
        if v is None:
            continue
        hits[k] = L.cmp("oeq" if kind.dtype.is_float else "eq", t, v[0], top)
        if kind.dtype.is_float:
            hits[k] = L.op("or", "i1", hits[k], L.cmp("uno", t, v[0], v[0]))
        groups[k] = [L.select(hits[k], p, v[1], L.k(p, (1 << (int(p[1:]) - 1)) - 1))]
    (group,) = fold(Reduction("reduce_min", SIGNED[p]), L, groups)
    first = L.spread(p, group)
    lanes = len(vectors) * L.width
    for k, hit in hits.items():
        v = vectors[k]
        assert v is not None
        hits[k] = L.op("and", "i1", hit, L.cmp("eq", p, v[1], first))
    lane = first_of(L, lanes, bits_of(L, lanes, hits))
    if p != "i64":
        group = L.e(f"zext {p} {group} to i64")
    return [greatest[0], L.e(f"add i64 {L.e(f'mul i64 {group}, {lanes}')}, {lane}")]


def place(kind: Reduction, L: Lanes, vectors: Sequence[list[str] | None]) -> str:
    """The first place of an argmax's greatest element, or NaN, where all elements stand in one
    group; `vectors` as for `fold`.

    The greatest of others is found as if there were no NaN, which their bits tell.
    """
    t, d = kind.types[0], kind.dtype
    (top,) = fold(Reduction("greatest", d), L, [v and v[:1] for v in vectors])
    top = L.spread(t, top)
    there = {k: v[0] for k, v in enumerate(vectors) if v is not None}
    lanes = len(there) * L.width
    equal = "oeq" if d.is_float else "eq"
    bits = bits_of(L, lanes, {k: L.cmp(equal, t, x, top) for k, x in there.items()})
    if d.is_float:
        nan = bits_of(L, lanes, {k: L.cmp("uno", t, x, x) for k, x in there.items()})
        some = L.e(f"icmp ne i{lanes} {nan}, 0")
        bits = L.e(f"select i1 {some}, i{lanes} {nan}, i{lanes} {bits}")
    return first_of(L, lanes, bits)


def bits_of(L: Lanes, lanes: int, conditions: Mapping[int, str]) -> str:
    """Conditions of some vectors, by their number, as an integer with a bit for each of `lanes`."""
    bits, one = "0", f"i{L.width}"
    for k, hit in conditions.items():
        x = hit if L.width == 1 else L.e(f"bitcast {L.vec('i1')} {hit} to {one}")
        if lanes > L.width:
            x = L.e(f"zext {one} {x} to i{lanes}")
        bits = L.e(f"or i{lanes} {bits}, {L.e(f'shl i{lanes} {x}, {k * L.width}')}")
    return bits


def first_of(L: Lanes, lanes: int, bits: str) -> str:
    """The number of the lowest bit that is set, as i64."""
    count = f"llvm.cttz.i{lanes}"
    L.e.module.declare(count, f"declare i{lanes} @{count}(i{lanes}, i1)")
    lane = L.e(f"call i{lanes} @{count}(i{lanes} {bits}, i1 true)")
    if lanes == 64:
        return lane
    return L.e(f"{'zext' if lanes < 64 else 'trunc'} i{lanes} {lane} to i64")
