"""gx.export: from Functions to a native library and its C header."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.declare import Variable
from graphc.errors import ArgumentError, CompileError, Loc, UsageError, user_loc
from graphc.files import check_path
from graphc.forks import undivided
from graphc.function import Function
from graphc.ir import State
from graphc.tensor import Tensor

if TYPE_CHECKING:
    from graphc.codegen.library.abi import Unit
    from graphc.codegen.machine.platforms import Platform


def export(
    functions: Function | Sequence[Function], path: str | os.PathLike[str], *,
    state: Any = "current", cpu: str | Sequence[str] | None = None, kinds: Sequence[str] = (),
    target: str = "native", debug_info: bool = False,
) -> Path:
    """Write functions as one native library, with a C header of the same name beside it.

        gx.export([step, predict], "build/libdigits.so")      # and build/libdigits.h

    path: its suffix says what to write: .so (.dll, .dylib and .wasm for the targets that have
        these), .a, .o, .ll, .s, or .h for the header alone; its
        name, without lib, is the prefix of all C names. The directory must exist.
    state: the values that `digits_init` sets: "current" or "initial" (those the variables were
        declared with). Or a list of variables, or their names, to hold in the state struct even
        though no exported function updates them; the others are constants in the library.
    cpu: the levels to compile for, of which the library takes the best at its first call: v2, v3
        and v4 of x86-64, or v8 and v8.2 (with dot products of bytes) of AArch64 under Linux; all
        unless given. "native" is the level of this machine.
    kinds: more files to write beside it from one compilation, by their suffixes: ("a", "ll").
    target: the machine to write for, such as "aarch64-linux-gnu"; a wrong name lists all.
    debug_info: add DWARF line tables that map machine code to the declaring lines, for gdb, perf,
        objdump -dl and addr2line. Results stay the same.

    Nothing is left behind when it fails: CompileError (no linker, cannot write, a name of the
    system's such as libm.so), UsageError, ArgumentError.
    """
    loc = user_loc()
    alone = not isinstance(functions, Iterable) or isinstance(functions, (str, bytes, Tensor))
    chosen: list[Any] = [functions] if alone else [*functions]
    for f in chosen:
        if not isinstance(f, Function):
            raise UsageError(
                f"export: takes functions made by gx.function, got {type(f).__name__}", loc
            )
    if not chosen:
        raise UsageError("export: takes at least one function", loc)
    check_path("export", path)
    out = Path(path)
    platform = _platform(target, loc)
    levels = _levels(cpu, platform, loc)
    try:
        with undivided():
            _export(chosen, out, state, platform, levels, _kinds(kinds, loc), bool(debug_info), loc)
    except CompileError as e:
        raise e if e.loc is not None else CompileError(e.message, loc) from e.__cause__
    return out


def _export(
    chosen: Sequence[Function], path: Path, state: Any, platform: Platform,
    levels: tuple[str, ...], kinds: Sequence[str], debug: bool, loc: Loc | None,
) -> None:
    from graphc.codegen.library.make import make_library
    from graphc.codegen.library.write import check_kinds, files_of, prefix_of, write_library

    prefix = prefix_of(path)
    check_kinds(files_of(path, kinds), platform)
    if not path.parent.is_dir():
        raise CompileError(f"export: cannot write {path}: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise CompileError(f"export: cannot write {path}: the directory is not writable")
    initial, kept = _state(chosen, state, loc)
    units = [_unit(f, chosen, platform.targets(levels), debug) for f in chosen]
    values = _values(chosen, initial, loc)
    write_library(make_library(prefix, units, platform, values, kept, debug), path, kinds)


def _values(chosen: Sequence[Function], initial: bool, loc: Loc | None) -> dict[State, Any]:
    """Copies of what the variables hold, all at one moment."""
    names: dict[str, State] = {}
    for f in chosen:
        for s in f._variables:
            if names.setdefault(s.name, s) is not s:
                raise UsageError(
                    f"export: two different variables are both called {s.name!r}; functions in "
                    "one library share variables, so name these apart", loc
                )
            if s.array is None:
                raise UsageError(
                    f"export: variable @{s.name} has no value: the graph was read without its "
                    ".npz file", loc
                )
    with contextlib.ExitStack() as held:
        for lock in sorted({id(s.lock): s.lock for s in names.values()}.items()):
            held.enter_context(lock[1])
        return {
            s: np.array(s.initial if initial else s.array, order="C") for s in names.values()
        }


def _unit(f: Function, chosen: Sequence[Function], targets: Any, debug: bool) -> Unit:
    from graphc.codegen import compile_graph
    from graphc.codegen.library.abi import Unit
    from graphc.passes.bodies import collector_paused

    optimized, *beside = (g.optimized for g in (f, *(g for g in chosen if g is not f)))
    with collector_paused():
        programs = tuple(
            (level, compile_graph(
                optimized, target, fastmath=f.options.fastmath, name=f.name, declared=f.graph,
                debug=debug, beside=beside,
            ))
            for level, target in targets.items()
        )
    owners = {s: f._variables.own(s) for s in f.graph.variables()}
    return Unit(f.name, f.graph, programs, owners, f.options.threads, f._results.kind)


def _platform(target: str, loc: Loc | None) -> Platform:
    from graphc.codegen.machine.platforms import platform

    if not isinstance(target, str):
        raise UsageError(f"export: target must be a name, got {target!r}", loc)
    try:
        return platform(target)
    except UsageError as e:
        raise UsageError(f"export: {e.message}", loc) from None


def _levels(
    cpu: str | Sequence[str] | None, platform: Platform, loc: Loc | None
) -> tuple[str, ...]:
    from graphc.codegen.machine.platforms import native
    from graphc.codegen.machine.target import host, level_of

    if cpu is None:
        return platform.levels
    if not isinstance(cpu, (str, list, tuple)):
        raise UsageError(f"export: cpu takes a level or a list of levels, got {cpu!r}", loc)
    wanted = [cpu] if isinstance(cpu, str) else list(cpu)
    if wanted == ["native"] and platform == native():
        return (level_of(host()),) if platform.levels != ("base",) else platform.levels
    if platform.levels == ("base",):
        raise ArgumentError(f"export: {platform.name} has no CPU levels, got cpu={cpu!r}", loc)
    for w in wanted:
        if w not in platform.levels:
            raise ArgumentError(
                f"export: cpu must be among {', '.join(platform.levels)}, or 'native', got {w!r}",
                loc,
            )
    if not wanted:
        raise ArgumentError("export: cpu must name at least one level", loc)
    return tuple(sorted(set(wanted)))


def _kinds(kinds: Sequence[str], loc: Loc | None) -> list[str]:
    if not isinstance(kinds, (list, tuple)) or not all(isinstance(k, str) for k in kinds):
        raise UsageError(f"export: kinds takes a list of suffixes, got {kinds!r}", loc)
    return list(kinds)


def _state(chosen: Sequence[Function], state: Any, loc: Loc | None) -> tuple[bool, list[State]]:
    """Whether initial values are wanted, and the variables to hold in the state anyway."""
    if isinstance(state, str):
        if state not in ("current", "initial"):
            raise ArgumentError(
                f"export: state must be 'current', 'initial' or a list of variables, got {state!r}",
                loc,
            )
        return state == "initial", []
    if isinstance(state, Variable) or not isinstance(state, Iterable):
        raise UsageError(
            "export: state must be 'current', 'initial' or a list of variables, got "
            f"{type(state).__name__}", loc
        )
    known: dict[str, State] = {}
    owned: dict[State, State] = {}
    for f in chosen:
        for s in f.graph.variables():
            known.setdefault(s.name, f._variables.own(s))
            owned.setdefault(s, f._variables.own(s))
    kept = []
    for item in state:
        if isinstance(item, str) and item in known:
            kept.append(known[item])
        elif isinstance(item, Variable) and item.state in owned:
            kept.append(owned[item.state])
        else:
            name = item if isinstance(item, str) else getattr(item, "name", item)
            raise UsageError(
                f"export: state names {name!r}, which none of the functions reads; they read "
                f"{', '.join(known) or 'no variable'}", loc
            )
    return False, kept
