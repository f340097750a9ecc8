"""Run passes on a graph and print the result in text form.

Without --passes the whole pipeline runs. A pass is one of --list-passes, or FILE.py:NAME, a
function Graph -> Graph of your own."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from graphc.cli import CommandLineError
from graphc.cli.sources import Sources, parse_spec
from graphc.errors import UsageError

EXAMPLE = """example:
  graphc opt step.gir --passes inline,fold,dce --stats -o smaller.gir"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "function", metavar="FILE", nargs="?", help="FILE.py:NAME, FILE.py or FILE.gir"
    )
    parser.add_argument("--passes", metavar="P,Q,...", help="what to run, in this order")
    parser.add_argument("--stats", action="store_true", help="nodes and time of each pass")
    parser.add_argument("--verify", action="store_true", help="check the graph between passes")
    parser.add_argument("-o", metavar="OUT.gir", dest="out", help="write there, and print nothing")
    parser.add_argument(
        "--list-passes", action="store_true", help="name the passes and what each does"
    )


def run(options: argparse.Namespace, sources: Sources) -> None:
    """Run the passes; raises CommandLineError and GraphcError."""
    from graphc.passes import Report, run_pipeline

    if options.list_passes:
        print("\n".join(list_passes()))
        return
    if options.function is None:
        raise CommandLineError("expected FILE.py:NAME, FILE.py or FILE.gir, or --list-passes")
    if options.out is not None and not options.out.endswith(".gir"):
        raise CommandLineError(f"-o: expected a file called NAME.gir, got {options.out!r}")
    pipeline = _pipeline(options.passes, sources) if options.passes is not None else None
    f = sources.function(options.function)
    report = Report()
    graph = run_pipeline(
        f.graph, f.options.pipeline if pipeline is None else pipeline,
        fastmath=f.options.fastmath or "fastmath" in (pipeline or ()),
        stabilise=f.options.stabilise or pipeline is not None,
        verify=True if options.verify else None, report=report,
    )
    if options.stats:
        print(report, file=sys.stderr)
    if options.out is not None:
        graph.save(options.out)
        return
    print(graph, end="")
    _note_arrays(graph)


def list_passes() -> list[str]:
    """One line for each pass: name, place in the pipeline, first line of its text."""
    import importlib
    import pkgutil

    import graphc.passes as passes

    names = sorted(m.name for m in pkgutil.iter_modules(passes.__path__))
    modules = {n: importlib.import_module(f"graphc.passes.{n}") for n in names}
    modules = {n: m for n, m in modules.items() if callable(getattr(m, "run", None))}
    ordered = [n for n in dict.fromkeys(passes.PIPELINE) if n in modules]
    ordered += [n for n in modules if n not in ordered]
    lines = []
    for n in ordered:
        text = (modules[n].__doc__ or "").strip().partition("\n")[0]
        lines.append(f"{n:<14}{text}" + ("" if n in passes.PIPELINE else "  (not in the pipeline)"))
    return [*lines, "", f"the pipeline: {','.join(passes.PIPELINE)}"]


def _pipeline(text: str, sources: Sources) -> list[Any]:
    """Names of passes, and the user's own functions."""
    from graphc.passes import load_pass

    steps: list[Any] = []
    for name in (part.strip() for part in text.split(",")):
        if not name:
            continue
        if ".py:" not in name:
            load_pass(name)
            steps.append(name)
            continue
        step = sources.attribute(parse_spec(name))
        if not callable(step):
            raise UsageError(f"{name}: a pass is a function Graph -> Graph, got {step!r}")
        steps.append(step)
    return steps


def _note_arrays(graph: Any) -> None:
    """Say so where the text alone does not run."""
    from graphc.text.printer import archive_names

    states, constants = archive_names(graph)
    missing = len(states) + len(constants)
    if missing:
        what = f"{missing} array{'' if missing == 1 else 's'}"
        print(f"graphc: note: the text is without {what}, which -o OUT.gir writes beside it",
              file=sys.stderr)
