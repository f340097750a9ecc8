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

from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.merging import Kernel, merged, merged_body
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
    if not pairs:
        return g
    together = {n: [p.node for p in pair] for n, pair in pairs.items()}
    return merged(g, together, lambda nodes: _kernel(*pairs[nodes[0]]))


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


def _kernel(r: Product, c: Product) -> Kernel:
    """Operands and attributes of the node that is both."""
    given, body = merged_body([r.node, c.node])
    labels = r.node.attrs["outputs"] + tuple(
        tuple(1 if a == 0 else a for a in label) for label in c.node.attrs["outputs"]
    )
    return given, {
        "body": body, "axes": (*r.node.attrs["axes"], *c.node.attrs["axes"]), "reduced": (),
        "outputs": labels,
    }
