"""The cache of whole programs on disk: a known graph is neither optimised nor emitted again.

An entry of the object cache whose key is everything that decides the program: the declared graph
to the last bit and line, the options, the target, the versions, and which files graphc itself
consists of. It holds one line of JSON, what loading takes, then the bytes that this line gives the
lengths of: the objects, the large constants, and what is only asked for later: the LLVM text, and
the rest of the program as JSON. What the declared graph knows (types of inputs and outputs,
variables, most constants: weights would fill the cache) is taken from there.

Not kept: graphs with ops from `define_op` or passes that are functions, whose code no key
covers, and anything while a switch looks inside (GRAPHC_DUMP, _STOP_AFTER, _VERIFY, _PERF_MAP).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import size_text
from graphc.codegen import perf_map
from graphc.codegen.machine import cache, llvm
from graphc.codegen.machine.image import Image, Params
from graphc.codegen.machine.target import Target
from graphc.errors import Loc
from graphc.ir import Graph, Literal, Node
from graphc.ops import BUILTIN
from graphc.text import to_text
from graphc.text.literals import INLINE, MissingLiteral
from graphc.types import as_dtype

if TYPE_CHECKING:
    from graphc.codegen.program import Program

SWITCHES = ("GRAPHC_DUMP", "GRAPHC_STOP_AFTER", "GRAPHC_VERIFY", perf_map.VARIABLE)


def key(g: Graph, target: Target, pipeline: Sequence[Any] | None, *options: object) -> str | None:
    """The name of the entry of a declared graph; None where none may be used.

    options: the other things that an image depends on.
    """
    if cache.directory() is None or any(os.environ.get(name) for name in SWITCHES):
        return None
    if not all(isinstance(p, str) for p in pipeline or ()):
        return None
    files: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    literals: list[bytes] = []
    for n in _all_nodes(g):
        if n.op not in BUILTIN:
            return None
        if (loc := n.loc) is not None:
            places.append((files.setdefault(loc.file, len(files)), loc.line))
        else:
            places.append((-1, 0))
        value = n.attrs.get("value") if n.op.name == "constant" else None
        if isinstance(value, MissingLiteral):
            return None
        if isinstance(value, Literal) and value.array.size > INLINE:
            literals.append(value.key()[1])
    return cache.key(
        "program", llvm.versions(), np.__version__, cache.installation(), repr(target),
        repr(options), repr(pipeline), to_text(g, locs=False), repr([*files]),
        repr(places), repr(literals),
    )


def load(name: str, g: Graph) -> Image | None:
    """The entry of a graph, or None."""
    data = cache.load(name)
    if data is None:
        return None
    at = data.index(b"\n") + 1
    known = json.loads(data[:at])
    blobs: list[bytes] = []
    for size in known["sizes"]:
        blobs.append(data[at : at + size])
        at += size
    objects, text, rest = known["objects"], blobs[-2], blobs[-1]
    inputs, outputs = _params(g)
    states = g.variables()
    image = Image(
        tuple(blobs[1 : 1 + objects]), blobs[0] or None, inputs, outputs,
        tuple([states[k] for k in known["states"]]),
        _constants(known["constants"], blobs[1 + objects : -2], g),
        tuple(known["dims"]), known["name"], known["parallel"],
        lambda: _program(image, g, text, json.loads(rest)),
    )  # fmt: skip
    return image


def _constants(
    known: Sequence[Sequence[Any]], elements: Sequence[bytes], g: Graph
) -> tuple[Literal, ...]:
    """The large constants of a program, of which `_places` said where they are."""
    declared, rest = _literals(g) if known else [], iter(elements)
    found: list[Literal] = []
    for where, *at in known:
        if where == "elements":
            dtype, shape = at
            array = np.frombuffer(next(rest), as_dtype(dtype).numpy).reshape(shape)
            found.append(Literal(array))
        else:
            c = declared[at[0]]
            found.append(c if where == "declared" else c.transposed())
    return tuple(found)


def _places(constants: Sequence[Literal], g: Graph) -> list[tuple[Any, ...]]:
    """Where each is: a constant of the declared graph, the transpose of one, or in the entry."""
    number = {c: k for k, c in enumerate(_literals(g))} if constants else {}
    return [
        ("declared", number[c]) if c in number
        else ("transposed", number[c.source]) if c.source in number
        else ("elements", c.type.dtype.name, c.array.shape)
        for c in constants
    ]


def _literals(g: Graph) -> list[Literal]:
    """The constants of a graph and of those inside it."""
    return [n.attrs["value"] for n in _all_nodes(g) if n.op.name == "constant"]


def _program(image: Image, g: Graph, text: bytes, known: dict[str, Any]) -> Program:
    """The rest of an image, read when it is asked for."""
    from graphc.codegen.program import Kernel, Param, Program, Site

    return Program(
        name=image.name, graph=g, llvm=text.decode(),
        inputs=tuple([Param(*p) for p in image.inputs]),
        outputs=tuple([Param(*p) for p in image.outputs]),
        states=image.states, updated=tuple(known["updated"]), constants=image.constants,
        dims=image.dims, arena=size_text.parse(known["arena"]),
        sites=tuple([Site(op, why, _loc(at), kind) for op, why, at, kind in known["sites"]]),
        kernels=tuple([
            Kernel(name, ops, nest, tuple([Loc(*at) for at in lines]), title)
            for name, ops, nest, lines, title in known["kernels"]
        ]),
        plan=known["plan"],
    )  # fmt: skip


def store(name: str, g: Graph, image: Image) -> None:
    """Keep a program; one that does not agree with its declared graph is not kept."""
    p, states = image.program, g.variables()
    number = {s: k for k, s in enumerate(states)}
    if (p.inputs, p.outputs) != _params(g) or not number.keys() >= {*p.states}:
        return
    rest = {
        "updated": p.updated,
        "arena": str(p.arena),
        "sites": [(s.op, s.reason, s.loc, s.kind) for s in p.sites],
        "kernels": [(k.name, k.ops, k.text, k.lines, k.title) for k in p.kernels],
        "plan": p.plan,
    }
    places = _places(p.constants, g)
    elements = [c.array.tobytes() for c, (where, *_) in zip(p.constants, places, strict=True)
                if where == "elements"]
    blobs = [
        image.builtin or b"", *image.objects, *elements, p.llvm.encode(), json.dumps(rest).encode(),
    ]
    known = {
        "name": p.name,
        "parallel": image.parallel,
        "states": [number[s] for s in p.states],
        "constants": places,
        "dims": p.dims,
        "objects": len(image.objects),
        "sizes": [len(b) for b in blobs],
    }
    cache.store(name, b"\n".join([json.dumps(known).encode(), b"".join(blobs)]))


def _loc(at: Sequence[Any] | None) -> Loc | None:
    return None if at is None else Loc(*at)


def _params(g: Graph) -> tuple[Params, Params]:
    """Names and types of inputs and outputs."""
    return (
        tuple([(str(v.node.attrs["name"]), v.type) for v in g.inputs]),
        tuple([(n, v.type) for n, v in zip(g.output_names, g.outputs, strict=True)]),
    )


def _all_nodes(g: Graph) -> Iterator[Node]:
    """The nodes of g, and of the graphs inside it."""
    stack = [g]
    while stack:
        graph = stack.pop()
        yield from (v.node for v in graph.inputs)
        for n in graph.nodes:
            yield n
            stack += n.bodies
