"""Pipelines: names and functions, options, switches, verification, statistics, dumps."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from graphc.errors import CompileError, UsageError, VerifyError
from graphc.ir import Graph, rebuild
from graphc.passes import PIPELINE, Report, dump, load_pass, run_pipeline, simplify
from graphc.passes.manager import Pass
from graphc.text import load, parse

TEXT = """graph @step(%x: f32[4], %y: f32[4]) {
  %0: f32[4] = neg %x
  %1: f32[4] = neg %0
  %2: f32[4] = mul %1, %y
  %3: f32[4] = mul %y, %x
  %4: f32[4] = sub %2, %3
  return %4
}
"""
SHORT = ("simplify", "cse", "dce")


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GRAPHC_DUMP", "GRAPHC_STOP_AFTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_pipeline_is_names_of_files() -> None:
    folder = Path(load_pass("simplify").__code__.co_filename).parent
    for name in PIPELINE:
        assert (folder / f"{name}.py").exists()
        assert callable(load_pass(name))


def test_statistics() -> None:
    report = Report()
    out = run_pipeline(parse(TEXT), SHORT, report=report)
    assert [p.name for p in report.passes] == list(SHORT)
    assert [p.before for p in report.passes] == [5, 3, 2]
    assert [p.after for p in report.passes] == [3, 2, len(out.nodes)]
    assert report.seconds == sum(p.seconds for p in report.passes)
    assert "simplify" in str(report)
    assert "total" in str(report)


def test_statistics_count_nodes_of_bodies() -> None:
    text = """graph @f(%x: f32[4]) {
      %0: f32[4] = call %x {name="g"} body=@g(%a: f32[4]) {
        %0: f32[4] = exp %a
        return %0
      }
      return %0
    }"""
    report = Report()
    run_pipeline(parse(text), ("inline",), report=report)
    assert (report.passes[0].before, report.passes[0].after) == (2, 1)


def test_functions_are_passes_too() -> None:
    seen = []

    def my_pass(g: Graph) -> Graph:
        seen.append(len(g.nodes))
        return g

    report = Report()
    run_pipeline(parse(TEXT), ("simplify", my_pass, simplify.run), report=report)
    assert seen == [3]
    assert [p.name for p in report.passes] == ["simplify", "my_pass", "simplify"]


@pytest.mark.parametrize("bad", ["simplyfy", "manager", "../fold", "_private", ""])
def test_unknown_pass(bad: str) -> None:
    with pytest.raises(UsageError, match=r"there is no pass .*known: inline, simplify"):
        run_pipeline(parse(TEXT), (bad,))


def test_not_a_pass() -> None:
    with pytest.raises(UsageError, match="a name or a function Graph -> Graph, got 3"):
        run_pipeline(parse(TEXT), (3,))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"pass 'nothing' must return a Graph, got NoneType"):

        def nothing(g: Graph) -> None:
            pass

        run_pipeline(parse(TEXT), (nothing,))  # type: ignore[arg-type]


@pytest.mark.parametrize(("replace", "text"), [
    (lambda b, n, args: args[0], r"place of neg must be None or a list .* of its 1 results, got <"),
    (lambda b, n, args: [*args, *args], r"must be None or a list .* 1 results, got \["),
    (lambda b, n, args: b.emit("negg", args, n), r"there is no op 'negg' \(did you mean neg\?\)"),
    (lambda b, n, args: b.emit("reduce_sum", args, n, axis=0),
     r"reduce_sum: takes attributes \('axes',\), got \('axis',\)"),
])  # fmt: skip
def test_mistakes_of_a_pass(replace: Any, text: str) -> None:
    def mine(g: Graph) -> Graph:
        return rebuild(g, lambda b, n, args: replace(b, n, args) if n.op.name == "neg" else None)

    with pytest.raises(UsageError, match=text) as e:
        run_pipeline(parse(TEXT), (mine,))
    assert e.value.__notes__ == ["in pass 'mine'"]


def _broken(g: Graph) -> Graph:
    """Gives back the nodes in the wrong order."""
    return Graph(g.name, g.inputs, g.nodes[::-1], g.outputs)


def test_a_broken_pass_is_named_and_shown() -> None:
    with pytest.raises(VerifyError, match=r"after pass '_broken': .*(\n.*)*> %") as e:
        run_pipeline(parse(TEXT), ("simplify", _broken, "cse"))
    assert "before it is defined" in str(e.value)


def test_the_first_graph_is_checked() -> None:
    with pytest.raises(VerifyError, match="before the first pass"):
        run_pipeline(_broken(parse(TEXT)), SHORT)


def test_verification_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    run_pipeline(parse(TEXT), (_broken,), verify=False)
    monkeypatch.delenv("GRAPHC_VERIFY")
    run_pipeline(parse(TEXT), (_broken,))
    with pytest.raises(VerifyError):
        run_pipeline(parse(TEXT), (_broken,), verify=True)


def test_fastmath_and_stabilise_are_options() -> None:
    text = """graph @f(%x: f32[4]) {
      %0: f32[4] = sub %x, %x
      return %0
    }"""
    names = ("fastmath", "stabilize")
    report = Report()
    assert "sub" in str(run_pipeline(parse(text), names, report=report, stabilise=False))
    assert report.passes == []
    assert "sub" not in str(run_pipeline(parse(text), names, fastmath=True, report=report))
    assert [p.name for p in report.passes] == ["fastmath", "stabilize"]


def test_a_pass_is_not_run_on_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    once = run_pipeline(parse(TEXT), ("simplify", "cse"))
    ran: list[str] = []

    def noted(run: Pass, name: str) -> Pass:
        def passed(g: Graph) -> Graph:
            ran.append(name)
            return run(g)

        return passed

    monkeypatch.setattr(simplify, "run", noted(simplify.run, "simplify"))
    own = noted(lambda g: g, "own")
    report = Report()
    order = (own, "simplify", "strip", own, "simplify")
    assert run_pipeline(once, order, report=report) is once
    assert ran == ["own", "simplify", "own"], "what is no pass of ours runs every time"
    assert [p.name for p in report.passes] == ["passed", "simplify", "strip", "passed", "simplify"]


def test_stop_after(monkeypatch: pytest.MonkeyPatch) -> None:
    for stop, names in (
        ("simplify", ["simplify"]),
        ("02-cse", ["simplify", "cse"]),
        ("declared", []),
    ):
        monkeypatch.setenv("GRAPHC_STOP_AFTER", stop)
        report = Report()
        run_pipeline(parse(TEXT), SHORT, report=report)
        assert [p.name for p in report.passes] == names
    monkeypatch.setenv("GRAPHC_STOP_AFTER", "fold")
    with pytest.raises(UsageError, match="no pass 'fold'; the pipeline is simplify, cse, dce"):
        run_pipeline(parse(TEXT), SHORT)


def test_dump_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_DUMP", "all")
    out = run_pipeline(parse(TEXT), SHORT)
    dump("llvm", "; text", "step")
    dump("assembly", "# text", "step")
    files = sorted(os.listdir("graphc-dump/step"))
    assert files == [
        "00-declared.gir", "01-simplify.gir", "02-cse.gir", "03-dce.gir", "90.ll", "92.s",
    ]  # fmt: skip
    assert str(load("graphc-dump/step/03-dce.gir")) == str(out)
    assert Path("graphc-dump/step/90.ll").read_text() == "; text"


def test_dump_of_some_into_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHC_DUMP", f"cse,llvm:{tmp_path}/out")
    run_pipeline(parse(TEXT), SHORT)
    dump("assembly", "# text", "step")
    dump("llvm", "; text", "step")
    assert sorted(os.listdir(tmp_path / "out" / "step")) == ["02-cse.gir", "90.ll"]


def test_dump_into_an_unwritable_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHC_DUMP", f"all:{tmp_path}/file")
    with pytest.raises(CompileError, match=r"GRAPHC_DUMP: cannot write into .*file"):
        run_pipeline(parse(TEXT), SHORT)


def test_the_collector_comes_back_after_an_error() -> None:
    def fails(g: Graph) -> Graph:
        raise ZeroDivisionError

    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        run_pipeline(parse(TEXT), (fails,))
    assert gc.isenabled()


def test_a_pass_from_outside_in_a_few_lines() -> None:
    """The example of passes/README.md."""

    def halve(g: Graph) -> Graph:
        def rewrite(b, n, args):
            if n.op.name != "mul":
                return None
            return (b.one("add", args, n),)

        return rebuild(g, rewrite)

    assert "mul" not in str(run_pipeline(parse(TEXT), (*SHORT, halve)))


def test_dump_of_an_unknown_stage(monkeypatch):
    monkeypatch.setenv("GRAPHC_DUMP", "bogus")
    with pytest.raises(UsageError, match=r"GRAPHC_DUMP: no stage 'bogus'; known: all, declared, "):
        run_pipeline(parse("graph @f(%x: f32[]) {\n  return %x\n}\n"))
