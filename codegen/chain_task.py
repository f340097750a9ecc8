"""What a thread does of a chain: its kernels, one after the other, on one block after the other.

    define internal void @K.task(ptr %record, i64 %begin, i64 %end, ptr %scratch)

Where kernels sum over blocks, a task's number counts all blocks of the innermost axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.kernels import Call
from graphc.codegen.loops import strides
from graphc.codegen.matmul_ir import Function
from graphc.codegen.plan import Place, align, size_of
from graphc.codegen.sizes import SizeCode
from graphc.codegen.tails import Block, Cuts
from graphc.ir import Value
from graphc.passes.grouping import ONE, Label

if TYPE_CHECKING:
    from graphc.codegen.chain import ChainKernel


def define_task(chain: ChainKernel) -> None:
    """Add the task to the chain's module."""
    f = Function(
        chain.module, f"{chain.name}.task", "ptr %record, i64 %begin, i64 %end, ptr %scratch",
        chain.target,
    )
    task = Task(chain, f)
    first, last = "%begin", "%end"
    if chain.summed:
        first, last = f.mul(first, task.count[-1]), f.mul(last, task.count[-1])
    with f.each(first, last) as index:
        task.find(index.index)
        pointers = task.pointers()
        for k, call in enumerate(chain.plan.calls):
            task.run(k, call, pointers)
    f.finish()


class Task:
    """Emits the task: first what all blocks share, then a block."""

    def __init__(self, chain: ChainKernel, f: Function):
        self.chain, self.f = chain, f
        self.n = n = len(chain.axes)
        self.ctx = f(f"alloca [{max(c.slots.count for c in chain.calls)} x i64], align 16")
        self.begins = f(f"alloca [{n} x i64], align 16")
        f.do("%ctx = load ptr, ptr %record, align 8")
        self.regs = chain.dims(f)
        self.whole = SizeCode(f, dict(self.regs))
        self.ends = [self.whole.value(size) for size in chain.axes]
        self.block, self.count = (
            [f(f"load i64, ptr {f.at('%record', 8 * (first + a))}, align 8") for a in range(n)]
            for first in (1, n + 1)
        )
        self.step_of = {v: strides(v.type.shape) for v in (*chain.node.args, *chain.node.outs)}
        for steps in self.step_of.values():
            for s in steps:
                self.whole.value(s)
        self.given = [
            f(f"load ptr, ptr {f.at('%ctx', 8 * k)}, align 8")
            for k in range(chain.slots.params + chain.slots.outputs)
        ]
        begun = self.given[chain.params - 1]  # one behind the other
        self.parts: dict[Value, str] = {}
        for v in chain.sums:
            self.parts[v] = begun
            begun = f.at(begun, self.whole.value(align(size_of(v))))
        self.cuts = Cuts(f, chain.cuts, self.whole)
        self.own: dict[Value, str] = {}  # where a kernel has what it began, by its result

    def find(self, number: str) -> None:
        """Where the block of a number begins on each axis, and how large it is."""
        f, rest = self.f, number
        self.at = [""] * self.n
        for a in reversed(range(self.n)):
            place = rest if a == 0 else f(f"urem i64 {rest}, {self.count[a]}")
            rest = rest if a == 0 else f.udiv(rest, self.count[a])
            self.at[a] = f.mul(place, self.block[a])
            f.do(f"store i64 {self.at[a]}, ptr {f.at(self.begins, 8 * a)}, align 8")
            size = f.min(self.block[a], f.sub(self.ends[a], self.at[a]))
            self.regs[self.chain.names[a]] = size
        self.sizes = SizeCode(f, self.regs)
        self.slots = ["%scratch"]
        for slot in self.chain.plan.slots:
            self.slots.append(f.at(self.slots[-1], self.sizes.value(align(slot))))

    def pointers(self) -> dict[Place, str]:
        """Where the arrays of the block's plan stand."""
        chain, f = self.chain, self.f
        args, first = chain.node.args, len(chain.node.args) + self.n
        found: dict[Place, str] = {}
        for k, (v, label) in enumerate(zip(args, chain.labels, strict=True)):
            found[Place("input", k)] = self._moved(self.given[k], v, label)
        for a in range(self.n):
            found[Place("input", len(args) + a)] = f.at(self.begins, 8 * a)
        for k, cell in enumerate(self.cuts.cells):
            found[Place("input", first + k)] = cell
        outs = zip(chain.node.outs, chain.node.attrs["outputs"], strict=True)
        for k, (v, label) in enumerate(outs):
            found[Place("output", k)] = self._moved(self.given[chain.params + k], v, label)
            if v in self.parts:
                self.own[chain.body.outputs[k]] = self._moved(self.parts[v], v, label)
        for k, slot in enumerate(self.slots):
            found[Place("arena", k)] = slot
        return found

    def _moved(self, base: str, v: Value, label: Label) -> str:
        """Where the block of an array begins."""
        f = self.f
        for a, step in zip(label, self.step_of[v], strict=True):
            if a != ONE:
                offset = f.mul(self.at[a], f.mul(self.whole.value(step), v.type.dtype.itemsize))
                base = f.at(base, offset)
        return base

    def run(self, k: int, call: Call, pointers: dict[Place, str]) -> None:
        """Call a kernel on the block."""
        plan, f = self.chain.plan, self.f
        places = {v: pointers[plan.places[v]] for v in (*call.args, *call.outs)}
        made = [places[v] for v in call.outs]
        values = [("ptr", places[v]) for v in call.args]
        if call.node in self.chain.summed:
            values.append(("ptr", self.own[call.outs[0]]))
        elif call.slots.params > len(call.args):
            values.append(("ptr", made[call.c_output] if call.c_output is not None else self.slots[
                plan.workspaces[k]
            ]))
        values += [("ptr", p) for p in made]
        values += [("i64", self.regs[name]) for name in call.slots.dims]
        room = "null" if plan.scratch is None else self.slots[plan.scratch]

        def go() -> None:
            for j, (t, value) in enumerate(values):
                f.do(f"store {t} {value}, ptr {f.at(self.ctx, 8 * j)}, align 8")
            f.do(f"call void @{call.name}(ptr {self.ctx}, ptr {room})")

        block = Block(self.at[-1], self.sizes, places)
        self.cuts.run(call.node, block, go)
