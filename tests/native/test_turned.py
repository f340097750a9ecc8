"""Elementwise kernels that read across the rows they write: transposes, and what is fused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.codegen.machine.target import host
from graphc.codegen.nests.axes import coefficient

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


def scaled(xp, t, axes):
    """tanh(t) over the sum of its exponentials: a kernel keeps the costly tanh between sweeps."""
    w = xp.tanh(t)
    return w / xp.sum(xp.exp(w - xp.max(w, axis=axes, keepdims=True)), axis=axes, keepdims=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(20, 5, 16), (1, 30, 17), (9, 33, 7), (40, 6, 6)])
def test_rows_of_two_axes_whose_vectors_are_not_along_the_last(shape, dtype):
    """What later sweeps read, and the sums of the rows, stand where vectors wrote them."""
    x = gx.input("x", shape, dtype)
    y = scaled(gx, x, (1, 2))
    turned, t = gx.swapaxes(y, 1, 2), gx.tanh(gx.swapaxes(x, 1, 2))
    a = RNG.normal(size=shape)
    want = scaled(np, a, (1, 2))
    tol = 3e-6 if dtype == "float32" else 1e-12
    rows = gx.function([x], [y, turned * 2.0, gx.sum(turned, axis=0)])
    across = want.swapaxes(1, 2)
    for got, expected in zip(rows(a.astype(dtype)), (want, 2 * across, across.sum(0)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)
    row = gx.function([x], [gx.logsumexp(t), t * 2.0])
    total = np.log(np.exp(np.tanh(a)).sum())
    np.testing.assert_allclose(row(a.astype(dtype))[0], total, rtol=tol)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16"])
def test_small_elements_are_transposed_in_registers(dtype, monkeypatch):
    """They were gathered one by one: 256 x 256 bytes took eight times as long."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", (3, "n", 16), dtype)
    turned = gx.function([x], x.T)
    first = gx.function([y], gx.permute_dims(y, (2, 0, 1)))
    for n, m in ((0, 3), (1, 1), (8, 200), (15, 17), (16, 16), (64, 24), (129, 65), (300, 33)):
        for at_end in (True, False):
            a, b = guarded((n, m), dtype, at_end), guarded((3, n, 16), dtype, at_end)
            for given in (a, b):
                given[:] = RNG.integers(0, 100, given.shape).astype(dtype)
            out, out3 = guarded((m, n), dtype, at_end), guarded((16, 3, n), dtype, at_end)
            np.testing.assert_array_equal(turned(a, out=out), a.T)
            np.testing.assert_array_equal(first(b, out=out3), b.transpose(2, 0, 1))
    for f in (turned, first):
        text = f.llvm_ir()
        if np.dtype(dtype).itemsize > 1 or host().vector_bits == 512:
            assert "_pack(" in text and "masked.gather" not in text


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=-1)[..., None])
    return e / xp.sum(e, axis=-1)[..., None]


# Of x and y, n by m, and z, m by n; of integers in any dtype, so that no order of sums matters.
SWEPT = {
    "sums": lambda xp, x, y, z: xp.sum(x * z.T, axis=1),
    "places": lambda xp, x, y, z: xp.argmax(x - z.T, axis=1),
    "one number": lambda xp, x, y, z: xp.sum(x * z.T),
    "rows and columns": lambda xp, x, y, z: (
        xp.sum(x * z.T, axis=1)[:, None] + xp.sum(x + z.T, axis=0)),
    "rows of rows": lambda xp, x, y, z: x * z.T - xp.max(x + z.T, axis=1)[:, None],
    "two at a time": lambda xp, x, y, z: xp.sum(x * z.T + y * z[::-1].T, axis=1),
    "a part": lambda xp, x, y, z: xp.sum(x[3:, 5:] * z[5:, 3:].T, axis=1),
}


def swept(formula, n, m, dtype, threads):
    """A function of rows, more rows, and columns."""
    x, y, z = (
        gx.input(k, s, dtype) for k, s in (("x", (n, m)), ("y", (n, m)), ("z", (m, n)))
    )
    return gx.function([x, y, z], formula(gx, x, y, z), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SWEPT)
def test_rows_that_are_swept_are_turned_some_at_a_time(name, threads):
    """Around lines, vectors and rows that are turned together; operands end where memory does."""
    formula = SWEPT[name]
    for dtype in ("float32", "float64", "int32", "int64"):
        named = swept(formula, "n", "m", dtype, threads)
        for n, m in ((8, 8), (9, 31), (31, 33), (33, 64), (64, 70), (100, 300), (2000, 70)):
            for f in (named, swept(formula, n, m, dtype, threads)):
                for at_end in (True, False):
                    given = [guarded(s, dtype, at_end) for s in ((n, m), (n, m), (m, n))]
                    for a in given:
                        a[:] = RNG.integers(-9, 10, a.shape)
                    want = formula(np, *given)
                    out = guarded(want.shape, f(*given).dtype, at_end)
                    f(*given, out=out)
                    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("declared", [(3, 37, 50), ("b", "n", "m")])
def test_rows_of_a_group_are_not_turned_with_those_of_the_next(declared):
    x, z = gx.input("x", declared), gx.input("z", (declared[0], declared[2], declared[1]))
    f = gx.function([x, z], gx.sum(x * gx.swapaxes(z, 1, 2), axis=2))
    for shape in ((3, 37, 50), (4, 8, 70), (2, 300, 9)) if declared[0] == "b" else (declared,):
        a, b = (RNG.integers(-9, 10, s).astype("float32") for s in (shape, shape))
        b = b.reshape(shape[0], shape[2], shape[1])
        np.testing.assert_array_equal(f(a, b), (a * b.swapaxes(1, 2)).sum(axis=2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_swept_rows_and_their_gradient_agree_with_numpy(dtype):
    for n in (9, 40, 130):
        x = gx.input("x", (n, n), dtype)
        y = softmax(gx, x + x.T)
        loss = gx.sum(y * y)
        f = gx.function([x], [y, gx.grad(loss, x)])
        a = RNG.normal(size=(n, n))
        want = softmax(np, a + a.T)
        inner = 2 * want * (want - np.sum(want * want, axis=1)[:, None])
        tol = 1e-5 if dtype == "float32" else 1e-12
        for got, expected in zip(f(a.astype(dtype)), (want, inner + inner.T), strict=True):
            np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


def test_rows_too_long_to_be_turned_are_read_as_they_stand():
    """2 MiB hold two rows of some 260,000 elements; what is longer takes the other way."""
    n = 600_000
    for shape in (("n", "m"), (8, n)):
        x, z = gx.input("x", shape), gx.input("z", shape[::-1])
        f = gx.function([x, z], [gx.sum(x * z.T, axis=1), gx.max(x - z.T)])
        for m in (n, 200_000, 17) if shape[0] == "n" else (n,):
            a, b = (RNG.integers(-9, 10, s).astype("float32") for s in ((8, m), (m, 8)))
            rows, most = f(a, b)
            np.testing.assert_array_equal(rows, (a * b.T).sum(axis=1))
            assert most == (a - b.T).max()


def test_nothing_is_gathered_for_rows_that_are_swept(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    for dtype in ("float32", "int64"):
        x = gx.input("x", (64, 64), dtype)
        for result in (gx.sum(x * x.T, axis=1), gx.max(x - x.T), gx.sum(x * x.T, axis=0)):
            text = gx.function([x], result).llvm_ir()
            assert "_pack(" in text and "masked.gather" not in text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(300, 90), ("n", "m")])
def test_functions_of_what_is_turned_go_side_by_side(shape, dtype, schedules):
    """As those of what is read in order do: one after the other they wait for themselves."""
    x = gx.input("x", shape, dtype)
    f = gx.function([x], gx.tanh(x).T + gx.exp(-x * x).T)
    f.compile()
    turned = [s for s in schedules if s.tile is not None and s.tile.turned is not None]
    assert turned and (host().vector_bits < 256 or any(s.interleave > 1 for s in turned))
    for size in ((300, 90),) if shape[0] == 300 else [(0, 3), (1, 40), (70, 65), (33, 300)]:
        a = RNG.normal(size=size).astype(dtype)
        of = a.astype("f8").T
        tol = 1e-6 if dtype == "float32" else 1e-14
        np.testing.assert_allclose(f(a), np.tanh(of) + np.exp(-of * of), rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(256, 64), (70, 300), ("n", "m")])
def test_however_many_operands_lie_the_other_way(shape, dtype, schedules):
    """They are turned; lane by lane rows of the result would fill a line for each element."""
    x, y = gx.input("x", shape, dtype), gx.input("y", shape, dtype)
    mask = gx.input("mask", shape, "bool")
    f = gx.function([x, y, mask], gx.where(mask, x * y, gx.maximum(x, 0.5)).T * 2.0)
    f.compile()
    assert schedules and all(
        coefficient(store.offset, s.vector) == 1 for s in schedules for store in s.nest.stores
    )
    for size in ((3, 5), (64, 33), (130, 70)) if shape[0] == "n" else (shape,):
        a, b = RNG.normal(size=(2, *size)).astype(dtype)
        c = RNG.random(size) < 0.4
        want = np.where(c, a * b, np.maximum(a, 0.5)).T * 2
        np.testing.assert_array_equal(f(a, b, c), want.astype(dtype))
