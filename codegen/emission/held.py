"""Elementwise rows that few vectors hold, written without loops of their own.

    for each row:                      masks, the same for all rows
      its head, groups, the rest   ->  for each row: vector 0, vector 1
      and the masks of each

What is known of a row's length makes the masks constants. Where it is named, the kernel chooses
when it runs, once for all rows: a roll has five masks for a vector, and each row took some hundred
instructions. 20,000 rows of 8 f32 of named size rolled take Zen 4 21 us in the place of 186, by
AVX2 79 and 305; with one row added 18 and 28; 10,000 rolled of 24 29 and 116. 20,000 rows of 7 of
known size rolled take 14 in the place of 50, of bytes 8 and 52.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.machine.target import X86
from graphc.codegen.nests.conditions import conditions

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along
    from graphc.codegen.emission.scope import Scope

VECTORS = (1, 2, 4)  # of a row for which it is written; more than two gain by conditions alone
COST = 64            # of all vectors of a row, at most


def ways(body: Along) -> list[tuple[str, int]]:
    """Whether rows of named length are at most so many vectors long, an i1, and how many; none
    where rows are never so short, or gain nothing."""
    s, f = body.s, body.f
    if s.vector is None or s.tile is not None or s.width == 1 or not s.grid or s.loops:
        return []
    n = body.nest.sizes[s.vector]
    wide = f.target.arch in X86 and f.target.vector_bits >= 256 and f.bits >= 32
    if not (f.target.masked or wide) or dims.most(n) is not None or body.scans:
        return []
    most = VECTORS if conditions(body.nest) else VECTORS[:2]
    found = [k for k in most if k * s.cost <= COST]
    length = f.top.size(n) if found else ""
    return [(f.e(f"icmp sle i64 {length}, {k * s.width}"), k) for k in found]


def known(body: Along) -> int:
    """The vectors of a row of known length, if these are few and it has conditions, or it is less
    than one; else 0."""
    s, streaming = body.s, body.f.streaming
    n = body.nest.sizes[s.vector or ""]
    if not isinstance(n, int) or s.width == 1 or body.nest.reduced or body.scans:
        return 0
    if (streaming is not None and streaming.heads) or not conditions(body.nest):
        return int(0 < n < s.width)
    vectors = -(-n // s.width)
    return vectors if vectors <= VECTORS[-1] and vectors * s.cost <= COST else 0


def row(body: Along, grid: Scope, end: str, count: int) -> list[Scope]:
    """The vectors of a row, masked where it may end before they do."""
    s = body.s
    n = body.nest.sizes[s.vector or ""]
    found = []
    for start in range(0, count * s.width, s.width):
        full = isinstance(n, int) and start + s.width <= n
        mask = None if full else body.mask(str(start), end)
        found.append(body.vectors_at(grid, str(start), mask))
    return found
