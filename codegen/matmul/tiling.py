"""How matrix products are cut into register tiles, by target and dtype."""

from __future__ import annotations

from typing import NamedTuple

from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.types import DType


class Tiling(NamedTuple):
    """How C is cut into register tiles for a compute dtype on a target.

    `tiles` are (rows, (registers per row, ..., 1)), both in descending order. A panel of B has
    `panel` registers per row. `masked` tells whether a single register may be partial.
    """

    dtype: DType
    lanes: int
    tiles: tuple[tuple[int, tuple[int, ...]], ...]
    panel: int
    masked: bool

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.panel * self.lanes

    @property
    def rows(self) -> int:
        """Rows of a full strip."""
        return self.tiles[0][0]

    @property
    def chains(self) -> int:
        """Sums of the largest tile, in registers."""
        return self.rows * self.tiles[0][1][0]

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return self.dtype.itemsize


def tiling(target: Target, dtype: DType) -> Tiling:
    """14 rows of 2 registers where there are 32 wide ones; 6 of 4 or of 2, or 4 of 2, elsewhere.

    Loads of A are broadcasts from memory, so 28 multiply-adds take 16 loads, of which the two of B
    come from the second cache: half as many bytes for a multiply-add as 6 rows of 4 registers
    take. Few rows want more registers of each, to hide the latency, and as few strips as there may
    be: each reads all of B, which for few rows takes longer than they do.
    """
    lanes = target.lanes(dtype)
    small = ((2, (4, 2, 1)), (1, (8, 2, 1)))
    if target.masked:
        few = ((4, (4, 1)), (2, (4, 1)), (1, (8, 1)))
        return Tiling(dtype, lanes, ((14, (2, 1)), (8, (2, 1)), (6, (4, 2, 1)), *few), 2, True)
    if target.registers >= 32:
        return Tiling(dtype, lanes, ((6, (4, 2, 1)), *small), 4, False)
    most = 6 if target.has_fma else 4
    # AVX2 masks by a vector register, of which a 6 x 2 tile leaves none
    avx2 = target.vector_bits == 256 and target.triple.startswith(("x86_64", "amd64"))
    return Tiling(dtype, lanes, ((most, (2, 1)), *small), 2, avx2)


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


class KeptMask:
    """A mask that loops find as numbers in registers or memory: LLVM would rather compare again
    wherever it is used, where masks are vector registers three instructions each."""

    def __init__(self, f: Function, dtype: DType, lanes: int, mask: str):
        self.f, self.mask, self.wide = f, mask, ""
        self.numbers = f"<{lanes} x i{dtype.bits}>"
        if not f.target.masked:
            x = f(f"sext <{lanes} x i1> {mask} to {self.numbers}")
            self.wide = f(f'call {self.numbers} asm "", "=x,0"({self.numbers} {x})')

    def __call__(self) -> str:
        """The mask, to be used in this block."""
        return self.mask if not self.wide else self.f(
            f"icmp slt {self.numbers} {self.wide}, zeroinitializer"
        )
