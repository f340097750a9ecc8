"""f16 and bf16 without hardware: rounding a float to the format, and its bits.

Registers hold f16 and bf16 as float. Every function works on one register of lanes and uses
integer and exact float instructions only, so results are the same on every target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.codegen.emission.lanes import Lanes

SIGN, MAGNITUDE = 0x80000000, 0x7FFFFFFF
INF32, QUIET = 0x7F800000, 0x00400000
F16_TINY = 2.0**-14            # smallest normal
F16_HUGE = 65520.0             # rounds to infinity from here on
F16_REBIAS = (127 - 15) << 23


def _bits(L: Lanes, x: str) -> str:
    return L.convert("bitcast", x, "float", "i32")


def _float(L: Lanes, b: str) -> str:
    return L.convert("bitcast", b, "i32", "float")


def _int(L: Lanes, name: str, a: str, b: int) -> str:
    """An integer instruction with a number."""
    return L.op(name, "i32", a, L.k("i32", b))


def _to_nearest(L: Lanes, b: str, drop: int) -> str:
    """Float bits with the `drop` lowest rounded away, ties to even."""
    odd = _int(L, "and", _int(L, "lshr", b, drop), 1)
    up = L.op("add", "i32", _int(L, "add", b, (1 << (drop - 1)) - 1), odd)
    return _int(L, "and", up, -(1 << drop))


def round_bf16(L: Lanes, x: str) -> str:
    """A float rounded to bf16, to nearest even; NaN stays NaN, overflow gives infinity."""
    b = _bits(L, x)
    nan = _int(L, "and", _int(L, "or", b, QUIET), -(1 << 16))
    return _float(L, L.select(L.cmp("uno", "float", x, x), "i32", nan, _to_nearest(L, b, 16)))


def bf16_bits(L: Lanes, x: str) -> str:
    """The i16 of a float that is a bf16 value."""
    return L.convert("trunc", _int(L, "lshr", _bits(L, x), 16), "i32", "i16")


def bf16_from_bits(L: Lanes, h: str) -> str:
    """The float of a bf16 given as i16."""
    return _float(L, _int(L, "shl", L.convert("zext", h, "i16", "i32"), 16))


def round_f16(L: Lanes, x: str) -> str:
    """A float rounded to f16, to nearest even; by hardware where there is some."""
    if L.target.has_f16c:
        half = L.convert("fptrunc", x, "float", "half")
        return L.convert("fpext", half, "half", "float")
    b = _bits(L, x)
    sign, a = _int(L, "and", b, SIGN), _int(L, "and", b, MAGNITUDE)
    size = _float(L, a)
    # below the normal range f16 has a fixed step 2^-24, the step of floats in [0.5, 1)
    half = L.k("float", 0.5)
    fixed = L.op("fsub", "float", L.op("fadd", "float", size, half), half)
    small = L.cmp("olt", "float", size, L.k("float", F16_TINY))
    r = L.select(small, "i32", _bits(L, fixed), _to_nearest(L, a, 13))
    huge = L.cmp("oge", "float", size, L.k("float", F16_HUGE))
    r = L.select(huge, "i32", L.k("i32", INF32), r)
    nan = _int(L, "and", _int(L, "or", a, QUIET), -(1 << 13))
    r = L.select(L.cmp("uno", "float", x, x), "i32", nan, r)
    return _float(L, L.op("or", "i32", r, sign))


def f16_bits(L: Lanes, x: str) -> str:
    """The i16 of a float that is an f16 value."""
    b = _bits(L, x)
    a = _int(L, "and", b, MAGNITUDE)
    size = _float(L, a)
    fixed = _bits(L, L.op("fadd", "float", size, L.k("float", 0.5)))
    small = L.cmp("olt", "float", size, L.k("float", F16_TINY))
    # bits(0.5 + n * 2^-24) = bits(0.5) + n
    n = L.select(
        small, "i32", _int(L, "sub", fixed, 0x3F000000),
        _int(L, "lshr", _int(L, "sub", a, F16_REBIAS), 13),
    )
    special = _int(L, "or", _int(L, "and", _int(L, "lshr", a, 13), 0x3FF), 0x7C00)
    n = L.select(L.cmp("uge", "i32", a, L.k("i32", INF32)), "i32", special, n)
    sign = _int(L, "and", _int(L, "lshr", b, 16), 0x8000)
    return L.convert("trunc", L.op("or", "i32", n, sign), "i32", "i16")


def f16_from_bits(L: Lanes, h: str) -> str:
    """The float of an f16 given as i16."""
    w = L.convert("zext", h, "i16", "i32")
    a = _int(L, "shl", _int(L, "and", w, 0x7FFF), 13)
    fixed = L.op("fsub", "float", _float(L, _int(L, "or", _int(L, "and", w, 0x3FF), 0x3F000000)),
                 L.k("float", 0.5))
    small = L.cmp("ult", "i32", a, L.k("i32", 1 << 23))
    special = L.cmp("uge", "i32", a, L.k("i32", 0x1F << 23))
    n = L.select(special, "i32", _int(L, "or", a, INF32), _int(L, "add", a, F16_REBIAS))
    n = L.select(small, "i32", _bits(L, fixed), n)
    return _float(L, L.op("or", "i32", n, _int(L, "shl", _int(L, "and", w, 0x8000), 16)))


def narrow_to_odd(L: Lanes, x: str) -> str:
    """A double as a float rounded to odd: rounding that again to f16 is rounding once."""
    f = L.convert("fptrunc", x, "double", "float")
    back = L.convert("fpext", f, "float", "double")
    above = L.cmp("ogt", "double", L.intrinsic("fabs", "double", back),
                  L.intrinsic("fabs", "double", x))
    inexact = L.cmp("one", "double", back, x)
    b = L.op("sub", "i32", _bits(L, f), L.convert("zext", above, "i1", "i32"))
    return _float(L, L.op("or", "i32", b, L.convert("zext", inexact, "i1", "i32")))
