"""Short innermost axes unrolled, so that vectors run along a longer one.

    for i0<n, i1<3:                               for i0<n:
      out0[3*i0+i1] = in0[i0] if i1 == 0    ->      out0[3*i0] = in0[i0]
                 else in1[i0] if i1 == 1            out0[3*i0+1] = in1[i0]
                 else in2[i0]                       out0[3*i0+2] = in2[i0]

Stacks along the last axis, repeated elements, channels moved last and windows read along one axis
and write along another. Vectors of the short axis would be gathered, or hold few elements; along
the other axis they are read as they lie, and shuffles put them in the order of the results, which
are stored whole. 64k elements of f32 in us (AVX-512):

    stack of 2, 3 and 8    37, 136, 75  ->  10, 9, 11
"""

from __future__ import annotations

from dataclasses import replace

from graphc import dims
from graphc.codegen import interleaving
from graphc.codegen.axes import coalesce, coefficient, step
from graphc.codegen.index_splitting import Piece
from graphc.codegen.loops import Expr, Nest, Store

MOST = 16         # elements of the axis that is unrolled
MOST_EXPRS = 96  # expressions of the unrolled nest
LEAST = 16        # elements of the other axis, where its size is known
APART = 4         # elements of what is read along it, which takes as many loads of each


def unroll(nest: Nest) -> Nest | None:
    """The nest with its innermost axis unrolled, where that makes vectors of what is read."""
    if nest.reduced or nest.sites or any(e.kind in ("scan", "philox") for e in nest.exprs):
        return None
    if not any(_is_short(nest, name) for name in nest.outer):  # nor is one of several axes, then
        return None
    nest = coalesce(nest)
    for short in nest.outer:
        long = _along(nest, short)
        if long is None or _whole_rows(nest, short):
            continue
        if not _easy(Piece(nest, short, 0, 1).nest(), long):  # nor is the whole, of which this is
            continue                                          # the quickly made part
        found = coalesce(_unrolled(nest, short))
        if interleaving.axis(found) == long and _easy(found, long):
            return found
    return None


def _is_short(nest: Nest, name: str) -> bool:
    n = nest.sizes[name]
    return isinstance(n, int) and 1 < n <= MOST


def _along(nest: Nest, short: str) -> str | None:
    """The axis whose neighbours are next to each other in memory but for a short axis."""
    if not _is_short(nest, short) or len(nest.exprs) > MOST_EXPRS:
        return None
    n = nest.sizes[short]
    for long in nest.outer:
        size = nest.sizes[long]
        if isinstance(size, int) and size < LEAST:
            continue
        if long != short and all(
            coefficient(s.offset, short) == 1 and coefficient(s.offset, long) == n
            for s in nest.stores
        ):
            return long
    return None


def _whole_rows(nest: Nest, short: str) -> bool:
    """Whether all that is read lies along the short axis as it is written, and is not that short:
    vectors of it do as well."""
    n = nest.sizes[short]
    return isinstance(n, int) and n > APART and all(
        coefficient(e.offset, short) == 1
        and not any(short in dims.names(size) for p in e.preds for size in p.sizes)
        for e in nest.exprs if e.kind == "load"
    )


def _easy(nest: Nest, long: str) -> bool:
    """Whether there is not too much of it, and what is read along an axis comes in vectors."""
    if len(nest.exprs) > MOST_EXPRS:
        return False
    for e in nest.exprs:
        if e.kind == "load":
            apart = step(nest, e.offset, long)
            if not isinstance(apart, int) or not -1 <= apart <= APART:
                return False
    return True


def _unrolled(nest: Nest, short: str) -> Nest:
    """The nest with one store for each element of an axis."""
    exprs: list[Expr] = []
    table: dict[tuple[object, ...], Expr] = {}
    stores: list[Store] = []
    n = nest.sizes[short]
    assert isinstance(n, int)
    for k in range(n):
        part = Piece(nest, short, k, k + 1).nest()
        made: dict[Expr, Expr] = {}
        for e in part.exprs:
            args = tuple(made[a] for a in e.args)
            exact = repr(e.attrs) if e.kind == "op" else ""  # 0.0 is not -0.0 (`ir.attr_key`)
            key = (e.kind, e.dtype, args, e.attrs, exact)
            if key not in table:
                table[key] = Expr(len(exprs), e.kind, e.dtype, args, e.attrs, e.axes, e.node)
                exprs.append(table[key])
            made[e] = table[key]
        stores += [s._replace(expr=made[s.expr]) for s in part.stores]
    outer = [a for a in nest.outer if a != short]
    return replace(
        nest, outer=outer, sizes={a: nest.sizes[a] for a in outer}, exprs=exprs, stores=stores,
    )
