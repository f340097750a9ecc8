"""An argmax that is alone in its sweep, by groups of lanes: the group first, then where in it.

    for a group of VIRTUAL_BITS:    x = the greatest of its vectors, lane by lane
                                    number = the group's, where x > best;  best = max(best, x)
    m = the greatest lane of best;  the first of group min(number where best == m) that equals m

To know the place of each element takes a comparison and two selections for each vector, and as many
states as a group has vectors are folded at the end of a row. So it is one of each for a group, and
one state, of which the group is read once more. The last group of a row ends with it, and may have
elements of the one before: they are not greater than they were.

The greatest is found as if there were no NaN, which one comparison tells of two vectors. A row with
NaN is searched for the first.

Nanoseconds for a row on Zen 5, by groups and by vectors, of

                          65        256       1,000      2,048
    f32                10   13    15   21    41   63    63   93
    f32, AVX2           8   12    12   22    42   69    70  117
    f32, SSE           15   17    21   39    66  200   126  349
    f64                10   13    25   37    58   93    94  161
    i32                 6    7     8   11    28   47    48   68
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.codegen.emission.folds import SIGNED, bits_of, first_of, fold
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import literal
from graphc.codegen.emission.reductions import Reduction
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.sweeps import by_groups

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across


def suits(body: Across, p: int) -> bool:
    """Whether sweep p goes so: rows of a known length have a group, or are written out."""
    s = body.s
    n = body.nest.sizes[s.vector] if s.vector is not None else 0
    return by_groups(s, p) and (s.flat or not isinstance(n, int) or n >= s.lanes)


def sweep(
    body: Across, scope: Scope, p: int, low: str, high: str,
    by_vectors: Callable[[], dict[Expr, list[str]]],
) -> dict[Expr, list[str]]:
    """Sweep p: the greatest element and its place; what has fewer elements than a group, which may
    come with the call, goes `by_vectors`."""
    s, e, (r,) = body.s, body.e, body.reduces[p]
    assert s.vector is not None
    n = body.nest.sizes[s.vector]
    begin, end = (low, high) if s.flat else ("0", body.f.top.size(n))
    if isinstance(n, int) and not s.flat:
        return {r: _Search(body, scope, r, begin, end).run(n % s.lanes == 0)}
    few, done = e.fresh("few"), e.fresh("found")
    length = e(f"sub nsw i64 {end}, {begin}")
    e.leave(e(f"icmp slt i64 {length}, {s.lanes}"), few)
    of_many, long = _Search(body, scope, r, begin, end).run(whole=False), e.block
    e.do(f"br label %{done}")
    e.label(few)
    of_few, short = by_vectors()[r], e.block
    e.do(f"br label %{done}")
    e.label(done)
    types = body.kind(r).types[0], "i64"
    return {r: [
        e(f"phi {t} [ {a}, %{long} ], [ {b}, %{short} ]")
        for t, a, b in zip(types, of_many, of_few, strict=True)
    ]}


@dataclass
class _Search:
    """The search of elements [begin, end), at least a group of them."""

    body: Across
    scope: Scope
    r: Expr
    begin: str
    end: str

    def __post_init__(self) -> None:
        s, e = self.body.s, self.body.e
        self.kind = self.body.kind(self.r)
        self.L = Lanes(e, s.width, self.body.f.target)
        self.equal = "oeq" if self.kind.dtype.is_float else "eq"

    def run(self, whole: bool) -> list[str]:
        """The greatest element, or NaN, and its place. whole: there are whole groups alone."""
        e, L, kind, lanes = self.body.e, self.L, self.kind, self.body.s.lanes
        t, p = kind.types
        length = e(f"sub nsw i64 {self.end}, {self.begin}")
        count = e(f"sdiv i64 {e(f'add nsw i64 {length}, {lanes - 1}')}, {lanes}")
        last = "" if whole else e(f"sub nsw i64 {self.end}, {lanes}")
        best, number, *nan = self._sweep(count, last)
        (top,) = fold(Reduction("greatest", kind.dtype), L, [[best]])
        found = L.cmp(self.equal, t, best, L.spread(t, top))
        numbers = L.select(found, p, number, L.k(p, (1 << (int(p[1:]) - 1)) - 1))
        (group,) = fold(Reduction("reduce_min", SIGNED[p]), L, [[numbers]])
        if p != "i64":
            group = e(f"zext {p} {group} to i64")
        start = self._start(group, last)
        every = L.spread(t, top)
        bits = self._bits(start, lambda x: L.cmp(self.equal, t, x, every))
        # one holds, unless another thread has written meanwhile: no place is beyond the group
        bits = e(f"or i{lanes} {bits}, {-1 << (lanes - 1)}")
        place = e(f"add nuw nsw i64 {start}, {first_of(L, lanes, bits)}")
        if not nan:
            return [top, place]
        return self._unless_nan(nan[0], count, last, top, place)

    def _sweep(self, count: str, last: str) -> list[str]:
        """Over all groups, in each lane: the greatest element, the number of its group, and of
        floats whether there was NaN."""
        e, L, kind = self.body.e, self.L, self.kind
        t, p = kind.types
        extreme = Reduction("greatest", kind.dtype)

        def group(g: str, state: list[str]) -> list[str]:
            best, number, *nan = state
            x = self._vectors(self._start(g, last), ask=True)
            if nan:
                pairs = zip(x[::2], x[1::2], strict=True)
                nan = [self._noted(nan[0], [L.cmp("uno", t, a, b) for a, b in pairs])]
            while len(x) > 1:
                x = [extreme.merge(L, [a], [b])[0] for a, b in zip(x[::2], x[1::2], strict=True)]
            here = L.spread(p, g if p == "i64" else e(f"trunc i64 {g} to {p}"))
            more = L.cmp("ogt", t, x[0], best) if nan else kind.exceeds(L, x[0], best)
            (best,) = extreme.merge(L, x, [best])
            return [best, L.select(more, p, here, number), *nan]

        carried = [(L.vec(ty), v) for ty, v in zip(kind.types, kind.start(L), strict=True)]
        if kind.dtype.is_float:
            ty = self._note_type
            carried.append((L.vec(ty), L.k(ty, 0)))
        return e.loop("0", count, 1, carried, group, some=True)

    @property
    def _note_type(self) -> str:
        """What notes conditions from turn to turn: a mask, or integers as wide as elements, which
        LLVM would make of it, and back, in every turn."""
        wide = "i64" if self.kind.types[0] == "double" else "i32"
        return "i1" if self.L.target.masked else wide

    def _noted(self, old: str, conditions: Sequence[str]) -> str:
        """What is noted, and some conditions."""
        ty, L = self._note_type, self.L
        some = conditions[0]
        for c in conditions[1:]:
            some = L.op("or", "i1", some, c)
        return L.op("or", ty, old, some if ty == "i1" else L.convert("sext", some, "i1", ty))

    def _start(self, group: str, last: str) -> str:
        """Where a group begins; `last`: where the last one does, if not all are whole."""
        e = self.body.e
        at = e(f"mul nuw nsw i64 {group}, {self.body.s.lanes}")
        if self.begin != "0":
            at = e(f"add nuw nsw i64 {self.begin}, {at}")
        return least(e, at, last) if last else at

    def _vectors(self, start: str, ask: bool = False) -> list[str]:
        """The vectors of the group at `start`. ask: for what comes later, too."""
        body, s, e = self.body, self.body.s, self.body.e
        found = []
        for k in range(s.lanes // s.width):
            at = e(f"add nuw nsw i64 {start}, {k * s.width}") if k else start
            inner = body.vectors_at(self.scope, at, None)
            if ask and body.f.sweeping == body.prefetch.sweep:
                body.prefetch.ask(inner, k)
            if ask and not (body.f.sweeping or k):
                body.streams.ask(inner, s.lanes)
            body.evaluate(inner, [self.r], [])
            found.append(inner.vector(body.fed(self.r)))
        return found

    def _bits(self, start: str, test: Callable[[str], str]) -> str:
        """A bit for each element of the group at `start`: whether a test of its vector holds."""
        x = self._vectors(start)
        return bits_of(self.L, self.body.s.lanes, {k: test(v) for k, v in enumerate(x)})

    def _unless_nan(self, nan: str, count: str, last: str, top: str, place: str) -> list[str]:
        """Those, or where NaN was noted in a lane NaN and the place of the first."""
        e, L, t = self.body.e, self.L, self.kind.types[0]
        lanes = self.body.s.lanes
        note = self._note_type
        some = nan if note == "i1" else L.cmp("ne", note, nan, L.k(note, 0))
        search, hit, done = e.fresh("search"), e.fresh("hit"), e.fresh("done")
        usual = e.block
        e.do(f"br i1 {L.any(some)}, label %{search}, label %{done}")
        e.label(search)
        bits, start = "", ""

        def look(g: str) -> None:
            nonlocal bits, start
            start = self._start(g, last)
            bits = self._bits(start, lambda x: L.cmp("uno", t, x, x))
            e.leave(e(f"icmp ne i{lanes} {bits}, 0"), hit)

        e.for_each("0", count, look, some=True)
        lost = e.block  # another thread may have written meanwhile
        e.do(f"br label %{done}")
        e.label(hit)
        first = e(f"add nuw nsw i64 {start}, {first_of(L, lanes, bits)}")
        e.do(f"br label %{done}")
        e.label(done)
        none = literal(t, math.nan)
        return [
            e(f"phi {t} [ {top}, %{usual} ], [ {top}, %{lost} ], [ {none}, %{hit} ]"),
            e(f"phi i64 [ {place}, %{usual} ], [ {place}, %{lost} ], [ {first}, %{hit} ]"),
        ]
