"""Short innermost axes unrolled, so that vectors run along a longer one.

    for i0<n, i1<3:                               for i0<n:
      out0[3*i0+i1] = in0[i0] if i1 == 0    ->      out0[3*i0] = in0[i0]
                 else in1[i0] if i1 == 1            out0[3*i0+1] = in1[i0]
                 else in2[i0]                       out0[3*i0+2] = in2[i0]

Stacks along the last axis, repeated elements, channels moved last and windows read along one axis
and write along another. Vectors of the short axis would be gathered, or hold few elements; along
the other axis they are read as they lie, and shuffles put them in the order of the results, which
are stored whole. 64k elements of f32 in us (AVX-512):

    stack of 2, 3 and 8    37, 136, 75  ->  10, 9, 11

A formula for each column of a state, or for rows and columns of small matrices, are stacks as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import overload

from graphc import dims
from graphc.codegen.emission import interleaving
from graphc.codegen.nests.axes import coalesce, coefficient, step
from graphc.codegen.nests.index_splitting import Piece, Stretch
from graphc.codegen.nests.loops import Expr, Nest, Store
from graphc.dims import product

MOST = 64         # elements of the axes that are unrolled
# .. and up to which that gains where it computes no less. Where many parts are computed otherwise,
# each vector of longer rows takes all of them as well: sines and cosines of multiples of three
# numbers side by side, 20,000 x 39 of f32, took 3,000 us, 770 along the other axis, eight numbers
# beside their squares and roots 270 and 130. Eight with zeros around them, n x 18, 100 and 126.
SMALL = 16
SAVED = 2         # times that what is computed for longer ones must be less
MOST_EXPRS = 512  # expressions of the nest, and of the unrolled one
LEAST = 16        # elements of the other axis, where its size is known
NEAR = 4          # elements apart in what is read along it, which takes as many loads of each
# And where each element is computed otherwise: vectors of the short axis compute all for each of
# them. 20,000 rows of 12 columns, the states of a vehicle: 1,500 us, 270 along the other axis.
APART = 16
GATHERED = 4  # bytes of what instructions gather; of less, LLVM takes seconds for many loads
# What a vector costs that is read across the short rows, three and more apart. 20,000 x 3 x 3 of
# f32 transposed take 240 us as they are, 110 unrolled, 2 x 6 690 and 110, 4 x 4 1,500 and 130; of
# f64, of which it holds half as many, 160 and 150, 270 and 180, 230 and 250.
TURNED = 128


def unroll(nest: Nest) -> Nest | None:
    """The nest with its innermost axes unrolled, where that makes vectors of what is read."""
    if nest.reduced or nest.sites or nest.totals:
        return None
    if any(e.kind in ("scan", "philox") for e in nest.exprs):
        return None
    if len(nest.exprs) > MOST_EXPRS:
        return None
    if not any(is_short(nest, name) for name in nest.outer):  # nor is one of several axes, then
        return None
    nest = coalesce(nest)
    for block in _blocks(nest):
        long = _along(nest, block)
        if long is None or _whole_rows(nest, block):
            continue
        rows = nest
        for short in block[:-1]:
            rows = unrolled(rows, short, None)
        whole = unrolled(rows, block[-1], _Effort(nest, block, long).add)
        if whole is not None and interleaving.axis(found := coalesce(whole)) == long:
            return found
    return None


def is_short(nest: Nest, name: str) -> bool:
    n = nest.sizes[name]
    return isinstance(n, int) and 1 < n <= MOST


def _blocks(nest: Nest) -> list[tuple[str, ...]]:
    """Short axes, the innermost first: single ones, and several that are short together, as rows
    and columns of small matrices, of which elements lie one after the other."""
    single = [a for a in nest.outer if is_short(nest, a)]
    block: list[str] = []
    while True:
        n = elements_of(nest, block)
        inside = (
            a for a in single
            if a not in block and coefficient(nest.stores[0].offset, a) == n
        )
        if (a := next(inside, None)) is None:
            break
        block.append(a)
    return [*((a,) for a in single), *(tuple(block[:k]) for k in range(2, len(block) + 1))]


def elements_of(nest: Nest, block: Sequence[str]) -> int:
    n = product(nest.sizes[a] for a in block)
    assert isinstance(n, int)
    return n


def _along(nest: Nest, block: tuple[str, ...]) -> str | None:
    """The axis whose neighbours are next to each other in memory but for short axes."""
    n = elements_of(nest, block)
    if n > MOST:
        return None
    for long in nest.outer:
        size = nest.sizes[long]
        if isinstance(size, int) and size < LEAST:
            continue
        if long not in block and all(
            coefficient(s.offset, block[0]) == 1 and coefficient(s.offset, long) == n
            for s in nest.stores
        ):
            return long
    return None


def _whole_rows(nest: Nest, block: tuple[str, ...]) -> bool:
    """Whether all that is read lies along the short axes as it is written, and is not that short:
    vectors of it do as well."""
    to = nest.stores[0].offset
    return elements_of(nest, block) > NEAR and all(
        all(coefficient(e.offset, a) == coefficient(to, a) for a in block)
        and not any(a in dims.names(size) for p in e.preds for size in p.sizes for a in block)
        for e in nest.exprs if e.kind == "load"
    )


class _Effort:
    """What the unrolled nest computes, as far as it is written: not too much, and what is read
    along an axis comes in vectors.

    Differences of all pairs of four, n x 4 x 4 of f64, take 140 us as they are, 160 unrolled; the
    matrices of quaternions 350 and 140.
    """

    def __init__(self, nest: Nest, block: tuple[str, ...], long: str):
        turned = sum(
            TURNED // max(e.dtype.itemsize, GATHERED) for e in nest.exprs
            if e.kind == "load" and coefficient(e.offset, block[0]) not in range(-1, 3)
        )
        self.most = (len(nest.exprs) + turned) * elements_of(nest, block) // len(block)
        self.small, self.long = elements_of(nest, block) <= SMALL, long
        if not self.small:
            self.most //= SAVED
        self.one_axis = len(block) == 1
        self.count = self.work = self.apart = 0

    def add(self, nest: Nest, e: Expr) -> bool:
        """Whether it is still worth while with this expression of the nest."""
        by = step(nest, e.offset, self.long) if e.kind == "load" else 1
        most = APART if e.dtype.itemsize >= GATHERED else NEAR
        if not isinstance(by, int) or not -1 <= by <= most:
            return False
        self.count += 1
        self.work += max(by, 1)
        self.apart = max(self.apart, by if e.kind == "load" else 0)
        near = self.small and self.one_axis and self.apart <= NEAR
        return self.count <= MOST_EXPRS and (near or self.work <= self.most)


Effort = Callable[[Nest, Expr], bool]


@overload
def unrolled(nest: Nest, short: str, pays: None) -> Nest: ...
@overload
def unrolled(nest: Nest, short: str, pays: Effort) -> Nest | None: ...
def unrolled(nest: Nest, short: str, pays: Effort | None) -> Nest | None:
    """The nest with one store for each element of an axis; None from where it is no use, as each
    expression of it is asked, before all elements of short rows are written."""
    exprs: list[Expr] = []
    table: dict[tuple[object, ...], Expr] = {}
    stores: list[Store] = []
    n = nest.sizes[short]
    assert isinstance(n, int)
    for k in range(n):
        part = Piece(nest, short, Stretch.of(k, k + 1)).nest()
        made: dict[Expr, Expr] = {}
        for e in part.exprs:
            args = tuple(made[a] for a in e.args)
            exact = repr(e.attrs) if e.kind == "op" else ""  # 0.0 is not -0.0 (`ir.attr_key`)
            key = (e.kind, e.dtype, args, e.attrs, exact)
            if key not in table:
                if pays is not None and not pays(part, e):
                    return None
                table[key] = Expr(len(exprs), e.kind, e.dtype, args, e.attrs, e.axes, e.node)
                exprs.append(table[key])
            made[e] = table[key]
        stores += [s._replace(expr=made[s.expr]) for s in part.stores]
    outer = [a for a in nest.outer if a != short]
    return replace(
        nest, outer=outer, sizes={a: nest.sizes[a] for a in outer}, exprs=exprs, stores=stores,
    )
