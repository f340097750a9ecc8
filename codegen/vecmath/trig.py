"""sin, cos, tan on lanes, f32 and f64, whole range.

Angles are reduced to |r| <= pi/4 by three-part subtraction (Cody and Waite) up to 10^5 (f64: 10^6)
and by integer multiplication with the bits of 2/pi (Payne and Hanek 1983) beyond: a scalar
function of the module, called per lane from a branch that ordinary angles never take.
"""

from __future__ import annotations

import math
from itertools import pairwise

from graphc.codegen.elementwise.floats import Floats, Pair
from graphc.codegen.elementwise.rare import packed, rare_lanes
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import literal
from graphc.codegen.vecmath import coefficients as co

LIMIT = 1.0e6      # up to here n fits 20 bits, so n times a 33-bit part of pi/2 is exact
LIMIT_F32 = 1.0e5  # and f32 finds n exactly enough
DEEP = 2.0**-40    # an f64 remainder below this has lost too many digits in three parts


def sin(F: Floats, x: str) -> str:
    # r - r^3/6.. turns -0 into 0 nowhere, but the reduction x - 0 * pi/2 may: keep zeros as given
    y = _sincos(F, x, 0)
    return F.select(F.cmp("oeq", x, 0.0), x, y)


def cos(F: Floats, x: str) -> str:
    return _sincos(F, x, 1)


def _sincos(F: Floats, x: str, quarter: int) -> str:
    """sin(x + quarter pi/2)."""
    key = ("sincos", F.t, x)
    if key not in F.L.memo:
        q, r, tail = reduced(F, x)
        F.L.memo[key] = (q, *(F.add(*v) for v in _kernels(F, r, tail)))
    q, sine, cosine = F.L.memo[key]
    q = F.ints("add", q, quarter) if quarter else q
    odd = F.icmp("ne", F.ints("and", q, 1), 0)
    y = F.select(odd, cosine, sine)
    sign = F.ints("and", F.ints("shl", q, F.bits - 2), -1 << (F.bits - 1))
    return F.from_bits(F.ints("xor", F.to_bits(y), sign))


def tan(F: Floats, x: str) -> str:
    """tan r, a quarter further -1 / tan r, in f64 as a quotient P / Q: one division."""
    q, r, tail = reduced(F, x)
    z = F.mul(r, r)
    if F.double:
        poly = F.poly(z, co.TAN_Q_F64)
        below = F.fma(z, poly, 1.0)
        lost = F.fma(z, poly, F.sub(1.0, below))  # from below: by so much less of above, at 1.2 r
        rest = F.fma(F.mul(r, z), F.poly(z, co.TAN_P_F64), tail)
        above = F.add(r, F.fma(F.mul(r, -1.2), lost, rest))
    else:
        above = F.add(r, F.fma(F.mul(r, z), F.poly(z, co.TAN_F32), tail))
        below = F.k(1.0)
    odd = F.icmp("ne", F.ints("and", q, 1), 0)
    y = F.div(F.select(odd, F.neg(below), above), F.select(odd, above, below))
    return F.select(F.cmp("oeq", x, 0.0), x, y)


def reduced(F: Floats, x: str) -> tuple[str, str, str]:
    """(quadrant, r, tail): x = quadrant pi/2 + r + tail."""
    return _reduce_f64(F, x) if F.double else _reduce_f32(F, x)


def _kernels(F: Floats, r: str, tail: str) -> tuple[Pair, Pair]:
    """sin and cos of r + tail, |r| <= pi/4, as a large and a small term each."""
    z = F.mul(r, r)
    sine = F.mul(F.mul(z, r), F.series(z, co.SIN_F32, co.SIN_F64))
    cosine = F.mul(F.mul(z, z), F.series(z, co.COS_F32, co.COS_F64))
    # first-order terms of the tail: sin' = 1 - z/2, cos' = -r
    w = F.fma(z, -0.5, 1.0)
    sine = F.fma(w, tail, sine)
    lost = F.fma(z, -0.5, F.sub(1.0, w))
    cosine = F.fma(F.neg(r), tail, F.add(lost, cosine))
    return (r, sine), (w, cosine)


def sincospi(F: Floats, f: str) -> tuple[Pair, Pair]:
    """sin and cos of pi f for |f| <= 1/2, f64, each a sum of two doubles exact to some 2^-56."""
    size = F.abs(f)
    swap = F.cmp("ogt", size, 0.25)
    h = F.select(swap, F.sub(0.5, size), size)
    r, tail = F.two_prod(h, co.PI_DD[0])
    s, c = (F.fast_two_sum(*v) for v in _kernels(F, r, F.fma(h, co.PI_DD[1], tail)))
    sine = [F.select(swap, c[i], s[i]) for i in range(2)]
    cosine = [F.select(swap, s[i], c[i]) for i in range(2)]
    below = F.cmp("olt", f, 0.0)
    sine = [F.select(below, F.neg(v), v) for v in sine]
    return (sine[0], sine[1]), (cosine[0], cosine[1])


def _reduce_f32(F: Floats, x: str) -> tuple[str, str, str]:
    """(i32 quadrant, r, tail): in f32 with fused multiply-add, else in f64."""
    L = F.L
    far = _finite_from(F, x, LIMIT_F32)
    if L.target.has_fma:
        n, counted = F.nearest_fma(x, 2 / math.pi)
        minus = F.neg(n)
        hi, mid, low = co.PIO2_F32_3
        first = F.fma(minus, hi, x)
        second = F.fma(minus, mid, first)
        # n * mid stays below 2^-8, so beyond 2^-7 the difference is exact and `lost` with it;
        # below, the sine is as good as linear and stands one rounding more
        lost = F.fma(minus, mid, F.sub(first, second))
        lost = F.select(F.cmp("ogt", F.abs(first), 2.0**-7), lost, 0.0)
        r, tail = F.fast_two_sum(second, F.fma(minus, low, lost))
    else:
        D = Floats(L, "double")
        wide = L.convert("fpext", x, "float", "double")
        nd, counted = D.nearest_fma(wide, 2 / math.pi)
        counted = L.convert("trunc", counted, "i64", "i32")
        high, middle, least = co.PIO2_F64
        rest = D.sub(D.sub(wide, D.mul(nd, high)), D.mul(nd, middle + least))
        r, tail = _narrow_pair(D, rest)
    q, r, tail = rare_lanes(L, "graphc.rem_pio2f", _define_rem_pio2f, far, [("float", x)],
                            [("i32", counted), ("float", r), ("float", tail)])
    return q, r, tail


def _narrow_pair(D: Floats, x: str) -> tuple[str, str]:
    """A double as a sum of two floats."""
    single = D.L.convert("fptrunc", x, "double", "float")
    rest = D.sub(x, D.L.convert("fpext", single, "float", "double"))
    return single, D.L.convert("fptrunc", rest, "double", "float")


def _finite_from(F: Floats, x: str, limit: float) -> str:
    """limit <= |x| < infinity."""
    size = F.abs(x)
    return F.both(F.cmp("oge", size, limit), F.cmp("olt", size, math.inf))


def _reduce_f64(F: Floats, x: str) -> tuple[str, str, str]:
    """(i64 quadrant, r, tail): x = quadrant pi/2 + r + tail."""
    n, counted = F.nearest_fma(x, 2 / math.pi)
    hi, mid, low = co.PIO2_F64
    minus = F.neg(n)
    first = F.fma(minus, hi, x)  # exact, as is n * mid: below 2^-13, where only digits of x and
    second = F.fma(minus, mid, first)  # mid are left, so is the difference; else fast sums hold
    lost = F.fma(minus, mid, F.sub(first, second))
    r = F.fma(minus, low, second)
    tail = F.add(lost, F.fma(minus, low, F.sub(second, r)))
    cancelled = F.both(F.cmp("olt", F.abs(r), DEEP), F.cmp("one", n, 0.0))
    far = F.either(_finite_from(F, x, LIMIT), cancelled)
    q, r, tail = rare_lanes(F.L, "graphc.rem_pio2", _define_rem_pio2, far, [("double", x)],
                            [("i64", counted), ("double", r), ("double", tail)])
    return q, r, tail


def _define_rem_pio2f(module: Module, L: Lanes) -> None:
    """`{i32, float, float} @graphc.rem_pio2f(float x)`: `graphc.rem_pio2` for f32."""
    name, wide, narrow = "graphc.rem_pio2f", "{i64, double, double}", "{i32, float, float}"
    if name in module.functions:
        return
    _define_rem_pio2(module, L)
    e = Emitter(module)
    F = Floats(Lanes(e, 1, L.target), "double")
    got = e(f"call {wide} @graphc.rem_pio2(double {e('fpext float %x to double')})")
    q, r = (e(f"extractvalue {wide} {got}, {i}") for i in range(2))
    single, tail = _narrow_pair(F, r)
    quadrant = e(f"trunc i64 {q} to i32")
    out = packed(e, [("i32", quadrant), ("float", single), ("float", tail)])
    module.define(name, f"define internal {narrow} @{name}(float %x) noinline nounwind cold {{\n"
                        f"entry:\n{e.text()}\n  ret {out}\n}}")


def _define_rem_pio2(module: Module, L: Lanes) -> None:
    """`{quadrant, r, tail} @graphc.rem_pio2(double x)` for finite |x| of 1 and more.

    x = m 2^e with a 53-bit m. Of 2/pi only the 192 bits from position e - 1 on matter: earlier
    ones give multiples of 4 quadrants, later ones less than 2^-137 (no double comes closer than
    2^-62 to a multiple of pi/2). Their product modulo 2^192 is the quadrant in its top two bits
    and the fraction below.
    """
    name = "graphc.rem_pio2"
    if name in module.functions:
        return
    e = Emitter(module)
    F = Floats(Lanes(e, 1, L.target), "double")
    e.label("entry")
    bits = F.to_bits("%x")
    exponent = F.ints("and", F.ints("lshr", bits, 52), 0x7FF)
    m = F.ints("or", F.ints("and", bits, (1 << 52) - 1), 1 << 52)
    module.declare("llvm.fshl.i64", "declare i64 @llvm.fshl.i64(i64, i64, i64)")
    module.declare("llvm.ctlz.i64", "declare i64 @llvm.ctlz.i64(i64, i1)")
    product = _times_192(F, m, _two_over_pi(F, exponent))
    quadrant = F.ints("lshr", product[0], 62)
    f0 = e(f"call i64 @llvm.fshl.i64(i64 {product[0]}, i64 {product[1]}, i64 2)")
    f1 = e(f"call i64 @llvm.fshl.i64(i64 {product[1]}, i64 {product[2]}, i64 2)")
    # a fraction of a half or more counts as negative, in the next quadrant
    negative = F.ints("ashr", f0, 63)
    quadrant = F.ints("sub", quadrant, negative)
    f0, f1 = F.ints("xor", f0, negative), F.ints("xor", f1, negative)
    zeros = e(f"call i64 @llvm.ctlz.i64(i64 {f0}, i1 false)")
    top = e(f"call i64 @llvm.fshl.i64(i64 {f0}, i64 {f1}, i64 {zeros})")
    rest = F.ints("shl", f1, zeros)
    low = F.ints("or", F.ints("shl", F.ints("and", top, 0x7FF), 52), F.ints("lshr", rest, 12))
    unit = F.power_of_two(F.ints("sub", 0, zeros))
    hi = F.mul(F.mul(F.from_int(F.ints("lshr", top, 11)), 2.0**-53), unit)
    lo = F.mul(F.mul(F.from_int(low), 2.0**-116), unit)
    r, tail = F.mul_dd((hi, lo), co.PIO2_DD)
    # the sign of x, and of the fraction
    flip = F.ints("and", F.ints("xor", bits, negative), -1 << 63)
    r, tail = (F.from_bits(F.ints("xor", F.to_bits(v), flip)) for v in (r, tail))
    back = F.ints("sub", 0, quadrant)
    quadrant = F.L.select(F.icmp("slt", bits, 0), "i64", back, quadrant)
    out = packed(e, [("i64", quadrant), ("double", r), ("double", tail)])
    module.define(
        name, f"define internal {{i64, double, double}} @{name}(double %x) noinline nounwind cold "
              f"{{\n{e.text()}\n  ret {out}\n}}",
    )


def _two_over_pi(F: Floats, exponent: str) -> list[str]:
    """The three words of 2/pi that matter to a number with this exponent field."""
    e = F.L.e
    # a word of zeros in front serves exponents below 1
    words = ", ".join(f"i64 {literal('i64', w)}" for w in co.TWO_OVER_PI)
    count = len(co.TWO_OVER_PI)
    e.module.define_global(
        "graphc.two_over_pi",
        f"@graphc.two_over_pi = internal constant [{count} x i64] [{words}], align 8",
    )
    # position of the first bit wanted, counted from the start of the word of zeros
    start = F.ints("sub", exponent, 1075 - 64 + 2)
    word, shift = F.ints("lshr", start, 6), F.ints("and", start, 63)
    loaded = []
    for i in range(4):
        at = e(f"getelementptr i64, ptr @graphc.two_over_pi, i64 {F.ints('add', word, i)}")
        loaded.append(e(f"load i64, ptr {at}"))
    return [
        e(f"call i64 @llvm.fshl.i64(i64 {a}, i64 {b}, i64 {shift})") for a, b in pairwise(loaded)
    ]


def _times_192(F: Floats, m: str, words: list[str]) -> list[str]:
    """m * words modulo 2^192, highest word first: 32 bits at a time, as no target lacks that."""
    low32 = (1 << 32) - 1
    m_low, m_high = F.ints("and", m, low32), F.ints("lshr", m, 32)
    carry, carry_high, below = F.ki(0), F.ki(0), F.ki(0)
    pieces: list[str] = []
    for word in reversed(words):
        for piece in (F.ints("and", word, low32), F.ints("lshr", word, 32)):
            t = F.ints("add", F.ints("mul", m_low, piece), carry)
            u = F.ints("add", F.ints("mul", m_high, below), carry_high)
            u = F.ints("add", u, F.ints("and", t, low32))
            carry, carry_high, below = F.ints("lshr", t, 32), F.ints("lshr", u, 32), piece
            pieces.append(F.ints("and", u, low32))
    joined = [
        F.ints("or", pieces[i], F.ints("shl", pieces[i + 1], 32)) for i in range(0, len(pieces), 2)
    ]
    return joined[::-1]
