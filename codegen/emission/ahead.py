"""Loads ahead of stores: a loop reads its next vectors before it stores those at hand.

A CPU sees by few bits of an address whether a load waits for an earlier store: where an output
begins up to 64 bytes behind an operand modulo `costs.ALIASED`, as arrays do that NumPy takes from
the heap one after the other, the next vector's load meets the bits of this vector's store, and
waits until that is done. Vectors come one after the other then, which else overlap:

    for a group of vectors:      held = the operands of the first group
        load; compute            for a group of vectors:
        store                        early = the operands of the next, of the last once more
                                     compute with held;  held = early
                                     store

Nothing beyond the last group is read. Stores over an operand change what was read already: an
element is read and written by the same group. ns an element, 2^14 of them, AVX-512 and AVX2:

                        apart         64 bytes behind    16 bytes behind
    x + y, f32        0.24  0.22       0.32  0.47         0.36  0.47
      ahead           0.24  0.22       0.20  0.23         0.24  0.24
    x / (y + 1), f32  0.33  0.34       1.08  0.68         2.19  0.64
      ahead           0.33  0.34       0.35  0.34         0.39  0.34
    sea water, f32    1.92             3.09               3.21
      ahead           1.89             1.91               1.93

Reading a group of vectors before its own stores, without those of the next, takes masks on 2^10
f64 from 6.6 to 3.9, where 2.2 is what others take. On the CPU measured, distances of multiples of
2^19 did so, of 2^18 and less did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.scope import Scope
from graphc.codegen.emission.streaming import LONG_ROW
from graphc.codegen.machine.target import X86
from graphc.codegen.nests.axes import step
from graphc.codegen.nests.costs import ALIASED, most_carried
from graphc.codegen.nests.loops import Expr
from graphc.codegen.nests.schedule import group_of

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame


def of(f: Frame) -> list[Expr]:
    """The operands that an elementwise task reads ahead of its stores, where that may pay."""
    s, nest = f.schedule, f.nest
    if f.target.arch not in X86 or s.vector is None or s.width == 1 or s.tile or nest.reduced:
        return []
    if any(e.kind in ("reduce", "scan") for e in nest.exprs):
        return []
    whole, n = set(nest.outer), nest.sizes[s.vector]
    if n <= LONG_ROW if isinstance(n, int) else not (s.spans or f.streaming is not None):
        return []
    streams = [e for e in nest.exprs if e.kind == "load" and e.axes == whole]
    points = nest.points
    each = sum(nest.outputs[x.output].dtype.itemsize for x in nest.stores)
    each += sum(x.dtype.itemsize for x in streams)
    if isinstance(points, int) and points * each <= ALIASED:  # arrays side by side are nearer
        return []
    found = [
        x for x in streams
        if not x.preds and x.dtype.kind != "b" and step(nest, x.offset, s.vector) == 1
    ]
    lanes = group_of(s) * s.width * s.interleave
    bits = [8 * x.dtype.compute.itemsize for x in found]
    held = sum(-(-lanes * b // f.target.vector_bits) for b in bits)
    return found if held <= most_carried(s.cost, s.stepped[0], f.target) else []


def loop(
    f: Frame, begin: str, end: str, by: int, places: Callable[[str], list[Scope]],
    emit: Callable[[list[Scope]], None],
) -> None:
    """for (i = begin; i < end; i += by) emit(places(i)), operands read one group ahead; `by`
    divides end - begin."""
    e, early = f.e, f.early

    def read(scopes: Sequence[Scope]) -> list[str]:
        for c in scopes:
            c.demand(early)
        return [c.vectors[x] for c in scopes for x in early]

    def body(i: str, held: list[str]) -> list[str]:
        more = e(f"icmp slt i64 {i}, {last}")
        following = read(places(e(f"select i1 {more}, i64 {e(f'add nsw i64 {i}, {by}')}, "
                                  f"i64 {i}")))
        scopes, left = places(i), iter(held)
        for c in scopes:
            c.vectors.update((x, next(left)) for x in early)
        emit(scopes)
        return following

    done = e.fresh("few")
    e.require(e(f"icmp slt i64 {begin}, {end}"), done)
    last = e(f"sub nsw i64 {end}, {by}")
    first = places(begin)
    types = [Lanes(e, c.width, f.target).reg(x.dtype) for c in first for x in early]
    e.loop(begin, end, by, list(zip(types, read(first), strict=True)), body, some=True)
    e.do(f"br label %{done}")
    e.label(done)
