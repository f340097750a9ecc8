"""Tensor.eval: the value of one Tensor, now."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphc import ir
from graphc.errors import UsageError, user_loc

if TYPE_CHECKING:
    from graphc.tensor import Tensor


def evaluate(t: Tensor, values: Any, named: Mapping[str, Any]) -> Any:
    """The value of t for inputs given as {Tensor or name: array}, as pairs, or by keyword."""
    from graphc.function import function
    from graphc.tensor import Tensor

    needed = [
        n.out for n in ir.reachable([t._value]) if n.op.name == "input"
    ]
    by_name = {v.node.attrs["name"]: v for v in needed}
    given: dict[str, Any] = {}
    for key, value in [*_pairs(values), *named.items()]:
        name = str(key.node.attrs.get("name", "") if isinstance(key, Tensor) else key)
        if name not in by_name or (isinstance(key, Tensor) and key._value is not by_name[name]):
            raise UsageError(
                f"eval: {key!r} is not an input that {t!r} needs; those are "
                f"{', '.join(map(repr, by_name)) or 'none'}", user_loc(),
            )
        given[name] = value
    missing = [name for name in by_name if name not in given]
    if missing:
        raise UsageError(
            f"eval: {t!r} needs a value for {', '.join(map(repr, missing))}: "
            f"t.eval({{{missing[0]!r}: array}})", user_loc(),
        )
    run = function([Tensor(v) for v in needed], t, name="eval", mode="interpret")
    return run(*[given[name] for name in by_name])


def _pairs(values: Any) -> Iterable[tuple[Any, Any]]:
    if values is None:
        return []
    pairs = values.items() if isinstance(values, Mapping) else values
    if not isinstance(pairs, Iterable) or isinstance(pairs, str):
        pairs = [values]
    found = list(pairs)
    if not all(isinstance(p, tuple) and len(p) == 2 for p in found):
        raise UsageError(
            f"eval: takes values as {{Tensor or name: array}}, got {reprlib.repr(values)}",
            user_loc(),
        )
    return found
