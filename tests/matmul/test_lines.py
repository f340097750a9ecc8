"""Products of rows that lie across lines of the cache: bits of those that begin lines."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx


def placed(a, offset):
    """A copy `offset` elements behind a line, between NaN."""
    room = np.full(a.size + 256, np.nan, a.dtype)
    begin = -room.ctypes.data % 64 // a.itemsize + 64 + offset
    out = room[begin : begin + a.size].reshape(a.shape)
    out[...] = a
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [64, 128, 136, 192, 512, 1000, 1024, 4096 + 64, 3 * 4096])
def test_bits_do_not_depend_on_where_rows_begin(k, dtype):
    rng = np.random.default_rng(k)
    A, x = gx.input("A", ("m", "k"), dtype), gx.input("x", ("k",), dtype)
    f = gx.function([A, x], [A @ x, 2 * (A @ x) + 1])
    for m in (1, 3, 4, 6, 37):
        a, v = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=k).astype(dtype)
        want = [y.tobytes() for y in f(placed(a, 0), placed(v, 0))]
        exact = a.astype("f8") @ v.astype("f8")
        for offset, other in ((1, 0), (4, 4), (7, 3), (4, 0), (0, 4), (5, 5)):
            got = f(placed(a, offset), placed(v, other))
            assert [y.tobytes() for y in got] == want, (m, offset, other)
            size = 2e-6 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(got[0], exact, rtol=size, atol=size * k)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("m", "n"), [(1100, 128), (1000, 136), (700, 192), (300, 1024), (9, 20000)]
)
def test_bits_of_rows_times_a_matrix(m, n, dtype):
    """By `stream`, and with the other product beside it."""
    rng = np.random.default_rng(n)
    A, v = gx.input("A", ("m", "n"), dtype), gx.input("v", ("m",), dtype)
    x, y = gx.input("x", ("n",), dtype), gx.input("y", (64,), dtype)
    short = gx.input("S", ("m", 64), dtype)
    f, g = gx.function([A, v], v @ A), gx.function([A, x], A.T @ (A @ x))
    h = gx.function([short, y], short.T @ (short @ y))
    a, w, u = (rng.normal(size=s).astype(dtype) for s in ((m, n), m, n))
    calls = [(f, a, w), (g, a, u), (h, a[:, :64], u[:64])]
    want = [f(placed(a, 0), placed(w, 0)).tobytes() for f, a, w in calls]
    for offset, other in ((1, 0), (4, 4), (7, 3), (0, 4)):
        got = [f(placed(a, offset), placed(w, other)) for f, a, w in calls]
        assert [z.tobytes() for z in got] == want, (offset, other)
    size = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(got[0], w.astype("f8") @ a.astype("f8"), rtol=size, atol=size * m)
