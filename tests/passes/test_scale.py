"""Large and deep graphs: linear time, default recursion limit."""

from __future__ import annotations

import sys
import time

import numpy as np
from sample_graphs import constant, given, one

from graphc import ir
from graphc.ir import Graph
from graphc.passes import PIPELINE, run_pipeline
from graphc.types import f32

PASSES = tuple(p for p in PIPELINE if p != "fuse")


def mixed(nodes: int) -> Graph:
    """Elementwise ops, products, reductions with broadcasts, constants and transposes."""
    x = given("x", f32, 32, 64)
    w = given("w", f32, 64, 64)
    values, rng, made = [x], np.random.default_rng(0), 0
    while made < nodes:
        a, b = values[-1], values[rng.integers(max(0, len(values) - 20), len(values))]
        kind, made = rng.integers(0, 7), made + 1
        if kind == 0:
            v = one("dot", a, w, contract=((1,), (0,)), batch=((), ()))
        elif kind == 1:
            c = constant(np.float32(rng.normal()))
            v = one("mul", a, one("broadcast", c, shape=(32, 64), axes=()))
            made += 2
        elif kind == 2:
            s = one("reduce_sum", a, axes=(1,))
            v = one("sub", a, one("broadcast", s, shape=(32, 64), axes=(0,)))
            made += 2
        elif kind == 3:
            t = one("transpose", a, perm=(1, 0))
            v = one("transpose", t, perm=(1, 0))
            made += 1
        elif kind == 4:
            v = one("tanh", a)
        else:
            v = one("add" if kind == 5 else "maximum", a, b)
        values.append(v)
    return ir.collect("mixed", [x, w], values[-1:])


def chain(depth: int, *ops: str) -> Graph:
    x = v = given("x", f32, 4)
    for i in range(depth):
        v = one(ops[i % len(ops)], v)
    return ir.collect("chain", [x], [v])


def concats(count: int) -> Graph:
    """What a loop collects, an array at a time."""
    x = v = given("x", f32, 4)
    for _ in range(count):
        v = one("concat", v, x, axis=0)
    return ir.collect("concats", [x], [v])


def seconds(g: Graph) -> float:
    """Of this process: other programs may be running."""
    start = time.process_time()
    run_pipeline(g, PASSES, verify=False)
    return time.process_time() - start


def yardstick() -> float:
    """A million dictionary writes: 0.11 s where the passes are to take less than 1 s."""
    start = time.process_time()
    table = {}
    for i in range(1_000_000):
        table[i & 4095, "node"] = i
    return time.process_time() - start


def test_ten_thousand_nodes() -> None:
    """In the time of this Python, whatever the machine is."""
    g = mixed(10_000)
    times = [(seconds(g), yardstick()) for _ in range(3)]
    best, unit = (min(column) for column in zip(*times, strict=True))
    assert best < 9 * unit, f"{best:.2f} s, {best / unit:.1f} times {unit:.2f} s"


def test_time_is_linear() -> None:
    small, large = mixed(4_000), mixed(16_000)
    factors = [seconds(large) / seconds(small) for _ in range(3)]
    assert min(factors) < 8, f"4 times the nodes take {min(factors):.1f} times as long"


def test_concats_of_concats() -> None:
    """They are flattened once, from the last one on."""
    small, large = concats(500), concats(4_000)
    factors = [seconds(large) / seconds(small) for _ in range(3)]
    assert min(factors) < 24, f"8 times the concats take {min(factors):.1f} times as long"
    (n,) = run_pipeline(large, PASSES).nodes
    assert len(n.args) == 4_001


def test_fifty_thousand_deep() -> None:
    assert sys.getrecursionlimit() <= 1000
    assert len(run_pipeline(chain(50_000, "tanh", "sin"), PASSES).nodes) == 50_000
    assert len(run_pipeline(chain(50_000, "neg"), PASSES).nodes) == 0


def test_deep_stable_and_fastmath_forms() -> None:
    x = v = given("x", f32, 4)
    for _ in range(5_000):
        v = one("log", one("exp", v))
    g = ir.collect("chain", [x], [v])
    assert len(run_pipeline(g, ("stabilize",)).nodes) == 0
    assert len(run_pipeline(g, ("fastmath",), fastmath=True).nodes) == 0


def test_nested_calls() -> None:
    a = given("a", f32, 4)
    body = ir.collect("leaf", [a], [one("neg", a)])
    for i in range(300):
        a = given("a", f32, 4)
        inner = one("call", a, name=f"level{i}", body=body)
        body = ir.collect(f"level{i}", [a], [one("exp", inner)])
    x = given("x", f32, 4)
    g = ir.collect("nested", [x], [one("call", x, name="top", body=body)])
    assert [n.op.name for n in run_pipeline(g, PASSES).nodes] == ["neg"] + ["exp"] * 300
    for name in PASSES:  # each by itself, on the nested graph
        run_pipeline(g, (name,), fastmath=True)
