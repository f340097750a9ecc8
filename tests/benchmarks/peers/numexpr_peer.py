"""numexpr: the formula as one expression, its constants in the arrays' dtype."""

from __future__ import annotations

from typing import Any

import numexpr
import numpy as np

from ..case import Built, Call, Case, NotOfferedError
from ..trace import Recorder, Step, record
from . import Library

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "less": "<", "greater": ">",
    "and": "&",
}
FUNCTIONS = {"exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "where", "arctan2"}


class Peer(Library):
    name, module = "numexpr", numexpr

    def __init__(self, threads: int):
        super().__init__(threads)
        numexpr.set_num_threads(threads)

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        if case.wrt or case.formula is None:
            raise NotOfferedError("no gradients")
        _, results = record(case.formula, [a.ndim for a in arrays], Recorder())
        if len(results) != 1:
            raise NotOfferedError("one result an expression")
        names: dict[str, Any] = {f"x{k}": a for k, a in enumerate(arrays)}
        text = expression(results[0], names, case.dtype)

        def evaluate(out: Any = None) -> Any:
            return numexpr.evaluate(text, names, {}, out=out)

        return Built(
            Call(evaluate), Call(evaluate, (np.empty_like(evaluate()),)) if case.kept else None
        )


def expression(step: Any, names: dict[str, Any], dtype: str) -> str:
    """A step as text; numbers become names of the dtype, for a float would make all double."""
    if not isinstance(step, Step):
        for name, value in names.items():
            if name[0] == "c" and value == step:
                return name
        name = f"c{len(names)}"
        names[name] = np.dtype(dtype).type(step)
        return name
    if step.op == "input":
        return f"x{step.args[0]}"
    args = [expression(a, names, dtype) for a in step.args]
    if step.op == "neg":
        return f"(-{args[0]})"
    if step.op in INFIX:
        return f"({args[0]} {INFIX[step.op]} {args[1]})"
    if step.op in ("maximum", "minimum"):
        sign = ">" if step.op == "maximum" else "<"
        return f"where({args[0]} {sign} {args[1]}, {args[0]}, {args[1]})"
    if step.op in FUNCTIONS:
        return f"{step.op}({', '.join(args)})"
    raise NotOfferedError(f"no {step.op}")
