"""Short rows unrolled, sums and all: every element of a row is a vector of rows.

A register of one row has lanes that hold nothing and is folded for each of its sums, and what
follows of a sum is a scalar. Here all lanes are full, nothing is folded, and quotients and
logarithms of rows are vectors; shuffles bring rows into registers and out (`interleaving`). 65,536
elements take Zen 5 so many us as they are and unrolled:

    rows of                       f32  3       8      10      16    f64  3       8      16
    softmax                       46  15  50  14  51  17  29  15    74  37  52  30  45  31
    layer norm                    26   8  22   8  26  10  16   9    36  19  27  15  18  16
    log of the sum of exp         36  17  19  13  21  12  16  11    52  41  36  26  32  23
    root of the sum of squares   3.4 2.0 8.3 2.1 9.0 2.8 4.7 2.0   6.0 5.1  14 3.5 7.4 4.1
    less the greatest of them     22   3   9   5  12   7   7   5    25   8  10   9

By AVX2 softmax of f32 takes 81 and 38, 52 and 31, 75 and 34, 46 and 33. A call with few rows is
faster as they are: the kernel chooses when it runs. It compiles 10 to 25 ms longer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coalesce, coefficient
from graphc.codegen.nests.costs import COSTLY, VECTOR_COST, cost_of, is_long
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.schedule import plan
from graphc.codegen.nests.writing_out import OPS, adds_up, written_out
from graphc.dims import Size
from graphc.types import bool_, f32, f64, i64

MOST = 16          # elements of a row,
FEW = 4            # so few that registers of one row are nearly empty,
SLOW = 12          # and where a root follows a sum
MOST_EXPRS = 400   # of the unrolled nest
LEAST, LEAST_LIGHT = 16, 64  # rows: whole vectors on every target, and where little is computed


class UnrolledRows(NamedTuple):
    """A nest without its short axes, for `least` and more of `rows`: rows of one axis, or matrices
    (`unrolled_matrices`)."""

    nest: Nest
    rows: Size
    least: int


def unrolled_rows(nest: Nest, target: Target, sparing: bool) -> UnrolledRows | None:
    """The nest with its short reduced axis unrolled, where rows lie along that and it gains;
    `sparing`: in a program of many kernels, whose text must not grow."""
    n = nest.row
    if not isinstance(n, int) or not 2 <= n <= MOST or len((nest := coalesce(nest)).reduced) != 1:
        return None
    (k,) = nest.reduced
    exprs = sum(n if k in e.axes or adds_up(e, k) else 1 for e in nest.exprs)
    if exprs > MOST_EXPRS or not all(_can_be(nest, e, k) for e in nest.exprs):
        return None
    long = any(e.kind == "op" and is_long(e) for e in nest.exprs)
    # what is added up over rows depends on how these go, so not on the target
    total = any(e.kind == "reduce" and not adds_up(e, k) for e in nest.exprs)
    least = LEAST if long or _sums(nest) > 1 else LEAST_LIGHT
    rows = next((i for i in nest.outer if _follow(nest, i, k, n, least)), None)
    if rows is None:
        return None
    if not (long if total else not sparing and _gains(nest, k, n, target, long)):
        return None
    if not _met_in_halves(nest, target):
        return None
    unrolled = replace(written_out(nest, k), overlaps=not total)
    return UnrolledRows(unrolled, nest.sizes[rows], least)


def _met_in_halves(nest: Nest, target: Target) -> bool:
    """Whether elements of rows would meet in the order of lanes, not one after the other."""
    s = plan(nest, target)
    return s.across or bool(s.tree)


def _sums(nest: Nest) -> int:
    return sum(e.kind == "reduce" for e in nest.exprs)


def _can_be(nest: Nest, e: Expr, k: str) -> bool:
    """Whether an expression can be written for every element of a row, or for all rows."""
    if e.kind == "reduce":
        one = e.over == (k,) or (not e.axes and {*e.over} == {*nest.outer})
        return one and e.name in OPS and e.dtype in (f32, f64)
    if e.kind == "load" and (e.preds or (k in e.axes and nest.dynamic(e.offset))):
        return False
    known = e.kind in ("load", "const", "op", "index", "position")
    return known and e.dtype in (f32, f64, i64, bool_)


def _gains(nest: Nest, k: str, n: int, target: Target, long: bool) -> bool:
    """Whether shuffles take less than what they take the place of."""
    width = min(target.lanes(e.dtype) for e in nest.exprs if e.kind == "load")
    if long:
        return n <= 4 * width
    ends = (cost_of(e) for e in nest.exprs if e.kind == "op" and k not in e.axes)
    slow = sum(c for c in ends if c >= COSTLY) > VECTOR_COST["div"]
    several = _sums(nest) > 1
    if not any(k in s.axes for s in nest.stores):  # by two lanes a sum is folded in no time
        return slow or several or (width > 2 and n < 2 * width)
    return several or n <= (SLOW if slow else max(FEW, width))


def _follow(nest: Nest, i: str, k: str, n: int, least: int) -> bool:
    """Whether rows of n elements along k lie side by side along i, with all that goes with them."""
    size = nest.sizes[i]
    if isinstance(size, int) and size < least:
        return False

    def suits(offset: Size, stored: bool) -> bool:
        by_row, by_element = coefficient(offset, i), coefficient(offset, k)
        if by_row == n:
            return by_element == 1
        return by_row == 1 or (by_row == 0 and not stored)

    loads = [e for e in nest.exprs if e.kind == "load" and not nest.dynamic(e.offset)]
    return (
        any(coefficient(e.offset, i) == n for e in loads)
        and all(suits(e.offset, False) for e in loads)
        and all(suits(s.offset, True) for s in nest.stores if s.axes)
    )
