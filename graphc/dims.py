"""Symbolic dimensions: integer expressions over names, kept in one normal form.

A `Size` is an `int` or a `Dim`. A `Dim` is a polynomial with integer coefficients whose atoms are
names (each standing for an integer >= 0) and applications of floordiv, mod, max and min.
`size_text` reads what they print.

Two sizes are provably equal exactly when `==` says so; constants are always plain ints, so an
operation on Dims may return an int.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar, cast, overload


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
        return _from_terms([*self.terms, *_terms(other)])

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
        return _from_terms(
            [(_merge(m, n), c * d) for m, c in self.terms for n, d in _terms(other)]
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


def _terms(x: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(x, Dim):
        return x.terms
    return (((), int(x)),) if x else ()


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Size:
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
        whole = _from_terms((m, c // b) for m, c in _terms(a) if c % b == 0)
        rest = _from_terms((m, c) for m, c in _terms(a) if c % b)
        if whole != 0:
            return whole + floordiv(rest, b)
    return _apply("floordiv", a, b)


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


def mod(a: Size, b: Size) -> Size:
    """a mod b, with the sign of b."""
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"the size {a} cannot be divided by 0")
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if exact_div(a, b) is not None:
        return 0
    if isinstance(b, int):
        reduced = _from_terms((m, c % b) for m, c in _terms(a))
        if isinstance(reduced, int):
            return reduced % b
        a = reduced
    return _apply("mod", a, b)


def maximum(a: Size, b: Size) -> Size:
    """The larger of two sizes; names count as >= 0."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if is_nonnegative(a - b):
        return a
    if is_nonnegative(b - a):
        return b
    return _apply("max", *sorted((a, b), key=str))


def minimum(a: Size, b: Size) -> Size:
    """The smaller of two sizes; names count as >= 0."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if is_nonnegative(a - b):
        return b
    if is_nonnegative(b - a):
        return a
    return _apply("min", *sorted((a, b), key=str))


def _apply(fn: str, a: Size, b: Size) -> Size:
    return atom(Apply(fn, a, b))


def is_nonnegative(x: Size, depth: int = 3) -> bool:
    """Whether x >= 0 is provable from names, coefficients and bounds of so many functions."""
    terms = _terms(x)
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


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 for none."""
    out: Size = 1
    for s in sizes:
        out = out * s
    return out


def total(sizes: Iterable[Size]) -> Size:
    """The sum of sizes."""
    return _from_terms([t for s in sizes for t in _terms(s)])


def exact_div(a: Size, b: Size) -> Size | None:
    """q with q * b == a as polynomials, or None (multivariate long division)."""
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    lead_m, lead_c = _terms(b)[0]
    quotient: Size = 0
    rest: Size = a
    while rest != 0:
        m, c = _terms(rest)[0]
        q = list(m)
        if c % lead_c:
            return None
        for atom in lead_m:
            if atom not in q:
                return None
            q.remove(atom)
        step = _from_terms([(tuple(q), c // lead_c)])
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
