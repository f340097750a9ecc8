"""A single row times a matrix whose columns are contiguous, transposed on the way to registers.

    row(n, k, A, a_col, B, b_col, C, accumulate)     strides in bytes, n a multiple of the lanes

Packing B for one row of A would take several times as long as the product itself. The order of
arithmetic is that of the micro-kernels: one chain over k for every element.
"""

from __future__ import annotations

from graphc.codegen.emitter import Module
from graphc.codegen.lanes import Lanes, register_type
from graphc.codegen.matmul_ir import Function
from graphc.codegen.matmul_micro import prefix
from graphc.codegen.matmul_pack import joined, side, transposed
from graphc.codegen.target import Target
from graphc.types import DType


def define_row(module: Module, target: Target, dtype: DType) -> str:
    """Define `row` for f32 or f64; returns its name."""
    name = f"{prefix(dtype)}_row"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %n, i64 %k, ptr %a, i64 %a_col, ptr %b, i64 %b_col, ptr noalias %c, i1 %accumulate",
        target,
    )
    lanes, size = target.lanes(dtype), dtype.itemsize
    L = Lanes(f, lanes, target)
    whole = f(f"and i64 %k, {-side(target, dtype)}")
    with f.each("0", "%n", lanes) as col:
        b = f.at("%b", f.mul(col.index, "%b_col"))
        columns = [f.at(b, f.mul("%b_col", i)) for i in range(lanes)]
        x = _steps(f, L, dtype, columns, "0", whole, side(target, dtype), "zeroinitializer")
        x = _steps(f, L, dtype, columns, whole, "%k", 1, x)
        c = f.at("%c", f.mul(col.index, size))
        with f.either("%accumulate") as branches:
            L.store(dtype, L.op("fadd", register_type(dtype), L.load(dtype, c), x), c)
            f.otherwise(*branches)
            L.store(dtype, x, c)
    f.finish()
    return name


def _steps(
    f: Function, L: Lanes, dtype: DType, columns: list[str], start: str, stop: str, step: int,
    first: str,
) -> str:
    """The chain over k from `start` to `stop`, `step` elements of every column at a time."""
    size, t, v = dtype.itemsize, register_type(dtype), L.reg(dtype)
    head, end = f.fresh("k"), f.fresh("sum")
    before = f.block
    f.do(f"br i1 {f.cmp('slt', start, stop)}, label %{head}, label %{end}")
    f.label(head)
    index, total = f"%{head}i", f"%{head}s"
    at = len(f.lines)
    shift = f.mul(index, size)
    piece = Lanes(f, step, f.target)
    parts = [piece.load(dtype, f.at(p, shift)) for p in columns]
    if step == 1:
        row = "poison"
        for i, x in enumerate(parts):
            row = f(f"insertelement {v} {row}, {t} {x}, i64 {i}")
        rows = [row]
    else:
        rows = transposed(
            f, t, L.width, [joined(f, t, step, parts[i::step]) for i in range(step)]
        )
    a = f.at("%a", f.mul(index, "%a_col"))
    new = total
    for i, row in enumerate(rows):
        new = L.fma(t, L.load_splat(dtype, f.at(a, f.mul("%a_col", i))), row, new)
    following = f.add(index, str(step))
    f.lines[at:at] = [
        f"  {index} = phi i64 [{start}, %{before}], [{following}, %{head}]",
        f"  {total} = phi {v} [{first}, %{before}], [{new}, %{head}]",
    ]
    again = f.cmp("slt", following, stop)
    f.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    return f(f"phi {v} [{first}, %{before}], [{new}, %{head}]")
