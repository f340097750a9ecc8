"""4K aliasing: sums that stand in memory beside the rows that are added to them.

CPUs tell by the low 12 bits of addresses whether a load wants what a store before it has yet to
write, and let it wait where they are alike. Rows are often whole pages apart, so all of them wait
for sums that lie just ahead of theirs in a page. Half a page away none does: 1x2048x2048 f32 took
285 to 380 us as the sums fell, and takes 235 to 260 anywhere; sums and variances of columns took
1.2 to 1.8 times as long in one of 20 places of the stack.

Elementwise loops, whose results stand where the caller says, read ahead of their stores (`ahead`).
"""

from __future__ import annotations

from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Emitter

PAGE = 1 << 12  # bytes within which addresses differ to a load that follows a store


def half_a_page_from(e: Emitter, rows: str, room: str) -> str:
    """Where in `room`, which has PAGE bytes to spare, sums for columns of rows shall stand; `rows`
    is the address of the first of these columns, an i64."""
    way = e(f"sub i64 {rows}, {e(f'ptrtoint ptr {room} to i64')}")
    way = e(f"and i64 {e(f'add i64 {way}, {PAGE // 2}')}, {PAGE - LINE}")
    return e(f"getelementptr i8, ptr {room}, i64 {way}")
