"""The same bits for any number of threads, on both CPU levels with fused multiply-add, and for a
row alone and in a batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(0)


def weights(*shape):
    return (np.random.default_rng(sum(shape)).normal(size=shape) / 8).astype("f4")


def row_wise(x):
    """Functions of each row of x: f32[n,64]."""
    w1, b1, w2 = (gx.constant(weights(*s)) for s in ((64, 96), (96,), (96, 10)))
    hidden = gx.nn.gelu(x @ w1 + b1)
    points = gx.constant(weights(40, 16))
    apart = gx.sqrt(gx.sum((x[:, None, :16] - points) ** 2, axis=2))
    return {
        "distances": apart, "their gradient": gx.grad(gx.sum(gx.sin(apart)), x),
        "softmax": gx.nn.softmax(x, axis=1),
        "log_softmax": gx.nn.log_softmax(x, axis=1),
        "layer_norm": gx.nn.layer_norm(x),
        "sum": gx.sum(gx.exp(x), axis=1),
        "cumulative": gx.cumulative_sum(x, axis=1),
        "of 8": gx.var(x[:, 3:11], axis=1), "of 13": gx.var(x[:, 3:16], axis=1),
        "slopes of 13": gx.exp(x[:, 3:16] - gx.logsumexp(x[:, 3:16], axis=1, keepdims=True)),
        "mlp": gx.nn.softmax(hidden @ w2, axis=1),
        "input gradient": gx.grad(gx.sum(gx.sin(gx.nn.layer_norm(hidden @ w2))), x),
    }


def everything(x):
    """The above, and what mixes rows."""
    y = gx.nn.layer_norm(x, gx.constant(weights(64)), gx.constant(weights(64)))
    chain = gx.tanh(gx.sin(gx.exp(gx.cos(x * 3) * 0.5)) + gx.log1p(x * x)) * gx.erf(x)
    v = gx.variable(weights(64, 64), "v")
    cost = gx.mean(gx.nn.log_softmax(gx.tanh(x @ v), axis=1) ** 2)
    points = gx.variable(weights(70, 8), "points")
    apart = gx.sum(gx.sqrt(gx.sum((x[:, None, :8] - points) ** 2, axis=2)))
    scale = gx.variable(weights(13), "scale")
    ends = gx.sum(gx.logsumexp(x[:, 3:16] * scale, axis=1))
    return row_wise(x) | {
        "ends of 13": ends, "column sums of 13": gx.grad(ends, scale),
        "norms of 3": gx.sum(gx.sqrt(gx.sum(x[:, :3] ** 2, axis=1))),
        "greatest of 20": gx.mean(gx.max(x[:, 5:25], axis=1)),
        "norms of columns": gx.sum(gx.sqrt(gx.sum(x[:4] ** 2, axis=0))),
        "sum of distances": apart, "gradient of points": gx.grad(apart, points),
        "sum of all": gx.sum(x), "sum of rows": gx.sum(x, axis=0), "mean": gx.mean(chain),
        "product": gx.prod(x * 0.01 + 1, axis=0), "max": gx.max(x, axis=0),
        "variance": gx.var(x, axis=0), "chain": chain, "running": gx.cumulative_sum(x, axis=0),
        "gram": x.T @ x, "rows": x @ gx.constant(weights(64, 33)),
        "regression": gx.tanh(x @ gx.constant(weights(64))) @ x,
        "norm gradient": gx.grad(gx.sum(gx.cos(y)), x),
        "weight gradient": gx.grad(cost, v), "cost": cost,
        "wide": gx.sum(gx.sin(gx.astype(x, "float64") * 7), axis=0),
        "half": gx.sum(gx.astype(x, "float16"), axis=1),
    }


def outputs(n, threads=None):
    x = gx.input("x", ("n", 64))
    made = everything(x)
    f = gx.function([x], made, threads=threads, name="everything")
    return f(np.random.default_rng(1).normal(size=(n, 64)).astype("f4"))


def test_any_number_of_threads(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    for n in (5, 4001):  # the larger is split
        want = outputs(n, threads=1)
        for threads in (2, 4):
            got = outputs(n, threads=threads)
            for k, a in want.items():
                assert a.tobytes() == got[k].tobytes(), f"{k}, {n} rows, {threads} threads"


def test_any_number_of_threads_on_static_sizes():
    x = gx.input("x", (700, 513))
    made = {"all": gx.sum(x * x), "rows": gx.sum(x, axis=1), "columns": gx.sum(x, axis=0),
            "max": gx.max(x), "softmax": gx.nn.softmax(x, axis=0), "product": x @ x.T}
    a = RNG.normal(size=(700, 513)).astype("f4")
    runs = [gx.function([x], made, threads=t)(a) for t in (1, 2, 4)]
    for k, first in runs[0].items():
        assert all(first.tobytes() == r[k].tobytes() for r in runs), k


def test_a_row_alone_equals_the_row_in_a_batch():
    x = gx.input("x", ("n", 64))
    f = gx.function([x], row_wise(x))
    a = RNG.normal(size=(1000, 64)).astype("f4")
    whole = f(a)
    for size in (1, 2, 7, 33):
        for start in (0, 5, 400, 1000 - size):
            part = f(a[start : start + size])
            for k, b in part.items():
                assert b.tobytes() == whole[k][start : start + size].tobytes(), (k, size, start)
    assert f.compilations == 1


PROGRAM = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_determinism import outputs
np.savez(sys.argv[2], **{f"{k} {n}": v for n in (5, 2001) for k, v in outputs(n).items()})
"""


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    """The outputs of each CPU level and thread count, from processes of their own."""
    from graphc.codegen.machine.target import host

    if host().arch not in ("x86_64", "amd64"):
        pytest.skip("levels are of x86-64")
    own = "v4" if host().masked else "v3" if host().has_fma else "v2"
    folder, running = tmp_path_factory.mktemp("levels"), {}
    for level, threads in (("v2", 2), ("v3", 1), ("v3", 2), ("v4", 2)):
        if level <= own:
            to = folder / f"{level}-{threads}.npz"
            env = os.environ | {"GRAPHC_CPU": level, "GRAPHC_NUM_THREADS": str(threads)}
            args = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(to)]
            running[level, threads] = to, subprocess.Popen(args, env=env)
    found = {}
    for key, (to, process) in running.items():
        assert process.wait() == 0, key
        with np.load(to) as file:
            found[key] = dict(file)
    return found


def test_same_bits_on_levels_with_fused_multiply_add(levels):
    want = levels.get(("v3", 1))
    if want is None:
        pytest.skip("this machine has no fused multiply-add")
    for key, got in levels.items():
        for k, a in want.items() if key[0] != "v2" else ():
            assert a.tobytes() == got[k].tobytes(), f"{k} on {key}"


def test_the_level_without_it_is_close(levels):
    best = levels[max(levels)]
    for k, a in levels["v2", 2].items():
        tolerance = 1e-2 if a.dtype == np.float16 else 2e-4
        np.testing.assert_allclose(a, best[k], rtol=tolerance, atol=tolerance, err_msg=k)
