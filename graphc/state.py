"""Saving and loading the values of variables: .npz files, and state files of native libraries."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from graphc import types
from graphc.contents import locked
from graphc.convert import listed
from graphc.descriptor import decode_type, read_descriptor
from graphc.errors import ArgumentError, DTypeError, ShapeError, UsageError, user_loc
from graphc.files import check_path, npz_writer, read_npz
from graphc.ir import State
from graphc.state_file import is_state_file, read_state_file, write_file, write_state_file
from graphc.types import Array, array_text, as_dtype

_BF16 = "bfloat16:"  # .npz knows no bfloat16: such arrays are kept as uint16 under a marked name


def _states(what: Any) -> list[State]:
    """The variables meant: a Function, a Variable, or several of them."""
    from graphc.declare import Variable

    found: dict[State, None] = {}
    for item in listed("state", what):
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


def save_state(
    path: str | os.PathLike[str], what: Any, *, library: str | os.PathLike[str] | None = None
) -> None:
    """Write the values of variables (or of all that functions use) to an .npz file.

    library: the file of a native library; then the values are written as its state, for
        `digits_load_state` in C. Variables of functions that are constants in it are left out.

    The file is replaced as a whole, so a failure leaves the old one. NumPy reads it by name.

        gx.save_state("model.npz", [step, predict])
    """
    check_path("save_state", path)
    states = _states(what)
    for s in states:
        if s.array is None:
            raise UsageError(f"save_state: variable {s.name!r} has no value", user_loc())
    if library is not None:
        _save_for(path, library, states, _constant(what))
        return
    arrays: dict[str, Array] = {}
    with locked(states):
        for s in states:
            value = _value(s)
            if s.type.dtype is types.bf16:
                arrays[_BF16 + s.name] = value.view(np.uint16)
            else:
                arrays[s.name] = value
    write_file(path, npz_writer(arrays))


def _save_for(path: Any, library: Any, states: list[State], optional: set[str]) -> None:
    """A state file of a library."""
    layout = read_descriptor(library)["state"]
    if layout is None:
        raise ArgumentError(f"save_state: {library} keeps no state", user_loc())
    variables = {v["name"]: v for v in layout["variables"]}
    own = {s.name: s for s in states}
    _check_names("save_state", library, list(own), list(variables), optional)
    values = np.zeros(int(layout["bytes"]), np.uint8)
    for name, v in variables.items():
        if decode_type(v) is not own[name].type:
            raise ShapeError(
                f"save_state: variable {name!r} is {own[name].type}, but {decode_type(v)} in "
                f"{library}", user_loc()
            )
    with locked(states):
        for name, v in variables.items():
            raw = np.ascontiguousarray(_value(own[name])).reshape(-1).view(np.uint8)
            values[v["offset"]:v["offset"] + raw.size] = raw
    write_state_file(path, int(layout["layout"], 16), values, variables.values())


def _value(s: State) -> Array:
    return np.array(s.array, order="C")


def _constant(what: Any) -> set[str]:
    """Names of variables that come with functions, none of which updates them."""
    functions = [f for f in listed("state", what) if hasattr(f, "graph")]
    updated = {s for f in functions for s, _ in f.graph.updates}
    return {s.name for f in functions for s in f.graph.variables() if s not in updated}


def load_state(path: str | os.PathLike[str], what: Any) -> None:
    """Read values into variables: from an .npz that save_state wrote, or a native library's state.

    Names, dtypes and shapes are all checked before the first value changes. A library's state
    lacks what is constant in it; such variables of functions stay as they are. ArgumentError for a
    file that has other variables, ShapeError for another type.
    """
    check_path("load_state", path)
    states = _states(what)
    optional: set[str] = set()
    try:
        if is_state_file(path):
            _, found = read_state_file(path)
            arrays = {name: array for name, (_, array) in found.items()}
            optional = _constant(what)
        else:
            arrays = _read_npz(path)
    except OSError as e:
        raise ArgumentError(f"load_state: cannot read {path}: {e.strerror or e}",
                            user_loc()) from None
    wanted = {s.name: s for s in states}
    _check_names("load_state", path, list(wanted), list(arrays), optional)
    wanted = {name: s for name, s in wanted.items() if name in arrays}
    for name, s in wanted.items():
        a = arrays[name]
        if a.shape != s.type.shape or as_dtype(a.dtype) is not s.type.dtype:
            kind = DTypeError if a.shape == s.type.shape else ShapeError
            raise kind(
                f"load_state: variable {name!r} must be {s.type}, got {array_text(a)} in {path}",
                user_loc(),
            )
    with locked(wanted.values()):
        for name, s in wanted.items():
            if s.array is None:
                raise UsageError(f"load_state: variable {name!r} has no array", user_loc())
            s.array[...] = arrays[name]


def _read_npz(path: str | os.PathLike[str]) -> dict[str, Array]:
    try:
        arrays = read_npz(path)
    except ValueError as e:
        raise ArgumentError(
            f"load_state: {path} is not an .npz of arrays, as save_state writes: {e}", user_loc(),
        ) from None
    for name in [n for n in arrays if n.startswith(_BF16)]:
        arrays[name[len(_BF16):]] = arrays.pop(name).view(types.bf16.numpy)
    return arrays


def _check_names(
    function: str, path: Any, wanted: list[str], found: list[str], optional: set[str]
) -> None:
    missing = [n for n in wanted if n not in found and n not in optional]
    extra = [n for n in found if n not in wanted]
    if missing or extra:
        parts = [f"lacks {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"has {', '.join(map(repr, extra))} besides"] if extra else []
        some = extra and not missing and str(path).endswith(".npz")
        advice = "; to read some only: v.value = numpy.load(path)[v.name]" if some else ""
        raise ArgumentError(f"{function}: {path} {' and '.join(parts)}{advice}", user_loc())
