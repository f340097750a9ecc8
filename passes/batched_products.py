"""Products of many small matrices, as sums of elementwise products.

    %0: f32[b,6,5] = dot %x, %y {contract=((2),(1)), batch=((0),(0))}    x: f32[b,6,7], y: [b,7,5]
->
    %0: f32[b,6,5] = add (reduce_sum (mul (broadcast %x), (broadcast %y)) {axes=(2)}), 0.0

A product's template takes 30 to 60 ns for each member of a batch before it computes anything. A
loop nest takes none, its vectors go on from one member to the next where members are small, and it
may compute operands and what becomes of the result. Of f32, in ns a member, template and sum:

    6x6 by 6x6            57   10        6x6 by a vector      33   11
    12x12 by 12x12        84   53        12x3 by a vector     46    5
    2x64 by 64x2         110   37        vectors of 6         21    1.5

Lanes of such a sum are columns of the second matrix. Where both matrices lie with what is summed
over innermost, the second is transposed before: the sum over rows that short takes longer than
both, 7x7 by 7x7 148 ns, transposed 31. That takes a barrier, or it would be read so all the same.
Few long rows stay as they are: vectors lie along what is summed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.dims import Size, product
from graphc.ir import Builder, Node, Value
from graphc.passes.elementwise_products import free, from_zero
from graphc.types import f32, f64

# Bytes of terms, rows * columns * depth, up to which matrices are small: 16 x 16 x 16 f32 take 0.7
# of the template's time, 12 x 12 x 12 f64 0.85, 16 x 16 x 16 f64 1.1, 24 x 24 x 24 f32 1.2.
MATRIX_BYTES = 1 << 14
# A matrix beside a vector is read once, so a sum is as fast as memory for longer. Where its rows
# are summed over, a register is folded for each: up to so many bytes of all of it, ..
ROWS_BYTES = 1 << 12
ROW_BYTES = 128  # .. or of a row. 64 x 16 f64 take 0.54, 64 x 32 1.2.
COLUMNS_BYTES = 1 << 16  # Down its columns nothing is: 128 x 64 f32 take 0.7, 64 x 128 f64 0.9
# Rows of both matrices that are summed over where they lie, if they are long: pairs of them, and
# elements. 3 x 3 pairs of 1000 f32 take 0.6 us in the place of 3.3, 4 x 4 of 256 0.20 (0.36), of
# f64 0.43 (0.71), 5 rows of 700 by a vector 0.2 (1.6); 6 x 6 of 512 f64 2 in the place of 1.6.
PAIRS, LONG = 24, 64
LEAST_TERMS = 512  # of all members: of fewer, either is little beside a call


def is_batched_sum(n: Node) -> bool:
    """Whether a product is one of many small matrices, of sizes that are known, or of vectors."""
    if n.out.type.dtype not in (f32, f64) or not n.attrs["batch"][0]:
        return False
    rows, columns, depth = _sizes(n)
    members = product(n.args[0].type.shape[a] for a in n.attrs["batch"][0])
    if members == 1 or 0 in (rows, columns, depth):
        return False
    if rows == columns == 1:  # of vectors, however long they are nothing is read twice
        return True
    if not (isinstance(rows, int) and isinstance(columns, int) and isinstance(depth, int)):
        return False
    if isinstance(members, int) and members * rows * columns * depth < LEAST_TERMS:
        return False
    if _is_of_long_rows(n):
        return True
    size = n.out.type.dtype.itemsize
    terms = rows * columns * depth * size
    if 1 not in (rows, columns):
        return terms <= MATRIX_BYTES
    matrix = 0 if columns == 1 else 1
    if _sums_innermost(n, matrix):
        return terms <= ROWS_BYTES or depth * size <= ROW_BYTES
    return terms <= COLUMNS_BYTES


def batched_sum(
    b: Builder, n: Node, args: Sequence[Value], ids: Iterator[int]
) -> Sequence[Value]:
    """The product as a sum over axes between rows and columns; `ids` are numbers of barriers."""
    batch, over = n.attrs["batch"], n.attrs["contract"]
    own, other = free(n, 0), free(n, 1)
    x = _turned(b, n, args[0], (*batch[0], *own, *over[0]))
    y = _turned(b, n, args[1], (*batch[1], *over[1], *other))
    innermost = _sums_innermost(n, 0) and _sums_innermost(n, 1)
    if own and other and innermost and not _is_of_long_rows(n):
        (y,) = b.emit("barrier", (y,), n, id=next(ids))
    first = len(batch[0])
    middle = first + len(own)
    shape = (*x.type.shape, *y.type.shape[first + len(over[1]):])
    if other:
        x = b.one("broadcast", (x,), n, shape=shape, axes=tuple(range(x.type.ndim)))
    if own:
        axes = (*range(first), *range(middle, len(shape)))
        y = b.one("broadcast", (y,), n, shape=shape, axes=axes)
    sums = tuple(range(middle, middle + len(over[0])))
    total = b.one("reduce_sum", (b.one("mul", (x, y), n),), n, axes=sums)
    return from_zero(b, n, total)


def _sizes(n: Node) -> tuple[Size, Size, Size]:
    """Rows and columns of a member of the batch, and how many numbers are summed over."""
    rows, columns, depth = (
        product(n.args[s].type.shape[a] for a in axes)
        for s, axes in ((0, free(n, 0)), (1, free(n, 1)), (0, n.attrs["contract"][0]))
    )
    return rows, columns, depth


def _is_of_long_rows(n: Node) -> bool:
    """Whether all pairs of few long rows are multiplied, a register folded for each."""
    rows, columns, depth = _sizes(n)
    pairs = rows * columns
    few = isinstance(pairs, int) and pairs <= PAIRS
    long = isinstance(depth, int) and depth >= LONG
    return few and long and _sums_innermost(n, 0) and _sums_innermost(n, 1)


def _sums_innermost(n: Node, s: int) -> bool:
    """Whether the innermost axis of an operand is summed over."""
    shape, inner = n.args[s].type.shape, n.args[s].type.ndim - 1
    while inner > 0 and shape[inner] == 1:
        inner -= 1
    return inner in n.attrs["contract"][s]


def _turned(b: Builder, n: Node, x: Value, perm: tuple[int, ...]) -> Value:
    """An operand with its axes in another order."""
    return x if perm == tuple(range(len(perm))) else b.one("transpose", (x,), n, perm=perm)
