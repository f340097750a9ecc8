"""Draw a graph: in Graphviz's language, or as SVG where Graphviz is installed.

Name scopes, composites and fused kernels are boxes. What is drawn is the graph as declared;
with --optimized, as the passes leave it."""

from __future__ import annotations

import argparse

from graphc.cli import CommandLineError
from graphc.cli.arrays import write_text
from graphc.cli.sources import Sources

EXAMPLE = """example:
  graphc dot digits.py:step --optimized -o step.svg"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "functions", metavar="FILE", nargs="+", help="FILE.py:NAME, FILE.py or FILE.gir"
    )
    parser.add_argument("-o", metavar="OUT", dest="out", help="write to OUT.dot or OUT.svg")
    parser.add_argument("--optimized", action="store_true", help="draw it after the passes")


def run(options: argparse.Namespace, sources: Sources) -> None:
    """Draw; raises CommandLineError and GraphcError."""
    from graphc.view import to_dot, to_svg

    out = options.out
    if out is not None and not out.endswith((".dot", ".svg")):
        raise CommandLineError(f"-o: expected a file called NAME.dot or NAME.svg, got {out!r}")
    functions = [f for text in options.functions for f in sources.functions(text)]
    if out is not None and len(functions) > 1:
        names = ", ".join(f.name for f in functions)
        raise CommandLineError(f"-o: one drawing a file, got {len(functions)} functions ({names})")
    for f in functions:
        graph = f.optimized if options.optimized else f.graph
        text = to_svg(graph) if out is not None and out.endswith(".svg") else to_dot(graph)
        if out is None:
            print(text, end="")
        else:
            write_text(out, text)
