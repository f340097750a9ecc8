"""Large and deep graphs, from declaration to native results, at the default recursion limit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from graphc import interpret

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "large_graphs.py"


@pytest.fixture(scope="module")
def large():
    """The benchmark of the same graphs, as a module."""
    spec = importlib.util.spec_from_file_location("large_graphs", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """Checking the IR after every pass takes longer than the passes."""
    monkeypatch.setenv("GRAPHC_VERIFY", "0")


@pytest.mark.parametrize("kind", ["alike", "mixed"])
def test_ten_thousand_nodes(large, kind):
    assert sys.getrecursionlimit() <= 1000
    build = getattr(large, kind)
    f, _ = large.stages(build, large.SIZES[build])
    assert len(f.graph.nodes) >= 10_000
    for rows in (5, 1):
        x = np.random.default_rng(rows).normal(size=(rows, large.WIDTH))
        want, _ = interpret.evaluate(f.graph, [x])
        for got, w in zip(f(x), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-6, atol=1e-9 * np.abs(w).max())
    assert f.compilations == 1


def test_fifty_thousand_deep(large):
    assert sys.getrecursionlimit() <= 1000
    f, _ = large.stages(large.deep, 50_000)
    assert len(f.graph.nodes) >= 100_000
    x = np.random.default_rng(0).normal(size=(3, large.WIDTH))
    y, slope = x, np.ones_like(x)
    for _ in range(25_000):
        y, slope = y * 0.9999 + x, slope * 0.9999 + 1
    got = f(x)
    assert np.array_equal(got[0], y)
    np.testing.assert_allclose(got[1], slope, rtol=1e-9)
