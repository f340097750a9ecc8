"""Sums of short integers and counts of conditions: what lanes accumulate within a block.

    sum(x) of bytes            16 bits instead of 64, sums of 16 bits 32
    sum(a < b), of floats      as many bits as a float has; of bytes 8

Of at most BLOCK elements no lane of the VIRTUAL_BITS overflows: 4080 is the most that 16 bytes add
up to, and 32 numbers of 16 bits have 21. Blocks are added up in the sum's own dtype. That is done
where nothing else is found by the nest and its one axis is cut into blocks anyway. The order of
integer sums is free.
"""

from __future__ import annotations

from graphc.codegen.emission.folds import fold
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import Reduction
from graphc.codegen.nests.loops import Expr, Nest
from graphc.types import DType, bool_, i8, i16, i32, i64, u8, u16, u32, u64

SIGNED = {8: i8, 16: i16, 32: i32, 64: i64}
UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}


def sums(nest: Nest) -> dict[Expr, int]:
    """The sums that lanes may keep in fewer bits, and in how many at least; all or none of the
    nest's reductions."""
    found: dict[Expr, int] = {}
    for r in nest.exprs:
        if r.kind == "scan" or (r.kind == "reduce" and not _is_short(r)):
            return {}
        if r.kind == "reduce":
            source = r.args[0].args[0].dtype
            found[r] = 8 if source is bool_ else 2 * source.bits
    if not found or nest.outer or len(nest.reduced) != 1:
        return {}
    casts = {r.args[0] for r in found}
    used_otherwise = any(
        a in casts for e in nest.exprs if e not in found for a in e.args
    ) or any(s.expr in casts for s in nest.stores)
    return {} if used_otherwise else found


def _is_short(r: Expr) -> bool:
    """Whether a reduction is the sum of integers of at most 16 bits, as wider ones."""
    x = r.args[0]
    if r.name != "reduce_sum" or r.dtype.is_float or x.kind != "op" or x.name != "cast":
        return False
    source = x.args[0].dtype
    return not source.is_float and source.bits <= 16 and 2 * source.bits <= r.dtype.bits


def kept(r: Expr, bits: int) -> Reduction:
    """What lanes of `bits` accumulate of one of the `sums`."""
    signed = r.args[0].args[0].dtype.kind == "i"
    return Reduction("reduce_sum", (SIGNED if signed else UNSIGNED)[bits])


def total(L: Lanes, kind: Reduction, vectors: list[list[str] | None], to: DType) -> list[str]:
    """The scalar state of dtype `to` of a block's vectors of narrow states."""
    d = kind.dtype
    wide = (SIGNED if d.kind == "i" else UNSIGNED)[2 * d.bits]
    extend = "sext" if d.kind == "i" else "zext"
    vectors = [v and [L.convert(extend, v[0], kind.types[0], f"i{wide.bits}")] for v in vectors]
    (state,) = fold(Reduction("reduce_sum", wide), L, vectors)
    if wide.bits == to.bits:
        return [state]
    one = Lanes(L.e, 1, L.target)
    return [one.convert(extend if wide.bits < to.bits else "trunc", state, f"i{wide.bits}",
                        f"i{to.bits}")]
