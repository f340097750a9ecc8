"""Conversions between dtypes. Floats that an integer dtype lacks become its ends, NaN becomes 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.elementwise.halves import (
    bf16_bits,
    bf16_from_bits,
    f16_bits,
    f16_from_bits,
    narrow_to_odd,
    round_bf16,
    round_f16,
)
from graphc.codegen.emission.literals import BITS, register_type
from graphc.codegen.machine.target import X86
from graphc.types import DType, f16

if TYPE_CHECKING:
    from graphc.codegen.emission.lanes import Lanes


def round_to(L: Lanes, d: DType, x: str) -> str:
    """A register of dtype d's compute type rounded to d: something to do for f16 and bf16 only."""
    if not d.is_float or d.bits != 16:
        return x
    return round_f16(L, x) if d is f16 else round_bf16(L, x)


def cast(L: Lanes, x: str, source: DType, to: DType) -> str:
    """The value converted; float to f16 rounds once, float64 to bf16 goes through float32."""
    if source is to:
        return x
    s, t = register_type(source), register_type(to)
    if to.kind == "b":
        return L.cmp("une" if source.is_float else "ne", s, x, L.k(s, 0))
    if source.kind == "b":
        return L.select(x, t, L.k(t, 1), L.k(t, 0))
    if source.is_float and to.is_float:
        return _float_to_float(L, x, source, to)
    if source.is_float:
        return _saturate(L, x, s, to)
    if to.is_float:
        return round_to(L, to, L.convert("sitofp" if source.kind == "i" else "uitofp", x, s, t))
    if source.bits == to.bits:
        return x
    if source.bits > to.bits:
        return L.convert("trunc", x, s, t)
    return L.convert("sext" if source.kind == "i" else "zext", x, s, t)


def _float_to_float(L: Lanes, x: str, source: DType, to: DType) -> str:
    if to.bits == 64:
        return L.convert("fpext", x, "float", "double")
    if source.bits == 64:
        narrow = narrow_to_odd(L, x) if to is f16 else L.convert("fptrunc", x, "double", "float")
        return round_to(L, to, narrow)
    return x if to.bits == 32 else round_to(L, to, x)


def _saturate(L: Lanes, x: str, s: str, to: DType) -> str:
    """A float as an integer: what is beyond its range becomes an end of it, NaN 0."""
    t = register_type(to)
    signed = to.kind == "i"
    kind = "fptosi" if signed else "fptoui"
    if L.width > 1 and L.target.arch in X86:
        return _saturate_lanes(L, x, s, t, signed)
    name = f"llvm.{kind}.sat.{L.suffix(t)}.{L.suffix(s)}"
    L.e.module.declare(name, f"declare {L.vec(t)} @{name}({L.vec(s)})")
    return L.e(f"call {L.vec(t)} @{name}({L.vec(s)} {x})")


def _saturate_lanes(L: Lanes, x: str, s: str, t: str, signed: bool) -> str:
    """`_saturate` in vectors of x86, where LLVM's own intrinsic goes lane by lane: 65,536 floats
    took 84 to 130 us to any integers, and take 8 to 21.

    What is compared comes first, so that a NaN gives the other operand.
    """
    bits = BITS[t]
    halves = bits == 64 and not L.target.masked
    if halves and s == "float":  # so that conditions are as wide as what they choose
        x, s = L.convert("fpext", x, s, "double"), "double"
    low = -float(1 << (bits - 1)) if signed else 0.0
    end = float(1 << (bits - 1 if signed else bits))
    if signed:  # below `low` there is 0 already, where a NaN goes as well
        x = L.select(L.cmp("ord", s, x, x), s, x, L.k(s, 0))
    x = L.select(L.cmp("ogt", s, x, L.k(s, low)), s, x, L.k(s, low))
    if bits <= (16 if s == "float" else 32):  # the greatest integer is a float
        x = L.select(L.cmp("olt", s, x, L.k(s, end - 1)), s, x, L.k(s, end - 1))
        if bits == 32:
            return L.convert("fptosi" if signed else "fptoui", x, s, t)
        return L.convert("trunc", L.convert("fptosi", x, s, "i32"), "i32", t)
    over = L.cmp("oge", s, x, L.k(s, end))
    if halves:
        found = _by_halves(L, x)
    else:
        inside = L.select(over, s, L.k(s, 0), x)
        found = L.convert("fptosi" if signed else "fptoui", inside, s, t)
    return L.select(over, t, L.k(t, int(end) - 1), found)


def _by_halves(L: Lanes, x: str) -> str:
    """A double between -2**63 and 2**64 as 64 bits, where no instruction converts lanes of these:
    65,536 of them took 79 us to i64 and 108 to u64 on AVX2, and take 52 and 40.

    Beside 2**52, whose mantissa counts ones, either half of the number is a mantissa's lower end.
    """
    d, w = "double", "i64"
    x = L.intrinsic("trunc", d, x)
    high = L.intrinsic("floor", d, L.op("fmul", d, x, L.k(d, 2.0**-32)))
    low = L.op("fsub", d, x, L.op("fmul", d, high, L.k(d, 2.0**32)))
    high = L.convert("bitcast", L.op("fadd", d, high, L.k(d, 1.5 * 2.0**52)), d, w)
    low = L.convert("bitcast", L.op("fadd", d, low, L.k(d, 2.0**52)), d, w)
    low = L.op("and", w, low, L.k(w, (1 << 32) - 1))
    return L.op("or", w, L.op("shl", w, high, L.k(w, 32)), low)


def bitcast(L: Lanes, x: str, source: DType, to: DType) -> str:
    """The same bits as another dtype of the same width (a signalling f16 NaN becomes quiet)."""
    if source is to:
        return x
    if source.is_float and source.bits == 16:
        x = f16_bits(L, x) if source is f16 else bf16_bits(L, x)
        if not to.is_float:
            return x
    elif source.is_float != to.is_float and source.bits != 16:
        return L.convert("bitcast", x, register_type(source), register_type(to))
    if to.is_float and to.bits == 16:
        return f16_from_bits(L, x) if to is f16 else bf16_from_bits(L, x)
    return x
