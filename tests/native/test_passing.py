"""Products whose blocks pass through scratch on their way into a state: their bits, and memory."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx


def updated(a, b, w, **options):
    """w - a.T @ b / 8, as a state that is written in place, and as an output."""
    x, y = gx.input("x", ("k", a.shape[1]), a.dtype), gx.input("y", ("k", b.shape[1]), a.dtype)
    state = gx.variable(w, "w")
    new = state - 0.125 * (gx.matrix_transpose(x) @ y)
    step = gx.function([x, y], gx.sum(x), updates=[(state, new)], name="step", **options)
    want = gx.function([x, y], new, name="want")(a, b)
    step(a, b)
    return state.value, want, step


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n"), [(5, 3), (12, 700), (13, 64), (241, 512), (500, 129)])
def test_bits_of_a_product_that_is_stored(dtype, m, n):
    rng = np.random.default_rng(m)
    for k in (0, 1, 32, 33, 400):
        a, b, w = (rng.normal(size=s).astype(dtype) for s in ((k, m), (k, n), (m, n)))
        got, want, _ = updated(a, b, w)
        assert got.tobytes() == want.tobytes(), k
        close = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, w - a.T @ b / 8, atol=close * (1 + k))


def test_any_number_of_threads(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    rng = np.random.default_rng(0)
    a, b, w = (rng.normal(size=s).astype("f4") for s in ((300, 700), (300, 400), (700, 400)))
    for threads in (1, 2, 4):
        got, want, _ = updated(a, b, w, threads=threads)
        assert got.tobytes() == want.tobytes(), threads


def test_members_of_a_batch():
    rng = np.random.default_rng(0)
    a, b, w = (rng.normal(size=s).astype("f4") for s in ((3, 50, 20), (3, 20, 70), (3, 50, 70)))
    x, y = gx.input("x", (3, 50, 20)), gx.input("y", (3, 20, 70))
    state = gx.variable(w, "w")
    gx.function([x, y], None, updates=[(state, state + x @ y)], name="step")(a, b)
    np.testing.assert_allclose(state.value, w + a @ b, atol=1e-4)


def test_no_room_for_the_product():
    a, b = np.ones((1, 784), "f4"), np.ones((1, 512), "f4")
    _, _, step = updated(a, b, np.ones((784, 512), "f4"))
    text = step.memory_plan()
    assert f"{784 * 512 * 4}" not in text, text
