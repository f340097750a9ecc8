"""Time per kernel, dumps of all stages, and pipelines that stop early, through `gx.function`."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.errors import ArgumentError, UsageError
from graphc.text import load


def network():
    x, w = gx.input("x", ("n", 64)), gx.variable(np.ones((64, 64), np.float32), "w")
    return gx.function([x], gx.sum(gx.exp(x @ w / 64)), updates={w: w * 2}, name="f")


def test_profile():
    f = network()
    w = f.state["w"]
    p = f.profile(np.zeros((128, 64), np.float32), runs=5)
    assert [k.kernel.name for k in p.kernels] == [k.name for k in f.kernels] and p.seconds > 0
    assert all(k.calls == 5 and k.total > 0 and k.mean == k.total / 5 for k in p.kernels)
    assert sum(k.total for k in p.kernels) <= 5 * p.seconds * 1.001
    assert sum(k.share for k in p.kernels) == pytest.approx(
        sum(k.total for k in p.kernels) / (5 * p.seconds)
    )
    assert (f.state["w"] == w).all() and f.compilations == 1
    line = network.__code__.co_firstlineno + 2
    assert f"test_inspection.py:{line}" in [k.lines for k in p.kernels]
    assert "for i0<n, i1<64" in [k.nest for k in p.kernels]
    table = str(p).split("\n")
    assert "us a call, mean of 5" in table[0] and len(table) == 2 + len(f.kernels)
    assert " ".join(table[1].split()) == "kernel calls total ms mean us share ops loops, lines"
    assert f"for i0<n, i1<64  test_inspection.py:{line}" in str(p)


def test_profile_of_kernels_that_run_side_by_side():
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    f = gx.function([x, y], [gx.cumulative_sum(x), gx.cumulative_sum(y)])
    for n in (0, 3, 1 << 17):  # in a row, and large enough for two threads
        p = f.profile(np.ones(n, np.float32), np.ones(n, np.float32), runs=3)
        assert len(p.kernels) == 2 and all(k.total > 0 and k.calls == 3 for k in p.kernels)


def test_profile_of_nothing_and_of_mistakes():
    x = gx.input("x", ("n",), "int64")
    f = gx.function([x], x, name="copy")
    p = f.profile(np.ones(3, np.int64))
    assert p.kernels == () and p.seconds > 0
    with pytest.raises(ArgumentError, match="runs must be a whole number of at least 1, got 0"):
        f.profile(np.ones(3, np.int64), runs=0)
    g = gx.function([x], 1 // x)
    with pytest.raises(gx.errors.ExecutionError, match="integer division by zero"):
        g.profile(np.zeros(3, np.int64))


def test_dumps_of_some_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_DUMP", f"fuse,plan,llvm,assembly:{tmp_path}")
    network().compile()
    files = sorted(p.name for p in (tmp_path / "f").iterdir())
    assert files == ["12-fuse.gir", "12-fuse.npz", "85-plan.txt", "90.ll", "92.s"]


def test_dumps_of_all_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_DUMP", f"all:{tmp_path}")
    f = network().compile()
    monkeypatch.delenv("GRAPHC_DUMP")
    folder = tmp_path / "f"
    files = sorted(p.name for p in folder.iterdir() if p.suffix != ".npz")
    passes = [f"{k:02d}-{p}.gir" for k, p in enumerate(gx.PIPELINE, 1) if p != "fastmath"]
    assert files == ["00-declared.gir", *passes, "80-loops.txt", "85-plan.txt", "90.ll", "92.s"]
    assert (folder / "80-loops.txt").read_text() == "\n\n".join(k.text for k in f.kernels)
    assert (folder / "85-plan.txt").read_text() == f.memory_plan()
    assert (folder / "90.ll").read_text() == f.llvm_ir()
    assert "\tret" in (folder / "92.s").read_text()
    again = gx.Function.from_graph(load(folder / "12-fuse.gir"))
    x = np.linspace(0, 1, 128, dtype=np.float32).reshape(2, 64)
    assert again(x) == f(x)


def test_no_dumps_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHC_DUMP", raising=False)
    network().compile()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop", ["declared", "inline", "02-simplify", "fold", "dce", "fuse"])
def test_stop_after(stop, tmp_path, monkeypatch):
    x = np.linspace(0, 1, 320, dtype=np.float32).reshape(5, 64)
    wanted = network()(x)
    monkeypatch.setenv("GRAPHC_STOP_AFTER", stop)
    monkeypatch.setenv("GRAPHC_DUMP", f"all:{tmp_path}")
    f = network()
    np.testing.assert_allclose(f(x), wanted, rtol=1e-5)
    last = sorted(p.name for p in (tmp_path / "f").glob("*.gir"))[-1]
    assert stop in last
    assert str(load(tmp_path / "f" / last)) == str(f.optimized)


def test_stop_after_of_an_unknown_pass(monkeypatch):
    monkeypatch.setenv("GRAPHC_STOP_AFTER", "fuze")
    with pytest.raises(UsageError, match="GRAPHC_STOP_AFTER: no pass 'fuze'; the pipeline is"):
        network().compile()
