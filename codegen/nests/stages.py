"""Long formulas by stages: each is computed for a block of vectors before the next.

    for i0<n:                          for blocks of i0:
      e1, .. e90 = ..                    for i0 in the block:  e1, .. e90;   keep e80, e90
      e91, .. e180 = .. e80 .. e90  ->   for i0 in the block:  e91, .. e180 = .. e80 .. e90
      out0[i0] = e180                                          out0[i0] = e180

An instruction waits some four cycles for the one before it, and a CPU fills these with what comes
next, some hundreds of instructions ahead. Where that is the same chain still, as in a loop that is
unrolled, the steps of an integration or of Newton's method, it waits. Stages are so short that the
CPU looks ahead to the next vectors. What later ones need stands in the nearest cache. So are sums
of rows, whose sweep is the last stage, which reads what it adds up: its vectors meet in the order
that they have without stages. In us on Zen 5, 20,000 f32, as a whole and by stages; and of sums:

    Kepler's equation, 10 steps of Newton's method     228   76     237   77
    a pendulum, 6 steps of Runge and Kutta             300  158     305  158
    an implied volatility, 5 steps                     207   97
    the logistic map, 200 steps                        367   97
    20 and 40 tanh                                     333   85     721  216
    option prices, and their gradient                   21   21      33   21,  47  33
    GELU of GELU, and its gradient                                   18   10,  33  19

By AVX2 (GRAPHC_CPU=v3) the third takes 428 and 204, 20 tanh 391 and 182, sums of prices 77 and 47.
The gradient of distances on a sphere takes f64 longer, 148 for 125.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate

from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import needs
from graphc.codegen.nests.costs import COSTLY, cost_of, in_memory, most_interleaved
from graphc.codegen.nests.loops import Expr, Nest
from graphc.types import DType

COST = 48        # cycles of a vector in a stage, or half more or less,
MOST_KEPT = 48   # values that one leaves to later ones at most,
BIT = 4          # for how many of which a bit counts, which is packed and unpacked,
BYTES = 1 << 14  # of a block of all that is kept, of two groups of vectors at least,
MOST_BYTES = 1 << 16  # and at most: threads of musl have a stack of 128 KiB
# Vectors of a stage that go side by side, and where all of it is nearly one chain; less of both
# where their cost is more than MOST_CODE, which is the code's size.
ABREAST, OF_ONE_CHAIN, NEARLY, MOST_CODE = 4, 8, 1.25, 2880

# What a vector waits for is guessed: a CPU has WINDOW instructions under way, which are those of
# some vectors, and each of these takes as long as its longest chain. Stages are worth their while
# from GAIN times the cycles that their instructions take, as these are guessed. For each cycle of
# VECTOR_COST, what is costly has a latency of LATENCY and is COUNT instructions.
WINDOW, GAIN = 450, 0.9
LATENCY, COUNT = 5, 1.7
LATENCY_SIMPLE, CYCLES_SIMPLE = 3, 0.5  # of a sum or a product
CYCLES_KEPT = 0.5  # to store or to read what is kept
CALL = 100  # from which a function is called, and fills the CPU by itself


@dataclass
class Stages:
    """In which stage expressions are computed, and what is kept for later ones. They are numbered
    from `first` to 0, which is the sweep over a row, if there is one.

    places: the numbers of the arrays that keep values, of one type each.
    abreast: vectors of a stage side by side.
    """

    stage: dict[Expr, int]
    places: dict[Expr, int]
    abreast: int

    @property
    def first(self) -> int:
        return min(self.stage.values())

    @property
    def kept(self) -> dict[Expr, int]:
        """What is kept, and the stage that makes it."""
        return {e: self.stage[e] for e in self.places}

    def block(self, width: int) -> int:
        """Elements of a block: two vectors of a width or more, a power of two of them."""
        return width << (max(2, BYTES // (self.bytes * width)).bit_length() - 1)

    @property
    def bytes(self) -> int:
        """What is kept of an element."""
        return sum({place: e.dtype.compute.itemsize for e, place in self.places.items()}.values())

    def end(self, e: Expr) -> int:
        """When an expression is stored: what no stage computes, by the last one."""
        return self.stage.get(e, 0)

    def reads(self, nest: Nest, param: int) -> int:
        """The last stage that reads an operand."""
        users = [(e, a) for e in nest.exprs for a in needs(nest, e)]
        users += [(s.expr, s.expr) for s in nest.stores]
        return max(
            (self.end(e) for e, a in users if a.kind == "load" and a.param == param), default=0
        )


def stages_of(nest: Nest, vector: str, width: int, target: Target) -> Stages | None:
    """The stages of a nest without reductions, or with one sweep; None where it is short, or would
    not take longer as a whole."""
    rows = [e for e in nest.exprs if e.kind == "reduce"]
    computed = [e for e in nest.exprs if vector in e.axes and not _is_read_again(nest, e, vector)]
    until = [0, *accumulate(map(cost_of, computed))]
    cost = until[-1]
    if cost < (COST if rows else 2 * COST) or any(cost_of(e) >= CALL for e in computed):
        return None
    chain = _longest(computed, cost_of)
    abreast = OF_ONE_CHAIN if cost < NEARLY * chain else ABREAST
    if not rows and cost * abreast <= most_interleaved(target):
        return None
    ends = {a for r in rows for a in r.args}
    if rows:  # whose sweep stores as well
        ends |= {x.expr for x in nest.stores}
    kept_behind = _kept_behind(nest, computed, ends)
    cuts = _cuts(until, kept_behind)
    if rows and kept_behind[-1] <= MOST_KEPT:
        cuts.append(len(computed))
    if not cuts:
        return None
    stage = {e: bisect_right(cuts, k) - len(cuts) for k, e in enumerate(computed)}
    kept = {
        a: stage[a] for e in computed for a in needs(nest, e) if stage.get(a, stage[e]) < stage[e]
    }
    kept |= {a: stage[a] for a in ends if stage.get(a, 0) < 0}
    if not _waits(computed, stage, kept):
        return None
    while abreast > 1 and abreast * cost > MOST_CODE:
        abreast //= 2
    until_stage = dict.fromkeys(ends & kept.keys(), 0)
    for e in computed:
        for a in needs(nest, e):
            if a in kept:
                until_stage[a] = max(stage[e], until_stage.get(a, stage[e]))
    found = Stages(stage, _places(kept, until_stage), abreast)
    return found if found.block(width * abreast) * found.bytes <= MOST_BYTES else None


def _places(kept: dict[Expr, int], until: dict[Expr, int]) -> dict[Expr, int]:
    """An array for each value that is kept until a stage: of its type, and none that is read in the
    stage that makes it, or later."""
    free: dict[DType, list[int]] = {}
    places: dict[Expr, int] = {}
    ends: list[tuple[int, int, DType]] = []  # a heap of stages and arrays
    for count, e in enumerate(sorted(kept, key=lambda e: (kept[e], e.id))):
        while ends and ends[0][0] < kept[e]:
            _, place, d = heappop(ends)
            free.setdefault(d, []).append(place)
        same = free.get(e.dtype)
        places[e] = same.pop() if same else count
        heappush(ends, (until[e], places[e], e.dtype))
    return places


def _is_read_again(nest: Nest, e: Expr, vector: str) -> bool:
    """Whether every stage that wants an expression has it for itself."""
    return e.kind in ("const", "index", "inside") or (
        e.kind == "load" and in_memory(nest, e, vector)
    )


def _longest(computed: list[Expr], of: Callable[[Expr], int]) -> int:
    """The longest chain, by what each expression adds to it."""
    until: dict[Expr, int] = {}
    for e in computed:
        until[e] = max((until.get(a, 0) for a in e.args), default=0) + of(e)
    return max(until.values())


def _waits(computed: list[Expr], stage: dict[Expr, int], kept: dict[Expr, int]) -> bool:
    """Whether a vector waits for its longest chain longer than its stages would take."""
    costs = [cost_of(e) for e in computed]
    costly = sum(c for c in costs if c >= COSTLY)
    simple = sum(costs) - costly
    latency = _longest(
        computed, lambda e: (LATENCY if cost_of(e) >= COSTLY else LATENCY_SIMPLE) * cost_of(e)
    )
    whole = latency * (COUNT * costly + simple) / WINDOW
    read = {(a, stage[e]) for e in computed for a in e.args if kept.get(a, stage[e]) < stage[e]}
    moved = len(kept) + len(read)
    return whole >= GAIN * (costly + CYCLES_SIMPLE * simple + CYCLES_KEPT * moved)


def _kept_behind(nest: Nest, computed: list[Expr], ends: Container[Expr]) -> list[int]:
    """How many values are kept if there is a cut before each expression, or behind the last; `ends`
    are wanted there."""
    place = {e: k for k, e in enumerate(computed)}
    last: dict[Expr, int] = {}
    for k, e in enumerate(computed):
        last.update((a, k) for a in needs(nest, e) if a in place)
    last.update((a, len(computed)) for a in computed if a in ends)
    change = [0] * (len(computed) + 2)
    for a, k in last.items():
        counts = BIT if a.dtype.kind == "b" else 1
        change[place[a] + 1] += counts
        change[k + 1] -= counts
    return list(accumulate(change[:-1]))


def _cuts(until: list[int], kept: list[int]) -> list[int]:
    """Before which expressions stages end: where little is kept, about as far as they should be."""
    cuts: list[int] = []
    begin = 0
    while until[-1] - begin >= 2 * COST:
        first = bisect_left(until, begin + COST // 2)
        end = bisect_right(until, begin + COST + COST // 2)
        window = range(first, max(end, first + 1))
        cut = min(window, key=lambda k: (kept[k], abs(until[k] - begin - COST)))
        if kept[cut] > MOST_KEPT:
            later = range(end, len(until))
            cut = next((k for k in later if kept[k] <= MOST_KEPT), len(until))
        if cut >= len(until) or until[-1] - until[cut] < COST // 2:
            break
        cuts.append(cut)
        begin = until[cut]
    return cuts
