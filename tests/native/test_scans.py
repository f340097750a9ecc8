"""Running sums along each axis: rows side by side, of sizes around the number taken together."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc import prim
from graphc.codegen.emission import running

RNG = np.random.default_rng(13)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 100), (5, 64), (17, 33), (2, 3, 50)])
def test_running_sums_add_in_order(dtype, shape):
    a = (9 * RNG.normal(size=shape)).astype(dtype)
    for declared in (shape, tuple("abc"[: len(shape)])):
        x = gx.input("x", declared, dtype)
        for axis in range(len(shape)):
            f = gx.function([x], gx.cumulative_sum(x, axis=axis, dtype=dtype))
            np.testing.assert_array_equal(f(a), np.cumsum(a, axis=axis, dtype=dtype))


def test_columns_without_rows_are_not_walked():
    """An array of shape (0, n) may have any number of columns: there is nothing to do for them."""
    many = 1 << 40
    x, y = gx.input("x", ("n", "m")), gx.input("y", ("m", "n"))
    for f, empty in (
        (gx.cumulative_sum(x, axis=0), (0, many)), (gx.cumulative_sum(x, axis=1), (many, 0)),
        (x - gx.sum(x, axis=0), (0, many)), (x / gx.sum(x, axis=1, keepdims=True), (many, 0)),
    ):
        assert gx.function([x], f)(np.empty(empty, "f4")).shape == empty
    total = gx.function([x, y], gx.sum(x.T * y))
    assert total(np.empty((0, many), "f4"), np.empty((many, 0), "f4")) == 0
    assert total(np.ones((2, 3), "f4"), np.full((3, 2), 2.0, "f4")) == 12


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("shape", [(1, 700), (2, 131), (9, 4097), (600, 257), (2, 7, 300)])
def test_columns_are_scanned_row_by_row(dtype, shape, monkeypatch):
    """Walked down one after the other, columns of 1024 x 1024 took 20 times as long."""
    chosen = []
    fits = running.fits
    monkeypatch.setattr(running, "fits", lambda *a: chosen.append(fits(*a)) or chosen[-1])
    a = RNG.normal(size=shape) if dtype[0] == "f" else RNG.integers(-9, 9, shape)
    a = (1 + a / 64).astype(dtype) if dtype[0] == "f" else a
    x = gx.input("x", tuple("abc"[: len(shape)]), dtype)
    total, product = gx.cumulative_sum(x, axis=-2), gx.cumulative_prod(x, axis=-2)
    f = gx.function([x], [gx.exp(total * 1e-3) if dtype == "float32" else total, product])
    sums, products = f(a)
    wide = a.astype("float32") if dtype == "float16" else a
    want = np.cumsum(wide, axis=-2)
    if dtype == "float32":
        np.testing.assert_allclose(sums, np.exp(want * np.float32(1e-3)), rtol=3e-7)
    else:
        np.testing.assert_array_equal(sums, want.astype(dtype))
    np.testing.assert_array_equal(products, np.cumprod(wide, axis=-2).astype(dtype))
    last = gx.function([x], gx.cumulative_sum(gx.flip(x, axis=-2), axis=-2))(a)
    np.testing.assert_array_equal(last, np.cumsum(wide[..., ::-1, :], axis=-2).astype(dtype))
    assert chosen and all(chosen)


@pytest.mark.parametrize("shape", [(3, 5), (41, 300), (257, 65)])
def test_running_sums_of_formulas_of_running_sums(shape):
    x, y = gx.input("x", ("n", "m")), gx.input("y", ("n", "m"))
    a, b = (RNG.integers(-2, 3, shape).astype("f4") for _ in range(2))

    def down(v):
        return gx.cumulative_sum(v, axis=0)

    clipped = gx.clip(down(x), -4.0, 4.0)
    outs = [down(clipped * y), clipped + down(clipped), down(down(x) * down(y))]
    p, q = np.cumsum(a, axis=0), np.cumsum(b, axis=0)
    r = np.clip(p, -4, 4)
    wants = [np.cumsum(r * b, axis=0), r + np.cumsum(r, axis=0), np.cumsum(p * q, axis=0)]
    for out, want in zip(outs, wants, strict=True):
        np.testing.assert_array_equal(gx.function([x, y], out)(a, b), want)
    for got, want in zip(gx.function([x, y], outs)(a, b), wants, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("shape", [(1,), (700,), (1, 131), (9, 257), (600, 5), (2, 7, 100)])
def test_linear_recurrences_go_one_by_one(dtype, shape):
    """Each element rounds its product, then its sum, in order; f16 in f32, once as it is stored."""
    a, b = (RNG.integers(-3, 4, shape).astype(dtype) for _ in range(2))
    if dtype[0] == "f":
        a, b = ((RNG.normal(size=shape) / 2).astype(dtype) for _ in range(2))
    for declared in (shape, tuple("abc"[: len(shape)])):
        x, y = gx.input("x", declared, dtype), gx.input("y", declared, dtype)
        for axis in range(len(shape)):
            for reverse in (False, True):
                f = gx.function([x, y], prim.linear_recurrence(x, y, axis, reverse))
                want = _recurrence(a, b, axis, reverse).astype(dtype)
                np.testing.assert_array_equal(f(a, b), want)


def _recurrence(a, b, axis, reverse):
    """y[k] = a[k] * y[k-1] + b[k], as written."""
    wide = np.float32 if a.dtype == np.float16 else a.dtype
    a, b = (np.moveaxis(v.astype(wide), axis, 0)[:: -1 if reverse else 1] for v in (a, b))
    rows, y = [], np.zeros(a.shape[1:], wide)
    for factor, term in zip(a, b, strict=True):
        with np.errstate(over="ignore"):
            y = factor * y + term
        rows.append(y)
    return np.moveaxis(np.stack(rows)[:: -1 if reverse else 1], 0, axis)


def test_gradients_of_running_products_take_no_square():
    """Of a row whose length comes with the call, as of a declared one: they are recurrences."""
    x, w = gx.input("x", ("n", "m"), "float64"), gx.input("w", ("n", "m"), "float64")
    grad = gx.grad(gx.sum(w * gx.cumulative_prod(x, axis=1)), x)
    f = gx.function([x, w], grad)
    a, b = RNG.normal(size=(3, 40)), RNG.normal(size=(3, 40))
    a[1, 7] = a[2, 3] = a[2, 30] = 0.0
    want = np.zeros_like(a)
    for k in range(40):  # the definition: products of all others up to each place
        others = a.copy()
        others[:, k] = 1.0
        want[:, k] = (b * np.cumprod(others, axis=1))[:, k:].sum(axis=1)
    np.testing.assert_allclose(f(a, b), want, rtol=1e-12, atol=1e-14)
    assert "m*m" not in f.memory_plan()
