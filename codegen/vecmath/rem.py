"""Remainder of floats with the sign of the divisor (Python's %, NumPy's remainder): exact.

C's fmod is a - trunc(a / b) b without any rounding. Where the quotient is small the rounded one
is right or one too large, and the difference is exact in f64 with fused multiply-add (f32: in
f64). Everywhere else a scalar function divides the digits, long-hand, in integers.
"""

from __future__ import annotations

from graphc.codegen.elementwise.floats import INF, NAN, Floats
from graphc.codegen.elementwise.rare import packed, rare_lanes
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.emission.lanes import Lanes


def rem(F: Floats, a: str, b: str) -> str:
    L = F.L
    if F.double:
        r = _fmod(F, F.abs(a), F.abs(b))
    else:
        wide = [L.convert("fpext", F.abs(v), "float", "double") for v in (a, b)]
        r = _fmod(Floats(L, "double"), wide[0], wide[1], small=True)
        r = L.convert("fptrunc", r, "double", "float")
    r = F.copysign(r, a)
    r = F.select(F.both(F.cmp("oeq", F.abs(a), INF), F.cmp("ord", b, b)), NAN, r)
    r = F.select(F.cmp("oeq", b, 0.0), NAN, r)
    r = F.select(F.cmp("uno", a, b), NAN, r)
    opposite = F.L.op("xor", "i1", F.cmp("olt", b, 0.0), F.cmp("olt", r, 0.0))
    moved = F.select(F.both(opposite, F.cmp("one", r, 0.0)), F.add(r, b), r)
    return F.select(F.cmp("oeq", r, 0.0), F.copysign(0.0, b), moved)


def _fmod(F: Floats, a: str, b: str, small: bool = False) -> str:
    """fmod of a >= 0 and b > 0, finite (anything elsewhere); `small`: both hold f32 values."""
    L = F.L
    quotient = F.div(a, b)
    n = L.intrinsic("trunc", "double", quotient)
    if small:  # 24 digits times at most 29 are exact
        limit, r = 2.0**29, F.sub(a, F.mul(n, b))
    elif L.target.has_fma:
        limit, r = 2.0**53, L.intrinsic("fma", "double", F.neg(n), b, a)
    else:
        limit, r = 2.0, F.sub(a, F.mul(n, b))  # n is 0 or 1
    r = F.select(F.cmp("olt", r, 0.0), F.add(r, b), r)
    r = F.select(F.cmp("olt", a, b), a, r)
    hard = F.both(F.cmp("oge", quotient, limit), F.cmp("olt", a, INF))
    hard = F.both(hard, F.cmp("ogt", b, 0.0))
    return rare_lanes(L, "graphc.fmod", _define_fmod, hard, [("double", a), ("double", b)],
                      [("double", r)])[0]


def _define_fmod(module: Module, L: Lanes) -> None:
    """`{double} @graphc.fmod(double a, double b)` for finite a >= b > 0.

    a = m 2^p, b = d 2^q with integers m, d < 2^53: 11 binary digits of the quotient per step,
    at most 191 steps.
    """
    name = "graphc.fmod"
    if name in module.functions:
        return
    module.declare("llvm.umin.i64", "declare i64 @llvm.umin.i64(i64, i64)")
    module.declare("llvm.ctlz.i64", "declare i64 @llvm.ctlz.i64(i64, i1)")
    e = Emitter(module)
    F = Floats(Lanes(e, 1, L.target), "double")
    e.label("entry")
    digits: list[tuple[str, str]] = []
    for x in ("%a", "%b"):
        bits = F.to_bits(x)
        field = F.ints("and", F.ints("lshr", bits, 52), 0x7FF)
        low = F.ints("and", bits, (1 << 52) - 1)
        normal = F.icmp("ne", field, 0)
        m = F.L.select(normal, "i64", F.ints("or", low, 1 << 52), low)
        digits.append((m, F.L.select(normal, "i64", field, F.ki(1))))
    (m, p), (d, q) = digits
    steps = F.ints("sub", p, q)
    first = F.ints("urem", m, d)
    e.do("br label %check")
    e.label("check")
    e.do(f"%left = phi i64 [{steps}, %entry], [%fewer, %step]")
    e.do(f"%r = phi i64 [{first}, %entry], [%next, %step]")
    e.do(f"br i1 {F.icmp('ne', '%left', 0)}, label %step, label %pack")
    e.label("step")
    take = e("call i64 @llvm.umin.i64(i64 %left, i64 11)")
    e.do(f"%next = urem i64 {F.ints('shl', '%r', take)}, {d}")
    e.do(f"%fewer = sub i64 %left, {take}")
    e.do("br label %check")
    e.label("pack")
    # r 2^q, exact: shift r up to 53 digits or until the exponent field is 1
    zeros = F.ints("sub", e("call i64 @llvm.ctlz.i64(i64 %r, i1 false)"), 11)
    shift = e(f"call i64 @llvm.umin.i64(i64 {zeros}, i64 {F.ints('sub', q, 1)})")
    mantissa = F.ints("shl", "%r", shift)
    field = F.ints("sub", q, shift)
    normal = F.icmp("ne", F.ints("lshr", mantissa, 52), 0)
    joined = F.ints("or", F.ints("shl", field, 52), F.ints("and", mantissa, (1 << 52) - 1))
    bits = F.L.select(normal, "i64", joined, mantissa)
    bits = F.L.select(F.icmp("eq", "%r", 0), "i64", F.ki(0), bits)
    out = packed(e, [("double", F.from_bits(bits))])
    module.define(name, f"define internal {{double}} @{name}(double %a, double %b) noinline "
                        f"nounwind cold {{\n{e.text()}\n  ret {out}\n}}")
