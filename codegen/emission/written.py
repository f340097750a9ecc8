"""Short rows within loops: each written out, what is added up of them carried by the loops.

Where sums go over axes that are not neighbours, as those of a batch norm do, a sweep takes one row
after the other. By loops over vectors of each row the states stand in memory, and every vector
waits for the store of one before; the end of a row takes vectors one by one, each with a mask made
for it. A row of known length has its vectors written out instead, with constant masks, and the
states stay in registers from row to row: sums over the first and last axis of 32 x 64 x 49 f32
take 3.7 us, by loops 9.7. Which lane adds what, and when, is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.pieces import PAGE
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.sweeps import sweep_cost

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

COSTLIEST = 10  # cycles of a vector: exp of f64 takes up to a fifth longer, tanh half as long again

State = list[str]
Place = tuple[Expr, int]  # a reduction, and which of its vectors of lanes


def suits(body: Across, p: int) -> bool:
    """Whether sweep p is better run so. Rows some pages apart meet in one set of the nearest cache,
    and push each other out while many are on their way: 64 x 32 x 32 f32 takes 15 us, by loops 11.
    Of more than two whole groups of lanes there is little left to gain, or none.
    """
    s, nest = body.s, body.nest
    if s.vector is None or not (s.written and body.reduces[p]):
        return False
    n = nest.sizes[s.vector]
    whole = isinstance(n, int) and n % s.lanes == 0 and n > 2 * s.lanes
    if whole or sweep_cost(s, p) > COSTLIEST:
        return False
    pitches = [
        (coefficient(x.offset, s.loops[-1]), x.dtype.itemsize) for x in nest.exprs
        if x.kind == "load" and s.vector in x.axes
    ]
    return not any(
        isinstance(pitch, int) and pitch and pitch * size % PAGE == 0 for pitch, size in pitches
    )


def sweep(body: Across, scope: Scope, p: int, low: str, high: str) -> dict[Place, State]:
    """Sweep p over all rows of an item; of a flat nest over those of [low, high) of its first axis.

    The states that result are those which elements reach: a row may have fewer vectors than lanes.
    """
    s, e, f = body.s, body.e, body.f
    assert s.vector is not None
    reduces, stores = body.reduces[p], body.row_stores[p]
    n = body.nest.sizes[s.vector]
    end = f.top.size(n)
    starts = [k * s.width for k in range(s.written)]
    masks = [
        None if isinstance(n, int) and k + s.width <= n else body.mask(str(k), end) for k in starts
    ]
    per = s.lanes // s.width
    L = Lanes(e, s.width, f.target)
    places = [(r, k) for r in reduces for k in range(min(per, s.written))]
    types = {r: body.kind(r).types for r in reduces}

    def row(around: Scope, state: Sequence[str]) -> list[str]:
        left = iter(state)
        states = {(r, k): [next(left) for _ in types[r]] for r, k in places}
        for k, (start, mask) in enumerate(zip(starts, masks, strict=True)):
            inner = body.vectors_at(around, str(start), mask)
            if p == body.prefetch.sweep and mask is None:
                body.prefetch.ask(inner, k)
            body.evaluate(inner, reduces, stores)
            for r in reduces:
                x, at = body.arriving(inner, r, str(start)), (r, k % per)
                states[at] = body.kind(r).step(inner.lanes(True), states[at], x)
        return [v for at in places for v in states[at]]

    def nested(depth: int, around: Scope, state: Sequence[str]) -> list[str]:
        if depth == len(s.loops):
            return row(around, state)
        name = s.loops[depth]
        first, last = "0", f.top.size(body.nest.sizes[name])
        if s.flat and name == body.nest.reduced[0]:
            first, last = low, high

        def once(i: str, inside: list[str]) -> list[str]:
            inner = Scope(f, around, e.section(), {name: i}, ready=around.ready)
            return nested(depth + 1, inner, inside)

        return e.loop(first, last, 1, list(zip(carried, state, strict=True)), once)

    carried = [L.vec(t) for r, _ in places for t in types[r]]
    begin = [v for r, _ in places for v in body.kind(r).start(L)]
    final = iter(nested(0, scope, begin))
    return {(r, k): [next(final) for _ in types[r]] for r, k in places}
