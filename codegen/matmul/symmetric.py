"""Products of a matrix and its transpose, X @ X.T and X.T @ X: half of C is computed.

The order of arithmetic of C[i, j] is that of C[j, i], so that what is computed on and above the
diagonal is copied below it, to the bit. Columns go stripe by stripe, each down to where its part of
the diagonal ends:

    | 0 1 2 |      rows and columns of a stripe each
    |   1 2 |
    |     2 |

so that of n columns in stripes of w (n + w) / 2n is left. Whoever computes a part of C above the
diagonal copies it, whichever rows and columns its task has.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.pack import define_pack
from graphc.codegen.matmul.tiling import prefix, tiling
from graphc.dims import Size
from graphc.types import DType, f32, f64

STRIPE_TILES = 2  # of columns: with more there is less to leave out, with fewer more to read again
LONG_TILES = 8    # .. of more than LONG columns, which leave out enough: X.T @ X of 100 x 3000 f32
LONG = 512        # takes a fifth less than with 2
LEAST_DEPTH = 64  # steps of k from which a half of C takes longer than to copy it


def pays(target: Target, dtype: DType, n: Size, k: Size) -> bool:
    """Whether to compute a half of C is less work, as far as its sizes are known."""
    if dtype not in (f32, f64):
        return False
    wide = not isinstance(n, int) or n > stripe(target, dtype)
    return wide and (not isinstance(k, int) or k >= LEAST_DEPTH)


def stripe(target: Target, dtype: DType) -> int:
    """Columns of a stripe where there are few."""
    return STRIPE_TILES * tiling(target, dtype).columns


def by_stripes(
    f: Function, dtype: DType, row: str, col: str, m: str, n: str, c: str, whole: str, c_row: str,
    columns: str, block: Callable[[str, str, str], None],
) -> None:
    """Those of the m x n elements of C from (row, col) on, which are at `c`, that stand above the
    diagonal, and their copies below it in `whole`, a member of C's batch with so many `columns`.

    block(m, at, n): compute m rows of n columns, from column `at` of the block on.
    """
    short = stripe(f.target, dtype)
    long = str(short // STRIPE_TILES * LONG_TILES)
    width = f.select(f.cmp("sgt", columns, str(LONG)), long, str(short))
    mirror = define_mirror(f.module, f.target, dtype)
    with f.each("0", n, width) as at:
        beside = f.min(f.sub(n, at.index), width)
        first = f.add(col, at.index)
        above = f.max(f.min(f.sub(first, row), m), "0")
        rows = f.min(f.sub(f.add(first, beside), row), m)
        with f.when(f.cmp("sgt", rows, "0")):
            block(rows, at.index, beside)
            place = f.add(f.mul(first, c_row), f.mul(row, dtype.itemsize))
            f.do(f"call void @{mirror}(i64 {beside}, i64 {above}, "
                 f"ptr {f.at(c, f.mul(at.index, dtype.itemsize))}, i64 {c_row}, "
                 f"ptr {f.at(whole, place)})")


def define_mirror(module: Module, target: Target, dtype: DType) -> str:
    """Define mirror(rows, cols, src, row, dst): dst[r, c] = src[c, r], rows of both `row` bytes
    apart; returns its name."""
    name = f"{prefix(dtype)}_mirror"
    if name in module.functions:
        return name
    f = Function(
        module, name, "i64 %rows, i64 %cols, ptr %src, i64 %row, ptr %dst", target, tuned=True,
    )
    L, size = Lanes(f, 1, target), dtype.itemsize
    whole = f(f"and i64 %cols, {-target.lanes(dtype)}")  # `pack` writes whole registers
    f.do(f"call void @{define_pack(module, target, dtype)}(i64 %rows, i64 {whole}, ptr %src, "
         f"i64 {size}, i64 %row, ptr %dst, i64 %row)")
    with f.each(whole, "%cols") as col:
        src = f.at("%src", f.mul(col.index, "%row"))
        dst = f.at("%dst", f.mul(col.index, size))
        with f.each("0", "%rows") as row:
            x = L.load(dtype, f.at(src, f.mul(row.index, size)))
            L.store(dtype, x, f.at(dst, f.mul(row.index, "%row")))
    f.finish()
    return name
