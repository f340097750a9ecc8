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
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from graphc import ir, prim
from graphc.copies import substitute
from graphc.errors import UsageError, user_loc
from graphc.ir import Graph, Node, Value
from graphc.ops import Kind
from graphc.passes.autodiff import CHECKPOINT
from graphc.structure import Container, leaf_names, put_together, results_apart, take_apart
from graphc.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class _Body(NamedTuple):
    """What a function gave for arguments of given types: equal calls share it."""

    graph: Graph
    captured: tuple[Value, ...]  # the operands after the arguments
    form: Any  # of the result


@overload
def composite(fn: F, *, name: str | None = ...) -> F: ...
@overload
def composite(fn: None = ..., *, name: str | None = ...) -> Callable[[F], F]: ...
def composite(fn: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Make `fn` a composite called `name` (its own name unless given); also a decorator.

    Tensors and ndarrays, also in lists, tuples and dicts, are operands; all other arguments are
    static and must be hashable. fn returns a Tensor, or a list, tuple or dict of Tensors, and the
    call gives the same form. fn runs once for each combination of operand types and static
    arguments, so it must not depend on anything that changes between calls.

        @gx.composite
        def swish(x, beta=1.0):
            return x * gx.nn.sigmoid(beta * x)
    """
    if fn is None:
        return functools.partial(composite, name=name)
    return _wrap(fn, name if name is not None else getattr(fn, "__name__", "composite"))


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn, but gradients recompute what happens inside from fn's arguments, instead of keeping it.

    The recomputation starts when the backward pass arrives and merges with nothing. The same
    rules as for `composite` hold for the arguments.

        h = gx.checkpoint(lambda h: gx.tanh(h * w))(x)
    """
    return _wrap(fn, CHECKPOINT)


def _wrap(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    bodies: dict[Hashable, _Body] = {}
    if not callable(fn):
        raise UsageError(f"{name}: takes a function of Tensors, got {fn!r}", user_loc())
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
        except TypeError as e:
            raise UsageError(f"{name}: {e}", user_loc()) from None
        operands: list[Tensor] = []
        form = take_apart(name, dict(bound.arguments), operands)
        key = (form, tuple([t.type for t in operands]))
        body = bodies.get(key)
        if body is None:
            bodies[key] = body = _trace(fn, name, signature, form, operands)
        given = [t._value for t in operands]
        results = ir.apply("call", [*given, *body.captured], name=name, body=body.graph)
        return put_together(body.form, iter([Tensor(v) for v in results]))

    return call


def _trace(
    fn: Callable[..., Any], name: str, signature: inspect.Signature, form: Container,
    operands: Sequence[Tensor],
) -> _Body:
    """Declare fn on stand-ins, and close the body over what it took from outside."""
    first = prim.constant(0).node.serial
    names = leaf_names(form.keys, form.items)
    stand_ins = [prim.input(word, t.type) for word, t in zip(names, operands, strict=True)]
    arguments = OrderedDict(put_together(form, iter(stand_ins)))
    bound = inspect.BoundArguments(signature, arguments)
    results, result_form = results_apart(name, fn(*bound.args, **bound.kwargs))
    outputs = [r._value for r in results]
    inputs = [t._value for t in stand_ins]
    captured = _captures(outputs, inputs, first)
    holes = [prim.input(f"captured{i}", v.type)._value for i, v in enumerate(captured)]
    closed = substitute(outputs, dict(zip(captured, holes, strict=True)))
    graph = ir.collect(name, [*inputs, *holes], closed)
    return _Body(graph, tuple(captured), result_form)


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
