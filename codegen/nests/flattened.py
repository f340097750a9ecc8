"""Rows of a few elements, each by one formula with numbers of its row or of its columns.

    for i<n, j<4:  out[4*i + j] = a[4*i + j] * w[i] + b[j]

Pixels by their alpha, points by their weights, a bias added to a few columns. Vectors of one row
would hold few elements. Here they hold what lies side by side in memory, whichever rows that is
of: the innermost axis leaves the loops, and `emission.flat` spreads a vector of rows' numbers over
as many vectors of elements as a row is long.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.codegen.nests.axes import coalesce, coefficient
from graphc.codegen.nests.loops import Expr, Nest

MOST = 16   # elements of a row: of more, vectors of one row are full
LEAST = 16  # rows, where it is known how many
APART = 16  # elements from one row's number to the next


def flattened(nest: Nest) -> Nest | None:
    """The nest with its innermost axis as `columns`, where it is one of short rows."""
    if nest.reduced or nest.sites or any(e.kind not in ("load", "op", "const") for e in nest.exprs):
        return None
    if any(e.kind == "load" and (e.preds or nest.dynamic(e.offset)) for e in nest.exprs):
        return None
    if not any(_is_short(nest, a) for a in nest.outer):
        return None
    nest = coalesce(nest)
    for j in (a for a in nest.outer if _is_short(nest, a)):
        i = rows(nest, j)
        if i is not None and _suits(nest, i, j):
            stores = [s._replace(axes=tuple(a for a in s.axes if a != j)) for s in nest.stores]
            outer = [a for a in nest.outer if a != j]
            return replace(nest, outer=outer, stores=stores, columns=j)
    return None


def rows(nest: Nest, columns: str) -> str | None:
    """The axis of rows, which follow each other in memory."""
    length = nest.sizes[columns]
    return next((
        i for i in nest.outer if i != columns and all(
            coefficient(s.offset, columns) == 1 and coefficient(s.offset, i) == length
            for s in nest.stores
        )
    ), None)


def is_whole(nest: Nest, e: Expr, i: str, j: str) -> bool:
    """Whether a load reads rows as they are written."""
    return coefficient(e.offset, j) == 1 and coefficient(e.offset, i) == nest.sizes[j]


def _is_short(nest: Nest, axis: str) -> bool:
    n = nest.sizes[axis]
    return isinstance(n, int) and 1 < n <= MOST


def _suits(nest: Nest, i: str, j: str) -> bool:
    """Whether all that is read are rows, or numbers of rows or of columns, and some of these."""
    size, both = nest.sizes[i], {i, j}
    if isinstance(size, int) and size < LEAST:
        return False
    loads = [e for e in nest.exprs if e.kind == "load" and e.axes & both]
    for e in loads:
        by_row, by_column = coefficient(e.offset, i), coefficient(e.offset, j)
        if both <= e.axes:
            if not is_whole(nest, e, i, j):
                return False
        elif i in e.axes:
            if not (isinstance(by_row, int) and 1 <= by_row <= APART):
                return False
        elif not isinstance(by_column, int):
            return False
    return any(both <= e.axes for e in loads)
