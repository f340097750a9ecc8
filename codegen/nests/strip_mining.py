"""Axes cut in two where index arithmetic divides them, so that none is left to divide.

    for i0<n:  out0[i0] = in0[floordiv(i0, 3)] * 2    ->    for i0<n/3, i1<3:
                                                              out0[3*i0+i1] = in0[i0] * 2

Reshapes that merge axes become quotients and remainders of a loop axis (see `pull`), and so do
paddings between elements, as the gradients of slices with steps. A vector would compute these for
each of its elements, and gather. With an axis for the quotient and one for the remainder (strip-
mining) neighbours are plain steps in memory; short remainders are unrolled (`unrolling`). Of 512 x
512 f32, in us on Zen 4:

    each column twice 220 -> 33, tiled 2 x 2 430 -> 72, gradients of x[:, ::2] x[:, 1::2] 330 -> 47
    and of a rotary embedding of pairs side by side 990 -> 36

So are rows that are added up, unless they are short and unrolled. Of 64 rows of 1000, in us:

    sums of two parts tiled 86 -> 2.4, of four heads side by side 99 -> 2.5, deviations 200 -> 5.3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphc import dims
from graphc.codegen.nests import unrolled_rows
from graphc.codegen.nests.axes import (
    coefficient,
    expr_polynomials,
    polynomials,
    substitute,
    with_polynomials,
)
from graphc.codegen.nests.index_splitting import Piece, Stretch
from graphc.codegen.nests.loops import Expr, Nest, Preds, axis
from graphc.codegen.nests.ranges import divided, holds
from graphc.codegen.nests.unrolling import unroll
from graphc.codegen.nests.vector_axis import NEAR, is_less
from graphc.dims import Apply, Dim, Size

MOST = 6    # axes that are cut: there are no more in a reshape than it has dimensions
UNEVEN = 2  # times that a nest is cut where its strips are not of one length
LEAST = 8   # elements of strips along which rows are stored


def strips(nest: Nest, uneven: int = UNEVEN) -> list[Nest]:
    """The nests that together compute `nest` with axes cut until nothing divides them: one, or more
    where a strip at the end is shorter than others, of so many axes at most; itself where that
    cannot be."""
    if not any(x for p in polynomials(nest) for x in _divisions(p)):
        return [nest]
    if nest.reduced and (rows := _with_rows(nest)) is not None:
        return [rows]
    found = _strips(nest, reduced=False)
    if not _divides(found):
        return [found]
    if len(found.outer) > len(nest.outer) and (unrolled := unroll(found)) is not None:
        return [unrolled]
    if not uneven or nest.reduced or nest.sites or nest.totals:
        return [nest]
    for name, length in _dividing(nest, nest.outer):
        if _number(nest, name, length) is None and isinstance(length, int):
            size = nest.sizes[name]
            whole = dims.floordiv(size, length) * length
            part = Piece(nest, name, Stretch.of(0, whole)).nest()
            even = strips(part, uneven - 1)
            if even[0] is part:
                return [nest]
            return [*even, Piece(nest, name, Stretch.of(whole, size)).nest()]
    return [nest]


def _strips(nest: Nest, reduced: bool) -> Nest:
    """The nest with axes cut, those that are `reduced` as well, as long as strips are even."""
    found = _changed(nest, lambda p: divided(p, nest.sizes))
    for _ in range(MOST):
        axes = [*found.outer, *found.reduced] if reduced else found.outer
        at = next((x for x in _dividing(found, axes) if _number(found, *x) is not None), None)
        if at is None:
            break
        found = _cut(found, *at)
    return found


def _with_rows(nest: Nest) -> Nest | None:
    """The nest with its rows cut, too, if nothing divides these then, and vectors lie along strips
    or nothing is stored along rows; that follows from a row, not from how many there are."""
    if any(e.kind == "scan" or (e.kind == "reduce" and e.name == "argmax") for e in nest.exprs):
        return None
    if isinstance(nest.row, int) and nest.row <= unrolled_rows.MOST:
        return None
    found = _strips(nest, reduced=True)
    if _divides(found, found.reduced) or len(found.reduced) == len(nest.reduced):
        return None
    stored = [s.offset for s in found.stores if {*s.axes} & {*found.reduced}]
    loads = [e.offset for e in found.exprs if e.kind == "load"]
    along = any(
        not is_less(found.sizes[n], LEAST) and all(coefficient(p, n) == 1 for p in stored)
        and all(coefficient(p, n) in range(NEAR + 1) for p in loads)
        for n in found.reduced
    )
    return found if along or not stored else None


def _divides(nest: Nest, axes: Sequence[str] = ()) -> bool:
    """Whether quotients or remainders of axes, outer ones unless given, are left in indices."""
    axes = axes or nest.outer
    return any(a in dims.names(x.a) for p in polynomials(nest) for x in _divisions(p) for a in axes)


def _dividing(nest: Nest, axes: Sequence[str]) -> Iterator[tuple[str, Size]]:
    """The axes, of these, that something divides, and the lengths of strips for it."""
    for p in polynomials(nest):
        for x in _divisions(p):
            for a in axes:
                length = _length(x, a)
                if length is not None and _number(nest, a, length) != 1:
                    yield a, length


def _number(nest: Nest, name: str, length: Size) -> Size | None:
    """How many strips of a length an axis has; None if that is not whole for certain."""
    return dims.exact_div(nest.sizes[name], length)


def _length(x: Apply, name: str) -> Size | None:
    """How many elements of an axis one divisor is; None if the axis is not divided by more."""
    by = coefficient(x.a, name)
    if isinstance(by, int):
        by = abs(by)
    if by is None or by == 0 or not dims.is_nonnegative(by):
        return None
    length = dims.exact_div(x.b, by)
    return None if length is None or length == 1 or not dims.is_nonnegative(length) else length


def _divisions(p: Size) -> Iterator[Apply]:
    """Every quotient and remainder in a polynomial, the inner ones first."""
    if isinstance(p, Dim):
        for m, _ in p.terms:
            for a in m:
                if isinstance(a, Apply):
                    yield from _divisions(a.a)
                    if a.fn in ("floordiv", "mod"):
                        yield a


def _cut(nest: Nest, name: str, length: Size) -> Nest:
    """The nest with an axis of strips in the place of an axis, and one inside of each strip."""
    within = f"%i{1 + max(int(a[2:]) for a in nest.sizes)}"
    number = _number(nest, name, length)
    assert number is not None
    sizes = nest.sizes | {name: number, within: length}
    env = {name: axis(name) * length + axis(within)}

    def both(axes: Iterable[str]) -> Iterator[str]:
        for a in axes:
            yield from (a, within) if a == name else (a,)

    def attrs(e: Expr) -> tuple[Any, ...]:
        return (e.name, tuple(both(e.over))) if e.kind == "reduce" else e.attrs

    wider = replace(
        nest, outer=[*both(nest.outer)], reduced=[*both(nest.reduced)], sizes=sizes,
        exprs=[
            Expr(e.id, e.kind, e.dtype, e.args, attrs(e), frozenset(both(e.axes)), e.node)
            for e in nest.exprs
        ],
        stores=[s._replace(axes=tuple(both(s.axes))) for s in nest.stores],
    )
    return _changed(wider, lambda p: divided(substitute(p, env), sizes))


def _changed(nest: Nest, change: Callable[[Size], Size]) -> Nest:
    """The nest with its index polynomials changed, without the conditions that always hold."""
    made: list[Expr] = []
    for e in nest.exprs:
        kind, attrs = _still_open(e.kind, with_polynomials(e, change), nest.sizes)
        args = tuple(made[a.id] for a in e.args)
        new = Expr(e.id, kind, e.dtype, args, attrs, e.axes, e.node)
        if kind not in ("reduce", "scan"):  # of two axes that were one, it may depend on one
            free = {n for p in expr_polynomials(new) for n in dims.names(p)}
            new.axes &= free.union(*(a.axes for a in args))
        made.append(new)
    stores = [s._replace(offset=change(s.offset), expr=made[s.expr.id]) for s in nest.stores]
    return replace(nest, exprs=made, stores=stores)


def _still_open(
    kind: str, attrs: tuple[Any, ...], sizes: dict[str, Size]
) -> tuple[str, tuple[Any, ...]]:
    """An expression without the conditions that always hold."""

    def open_ones(given: Preds) -> Preds:
        return tuple(p for p in given if not holds(p, sizes))

    if kind == "load":
        return kind, (*attrs[:2], open_ones(attrs[2]))
    if kind == "inside":
        left = open_ones(attrs)
        return ("inside", left) if left else ("const", (np.array(True).tobytes(),))
    return kind, attrs
