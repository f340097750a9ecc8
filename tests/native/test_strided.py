"""Elements some places apart: picked out of whole vectors, of which none ends beyond the array."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc import dims, prim
from graphc.codegen.emission import nest
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.machine.target import host
from graphc.polynomials import Dim

RNG = np.random.default_rng(17)
DTYPES = ["uint8", "bool", "int16", "float16", "float32", "int32", "float64", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, 4, 5, 8, 9])
def test_every_so_many_elements(dtype, step, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", step), dtype)
    pick = gx.function([x], [x[:, k] for k in (0, step - 1)])
    for n in (1, 15, 16, 17, 63, 64, 130, 300):
        for at_end in (True, False):
            a = guarded((n, step), dtype, at_end)
            a[:] = RNG.integers(0, 100, a.shape).astype(dtype)
            for got, k in zip(pick(a), (0, step - 1), strict=True):
                np.testing.assert_array_equal(got, a[:, k])
    gathers = [x for x in pick.llvm_ir().splitlines() if "call" in x and "masked.gather" in x]
    assert bool(gathers) == (step > (4 if np.dtype(dtype).itemsize >= 4 else 8))


@pytest.mark.parametrize("width", [2, 4, 16])
def test_vectors_of_fewer_elements_than_they_are_apart(width):
    """Where a register of v2 holds four f16, a vector more was read, beyond the last element."""
    e = Emitter(Module())
    Lanes(e, width, host()).load_apart(gx.float16, "%p", 8)
    starts = [int(x.rpartition(" ")[2]) for x in e.text().splitlines() if "getelementptr" in x]
    assert max(starts) + width == 8 * (width - 1) + 1


@pytest.mark.parametrize("colours", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_pixels_stand_in_lanes(colours, dtype, monkeypatch):
    """Of images whose colours are moved apart or together, as many lanes as there are colours were
    filled: a byte image of 512 x 512 took 10 times as long."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    made, plan = [], nest.plan
    monkeypatch.setattr(nest, "plan", lambda *a, **k: made.append(plan(*a, **k)) or made[-1])
    scale = gx.constant(RNG.normal(size=colours).astype("float32"))
    last, first = gx.input("x", ("b", "h", "w", colours), dtype), gx.input(
        "x", ("b", colours, "h", "w"), dtype)
    apart = gx.function([last], gx.permute_dims(last.astype("float32") / 255 - scale, (0, 3, 1, 2)))
    together = gx.function([first], gx.permute_dims(first, (0, 2, 3, 1)))
    for shape in ((1, 1, 1), (2, 5, 7), (3, 64, 33)):
        a = (100 * RNG.random((*shape, colours))).astype(dtype)
        moved = np.ascontiguousarray(a.transpose(0, 3, 1, 2))
        want = a.astype("float32") / np.float32(255) - scale.eval({})
        np.testing.assert_allclose(apart(a), want.transpose(0, 3, 1, 2), rtol=1e-6)
        np.testing.assert_array_equal(together(moved), a)
    moved_apart, moved_together = (s.vector for s in made)
    assert moved_apart == "%i2"
    assert moved_together == "%i2"


@pytest.mark.parametrize("parts", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_that_interleave(dtype, parts, monkeypatch):
    """A stack along the last axis, and elements repeated: shuffles and whole stores, no scatter
    but for what is left in the end, and nothing read or written beyond an array."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    xs = [gx.input(f"x{k}", ("n",), dtype) for k in range(parts)]
    stack = gx.function(xs, gx.stack(xs, -1))
    repeat = gx.function(xs[:1], gx.repeat(xs[0], parts))
    for n in (0, 1, 15, 16, 17, 63, 64, 130, 300):
        for at_end in (True, False):
            arrays = [guarded((n,), dtype, at_end) for _ in xs]
            for a in arrays:
                a[:] = RNG.integers(0, 100, n).astype(dtype)
            out = guarded((n, parts), dtype, at_end)
            np.testing.assert_array_equal(stack(*arrays, out=out), np.stack(arrays, -1))
            flat = guarded((n * parts,), dtype, at_end)
            np.testing.assert_array_equal(repeat(arrays[0], out=flat), np.repeat(arrays[0], parts))
    for f in (stack, repeat):
        assert "shufflevector" in f.llvm_ir() and "masked.scatter" not in f.llvm_ir()


@pytest.mark.parametrize("width", ["w", 40])
def test_what_is_unrolled_keeps_its_formula(width):
    """Parts of several lengths, a padding, a condition and a number of the axis itself, windows,
    and a second result without the axis."""
    x, y = gx.input("x", ("h", width)), gx.input("y", ("h", width, 3))
    parts = gx.concat([gx.exp(x)[:, :, None], y], -1) * gx.arange(4, dtype="float32")
    padded = gx.pad(gx.stack([x, -x], -1), ((0, 0), (0, 0), (1, 2)))
    where = gx.where(gx.arange(3) == 1, x[:, :, None], y)
    f = gx.function([x, y], [parts, padded, where, x + 1])
    for h, w in ((0, 40), (1, 40), (7, 40), (3, 1), (5, 17)):
        if width != "w" and w != width:
            continue
        a, b = RNG.normal(size=(h, w)).astype("f4"), RNG.normal(size=(h, w, 3)).astype("f4")
        got = f(a, b)
        want = np.concatenate([np.exp(a)[:, :, None], b], -1) * np.arange(4, dtype="f4")
        np.testing.assert_allclose(got[0], want, rtol=1e-6)
        np.testing.assert_array_equal(
            got[1], np.pad(np.stack([a, -a], -1), ((0, 0), (0, 0), (1, 2))))
        np.testing.assert_array_equal(got[2], np.where(np.arange(3) == 1, a[:, :, None], b))
        np.testing.assert_array_equal(got[3], a + 1)


@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_rows_of_few_elements(columns, dtype):
    """Rows fill registers together, whatever is read once for a row or for a column."""
    x, b, w = gx.input("x", ("n", columns), dtype), gx.input("b", (columns,), dtype), gx.input(
        "w", ("n",), dtype)
    f = gx.function([x, b, w], (x + b) * w[:, None])
    c = RNG.integers(1, 9, columns).astype(dtype)
    for n in (0, 1, 7, 31, 32, 33, 64, 200):
        for at_end in (True, False):
            a, v = guarded((n, columns), dtype, at_end), guarded((n,), dtype, at_end)
            a[:], v[:] = RNG.integers(0, 9, a.shape).astype(dtype), RNG.integers(1, 9, n)
            out = guarded((n, columns), dtype, at_end)
            np.testing.assert_array_equal(f(a, c, v, out=out), (a + c) * v[:, None])


def test_no_operand_is_overwritten_by_results_that_interleave():
    """x stands in the place of every second result only: the others must not take its memory."""
    x, v = gx.variable(np.arange(200, dtype="f4"), "x"), gx.input("v", (100,))
    every = x.reshape((100, 2))
    new = gx.stack([every[:, 1], v], -1).reshape((200,))
    f = gx.function([v], [], updates={x: new})
    f(np.full(100, -1, "f4"))
    want = np.stack([np.arange(1, 200, 2), np.full(100, -1)], -1).reshape(200)
    np.testing.assert_array_equal(x.value, want)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_what_is_turned_around_under_a_condition_is_not_read_beyond_it(dtype):
    """LLVM 22 would take the load's mask for that of the permutation, which reads all."""
    x = gx.input("x", ("n", 70), dtype)
    y = gx.flip(gx.roll(x, 2, axis=0), axis=1)  # a row is of the last two, or of the others
    f = gx.function([x], [y - gx.min(y, axis=1, keepdims=True), y], name="f")
    for n in (1, 3):
        for at_end in (True, False):
            a = guarded((n, 70), dtype, at_end)
            a[...] = np.arange(70 * n).reshape(n, 70)
            want = np.roll(a, 2, axis=0)[:, ::-1]
            for got, v in zip(f(a), (want - want.min(1, keepdims=True), want), strict=True):
                np.testing.assert_array_equal(got, v)


def formulas(x, columns, stack):
    """As many, of several columns each: the change of a state, rows and columns of a matrix."""
    c = [x[:, i] for i in range(columns)]
    rows = [(c[i] + c[i - 1]) * c[i - 2] - i * c[i - 3] for i in range(columns)]
    halves = [stack(rows[i : i + columns // 2]) for i in (0, columns // 2)]
    return stack(rows), stack([rows[i] for i in range(0, columns, 2)]), stack(halves)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("columns", [8, 12, 16])
def test_a_formula_for_each_column(columns, dtype, monkeypatch):
    """Vectors of a row computed all of them for each of its elements: 12 took 7 times as long."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", columns), dtype)
    f = gx.function([x], list(formulas(x, columns, lambda v: gx.stack(v, axis=1))))
    for n in (0, 1, 17, 100):
        a = guarded((n, columns), dtype)
        a[:] = RNG.integers(-9, 10, a.shape)
        wants = formulas(a, columns, lambda v: np.stack(v, axis=1))
        for got, want in zip(f(a), wants, strict=True):
            np.testing.assert_array_equal(got, want)
    assert all(k.text.splitlines()[0].endswith("for i0<n:") for k in f.kernels), f.kernels[0].text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_of_rows_that_are_computed_otherwise(dtype, monkeypatch):
    """Vectors of a row of 21 took all five sines for each of their elements."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")

    def encoded(x, concat, sin, cos):
        return concat([x, *(sin(2.0**k * x) for k in range(5)), cos(x)], axis=1)

    x = gx.input("x", ("n", 3), dtype)
    f = gx.function([x], encoded(x, gx.concat, gx.sin, gx.cos))
    for n in (0, 1, 17, 100):
        a = guarded((n, 3), dtype)
        a[:] = RNG.normal(size=a.shape)
        np.testing.assert_allclose(f(a), encoded(a, np.concatenate, np.sin, np.cos), atol=1e-5)
    assert f.kernels[0].text.splitlines()[0].endswith("for i0<n:")
    y = gx.input("y", ("n", 8), dtype)
    padded = gx.function([y], gx.pad(y, ((0, 0), (5, 5))))  # where that would gain nothing
    padded(np.ones((3, 8), dtype))
    assert "i1" in padded.kernels[0].text.splitlines()[0]


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_what_is_stored_once_beside_rows_in_parts(dtype):
    """A size that is a result was never written where rows went part by part."""
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", ("n",), dtype)
    both = gx.concat([gx.broadcast_to(y[:, None], x.shape), x * y[:, None]], axis=1)
    size = prim.dim(2 * dims.dim("m") + 1)
    f = gx.function([x, y], [size, both, both + both, both * 3])
    (kernel,) = f.compile().kernels
    assert "out1[0] = " in kernel.text  # the kernel that would have a version in parts
    for n, m in ((1, 1), (20, 20), (9, 300), (300, 65)):
        a, b = (RNG.integers(0, 9, s).astype(dtype) for s in ((n, m), (n,)))
        want = np.concatenate([np.broadcast_to(b[:, None], (n, m)), a * b[:, None]], axis=1)
        for got, w in zip(f(a, b), (2 * m + 1, want, want + want, want * 3), strict=True):
            np.testing.assert_array_equal(got, w)


def test_what_lies_along_short_rows_stays():
    """Of what is read as it is written, or turned around, vectors of the rows do as well."""
    x = gx.input("x", ("n", 12))
    for y in (x[:, 1:] - x[:, :-1], gx.flip(x, axis=1), gx.concat([x, x[:, :1]], axis=1)):
        f = gx.function([x], y)
        f(np.ones((3, 12), "f4"))
        assert "i1" in f.kernels[0].text.splitlines()[0]


@pytest.mark.parametrize("dtype, unrolled", [("float32", True), ("uint8", False)])
@pytest.mark.parametrize("rows, columns", [(3, 3), (4, 4), (2, 6)])
def test_small_matrices_turned_around(rows, columns, dtype, unrolled, monkeypatch):
    """Of 4 x 4 numbers 20,000 took 1,500 us, 130 unrolled; no instruction gathers bytes."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", rows, columns), dtype)
    f = gx.function([x], gx.matrix_transpose(x) + 1)
    for n in (1, 16, 37):
        a = guarded((n, rows, columns), dtype)
        a[:] = RNG.integers(0, 100, a.shape)
        np.testing.assert_array_equal(f(a), a.transpose(0, 2, 1) + 1)
    assert f.kernels[0].text.splitlines()[0].endswith("for i0<n:") == unrolled


def test_elements_far_apart_are_not_looked_for_in_rows(monkeypatch):
    """Each of the 100,000 elements between two lanes was, for every load: a second of sums."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    added, add = [], Dim.__add__
    monkeypatch.setattr(Dim, "__add__", lambda a, b: added.append(b) or add(a, b))
    x = gx.input("x", (64, 100_000))
    f = gx.function([x], x[:, 7] * x[:, 9] + x[:, 70_000])
    a = RNG.normal(size=x.shape).astype("f4")
    np.testing.assert_allclose(f(a), a[:, 7] * a[:, 9] + a[:, 70_000], rtol=1e-5, atol=1e-6)
    assert added and len(added) < 1000
