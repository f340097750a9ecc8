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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphc import dims
from graphc.codegen.nests.axes import coefficient, polynomials, substitute, with_polynomials
from graphc.codegen.nests.index_splitting import Piece, Stretch
from graphc.codegen.nests.loops import Expr, Nest, Preds, axis
from graphc.codegen.nests.ranges import divided, holds
from graphc.codegen.nests.unrolling import unroll
from graphc.dims import Apply, Dim, Size

MOST = 6    # axes that are cut: there are no more in a reshape than it has dimensions
UNEVEN = 2  # times that a nest is cut where its strips are not of one length


def strips(nest: Nest, uneven: int = UNEVEN) -> list[Nest]:
    """The nests that together compute `nest` with axes cut until nothing divides them: one, or more
    where a strip at the end is shorter than others, of so many axes at most; itself where that
    cannot be."""
    if not any(x for p in polynomials(nest) for x in _divisions(p)):
        return [nest]
    found = _changed(nest, lambda p: divided(p, nest.sizes))
    for _ in range(MOST):
        at = next((x for x in _dividing(found) if _number(found, *x) is not None), None)
        if at is None:
            break
        found = _cut(found, *at)
    if not _divides(found):
        return [found]
    if len(found.outer) > len(nest.outer) and (unrolled := unroll(found)) is not None:
        return [unrolled]
    if not uneven or nest.reduced or nest.sites:
        return [nest]
    for name, length in _dividing(nest):
        if _number(nest, name, length) is None and isinstance(length, int):
            size = nest.sizes[name]
            whole = dims.floordiv(size, length) * length
            part = Piece(nest, name, Stretch.of(0, whole)).nest()
            even = strips(part, uneven - 1)
            if even[0] is part:
                return [nest]
            return [*even, Piece(nest, name, Stretch.of(whole, size)).nest()]
    return [nest]


def _divides(nest: Nest) -> bool:
    """Whether quotients or remainders of outer axes are left in a nest's indices."""
    return any(
        a in dims.names(x.a) for p in polynomials(nest) for x in _divisions(p) for a in nest.outer
    )


def _dividing(nest: Nest) -> Iterator[tuple[str, Size]]:
    """The outer axes that something divides, and the lengths of strips for it."""
    for p in polynomials(nest):
        for x in _divisions(p):
            for a in nest.outer:
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

    wider = replace(
        nest, outer=[*both(nest.outer)], sizes=sizes,
        exprs=[
            Expr(e.id, e.kind, e.dtype, e.args, e.attrs, frozenset(both(e.axes)), e.node)
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
        axes = e.axes if kind == e.kind else frozenset[str]()
        made.append(Expr(e.id, kind, e.dtype, args, attrs, axes, e.node))
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
