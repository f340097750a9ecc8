"""Binding dimension names to the sizes of the arrays of one call.

A name binds where it stands alone as an axis of some input; every other size is then computed and
checked. The interpreter and the native call path share these rules and messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.dims import Dim, Size, evaluate, names
from graphc.errors import ShapeError
from graphc.types import TensorType, shape_text


def lone_name(size: Size) -> str | None:
    """The name a size consists of, or None."""
    if isinstance(size, Dim) and len(size.terms) == 1:
        atoms, factor = size.terms[0]
        if factor == 1 and len(atoms) == 1 and isinstance(atoms[0], str):
            return atoms[0]
    return None


def bind_dims(
    params: Sequence[tuple[str, TensorType]], shapes: Sequence[Sequence[int]],
    given: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Name -> value for inputs of these (name, type) pairs and actual shapes.

    `given` holds names that no input shows alone. Raises ShapeError that names the input, its
    declared type, the shape that came, and the axis or the other input it contradicts.
    """
    env: dict[str, int] = dict(given or {})
    origin: dict[str, str] = dict.fromkeys(env, "")
    for (name, type), shape in zip(params, shapes, strict=True):
        if len(shape) != len(type.shape):
            raise ShapeError(
                f"input {name!r}: expected {type}, which has {_axes(len(type.shape))}, "
                f"got shape {shape_text(shape)} with {len(shape)}"
            )
        for size, n in zip(type.shape, shape, strict=True):
            lone = lone_name(size)
            if lone is not None and lone not in env:
                env[lone], origin[lone] = n, name
    for (name, type), shape in zip(params, shapes, strict=True):
        for axis, (size, n) in enumerate(zip(type.shape, shape, strict=True)):
            want = size if isinstance(size, int) else size_value(size, env)
            if want != n:
                raise ShapeError(_mismatch(name, type, shape, axis, want, env, origin))
    return env


def _axes(n: int) -> str:
    return f"{n} axis" if n == 1 else f"{n} axes"


def size_value(size: Size, env: Mapping[str, int]) -> int:
    """The value of a size; ShapeError for an unbound name or a division by zero in it."""
    try:
        return evaluate(size, env)
    except KeyError as e:
        raise ShapeError(
            f"dimension {e.args[0]!r} has no value: it stands alone in no input; "
            "give it one (dims={...}) or add an input that shows it"
        ) from None
    except ZeroDivisionError:
        raise ShapeError(f"dimension {size} divides by zero{_where(size, env)}") from None


def _mismatch(
    name: str, type: TensorType, shape: Sequence[int], axis: int, want: int, env: Mapping[str, int],
    origin: Mapping[str, str],
) -> str:
    size = type.shape[axis]
    text = f"input {name!r}: expected {type}, got shape {shape_text(shape)}: axis {axis} "
    lone = lone_name(size)
    if lone is not None:
        other = f" in input {origin[lone]!r}" if origin[lone] else ""
        return f"{text}is {shape[axis]}, but {lone} is {want}{other}"
    return f"{text}must be {size}{'' if isinstance(size, int) else f' = {want}'}{_where(size, env)}"


def _where(size: Size, env: Mapping[str, int]) -> str:
    bound = [f"{n}={env[n]}" for n in names(size) if n in env]
    return f" with {', '.join(bound)}" if bound else ""
