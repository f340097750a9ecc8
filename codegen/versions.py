"""Function versioning by length: rows whose number of elements comes with the call.

    for i0<n, i1<m reduce i2<d:         if d <= 204:  for i0<n, i1<m reduce i2<min(204, d): ..
      e4 = reduce_sum over i2 of ..  -> else:         for i0<n, i1<m reduce i2<d: ..
      out0[i0*m+i1] = e4

Distances of points want points in lanes (`tiles.spread`) if these have three coordinates, and
vectors along the coordinates if they have a thousand. Where the number is declared, one of the two
is written; where it is not, both, and the kernel chooses when it runs. Sums are added up in the
order of the declared number. 400 x 400 distances, three coordinates, take 34 us in the place of
1,816 in f32, and 61 in the place of 1,783 in f64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from graphc import dims
from graphc.codegen.axes import coalesce
from graphc.codegen.loops import Nest
from graphc.codegen.tiles import longest_spread
from graphc.dims import Dim, Size


class Versions(NamedTuple):
    """A nest for rows of at most `most` elements, and for any; `length` says how many there are."""

    short: Nest
    long: Nest
    length: Size
    most: int


def by_length(nest: Nest) -> Versions | None:
    """Two versions of a nest, where short rows are best summed in another way than long ones."""
    nest = coalesce(nest)
    if len(nest.reduced) != 1:
        return None
    (k,) = nest.reduced
    length, most = nest.sizes[k], longest_spread(nest)
    if not isinstance(length, Dim) or dims.most(length) is not None or not most:
        return None
    short = replace(nest, sizes=nest.sizes | {k: dims.minimum(length, most)})
    return Versions(short, nest, length, most)
