"""Integer products: exact modulo 2^bits, so any order of additions gives the same result."""

from __future__ import annotations

from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import memory_type
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.integer_dot import STEP, define_int_dots
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.tiling import prefix
from graphc.types import DType

MOST_LANES = 16  # narrow integers have no wide multiplication, and small products no long rows
ROWS = 2         # rows of C that share the loads of B


def define_int_block(module: Module, target: Target, dtype: DType) -> str:
    """Define `block` (see block.py) for an integer dtype; returns its name."""
    name = f"{prefix(dtype)}_block"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_col, "
        "ptr %b, i64 %b_row, i64 %b_col, ptr %c, i64 %c_row, ptr %scratch",
        target, tuned=True,
    )
    if target.has_dot and dtype.bits == 8:
        contiguous = f(f"and i1 {f.cmp('eq', '%a_col', '1')}, {f.cmp('eq', '%b_row', '1')}")
        with f.either(f(f"and i1 {contiguous}, {f.cmp('sge', '%k', str(STEP))}")) as branches:
            f.do(f"call void @{define_int_dots(module, target, dtype)}(i64 %m, i64 %n, i64 %k, "
                 "ptr %a, i64 %a_row, ptr %b, i64 %b_col, ptr %c, i64 %c_row)")
            f.otherwise(*branches)
            _block(f, target, dtype)
    else:
        _block(f, target, dtype)
    f.finish()
    return name


def _block(f: Function, target: Target, dtype: DType) -> None:
    """For all strides: along the columns, or where these are apart, element by element."""
    size = dtype.itemsize
    lanes = min(target.lanes(dtype), MOST_LANES)
    unit = f.cmp("eq", "%b_col", str(size))
    whole = f.select(unit, f(f"and i64 %n, {-lanes}"), "0")
    pairs = f(f"and i64 %m, {-ROWS}")
    for first, last, rows in (("0", pairs, ROWS), (pairs, "%m", 1)):
        with f.each(first, last, rows) as row:
            a = f.at("%a", f.mul(row.index, "%a_row"))
            c = f.at("%c", f.mul(row.index, "%c_row"))
            for start, stop, width in (("0", whole, lanes), (whole, "%n", 1)):
                L = Lanes(f, width, target)
                with f.each(start, stop, width) as col:
                    b = f.at("%b", f.mul(col.index, "%b_col"))
                    for i, x in enumerate(_sums(f, L, dtype, a, b, rows)):
                        out = f.at(f.at(c, f.mul("%c_row", i)), f.mul(col.index, size))
                        L.store(dtype, x, out)


def _sums(f: Function, L: Lanes, dtype: DType, a: str, b: str, rows: int) -> list[str]:
    """The loop over k for a register of columns in `rows` rows."""
    t, v = memory_type(dtype), L.reg(dtype)
    head, end = f.fresh("k"), f.fresh("sums")
    before = f.block
    f.branch(head)
    zero = "0" if L.width == 1 else "zeroinitializer"
    at = len(f.lines)
    pa, pb = f"%{head}a", f"%{head}b"
    y = L.load(dtype, pb)
    old = [f"%{head}s{i}" for i in range(rows)]
    new = [
        L.op("add", t, s, L.op("mul", t, L.load_splat(dtype, f.at(pa, f.mul("%a_row", i))), y))
        for i, s in enumerate(old)
    ]
    next_a, next_b = f.at(pa, "%a_col"), f.at(pb, "%b_row")
    following = f.add(f"%{head}i", "-1")
    f.lines[at:at] = [
        f"  %{head}i = phi i64 [%k, %{before}], [{following}, %{head}]",
        f"  {pa} = phi ptr [{a}, %{before}], [{next_a}, %{head}]",
        f"  {pb} = phi ptr [{b}, %{before}], [{next_b}, %{head}]",
        *(f"  {s} = phi {v} [{zero}, %{before}], [{n}, %{head}]"
          for s, n in zip(old, new, strict=True)),
    ]
    again = f.cmp("ne", following, "0")
    f.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    return new
