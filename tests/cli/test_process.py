"""The command as a process: the console script's way in, pipes, full disks, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

COMMAND = [sys.executable, "-m", "graphc"]


def process(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, **kwargs
    )


def test_as_a_module(folder: Path) -> None:
    ran = process("run", "one.py", "a=2", "b=6")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "output: f32[] = 56.\n", "")


def test_errors_do_not_name_where_the_command_was_started(folder: Path) -> None:
    ran = process("run", "one.py", "a=2")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "graphc: error: f: takes 2 inputs (a: f32[], b: f32[]), got 1: 'b' (f32[]) is missing\n"
    )
    script = "import sys; from graphc.cli import main; sys.exit(main())"  # as pip writes it
    started = folder / "graphc-script.py"
    started.write_text(script)
    same = subprocess.run(
        [sys.executable, str(started), "run", "one.py", "a=2"], capture_output=True, text=True,
        check=False,
    )
    assert (same.returncode, same.stderr) == (1, ran.stderr)


def test_console_script_is_declared() -> None:
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="graphc")
    assert script.value == "graphc.cli:main"


def test_bad_command_line(folder: Path) -> None:
    ran = process("run", "one.py", "--mode", "fast")
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.startswith("usage: graphc run FILE [INPUT ...] ")
    assert "Traceback" not in ran.stderr


def test_closed_pipe(folder: Path) -> None:
    ends = os.pipe()
    os.close(ends[0])
    with os.fdopen(ends[1], "w") as closed:
        ran = subprocess.run(
            [*COMMAND, "opt", "one.py"], stdout=closed, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "")


def test_streams_that_are_closed(folder: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "opt", "one.py"], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE,
        text=True, check=False,
    )
    assert ran.returncode == 0 and "Traceback" not in ran.stderr
    ran = subprocess.run(
        [*COMMAND, "opt", "no.py"], preexec_fn=lambda: os.close(2), stdout=subprocess.PIPE,
        text=True, check=False,
    )
    assert ran.returncode == 1 and ran.stdout == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_full_disk(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*COMMAND, "opt", "one.py"], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False,
        )
    assert ran.returncode == 1
    assert ran.stderr == "graphc: error: No space left on device\n"


def test_interrupt(graphc: Any, folder: Path) -> None:
    (folder / "slow.py").write_text("raise KeyboardInterrupt\n")
    graphc("run", "slow.py").fails("interrupted", 130)


INTERRUPTED_AT = """
import os, signal, sys

# A shell starts what runs in the background with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "{name}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize("module, status, said", [
    ("graphc.tensor", -signal.SIGINT, ""),  # no handler yet
    ("graphc.cli.run", 130, "graphc: error: interrupted\n"),
    ("graphc.function", 130, "graphc: error: interrupted\n"),
])
def test_interrupt_while_modules_are_imported(
    folder: Path, module: str, status: int, said: str
) -> None:
    (folder / "sitecustomize.py").write_text(INTERRUPTED_AT.format(name=module))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    ran = process("run", "one.py", "a=2", "b=6", env=environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", said)
    program = subprocess.run(  # a program's own handling of interrupts is left alone
        [sys.executable, "-c", "import graphc.function, graphc.cli.run", "graphc"],
        capture_output=True, text=True, check=False, env=environment,
    )
    assert program.returncode != 0 and program.stderr.endswith("KeyboardInterrupt\n")


def test_help_imports_no_compiler() -> None:
    script = (
        "import sys\nfrom graphc.cli import main\nmain(['--help'])\n"
        "heavy = {'llvmlite', 'networkx', 'graphc.passes', 'graphc.codegen', 'graphc.function'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_dumps_of_every_stage_run_again(graphc: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez("in.npz", x=rng.normal(size=(5, 4)).astype("float32"), y=np.array([0, 1, 2, 1, 0]))
    environment = {**os.environ, "GRAPHC_DUMP": "all:dumps"}
    first = process("run", "model.py:step", "in.npz", "-o", "first.npz", env=environment)
    assert first.returncode == 0, first.stderr
    stages = sorted(Path("dumps/step").glob("*.gir"))
    assert [s.name for s in stages][:2] == ["00-declared.gir", "01-inline.gir"]
    assert stages[-1].name.endswith("-fuse.gir")
    assert {"80-loops.txt", "85-plan.txt", "90.ll", "92.s"} <= {
        p.name for p in Path("dumps/step").iterdir()
    }
    with np.load("first.npz") as f:
        expected = dict(f)
    for stage in stages:
        for mode in ("jit", "interpret"):
            ran = graphc("run", str(stage), "in.npz", "--mode", mode, "-o", "again.npz")
            assert ran.status == 0, (stage, ran.err)
            with np.load("again.npz") as again:
                for name, value in expected.items():
                    np.testing.assert_allclose(again[name], value, rtol=1e-5, err_msg=str(stage))
                    if mode == "jit" and stage == stages[-1]:
                        assert again[name].tobytes() == value.tobytes()
        assert graphc("inspect", str(stage)).status == 0


@pytest.mark.parametrize("stop", ["declared", "inline", "cse"])
def test_stopping_before_fusion_still_runs(
    graphc: Any, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    plain = graphc("run", "model.py:step", "x=[[1,2,3,4]]", "y=[1]", "-o", "a.npz")
    monkeypatch.setenv("GRAPHC_STOP_AFTER", stop)
    stopped = graphc("run", "model.py:step", "x=[[1,2,3,4]]", "y=[1]", "-o", "b.npz")
    assert plain.status == stopped.status == 0, stopped
    with np.load("a.npz") as a, np.load("b.npz") as b:
        for name in a.files:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-6)


def test_a_graph_partly_of_kernels_runs(graphc: Any, folder: Path) -> None:
    (folder / "part.gir").write_text(
        "graph @part(%x: f32[n]) {\n"
        "  %0: f32[n] = fused %x {axes=(n), reduced=(), outputs=((0))} body=@body(%p0: f32[n]) {\n"
        "    %0: f32[n] = neg %p0\n"
        "    return %0\n"
        "  }\n"
        "  %1: f32[n] = exp %0\n"
        "  return %1\n"
        "}\n"
    )
    assert graphc("run", "part.gir", "x=[0, 0]").out == "output: f32[2]\n  [1., 1.]\n"
    assert graphc("run", "part.gir", "x=[0]", "--mode", "interpret").out.endswith("[1.]\n")
