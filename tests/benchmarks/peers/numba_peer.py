"""numba: loops under njit, parallel with two threads.

Elementwise formulas become one loop over all elements, as their users write it: "numba" keeps the
order of operations, "numba-fastmath" does not. Other cases bring loops of their own
(cases/loops.py), under fastmath, without which sums stay scalar.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from ..case import Built, Call, Case, NotOfferedError
from ..trace import Recorder, Step, record
from . import Library

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "less": "<", "greater": ">",
    "and": "and",
}
FUNCTIONS = {
    "exp": "math.exp", "log": "math.log", "sqrt": "math.sqrt", "sin": "math.sin",
    "cos": "math.cos", "tanh": "math.tanh", "erf": "math.erf", "abs": "abs", "maximum": "max",
    "minimum": "min", "arctan2": "math.atan2",
}


class Peer(Library):
    name, module = "numba", numba
    fastmath = False

    def __init__(self, threads: int):
        super().__init__(threads)
        numba.set_num_threads(threads)

    def compiled(self, source: str, fastmath: bool = True, **names: Any) -> Any:
        """The function `f` of a source text, over these names."""
        space = {"np": np, "math": math, "prange": numba.prange, **names}
        exec(compile(source, "<numba kernel>", "exec"), space)
        return numba.njit(space["f"], fastmath=fastmath, parallel=self.threads > 1)

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        if case.formula is None or case.wrt:
            raise NotOfferedError("no loop was written for it")
        f = self.compiled(loop(case, arrays), self.fastmath)
        fresh = self.compiled(
            "def f(*xs):\n"
            f"    out = np.empty({np.broadcast_shapes(*(a.shape for a in arrays))}, "
            "xs[0].dtype)\n"
            "    g(*xs, out)\n"
            "    return out\n", self.fastmath, g=f,
        )
        if not case.kept:
            return Built(Call(fresh, arrays))
        out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), arrays[0].dtype)

        def into(*args: Any) -> Any:
            f(*args)
            return args[-1]

        return Built(Call(fresh, arrays), Call(into, (*arrays, out)))


class Fastmath(Peer):
    name = "numba-fastmath"
    fastmath = True


def loop(case: Case, arrays: tuple[np.ndarray, ...]) -> str:
    """The loop over all elements of an elementwise formula."""
    steps, results = record(case.formula, [a.ndim for a in arrays], Recorder())
    if len(results) != 1:
        raise NotOfferedError("no loop was written for it")
    known = {"neg", "where", *INFIX, *FUNCTIONS}
    if not all(s.op in known for s in steps):
        raise NotOfferedError("no loop was written for it")
    narrow = case.dtype == "float32"
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    rank = len(shape)
    names = ", ".join(f"x{k}" for k in range(len(arrays)))
    lines = [f"def f({names}, out):"]
    for depth in range(rank):
        over = "prange" if depth == 0 else "range"
        lines.append("    " * (depth + 1) + f"for i{depth} in {over}(out.shape[{depth}]):")
    pad = "    " * (rank + 1)

    def value(a: Any) -> str:
        if not isinstance(a, Step):
            return f"np.float32({a!r})" if narrow else repr(float(a))
        if a.op == "input":
            x = arrays[a.args[0]]
            at = [
                "0" if n == 1 and shape[rank - x.ndim + d] != 1 else f"i{rank - x.ndim + d}"
                for d, n in enumerate(x.shape)
            ]
            return f"x{a.args[0]}[{', '.join(at)}]"
        return f"v{a.index}"

    for s in steps:
        args = [value(a) for a in s.args]
        if s.op == "neg":
            text = f"-{args[0]}"
        elif s.op == "where":
            text = f"{args[1]} if {args[0]} else {args[2]}"
        elif s.op in INFIX:
            text = f"{args[0]} {INFIX[s.op]} {args[1]}"
        else:
            text = f"{FUNCTIONS[s.op]}({', '.join(args)})"
        lines.append(f"{pad}v{s.index} = {text}")
    index = ", ".join(f"i{d}" for d in range(rank))
    lines.append(f"{pad}out[{index}] = {value(results[0])}")
    return "\n".join(lines) + "\n"
