"""Products of bytes whose rows of A and columns of B are contiguous, by dot products of four.

AArch64's sdot and udot add four products of bytes to each 32-bit lane: sixteen of them in an
instruction, along k. The sums are exact modulo 2^32, so their low bytes are the product's: the bits
are those of `integer` in any order. Where B's rows are contiguous instead, a multiplication of
sixteen bytes by one does as many products, without turning B around first.
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.tiling import prefix
from graphc.types import DType

STEP = 16     # bytes of k at a time, and the least k
ROWS = COLUMNS = 4

_SUMS, _BYTES = "<4 x i32>", "<16 x i8>"
_LANES = "<" + ", ".join(f"i8 {i}" for i in range(STEP)) + ">"


def define_int_dots(module: Module, target: Target, dtype: DType) -> str:
    """Define `dots(m, n, k, a, a_row, b, b_col, c, c_row)` for a dtype of 8 bits and k >= STEP;
    returns its name. Strides are in bytes."""
    name = f"{prefix(dtype)}_dots"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, ptr %b, i64 %b_col, ptr %c, i64 %c_row",
        target, tuned=True,
    )
    full = f(f"and i64 {f.sub('%k', '1')}, {-STEP}")   # leaves 1 to 16 for the last step
    behind = f.sub("%k", str(STEP))
    # The last step reads the last 16 bytes; those that were added before count as zero.
    seen = f(f"trunc i64 {f.sub(full, behind)} to i8")
    first = f(f"insertelement {_BYTES} zeroinitializer, i8 {seen}, i64 0")
    spread = f(f"shufflevector {_BYTES} {first}, {_BYTES} zeroinitializer, "
               f"<{STEP} x i32> zeroinitializer")
    fresh = f(f"sext <{STEP} x i1> {f(f'icmp uge {_BYTES} {_LANES}, {spread}')} to {_BYTES}")
    whole_rows, whole_columns = f(f"and i64 %m, {-ROWS}"), f(f"and i64 %n, {-COLUMNS}")
    for start, stop, rows in (("0", whole_rows, ROWS), (whole_rows, "%m", 1)):
        with f.each(start, stop, rows) as row:
            a = [f.at("%a", f.mul(f.add(row.index, str(i)), "%a_row")) for i in range(rows)]
            c = [f.at("%c", f.mul(f.add(row.index, str(i)), "%c_row")) for i in range(rows)]
            for begin, end, columns in (
                ("0", whole_columns, COLUMNS), (whole_columns, "%n", 1)
            ):
                with f.each(begin, end, columns) as col:
                    b = [f.at("%b", f.mul(f.add(col.index, str(j)), "%b_col"))
                         for j in range(columns)]
                    _tile(f, dtype, a, b, [f.at(p, col.index) for p in c], full, behind, fresh)
    f.finish()
    return name


def _tile(
    f: Function, dtype: DType, a: list[str], b: list[str], c: list[str], full: str, behind: str,
    fresh: str,
) -> None:
    """Every row of `a` with every column of `b`; c: where the rows of results go."""
    instruction = "udot" if dtype.kind == "u" else "sdot"
    intrinsic = f"llvm.aarch64.neon.{instruction}.v4i32.v16i8"
    f.module.declare(intrinsic, f"declare {_SUMS} @{intrinsic}({_SUMS}, {_BYTES}, {_BYTES})")

    def added(at: str, sums: list[str], mask: str = "") -> list[str]:
        x, y = ([f(f"load {_BYTES}, ptr {f.at(p, at)}, align 1") for p in side] for side in (a, b))
        if mask:
            x = [f(f"and {_BYTES} {v}, {mask}") for v in x]
        pairs = [(v, w) for v in x for w in y]
        return [
            f(f"call {_SUMS} @{intrinsic}({_SUMS} {s}, {_BYTES} {v}, {_BYTES} {w})")
            for s, (v, w) in zip(sums, pairs, strict=True)
        ]

    zero = [(_SUMS, "zeroinitializer")] * (len(a) * len(b))
    sums = added(behind, f.loop("0", full, STEP, zero, added), fresh)
    f.module.declare("llvm.vector.reduce.add.v4i32",
                     f"declare i32 @llvm.vector.reduce.add.v4i32({_SUMS})")
    for k, s in enumerate(sums):
        total = f(f"call i32 @llvm.vector.reduce.add.v4i32({_SUMS} {s})")
        place = f.at(c[k // len(b)], k % len(b))
        f.do(f"store i8 {f(f'trunc i32 {total} to i8')}, ptr {place}, align 1")
