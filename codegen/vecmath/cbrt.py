"""The cube root on lanes, f32 and f64, whole range, within 1 ULP."""

from __future__ import annotations

from graphc.codegen.elementwise.floats import INF, Floats
from graphc.codegen.vecmath import coefficients as co

# The bits of a guess of 1 / cbrt a: such a number less a third of a's. These leave the least h.
GUESS_F32, GUESS_F64 = 0x54A1 << 16, 0x553EEA << 40


def cbrt(F: Floats, x: str) -> str:
    """a r^2 for a = |x| and r = 1 / cbrt a, and one step of Newton's, from a residue of all digits.

    r is a guess from the bits (Kahan, Lomont), off by a part of 0.036, and a step of fourth order,
    for f64 one more of second. No step divides. a is scaled: where it is tiny the residue would
    lose digits, near the greatest number y^3 overflow.
    """
    a = F.abs(x)
    tiny = F.cmp("olt", a, 2.0 ** -(F.bias // 2))
    up = F.bias // 6
    a = F.mul(a, F.select(tiny, 2.0 ** (3 * up), 2.0**-3))
    bits = F.to_bits(a)
    if F.double:  # a third of the high half, times 2^32
        third = F.ints("mul", F.ints("lshr", bits, 32), (1 << 32) // 3)
    else:
        third = F.ints("mul", F.ints("lshr", bits, 16), (1 << 16) // 3)
    r = F.from_bits(F.ints("sub", GUESS_F64 if F.double else GUESS_F32, third))
    h = _off(F, a, r)
    r = F.fma(F.mul(r, h), F.poly(h, F.pick(co.CBRT_F32, co.CBRT_F64)), r)
    if F.double:
        r = F.fma(F.mul(r, _off(F, a, r)), 1 / 3, r)
    square = F.mul(r, r)
    y = F.mul(a, square)
    off = F.residue(F.mul(y, y), y, a)
    y = F.fma(F.mul(off, square), -1 / 3, y)
    y = F.copysign(F.mul(y, F.select(tiny, 2.0**-up, 2.0)), x)
    return F.select(F.cmp("oeq", a, INF), x, y)


def _off(F: Floats, a: str, r: str) -> str:
    """h = 1 - a r^3, by which r is off: 1 / cbrt a = r / cbrt(1 - h)."""
    return F.fma(F.neg(F.mul(r, r)), F.mul(a, r), 1.0)
