"""pow with a known exponent: x^-1, x^4, x^1.5 and their like by products, roots and one quotient.

A logarithm and an exponential are what an arbitrary exponent takes. A small one, whole or a half
from it, takes a few products instead, each with the rest that its rounding left (`two_prod`), so
the result is off by little more than its own rounding. Vectors in which some element is zero,
negative under a root, infinite or so far from 1 that powers of it leave the normal range, take the
way of any exponent as well, for these elements. 2^16 elements in us on AVX-512, any way and this:

               f32         f64
    x^4      51   10    126   19
    x^1.5    51   23    133   81
    x^-1.5   51   38    132  135
    x^12     50   21    137   49
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.elementwise.floats import INF, Floats, Pair
from graphc.codegen.elementwise.rare import unless

MOST = 16       # the largest exponent: larger ones would leave few numbers in the normal range
RANGE = (120, 1000)  # the largest exponents of 2 in a result, f32 and f64


def power_to(F: Floats, x: str, y: float, anyhow: Callable[[], str]) -> str | None:
    """x^y for a known y; None where a logarithm is the way. anyhow: writes it for any x and y."""
    if y == -1:
        return F.div(1.0, x)
    if y in (-2, 4):  # 1.9 ULP
        square = F.div(1.0, x) if y == -2 else F.mul(x, x)
        return F.mul(square, square)
    if abs(y) == 0.5:
        # -0 counts as 0, -infinity as infinity
        root = F.sqrt(F.select(F.cmp("oeq", x, -INF), INF, F.add(x, 0.0)))
        return root if y > 0 else F.div(1.0, root)
    if not 1 < abs(y) <= MOST or not (2 * y).is_integer():
        return None
    size = x if (2 * y) % 2 else F.abs(x)
    far = 2.0 ** (RANGE[F.double] // abs(y))
    plain = F.both(F.cmp("ogt", size, 1 / far), F.cmp("olt", size, far))

    def usual() -> str:
        return _rounded(F, _power(F, x, abs(y)), y < 0)

    return unless(
        F.L, F.negate(plain), F.t, usual, lambda: F.select(plain, usual(), anyhow())
    )


def _power(F: Floats, x: str, y: float) -> Pair:
    """x^y as a sum of two floats, y > 1."""
    found: Pair | None = None
    if y % 1:
        root = F.sqrt(x)
        rest = F.fma(F.neg(root), root, x)  # sqrt(x) = root + rest / (2 root)
        p, low = F.two_prod(x, root)
        found = p, F.fma(F.mul(rest, 0.5), root, low)
        y -= 1.5
    n, factor = int(y), (x, "")
    while n:
        if n & 1:
            found = factor if found is None else _times(F, found, factor)
        n >>= 1
        if n:
            factor = _times(F, factor, factor)
    assert found is not None
    return found


def _times(F: Floats, a: Pair, b: Pair) -> Pair:
    """The product of two such sums, of which an empty low part is 0; the low one may overlap the
    high one by a few digits."""
    p, low = F.two_prod(a[0], b[0])
    for x, y in (a, b), (b, a):
        if y[1]:
            low = F.fma(x[0], y[1], low)
    return p, low


def _rounded(F: Floats, p: Pair, below: bool) -> str:
    """The sum as one float, or its reciprocal."""
    if not below:
        return F.add(*p)
    q = F.div(1.0, p[0])
    rest = F.fma(F.neg(p[1]), q, F.residue(F.neg(p[0]), q, -1.0))
    return F.fma(q, rest, q)
