"""A formula's operations as a list, for peers that are written as text or as nodes.

numexpr takes an expression, numba a loop, ONNX a graph: each peer walks the same list of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .case import NotOfferedError
from .formulas import Formulas

BINARY = {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__pow__": "pow",
    "__lt__": "less", "__gt__": "greater", "__and__": "and", "__matmul__": "matmul",
}
ELEMENTWISE = (
    "exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "abs", "where", "maximum", "minimum",
    "arctan2",
)


@dataclass
class Step:
    """op over earlier steps, inputs and Python numbers."""

    op: str
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    index: int = -1
    rank: int = 0


def _rank(step: Step) -> int:
    """The result's number of dimensions."""
    ranks = [a.rank for a in step.args if isinstance(a, Step)]
    if "keepdims" in step.options:
        whole = step.options["axis"] is None
        return 0 if whole else ranks[0] - (not step.options["keepdims"])
    if step.op == "reshape":
        return len(step.options["shape"])
    if step.op in ("argmax", "logsumexp", "last"):
        return ranks[0] - 1
    return 1 if step.op == "take_along" else max(ranks)


class Symbol:
    """An input or the result of a step."""

    def __init__(self, steps: list[Step], step: Step):
        self.steps, self.step = steps, step

    def made(self, op: str, *args: Any, **options: Any) -> Symbol:
        step = Step(op, tuple(a.step if isinstance(a, Symbol) else a for a in args), options)
        step.index, step.rank = len(self.steps), _rank(step)
        self.steps.append(step)
        return Symbol(self.steps, step)

    def __neg__(self) -> Symbol:
        return self.made("neg", self)

    def __getitem__(self, key: Any) -> Symbol:
        if key != (..., 0):
            raise NotOfferedError("its steps know no such index")
        return self.made("last", self)


def _operator(name: str, op: str) -> None:
    setattr(Symbol, name, lambda self, other: self.made(op, self, other))
    if name not in ("__lt__", "__gt__"):
        reverse = "__r" + name[2:]
        setattr(Symbol, reverse, lambda self, other: self.made(op, other, self))


for _name, _op in BINARY.items():
    _operator(_name, _op)


class Recorder(Formulas):
    """The namespace whose functions record steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def input(self, k: int, rank: int) -> Symbol:
        return Symbol(self.steps, Step("input", (k,), rank=rank))

    def __getattr__(self, name: str) -> Any:
        if name not in ELEMENTWISE:
            raise AttributeError(name)

        def record(*args: Any) -> Symbol:
            first = next(a for a in args if isinstance(a, Symbol))
            return first.made(name, *args)

        return record

    def sum(self, x: Symbol, axis: Any = None, keepdims: bool = False) -> Symbol:
        return x.made("sum", x, axis=axis, keepdims=keepdims)

    def mean(self, x: Symbol, axis: Any = None, keepdims: bool = False) -> Symbol:
        return x.made("mean", x, axis=axis, keepdims=keepdims)

    def max(self, x: Symbol, axis: Any = None, keepdims: bool = False) -> Symbol:
        return x.made("max", x, axis=axis, keepdims=keepdims)

    def argmax(self, x: Symbol, axis: int) -> Symbol:
        return x.made("argmax", x, axis=axis)

    def take_along(self, x: Symbol, labels: Symbol) -> Symbol:
        return x.made("take_along", x, labels)

    def swap(self, x: Symbol, a: int = -1, b: int = -2) -> Symbol:
        return x.made("swap", x, axes=(a, b))

    def reshape(self, x: Symbol, shape: tuple[int, ...]) -> Symbol:
        return x.made("reshape", x, shape=shape)


def record(formula: Any, ranks: list[int], xp: Recorder) -> tuple[list[Step], list[Step]]:
    """(steps, results) of a formula of inputs with these numbers of dimensions."""
    out = formula(xp, *(xp.input(k, rank) for k, rank in enumerate(ranks)))
    outs = out if isinstance(out, (tuple, list)) else [out]
    return xp.steps, [o.step for o in outs]
