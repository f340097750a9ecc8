"""Operands of `dot` as strided matrices: transposes them where axes to be joined lie apart.

A product kernel walks the batch, contracted and free axes of an operand with one stride each. And a
matrix beside a vector stands on the left where its rows are what is summed over, else on the right:
so there is one kernel for either, which reads whole rows.

    %0: f32[b,c] = dot %x, %y {contract=((0,2),(0,2)), batch=((),())}
->
    %0: f32[b,k,l] = transpose %x {perm=(1,0,2)}
    %1: f32[c,k,l] = transpose %y {perm=(1,0,2)}
    %2: f32[b,c] = dot %0, %1 {contract=((1,2),(1,2)), batch=((),())}

    %0: f32[n] = dot %a, %v {contract=((0),(0)), batch=((),())}
->
    %0: f32[n] = dot %v, %a {contract=((0),(0)), batch=((),())}

A matrix whose rows are what several products sum over is transposed for each of them while it is
packed, which takes longer than few rows of the product do. So that is done once, and at once for a
constant, such as weights of layers x @ w.T:

    %0: f32[8,n] = dot %x, %w {contract=((1),(1)), batch=((),())}      and more of %y, %z with %w
->
    %0: f32[k,n] = transpose %w {perm=(1,0)}
    %1: f32[8,n] = dot %x, %0 {contract=((1),(0)), batch=((),())}

2 rows by 512x512 f32 take 8 us for 30, 8 rows 19 for 47, 32 rows 84 for 111. A constant that
something else reads stays as it is, for there would be two of it.

One that sums over a few numbers is elementwise in some cases (`elementwise_products`), and those of
many small matrices are sums (`batched_products`). So is one with a vector whose matrix would be
transposed (`unstored`), which reads it once: einsum("ijk,j->ik") of 100 x 60 x 80 f32 takes 32 us
for 154; or whose rows are short (`narrow_products`). One with the same matrix for all members of
its batch may be a single one (`one_matrix`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind
from graphc.passes.batched_products import batched_sum, is_batched_sum
from graphc.passes.bodies import array_of, barrier_ids
from graphc.passes.elementwise_products import elements, free, is_elementwise, is_row_sum, row_sum
from graphc.passes.narrow_products import narrow_side
from graphc.passes.one_matrix import joined, one_matrix, shaped
from graphc.passes.unstored import is_vector, matrix_side, summed
from graphc.types import f32, f64

# Products from which a matrix is transposed for all of them. One gains what transposing takes, or
# more, whatever its rows: 32x512 @ (128x512).T takes 30 us, 22 after 10 us for the transpose.
SEVERAL = 3


def run(g: Graph) -> Graph:
    """Make every operand of every dot plain."""
    if not any(n.op.kind is Kind.CONTRACT for n in g.nodes):
        return g
    g = one_matrix(g)
    uses = Counter(n.args[1] for n in g.nodes if _sums_over_rows(n))
    readers = Counter(a for n in g.nodes for a in n.args)
    readers.update((*g.outputs, *(v for _, v in g.updates)))
    ids = barrier_ids(g)
    turned: dict[Value, Value] = {}

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if n.op.kind is not Kind.CONTRACT:
            return None
        if (side := matrix_side(n, readers)) is not None:
            return summed(b, n, args, side, next(ids))
        if not _sums_over_rows(n):
            return _straight(b, n, args, ids)
        x, w = args
        known = _is_known(w) and uses[n.args[1]] == readers[n.args[1]]
        if not known and uses[n.args[1]] < SEVERAL:
            return _straight(b, n, args, ids)
        if w not in turned:
            turned[w] = (
                b.one("constant", (), w.node, value=w.node.attrs["value"].transposed()) if known
                else b.one("transpose", (w,), n, perm=(1, 0))
            )
        return b.emit(n.op, (x, turned[w]), n, contract=((1,), (0,)), batch=((), ()))

    return rebuild(g, rewrite)


def _is_known(v: Value) -> bool:
    """Whether v is a constant whose elements are here."""
    return v.node.op.name == "constant" and array_of(v.node.attrs["value"]) is not None


def _sums_over_rows(n: Node) -> bool:
    """Whether n is the product of a matrix, which is no row, with the transpose of another."""
    return (
        n.op.kind is Kind.CONTRACT and n.attrs["contract"] == ((1,), (1,))
        and n.attrs["batch"] == ((), ()) and n.out.type.ndim == 2
        and all(size != 1 for size in n.out.type.shape) and n.out.type.dtype in (f32, f64)
    )


def _straight(
    b: Builder, n: Node, args: tuple[Value, ...], ids: Iterator[int]
) -> Sequence[Value] | None:
    """What takes the place of a product, None to keep it. ids: of barriers."""
    if is_elementwise(n):
        return elements(b, n, args)
    if is_batched_sum(n):
        return batched_sum(b, n, args, ids)
    if (side := narrow_side(n)) is not None:
        return summed(b, n, args, side, next(ids))
    if is_row_sum(n):
        return row_sum(b, n, args)
    if _is_askew(n):
        contract = n.attrs["contract"][::-1]
        return shaped(b, n, b.emit(n.op, args[::-1], n, contract=contract, batch=((), ())))
    batch, contract = list(n.attrs["batch"]), list(n.attrs["contract"])
    new = list(args)
    for s in (0, 1):
        ndim = args[s].type.ndim
        own = tuple(free(n, s))
        shape = args[s].type.shape
        if all(joined(shape, axes) for axes in (batch[s], own, contract[s])):
            continue
        if is_vector(n, 1 - s):
            return summed(b, n, args, s, next(ids))
        # what lies innermost stays there: rows are copied whole, and other products want them too
        inner, outer = (own, contract[s]) if ndim - 1 in own else (contract[s], own)
        perm = (*batch[s], *outer, *inner)
        new[s] = b.one("transpose", (args[s],), n, perm=perm)
        batch[s] = tuple(map(perm.index, batch[s]))
        contract[s] = tuple(map(perm.index, contract[s]))
    if new == list(args):
        return None
    return b.emit(n.op, new, n, contract=tuple(contract), batch=tuple(batch))


def _is_askew(n: Node) -> bool:
    """Whether a matrix beside a vector stands on the wrong side."""
    if n.out.type.dtype not in (f32, f64) or n.attrs["batch"] != ((), ()):
        return False
    matrices = [
        s for s in (0, 1)
        if n.args[s].type.ndim == 2 and len(n.attrs["contract"][s]) == 1
        and n.args[s].type.shape[1 - n.attrs["contract"][s][0]] != 1
    ]
    if len(matrices) != 1:
        return False
    (s,) = matrices
    (over,) = n.attrs["contract"][s]
    vector = n.args[1 - s].type.size == n.args[s].type.shape[over]
    return bool(vector and s == over)
