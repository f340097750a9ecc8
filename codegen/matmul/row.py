"""A single row or a few times a matrix, in the order of arithmetic of the micro-kernels.

    row(n, k, A, B, b_col, C, accumulate)                     n a multiple of the lanes
    few(m, n, k, A, a_row, B, b_col, C, c_row, accumulate)    likewise, m <= MOST_ROWS
    stream(n, k, A, a_col, B, b_row, C, scratch)              strides in bytes

`row` and `few` are for a B whose columns are contiguous: packing it for few rows of A would take
longer than the product, so it is transposed on the way to registers. Rows of A are contiguous:
with a stride that is not known the loops run out of registers. `stream` is for a B with
contiguous rows that comes from memory: it reads long pieces of a few rows at a time, and keeps the
sums in a near cache, half a page from where B's are.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.aliasing import PAGE, half_a_page_from
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.emission.prefetch import CORE_BYTES
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.lines import LINES_ROW, off_line, whole_lines
from graphc.codegen.matmul.pack import piece_size, turned
from graphc.codegen.matmul.strips import WAY_BYTES
from graphc.codegen.matmul.tiling import prefix, tail_mask
from graphc.dims import Size
from graphc.types import DType

STREAM_BYTES = 1 << 16  # of a piece of a row: the longer, the less memory waits at its ends
STREAM_ROWS = (8, 4, 2, 1)  # rows read side by side: what is left by the most goes by the others
# On cores that read ahead, of a B that their own cache does not hold, the next rows are asked for
# as they lie, if they are of so many bytes; far memory gives shorter ones faster unasked. GB/s of
# f32 in rows of 256, 512, 1,024 and 2,048 on Zen 5, with asking and without:
#     4 MiB        123  98   120 108   119  99   109 102
#     16 MiB        95  83    94  86   111  85   102  90
#     48 MiB        46  46    45  44    50  46    54  48
ASKING_ROWS = (2, 1)  # more would fall out of the nearest cache: rows of 2,048 85 and 43 by eight
ASKED_ROW = 1 << 13  # bytes of a row at most,
FAR_BYTES, LEAST_FAR_ROW = 24 << 20, 1 << 11  # and of one at least where B is of more than that
# Cores that read in order take such a B whose rows follow each other row by row, which is a stream.
# us of f32 on Zen 4, by one row and by eight:
#     1024 x 1024   46   52     8192 x 512   224  257     65,536 x 256   2,140  5,260
#     2048 x 2048  206  234     1000 x 4096  255  238     16,384 x 1024  1,640  2,180
# but 4096 x 512 that begins elsewhere than with a line 110 and 101, and 1000 x 1000 59 and 53.
SINGLE_ROW = 1 << 13   # bytes of a row at most: the sums of longer ones leave the nearest cache
LONG_SINGLE = 1 << 12  # .. and of one that has a head and a rest to it
MOST_ROWS = 4           # of `few`: 8 take as long as by what is packed, 12 half as long again
SIDE_BY_SIDE = 16       # columns: more would fall out of the nearest cache where strides are even


def define_row(module: Module, target: Target, dtype: DType) -> str:
    """Define `row` for f32 or f64; returns its name."""
    name = f"{prefix(dtype)}_row"
    if name not in module.functions:
        f = Function(
            module, name,
            "i64 %n, i64 %k, ptr %a, ptr %b, i64 %b_col, ptr noalias %c, i1 %accumulate",
            target,
        )
        sizes = (2, 1) if 2 * target.lanes(dtype) <= SIDE_BY_SIDE else (1,)
        for columns, place in _columns(f, dtype, sizes):
            _product(f, dtype, ["%a"], columns, [f.at("%c", place)])
        f.finish()
    return name


def define_few(module: Module, target: Target, dtype: DType) -> str:
    """Define `few` for f32 or f64; returns its name.

    What is transposed serves MOST_ROWS rows. If that is more than there are, the last is several of
    them: all are computed before one is stored. 2 to 4 rows by 784x512 take 0.6 of the time that
    they take by a packed B, in f32 and f64, by 4096x4096 0.7 to 0.9, by AVX2 0.55 to 0.7; by 64x64,
    which is near, 1.1. Two rows have loops of their own: by 256x256 and 512x512 they take 0.7 to
    0.75 of what four take.
    """
    name = f"{prefix(dtype)}_few"
    if name not in module.functions:
        f = Function(
            module, name,
            "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, ptr %b, i64 %b_col, ptr noalias %c, "
            "i64 %c_row, i1 %accumulate",
            target,
        )
        with f.either(f.cmp("sle", "%m", "2")) as branches:
            _several(f, dtype, 2)
            f.otherwise(*branches)
            _several(f, dtype, MOST_ROWS)
        f.finish()
    return name


def _several(f: Function, dtype: DType, most: int) -> None:
    """Up to so many rows; where there are fewer, the last is several of them."""
    last = f.add("%m", "-1")
    numbers = [f.min(str(i), last) for i in range(most)]
    rows = [f.at("%a", f.mul(i, "%a_row")) for i in numbers]
    starts = [f.at("%c", f.mul(i, "%c_row")) for i in numbers]
    for columns, place in _columns(f, dtype, (1,)):
        _product(f, dtype, rows, columns, [f.at(c, place) for c in starts])


def _columns(
    f: Function, dtype: DType, sizes: tuple[int, ...]
) -> Iterator[tuple[list[list[str]], str]]:
    """Loops over n columns, so many groups of as many as lanes at a time: where those of B begin,
    and where they are in a row of C."""
    lanes, done = f.target.lanes(dtype), "0"
    for together in sizes:
        end = f(f"and i64 %n, {-together * lanes}")
        with f.each(done, end, together * lanes) as col:
            b = f.at("%b", f.mul(col.index, "%b_col"))
            columns = [f.at(b, f.mul("%b_col", i)) for i in range(together * lanes)]
            yield ([columns[i : i + lanes] for i in range(0, len(columns), lanes)],
                   f.mul(col.index, dtype.itemsize))
        done = end


def _product(
    f: Function, dtype: DType, rows: list[str], groups: list[list[str]], out: list[str]
) -> None:
    """Rows of A times groups of columns, to where they are in C, or added to what is there."""
    L = Lanes(f, f.target.lanes(dtype), f.target)
    piece = piece_size(f.target, dtype)
    step = 2 * piece if L.width == 4 * piece else piece
    whole = f(f"and i64 %k, {-step}")
    x = ["zeroinitializer"] * (len(rows) * len(groups))
    x = _steps(f, L, dtype, rows, groups, "0", whole, step, x)
    x = _steps(f, L, dtype, rows, groups, whole, "%k", 1, x)
    width, t = L.width * dtype.itemsize, register_type(dtype)
    places = [f.at(c, i * width) for c in out for i in range(len(groups))]
    with f.either("%accumulate") as branches:
        sums = [L.op("fadd", t, L.load(dtype, p), y) for p, y in zip(places, x, strict=True)]
        for p, y in zip(places, sums, strict=True):
            L.store(dtype, y, p)
        f.otherwise(*branches)
        for p, y in zip(places, x, strict=True):
            L.store(dtype, y, p)


def _steps(
    f: Function, L: Lanes, dtype: DType, a: list[str], groups: list[list[str]], start: str,
    stop: str, step: int, first: list[str],
) -> list[str]:
    """The chains over k from `start` to `stop`, `step` elements of every column at a time: of each
    row of A those of all groups."""
    size, t, v = dtype.itemsize, register_type(dtype), L.reg(dtype)
    head, end = f.fresh("k"), f.fresh("sum")
    before = f.block
    f.do(f"br i1 {f.cmp('slt', start, stop)}, label %{head}, label %{end}")
    f.label(head)
    index = f"%{head}i"
    totals = [f"%{head}s{i}" for i in range(len(first))]
    at = len(f.lines)
    shift = f.mul(index, size)
    piece = Lanes(f, step, f.target)
    places = [f.at(row, shift) for row in a]
    news = [*totals]
    if step > 1:
        _ask(f, [p for columns in groups for p in columns], index, step, size)
    for g, columns in enumerate(groups):
        parts = [piece.load(dtype, f.at(p, shift)) for p in columns]
        if step == 1:
            row = "poison"
            for i, x in enumerate(parts):
                row = f(f"insertelement {v} {row}, {t} {x}, i64 {i}")
            lines = [row]
        else:
            lines = turned(f, dtype, parts, step)
        for i, line in enumerate(lines):
            for p, total in zip(places, range(g, len(news), len(groups)), strict=True):
                x = L.load_splat(dtype, f.at(p, i * size))
                news[total] = L.fma(t, x, line, news[total])
    following = f.add(index, str(step))
    f.lines[at:at] = [
        f"  {index} = phi i64 [{start}, %{before}], [{following}, %{head}]",
        *(f"  {s} = phi {v} [{x}, %{before}], [{y}, %{head}]"
          for s, x, y in zip(totals, first, news, strict=True)),
    ]
    again = f.cmp("slt", following, stop)
    f.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    return [
        f(f"phi {v} [{x}, %{before}], [{y}, %{head}]") for x, y in zip(first, news, strict=True)
    ]


def _ask(f: Function, columns: list[str], index: str, step: int, size: int) -> None:
    """Ask for the columns behind these, which no one reads in order: some at each of the steps that
    share a line. Weights of 8 heads with 4096 keys of 128 f32 each take an eighth less."""
    steps = LINE // (step * size)
    count = -(-len(columns) // steps)
    turn = f(f"and i64 {f.udiv(index, step)}, {steps - 1}")
    line = f.at(columns[0], f.mul(f(f"and i64 {index}, {-steps * step}"), size))
    line = f.at(line, f.mul("%b_col", f.add(f.mul(turn, count), str(len(columns)))))
    for i in range(count):
        f.prefetch(f.at(line, f.mul("%b_col", i)))


def stream_scratch(dtype: DType, n: Size) -> Size:
    """Bytes of scratch that `stream` needs."""
    return dims.minimum(n * dtype.itemsize, STREAM_BYTES) + PAGE


def define_stream(module: Module, target: Target, dtype: DType, k_block: int) -> str:
    """Define `stream` for f32 or f64: sums of `k_block` steps are added up; returns its name."""
    name = f"{prefix(dtype)}_stream"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %n, i64 %k, ptr %a, i64 %a_col, ptr %b, i64 %b_row, ptr noalias %c, "
        "ptr noalias %scratch",
        target,
    )
    size = dtype.itemsize
    add = f"@{define_add(module, target, dtype)}"
    if target.reads_ahead and target.masked:  # by vectors of a line each
        asking = f"@{define_add(module, target, dtype, 'asking')}"
        add = f.select(_asked(f), asking, add, "ptr")
    elif target.reads_in_order:
        single = f"@{define_add(module, target, dtype, 'single')}"
        add = f.select(_in_order(f, size), single, add, "ptr")
    sums = half_a_page_from(f, f("ptrtoint ptr %b to i64"), "%scratch")
    sums = f.at(sums, _off_line(f, dtype))
    with f.each("0", f.mul("%n", size), STREAM_BYTES) as piece:
        width = f.min(f.sub(f.mul("%n", size), piece.index), str(STREAM_BYTES))
        columns = f.udiv(width, size)
        parts = row_parts(f, dtype, "0", width)
        out = f.at("%c", piece.index)
        with f.each("0", "%k", k_block) as block:
            depth = f.min(f.sub("%k", block.index), str(k_block))
            a = f.at("%a", f.mul(block.index, "%a_col"))
            b = f.at(f.at("%b", piece.index), f.mul(block.index, "%b_row"))
            clear(f, dtype, parts, sums)
            given = (f"(i64 {columns}, i64 {depth}, ptr {a}, i64 %a_col, ptr {b}, i64 %b_row, "
                     f"ptr {sums})")
            f.do(f"call void {add}{given}")
            with f.either(f.cmp("ne", block.index, "0")) as branches:
                add_up(f, dtype, parts, out, sums)
                f.otherwise(*branches)
                copy(f, dtype, parts, out, sums)
    f.finish()
    return name


def _asked(f: Function) -> str:
    """Whether the rows of B are asked for, an i1."""
    bytes_ = f.mul("%b_row", "%k")
    least = f.select(f.cmp("sgt", bytes_, str(FAR_BYTES)), str(LEAST_FAR_ROW), "0")
    return f.all_of([
        f.cmp("sgt", bytes_, str(CORE_BYTES)), f.cmp("sge", "%b_row", least),
        f.cmp("sle", "%b_row", str(ASKED_ROW)),
    ])


def _in_order(f: Function, size: int) -> str:
    """Whether the rows of B, of elements of `size` bytes, are read one by one, an i1: near ones if
    they are whole lines, and short ones of these if they begin lines, too."""
    whole = f.mul("%b_row", "%k")
    place = f("ptrtoint ptr %b to i64")
    begin = f.select(f.cmp("slt", "%b_row", str(LONG_SINGLE)), place, "0")
    near = f.all_of([whole_lines(f, begin, "%b_row"), f.cmp("sgt", whole, str(CORE_BYTES))])
    return f.all_of([
        f.cmp("eq", f.mul("%n", size), "%b_row"), f.cmp("sle", "%b_row", str(SINGLE_ROW)),
        f.any_of([near, f.cmp("sgt", whole, str(FAR_BYTES))]),
    ])


def define_add(module: Module, target: Target, dtype: DType, way: str = "") -> str:
    """Define `add`: sums += A @ B for the single row A and a B with contiguous rows; its name.

        add(n, k, A, a_col, B, b_row, sums)

    The nearest caches of CPUs without AVX-512 have 8 lines of a set, and what is read side by side
    stands in one where rows are a multiple of 4 KiB apart: half as many rows there take Zen 1 a
    tenth less of 1x2048x2048, where 1x2100x2100 would take a seventh more. Zen 3 keeps them, and
    takes a fifth less by eight.

    Rows of whole lines that lie across these begin with a head up to the first one, and so do the
    sums, which stand like them: 1 x 1000 x 128 f32 takes Golden Cove 4.0 us in the place of 5.2.

    By the `way` "single" rows are read one by one; by "asking" those behind the ones that are read
    side by side are asked for, as if they lay side by side.
    """
    name = f"{prefix(dtype)}_add" + f"_{way}" * bool(way)
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %n, i64 %k, ptr %a, i64 %a_col, ptr %b, i64 %b_row, ptr noalias %sums", target,
    )
    parts = _parts_of_lines(f, dtype)
    first = "0"
    for rows in {"asking": ASKING_ROWS, "single": (1,)}.get(way, STREAM_ROWS):
        last = f(f"and i64 %k, {-rows}")
        if rows == STREAM_ROWS[0] and target.loses_lines:
            even = f.cmp("eq", f(f"and i64 %b_row, {WAY_BYTES - 1}"), "0")
            last = f.select(even, first, last)
        with f.each(first, last, rows) as k:
            _add_rows(f, dtype, parts, rows, f.at("%a", f.mul(k.index, "%a_col")),
                      f.at("%b", f.mul(k.index, "%b_row")), "%sums", way == "asking")
        first = last
    f.finish()
    return name


Parts = list[tuple[Lanes, str, str]]  # of a row: the lanes that take it from where to where


def row_parts(f: Function, dtype: DType, start: str, stop: str) -> Parts:
    """The bytes [start, stop) of a row, whole registers first."""
    lanes, size = f.target.lanes(dtype), dtype.itemsize
    width = f.sub(stop, start)
    main = f.add(start, f(f"and i64 {width}, {-lanes * size}"))
    rest = _rest(f, dtype, f.udiv(f.sub(stop, main), size))
    return [(Lanes(f, lanes, f.target), start, main), (rest, main, stop)]


def _off_line(f: Function, dtype: DType) -> str:
    """Bytes by which rows of %b of %n elements all begin after a line, if they are long; else 0."""
    long = f.cmp("sge", f.mul("%n", dtype.itemsize), str(LINES_ROW))
    return f.select(long, off_line(f, f.target, "%b", "%b_row"), "0")


def _parts_of_lines(f: Function, dtype: DType) -> Parts:
    """The parts of all %n elements of rows of %b, whose registers begin lines where all rows lie
    alike and are long."""
    width, size, target = f.mul("%n", dtype.itemsize), dtype.itemsize, f.target
    if not target.masked:
        return row_parts(f, dtype, "0", width)
    lanes = target.lanes(dtype)
    head = f(f"and i64 {f.sub('0', _off_line(f, dtype))}, {LINE - 1}")
    mask = tail_mask(f, dtype, lanes, f.udiv(head, size))
    return [(Lanes(f, lanes, target, mask=mask), "0", head), *row_parts(f, dtype, head, width)]


def clear(f: Function, dtype: DType, parts: Parts, p: str) -> None:
    """Zeros at p."""
    for L, start, stop in parts:
        with f.each(start, stop, L.width * dtype.itemsize) as v:
            zero = "zeroinitializer" if L.width > 1 else "0.0"
            L.store(dtype, zero, f.at(p, v.index))


def copy(f: Function, dtype: DType, parts: Parts, p: str, q: str) -> None:
    """What stands at q, to p."""
    for L, start, stop in parts:
        with f.each(start, stop, L.width * dtype.itemsize) as v:
            L.store(dtype, L.load(dtype, f.at(q, v.index)), f.at(p, v.index))


def add_up(f: Function, dtype: DType, parts: Parts, p: str, q: str) -> None:
    """What stands at p, plus what stands at q."""
    for L, start, stop in parts:
        with f.each(start, stop, L.width * dtype.itemsize) as v:
            place = f.at(p, v.index)
            x, y = L.load(dtype, place), L.load(dtype, f.at(q, v.index))
            L.store(dtype, L.op("fadd", register_type(dtype), x, y), place)


def _rest(f: Function, dtype: DType, count: str) -> Lanes:
    """What `count` elements behind the whole registers are taken with: one mask, or singly."""
    if not f.target.masked:
        return Lanes(f, 1, f.target)
    lanes = f.target.lanes(dtype)
    return Lanes(f, lanes, f.target, mask=tail_mask(f, dtype, lanes, count))


def _add_rows(
    f: Function, dtype: DType, parts: Parts, rows: int, a: str, b: str, sums: str, asking: bool
) -> None:
    """Elements of A times `rows` rows of B, added in order."""
    size, t = dtype.itemsize, register_type(dtype)
    one = Lanes(f, 1, f.target)
    factors = [one.load(dtype, f.at(a, f.mul("%a_col", i))) for i in range(rows)]
    lines = [f.at(b, f.mul("%b_row", i)) for i in range(rows)]
    for L, start, stop in parts:
        wide = [L.splat(dtype, x) for x in factors]
        with f.each(start, stop, L.width * size) as v:
            p = f.at(sums, v.index)
            s = L.load(dtype, p)
            if asking and L.width * size == LINE and L.mask is None:
                later = f.at(f.at(b, f.mul("%b_row", rows)), f.mul(v.index, rows))
                for i in range(rows):
                    f.prefetch(f.at(later, i * LINE))
            for x, line in zip(wide, lines, strict=True):
                s = L.fma(t, x, L.load(dtype, f.at(line, v.index)), s)
            L.store(dtype, s, p)
