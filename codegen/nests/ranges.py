"""What index polynomials are at least and at most, and what follows for their divisions, and for
sizes that are cut off at 0.

    floordiv(4*i + j, 4) -> i        mod(4*i + j, 4) -> j        where j < 4
    n - max(0, n - 2)    -> 2                                    in a loop of max(0, n - 3) turns
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd

from graphc import dims
from graphc.codegen.nests.axes import substitute
from graphc.codegen.nests.loops import Expr, Nest, Pred
from graphc.dims import Apply, Atom, Dim, Size, atom, exact_div
from graphc.polynomials import from_terms, terms_of

Sizes = Mapping[str, Size]


def bounds(p: Size, sizes: Sizes) -> tuple[Size, Size] | None:
    """The least and the greatest value of a polynomial in axes of these sizes and in dimensions;
    None where data give a part of it, or an axis stands in other than plain terms."""
    low: Size = 0
    high: Size = 0
    for m, c in terms_of(p):
        axes = [a for a in m if isinstance(a, Apply) or a.startswith("%")]
        if len(axes) > 1:
            return None
        if not axes:
            low, high = low + from_terms([(m, c)]), high + from_terms([(m, c)])
            continue
        last = _last(axes[0], sizes)
        if last is None:
            return None
        by = from_terms([(tuple(a for a in m if a != axes[0]), c)])
        if c > 0:
            high = high + by * last
        else:
            low = low + by * last
    return low, high


def _last(a: Atom, sizes: Sizes) -> Size | None:
    """The greatest value of an axis, or of a remainder; both begin at 0."""
    if isinstance(a, str):
        return sizes[a] - 1 if a in sizes else None
    return a.b - 1 if a.fn == "mod" and isinstance(a.b, int) and a.b > 0 else None


def sides(p: Pred, sizes: Sizes) -> tuple[bool, bool]:
    """Whether what a condition asks for is never below its lower bound, and never beyond the upper
    one."""
    found = bounds(p.index, sizes)
    if found is None:
        return False, False
    return dims.is_nonnegative(found[0] - p.lo), dims.is_nonnegative(p.hi - 1 - found[1])


def holds(p: Pred, sizes: Sizes) -> bool | None:
    """Whether a condition always holds, or never; None where neither is certain."""
    found = bounds(p.index, sizes)
    if found is None:
        return None
    low, high = found
    if all(sides(p, sizes)):
        return True
    never = dims.is_nonnegative(p.lo - 1 - high) or dims.is_nonnegative(low - p.hi)
    return False if never else None


def divided(p: Size, sizes: Sizes) -> Size:
    """p with its quotients and remainders worked out as far as the axes' sizes allow."""
    if not isinstance(p, Dim) or not any(isinstance(a, Apply) for m, _ in p.terms for a in m):
        return p
    out: Size = 0
    for m, c in p.terms:
        term: Size = c
        for a in m:
            term = term * (atom(a) if isinstance(a, str) else _divided(a, sizes))
        out = out + term
    return out


def _divided(x: Apply, sizes: Sizes) -> Size:
    a, b = divided(x.a, sizes), divided(x.b, sizes)
    if x.fn not in ("floordiv", "mod"):
        return dims.FUNCTIONS[x.fn](a, b)
    whole: Size = 0  # of b
    rest: Size = 0
    for m, c in terms_of(a):
        term = from_terms([(m, c)])
        times = exact_div(term, b)
        whole, rest = (whole, rest + term) if times is None else (whole + times, rest)
    if _within(rest, b, sizes):
        return whole if x.fn == "floordiv" else rest
    for step in _steps(rest, b):
        near = from_terms((m, c) for m, c in terms_of(rest) if c % step)
        if _within(near, step, sizes):
            far = from_terms((m, c // step) for m, c in terms_of(rest) if c % step == 0)
            if x.fn == "floordiv":
                return whole + dims.floordiv(far, b // step)
            return step * dims.mod(far, b // step) + near
    return dims.FUNCTIONS[x.fn](a, b)


def _steps(rest: Size, b: Size) -> list[int]:
    """Divisors of b that some of the terms are multiples of, the largest first."""
    if not isinstance(b, int):
        return []
    return sorted({g for _, c in terms_of(rest) if 1 < (g := gcd(b, c)) < b}, reverse=True)


def _within(p: Size, b: Size, sizes: Sizes) -> bool:
    """Whether 0 <= p < b for certain."""
    return holds(Pred(p, 0, b), sizes) is True


def where_run(nest: Nest) -> Nest:
    """The nest with its loads at places as they are wherever its loops run: where these have a turn
    at least. Neighbours of named dimensions are no more than some elements apart only so: x[2:]
    begins at n - max(0, n - 2). Conditions stay, between whose bounds loops are cut: these must lie
    in them without a turn, too."""
    if not any(e.kind == "load" and _cut_off(e.offset) for e in nest.exprs):
        return nest
    exprs: list[Expr] = []
    for e in nest.exprs:
        least = _least(nest.sizes[n] for n in {*nest.outer, *e.axes})
        above = {n: atom(n) + k for n, k in least.items()}
        back = {n: atom(n) - k for n, k in least.items()}
        attrs = e.attrs
        if e.kind == "load" and _cut_off(e.offset):
            attrs = e.param, substitute(substitute(e.offset, above), back), e.preds
        args = tuple(exprs[x.id] for x in e.args)
        exprs.append(Expr(e.id, e.kind, e.dtype, args, attrs, e.axes, e.node))
    stores = [s._replace(expr=exprs[s.expr.id]) for s in nest.stores]
    return replace(nest, exprs=exprs, stores=stores)


def _cut_off(p: Size) -> bool:
    """Whether a size is, or has in it, one that would else be below or beyond another."""
    return any(
        isinstance(a, Apply) and (a.fn in ("max", "min") or _cut_off(a.a) or _cut_off(a.b))
        for m, _ in terms_of(p) for a in m
    )


def _least(sizes: Iterable[Size]) -> dict[str, int]:
    """What dimensions are at least where none of these sizes is 0."""
    found: dict[str, int] = {}
    for size in sizes:
        terms = terms_of(size)
        for p in map(_above_0, terms[0][0]) if len(terms) == 1 else (size,):
            for n in dims.names(p)[:1]:
                rest = p - atom(n)
                if isinstance(rest, int):
                    found[n] = max(found.get(n, 0), 1 - rest)
    return found


def _above_0(a: Atom) -> Size:
    """What is above 0 where an atom is."""
    if isinstance(a, Apply) and a.fn == "max" and 0 in (a.a, a.b):
        return a.b if a.a == 0 else a.a
    return atom(a)
