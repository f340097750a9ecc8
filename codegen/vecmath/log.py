"""log, log1p, log2, log10 on lanes, f32 and f64, whole range.

x = 2^e m with m in [3/4, 3/2) (Cody and Waite), and a polynomial of m - 1; in f64 sixteenths are
taken off by a table first (Tang 1989). log within 1.1 ULP, the others within 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.codegen.elementwise.floats import INF, NAN, Floats, Operand, Pair
from graphc.codegen.elementwise.rare import outlined, unless
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.vecmath import coefficients as co
from graphc.codegen.vecmath.lookup import lookups


def _log_parts(F: Floats, e: str, m: str, low: str | None) -> str:
    """e ln 2 + log(m + low), m in [3/4, 3/2], low below its last digit.

    f64: log m = log(1 + r) - log c with r = m c - 1 and the c of a table: 1 around 1, so that r
    is exact there; elsewhere -log c has trailing zeros, so that e ln 2 - log c is exact.
    """
    hi, lo = F.pick(co.LN2_F32, co.LN2_F64)
    if not F.double:
        f = F.sub(m, 1.0)
        f2 = F.mul(f, f)
        r = F.mul(F.mul(f2, f), F.poly(f, co.LOG_F32))
        r = F.fma(e, lo, r)
        if low is not None:  # the last digit of 1 / m does not matter, nor do those before
            r = F.fma(low, F.fma(f, -0.8, 1.0), r)
        r = F.add(f, F.fma(f2, -0.5, r))
        return F.fma(e, hi, r)
    _, counted = F.nearest_16th(m)
    c, log_c = lookups(F, (co.LOG16_C, co.LOG16), counted)
    r = F.residue(m, c, 1.0)
    if low is not None:
        r = F.fma(low, c, r)
    q = F.fma(F.poly_wide(r, co.LOG16_F64), r, -0.5)
    y = F.fma(F.mul(r, r), q, F.fma(e, lo, r))
    return F.add(F.fma(e, hi, log_c), y)


def _log_specials(F: Floats, x: str, y: str) -> str:
    """log's values at 0, below 0, at infinity and NaN."""
    y = F.select(F.cmp("oeq", x, 0.0), -INF, y)
    y = F.select(F.cmp("olt", x, 0.0), NAN, y)
    return F.select(F.cmp("ueq", x, INF), x, y)  # ueq: infinity or NaN


def _at_any(F: Floats, name: str, x: str, log: Callable[[Floats, str, str], str]) -> str:
    """`log(algebra, e, m)` of x = 2^e m, with log's special values.

    AVX-512 takes all numbers apart; elsewhere that is quick for normal ones, and a function of
    the module looks after vectors that hold others.
    """
    if F.avx512:
        return log(F, *F.split_exponent(x))

    def of_others(L: Lanes, args: Sequence[str]) -> str:
        G, (v,) = Floats(L, F.t), args
        return _log_specials(G, v, log(G, *G.split_exponent(v)))

    return unless(F.L, _other(F, x), F.t, lambda: log(F, *F.split_exponent(x, normal=True)),
                  lambda: outlined(F.L, name, F.t, [x], of_others))


def _other(F: Floats, x: str) -> str:
    """Whether x is something else than a normal number above 0."""
    least, inf = 1 << F.mantissa, (2 * F.bias + 1) << F.mantissa
    return F.L.cmp("uge", F.i, F.ints("sub", F.to_bits(x), least), F.ki(inf - least))


def log(F: Floats, x: str) -> str:
    return _at_any(F, "log", x, lambda G, e, m: _log_parts(G, e, m, None))


def log1p(F: Floats, x: str) -> str:
    """Takes sums apart as `_at_any` does numbers; 1 + x is never subnormal."""

    def any_sum(G: Floats, v: str) -> str:
        y, u = log_of_sum(G, 1.0, v)
        return G.copysign(_log_specials(G, u, y), v)

    if F.avx512:
        return any_sum(F, x)
    u, c = F.fast_two_sum(1.0, x)
    return unless(
        F.L, _other(F, u), F.t,
        lambda: F.copysign(_log_of_exact(F, u, c, normal=True), x),
        lambda: outlined(F.L, "log1p", F.t, [x], lambda L, v: any_sum(Floats(L, F.t), *v)),
    )


def log_of_sum(F: Floats, a: Operand, b: str, low: str | None = None) -> Pair:
    """(log(a + b + low), u = a + b) for a of 0 or 1, b > -1, low below the last digit of b.

    As `_log_parts` at special values of u.
    """
    u, c = F.fast_two_sum(a, b)
    return _log_of_exact(F, u, c if low is None else F.add(c, low)), u


def _log_of_exact(F: Floats, u: str, c: str, normal: bool = False) -> str:
    """log(u + c), c what `log_of_sum` lost: e ln 2 + log(m + 2^-e c), u = 2^e m.

    u - 1 is exact, and so is u + c, but for u so large that c does not matter.
    """
    e, m = F.split_exponent(u, normal)
    # the bits of 2^-e, 0 for the largest u, where c does not matter
    down = F.ints("add", F.ints("sub", F.to_bits(m), F.to_bits(u)), F.bias << F.mantissa)
    down = F.L.intrinsic("smax", F.i, down, F.ki(0))
    return _log_parts(F, e, m, F.mul(c, F.from_bits(down)))


def log2(F: Floats, x: str) -> str:
    """Exact at powers of 2."""
    tables = (co.LOG2_C, co.LOG2_16, co.LOG2_F64)
    return _at_any(F, "log2", x, lambda G, e, m: _log_to_base(
        G, e, m, (1.0, 0.0), co.LOG2_F32, tables))


def log10(F: Floats, x: str) -> str:
    parts = F.pick(co.LOG10_2_F32, co.LOG10_2_F64)
    tables = (co.LOG10_C, co.LOG10_16, co.LOG10_F64)
    return _at_any(F, "log10", x, lambda G, e, m: _log_to_base(
        G, e, m, parts, co.LOG10_F32, tables))


def _log_to_base(
    F: Floats, e: str, m: str, parts: Sequence[float], single: Sequence[float],
    double: tuple[Sequence[float], ...],
) -> str:
    """e log_b 2 + log_b m, log_b (1 + f) = f P(f); `parts`: log_b 2 as a sum.

    f64 takes log_b c off by tables as `_log_parts` does: e log_b 2 - log_b c is exact but for the
    second of `parts`.
    """
    hi, lo = parts
    if F.double:
        table, logs, series = double
        _, counted = F.nearest_16th(m)
        c, whole = lookups(F, (table, logs), counted)
        f = F.residue(m, c, 1.0)
        whole = F.add(e, whole) if hi == 1 else F.fma(e, hi, whole)
        rest = F.mul(F.mul(f, f), F.poly_wide(f, series[1:]))
        return F.add(whole, F.fma(f, series[0], F.fma(e, lo, rest) if lo else rest))
    f = F.sub(m, 1.0)
    f2, p = F.mul(f, f), F.poly(f, single[1:])
    first = F.fma(f, single[0], e if hi == 1 else F.mul(e, hi))
    return F.add(first, F.fma(f2, p, F.mul(e, lo))) if lo else F.fma(f2, p, first)
