"""Function versioning by length: rows whose number of elements comes with the call.

    for i0<n, i1<m reduce i2<d:         if d <= 204:  for i0<n, i1<m reduce i2<min(204, d): ..
      e4 = reduce_sum over i2 of ..  -> else:         for i0<n, i1<m reduce i2<d: ..
      out0[i0*m+i1] = e4

Distances of points want points in lanes (`tiles.spread`) if these have three coordinates, and
vectors along the coordinates if they have a thousand. Where the number is declared, one of the two
is written; where it is not, both, and the kernel chooses when it runs. Sums are added up in the
order of the declared number. 400 x 400 distances, three coordinates, take 34 us in the place of
1,816 in f32, and 61 in the place of 1,783 in f64.

Likewise the rows of a matrix, which are summed with a row in each lane if they have two to four
elements: these lengths have a version each, as if they were declared. The norms of 10,000 rows
of three f32 take 4 us in the place of 78.

Rows of a known length that is short are unrolled where there are enough of them (see
`unrolled_rows`), and small matrices (`unrolled_matrices`).

Rows that one vector holds have a version as well. They need no loops, and stay in registers from
sweep to sweep: softmax of 10,000 rows of three takes 161 us in the place of 441, sums of rows of
eight 22 for 76. Another one is for rows of up to four vectors, all of them masked: sums of 2,000
rows of 33 f32 take 11 us in the place of 27, softmax 100 for 160. All four take what takes long
twice the time of two: sines and exponentials of 17 to 32 f32 90 ns in the place of 55, so these go
by vectors.

Rows that are put together of parts of unknown length, as by a concatenation along the last axis,
are cut into these where they are not short: eight parts of 1000 x 16 f32 take 66 us in the place
of 144, two of 1000 x 64 bytes 9 in the place of 36 (see `row_parts`).

What takes long and is wanted by several sweeps is kept between these (`sweeps.keep`): in the place
of a result, if there is one, else where a row is not too long for the stack. Softmax of 1000 x 300
f32 takes 147 us in the place of 191, of f64 305 for 466; of 1024 x 1024 GELUs 1.5 ms for 3.9. Rows
of up to four vectors are faster in registers by a fifth. The longer a formula, the more its sweeps
have in common: gradients of a softmax of layer norms take Zen 3 a quarter to a half. Of rows of up
to NEAREST_ROW all is kept that is worth it, as if their length were declared: those of rows that
are normalised three times take 220 ns of 64 f32 in the place of 525, 790 of 300 for 1,950.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from graphc import dims
from graphc.codegen.machine.target import Target
from graphc.codegen.nests import row_parts
from graphc.codegen.nests.axes import coalesce, substitute
from graphc.codegen.nests.index_splitting import parts_of_rows
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.schedule import Schedule, plan
from graphc.codegen.nests.sweeps import MAX_CACHED_ROW, is_cheap
from graphc.codegen.nests.tiles import longest_spread
from graphc.codegen.nests.unrolled_rows import UnrolledRows
from graphc.codegen.nests.vector_axis import FEW
from graphc.dims import Size

MOST = 16  # expressions of a nest up to which it has a version for each of the shortest lengths,
MOST_IN_VECTOR = 40  # and one for rows that a vector holds
NEAREST_ROW = 1 << 10  # elements of a row that keeps all that is worth it (`sweeps.keep`)
ROW_VECTORS = 4  # .. and another for rows that so many hold
FEW_ROWS = 16  # of fewer rows parts have as many more elements: to begin one takes 50 ns


class Version(NamedTuple):
    """A nest for rows whose length compares with a number: `eq`, `sle`; or nests, `sge`."""

    name: str
    compare: str
    number: int
    nest: Nest | list[Nest]


class Versions(NamedTuple):
    """Nests for some lengths of the rows, and one for all others.

    length: what is compared; where rows have parts, their elements in few of them.
    """

    length: Size
    some: list[Version]
    other: Nest


def by_length(nest: Nest, target: Target) -> Versions | None:
    """Versions of a nest, where short rows are best summed in another way than long ones."""
    if not nest.reduced:
        return None
    nest = coalesce(nest)
    if len(nest.reduced) != 1:
        return None
    (k,) = nest.reduced
    length = nest.sizes[k]
    if dims.most(length) is not None:
        return None
    most = longest_spread(nest)
    if most:
        short = replace(nest, sizes=nest.sizes | {k: dims.minimum(length, most)})
        return Versions(length, [Version("short", "sle", most, short)], nest)
    name = users_name(length)
    if name is None:
        return None
    schedule = plan(nest, target)
    if not _sweeps_rows(nest, schedule):
        return None
    some: list[Version] = []
    if len(nest.exprs) <= MOST and not any(set(x.axes) & {k} for x in nest.stores):
        some = [Version(f"of{n}", "eq", n, where(nest, name, n)) for n in range(2, FEW + 1)]
    width = schedule.width
    if len(nest.exprs) <= MOST_IN_VECTOR and (target.masked or target.vector_bits // width >= 32):
        for name, most in (("row", width), ("rows", ROW_VECTORS * width)):
            row = replace(nest, sizes=nest.sizes | {k: dims.minimum(length, most)})
            found = plan(row, target)
            if found.short and is_cheap(found, found.short):
                some.append(Version(name, "sle", most, row))
    some += _keeping(nest, k, schedule, target)
    return Versions(length, some, nest) if some else None


def users_name(size: Size | None) -> str | None:
    """The name that a user gave to a size, if it is that alone; blocks of a chain, which have names
    of their own, are long."""
    names = [] if size is None or isinstance(size, int) else dims.names(size)
    alone = len(names) == 1 and names[0].isidentifier() and size == dims.atom(names[0])
    return names[0] if alone else None


def _keeping(nest: Nest, k: str, schedule: Schedule, target: Target) -> list[Version]:
    """Versions of rows that are short enough to keep what several sweeps want, the shorter first:
    what takes long, and all that is worth it. A long formula has one of them."""
    if schedule.sweeps < 2:
        return []
    found: list[Version] = []
    kept = schedule.cached.keys()
    for name, most in (("near", MAX_CACHED_ROW), ("nearest", NEAREST_ROW)):
        row = replace(nest, sizes=nest.sizes | {k: dims.minimum(nest.sizes[k], most)})
        worth = plan(row, target).cached.keys()
        if worth - kept:
            found.insert(0, Version(name, "sle", most, row))
            kept = worth
    return found if len(nest.exprs) <= MOST_IN_VECTOR else found[:1]


def by_rows(nest: Nest, found: UnrolledRows) -> Versions:
    """A version of short rows, or small matrices, for some of them at a time."""
    return Versions(found.rows, [Version("unrolled", "sge", found.least, found.nest)], nest)


def by_parts(nest: Nest, target: Target) -> Versions | None:
    """A version in parts of rows that are put together, where the parts are long enough."""
    found = parts_of_rows(nest)
    if found is None:
        return None
    row, parts = found
    least = row_parts.least(nest, parts, target)
    if least is None:
        return None
    rows = dims.product(nest.sizes[n] for n in nest.outer if n != row)
    length = nest.sizes[row] * dims.minimum(rows, FEW_ROWS)
    return Versions(length, [Version("parts", "sge", FEW_ROWS * least * len(parts), parts)], nest)


def _sweeps_rows(nest: Nest, s: Schedule) -> bool:
    """Whether rows are swept by vectors, each by itself."""
    return (
        bool(nest.outer) and s.across and not (s.sums or s.columns or s.final)
        and all(e.kind in ("load", "const", "op", "index", "reduce") for e in nest.exprs)
        and not any(e.preds for e in nest.exprs if e.kind == "load")
    )


def where(nest: Nest, name: str, value: int) -> Nest:
    """The nest, none of whose loads has conditions, where a dimension is known."""
    known: dict[str, Size] = {name: value}
    exprs: list[Expr] = []
    for e in nest.exprs:
        attrs = e.attrs
        if e.kind == "load":
            attrs = (e.param, substitute(e.offset, known), ())
        elif e.kind == "index":
            attrs = (substitute(e.attrs[0], known),)
        args = tuple(exprs[x.id] for x in e.args)
        exprs.append(Expr(e.id, e.kind, e.dtype, args, attrs, e.axes, e.node))
    return replace(
        nest, exprs=exprs,
        sizes={axis: substitute(size, known) for axis, size in nest.sizes.items()},
        stores=[
            x._replace(offset=substitute(x.offset, known), expr=exprs[x.expr.id])
            for x in nest.stores
        ],
    )
