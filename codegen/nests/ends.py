"""Loop distribution for short rows: what ends a row goes apart from what its elements take.

    for i0<n reduce i1<25:                         for i0<n reduce i1<25:
      e1 = exp in0[25*i0+i1]                         rows[i0] = div 1 (reduce_sum over i1 of e1)
      e3 = div 1 (reduce_sum over i1 of e1)   ->   for i0<n reduce i1<25:
      out0[25*i0+i1] = mul e1 e3                     out0[25*i0+i1] = mul e1 rows[i0]
      out1[i1] = reduce_sum over i0 of ..            out1[i1] = reduce_sum over i0 of ..

What is stored for each element, or added up by column, is best computed row by row, as it lies in
memory. The *ends*, what a row has once, when its sums are known, are not: the logarithm of a scalar
takes as long as that of a vector. So the ends come first, in a kernel with a row in each lane
(`tiles.ends`), and the elements are computed a second time. Columns are added up in the order of
the kernel as a whole. Log-sum-exp of 1000 rows and its gradient, in us, as a whole and cut:

    elements          10        16        24        31
    f32, AVX-512    26   11   26   13   29   17   31   20
    f32, AVX2       23   16   23   20   28   28   34   38
    f64, AVX-512    32   19   28   24   31   30   41   41
    f64, AVX2       35   44   40   62   54   88   70  116

What is done must not depend on the CPU (totals over rows have another order), so f64 stays whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.frame import slots_of
from graphc.codegen.emission.nest import NestKernel
from graphc.codegen.job import Job
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.nests.axes import coalesce
from graphc.codegen.nests.costs import cost_of, is_long
from graphc.codegen.nests.loops import Expr, Nest, Store, axis, flatten
from graphc.codegen.nests.schedule import plan
from graphc.codegen.nests.vector_axis import LONG_ROW
from graphc.codegen.sizes import SizeCode
from graphc.dims import Size
from graphc.types import TensorType, f32

AGAIN = 48  # cycles (AVX-512) of a row's elements up to which they are computed a second time


class Cut(NamedTuple):
    """A nest in two: `ends` stores `rows` behind the nest's results, `elements` loads them behind
    its operands. cycles: of an item of the nest as a whole, by which its columns are shared out."""

    ends: Nest
    elements: Nest
    rows: list[TensorType]
    cycles: Size


def cut(nest: Nest, target: Target) -> Cut | None:
    """A nest of short rows in two parts, where that is faster."""
    if len(nest.reduced) != 1 or not nest.outer or nest.sites:
        return None
    (k,) = nest.reduced
    length = nest.sizes[k]
    if not isinstance(length, int) or not 1 < length < LONG_ROW:
        return None
    if not any(e.kind == "op" and e.axes and k not in e.axes and is_long(e) for e in nest.exprs):
        return None
    whole = plan(coalesce(nest), target)
    late = [x for x in nest.stores if k in x.axes]
    if not (whole.across and whole.sweeps > 1 and late):
        return None
    if any(e.kind in ("scan", "philox", "position") for e in nest.exprs):
        return None
    if any(x.expr in whole.final and x.expr.kind != "reduce" for x in late):
        return None
    found = _parts(nest, k, late, whole.cycles)
    if found is None:
        return None
    ends = plan(coalesce(found.ends), target)
    vectors = -(-length * f32.bits // 512)
    again = vectors * sum(cost_of(e) for e in found.elements.exprs if k in e.axes)
    if not ends.turns or again > AGAIN:
        return None
    elements = plan(coalesce(found.elements), target)
    if elements.columns and (not elements.across or elements.items != whole.items):
        return None
    return found


def _parts(nest: Nest, k: str, late: list[Store], cycles: Size) -> Cut | None:
    """The nest with `late` stores in a part of their own; None where they take something else of
    the other part than numbers of single rows."""
    after: set[Expr] = set()  # reductions of rows, and what follows from them alone
    for e in nest.exprs:
        within = e.kind == "reduce" and set(e.over) == {k}
        if k not in e.axes and (within or any(a in after for a in e.args)):
            after.add(e)
    wanted, taken = _reached([x.expr for x in late], after)
    every = set(nest.outer)
    if not taken or any(e.axes != every or e.dtype is not f32 for e in taken):
        return None
    shape = tuple(nest.sizes[n] for n in nest.outer)
    at = flatten(tuple(axis(n) for n in nest.outer), shape)
    rows = [TensorType(e.dtype, shape) for e in taken]
    loads = {e: (len(nest.params) + j, at, ()) for j, e in enumerate(taken)}
    columns = any(e.kind == "reduce" for e in wanted)
    elements, moved = _only(nest.exprs, wanted, loads)
    outer = nest.outer if columns else [n for n in nest.sizes if n in (*nest.outer, k)]
    second = replace(
        nest, outer=outer, reduced=[k] if columns else [], params=(*nest.params, *rows),
        exprs=elements, stores=[x._replace(expr=moved[x.expr]) for x in late],
    )
    early = [x for x in nest.stores if x not in late] + [
        Store(len(nest.outputs) + j, at, e, tuple(nest.outer)) for j, e in enumerate(taken)
    ]
    wanted, _ = _reached([x.expr for x in early], set())
    others, moved = _only(nest.exprs, wanted, {})
    first = replace(
        nest, outputs=(*nest.outputs, *rows), exprs=others,
        stores=[x._replace(expr=moved[x.expr]) for x in early],
    )
    return Cut(first, second, rows, cycles)


def _reached(roots: list[Expr], end: set[Expr]) -> tuple[set[Expr], list[Expr]]:
    """What roots need, without what only members of `end` need; the members that are met."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack += () if e in end else e.args
    return seen, sorted((e for e in seen if e in end), key=lambda e: e.id)


def _only(
    exprs: list[Expr], wanted: set[Expr], loads: Mapping[Expr, tuple[object, ...]]
) -> tuple[list[Expr], dict[Expr, Expr]]:
    """Some expressions, numbered anew, a few of them loads now; and what became of each."""
    made: dict[Expr, Expr] = {}
    for e in exprs:
        if e in loads:
            made[e] = Expr(len(made), "load", e.dtype, (), loads[e], e.axes, e.node)
        elif e in wanted:
            args = tuple(made[a] for a in e.args)
            made[e] = Expr(len(made), e.kind, e.dtype, args, e.attrs, e.axes, e.node)
    return list(made.values()), made


class EndsKernel:
    """Writes the functions of a nest that is cut: its two kernels and what calls them.

    Both have one context: the nest's operands, the rows, the columns' accumulators, the nest's
    results, and the rows again.
    """

    def __init__(self, job: Job, nest: Nest, parts: Cut):
        self.nest, self.rows = nest, parts.rows
        self.f = Function(job.module, job.name, "ptr %ctx, ptr %scratch", job.target)
        known = slots_of(nest, [parts.cycles])
        self.slots = replace(known, params=known.params + 1)
        inner = replace(
            known, params=known.params + len(self.rows), outputs=known.outputs + len(self.rows)
        )
        self.elements = NestKernel(job.part("elements"), parts.elements, inner, parts.cycles)
        self.inner = self.elements.slots
        self.ends = NestKernel(job.part("ends"), parts.ends, self.inner)

    @property
    def _bytes(self) -> list[Size]:
        """What stands in the workspace: the rows, then the accumulators."""
        lines = [dims.round_up(t.bytes, LINE) for t in self.rows]
        return [*lines, self.elements.workspace]

    @property
    def workspace(self) -> Size:
        return dims.total(self._bytes)

    @property
    def work(self) -> Size:
        """Estimated cycles."""
        both = self.ends.schedule, self.elements.schedule
        return dims.total(s.items * s.cycles for s in both)

    def define(self) -> None:
        """Add both kernels and the function that calls them to the module."""
        self.ends.define()
        self.elements.define()
        f, slots, inner = self.f, self.slots, self.inner
        ctx = f(f"alloca [{inner.count} x i64], align 16")

        def word(t: str, k: int) -> str:
            return f(f"load {t}, ptr {f.at('%ctx', 8 * k)}, align 8")

        own = slots.params - 1  # where the workspace stands
        given = [word("ptr", k) for k in range(slots.params + slots.outputs)]
        first = slots.params + slots.outputs
        numbers = [word("i64", first + k) for k in range(len(slots.dims))]
        sizes = SizeCode(f, dict(zip(slots.dims, numbers, strict=True)))
        places = [given[own]]
        for size in self._bytes:
            places.append(f.at(places[-1], sizes.value(size)))
        rows, accumulators = places[: len(self.rows)], places[len(self.rows) :]
        accumulators = accumulators[: inner.params - own - len(rows)]
        pointers = [*given[:own], *rows, *accumulators, *given[own + 1 :], *rows]
        error = word("ptr", slots.error)
        values = [("ptr", p) for p in pointers] + [("i64", n) for n in numbers] + [("ptr", error)]
        for k, (t, value) in enumerate(values):
            f.do(f"store {t} {value}, ptr {f.at(ctx, 8 * k)}, align 8")
        for kernel in (self.ends, self.elements):
            f.do(f"call void @{kernel.name}(ptr {ctx}, ptr %scratch)")
        f.finish()
