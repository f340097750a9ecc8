"""Rows of elementwise kernels side by side: what they share is read once for several."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.codegen.machine.target import host

RNG = np.random.default_rng(29)
# around vectors, rows side by side and items of them; more elements than rows go beside
SIZES = [(0, 9), (9, 0), (1, 40), (3, 33), (4, 64), (7, 31), (8, 100), (13, 130), (64, 65),
         (101, 200), (3, 4100), (2000, 700), (9, 1500)]


def normalised(xp, x, m, s, g, b):
    return (x - m) * s * g + b


def numbers(dtype: str, *shapes: tuple[int, ...], at_end: bool = True) -> list[np.ndarray]:
    arrays = [guarded(s, dtype, at_end) for s in shapes]
    for a in arrays:
        a[...] = RNG.normal(size=a.shape)
    return arrays


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("declared", ["sizes", "rows", "all"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_share_what_scales_them(dtype, declared, threads):
    f = None
    for n, c in SIZES:
        shape = {"sizes": (n, c), "rows": ("n", c), "all": ("n", "c")}[declared]
        if f is None or declared != "all":
            x = gx.input("x", shape, dtype)
            rest = [gx.input(k, shape[1:], dtype) for k in "msgb"]
            f = gx.function([x, *rest], normalised(gx, x, *rest), threads=threads)
        for at_end in (True, False):
            given = numbers(dtype, (n, c), *[(c,)] * 4, at_end=at_end)
            out = guarded((n, c), dtype, at_end)
            f(*given, out=out)
            np.testing.assert_array_equal(out, normalised(np, *given))


def test_results_that_are_large_by_the_call_alone():
    """Two of them, by rows that are known: then no rows go beside, and none is left out."""
    x = gx.input("x", (8, "c"))
    rest = [gx.input(k, ("c",)) for k in "msgb"]
    f = gx.function([x, *rest], [normalised(gx, x, *rest), (x - rest[0]) * rest[1]])
    for c in (100, 150_000):
        given = numbers("float32", (8, c), *[(c,)] * 4)
        one, other = f(*given)
        np.testing.assert_array_equal(one, normalised(np, *given))
        np.testing.assert_array_equal(other, (given[0] - given[1]) * given[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channels_of_windows(dtype):
    """A depthwise convolution: nine weights of a channel are the same in all places of an image."""
    def convolved(u, w):
        n, m = u.shape[0] - 2, u.shape[1] - 2
        return sum(u[i : n + i, j : m + j] * w[i, j] for i in range(3) for j in range(3))

    for n, m, c in ((3, 3, 32), (4, 9, 40), (10, 7, 64), (12, 15, 130)):
        u, w = gx.input("u", (n, m, c), dtype), gx.input("w", (3, 3, c), dtype)
        f = gx.function([u, w], convolved(u, w))
        given = numbers(dtype, (n, m, c), (3, 3, c))
        out = guarded((n - 2, m - 2, c), dtype)
        f(*given, out=out)
        np.testing.assert_array_equal(out, convolved(*given))


def test_states_are_written_over():
    begun, rest = RNG.normal(size=(50, 64)), RNG.normal(size=(4, 64))
    state = gx.variable(begun, "state")
    given = [gx.input(k, (64,), "float64") for k in "msgb"]
    f = gx.function(given, state * 1, updates={state: normalised(gx, state, *given)})
    f(*rest)
    np.testing.assert_array_equal(f(*rest), normalised(np, begun, *rest))


def test_what_four_rows_share_is_read_once(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")

    def traffic(shared: int) -> float:
        """Vectors read for each that is written."""
        x = gx.input("x", (64, 64), "float64")
        rest = [gx.input(f"p{k}", (64,), "float64") for k in range(shared)]
        text = gx.function([x, *rest], sum(rest, x)).llvm_ir()
        read = re.findall(r" = load (?:volatile )?<\d+ x", text)
        return len(read) / len(re.findall(r"store <\d+ x", text))

    assert traffic(2) == 3          # too little to gain by
    assert traffic(3) == (1 + 3 / 4 if host().registers >= 32 else 4)
