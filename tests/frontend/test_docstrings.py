"""Every public name says what it does, and the examples in docstrings run."""

from __future__ import annotations

import inspect
import re
import textwrap

import numpy as np
import pytest

import graphc as gx

HOMES = {
    "": [n for n in dir(gx) if not n.startswith("_")],
    **{home: getattr(gx, home).__all__ for home in ("linalg", "nn", "optim", "random", "testing")},
}
NAMES = {
    f"{home}.{name}".strip("."): found for home, names in HOMES.items() for name in names
    if callable(found := getattr(getattr(gx, home) if home else gx, name))
}
EXAMPLE = re.compile(r"\n\n((?: {4}.*(?:\n|$))+)")


def examples(doc):
    blocks = EXAMPLE.findall(inspect.cleandoc(doc))
    return [textwrap.dedent(block) for block in blocks if "gx." in block]


def test_every_name_has_a_docstring():
    assert [name for name, f in NAMES.items() if not (f.__doc__ or "").strip()] == []
    methods = {n: m for n, m in vars(gx.Tensor).items() if inspect.isfunction(m)}
    assert [n for n, m in methods.items() if not n.startswith("_") and not m.__doc__] == []


def space():
    x, w = gx.input("x", ("batch", 64)), gx.variable(np.ones(64, "f4"), "w")
    y = gx.input("y", ("batch",))
    loss = gx.mean((x @ w - y) ** 2)
    xs, ys = np.ones((2, 64), "f4"), np.ones(2, "f4")
    step = gx.function([x, y], loss, updates=gx.optim.sgd([w], [gx.grad(loss, w)]), name="step")
    return {
        "gx": gx, "np": np, "x": x, "y": y, "w": w, "b": w, "loss": loss, "xs": xs, "ys": ys,
        "step": step, "predict": gx.function([x], x @ w, name="predict"), "params": [w],
        "key": gx.random.key(0), "q": gx.input("q", ("n", 3, 4)), "k": gx.input("k", ("n", 5, 4)),
        "batch": gx.dim("batch"), "n": 8,
    }


@pytest.mark.parametrize("name", [n for n, f in NAMES.items() if examples(f.__doc__ or "")])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    env = space()
    if name == "load":
        gx.export(env["step"], "build/libdigits.so", cpu="native")
        env |= {"x": env["xs"], "y": env["ys"]}
    if name == "nn.scaled_dot_product_attention":
        env["x"] = gx.input("x", ("batch", 8, 128))
    if name == "nn.cross_entropy":
        env |= {"w": np.ones((64, 3), "f4"), "labels": gx.input("labels", ("batch",), "int64")}
    for code in examples(NAMES[name].__doc__):
        exec(compile(code, f"gx.{name}", "exec"), env)


def test_there_are_examples():
    assert sum(bool(examples(f.__doc__ or "")) for f in NAMES.values()) >= 25
