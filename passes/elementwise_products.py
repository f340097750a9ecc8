"""Products that sum over a few numbers, as elements of their results: they need no array of their
own, and are computed where their operands are made and their results read.

    %0: f32[m,n] = dot %u, %v {contract=((1),(1)), batch=((),())}      u: f32[m,1], v: f32[n,1]
->
    %0: f32[m,n] = add (mul (broadcast %u), (broadcast %v)), 0.0

Points in space, colours and small matrices of which there are many are multiplied so as well, a
term for each number that is summed over. A product's template takes 10 ns and more for a row of
three or a matrix of 3 x 3. 100,000 rows of 3 f32 by a vector take 40 us in the place of 430, by
3 x 3 90 (185); 20,000 pairs of 3 x 3 160 (1,400).

The template also takes as long for few columns as for many, where rows are summed over. Those of
all pairs of columns are a sum over rows, read as they lie:

    %0: f32[3,4] = dot %x, %y {contract=((0),(0)), batch=((),())}      x: f32[m,3], y: f32[m,4]
->
    %0: f32[3,4] = add (reduce_sum (mul (broadcast %x), (broadcast %y)) {axes=(0)}), 0.0

A sum starts from 0, so that none is -0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as all_of

from graphc.dims import Size, product
from graphc.ir import Builder, Node, Value
from graphc.types import f32, f64

OUTER = 4096  # elements of a large product that sums over one number
LEAST = 64    # elements of other products: of fewer, calls take longer than what is computed
TERMS = 4     # numbers that are summed over; 5 x 5 takes twice as long as the template
# Columns of a matrix that all rows are multiplied with, and rows and columns of those of a batch.
# 3 x 8 takes as long as the template, and what follows it longer: its vectors are not full.
NARROW = 4

# Columns of either matrix whose rows are summed over, pairs of them, and rows where their number is
# known. 50,000 rows of 3 x 3 take 54 us in the place of 150, of 8 f32 by a vector 49 (133); of 16
# f64 by a vector 265 (265), and `both` reads them once; 6 x 6 f64 as long as the template.
COLUMNS = 8
PAIRS = 24
ROWS = 128


def is_elementwise(n: Node) -> bool:
    """Whether a product is computed so."""
    count = product(n.args[0].type.shape[a] for a in n.attrs["contract"][0])
    if count == 1:
        return _at_least(n, OUTER)
    if n.out.type.dtype not in (f32, f64) or not _up_to(count, TERMS) or not _at_least(n, LEAST):
        return False
    rows, columns = (product(n.args[s].type.shape[a] for a in free(n, s)) for s in (0, 1))
    if product(n.args[0].type.shape[a] for a in n.attrs["batch"][0]) != 1:
        return _up_to(rows, NARROW) and _up_to(columns, NARROW)
    return rows == 1 or _up_to(columns, NARROW)


def is_row_sum(n: Node) -> bool:
    """Whether a product is a sum over the rows of all pairs of columns."""
    if n.out.type.dtype not in (f32, f64) or n.attrs["batch"] != ((), ()):
        return False
    if n.attrs["contract"] != ((0,), (0,)) or not _up_to(n.out.type.size, PAIRS):
        return False
    rows = n.args[0].type.shape[0]
    narrow = all(_up_to(product(x.type.shape[1:]), COLUMNS) for x in n.args)
    if n.out.type.size == 1:  # of two vectors; what a near cache holds takes 3 % longer as a sum
        return False
    return narrow and (not isinstance(rows, int) or rows >= ROWS)


def _up_to(size: Size, most: int) -> bool:
    return isinstance(size, int) and 1 <= size <= most


def _at_least(n: Node, least: int) -> bool:
    size = n.out.type.size
    return not isinstance(size, int) or size >= least


def free(n: Node, s: int) -> list[int]:
    """The axes of an operand that are the result's alone."""
    used = (*n.attrs["batch"][s], *n.attrs["contract"][s])
    return [a for a in range(n.args[s].type.ndim) if a not in used]


def row_sum(b: Builder, n: Node, args: Sequence[Value]) -> Sequence[Value]:
    """The product as a sum of elementwise products, over the first axes of both operands."""
    (x, y), first = args, args[0].type.ndim
    shape = (*x.type.shape, *y.type.shape[1:])
    x = b.one("broadcast", (x,), n, shape=shape, axes=tuple(range(first)))
    y = b.one("broadcast", (y,), n, shape=shape, axes=(0, *range(first, len(shape))))
    total = b.one("reduce_sum", (b.one("mul", (x, y), n),), n, axes=(0,))
    return from_zero(b, n, total)


def elements(b: Builder, n: Node, args: Sequence[Value]) -> Sequence[Value]:
    """The product as a sum of products of elements."""
    total: Value | None = None
    for x, y in zip(_sliced(b, n, args, 0), _sliced(b, n, args, 1), strict=True):
        term = b.one("mul", (_factor(b, n, x, 0), _factor(b, n, y, 1)), n)
        total = term if total is None else b.one("add", (total, term), n)
    assert total is not None
    return from_zero(b, n, total) if n.out.type.dtype.is_float else [total]


def from_zero(b: Builder, n: Node, total: Value) -> Sequence[Value]:
    """A sum that starts from 0."""
    t = n.out.type
    zero = b.one("broadcast", (b.constant(t.dtype.numpy.type(0), n),), n, shape=t.shape, axes=())
    return b.emit("add", (total, zero), n)


def _sliced(b: Builder, n: Node, args: Sequence[Value], s: int) -> Iterator[Value]:
    """An operand at each place of the axes that are summed over."""
    x, over = args[s], n.attrs["contract"][s]
    shape = x.type.shape
    sizes = [shape[a] for a in over]
    for at in all_of(*(range(k if isinstance(k, int) else 1) for k in sizes)):
        if all(k == 1 for k in sizes):
            yield x
            continue
        place = dict(zip(over, at, strict=True))
        start = tuple(place.get(a, 0) for a in range(len(shape)))
        stop = tuple(place[a] + 1 if a in place else size for a, size in enumerate(shape))
        yield b.one("slice", (x,), n, start=start, stop=stop, step=(1,) * len(shape))


def _factor(b: Builder, n: Node, x: Value, s: int) -> Value:
    """An operand, of size 1 along what is summed over, as elements of the result."""
    batch, own = n.attrs["batch"][s], free(n, s)
    axes = (*batch, *own)
    if len(axes) != x.type.ndim:
        shape = tuple(x.type.shape[a] for a in sorted(axes))
        x = b.one("reshape", (x,), n, shape=shape, checked=False)
    perm = tuple(map(sorted(axes).index, axes))
    if perm != tuple(range(len(perm))):
        x = b.one("transpose", (x,), n, perm=perm)
    first = len(batch) + (len(free(n, 0)) if s else 0)
    to = (*range(len(batch)), *range(first, first + len(own)))
    return b.one("broadcast", (x,), n, shape=n.out.type.shape, axes=to)
