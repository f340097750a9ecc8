"""Runs of small kernels as one straight-line function each: loops that users unroll.

    %1 = fused %p, %f          a 6 x 6 product       %5, %6 = fused %x, %p, %f, ..
    %2 = fused %1, %q          ..                ->  %9, %10 = fused %5, %6, %f, ..
    ...                        (40 for three steps)  ...

A graph that is too long for one function (`function.straight`) may consist of a few steps, again
and again. Where its kernels repeat with a period, blocks are whole periods, so that all of them
are one function. A block is a `fused` node whose body holds the single ops.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np

from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.frame import Slots
from graphc.codegen.job import Job, body_sites
from graphc.codegen.kernels import Call
from graphc.codegen.nests.costs import VECTOR_COST
from graphc.codegen.straight.function import (
    LINES_A_KERNEL,
    MAX_LINES,
    MAX_NODES,
    MAX_STEPS,
    WIDEST,
    Straight,
    lanes_of,
    lines_of,
    may,
    steps_of,
    stretches_of,
)
from graphc.ir import Builder, Graph, Node, Value, attr_key, finish, finish_as
from graphc.ops.row import OPS, Kind
from graphc.passes.bodies import operand
from graphc.passes.chains import is_chain
from graphc.passes.pulling import is_conditional
from graphc.types import TensorType

LEAST = 6           # kernels of a block: what is saved is their calls
SHARE = 2           # of the lines that a function may have, what its ops take at least is one half
PATCHES = 4         # times that a loop over parts takes longer, to be worth a block of its own
KEPT_BYTES = 1 << 12  # constants up to here stand in a block, where zeros and ones fold away
APART = ".apart"      # behind the names of what blocks call
PERIOD = 256        # kernels of a step, at most


def gather(g: Graph) -> tuple[Graph, dict[Node, tuple[int, ...]]]:
    """g with blocks in the place of runs of small kernels; the blocks, with where their windows
    begin (in bytes)."""
    costs = _Costs()
    found = [b for run in _runs(g, costs) for b in _blocks(run, costs)]
    if not found:
        return g, {}
    last = {block[-1]: block for block in found}  # when all that it reads is there
    inside = {n for block in found for n in block}
    read_by: dict[Value, set[Node]] = {}
    for n in g.nodes:
        for a in n.args:
            read_by.setdefault(a, set()).add(n)
    wanted = set(g.results)
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    made: dict[Node, tuple[int, ...]] = {}
    for n in g.nodes:
        if n in last:
            block = last[n]
            outs = [
                o for m in block for o in m.outs
                if o in wanted or not read_by.get(o, set()) <= set(block)
            ]
            body = _Body(block)
            graph = body.graph(outs)
            args = tuple([env[a] for a in body.args])
            attrs = {"body": graph, "axes": (), "reduced": (), "outputs": ((),) * len(outs)}
            new = b.keep(Node(OPS["fused"], args, attrs, [o.type for o in outs], block[-1].origin))
            env.update(zip(outs, new, strict=True))
            made[new[0].node] = tuple(body.begins)
        elif n not in inside:
            b.repeat(n, env)
    return finish_as(b, g, env), made


def define(job: Job) -> Call:
    """Write the function of a block, however many lines it takes: which kernels are a block is the
    same for every CPU."""
    body, args = job.body, job.node.args
    slots = Slots(len(body.inputs), len(body.outputs), ())
    windows = [k for k, v in enumerate(body.inputs) if v.type != args[k].type]
    own = Module(job.module.debug, WIDEST)
    writer = Straight(own, job.target, body, job.fastmath, sys.maxsize)
    at = dict(zip(windows, count(slots.numbers_at)))
    text = writer.kernel(job.name, at)
    # loops have functions of the same names, but take vectors of another width in registers
    called = re.compile("@(" + "|".join(map(re.escape, own.functions)) + r")\(")
    own.functions = {f"{name}{APART}": t for name, t in own.functions.items()}
    for name, t in [(job.name, text), *own.functions.items()]:
        own.functions[name] = called.sub(rf"@\1{APART}(", t)
    job.module.take(own)
    # all operands are read before anything is written
    in_place = {
        k: [p for p, v in enumerate(body.inputs) if p not in at and v.type.bytes == o.type.bytes]
        for k, o in enumerate(body.outputs)
    }
    work = sum(map(lines_of, body.nodes))
    return Call(job.name, job.node, slots, in_place=in_place, work=work, splits=False)


class _Costs(dict[Node, tuple[int, int, int]]):
    """Nodes, lines and scalar steps of kernels: lines of what is computed, or of what is stored if
    that is more, and of what stands apart."""

    def __missing__(self, n: Node) -> tuple[int, int, int]:
        nodes = n.attrs["body"].nodes if n.op.name == "fused" else ()
        stores = sum(-(-_elements(o) // lanes_of(o)) for o in n.outs) if nodes else 0
        lines = max(stores, sum(map(lines_of, nodes))) + sum(map(stretches_of, nodes))
        self[n] = len(nodes), lines, sum(map(steps_of, nodes))
        return self[n]


def _runs(g: Graph, costs: _Costs) -> list[list[Node]]:
    """Kernels that may stand in a block, as long as nothing else stands between them."""
    runs: list[list[Node]] = [[]]
    for n in g.nodes:
        if n.op.kind is Kind.LEAF:
            continue
        if _is_small(n, costs):
            runs[-1].append(n)
        elif runs[-1]:
            runs.append([])
    return runs


def _is_small(n: Node, costs: _Costs) -> bool:
    """Whether a node has a straight form that may stand beside those of others."""
    if n.op.name == "reshape":
        return isinstance(n.out.type.size, int)
    if n.op.name != "fused" or is_chain(n):
        return False
    body: Graph = n.attrs["body"]
    if body.dims() or body_sites(body) or not may(body.nodes):
        return False
    if any(v.type.dtype.is_float and v.type.dtype.bits == 16 for m in body.nodes for v in m.outs):
        return False  # conversions of f16 without hardware are long
    return costs[n][1] <= (MAX_LINES // SHARE if _is_patchwork(n) else LINES_A_KERNEL)


def _blocks(run: Sequence[Node], costs: _Costs) -> list[list[Node]]:
    """A run cut into blocks: whole periods where it has any."""
    begin, end, period = _period(run)
    parts = [run[:begin], run[end:]]
    if period:
        most = _most(run[begin:end], costs) // period * period
        if not most:
            parts = [run]
        else:
            parts += [run[k : min(k + most, end)] for k in range(begin, end, most)]
    blocks = []
    for part in parts:
        at = 0
        while at < len(part):
            n = max(1, _most(part[at:], costs))
            blocks.append(list(part[at : at + n]))
            at += n
    return [
        b for b in blocks
        if sum(n.op.name == "fused" for n in b) >= LEAST or any(_is_patchwork(n) for n in b)
    ]


def _is_patchwork(n: Node) -> bool:
    """Whether a kernel has so many parts, each made otherwise, that a loop over its elements, which
    computes all parts for each vector of them, takes much longer than the parts by themselves.

    A gradient by 40 x 2 controls, a row from each of 40 steps, takes 8.8 us with such a loop at its
    end, 2.5 without. Not if it would take LLVM seconds: 65 arrays of 32 side by side took it 2.3.
    """
    if n.op.name != "fused" or n.attrs["reduced"]:
        return False
    size = max(map(_elements, n.outs))
    lines = in_loop = 0
    for m in n.attrs["body"].nodes:
        if m.op.kind is Kind.ELEMENTWISE:
            lines += lines_of(m)
            in_loop += VECTOR_COST.get(m.op.name, 1) * -(-size // lanes_of(m.args[0]))
        elif is_conditional(m):
            lines += _elements(m.out)
            in_loop += len(m.args) * -(-size // lanes_of(m.args[0]))
    return 0 < PATCHES * lines <= in_loop and lines <= MAX_LINES // SHARE


def _elements(v: Value) -> int:
    size = v.type.size
    assert isinstance(size, int)
    return size


def _most(nodes: Sequence[Node], costs: _Costs) -> int:
    """How many of these, from the first on, fit into one function."""
    limits = (MAX_NODES, MAX_LINES // SHARE, MAX_STEPS)
    total = np.cumsum([costs[n] for n in nodes], axis=0)
    return int((total <= limits).all(axis=1).sum())


def _period(run: Sequence[Node]) -> tuple[int, int, int]:
    """(begin, end, period) of the part of a run that repeats itself; (0, 0, 0) of others."""
    if len(run) < 2 * LEAST:
        return 0, 0, 0
    keys: dict[object, int] = {}
    ids = [keys.setdefault(_key(n), len(keys)) for n in run]
    middle = len(ids) // 2
    for p in range(1, min(PERIOD, len(ids) - middle)):
        if ids[middle - p : middle] != ids[middle : middle + p]:
            continue
        same = [ids[k] == ids[k + p] for k in range(len(ids) - p)]
        begin = end = middle - p
        while begin and same[begin - 1]:
            begin -= 1
        while end < len(same) and same[end]:
            end += 1
        return begin, begin + (end + p - begin) // p * p, p
    return 0, 0, 0


def _key(n: Node) -> object:
    """Equal for kernels of equal ops on equal types."""
    body = n.attrs.get("body")
    types = tuple(a.type for a in n.args)
    if body is None:
        return n.op, types, attr_key(n.op, n.attrs)
    return types, tuple((m.op, *(o.type for o in m.outs)) for m in body.nodes)


class _Body:
    """The graph of a block, whose parameters are what it reads: whole values, or windows of them.

    A window is what a step reads of an array of all steps. Where it begins is a number that the
    call passes, so that steps are alike.
    """

    def __init__(self, block: Sequence[Node]):
        self.b = Builder()
        self.args: list[Value] = []
        self.params: list[Value] = []
        self.begins: list[int] = []
        self.env: dict[Value, Value] = {}  # values of the graph -> of the body
        self.windows: dict[tuple[Value, int, object], Value] = {}
        for n in block:
            if n.op.name != "fused":
                self.env[n.out] = self.b.copy(n, (self.given(n.args[0]),))[0]
                continue
            inner: Graph = n.attrs["body"]
            outer = dict(zip(inner.inputs, n.args, strict=True))
            local: dict[Value, Value] = {}
            for m in inner.nodes:
                window = self.window(m, outer)
                if window is not None:
                    local[m.out] = window
                    continue
                for a in m.args:
                    if a in outer:
                        local[a] = self.given(outer[a])
                self.b.repeat(m, local)
            for o, r in zip(n.outs, inner.outputs, strict=True):
                self.env[o] = local[r]

    def given(self, v: Value) -> Value:
        """What stands for a value of the graph."""
        if v not in self.env:
            if v.node.op.name == "constant" and v.type.bytes <= KEPT_BYTES:
                self.b.repeat(v.node, self.env)
            else:
                self.env[v] = self.parameter(v, v.type)
        return self.env[v]

    def parameter(self, v: Value, type_: TensorType) -> Value:
        self.args.append(v)
        self.params.append(operand(f"p{len(self.params)}", type_, v.node.loc))
        return self.params[-1]

    def window(self, m: Node, outer: Mapping[Value, Value]) -> Value | None:
        """What stands for a slice of neighbours in an array that is not of this block."""
        if m.op.name != "slice" or m.args[0] not in outer:
            return None
        v, begin = outer[m.args[0]], _begin(m)
        if begin is None or v in self.env or v.node.op.name == "constant":
            return None
        key = (v, begin, m.out.type)
        if key not in self.windows:
            self.windows[key] = self.parameter(v, m.out.type)
            self.begins.append(begin)
        return self.windows[key]

    def graph(self, outs: Sequence[Value]) -> Graph:
        """The body, which gives these values of the graph."""
        return finish(self.b, "body", self.params, [self.env[o] for o in outs])


def _begin(m: Node) -> int | None:
    """The byte of its operand where a slice begins, if its elements stand behind one another."""
    shape, made, start = m.args[0].type.shape, m.out.type.shape, m.attrs["start"]
    if any(s != 1 for s in m.attrs["step"]):
        return None
    cut = [k for k, (a, b) in enumerate(zip(shape, made, strict=True)) if a != b]
    if not cut or any(size != 1 for size in made[: cut[-1]]):
        return None
    at = 0
    for size, k in zip(shape, start, strict=True):
        at = at * size + k
    return at * m.out.type.dtype.itemsize if isinstance(at, int) else None
