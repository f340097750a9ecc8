"""The pattern language of rewrite rules.

A rule is one row under its equation, with the mark that says what it keeps:

    rule("x * 1 == x", mul(X, 1) >> X, exact)

Left of `>>` stands what is looked for, right of it what takes its place:

    X               a variable: any value; the same variable twice means the same value
    var("i", ints)  a variable that takes only values for which the predicate holds
    const("c")      a variable that takes only constants with a single number in every place
    1, 0.5, True    that number in every place: a constant, or a scalar constant broadcast.
                    Floats tell 0.0 from -0.0; a Python float matches float dtypes only
    mul(X, Y)       an op applied to patterns; `concat(...)` takes whatever operands there are
    perm=P          `P = attr("p")` captures an attribute; any other value must be equal
    once(mul(X, Y)) an op whose result has no other use
    lambda m: ...   right side only: computes the value (None: the rule does not apply), or an
                    attribute; `m[X]` is what X took, `m.type` the type of the whole

`where=lambda m: ...` on a rule is a condition on what the left side took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import UsageError
from graphc.ir import Value
from graphc.ops import OPS

if TYPE_CHECKING:
    from graphc.passes.rewrite import Match


class Mark(Enum):
    """What a rule keeps (README.md, "Marks")."""

    EXACT = "exact"        # every bit that is not a NaN payload, and NaN-ness
    STABLE = "stable"      # never less accurate; a closed, documented list
    FASTMATH = "fastmath"  # opt-in


exact, stable, fastmath = Mark.EXACT, Mark.STABLE, Mark.FASTMATH

Predicate = Callable[[Value], bool]
Number = bool | int | float


class Pattern:
    """Something that a value may match."""

    __slots__ = ()

    def __rshift__(self, right: Right) -> Pair:
        return Pair(self, right)


Right = Pattern | Number | Callable[["Match"], Value | None]


@dataclass(frozen=True, eq=False, slots=True)
class Var(Pattern):
    """Takes any value that the predicate accepts."""

    name: str
    accepts: Predicate | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Const(Var):
    """Takes a constant with one number in every place."""


@dataclass(frozen=True, eq=False, slots=True)
class Attr:
    """Captures an attribute."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Lit(Pattern):
    """One number in every place."""

    number: Number

    def holds(self, x: np.ndarray[Any, Any]) -> bool:
        """Whether the 0-d array x is this number (0.0 is not -0.0)."""
        n = self.number
        if x.dtype.kind == "b" or isinstance(n, bool):
            return isinstance(n, bool) and x.dtype.kind == "b" and bool(x) == n
        if x.dtype.kind in "iu":
            return isinstance(n, int) and int(x) == n
        f = float(x)
        return f == n and (f != 0 or bool(np.signbit(f)) == bool(np.signbit(n)))


@dataclass(frozen=True, eq=False, slots=True)
class Apply(Pattern):
    """An op applied to patterns; `args` None means any operands."""

    op: str
    args: tuple[Any, ...] | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    single_use: bool = False


class Head:
    """An op's name that makes patterns when called."""

    __slots__ = ("op",)

    def __init__(self, op: str):
        self.op = op

    def __call__(self, *args: Any, **attrs: Any) -> Apply:
        if args == (...,):
            return Apply(self.op, None, attrs)
        return Apply(self.op, tuple([_operand(a) for a in args]), attrs)


def _operand(a: Any) -> Any:
    return a if isinstance(a, Pattern) or callable(a) else Lit(a)


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """Two sides of a rule."""

    left: Pattern
    right: Right


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """A row of a rule table."""

    law: str
    left: Apply
    right: Right
    mark: Mark
    where: Callable[[Match], bool] | None = None
    outermost: bool = False  # of nodes within nodes like them, the outermost alone is tried

    def __repr__(self) -> str:
        return f"<{self.law}>"


def rule(
    law: str, pair: Pair, mark: Mark, where: Callable[[Match], bool] | None = None,
    outermost: bool = False,
) -> Rule:
    """A rule; `law` is its equation."""
    if not isinstance(pair, Pair):
        raise UsageError(f"rule {law!r}: takes two sides, `left >> right`, got {pair!r}")
    if not isinstance(pair.left, Apply):
        raise UsageError(f"rule {law!r}: the left side must be an op, got {pair.left!r}")
    right = Lit(pair.right) if isinstance(pair.right, (bool, int, float)) else pair.right
    known = set(_captured(pair.left))
    for part in _captured(right):
        if part not in known:
            raise UsageError(f"rule {law!r}: {part.name} stands on the right side only")
    return Rule(law, pair.left, right, mark, where, outermost)


def _captured(side: Any) -> list[Var | Attr]:
    """The variables and attributes of a side."""
    found: list[Var | Attr] = []
    stack = [side]
    while stack:
        p = stack.pop()
        if isinstance(p, (Var, Attr)):
            found.append(p)
        elif isinstance(p, Apply):
            stack += [*(p.args or ()), *p.attrs.values()]
    return found


def var(name: str, accepts: Predicate | None = None) -> Var:
    return Var(name, accepts)


def const(name: str, accepts: Predicate | None = None) -> Const:
    return Const(name, accepts)


def attr(name: str) -> Attr:
    return Attr(name)


def once(p: Apply) -> Apply:
    """p, if nothing else uses its result."""
    return Apply(p.op, p.args, p.attrs, single_use=True)


def heads(names: str) -> Sequence[Head]:
    """Pattern makers for the ops in a space-separated list."""
    return [Head(OPS[n].name) for n in names.split()]


def ints(v: Value) -> bool:
    return v.type.dtype.is_int


def floats(v: Value) -> bool:
    return v.type.dtype.is_float


def bools(v: Value) -> bool:
    return v.type.dtype.kind == "b"


def unsigned(v: Value) -> bool:
    return v.type.dtype.kind == "u"


def not_floats(v: Value) -> bool:
    return not v.type.dtype.is_float


X, Y, Z = var("x"), var("y"), var("z")
I, J = var("i", ints), var("j", ints)
F, G = var("f", floats), var("g", floats)
B, D = var("b", bools), var("d", bools)
C, K = const("c"), const("k")
