"""Programs on disk: what a graph was compiled to, found again without passes or code generation.

An entry of the object cache whose key is everything that decides the program: the declared graph
to the last bit and line, the options, the target, the versions, and which files graphc itself
consists of. It holds one line of JSON (names, sites, kernels, plan), then the bytes that the JSON
gives the lengths of: the LLVM text, the objects, the large constants. What the declared graph
knows (types of inputs and outputs, variables) is taken from there.

Not remembered: graphs with ops from `define_op` or passes that are functions, whose code no key
covers, and anything while a switch looks inside (GRAPHC_DUMP, _STOP_AFTER, _VERIFY, _PERF_MAP).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import graphc
import graphc.ops
import graphc.passes
import graphc.text
from graphc import dims
from graphc.codegen import cache, jit, perf_map
from graphc.codegen.program import Kernel, Param, Program, Site
from graphc.codegen.target import Target
from graphc.errors import Loc
from graphc.ir import Graph, Literal, Node
from graphc.ops import BUILTIN, Kind
from graphc.text import to_text
from graphc.text.literals import INLINE, MissingLiteral
from graphc.types import as_dtype

SWITCHES = ("GRAPHC_DUMP", "GRAPHC_STOP_AFTER", "GRAPHC_VERIFY", perf_map.VARIABLE)


class Remembered(NamedTuple):
    """A program, whose `graph` is the declared one, and the objects of its text."""

    program: Program
    objects: tuple[bytes, ...]


def key(g: Graph, target: Target, pipeline: Sequence[Any] | None, *options: bool) -> str | None:
    """The name of the entry of a declared graph; None where none may be used."""
    if cache.directory() is None or any(os.environ.get(name) for name in SWITCHES):
        return None
    if not all(isinstance(p, str) for p in pipeline or ()):
        return None
    files: dict[str, int] = {}
    places: list[int] = []
    literals: list[bytes] = []
    for n in _all_nodes(g):
        if n.op not in BUILTIN:
            return None
        if n.loc is not None:
            places.append(files.setdefault(n.loc.file, len(files)))
        value = n.attrs.get("value") if n.op.name == "constant" else None
        if isinstance(value, MissingLiteral):
            return None
        if isinstance(value, Literal) and value.array.size > INLINE:
            literals.append(hashlib.sha256(value.array.tobytes()).digest())
    return cache.key(
        "program", _installation(), target.triple, target.cpu, target.features, repr(options),
        repr(pipeline), to_text(g), repr([*files]), repr(places), repr(literals),
    )


def load(name: str, g: Graph) -> Remembered | None:
    """The entry of a graph, or None."""
    data = cache.load(name)
    if data is None:
        return None
    line, _, rest = data.partition(b"\n")
    known = json.loads(line)
    blobs: list[bytes] = []
    at = 0
    for size in known["sizes"]:
        blobs.append(rest[at : at + size])
        at += size
    objects = known["objects"]
    inputs, outputs = _params(g)
    states = g.variables()
    program = Program(
        name=known["name"], graph=g, llvm=blobs[0].decode(), inputs=inputs, outputs=outputs,
        states=tuple([states[k] for k in known["states"]]), updated=tuple(known["updated"]),
        constants=tuple([
            Literal(np.frombuffer(raw, as_dtype(dtype).numpy).reshape(shape))
            for raw, (dtype, shape) in zip(blobs[1 + objects :], known["constants"], strict=True)
        ]),
        dims=tuple(known["dims"]), arena=dims.parse(known["arena"]),
        sites=tuple([Site(op, why, _loc(at), kind) for op, why, at, kind in known["sites"]]),
        kernels=tuple([
            Kernel(name, ops, text, tuple([Loc(*at) for at in lines]), title)
            for name, ops, text, lines, title in known["kernels"]
        ]),
        plan=known["plan"],
    )  # fmt: skip
    return Remembered(program, tuple(blobs[1 : 1 + objects]))


def store(name: str, g: Graph, program: Program, objects: Sequence[bytes]) -> None:
    """Keep a program; one that does not agree with its declared graph is not kept."""
    states = g.variables()
    number = {s: k for k, s in enumerate(states)}
    if (program.inputs, program.outputs) != _params(g) or not number.keys() >= {*program.states}:
        return
    blobs = [program.llvm.encode(), *objects, *(c.array.tobytes() for c in program.constants)]
    known = {
        "name": program.name,
        "states": [number[s] for s in program.states],
        "updated": program.updated,
        "constants": [(c.type.dtype.name, c.array.shape) for c in program.constants],
        "dims": program.dims,
        "arena": str(program.arena),
        "sites": [(s.op, s.reason, s.loc, s.kind) for s in program.sites],
        "kernels": [(k.name, k.ops, k.text, k.lines, k.title) for k in program.kernels],
        "plan": program.plan,
        "objects": len(objects),
        "sizes": [len(b) for b in blobs],
    }
    cache.store(name, b"\n".join([json.dumps(known).encode(), b"".join(blobs)]))


def _loc(at: Sequence[Any] | None) -> Loc | None:
    return None if at is None else Loc(*at)


def _params(g: Graph) -> tuple[tuple[Param, ...], tuple[Param, ...]]:
    return (
        tuple([Param(str(v.node.attrs["name"]), v.type) for v in g.inputs]),
        tuple([Param(n, v.type) for n, v in zip(g.output_names, g.outputs, strict=True)]),
    )


def _all_nodes(g: Graph) -> Iterator[Node]:
    """The nodes of g, and of the graphs inside it."""
    stack = [g]
    while stack:
        graph = stack.pop()
        yield from (v.node for v in graph.inputs)
        for n in graph.nodes:
            yield n
            if n.op.kind is Kind.REGION:
                stack += [a for a in n.attrs.values() if isinstance(a, Graph)]


@functools.cache
def _installation() -> str:
    """Versions, and the names, sizes and times of graphc's own files: edits count."""
    found = [jit.versions(), f"numpy {np.__version__}", sys.version]
    for package in (graphc, graphc.ops, graphc.text, graphc.passes, graphc.codegen):
        for folder in package.__path__:
            with os.scandir(folder) as files:
                for f in sorted(files, key=lambda f: f.name):
                    if f.name.endswith(".py"):
                        info = f.stat()
                        found.append(f"{f.name} {info.st_size} {info.st_mtime_ns}")
    return "\n".join(found)
