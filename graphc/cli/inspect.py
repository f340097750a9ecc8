"""Show what functions take, give, hold, compute and cost; or what a library (.so, .dll, .a) holds.

FLOPs, bytes and the arena are formulas in the dimensions; --dim puts numbers in their places. An
exp counts as one FLOP, a multiply-add of a product as two; bytes are what the nodes read and
write, a fused kernel counting as one."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import Any

from graphc import view
from graphc.cli.run import parse_dims
from graphc.cli.sources import Sources
from graphc.descriptor import decode_size, decode_type, read_descriptor
from graphc.dims import Size, substitute
from graphc.errors import ExecutionError, UsageError
from graphc.function import Function
from graphc.ir import Graph

EXAMPLE = """example:
  graphc inspect digits.py:step --dim batch=32"""
LIBRARIES = (".so", ".dll", ".dylib", ".wasm", ".a", ".o", ".lib", ".obj")
_GLUE = "\u00a0"  # keeps a number and its word on one line


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "functions", metavar="FILE", nargs="+",
        help="FILE.py:NAME, FILE.py or FILE.gir; or a library that graphc wrote",
    )
    parser.add_argument(
        "--dim", metavar="NAME=SIZE", action="append", default=[], help="the size of a dimension"
    )


def run(options: argparse.Namespace, sources: Sources) -> None:
    """Print the tables; raises CommandLineError and GraphcError."""
    dims = parse_dims(options.dim)
    libraries = [text for text in options.functions if text.endswith(LIBRARIES)]
    functions = [
        f for text in options.functions if text not in libraries for f in sources.functions(text)
    ]
    descriptors = [read_descriptor(text) for text in libraries]
    known = {name for f in functions for name in f.graph.dims()}
    known |= {q["name"] for d in descriptors for f in d["functions"] for q in f["dims"]}
    for name in dims:
        if name not in known:
            have = ", ".join(sorted(known)) or "none"
            raise UsageError(f"--dim {name}: there is no such dimension (dimensions: {have})")
    lines = [line for d in descriptors for line in library_table(d, dims)]
    lines += [line for f in functions for line in table(f, dims)]
    print("\n".join(lines).rstrip())


def library_table(d: Mapping[str, Any], dims: Mapping[str, int]) -> list[str]:
    """The lines about a library, from its descriptor."""
    lines = [f"{d['prefix']}"]
    lines += _row("written by", f"graphc {d['graphc']}")
    lines += _row("target", f"{d['target']}, levels {', '.join(d['levels'])}")
    lines += _row("ABI", d["abi"])
    state = d["state"]
    if state is not None:
        lines += _row("state", f"{state['bytes']:,} bytes, layout {state['layout']}")
        lines += _list(
            "variables",
            [f"{v['offset']:>8,}  {v['name']}: {decode_type(v)}" for v in state["variables"]],
        )
    lines.append("")
    for f in d["functions"]:
        lines += [f"{f['name']}{'' if f['c'].endswith('_' + f['name']) else ', in C ' + f['c']}"]
        for head in ("inputs", "outputs"):
            lines += _list(head, [f"{a['name']}: {decode_type(a)}" for a in f[head]])
        lines += _row("dimensions", ", ".join(q["name"] for q in f["dims"]) or "none")
        uses = {"none": "not used", "read": "read", "update": "read and updated"}[f["state"]]
        lines += _row("state", uses)
        lines += [*_row("arena bytes", _formula(decode_size(f["arena_bytes"]), dims)), ""]
    return lines


def table(f: Function, dims: Mapping[str, int]) -> list[str]:
    """The lines about one function."""
    g = f.graph
    updated = {s for s, _ in g.updates}
    names = g.output_names
    lines = [f"{f.name}"]
    lines += _list("inputs", [f"{v.node.attrs['name']}: {v.type}" for v in g.inputs])
    lines += _list(
        "outputs",
        [f"{n}: {v.type}" if n else f"{v.type}" for n, v in zip(names, g.outputs, strict=True)],
    )
    lines += _list(
        "variables",
        [
            f"@{s.name}: {s.type}{', updated' if s in updated else ''}"
            for s in g.variables()
        ],
    )
    lines += _row("dimensions", ", ".join(g.dims()) or "none")
    lines += _row("operations", _counts(g))
    lines += _row("FLOPs", _formula(view.flops(g), dims))
    lines += _row("bytes moved", _formula(view.bytes_moved(g), dims))
    try:
        final, program = f.optimized, f.program
    except ExecutionError as e:  # large constants whose .npz is not there
        return [*lines, *_row("optimized", f"no: {e.message}"), ""]
    lines += _row("optimized", _counts(final))
    lines += _row("  FLOPs", _formula(view.flops(final), dims))
    lines += _row("  bytes moved", _formula(view.bytes_moved(final), dims))
    lines += _list(
        "kernels", [f"{k.name}: {k.ops} op{'' if k.ops == 1 else 's'}" for k in program.kernels]
    )
    lines += _row("arena bytes", _formula(program.arena, dims))
    return [*lines, ""]


def _counts(g: Graph) -> str:
    counts = view.op_counts(g)
    each = ", ".join(f"{n}{_GLUE}{name}" for name, n in counts.items())
    return f"{sum(counts.values())}: {each}" if counts else "0"


def _formula(size: Size, dims: Mapping[str, int]) -> str:
    value = substitute(size, dims)
    number = f"{value:,}" if isinstance(value, int) else str(value)
    return number if value == size else f"{size} = {number}"


def _row(head: str, text: str) -> list[str]:
    lead = f"  {head:<13} "
    lines = textwrap.wrap(
        text, 100, initial_indent=lead, subsequent_indent=" " * len(lead), break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _list(head: str, items: list[str]) -> list[str]:
    if not items:
        return _row(head, "none")
    return [f"  {head if i == 0 else '':<13} {item}" for i, item in enumerate(items)]
