"""What `gx.function` is given, checked and put in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import ArgumentError, DTypeError, Loc, ShapeError, UsageError
from graphc.ir import Graph, State, Value
from graphc.tensor import Tensor

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEFAULT_NAME = "graph"
MODES = ("jit", "interpret", "debug")


class Declaration(NamedTuple):
    """kind: how outputs are returned: "none", "one", "list", "tuple" or "dict" with these keys."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kind: str
    keys: tuple[str, ...]
    updates: tuple[tuple[State, Value], ...]


class Options(NamedTuple):
    """How a function is compiled; see `function`."""

    mode: str = "jit"
    pipeline: Sequence[Any] | None = None
    fastmath: bool = False
    stabilise: bool = True
    threads: int | None = None


def declare(
    inputs: Any, outputs: Any, updates: Any, name: str | None, loc: Loc | None
) -> Declaration:
    """Check what `function` got; a UsageError, DTypeError or ShapeError says what is wrong."""
    if name is None:
        name = DEFAULT_NAME
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"function: the name must be a C identifier (letters, digits, _), got {name!r}", loc
        )
    values, kind, keys = _outputs(outputs, name, loc)
    return Declaration(
        name, _inputs(inputs, name, loc), values, kind, keys, _updates(updates, name, loc)
    )


def _inputs(inputs: Any, name: str, loc: Loc | None) -> tuple[Value, ...]:
    if isinstance(inputs, Tensor):
        inputs = [inputs]
    if not isinstance(inputs, (list, tuple)):
        advice = "; call the function on them: gx.function([x], fn(x))" if callable(inputs) else ""
        raise UsageError(
            f"{name}: inputs must be a list of Tensors made by gx.input, got "
            f"{type(inputs).__name__}{advice}", loc
        )
    seen: dict[str, Value] = {}
    for t in inputs:
        if not isinstance(t, Tensor):
            raise UsageError(
                f"{name}: inputs must be Tensors made by gx.input, got {type(t).__name__}", loc
            )
        if t.node.op.name == "variable":
            raise UsageError(
                f"{name}: variable {t.node.attrs['state'].name!r} cannot be an input; a function "
                "reads it without being told. Use gx.input for what a call passes", loc
            )
        if t.node.op.name != "input":
            raise UsageError(
                f"{name}: inputs must be Tensors made by gx.input, got {t!r}", loc
            )
        key = str(t.node.attrs["name"])
        if key in seen:
            same = "is listed twice" if seen[key] is t._value else "names two different inputs"
            raise UsageError(f"{name}: input {key!r} {same}", loc)
        seen[key] = t._value
    return tuple(seen.values())


def _outputs(
    outputs: Any, name: str, loc: Loc | None
) -> tuple[tuple[Value, ...], str, tuple[str, ...]]:
    if outputs is None:
        return (), "none", ()
    if isinstance(outputs, Mapping):
        for k in outputs:
            if not isinstance(k, str):
                raise UsageError(f"{name}: the keys of outputs must be strings, got {k!r}", loc)
        values = [_value(v, f"{name}: output {k!r}", loc) for k, v in outputs.items()]
        return tuple(values), "dict", tuple(outputs)
    if isinstance(outputs, (list, tuple)):
        values = [_value(v, f"{name}: output {i}", loc) for i, v in enumerate(outputs)]
        kind = "list" if isinstance(outputs, list) else "tuple"
        return tuple(values), kind, ("",) * len(values)
    return (_value(outputs, f"{name}: the output", loc),), "one", ("",)


def _value(x: Any, what: str, loc: Loc | None, like: Value | None = None) -> Value:
    """The Value of a Tensor, or of the constant that a number or an array is."""
    if isinstance(x, Tensor):
        return x._value
    from graphc.declare import constant

    if isinstance(x, (bool, int, float, np.generic, np.ndarray)):
        weak = isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)
        dtype = like.type.dtype if weak and like is not None else None
        return constant(x, dtype)._value
    raise UsageError(f"{what} must be a Tensor, got {type(x).__name__}", loc)


def _updates(updates: Any, name: str, loc: Loc | None) -> tuple[tuple[State, Value], ...]:
    if updates is None:
        return ()
    pairs = updates.items() if isinstance(updates, Mapping) else updates
    if not isinstance(pairs, Iterable):
        raise UsageError(
            f"{name}: updates must be a dict or a list of (variable, new value) pairs, got "
            f"{type(updates).__name__}", loc
        )
    seen: dict[State, Value] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UsageError(
                f"{name}: updates must be (variable, new value) pairs, got "
                f"{type(pair).__name__}", loc
            )
        target, new = pair
        if not isinstance(target, Tensor) or target.node.op.name != "variable":
            got = repr(target) if isinstance(target, Tensor) else type(target).__name__
            raise UsageError(f"{name}: only variables can be updated, got {got}", loc)
        state: State = target.node.attrs["state"]
        if state in seen:
            raise UsageError(f"{name}: variable {state.name!r} is updated twice", loc)
        value = _value(new, f"{name}: the update of variable {state.name!r}", loc, target._value)
        if value.type.dtype is not state.type.dtype:
            raise DTypeError(
                f"{name}: the update of variable {state.name!r} must be {state.type}, got "
                f"{value.type}; cast it with .astype({state.type.dtype.long!r})", loc
            )
        if value.type.shape != state.type.shape:
            raise ShapeError(
                f"{name}: the update of variable {state.name!r} must be {state.type}, got "
                f"{value.type}", loc
            )
        seen[state] = value
    return tuple(seen.items())


def check_count(what: str, n: Any, loc: Loc | None) -> None:
    """ArgumentError if `n` is not a whole number of at least 1."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ArgumentError(f"{what} must be a whole number of at least 1, got {n!r}", loc)


def check_mode(mode: str, loc: Loc | None) -> None:
    """ArgumentError for a mode that there is not."""
    if mode not in MODES:
        raise ArgumentError(f"function: mode must be one of {', '.join(MODES)}, got {mode!r}", loc)


def check_inputs(graph: Graph, loc: Loc | None) -> None:
    """UsageError if two inputs of a graph have one name, by which calls could not tell them."""
    seen: set[str] = set()
    for v in graph.inputs:
        name = str(v.node.attrs["name"])
        if name in seen:
            raise UsageError(f"{graph.name}: two inputs are both called {name!r}", loc)
        seen.add(name)


def check_variables(graph: Graph, loc: Loc | None) -> None:
    """UsageError if two variables that the graph uses have one name."""
    seen: set[str] = set()
    for s in graph.variables():
        if s.name in seen:
            raise UsageError(
                f"{graph.name}: two different variables are both called {s.name!r}; name them "
                "apart", loc
            )
        seen.add(s.name)


def check_values(name: str, states: Sequence[State]) -> None:
    """UsageError if a variable has no value."""
    for s in states:
        if s.array is None:
            raise UsageError(
                f"{name}: variable @{s.name} has no value: the graph was read without its .npz file"
            )
