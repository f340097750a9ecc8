"""Products leave out columns of their left operand that are 0, as a causal mask makes them.

    P V          only the first `used` columns of P and rows of V are multiplied
    P^T U        only the first `used` rows of the result get something from this block of rows

What a mask leaves of a block of rows that begins at b are the columns up to b and the number of
rows. Whether the others are 0 is looked up in the block, for a few per cent of the time that is
saved. So no bit changes: what is multiplied by 0 must be finite; the steps left out would add 0
or -0 to sums, which changes only a sum that is -0, by underflow: then all are multiplied after
all. Sums over blocks begin with 0, and 0 they stay in rows beyond the last one that was used, so
these need not be visited either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphc import dims
from graphc.codegen.emitter import Module
from graphc.codegen.masked import STEP
from graphc.codegen.matmul_ir import Function
from graphc.codegen.sizes import SizeCode
from graphc.codegen.target import Target
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.types import DType, f32, f64

EXPONENT = {32: 0xFF << 23, 64: 0x7FF << 52}
UNROLL = 4


@dataclass(frozen=True)
class Cut:
    """A product on blocks whose last operand says how many columns of its left one are used."""

    node: Node
    left: Value
    right: Value
    summed: bool  # over blocks of rows


@dataclass(frozen=True)
class Block:
    """The block at which kernels are: its first row, sizes, and where arrays stand."""

    begin: str
    sizes: SizeCode
    places: Mapping[Value, str]


def cut_of(n: Node, summed: bool) -> tuple[Value, Value] | None:
    """(left, right) of a kernel that is a product alone, whose left operand a chain made."""
    body: Graph = n.attrs["body"]
    dot = body.nodes[-1]
    if len(body.nodes) != 1 or dot.op.kind is not Kind.CONTRACT:
        return None
    left, right = (n.args[body.inputs.index(v)] for v in dot.args)
    batch, contract = dot.attrs["batch"], dot.attrs["contract"]
    first, last = len(batch[1]), left.type.ndim - 1
    plain = (
        left.type.dtype in (f32, f64) and left is not right and left.node.op.name == "fused"
        and batch[0] == batch[1] == tuple(range(first))
        and contract == ((last - summed,), (first,))
    )
    return (left, right) if plain else None


class Cuts:
    """Emits how many columns each such product uses."""

    def __init__(self, f: Function, cuts: Sequence[Cut], whole: SizeCode):
        self.f = f
        self.cuts = {c.node: k for k, c in enumerate(cuts)}
        self.all = cuts
        self.columns = [whole.value(c.left.type.shape[-1]) for c in cuts]
        self.cells = [f("alloca i64, align 8") for _ in cuts]
        # the member whose rows are finite, and from which on
        self.finite = [f("alloca [2 x i64], align 8") for _ in cuts]
        for there in self.finite:
            f.do(f"store ptr null, ptr {there}, align 8")
            f.do(f"store i64 0, ptr {f.at(there, 8)}, align 8")
        self.found: dict[tuple[Value, str], str] = {}

    def run(self, node: Node, block: Block, go: Callable[[], None]) -> None:
        """Run a kernel by `go`, once or twice."""
        k = self.cuts.get(node)
        if k is None:
            go()
            return
        f, cut, cell, columns = self.f, self.all[k], self.cells[k], self.columns[k]
        used = self._used(cut, columns, block)
        used = (self._rows if cut.summed else self._steps)(k, used, block)
        f.do(f"store i64 {used}, ptr {cell}, align 8")
        go()
        if cut.summed:
            return
        out = node.outs[0]
        made = f.select(f.cmp("slt", used, columns), block.sizes.value(out.type.size), "0")
        with f.when(self._any("negative_zero", out.type.dtype, block.places[out], "1", "0", made)):
            f.do(f"store i64 {columns}, ptr {cell}, align 8")
            go()

    def _rows(self, k: int, used: str, block: Block) -> str:
        """How many rows get something of a block: no less than of those before."""
        f, right, columns = self.f, self.all[k].right, self.columns[k]
        before = f(f"load i64, ptr {self.cells[k]}, align 8")
        used = f.max(used, f.select(f.cmp("eq", block.begin, "0"), "0", before))
        count = block.sizes.value(right.type.size)
        count = f.select(f.cmp("slt", used, columns), count, "0")
        infinite = self._any("infinite", right.type.dtype, block.places[right], "1", "0", count)
        return f.select(infinite, columns, used)

    def _steps(self, k: int, used: str, block: Block) -> str:
        """Over how many steps a block sums: all, if what it leaves out is not finite.

        The rows of V that a later block leaves out are among those of the one before, which has
        looked at them.
        """
        f, known, columns = self.f, self.finite[k], self.columns[k]
        dot, right = self.all[k].node.attrs["body"].nodes[-1], self.all[k].right
        (at,) = dot.attrs["contract"][1]
        line, dtype = dims.product(right.type.shape[at + 1 :]), right.type.dtype
        row = block.sizes.value(line)
        member, since = block.places[right], f.at(known, 8)
        same = f(f"icmp eq ptr {f(f'load ptr, ptr {known}, align 8')}, {member}")
        later = f.cmp("sge", used, f(f"load i64, ptr {since}, align 8"))
        count = f.select(f.cmp("slt", used, columns), f.mul(f.sub(columns, used), row), "0")
        count = f.select(f(f"and i1 {same}, {later}"), "0", count)
        there = f.at(member, f.mul(f.mul(used, row), dtype.itemsize))
        infinite = self._any("infinite", dtype, there, "1", "0", count)
        finite = f(f"xor i1 {infinite}, true")
        with f.when(f(f"and i1 {finite}, {f.cmp('ne', count, '0')}")):
            f.do(f"store ptr {member}, ptr {known}, align 8")
            f.do(f"store i64 {used}, ptr {since}, align 8")
        return f.select(infinite, columns, used)

    def _used(self, cut: Cut, columns: str, block: Block) -> str:
        """Up to which column the left operand is not 0, as far as a mask tells."""
        known = self.found.get((cut.left, block.begin))
        if known is not None:
            return known
        f, shape, size = self.f, cut.left.type.shape, cut.left.type.dtype.itemsize
        rows = block.sizes.value(shape[-2])
        end = f(f"and i64 {f.add(f.add(block.begin, rows), str(STEP - 1))}, {-STEP}")
        alone = f.cmp("eq", block.sizes.value(dims.product(shape[:-2])), "1")
        end = f.select(alone, f.min(end, columns), columns)
        there = f.at(block.places[cut.left], f.mul(end, size))
        rows = f.select(f.cmp("slt", end, columns), rows, "0")
        any_ = self._any("nonzero", cut.left.type.dtype, there, rows, f.mul(columns, size),
                         f.sub(columns, end))
        self.found[cut.left, block.begin] = end = f.select(any_, columns, end)
        return end

    def _any(self, what: str, dtype: DType, there: str, rows: str, row: str, count: str) -> str:
        name = define_any(self.f.module, self.f.target, dtype, what)
        return self.f(f"call i1 @{name}(ptr {there}, i64 {rows}, i64 {row}, i64 {count})")


def define_any(module: Module, target: Target, dtype: DType, what: str) -> str:
    """Define `i1 any(p, rows, row_bytes, count)`: whether one of `count` elements in each of some
    rows is `what`: nonzero, infinite (or NaN) or negative_zero. Returns its name."""
    name = f"graphc_any_{what}_{dtype.name}"
    if name in module.functions:
        return name
    f = Function(module, name, "ptr %p, i64 %rows, i64 %row, i64 %count", target)
    t, size, lanes = f"i{dtype.bits}", dtype.itemsize, target.lanes(dtype)
    sign, exponent = 1 << (dtype.bits - 1), EXPONENT[dtype.bits]

    def test(p: str, at: str, count: int, width: int) -> str:
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
            f(f"load {v}, ptr {f.at(p, f.mul(f.add(at, str(i * width)), size))}, align {size}")
            for i in range(count)
        ]
        if what == "infinite":
            words = [f(f"and {v} {x}, {k(exponent)}") for x in words]
            found = [f(f"icmp eq {v} {x}, {k(exponent)}") for x in words]
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
    with f.each("0", "%rows") as row:
        p = f.at("%p", f.mul(row.index, "%row"))
        done = "0"
        for count, width in ((UNROLL, lanes), (1, lanes), (1, 1)):
            step = count * width
            end = f(f"and i64 %count, {-step}")
            with f.each(done, end, step) as at:
                bad = test(p, at.index, count, width)
                with f.when(bad):
                    f.do(f"store i8 1, ptr {any_}, align 1")
                at.step = f.select(bad, "%count", str(step))
            done = end
        found = f(f"load i8, ptr {any_}, align 1")
        row.step = f.select(f(f"icmp ne i8 {found}, 0"), "%rows", "1")
    found = f(f"load i8, ptr {any_}, align 1")
    f.finish(f"i1 {f(f'trunc i8 {found} to i1')}")
    return name
