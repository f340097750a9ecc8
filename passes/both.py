"""Products of one matrix with two vectors, y = A @ x and z = v @ A, in one kernel.

Where A comes from memory, reading it is what both products cost. `fuse` runs this when kernels
have been made: two of them become one whose loop axes are the rows and the columns of A. What they
have fused stays with them: v may be anything that is computed from the same row of y.

    %0: f64[m] = fused %a, %x {y = dot; axes=(m), outputs=((0))}
    %1: f64[n] = fused %0, %a {z = dot; axes=(n), outputs=((0))}
->
    %0: f64[m], %1: f64[n] = fused %a, %x {y, z = dot, dot; axes=(m,n), outputs=((0), (1))}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.ir import Builder, Graph, Node, Value, finish, finish_as
from graphc.ops.row import OPS, Kind
from graphc.passes.bodies import operand
from graphc.types import TensorType, f32, f64

# Measured on matrices of 100 to 10,000 rows: 1.9 times as fast as apart where A comes from memory,
# 1.0 to 1.3 times from a cache, slower for the narrowest.
LEAST_ROWS = 768       # of A: fewer are not shared among threads as well as columns are
# Of a row: in shorter ones the end of each sum costs as much as its terms, longer ones leave the
# cache before they are read again.
ROW_BYTES = (128, 1 << 17)
LEAST_BYTES = 1 << 18  # of A: smaller ones are read from a near cache anyway
BETWEEN = 100          # nodes from the one kernel to the other, among which paths are looked for


class Product(NamedTuple):
    """A kernel with a product of a matrix and a vector."""

    node: Node
    dot: Node
    matrix: Value  # operands of the kernel
    vector: Value
    along: bool    # whether it sums along the matrix' rows, as A @ x; else along its columns


def run(g: Graph) -> Graph:
    """Join the pairs of kernels of g that read the same matrix."""
    pairs = _pairs(g)
    return _joined(g, pairs) if pairs else g


def _pairs(g: Graph) -> dict[Node, tuple[Product, Product]]:
    """Kernels that become one, under both of their nodes."""
    position = {n: k for k, n in enumerate(g.nodes)}
    found: dict[Node, tuple[Product, Product]] = {}
    rows: dict[Value, list[Product]] = {}
    columns: list[Product] = []
    for n in g.nodes:
        p = _product(n)
        if p is None:
            continue
        if p.along:
            rows.setdefault(p.matrix, []).append(p)
        else:
            columns.append(p)
    free = 0  # pairs do not overlap in the program, so no two of them can wait for each other
    for c in columns:
        waiting = [r for r in rows.get(c.matrix, ()) if r.node not in found]
        made = [r for r in waiting if c.vector in r.node.outs]
        near = made or sorted(waiting, key=lambda r: abs(position[r.node] - position[c.node]))
        for r in near[:1]:
            first, last = sorted((position[r.node], position[c.node]))
            near_by = free <= first and last - first <= BETWEEN
            if near_by and _may_join(g.nodes[first : last + 1], r, c):
                found[r.node] = found[c.node] = (r, c)
                free = last + 1
    return found


def _product(n: Node) -> Product | None:
    """n, if it is a kernel around one product of a large matrix with a vector."""
    if n.op.name != "fused":
        return None
    dots = [m for m in n.attrs["body"].nodes if m.op.kind is Kind.CONTRACT]
    if len(dots) != 1 or dots[0].out.type.dtype not in (f32, f64):
        return None
    (dot,) = dots
    if dot.attrs["batch"] != ((), ()):
        return None
    for side, over in ((0, 1), (1, 0)):  # as `straighten` leaves them
        matrix, vector = dot.args[side], dot.args[1 - side]
        if dot.attrs["contract"][side] != (over,) or not _pays(matrix.type):
            continue
        if vector.type.size == matrix.type.shape[over]:
            given = dict(zip(n.attrs["body"].inputs, n.args, strict=True))
            return Product(n, dot, given[matrix], given[vector], side == 0)
    return None


def is_matrix(t: TensorType) -> bool:
    """Whether t is that of the matrix of such a product: vectors may be (m, 1) or (1, m)."""
    return t.ndim == 2 and 1 not in t.shape


def _pays(t: TensorType) -> bool:
    """Whether it is a matrix, and large enough; unknown sizes are taken to be."""
    if not is_matrix(t):
        return False
    rows, columns = t.shape
    row = columns * t.dtype.itemsize
    whole = rows * row
    return (
        (not isinstance(rows, int) or rows >= LEAST_ROWS)
        and (not isinstance(row, int) or ROW_BYTES[0] <= row <= ROW_BYTES[1])
        and (not isinstance(whole, int) or whole >= LEAST_BYTES)
    )


def _may_join(nodes: Sequence[Node], r: Product, c: Product) -> bool:
    """Whether nothing but v leads from one kernel to the other; they are the first and last of
    some nodes in order."""
    first, last = nodes[0], nodes[-1]
    made = set(first.outs)
    for n in nodes[1:-1]:
        if not made.isdisjoint(n.args):
            made.update(n.outs)
    reads = [a for a in last.args if a in made]
    if not reads:
        return True
    if last is r.node or reads != [c.vector] or c.vector not in first.outs:
        return False
    uses = [n for n in last.attrs["body"].nodes if c.dot.args[0] in n.args]
    return uses == [c.dot]


def _joined(g: Graph, pairs: dict[Node, tuple[Product, Product]]) -> Graph:
    """g with the pairs as one node each, at the first's place; what either needs comes before."""
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for node in g.nodes:
        stack = [node]
        while stack:
            n = stack[-1]
            both = [p.node for p in pairs[n]] if n in pairs else [n]
            own = {o for m in both for o in m.outs}
            missing = [a.node for m in both for a in m.args if a not in env and a not in own]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if both[0].outs[0] in env:
                continue
            if n not in pairs:
                b.repeat(n, env)
                continue
            args, attrs = _body(*pairs[n])
            new = b.emit(OPS["fused"], [env[a] for a in args], both[0], **attrs)
            env.update(zip((o for m in both for o in m.outs), new, strict=True))
    return finish_as(b, g, env)


def _body(r: Product, c: Product) -> tuple[list[Value], dict[str, object]]:
    """Operands and attributes of the node that is both."""
    b = Builder()
    given: list[Value] = []
    inside: dict[Value, Value] = {}  # operands and results of the two, in the new body
    outputs: list[Value] = []
    for p in (r, c):
        body: Graph = p.node.attrs["body"]
        env: dict[Value, Value] = {}
        for v, a in zip(body.inputs, p.node.args, strict=True):
            if a not in inside:
                inside[a] = operand(f"p{len(given)}", v.type, v.node.loc)
                given.append(a)
            env[v] = inside[a]
        for n in body.nodes:
            b.repeat(n, env)
        made = [env[o] for o in body.outputs]
        outputs += made
        inside.update(zip(p.node.outs, made, strict=True))
    labels = r.node.attrs["outputs"] + tuple(
        tuple(1 if a == 0 else a for a in label) for label in c.node.attrs["outputs"]
    )
    return given, {
        "body": finish(b, "body", [inside[a] for a in given], outputs),
        "axes": (*r.node.attrs["axes"], *c.node.attrs["axes"]), "reduced": (), "outputs": labels,
    }
