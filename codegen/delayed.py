"""A new state made over its old one by a nest that reads elements beside the written one.

    for a block of new elements:              u[i] + c * (u[i - 1] - 2 * u[i] + u[i + 1])
        compute them into a near cache        `stage`
        copy those to the state that no later block reads the old ones of

Stencils (heat, waves, reactions on a grid) read rows around the row that they write. Made in the
arena, a state of more than a cache would go through memory three times, and be copied. Here what is
computed waits beside the state, in the kernel's workspace, until the old elements under it are of
no use any more: positions more than `behind` before those that are computed next. Time skewing
(Wonnacott 2000) does so for many steps; this is one step, in place.

Threads take chunks of blocks. A chunk's first `ahead` elements are read by the chunk before it, its
last `behind` by the one after: these wait until all chunks are done. Parts of a nest that read far
away, such as the edges of a periodic grid, are computed first and wait until then as well. Blocks
and chunks follow from shapes, and no element's arithmetic depends on them, so bits are the same.

Positions are elements of the state in memory order, which is why only nests are taken whose parts
write rows of it in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from graphc.aligned import LINE
from graphc.codegen.emission.frame import Slots, slots_of
from graphc.codegen.emission.nest import NestKernel
from graphc.codegen.grain import MAX_CHUNKS, SHARED_CYCLES
from graphc.codegen.job import Job, body_sites
from graphc.codegen.matmul.ir import Function
from graphc.codegen.nests.axes import coefficient, substitute
from graphc.codegen.nests.loops import Nest
from graphc.dims import Size, round_up
from graphc.ir import Graph, Node, Value

# Heat on squares of 64 to 1024, f32 and f64, against making the state beside itself and copying it:
# 64 x 64 f64 2.0 us of 3.3, 128 x 128 f32 4.1 of 6.5, 512 x 512 f32 95 of 189, f64 260 of 744.
LEAST_BYTES = 24 << 10   # of a state: 64 x 64 f32 takes 1.7 us either way
BLOCK_BYTES = 8 << 10    # of what a block computes: 16 KiB and more of it leave the nearest cache,
                         # 256 x 256 f32 takes 16 us, with 24 KiB 19, with 32 KiB as long as a copy
NEAR_ROWS = 4            # rows that a block may read before or behind it
ROUND = 64               # elements that waiting ones are rounded up to, so that lines begin there
CHUNK_BLOCKS = 64        # of a chunk, at least
SHARE = 2                # the state is at least so many times what waits


def stepped(g: Graph) -> dict[Node, dict[int, int]]:
    """Kernels that make new states of old ones which nobody need read later: output -> operand.

    Where something can fail, states are written after all else, so nothing is made in place.
    """
    if any(body_sites(n.attrs["body"]) for n in g.nodes if n.op.name == "fused"):
        return {}
    readers: dict[Value, list[Node]] = {}
    for n in g.nodes:
        for a in n.args:
            readers.setdefault(a, []).append(n)
    found: dict[Node, dict[int, int]] = {}
    old = {n.attrs["state"]: n.out for n in g.nodes if n.op.name == "variable"}
    for state, v in g.updates:
        n, u = v.node, old.get(state)
        if n.op.name != "fused" or u is None or v.type != u.type or v in g.outputs:
            continue
        before = readers.get(u) == [n] or not any(o in readers for o in n.outs)
        if before and n in readers.get(u, ()):
            found.setdefault(n, {})[v.index] = n.args.index(u)
    return found


class Line(NamedTuple):
    """Positions base + stride * row + (0 to rest), for the rows of a part."""

    base: int
    stride: int
    least: int
    most: int


@dataclass(eq=False)
class Part:
    """A nest that writes `rows` rows of a state, in order; the distances that it reads over."""

    kernel: NestKernel
    rows: int
    each: int      # grid items of a row
    line: Line     # what it writes
    behind: int = 0
    ahead: int = 0

    @property
    def end(self) -> int:
        """Behind the last position written."""
        return self.line.base + self.line.stride * (self.rows - 1) + self.line.most + 1

    def whole(self, block: int) -> bool:
        """Whether each row is in one block."""
        base, stride, _, most = self.line
        if self.rows == 1:
            return base // block == (base + most) // block
        return block % stride == 0 and base % stride + most < stride


class DelayedKernel:
    """Writes the functions of a nest cut in `parts`; `pairs`: the outputs that wait, and the
    operands that they are made over."""

    def __init__(self, job: Job, nest: Nest, parts: Sequence[Part], pairs: Mapping[int, int]):
        self.job, self.module, self.name = job, job.module, job.name
        self.in_place = {k: [a] for k, a in pairs.items()}
        self.outputs = sorted(pairs)
        self.sizes = [nest.outputs[k].dtype.itemsize for k in self.outputs]
        total = nest.outputs[self.outputs[0]].size
        assert isinstance(total, int)
        self.total, bytes = total, sum(self.sizes)
        self.row = max((p.line.stride for p in parts if p.rows > 1), default=1)
        most = max(NEAR_ROWS * self.row, BLOCK_BYTES // (NEAR_ROWS * bytes))
        self.near = [p for p in parts if max(p.behind, p.ahead) <= most]
        self.far = [p for p in parts if p not in self.near]
        self.behind = round_up(max((p.behind for p in self.near), default=0), ROUND)
        self.ahead = round_up(max((p.ahead for p in self.near), default=0), ROUND)
        wanted = max(BLOCK_BYTES // bytes, self.behind + self.ahead)
        self.block = round_up(wanted, self.row)
        self.cycles = sum(_int(p.kernel.schedule.items * p.kernel.schedule.cycles) for p in parts)
        count = min(MAX_CHUNKS, total // (CHUNK_BLOCKS * self.block))
        self.chunk = self.chunks = 1
        if count > 1 and self.cycles >= SHARED_CYCLES:
            self.chunk = round_up(-(-total // count), self.block)
            self.chunks = total // self.chunk
        else:
            self.ahead, self.chunk = 0, total
        # of each output: what begins a chunk, what waits from before, a block
        held = self.ahead + self.behind + self.block
        self.lengths = [round_up(held * s, LINE) for s in self.sizes]

    @property
    def pays(self) -> bool:
        """Whether it can be, and what waits is little beside the states."""
        waits = (self.ahead + self.behind + self.block) * self.chunks
        waits += sum(p.end - p.line.base for p in self.far)
        return (
            self.total * min(self.sizes) >= LEAST_BYTES and SHARE * waits <= self.total
            and all(p.whole(self.block) for p in self.near)
            # what waits to the end is copied as it stands
            and all(p.rows == 1 or p.line.most + 1 == p.line.stride for p in self.far)
            and all(_filled(p) for p in self.far)
        )

    @property
    def slots(self) -> Slots:
        return self.near[0].kernel.slots

    @property
    def workspace(self) -> int:
        """Bytes of what waits."""
        far = sum((p.end - p.line.base) * s for p in self.far for s in self.sizes)
        return self.chunks * sum(self.lengths) + far + LINE * len(self.far) * len(self.sizes)

    # --- functions ------------------------------------------------------------------------------

    def define(self) -> None:
        """Add the tasks of the parts, that of chunks, and the driver to the module."""
        for p in (*self.near, *self.far):
            self.module.define(f"{p.kernel.name}.task", p.kernel.task())
        self._chunks()
        self._driver()

    def _function(self, name: str, params: str) -> tuple[Function, str, list[str], str]:
        """A function, a context of its own in it, where its outputs are, and the workspace."""
        f = Function(self.module, name, params, self.job.target)
        slots = self.slots
        own = f(f"alloca [{slots.count} x i64], align 16")
        f.copy(own, "%ctx", str(8 * slots.count))
        f.do(f"store i64 1, ptr {f.at(own, 8 * slots.chunk)}, align 8")
        places = [*(slots.params + k for k in self.outputs), slots.params - 1]
        *outs, work = [f(f"load ptr, ptr {f.at('%ctx', 8 * k)}, align 8") for k in places]
        return f, own, outs, work

    def _run(self, f: Function, own: str, p: Part, begin: str, end: str) -> None:
        """Rows of a part."""
        items = f.at(own, 8 * self.slots.items)
        f.do(f"store i64 {p.rows * p.each}, ptr {items}, align 8")
        f.do(f"call void @{p.kernel.name}.task(ptr {own}, i64 {f.mul(begin, p.each)}, "
             f"i64 {f.mul(end, p.each)}, ptr %scratch)")

    def _write_to(self, f: Function, own: str, k: int, base: str) -> None:
        """Have the parts write their k-th output from `base` on."""
        f.do(f"store ptr {base}, ptr {f.at(own, 8 * (self.slots.params + self.outputs[k]))}, "
             "align 8")

    def _move(
        self, f: Function, k: int, to: str, at: str, source: str, place: str, count: str
    ) -> None:
        """Copy elements of the k-th output from `place` of source to `at` of `to`."""
        size = self.sizes[k]
        f.copy(f.at(to, f.mul(at, size)), f.at(source, f.mul(place, size)), f.mul(count, size))

    def _chunks(self) -> None:
        """The task of chunks. Position x of a block from p on is element x - p + behind of a
        stage, which stands behind what begins the chunk."""
        f, own, outs, work = self._function(
            f"{self.name}.chunks", "ptr %ctx, i64 %begin, i64 %end, ptr %scratch"
        )
        behind, ahead, block = self.behind, self.ahead, self.block
        with f.each("%begin", "%end") as chunk:
            first, last, stages = self._bounds(f, chunk.index, work)
            with f.each(first, last, block) as at:
                p = at.index
                high = f.min(f.add(p, str(block)), last)
                for k, stage in enumerate(stages):
                    back = f.mul(f.sub(str(behind), p), self.sizes[k])
                    self._write_to(f, own, k, f.at(stage, back))
                for part in self.near:
                    begin, end = self._rows(f, part, p), self._rows(f, part, high)
                    with f.when(f.cmp("slt", begin, end)):
                        self._run(f, own, part, begin, end)
                begins = f.cmp("eq", p, first)
                low = f.select(
                    begins, f.add(first, str(ahead)), f.sub(p, str(behind))
                )
                count = f.sub(f.sub(high, str(behind)), low)
                for k, stage in enumerate(stages):
                    place = f.add(f.sub(low, p), str(behind))
                    self._move(f, k, outs[k], low, stage, place, count)
                if ahead:
                    with f.when(begins):
                        for k, stage in enumerate(stages):
                            self._move(f, k, self._head(f, stage, k), "0", stage, str(behind),
                                       str(ahead))
                if behind:
                    with f.when(f.cmp("slt", high, last)):
                        for k, stage in enumerate(stages):
                            self._move(f, k, stage, "0", stage, str(block), str(behind))
        f.finish()

    def _bounds(self, f: Function, chunk: str, work: str) -> tuple[str, str, list[str]]:
        """Where a chunk begins and ends, and its stages."""
        first = f.mul(chunk, self.chunk)
        ends = f.cmp("eq", chunk, str(self.chunks - 1))
        last = f.select(ends, str(self.total), f.add(first, str(self.chunk)))
        area = f.at(work, f.mul(chunk, sum(self.lengths)))
        before = [sum(self.lengths[:k]) for k in range(len(self.sizes))]
        heads = [self.ahead * s for s in self.sizes]
        return first, last, [f.at(area, b + h) for b, h in zip(before, heads, strict=True)]

    def _head(self, f: Function, stage: str, k: int) -> str:
        """Where what begins a chunk waits."""
        return f.at(stage, -self.ahead * self.sizes[k])

    def _rows(self, f: Function, p: Part, position: str) -> str:
        """How many rows of a part begin before a position."""
        more = f.max(f.sub(position, str(p.line.base)), "0")
        return f.min(f.ceildiv(more, p.line.stride), str(p.rows))

    def _driver(self) -> None:
        """The parts that read far away, all chunks, then what waited."""
        f, own, outs, work = self._function(self.name, "ptr %ctx, ptr %scratch")
        stands: list[tuple[int, Part, str]] = []
        at = self.chunks * sum(self.lengths)
        for p in self.far:
            for k, size in enumerate(self.sizes):
                stands.append((k, p, f.at(work, at)))
                self._write_to(f, own, k, f.at(stands[-1][2], -p.line.base * size))
                at += round_up((p.end - p.line.base) * size, LINE)
            self._run(f, own, p, "0", str(p.rows))
        if self.chunks > 1:
            f.parallel(f"@{self.name}.chunks", "%ctx", str(self.chunks))
        else:
            f.do(f"call void @{self.name}.chunks(ptr %ctx, i64 0, i64 1, ptr %scratch)")
        left = (self.total - (self.chunks - 1) * self.chunk - 1) % self.block + 1
        with f.each("0", str(self.chunks)) as chunk:
            first, last, stages = self._bounds(f, chunk.index, work)
            place = f.select(f.cmp("eq", last, str(self.total)), str(left), str(self.block))
            for k, stage in enumerate(stages):
                if self.ahead:
                    self._move(f, k, outs[k], first, self._head(f, stage, k), "0", str(self.ahead))
                if self.behind:
                    low = f.sub(last, str(self.behind))
                    self._move(f, k, outs[k], low, stage, place, str(self.behind))
        for k, p, source in stands:
            self._move(f, k, outs[k], str(p.line.base), source, "0", str(p.end - p.line.base))
        f.finish()


def delayed(
    job: Job, nest: Nest, parts: Sequence[Nest], pairs: Mapping[int, int]
) -> DelayedKernel | None:
    """The kernel of a nest cut in `parts` whose outputs are made over operands, where that is
    called for: if no output is read beside the written element, it needs no waiting."""
    stores = {s.output: s for s in nest.stores}
    pairs = {k: a for k, a in pairs.items() if _beside(nest, stores[k].offset, a)}
    if not pairs or nest.reduced or nest.totals or nest.sites or len(stores) != len(nest.stores):
        return None
    if len({(stores[k].offset, nest.outputs[k].shape) for k in pairs}) > 1:
        return None
    slots = slots_of(nest)
    slots = replace(slots, params=slots.params + 1)
    found = [_part(job.part(f"p{k}"), x, slots, pairs) for k, x in enumerate(parts)]
    taken = [p for p in found if p is not None]
    if len(taken) < len(parts):
        return None
    kernel = DelayedKernel(job, nest, taken, pairs)
    return kernel if kernel.near and kernel.pays else None


def _beside(nest: Nest, offset: Size, operand: int) -> bool:
    return any(e.kind == "load" and e.param == operand and e.offset != offset for e in nest.exprs)


def _part(job: Job, nest: Nest, slots: Slots, pairs: Mapping[int, int]) -> Part | None:
    """A nest as rows of what it writes, and how far from these it reads."""
    kernel = NestKernel(job, nest, slots)
    s = kernel.schedule
    s.passing = False  # stages are read at once
    if s.tile is not None or s.merges:
        return None
    if s.spans and s.vector is not None:
        axis, size = s.vector, s.nest.sizes[s.vector]
        s.block, s.items = 1, size
    elif s.grid:
        axis, size = s.grid[0], s.nest.sizes[s.grid[0]]
    else:
        axis, size = "", 1
    if not isinstance(size, int) or not isinstance(s.items, int) or not size:
        return None
    line = _line(s.nest, next(x.offset for x in s.nest.stores if x.output in pairs), axis)
    if line is None or line.stride < 0 or line.least < 0:
        return None
    part = Part(kernel, size, s.items // size, line._replace(stride=max(line.stride, 1)))
    for e in s.nest.exprs:
        if e.kind == "load" and e.param in pairs.values():
            read = _line(s.nest, e.offset, axis)
            if read is None:
                return None
            for row in (0, size - 1):
                at = line.base + line.stride * row
                there = read.base + read.stride * row
                part.behind = max(part.behind, at - there - read.least)
                part.ahead = max(part.ahead, there + read.most - at)
    return part


def _line(nest: Nest, offset: Size, axis: str) -> Line | None:
    """An offset as positions by rows along `axis`; None where data or sizes decide it."""
    base = substitute(offset, dict.fromkeys(nest.outer, 0))
    factors = {a: coefficient(offset, a) for a in nest.outer}
    least = most = 0
    for a, c in factors.items():
        n = nest.sizes[a]
        if not isinstance(c, int) or not isinstance(n, int):
            return None
        if a != axis:
            least, most = least + min(0, c * (n - 1)), most + max(0, c * (n - 1))
    stride = factors.get(axis, 0)
    assert isinstance(stride, int)
    return Line(base, stride, least, most) if isinstance(base, int) else None


def _filled(p: Part) -> bool:
    """Whether a part writes all positions from its first to its last."""
    s = p.kernel.schedule
    points = 1
    for a in s.nest.outer:
        points *= _int(s.nest.sizes[a])
    return points == p.end - p.line.base


def _int(size: Size) -> int:
    assert isinstance(size, int)
    return size
