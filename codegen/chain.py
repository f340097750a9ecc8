"""A chain of kernels, run block by block: what one makes for the next lives in scratch.

    define internal void @K.task(ptr %record, i64 %begin, i64 %end, ptr %scratch)     blocks
    define internal void @K(ptr %ctx, ptr %scratch)                                   all of them

The kernels inside are written for blocks: the same bodies on operands whose shared axes (see
`passes/chains`) have symbolic sizes `block.0`, `block.1`, ... Blocks of operands are contiguous,
so a kernel is told where its block begins, and only an `iota` along a shared axis must know how far
from the start that is. The memory plan of the kernels as a program of their own says what stands
where in scratch.

A block is some rows of one member, or some whole members, and so on outwards. How large it is
follows from the shapes alone; that no element's arithmetic depends on it is what the kernels
promise anyway. Where a kernel adds up over the blocks of the innermost axis, one thread takes them
in order; what it adds up stands in the result and beside it, in a workspace of the same size.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emitter import Module
from graphc.codegen.frame import Slots
from graphc.codegen.kernels import Call, define_kernel
from graphc.codegen.loops import print_nest, strides
from graphc.codegen.matmul_ir import Function
from graphc.codegen.plan import ALIGN, Place, align, make_plan, size_of
from graphc.codegen.runtime import SCRATCH_BYTES
from graphc.codegen.sizes import SizeCode
from graphc.codegen.summed import define_summed
from graphc.codegen.target import Target
from graphc.dims import Dim, Size
from graphc.ir import Builder, Graph, Node, Value, finish
from graphc.ops.row import OPS
from graphc.passes.bodies import operand
from graphc.passes.grouping import ONE, Label
from graphc.passes.labels import inner, kernel_labels, operand_labels, sums
from graphc.types import TensorType, i64

# Bytes of a block that stay in the second cache beside what the products pack.
BLOCK_BYTES = 1 << 20
# Cycles of a block, some 150 us: enough to hand out, few enough to share among threads.
BLOCK_CYCLES = 1 << 19
# Rows that a block has at least, even if they take more than BLOCK_BYTES: products pack their
# right operand once for each block. So many bytes are the end of that.
LEAST_ROWS, MOST_BYTES = 128, 3 << 20


class ChainKernel:
    """Writes the functions of a `fused` node whose body holds kernels."""

    def __init__(
        self, module: Module, target: Target, node: Node, name: str, codes: dict[Node, int],
        fastmath: bool,
    ):
        self.module, self.target, self.node, self.name = module, target, node, name
        self.axes: tuple[Size, ...] = node.attrs["axes"]
        self.names = [f"block.{a}" for a in range(len(self.axes))]
        self.begins: dict[int, Value] = {}
        self.labels: list[Label] = []  # of the operands
        self.summed: dict[Node, list[TensorType]] = {}  # what sums over blocks: its whole operands
        self.body = self._blocks()
        self.calls = [
            define_summed(module, target, n, f"{name}.{k}", self.summed[n], self.axes[-1])
            if n in self.summed else
            define_kernel(module, target, n, f"{name}.{k}", codes, fastmath, frozenset())
            for k, n in enumerate(self.body.nodes)
        ]
        self.plan = make_plan(self.body, self.calls, (), [])
        seen: dict[str, None] = {}
        for v in (*node.args, *node.outs, *(o for n in node.attrs["body"].nodes for o in n.outs)):
            for size in v.type.shape:
                seen.update(dict.fromkeys(dims.names(size)))
        self.params = len(node.args) + bool(self.summed)
        self.slots = Slots(self.params, len(node.outs), tuple(seen))
        one = dict.fromkeys(self.names, 1)
        # every array's size is this much times the sizes of the block
        self.unit = dims.total(
            dims.substitute(s, one) for k, s in enumerate(self.plan.slots) if k != self.plan.scratch
        )
        self.cycles = dims.total(dims.substitute(c.work, one) for c in self.calls)

    # --- kernels on blocks ---------------------------------------------------------------------

    def _blocks(self) -> Graph:
        """The body for one block of its operands."""
        body: Graph = self.node.attrs["body"]
        count = len(self.axes)
        found = kernel_labels(body, self.node.attrs["outputs"], count)
        assert found is not None, "chains groups only what has labels"
        labels = found
        self.labels = [labels[v] for v in body.inputs]
        b = Builder()
        env = {v: operand(str(v.node.attrs["name"]), self._of(v, labels[v])) for v in body.inputs}
        self.begins = {
            a: operand(f"begin{a}", TensorType(i64, ())) for a in range(len(self.axes))
        }
        for n in body.nodes:
            outs = [labels[o] for o in n.outs]
            if sums(outs[0], count):
                within, used = self._sum(n, env), [count - 1]
            else:
                within, used = self._block(n.attrs["body"], outs)
            sizes = list(n.attrs["axes"])
            for own, label in zip(n.attrs["outputs"], outs, strict=True):
                for axis, shared in zip(own, label, strict=True):
                    if shared != ONE:
                        sizes[axis] = self._size(shared)
            args = [*(env[a] for a in n.args), *(self.begins[a] for a in used)]
            new = b.emit(OPS["fused"], args, n, **{**n.attrs, "body": within, "axes": tuple(sizes)})
            if sums(outs[0], count):
                self.summed[new[0].node] = [
                    a.type if a in body.inputs else env[a].type for a in n.args
                ]
            env.update(zip(n.outs, new, strict=True))
        inputs = [*(env[v] for v in body.inputs), *self.begins.values()]
        return finish(b, body.name, inputs, [env[v] for v in body.outputs])

    def _sum(self, n: Node, env: dict[Value, Value]) -> Graph:
        """The body of a kernel that sums over blocks: a product of blocks of its operands."""
        body: Graph = n.attrs["body"]
        dot = body.nodes[0]
        b = Builder()
        given = {
            v: operand(str(v.node.attrs["name"]), env[a].type)
            for a, v in zip(n.args, body.inputs, strict=True)
        }
        begin = operand("begin", TensorType(i64, ()))
        out = b.one(dot.op, [given[v] for v in dot.args], dot, **dot.attrs)
        return finish(b, body.name, [*given.values(), begin], [out])

    def _block(self, body: Graph, outs: list[Label]) -> tuple[Graph, list[int]]:
        """One kernel's body on blocks, and the axes whose beginnings are its last operands."""
        labels = inner(body, outs)
        assert labels is not None
        b = Builder()
        begins: dict[int, Value] = {}
        env = {
            (v, label): operand(str(v.node.attrs["name"]), self._of(v, label))
            for v in body.inputs for label in labels[v]
        }
        for n, label in [(m, found) for m in body.nodes for found in labels[m.out]]:
            attrs = dict(n.attrs)
            if "shape" in attrs:
                attrs["shape"] = self._of(n.out, label).shape
            given = operand_labels(n, label)
            assert given is not None
            new = b.one(n.op, [env[key] for key in zip(n.args, given, strict=True)], n, **attrs)
            if n.op.name == "iota" and (a := label[n.attrs["axis"]]) != ONE:
                begin = begins.setdefault(a, operand(f"begin{a}", TensorType(i64, ())))
                if n.out.type.dtype is not i64:
                    begin = b.one("cast", (begin,), n, dtype=n.out.type.dtype)
                moved = b.one("broadcast", (begin,), n, shape=attrs["shape"], axes=())
                new = b.one("add", (new, moved), n)
            env[n.out, label] = new
        inputs = [*(env[v, labels[v][0]] for v in body.inputs), *begins.values()]
        outputs = [env[key] for key in zip(body.outputs, outs, strict=True)]
        return finish(b, body.name, inputs, outputs), list(begins)

    def _size(self, axis: int) -> Size:
        return Dim((((self.names[axis],), 1),))

    def _of(self, v: Value, label: Label) -> TensorType:
        """The type of a block of v."""
        return TensorType(v.type.dtype, tuple(
            size if a == ONE else self._size(a) for a, size in zip(label, v.type.shape, strict=True)
        ))

    # --- what the program must know -------------------------------------------------------------

    @property
    def scratch(self) -> Size:
        """Bytes of the calling thread's scratch: more than workers have only where one row is."""
        most = dims.maximum(
            BLOCK_BYTES,
            dims.maximum(self.unit, dims.minimum(self.unit * LEAST_ROWS, MOST_BYTES)),
        )
        total = dims.minimum(self.unit * dims.product(self.axes), most)
        if self.plan.scratch is not None:
            whole = dict(zip(self.names, self.axes, strict=True))
            total = total + dims.substitute(self.plan.slots[self.plan.scratch], whole)
        return total + ALIGN * len(self.plan.slots)

    @property
    def workspace(self) -> Size:
        """Bytes of what kernels that sum over blocks have begun."""
        return dims.total(align(size_of(v)) for v in self._sums)

    @property
    def _sums(self) -> list[Value]:
        """The results that are summed over blocks."""
        outs = zip(self.node.outs, self.node.attrs["outputs"], strict=True)
        return [v for v, label in outs if sums(label, len(self.axes))]

    @property
    def work(self) -> Size:
        """Estimated cycles."""
        whole = dict(zip(self.names, self.axes, strict=True))
        return dims.total(dims.substitute(c.work, whole) for c in self.calls)

    @property
    def text(self) -> str:
        """The nests of the kernels, and where a block of what they make is in scratch."""
        shape = ",".join(map(str, self.axes))
        nests = [print_nest(c.nest) for c in self.plan.calls if c.nest is not None]
        plan = self.plan.text.replace("in arena", "in scratch").rsplit("\n", 1)[0]
        return "\n".join([f"blocks of [{shape}]:", *nests, plan])

    # --- functions ------------------------------------------------------------------------------

    def define(self) -> Call:
        """Add the task and the driver to the module."""
        self._task()
        self._driver()
        return Call(
            self.name, self.node, self.slots, self.workspace, self.scratch, False, None,
            work=self.work, text=self.text,
        )

    def _dims(self, f: Function) -> dict[str, str]:
        first = self.slots.params + self.slots.outputs
        return {
            n: f(f"load i64, ptr {f.at('%ctx', 8 * (first + k))}, align 8")
            for k, n in enumerate(self.slots.dims)
        }

    def _driver(self) -> None:
        """Choose the block, from the innermost axis outwards, and share the blocks out."""
        self.module.declare("graphc_parallel", "declare void @graphc_parallel(ptr, ptr, i64, ptr)")
        f = Function(self.module, self.name, "ptr %ctx, ptr %scratch", self.target)
        n = len(self.axes)
        record = f(f"alloca [{2 * n + 1} x i64], align 16")
        f.do(f"store ptr %ctx, ptr {record}, align 8")
        regs = self._dims(f)
        sizes = SizeCode(f, regs)
        unit = f.max(sizes.value(self.unit), "1")
        rows = f.min(
            f(f"udiv i64 {BLOCK_BYTES}, {unit}"),
            f(f"udiv i64 {BLOCK_CYCLES}, {sizes.value(self.cycles)}"),
        )
        least = f.max(f.min(f(f"udiv i64 {MOST_BYTES}, {unit}"), str(LEAST_ROWS)), "1")
        room = f.max(rows, least)
        blocks = "1"
        for a in reversed(range(n)):
            whole = sizes.value(self.axes[a])
            count = f.ceildiv(whole, f.max(f.min(room, whole), "1"))
            in_order = bool(self.summed) and a == n - 1
            if in_order:
                count = f.max(count, "1")  # an empty sum has a value
            size = f.max(f.ceildiv(whole, f.max(count, "1")), "1")
            f.do(f"store i64 {size}, ptr {f.at(record, 8 * (a + 1))}, align 8")
            f.do(f"store i64 {count}, ptr {f.at(record, 8 * (n + a + 1))}, align 8")
            room = f.select(f.cmp("sgt", count, "1"), "1", f.udiv(room, size))
            blocks = blocks if in_order else f.mul(blocks, count)
            regs[self.names[a]] = size
        need = SizeCode(f, regs).value(dims.total(map(align, self.plan.slots)))
        fits = f.cmp("sle", need, str(SCRATCH_BYTES))
        with f.either(f(f"and i1 {fits}, {f.cmp('sgt', blocks, '1')}")) as branches:
            f.do(f"call void @graphc_parallel(ptr @{self.name}.task, ptr {record}, i64 {blocks}, "
                 f"ptr %scratch)")
            f.otherwise(*branches)
            f.do(f"call void @{self.name}.task(ptr {record}, i64 0, i64 {blocks}, ptr %scratch)")
        f.finish()

    def _task(self) -> None:
        """The kernels, one after the other, on each of the blocks [begin, end).

        Where some sum over blocks, a task's number counts all blocks of the innermost axis.
        """
        f = Function(
            self.module, f"{self.name}.task", "ptr %record, i64 %begin, i64 %end, ptr %scratch",
            self.target,
        )
        n = len(self.axes)
        ctx = f(f"alloca [{max(c.slots.count for c in self.calls)} x i64], align 16")
        begins = f(f"alloca [{n} x i64], align 16")
        f.do("%ctx = load ptr, ptr %record, align 8")
        regs = self._dims(f)
        whole = SizeCode(f, regs)
        ends = [whole.value(size) for size in self.axes]
        block, count = (
            [f(f"load i64, ptr {f.at('%record', 8 * (first + a))}, align 8") for a in range(n)]
            for first in (1, n + 1)
        )
        step_of = {v: strides(v.type.shape) for v in (*self.node.args, *self.node.outs)}
        for steps in step_of.values():
            for s in steps:
                whole.value(s)
        given = [
            f(f"load ptr, ptr {f.at('%ctx', 8 * k)}, align 8")
            for k in range(self.slots.params + self.slots.outputs)
        ]
        begun = given[self.params - 1]  # one behind the other
        parts: dict[Value, str] = {}
        for v in self._sums:
            parts[v] = begun
            begun = f.at(begun, whole.value(align(size_of(v))))
        first, last = "%begin", "%end"
        if self.summed:
            first, last = f.mul(first, count[-1]), f.mul(last, count[-1])
        with f.each(first, last) as index:
            rest, at = index.index, [""] * n
            for a in reversed(range(n)):
                place = rest if a == 0 else f(f"urem i64 {rest}, {count[a]}")
                rest = rest if a == 0 else f.udiv(rest, count[a])
                at[a] = f.mul(place, block[a])
                f.do(f"store i64 {at[a]}, ptr {f.at(begins, 8 * a)}, align 8")
                regs[self.names[a]] = f.min(block[a], f.sub(ends[a], at[a]))
            sizes = SizeCode(f, regs)
            slots = ["%scratch"]
            for size in self.plan.slots:
                slots.append(f.at(slots[-1], sizes.value(align(size))))

            def moved(base: str, v: Value, label: Label) -> str:
                for a, step in zip(label, step_of[v], strict=True):
                    if a != ONE:
                        offset = f.mul(at[a], f.mul(whole.value(step), v.type.dtype.itemsize))
                        base = f.at(base, offset)
                return base

            args = self.node.args
            pointers: dict[Place, str] = {}
            for k, (v, label) in enumerate(zip(args, self.labels, strict=True)):
                pointers[Place("input", k)] = moved(given[k], v, label)
            for a in self.begins:
                pointers[Place("input", len(args) + a)] = f.at(begins, 8 * a)
            outs = zip(self.node.outs, self.node.attrs["outputs"], strict=True)
            own: dict[Value, str] = {}  # where a kernel has what it began, by its result
            for k, (v, label) in enumerate(outs):
                pointers[Place("output", k)] = moved(given[self.params + k], v, label)
                if v in parts:
                    own[self.body.outputs[k]] = moved(parts[v], v, label)
            for k, slot in enumerate(slots):
                pointers[Place("arena", k)] = slot
            for k, c in enumerate(self.plan.calls):
                values = [("ptr", pointers[self.plan.places[v]]) for v in c.args]
                made = [pointers[self.plan.places[v]] for v in c.outs]
                if c.node in self.summed:
                    values.append(("ptr", own[c.outs[0]]))
                elif c.slots.params > len(c.args):
                    values.append(("ptr", made[c.c_output] if c.c_output is not None else slots[
                        self.plan.workspaces[k]
                    ]))
                values += [("ptr", p) for p in made]
                values += [("i64", regs[name]) for name in c.slots.dims]
                for j, (t, value) in enumerate(values):
                    f.do(f"store {t} {value}, ptr {f.at(ctx, 8 * j)}, align 8")
                room = "null" if self.plan.scratch is None else slots[self.plan.scratch]
                f.do(f"call void @{c.name}(ptr {ctx}, ptr {room})")
        f.finish()
