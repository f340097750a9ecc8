"""What a thread does of a chain: its kernels, one after the other, on one block after the other.

    define internal void @K.task(ptr %record, i64 %begin, i64 %end, ptr %scratch)

Where kernels sum over blocks, a task's number counts all blocks of the innermost axis. Where a mask
leaves columns out (see `masks`), a block may be computed twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.chain.guards import Guards
from graphc.codegen.chain.masks import USED
from graphc.codegen.kernels import Call
from graphc.codegen.matmul.ir import Function
from graphc.codegen.nests.loops import strides
from graphc.codegen.plan import Place, align
from graphc.codegen.sizes import SizeCode
from graphc.ir import Value
from graphc.passes.groups import ONE, Label

if TYPE_CHECKING:
    from graphc.codegen.chain.kernel import ChainKernel
    from graphc.codegen.chain.masks import Masked


def define_task(chain: ChainKernel) -> None:
    """Add the task to the chain's module."""
    f = Function(
        chain.module, f"{chain.name}.task", "ptr %record, i64 %begin, i64 %end, ptr %scratch",
        chain.target,
    )
    task = Task(chain, f)
    first, last = "%begin", "%end"
    if chain.blocks.summed:
        first, last = f.mul(first, task.count[-1]), f.mul(last, task.count[-1])
    calls = list(enumerate(chain.plan.calls))
    with f.each(first, last) as index:
        task.find(index.index)
        if chain.blocks.masked is None:
            task.lay_out()
            for k, call in calls:
                task.run(k, call)
        else:
            task.look(chain.blocks.masked)
            with f.each("0", "2") as attempt:
                task.lay_out()
                for k, call in calls:
                    if call.node not in chain.blocks.summed:
                        task.run(k, call)
                attempt.step = f.select(task.check(), "1", "2")
            task.lay_out()
            task.clear()
            for k, call in calls:
                if call.node in chain.blocks.summed:
                    task.run(k, call)
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
            begun = f.at(begun, self.whole.value(align(v.type.bytes)))
        self.guards: Guards | None = None
        if chain.blocks.masked is not None:
            columns = self.whole.value(chain.blocks.masked.columns)
            self.guards = Guards(f, columns, len(chain.blocks.masked.below))
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

    # --- columns that are left out ---------------------------------------------------------------

    def look(self, masked: Masked) -> None:
        """Before a block: how many columns it has."""
        f, guards, n = self.f, self.guards, self.n
        assert guards is not None
        alone = f.all_of(f.cmp("eq", self.regs[name], "1") for name in self.chain.names[:-1])
        rows = self.regs[self.chain.names[-1]]
        used = guards.begin(self.at[-1], rows, alone, bool(self.chain.blocks.summed))
        args = self.chain.node.args
        for k, v in enumerate(masked.below):
            at = self.chain.blocks.inputs.index(v)
            label, array = masked.labels[v], args[at]
            there = self._moved(self.given[at], array, label)
            shape, dtype = array.type.shape, array.type.dtype
            if n in label:
                row = self.whole.value(dims.product(shape[label.index(n) + 1 :]))
                used = guards.small_rest(k, there, dtype, row, used)
            else:
                count = self.sizes.value(self.chain.blocks.body.inputs[at].type.size)
                used = guards.small_rows(there, dtype, count, used)
        f.do(f"store i64 {used}, ptr {guards.used}, align 8")

    def check(self) -> str:
        """After a block's rows: whether it must be computed again, with all columns."""
        f, guards, chain = self.f, self.guards, self.chain
        assert guards is not None
        fewer = f.cmp("slt", self.regs[USED], guards.columns)

        def found(what: str, v: Value) -> str:
            count = f.select(fewer, self.sizes.value(v.type.size), "0")
            there = self.pointers[chain.plan.places[v]]
            return guards.any(what, v.type.dtype, there, count)

        looked = [("nonzero", v) for v in chain.blocks.probes]
        looked += [("negative_zero", v) for v in chain.blocks.products]
        wrong = f.any_of(found(what, v) for what, v in looked)
        with f.when(wrong):
            f.do(f"store i64 {guards.columns}, ptr {guards.used}, align 8")
        return wrong

    def clear(self) -> None:
        """Zeros in the rest of what is summed over blocks, before the first one adds to it."""
        f, guards = self.f, self.guards
        assert guards is not None
        for k, (v, label) in enumerate(self._results()):
            if v not in self.parts:
                continue
            at = label.index(self.n)
            row = self.whole.value(dims.product(v.type.shape[at + 1 :]) * v.type.dtype.itemsize)
            begin, end = f.mul(self.regs[USED], row), f.mul(guards.columns, row)
            end = f.select(f.cmp("eq", self.at[-1], "0"), end, begin)
            for base in (self.given[self.chain.params + k], self.parts[v]):
                guards.clear(self._moved(base, v, label), begin, end)

    # --- kernels ---------------------------------------------------------------------------------

    def lay_out(self) -> None:
        """Where arrays stand, for as many columns as the block has."""
        f = self.f
        if self.guards is not None:
            self.regs[USED] = f(f"load i64, ptr {self.guards.used}, align 8")
            self.sizes = SizeCode(f, self.regs)
        self.slots = ["%scratch"]
        for slot in self.chain.slots_of_block:
            self.slots.append(f.at(self.slots[-1], self.sizes.value(align(slot))))
        self.pointers = self._pointers()

    def _pointers(self) -> dict[Place, str]:
        """Where the arrays of the block's plan stand."""
        chain, f = self.chain, self.f
        args = chain.node.args
        found: dict[Place, str] = {}
        labels = [chain.blocks.labels[v] for v in chain.blocks.inputs]
        for k, (v, label) in enumerate(zip(args, labels, strict=True)):
            found[Place("input", k)] = self._moved(self.given[k], v, label)
        for a in range(self.n):
            found[Place("input", len(args) + a)] = f.at(self.begins, 8 * a)
        for k, (v, label) in enumerate(self._results()):
            found[Place("output", k)] = self._moved(self.given[chain.params + k], v, label)
            if v in self.parts:
                self.own[chain.blocks.body.outputs[k]] = self._moved(self.parts[v], v, label)
        for k, slot in enumerate(self.slots):
            found[Place("arena", k)] = slot
        first = len(chain.plan.slots)
        for k in range(len(chain.blocks.probes)):
            found[Place("output", len(chain.node.outs) + k)] = self.slots[first + k]
        return found

    def _results(self) -> list[tuple[Value, Label]]:
        """What the chain makes, as it is cut."""
        outs = self.chain.node.outs
        return list(zip(outs, self.chain.blocks.outputs, strict=True))

    def _moved(self, base: str, v: Value, label: Label) -> str:
        """Where the block of an array begins."""
        f = self.f
        for a, step in zip(label, self.step_of[v], strict=True):
            if a not in (ONE, self.n):
                offset = f.mul(self.at[a], f.mul(self.whole.value(step), v.type.dtype.itemsize))
                base = f.at(base, offset)
        return base

    def run(self, k: int, call: Call) -> None:
        """Call a kernel on the block."""
        plan, f = self.chain.plan, self.f
        places = {v: self.pointers[plan.places[v]] for v in (*call.args, *call.outs)}
        made = [places[v] for v in call.outs]
        values = [("ptr", places[v]) for v in call.args]
        if call.node in self.chain.blocks.summed:
            values.append(("ptr", self.own[call.outs[0]]))
        elif call.slots.params > len(call.args):
            values.append(("ptr", made[call.c_output] if call.c_output is not None else self.slots[
                plan.workspaces[k]
            ]))
        values += [("ptr", p) for p in made]
        values += [("i64", self.regs[name]) for name in call.slots.dims]
        room = "null" if plan.scratch is None else self.slots[plan.scratch]
        for j, (t, value) in enumerate(values):
            f.do(f"store {t} {value}, ptr {f.at(self.ctx, 8 * j)}, align 8")
        f.do(f"call void @{call.name}(ptr {self.ctx}, ptr {room})")
