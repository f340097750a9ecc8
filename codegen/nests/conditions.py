"""Conditions on the axes of a nest: where they hold, and where along a row none need be asked.

    for i0<n:                                              i0 in [0, 1):    with its conditions
      e1 = in0[i0] if 0<=i0<n-1                            i0 in [1, n-1):  out0[i0] = in0[i0]
      e2 = in0[i0-1] if 0<=i0-1<n-1        ->                                   + in0[i0-1]
      out0[i0] = e1 + e2                                   i0 in [n-1, n):  with its conditions

The longest stretch between the bounds of conditions along an axis is its interior, if it is most of
the axis. Every condition is true or false in all of it, and vectors there are computed without:
what stands before and behind is written by the loop that writes what is left of a row anyway. It is
the middle of what slides over its operand, such as a gradient of x[1:] - x[:-1], of what is padded
or rolled, and of what one element is added to. A choice between two halves has none: such nests are
cut (`index_splitting`).

Which bound comes first need not be known. A condition that usually holds in the stretch has its
bounds as limits of it, and one that usually does not the one that is nearer; if in a call they
cross, no element is left between them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from graphc import dims
from graphc.codegen.nests import ranges
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Expr, Nest, Pred, axis
from graphc.dims import Size

FAR = 16        # of so many parts of an operand, one beside it is far from it
TYPICAL = 256   # what a symbolic dimension counts as
LONG = 128      # elements of a row from which what is not its interior is few vectors of it


class Interior(NamedTuple):
    """Where low <= axis < high, conditions are decided; all limits hold together."""

    low: tuple[Size, ...]
    high: tuple[Size, ...]
    decided: dict[Pred, bool]


def interior(nest: Nest, name: str) -> Interior | None:
    """The stretch of an axis in which all conditions on it are decided whose bounds depend on
    nothing else that is walked along; None where there is none, or it is not most of the axis."""
    size = nest.sizes[name]
    found = {p: b for p in conditions(nest) if (b := bounds(p, name))}
    length = typical(size)
    if not found or length < LONG:
        return None
    usual = {p: (typical(low), typical(high)) for p, (low, high) in found.items()}
    edges = sorted({0, length} | {min(max(b, 0), length) for pair in usual.values() for b in pair})
    begin, end = max(pairwise(edges), key=lambda e: e[1] - e[0])
    if 2 * (end - begin) <= length:
        return None
    low: dict[Size, None] = {}
    high: dict[Size, None] = {}
    decided = {}
    for p, (first, last) in found.items():
        decided[p] = usual[p][0] <= begin and end <= usual[p][1]
        if decided[p]:
            low[first], high[last] = None, None
        elif usual[p][1] <= begin:
            low[last] = None
        else:
            high[first] = None
    return Interior(
        tuple(b for b in low if not dims.is_nonnegative(b * -1)),
        tuple(b for b in high if not dims.is_nonnegative(b - size)), decided,
    )


def typical(size: Size) -> int:
    """A size where dimensions that are not known are of usual length."""
    return dims.estimate(size, TYPICAL)


def conditions(nest: Nest) -> list[Pred]:
    """All that nest's loads and choices depend on, each once."""
    found: dict[Pred, None] = {}
    for e in nest.exprs:
        for p in preds_of(e):
            found.setdefault(p)
    return list(found)


def preds_of(e: Expr) -> tuple[Pred, ...]:
    """The conditions of a load or a choice."""
    if e.kind == "inside":
        return tuple(e.attrs)
    return e.preds if e.kind == "load" else ()


def bounds(p: Pred, name: str) -> tuple[Size, Size] | None:
    """Where lo <= c * name + d < hi begins and ends to hold; None where that depends on another
    axis or on data, and for steps c of several elements where they are not divided to a number."""
    step = coefficient(p.index, name)
    if not isinstance(step, int) or not step:
        return None
    rest = p.index - axis(name) * step
    if step < 0:  # 1 - hi <= -index < 1 - lo
        low, high, step = rest + 1 - p.hi, rest + 1 - p.lo, -step
    else:
        low, high = p.lo - rest, p.hi - rest
    if step != 1:
        if not (isinstance(low, int) and isinstance(high, int)):
            return None
        low, high = -(-low // step), -(-high // step)
    walked = any(n.startswith("%") for b in (low, high) for n in dims.names(b))
    return None if walked else (low, high)


def reaches_far(nest: Nest, e: Expr) -> bool:
    """Whether what the conditions of a load keep from being read lies far beside its operand."""
    found = ranges.bounds(e.offset, nest.sizes)
    if found is None:
        return True
    size = typical(dims.product(nest.params[e.param].shape))
    return FAR * max(typical(found[1]) - size, -typical(found[0])) > size
