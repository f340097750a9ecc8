"""Every example against values worked out by hand, or by NumPy written out."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from example_files import EXAMPLES, load

import graphc as gx


def test_every_example_is_run_here():
    here = "".join(p.read_text() for p in pathlib.Path(__file__).parent.glob("test_*.py"))
    for path in EXAMPLES.glob("*.py"):
        run = any(how in here for how in (
            f'load("{path.stem}")', f"import {path.stem}", f'EXAMPLES / "{path.name}"'))
        assert run, f"{path.name} is run by no test"


def test_tutorial(capsys):
    ex = load("tutorial")
    assert ex.f(2, 6) == {"e": 56, "de/da": 7, "de/db": 15}
    ex.main()
    assert capsys.readouterr().out == "e = 56.0\nde/da = 7.0\nde/db = 15.0\n"


def test_walk_graph(capsys):
    ex = load("walk_graph")
    out = ex.f(2, 3)
    assert out["z"] == pytest.approx(6 + np.log(2), rel=1e-6)
    assert out["dz/dx"] == 3.5 and out["dz/dy"] == 2
    lines = list(ex.walk(ex.f.graph))
    assert [line.split("  #")[0] for line in lines[:3]] == [
        "0: mul(x, y)", "1: log(x)", "2: add(0, 1)"
    ]
    assert all("walk_graph.py:" in line for line in lines)
    ex.main()
    assert "z = 6.6931\ndz/dx = 3.5000\ndz/dy = 2.0000\n" in capsys.readouterr().out


def test_hessian(capsys):
    ex = load("hessian")
    x, y = 2.0, 3.0
    s, c = np.sin(x * y), np.cos(x * y)
    want = np.array([[2 + y * y * s, x * y * s - c], [x * y * s - c, 6 * y + x * x * s]])
    for _ in range(3):  # as often as one likes
        out = ex.evaluate(x, y)
        np.testing.assert_allclose(out["f"], x**2 + y**3 - s, rtol=1e-14)
        np.testing.assert_allclose(out["gradient"], [2 * x - y * c, 3 * y * y - x * c], rtol=1e-14)
        np.testing.assert_allclose(out["hessian"], want, rtol=1e-13)
        np.testing.assert_allclose(out["again"], want, rtol=1e-13)
    first, second = gx.grad(ex.f, ex.x), gx.grad(ex.f, ex.x)
    assert first.eval({ex.x: x, ex.y: y}) == second.eval({ex.x: x, ex.y: y})
    ex.main()
    assert "f = 31.279415" in capsys.readouterr().out


def test_linear_regression(capsys, tmp_path):
    ex = load("linear_regression")
    xs, ys = ex.data()
    ex.main(str(tmp_path / "fit.png"))
    said = capsys.readouterr().out
    slope, offset = np.polyfit(xs.astype("float64"), ys.astype("float64"), 1)  # least squares
    assert ex.slope.value == pytest.approx(slope, abs=1e-3)
    assert ex.offset.value == pytest.approx(offset, abs=1e-3)
    assert abs(slope - 2) < 0.1 and abs(offset - 1) < 0.1
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "no plot: matplotlib is not installed" in said


def test_linear_regression_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # its import fails
    ex = load("linear_regression")
    assert not ex.plot(*ex.data(), tmp_path / "fit.png")
    assert not list(tmp_path.iterdir())


def test_quadratic(capsys):
    ex = load("quadratic")
    ex.main()
    np.testing.assert_allclose(ex.coefficients.value, [3, -2, 0.5], atol=1e-4)
    assert "y = 3.0000 x^2 -2.0000 x +0.5000" in capsys.readouterr().out


def test_small_network(capsys):
    ex = load("small_network")
    xs, ys = ex.data()
    w1, b1, w2, b2 = (p.value.astype("float64") for p in ex.params)
    hidden = xs @ w1 + b1  # forward and back, written out
    active = np.maximum(hidden, 0)
    error = active @ w2 + b2 - ys
    d_out = 2 * error / error.size
    d_hidden = d_out @ w2.T * (hidden > 0)
    grads = [xs.T @ d_hidden, d_hidden.sum(0), active.T @ d_out, d_out.sum(0)]
    assert ex.step(xs, ys) == pytest.approx((error**2).mean(), rel=1e-5)
    for p, before, g in zip(ex.params, (w1, b1, w2, b2), grads, strict=True):
        np.testing.assert_allclose(p.value, before - 0.05 * g, rtol=1e-4, atol=1e-6)
    ex.main()
    assert ex.step(xs, ys) < 1e-3
    assert "501" not in capsys.readouterr().out
    np.testing.assert_allclose(ex.predict(xs), ys, atol=0.1)


def test_inference_has_no_gradient_nodes():
    ex = load("small_network")
    ops = [n.op.name for n in ex.predict.graph.nodes]
    assert ops.count("dot") == 2 and ops.count("variable") == 4
    assert not {"transpose", "reduce_sum", "sub", "mul", "div"} & set(ops)  # of loss and gradients
    assert [n.op.name for n in ex.step.graph.nodes].count("dot") == 5  # none for x
    assert not ex.predict.graph.updates


def test_accumulate(capsys):
    ex = load("accumulate")
    before = ex.w.value
    whole, gathered = ex.main()
    np.testing.assert_allclose(gathered, whole, rtol=1e-12)
    np.testing.assert_allclose(ex.w.value, before - 0.1 * whole, rtol=1e-12)
    assert not ex.total.value.any() and ex.rows.value == 0
    through, stopped = ex.slopes(3)
    assert through == 6 and stopped == 3
    assert "stop_gradient" not in str(ex.slopes.optimized)


def test_draw_network(capsys, tmp_path):
    ex = load("draw_network")
    ex.main(tmp_path)
    for name in ex.ACTIVATIONS:
        declared = (tmp_path / f"{name}.dot").read_text()
        fused = (tmp_path / f"{name}-fused.dot").read_text()
        for text in (declared, fused):
            assert text.startswith("digraph") and text.count("{") == text.count("}")
        for scope in ("hidden", "output"):
            assert f'label="{scope}"' in declared
        assert "subgraph" in fused and 'label="fused"' in fused
        svg = tmp_path / f"{name}.svg"
        assert not svg.exists() or "<svg" in svg.read_text()
    drawn = len(list(tmp_path.glob("*.svg")))
    assert drawn in (0, 2 * len(ex.ACTIVATIONS))
    assert drawn or "no SVG" in capsys.readouterr().out


def test_extend_pass(capsys):
    ex = load("extend_pass")
    values = np.array([-1.0, -0.0, 2.0], "float32")
    np.testing.assert_allclose(ex.f(values), np.tanh(values), rtol=3e-7)
    ex.main()
    assert ex.counts[0] == {"neg": 2, "tanh": 1} and ex.counts[-1] == {"tanh": 1}


def test_extend_op():
    """In a process of its own: a defined op stays in the table of ops. By hand: softsign(2x) is
    2x / (1 + |2x|), its slope 2 / (1 + |2x|)^2.
    """
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import extend_op, numpy as np\n"
        "extend_op.main()\n"
        "value, slope = extend_op.f(np.array([-1.0, 0.0, 1.5], 'float32'))\n"
        "np.testing.assert_allclose(value, [-2 / 3, 0, 0.75], rtol=1e-6)\n"
        "np.testing.assert_allclose(slope, [2 / 9, 2, 1 / 8], rtol=1e-6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "first and second derivatives agree" in done.stdout


def test_extend_composite(capsys):
    ex = load("extend_composite")
    ex.main()
    assert [n.op.name for n in ex.step.graph.nodes].count("call") >= 1
    out = ex.step(np.array([[3.0, 3.0, -3.0, 3.0]]))  # every element over its own size
    assert out["loss"] == pytest.approx(4, rel=1e-6)
    np.testing.assert_allclose(out["grad"], [2, 2, 2, 2], rtol=1e-6)


def test_load_library(tmp_path):
    """More of it in tests/library/test_load.py, with a training step and in a bare process."""
    ex = load("load_library")
    x = gx.input("x", ("n", "m"))
    v = gx.variable(np.zeros((), "float32"), "v")
    f = gx.function([x], (gx.sum(x, axis=1), x * v), updates={v: v + 1}, name="f")
    lib = ex.Library(gx.export(f, tmp_path / "libf.so", cpu="v2"))
    for _ in range(3):
        sums, products = lib.f(np.arange(6).reshape(2, 3).astype("float32"))
    assert sums.tolist() == [3, 12] and products.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert lib.state["v"] == 3
