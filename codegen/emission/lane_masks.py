"""Which lanes of a vector count, by their numbers: those before an end, or between two.

A mask is compared in lanes as wide as those of the data that it is for: positions as i64 would fill
eight registers for one of bytes.
"""

from __future__ import annotations

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.parts import Span


def below(L: Lanes, start: str, end: str, bits: int = 32) -> str:
    """The lanes start, start+1, ... that are below `end`, as a mask for lanes of so many bits; both
    are i64, and `end` is less than 2**31 beyond `start`."""
    if start.isdecimal() and end.isdecimal():
        return L.constants("i1", [int(start) + i < int(end) for i in range(L.width)])
    left = L.e(f"sub nsw i64 {end}, {start}")
    if L.width == 1:
        return L.e(f"icmp sgt i32 {L.e(f'trunc i64 {left} to i32')}, 0")
    t = _counting(L, min(bits, 32))
    left = L.e(f"trunc i64 {left if t == 'i32' else clamped(L, left)} to {t}")
    return L.cmp("slt", t, L.constants(t, range(L.width)), L.spread(t, left))


def between(
    L: Lanes, low: str, high: str, bits: int, after: bool = False, before: bool = False
) -> tuple[str, Span]:
    """The lanes k with low <= k < high, any i64, as a mask for lanes of so many bits. `after`: none
    is below low, `before`: none is beyond high."""
    t = _counting(L, bits)
    span = Span("0" if after else clamped(L, low), str(L.width) if before else clamped(L, high))
    lanes, asked = L.constants(t, range(L.width)), []
    for predicate, k, known in (("sge", span.first, after), ("slt", span.end, before)):
        if not known:
            number = L.spread(t, k if t == "i64" else L.e(f"trunc i64 {k} to {t}"))
            asked.append(L.cmp(predicate, t, lanes, number))
    if len(asked) == 2:
        return L.op("and", "i1", *asked), span
    return asked[0] if asked else L.k("i1", True), span


def common(L: Lanes, a: Span, b: Span) -> Span:
    """The lanes of both."""
    one = Lanes(L.e, 1, L.target)
    return Span(one.intrinsic("smax", "i64", a.first, b.first),
                one.intrinsic("smin", "i64", a.end, b.end))


def clamped(L: Lanes, i: str) -> str:
    """The number of a lane: of the first for what is before it, else of the one behind the last."""
    one = Lanes(L.e, 1, L.target)
    return one.intrinsic("smin", "i64", one.intrinsic("smax", "i64", i, "0"), str(L.width))


def _counting(L: Lanes, bits: int) -> str:
    """A type of so many bits, or of more if it has no number for each lane."""
    while L.width >= 1 << bits - 1:
        bits *= 2
    return f"i{bits}"
