"""Symbolic dimensions: what is asked of sizes, which `polynomials` keeps in one normal form.

`size_text` reads what they print. Here are the greatest and the least of sizes, what can be proved
of them, and their values once the dimensions have some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import overload

from graphc.polynomials import (
    Apply,
    Atom,
    Dim,
    Monomial,
    Size,
    apply,
    atom,
    dim,
    exact_div,
    floordiv,
    from_terms,
    mod,
    names,
    product,
    terms_of,
)

__all__ = [
    "FUNCTIONS", "Apply", "Atom", "Dim", "Monomial", "Size", "atom", "ceildiv", "dim", "estimate",
    "evaluate", "exact_div", "floordiv", "is_nonnegative", "maximum", "minimum", "mod", "most",
    "names", "product", "round_up", "substitute", "total",
]


def ceildiv(a: Size, b: int) -> Size:
    """a / b rounded up."""
    return floordiv(a + (b - 1), b)


@overload
def round_up(a: int, to: int) -> int: ...
@overload
def round_up(a: Size, to: int) -> Size: ...
def round_up(a: Size, to: int) -> Size:
    """a rounded up to a multiple."""
    return ceildiv(a, to) * to


def maximum(a: Size, b: Size) -> Size:
    """The larger of two sizes; names count as >= 0."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    a, b = (_unnested(x) if y == 0 else x for x, y in ((a, b), (b, a)))
    if is_nonnegative(a - b):
        return a
    if is_nonnegative(b - a):
        return b
    return apply("max", *sorted((a, b), key=str))


def _unnested(x: Size) -> Size:
    """A size that is above 0 where x is, and x there: y - 1 for max(0, y) - 1. So x[1:][1:] has the
    size of x[2:]."""
    for m, _ in terms_of(x):
        if len(m) == 1 and isinstance(m[0], Apply) and m[0].fn == "max":
            rest, sides = x - atom(m[0]), (m[0].a, m[0].b)
            if 0 in sides and is_nonnegative(rest * -1):
                return _unnested(rest + sides[sides[0] == 0])
    return x


def minimum(a: Size, b: Size) -> Size:
    """The smaller of two sizes; names count as >= 0."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if is_nonnegative(a - b):
        return b
    if is_nonnegative(b - a):
        return a
    return apply("min", *sorted((a, b), key=str))


def is_nonnegative(x: Size, depth: int = 3) -> bool:
    """Whether x >= 0 is provable from names, coefficients and bounds of so many functions."""
    terms = terms_of(x)
    if all(c >= 0 and all(isinstance(a, str) or _atom_nonnegative(a) for a in m) for m, c in terms):
        return True
    if depth:
        for m, c in terms:
            if c < 0 and len(m) == 1 and isinstance(m[0], Apply):
                return any(
                    all(is_nonnegative(low, depth - 1) for low in case)
                    for case in _below(x - atom(m[0]) * c, c, m[0])
                )
    return False


def _below(rest: Size, c: int, a: Apply) -> list[list[Size]]:
    """What proves rest + c*a >= 0, for c < 0: all sizes of one of these lists being so."""
    if a.fn in ("max", "min"):
        sides = [rest + a.a * c, rest + a.b * c]
        return [sides] if a.fn == "max" else [sides[:1], sides[1:]]
    if a.fn == "mod":
        return [[rest + (a.b - 1) * c]] if _positive(a.b) else []
    return [[rest * a.b + a.a * c]] if isinstance(a.b, int) and a.b > 0 else []


def _positive(size: Size) -> bool:
    """Whether a divisor is a number above 0, or the larger of such a number and another size."""
    if isinstance(size, Dim) and len(size.terms) == 1:
        (((found, *others), c),) = size.terms
        return c > 0 and not others and isinstance(found, Apply) and found.fn == "max" and any(
            isinstance(n, int) and n > 0 for n in (found.a, found.b)
        )
    return isinstance(size, int) and size > 0


def _atom_nonnegative(a: Apply) -> bool:
    if a.fn == "mod":
        return _positive(a.b)
    if a.fn == "max":
        return is_nonnegative(a.a) or is_nonnegative(a.b)
    return is_nonnegative(a.a) and is_nonnegative(a.b)


def most(x: Size) -> int | None:
    """What x is at most, of a number or a minimum with a number."""
    if isinstance(x, int):
        return x
    (atoms, c), *others = x.terms
    a = atoms[0] if len(atoms) == 1 and c == 1 and not others else None
    sides = (a.a, a.b) if isinstance(a, Apply) and a.fn == "min" else ()
    return next((n for n in sides if isinstance(n, int)), None)


def total(sizes: Iterable[Size]) -> Size:
    """The sum of sizes."""
    return from_terms([t for s in sizes for t in terms_of(s)])


FUNCTIONS = {"floordiv": floordiv, "mod": mod, "max": maximum, "min": minimum}


def substitute(x: Size, env: Mapping[str, Size]) -> Size:
    """x with names replaced by sizes; an int when every name has one."""
    if isinstance(x, int):
        return x
    out: Size = 0
    for m, c in x.terms:
        term: Size = c
        for a in m:
            if isinstance(a, str):
                term = term * (env[a] if a in env else atom(a))
            else:
                term = term * FUNCTIONS[a.fn](substitute(a.a, env), substitute(a.b, env))
        out = out + term
    return out


def evaluate(x: Size, env: Mapping[str, int]) -> int:
    """The value of x for given dimensions; KeyError names a missing one."""
    out = substitute(x, env)
    if isinstance(out, Dim):
        missing = [n for n in names(out) if n not in env]
        raise KeyError(missing[0] if missing else str(out))
    return out


def estimate(x: Size, each: int) -> int:
    """The value of x where every dimension is `each`: for choices before a call gives them."""
    return evaluate(x, dict.fromkeys(names(x), each))
