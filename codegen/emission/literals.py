"""One element as LLVM text: its scalar types and its constants.

How an element of each dtype is held:

    dtype      register   memory
    bool       i1         i8, 0 or 1
    iN, uN     iN         iN
    f16        float      half      (always a value that f16 can represent)
    bf16       float      i16       (likewise: the upper half of the float's bits)
    f32, f64   float, double
"""

from __future__ import annotations

import math
import struct

import numpy as np

from graphc.types import DType, f16

BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
SUFFIX = {t: t for t in BITS} | {"half": "f16", "float": "f32", "double": "f64"}


def register_type(d: DType) -> str:
    """The LLVM scalar type that holds one element in a register."""
    if d.is_float:
        return "double" if d.bits == 64 else "float"
    return f"i{d.bits}"


def memory_of(t: str) -> str:
    """The type by which a scalar type stands in memory."""
    return "i8" if t == "i1" else t


def memory_type(d: DType) -> str:
    """The LLVM scalar type of one element in memory."""
    if d.kind == "b":
        return "i8"
    if d.is_float and d.bits == 16:
        return "half" if d is f16 else "i16"
    return register_type(d)


def literal(t: str, v: float | int | bool) -> str:
    """`v` as LLVM text of scalar type `t`: integers wrap, floats round to `t` (to nearest); a NaN
    keeps its sign and payload.
    """
    if t == "i1":
        return "true" if v else "false"
    if t[0] == "i":
        bits = BITS[t]
        n = int(v) & ((1 << bits) - 1)
        return str(n - (1 << bits) if n >> (bits - 1) else n)
    f = float(v)
    if t == "float" and math.isfinite(f):
        with np.errstate(over="ignore"):
            f = float(np.float32(f))
    bits = int.from_bytes(struct.pack(">d", f))
    if math.isnan(f):  # quiet, and of the digits that `t` has
        bits = (bits | 1 << 51) & (-1 << 29 if t == "float" else -1)
    return f"0x{bits:016X}"


def rounded(d: DType, v: float) -> float:
    """`v` rounded to f16 or bf16 (through f32), to nearest even."""
    with np.errstate(over="ignore"):
        if d is f16:
            return float(np.float16(v))
        b = int(np.float32(v).view(np.uint32))
    if not math.isnan(v):
        b = (b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF0000
    return float(np.uint32(b).view(np.float32))
