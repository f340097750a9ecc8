"""Elementwise kernels that read across the rows they write: transposes, and what is fused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(11)
# around vectors, blocks of rows and columns, and pieces of them
SIZES = [(0, 5), (5, 0), (1, 1), (7, 9), (8, 8), (31, 33), (64, 64), (65, 130), (40, 4100),
         (4100, 40), (300, 1)]


def numbers(shape, dtype):
    return (50 * RNG.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64", "float16", "int8"])
def test_a_transpose_of_any_size(dtype):
    x = gx.input("x", ("n", "m"), dtype)
    y = gx.input("y", ("m", "n"), dtype)
    f = gx.function([x, y], [x.T, x.T * y + x.T, (x.T - y)[::2]])
    for n, m in SIZES:
        a, b = numbers((n, m), dtype), numbers((m, n), dtype)
        for got, want in zip(f(a, b), [a.T, a.T * b + a.T, (a.T - b)[::2]], strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_axes_in_every_order(order):
    for shape in [(9, 65, 33), (70, 3, 40), (34, 40, 2)]:
        a = numbers(shape, "float32")
        for declared in (shape, ("a", "b", "c")):
            x = gx.input("x", declared)
            f = gx.function([x], gx.permute_dims(x, order))
            np.testing.assert_array_equal(f(a), a.transpose(order))


def test_parts_and_several_operands():
    x, y, z = gx.input("x", (50, 70)), gx.input("y", (50, 70)), gx.input("z", (70,))
    f = gx.function([x, y, z], [(x * y).T + gx.expand_dims(z, axis=1), x[3:40, 5:60].T])
    a, b, c = numbers((50, 70), "f4"), numbers((50, 70), "f4"), numbers((70,), "f4")
    got = f(a, b, c)
    np.testing.assert_array_equal(got[0], (a * b).T + c[:, None])
    np.testing.assert_array_equal(got[1], a[3:40, 5:60].T)
