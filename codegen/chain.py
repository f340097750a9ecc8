"""A chain of kernels, run block by block: what one makes for the next lives in scratch.

    define internal void @K(ptr %ctx, ptr %scratch)            all blocks, by way of `chain_task`

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

from collections.abc import Mapping

from graphc import dims
from graphc.codegen.chain_task import define_task
from graphc.codegen.emitter import Module
from graphc.codegen.frame import Slots
from graphc.codegen.kernels import Call, define_kernel
from graphc.codegen.loops import print_nest
from graphc.codegen.matmul_ir import Function
from graphc.codegen.plan import ALIGN, align, make_plan, size_of
from graphc.codegen.runtime import SCRATCH_BYTES
from graphc.codegen.sizes import SizeCode
from graphc.codegen.summed import define_summed
from graphc.codegen.tails import STEP, USED, Tails, find, product_of
from graphc.codegen.target import Target
from graphc.dims import Dim, Size
from graphc.ir import Builder, Graph, Node, Value, finish
from graphc.ops.row import OPS, Kind
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
        self.tails: Tails | None = None  # what blocks leave out, if anything
        self.products: list[Value] = []  # that leave out some steps
        self.probes: list[Value] = []    # what must be 0 for that
        self.body = self._blocks()
        self.calls = [
            define_summed(module, target, n, f"{name}.{k}", self.summed[n], self.axes[-1])
            if n in self.summed else
            define_kernel(
                module, target, n, f"{name}.{k}", codes, fastmath, frozenset(),
                least_columns=self._least_columns(n),
            )
            for k, n in enumerate(self.body.nodes)
        ]
        self.plan = make_plan(self.body, self.calls, (), [])
        # what a block has in scratch: the plan's arrays, and probes
        self.slots_of_block = [*self.plan.slots, *(size_of(v) for v in self.probes)]
        seen: dict[str, None] = {}
        for v in (*node.args, *node.outs, *(o for n in node.attrs["body"].nodes for o in n.outs)):
            for size in v.type.shape:
                seen.update(dict.fromkeys(dims.names(size)))
        self.params = len(node.args) + bool(self.summed)
        self.slots = Slots(self.params, len(node.outs), tuple(seen))
        # every array's size is this much times the sizes of the block
        self.unit = dims.total(
            self._row(s) for k, s in enumerate(self.slots_of_block) if k != self.plan.scratch
        )
        self.cycles = dims.total(self._row(c.work) for c in self.calls)

    # --- kernels on blocks ---------------------------------------------------------------------

    def _blocks(self) -> Graph:
        """The body for one block of its operands."""
        body: Graph = self.node.attrs["body"]
        count = len(self.axes)
        found = kernel_labels(body, self.node.attrs["outputs"], count)
        assert found is not None, "chains groups only what has labels"
        labels = found
        self.inputs = list(body.inputs)
        self.labels = [labels[v] for v in body.inputs]
        self.tails = tails = find(body, labels, count)
        if tails is not None:
            labels |= tails.labels
        self.result_labels = [labels[v] for v in body.outputs]
        b = Builder()
        env = {v: operand(str(v.node.attrs["name"]), self._of(v, labels[v])) for v in body.inputs}
        self.begins = {
            a: operand(f"begin{a}", TensorType(i64, ())) for a in range(len(self.axes))
        }
        adds_up = {n: sums(labels[n.outs[0]], count) for n in body.nodes}
        for n in sorted(body.nodes, key=adds_up.__getitem__):  # see `guards` for the order
            outs = [labels[o] for o in n.outs]
            probes = tails.probes.get(n, []) if tails is not None else []
            if adds_up[n]:
                within, used = self._sum(n, env), [count - 1]
            else:
                within, used = self._block(n, outs)
            sizes = list(n.attrs["axes"])
            places = list(n.attrs["outputs"])
            for own, label in zip(places, outs, strict=True):
                for axis, shared in zip(own, label, strict=True):
                    if shared != ONE:
                        sizes[axis] = self._size(shared)
            if probes:
                rows = next(own for own, label in zip(places, outs, strict=True) if count in label)
                places += [(*rows[:-1], ONE)] * len(probes)
            args = [*(env[a] for a in n.args), *(self.begins[a] for a in used)]
            attrs = {**n.attrs, "body": within, "axes": tuple(sizes), "outputs": tuple(places)}
            new = b.emit(OPS["fused"], args, n, **attrs)
            if adds_up[n]:
                self.summed[new[0].node] = [
                    a.type if a in body.inputs else env[a].type for a in n.args
                ]
            env.update(zip(n.outs, new, strict=False))
            self.probes += new[len(n.outs):]
            if tails is not None and n in tails.over and product_of(n) is not None:
                self.products += new
        inputs = [*(env[v] for v in body.inputs), *self.begins.values()]
        return finish(b, body.name, inputs, [*(env[v] for v in body.outputs), *self.probes])

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

    def _block(self, kernel: Node, outs: list[Label]) -> tuple[Graph, list[int]]:
        """One kernel's body on blocks, and the axes whose beginnings are its last operands.

        Its last results are what it must find to be 0 (see `tails`).
        """
        body: Graph = kernel.attrs["body"]
        tails, summed = self.tails, ONE
        if tails is not None and kernel in tails.over:
            summed = len(self.axes)
        labels = inner(body, outs, summed)
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
            given = operand_labels(n, label, summed)
            assert given is not None
            new = b.one(n.op, [env[key] for key in zip(n.args, given, strict=True)], n, **attrs)
            if n.op.name == "iota" and (a := label[n.attrs["axis"]]) in self.begins:
                begin = begins.setdefault(a, operand(f"begin{a}", TensorType(i64, ())))
                if n.out.type.dtype is not i64:
                    begin = b.one("cast", (begin,), n, dtype=n.out.type.dtype)
                moved = b.one("broadcast", (begin,), n, shape=attrs["shape"], axes=())
                new = b.one("add", (new, moved), n)
            env[n.out, label] = new
        inputs = [*(env[v, labels[v][0]] for v in body.inputs), *begins.values()]
        outputs = [env[key] for key in zip(body.outputs, outs, strict=True)]
        if tails is not None and kernel in tails.probes:
            outputs += self._column(b, kernel, env, labels, tails)
        return finish(b, body.name, inputs, outputs), list(begins)

    def _column(
        self, b: Builder, kernel: Node, env: Mapping[tuple[Value, Label], Value],
        labels: Mapping[Value, list[Label]], tails: Tails,
    ) -> list[Value]:
        """What a kernel's probes are in a column that is left out."""
        cut = len(self.axes)
        body: Graph = kernel.attrs["body"]
        here: dict[Value, Value] = {}
        wanted = set(tails.probes[kernel])
        for n in reversed(body.nodes):
            if n.out in wanted and (kernel, n.out) not in tails.constants:
                wanted.update(a for a in n.args if cut in labels[a][0])
        for v in (*body.inputs, *(n.out for n in body.nodes)):
            if v not in wanted:
                continue
            t = self._of(v, labels[v][0])
            shape = (*t.shape[:-1], 1)
            constant = tails.constants.get((kernel, v))
            n = v.node
            if constant is not None:
                x = b.one("constant", (), n, **constant.node.attrs)
                here[v] = b.one("broadcast", (x,), n, shape=shape, axes=())
            elif n.op.kind is Kind.ELEMENTWISE:
                here[v] = b.one(n.op, [here[a] for a in n.args], n, **n.attrs)
            elif n.op.name == "broadcast" and n.args[0] not in wanted:
                x = env[n.args[0], labels[n.args[0]][0]]
                here[v] = b.one("broadcast", (x,), n, shape=shape, axes=n.attrs["axes"])
            else:
                start = (*(0 for _ in shape[1:]), t.shape[-1] - 1)
                x, step = env[v, labels[v][0]], (1,) * len(shape)
                here[v] = b.one("slice", (x,), n, start=start, stop=t.shape, step=step)
        return [here[v] for v in tails.probes[kernel]]

    def _least_columns(self, n: Node) -> int:
        """How many columns a kernel with USED of them has at least."""
        if self.tails is None or n.outs[0].type.shape[-1:] != (self._size(len(self.axes)),):
            return 0
        return STEP if isinstance(self.tails.columns, int) else 0

    def _size(self, axis: int) -> Size:
        """The size of a block on a shared axis, or how many columns it uses."""
        name = USED if axis == len(self.axes) else self.names[axis]
        return Dim((((name,), 1),))

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
            total = total + dims.substitute(self.plan.slots[self.plan.scratch], self.whole)
        return total + ALIGN * len(self.slots_of_block)

    @property
    def workspace(self) -> Size:
        """Bytes of what kernels that sum over blocks have begun."""
        return dims.total(align(size_of(v)) for v in self.sums)

    @property
    def sums(self) -> list[Value]:
        """The results that are summed over blocks."""
        outs = zip(self.node.outs, self.node.attrs["outputs"], strict=True)
        return [v for v, label in outs if sums(label, len(self.axes))]

    @property
    def work(self) -> Size:
        """Estimated cycles."""
        return dims.total(dims.substitute(c.work, self.whole) for c in self.calls)

    @property
    def whole(self) -> dict[str, Size]:
        """The sizes of a block that is all there is."""
        return dict(zip(self.names, self.axes, strict=True)) | self._columns

    @property
    def _columns(self) -> dict[str, Size]:
        return {} if self.tails is None else {USED: self.tails.columns}

    def _row(self, size: Size) -> Size:
        """A size for a block of one row with all columns."""
        return dims.substitute(size, dict.fromkeys(self.names, 1) | self._columns)

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
        define_task(self)
        self._driver()
        return Call(
            self.name, self.node, self.slots, self.workspace, self.scratch, False, None,
            work=self.work, text=self.text,
        )

    def dims(self, f: Function) -> dict[str, str]:
        """Registers that hold the symbolic sizes."""
        first = self.slots.params + self.slots.outputs
        return {
            n: f(f"load i64, ptr {f.at('%ctx', 8 * (first + k))}, align 8")
            for k, n in enumerate(self.slots.dims)
        }

    def _driver(self) -> None:
        """Choose the block, from the innermost axis outwards, and share the blocks out."""
        f = Function(self.module, self.name, "ptr %ctx, ptr %scratch", self.target)
        n = len(self.axes)
        record = f(f"alloca [{2 * n + 1} x i64], align 16")
        f.do(f"store ptr %ctx, ptr {record}, align 8")
        regs = self.dims(f)
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
        regs |= {name: sizes.value(size) for name, size in self._columns.items()}
        need = SizeCode(f, regs).value(dims.total(map(align, self.slots_of_block)))
        fits = f.cmp("sle", need, str(SCRATCH_BYTES))
        with f.either(f(f"and i1 {fits}, {f.cmp('sgt', blocks, '1')}")) as branches:
            f.parallel(f"@{self.name}.task", record, blocks)
            f.otherwise(*branches)
            f.do(f"call void @{self.name}.task(ptr {record}, i64 0, i64 {blocks}, ptr %scratch)")
        f.finish()
