"""Blocked summation: sums of floats over long rows begin anew with every block.

    lanes = 0                                  sums = 0
    for i in row:                              for b in blocks of the row:
      lanes += row[i]                   ->       lanes = 0
    fold(lanes)                                  for i in b: lanes += row[i]
                                                 sums += lanes
                                               fold(sums)

One number after another added to a large sum leaves an error that grows with how many there are: a
million times 0.1 is 1,900 ULP off without blocks and 29 with them (Castaldo, Whaley, Chronopoulos,
"Reducing floating point error in dot product using the superblock family of algorithms", 2008).
A row that is one block is summed as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.lanes import Lanes
from graphc.codegen.loops import Expr
from graphc.codegen.schedule import BLOCK
from graphc.codegen.scope import Scope
from graphc.codegen.sweep import least, memory_of
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.across import Across


def suits(body: Across, reduces: Sequence[Expr], length: Size) -> bool:
    """Whether a row adds up floats and may be longer than a block. Where other axes are reduced
    with it, it goes as a whole; a row alone is cut into items anyway."""
    most = dims.most(length)
    return not (body.s.loops or body.s.flat) and (most is None or most > BLOCK) and any(
        _adds(body, r) for r in reduces
    )


def _adds(body: Across, r: Expr) -> bool:
    return r.name == "reduce_sum" and body.kind(r).dtype.is_float


def sweep(
    body: Across, scope: Scope, cells: Mapping[Expr, Sequence[str]], end: str,
    part: Callable[[Scope, str, str], None],
) -> None:
    """A row of `end` elements, of which `part` adds those between two numbers to the lanes in
    `cells`."""
    e, s = body.e, body.s
    L = Lanes(e, s.width, body.f.target)
    sums = {
        r: body.f.alloca(f"[{s.lanes} x {memory_of(body.kind(r).types[0])}]")
        for r in cells if _adds(body, r)
    }

    def registers() -> Iterator[tuple[str, str, str]]:
        """Scalar types of the registers of lanes, their addresses, those of the sums."""
        for r, total in sums.items():
            (t,), (here,) = body.kind(r).types, cells[r]
            for k in range(0, s.lanes, s.width):
                at = f"getelementptr inbounds {memory_of(t)}, ptr"
                yield t, e(f"{at} {here}, i64 {k}"), e(f"{at} {total}, i64 {k}")

    def load(t: str, p: str) -> str:
        return e(f"load {L.vec(t)}, ptr {p}, align 8")

    def block(i: str) -> None:
        stop = least(e, e(f"add nsw i64 {i}, {BLOCK}"), end)
        part(Scope(body.f, scope, e.section(), {}, ready=scope.ready), i, stop)
        last, done = e.fresh("last"), e.fresh("done")
        e.leave(e(f"icmp eq i64 {i}, 0"), last)
        for t, here, total in registers():
            both = L.op("fadd", t, load(t, total), load(t, here))
            e.do(f"store {L.vec(t)} {both}, ptr {here}, align 8")
        e.do(f"br label %{last}")
        e.label(last)
        e.require(e(f"icmp slt i64 {stop}, {end}"), done)
        for t, here, total in registers():
            e.do(f"store {L.vec(t)} {load(t, here)}, ptr {total}, align 8")
            e.do(f"store {L.vec(t)} {L.k(t, 0)}, ptr {here}, align 8")
        e.do(f"br label %{done}")
        e.label(done)

    e.for_each("0", end, block, BLOCK)
