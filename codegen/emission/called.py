"""Long functions that a nest has for every element of a row: one call computes some of them.

    e0 = tanh x0;  e1 = tanh x1;  e2 ..    ->    e0, e1, e2, e3 = call tanh(x0, x1, x2, x3)

Where short rows are written out (`nests/unrolled_rows`, `unrolled_matrices`, `stacked_rows`), an op
is there once for each of their elements, and one of dozens of instructions makes functions of
thousands: LLVM takes long for these, and spills more than a call would. A function of the module
has the instructions once, for FOUR registers side by side, or TWO where there are few, so that none
waits for itself. Bits are the same. 4,096 rows, us, and ms to compile, written out and called:

                                          AVX-512                    AVX2
    f32, tanh x - max x of 16          32  32    64  48          47  48    53  37
    exp(-sin(x)**2) - mean(tanh x)     80  70   126  72         130 115   121  59
    the same of f64                   217 167   143  66         348 290   155  71

100 mixed nodes with their gradient take LLVM 0.50 s in the place of 0.57, 1,000 1.15 for 1.84.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.codegen.elementwise.rare import abreast
from graphc.codegen.elementwise.scalars import EMIT
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import Target
from graphc.codegen.nests.costs import cost_of, is_long
from graphc.codegen.nests.loops import Expr

if TYPE_CHECKING:
    from graphc.codegen.emission.scope import Scope
    from graphc.codegen.nests.schedule import Schedule

FOUR, TWO = 4, 2  # elements that a call computes, with 32 registers and with 16
# Cycles of a row's functions up to which they stay written out, likewise: by calls softmax of 10
# would take a twentieth longer.
MOST_COST, MOST_COST_OF_FEW = 300, 150
# What holds so many values, or divides so much, that several side by side wait: calls take f64
# atan2 of 16 a fifth longer, the others up to a seventh.
HEAVY = frozenset({"acosh", "asinh", "atan2", "cbrt", "erf"})


class Called:
    """Which of a nest's functions are called for some elements at once."""

    def __init__(self, s: Schedule, target: Target):
        many = target.registers >= 32
        self.schedule, self.count = s, FOUR if many else TWO
        ops = [x for x in s.nest.exprs if x.kind == "op"]
        sines, cosines = ({x.args[0] for x in ops if x.name == n} for n in ("sin", "cos"))
        self.angles = sines & cosines  # for which the second of them takes little
        long = [*filter(self._suits, ops)]
        copies = Counter(map(self._origin, long))
        self.origins = {origin for origin, n in copies.items() if n > 1}
        cost = sum(cost_of(x) for x in long if self._origin(x) in self.origins)
        if cost <= (MOST_COST if many else MOST_COST_OF_FEW):
            self.origins.clear()

    def _suits(self, x: Expr) -> bool:
        """Whether it can be called: a constant operand may have code of its own."""
        s = self.schedule
        if x.kind != "op" or x.name in HEAVY or not is_long(x):
            return False
        if s.width == 1 or s.vector not in x.axes:
            return False
        if x.attrs[1] or x in s.cached or any(a.kind == "const" for a in x.args):
            return False
        return x.dtype.is_float and not (x.name in ("sin", "cos") and x.args[0] in self.angles)

    def _origin(self, x: Expr) -> tuple[object, ...]:
        """What copies of one expression have in common."""
        given = tuple(a.dtype for a in x.args)
        return x.node, x.attrs, x.axes, x.dtype, given, self.schedule.ready[x]

    def first_of(self, left: Sequence[Expr], at: int, width: int) -> list[Expr]:
        """Of what is left to be computed, in order, in registers of `width`: the one at `at` and
        those behind it that are computed with it, a power of two of them; or none."""
        x = left[at]
        if not self.origins or width > self.schedule.width or not self._suits(x):
            return []
        origin, found = self._origin(x), [x]
        if origin not in self.origins:
            return []
        for y in left[at + 1 : at + self.count]:
            alike = self._suits(y) and self._origin(y) == origin
            if not alike or any(a.id >= x.id for a in y.args):
                break
            found.append(y)
        return found[: 1 << (len(found).bit_length() - 1)] if len(found) > 1 else []


def compute(home: Scope, some: Sequence[Expr]) -> None:
    """One call for expressions that are alike, whose operands are known; its results."""
    x = some[0]
    home.e.note(x.node)
    t, given = register_type(x.dtype), [a.dtype for a in x.args]
    operands = [[home.vector(y.args[i]) for y in some] for i in range(len(given))]
    results = abreast(
        home.lanes(True), f"{x.name}.{x.dtype.name}", t, operands,
        lambda wide, args: EMIT[x.name](wide, args, given, x.dtype, {}),
    )
    home.vectors.update(zip(some, results, strict=True))
    home.e.note(None)
