"""Integer ops on lanes: Python's division, shifts of any count, powers; none of them can trap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.lanes import BITS

if TYPE_CHECKING:
    from graphc.codegen.lanes import Lanes

MOST_DIVISOR = 1 << 50  # of 64 bits: what the first quotient leaves is less than 2**51


def divide(L: Lanes, t: str, signed: bool, a: str, b: str) -> tuple[str, str]:
    """Floor quotient and remainder with the divisor's sign.

    Lanes with b = 0 fail and give 0, 0. MIN / -1 gives MIN, 0. No lane, active or not, reaches
    the hardware with operands that trap.
    """
    known = L.integer(b)
    if known is not None and known not in (0, -1):
        return _by_constant(L, t, signed, a, known)
    zero, one = L.k(t, 0), L.k(t, 1)
    by_zero = L.cmp("eq", t, b, zero)
    L.fail_where(by_zero)
    if not signed:
        q, r = _truncated(L, t, False, a, L.select(by_zero, t, one, b))
        return L.select(by_zero, t, zero, q), L.select(by_zero, t, zero, r)
    by_minus_one = L.cmp("eq", t, b, L.k(t, -1))
    safe = L.select(L.op("or", "i1", by_zero, by_minus_one), t, one, b)
    q, r = _truncated(L, t, True, a, safe)
    q, r = _floored(L, t, q, r, safe)
    q = L.select(by_minus_one, t, L.op("sub", t, zero, a), q)
    return L.select(by_zero, t, zero, q), L.select(by_zero, t, zero, r)


def _floored(L: Lanes, t: str, q: str, r: str, b: str) -> tuple[str, str]:
    """A truncated quotient and its remainder, stepped down where the remainder is not 0 and its
    sign is not the divisor's."""
    zero = L.k(t, 0)
    differs = L.cmp("slt", t, L.op("xor", t, r, b), zero)
    down = L.op("and", "i1", differs, L.cmp("ne", t, r, zero))
    q = L.op("add", t, q, L.convert("sext", down, "i1", t))
    return q, L.op("add", t, r, L.select(down, t, b, zero))


def _by_constant(L: Lanes, t: str, signed: bool, a: str, n: int) -> tuple[str, str]:
    """`divide` by a number that is known, and neither 0 nor -1.

    floor(a / n) is floor((a + 1/2) / n), which is no nearer than 1/(2n) to an integer: rounding
    twice on the way leaves it between the same two where a has fewer bits than the float by three.
    Of 64 bits that is true of what the first quotient leaves.
    """
    bits = BITS[t]
    if not signed:
        n &= (1 << bits) - 1
    b = L.k(t, n)
    if n > 0 and n & (n - 1) == 0:
        shift = L.k(t, n.bit_length() - 1)
        return L.op("ashr" if signed else "lshr", t, a, shift), L.op("and", t, a, L.k(t, n - 1))

    def times(q: str) -> str:
        return L.op("sub", t, a, L.op("mul", t, q, b))

    if L.width > 1 and bits < 64:
        q = _floor(L, t, signed, a, n)
        return q, times(q)
    if L.width > 1 and L.target.masked and abs(n) < MOST_DIVISOR:  # AVX-512 converts 64 bits
        q = _floor(L, t, signed, a, n)
        q = L.op("add", t, q, _floor(L, t, True, times(q), n))
        return q, times(q)
    q = L.op("sdiv" if signed else "udiv", t, a, b)  # LLVM multiplies
    return _floored(L, t, q, times(q), b) if signed else (q, times(q))


def _floor(L: Lanes, t: str, signed: bool, a: str, n: int) -> str:
    """floor(a / n) by floats, where a has few enough bits; near it otherwise."""
    f = "float" if BITS[t] < 32 else "double"
    x = L.convert("sitofp" if signed else "uitofp", a, t, f)
    if n < 0:
        x = L.op("fneg", f, x)
    x = L.op("fmul", f, L.op("fadd", f, x, L.k(f, 0.5)), L.k(f, 1 / abs(n)))
    return L.convert("fptosi" if signed else "fptoui", L.intrinsic("floor", f, x), f, t)


def _truncated(L: Lanes, t: str, signed: bool, a: str, b: str) -> tuple[str, str]:
    """Quotient towards zero and its remainder; b is neither 0 nor (signed) -1.

    Vector units divide floats only. The rounded quotient of two n-bit integers, truncated, is
    exact in a float of more than n bits: its distance from the next integer is at least 1/b.
    """
    if L.width == 1 or BITS[t] == 64:
        q = L.op("sdiv" if signed else "udiv", t, a, b)
    else:
        f = "float" if BITS[t] < 32 else "double"
        to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        fq = L.op("fdiv", f, L.convert(to, a, t, f), L.convert(to, b, t, f))
        q = L.convert(back, fq, f, t)
    return q, L.op("sub", t, a, L.op("mul", t, q, b))


def shift_left(L: Lanes, t: str, a: str, n: str) -> str:
    """a << n; 0 where n, as an unsigned number, is the width or more."""
    return _logical(L, "shl", t, a, n)


def shift_right(L: Lanes, t: str, signed: bool, a: str, n: str) -> str:
    """a >> n, arithmetic if signed; a count of the width or more leaves 0 or the sign."""
    if not signed:
        return _logical(L, "lshr", t, a, n)
    last = L.k(t, BITS[t] - 1)
    return L.op("ashr", t, a, L.select(L.cmp("ult", t, n, last), t, n, last))


def _logical(L: Lanes, name: str, t: str, a: str, n: str) -> str:
    """A shift that brings in zeros; 0 where the count is the width or more."""
    inside = L.cmp("ult", t, n, L.k(t, BITS[t]))
    shifted = L.op(name, t, a, L.op("and", t, n, L.k(t, BITS[t] - 1)))
    return L.select(inside, t, shifted, L.k(t, 0))


def power(L: Lanes, t: str, signed: bool, a: str, n: str) -> str:
    """a ** n by squaring, wrapping; lanes with n < 0 fail and give 0. 0 ** 0 is 1.

    A loop that ends when no lane has exponent bits left.
    """
    e, v = L.e, L.vec(t)
    zero = L.k(t, 0)
    negative = L.cmp("slt", t, n, zero) if signed else None
    if negative is not None:
        L.fail_where(negative)
        n = L.select(negative, t, zero, n)
    before, loop, done = e.block, e.fresh("pow"), e.fresh("powered")
    e.do(f"br label %{loop}")
    e.label(loop)
    result, base, left = (f"%{e.fresh(h)}" for h in ("r", "b", "n"))
    nresult, nbase, nleft = (f"%{e.fresh(h)}" for h in ("r", "b", "n"))
    e.do(f"{result} = phi {v} [{L.k(t, 1)}, %{before}], [{nresult}, %{loop}]")
    e.do(f"{base} = phi {v} [{a}, %{before}], [{nbase}, %{loop}]")
    e.do(f"{left} = phi {v} [{n}, %{before}], [{nleft}, %{loop}]")
    odd = L.convert("trunc", left, t, "i1")
    product = L.op("mul", t, result, base)
    e.do(f"{nresult} = select {L.vec('i1')} {odd}, {v} {product}, {v} {result}")
    e.do(f"{nbase} = mul {v} {base}, {base}")
    e.do(f"{nleft} = lshr {v} {left}, {L.k(t, 1)}")
    more = L.any(L.cmp("ne", t, nleft, zero))
    e.do(f"br i1 {more}, label %{loop}, label %{done}")
    e.label(done)
    return nresult if negative is None else L.select(negative, t, zero, nresult)
