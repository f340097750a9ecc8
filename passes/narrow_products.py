"""Products of a vector with a matrix of short rows: sums, along the rows or down them.

    %0: f32[n] = dot %x, %w {contract=((1),(0)), batch=((),())}      x: f32[n,10], w: f32[10]
->
    %0: f32[n] = add (reduce_sum (mul %x, (broadcast %w)) {axes=(1)}), 0.0

The template folds a register for each row, or holds one of columns that a row fills in part; loops
over short rows have rows in lanes, or several of them in a vector (`codegen.emission.packed`).
Those of the shortest rows are elementwise, or sums without a kernel between
(`elementwise_products`).
"""

from __future__ import annotations

from graphc.ir import Node
from graphc.passes.elementwise_products import TERMS
from graphc.passes.unstored import is_vector
from graphc.types import f32, f64

# Elements of a row that is summed along, bytes of one that is summed down, and rows where their
# number is known. In us on Zen 5, 2^16 rows, by the template and so:
#
#                        5           8          10          16          24          33
#     f32, x @ w    129   15    117   23    139   35    119   37    154   92    197  121
#     f32, y @ x                            101   24     78   38    102   82    122  111
#     f64, x @ w    124   30    101   42    145   60    107   76
#     f64, y @ x                            104   77     79   66    120  149
#
# What follows a sum of 24 or more is computed row by row (`codegen.nests.ends`): a tanh takes twice
# as long then. And along rows of more than a register the template has since got a way of its own
# (`codegen.matmul.short_rows`): of 20,000 x 20 f32 it takes Zen 4 25 us, sums 42.
ALONG, DOWN_BYTES, ROWS = 16, 128, 128


def narrow_side(n: Node) -> int | None:
    """Which operand of a product is such a matrix, beside a vector."""
    if n.out.type.dtype not in (f32, f64) or n.attrs["batch"] != ((), ()):
        return None
    for s in (0, 1):
        shape, over = n.args[s].type.shape, n.attrs["contract"][s]
        if len(shape) != 2 or len(over) != 1 or not is_vector(n, 1 - s):
            continue
        rows, row = shape
        most = ALONG if over == (1,) else DOWN_BYTES // n.out.type.dtype.itemsize
        many = not isinstance(rows, int) or rows >= ROWS
        if many and isinstance(row, int) and TERMS < row <= most:
            return s
    return None
