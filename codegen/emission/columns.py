"""Column sums beside a row kernel: sums over all rows, for each element of a row.

Every chunk of rows adds into accumulators of its own, a row long, in the kernel's workspace; the
chunks are added up in order at the end, so the sums do not depend on the number of threads.

Those of a short row stay in registers from row to row (`Carried`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphc.codegen.emission import whole_row
from graphc.codegen.emission.frame import Frame
from graphc.codegen.emission.lane_masks import below
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import FINAL, Schedule
from graphc.dims import Size

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

CARRIED = 4  # accumulators take one register of so many at most


def chunk_bytes(s: Schedule) -> Size:
    """Bytes of the accumulators of one chunk."""
    row = s.nest.row
    return 8 * len(s.columns) * row


def clear(f: Frame, chunk: str) -> dict[Expr, str]:
    """Set a chunk's accumulators to 0; where each stands."""
    s, e = f.schedule, f.e
    if not s.columns:
        return {}
    size = f.top.size(chunk_bytes(s))
    base = _at(f, f"{e(f'mul nsw i64 {chunk}, {size}')}")
    e.clear(base, size)
    each = e(f"sdiv i64 {size}, {len(s.columns)}")
    return {
        r: e(f"getelementptr inbounds i8, ptr {base}, i64 {e(f'mul nsw i64 {each}, {k}')}")
        for k, r in enumerate(s.columns)
    }


def _at(f: Frame, offset: str) -> str:
    """The address of so many bytes from where the accumulators begin."""
    return f.e(f"getelementptr inbounds i8, ptr {f.params[-1]}, i64 {offset}")


class Carried:
    """Accumulators of rows that are written out (`whole_row`), in registers while rows are walked.
    In memory an addition waits for the store of the row before, a dozen cycles, in which a row of
    one or two vectors is computed.
    """

    def __init__(self, body: Across, p: int | None = None):
        """p: the sweep whose sums these are, if not all."""
        self.body, s = body, body.s
        sums = [r for r in body.columns if p in (None, s.ready[r.args[0]])]
        few = len(sums) * s.short * CARRIED <= body.f.target.registers
        pieces = whole_row.pieces(body) if s.short and few else []
        self.keys = [(r, k, n) for r in sums for k, n in pieces]

    def start(self) -> list[tuple[str, str]]:
        """Types and values of the accumulators before the first row, for a loop over rows."""
        found = []
        for r, L, place in self._places():
            (t,) = reduction_of(r).types
            found.append((L.vec(t), reduction_of(r).state(L, place)))
        return found

    def begin_row(self, states: list[str]) -> None:
        """Add to these what follows."""
        vectors = [(r, str(k * self.body.s.width)) for r, k, _ in self.keys]
        self.body.carried = dict(zip(vectors, states, strict=True))

    def end_row(self) -> list[str]:
        """The accumulators with what was added."""
        states = [*self.body.carried.values()]
        self.body.carried = {}
        return states

    def put_back(self, states: list[str]) -> None:
        """The accumulators after the last row."""
        for (r, L, place), x in zip(self._places(), states, strict=True):
            reduction_of(r).put(L, place, x)

    def _places(self) -> Iterator[tuple[Expr, Lanes, str]]:
        f, s = self.body.f, self.body.s
        for r, k, n in self.keys:
            L = Lanes(f.e, n * s.width, f.target, mask=whole_row.mask(self.body, k, n))
            place = f"getelementptr inbounds {reduction_of(r).types[0]}, ptr {self.body.columns[r]}"
            yield r, L, f.e(f"{place}, i64 {k * s.width}")


def add_up(f: Frame, chunks: str) -> None:
    """Add up the chunks' accumulators in order and store the sums."""
    for k, r in enumerate(f.schedule.columns):
        _add_up_one(f, chunks, k, r)


def _add_up_one(f: Frame, chunks: str, k: int, r: Expr) -> None:
    """The sums of the k-th column reduction: added up over the chunks, finished and stored."""
    e, s = f.e, f.schedule
    assert s.vector is not None
    size = f.top.size(chunk_bytes(s))
    row = f.top.size(s.nest.row)
    end = f.top.size(s.nest.sizes[s.vector])
    kind = reduction_of(r)
    (t,) = kind.types
    base = _at(f, f"{e(f'mul nsw i64 {row}, {8 * k}')}")
    stores = [x for x in s.nest.stores if x.expr is r]
    free = Lanes(e, s.width, f.target)
    v, m = free.vec(t), free.vec("i1")
    load = f"llvm.masked.load.{free.suffix(t)}.p0"
    f.module.declare(load, f"declare {v} @{load}(ptr, i32, {m}, {v})")

    def nested(loops: list[str], around: Scope) -> None:
        if not loops:
            e.for_each("0", end, lambda i: vector(around, i), s.width)
            return
        name, *rest = loops

        def body(i: str) -> None:
            nested(rest, Scope(f, around, e.section(), {name: i}, ready=FINAL))

        e.for_each("0", f.top.size(s.nest.sizes[name]), body)

    def vector(around: Scope, i: str) -> None:
        mask = below(free, i, end)
        scope = Scope(f, around, e, {str(s.vector): i}, ready=FINAL, mask=mask)
        L, place = scope.lanes(True), scope.size(s.place)

        def add(c: str, state: list[str]) -> list[str]:
            first = e(f"getelementptr inbounds i8, ptr {base}, i64 {e(f'mul i64 {c}, {size}')}")
            at = e(f"getelementptr inbounds {t}, ptr {first}, i64 {place}")
            aligned = f"i32 {kind.aligned}"
            x = e(f"call {v} @{load}(ptr {at}, {aligned}, {m} {mask}, {v} zeroinitializer)")
            return kind.merge(L, state, [x])

        total = e.loop("0", chunks, 1, [(v, kind.start(L)[0])], add, strided=True)
        (scope.vectors if s.width > 1 else scope.scalars)[r] = kind.finish(L, total, r.dtype)
        for x in stores:
            scope.store(x.output, x.offset, r, vector=s.width > 1)

    nested(s.loops, f.top)
