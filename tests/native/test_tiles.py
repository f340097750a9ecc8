"""Sums over few elements that many results share, and sums of rows side by side in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(15)
# around vectors, rows side by side, blocks of rows and of columns
SIZES = [(0, 9), (9, 0), (1, 1), (7, 15), (8, 16), (9, 17), (63, 65), (64, 64), (66, 130),
         (129, 63), (3, 4100)]


def in_order(terms):
    """Sums over the last axis, one element after the other."""
    total = np.zeros(terms.shape[:-1], terms.dtype)
    for k in range(terms.shape[-1]):
        total += terms[..., k]
    return total


@pytest.mark.parametrize("k", [1, 2, 5, 16, 17, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances_of_any_number_of_points(k, dtype):
    x, y = gx.input("x", ("n", k), dtype), gx.input("y", ("m", k), dtype)
    d = x[:, None, :] - y[None, :, :]
    squares, weighed = gx.sum(d * d, axis=2), gx.sum(gx.abs(d) * y, axis=2)
    f = gx.function([x, y], [squares, weighed, gx.max(d, axis=2)])
    for n, m in SIZES:
        a, b = RNG.normal(size=(n, k)).astype(dtype), RNG.normal(size=(m, k)).astype(dtype)
        d = a[:, None, :] - b[None, :, :]
        want = [in_order(d * d), in_order(np.abs(d) * b), d.max(axis=2)]
        for got, w in zip(f(a, b), want, strict=True):
            np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances_of_points_of_any_number_of_coordinates(dtype):
    """Of few, the bits are those of a number that is declared; many are swept by vectors."""
    x, y = gx.input("x", ("n", "k"), dtype), gx.input("y", ("m", "k"), dtype)
    squares = gx.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2)
    f = gx.function([x, y], [squares, gx.sum(squares)], name="undeclared")
    assert {"undeclared.k0.short", "undeclared.k0.other"} <= set(
        re.findall(r"call void @(undeclared[.\w]+)\(", f.llvm_ir())
    )
    most = 204 if dtype == "float32" else 102
    for k in (0, 1, 2, 3, 17, most, most + 1, 300):
        for n, m in [(0, 9), (9, 0), (1, 1), (9, 17), (66, 130)]:
            a, b = RNG.normal(size=(n, k)).astype(dtype), RNG.normal(size=(m, k)).astype(dtype)
            want = in_order((a[:, None, :] - b[None, :, :]) ** 2)
            got, total = f(a, b)
            if k <= most:
                np.testing.assert_array_equal(got, want)
            np.testing.assert_allclose(got, want, rtol=1e-5)
            np.testing.assert_allclose(total, want.sum(dtype="f8"), rtol=1e-5)
    assert f.compilations == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_totals_beside_distances(dtype):
    x, y = gx.input("x", ("n", 8), dtype), gx.input("y", ("m", 8), dtype)
    d = x[:, None, :] - y[None, :, :]
    squares = gx.sum(d * d, axis=2)
    f = gx.function([x, y], [squares, gx.sum(squares), gx.max(squares * 2)])
    for n, m in SIZES:
        if n * m:
            a, b = (7 * RNG.normal(size=(s, 8)) for s in (n, m))
            a, b = a.astype(dtype), b.astype(dtype)
            want = ((a[:, None, :].astype("f8") - b[None, :, :]) ** 2).sum(axis=2)
            got = f(a, b)
            np.testing.assert_allclose(got[0], want, rtol=1e-5)
            np.testing.assert_allclose(got[1], want.sum(), rtol=1e-6)
            np.testing.assert_array_equal(got[2], 2 * got[0].max())


@pytest.mark.parametrize("k", [7, 10, 16, 33])
@pytest.mark.parametrize("points", [5, 8, 25, "m"])
def test_sums_of_rows_side_by_side(k, points):
    """out[j, k] = the sum over i: what is read of x serves several j."""
    x, y, w = gx.input("x", ("n", k)), gx.input("y", (points, k)), gx.input("w", ("n", points))
    d = x[:, None, :] - y
    weighed = gx.expand_dims(w, axis=2) * d
    f = gx.function([x, y, w], [gx.sum(weighed, axis=0), gx.sum(weighed * d, axis=0)])
    for n in (1, 2, 100):
        m = 19 if points == "m" else points
        a, b, c = (RNG.normal(size=s).astype("f4") for s in ((n, k), (m, k), (n, m)))
        d = a[:, None, :] - b
        terms = c[:, :, None] * d
        for got, t in zip(f(a, b, c), (terms, terms * d), strict=True):
            np.testing.assert_array_equal(got, in_order(np.moveaxis(t, 0, -1)))
