"""Long formulas by stages (`nests.stages`): blocks of vectors, and for each the stages in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.codegen.emission.lane_masks import below
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import Body, least

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along


def run(body: Along, grid: Scope, low: str, high: str) -> None:
    """Vectors of elements from low to high, which are written."""
    blocks(body, grid, low, high, lambda inner, begin, end: _stage(body, inner, 0, begin, end))


def blocks(
    body: Body, grid: Scope, low: str, high: str, last: Callable[[Scope, str, str], None]
) -> None:
    """Blocks of elements from low to high: all stages but the last, then what that writes."""
    f, e, stages = body.f, body.e, body.s.stages
    assert stages is not None
    width = body.s.width * stages.abreast
    block = stages.block(width)
    types = {place: memory_of(register_type(x.dtype)) for x, place in stages.places.items()}
    arrays = {place: f.alloca(f"[{block} x {t}]") for place, t in types.items()}

    def one(begin: str) -> None:
        back = e(f"sub nsw i64 0, {begin}")
        at = {
            place: e(f"getelementptr {types[place]}, ptr {array}, i64 {back}")
            for place, array in arrays.items()
        }
        f.kept_at |= {x: at[place] for x, place in stages.places.items()}
        end = least(e, e(f"add nsw i64 {begin}, {block}"), high)
        inner = Scope(f, grid, e.section(), {}, ready=grid.ready)
        for p in range(stages.first, 0):
            _stage(body, inner, p, begin, end)
        f.sweeping = 0
        last(inner, begin, end)

    e.for_each(low, high, one, block)


def _stage(body: Body, grid: Scope, p: int, begin: str, end: str) -> None:
    """A stage that keeps and stores what it computes. Masks cost next to nothing beside that, where
    there are some: then what is left is written by the same loop."""
    s, f, e, stages = body.s, body.f, body.e, body.s.stages
    assert stages is not None and s.vector is not None
    f.sweeping = p
    stores = [] if s.nest.reduced else [x for x in s.nest.stores if stages.end(x.expr) == p]
    wanted = [*(x for x, q in stages.kept.items() if q == p), *(x.expr for x in stores)]
    width = s.width * stages.abreast

    def emit(i: str, mask: str | None, width: int) -> None:
        c = body.vectors_at(grid, i, mask, width)
        c.demand(wanted)
        c.store_all(stores, vector=True)

    n = body.nest.sizes[s.vector]
    if f.target.masked:
        even = isinstance(n, int) and n % width == s.block % width == 0
        L = Lanes(e, width, f.target)
        e.for_each(
            begin, end,
            lambda i: emit(i, None if even else below(L, i, end, f.bits), width), width,
        )
        return
    left = e(f"srem i64 {e(f'sub nsw i64 {end}, {begin}')}, {width}")
    whole = e(f"sub nsw i64 {end}, {left}")
    e.for_each(begin, whole, lambda i: emit(i, None, width), width)
    e.for_each(whole, end, lambda i: emit(i, body.mask(i, end), s.width), s.width)
