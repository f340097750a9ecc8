"""Fused nodes as kernels: which template writes each, and what a call of the result needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.delayed import DelayedKernel, delayed
from graphc.codegen.emission.dot import DotKernel
from graphc.codegen.emission.frame import Slots, slots_of
from graphc.codegen.emission.nest import NestKernel
from graphc.codegen.emission.scatter import PositionsKernel, ScatterKernel
from graphc.codegen.job import Job
from graphc.codegen.launch import Launch
from graphc.codegen.matmul.ir import Function
from graphc.codegen.nests import lowering, pull
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.ends import Cut, EndsKernel, cut
from graphc.codegen.nests.flattened import flattened
from graphc.codegen.nests.index_splitting import pieces
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.row_parts import RowParts
from graphc.codegen.nests.schedule import Schedule
from graphc.codegen.nests.small_sizes import by_small_sizes
from graphc.codegen.nests.stacked_rows import write_stacked
from graphc.codegen.nests.strip_mining import strips
from graphc.codegen.nests.sweeps import wanted
from graphc.codegen.nests.unrolled_matrices import unrolled_matrices
from graphc.codegen.nests.unrolled_rows import unrolled_rows
from graphc.codegen.nests.unrolling import unroll
from graphc.codegen.nests.versions import Version, Versions, by_length, by_parts, by_rows
from graphc.codegen.sizes import SizeCode
from graphc.dims import Size
from graphc.ir import Node, Value
from graphc.ops.row import Kind
from graphc.passes.roles import SCATTERS

LONG_IN_PLACE = 768  # elements of a row that takes long beside waiting for the one before


@dataclass
class Call:
    """One kernel of a program and its place in it."""

    name: str
    node: Node
    slots: Slots
    workspace: Size = 0           # bytes for a product that has no output to stand in
    scratch: Size = 0             # bytes of the calling thread's scratch
    fallible: bool = False
    nest: Nest | None = None
    c_output: int | None = None   # dot: the output that holds the product
    in_place: dict[int, list[int]] = field(default_factory=dict)  # output -> operands it may reuse
    work: Size = 0                # estimated cycles
    splits: bool = True           # whether the kernel shares itself out among threads
    after: Nest | None = None     # a second nest
    launch: Launch | None = None  # how its task is started, if there is no driver
    text: str = ""                # of a chain: its nests, and what it keeps in scratch
    check: Call | None = None     # a kernel that looks at its positions before it runs
    positions: tuple[Value, ...] = ()  # of such a kernel: what it looks at; it makes nothing

    @property
    def alone(self) -> bool:
        """Whether it may want more scratch than workers have, so that none may run it."""
        return bool(self.text)

    @property
    def args(self) -> tuple[Value, ...]:
        return self.positions or self.node.args

    @property
    def outs(self) -> tuple[Value, ...]:
        return () if self.positions else self.node.outs


def define_kernel(
    job: Job, updates: frozenset[Value], driver: bool = True, least_columns: int = 0,
    in_place: bool = False, stepped: Mapping[int, int] | None = None,
) -> Call:
    """Write the functions of one fused node into the module; `updates` become states.

    in_place: of a scatter, whether it may write over a state (`roles.written_in_place`).
    stepped: the outputs that are new states, and the operands that are their old ones (`delayed`).
    driver: whether it must be there, as a function of the kernel's name. least_columns: of a
    product with a symbolic number of them; 0 if there may be a single one.
    """
    job = job._replace(scratch=[])
    call = _define(job, updates, driver, least_columns, in_place, stepped)
    call.scratch = reduce(dims.maximum, job.scratch, call.scratch)
    return call


def _define(
    job: Job, updates: frozenset[Value], driver: bool, least_columns: int, in_place: bool,
    stepped: Mapping[int, int] | None,
) -> Call:
    """The kernel by the template that suits it."""
    products = sum(n.op.kind is Kind.CONTRACT for n in job.body.nodes)
    if products == 2:
        return _define_both(job)
    if products:
        return _define_product(job, updates, least_columns)
    for n in job.body.nodes:
        if n.op.name in SCATTERS and (in_place or not pull.one_per_row(n)):
            return _define_scatter(job, in_place, n.args[2].type.size)
    attrs = job.node.attrs
    backwards = frozenset(attrs["reduced"] if any(map(_runs_back, job.body.nodes)) else ())
    nest = lowering.lower(job.body, attrs["axes"], attrs["reduced"], attrs["outputs"], backwards)
    nest = write_stacked(nest, job.module.sparing) or nest
    whole, *rest = strips(nest)
    if rest:
        parts = [p for n in (whole, *rest) for p in pieces(unroll(n) or n, job.target)]
        return _define_pieces(job, nest, parts)
    nest = whole
    if not stepped and (flat := flattened(nest)) is not None:
        return _define_nest(job, flat, driver)
    nest = unroll(nest) or nest
    parts = pieces(nest, job.target)
    waiting = delayed(job, nest, parts, stepped) if stepped else None
    if waiting is not None:
        return _define_delayed(job, nest, waiting)
    if len(parts) > 1:
        return _define_pieces(job, nest, parts)
    rows = unrolled_rows(nest, job.target, job.module.sparing)
    rows = rows or unrolled_matrices(nest, job.target, job.module.sparing)
    if rows is not None and isinstance(rows.rows, int):
        return _define_nest(job, rows.nest, driver)
    if rows is not None:
        return _define_versions(job, nest, by_rows(nest, rows))
    halves = cut(nest, job.target)
    if halves is not None:
        return _define_ends(job, nest, halves)
    versions = by_length(nest, job.target) or by_parts(nest, job.target)
    if versions is None and not job.module.sparing:
        versions = by_small_sizes(nest, job.target)
    if versions is not None:
        return _define_versions(job, nest, versions)
    return _define_nest(job, nest, driver)


def _define_both(job: Job) -> Call:
    """Two products of one matrix with vectors."""
    from graphc.codegen.both import BothKernel  # which few programs need

    both = BothKernel(job)
    both.define()
    return Call(
        job.name, job.node, both.slots, workspace=both.workspace, fallible=job.fallible,
        nest=both.rows, work=both.work, after=both.columns,
    )


def _define_product(job: Job, updates: frozenset[Value], least_columns: int) -> Call:
    """A matrix product with its epilogue."""
    dot = DotKernel(job, updates, least_columns)
    dot.define()
    return Call(
        job.name, job.node, dot.slots, workspace=dot.workspace, scratch=dot.scratch,
        fallible=job.fallible, nest=dot.nest, c_output=dot.c_output, work=dot.work,
        in_place=_in_place(dot.nest, {dot.a, dot.b}, len(job.node.args), dot.c_output),
    )


def _define_scatter(job: Job, in_place: bool, work: Size) -> Call:
    """A scatter with several positions in a row, or one over a state.

    The positions of the latter are looked at by a kernel of their own, early: what cannot fail any
    more may write over the state.
    """
    check = None
    if in_place and job.fallible:
        positions = PositionsKernel(job)
        positions.define()
        check = Call(
            positions.name, job.node, positions.slots, fallible=True, work=positions.work,
            splits=False, positions=(positions.where,),
        )
    scatter = ScatterKernel(job, checked=check is not None)
    scatter.define()
    return Call(
        job.name, job.node, scatter.slots, workspace=scatter.workspace,
        fallible=job.fallible and check is None, work=work, splits=False,
        in_place=scatter.in_place, check=check,
    )


def _define_nest(job: Job, nest: Nest, driver: bool) -> Call:
    """A loop nest as one kernel."""
    kernel = NestKernel(job, nest, beside=True)
    launch = kernel.define(driver)
    s = kernel.schedule
    in_place: dict[int, list[int]] = {}
    if not s.final and (s.sweeps <= 1 or _stores_last(s)):
        in_place = _in_place(kernel.nest, set(), len(job.node.args), None)
        in_place = _never_read_after([s], in_place)
        for e, x in s.lent.items():
            allowed = in_place.get(x.output, [])
            in_place[x.output] = [p for p in allowed if not _reads_after(s, p, e)]
    return Call(
        job.name, job.node, kernel.slots, workspace=kernel.workspace, fallible=job.fallible,
        nest=kernel.nest, work=s.items * s.cycles, splits=s.items != 1, launch=launch,
        in_place=in_place,
    )


def _never_read_after(
    schedules: Iterable[Schedule], in_place: dict[int, list[int]]
) -> dict[int, list[int]]:
    """Those operands that nothing reads any more when the result is written: a stage writes it
    before others, and vectors that overlap another time."""
    for s in schedules:
        if s.nest.overlaps:
            return {}
        if s.stages is None:
            continue
        read = [s.stages.reads(s.nest, p) for p in range(len(s.nest.params))]
        for x in s.nest.stores:
            end = s.stages.end(x.expr)
            in_place[x.output] = [p for p in in_place.get(x.output, []) if read[p] <= end]
    return in_place


def _reads_after(s: Schedule, param: int, kept: Expr) -> bool:
    """Whether a row of an operand is still read when `kept` may stand in its place."""
    first = s.cached[kept]
    return any(
        e.kind == "load" and e.param == param and (p > first or e.id > kept.id)
        for p in range(first, s.sweeps) for e in wanted(s, p, s.cached)
    )


def _stores_last(s: Schedule) -> bool:
    """Whether a row is written by the last sweep over it, when no other is left to read it.

    The vector that a row ends with must not reach into the next row: that would be read when its
    store is over, after all that this row takes. 1000 rows of softmax in place took 61 us in the
    place of 19 where they have 10 elements, 133 of 96 with 100.
    """
    row = set(s.nest.reduced)
    length = s.nest.sizes[s.vector] if s.vector is not None else 0
    if isinstance(length, int) and length < LONG_IN_PLACE and s.grid and any(
        length * s.nest.outputs[x.output].dtype.itemsize % LINE
        for x in s.nest.stores if row & set(x.axes)
    ):
        return False
    return s.across and all(
        s.ready[x.expr] == s.sweeps - 1 for x in s.nest.stores if row & set(x.axes)
    )


def _define_pieces(job: Job, nest: Nest, parts: Sequence[Nest]) -> Call:
    """A nest's pieces as kernels of their own, called one after the other on one context."""
    slots = slots_of(nest)
    work: Size = 0
    calls = []
    schedules: list[Schedule] = []
    for k, part in enumerate(parts):
        small = job.part(f"p{k}")
        rows = unrolled_rows(part, job.target, job.module.sparing)
        if rows is not None and isinstance(rows.rows, int):
            part, rows = rows.nest, None
        versions = (
            by_rows(part, rows) if rows is not None
            else by_length(part, job.target) or by_parts(part, job.target)
        )
        if versions is None:
            kernel = NestKernel(small, part, slots, beside=True)
            kernel.define()
            schedules.append(kernel.schedule)
        else:
            kernel = _write_versions(small, versions, slots, schedules)
        work = work + kernel.schedule.items * kernel.schedule.cycles
        calls.append(f"  call void @{small.name}(ptr %ctx, ptr %scratch)\n")
    job.module.define(
        job.name,
        f"define internal void @{job.name}(ptr %ctx, ptr %scratch) nounwind {{\n{''.join(calls)}"
        "  ret void\n}",
    )
    in_place = {} if nest.reduced else _in_place(nest, set(), len(job.node.args), None)
    in_place = _never_read_after(schedules, in_place)
    return Call(job.name, job.node, slots, nest=nest, in_place=in_place, work=work)


def _define_delayed(job: Job, nest: Nest, kernel: DelayedKernel) -> Call:
    """A nest that makes states over what it reads beside the written element."""
    kernel.define()
    in_place = _in_place(nest, set(), len(job.node.args), None)
    parts = [p.kernel.schedule for p in (*kernel.near, *kernel.far)]
    return Call(
        job.name, job.node, kernel.slots, workspace=kernel.workspace, nest=nest,
        in_place=_never_read_after(parts, in_place) | kernel.in_place,
        work=kernel.cycles, splits=kernel.chunks > 1,
    )


def _define_ends(job: Job, nest: Nest, parts: Cut) -> Call:
    """A nest as two kernels, for the ends of its rows and for their elements."""
    kernel = EndsKernel(job, nest, parts)
    kernel.define()
    return Call(
        job.name, job.node, kernel.slots, workspace=kernel.workspace, nest=nest, work=kernel.work
    )


def _define_versions(job: Job, nest: Nest, versions: Versions) -> Call:
    """A nest as several kernels, of which the length of the rows chooses."""
    schedules: list[Schedule] = []
    other = _write_versions(job, versions, slots_of(nest), schedules)
    s = other.schedule
    in_place: dict[int, list[int]] = {}
    if not nest.reduced and all(_is_by_elements(v, nest) for v in versions.some):
        in_place = _in_place(nest, set(), len(job.node.args), None)
    in_place = _never_read_after(schedules, in_place)
    return Call(
        job.name, job.node, other.slots, workspace=other.workspace, fallible=job.fallible,
        nest=nest, work=s.items * s.cycles, in_place=in_place,
    )


def _is_by_elements(version: Version, nest: Nest) -> bool:
    """Whether a version stores an element at a time, as the nest does, not those of a short row
    one after the other."""
    return isinstance(version.nest, list) or len(version.nest.stores) == len(nest.stores)


def _write_versions(
    job: Job, versions: Versions, slots: Slots, schedules: list[Schedule]
) -> NestKernel:
    """The function that chooses, and what it calls; the kernel of all other lengths. The schedules
    of all of them are added to some."""
    other = NestKernel(job.part("other"), versions.other, slots)
    other.define()
    schedules.append(other.schedule)
    slots = other.slots  # with a workspace where rows go in bands
    f = Function(job.module, job.name, "ptr %ctx, ptr %scratch", job.target)
    first = slots.params + slots.outputs
    numbers = {n: f(f"load i64, ptr {f.at('%ctx', 8 * (first + k))}, align 8")
               for k, n in enumerate(slots.dims)}
    length = SizeCode(f, numbers).value(versions.length)
    with ExitStack() as ends:
        for version in versions.some:
            fits = f.cmp(version.compare, length, str(version.number))
            branches = ends.enter_context(f.either(fits))
            part = job.part(version.name)
            if isinstance(version.nest, list):
                parts = RowParts(part, version.nest, slots)
                parts.define()
                schedules += [k.schedule for k in parts.kernels]
            else:
                short = NestKernel(part, version.nest, slots)
                short.define()
                schedules.append(short.schedule)
            f.do(f"call void @{part.name}(ptr %ctx, ptr %scratch)")
            f.otherwise(*branches)
        f.do(f"call void @{other.name}(ptr %ctx, ptr %scratch)")
    f.finish()
    return other


def _runs_back(n: Node) -> bool:
    """Whether a node is a running reduction from the end of its axis."""
    return (
        n.op.kind is Kind.SCAN and bool(n.attrs["reverse"])
        and n.args[0].type.shape[n.attrs["axis"]] != 1
    )


def _in_place(
    nest: Nest, never: set[int], params: int, c_output: int | None
) -> dict[int, list[int]]:
    """For each output, the operands whose buffer it may take: they are read only at the element
    that is being written, by the iteration that writes it, once."""
    if nest.overlaps:
        return {}
    reads: dict[int, set[Size]] = {}
    for e in nest.exprs:
        if e.kind == "load":
            reads.setdefault(e.param, set()).add(e.offset)
    out: dict[int, list[int]] = {}
    for s in nest.stores:
        if s.output == c_output or any(coefficient(s.offset, a) == 0 for a in nest.outer):
            continue
        if [x.output for x in nest.stores].count(s.output) > 1:  # others of its elements, too
            continue
        size = nest.outputs[s.output].dtype.itemsize
        out[s.output] = [
            p for p in range(params)
            if p not in never and reads.get(p) == {s.offset}
            and nest.params[p].dtype.itemsize == size
        ]
    return out
