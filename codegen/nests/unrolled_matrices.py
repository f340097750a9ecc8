"""Small matrices unrolled, sums and all: every element of a matrix is a vector of matrices.

    for i0<n, i1<2, i2<2:                                for i0<n:
      e0 = in0[4*i0+2*i1] * in1[4*i0+i2]            ->     e2 = in0[4*i0] * in1[4*i0] + ..
      e1 = in0[4*i0+2*i1+1] * in1[4*i0+i2+2]               out0[4*i0] = e2;  out0[4*i0+1] = e3;  ..
      out0[4*i0+2*i1+i2] = e0 + e1

A vector of one row would hold few elements, and begin with numbers of that row alone. Here a vector
has an element of many matrices, which lie behind each other: shuffles bring them into registers and
out (`emission.interleaving`). 5,000 matrices of f32 take Zen 5 so many us as they are and unrolled:

                                         2 x 2       3 x 3       4 x 4       6 x 6
    products A B                        9.8  1.6     13   6.2     20    10
    A + A'                              9.8  1.3                              80    16
    sums of A x along rows              3.3  0.9    9.7   2.8     11   3.6    30    10
    outer products of vectors           3.6  1.1    9.3   2.6    7.1   3.8    22    10
    columns of length one                11  1.9     14   5.7     17   8.9
    softmax of rows of A x               71  5.2    127    12    154    18

Of f64 products take 9.7 and 2.8, 15 and 11, 21 and 20, such softmax 84 and 10, 186 and 26, 220 and
43. To compile one takes 15 to 50 ms in the place of 10.

A call with few matrices is faster as they are: the kernel chooses when it runs.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.aligned import LINE
from graphc.codegen.emission import interleaving
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coalesce, coefficient, step
from graphc.codegen.nests.costs import cost_of
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.schedule import plan
from graphc.codegen.nests.unrolled_rows import UnrolledRows
from graphc.codegen.nests.unrolling import elements_of, is_short, unrolled
from graphc.codegen.nests.writing_out import OPS, written_out
from graphc.types import bool_, f32, f64, i64

MOST, FEW = 64, 16  # elements of a matrix; where text must not grow
MOST_ROW = 16       # elements that are added up
MOST_COST = 400     # cycles of the unrolled nest, shuffles apart
LEAST = 16          # matrices: whole vectors on every target
# What a row costs that is walked by itself, in expressions, before any is computed; what each of
# its sums does behind it; and a vector that is read across rows, elements of which are lines apart.
ROW, FOLD, ACROSS = 3, 8, 32
SQUARE = 5          # shuffles of a register, at most
GAIN = 2            # times that the unrolled nest must cost less


def unrolled_matrices(nest: Nest, target: Target, sparing: bool) -> UnrolledRows | None:
    """The nest with all axes but one unrolled, where what is read and written are whole matrices
    and it gains; `sparing`: in a program of many kernels, whose text must not grow."""
    if nest.sites or not any(is_short(nest, name) for name in nest.outer):
        return None
    nest = coalesce(nest)
    long, most = _matrices(nest), FEW if sparing else MOST
    short = [a for a in nest.outer if a != long]
    if long is None or not short or not all(is_short(nest, a) for a in short):
        return None
    if len(nest.exprs) > MOST_COST or not all(_can_be(nest, e) for e in nest.exprs):
        return None
    whole = _without_sums(nest, target) if nest.reduced else nest
    if whole is None or (stores := elements_of(nest, short) * len(whole.stores)) > most:
        return None
    for a in reversed(short[1:]):
        whole = unrolled(whole, a, None)
    found = unrolled(whole, short[0], _Effort(nest, long, stores).add)
    if found is None or interleaving.axis(found := coalesce(found)) != long:
        return None
    if not interleaving.reads_rows(found, long):
        return None
    return UnrolledRows(replace(found, overlaps=True), nest.sizes[long], LEAST)


def _matrices(nest: Nest) -> str | None:
    """The axis that numbers the matrices, of which there are enough."""
    steps = {
        a: by for a in nest.outer if isinstance(by := coefficient(nest.stores[0].offset, a), int)
    }
    long = max(steps, key=steps.__getitem__, default=None)
    if long is None or len(steps) < len(nest.outer):
        return None
    size = nest.sizes[long]
    return None if isinstance(size, int) and size < LEAST else long


def _can_be(nest: Nest, e: Expr) -> bool:
    """Whether an expression can be written for every element."""
    if e.kind == "reduce":
        return {*e.over} == {*nest.reduced} and e.name in OPS and e.dtype in (f32, f64)
    if e.kind == "load" and (e.preds or nest.dynamic(e.offset)):
        return False
    return e.kind in ("load", "const", "op", "index") and e.dtype in (f32, f64, i64, bool_)


def _without_sums(nest: Nest, target: Target) -> Nest | None:
    """The nest with what is added up written out, in the order of the nest as it is."""
    row = nest.row
    if not isinstance(row, int) or not 2 <= row <= MOST_ROW or len(nest.reduced) != 1:
        return None
    s = plan(nest, target)
    nest = written_out(nest, nest.reduced[0], in_halves=s.across or bool(s.tree))
    return replace(nest, reduced=[])


class _Effort:
    """What the unrolled nest costs for a vector of matrices, as far as it is written, and what
    these cost as they are."""

    def __init__(self, nest: Nest, long: str, stores: int):
        self.long, self.computed = long, 0
        self.cost = _shuffles(stores) * stores
        lanes = LINE // max(s.expr.dtype.itemsize for s in nest.stores)
        short = [a for a in (*nest.outer, *nest.reduced) if a != long]
        inner = max(short, key=lambda a: sum(
            coefficient(e.offset, a) == 1 for e in nest.exprs if e.kind == "load"
        ))
        row = elements_of(nest, [inner])
        rows = lanes * (elements_of(nest, short) // row)
        self.most = rows * _cost(nest, inner, long) if row < lanes else 0

    def add(self, nest: Nest, e: Expr) -> bool:
        """Whether it is still worth while with this expression of the nest."""
        by = step(nest, e.offset, self.long) if e.kind == "load" else 1
        if not isinstance(by, int) or not -1 <= by <= MOST:
            return False
        self.computed += cost_of(e)
        self.cost += 1 + _shuffles(by)
        return self.computed <= MOST_COST and GAIN * self.cost <= self.most


def _shuffles(n: int) -> int:
    """For each register of rows of n elements, which are turned by squares if they are long."""
    return min(n.bit_length(), SQUARE) if n > 1 else 0


def _cost(nest: Nest, short: str, long: str) -> int:
    """Of a vector along a short axis; 0 where that reads rows alone, as they lie."""
    whole = interleaving.whole_rows(nest, short)
    along = short in nest.reduced  # else what is not added up comes once for all of a sum
    each = [e for e in nest.exprs if along or not nest.reduced or e.axes & {*nest.reduced}]
    total, rows_alone = len(each) + ROW, True
    for e in nest.exprs:
        if e.kind == "reduce" and along:
            total += FOLD
        if e.kind != "load":
            continue
        by = coefficient(e.offset, short)
        if by == 0:
            rows_alone &= coefficient(e.offset, long) in (0, 1)
        elif by not in (-1, 1):
            rows_alone = False
            total += len(whole[e]).bit_length() if e in whole else ACROSS
    return 0 if rows_alone and not nest.reduced else total
