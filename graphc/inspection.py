"""Looking into functions: values inside a call, time per kernel, dumps of generated code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import declaration
from graphc.arguments import Results
from graphc.errors import user_loc
from graphc.failure import failure
from graphc.ir import collect

if TYPE_CHECKING:
    from graphc.codegen.profile import Profile
    from graphc.function import Function


def watch(f: Function, tensors: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """See Function.watch."""
    d = declaration.declare([], tensors, None, f.name, user_loc())
    graph = collect(f.name, f.graph.inputs, d.outputs)
    arrays, given = f._signature.convert(args, kwargs)
    dims = f._signature.bind(arrays, given)
    with f._variables.locked():
        values, _ = f._evaluate(graph, arrays, dims)
    return Results(f.name, [v.type for v in d.outputs], d.kind, d.keys).pack(values)


def profile(
    f: Function, args: Sequence[Any], kwargs: Mapping[str, Any], runs: int
) -> Profile:
    """See Function.profile."""
    from graphc.codegen import compile_graph, profile
    from graphc.codegen.machine.target import host

    declaration.check_count("profile: runs", runs, user_loc())
    arrays, given = f._signature.convert(args, kwargs)
    dims = f._signature.bind(arrays, given)
    shapes = f._results.shapes(dims)
    outputs = [np.empty(s, t.dtype.numpy) for s, t in zip(shapes, f._results.types, strict=True)]
    own = f.with_state()._variables.own
    program = compile_graph(
        f.optimized, host(), fastmath=f.options.fastmath, name=f.name, declared=f.graph, timed=True
    )
    status, result = profile.measure(
        program, host(), arrays, outputs, dims, [own(s) for s in program.states],
        runs, f.options.threads,
    )
    if status:
        raise failure(program, status, dims)
    return result


def dump(f: Function) -> None:
    """Write the stages of code generation that GRAPHC_DUMP asks for."""
    wanted = os.environ.get("GRAPHC_DUMP", "")
    if not wanted:
        return
    from graphc.passes.manager import dump as write

    write("loops", "\n\n".join(k.text for k in f.kernels), f.name)
    write("plan", f.memory_plan(), f.name)
    write("llvm", f.llvm_ir(), f.name)
    if "assembly" in wanted or "all" in wanted:  # it compiles once more
        write("assembly", f.assembly(), f.name)
