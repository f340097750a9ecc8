"""Rows swept some at a time: one sweep over all of them, then the next.

    for a strip of rows:
        for each of them:  m = max(x)                         kept in memory: m of each row
        for each of them:  s = sum(exp(x - m))
        for each of them:  store exp(x - m) / s

What ends a row's sums, the tree of its lanes and what follows from it, takes a hundred cycles in
which nothing else is done where the row's next sweep waits for it: as long as some dozens of its
vectors. In turns the next row is swept meanwhile. Additions are in the order of rows one by one.
Each sweep over a short row is written out (`whole_row`).

GB/s of f32 read and written on Zen 5, in turns and one by one, 384 KiB of rows of

                     300         500        1,000       2,000       500, AVX2
    log-sum-exp    18   17     21   19     27   24     27   24      11   11
    softmax        37   33     40   34     47   42     43   43      22   20
    layer norm     81   56     84   68    114   95    108   92      52   48
    variance       70   43     81   58    111  104    124  101      56   46

Nanoseconds for a short row of f32 on Zen 4, in turns and all sweeps in registers, rows of

                             32         64        100       AVX2: 32, 64, 100
    softmax                  13   15    20   27    36   42    15 21  29 35  57 60
    softmax and its sums     13   16    21   28    37   44    16 22  32 37  64 71
    standardised, sums        7    8    10   12    16   20     7  9  11 16  21 29
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission import columns, whole_row
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.sweep import least
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.sweeps import wanted
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

MOST = 8               # rows at a time
STRIP_BYTES = 1 << 14  # that they read, at most: they stay in the nearest cache


def suits(body: Across) -> bool:
    """Whether a nest's rows are swept so: short ones, and others of which there may be several."""
    most = _most(body)
    return body.s.in_turns and (body.s.short > 0 or not isinstance(most, int) or most > 1)


def _most(body: Across) -> int | Size:
    """Rows at a time; of a length that comes with the call, bytes of one."""
    bytes_ = _each(body) * body.nest.row
    if not isinstance(bytes_, int):
        return bytes_
    return max(1, min(MOST, STRIP_BYTES // max(1, bytes_)))


def _each(body: Across) -> int:
    """Bytes for an element of a row: of what is read, and what is kept aside."""
    read = {
        x.attrs[:2]: x.dtype.itemsize for x in body.nest.exprs
        if x.kind == "load" and x.axes & set(body.nest.reduced)
    }
    return max(1, sum(read.values()) + sum(x.dtype.compute.itemsize for x in _aside(body)))


def _aside(body: Across) -> list[Expr]:
    return [x for x in body.s.cached if x not in body.s.lent]


def walk(body: Across, low: str, high: str, some: bool) -> None:
    """Emit the rows from low to high."""
    f, e, most = body.f, body.e, _most(body)
    rows = str(most)
    if not isinstance(most, int):
        fitting = f.top.e(f"udiv i64 {STRIP_BYTES}, {f.top.size(dims.maximum(most, 1))}")
        rows = least(f.top.e, fitting, str(MOST))
        none = f.top.e(f"icmp eq i64 {rows}, 0")
        rows = f.top.e(f"select i1 {none}, i64 1, i64 {rows}")
    body.prefetch.rows = most if isinstance(most, int) else rows
    strip = _Strip(body)

    def strips(_: str, state: list[str]) -> list[str]:
        (first,) = state
        last = least(e, e(f"add nsw i64 {first}, {rows}"), high)
        strip.run(first, last)
        return [last]

    left = e(f"sub nsw i64 {high}, {low}")
    up = e(f"add nsw i64 {left}, {e(f'sub nsw i64 {rows}, 1')}")
    count = e(f"udiv i64 {up}, {rows}")
    e.loop("0", count, 1, [("i64", low)], strips, some=some)


class _Strip:
    """Emits the sweeps over some rows, and keeps what they add up to."""

    def __init__(self, body: Across):
        self.body, self.f, self.s, self.e = body, body.f, body.s, body.e
        self.cells = {
            r: self.f.alloca(f"[{MOST} x {memory_of(register_type(r.dtype))}]")
            for rs in body.reduces[:-1] for r in rs
        }
        self.kept: dict[Expr, tuple[str, str]] = {}  # arrays of rows, bytes from one to the next
        row, longest = body.nest.row, dims.most(body.nest.row)
        for x in _aside(body):
            assert longest is not None
            size = x.dtype.compute.itemsize
            rest = self.s.width * size + LINE  # a vector more than the row, and whole lines
            several = STRIP_BYTES // _each(body) * size + MOST * rest
            base = self.f.alloca(f"[{max(longest * size + rest, several)} x i8]")
            self.kept[x] = base, self.f.top.size(dims.round_up(row * size + rest - LINE, LINE))

    def run(self, first: str, last: str) -> None:
        """The rows from first to last."""
        for p in range(self.s.sweeps):
            sums = columns.Carried(self.body, p)
            row = partial(self._row, first, p, sums)
            sums.put_back(self.e.loop(first, last, 1, sums.start(), row, some=True))

    def _row(
        self, first: str, p: int, sums: columns.Carried, i: str, states: list[str]
    ) -> list[str]:
        """Sweep p over row i, with accumulators in registers; these after it."""
        sums.begin_row(states)
        self.sweep(first, p, i)
        return sums.end_row()

    def sweep(self, first: str, p: int, i: str) -> None:
        """Sweep p over row i of those from the first on."""
        f, e, s, body = self.f, self.e, self.s, self.body
        f.item, at = i, e(f"sub nuw nsw i64 {i}, {first}")
        asked = wanted(s, p, s.cached)
        for x, (base, size) in self.kept.items():
            if x in asked:
                place = e(f"mul nuw nsw i64 {at}, {size}")
                f.kept_at[x] = e(f"getelementptr inbounds i8, ptr {base}, i64 {place}")
        scope = Scope(f, f.top, e.section(), {s.grid[0]: i})
        if p:
            last = p == s.sweeps - 1  # behind which the ends of rows may want any of them
            before = [r for rs in body.reduces[:p] for r in rs]
            known = {r: self._recall(r, at) for r in before if last or r in asked}
            scope = Scope(f, scope, e.section(), {}, ready=p)
            scope.scalars.update(known)
        following = whole_row.Row(body).sweep(scope, p) if s.short else self._loops(scope, p)
        for r in body.reduces[p]:
            if r in self.cells:
                value = following.scalars[r]
                t, m, cell = self._cell(r, at)
                stored = value if m == t else e(f"zext {t} {value} to {m}")
                e.do(f"store {m} {stored}, ptr {cell}")
        if p == s.sweeps - 1:
            body.row_end(following)

    def _loops(self, scope: Scope, p: int) -> Scope:
        """Sweep p by loops over the vectors of a row; the scope where its sums are known."""
        states = self.body.sweep(scope, p, "0", "")
        following = Scope(self.f, scope, self.e.section(), {}, ready=p + 1)
        one = Lanes(following.e, 1, self.f.target)
        for r, state in states.items():
            following.scalars[r] = reduction_of(r).finish(one, state, r.dtype)
        return following

    def _recall(self, r: Expr, at: str) -> str:
        """What a reduction over a row of the strip gave."""
        t, m, cell = self._cell(r, at)
        x = self.e(f"load {m}, ptr {cell}")
        return x if m == t else self.e(f"trunc {m} {x} to {t}")

    def _cell(self, r: Expr, at: str) -> tuple[str, str, str]:
        """The types of that in a register and in memory, and where it is."""
        t = register_type(r.dtype)
        m = memory_of(t)
        return t, m, self.e(f"getelementptr inbounds {m}, ptr {self.cells[r]}, i64 {at}")
