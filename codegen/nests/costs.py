"""What computing costs, in cycles of one vector: by it nests are scheduled and work is cut.

`grain` says from how much work on threads share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from graphc.codegen.machine.target import Target
from graphc.codegen.nests.axes import step
from graphc.codegen.nests.loops import Expr, Nest
from graphc.codegen.nests.tiles import Tile, turned_loads
from graphc.codegen.vecmath import powers

# Cycles that a vector of an expression takes, roughly: the mean of f32 and f64 on AVX-512 at
# 3.9 GHz, by tests/benchmarks/math_speed.py. Quotients and roots count less than the 14, 20 and 32
# cycles that they hold the divider, since they leave the other units alone: with those, a layer
# norm unrolls too little and takes a ninth longer; lgamma and polygamma less than their 230 and
# 1200, since they are calls, of which straight-line functions may make some.
VECTOR_COST = {
    "exp": 10, "expm1": 16, "log": 12, "log1p": 22, "log2": 12, "log10": 14, "sin": 24, "cos": 24,
    "tan": 24, "sinh": 20, "cosh": 18, "tanh": 20, "asinh": 45, "acosh": 38, "atanh": 24,
    "asin": 20, "acos": 22, "atan": 20, "atan2": 24, "erf": 30, "normal_cdf": 45, "pow": 38,
    "lgamma": 200, "polygamma": 300, "div": 8, "sqrt": 10, "rsqrt": 16, "cbrt": 12, "rem": 32,
}
# Kernels that differ and compute FUNCTIONS, up to which each has the code of its functions itself.
# A program of more calls one sin for all, and one function that adds up the lanes of a vector: of
# 10,000 mixed nodes (300 such kernels) three quarters of the text go, emission and LLVM take 13 s
# of CPU and then 8; a call with 16 or 4,096 rows of 16 takes 5% longer, with 4,096 as much as a
# fifth where the core is shared, since fewer vectors are under way at a time.
MOST_LONG = 100
# Of powers that are known (`vecmath.powers`): those of products, quotients and roots alone, and of
# others that take products.
POWERS, POWER = {4.0: 2, -1.0: 8, -2.0: 9, 0.5: 10, -0.5: 18}, 14
BY_CONSTANT = 6  # a product takes the place of an integer's quotient or remainder then
PHILOX = 20  # of a vector of words of 32 bits, where elements stand side by side
COSTLY = 8  # from which reading back beats computing again
INSTRUCTIONS = ("div", "sqrt", "rsqrt")  # costly, but no longer for scalars
FUNCTIONS = frozenset(VECTOR_COST) - {*INSTRUCTIONS}  # dozens of instructions each
PARALLEL = 3          # cost over that of the longest chain, from which one vector fills the CPU,
WINDOW = 64           # unless it looks ahead by less than that and vectors may go in step
LONG_CHAIN = 24       # cost from which eight vectors go side by side
MAX_INTERLEAVED = 720  # cost of the vectors side by side: a bound of the code's size,
MAX_AVX2 = 1024        # where option prices take f32 8% less by eight vectors than by four, f64 3%
# How many vectors of AVX-512 of these go side by side at most, in f32 and f64: they divide or hold
# many values, and more of them wait for the divider and are spilled. Of 2^13 elements, f64 atan2
# takes 13.3 us by four vectors and 10.8 by one, atan 7.9 and 6.8, tan 8.7 and 7.6, tanh 7.4 and
# 6.8, asinh 16.2 and 13.1 by two, acosh 12 and 10.4 by two; normal_cdf 19.5 by eight and 14.4 by
# four. It holds for formulas in which they are MOSTLY the cost.
ABREAST = {
    "atan": (1, 1), "atan2": (8, 1), "tan": (8, 1), "tanh": (2, 1), "asinh": (8, 2),
    "acosh": (8, 2), "normal_cdf": (8, 4),
}
MOSTLY = 0.75

# Cycles of VECTOR_COST for which the divider is busy, and the most of a formula's for which vectors
# go in step: all wait for it then. Of f32, in ns an element on Zen 1, four by themselves and in
# step: masks with a root 0.54 and 0.82, asin 1.20 and 1.26, atan 1.43 and 1.52, tanh 1.47 and 1.44,
# tan 1.79 and 1.67, asinh 3.5 and 2.8, sea water (a quotient and a root) 3.8 and 3.7.
DIVIDED = {
    "div": 8, "sqrt": 10, "rsqrt": 16, "tanh": 8, "tan": 8, "asinh": 18, "acosh": 10, "atanh": 8,
    "asin": 10, "acos": 10, "atan": 9, "atan2": 8, "normal_cdf": 8,
}
MOST_DIVIDED = 0.4
# The least share of INSTRUCTIONS in what a formula costs, in 32 and 64 bits, for which vectors are
# halved on a core whose divider takes whole ones longer than two halves (`Target.halves_divide`):
# the other instructions, of which it computes three halves at a time or two whole ones, wait then.
# Of 1k to 128k elements quotients, roots and what is made of them take Golden Cove 7 to 10 % less.
HALVED = (0.4, 0.3)
# Chains of sums and products, where both have units of their own (`Target.adds_beside`): each waits
# three or four cycles for the other, in which four may begin. A polynomial of degree 12 and 2^16
# elements takes Zen 5 11.0 us in f32 and 22.5 in f64 by eight vectors in step, 9.0 and 19.4 by
# twelve; one of degree 16 11.3 and 22.6, 9.2 and 18.7; a quotient of two of degree 10 16.1 and 32,
# 13.7 and 28. What has more values at a time than IN_TWELVE is spilled: 13.7 and 18.2.
TWELVE, IN_TWELVE, FOUR = 12, 3, 4
SPILLED = 4  # vectors in step that may lie in memory at a time
LEAST_STEPPED = 10  # a choice between a product and a sum takes 0.26 ns, in step 0.38
HELD = 4  # registers that a function holds for each vector

# Of loads ahead of stores (see `ahead`): the distance by which stores and loads are mistaken for
# each other, and the share of the registers that what is read may hold. Where they are not, up to
# half of them costs formulas below LONG_CHAIN nothing (-1 to 2%; exp(x) y in f64 3%): by AVX-512,
# 16 in a b + c d, and by AVX2 8 in x + y; 12 and 16 by AVX2 take 10 and 40% longer. Beyond, chains
# side by side need registers: a polynomial takes 4% longer by 16, another 40%, a sigmoid 5% by 8,
# while stores that are waited for cost them 10 to 20%; sea water, vector by vector, gains 40% by 3,
# where AVX2 loses 2%. Vectors in step need them too: log(x) + y takes Zen 1 15% longer by 8.
ALIASED = 1 << 19
CARRIED, CARRIED_LONG = 2, 8  # one in so many registers


def cost_of(e: Expr) -> int:
    """Of a vector of one expression, in cycles."""
    if e.kind == "op":
        known = BY_CONSTANT if is_by_constant(e) else _power(e)
        return VECTOR_COST.get(e.name, 1) if known is None else known
    return 0 if e.kind in ("const", "index") else PHILOX if e.kind == "philox" else 1


def is_long(e: Expr) -> bool:
    """Whether an op takes a scalar dozens of instructions."""
    return e.name in FUNCTIONS and not is_by_constant(e) and _power(e) is None


def _power(e: Expr) -> int | None:
    """The cost of a power whose exponent is known and small, whole or half; else None."""
    if e.name != "pow" or e.args[1].kind != "const" or not e.dtype.is_float:
        return None
    y = float(np.frombuffer(e.args[1].attrs[0], e.args[1].dtype.numpy)[0])
    small = 1 < abs(y) <= powers.MOST and (2 * y).is_integer()
    return POWERS.get(y, POWER if small else None)


def is_by_constant(e: Expr) -> bool:
    """Whether an op divides integers by a number that is known."""
    return (
        e.kind == "op" and e.name in ("div", "rem") and e.dtype.is_int
        and e.args[1].kind == "const"
    )


def interleaved(
    nest: Nest, target: Target, vector: str | None, width: int, bits: int, cost: int,
    stepped: bool, fused: bool, tile: Tile | None = None,
) -> int:
    """How many vectors of an elementwise nest go side by side, `stepped` or not. `fused`: products
    and sums may be one instruction. `tile`: blocks of it, of which some operands are turned.

    One vector is a chain: an instruction waits some four cycles for the one before it, and the CPU
    looks ahead by a hundred at most. Side by side, vectors fill these cycles; formulas of many
    independent parts do so by themselves, where those of several are not kept in step. 2^16
    elements of f32 take so many us by one, two, four and eight vectors, and what is spilled
    matters less:

                              AVX-512              AVX2                 Zen 1, in step
        polynomial, one chain  27   25   21   19     37   35   33   31    83   66   62   52
        exp and log            94   85   76   72    234  201  166  152   583  420  349  373
        option prices         158  143  118  123    297  256  200  184   841  599  487  491
        sea water, four times as broad as deep       84   78   81   85   301  258  244  269
    """
    if vector is None or width * bits != target.vector_bits or nest.reduced:
        return 1
    kinds = {e.kind for e in nest.exprs}
    if "reduce" in kinds or "scan" in kinds or not reads_neighbours(nest, vector, tile):
        return 1
    until: dict[Expr, int] = {}
    for e in nest.exprs:
        until[e] = max((until[a] for a in e.args), default=0) + cost_of(e)
    parallel = cost >= PARALLEL * max(until.values(), default=0)
    if parallel and not (stepped and cost >= WINDOW):
        return 1
    most = 4 if target.vector_bits >= 256 or target.registers >= 32 else 2
    size = nest.sizes[vector]
    short = isinstance(size, int) and size < 4 * 8 * width
    # of few registers eight vectors in step leave each a few, and by themselves they gain nothing
    crowded = target.steps and not (stepped and _most_live(nest, vector) * 8 <= target.registers)
    if target.vector_bits >= 256 and cost >= LONG_CHAIN and not (short or crowded):
        most = 8
    while most > 1 and most * cost > most_interleaved(target):
        most //= 2
    if most == 8 and target.adds_beside and not fused and _adds_up(nest, vector, cost):
        return 8 if isinstance(size, int) and size < 4 * TWELVE * width else TWELVE
    return most if target.vector_bits < 512 else _abreast(nest, bits, cost, most)


def most_interleaved(target: Target) -> int:
    """The most that vectors side by side may cost together."""
    return MAX_AVX2 if target.vector_bits == 256 else MAX_INTERLEAVED


def reads_neighbours(nest: Nest, vector: str, tile: Tile | None = None) -> bool:
    """Whether all that a vector reads along its axis stands side by side, be it in a block of the
    tile that was turned, of elements of four bytes and more."""
    turned = turned_loads(nest, vector, tile.turned) if tile and tile.turned else []
    for e in nest.exprs:
        moves = e.kind == "load" and vector in e.axes and e not in turned
        if moves and (e.preds or step(nest, e.offset, vector) != 1):
            return False
    return True


def in_steps(exprs: Iterable[Expr], cost: int, least: int = LEAST_STEPPED) -> bool:
    """Whether vectors of expressions go side by side in step (see `Target.steps`).

    Not where there is little to keep in order, or where quotients and roots are much of the work:
    those of all vectors at a time keep the divider busy, and all else waiting.
    """
    if cost < least:
        return False
    ops = [e.attrs[0] for e in exprs if e.kind == "op"]
    return sum([DIVIDED[op] for op in ops if op in DIVIDED]) <= MOST_DIVIDED * cost


def short_of_registers(nest: Nest, vector: str, interleave: int, target: Target) -> bool:
    """Whether vectors side by side leave some of 32 registers to what they share, but not enough.

    LLVM computes one vector after the other then, as where there are 16 (`Target.steps`): a
    polynomial of degree 16 and 2^16 elements takes Zen 5 19.2 us in f32 and 38.3 in f64, in step
    11.3 and 22.7. Functions have steps of their own and share less: erf of f64 takes half as long
    again in step, a sine a sixth.
    """
    if interleave < 8 or target.vector_bits < 512:
        return False
    if any(e.kind == "op" and e.name in FUNCTIONS for e in nest.exprs):
        return False
    moving = [e for e in nest.exprs if vector in e.axes]
    shared = {a for e in moving for a in e.args if vector not in a.axes}
    held = interleave * _most_live(nest, vector)
    return held - SPILLED <= target.registers < held + len(shared)


def halved(nest: Nest, target: Target, bits: int, cost: int) -> bool:
    """Whether vectors take half a register each, for quotients and roots are most of the work.

    Functions go by whole ones, some side by side.
    """
    ops = [e for e in nest.exprs if e.kind == "op"]
    if not target.halves_divide or bits < 32 or any(map(is_long, ops)):
        return False
    divided = sum(cost_of(e) for e in ops if e.name in INSTRUCTIONS and e.dtype.is_float)
    return divided >= HALVED[bits == 64] * cost


def fill_registers(interleave: int, stepped: bool, target: Target) -> bool:
    """Whether vectors side by side leave no register to operands.

    Each instruction takes these from memory then, and what it takes stays out of registers. Held in
    eight of 16 they have one vector of a chain spilled and read back at every step: a polynomial of
    2^16 elements takes Zen 3 54 us and 32, of f64 114 and 71. Nothing else gains by it: four
    vectors of exp and log take 10% longer, which then wait for what was not asked for early, sea
    water, which reads one operand 36 times, 15%, and eight of a chain that reads two operands at
    each step half as long again as four that hold them.
    """
    return target.steps and stepped and interleave * 2 >= target.registers


def in_memory(nest: Nest, e: Expr, vector: str) -> bool:
    """Whether instructions may have an expression as their operand in memory: what is read as it
    lies there."""
    plain = e.kind == "load" and not e.preds and e.dtype.compute is e.dtype and e.dtype.kind != "b"
    return plain and step(nest, e.offset, vector) == 1


def _most_live(nest: Nest, vector: str) -> int:
    """How many vectors there are at a time at most, of which later ones are computed."""
    left = Counter(a for e in nest.exprs for a in e.args)
    left.update(s.expr for s in nest.stores)
    live = most = 0
    for e in nest.exprs:
        if vector not in e.axes or e.kind == "const":
            continue
        if e.kind == "op" and e.name in FUNCTIONS:
            most = max(most, live + HELD)
        for a in dict.fromkeys(e.args):
            left[a] -= e.args.count(a)
            live -= vector in a.axes and not left[a]
        live += 1
        most = max(most, live)
    return most


def _adds_up(nest: Nest, vector: str, cost: int) -> bool:
    """Whether a nest of floats mostly adds and multiplies, with few values at a time."""
    ops = [e for e in nest.exprs if e.kind == "op"]
    if any(not e.dtype.is_float or e.dtype.bits < 32 for e in nest.exprs):
        return False
    if any(e.name in FUNCTIONS for e in ops):
        return False
    sums = sum(e.name in ("add", "sub", "mul") for e in ops)
    return sums >= MOSTLY * cost and _most_live(nest, vector) <= IN_TWELVE


def _abreast(nest: Nest, bits: int, cost: int, most: int) -> int:
    """How many of `most` vectors the functions in `nest` leave side by side, by `ABREAST`."""
    held = [e for e in nest.exprs if e.kind == "op" and e.name in ABREAST]
    if sum(map(cost_of, held)) < MOSTLY * cost:
        return most
    return min([most, *(ABREAST[e.name][bits == 64] for e in held)])


def most_carried(cost: int, stepped: bool, target: Target) -> int:
    """How many registers of operands a loop over vectors of some cost may read ahead."""
    short = cost < LONG_CHAIN and not stepped
    return target.registers // (CARRIED if short else CARRIED_LONG)
