"""Functions of emitted libraries as programs, so that Python calls them as it calls compiled ones.

    i32 @digits_step.call(ptr %args, ptr %dims, ptr %arena)    what the JIT's wrapper calls
    i32 @digits_step(state, inputs, outputs, dims, arena)      what the library has

The program of a library's function is the first around the second; its one state, if it has any,
is the library's struct as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.codegen.calling import fastcall
from graphc.codegen.machine.target import host
from graphc.codegen.program import Param, Program
from graphc.dims import Size
from graphc.ir import Graph, State


def native(
    c: str,
    address: int,
    inputs: Sequence[Param],
    outputs: Sequence[Param],
    dims: Sequence[str],
    arena: Size,
    state: State | None,
    *,
    updates: bool,
    shape: str,
    **paths: Any,
) -> fastcall.Native:
    """The function at an address, loaded; `shape` is what it returns, `paths` are for `Native`."""
    states = () if state is None else (state,)
    program = Program(
        name=f"{c}.call", graph=Graph(c, (), (), ()), inputs=tuple(inputs), outputs=tuple(outputs),
        llvm=_text(c, bool(states), len(inputs) + len(outputs), len(dims)), states=states,
        updated=(updates,) * len(states), constants=(), dims=tuple(dims), arena=arena, sites=(),
        kernels=(), plan="",
    )  # fmt: skip
    image = fastcall.compile_program(program, host(), shape, len(states))
    locks = [s.lock for s in states]
    return fastcall.Native(image, host(), locks=locks, imports={c: address}, **paths)


def _text(c: str, state: bool, arrays: int, dims: int) -> str:
    lines, given = [], []

    def word(base: str, k: int, type: str) -> None:
        name = f"%{base}{k}"
        lines.append(f"  {name}.at = getelementptr i64, ptr %{base}, i64 {k}")
        lines.append(f"  {name} = load {type}, ptr {name}.at")
        given.append((type, name))

    for k in ([arrays] if state else []) + [*range(arrays)]:
        word("args", k, "ptr")
    for k in range(dims):
        word("dims", k, "i64")
    given.append(("ptr", "%arena"))
    return "\n".join([
        f"declare i32 @{c}({', '.join(t for t, _ in given)})",
        f"define i32 @{c}.call(ptr %args, ptr %dims, ptr %arena) nounwind {{",
        *lines,
        f"  %status = call i32 @{c}({', '.join(f'{t} {n}' for t, n in given)})",
        "  ret i32 %status", "}", "",
    ])
