"""What bounds a case: a simple model of the graph that runs, against the machine's limits.

The optimized graph tells the bytes that its kernels read and write, its multiply-adds, elementwise
operations and divisions. Each resource alone would take some time; the longest is the bound, unless
the call takes much longer than all: then it waits for results of earlier instructions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Instructions of a vector of results, multiply-adds and the like; of codegen's own functions, as
# counted in `Function.assembly()` of each alone, the mean of f32 and f64 on AVX-512 (lgamma, which
# calls a function, by its time).
WEIGHTS = {
    "exp": 19, "log": 21, "expm1": 25, "log1p": 36, "log2": 20, "log10": 22, "sin": 45,
    "cos": 45, "tan": 38, "sinh": 30, "cosh": 28, "tanh": 28, "asinh": 48, "acosh": 45,
    "atanh": 35, "asin": 24, "acos": 27, "atan": 26, "erf": 41, "normal_cdf": 53, "pow": 63,
    "atan2": 48, "rem": 30, "rsqrt": 2, "cbrt": 30, "lgamma": 470,
}
DIVIDER = ("div", "sqrt", "rsqrt", "atan2", "tanh", "normal_cdf", "atan", "tan", "asin",
           "acos", "asinh", "acosh", "atanh")
DISPATCH = 4e-8  # seconds that a call costs without any kernel, allocation of results included
SMALL = 3e-6     # below this a call's time is dispatch, loop set-up and pipeline latency
FAR = 0.4        # of a limit: who is farther from all waits for results, not for a resource


def work(function: Any, arguments: tuple[Any, ...]) -> dict[str, float]:
    """Counts of a compiled graphc function: bytes moved, bytes that must move, instructions."""
    from graphc import view
    from graphc.dims import substitute
    from graphc.ops import Kind

    arrays, given = function._signature.convert(arguments, {})
    dims = function._signature.bind(arrays, given)
    graph = function.optimized

    def number(size: Any) -> float:
        return float(substitute(size, dims))

    products = slots = divisions = 0.0
    for n, _ in view._nodes(graph):
        if n.op.kind is Kind.CONTRACT:
            products += number(view._flops(n)) / 2
        elif n.op.kind in (Kind.REDUCE, Kind.SCAN):
            slots += number(n.args[0].type.size)
        elif n.op.kind is Kind.ELEMENTWISE and n.op.name not in ("cast", "bitcast"):
            slots += number(n.out.type.size) * WEIGHTS.get(n.op.name, 1)
            divisions += number(n.out.type.size) * (n.op.name in DIVIDER)
    moved = number(view.bytes_moved(graph))
    ends = sum(
        number(v.type.size) * v.type.dtype.itemsize for v in (*graph.inputs, *graph.outputs)
    )
    ends += sum(number(s.type.size) * s.type.dtype.itemsize for s in graph.variables())
    ends += sum(number(s.type.size) * s.type.dtype.itemsize for s, _ in graph.updates)
    return {
        "bytes": moved, "needed": ends, "products": products, "slots": slots,
        "divisions": divisions, "arena": number(function.program.arena),
    }


def bound(
    counts: Mapping[str, float], dtype: str, limits: Mapping[str, Any], seconds: float,
    copied: float | None = None,
) -> dict[str, Any]:
    """{"by": what bounds it, "share": the modelled time over the measured one, "of": each}.

    copied: seconds of a copy of LARGEST_COPY bytes that took turns with the case; without it,
    copies timed before and after all cases tell how fast memory is.
    """
    from .limits import COPY_SIZES, LARGEST_COPY

    # The copy that touches about as many bytes: one of s bytes touches twice as many. Or a larger
    # one, if it is faster: from some size on copies store past the caches.
    size = min(COPY_SIZES, key=lambda n: abs(math.log(2 * COPY_SIZES[n] / counts["needed"])))
    speed = 2 * LARGEST_COPY / copied if copied else max(
        v for n, v in limits["copy"].items() if COPY_SIZES[n] >= COPY_SIZES[size])
    issue = limits["fma"][dtype] / 2
    of = {
        "bandwidth": counts["needed"] / speed,
        "passes over memory": counts["bytes"] / speed,
        "FMA": (counts["products"] + counts["slots"]) / issue,
        "divider": counts["divisions"] / limits["divide"][dtype],
        "dispatch": DISPATCH,
    }
    by = max(of, key=lambda k: of[k])
    if by == "passes over memory" and of[by] < 1.2 * of["bandwidth"]:
        by = "bandwidth"
    share = of[by] / seconds
    if share < FAR:
        by = "dispatch and latency" if seconds < SMALL else f"latency, then {by}"
    return {"by": by, "share": round(share, 3), "of": of}
