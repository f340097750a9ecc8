"""The cube root on lanes, f32 and f64, whole range, within 1 ULP."""

from __future__ import annotations

from graphc.codegen.elementwise.floats import INF, Floats
from graphc.codegen.vecmath import coefficients as co


def cbrt(F: Floats, x: str) -> str:
    """2^n m^(1/3) for x = 2^(3 n) m, m in [1, 8) (f32: [1/2, 4)).

    r = m^(-1/3) is a polynomial of m's digits times a power of the cube root of 2, and a step of
    third order better; m r^2 one of Newton's, from a cube of twice the digits. No step divides.
    """
    a = F.abs(x)
    tiny = F.cmp("olt", a, 2.0 ** (2 - F.bias))  # subnormals have fewer digits
    up = 3 * (F.mantissa // 3 + 1)
    bits = F.to_bits(F.select(tiny, F.mul(a, 2.0**up), a))
    e = F.ints("lshr", bits, F.mantissa)
    shift = 16 if F.double else 9
    third = F.ints("lshr", F.ints("mul", e, (1 << shift) // 3 + 1), shift)  # e // 3, e < 2^11
    over = F.ints("sub", e, F.ints("mul", third, 3))
    one = F.bias << F.mantissa
    digits = F.ints("and", bits, (1 << F.mantissa) - 1)
    down = F.bias % 3
    exponent = F.ints("shl", F.ints("add", over, F.bias - down), F.mantissa)
    m = F.from_bits(F.ints("or", digits, exponent))
    roots = [2.0 ** ((down - k) / 3) for k in range(3)]
    root = F.select(F.icmp("eq", over, 2), roots[2], roots[0])
    root = F.select(F.icmp("eq", over, 1), roots[1], root)
    plain = F.poly(F.from_bits(F.ints("or", digits, one)), F.pick(co.CBRT_F32, co.CBRT_F64))
    r = F.mul(plain, root)
    # 1 - m r^3 = h: m^(-1/3) = r (1 + h / 3 + 2 h^2 / 9 + ..)
    h = F.sub(1.0, F.mul(F.mul(m, r), F.mul(r, r)))
    r = F.fma(F.mul(r, h), F.fma(h, 2 / 9, 1 / 3), r)
    square = F.mul(r, r)
    y = F.mul(m, square)
    z, z_low = F.two_prod(y, y)
    cube, low = F.two_prod(z, y)
    off = F.add(F.sub(cube, m), F.fma(z_low, y, low))
    y = F.fma(F.mul(off, square), -1 / 3, y)
    n = F.ints("sub", third, F.bias // 3)
    n = F.L.select(tiny, F.i, F.ints("sub", n, up // 3), n)
    y = F.copysign(F.scale_normal(y, n), x)
    # of infinity and NaN, and of zeros
    return F.select(F.either(F.cmp("ueq", a, INF), F.cmp("oeq", a, 0.0)), x, y)
