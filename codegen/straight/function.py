"""Small static graphs as one straight-line function.

    if (function := straight(module, target, g, ...)): ...     else: kernels, as for any graph

A graph of few elements spends its time on everything around the arithmetic: calls of kernels, the
arena, loops of one vector. Here it becomes one function without loops or calls, whose values stand
in registers. Elements are numbered (see `elements`), so layout ops cost nothing, and known
zeros and ones of constants fold away where that is exact.

What stays with kernels: graphs with symbolic dimensions, with more elements or instructions than
the limits below, and those with ops that can fail, scans, argmax, indexing by data, random bits.

Expensive ops of different nodes that wait for nothing but each other's inputs share vectors: the
seven sines of seven joints are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.costs import COSTLY, VECTOR_COST
from graphc.codegen.straight.dot import dot
from graphc.codegen.straight.elements import VECTOR_BITS, Elements
from graphc.codegen.straight.ops import Ids, Ops
from graphc.dims import product
from graphc.ir import Builder, Graph, Node, State, Value, attr_key
from graphc.ops.row import OPS, Kind
from graphc.passes.stages import flatten
from graphc.types import DType, f32

MAX_BYTES = 16 << 10     # of inputs, outputs, states and constants together
MAX_NODES = 1000
MAX_STEPS = 6000         # scalar steps of all nodes
MAX_LINES = 2000         # of LLVM text: LLVM turns quadratic beyond
# What is saved is the calls of kernels, so few kernels are worth few lines: a long loop of one op
# is better a loop. A kernel that writes a stack out has as much text itself.
LINES, LINES_A_KERNEL = 300, 200

# Registers of 32 bytes where AVX-512 has 64: on Intel's CPUs 64-byte instructions in flight close
# one of the three ports for floats, and here scalar steps stand between those of vectors. With half
# the width such code takes half the time.
WIDEST = '"prefer-vector-width"="256" "min-legal-vector-width"="256"'
ATTRS = f'nounwind "no-trapping-math"="true" {WIDEST}'


def straight(
    module: Module, target: Target, g: Graph, name: str, fastmath: bool,
    states: Sequence[State], large: Sequence[Value],
) -> Graph | None:
    """Define `i32 @name(ptr %args, ptr %dims, ptr %arena)` if g is small enough.

    The graph of single ops that it computes, or None.
    """
    if g.dims() or _bytes(g) > MAX_BYTES or not may(g.nodes):
        return None
    if _has_more(g, MAX_NODES):
        return None
    flat = flatten(g)
    if len(flat.nodes) > MAX_NODES or not may(flat.nodes):
        return None
    formulas = sum(_formulas(n) for n in g.nodes if n.op.name == "fused")
    limit = min(MAX_LINES, LINES + LINES_A_KERNEL * formulas)
    if sum(map(steps_of, flat.nodes)) > MAX_STEPS or sum(map(lines_of, flat.nodes)) > limit:
        return None
    own = Module(module.debug, WIDEST)  # which takes the rare cases of math functions with it
    s = Straight(own, target, flat, fastmath, limit)
    text = s.text(name, states, [v.node.attrs["value"] for v in large])
    if text is None:
        return None
    module.take(own)
    module.define(name, text)
    return flat


def _formulas(n: Node) -> int:
    """How many a kernel computes one after the other: as many as it writes out of a stack."""
    found = 1
    for label, v in zip(n.attrs["outputs"], n.outs, strict=True):
        places = product(s for a, s in zip(label, v.type.shape, strict=True) if a < 0)
        assert isinstance(places, int)
        found = max(found, places)
    return found


def _has_more(g: Graph, most: int) -> bool:
    """Whether g has more ops than `most`, equal ones in several kernels counted once. That is found
    as soon as there are so many, where to flatten g takes all of a long loop."""
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for n in g.nodes:
        if len(b.nodes) > most:
            return True
        body = n.attrs.get("body")
        if body is None:
            b.repeat(n, env)
            continue
        inner = {p: env[a] for p, a in zip(body.inputs, n.args, strict=True)}
        for m in body.nodes:
            b.repeat(m, inner)
        env.update(zip(n.outs, [inner[o] for o in body.outputs], strict=True))
    return len(b.nodes) > most


def _bytes(g: Graph) -> int:
    """Bytes of all that stands in memory."""
    leaves = [*g.inputs, *g.outputs, *(v for _, v in g.updates)]
    leaves += [n.out for n in g.nodes if n.op.name in ("variable", "constant")]
    return sum(_size(v) * v.type.dtype.itemsize for v in leaves)


def _size(v: Value) -> int:
    size = v.type.size
    assert isinstance(size, int)
    return size


def may(nodes: Sequence[Node]) -> bool:
    """Whether all ops have a straight form."""
    return all(
        n.op.name in RULES
        or (n.op.kind in (Kind.ELEMENTWISE, Kind.LAYOUT, Kind.REGION)
            and not n.can_fail)
        for n in nodes
    )


def steps_of(n: Node) -> int:
    """Scalar steps of a node."""
    if n.op.name == "dot":
        depth = np.prod([n.args[0].type.shape[k] for k in n.attrs["contract"][0]], dtype=int)
        return _size(n.out) * int(depth)
    if n.op.kind is Kind.REDUCE:
        return _size(n.args[0])
    return sum(map(_size, n.outs)) if n.op.kind is Kind.ELEMENTWISE else 0


def lines_of(n: Node) -> int:
    """Lines that a node takes at least."""
    if n.op.kind is Kind.LAYOUT or n.op.kind is Kind.LEAF:
        return 0
    return VECTOR_COST.get(n.op.name, 1) * -(-steps_of(n) // lanes_of(n.args[0]))


def stretches_of(n: Node) -> int:
    """Stretches of neighbours that a layout op makes of what it is given, each a line at least
    where it is stored: rows, or elements if those of a row come from places apart."""
    if n.op.kind is not Kind.LAYOUT or n.op.name == "reshape" or not n.out.type.shape:
        return 0
    size, row, last = _size(n.out), n.out.type.shape[-1], n.out.type.ndim - 1
    if n.op.name in SCATTERED and SCATTERED[n.op.name](last, **n.attrs):
        return size
    parts = len(n.args) if n.op.name == "concat" and n.attrs["axis"] == last else 1
    assert isinstance(row, int)
    return parts * (size // max(1, row))


# Whether the elements of a row come from places apart.
SCATTERED: dict[str, Callable[..., bool]] = {
    "transpose": lambda last, perm: perm[last] != last,
    "reverse": lambda last, axes: last in axes,
    "slice": lambda last, start, stop, step: step[last] != 1,
    "pad": lambda last, low, high, interior: interior[last] != 0,
}


def lanes_of(v: Value) -> int:
    """Elements of a value that a register holds."""
    return VECTOR_BITS // max(8, v.type.dtype.compute.bits)


class Straight:
    """Writes one function."""

    def __init__(
        self, module: Module, target: Target, g: Graph, fastmath: bool, limit: int
    ):
        self.g, self.limit = g, limit
        self.e = Emitter(module)
        self.x = Elements(self.e, target, fastmath)
        self.ops = Ops(self.x)
        self.env: dict[Value, Ids] = {}
        self.states: dict[State, str] = {}
        self.large: dict[Any, str] = {}

    def text(self, name: str, states: Sequence[State], large: Sequence[Any]) -> str | None:
        """The function as an entry point; None if it gets too long."""
        g, e = self.g, self.e
        e.label("entry")
        pointers = map(self.pointer, count())
        for v in g.inputs:
            self.env[v] = self.memory(next(pointers), v)
        outputs = [next(pointers) for _ in g.outputs]
        self.states = {s: next(pointers) for s in states}
        self.large = {value: next(pointers) for value in large}
        if not self.compute():
            return None
        stores = [(p, v) for p, v in zip(outputs, g.outputs, strict=True)]
        self.store([*stores, *((self.states[s], v) for s, v in g.updates)])
        e.do("ret i32 0")
        if len(e.lines) > self.limit:
            return None
        return f"define i32 @{name}(ptr %args, ptr %dims, ptr %arena) {ATTRS} {{\n{e.text()}\n}}"

    def kernel(self, name: str, begins: Mapping[int, int]) -> str:
        """The function as a kernel; begins: of inputs that are parts of arrays, the slot of ctx
        that says where they begin."""
        g, e = self.g, self.e
        e.label("entry")
        for k, v in enumerate(g.inputs):
            pointer = self.pointer(k, "%ctx")
            if k in begins:
                begin = self.pointer(begins[k], "%ctx", "i64")
                pointer = e(f"getelementptr inbounds i8, ptr {pointer}, i64 {begin}")
            self.env[v] = self.memory(pointer, v)
        outputs = [self.pointer(len(g.inputs) + k, "%ctx") for k in range(len(g.outputs))]
        self.compute()
        self.store(list(zip(outputs, g.outputs, strict=True)))
        e.do("ret void")
        return (
            f"define internal void @{name}(ptr %ctx, ptr %scratch) {ATTRS} {{\n{e.text()}\n}}"
        )

    def pointer(self, k: int, table: str = "%args", ty: str = "ptr") -> str:
        """Slot k of what the function is given."""
        at = self.e(f"getelementptr inbounds i64, ptr {table}, i64 {k}")
        return self.e(f"load {ty}, ptr {at}, align 8")

    def compute(self) -> bool:
        """All nodes; False if that gets too long."""
        for group in self.groups():
            if len(group) == 1:
                self.node(group[0])
            else:
                self.together(group)
            if len(self.e.lines) > self.limit:
                return False
        return True

    def store(self, stores: Sequence[tuple[str, Value]]) -> None:
        """Write the results, when all is read: states may take each other's values."""
        self.e.note(None)
        taken = [self.x.take(self.env[v].reshape(-1).tolist()) for _, v in stores]
        for (p, v), registers in zip(stores, taken, strict=True):
            self.x.store(p, v.type.dtype, registers)

    def memory(self, pointer: str, v: Value) -> Ids:
        """The elements of an array in memory."""
        ids = self.x.buffer(pointer, v.type.dtype, _size(v))
        return np.array(ids, np.int64).reshape(v.type.shape)

    # --- the order of nodes --------------------------------------------------------------------

    def groups(self) -> list[list[Node]]:
        """Nodes in an order of dependency; expensive ones that can run together stand together."""
        level: dict[Value, int] = {}
        cheap: dict[int, list[list[Node]]] = {}
        costly: dict[int, dict[Any, list[Node]]] = {}
        for n in self.g.nodes:
            at = max((level.get(a, 0) for a in n.args), default=0)
            if n.op.kind is Kind.ELEMENTWISE and VECTOR_COST.get(n.op.name, 1) >= COSTLY:
                key = (
                    n.op, n.out.type.dtype, *(a.type.dtype for a in n.args),
                    attr_key(n.op, n.attrs),
                )
                costly.setdefault(at, {}).setdefault(key, []).append(n)
                at += 1
            else:
                cheap.setdefault(at, []).append([n])
            level.update(dict.fromkeys(n.outs, at))
        out: list[list[Node]] = []
        for at in range(max([*cheap, *costly], default=-1) + 1):
            out += cheap.get(at, [])
            out += costly.get(at, {}).values()
        return out

    def together(self, group: list[Node]) -> None:
        """Several nodes of one op as one."""
        n = group[0]
        self.e.note(n)
        args = [
            np.concatenate([self.env[m.args[k]].reshape(-1) for m in group])
            for k in range(len(n.args))
        ]
        ids = self.ops.apply(n.op.name, n.out.type.dtype, args, n.attrs)
        at = 0
        for m in group:
            size = _size(m.out)
            self.env[m.out] = ids[at : at + size].reshape(m.out.type.shape)
            at += size

    # --- single nodes --------------------------------------------------------------------------

    def node(self, n: Node) -> None:
        """The elements of one node."""
        self.e.note(n)
        args = [self.env[a] for a in n.args]
        rule = RULES.get(n.op.name)
        if not any(map(_size, n.outs)):
            results = [np.zeros(o.type.shape, np.int64) for o in n.outs]
        elif rule is not None:
            results = rule(self, n, args)
        elif n.op.kind is Kind.LAYOUT:
            assert n.op.ref is not None  # the reference moves numbers of elements as it does others
            results = [np.asarray(n.op.ref(*args, **n.attrs))]
        else:
            results = [self.ops.apply(n.op.name, n.out.type.dtype, args, n.attrs)]
        for o, ids in zip(n.outs, results, strict=True):
            self.env[o] = ids

    def variable(self, n: Node, args: Sequence[Ids]) -> list[Ids]:
        """A state where it stands."""
        return [self.memory(self.states[n.attrs["state"]], n.out)]

    def constant(self, n: Node, args: Sequence[Ids]) -> list[Ids]:
        if n.attrs["value"] in self.large:
            return [self.memory(self.large[n.attrs["value"]], n.out)]
        return [self.numbers(n.out, n.attrs["value"].array)]

    def iota(self, n: Node, args: Sequence[Ids]) -> list[Ids]:
        assert n.op.ref is not None
        return [self.numbers(n.out, n.op.ref(**n.attrs))]

    def numbers(self, v: Value, array: Any) -> Ids:
        """The elements of a constant."""
        d = v.type.dtype
        ids = [self.x.constant(d, x) for x in np.asarray(array).reshape(-1)]
        return np.array(ids, np.int64).reshape(v.type.shape)

    def identity(self, n: Node, args: Sequence[Ids]) -> list[Ids]:
        return list(args)

    def reduction(self, n: Node, args: Sequence[Ids]) -> list[Ids]:
        """An empty sum or product is its identity; 16-bit floats add up in f32."""
        (x,), d = args, n.out.type.dtype
        axes = n.attrs["axes"]
        if any(x.shape[a] == 0 for a in axes):
            one = self.x.constant(d, n.op.name == "reduce_prod")
            return [np.full(n.out.type.shape, one)]
        if d.kind == "b":
            return [self.ops.reduce(n.op.name, d, x, axes)]
        inner = self.inner(d)
        out = self.ops.reduce(n.op.name, inner, self.cast(x, d, inner), axes)
        return [self.cast(out, inner, d)]

    def dot(self, n: Node, args: Sequence[Ids]) -> list[Ids]:
        d = n.out.type.dtype
        inner = self.inner(d)
        pair = []
        for side, x in enumerate(args):
            batch, over = n.attrs["batch"][side], n.attrs["contract"][side]
            free = [k for k in range(x.ndim) if k not in batch and k not in over]
            order = [*batch, *free, *over] if side == 0 else [*batch, *over, *free]
            sizes = [
                int(np.prod([x.shape[k] for k in part], dtype=int)) for part in (batch, free, over)
            ]
            moved = self.cast(x, d, inner).transpose(order)
            middle = sizes[1:] if side == 0 else sizes[:0:-1]
            pair.append(moved.reshape(sizes[0], *middle))
        a, b = pair
        if not a.shape[2]:
            return [np.full(n.out.type.shape, self.x.constant(d, 0))]
        products = [dot(self.ops, inner, p, q) for p, q in zip(a, b, strict=True)]
        out = np.array(products, np.int64).reshape(n.out.type.shape)
        return [self.cast(out, inner, d)]

    def inner(self, d: DType) -> DType:
        """What a dtype adds up in."""
        return f32 if d.is_float and d.bits == 16 else d

    def cast(self, x: Ids, source: DType, to: DType) -> Ids:
        return x if source is to else self.ops.apply("cast", to, [x], {"dtype": to})


RULES: dict[str, Callable[[Straight, Node, Sequence[Ids]], list[Ids]]] = {
    "variable": Straight.variable, "constant": Straight.constant, "iota": Straight.iota,
    "stop_gradient": Straight.identity, "barrier": Straight.identity, "dot": Straight.dot,
    **{name: Straight.reduction for name in OPS if name.startswith("reduce_")},
}
