"""Functions of a chain: kernels run block by block; what one makes for the next is in scratch.

    define internal void @K(ptr %ctx, ptr %scratch)            all blocks, by way of `task`

The kernels inside are compiled for a block of their operands (`blocks`). Such a block is
contiguous, so a kernel needs to be told no more than where it begins. A memory plan, made as if the
kernels were a program of their own, says what stands where in scratch.

A block is some rows of one member, or some whole members, and so on outwards. Its size follows from
the shapes alone, and changes no bit, since no kernel's arithmetic for an element depends on how
many rows it is given. Where a kernel adds up over the blocks of the innermost axis, one thread
takes them in order; the sums begun so far stand in the result and in a workspace of the same size.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.chain.blocks import Blocks
from graphc.codegen.chain.masks import STEP, USED
from graphc.codegen.chain.summed import define_summed
from graphc.codegen.chain.task import define_task
from graphc.codegen.emission.frame import Slots
from graphc.codegen.job import Job
from graphc.codegen.kernels import Call, define_kernel
from graphc.codegen.matmul.ir import Function
from graphc.codegen.nests.loops import print_nest
from graphc.codegen.plan import ALIGN, align, make_plan
from graphc.codegen.pool.runtime import SCRATCH_BYTES
from graphc.codegen.sizes import SizeCode
from graphc.dims import Size
from graphc.ir import Node, Value
from graphc.passes.labels import sums

# Bytes of a block that stay in the second cache beside what the products pack.
BLOCK_BYTES = 1 << 20
# Cycles of a block, some 150 us: enough to hand out, few enough to share among threads.
BLOCK_CYCLES = 1 << 19
# Rows that a block has at least, even if they take more than BLOCK_BYTES (but at most MOST_BYTES),
# since products pack their right operand once for each block.
LEAST_ROWS, MOST_BYTES = 128, 3 << 20


class ChainKernel:
    """Writes the functions of a `fused` node whose body holds kernels."""

    def __init__(self, job: Job):
        self.module, self.target, self.name = job.module, job.target, job.name
        self.node = node = job.node
        self.blocks = blocks = Blocks(node)
        self.axes, self.names = blocks.axes, blocks.names
        self.calls = [self._member(job.part(str(k), n)) for k, n in enumerate(blocks.body.nodes)]
        self.plan = make_plan(blocks.body, self.calls, (), [])
        # what a block has in scratch: the plan's arrays, and probes
        self.slots_of_block = [*self.plan.slots, *(v.type.bytes for v in blocks.probes)]
        seen: dict[str, None] = {}
        for v in (*node.args, *node.outs, *(o for n in node.attrs["body"].nodes for o in n.outs)):
            for size in v.type.shape:
                seen.update(dict.fromkeys(dims.names(size)))
        self.params = len(node.args) + bool(blocks.summed)
        self.slots = Slots(self.params, len(node.outs), tuple(seen))
        # every array's size is this much times the sizes of the block
        self.unit = dims.total(
            self._row(s) for k, s in enumerate(self.slots_of_block) if k != self.plan.scratch
        )
        self.cycles = dims.total(self._row(c.work) for c in self.calls)

    def _member(self, job: Job) -> Call:
        """One of the kernels."""
        n = job.node
        if n in self.blocks.summed:
            return define_summed(job, self.blocks.summed[n], self.axes[-1])
        return define_kernel(job, frozenset(), least_columns=self._least_columns(n))

    def _least_columns(self, n: Node) -> int:
        """How many columns a kernel has at least, if some may be left out."""
        blocks, shape = self.blocks, n.outs[0].type.shape
        if blocks.masked is None or shape[-1:] != (blocks.size(blocks.cut),):
            return 0
        return STEP if isinstance(blocks.masked.columns, int) else 0

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
        return dims.total(align(v.type.bytes) for v in self.sums)

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
        masked = self.blocks.masked
        return {} if masked is None else {USED: masked.columns}

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
            self.name, self.node, self.slots, workspace=self.workspace, scratch=self.scratch,
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
            in_order = bool(self.blocks.summed) and a == n - 1
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
