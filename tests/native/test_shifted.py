"""Loads that begin beside each other: what is shifted in registers is what was in memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.emission import abreast
from graphc.codegen.machine import target

SHIFTS = ((0, 1), (0, 1, 2), (2, 0), (0, 1, 3, 4), (0, 7), (0, 8), (0, 15), (0, 16), (0, 9, 31))
SIZES = (32, 33, 63, 64, 65, 95, 128, 129, 161, 400, 1063)


def stencil(x, shifts):
    """Sums of neighbours, which are whole numbers, so that any order of terms gives them."""
    n = x.shape[-1] - max(shifts)
    total = x[..., shifts[0] : shifts[0] + n]
    for k, s in enumerate(shifts[1:], 2):
        total = total + k * x[..., s : s + n]
    return total


@pytest.fixture
def at(monkeypatch):
    """Compiles for a level, from now on."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")

    def use(level: str) -> None:
        if level not in levels():
            pytest.skip("AVX-512 alone shifts vectors")
        here = at_level(level)
        monkeypatch.setattr(target, "host", lambda: here)

    return use


def numbers(n, dtype):
    return np.random.default_rng(n).integers(-9, 9, n).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shifts", SHIFTS)
def test_neighbours(dtype, shifts) -> None:
    x = gx.input("x", ("n",), dtype)
    f = gx.function([x], [stencil(x, shifts), gx.sum(gx.abs(stencil(x, shifts)))])
    for n in SIZES:
        a = numbers(n, dtype)
        want = stencil(a, shifts)
        got, total = f(a)
        np.testing.assert_array_equal(got, want)
        assert total == np.abs(want).sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n, m", [(3, 40), (5, 65), (9, 200), (4, 1063)])
@pytest.mark.parametrize("named", [False, True])
def test_of_rows(dtype, n, m, named) -> None:
    """Also where edges are padded, so that some vectors have conditions and others none."""
    a = np.stack([numbers(m + k, dtype)[:m] for k in range(n)])
    x = gx.input("x", ("n", "m") if named else (n, m), dtype)
    edges = stencil(gx.pad(x, ((0, 0), (2, 2))), (0, 1, 2, 3, 4))
    nine = sum((3 * i + j + 1) * x[i : i + x.shape[0] - 2, j : j + x.shape[1] - 2]
               for i in range(3) for j in range(3))
    some = x[:, 1:] - x[:, :-1]
    f = gx.function([x], [edges, nine, gx.sum(gx.abs(stencil(x, (0, 1, 2))), axis=1),
                          gx.max(stencil(x, (0, 1)), axis=0), gx.argmax(some, axis=1),
                          gx.any(some > 17, axis=1)])
    got = f(a)
    np.testing.assert_array_equal(got[0], stencil(np.pad(a, ((0, 0), (2, 2))), (0, 1, 2, 3, 4)))
    np.testing.assert_array_equal(got[1], sum(
        (3 * i + j + 1) * a[i : i + n - 2, j : j + m - 2] for i in range(3) for j in range(3)))
    np.testing.assert_array_equal(got[2], np.abs(stencil(a, (0, 1, 2))).sum(1))
    np.testing.assert_array_equal(got[3], stencil(a, (0, 1)).max(0))
    np.testing.assert_array_equal(got[4], np.diff(a).argmax(1))
    np.testing.assert_array_equal(got[5], (np.diff(a) > 17).any(1))


def heat(xp, u):
    return u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])


@pytest.mark.parametrize("make", [
    heat, lambda xp, u: xp.sum((u[1:] - u[:-1]) ** 2), lambda xp, u: xp.sum(heat(xp, u) ** 2),
    lambda xp, u: xp.sqrt(xp.abs(u[4:] * u[:-4])),
])
def test_every_level_has_the_same_bits(make, at) -> None:
    """And none but AVX-512 shifts."""
    a = np.random.default_rng(3).normal(size=5001).astype("f4")
    found = {}
    for level in [v for v in levels() if v != "v2"]:
        at(level)
        x = gx.input("x", ("n",))
        f = gx.function([x], make(gx, x))
        found[level] = [f(a[k : 5001 - k]).tobytes() for k in (0, 1, 40, 2400)]
        assert ("valign" in f.assembly()) == (level == "v4")
    assert len({tuple(bits) for bits in found.values()}) == 1


@pytest.mark.parametrize("make, loads", [
    (heat, 6), (lambda xp, u: u[1:] * u[:-1], 5), (lambda xp, u: u[40:] * u[:-40], 8),
    (lambda xp, u: xp.sum((u[1:] - u[:-1]) ** 2), 5),
])
def test_what_is_read(make, loads, at) -> None:
    """By four vectors: each once, and one more for each neighbour."""
    at("v4")
    x = gx.input("x", ("n",))
    text = gx.function([x], make(gx, x)).llvm_ir()
    most = max(
        len(re.findall(r"load (?:volatile )?<16 x (?:float|i32)>, ptr %[^,]*, align 4", block))
        for block in re.split(r"\n[\w.]+:", text)
    )
    assert most == loads


def test_sums_that_compute_more_go_by_single_vectors(at, monkeypatch) -> None:
    at("v4")
    x = gx.input("x", ("n",))
    cost = gx.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
    texts = []
    for most in (abreast.MOSTLY_LOADS, 99):
        monkeypatch.setattr(abreast, "MOSTLY_LOADS", most)
        texts.append(gx.function([x], cost).assembly())
    assert "valign" not in texts[0] and "valign" in texts[1]
