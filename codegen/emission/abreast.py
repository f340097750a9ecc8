"""A row swept by several vectors at a time, with the states of reductions in registers.

    for a group of vectors:              each state takes what its vector of the group brings
    what is left, less than a group:     vector by vector, likewise, the last one masked

A reduction's lanes are as many vectors as a group has, so each has a state of its own. By a loop
over what is left states would stand in memory, where each turn waits for the store of the one
before. Nanoseconds for a row, so and by that loop, on Zen 5 in its second cache, of

                                       100        150        300        500      1,000
    sums of f32, length named        3.0   5.2  3.6   6.2  6.2   9.0   11   13   21   22
    declared                                    3.1   3.1  6.0   9.1   11   14   20   25
    variances, declared                         7.8   7.7   12    18   19   28   39   47
    gradient of softmax of layer
    norms, declared                              78    87  130   143  234   273  391   430
    variances of f64, declared       9.3   9.3   11    17   19    28   32   45   71   80
    sums of f32 by AVX2, named       4.4   6.2  5.1   7.1  9.3    12   16   17   30   30
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.loops import Expr, Store
from graphc.codegen.nests.sweeps import counts, in_step, sweep_cost

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

MOSTLY_LOADS = 3  # cycles of a sweep for each of its loads up to which these are what it waits for

# Cycles of the vectors that are left of a row, up to which they are written out: where it is known
# how many, or masks are registers; and else, when all of a group are written, each with its mask.
MOST_LEFT = 256
MOST_UNKNOWN = 80

Place = tuple[Expr, int]  # a reduction, and which of its vectors of lanes
States = dict[Place, list[str]]


def suits(body: Across, reduces: list[Expr], group: int) -> bool:
    """Whether all of a row goes so: it has a group, if its length is known, and what is left of it
    is worth writing out."""
    s = body.s
    if not reduces or group == 1 or s.narrow:
        return False
    known = _length(body)
    left, most = group, MOST_LEFT if body.f.target.masked else MOST_UNKNOWN
    if known is not None:
        if known < group * s.width:
            return False
        left, most = -(-(known % (group * s.width)) // s.width), MOST_LEFT
    return left * sweep_cost(s, body.f.sweeping) <= most


def _length(body: Across) -> int | None:
    """The elements of a row that is swept from its first one on, if they are known."""
    s = body.s
    n = None if s.vector is None or s.flat else body.nest.sizes[s.vector]
    return n if isinstance(n, int) else None


class Abreast:
    """Emits a sweep over elements of a row, `group` vectors at a time.

    States are those of the loop here (`Reduction.in_registers`), begun from those outside.
    """

    def __init__(
        self, body: Across, scope: Scope, reduces: list[Expr], stores: list[Store], group: int
    ):
        self.body, self.scope, self.group = body, scope, group
        self.reduces, self.stores = reduces, stores
        self.e, self.width = body.e, body.s.width
        self.L = Lanes(body.e, self.width, body.f.target)
        self.kinds = {r: body.kind(r).in_registers(body.f.target) for r in reduces}
        self.sides = range(body.s.lanes // self.width)

    def sweep(self, begin: str, end: str, states: States) -> States:
        """All elements from begin to end, from states outside to states outside."""
        e, step, n = self.e, self.width * self.group, _length(self.body)
        if n is not None:
            left, whole = n % step, str(n - n % step)
        else:
            over = e(f"srem i64 {e(f'sub nsw i64 {end}, {begin}')}, {step}")
            left, whole = None, e(f"sub nsw i64 {end}, {over}")
        states = self.groups(begin, whole, self.begun(states))
        return self.ended(self._rest(whole, end, left, states))

    def begun(self, outside: States) -> States:
        """The states of the loop, from those outside."""
        return {(r, k): self.kinds[r].entered(self.L, x) for (r, k), x in outside.items()}

    def ended(self, states: States) -> States:
        """Those outside, from the states of the loop."""
        return {(r, k): x[: len(self.body.kind(r).types)] for (r, k), x in states.items()}

    def groups(self, begin: str, end: str, states: States) -> States:
        """A loop over the elements from begin to end, which are whole groups."""
        types = [self.L.vec(t) for r, _ in states for t in self.kinds[r].types]
        carried = list(zip(types, self._flat(states), strict=True))

        def one(i: str, state: list[str]) -> list[str]:
            new = self._group(i, self._dealt(states, state))
            return self._flat({at: new[at] for at in states})

        final = self.e.loop(begin, end, self.width * self.group, carried, one)
        return self._dealt(states, final)

    def _group(self, i: str, old: States) -> States:
        """The states after the group at i."""
        body, e = self.body, self.e
        new: States = {}
        abreast = self.group if self._shifts() else min(
            self.group, in_step(body.s, body.f.sweeping))
        for k in range(0, self.group, abreast):
            start = e(f"add nuw nsw i64 {i}, {k * self.width}") if k else i
            inner = body.vectors_at(self.scope, start, None, abreast * self.width)
            if body.f.sweeping == body.prefetch.sweep:
                body.prefetch.ask(inner, k)
            if not (body.f.sweeping or k):
                body.streams.ask(inner, self.group * self.width)
            body.evaluate(inner, self.reduces, self.stores)
            for r in self.reduces:
                for j, x in enumerate(body.arrivals(inner, r, i, abreast), k):
                    new[r, j] = self.kinds[r].step(self.L, old[r, j], x)
        return new

    def _shifts(self) -> bool:
        """Whether a sweep goes by vectors side by side to shift one from the other (`shifted`):
        where it mostly reads. Others gain nothing, and a tenth longer takes what computes some four
        times for each load, such as Rosenbrock's function."""
        s, p = self.body.s, self.body.f.sweeping
        return not counts(s, p) and sweep_cost(s, p) <= MOSTLY_LOADS * len(self.body.f.shifted)

    def _rest(self, begin: str, end: str, left: int | None, states: States) -> States:
        """The states after what is left, less than a group: from begin to end, so many if known."""
        if left is not None:
            for k in range(-(-left // self.width)):
                masked = (k + 1) * self.width > left
                states = states | self._vector(k, begin, end if masked else None, states)
            return states
        e, done = self.e, self.e.fresh("done")
        met: list[tuple[str, States]] = []
        for k in self.sides:
            more = e(f"icmp slt i64 {self._at(begin, k)}, {end}")
            met.append((e.block, states))
            e.require(more, done)
            states = states | self._vector(k, begin, end, states)
        met.append((e.block, states))
        e.do(f"br label %{done}")
        e.label(done)
        return {
            (r, k): [
                self._met(t, [(b, x[r, k][j]) for b, x in met])
                for j, t in enumerate(self.kinds[r].types)
            ]
            for r, k in states
        }

    def _vector(self, k: int, begin: str, end: str | None, states: States) -> States:
        """The states that the k-th vector from `begin` on changes, up to `end` if it is masked."""
        body, at = self.body, self._at(begin, k)
        inner = body.vectors_at(self.scope, at, None if end is None else body.mask(at, end))
        body.evaluate(inner, self.reduces, self.stores)
        lanes = inner.lanes(True)
        return {
            (r, k): self.kinds[r].step(lanes, states[r, k], body.arriving(inner, r, at))
            for r in self.reduces
        }

    def _at(self, begin: str, k: int) -> str:
        """Where the k-th vector from `begin` on begins."""
        if begin.isdecimal():
            return str(int(begin) + k * self.width)
        return self.e(f"add nuw nsw i64 {begin}, {k * self.width}") if k else begin

    def _met(self, t: str, values: Sequence[tuple[str, str]]) -> str:
        """What a register is where some blocks meet."""
        if len({x for _, x in values}) == 1:
            return values[0][1]
        given = ", ".join(f"[ {x}, %{block} ]" for block, x in values)
        return self.e(f"phi {self.L.vec(t)} {given}")

    @staticmethod
    def _flat(states: States) -> list[str]:
        return [x for state in states.values() for x in state]

    def _dealt(self, like: States, registers: Sequence[str]) -> States:
        """The inverse of `_flat`."""
        left = iter(registers)
        return {place: [next(left) for _ in state] for place, state in like.items()}
