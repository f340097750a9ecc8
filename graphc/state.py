"""Saving and loading the values of variables, as .npz files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphc import types
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.ir import State
from graphc.types import as_dtype

_BF16 = "bfloat16:"  # .npz knows no bfloat16: such arrays are kept as uint16 under a marked name


def _states(what: Any) -> list[State]:
    """The variables meant: a Function, a Variable, or several of them."""
    from graphc.declare import Variable

    items = list(what) if isinstance(what, Iterable) and not isinstance(what, Variable) else [what]
    found: dict[State, None] = {}
    for item in items:
        if isinstance(item, Variable):
            found.setdefault(item.state)
        elif hasattr(item, "graph"):
            for s in item.graph.variables():
                found.setdefault(s)
        else:
            raise UsageError(
                f"state: takes variables and functions, got {item!r}", user_loc()
            )
    names: dict[str, State] = {}
    for s in found:
        if s.name in names:
            raise UsageError(f"state: two variables are called {s.name!r}; rename one", user_loc())
        names[s.name] = s
    return list(found)


def save_state(path: str | os.PathLike[str], what: Any) -> None:
    """Write the values of variables (or of all that functions use) to an .npz file.

    The file is replaced as a whole, so a failure leaves the old one.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for s in _states(what):
        if s.array is None:
            raise UsageError(f"save_state: variable {s.name!r} has no value", user_loc())
        with s.lock:
            value = s.array.copy()
        if s.type.dtype is types.bf16:
            arrays[_BF16 + s.name] = value.view(np.uint16)
        else:
            arrays[s.name] = value
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(partial, "wb") as f:
            np.savez(f, **arrays)  # type: ignore[arg-type]
        os.replace(partial, target)
    except OSError as e:
        partial.unlink(missing_ok=True)
        raise ArgumentError(
            f"save_state: cannot write {target}: {e.strerror}", user_loc()
        ) from None


def load_state(path: str | os.PathLike[str], what: Any) -> None:
    """Read values that save_state wrote into the same variables.

    Names, dtypes and shapes are all checked before the first value changes.
    """
    states = _states(what)
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    except OSError as e:
        raise ArgumentError(f"load_state: cannot read {path}: {e.strerror or e}",
                            user_loc()) from None
    except ValueError as e:
        raise ArgumentError(f"load_state: {path} is not an .npz of arrays: {e}",
                            user_loc()) from None
    for name in [n for n in arrays if n.startswith(_BF16)]:
        arrays[name[len(_BF16):]] = arrays.pop(name).view(types.bf16.numpy)
    wanted = {s.name: s for s in states}
    _check_names(path, list(wanted), list(arrays))
    for name, s in wanted.items():
        a = arrays[name]
        if a.shape != s.type.shape or as_dtype(a.dtype) is not s.type.dtype:
            got = f"{as_dtype(a.dtype)}[{','.join(map(str, a.shape))}]"
            raise ShapeError(
                f"load_state: variable {name!r} must be {s.type}, got {got} in {path}", user_loc()
            )
    for name, s in wanted.items():
        with s.lock:
            if s.array is None:
                raise UsageError(f"load_state: variable {name!r} has no array", user_loc())
            s.array[...] = arrays[name]


def _check_names(path: Any, wanted: list[str], found: list[str]) -> None:
    missing = [n for n in wanted if n not in found]
    extra = [n for n in found if n not in wanted]
    if missing or extra:
        parts = [f"lacks {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"has {', '.join(map(repr, extra))} besides"] if extra else []
        raise ArgumentError(f"load_state: {path} {' and '.join(parts)}", user_loc())
