"""Round trips of real graphs at every stage of the pipeline, and of what they compute."""

from __future__ import annotations

import sys

import numpy as np
from sample_graphs import B, every_op, given, one

import graphc as gx
from graphc import ir
from graphc.interpret import evaluate
from graphc.passes import PIPELINE, load_pass
from graphc.text import load, parse, save, to_text
from graphc.types import f32
from graphc.verify import verify


def training_step() -> ir.Graph:
    rng = np.random.default_rng(0)
    x, y = gx.input("x", ("batch", 8)), gx.input("y", ("batch",), "int64")
    w1 = gx.variable(rng.normal(size=(8, 16)), "w1", dtype="float32")
    w2 = gx.variable(rng.normal(size=(16, 3)), "w2", dtype="float32")
    with gx.name_scope("net"):
        hidden = gx.nn.relu(x @ w1)
        logits = gx.nn.softmax(hidden, axis=-1) @ w2
    loss = gx.nn.cross_entropy(logits, y)
    updates = gx.optim.adam([w1, w2], gx.grad(loss, [w1, w2]), lr=1e-3)
    return gx.function([x, y], {"loss": loss}, updates=updates, name="step").graph


def same_results(a: ir.Graph, b: ir.Graph, arrays: list[np.ndarray]) -> None:
    outs, updates = evaluate(a, arrays)
    others, new = evaluate(b, arrays)
    for p, q in zip([*outs, *updates.values()], [*others, *new.values()], strict=True):
        assert p.dtype == q.dtype and p.tobytes() == q.tobytes()


def test_every_stage(tmp_path):
    g = training_step()
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(5, 8)).astype(np.float32), np.array([0, 1, 2, 1, 0])]
    for name in ("declared", *PIPELINE):
        if name != "declared":
            g = load_pass(name)(g)
        save(g, tmp_path / f"{name}.gir")
        loaded = load(tmp_path / f"{name}.gir")
        verify(loaded)
        assert to_text(loaded) == to_text(g)
        same_results(g, loaded, arrays)
    assert "fused" in to_text(g) and "loc(\"test_stages.py\":" in to_text(g)


def test_every_op_computes_the_same_after_a_round_trip():
    g = every_op()
    parsed = parse(to_text(g), {"@w": np.ones((3, 2), np.float32)})
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(4, 3)).astype(np.float32) for _ in range(2))
    k = rng.integers(1, 9, (4, 3)).astype(np.int32)
    same_results(g, parsed, [x, y, np.array([0, -1]), k])


def lines_run(fn, *args):
    """(result, how many lines of Python ran for it)."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = fn(*args)
    finally:
        sys.settrace(before)
    return result, count


def test_large_graphs_take_work_in_proportion():
    work = []
    for n in (1_000, 2_000):
        x = v = given("x", f32, B, 3)
        for _ in range(n // 2):
            v = one("reverse", one("add", v, x), axes=(0,))
        text, printing = lines_run(to_text, ir.collect("f", [x], [v]))
        parsed, parsing = lines_run(parse, text)
        assert len(parsed.nodes) == n
        work.append((printing, parsing))
    assert all(twice <= 2.1 * once for once, twice in zip(*work, strict=True))
