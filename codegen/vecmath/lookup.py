"""Tables of constants that lanes read, each its element: permuted in registers, or from memory."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from graphc.codegen.elementwise.floats import Floats
from graphc.codegen.emission.literals import literal
from graphc.types import f32, f64


def lookup(F: Floats, table: Sequence[float], index: str) -> str:
    """The element of a table of 16, of f64s also of 8, for each lane: by the low bits of an
    integer register.

    In registers where AVX-512 or AVX2 permutes them, else from memory.
    """
    if F.avx512:
        return _permuted_512(F, table, index)
    if _avx2(F):
        halves = [_permuted(F, table[k:k + 8], index) for k in range(0, len(table), 8)]
        if len(halves) == 1:
            return halves[0]
        upper = F.icmp("slt", F.ints("shl", index, F.bits - 4), 0)
        return F.select(upper, halves[1], halves[0])
    L, index = F.L, F.ints("and", index, len(table) - 1)
    values = _row(F, table)[1:-1]
    name = f"graphc.table.{zlib.crc32(values.encode()):08x}"
    L.e.module.define_global(
        name, f"@{name} = internal constant [{len(table)} x {F.t}] [{values}], align 64"
    )
    if F.double:
        return L.gather(f64, f"@{name}", index)
    return L.gather(f32, f"@{name}", L.convert("zext", index, "i32", "i64"))


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
    """Whether registers are whole ones of AVX2; of f64, whose lookups take more instructions
    than AVX-512's, they have to be the largest."""
    L = F.L
    if L.target.arch != "x86_64" or L.width * F.bits % 256:
        return False
    if not F.double:
        return L.target.vector_bits >= 256
    return L.target.vector_bits == 256 and not L.e.module.attributes


def _permuted(F: Floats, table: Sequence[float], index: str) -> str:
    """A lookup among 8 by AVX2, which permutes words: low halves and high ones of f64s."""
    L = F.L
    name = "llvm.x86.avx2.permps"
    L.e.module.declare(name, f"declare <8 x float> @{name}(<8 x float>, <8 x i32>)")
    if not F.double:
        return L.joined(F.t, [
            L.e(f"call <8 x float> @{name}(<8 x float> {_row(F, table)}, <8 x i32> {i})")
            for i in L.parts("i32", index, 8)
        ])
    both = F.ints("or", F.ints("and", index, 7), F.ints("shl", index, 32))
    words = zip(*(struct.unpack("<2I", struct.pack("<d", c)) for c in table), strict=True)
    texts = (", ".join(f"i32 {literal('i32', w)}" for w in half) for half in words)
    halves = [L.e(f"bitcast <8 x i32> <{text}> to <8 x float>") for text in texts]
    order = ", ".join(f"i32 {k + 8 * (k % 2)}" for k in range(8))
    found = []
    for part in L.parts("i64", both, 4):
        i = L.e(f"bitcast <4 x i64> {part} to <8 x i32>")
        low, high = (L.e(f"call <8 x float> @{name}(<8 x float> {half}, <8 x i32> {i})")
                     for half in halves)
        mixed = L.e(f"shufflevector <8 x float> {low}, <8 x float> {high}, <8 x i32> <{order}>")
        found.append(L.e(f"bitcast <8 x float> {mixed} to <4 x double>"))
    return L.joined(F.t, found)
