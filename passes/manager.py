"""Runs pipelines: order, switches, verification, statistics, dumps.

    g = run_pipeline(g, PIPELINE, report=report)
    print(report)                        # per pass: nodes before and after, seconds

Environment:
    GRAPHC_DUMP=fuse,llvm[:DIR]    writes the stages named (or "all") as numbered files, 00-declared
                                   to NN-PASS, into DIR/NAME, by default ./graphc-dump/NAME
    GRAPHC_STOP_AFTER=PASS         runs no pass after PASS (or NN-PASS, as the files are called)
    GRAPHC_VERIFY=1                checks the IR before the first and after every pass, as tests do
"""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.errors import CompileError, UsageError, VerifyError
from graphc.ir import Graph
from graphc.passes.bodies import collector_paused, graphs_in

Pass = Callable[[Graph], Graph]

# Passes that run only where the option of the same name is on, and what is on by default.
OPTIONAL = {"fastmath": "fastmath", "stabilize": "stabilise", "matrix_chain": "stabilise"}

# What codegen dumps stands after the passes, in the order of the stages.
_FILES = {"loops": "80-loops.txt", "plan": "85-plan.txt", "llvm": "90.ll", "assembly": "92.s"}


class PassStats(NamedTuple):
    """What one pass did."""

    name: str
    before: int      # nodes, those of bodies included
    after: int
    seconds: float


@dataclass(slots=True)
class Report:
    """Statistics of a run, filled in by `run_pipeline`."""

    passes: list[PassStats] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.passes)

    def __str__(self) -> str:
        lines = [f"{'pass':<14}{'before':>9}{'after':>9}{'ms':>10}"]
        for p in self.passes:
            lines.append(f"{p.name:<14}{p.before:>9}{p.after:>9}{p.seconds * 1e3:>10.2f}")
        return "\n".join([*lines, f"{'total':<32}{self.seconds * 1e3:>10.2f}"])


def run_pipeline(
    g: Graph, pipeline: Sequence[str | Pass] | None = None, *, fastmath: bool = False,
    stabilise: bool = True, verify: bool | None = None, report: Report | None = None,
) -> Graph:
    """The graph after the passes, which are names or functions Graph -> Graph.

    fastmath, stabilise: whether the passes that need leave run (see OPTIONAL).
    verify: check the IR between passes; by default with GRAPHC_VERIFY=1, which the tests set. A
        VerifyError names the pass and shows the lines around the culprit.
    report: filled with each pass's statistics.

    Raises UsageError for an unknown name, and for a pass that does not give a Graph.
    """
    if pipeline is None:
        from graphc.passes import PIPELINE

        pipeline = PIPELINE
    on = {"fastmath": fastmath, "stabilise": stabilise}
    steps = load_passes(pipeline)
    check = os.environ.get("GRAPHC_VERIFY") == "1" if verify is None else verify
    stop = _stop_index([name for name, _ in steps])
    _check_dump([name for name, _ in steps])
    made: dict[Pass, Graph] = {}  # what each pass gave last, on which it has no more to do
    with collector_paused():
        _check(g, "before the first pass", check)
        _dump_graph(g, 0, "declared")
        for i, (name, run) in enumerate(steps[:stop], 1):
            if not on.get(OPTIONAL.get(name, ""), True):
                continue
            again = made.get(run) is g and isinstance(pipeline[i - 1], str)
            g = made[run] = _step(g, name, _same if again else run, check, report)
            _dump_graph(g, i, name)
    return g


def _same(g: Graph) -> Graph:
    return g


def _step(g: Graph, name: str, run: Pass, check: bool, report: Report | None) -> Graph:
    """Run one pass, checked and counted."""
    before = count_nodes(g) if report is not None else 0
    start = time.perf_counter()
    try:
        new = run(g)
    except Exception as e:
        e.add_note(f"in pass {name!r}")
        raise
    seconds = time.perf_counter() - start
    if not isinstance(new, Graph):
        raise UsageError(f"pass {name!r} must return a Graph, got {type(new).__name__}")
    _check(new, f"after pass {name!r}", check)
    if report is not None:
        report.passes.append(PassStats(name, before, count_nodes(new), seconds))
    return new


def load_passes(pipeline: Sequence[str | Pass]) -> list[tuple[str, Pass]]:
    """Names and functions of passes; UsageError for what is none."""
    return [(p, load_pass(p)) if isinstance(p, str) else (_name(p), p) for p in pipeline]


def load_pass(name: str) -> Pass:
    """The `run` of graphc.passes.NAME; UsageError lists the known passes."""
    plain = name.isidentifier() and not name.startswith("_")
    where = f"graphc.passes.{name}"
    found: Pass | None = None
    if plain and importlib.util.find_spec(where) is not None:
        found = getattr(importlib.import_module(where), "run", None)
    if found is None:
        from graphc.passes import PIPELINE

        known = ", ".join(dict.fromkeys((*PIPELINE, "recompute", "autodiff")))
        raise UsageError(f"there is no pass {name!r}; known: {known}")
    return found


def _name(p: Pass) -> str:
    """What a pass that is a function is called."""
    if not callable(p):
        raise UsageError(f"a pass is a name or a function Graph -> Graph, got {p!r}")
    name = str(getattr(p, "__name__", type(p).__name__))
    if name == "run":  # `my_pass.run` is called by its module
        name = str(getattr(p, "__module__", name)).rpartition(".")[2]
    return re.sub(r"\W", "_", name)


def _stop_index(names: Sequence[str]) -> int:
    """How many passes run: up to the one in GRAPHC_STOP_AFTER."""
    wanted = os.environ.get("GRAPHC_STOP_AFTER", "")
    if not wanted:
        return len(names)
    if wanted == "declared":
        return 0
    for i, name in enumerate(names, 1):
        if wanted in (name, f"{i:02d}-{name}"):
            return i
    raise UsageError(f"GRAPHC_STOP_AFTER: no pass {wanted!r}; the pipeline is {', '.join(names)}")


def _check_dump(names: Sequence[str]) -> None:
    """UsageError where GRAPHC_DUMP names a stage that does not exist."""
    from graphc.passes import PIPELINE

    wanted = os.environ.get("GRAPHC_DUMP", "").partition(":")[0]
    known = dict.fromkeys(("all", "declared", *names, *PIPELINE, *_FILES))
    for stage in filter(None, (s.strip() for s in wanted.split(","))):
        if stage not in known:
            raise UsageError(f"GRAPHC_DUMP: no stage {stage!r}; known: {', '.join(known)}")


def _check(g: Graph, when: str, on: bool) -> None:
    """Verify the graph, and say when it was found wrong."""
    if not on:
        return
    from graphc.verify import verify

    try:
        verify(g)
    except VerifyError as e:
        raise VerifyError(f"{when}: {e.message}", e.loc) from None


def count_nodes(g: Graph) -> int:
    """Nodes of g and of all graphs inside it."""
    return sum(len(graph.nodes) for graph in graphs_in(g))


def dump(stage: str, text: str, name: str) -> None:
    """Write a stage of code generation of the graph called `name`, if GRAPHC_DUMP asks for it."""
    folder = _folder(stage, name)
    if folder is not None:
        with _writing(folder), open(os.path.join(folder, _FILES[stage]), "w") as f:
            f.write(text)


def _dump_graph(g: Graph, number: int, stage: str) -> None:
    """Write a stage of the passes, if it is wanted."""
    folder = _folder(stage, g.name)
    if folder is not None:
        with _writing(folder):
            g.save(os.path.join(folder, f"{number:02d}-{stage}.gir"))


def _folder(stage: str, name: str) -> str | None:
    """The folder for a graph's dumps, or None where this stage is not wanted."""
    wanted, _, root = os.environ.get("GRAPHC_DUMP", "").partition(":")
    if not wanted:
        return None
    stages = [s.strip() for s in wanted.split(",")]
    if stage not in stages and "all" not in stages:
        return None
    return os.path.join(root or "graphc-dump", re.sub(r"[^\w.-]", "_", name) or "graph")


@contextmanager
def _writing(folder: str) -> Iterator[None]:
    """Make the folder; say what it was for if that fails."""
    try:
        os.makedirs(folder, exist_ok=True)
        yield
    except OSError as e:
        raise CompileError(f"GRAPHC_DUMP: cannot write into {folder}: {e.strerror}") from None
