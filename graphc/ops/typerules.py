"""What the type rules share: dtype classes, axis checks, and messages that say what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from graphc.dims import Size, is_nonnegative
from graphc.errors import ArgumentError, DTypeError, ShapeError
from graphc.ops.row import Attrs, TypeRule
from graphc.types import TensorType, bool_

Types = Sequence[TensorType]

# Dtype classes are sets of DType.kind letters.
FLOAT, INT, NUMBER, BITS, ANY = "f", "iu", "iuf", "biu", "biuf"
_CLASS = {
    FLOAT: "floats",
    INT: "integers",
    NUMBER: "integers and floats",
    BITS: "bools and integers",
    ANY: "any dtype",
}


def text(sizes: Sequence[object]) -> str:
    """Sizes or axes of an attribute as messages show them: (2,batch)."""
    return f"({','.join(map(str, sizes))})"


def came(types: Types) -> str:
    """The operand types as a message shows them."""
    return ", ".join(map(str, types)) if types else "no operands"


def bad_shape(name: str, requirement: str, types: Types, more: str = "") -> NoReturn:
    raise ShapeError(f"{name}: {requirement}, got {came(types)}{more}")


def bad_dtype(name: str, requirement: str, types: Types, more: str = "") -> NoReturn:
    raise DTypeError(f"{name}: {requirement}, got {came(types)}{more}")


def bad_argument(name: str, requirement: str, got: object) -> NoReturn:
    raise ArgumentError(f"{name}: {requirement}, got {got}")


def check_dtype(name: str, kinds: str, types: Types, checked: Types, hint: str = "") -> None:
    """Every type in `checked` has a dtype of the class."""
    if any(t.dtype.kind not in kinds for t in checked):
        bad_dtype(name, f"takes {_CLASS[kinds]}", types, f"; {hint}" if hint else "")


def check_same(name: str, types: Types, checked: Types) -> None:
    """All of `checked` are one type."""
    first = checked[0]
    if any(t.dtype is not first.dtype for t in checked):
        bad_dtype(name, "operands must have one dtype", types)
    if any(t.shape != first.shape for t in checked):
        bad_shape(name, "operands must have one shape", types)


def elementwise(name: str, kinds: str, result: Any = None, hint: str = "") -> TypeRule:
    """Operands of one type whose dtype is in `kinds`; the result has it, or dtype `result`."""

    def rule(types: Types, attrs: Attrs) -> TensorType:
        first = types[0]
        for t in types:
            if t is not first:  # types are interned
                check_same(name, types, types)
        if first.dtype.kind not in kinds:
            check_dtype(name, kinds, types, types, hint)
        return first if result is None else first.with_dtype(result)

    return rule


def comparison(name: str) -> TypeRule:
    """Operands of one type; a bool of their shape."""
    return elementwise(name, ANY, bool_)


def is_axis(axis: object, ndim: int) -> bool:
    return isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < ndim


def check_axis(name: str, axis: object, types: Types) -> None:
    if not is_axis(axis, types[0].ndim):
        bad_shape(name, f"axis must be in 0..{types[0].ndim - 1}", types, f" with axis={axis}")


def check_axes(name: str, axes: Sequence[object], types: Types) -> None:
    """Distinct axes of the first operand, in increasing order."""
    ndim = types[0].ndim
    numbers = [a for a in axes if isinstance(a, int) and is_axis(a, ndim)]
    if len(numbers) != len(axes) or numbers != sorted(set(numbers)):
        bad_shape(
            name, f"axes must be distinct, increasing and below {ndim}", types, f" with axes={axes}"
        )


def certainly_negative(size: Size) -> bool:
    """Whether size < 0 for every value of the names."""
    return is_nonnegative(-1 - size)


def is_step(step: object) -> bool:
    return isinstance(step, int) and not isinstance(step, bool) and step > 0
