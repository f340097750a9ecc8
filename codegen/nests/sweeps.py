"""Sweeps over the rows of a nest: what each computes, what it keeps for later ones, and which rows
are so short that sweeps are written out.

    softmax    0: the maximum    1: exponentials, which are kept, and their sum    2: the quotients
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coefficient, needs
from graphc.codegen.nests.conditions import conditions
from graphc.codegen.nests.costs import COSTLY, VECTOR_COST, cost_of, in_steps, is_long
from graphc.codegen.nests.loops import Expr, Nest, Store

if TYPE_CHECKING:
    from graphc.codegen.nests.schedule import Schedule

STRAIGHT = 256            # cycles of a row of known length up to which it is unrolled; ..
STRAIGHT_VECTORS = 4      # .. and vectors of it that meet in one lane
STRAIGHT_SWEEP = 512      # likewise of the longest sweep over a row with ..
SWEPT_VECTORS = 2         # .. so many, where each sweep is unrolled by itself
MAX_CACHED_ROW = 1 << 12  # elements of a row whose costly parts are kept between sweeps
MAX_CACHED = 1 << 16      # bytes of stack that they may take: threads of musl have 128 KiB
MAX_LENT = 1 << 22        # bytes of longer rows that they take in a result, if registers are wide
LEAST_SAVED = 3           # cycles of a vector in later sweeps for which cheap ones are kept, ..
MOST_SAVED_ROW = 1 << 13  # .. if a row of them has so many bytes: of longer ones fewer go in turns
IN_STEP = 4               # vectors of a sweep that are computed in step
READ_AGAIN = 10           # cycles of a vector up to which a group of them is computed twice


def _computed(s: Schedule, p: int) -> list[Expr]:
    """What sweep p computes for each element of the vector axis."""
    return [
        e for e in wanted(s, p, s.cached)
        if s.vector in e.axes and s.cached.get(e, p) >= p
    ]


def sweep_cost(s: Schedule, p: int) -> int:
    """Cycles of a vector of the row in a sweep, roughly."""
    return sum(map(cost_of, _computed(s, p)))


def steps(s: Schedule, p: int) -> bool:
    """Whether the vectors of sweep p go in step where they go side by side."""
    found = _computed(s, p)
    return in_steps(found, sum(map(cost_of, found)), COSTLY)


def in_step(s: Schedule, p: int) -> int:
    """How many vectors of a row, or of columns, sweep p computes in step."""
    return IN_STEP if s.stepped[p] and not counts(s, p) else 1


def counts(s: Schedule, p: int) -> bool:
    """Whether states of sweep p stand for single vectors: places, or numbers of few bits."""
    return any(q == p and (r.name == "argmax" or r in s.narrow) for r, q in s.sweep.items())


def columns_in_step(s: Schedule, p: int) -> int:
    """How many vectors of columns are one register in sweep p, if it computes functions.

    What is cheaper goes by several rows or groups of vectors, which hide its latency as well.
    """
    long = s.stepped[p] and any(e.kind == "op" and is_long(e) for e in _computed(s, p))
    return in_step(s, p) if long else 1


def few_vectors(s: Schedule) -> int:
    """The vectors of a row of known length, if it is short enough to be written out, or 0.

    What goes in turns is written out sweep by sweep. By loops lanes stand in memory, 8 vectors of
    them on AVX2 however few a row has: gradients of rows that are normalised three times take Zen 3
    118 ns by loops and 71 written out (32 f32), 185 and 112 (32 f64), layer norm with tanh 204 and
    135 (64 f32, SSE). Of more than two whole groups of lanes nothing is gained; twice as long
    sweeps of f64 functions took up to a quarter longer. What goes `by_groups` is not written out.
    """
    n = s.nest.sizes[s.vector] if s.vector is not None and s.across else 0
    most = dims.most(n)
    if most is None:
        return 0
    vectors, group = -(-most // s.width), s.lanes // s.width
    if vectors < 2:
        return vectors
    if s.sweeps == 1 and vectors > group and by_groups(s, 0):
        return 0
    if s.in_turns and vectors <= SWEPT_VECTORS * group:
        longest = max(sweep_cost(s, p) for p in range(s.sweeps))
        return vectors if vectors * longest <= STRAIGHT_SWEEP else 0
    return vectors if vectors <= STRAIGHT_VECTORS * group and is_cheap(s, vectors) else 0


def is_cheap(s: Schedule, vectors: int) -> bool:
    """Whether so many vectors of a row take so little, in one sweep, that they are written out."""
    return vectors * sum(cost_of(e) for e in s.nest.exprs if s.vector in e.axes) <= STRAIGHT


def by_groups(s: Schedule, p: int) -> bool:
    """Whether sweep p finds nothing but the place of the greatest of some elements, which are cheap
    and may be computed again: it goes by groups of lanes, if a row has so many (`emission.groups`).
    Of integers of up to 16 bits it goes by blocks (`emission.blocks`).
    """
    nest, found = s.nest, [r for r, q in s.sweep.items() if q == p]
    if [r.name for r in found] != ["argmax"] or not s.across or s.loops or s.columns:
        return False
    element = found[0].args[0].dtype
    if not (element.is_float or element.bits > 16) or s.turned_rows is not None:
        return False
    if nest.sites or conditions(nest) or any(_stored(s, x, p) for x in nest.stores):
        return False
    return sweep_cost(s, p) <= READ_AGAIN


def keep(s: Schedule, target: Target) -> None:
    """Decide which costly elements of rows that a later sweep wants again are kept, by the sweep
    that makes them; those made of many cheap ones likewise (`_made_of_many`), if rows are short.

    Those of a short row stand aside; of one that is longer, or may be, some stand in the place of a
    result, until that is known: on AVX2 softmax of 8 x 131072 f32 takes 0.75 ms, 1.2 ms where its
    exponentials are computed twice, and of 2 x 2M still a quarter less. With AVX-512 that is half
    the work: it takes 0.8 of the time, but beyond the caches 1.2, by what waits for memory. So do
    those of columns, many of which are swept at a time: softmax down 1024 x 1024 f32 takes Zen 1
    0.64 of the time, its gradient, which wants them three times, 0.44, AVX-512 0.75 and 0.88.
    """
    if s.vector is None or s.sweeps < 2 or s.straight:  # whose registers keep everything
        return
    size = dims.most(s.nest.row)
    held = size or 0
    if not s.across:
        held *= min(s.block, dims.most(s.nest.sizes[s.vector]) or s.block)
    costly = [
        e for e in s.nest.exprs
        if e.kind == "op" and s.vector in e.axes and VECTOR_COST.get(e.name, 0) >= COSTLY
        and e.dtype.kind != "b"
    ]
    near = size if s.across and size is not None and size <= MAX_CACHED_ROW else None
    if not (costly or near):
        return
    asked = [wanted(s, p, {}) for p in range(s.sweeps)]
    worth = costly if near is None else [*costly, *_made_of_many(s, near, asked, {*costly})]
    uses = {e: [p for p, found in enumerate(asked) if e in found] for e in worth}
    cached: dict[Expr, int] = {}
    if near is not None:
        left = MAX_CACHED
        for e, at in uses.items():
            takes = near * e.dtype.compute.itemsize
            if len(at) > 1 and takes <= left:
                cached[e] = at[0]
                left -= takes
    else:
        for e, at in reversed(uses.items()):  # the last are made of those before
            far = target.vector_bits == 512 and held * e.dtype.itemsize > MAX_LENT
            place = _lender(s, e, at[-1]) if len(at) > 1 and not far else None
            if place is not None:
                cached[e], s.lent[e] = at[0], place
    again = [wanted(s, p, cached) for p in range(s.sweeps)]
    s.cached = {e: p for e, p in cached.items() if any(e in w for w in again[p + 1 :])}
    s.lent = {e: x for e, x in s.lent.items() if e in s.cached}


def _made_of_many(
    s: Schedule, length: int, asked: list[set[Expr]], kept: set[Expr]
) -> list[Expr]:
    """What later sweeps begin with, if to compute it again takes more than to keep it; not what is
    only on the way to it. length: of the row, at most; asked: what each sweep wants; kept: what is
    anyway, to which this is added.

    Each of the sweeps of rows that are normalised again and again would begin with the first: three
    sums and three maxima of 32 f32 take 16.4 ns in the place of 19.9, of 64 f64 38 and 50, of 1,000
    f32 471 and 597. The gradient of log-sum-exp of rows less their means takes 17 and 19, 30 and
    33, 355 and 361. 10,000 mixed nodes run in 35 ms in the place of 38, and compile in 3.6 s for
    4.1.
    """
    first: dict[Expr, int] = {}
    for p, row in enumerate(asked):
        for e in row:
            first.setdefault(e, p)
    begins: dict[Expr, set[int]] = {}  # sweeps that use it for what they are the first to compute
    for x in s.nest.exprs:
        for a in x.args:
            if a.kind == "op" and first.get(a, s.sweeps) < first.get(x, -1):
                begins.setdefault(a, set()).add(first[x])
    for r, p in s.sweep.items():
        for a in r.args:
            if a.kind == "op" and first.get(a, p) < p:
                begins.setdefault(a, set()).add(p)
    found: list[Expr] = []
    for e in s.nest.exprs:
        if e not in begins or e in kept or s.vector not in e.axes or e.dtype.kind == "b":
            continue
        if length * e.dtype.compute.itemsize > MOST_SAVED_ROW:
            continue
        if len(begins[e]) * (_cost_again(s, e, kept) - 1) >= LEAST_SAVED:
            kept.add(e)
            found.append(e)
    return found


def _cost_again(s: Schedule, e: Expr, kept: set[Expr]) -> int:
    """Cycles to compute an element of a row from what is read, or kept."""
    total, seen, left = 0, {e}, [e]
    while left:
        x = left.pop()
        total += 1 if x.kind == "load" or x in kept else cost_of(x)
        if x in kept:
            continue
        more = [a for a in needs(s.nest, x) if s.vector in a.axes and a not in seen]
        seen.update(more)
        left += more
    return total


def _lender(s: Schedule, e: Expr, last: int) -> Store | None:
    """A store of the row that is not made before sweep `last`, and has a place for each element."""
    vector, whole = s.vector, {*s.nest.outer, *s.nest.reduced}
    assert vector is not None
    used = [x.output for x in (*s.nest.stores, *s.lent.values())]
    for x in s.nest.stores:
        alone = used.count(x.output) == 1 and not s.nest.dynamic(x.offset)
        late = x.expr not in s.final and s.ready[x.expr] >= last
        alike = s.nest.outputs[x.output].dtype is e.dtype is e.dtype.compute
        if (
            alone and late and alike and e.axes == set(x.axes) == whole
            and coefficient(x.offset, vector) == 1
        ):
            return x
    return None


def wanted(s: Schedule, p: int, cached: dict[Expr, int]) -> set[Expr]:
    """The expressions of the row that sweep p computes or reads back."""
    roots = [a for r, q in s.sweep.items() if q == p for a in r.args]
    roots += [r.args[0] for r in s.columns if s.ready[r.args[0]] == p]
    roots += [x.expr for x in s.nest.stores if _stored(s, x, p)]
    seen: set[Expr] = set()
    while roots:
        e = roots.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.kind == "reduce" or cached.get(e, p) < p:
            continue
        roots += needs(s.nest, e)
    return seen


def _stored(s: Schedule, x: Store, p: int) -> bool:
    """Whether sweep p makes the elements of a store."""
    return bool(set(x.axes) & set(s.nest.reduced)) and s.ready[x.expr] == p


def sweeps_of(
    nest: Nest, sums_rows: set[Expr]
) -> tuple[dict[Expr, int], dict[Expr, int], set[Expr], int]:
    """(sweep by reduction, ready by expression, what waits for all items, how many sweeps)."""
    sweep: dict[Expr, int] = {}
    ready: dict[Expr, int] = {}
    final: set[Expr] = set()
    last = -1
    for e in nest.exprs:
        before = needs(nest, e)
        at = max((ready[a] for a in before), default=0)
        if any(a in final for a in before) or e in sums_rows:
            final.add(e)
        if e.kind == "reduce" and e not in sums_rows:
            sweep[e] = at
            last = max(last, at)
            at += 1
        ready[e] = at
    for e in sums_rows:
        if e.axes:  # a sum per column, fed by the sweep that makes its operand
            last = max(last, ready[e.args[0]])
    for s in nest.stores:
        if set(s.axes) & set(nest.reduced) and s.expr not in final:
            last = max(last, ready[s.expr])
    return sweep, ready, final, last + 1
