"""Where the stores of a row that is swept begin: behind a head of some elements, at a line.

A store across two lines of the cache takes as long as two, and NumPy's arrays, as what C's malloc
gives, begin 16 bytes into a line; of rows whose length is no multiple of a line most begin within
one. A sweep that adds nothing up may begin anywhere, so the last one over a long row does so with
a masked head, as elementwise kernels do (`streaming`). Nanoseconds for 16 f32 of 64 rows into such
an array, as they lie and with a head, on Golden Cove:

    rows of                 1,024        1,000, AVX-512      and AVX2
    log-softmax           4.6  4.0        4.8  4.1           7.3  7.1
    softmax               4.6  4.0        4.5  4.2           7.2  7.0
    less the mean         2.0  1.8        2.1  1.9           1.9  1.7

What an earlier sweep kept aside is read across lines then: a softmax's gradient takes 4.9 for 5.0,
of 8 rows 5.6 for 5.3. A kernel compiles 2 or 3 ms longer, so programs of many do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.emission.scope import Scope
from graphc.codegen.machine.target import X86
from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Store
from graphc.codegen.nests.sweeps import sweep_cost

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

LEAST_BYTES = 1 << 11  # of a row: a head and an end of their own take shorter ones as long
MOST_COST = 16         # cycles of a vector of the sweep up to which it is stores that it waits for


def end(
    body: Across, scope: Scope, stores: Sequence[Store], low: str, high: str
) -> str:
    """Where the head of a row from low to high ends, if the sweep that stores it, and adds nothing
    up, had better begin with one; else ""."""
    s, e, f = body.s, body.e, body.f
    if s.vector is None or s.loops or s.flat or s.columns or s.stages or s.turned_rows:
        return ""
    x, n = stores[0], body.nest.sizes[s.vector]
    size = body.nest.outputs[x.output].dtype.itemsize
    register = s.width * size
    if f.target.arch not in X86 or register != f.target.vector_bits // 8 or f.module.sparing:
        return ""
    if coefficient(x.offset, s.vector) != 1 or sweep_cost(s, f.sweeping) > MOST_COST:
        return ""
    if isinstance(n, int) and n * size < LEAST_BYTES:
        return ""
    row = Scope(f, scope, e.section(), {s.vector: low}, ready=scope.ready)
    at = e(f"ptrtoint ptr {row.element(f.outputs[x.output], size, x.offset)} to i64")
    left = e(f"and i64 {e(f'sub i64 0, {at}')}, {register - 1}")
    head = e(f"udiv i64 {left}, {size}")
    if not isinstance(n, int):
        long = e(f"icmp sge i64 {e(f'sub nsw i64 {high}, {low}')}, {LEAST_BYTES // size}")
        head = e(f"select i1 {long}, i64 {head}, i64 0")
    return e(f"add nsw i64 {low}, {head}")
