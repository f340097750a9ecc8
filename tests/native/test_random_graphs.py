"""Random graphs: each pass keeps meaning, native code equals the interpreter, gradients hold."""

from __future__ import annotations

import random
from collections import Counter

import native_graphs as ng
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_reference import Reference

import graphc as gx
from graphc import interpret, prim
from graphc.binding import lone_name
from graphc.errors import GraphcError, IndexOutOfRangeError
from graphc.passes import PIPELINE, load_pass
from graphc.text import parse
from graphc.verify import verify

SHARDS, EACH = 8, 132  # of which some are alike
PASSES = [p for p in dict.fromkeys(PIPELINE) if p != "fastmath"]


def profile(examples: int):
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, print_blob=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def stages(g, arrays, sizes):
    """The optimised graph; every pass on the way is checked."""
    reference = Reference(g, arrays, sizes)
    for name in PASSES:
        run = load_pass(name)
        after = run(g)
        verify(after)
        assert str(parse(str(after))) == str(after), f"{name}: text\n{after}"
        if name != "fuse":  # which makes kernels of kernels
            assert str(run(after)) == str(after), f"{name} is not idempotent\n{g}\nbecomes\n{after}"
        known = {k: sizes[k] for k in after.dims()}
        got, _ = interpret.evaluate(after, arrays, dims=known)
        reference.check(got, f"pass {name}")
        g = after
    return g, got


@pytest.mark.parametrize("shard", range(SHARDS))
def test_passes_and_native_code(shard, record_property):
    ops, seen = Counter(), {}

    # half of them short, which take a third of the time
    @given(seed=st.integers(0, 2**32), steps=st.integers(5, 20) | st.integers(5, 60))
    @profile(EACH)
    def run(seed, steps):
        made = ng.make(f"{shard}:{seed}", steps)
        f = ng.function(made)
        checked = False
        for k, sizes in enumerate(ng.SIZES[(seed + j) % len(ng.SIZES)] for j in (0, 1, 2)):
            arrays = made.feed(sizes, seed + k)
            known = {d: sizes[d] for d in f.graph.dims()}
            try:
                interpret.evaluate(f.graph, arrays, dims=known)
            except GraphcError as e:
                check_fails(f, arrays, known, e)
                continue
            if not checked:
                stages(f.graph, arrays, sizes)
                checked = True
            got = f(*arrays, **extra(f, known))
            Reference(f.optimized, arrays, sizes).check(got, f"native code, {sizes}")
        assert f.compilations == 1
        seen[seed, steps] = len(f.graph.nodes)
        ops.update(n.op.name for n in f.graph.nodes)
        ops.update("fused" for n in f.optimized.nodes if n.op.name == "fused")
        ops["input"] += len(f.graph.inputs)

    run()
    missing = set(ng.OWN) - set(ops)
    assert not missing, f"ops that no graph has: {sorted(missing)}"
    record_property("random graphs", len(seen))
    record_property("graph sizes", f"{min(seen.values())} to {max(seen.values())} nodes")
    record_property("ops", dict(sorted(ops.items())))


def check_fails(f, arrays, known, error):
    """Native code fails for the same reason; an index that reads no element is not looked at."""
    try:
        f(*arrays, **extra(f, known))
    except GraphcError as e:
        assert isinstance(e, type(error)), f"{error}\n{e}\n{f.graph}"
    else:
        assert isinstance(error, IndexOutOfRangeError), f"did not raise: {error}\n{f.graph}"


def extra(f, known):
    """Dimensions that stand alone in no input are given by name."""
    return {k: v for k, v in known.items() if k not in lone(f)}


def lone(f):
    return {lone_name(s) for v in f.graph.inputs for s in v.type.shape} - {None}


# -- gradients ------------------------------------------------------------------------------------


class Smooth:
    """Values of moderate size, made by ops that are smooth where they are used."""

    def __init__(self, rng):
        self.rng = rng
        self.inputs = [
            gx.input(f"x{i}", s, "float64")
            for i, s in enumerate([("b", 4), (4,), ("b",), (4, 3)])
        ]
        self.idx = gx.input("i", (3,), "int64")
        self.mask = gx.input("m", ("b", 4), "bool")
        self.values = list(self.inputs)

    def step(self):
        x = self.rng.choice(self.values[-6:])
        y = self.rng.choice(self.values)
        kind = self.rng.choice(self.KINDS)
        self.values.append(gx.sin(getattr(self, kind)(x, y)))

    def unary(self, x, y):
        return self.rng.choice((
            gx.tanh, gx.atan, gx.erf, gx.cos, gx.exp, gx.expm1, gx.negative, gx.stop_gradient,
            lambda v: gx.log(v * v + 1), lambda v: gx.log1p(v * v), lambda v: gx.sqrt(v * v + 1),
            lambda v: gx.rsqrt(v * v + 1), lambda v: gx.lgamma(v * v + 1),
            lambda v: prim.polygamma(v * v + 1, 1),
        ))(x)

    def binary(self, x, y):
        y = y if y.type is x.type else x * 0.7 + 0.2
        return self.rng.choice((
            lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b,
            lambda a, b: gx.atan2(a, b * b + 1),
            lambda a, b: a / (b * b + 1), lambda a, b: gx.pow(a * a + 0.5, b),
        ))(x, y)

    def reduce(self, x, y):
        axis = self.rng.randrange(x.ndim) if x.ndim else None
        if x.ndim and self.rng.random() < 0.3:
            return gx.prod(gx.tanh(x) + 1.5, axis=axis) if x.ndim else x
        return gx.sum(x, axis=axis) if x.ndim else x

    def scan(self, x, y):
        if not x.ndim:
            return x
        f = self.rng.choice((
            prim.cumsum, lambda v, a, r: prim.cumprod(gx.cos(v), a, r),
            lambda v, a, r: prim.linear_recurrence(gx.cos(v), v, a, r),
        ))
        return f(x, self.rng.randrange(x.ndim), self.rng.random() < 0.5)

    def product(self, x, y):
        a, b = self.inputs[0], self.inputs[3]
        return self.rng.choice((lambda: gx.cos(a) @ b, lambda: gx.sin(a) @ self.inputs[1],
                                lambda: (a @ b) @ b.T))()

    def layout(self, x, y):
        if not x.ndim:
            return x
        return self.rng.choice((
            lambda: x.T if x.ndim == 2 else x[::-1], lambda: x[..., 1:] if x.shape[-1] == 4 else x,
            lambda: gx.concat([x, x * 0.5], axis=-1), lambda: gx.reshape(x, (-1,)),
            lambda: gx.pad(x, 1), lambda: gx.flip(x, axis=0),
        ))()

    def index(self, x, y):
        a = self.inputs[0] * (x if x.type is self.inputs[0].type else 1.5)
        return self.rng.choice((
            lambda: gx.take(a, self.idx, axis=1), lambda: a.at[:, self.idx].add(0.5),
            lambda: gx.where(self.mask, a, gx.cos(a)), lambda: a.at[:, 1:3].set(0.25),
        ))()

    KINDS = ("unary", "unary", "binary", "binary", "reduce", "scan", "product", "layout", "index")


@pytest.mark.parametrize("shard", range(4))
def test_gradients(shard, record_property):
    seen = set()

    @given(seed=st.integers(0, 2**32), steps=st.integers(2, 12))
    @profile(30)
    def run(seed, steps):
        rng = random.Random(f"{shard}:{seed}")
        s = Smooth(rng)
        for _ in range(steps):
            s.step()
        used = s.values[len(s.inputs) :]
        cost = sum((gx.sum(v * 0.3) for v in used[-4:]), gx.constant(np.float64(0)))
        inputs = [*s.inputs, s.idx, s.mask]
        gradients = gx.grad(cost, s.inputs, unconnected="zero")
        f = gx.function(inputs, [cost, *gradients], name="gradients")
        for b in (3, 1, 0):
            draw = np.random.default_rng(seed + b)
            arrays = [draw.normal(size=[b if isinstance(d, gx.Dim) else d for d in t.type.shape])
                      for t in s.inputs]
            arrays += [draw.integers(0, 4, 3), draw.random((b, 4)) < 0.5]
            want, _ = interpret.evaluate(f.graph, arrays)
            for k, (a, w) in enumerate(zip(f(*arrays), want, strict=True)):
                scale = 1e-9 * (1 + np.max(np.abs(w), initial=0))
                assert np.allclose(a, w, rtol=1e-7, atol=scale), f"native, output {k}\n{f.graph}"
            if b == 3:
                check_differences(f, arrays, want, len(s.inputs), draw)
        seen.add((seed, steps))

    run()
    record_property("random gradients", len(seen))


def check_differences(f, arrays, want, count, rng):
    """The gradients along one direction, against central differences of native code."""
    if "stop_gradient" in {n.op.name for n in f.graph.nodes}:
        return
    step = 1e-5
    ways = [rng.normal(size=a.shape) for a in arrays[:count]]
    ends = [
        float(f(*(a + sign * step * w for a, w in zip(arrays, ways, strict=False)),
                *arrays[count:])[0])
        for sign in (1, -1)
    ]
    difference = (ends[0] - ends[1]) / (2 * step)
    slope = sum(float((g * w).sum()) for g, w in zip(want[1:], ways, strict=True))
    size = sum(float(np.abs(g * w).sum()) for g, w in zip(want[1:], ways, strict=True))
    assert abs(difference - slope) <= 1e-5 * (1 + size), (
        f"differences {difference}, gradients {slope}\n{f.graph}"
    )
