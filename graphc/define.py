"""define_op: an elementwise op of the user's own, from its meaning to its machine code.

    cube = gx.define_op(
        gx.Op("cube", gx.Kind.ELEMENTWISE, 1, type=gx.same_float("cube"), ref=lambda x: x * x * x,
              vjp=lambda ct, y, x: [ct * 3 * x * x]),
        emit=lambda L, xs, dtypes, out, attrs: L.op("fmul", ...),
    )

What an op means stands in its row (`graphc.ops.row.Op`), how it is emitted in `emit`. Anything
that is not elementwise is a `composite`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from graphc import prim
from graphc.convert import strict
from graphc.errors import UsageError, user_loc
from graphc.ops import OPS, Kind, Op
from graphc.ops.batching import elementwise_batch
from graphc.ops.row import TypeRule
from graphc.ops.typerules import ANY, FLOAT, NUMBER, elementwise
from graphc.tensor import Tensor


def define_op(row: Op, emit: Callable[..., str] | None = None) -> Callable[..., Tensor]:
    """Enter an elementwise op into the table; returns the function that applies it to Tensors.

    row: name, type rule and NumPy reference at least; a vjp if it is to be differentiated (or
        differentiable=False). The batch rule is filled in.
    emit: (lanes, operand registers, operand dtypes, result dtype, attributes) -> result register,
        as in `graphc.codegen.elementwise.scalars`; without it the op runs in the interpreter only.
    The function promotes and broadcasts its operands like every elementwise operation; the row's
    attributes are its keyword arguments.
    """
    if not isinstance(row, Op):
        raise UsageError(f"define_op: takes a row, gx.Op(...), got {row!r}", user_loc())
    if row.kind is not Kind.ELEMENTWISE:
        raise UsageError(
            f"define_op: {row.name} must be ELEMENTWISE, got {row.kind.name}; write other "
            "operations with existing ones and wrap them in gx.composite", user_loc(),
        )
    if row.ref is None:
        raise UsageError(f"define_op: {row.name} needs a NumPy reference, ref=", user_loc())
    if row.name in OPS:
        raise UsageError(f"define_op: there is an op {row.name!r} already", user_loc())
    if row.batch is None:
        row = dataclasses.replace(row, batch=elementwise_batch(row.name))
    OPS[row.name] = row
    if emit is not None:
        from graphc.codegen.elementwise import scalars

        scalars.EMIT[row.name] = scalars.rounded(emit)

    def apply(*xs: Any, **attrs: Any) -> Tensor:
        if len(xs) != row.arity and row.arity is not None:
            raise UsageError(f"{row.name}: takes {row.arity} operands, got {len(xs)}", user_loc())
        return prim.one(row.name, *strict(row.name, *xs), **attrs)

    apply.__name__ = apply.__qualname__ = row.name
    return apply


def same_type(name: str) -> TypeRule:
    """The type rule of an op whose operands and result have one type, of any dtype."""
    return elementwise(name, ANY)


def same_number(name: str) -> TypeRule:
    """Likewise, integers and floats only."""
    return elementwise(name, NUMBER)


def same_float(name: str) -> TypeRule:
    """Likewise, floats only."""
    return elementwise(name, FLOAT)
