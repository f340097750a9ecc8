"""Short rows in lanes, each added up in the order of a row that vectors sweep.

Rows of unknown length are swept (`across`): element i stands in lane i, and lanes meet in halves, i
and i + n/2. Where the length is known and small, a row may have a lane of a register to itself
instead; its sums follow the same tree:

    x0 .. x6        ((x0 + x4) + (x2 + x6)) + ((x1 + x5) + x3)

So a size gives the same bits whether it is declared or comes with the call. Rows of little work are
written out in the tree's order, depth first, with few states in registers; others are a loop that
leaves what is added up in a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import Reduction, reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import under
from graphc.codegen.nests.costs import cost_of
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import Schedule
from graphc.codegen.nests.sweeps import wanted

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along

WRITTEN = 64  # cycles of the vectors side by side up to which a row is written out: with twice as
              # many, mean and variance of 25 in f64 took 1.8 times as long
ROUNDED = ("reduce_sum", "reduce_prod")  # reductions whose bits depend on their order

State = list[str]
Kind = tuple[Lanes, Reduction, Expr]  # one reduction of one vector of rows
Element = Callable[[Mapping[str, str]], list[State]]  # by where it is along each axis


def reduce_rows(
    body: Along, grid: Scope, scopes: Sequence[Scope], p: int, wide: bool
) -> list[dict[Expr, State]]:
    """The states of sweep p's reductions, for each of some vectors of rows."""
    s, e = body.s, body.e
    reduces, stores = body.reduces[p], body.row_stores[p]
    lanes = [
        Lanes(e, c.width if wide else 1, body.f.target, fastmath=body.f.fastmath) for c in scopes
    ]
    kinds = [(L, reduction_of(r), r) for L in lanes for r in reduces]

    def element(place: Emitter, at: Mapping[str, str]) -> list[State]:
        """What an element of each row brings to the reductions."""
        common = Scope(body.f, grid, place, dict(at), ready=grid.ready)
        met: dict[Scope, Scope] = {}
        out: list[State] = []
        for c in scopes:
            inner = under(body.f, c, common, met)
            body.evaluate_row(inner, reduces, stores, wide)
            out += [[inner.operand(a, wide) for a in r.args] for r in reduces]
        return out

    row = dims.product(s.nest.sizes[n] for n in s.loops)
    each = sum(cost_of(x) for x in wanted(s, p, {}) if x.axes & set(s.loops))
    assert isinstance(row, int)
    written = len(scopes) * row * each <= WRITTEN
    if written and not any(r.name == "argmax" for r in reduces):  # which takes them in order
        states = _written(s, kinds, lambda at: element(e, at))
    else:
        states = _looped(body, kinds, lambda at: element(e.section(), at))
    n = len(reduces)
    return [
        dict(zip(reduces, states[k : k + n], strict=True)) for k in range(0, len(states), n)
    ]


def _written(s: Schedule, kinds: Sequence[Kind], element: Element) -> list[State]:
    """Every element on its own; of several axes, what meets in one lane comes in its order."""
    others = [n for n in s.loops if n != s.tree]
    ranges = [range(_length(s, n)) for n in others]

    def leaf(i: int) -> list[State]:
        total: list[State] = []
        for place in product(*ranges):
            at = {n: str(k) for n, k in zip(others, place, strict=True)}
            new = element(at | {s.tree: str(i)})
            total = _met(kinds, total, new) if total else new
        return total

    return _tree(kinds, _length(s, s.tree), leaf)


def _length(s: Schedule, axis: str) -> int:
    size = s.nest.sizes[axis]
    assert isinstance(size, int)
    return size


def _met(kinds: Sequence[Kind], a: Sequence[State], b: Sequence[State]) -> list[State]:
    out: list[State] = []
    for (L, kind, r), x, y in zip(kinds, a, b, strict=True):
        L.e.note(r.node)
        out.append(kind.merge(L, x, y))
    return out


def _tree(
    kinds: Sequence[Kind], length: int, leaf: Callable[[int], list[State]]
) -> list[State]:
    def sums(first: int, step: int) -> list[State]:
        """Of elements first, first + step, .."""
        if first + step >= length:
            return leaf(first)
        return _met(kinds, sums(first, 2 * step), sums(first + step, 2 * step))

    return [kind.begun(L, x) for (L, kind, _), x in zip(kinds, sums(0, 1), strict=True)]


class _Buffer:
    """The sums' states for every element of the tree's axis, in memory."""

    def __init__(self, body: Along, kinds: Sequence[Kind], length: int):
        self.e, self.kinds, self.length = body.e, kinds, length
        self.types = [L.vec(kind.types[0]) for L, kind, _ in kinds]
        self.row = f"{{{', '.join(self.types)}}}"
        self.memory = body.f.alloca(f"[{length} x {self.row}]")

    def _at(self, i: str, column: int) -> str:
        return self.e(
            f"getelementptr inbounds {self.row}, ptr {self.memory}, i64 {i}, i32 {column}"
        )

    def read(self, i: str) -> list[State]:
        return [
            [self.e(f"load {t}, ptr {self._at(i, column)}, align 8")]
            for column, t in enumerate(self.types)
        ]

    def write(self, i: str, states: Sequence[State]) -> None:
        for column, (t, (x,)) in enumerate(zip(self.types, states, strict=True)):
            self.e.do(f"store {t} {x}, ptr {self._at(i, column)}, align 8")

    def clear(self) -> None:
        for i in range(self.length):
            self.write(str(i), [kind.start(L) for L, kind, _ in self.kinds])

    def fold(self) -> list[State]:
        return _tree(self.kinds, self.length, lambda i: self.read(str(i)))


def _looped(body: Along, kinds: Sequence[Kind], element: Element) -> list[State]:
    """Loops over the elements, and the tree over what they leave in a buffer.

    Reductions whose order does not matter are carried by the loops.
    """
    e, s = body.e, body.s
    rounded = [kind.name in ROUNDED for _, kind, _ in kinds]
    others = [k for k, buffered in zip(kinds, rounded, strict=True) if not buffered]
    sums = [k for k, buffered in zip(kinds, rounded, strict=True) if buffered]
    buffer = _Buffer(body, sums, _length(s, s.tree))

    def split(state: Sequence[str]) -> list[State]:
        left = iter(state)
        return [[next(left) for _ in kind.types] for _, kind, _ in others]

    def once(place: dict[str, str], state: Sequence[str]) -> list[str]:
        found = element(place)
        i = place[s.tree]
        new = [x for x, buffered in zip(found, rounded, strict=True) if buffered]
        buffer.write(i, _met(sums, buffer.read(i), new) if len(place) > 1 else new)
        rest = [x for x, buffered in zip(found, rounded, strict=True) if not buffered]
        out: list[str] = []
        for (L, kind, r), old, x in zip(others, split(state), rest, strict=True):
            e.note(r.node)
            out += kind.follow(L, old, x)
        return out

    def nested(place: dict[str, str], state: Sequence[str]) -> list[str]:
        if len(place) == len(s.loops):
            return once(place, state)
        name = s.loops[len(place)]
        return e.loop(
            "0", str(_length(s, name)), 1, list(zip(carried, state, strict=True)),
            lambda i, inner: nested(place | {name: i}, inner), strided=True,
        )

    if len(s.loops) > 1:
        buffer.clear()
    carried = [L.vec(t) for L, kind, _ in others for t in kind.types]
    left = iter(split(nested({}, [x for L, kind, _ in others for x in kind.start(L)])))
    totals = iter(buffer.fold())
    return [next(totals if buffered else left) for buffered in rounded]
