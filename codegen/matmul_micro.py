"""Micro-kernels of the matrix product: a tile of C in registers, one pass over k.

For every element the order of arithmetic is one chain over k, from zero, rounded once per step;
the chain's value is stored, or added to C where C holds the sum of the k blocks before. No other
order is used anywhere for a product with more than one column, so that neither the tile an
element falls into nor the packing of operands can change its bits.

    columns_V(rows, k, A, a_row, a_col, B, b_row, C, c_row, last, accumulate)

computes `rows` x V registers of columns, of which the last register has `last` elements (on
targets that mask; elsewhere all). B and C have unit column stride; strides are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphc.codegen.emitter import Module
from graphc.codegen.lanes import Lanes, register_type
from graphc.codegen.matmul_ir import Function
from graphc.codegen.target import Target
from graphc.types import DType

ROW_WIDTH = 8  # registers of a single row: as many chains as hide the latency

KERNEL_PARAMS = (
    "i64 %rows, i64 %k, ptr %a, i64 %a_row, i64 %a_col, ptr %b, i64 %b_row, "
    "ptr noalias %c, i64 %c_row, i64 %last, i1 %accumulate"
)


@dataclass(frozen=True)
class Tiling:
    """How C is cut into register tiles for a compute dtype on a target.

    `widths` are the kernels' numbers of registers per row, `heights` their numbers of rows, both
    in descending order; `masked` tells which widths may have a partial last register.
    """

    dtype: DType
    lanes: int
    widths: tuple[int, ...]
    heights: tuple[int, ...]
    masked: tuple[int, ...]

    @property
    def columns(self) -> int:
        """Columns of a full tile."""
        return self.widths[0] * self.lanes

    @property
    def rows(self) -> int:
        return self.heights[0]

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return self.dtype.itemsize


def tiling(target: Target, dtype: DType) -> Tiling:
    """6 rows of 4 registers where there are 32 of them, else of 2; fewer rows without fma.

    Loads of A are broadcasts from memory, so 24 multiply-adds take 10 loads and need no copy of
    A; 24 chains are three times what hides the latency of two units.
    """
    lanes = target.lanes(dtype)
    if target.masked:
        return Tiling(dtype, lanes, (4, 2, 1), (6, 2, 1), (1,))
    if target.registers >= 32:
        return Tiling(dtype, lanes, (4, 1), (6, 2, 1), ())
    heights = (6, 2, 1) if target.has_fma else (4, 2, 1)
    # AVX2 masks by a vector register, of which a 6 x 2 tile leaves none
    avx2 = target.vector_bits == 256 and target.triple.startswith(("x86_64", "amd64"))
    return Tiling(dtype, lanes, (2, 1), heights, (1,) if avx2 else ())


def prefix(dtype: DType) -> str:
    """What the names of a dtype's functions begin with."""
    return f"graphc_matmul_{dtype.name}"


def tail_mask(f: Function, dtype: DType, lanes: int, count: str) -> str:
    """`<lanes x i1>`, true in the first `count` lanes."""
    t = f"i{dtype.bits}"
    n = f(f"trunc i64 {count} to {t}") if dtype.bits < 64 else count
    one = f(f"insertelement <{lanes} x {t}> poison, {t} {n}, i64 0")
    wide = f(
        f"shufflevector <{lanes} x {t}> {one}, <{lanes} x {t}> poison, "
        f"<{lanes} x i32> zeroinitializer"
    )
    steps = ", ".join(f"{t} {i}" for i in range(lanes))
    return f(f"icmp ult <{lanes} x {t}> <{steps}>, {wide}")


def micro_kernels(module: Module, target: Target, tiles: Tiling) -> dict[int, str]:
    """Define the kernels of `tiles`; width -> function name."""
    return {width: _kernel(module, target, tiles, width) for width in tiles.widths}


def row_kernel(module: Module, target: Target, tiles: Tiling) -> str:
    """Define the kernel for a single row, ROW_WIDTH full registers wide; its name."""
    return _kernel(module, target, replace(tiles, heights=(1,)), ROW_WIDTH)


def _kernel(module: Module, target: Target, tiles: Tiling, width: int) -> str:
    name = f"{prefix(tiles.dtype)}_columns_{width}"
    if name in module.functions:
        return name
    f = Function(module, name, KERNEL_PARAMS, target, tuned=True)
    plain = Lanes(f, tiles.lanes, target)
    last = plain
    if width in tiles.masked:
        mask = tail_mask(f, tiles.dtype, tiles.lanes, "%last")
        last = Lanes(f, tiles.lanes, target, mask=mask)
    vectors = [plain] * (width - 1) + [last]
    done = "0"
    for height in tiles.heights:
        count = f.udiv(f.sub("%rows", done), height)
        _tiles(f, tiles, height, vectors, done, count)
        done = f.add(done, f.mul(count, height))
    f.finish()
    return name


def _tiles(
    f: Function, tiles: Tiling, height: int, vectors: list[Lanes], first: str, count: str
) -> None:
    """`count` tiles of `height` rows, from row `first` on."""
    a = f.at("%a", f.mul("%a_row", first))
    c = f.at("%c", f.mul("%c_row", first))
    rows = [_opaque(f, f.mul("%a_row", i)) if i else "0" for i in range(height)]
    with f.each("0", count) as loop:
        skip = f.mul(loop.index, height)
        tile_a = f.at(a, f.mul(skip, "%a_row"))
        tile_c = f.at(c, f.mul(skip, "%c_row"))
        if height == tiles.rows and len(vectors) == tiles.widths[0]:
            _request(f, tile_c, height, len(vectors) * tiles.lanes * tiles.bytes)
        sums = _chains(f, tiles, vectors, tile_a, rows)
        t = vectors[0].reg(tiles.dtype)
        where = [
            [f.at(f.at(tile_c, f.mul("%c_row", i)), j * tiles.lanes * tiles.bytes)
             for j in range(len(vectors))]
            for i in range(height)
        ]
        with f.either("%accumulate") as branches:
            for line, chains in zip(where, sums, strict=True):
                for L, p, x in zip(vectors, line, chains, strict=True):
                    before = L.load(tiles.dtype, p)
                    L.store(tiles.dtype, f(f"fadd {t} {before}, {x}"), p)
            f.otherwise(*branches)
            for line, chains in zip(where, sums, strict=True):
                for L, p, x in zip(vectors, line, chains, strict=True):
                    L.store(tiles.dtype, x, p)


def _request(f: Function, c: str, rows: int, width: int) -> None:
    """Ask early for the sums that a tile will be added to: they have left the nearest caches."""
    f.module.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with f.when("%accumulate"):
        for i in range(rows):
            row = f.at(c, f.mul("%c_row", i))
            for line in range(0, width, 64):
                f.do(f"call void @llvm.prefetch.p0(ptr {f.at(row, line)}, i32 0, i32 3, i32 1)")


def _opaque(f: Function, x: str) -> str:
    """x in a register of its own.

    Otherwise LLVM derives the rows' addresses from one another by additions in the loop over k,
    which take slots of the multiply-add units.
    """
    return f(f'call i64 asm "", "=r,0"(i64 {x})')


def _chains(
    f: Function, tiles: Tiling, vectors: list[Lanes], a: str, rows: list[str]
) -> list[list[str]]:
    """The loop over k (at least one step): sums[row][register]."""
    head, end = f.fresh("k"), f.fresh("sums")
    before = f.block
    t = vectors[0].reg(tiles.dtype)
    scalar = register_type(tiles.dtype)
    f.branch(head)
    index, pa, pb = f"%{head}i", f"%{head}a", f"%{head}b"
    chains = [[f"%{head}s{i}_{j}" for j in range(len(vectors))] for i in range(len(rows))]
    at = len(f.lines)
    step = tiles.lanes * tiles.bytes
    loaded = [L.load(tiles.dtype, f.at(pb, j * step)) for j, L in enumerate(vectors)]
    sums = []
    for row, line in zip(rows, chains, strict=True):
        x = vectors[0].load_splat(tiles.dtype, f.at(pa, row))
        sums.append([
            vectors[0].fma(scalar, x, y, s) for y, s in zip(loaded, line, strict=True)
        ])
    next_a, next_b = f.at(pa, "%a_col"), f.at(pb, "%b_row")
    following = f.add(index, "-1")
    phis = [
        f"  {index} = phi i64 [%k, %{before}], [{following}, %{head}]",
        f"  {pa} = phi ptr [{a}, %{before}], [{next_a}, %{head}]",
        f"  {pb} = phi ptr [%b, %{before}], [{next_b}, %{head}]",
    ]
    phis += [
        f"  {s} = phi {t} [zeroinitializer, %{before}], [{new}, %{head}]"
        for line, news in zip(chains, sums, strict=True)
        for s, new in zip(line, news, strict=True)
    ]
    f.lines[at:at] = phis
    again = f.cmp("ne", following, "0")
    f.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    return sums
