"""Rules for bools and bits, comparisons and select.

There is no `greater`: it is written less(y, x). Comparisons with NaN are false, so x == x and
x <= x are known for integers and bools only, but x < x is false for all.
"""

from __future__ import annotations

from graphc.passes.patterns import (
    B,
    C,
    D,
    I,
    K,
    Rule,
    X,
    Y,
    exact,
    heads,
    not_floats,
    rule,
    unsigned,
    var,
)
from graphc.passes.rules_arithmetic import left_alone

and_, or_, xor, not_, select = heads("and or xor not select")
equal, less, less_equal, cast, is_finite = heads("equal less less_equal cast is_finite")

N = var("n", not_floats)
NY = var("m", not_floats)
U = var("u", unsigned)
E = var("e")


# fmt: off
RULES: tuple[Rule, ...] = (
    # constants go right
    rule("c & x == x & c", and_(C, X) >> and_(X, C), exact, where=left_alone),
    rule("c | x == x | c", or_(C, X) >> or_(X, C), exact, where=left_alone),
    rule("c ^ x == x ^ c", xor(C, X) >> xor(X, C), exact, where=left_alone),
    rule("(c == x) == (x == c)", equal(C, X) >> equal(X, C), exact, where=left_alone),

    # bools and bits
    rule("not not x == x", not_(not_(X)) >> X, exact),
    rule("x & x == x", and_(X, X) >> X, exact),
    rule("x | x == x", or_(X, X) >> X, exact),
    rule("x ^ x == 0", xor(I, I) >> 0, exact),
    rule("b ^ b == false", xor(B, B) >> False, exact),
    rule("b & true == b", and_(B, True) >> B, exact),
    rule("b & false == false", and_(B, False) >> False, exact),
    rule("b | false == b", or_(B, False) >> B, exact),
    rule("b | true == true", or_(B, True) >> True, exact),
    rule("b ^ false == b", xor(B, False) >> B, exact),
    rule("b ^ true == not b", xor(B, True) >> not_(B), exact),
    rule("i & 0 == 0", and_(I, 0) >> 0, exact),
    rule("i & -1 == i", and_(I, -1) >> I, exact),
    rule("i | 0 == i", or_(I, 0) >> I, exact),
    rule("i | -1 == -1", or_(I, -1) >> -1, exact),
    rule("i ^ 0 == i", xor(I, 0) >> I, exact),
    rule("i ^ -1 == not i", xor(I, -1) >> not_(I), exact),
    rule("(x & c) & k == x & (c & k)", and_(and_(X, C), K) >> and_(X, and_(C, K)), exact),
    rule("(x | c) | k == x | (c | k)", or_(or_(X, C), K) >> or_(X, or_(C, K)), exact),
    rule("(x ^ c) ^ k == x ^ (c ^ k)", xor(xor(X, C), K) >> xor(X, xor(C, K)), exact),

    # comparisons
    rule("(n == n) == true", equal(N, N) >> True, exact),
    rule("(x < x) == false", less(X, X) >> False, exact),
    rule("(n <= n) == true", less_equal(N, N) >> True, exact),
    rule("(u < 0) == false", less(U, 0) >> False, exact),
    rule("(0 <= u) == true", less_equal(0, U) >> True, exact),
    rule("not (n < m) == (m <= n)", not_(less(N, NY)) >> less_equal(NY, N), exact),
    rule("not (n <= m) == (m < n)", not_(less_equal(N, NY)) >> less(NY, N), exact),
    rule("(b == true) == b", equal(B, True) >> B, exact),
    rule("(b == false) == not b", equal(B, False) >> not_(B), exact),
    rule("(not b == not d) == (b == d)", equal(not_(B), not_(D)) >> equal(B, D), exact),
    rule("is_finite(cast(i)) == true", is_finite(cast(I)) >> True, exact,
         where=lambda m: m.args[0].type.dtype.bits > 16),       # 70000 is infinite in f16

    # select
    rule("select(c, x, x) == x", select(B, X, X) >> X, exact),
    rule("select(true, x, y) == x", select(True, X, Y) >> X, exact),
    rule("select(false, x, y) == y", select(False, X, Y) >> Y, exact),
    rule("select(not c, x, y) == select(c, y, x)", select(not_(B), X, Y) >> select(B, Y, X), exact),
    rule("select(c, true, false) == c", select(B, True, False) >> B, exact),
    rule("select(c, false, true) == not c", select(B, False, True) >> not_(B), exact),
    rule("select(c, b, false) == c & b", select(B, D, False) >> and_(B, D), exact),
    rule("select(c, true, b) == c | b", select(B, True, D) >> or_(B, D), exact),
    rule("select(c, select(c, x, e), y) == select(c, x, y)",
         select(B, select(B, X, E), Y) >> select(B, X, Y), exact),
    rule("select(c, x, select(c, e, y)) == select(c, x, y)",
         select(B, X, select(B, E, Y)) >> select(B, X, Y), exact),
)
# fmt: on
