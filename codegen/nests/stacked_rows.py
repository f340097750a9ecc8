"""Short rows that are put together of parts, and added up: written out, element by element.

    for i0<n reduce i1<3:                               for i0<n:
      e0 = in0[i0] if i1 == 0 else in1[i0]        ->      e1 = in0[i0] * in0[i0];  e2 = in1[i0] ..
           if i1 == 1 else in2[i0]                        out0[i0] = (e1 + e3) + e2
      out0[i0] = reduce_sum over i1 of e0 * e0

Cross products, quaternions and rotations are stacks along a short axis, of which norms and products
are sums. A vector of such a row computes each element for all of them, and chooses. 20,000 rows of
f32 take Zen 5 so many us as they are and written out:

    a volume, sum(cross(a, b) * c)    155    4    areas of triangles, by cross products    168    5
    the square of all cross(a, b) - c 153    5    normals of them                          333    8
    products of quaternions, of length 1  1,098   10
    softmax of four formulas           73   15    the greatest of three, 40,000 of them    156    4

So are short rows across which others are read: of errors of many small systems, sum((A x - y)**2),
as sums of products of elements (`passes.elementwise_products`). Their elements are whole rows of
memory, which shuffles bring into registers (`emission.interleaving`). 5,000 of 4 x 4 f32 take 34
us as they are, written out 4, the sums of each 19 and 4.
"""

from __future__ import annotations

from dataclasses import replace

from graphc import dims
from graphc.codegen.emission.interleaving import reads_rows
from graphc.codegen.nests.axes import coalesce, coefficient, needs
from graphc.codegen.nests.conditions import conditions
from graphc.codegen.nests.costs import cost_of
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.writing_out import OPS, written_out
from graphc.dims import Size
from graphc.types import bool_, f32, f64, i32, i64

MOST, FEW = 16, 4  # elements of the axes that are written out,
MOST_COST = 400    # and cycles of what is, unless these are few: 16 of a sine, an exponential and a
                   # tanh, rolled, take 153 ms to compile in the place of 22
LEAST = 16         # rows, where they are read whole and their number is known
MOST_EXPRS = 512  # expressions of the nest, and of the one that is written
NUMBERS = (f32, f64, i32, i64)


def write_stacked(nest: Nest, sparing: bool) -> Nest | None:
    """The nest with the short reduced axes written out on which something depends by a condition,
    or across which rows are read; sums of all rows are of what these give. None where there are
    none, or other reductions. `sparing`: in a program of many kernels, whose text must not grow,
    few elements alone."""
    if len(nest.exprs) > MOST_EXPRS or nest.sites or not nest.reduced:
        return None
    asked = {n for p in conditions(nest) for size in p.sizes for n in dims.names(size)}
    stacked = asked & {*nest.reduced}
    nest = coalesce(nest)
    asked = stacked or _crossed(nest)
    if not asked:
        return None
    short = [k for k in nest.reduced if k in asked] if not nest.outer else nest.reduced
    rows = [k for k in nest.reduced if k not in short]
    length = dims.product(nest.sizes[k] for k in short)
    if not isinstance(length, int) or not 2 <= length <= MOST or not (nest.outer or rows):
        return None
    if sparing and length > FEW:
        return None
    if not all(_can_be(nest, e) for e in nest.exprs) or (rows and _swept_again(nest)):
        return None
    for k in short:
        nest = written_out(nest, k, in_halves=k == short[-1])
    many = length > FEW and sum(map(cost_of, nest.exprs)) > MOST_COST
    if many or len(nest.exprs) > MOST_EXPRS:
        return None
    nest = replace(nest, outer=nest.outer or rows, reduced=[])
    return nest if stacked or _reads_rows(nest) else None


def _crossed(nest: Nest) -> set[str]:
    """The short reduced axes across which rows are read: of a[i, j, k] for one k, along j."""
    short = [k for k in nest.reduced if _is_from(2, nest.sizes[k], MOST)]
    rows = nest.outer or [k for k in nest.reduced if k not in short]
    return {
        k for k in short for e in nest.exprs
        if e.kind == "load" and isinstance(by := coefficient(e.offset, k), int) and by > 1
        and any(_is_from(by + 1, coefficient(e.offset, i)) for i in rows)
    }


def _is_from(least: int, size: Size | None, most: int | None = None) -> bool:
    """Whether a number is known, and from one to another."""
    return isinstance(size, int) and least <= size and (most is None or size <= most)


def _reads_rows(nest: Nest) -> bool:
    """Whether all that is read goes along rows, of which there are many."""
    if len(nest.outer) != 1:
        return False
    (i,) = nest.outer
    count = nest.sizes[i]
    return (not isinstance(count, int) or count >= LEAST) and reads_rows(nest, i)


def _swept_again(nest: Nest) -> bool:
    """Whether elements wait for a sum of all of them, as of a variance for the mean."""
    behind: set[Expr] = set()
    for e in nest.exprs:
        if (e.kind == "reduce" and not e.axes) or not behind.isdisjoint(needs(nest, e)):
            behind.add(e)
    return any(e.axes for e in behind) or any(s.axes and s.expr in behind for s in nest.stores)


def _can_be(nest: Nest, e: Expr) -> bool:
    """Whether an expression can be written for each element, and its sums for all of them."""
    if e.kind == "reduce":
        whole = {*e.over} == {*nest.reduced} or (not e.axes and {*e.over} == {*nest.outer})
        return whole and e.name in OPS and e.dtype in NUMBERS
    known = e.kind in ("load", "const", "op", "index", "inside", "position")
    return known and e.dtype in (*NUMBERS, bool_)
