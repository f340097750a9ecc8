"""Products with one column: dot products of the rows of A with a vector; and integer products.

    dots(m, k, A, a_row, a_col, x, x_row, C, c_row, scratch, all)       strides in bytes, k >= 1

for m of `all` rows that are taken one part after the other.

A row's sum is taken in 4 x 64 bytes of virtual lanes, which are added by a fixed tree and to 0;
rows longer than DOT_BLOCK add up the sums of their blocks. The same lanes and tree at every vector
width and for every layout, so that the bits depend on k alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.emission.prefetch import CORE_BYTES
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.dot_columns import FAR_BYTES, define_far, define_near, is_near
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.lines import LINES_ROW, ByLines, off_line, whole_lines
from graphc.codegen.matmul.pack import define_pack
from graphc.codegen.matmul.short_rows import define_short_rows, few_registers
from graphc.codegen.matmul.tiling import KeptMask, prefix, tail_mask, tiling
from graphc.codegen.matmul.trees import line_sum, totals
from graphc.dims import Size
from graphc.types import DType

DOT_BLOCK = 4096   # part of the numerical contract
DOT_ROWS = 32      # rows of A that are copied at a time where its columns are strided
ALIGNED_ROWS = 32  # from which x is copied where its vectors lie across lines: 2 to 7 % on Zen 5;
                   # beside rows that are read by lines where it does not lie as they do
ASK_BYTES = 1 << 22  # of an A from which rows are asked for ahead
# Cores that read ahead do from CORE_BYTES on, so many bytes along the same row.
FURTHER = 1 << 10
ASK_ROW = 1 << 15    # bytes of a row of such an A, at most
# Bytes of all of an A from which some streams are asked for where far memory comes faster so: parts
# of ASK_BYTES do as four rows. What a cache holds takes longer by it: see `define_rows`
STREAM_BYTES = 12 << 20
STREAMS = 4          # rows that are asked for side by side
# Cores that read in order take rows of LEAST to MOST_SINGLE bytes one by one, which is a stream,
# where A is of more than SINGLE_BYTES, or of CORE_BYTES and all of its rows begin lines. us of f32
# on Zen 4, one by one and by four:
#     1024 x 1024    44   49     8192 x 512    222  284     65,536 x 256  1,675  4,287
#     2048 x 2048   250  261     30,000 x 128  197  260     8192 x 2048   1,747  2,014
# but of 16,384 x 32 61 and 52, of 1000 x 4096, where x leaves the nearest cache, 298 and 262, and
# of rows that begin elsewhere, in what the last cache holds, up to a quarter more.
LEAST_SINGLE, MOST_SINGLE = 1 << 8, 1 << 13
SINGLE_BYTES = 20 << 20
TAIL_REGISTERS = 4   # of what is left of a row that are passed over together if they are empty
LONG_ROW = 1 << 12   # bytes of a row that is taken with others where registers are few, at least


def dots_scratch(dtype: DType, m: Size, k: Size) -> Size:
    """Bytes of scratch that `dots` needs at most: a copy of x, then rows of A, or lanes."""
    row = dims.minimum(k, DOT_BLOCK) * dtype.itemsize + LINE
    group = dims.maximum(dims.minimum(m * dtype.itemsize, FAR_BYTES), LINE)
    return row + dims.maximum(row * DOT_ROWS, group * (VIRTUAL_BITS // dtype.bits))


def define_dots(module: Module, target: Target, dtype: DType, length: int | None = None) -> str:
    """Define `dots` for f32 or f64, or for short rows of this length; returns its name."""
    name = f"{prefix(dtype)}_dots" + (f"_of_{length}" if length else "")
    if name in module.functions:
        return name
    pack, rows = define_pack(module, target, dtype), define_rows(module, target, dtype, length)
    near, far = define_near(module, target, dtype), define_far(module, target, dtype)
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_row, i64 %a_col, ptr %x, i64 %x_row, "
        "ptr %c, i64 %c_row, ptr %scratch, i64 %all",
        target,
    )
    size = dtype.itemsize
    row = f.add(f.mul(f.min("%k", str(DOT_BLOCK)), size), str(LINE))
    copies = f.at("%scratch", row)
    apart = f.cmp("ne", "%x_row", str(size))
    unit = f.cmp("eq", "%a_col", str(size))
    back = "0" if length else f.select(unit, _off_line(f, dtype), "0")
    alike = f.sub(f("ptrtoint ptr %x to i64"), back)  # begins a line if x stands as the rows do
    across = f.cmp("ne", f(f"and i64 {alike}, {LINE - 1}"), "0")
    many = f.cmp("sge", "%m", str(ALIGNED_ROWS))
    scattered = f(f"or i1 {apart}, {f(f'and i1 {across}, {many}')}")
    copied = f.at("%scratch", back)
    with f.each("0", "%k", DOT_BLOCK) as block:
        depth = f.min(f.sub("%k", block.index), str(DOT_BLOCK))
        later = f.cmp("ne", block.index, "0")
        a = f.at("%a", f.mul(block.index, "%a_col"))
        source = f.at("%x", f.mul(block.index, "%x_row"))
        with f.when(scattered):
            f.do(f"call void @{pack}(i64 1, i64 {depth}, ptr {source}, i64 0, i64 %x_row, "
                 f"ptr {copied}, i64 0)")
        x = f.select(scattered, copied, source, "ptr")
        with f.either(unit) as branches:
            f.do(f"call void @{rows}(i64 %m, i64 {depth}, ptr {a}, i64 %a_row, ptr {x}, "
                 f"ptr %c, i64 %c_row, i1 {later}, i64 %all)")
            f.otherwise(*branches)
            down = f.cmp("eq", "%a_row", str(size))
            close = f.all_of([down, is_near(f, dtype, depth)])
            whole = f.select(down, f(f"and i64 %m, {-target.lanes(dtype)}"), "0")
            if tiling(target, dtype).masked:
                whole = f.select(close, "%m", whole)
            with f.either(close) as ways:
                f.do(f"call void @{near}(i64 {whole}, i64 {depth}, ptr {a}, i64 %a_col, ptr {x}, "
                     f"ptr %c, i1 {later}, ptr {copies})")
                f.otherwise(*ways)
                f.do(f"call void @{far}(i64 {whole}, i64 {depth}, ptr {a}, i64 %a_col, ptr {x}, "
                     f"ptr %c, i64 %c_row, i1 {later}, ptr {copies})")
            with f.each(whole, "%m", DOT_ROWS) as first:
                count = f.min(f.sub("%m", first.index), str(DOT_ROWS))
                f.do(f"call void @{pack}(i64 {count}, i64 {depth}, "
                     f"ptr {f.at(a, f.mul(first.index, '%a_row'))}, i64 %a_row, i64 %a_col, "
                     f"ptr {copies}, i64 {row})")
                f.do(f"call void @{rows}(i64 {count}, i64 {depth}, ptr {copies}, i64 {row}, "
                     f"ptr {x}, ptr {f.at('%c', f.mul(first.index, '%c_row'))}, i64 %c_row, "
                     f"i1 {later}, i64 {count})")
    f.finish()
    return name


def _far(f: Function) -> str:
    """Whether A comes from far away, an i1."""
    most = CORE_BYTES if f.target.reads_ahead else ASK_BYTES
    return f.cmp("sgt", f.mul("%m", "%a_row"), str(most))


def _asks(f: Function) -> str:
    """Whether rows of A are asked for ahead where registers are many, an i1."""
    return f.all_of([_far(f), f.cmp("sle", "%a_row", str(ASK_ROW))])


def _in_order(f: Function, dtype: DType) -> str:
    """Whether A's rows are read one by one, an i1."""
    row = f.mul("%k", dtype.itemsize)
    whole = f.mul("%all", row)
    lines = whole_lines(f, f("ptrtoint ptr %a to i64"), row)
    near = f.all_of([lines, f.cmp("sgt", whole, str(CORE_BYTES))])
    return f.all_of([
        f.cmp("eq", row, "%a_row"),
        f.cmp("sge", row, str(LEAST_SINGLE)), f.cmp("sle", row, str(MOST_SINGLE)),
        f.any_of([near, f.cmp("sgt", whole, str(SINGLE_BYTES))]),
    ])


def _off_line(f: Function, dtype: DType) -> str:
    """Bytes by which A's rows begin after a line, if they are read by lines; else 0. What is asked
    for comes from far away, and waits for that."""
    if not f.target.masked:
        return "0"
    some = f.cmp("sge", f.mul("%k", dtype.itemsize), str(LINES_ROW))
    near = f.all_of([some, f(f"xor i1 {_asks(f)}, true")])
    return f.select(near, off_line(f, f.target, "%a", "%a_row"), "0")


class _Way(NamedTuple):
    """Rows that are taken together: how many, when, whether they ask for later ones, and what reads
    them by lines of the cache, if they lie across these."""

    together: int
    when: str
    asking: bool = False
    lines: ByLines | None = None


def define_rows(module: Module, target: Target, dtype: DType, length: int | None = None) -> str:
    """Dot products of contiguous rows with contiguous x, stored or added to C; of short rows of
    this `length`.

    As many rows together as there are registers for their lanes: they share what is read of x, and
    the shuffles of their trees. Those of an A from far away ask for the next, since hardware looks
    ahead within a page: 2048x1x2048 f64 takes 6 to 9 % less. What is near had better not be asked
    for, 128x1x128 f32 would take a fifth longer, nor what comes much later. Cores that read ahead
    take longer by it: they ask a little further along the same rows, from what their own cache does
    not hold on. Zen 5 reads rows of 2,048 f32, in all 8, 16, 24 and 96 MiB, at 106, 107, 75 and 47
    GB/s, where it read them at 95, 82, 60 and 38; of 512 at 115 (2 to 8 MiB) for 89 to 108. Cores
    that read in order take a large A row by row, up to MOST_SINGLE bytes of one.

    Rows of whole lines that lie across these are read by lines, if they are not far away: 1000 x
    128 f32 takes Golden Cove 5.1 us for 6.8, 300 x 1024 10.5 for 12.5, 1000 x 64 and 1000 x 128 f64
    4.5 for 6.7 and 7.7 for 10.3.

    On AVX2 two rows have lanes in all 16 registers, of which one is spilled at every turn: a load
    and a store beside 16 multiply-adds, which share 8 loads of x. 256x1x4096 f64 takes a fifth
    less. Four spill half of theirs, but what comes from far away comes faster in four streams:
    2048x1x2048 f64 takes a quarter less than row by row. Of short rows one stream is better. Zen 3
    takes two thirds of the time for 2048x1x2048 f32 row by row, each of which asks for a quarter
    of four others; but what the last cache holds had better not be asked for: 393x1x2000 f64, 6
    MiB in parts of 1.5, would take 233 us in the place of 133.
    """
    if length is not None:
        return define_short_rows(module, target, dtype, length)
    name = f"{prefix(dtype)}_rows"
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_row, ptr %x, ptr noalias %c, i64 %c_row, "
        "i1 %accumulate, i64 %all",
        target, tuned=True,
    )
    lanes, t = target.lanes(dtype), register_type(dtype)
    L, one = Lanes(f, lanes, target), Lanes(f, 1, target)
    count = VIRTUAL_BITS // target.vector_bits
    whole = f(f"and i64 %k, {-VIRTUAL_BITS // dtype.bits}")
    tail = RowTail(f, L, dtype, whole, count)
    done = "0"
    long = f.cmp("sgt", f.mul("%k", dtype.itemsize), str(LONG_ROW))
    ways: list[_Way] = []
    if target.registers >= 4 * count + 8:
        ways = [_Way(4, _asks(f), asking=True), _Way(4, "true")]
        if target.masked:
            back = _off_line(f, dtype)
            ways.insert(0, _Way(4, f.cmp("ne", back, "0"), lines=ByLines(f, L, dtype, back)))
        if target.reads_in_order:
            apart = f(f"xor i1 {_in_order(f, dtype)}, true")
            ways = [way._replace(when=f.all_of([way.when, apart])) for way in ways]
    elif count == 8 and tail.masks:
        large, far = _far(f), long  # a large part; long rows of what is far away
        if target.reads_streams:
            uncached = f.cmp("sgt", f.mul("%all", "%a_row"), str(STREAM_BYTES))
            far = f.all_of([uncached, long])
            small = f(f"xor i1 {large}, true")
            fits = f.cmp("sle", "%a_row", str(ASK_ROW))
            ways = [_Way(1, f.all_of([far, small, fits]), asking=True)]
        ways += [_Way(4, f.all_of([far, large])), _Way(2, long)]
        done = few_registers(f, dtype)
    for together, when, asking, lines in [*ways, _Way(1, "true")]:
        groups = f.udiv(f.sub("%m", done), together)
        end = f.select(when, f.add(done, f.mul(groups, together)), done)
        with f.each(done, end, together) as row:
            first = f.at("%a", f.mul(row.index, "%a_row"))
            a = [f.at(first, f.mul("%a_row", i)) for i in range(together)]
            ask: Callable[[list[str]], None] | None = None
            if asking:
                ask = partial(_ask, f) if together > 1 else _streams(f, dtype, row.index)
            if lines is not None:
                sums = lines.sums([*map(lines.begin, a)], lines.begin("%x"))
            else:
                sums = tail(a, lane_sums(f, L, dtype, a, whole, count, ask=ask))
            found = totals(f, L, t, [line_sum(L, t, q) for q in sums])
            out = f.at("%c", f.mul(row.index, "%c_row"))
            places = [f.at(out, f.mul("%c_row", i)) for i in range(together)]
            with f.either("%accumulate") as branches:
                for p, x in zip(places, found, strict=True):
                    one.store(dtype, f(f"fadd {t} {one.load(dtype, p)}, {x}"), p)
                f.otherwise(*branches)
                for p, x in zip(places, found, strict=True):
                    one.store(dtype, x, p)
        done = end
    f.finish()
    return name


def _ask(f: Function, places: list[str]) -> None:
    """Ask for what stands as many rows behind; on cores that read ahead, further along these."""
    for place in places:
        ahead = f.target.reads_ahead
        later = f.at(place, FURTHER if ahead else f.mul("%a_row", len(places)))
        for along in range(0, VIRTUAL_BITS // 8, LINE):
            f.prefetch(f.at(later, along), 3 if ahead else 2)


def _streams(f: Function, dtype: DType, row: str) -> Callable[[list[str]], None]:
    """What asks for the next STREAMS rows, of each a part while at one of as many rows."""
    turn = f(f"and i64 {row}, {STREAMS - 1}")
    lines = f.udiv(f.add(f.mul("%k", dtype.itemsize), str(STREAMS * LINE - 1)), STREAMS * LINE)
    here = f.at("%a", f.mul(row, "%a_row"))
    following = f.at("%a", f.mul(f.add(f.sub(row, turn), str(STREAMS)), "%a_row"))
    begin = f.at(following, f.mul(turn, f.mul(lines, LINE)))
    parts = [f.at(begin, f.mul("%a_row", i)) for i in range(STREAMS)]

    def ask(places: list[str]) -> None:
        at, start = (f(f"ptrtoint ptr {p} to i64") for p in (places[0], here))
        along = f.udiv(f.sub(at, start), STREAMS)
        for part in parts:
            f.prefetch(f.at(part, along), 2)

    return ask


class RowTail:
    """Emits what is left of rows behind their whole lanes: `tail(rows, sums)` gives new sums.

    By AVX2 one half of it at a time, and masks that are kept: 1000x1x65 f32 takes 8.2 us in the
    place of 11.6, f64 11.7 for 16.
    """

    def __init__(self, f: Function, L: Lanes, dtype: DType, whole: str, count: int):
        self.f, self.L, self.dtype = f, L, dtype
        self.at = f.mul(whole, dtype.itemsize)
        self.x = f.at("%x", self.at)
        self.left = f.sub("%k", whole)
        self.masks: list[KeptMask] = []
        self.together = count  # where registers are few and masks, too, those that may be empty
        if tiling(f.target, dtype).masked:
            self.masks = [
                KeptMask(f, dtype, L.width, tail_mask(
                    f, dtype, L.width, f.max(f.sub(self.left, str(i * L.width)), "0")))
                for i in range(count)
            ]
            self.together = min(count, TAIL_REGISTERS)
        else:
            self.buffers = [f(f"alloca [{4 * LINE} x i8], align {LINE}") for _ in range(2)]
            for buffer in self.buffers:
                for i in range(count):
                    L.store(dtype, "zeroinitializer", f.at(buffer, i * LINE * 4 // count))
            self._copy(self.buffers[0], self.x)
            self.x = self.buffers[0]

    def _copy(self, to: str, source: str) -> None:
        one, size = Lanes(self.f, 1, self.f.target), self.dtype.itemsize
        with self.f.each("0", self.left) as rest:
            shift = self.f.mul(rest.index, size)
            one.store(self.dtype, one.load(self.dtype, self.f.at(source, shift)),
                      self.f.at(to, shift))

    def __call__(self, rows: list[str], sums: list[list[str]]) -> list[list[str]]:
        f, L, dtype = self.f, self.L, self.dtype
        t, v = register_type(dtype), L.reg(dtype)
        sums, count = [[*line] for line in sums], len(sums[0])
        for start in range(0, count, self.together):
            before, then, after = f.block, f.fresh("tail"), f.fresh("whole")
            some = f.cmp("sgt", self.left, str(start * L.width))
            f.do(f"br i1 {some}, label %{then}, label %{after}")
            f.label(then)
            sources = [f.at(a, self.at) for a in rows]
            if not self.masks:
                (source,) = sources
                self._copy(self.buffers[1], source)
                sources = self.buffers[1:]
            new: list[list[str]] = [[] for _ in rows]
            part = range(start, min(start + self.together, count))
            for i in part:
                M = Lanes(f, L.width, f.target, mask=self.masks[i]()) if self.masks else L
                place = i * L.width * dtype.itemsize
                x = M.load(dtype, f.at(self.x, place))
                for line, out, p in zip(sums, new, sources, strict=True):
                    out.append(L.fma(t, M.load(dtype, f.at(p, place)), x, line[i]))
            last = f.block
            f.branch(after)
            for line, out in zip(sums, new, strict=True):
                for i, y in zip(part, out, strict=True):
                    line[i] = f(f"phi {v} [{line[i]}, %{before}], [{y}, %{last}]")
        return sums


def lane_sums(
    f: Function, L: Lanes, dtype: DType, rows: list[str], stop: str, count: int,
    beside: Callable[[str], None] | None = None, ask: Callable[[list[str]], None] | None = None,
) -> list[list[str]]:
    """The loop over the first `stop` elements of rows; for each its registers of lanes.

    `beside` emits what is done for the register at an offset in the same turn, `ask` what asks for
    later ones, by the places of these.
    """
    size, v = dtype.itemsize, L.reg(dtype)
    step = VIRTUAL_BITS // dtype.bits
    head, end = f.fresh("dot"), f.fresh("lanes")
    before = f.block
    f.do(f"br i1 {f.cmp('sgt', stop, '0')}, label %{head}, label %{end}")
    f.label(head)
    sums = [[f"%{head}s{r}_{i}" for i in range(count)] for r in range(len(rows))]
    at = len(f.lines)
    shift = f.mul(f"%{head}i", size)
    px, pa = f.at("%x", shift), [f.at(a, shift) for a in rows]
    new: list[list[str]] = [[] for _ in rows]
    for i in range(count):
        place = i * L.width * size
        x = L.load(dtype, f.at(px, place))
        for q, out, p in zip(sums, new, pa, strict=True):
            out.append(L.fma(register_type(dtype), L.load(dtype, f.at(p, place)), x, q[i]))
        if beside is not None:
            beside(f.add(shift, str(place)))
    if ask is not None:
        ask(pa)
    following, last = f.add(f"%{head}i", str(step)), f.block
    phis = [f"  %{head}i = phi i64 [0, %{before}], [{following}, %{last}]"]
    phis += [
        f"  {s} = phi {v} [zeroinitializer, %{before}], [{n}, %{last}]"
        for q, out in zip(sums, new, strict=True) for s, n in zip(q, out, strict=True)
    ]
    f.lines[at:at] = phis
    again = f.cmp("slt", following, stop)
    f.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
    f.label(end)
    return [
        [f(f"phi {v} [zeroinitializer, %{before}], [{n}, %{last}]") for n in out] for out in new
    ]
