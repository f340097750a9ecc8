"""Sums of what is put together: loops between the bounds of conditions, which are decided there.

    for i0<3n:  s += x*x                     for i0 in [0, n):     s += a[i0] * a[i0]
      x = in0[i0] if 0<=i0<n           ->    for i0 in [n, 2n):    s += b[i0-n] * b[i0-n]
          else in1[i0-n] if 0<=i0-n<n        for i0 in [2n, 3n):   s += c[i0-2n] * c[i0-2n]
          else in2[i0-2n]

Each loop goes on with the states of the one before, so no bit changes. Along the vector axis they
begin where lanes do, and the vectors around a bound keep their conditions. What is no sum is cut
into nests (`index_splitting`). In us on Zen 5, with conditions and between them: sums of squares of
100,000 f32 beside their doubles and products 61 and 9, of these rolled 11 and 3.4, padded 6.0 and
2.5; row by row of 1000 x 1000 named ones 538 and 125. They compile 6 to 20 ms longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.sweep import greatest, least
from graphc.codegen.nests.conditions import bounds, conditions, typical
from graphc.codegen.nests.index_splitting import Stretch, holds_in, stretches
from graphc.codegen.nests.loops import Nest, Pred

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame

MOST = 8    # stretches of an axis: each has its own loops
LONG = 128  # elements of a row that is one of many, from which its vectors are told apart

Cut = tuple[Stretch, dict[Pred, bool]]


def cuts(nest: Nest, name: str) -> list[Cut]:
    """The stretches of an axis between bounds, with the conditions that are decided in each."""
    found = stretches(nest, name)
    asked = [p for p in conditions(nest) if bounds(p, name)]
    if not 1 < len(found) <= MOST:
        return []
    return [
        (x, {p: bool(h) for p in asked if (h := holds_in(p, name, x)) is not None}) for x in found
    ]


def each(f: Frame, name: str, first: str, last: str, body: Callable[[str], None]) -> None:
    """A loop over a scalar axis from first to last, between bounds where it has any. Vectors within
    are told apart in the longest stretch alone: what others have is few rows."""
    found = [] if f.decided else cuts(f.nest, name)
    if not found:
        f.e.for_each(first, last, body)
        return
    lengths = [typical(x.end - x.begin) for x, _ in found]
    for k, ((_, known), low, high) in enumerate(_spans(f, found, first, last)):
        f.decided, f.in_longest = known, k == lengths.index(max(lengths))
        f.e.for_each(low, high, body)
    f.decided, f.in_longest = {}, False


def _spans(
    f: Frame, found: Sequence[Cut], first: str, last: str
) -> list[tuple[Cut, str, str]]:
    """The stretches, and where each begins and ends between first and last."""
    size = f.top.size
    return [
        (cut, greatest(f.e, first, size(cut[0].begin)), least(f.e, last, size(cut[0].end)))
        for cut in found
    ]


def whole(
    f: Frame, found: Sequence[Cut], begin: str, end: str,
    some: Callable[[str, str], None], decided: Callable[[str, str], None],
) -> str:
    """Vectors along their axis from begin, where lanes begin, to end, but for those behind the last
    stretch, and where these begin: `decided` ones in stretches, `some` between these. Rows that
    turn out to be short have none of them."""
    e, s = f.e, f.schedule
    outside = f.decided
    length = e(f"sub nsw i64 {end}, {begin}")
    vectors = e(f"sub nsw i64 {end}, {e(f'srem i64 {length}, {s.width}')}")
    before, rest, at = e.block, e.fresh("rest"), begin
    e.require(e(f"icmp sge i64 {length}, {LONG if s.loops or not s.flat else 0}"), rest)
    for (_, known), low, high in _spans(f, found, begin, end):
        after = greatest(e, at, low)
        after = e(f"and i64 {e(f'add nsw i64 {after}, {s.lanes - 1}')}, {-s.lanes}")
        after = least(e, after, vectors)
        span = e(f"and i64 {e(f'sub nsw i64 {high}, {after}')}, {-s.lanes}")
        until = greatest(e, after, e(f"add nsw i64 {after}, {span}"))
        some(at, after)
        none = e.fresh("none")
        e.require(e(f"icmp slt i64 {after}, {until}"), none)
        f.decided = outside | known
        decided(after, until)
        f.decided = outside
        e.do(f"br label %{none}")
        e.label(none)
        at = until
    last = e.block
    e.do(f"br label %{rest}")
    e.label(rest)
    return e(f"phi i64 [{begin}, %{before}], [{at}, %{last}]")
