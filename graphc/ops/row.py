"""What one row of the op table holds.

An op is *what it means*: how it types, what it computes (a NumPy reference), how it is
differentiated and batched. How it is emitted as machine code stands in `graphc.codegen` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from graphc.dims import Size, is_nonnegative
from graphc.errors import UsageError, did_you_mean, user_loc
from graphc.types import Array, TensorType

if TYPE_CHECKING:
    from graphc.tensor import Tensor

Attrs = Mapping[str, Any]
Grads: TypeAlias = "list[Tensor | None]"  # what a vjp gives, one for each operand
Known: TypeAlias = "Sequence[Array | None]"  # the number that an operand is everywhere, if known
MayFail = Callable[[Sequence[TensorType], Known], bool]
TypeRule = Callable[[Sequence[TensorType], Attrs], "TensorType | tuple[TensorType, ...]"]


class Condition(NamedTuple):
    """What must hold of the sizes of a call: `size >= 0`, or `size == 0` where `zero` is set."""

    size: Size
    reason: str  # the message behind the op's name, without the sizes that came
    zero: bool = False
    whole: str = ""  # where not empty, the message in full

    @property
    def proven(self) -> bool:
        return self.size == 0 or (not self.zero and is_nonnegative(self.size))


class Kind(Enum):
    """How an op relates the elements of its result to those of its operands."""

    LEAF = "leaf"                # no operands: input, variable, constant, dim, iota
    ELEMENTWISE = "elementwise"  # result[i] depends on the operands at i only
    LAYOUT = "layout"            # result elements are operand elements, moved
    INDEX = "index"              # positions come from data: gather, scatter
    REDUCE = "reduce"            # axes disappear
    SCAN = "scan"                # running reductions
    CONTRACT = "contract"        # dot
    RANDOM = "random"
    REGION = "region"            # carries a body graph: call, fused
    META = "meta"                # identity at run time: stop_gradient, barrier


@dataclass(frozen=True, eq=False)
class Op:
    """One row.

    type(arg_types, attrs) -> result type(s); raises ShapeError/DTypeError with op, requirement,
        and what came (the user's line is added by `ir.apply`).
    ref(*arrays, **attrs) -> ndarray(s): the NumPy reference. Sizes in attrs are ints by then;
        f16/bf16 operands of arithmetic arrive as f32 and the result is rounded back.
    vjp(ct, y, *xs, **attrs) -> one cotangent Tensor (or None) per operand. `ct` and `y` are tuples
        for ops with several results. Uses public ops only, so that it differentiates again.
    batch(size, batched, *xs, **attrs) -> result(s) with a new axis 0 of `size`; `batched[k]` says
        whether xs[k] already has it.
    conditions(arg_types, attrs) -> what the sizes must satisfy beyond the type rule; what is not
        proven is checked when a function is called, before anything is computed.
    """

    name: str
    kind: Kind
    arity: int | None                    # None: any number of operands
    type: TypeRule
    ref: Callable[..., Any] | None = None
    vjp: Callable[..., Sequence[Tensor | None]] | None = None
    batch: Callable[..., Any] | None = None
    attrs: tuple[str, ...] = ()          # attribute names, in printing order
    unique: bool = False                 # stays apart from equal nodes; cse merges random bits
    fallible: bool = False               # can fail at run time for bad data (see `fails_on`)
    may_fail: MayFail | None = field(default=None, repr=False)
    differentiable: bool = True          # False: gradient is zero everywhere (floor, equal, ...)
    conditions: Callable[[Sequence[TensorType], Attrs], list[Condition]] | None = field(
        default=None, repr=False
    )

    def __repr__(self) -> str:
        return self.name

    def fails_on(self, types: Sequence[TensorType], known: Known = ()) -> bool:
        """Whether a node of this op with these operands can fail while running."""
        if not self.fallible or self.may_fail is None:
            return self.fallible
        return self.may_fail(types, known or [None] * len(types))

    def must_hold(self, types: Sequence[TensorType], attrs: Attrs) -> list[Condition]:
        """The conditions on sizes that only a call can decide."""
        if self.conditions is None:
            return []
        return [c for c in self.conditions(types, attrs) if not c.proven]


class Table(dict[str, Op]):
    """Ops by name; UsageError for a name that there is not."""

    def __missing__(self, name: str) -> Op:
        hint = did_you_mean(name, self)
        raise UsageError(f"there is no op {name!r}{f' ({hint})' if hint else ''}", user_loc())


OPS = Table()


def op(name: str, kind: Kind, arity: int | None, **row: Any) -> Op:
    """Enter a row into the table."""
    if name in OPS:
        raise ValueError(f"op {name!r} is already in the table")
    OPS[name] = entry = Op(name, kind, arity, **row)
    return entry
