"""Versions of elementwise nests for two to four elements where a size comes with the call.

    for i0<n:                            if d == 2:  for i0<n: out0[i0] = a[2*i0] * a[2*i0+1]
      out0[i0] = a[d*i0] * a[d*i0+1]  -> elif d == 3: ..
                                         elif d == 4: ..
                                         else:       for i0<n: out0[i0] = a[d*i0] * a[d*i0+1]

Points, colours, quaternions: what lies so many elements apart is picked from whole vectors, and
short rows are several in a vector (`flattened`), neither of which is known to be possible where the
number has a name. Each of two to four has a version as if it were declared. Zen 3, us of f32: x - m
of 20,000 x 3 elements and three 123, so 9 (NumPy 178); x * w[:, None] 112, 14; x.T * 2 254, 15;
256 x 256 pixels to planes of three 1,610, 66.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import coalesce, coefficient
from graphc.codegen.nests.costs import cost_of
from graphc.codegen.nests.flattened import LEAST, flattened
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.schedule import plan
from graphc.codegen.nests.unrolling import unroll
from graphc.codegen.nests.vector_axis import NEAR, is_less
from graphc.codegen.nests.versions import MOST, Version, Versions, users_name, where

NUMBERS = range(2, NEAR + 1)  # of more elements apart none are picked from whole vectors
MOST_COST = 12  # cycles of a vector of the nest, beside which what a row takes is much


def by_small_sizes(nest: Nest, target: Target) -> Versions | None:
    """Versions of a nest whose vectors run along, or over, a size that may be small."""
    if all(isinstance(n, int) for n in nest.sizes.values()):
        return None  # the rule, and quickly told
    if nest.reduced or nest.sites or len(nest.exprs) > MOST or any(
        e.kind not in ("load", "op", "const", "index") or (e.kind == "load" and e.preds)
        for e in nest.exprs
    ):
        return None
    if sum(cost_of(e) for e in nest.exprs) > MOST_COST:
        return None
    nest = coalesce(nest)
    names = {axis: _name(nest, axis) for axis in nest.outer}
    name = names.get(plan(nest, target).vector or "") if any(names.values()) else None
    if name is None:
        return None
    some = []
    for n in NUMBERS:
        known = where(nest, name, n)
        some.append(Version(f"of{n}", "eq", n, flattened(known) or unroll(known) or known))
    return Versions(dims.atom(name), some, nest)


def _name(nest: Nest, vector: str) -> str | None:
    """The size by which elements along the vector axis lie apart, or that this axis has beside
    others that may be long."""
    offsets = [e.offset for e in nest.exprs if e.kind == "load"] + [s.offset for s in nest.stores]
    sizes = [coefficient(p, vector) for p in offsets]
    if any(n != vector and not is_less(nest.sizes[n], LEAST) for n in nest.outer):
        sizes.append(nest.sizes[vector])
    return next((name for size in sizes if (name := users_name(size)) is not None), None)
