"""Run a function on arrays and print what it gives.

Inputs come as NAME=FILE.npy, as NAME=NUMBER (or a list of numbers), as FILE.npz with arrays under
the inputs' names, or as FILE.npy in the order of declaration. @NAME=FILE.npy, and @NAME in an
.npz, set a variable. Variables that the function updates change in memory only; with -o their
new values are written under @NAME beside the outputs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.arguments import as_input
from graphc.cli import CommandLineError
from graphc.cli.arrays import (
    as_stored,
    describe,
    read_npy,
    read_npz,
    read_value,
    split_input,
    write_npz,
)
from graphc.cli.sources import Sources, in_mode
from graphc.errors import ShapeError, UsageError, did_you_mean
from graphc.function import Function
from graphc.ir import State
from graphc.types import Array

EXAMPLE = """example:
  graphc run digits.py:predict x=images.npy -o classes.npz"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.usage = "%(prog)s FILE [INPUT ...] [-o OUT.npz] [--mode MODE] [--dim NAME=SIZE]"
    parser.add_argument(
        "function", metavar="FILE", nargs="?", help="FILE.py:NAME, FILE.py or FILE.gir"
    )
    parser.add_argument("inputs", metavar="INPUT", nargs="*", help="what the function takes")
    parser.add_argument("-o", metavar="OUT.npz", dest="out", help="write the outputs there")
    parser.add_argument(
        "--mode", choices=("jit", "interpret", "debug"),
        help="native code, NumPy, or NumPy stopping at the first NaN or infinity; "
        "as declared unless given",
    )
    parser.add_argument(
        "--dim", metavar="NAME=SIZE", action="append", default=[],
        help="a dimension that no input shows",
    )


def run(options: argparse.Namespace, sources: Sources) -> None:
    """Call the function; raises CommandLineError and GraphcError."""
    if options.function is None:
        raise CommandLineError("expected FILE.py:NAME, FILE.py or FILE.gir")
    if options.out is not None and not options.out.endswith(".npz"):
        raise CommandLineError(f"-o: expected a file called NAME.npz, got {options.out!r}")
    given = [split_input(text) for text in options.inputs]
    dims = parse_dims(options.dim)
    f = sources.function(options.function)
    f = in_mode(f, options.mode or f.mode)
    values, states = _read(f, given)
    _check_dims(f, dims)
    if states:
        f = f.with_state(states)
    results = _named(f, _call(f, values, dims))
    updated = [s.name for s, _ in f.graph.updates]
    present = f.state if updated else {}
    for name, array in results.items():
        print(describe(name, array))
    for name in updated:
        print(describe(f"@{name}", present[name]))
    if options.out is not None:
        write_npz(options.out, results | {f"@{name}": present[name] for name in updated})


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """{"n": 5} of ["n=5"]; CommandLineError for anything else, and for a name given twice."""
    dims: dict[str, int] = {}
    for text in texts:
        name, equals, size = text.partition("=")
        if not equals or not name.isidentifier() or not size.isdecimal():
            raise CommandLineError(f"--dim: expected NAME=SIZE with a size >= 0, got {text!r}")
        if name in dims:
            raise CommandLineError(f"--dim: {name} is given twice")
        dims[name] = int(size)
    return dims


def _read(
    f: Function, given: Sequence[tuple[str, str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of inputs and of variables by name."""
    values: dict[str, Any] = {}
    states: dict[str, Any] = {}
    order = [str(v.node.attrs["name"]) for v in f.graph.inputs]
    variables = [s.name for s in f.graph.variables()]

    def put(name: str, value: Any, source: str) -> None:
        into, known, kind = values, order, "input"
        if name.startswith("@"):
            name, into, known, kind = name[1:], states, variables, "variable"
        if name not in known:
            hint = did_you_mean(name, known)
            have = f"{f'; {hint}' if hint else ''} ({kind}s: {', '.join(known) or 'none'})"
            raise UsageError(f"{source}: {f.name} has no {kind} {name!r}{have}")
        if name in into:
            raise UsageError(f"{source}: {kind} {name!r} is given twice")
        into[name] = value

    place = 0
    for name, text in given:
        if name:
            put(name, read_value(name, text), f"{name}={text}")
        elif text.endswith(".npz"):
            for key, array in read_npz(text).items():
                put(key, array, text)
        elif place < len(order):
            put(order[place], read_npy(text), text)
            place += 1
        else:
            count = f"{len(order)} input{'' if len(order) == 1 else 's'}"
            raise UsageError(f"{text}: {f.name} takes {count} ({f._signature}), this is one more")
    for v, name in zip(f.graph.inputs, order, strict=True):
        if name in values:
            values[name] = as_stored(values[name], v.type)
    for s in f.graph.variables():
        if s.name in states:
            states[s.name] = _state(f, s, as_stored(states[s.name], s.type))
    return values, states


def _state(f: Function, s: State, value: Any) -> Array:
    array = as_input(f.name, f"@{s.name}", value, s.type, None)
    if array.shape != s.type.shape:
        shape = ",".join(map(str, array.shape))
        raise ShapeError(f"{f.name}: variable '@{s.name}' must be {s.type}, got shape [{shape}]")
    return array


def _check_dims(f: Function, dims: Mapping[str, int]) -> None:
    for name in dims:
        if name in f._signature.dims:
            continue
        known = ", ".join(f._signature.dims) or "none"
        why = "comes from the shapes of the inputs" if name in f.graph.dims() else "is not there"
        raise UsageError(
            f"--dim {name}: {f.name} has no such dimension to give, it {why} (to give: {known})"
        )


def _call(f: Function, values: Mapping[str, Any], dims: Mapping[str, int]) -> Any:
    order = [str(v.node.attrs["name"]) for v in f.graph.inputs]
    if len(values) == len(order):
        return f(*[values[name] for name in order], **dims)
    return f(**values, **dims)  # says what is missing


def _named(f: Function, result: Any) -> dict[str, Array]:
    """The outputs by name: output, or output0, output1, ... where they have none."""
    if result is None:
        return {}
    if isinstance(result, dict):
        return result
    if isinstance(result, (list, tuple)):
        names = f.graph.output_names
        return {n or f"output{i}": a for i, (n, a) in enumerate(zip(names, result, strict=True))}
    return {"output": result}
