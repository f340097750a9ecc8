"""composite and checkpoint: a Python function of Tensors as one `call` node with a body.

    @gx.composite
    def scaled_softmax(x, t=1.0): ...

    p = scaled_softmax(x, t=0.5)        # %0: f32[batch,10] = call %x {name="scaled_softmax", ...}

A composite is expanded for gradients, by the interpreter and by inlining, and stays recognisable
to a pass or a viewer that knows its name. The body is a closed graph over stand-ins of the
arguments' types. Tensors that the function takes from outside become operands too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from graphc import ir, prim
from graphc.convert import as_tensor
from graphc.copies import substitute
from graphc.errors import UsageError, user_loc
from graphc.ir import Graph, Node, Value
from graphc.ops import Kind
from graphc.passes.autodiff import CHECKPOINT
from graphc.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class _Body(NamedTuple):
    """What a function gave for arguments of given types: equal calls share it."""

    graph: Graph
    captured: tuple[Value, ...]  # the operands after the arguments
    restore: Callable[[list[Tensor]], Any]


@overload
def composite(fn: F, *, name: str | None = ...) -> F: ...
@overload
def composite(fn: None = ..., *, name: str | None = ...) -> Callable[[F], F]: ...
def composite(fn: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Make `fn` a composite called `name` (its own name unless given); also a decorator.

    Tensor and ndarray arguments are operands; all others are static and must be hashable. fn
    returns a Tensor or a tuple or list of Tensors, and the call gives the same form. fn runs once
    for each combination of operand types and static arguments, so it must not depend on anything
    that changes between calls.
    """
    if fn is None:
        return functools.partial(composite, name=name)
    return _wrap(fn, name if name is not None else getattr(fn, "__name__", "composite"))


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn, but gradients recompute what happens inside from fn's arguments, instead of keeping it.

    The recomputation starts when the backward pass arrives and merges with nothing. The same
    rules as for `composite` hold for the arguments.
    """
    return _wrap(fn, CHECKPOINT)


def _wrap(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    bodies: dict[Hashable, _Body] = {}
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        positions, operands, statics = _split(signature, name, args, kwargs)
        types = tuple([t.type for t in operands])
        key = (positions, types, tuple([(at, _static_key(a)) for at, a in statics]))
        try:
            body = bodies.get(key)
        except TypeError:
            raise _unhashable(name, statics) from None
        if body is None:
            bodies[key] = body = _trace(fn, name, positions, types, statics)
        operand_values = [t._value for t in operands]
        results = ir.apply("call", [*operand_values, *body.captured], name=name, body=body.graph)
        return body.restore([Tensor(v) for v in results])

    return call


Statics: TypeAlias = "tuple[tuple[int | str, Any], ...]"
Positions: TypeAlias = "tuple[tuple[int | str, str], ...]"


def _split(
    signature: inspect.Signature, name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Positions, list[Tensor], Statics]:
    """Where the operands stand (with a name for each), the operands, and the static arguments."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        raise UsageError(f"{name}: {e}", user_loc()) from None
    items: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    positions: list[tuple[int | str, str]] = []
    operands: list[Tensor] = []
    statics: list[tuple[int | str, Any]] = []
    for at, a in items:
        if isinstance(a, (Tensor, np.ndarray)):
            positions.append((at, at if isinstance(at, str) else _parameter(signature, at)))
            operands.append(as_tensor(a))
        else:
            statics.append((at, a))
    return tuple(positions), operands, tuple(statics)


def _parameter(signature: inspect.Signature, position: int) -> str:
    """The name of the parameter that takes a positional argument; x2 for the third of *x."""
    parameters = list(signature.parameters.values())
    for i, p in enumerate(parameters[: position + 1]):
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            return f"{p.name}{position - i}"
    return parameters[position].name


def _static_key(a: Any) -> Any:
    """A key that tells 1 from 1.0 and True, and 0.0 from -0.0."""
    if isinstance(a, tuple):
        return tuple([_static_key(item) for item in a])
    return (type(a), a.hex() if isinstance(a, float) else a)


def _unhashable(name: str, statics: Statics) -> UsageError:
    for at, a in statics:
        try:
            hash(a)
        except TypeError:
            return UsageError(
                f"{name}: static argument {at!r} must be hashable, got {type(a).__name__}; pass "
                "a tuple, or a Tensor", user_loc(),
            )
    return UsageError(f"{name}: static arguments must be hashable", user_loc())


def _trace(
    fn: Callable[..., Any],
    name: str,
    positions: Positions,
    types: Sequence[Any],
    statics: Statics,
) -> _Body:
    """Declare fn on stand-ins, and close the body over what it took from outside."""
    stand_ins = [prim.input(word, t) for (_, word), t in zip(positions, types, strict=True)]
    first = stand_ins[0]._value.node.serial if stand_ins else prim.constant(0)._value.node.serial
    given: dict[int | str, Any] = dict(statics)
    given.update({at: t for (at, _), t in zip(positions, stand_ins, strict=True)})
    n_args = sum(isinstance(at, int) for at in given)
    result = fn(
        *[given[i] for i in range(n_args)],
        **{at: a for at, a in given.items() if isinstance(at, str)},
    )
    items = list(result) if isinstance(result, (tuple, list)) else [result]
    for r in items:
        if not isinstance(r, Tensor):
            raise UsageError(
                f"{name}: the function must return a Tensor or a tuple or list of Tensors, got "
                f"{type(r).__name__}", user_loc(),
            )
    outputs = [r._value for r in items]
    inputs = [t._value for t in stand_ins]
    captured = _captures(outputs, inputs, first)
    holes = [prim.input(f"captured{i}", v.type)._value for i, v in enumerate(captured)]
    closed = substitute(outputs, dict(zip(captured, holes, strict=True)))
    graph = ir.collect(name, [*inputs, *holes], closed)
    return _Body(graph, tuple(captured), _restorer(result))


def _captures(outputs: Sequence[Value], inputs: Sequence[Value], first: int) -> list[Value]:
    """What the body takes from outside, in declaration order.

    That is every value declared before the body which a node of the body (or a result) uses, and
    every variable and input; scalar constants are cheap and stay inside.
    """
    own = set(inputs)
    seen: set[Value] = set()
    captured: dict[Value, None] = {}
    stack = list(outputs)
    while stack:
        v = stack.pop()
        if v in seen or v in own:
            continue
        seen.add(v)
        if _is_outer(v.node, first):
            captured[v] = None
        else:
            stack.extend(v.node.args)
    return sorted(captured, key=lambda v: (v.node.serial, v.index))


def _is_outer(n: Node, first: int) -> bool:
    if n.op.kind is Kind.LEAF:
        return n.op.unique or (n.serial < first and n.outs[0].type.ndim > 0)
    return n.serial < first


def _restorer(result: Any) -> Callable[[list[Tensor]], Any]:
    if isinstance(result, tuple):
        return tuple
    if isinstance(result, list):
        return list
    return lambda items: items[0]
