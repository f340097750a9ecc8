"""Philox4x32-10 on lanes (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

from __future__ import annotations

from graphc.codegen.lanes import Lanes

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


def philox(L: Lanes, linear: str, key0: str, key1: str) -> str:
    """Word i % 4 of block i // 4 for i = linear (i64 lanes); keys are i32 lanes."""
    block = L.op("lshr", "i64", linear, L.k("i64", 2))
    c = [
        L.convert("trunc", block, "i64", "i32"),
        L.convert("trunc", L.op("lshr", "i64", block, L.k("i64", 32)), "i64", "i32"),
        L.k("i32", 0), L.k("i32", 0),
    ]
    k0, k1 = key0, key1
    for r in range(10):
        if r:
            k0 = L.op("add", "i32", k0, L.k("i32", _W0))
            k1 = L.op("add", "i32", k1, L.k("i32", _W1))
        h0, l0 = _wide(L, c[0], _M0)
        h1, l1 = _wide(L, c[2], _M1)
        c = [
            L.op("xor", "i32", L.op("xor", "i32", h1, c[1]), k0), l1,
            L.op("xor", "i32", L.op("xor", "i32", h0, c[3]), k1), l0,
        ]
    word = L.convert("trunc", L.op("and", "i64", linear, L.k("i64", 3)), "i64", "i32")
    low = L.select(L.cmp("eq", "i32", word, L.k("i32", 0)), "i32", c[0], c[1])
    high = L.select(L.cmp("eq", "i32", word, L.k("i32", 2)), "i32", c[2], c[3])
    return L.select(L.cmp("ult", "i32", word, L.k("i32", 2)), "i32", low, high)


def _wide(L: Lanes, a: str, m: int) -> tuple[str, str]:
    """The high and low 32 bits of a * m."""
    p = L.op("mul", "i64", L.convert("zext", a, "i32", "i64"), L.k("i64", m))
    high = L.op("lshr", "i64", p, L.k("i64", 32))
    return L.convert("trunc", high, "i64", "i32"), L.convert("trunc", p, "i64", "i32")
