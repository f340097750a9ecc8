"""Products with one column: dot products of the rows of A with a vector; and integer products.

    dots(m, k, A, a_row, a_col, x, x_row, C, c_row, scratch)       strides in bytes, k >= 1

A row's sum is taken in 4 x 64 bytes of virtual lanes, which are added by a fixed tree; rows longer
than DOT_BLOCK add up the sums of their blocks. The same lanes and tree at every vector width and
for every layout, so that the bits depend on k alone.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emitter import Module
from graphc.codegen.lanes import Lanes, register_type
from graphc.codegen.matmul_ir import Function
from graphc.codegen.matmul_micro import prefix, tail_mask, tiling
from graphc.codegen.matmul_pack import define_pack
from graphc.codegen.target import VIRTUAL_BITS, Target
from graphc.dims import Size
from graphc.types import DType

DOT_BLOCK = 4096   # part of the numerical contract
DOT_ROWS = 32      # rows of A that are copied at a time where its columns are strided
ROUNDS = 4         # columns of one lane that are taken together
LINE = 64          # bytes of a virtual vector; there are four
GROUP_BYTES = 512  # of rows whose lanes are kept side by side: 32 KiB of lanes in f32


def dots_scratch(dtype: DType, k: Size) -> Size:
    """Bytes of scratch that `dots` needs at most: a copy of x, then rows of A, or lanes."""
    row = dims.minimum(k, DOT_BLOCK) * dtype.itemsize + LINE
    lanes = GROUP_BYTES * VIRTUAL_BITS // dtype.bits
    return row + dims.maximum(row * DOT_ROWS, lanes)


def define_dots(module: Module, target: Target, dtype: DType) -> str:
    """Define `dots` for f32 or f64; returns its name."""
    name = f"{prefix(dtype)}_dots"
    if name in module.functions:
        return name
    pack, rows = define_pack(module, target, dtype), _define_rows(module, target, dtype)
    columns = _define_columns(module, target, dtype)
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_row, i64 %a_col, ptr %x, i64 %x_row, "
        "ptr %c, i64 %c_row, ptr %scratch",
        target,
    )
    size = dtype.itemsize
    row = f.add(f.mul(f.min("%k", str(DOT_BLOCK)), size), str(LINE))
    copies = f.at("%scratch", row)
    scattered = f.cmp("ne", "%x_row", str(size))
    unit = f.cmp("eq", "%a_col", str(size))
    with f.each("0", "%k", DOT_BLOCK) as block:
        depth = f.min(f.sub("%k", block.index), str(DOT_BLOCK))
        later = f.cmp("ne", block.index, "0")
        a = f.at("%a", f.mul(block.index, "%a_col"))
        source = f.at("%x", f.mul(block.index, "%x_row"))
        with f.when(scattered):
            f.do(f"call void @{pack}(i64 1, i64 {depth}, ptr {source}, i64 0, i64 %x_row, "
                 f"ptr %scratch, i64 0)")
        x = f.select(scattered, "%scratch", source, "ptr")
        with f.either(unit) as branches:
            f.do(f"call void @{rows}(i64 %m, i64 {depth}, ptr {a}, i64 %a_row, ptr {x}, "
                 f"ptr %c, i64 %c_row, i1 {later})")
            f.otherwise(*branches)
            down = f.cmp("eq", "%a_row", str(size))
            whole = f.select(down, f(f"and i64 %m, {-target.lanes(dtype)}"), "0")
            f.do(f"call void @{columns}(i64 {whole}, i64 {depth}, ptr {a}, i64 %a_col, ptr {x}, "
                 f"ptr %c, i64 %c_row, i1 {later}, ptr {copies})")
            with f.each(whole, "%m", DOT_ROWS) as first:
                count = f.min(f.sub("%m", first.index), str(DOT_ROWS))
                f.do(f"call void @{pack}(i64 {count}, i64 {depth}, "
                     f"ptr {f.at(a, f.mul(first.index, '%a_row'))}, i64 %a_row, i64 %a_col, "
                     f"ptr {copies}, i64 {row})")
                f.do(f"call void @{rows}(i64 {count}, i64 {depth}, ptr {copies}, i64 {row}, "
                     f"ptr {x}, ptr {f.at('%c', f.mul(first.index, '%c_row'))}, i64 %c_row, "
                     f"i1 {later})")
    f.finish()
    return name


def _define_rows(module: Module, target: Target, dtype: DType) -> str:
    """Dot products of contiguous rows with contiguous x, stored or added to C."""
    name = f"{prefix(dtype)}_rows"
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_row, ptr %x, ptr noalias %c, i64 %c_row, "
        "i1 %accumulate",
        target, tuned=True,
    )
    lanes, size, t = target.lanes(dtype), dtype.itemsize, register_type(dtype)
    L, one = Lanes(f, lanes, target), Lanes(f, 1, target)
    count = VIRTUAL_BITS // target.vector_bits
    step = VIRTUAL_BITS // dtype.bits
    buffers = []
    masks = []
    whole = f(f"and i64 %k, {-step}")
    left = f.sub("%k", whole)
    if tiling(target, dtype).masked:
        masks = [
            tail_mask(f, dtype, lanes, f.max(f.sub(left, str(i * lanes)), "0"))
            for i in range(count)
        ]
    else:
        buffers = [f(f"alloca [{4 * LINE} x i8], align {LINE}") for _ in range(2)]
    with f.each("0", "%m") as row:
        a = f.at("%a", f.mul(row.index, "%a_row"))
        sums = _lane_sums(f, L, dtype, a, whole, count)
        # the tail always runs, on zeros if nothing is left: one order at every width
        at = f.mul(whole, size)
        pa, px = f.at(a, at), f.at("%x", at)
        for buffer, source in zip(buffers, (pa, px), strict=False):
            for i in range(count):
                L.store(dtype, "zeroinitializer", f.at(buffer, i * lanes * size))
            with f.each("0", left) as rest:
                shift = f.mul(rest.index, size)
                one.store(dtype, one.load(dtype, f.at(source, shift)), f.at(buffer, shift))
        if buffers:
            pa, px = buffers
        for i in range(count):
            M = Lanes(f, lanes, target, mask=masks[i]) if masks else L
            shift = str(i * lanes * size)
            x, y = M.load(dtype, f.at(pa, shift)), M.load(dtype, f.at(px, shift))
            sums[i] = L.fma(t, x, y, sums[i])
        total = _tree(f, L, t, sums, LINE * 8 // target.vector_bits)
        out = f.at("%c", f.mul(row.index, "%c_row"))
        with f.either("%accumulate") as branches:
            one.store(dtype, f(f"fadd {t} {one.load(dtype, out)}, {total}"), out)
            f.otherwise(*branches)
            one.store(dtype, total, out)
    f.finish()
    return name


def _define_columns(module: Module, target: Target, dtype: DType) -> str:
    """The sums of `_define_rows` for an A whose columns are contiguous: m whole registers of rows.

    The virtual lanes of a group of rows lie in scratch, lane by lane; lane l takes the columns
    l, l + step, ... of A, and the tree adds whole registers of rows.
    """
    name = f"{prefix(dtype)}_columns"
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_col, ptr %x, ptr noalias %c, i64 %c_row, "
        "i1 %accumulate, ptr noalias %lanes",
        target,
    )
    lanes, size, t = target.lanes(dtype), dtype.itemsize, register_type(dtype)
    L, one = Lanes(f, lanes, target), Lanes(f, 1, target)
    step = VIRTUAL_BITS // dtype.bits
    row = GROUP_BYTES
    with f.each("0", "%m", GROUP_BYTES // size) as group:
        rows = f.min(f.sub("%m", group.index), str(GROUP_BYTES // size))
        with f.each("0", f.mul(rows, size), lanes * size) as v:
            here = f.at("%lanes", v.index)
            with f.each("0", str(step)) as lane:
                L.store(dtype, "zeroinitializer", f.at(here, f.mul(lane.index, row)))
        a = f.at("%a", f.mul(group.index, size))
        whole = f(f"and i64 %k, {-ROUNDS * step}")
        with f.each("0", whole, ROUNDS * step) as k, f.each("0", str(step)) as lane:
            _column_step(f, L, dtype, a, f.add(k.index, lane.index), ROUNDS, rows)
        with f.each(whole, "%k") as k:
            _column_step(f, L, dtype, a, k.index, 1, rows)
        with f.each("0", f.mul(rows, size), lanes * size) as v:
            here = f.at("%lanes", v.index)
            # the lanes that the tail leaves out take part in it with zeros: -0 becomes 0
            with f.each(f(f"and i64 %k, {step - 1}"), str(step)) as lane:
                p = f.at(here, f.mul(lane.index, row))
                L.store(dtype, L.op("fadd", t, L.load(dtype, p), "zeroinitializer"), p)
            quarter = step // 4
            with f.each("0", str(quarter)) as lane:
                p = f.at(here, f.mul(lane.index, row))
                q = [L.load(dtype, f.at(p, i * quarter * row)) for i in range(4)]
                low, high = L.op("fadd", t, q[0], q[1]), L.op("fadd", t, q[2], q[3])
                L.store(dtype, L.op("fadd", t, low, high), p)
            half = quarter // 2
            while half:
                with f.each("0", str(half)) as lane:
                    p = f.at(here, f.mul(lane.index, row))
                    low, high = L.load(dtype, p), L.load(dtype, f.at(p, half * row))
                    L.store(dtype, L.op("fadd", t, low, high), p)
                half //= 2
        with f.each("0", rows) as i:
            total = one.load(dtype, f.at("%lanes", f.mul(i.index, size)))
            out = f.at("%c", f.mul(f.add(group.index, i.index), "%c_row"))
            with f.either("%accumulate") as branches:
                one.store(dtype, f(f"fadd {t} {one.load(dtype, out)}, {total}"), out)
                f.otherwise(*branches)
                one.store(dtype, total, out)
    f.finish()
    return name


def _column_step(
    f: Function, L: Lanes, dtype: DType, a: str, k: str, rounds: int, rows: str
) -> None:
    """The columns k, k + step, ... of A, all of one lane, times x into that lane's sums."""
    step, size, t = VIRTUAL_BITS // dtype.bits, dtype.itemsize, register_type(dtype)
    x = f.at("%x", f.mul(k, size))
    column = f.at(a, f.mul(k, "%a_col"))
    xs = [L.load_splat(dtype, f.at(x, i * step * size)) for i in range(rounds)]
    columns = [f.at(column, f.mul("%a_col", i * step)) for i in range(rounds)]
    sums = f.at("%lanes", f.mul(f(f"and i64 {k}, {step - 1}"), GROUP_BYTES))
    with f.each("0", f.mul(rows, size), L.width * size) as v:
        p = f.at(sums, v.index)
        s = L.load(dtype, p)
        for factor, source in zip(xs, columns, strict=True):
            s = L.fma(t, L.load(dtype, f.at(source, v.index)), factor, s)
        L.store(dtype, s, p)


def _lane_sums(f: Function, L: Lanes, dtype: DType, a: str, stop: str, count: int) -> list[str]:
    """The loop over the first `stop` elements of a row; the registers of lanes after it."""
    size, v = dtype.itemsize, L.reg(dtype)
    step = VIRTUAL_BITS // dtype.bits
    head, end = f.fresh("dot"), f.fresh("lanes")
    before = f.block
    f.do(f"br i1 {f.cmp('sgt', stop, '0')}, label %{head}, label %{end}")
    f.label(head)
    sums = [f"%{head}s{i}" for i in range(count)]
    at = len(f.lines)
    shift = f.mul(f"%{head}i", size)
    pa, px = f.at(a, shift), f.at("%x", shift)
    new = []
    for i, s in enumerate(sums):
        place = str(i * L.width * size)
        x, y = L.load(dtype, f.at(pa, place)), L.load(dtype, f.at(px, place))
        new.append(L.fma(register_type(dtype), x, y, s))
    following = f.add(f"%{head}i", str(step))
    phis = [f"  %{head}i = phi i64 [0, %{before}], [{following}, %{head}]"]
    phis += [
        f"  {s} = phi {v} [zeroinitializer, %{before}], [{n}, %{head}]"
        for s, n in zip(sums, new, strict=True)
    ]
    f.lines[at:at] = phis
    again = f.cmp("slt", following, stop)
    f.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    return [
        f(f"phi {v} [zeroinitializer, %{before}], [{n}, %{head}]") for n in new
    ]


def _tree(f: Function, L: Lanes, t: str, sums: list[str], per_line: int) -> str:
    """The sum of all lanes: four virtual vectors pairwise, then halves with halves."""
    lines = [sums[i::per_line] for i in range(per_line)]
    parts = [
        L.op("fadd", t, L.op("fadd", t, q[0], q[1]), L.op("fadd", t, q[2], q[3])) for q in lines
    ]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [L.op("fadd", t, parts[i], parts[i + half]) for i in range(half)]
    x, width = parts[0], L.width
    while width > 1:
        v, half = f"<{width} x {t}>", width // 2
        low = ", ".join(f"i32 {i}" for i in range(half))
        high = ", ".join(f"i32 {i}" for i in range(half, width))
        a = f(f"shufflevector {v} {x}, {v} poison, <{half} x i32> <{low}>")
        b = f(f"shufflevector {v} {x}, {v} poison, <{half} x i32> <{high}>")
        x, width = f(f"fadd <{half} x {t}> {a}, {b}"), half
    return f(f"extractelement <1 x {t}> {x}, i64 0")
