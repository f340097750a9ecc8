"""An argmax of bytes or 16-bit integers, from block to block of a row.

Where one is alone in its sweep and the greatest element of a block is not greater than what was
found before, its place need not be known. That takes one instruction for a register, where places
take three and, as wide as a row needs them, have four registers of their own. Of wider elements it
gains little, and nothing at all where each block has a greater one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import literal
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import BLOCK

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

SCANNED_TWICE = 10  # cycles of a vector up to which a block is read again for its place


def suit(body: Across) -> bool:
    """Whether an argmax of bytes or 16-bit integers is all that the nest's sweeps find."""
    s = body.s
    return (
        s.sweeps == 1 and not s.loops and s.cost <= SCANNED_TWICE and not body.row_stores[0]
        and [r.name for r in body.reduces[0]] == ["argmax"] and not s.short
        and (not s.flat or s.sums == body.reduces[0]) and not s.columns
        and reduction_of(body.reduces[0][0]).short
    )


def row(body: Across, scope: Scope) -> dict[Expr, list[str]]:
    """Where the greatest element of a row stands, by blocks of it."""
    e, (r,) = body.e, body.reduces[0]
    assert body.s.vector is not None
    end = body.f.top.size(body.nest.sizes[body.s.vector])
    kind = reduction_of(r)
    best = [body.f.alloca(t, 8) for t in kind.types]
    for t, c, v in zip(kind.types, best, kind.identity(), strict=True):
        e.do(f"store {t} {literal(t, v)}, ptr {c}, align 8")

    def one(i: str) -> None:
        inner = Scope(body.f, scope, e.section(), {}, ready=scope.ready)
        stop = least(e, e(f"add nsw i64 {i}, {BLOCK}"), end)
        search(body, inner, r, i, stop, best, e(f"icmp eq i64 {i}, 0"))

    e.for_each("0", end, one, BLOCK)
    found = [e(f"load {t}, ptr {c}, align 8") for t, c in zip(kind.types, best, strict=True)]
    return {r: found}


def search(
    body: Across, scope: Scope, r: Expr, low: str, high: str, best: Sequence[str], first: str
) -> None:
    """The elements [low, high): their greatest and its place put into `best`, if it is greater
    than what stands there, or if they are the `first` ones."""
    e, kind, one = body.e, reduction_of(r), Lanes(body.e, 1, body.f.target)
    t = kind.types[0]
    search, done = e.fresh("search"), e.fresh("searched")
    e.leave(first, search)
    old = e(f"load {t}, ptr {best[0]}, align 8")
    if not body.nest.sites:  # else all elements are looked at, as they may fail
        e.leave(one.cmp("eq", t, old, one.k(t, kind.top(r))), done)
    body.places = False
    (greatest,) = body.sweep(scope, 0, low, high)[r]
    body.places = True
    e.require(kind.exceeds(one, greatest, old), done)
    e.do(f"br label %{search}")
    e.label(search)
    body.origin = low
    again = Scope(body.f, scope, e.section(), {}, ready=scope.ready)
    value, place = body.sweep(again, 0, low, high)[r]
    place = e(f"add nsw i64 {place}, {low}")
    for ty, c, v in zip(kind.types, best, (value, place), strict=True):
        e.do(f"store {ty} {v}, ptr {c}, align 8")
    e.do(f"br label %{done}")
    e.label(done)
