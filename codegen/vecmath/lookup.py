"""Tables of constants that lanes read, each its element: permuted in registers, or from memory."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from graphc.codegen.elementwise.floats import Floats
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import literal
from graphc.types import f32, f64


def lookup(F: Floats, table: Sequence[float], index: str) -> str:
    """The element of a table of 16, of f64s also of 8, for each lane: by the low bits of an
    integer register."""
    return lookups(F, [table], index)[0]


def lookups(F: Floats, tables: Sequence[Sequence[float]], index: str) -> list[str]:
    """The elements of tables of one size at the same place of each.

    In registers where AVX-512 permutes them, or AVX2 those of f32. Else from memory, f64s of two
    tables at a time: AVX2 has permutations of words only, four of them for a vector of f64s, each
    of three micro-ops on Zen 1. Of 2^14 f64, exp takes 80 us by them there and 47 from memory, log
    88 and 54, erf 250 and 121.
    """
    if F.avx512:
        return [_permuted_512(F, t, index) for t in tables]
    if not F.double and _avx2(F):
        return [_permuted(F, t, index) for t in tables]
    if F.double and F.L.width > 1:
        return _by_pairs(F, tables, index)
    L, index = F.L, F.ints("and", index, len(tables[0]) - 1)
    at = index if F.double else L.convert("zext", index, "i32", "i64")
    return [L.gather(f64 if F.double else f32, _global(F, t), at) for t in tables]


def _global(F: Floats, values: Sequence[float]) -> str:
    """The name of a constant that all functions of the module share."""
    text = _row(F, values)[1:-1]
    name = f"graphc.table.{zlib.crc32(text.encode()):08x}"
    F.L.e.module.define_global(
        name, f"@{name} = internal constant [{len(values)} x {F.t}] [{text}], align 64"
    )
    return f"@{name}"


def _row(F: Floats, table: Sequence[float]) -> str:
    """A vector of constants."""
    return f"<{', '.join(f'{F.t} {literal(F.t, c)}' for c in table)}>"


def _permuted_512(F: Floats, table: Sequence[float], index: str) -> str:
    """`lookup` by AVX-512, which permutes one register, of f64s also two."""
    L, one = F.L, 512 // F.bits
    v, w = f"<{one} x {F.t}>", f"<{one} x {F.i}>"
    rows = [f"{v} {_row(F, table[k:k + one])}" for k in range(0, len(table), one)]
    kind = "permvar.sf" if not F.double else ("permvar.df", "vpermi2var.pd")[len(rows) - 1]
    name = f"llvm.x86.avx512.{kind}.512"
    L.e.module.declare(name, f"declare {v} @{name}({', '.join([v, w, v][:len(rows) + 1])})")
    return L.joined(F.t, [
        L.e(f"call {v} @{name}({', '.join([rows[0], f'{w} {i}', *rows[1:]])})")
        for i in L.parts(F.i, index, one)
    ])


def _avx2(F: Floats) -> bool:
    """Whether registers are whole ones of AVX2."""
    L = F.L
    whole = L.width * F.bits % 256 == 0
    return whole and L.target.arch == "x86_64" and L.target.vector_bits >= 256


def _permuted(F: Floats, table: Sequence[float], index: str) -> str:
    """`lookup` of f32s by AVX2, which permutes words."""
    L, name = F.L, "llvm.x86.avx2.permps"
    L.e.module.declare(name, f"declare <8 x float> @{name}(<8 x float>, <8 x i32>)")
    low, high = (
        L.joined(F.t, [
            L.e(f"call <8 x float> @{name}(<8 x float> {row}, <8 x i32> {i})")
            for i in L.parts("i32", index, 8)
        ])
        for row in (_row(F, table[:8]), _row(F, table[8:]))
    )
    return F.select(F.icmp("slt", F.ints("shl", index, F.bits - 4), 0), high, low)


def _by_pairs(F: Floats, tables: Sequence[Sequence[float]], index: str) -> list[str]:
    """`lookups` of f64s from memory: each lane loads those of two tables at a time."""
    L, count = F.L, 2
    while count < len(tables):
        count *= 2
    filled = [*tables, *[tables[0]] * (count - len(tables))]
    base = _global(F, [c for row in zip(*filled, strict=True) for c in row])
    place = F.ints("and", index, len(tables[0]) - 1)
    place = F.ints("shl", place, (8 * count).bit_length() - 1)
    n = min(L.width, 4 if L.target.vector_bits >= 256 else 2)
    found: list[list[str]] = [[] for _ in filled]
    for part in L.parts("i64", place, n):
        ats = [L.e(f"extractelement <{n} x i64> {part}, i64 {k}") for k in range(n)]
        rows = [L.e(f"getelementptr inbounds i8, ptr {base}, i64 {at}") for at in ats]
        for j in range(0, len(tables), 2):
            for k, vector in enumerate(_turned(L, [_pair(L, row, j) for row in rows])):
                found[j + k].append(vector)
    return [L.joined(F.t, parts) for parts in found[:len(tables)]]


def _pair(L: Lanes, row: str, j: int) -> str:
    at = L.e(f"getelementptr inbounds i8, ptr {row}, i64 {8 * j}") if j else row
    return L.e(f"load <2 x double>, ptr {at}, align 16")


def _turned(L: Lanes, pairs: Sequence[str]) -> list[str]:
    """The first ones of two or four pairs, and the second ones."""
    n = len(pairs)
    if n == 4:  # so that AVX2, which unpacks each half of its registers, leaves them in order
        pairs = [
            L.e(f"shufflevector <2 x double> {pairs[k]}, <2 x double> {pairs[k + 2]}, "
                "<4 x i32> <i32 0, i32 1, i32 2, i32 3>")
            for k in (0, 1)
        ]
    v = f"<{n} x double>"
    orders = ([k + i // 2 * 2 + i % 2 * n for i in range(n)] for k in (0, 1))
    return [
        L.e(f"shufflevector {v} {pairs[0]}, {v} {pairs[1]}, <{n} x i32> <{text}>")
        for text in (", ".join(f"i32 {i}" for i in order) for order in orders)
    ]
