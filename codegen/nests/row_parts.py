"""Rows that are put together of several parts, written part by part, some rows at a time.

    for i0<n, i1<m:                        for r from 0 to n, some rows at a time:
      out0[i0*(m+k)+i1] = in0[..]     ->     for i0 of these, i1<m: out0[i0*(m+k)+i1] = in0[..]
    for i0<n, i1<k:                          for i0 of these, i1<k: out0[i0*(m+k)+i1+m] = in1[..]
      out0[i0*(m+k)+i1+m] = in1[..]

Each part is a nest with a task of its own, and threads share the rows. Part by part for all rows,
every page of the result would be met once for each part: four parts of 4000 x 100 f32 take twice
as long so.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc import dims
from graphc.codegen.emission.frame import Slots
from graphc.codegen.emission.nest import NestKernel
from graphc.codegen.emission.streaming import fence_if
from graphc.codegen.grain import CHUNK_CYCLES
from graphc.codegen.job import Job
from graphc.codegen.launch import Launch
from graphc.codegen.machine.target import VIRTUAL_BITS, Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.nests.axes import coalesce
from graphc.codegen.nests.conditions import conditions, interior, typical
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.schedule import BLOCK, Schedule, plan
from graphc.codegen.sizes import SizeCode
from graphc.dims import Size

BYTES = 1 << 12  # of results that are written before the next part: a page
MEMORY = 8       # cycles of a line that is read and written, whatever is computed
CONDITION = 8    # cycles of one in the vectors of a line, whose elements a machine can mask;
MASKED = 128     # by AVX-512 so many over the bits of a lane
GAIN = 1.7       # times faster, by estimate, from which on parts are worth their code
# Elements of a part from which it is written by itself; bits of one whose vectors have no masks.
PART, PART_BITS = 8, 1024


def least(nest: Nest, parts: Sequence[Nest], target: Target) -> int | None:
    """The elements of a part, in the mean, from which parts of rows take much less time; None where
    they never do, their items are not blocks of the same rows, or something is stored but once.

    Rows from memory gain little. Where lanes are narrow, conditions fill several registers; and
    without masks LLVM makes a branch for each of them: rows of 100 x 1003 of named sizes beside
    their doubles take a Zen 3 of 16 bits 194 us, in parts 16, of f32 84 and 23, of f64 75 and 41.
    With masks such rows of f32 take Zen 4 33 us, in parts 16, of f64 41 and 30, of 5000 x 32 f32 55
    and 25; without them, by AVX2, 103 and 24, but of 10,000 x 16 108 and 158.
    """
    schedules = [plan(coalesce(p), target) for p in parts]
    rows = _rows(schedules[0])
    if not all(
        s.vector is not None and s.items == rows * _blocks(s)
        and not (s.across or s.tile or s.merges or s.spans or any(map(s.is_late, s.nest.stores)))
        for s in schedules
    ):
        return None
    whole = plan(coalesce(nest), target)
    bits = VIRTUAL_BITS // whole.lanes
    lines = typical(nest.points) * bits // 512
    asked = len(conditions(nest)) * _condition(whole, bits, target)
    before = typical(whole.items * whole.cycles) + lines * (MEMORY + asked)
    after = sum(typical(s.items * s.cycles) for s in schedules) + lines * MEMORY
    if before < GAIN * after:
        return None
    return PART if target.masked or bits < 32 else PART_BITS // bits


def _condition(whole: Schedule, bits: int, target: Target) -> int:
    """Cycles of one condition in the vectors of a line, of lanes of so many bits."""
    decided = whole.vector is not None and interior(whole.nest, whole.vector) is not None
    if target.masked:
        return MASKED // bits if not decided else 64 // bits - 1 if bits < 32 else 0
    if bits < 32:
        return 512 // bits
    return 0 if decided else CONDITION


def _rows(s: Schedule) -> Size:
    return dims.product(s.nest.sizes[n] for n in s.grid)


def _blocks(s: Schedule) -> Size:
    """Items of a row."""
    return dims.ceildiv(_length(s), BLOCK)


def _length(s: Schedule) -> Size:
    return 1 if s.vector is None else s.nest.sizes[s.vector]


class RowParts:
    """Writes the functions of nests that are parts of rows, one behind the other."""

    def __init__(self, job: Job, parts: Sequence[Nest], slots: Slots):
        self.job, self.name, self.slots = job, job.name, slots
        self.points = dims.total(p.points for p in parts)
        self.kernels = [NestKernel(job.part(f"of{k}"), p, slots, together=self.points)
                        for k, p in enumerate(parts)]
        self.rows = _rows(self.kernels[0].schedule)
        self.blocks = [_blocks(k.schedule) for k in self.kernels]
        self.cycles = dims.total(
            b * k.schedule.cycles for b, k in zip(self.blocks, self.kernels, strict=True)
        )

    def define(self) -> None:
        """Add the parts' tasks, the task that calls them, and what starts that."""
        for k in self.kernels:
            k.define(driver=False)
        self._task()
        f = Function(self.job.module, self.name, "ptr %ctx, ptr %scratch", self.job.target)
        Launch(
            f"{self.name}.task", self.rows, self.cycles, self.slots.items, CHUNK_CYCLES, False
        ).start(f, self._sizes(f).value)
        f.finish()

    def _sizes(self, f: Function) -> SizeCode:
        first = self.slots.params + self.slots.outputs
        return SizeCode(f, {
            n: f(f"load i64, ptr {f.at('%ctx', 8 * (first + k))}, align 8")
            for k, n in enumerate(self.slots.dims)
        })

    def _task(self) -> None:
        """The rows of some chunks: with a context of its own, since a part's chunks are others."""
        slots = self.slots
        f = Function(
            self.job.module, f"{self.name}.task",
            "ptr %ctx, i64 %begin, i64 %end, ptr %scratch", self.job.target,
        )
        own = f(f"alloca [{slots.count} x i64], align 16")
        f.copy(own, "%ctx", str(8 * slots.count))
        sizes = self._sizes(f)
        rows, chunk = (f(f"load i64, ptr {f.at('%ctx', 8 * k)}, align 8")
                       for k in (slots.items, slots.chunk))
        low = f.mul("%begin", chunk)
        high = f.min(f.mul("%end", chunk), rows)
        row = "0"
        blocks = [sizes.value(b) for b in self.blocks]
        for k in self.kernels:
            each = max(k.nest.outputs[x.output].dtype.itemsize for x in k.nest.stores)
            row = f.add(row, f.mul(sizes.value(_length(k.schedule)), each))
        count = f.udiv(str(BYTES), f.max(row, "1"))
        count = f.max(count, "1")
        with f.each(low, high, count) as at:
            end = f.min(f.add(at.index, count), high)
            for k, n in zip(self.kernels, blocks, strict=True):
                with f.when(f.cmp("ne", n, "0")):
                    for slot, value in ((slots.items, f.mul(rows, n)), (slots.chunk, n)):
                        f.do(f"store i64 {value}, ptr {f.at(own, 8 * slot)}, align 8")
                    f.do(f"call void @{k.name}.task(ptr {own}, i64 {at.index}, i64 {end}, "
                         "ptr %scratch)")
        past = [k.past for k in self.kernels if k.past is not None]
        if past:
            fence_if(f, f.cmp("ugt", sizes.value(self.points), str(min(past))))
        f.finish()
