"""Sizes as polynomials in one normal form, and the operators of Python on them.

A `Size` is an `int` or a `Dim`. A `Dim` is a polynomial with integer coefficients whose atoms are
names (each standing for an integer >= 0) and applications of floordiv, mod, max and min.

Two sizes are provably equal exactly when `==` says so; constants are always plain ints, so an
operation on Dims may return an int.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar, cast


class Apply(NamedTuple):
    """floordiv, mod, max or min of two sizes, as an atom of a polynomial."""

    fn: str
    a: Size
    b: Size

    def __str__(self) -> str:
        return f"{self.fn}({self.a}, {self.b})"


_AS_NUMBER = "which is whole; as a number in a formula, a size is gx.dim_value({}), a Tensor"
Atom: TypeAlias = "str | Apply"
Monomial: TypeAlias = tuple[Atom, ...]
_Operator = TypeVar("_Operator", bound=Callable[..., Any])


def _of_sizes(method: _Operator) -> _Operator:
    """An operator of sizes: a float is a TypeError, anything else (a Tensor) gets its own turn."""

    @functools.wraps(method)
    def operator(self: Dim, other: Any) -> Any:
        if not isinstance(other, (int, Dim, Integral)):
            if isinstance(other, float):
                raise TypeError(f"{self} and {other} make no size, {_AS_NUMBER.format(self)}")
            return NotImplemented
        return method(self, other)

    return cast(_Operator, operator)


class Dim:
    """An integer polynomial over dimension names; immutable, compared by value."""

    __slots__ = ("_hash", "_names", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        if type(terms) is not tuple:
            raise TypeError(
                f"Dim is the type of sizes; the one called {terms!r} is gx.dim({terms!r})"
            )
        self.terms = terms
        self._hash = hash(terms)
        self._text: str | None = None
        self._names: tuple[str, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self._text is None:
            ordered = sorted(self.terms, key=lambda t: t[1] < 0)  # n-1, and n-b rather than -b+n
            self._text = "+".join(_term_text(m, c) for m, c in ordered).replace("+-", "-")
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self})"

    @_of_sizes
    def __add__(self, other: Size) -> Size:
        if isinstance(other, int) and not other:
            return self
        return from_terms([*self.terms, *terms_of(other)])

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    @_of_sizes
    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    @_of_sizes
    def __rsub__(self, other: int) -> Size:
        return self * -1 + other

    @_of_sizes
    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):  # the terms stay in order
            if other in (0, 1):
                return self if other else 0
            return Dim(tuple([(m, c * other) for m, c in self.terms]))
        return from_terms(
            [(_merge(m, n), c * d) for m, c in self.terms for n, d in terms_of(other)]
        )

    __rmul__ = __mul__

    @_of_sizes
    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other)

    @_of_sizes
    def __rfloordiv__(self, other: int) -> Size:
        return floordiv(other, self)

    @_of_sizes
    def __truediv__(self, other: object) -> Size:
        if isinstance(other, (int, float, Dim)):
            raise TypeError(
                f"({self}) / {other} is no size, {_AS_NUMBER.format(self)}; else divide with //, "
                "and in the place of np.arange use gx.arange"
            )
        return NotImplemented

    @_of_sizes
    def __rtruediv__(self, other: object) -> Size:
        raise TypeError(f"{other} / ({self}) is no size, {_AS_NUMBER.format(self)}")

    @_of_sizes
    def __pow__(self, other: int) -> Size:
        if not isinstance(other, Integral) or other < 0:
            raise TypeError(f"({self}) ** {other} is no size; a power of one is an int from 0 on")
        return product([self] * int(other))

    @_of_sizes
    def __lt__(self, other: object) -> bool:
        raise TypeError(
            f"the symbolic dimension {self} is not compared with {other} while the graph is "
            f"declared; compare gx.dim_value({self}), a Tensor, in gx.where"
        )

    __le__ = __gt__ = __ge__ = __lt__

    @_of_sizes
    def __mod__(self, other: Size) -> Size:
        return mod(self, other)

    @_of_sizes
    def __rmod__(self, other: int) -> Size:
        return mod(other, self)

    def _no_number(self, *others: object) -> NoReturn:
        raise TypeError(
            f"NumPy's functions have no value for the size {self} while the graph is declared; "
            "graphc's take it (gx.sqrt, gx.log, ...) and make it a Tensor"
        )

    # NumPy looks for methods of its functions' names in what it does not know
    sqrt = exp = log = log2 = log10 = log1p = sin = cos = tanh = _no_number

    def __bool__(self) -> bool:
        raise TypeError(
            f"the symbolic dimension {self} has no truth value while the graph is declared; "
            "compare sizes with ==, or declare the condition with gx.where"
        )

    def __index__(self) -> int:
        raise TypeError(
            f"the symbolic dimension {self} has no integer value while the graph is declared; "
            "graphc's own functions take it (gx.zeros, gx.eye, gx.linspace, x.reshape, ...), and "
            "gx.dim_value(...) is a tensor that holds it at run time"
        )


Size: TypeAlias = "int | Dim"


def dim(name: str) -> Dim:
    """The dimension called `name`."""
    if not name.isidentifier():
        raise ValueError(f"a dimension name must be an identifier, got {name!r}")
    return atom(name)


def atom(a: Atom) -> Dim:
    """A size that is one name, or one function of sizes."""
    return Dim((((a,), 1),))


def _term_text(m: Monomial, c: int) -> str:
    if not m:
        return str(c)
    body = "*".join(str(a) for a in m)
    return body if c == 1 else f"-{body}" if c == -1 else f"{c}*{body}"


def _atom_key(a: Atom) -> tuple[int, str]:
    return (0, a) if isinstance(a, str) else (1, str(a))


def _term_key(t: tuple[Monomial, int]) -> tuple[int, int, list[tuple[int, str]]]:
    m = t[0]  # constants last, then by degree (high first) and name
    return (not m, -len(m), [_atom_key(a) for a in m])


def _merge(m: Monomial, n: Monomial) -> Monomial:
    return tuple(sorted(m + n, key=_atom_key)) if m and n else m or n


def terms_of(x: Size) -> tuple[tuple[Monomial, int], ...]:
    """Monomials and their coefficients; none for 0."""
    if isinstance(x, Dim):
        return x.terms
    return (((), int(x)),) if x else ()


def from_terms(terms: Iterable[tuple[Monomial, int]]) -> Size:
    """The sum of terms, like ones put together, in order."""
    acc: dict[Monomial, int] = {}
    for m, c in terms:
        acc[m] = acc.get(m, 0) + c
    out = [(m, c) for m, c in acc.items() if c]
    if len(out) > 1:
        out.sort(key=_term_key)
    if not out:
        return 0
    if len(out) == 1 and not out[0][0]:
        return out[0][1]
    return Dim(tuple(out))


def floordiv(a: Size, b: Size) -> Size:
    """a // b, dividing out what divides exactly."""
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"the size {a} cannot be divided by 0")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if (exact := exact_div(a, b)) is not None:
        return exact
    if isinstance(b, int):
        if b < 0:
            return floordiv(-a, -b)
        whole = from_terms((m, c // b) for m, c in terms_of(a) if c % b == 0)
        rest = from_terms((m, c) for m, c in terms_of(a) if c % b)
        if whole != 0:
            return whole + floordiv(rest, b)
    return apply("floordiv", a, b)


def mod(a: Size, b: Size) -> Size:
    """a mod b, with the sign of b."""
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"the size {a} cannot be divided by 0")
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if exact_div(a, b) is not None:
        return 0
    if isinstance(b, int):
        reduced = from_terms((m, c % b) for m, c in terms_of(a))
        if isinstance(reduced, int):
            return reduced % b
        a = reduced
    return apply("mod", a, b)


def apply(fn: str, a: Size, b: Size) -> Size:
    """A function of two sizes that nothing more is known of."""
    return atom(Apply(fn, a, b))


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 for none."""
    out: Size = 1
    for s in sizes:
        out = out * s
    return out


def exact_div(a: Size, b: Size) -> Size | None:
    """q with q * b == a as polynomials, or None (multivariate long division)."""
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    lead_m, lead_c = terms_of(b)[0]
    quotient: Size = 0
    rest: Size = a
    while rest != 0:
        m, c = terms_of(rest)[0]
        q = list(m)
        if c % lead_c:
            return None
        for atom in lead_m:
            if atom not in q:
                return None
            q.remove(atom)
        step = from_terms([(tuple(q), c // lead_c)])
        quotient, rest = quotient + step, rest - step * b
    return quotient


def names(x: Size) -> tuple[str, ...]:
    """The dimension names in x, in order of first appearance."""
    if not isinstance(x, Dim):
        return ()
    if x._names is not None:
        return x._names
    seen: dict[str, None] = {}
    stack: list[Size | Atom] = [x]
    while stack:
        e = stack.pop()
        if isinstance(e, str):
            seen.setdefault(e)
        elif isinstance(e, Apply):
            stack += [e.b, e.a]
        elif isinstance(e, Dim):
            stack += [a for m, _ in reversed(e.terms) for a in reversed(m)]
    x._names = tuple(seen)
    return x._names
