"""Axes of loop nests: polynomials in them, and which are walked as one.

    x[c*i + j], 0 <= j < c      ->      x[k], 0 <= k < c*n

A condition on i alone is one on k, too, lo <= i < hi being c*lo <= k < c*hi. Sums over rows that
are put together are walked so, since they go from bound to bound (`emission.between`): squares of
20,000 x 8 f32 above their doubles and products take Zen 5 20 us in the place of 190.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from graphc import dims
from graphc.codegen.nests.loops import Expr, Nest, Pred, Store, axis
from graphc.dims import Apply, Dim, Size

LONG = 128  # elements of a row that conditions on rows cost little


def polynomials(nest: Nest) -> list[Size]:
    """Every polynomial in a nest, each once."""
    seen: dict[Size, None] = {}
    for e in nest.exprs:
        for p in expr_polynomials(e):
            seen.setdefault(p)
    for s in nest.stores:
        seen.setdefault(s.offset)
    return list(seen)


def expr_polynomials(e: Expr) -> list[Size]:
    """The index polynomials in one expression."""
    if e.kind == "load":
        return [e.offset, *_of_preds(e.preds)]
    if e.kind == "index":
        return [e.attrs[0]]
    if e.kind == "inside":
        return _of_preds(e.attrs)
    if e.kind == "position":
        return [e.attrs[0], *_of_preds(e.attrs[2])]
    return []


def needs(nest: Nest, e: Expr) -> list[Expr]:
    """What one expression is computed from: its operands, and positions in its polynomials."""
    return [*e.args, *(d for p in expr_polynomials(e) for d in nest.dynamic(p))]


def _of_preds(preds: Iterable[Pred]) -> list[Size]:
    return [size for p in preds for size in p.sizes]


def coefficient(p: Size, name: str) -> Size | None:
    """The factor of axis `name` in p; None where p is not linear in it."""
    total: Size = 0
    if not isinstance(p, Dim):
        return total
    for mono, c in p.terms:
        times = 0
        rest: list[str | Apply] = []
        for a in mono:
            if a == name:
                times += 1
            elif isinstance(a, Apply) and (name in dims.names(a.a) or name in dims.names(a.b)):
                return None
            else:
                rest.append(a)
        if times > 1:
            return None
        if times:
            total = total + Dim(((tuple(rest), c),)) if rest else total + c
    return total


def step(nest: Nest, offset: Size, name: str) -> Size | None:
    """Elements from one index of axis `name` to the next; None where they differ.

    That is the coefficient, unless a position that data give depends on the axis as well.
    """
    if any(name in e.axes for e in nest.dynamic(offset)):
        return None
    return coefficient(offset, name)


def coalesce(nest: Nest, groups: Sequence[Sequence[str]] | None = None) -> Nest:
    """Merge axes that are walked as one: a*n + b with b < n becomes one axis of n times a's size.

    Only axes of one group are merged: by default the outer ones and the reduced ones.
    """
    every = groups is None
    groups = [nest.outer, nest.reduced] if groups is None else groups
    while True:
        polys = polynomials(nest)
        pair = next(
            (
                (a, b)
                for group in groups
                for a in group
                for b in group
                if a != b and a in nest.sizes and b in nest.sizes and _mergeable(nest, polys, a, b)
            ),
            None,
        )
        if pair is not None:
            nest = _merge(nest, *pair)
        elif every and (scaled := _scaled(nest)) is not None:
            nest = scaled
        else:
            return nest


def _scaled(nest: Nest) -> Nest | None:
    """A sum over rows and elements whose conditions are on rows, walked as one axis: where rows are
    short, or bounds are certain to lie on it, so that vectors between them have no conditions."""
    if nest.outer or len(nest.reduced) != 2:
        return None
    a, b = nest.reduced
    size = nest.sizes[b]
    short = isinstance(size, int) and size < LONG
    certain = True

    def scaled(p: Pred) -> Pred:
        nonlocal certain
        if coefficient(p.index, a) != 1 or any({a, b} & {*dims.names(x)} for x in (p.lo, p.hi)):
            return p
        rest = p.index - axis(a)
        for bound in (p.lo - rest, p.hi - rest, nest.sizes[a] - p.lo + rest,
                      nest.sizes[a] - p.hi + rest):
            certain = certain and dims.is_nonnegative(bound * size)
        return Pred(p.index * size + axis(b), p.lo * size, p.hi * size)

    exprs: list[Expr] = []
    for e in nest.exprs:
        attrs, axes = e.attrs, e.axes
        if e.kind == "load":
            attrs = (e.param, e.offset, tuple(map(scaled, e.preds)))
        elif e.kind == "inside":
            attrs = tuple(map(scaled, e.attrs))
        args = tuple(exprs[x.id] for x in e.args)
        if a in axes:
            axes |= {b}
        exprs.append(Expr(e.id, e.kind, e.dtype, args, attrs, axes, e.node))
    if not (short or certain):
        return None
    stores = [s._replace(expr=exprs[s.expr.id]) for s in nest.stores]
    found = replace(nest, exprs=exprs, stores=stores)
    return _merge(found, a, b) if _mergeable(found, polynomials(found), a, b) else None


def _mergeable(nest: Nest, polys: list[Size], a: str, b: str) -> bool:
    """Whether axes a and b are walked as one everywhere, a outside of b."""
    for s in nest.stores:
        if (a in s.axes) != (b in s.axes):
            return False
    for e in nest.exprs:
        if e.kind in ("reduce", "scan"):
            over = e.over if e.kind == "reduce" else ()
            if (a in over) != (b in over) or e.name == "argmax" or e.kind == "scan":
                return False
        if (a in e.axes) != (b in e.axes):
            return False
    size = nest.sizes[b]
    for p in polys:
        ca, cb = coefficient(p, a), coefficient(p, b)
        if ca is None or cb is None or ca != cb * size:
            return False
    return True


def _merge(nest: Nest, a: str, b: str) -> Nest:
    """The nest with axis a taken into b."""
    sizes = {n: s for n, s in nest.sizes.items() if n != a}
    sizes[b] = nest.sizes[a] * nest.sizes[b]
    exprs: list[Expr] = []
    for e in nest.exprs:
        args = tuple(exprs[x.id] for x in e.args)
        exprs.append(Expr(e.id, e.kind, e.dtype, args, _without(e, a), e.axes - {a}, e.node))
    stores = [
        Store(s.output, substitute(s.offset, {a: 0}), exprs[s.expr.id], _others(s.axes, a))
        for s in nest.stores
    ]
    return replace(
        nest, outer=[*_others(nest.outer, a)], reduced=[*_others(nest.reduced, a)], sizes=sizes,
        exprs=exprs, stores=stores,
    )


def _without(e: Expr, a: str) -> tuple[Any, ...]:
    """An expression's attributes where axis a is 0."""
    if e.kind == "reduce":
        return e.attrs[0], _others(e.attrs[1], a)
    return with_polynomials(e, lambda p: substitute(p, {a: 0}))


def with_polynomials(e: Expr, change: Callable[[Size], Size]) -> tuple[Any, ...]:
    """An expression's attributes with each of its index polynomials changed."""

    def preds(given: Iterable[Pred]) -> tuple[Pred, ...]:
        return tuple(Pred(*map(change, p.sizes)) for p in given)

    attrs = e.attrs
    if e.kind == "load":
        return attrs[0], change(attrs[1]), preds(attrs[2])
    if e.kind == "index":
        return (change(attrs[0]),)
    if e.kind == "inside":
        return preds(attrs)
    if e.kind == "position":
        return change(attrs[0]), attrs[1], preds(attrs[2]), attrs[3]
    return attrs


def _others(axes: Iterable[str], a: str) -> tuple[str, ...]:
    return tuple(n for n in axes if n != a)


def substitute(p: Size, env: dict[str, Size]) -> Size:
    """dims.substitute that also keeps axis atoms it is not given."""
    missing = {n: axis(n) for n in dims.names(p) if n not in env}
    return dims.substitute(p, {**missing, **env})
