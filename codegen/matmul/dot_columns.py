"""Products with one column, of an A whose columns are contiguous: rows of A in lanes of registers.

The sums are those of `dot.define_rows`, bit for bit: virtual lane l of a row takes the columns
l, l + step, ... of A, and the same tree adds the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.tiling import prefix, tail_mask, tiling
from graphc.types import DType

NEAR = 7 << 18    # bytes of A that the second cache is taken to hold
FAR_BYTES = 8192  # of rows at a time of others: memory is faster in long pieces
ROUNDS = 4        # columns of one lane of theirs that are taken together
REGISTERS = 4     # of rows that are summed side by side, where there are 32 registers
QUAD = 4          # lanes that the tree adds first: l, l + step / 4, l + step / 2, ..


def is_near(f: Function, dtype: DType, depth: str) -> str:
    """Whether `near` serves `depth` columns of A."""
    fits = f.cmp("sle", f.mul(f.mul("%m", depth), dtype.itemsize), str(NEAR))
    return f.all_of([fits, f.cmp("eq", "%c_row", str(dtype.itemsize))])


def define_near(module: Module, target: Target, dtype: DType) -> str:
    """Define the sums for an A in a near cache; the function's name. C has unit stride.

    The lanes of some registers of rows are summed in registers, of which the near cache gets a
    quarter, already added up by fours: lanes in memory took as long as A's columns do, 512x1x512
    f32 1.2 and 128x1x128 2.5 times as long. The last register may be partial where there are masks.
    """
    name = f"{prefix(dtype)}_near_columns"
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_col, ptr %x, ptr noalias %c, i1 %accumulate, "
        "ptr noalias %quads",
        target, tuned=True,
    )
    lanes, size, t = target.lanes(dtype), dtype.itemsize, register_type(dtype)
    quads = VIRTUAL_BITS // dtype.bits // QUAD
    plain, columns = Lanes(f, lanes, target), _Columns(f, dtype)
    done = "0"
    for count in (REGISTERS if target.registers >= 32 else REGISTERS // 2, 1):
        masked = count == 1 and tiling(target, dtype).masked
        group = count * lanes
        end = "%m" if masked else f.add(
            done, f.mul(f.udiv(f.sub("%m", done), group), group)
        )
        with f.each(done, end, group) as row:
            L = plain
            if masked:
                left = f.min(f.sub("%m", row.index), str(lanes))
                L = Lanes(f, lanes, target, mask=tail_mask(f, dtype, lanes, left))
            here = f.mul(row.index, size)
            with f.each("0", str(quads)) as quad:
                place = f.at("%quads", f.mul(quad.index, group * size))
                for i, x in enumerate(columns(L, count, f.at("%a", here), quad.index)):
                    plain.store(dtype, x, f.at(place, i * lanes * size))
            with f.each("0", str(group * size), lanes * size) as v:
                p = f.at("%quads", v.index)
                x = _tree(plain, t, quads, partial(_loaded, f, plain, dtype, p, group * size))
                p = f.at(f.at("%c", here), v.index)
                both = L.op("fadd", t, L.load(dtype, p), x)
                L.store(dtype, f.select("%accumulate", both, x, L.reg(dtype)), p)
        done = end
    f.finish()
    return name


def _loaded(f: Function, L: Lanes, dtype: DType, p: str, apart: int, i: int) -> str:
    """The register that is i times `apart` bytes behind p."""
    return L.load(dtype, f.at(p, i * apart))


class _Columns:
    """Emits the sums of quads: of lanes whose columns are a quarter of `step` apart."""

    def __init__(self, f: Function, dtype: DType):
        self.f, self.dtype = f, dtype
        step = VIRTUAL_BITS // dtype.bits
        self.apart = step // QUAD
        self.blocks = f.udiv("%k", step)
        self.rest = f(f"and i64 %k, {step - 1}")
        once = f.mul("%a_col", self.apart)
        self.columns = [f.mul(once, j) for j in range(QUAD)]
        self.stride = f.mul(once, QUAD)

    def __call__(self, L: Lanes, count: int, a: str, quad: str) -> list[str]:
        """Sums of a quad for `count` registers of rows at `a`: the loop over blocks of columns,
        then what is left."""
        f, v, size = self.f, L.reg(self.dtype), self.dtype.itemsize
        p, x = f.at(a, f.mul(quad, "%a_col")), f.at("%x", f.mul(quad, size))
        head, end = f.fresh("dot"), f.fresh("lanes")
        before = f.block
        f.do(f"br i1 {f.cmp('sgt', self.blocks, '0')}, label %{head}, label %{end}")
        f.label(head)
        at = len(f.lines)
        n, a, b = f"%{head}n", f"%{head}a", f"%{head}b"
        old = [[f"%{head}s{j}_{i}" for i in range(count)] for j in range(QUAD)]
        new = [self._step(L, j, a, b, s) for j, s in enumerate(old)]
        after = f.add(n, "-1")
        next_a, next_b = f.at(a, self.stride), f.at(b, QUAD * self.apart * size)
        f.lines[at:at] = [
            f"  {n} = phi i64 [{self.blocks}, %{before}], [{after}, %{head}]",
            f"  {a} = phi ptr [{p}, %{before}], [{next_a}, %{head}]",
            f"  {b} = phi ptr [{x}, %{before}], [{next_b}, %{head}]",
            *(f"  {s} = phi {v} [zeroinitializer, %{before}], [{more}, %{head}]"
              for line, news in zip(old, new, strict=True)
              for s, more in zip(line, news, strict=True)),
        ]
        f.do(f"br i1 {f.cmp('ne', after, '0')}, label %{head}, label %{end}, !llvm.loop !0")
        f.label(end)
        sums = [
            [f(f"phi {v} [zeroinitializer, %{before}], [{s}, %{head}]") for s in line]
            for line in new
        ]
        a = f(f"phi ptr [{p}, %{before}], [{next_a}, %{head}]")
        b = f(f"phi ptr [{x}, %{before}], [{next_b}, %{head}]")
        sums = [self._last(L, j, a, b, line, quad) for j, line in enumerate(sums)]
        return [_four(L, register_type(self.dtype), q) for q in zip(*sums, strict=True)]

    def _last(
        self, L: Lanes, j: int, a: str, x: str, sums: list[str], quad: str
    ) -> list[str]:
        """One more column of lane j, if there is one."""
        f, v = self.f, L.reg(self.dtype)
        some = f.cmp("slt", f.add(quad, str(j * self.apart)), self.rest)
        before, then, after = f.block, f.fresh("last"), f.fresh("sums")
        f.do(f"br i1 {some}, label %{then}, label %{after}")
        f.label(then)
        more = self._step(L, j, a, x, sums)
        f.branch(after)
        return [
            f(f"phi {v} [{s}, %{before}], [{m}, %{then}]")
            for s, m in zip(sums, more, strict=True)
        ]

    def _step(self, L: Lanes, j: int, a: str, x: str, sums: list[str]) -> list[str]:
        """A column of lane j times its element of x."""
        f, dtype = self.f, self.dtype
        factor = L.load_splat(dtype, f.at(x, j * self.apart * dtype.itemsize))
        p = f.at(a, self.columns[j])
        return [
            L.fma(register_type(dtype), L.load(dtype, f.at(p, i * L.width * dtype.itemsize)),
                  factor, s)
            for i, s in enumerate(sums)
        ]


def define_far(module: Module, target: Target, dtype: DType) -> str:
    """The same for m whole registers of rows of any A, and C of any stride.

    The virtual lanes of a group of rows lie in scratch, lane by lane; lane l takes the columns
    l, l + step, ... of A, and the tree adds whole registers of rows.
    """
    name = f"{prefix(dtype)}_far_columns"
    f = Function(
        module, name,
        "i64 %m, i64 %k, ptr %a, i64 %a_col, ptr %x, ptr noalias %c, i64 %c_row, "
        "i1 %accumulate, ptr noalias %lanes",
        target,
    )
    lanes, size, t = target.lanes(dtype), dtype.itemsize, register_type(dtype)
    L, one = Lanes(f, lanes, target), Lanes(f, 1, target)
    step = VIRTUAL_BITS // dtype.bits
    total = f.mul("%m", size)
    line = f.min(total, str(FAR_BYTES))
    rounds = f.select(f.cmp("sge", "%k", str(ROUNDS * step)), str(ROUNDS * step), "0")
    with f.each("0", total, line) as group:
        width = f.min(f.sub(total, group.index), line)
        a = f.at("%a", group.index)
        with f.each("0", f.min(rounds, str(step))) as k:
            _column_step(f, L, dtype, a, k.index, ROUNDS, width, line, first=True)
        once = f.select(f.cmp("eq", rounds, "0"), f.min("%k", str(step)), "0")
        with f.each("0", once) as k:
            _column_step(f, L, dtype, a, k.index, 1, width, line, first=True)
        with f.each(f.max(once, rounds), str(step)) as k:  # lanes that no column reaches
            p = f.at("%lanes", f.mul(k.index, line))
            with f.each("0", width, lanes * size) as v:
                L.store(dtype, "zeroinitializer", f.at(p, v.index))
        done = f.max(once, rounds)
        whole = f.add(done, f(f"and i64 {f.sub('%k', done)}, {-ROUNDS * step}"))
        with f.each(done, whole, ROUNDS * step) as block, f.each("0", str(step)) as lane:
            at = f.add(block.index, lane.index)
            _column_step(f, L, dtype, a, at, ROUNDS, width, line, first=False)
        with f.each(whole, "%k") as k:
            _column_step(f, L, dtype, a, k.index, 1, width, line, first=False)
        # sums of C's own layout go there at once, others by way of the lanes
        unit = f.cmp("eq", "%c_row", str(size))
        here = f.select(unit, f.at("%c", group.index), "%lanes", "ptr")
        added = f(f"and i1 {unit}, %accumulate")
        with f.each("0", width, lanes * size) as v:
            first = f.at("%lanes", v.index)

            def quad(i: int, first: str = first) -> str:
                lanes = [i + j * step // QUAD for j in range(QUAD)]
                return _four(L, t, [L.load(dtype, f.at(first, f.mul(line, j))) for j in lanes])

            x = _tree(L, t, step // QUAD, quad)
            p = f.at(here, v.index)
            both = L.op("fadd", t, L.load(dtype, p), x)
            L.store(dtype, f(f"select i1 {added}, {L.reg(dtype)} {both}, {L.reg(dtype)} {x}"), p)
        scattered = f.select(unit, "0", width)
        with f.each("0", scattered, size) as v:
            x = one.load(dtype, f.at("%lanes", v.index))
            row = f.udiv(f.add(group.index, v.index), size)
            out = f.at("%c", f.mul(row, "%c_row"))
            with f.either("%accumulate") as branches:
                one.store(dtype, f(f"fadd {t} {one.load(dtype, out)}, {x}"), out)
                f.otherwise(*branches)
                one.store(dtype, x, out)
    f.finish()
    return name


def _column_step(
    f: Function, L: Lanes, dtype: DType, a: str, k: str, rounds: int, width: str, line: str,
    first: bool,
) -> None:
    """The columns k, k + step, ... of A, all of one lane, times x: that lane's sums, or more of
    them. `width` bytes of each column; the lanes are `line` bytes apart."""
    step, size, t = VIRTUAL_BITS // dtype.bits, dtype.itemsize, register_type(dtype)
    x = f.at("%x", f.mul(k, size))
    column = f.at(a, f.mul(k, "%a_col"))
    xs = [L.load_splat(dtype, f.at(x, i * step * size)) for i in range(rounds)]
    columns = [f.at(column, f.mul("%a_col", i * step)) for i in range(rounds)]
    sums = f.at("%lanes", f.mul(f(f"and i64 {k}, {step - 1}"), line))
    with f.each("0", width, L.width * size) as v:
        p = f.at(sums, v.index)
        s = "zeroinitializer" if first else L.load(dtype, p)
        for factor, source in zip(xs, columns, strict=True):
            s = L.fma(t, L.load(dtype, f.at(source, v.index)), factor, s)
        L.store(dtype, s, p)


def _tree(L: Lanes, t: str, quads: int, quad: Callable[[int], str]) -> str:
    """The sum of all quads and 0, in the order of `trees.totals`."""

    def total(i: int, apart: int) -> str:
        if apart == quads:
            return quad(i)
        return L.op("fadd", t, total(i, 2 * apart), total(i + apart, 2 * apart))

    return L.op("fadd", t, total(0, 1), "zeroinitializer")


def _four(L: Lanes, t: str, lanes: Sequence[str]) -> str:
    """The sum of a quad's lanes."""
    a, b, c, d = lanes
    return L.op("fadd", t, L.op("fadd", t, a, b), L.op("fadd", t, c, d))
