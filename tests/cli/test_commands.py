"""Each command doing what it is for."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gx
from graphc.cli import COMMANDS

X = np.array([[1, 2, 3, 4], [4, 3, 2, 1], [0, 0, 0, 0]], "float32")
Y = np.array([0, 2, 1])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(graphc: Any, command: str) -> None:
    ran = graphc(command, "--help")
    assert ran.status == 0 and ran.err == ""
    assert ran.out.startswith(f"usage: graphc {command} ")
    assert f"example:\n  graphc {command} " in ran.out


def test_help_lists_the_commands(graphc: Any) -> None:
    for spelling in ("--help", "-h", "help"):
        ran = graphc(spelling)
        assert ran.status == 0
        assert all(f"\n  {name} " in ran.out for name in COMMANDS)
    assert graphc("--version").out == f"graphc {gx.__version__}\n"


def test_run_numbers(graphc: Any) -> None:
    ran = graphc("run", "one.py", "a=2", "b=6")
    assert ran == (0, "output: f32[] = 56.\n", "")


@pytest.mark.parametrize("mode", ["jit", "interpret", "debug"])
def test_run_files(graphc: Any, folder: Path, mode: str) -> None:
    np.save("x.npy", X)
    np.save("y.npy", Y)
    ran = graphc("run", "model.py:step", "x.npy", "--mode", mode, "y=y.npy", "-o", "out.npz")
    w = np.arange(12, dtype="float32").reshape(4, 3) / 10
    z = np.exp(X @ w - (X @ w).max(1, keepdims=True))
    p = z / z.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(3), Y]).mean()
    new = w - 0.5 * X.T @ (p - np.eye(3)[Y]) / 3
    with np.load("out.npz") as out:
        assert sorted(out.files) == ["@w", "loss"]
        np.testing.assert_allclose(out["loss"], loss, rtol=1e-6)
        np.testing.assert_allclose(out["@w"], new, rtol=1e-5)
        assert out["loss"].dtype == np.float32 and out["loss"].shape == ()
    assert ran.status == 0
    assert ran.out.startswith("loss: f32[] = ") and "\n@w: f32[4,3]\n" in ran.out
    assert ran.err == "this line is the module's own\n"


def test_run_npz_and_lists(graphc: Any) -> None:
    np.savez("in.npz", x=X, y=Y)
    ran = graphc("run", "model.py:pick", "in.npz")
    assert ran.out.startswith("output0: f32[3,3]\n  [[1., 3., 2.],\n")
    assert "\noutput1: f32[3,4]\n" in ran.out
    ran = graphc("run", "model.py:predict", "x=[[0, 0, 0, 1], [0, 0, 0, -1]]")
    assert ran.out == "output: i64[2]\n  [2, 0]\n"


def test_run_sets_variables(graphc: Any) -> None:
    np.save("w.npy", -np.arange(12, dtype="float32").reshape(4, 3))
    np.savez("all.npz", **{"x": X, "@w": -np.arange(12, dtype="float32").reshape(4, 3)})
    assert graphc("run", "model.py:predict", "x=[[0,0,0,1]]", "@w=w.npy").out.endswith("[0]\n")
    assert graphc("run", "model.py:predict", "all.npz").out.endswith("[0, 0, 0]\n")


def test_run_prints_large_arrays_short(graphc: Any) -> None:
    np.save("x.npy", np.full((40, 4), 2, "float32"))
    np.save("y.npy", np.zeros(40, "int64"))
    ran = graphc("run", "model.py:pick", "x.npy", "y.npy")
    head = ran.out.splitlines()[0]
    assert head == "output0: f32[40,40]  (min 2, max 2, mean 2)"
    assert "..." in ran.out and len(ran.out) < 1000
    np.save("x.npy", np.full((100, 4), 2, "float32"))
    ran = graphc("run", "model.py:predict", "x.npy")
    assert ran.out.splitlines()[0] == "output: i64[100]  (min 2, max 2, mean 2)"


def test_run_dimension_that_no_input_shows(graphc: Any, folder: Path) -> None:
    (folder / "ones.py").write_text(
        "import graphc as gx\nf = gx.function([], gx.ones((gx.dim('n'),)), name='f')\n"
    )
    ran = graphc("run", "ones.py", "--dim", "n=3")
    assert ran == (0, "output: f32[3]\n  [1., 1., 1.]\n", "")
    graphc("run", "ones.py").fails(
        "f: dimension 'n' stands alone in no input, so give it: n=..."
    )


def test_run_bf16_from_its_own_output(graphc: Any, folder: Path) -> None:
    pytest.importorskip("ml_dtypes")
    (folder / "half.py").write_text(
        "import graphc as gx\n"
        "x = gx.input('x', ('n',), 'bfloat16')\n"
        "f = gx.function([x], {'x': x * 2}, name='f')\n"
    )
    np.save("x.npy", np.array([0x3F80, 0x4000], "uint16").view("V2"))  # 1, 2
    assert graphc("run", "half.py", "x.npy", "-o", "x.npz").out == "x: bf16[2]\n  [2, 4]\n"
    assert graphc("run", "half.py", "x.npz").out == "x: bf16[2]\n  [4, 8]\n"


def test_opt_prints_text_that_runs(graphc: Any, folder: Path) -> None:
    declared = graphc("opt", "one.py", "--passes", "")
    assert declared.out == (
        "graph @f(%a: f32[], %b: f32[]) {\n"
        '  %0: f32[] = add %a, %b loc("one.py":5)\n'
        '  %1: f32[] = constant 0x1p+0 loc("one.py":5)\n'
        '  %2: f32[] = add %b, %1 loc("one.py":5)\n'
        '  %3: f32[] = mul %0, %2 loc("one.py":5)\n'
        "  return %3\n"
        "}\n"
    )
    (folder / "f.gir").write_text(declared.out)
    assert graphc("run", "f.gir", "a=2", "b=6").out == "output: f32[] = 56.\n"
    assert graphc("opt", "f.gir", "--passes", "cse,dce").out == declared.out


def test_opt_runs_the_pipeline_and_autodiff(graphc: Any, folder: Path) -> None:
    ran = graphc("opt", "one.py", "--stats", "--verify")
    assert " = fused %a, %b " in ran.out or " = fused %b, %a " in ran.out
    assert [line.split()[0] for line in ran.err.splitlines()] == [
        "pass", *[p for p in gx.PIPELINE if p != "fastmath"], "total",
    ]
    ran = graphc("opt", "one.py", "--passes", "autodiff,simplify,cse,dce", "-o", "grad.gir")
    assert ran == (0, "", "")
    out = graphc("run", "grad.gir", "a=2", "b=6").out
    assert out == "output0: f32[] = 56.\noutput1: f32[] = 7.\noutput2: f32[] = 15.\n"


def test_opt_writes_arrays_beside_the_text(graphc: Any, folder: Path) -> None:
    assert graphc("opt", "model.py:predict", "-o", "p.gir").out == ""
    assert (folder / "p.npz").exists()
    assert graphc("run", "p.gir", "x=[[0, 0, 0, 1]]").out == "output: i64[1]\n  [2]\n"
    ran = graphc("opt", "p.gir")
    assert ran.err == (
        "graphc: note: the text is without 1 array, which -o OUT.gir writes beside it\n"
    )


def test_opt_lists_passes(graphc: Any) -> None:
    lines = graphc("opt", "--list-passes").out.splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith("the pipeline")]
    assert names[: len(set(gx.PIPELINE))] == list(dict.fromkeys(gx.PIPELINE))
    assert "autodiff" in names
    assert lines[-1] == f"the pipeline: {','.join(gx.PIPELINE)}"


def test_opt_takes_a_pass_of_the_users_own(graphc: Any, folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from graphc.ir import Graph\n"
        "def renamed(g):\n"
        "    return Graph('renamed', g.inputs, g.nodes, g.outputs)\n"
    )
    ran = graphc("opt", "one.py", "--passes", "mine.py:renamed,dce")
    assert ran.out.startswith("graph @renamed(%a: f32[], %b: f32[]) {\n")


def test_dot(graphc: Any, folder: Path) -> None:
    text = graphc("dot", "one.py").out
    assert text.startswith('digraph "f" {') and text.count("label=") >= 6
    assert graphc("dot", "one.py", "-o", "f.dot") == (0, "", "")
    assert (folder / "f.dot").read_text() == text
    assert "subgraph cluster_0" in graphc("dot", "one.py", "--optimized").out
    assert graphc("dot", "model.py").out.count("digraph") == 3


def test_dot_svg(graphc: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("dot"):
        assert graphc("dot", "one.py", "-o", "f.svg").status == 0
        assert "<svg" in (folder / "f.svg").read_text()
    monkeypatch.setenv("PATH", str(folder))
    (folder / "g.svg").write_text("old")
    graphc("dot", "one.py", "-o", "g.svg").fails(
        "to_svg: needs Graphviz, whose `dot` is not on the PATH; install it, or draw the text of "
        "to_dot() elsewhere"
    )
    assert (folder / "g.svg").read_text() == "old"


def test_inspect(graphc: Any) -> None:
    lines = graphc("inspect", "one.py").out.splitlines()
    assert lines[:8] == [
        "f",
        "  inputs        a: f32[]",
        "                b: f32[]",
        "  outputs       f32[]",
        "  variables     none",
        "  dimensions    none",
        "  operations    4: 2 add, 1 constant, 1 mul",
        "  FLOPs         3",
    ]
    assert lines[-1].startswith("  arena bytes   ")


def test_inspect_formulas(graphc: Any) -> None:
    out = graphc("inspect", "model.py", "--dim", "batch=10").out
    heads = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert heads == ["step", "predict", "pick"]
    assert "  variables     @w: f32[4,3], updated\n" in out
    assert "  FLOPs         27*batch = 270\n" in out  # predict: 2*4*3 of the product, 3 of argmax
    assert "    FLOPs       " in out and "    bytes moved " in out
    assert "kernels       predict.k0: " in out


@pytest.mark.parametrize("suffix", ["so", "a", "o", "h"])
def test_compile(graphc: Any, folder: Path, suffix: str) -> None:
    if suffix == "so" and not (shutil.which("cc") or shutil.which("ld.lld")):
        pytest.skip("no linker here")
    (folder / "build").mkdir()
    graphc("opt", "one.py", "-o", "f.gir")  # a graph of kernels
    out = f"build/libmodel.{suffix}"
    ran = graphc("compile", "model.py:step", "f.gir", "-o", out, "--cpu", "v2")
    assert ran.status == 0, ran
    written = sorted({f"libmodel.{suffix}", "libmodel.h"})
    assert sorted(p.name for p in (folder / "build").iterdir()) == written
    assert [line.split()[:2] for line in sorted(ran.out.splitlines())] == [
        ["wrote", f"build/{name}"] for name in written
    ]
    header = (folder / "build" / "libmodel.h").read_text()
    assert "model_step(" in header and "model_f(" in header


def test_graphs_in_files_share_variables_by_name(graphc: Any, folder: Path) -> None:
    for name in ("step", "predict"):
        assert graphc("opt", f"model.py:{name}", "-o", f"{name}.gir").status == 0
    for k, step in enumerate(("step.gir", "model.py:step")):
        ran = graphc("compile", step, "predict.gir", "-o", f"m{k}.h", "--cpu", "v2")
        assert ran.status == 0, ran
        header = (folder / f"m{k}.h").read_text()
        assert header.count("float w[4 * 3];") == 1
        assert f"m{k}_predict(const m{k}_state *s" in header
    columns = r"(?<!stop=\(batch, )3(?=\]|\)(?!, stop))"  # of w, not of slices of x
    other = re.sub(columns, "5", (folder / "predict.gir").read_text())
    (folder / "other.gir").write_text(other)
    ran = graphc("compile", "model.py:step", "other.gir", "-o", "m.h")
    assert ran.status == 1 and "two different variables are both called 'w'" in ran.err
    assert not (folder / "m.h").exists()
