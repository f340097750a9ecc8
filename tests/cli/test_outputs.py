"""Outputs that cannot be written: one line, and nothing half-written is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gx
from graphc.errors import GraphcError

COMMANDS = {
    "run": (("run", "one.py", "a=1", "b=2"), "npz"),
    "opt": (("opt", "one.py"), "gir"),
    "dot": (("dot", "one.py"), "dot"),
    "compile": (("compile", "one.py"), "o"),
}
each_command = pytest.mark.parametrize(("command", "suffix"), COMMANDS.values(), ids=COMMANDS)


def tree(folder: Path) -> list[str]:
    """Every file but those of the caches."""
    return sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*")
        if not {".cache", "__pycache__"} & {*p.relative_to(folder).parts}
    )


@each_command
def test_no_such_directory(
    graphc: Any, folder: Path, command: tuple[str, ...], suffix: str
) -> None:
    before = tree(folder)
    ran = graphc(*command, "-o", f"no/out.{suffix}")
    assert ran.status == 1 and len(ran.err.splitlines()) == 1
    assert ran.err.startswith("graphc: error: ") and "cannot write no/out." in ran.err
    assert "o such file or directory" in ran.err or "there is no directory no" in ran.err
    assert tree(folder) == before


@each_command
def test_output_is_a_directory(
    graphc: Any, folder: Path, command: tuple[str, ...], suffix: str
) -> None:
    (folder / f"out.{suffix}").mkdir()
    before = tree(folder)
    ran = graphc(*command, "-o", f"out.{suffix}")
    assert ran.status == 1 and len(ran.err.splitlines()) == 1
    assert f"cannot write out.{suffix}: " in ran.err and "directory" in ran.err
    assert tree(folder) == before


@each_command
def test_wrong_suffix(graphc: Any, folder: Path, command: tuple[str, ...], suffix: str) -> None:
    before = tree(folder)
    ran = graphc(*command, "-o", "out.txt")
    assert ran.status == (1 if suffix == "o" else 2) and len(ran.err.splitlines()) == 1
    assert "'out.txt'" in ran.err
    assert tree(folder) == before


@each_command
def test_a_mistake_keeps_the_old_file(
    graphc: Any, folder: Path, command: tuple[str, ...], suffix: str
) -> None:
    (folder / f"out.{suffix}").write_text("old")
    (folder / "one.py").write_text("oops\n")
    graphc(*command, "-o", f"out.{suffix}").fails(
        "NameError: name 'oops' is not defined (one.py:1)"
    )
    assert (folder / f"out.{suffix}").read_text() == "old"


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="Linux only")
@each_command
def test_unwritable_directory(graphc: Any, command: tuple[str, ...], suffix: str) -> None:
    ran = graphc(*command, "-o", f"/sys/kernel/out.{suffix}")  # refused even to root
    assert ran.status == 1 and len(ran.err.splitlines()) == 1
    assert f"cannot write /sys/kernel/out.{suffix}: " in ran.err


def test_outputs_replace_what_was_there(graphc: Any, folder: Path) -> None:
    for a in ("1", "2"):
        assert graphc("run", "one.py", f"a={a}", "b=0", "-o", "out.npz").status == 0
    with np.load("out.npz") as out:
        assert out["output"] == 2
    assert [n for n in tree(folder) if "out" in n] == ["out.npz"]


def test_no_linker(graphc: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(folder)
    monkeypatch.setenv("PATH", str(folder))
    ran = graphc("compile", "one.py", "-o", "libf.so")
    if ran.status == 0:
        pytest.skip("the ziglang wheel is installed here")
    assert ran.status == 1 and ran.out == "" and len(ran.err.splitlines()) == 1
    assert "link" in ran.err and "test_outputs" not in ran.err
    assert tree(folder) == before


def test_compile_refuses(graphc: Any, folder: Path) -> None:
    for levels in ("v9", "v2,native", ""):
        graphc("compile", "one.py", "-o", "f.o", "--cpu", levels).fails(
            f"--cpu: expected levels of v2,v3,v4, or native, got {levels!r}", 2
        )
    ran = graphc("compile", "one.py", "-o", "f.o", "--state", "zz")
    assert ran.status == 1 and "'zz'" in ran.err and "Traceback" not in ran.err
    ran = graphc("compile", "one.py", "one.py:f", "-o", "f.o")
    assert ran.status == 1 and "'f'" in ran.err and "Traceback" not in ran.err


def test_one_drawing_a_file(graphc: Any) -> None:
    graphc("dot", "model.py", "-o", "m.dot").fails(
        "-o: one drawing a file, got 3 functions (step, predict, pick)", 2
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_a_device_is_written_not_replaced() -> None:
    gx.save_state("/dev/null", [gx.variable([1.0], "w")])
    with pytest.raises(GraphcError, match="No space left on device"):
        gx.save_state("/dev/full", [gx.variable([1.0], "w")])
    assert not os.path.isfile("/dev/null") and not os.path.isfile("/dev/full")
