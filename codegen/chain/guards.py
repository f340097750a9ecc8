"""Run-time checks of masked columns: what a chain looks at before and after it leaves them out.

Before a block of rows: masked columns are to hold zeros, which are multiplied with other operands.
Are these small enough for all products to be finite? If not, the block has all columns. After its
rows: are the columns that were computed beyond the mask really zeros, and is no product -0, which
adding zeros would turn into 0? If not, the block is computed once more, with all columns. Products
that sum over blocks come after that; what they sum for columns that no block has used yet is 0.
"""

from __future__ import annotations

from graphc.aligned import LINE
from graphc.codegen.chain.masks import STEP
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.types import DType

# 2 to the 48th and 400th power, as bits: MOST_STEPS products of two numbers below are finite.
BOUND = {32: (127 + 48) << 23, 64: (1023 + 400) << 52}
UNROLL = 4


class Guards:
    """Emits how many columns a block uses."""

    def __init__(self, f: Function, columns: str, operands: int):
        self.f, self.columns = f, columns
        self.used = f("alloca i64, align 8")
        f.do(f"store i64 0, ptr {self.used}, align 8")
        # of operands that have a row for each column: the member whose rows are small, from where
        self.small = [f("alloca [2 x i64], align 8") for _ in range(operands)]
        for there in self.small:
            f.do(f"store ptr null, ptr {there}, align 8")
            f.do(f"store i64 0, ptr {f.at(there, 8)}, align 8")

    def begin(self, first: str, rows: str, alone: str, in_order: bool) -> str:
        """As many columns as a mask leaves to rows from `first` on, and one more.

        A block of several members has all. If blocks come in order, no less than those before.
        """
        f = self.f
        end = f(f"and i64 {f.add(f.add(first, rows), str(STEP))}, {-STEP}")
        end = f.select(alone, f.min(end, self.columns), self.columns)
        if in_order:
            before = f(f"load i64, ptr {self.used}, align 8")
            end = f.max(end, f.select(f.cmp("eq", first, "0"), "0", before))
        return end

    def small_rows(self, there: str, dtype: DType, count: str, used: str) -> str:
        """`used`, or all columns if one of the elements of a block of an operand is large."""
        f = self.f
        count = f.select(f.cmp("slt", used, self.columns), count, "0")
        return f.select(self.any("large", dtype, there, count), self.columns, used)

    def small_rest(self, k: int, member: str, dtype: DType, row: str, used: str) -> str:
        """`used`, or all columns if what an operand has for others is large.

        What a later block leaves out is among what the one before did, which has looked at it.
        """
        f, known = self.f, self.small[k]
        since = f.at(known, 8)
        same = f(f"icmp eq ptr {f(f'load ptr, ptr {known}, align 8')}, {member}")
        later = f.cmp("sge", used, f(f"load i64, ptr {since}, align 8"))
        count = f.mul(f.sub(self.columns, used), row)
        count = f.select(f(f"and i1 {same}, {later}"), "0", count)
        there = f.at(member, f.mul(f.mul(used, row), dtype.itemsize))
        large = self.any("large", dtype, there, count)
        with f.when(f(f"xor i1 {large}, true")):
            f.do(f"store ptr {member}, ptr {known}, align 8")
            f.do(f"store i64 {used}, ptr {since}, align 8")
        return f.select(large, self.columns, used)

    def any(self, what: str, dtype: DType, there: str, count: str) -> str:
        """Whether one of some elements is `what`."""
        name = define_any(self.f.module, self.f.target, dtype, what)
        return self.f(f"call i1 @{name}(ptr {there}, i64 {count})")

    def clear(self, there: str, begin: str, end: str) -> None:
        """Zeros from one byte to another, whole registers as `labels.summed_operands` asks."""
        f = self.f
        with f.each(begin, end, LINE) as byte:
            f.do(f"store <{LINE // 4} x i32> zeroinitializer, ptr {f.at(there, byte.index)}, "
                 "align 4")


def define_any(module: Module, target: Target, dtype: DType, what: str) -> str:
    """Define `i1 any(p, count)`: whether one of `count` elements is `what`: nonzero, large (not
    below BOUND, or NaN) or negative_zero. Returns its name."""
    name = f"graphc_any_{what}_{dtype.name}"
    if name in module.functions:
        return name
    f = Function(module, name, "ptr %p, i64 %count", target)
    t, size, lanes = f"i{dtype.bits}", dtype.itemsize, target.lanes(dtype)
    sign = 1 << (dtype.bits - 1)

    def test(at: str, count: int, width: int) -> str:
        """Whether one of `count` registers has such an element."""
        v = t if width == 1 else f"<{width} x {t}>"

        def k(value: int) -> str:
            value -= value >> (dtype.bits - 1) << dtype.bits
            return str(value) if width == 1 else f"splat ({t} {value})"

        def any_of(registers: list[str], of: str) -> str:
            total = registers[0]
            for x in registers[1:]:
                total = f(f"or {of} {total}, {x}")
            return total

        words = [
            f(f"load {v}, ptr {f.at('%p', f.mul(f.add(at, str(i * width)), size))}, align {size}")
            for i in range(count)
        ]
        if what == "large":
            words = [f(f"and {v} {x}, {k(sign - 1)}") for x in words]
            found = [f(f"icmp sge {v} {x}, {k(BOUND[dtype.bits])}") for x in words]
        elif what == "negative_zero":
            found = [f(f"icmp eq {v} {x}, {k(sign)}") for x in words]
        else:
            word = f(f"and {v} {any_of(words, v)}, {k(sign - 1)}")
            found = [f(f"icmp ne {v} {word}, {k(0)}")]
        if width == 1:
            return any_of(found, "i1")
        bits = f(f"bitcast <{width} x i1> {any_of(found, f'<{width} x i1>')} to i{width}")
        return f(f"icmp ne i{width} {bits}, 0")

    any_ = f("alloca i8, align 1")
    f.do(f"store i8 0, ptr {any_}, align 1")
    done = "0"
    for count, width in ((UNROLL, lanes), (1, lanes), (1, 1)):
        step = count * width
        end = f(f"and i64 %count, {-step}")
        with f.each(done, end, step) as at:
            found = test(at.index, count, width)
            with f.when(found):
                f.do(f"store i8 1, ptr {any_}, align 1")
            at.step = f.select(found, "%count", str(step))
        done = end
    found = f(f"load i8, ptr {any_}, align 1")
    f.finish(f"i1 {f(f'trunc i8 {found} to i1')}")
    return name
