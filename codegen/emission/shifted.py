"""Shifted operands: loads of one operand that begin less than a vector apart, read once.

    x[i - 1] + x[i] + x[i + 1]       w = x[i], all vectors that go side by side
                                     before = the first vector of x[i - 1], the rest shifted from w
                                     after  = the last vector of x[i + 1],  the rest shifted from w

A load that does not begin where a line of the cache does reads two, and of loads that differ by an
element all but one do not. Of vectors side by side each but one is shifted from those of a load in
the middle: two registers give the third. Nothing is read that would not be read otherwise. That is
the stream shift of Eichenberger, Wu, O'Brien (Vectorization for SIMD architectures with alignment
constraints, PLDI 2004), within the vectors of one turn of a loop. In us on Zen 5 by AVX-512, each
load by itself and shifted, f32 and f64:

                                        64k elements              1M elements
    u[1:] - u[:-1]                      3.2   2.6    8.5   7.9     116  109    348  315
    three neighbours                    4.1   2.9    9.3   7.9     108   90    377  250
    seven                               7.5   5.5   15.8  11.1     225  113    595  394
    the sum of squared differences      2.2   1.6    4.2   2.9      47   49    139  144
    nine of 1000 x 1000                                            361  286    821  589

Vectors of AVX2 cross lines half as often, and take two instructions to shift.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.machine.target import X86, Target
from graphc.codegen.nests.axes import step
from graphc.codegen.nests.loops import Expr
from graphc.types import DType, i32, i64

if TYPE_CHECKING:
    from graphc.codegen.nests.schedule import Schedule


class Shifted(NamedTuple):
    """A load that begins `by` elements behind another; that one is of itself by 0."""

    of: Expr
    by: int


def loads(s: Schedule, target: Target) -> dict[Expr, Shifted]:
    """The loads of a nest that are read together."""
    nest, vector = s.nest, s.vector
    if target.arch not in X86 or target.vector_bits < 512 or vector is None or s.width == 1:
        return {}
    left = [
        x for x in nest.exprs
        if x.kind == "load" and x.dtype.itemsize >= 4 and step(nest, x.offset, vector) == 1
    ]
    found: dict[Expr, Shifted] = {}
    while left:
        first, most = left[0], target.vector_bits // (8 * left[0].dtype.itemsize)
        near = []
        for x in left:
            if x.param != first.param or x.axes != first.axes:
                continue
            by = x.offset - first.offset
            if isinstance(by, int) and abs(by) < most:
                near.append((by, x))
        left = [x for x in left if all(x is not y for _, y in near)]
        near.sort(key=lambda pair: pair[0])
        origin, middle = near[len(near) // 2]
        shifts = {x: Shifted(middle, by - origin) for by, x in near if abs(by - origin) < most}
        found |= shifts if len(near) > 1 else {}
    return found


def words(d: DType) -> DType:
    """What an operand is read as: LLVM shifts integers by valign, floats by vpermt2, which takes
    another register of places and writes over one of the two that it is given."""
    return i64 if d.itemsize == 8 else i32


def shift(L: Lanes, d: DType, whole: str, by: int, at: str) -> str:
    """The vectors of words at `at`, which begin `by` elements behind those in `whole`."""
    t, n = L.moved(d), L.target.vector_bits // (8 * d.itemsize)
    parts, one = L.parts(t, whole, n), Lanes(L.e, n, L.target)
    places = [by % n + k for k in range(n)]
    inner = [one.shuffle(t, a, b, places) for a, b in pairwise(parts)]
    if by < 0:
        return L.joined(t, [one.load(d, at), *inner])
    end = L.e(f"getelementptr inbounds {t}, ptr {at}, i64 {L.width - n}")
    return L.joined(t, [*inner, one.load(d, end)])
