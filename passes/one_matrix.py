"""Products of a batch with one matrix, which a broadcast repeats: one product of all rows with it.

    %0: f32[b,m,k] = broadcast %f {shape=(b,m,k), axes=(1,2)}
    %1: f32[b,m,1] = dot %0, %x {contract=((2),(1)), batch=((0),(0))}     f: f32[m,k], x: f32[b,k,1]
->
    %0: f32[b,m] = dot %x, %f {contract=((1),(1)), batch=((),())}
    %1: f32[b,m,1] = reshape %0 {shape=(b,m,1), checked=false}

It is for vectors, and for matrices that stand on the left, also where only the last axes of a batch
have one matrix, as heads that share their keys. 1000 vectors by one 6x6 f32 take 2.4 us for 12, 100
by one 128x64 15 for 20. Matrices on the right of one stay a batch, the product of which goes
through the one matrix by a stride of 0 (`roles.buffer_of`).

Not a rule of `simplify`: transposes must have become part of products before, by which what stood
on the left may come to stand on the right. Those of the matrix itself become part of the product
here, with the axes of size 1 that a broadcast does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from graphc.dims import Size
from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind
from graphc.passes.elementwise_products import free


def one_matrix(g: Graph) -> Graph:
    """The graph with such products as one, or as fewer and taller ones."""
    found: dict[Node, tuple[int, list[int]]] = {}
    for n in g.nodes:
        for side in (0, 1) if n.op.kind is Kind.CONTRACT else ():
            if n not in found and (kept := _kept(n, side)) is not None:
                found[n] = side, kept
    if not found:
        return g

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return _product(b, n, args, *found[n]) if n in found else None

    return rebuild(g, rewrite)


def _kept(n: Node, side: int) -> list[int] | None:
    """The numbers of the batch axes that stay, where an operand is the same along the others, which
    can be rows of the other operand; None where there are none such. Axes of size 1 are anywhere.
    """
    v, batch, other = n.args[side], n.attrs["batch"][side], n.attrs["batch"][1 - side]
    if v.node.op.name != "broadcast":
        return None
    shape = n.args[1 - side].type.shape
    kept = [k for k, a in enumerate(batch) if a in v.node.attrs["axes"]]
    moved = [k for k in range(len(batch)) if k not in kept]
    if not moved or v.type.ndim != len(v.node.attrs["axes"]) + len(moved):
        return None
    long = [k for k in (*kept, *moved) if shape[other[k]] != 1]
    own = [a for a in free(n, 1 - side) if shape[a] != 1]
    rows = [*(other[k] for k in moved if k in long), *own]
    if long != sorted(long) or rows != sorted(rows):
        return None
    taller = side == 1 and joined(shape, tuple(rows))
    return kept if taller or not own else None


def _product(
    b: Builder, n: Node, args: Sequence[Value], side: int, kept: Sequence[int]
) -> Sequence[Value]:
    """The product of which the axes `kept` stay a batch; its axes are in the order of before."""
    matrix, at = args[side].node.args[0], args[side].node.attrs["axes"]
    matrix, where = _behind(matrix, [at.index(a) for a in free(n, side)])

    def pair(theirs: Iterable[int], mine: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        return tuple(theirs), tuple(where[at.index(a)] for a in mine)

    theirs, mine = n.attrs["batch"][1 - side], n.attrs["batch"][side]
    batch = pair((theirs[k] for k in kept), (mine[k] for k in kept))
    contract = pair(n.attrs["contract"][1 - side], n.attrs["contract"][side])
    return shaped(b, n, b.emit(n.op, (args[1 - side], matrix), n, contract=contract, batch=batch))


def shaped(b: Builder, n: Node, out: Sequence[Value]) -> Sequence[Value]:
    """What takes the place of n's output, in its shape."""
    shape = n.out.type.shape
    if out[0].type.shape == shape:
        return out
    return b.emit("reshape", out, n, shape=shape, checked=False)


def _behind(v: Value, in_order: Sequence[int]) -> tuple[Value, list[int]]:
    """What v is a transpose of, or has axes of size 1 more; and where that has v's axes, those of
    `in_order` in this order."""
    where, found = [*range(v.type.ndim)], (v, [*range(v.type.ndim)])
    while True:
        n = v.node
        if n.op.name == "transpose":
            where = [n.attrs["perm"][a] for a in where]
        elif n.op.name == "reshape" and 1 not in v.type.shape:
            long = [a for a, size in enumerate(n.args[0].type.shape) if size != 1]
            if [n.args[0].type.shape[a] for a in long] != [*v.type.shape]:
                return found
            where = [long[a] for a in where]
        else:
            return found
        v = n.args[0]
        if [where[a] for a in in_order] == sorted(where[a] for a in in_order):
            found = v, where


def joined(shape: tuple[Size, ...], axes: tuple[int, ...]) -> bool:
    """Whether some axes of a row-major array can be walked as one, in the order given."""
    kept = [a for a in axes if shape[a] != 1]
    return all(
        inner > outer and all(shape[k] == 1 for k in range(outer + 1, inner))
        for outer, inner in pairwise(kept)
    )
