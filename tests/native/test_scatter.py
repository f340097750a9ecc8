"""Updates at positions: rows of every length, and results in the place of what they update."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(31)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("row", [(), (1,), (3,), (16,), (17,), (5, 13)])
def test_rows_of_any_length_are_updated_in_order(dtype, row):
    x = (9 * RNG.normal(size=(7, *row))).astype(dtype)
    at = RNG.integers(-7, 7, 40)
    u = (9 * RNG.normal(size=(40, *row))).astype(dtype)
    for declared in (row, tuple("abc"[: len(row)])):
        X, I = gx.input("x", ("v", *declared), dtype), gx.input("i", ("n",), "int64")
        U = gx.input("u", ("n", *declared), dtype)
        want = x.copy()
        for k, p in enumerate(at):
            want[p] = u[k]
        np.testing.assert_array_equal(gx.function([X, I, U], X.at[I].set(U))(x, at, u), want)
        if dtype == "bool":
            continue
        total = np.float32 if dtype == "float16" else dtype  # one op rounds once
        want = x.astype(total)
        np.add.at(want, at, u.astype(total))
        added = gx.function([X, I, U], X.at[I].add(U))(x, at, u)
        np.testing.assert_array_equal(added, want.astype(dtype))


def test_what_nobody_else_reads_is_updated_in_place():
    x, i, u = gx.input("x", ("v", 4)), gx.input("i", ("n",), "int64"), gx.input("u", ("n", 4))
    a, at, b = (RNG.normal(size=(5, 4)).astype("f4"), np.array([3, 0, 3]),
                RNG.normal(size=(3, 4)).astype("f4"))
    want = np.exp(a)
    np.add.at(want, at, b)
    f = gx.function([x, i, u], gx.exp(x).at[i].add(u))
    np.testing.assert_allclose(f(a, at, b), want, rtol=1e-6)
    assert "arena: 0 bytes" in f.memory_plan()
    both = gx.function([x, i, u], [gx.exp(x), gx.exp(x).at[i].add(u)])(a, at, b)
    np.testing.assert_array_equal(both[0], gx.function([x], gx.exp(x))(a))
    np.testing.assert_allclose(both[1], want, rtol=1e-6)
    j = gx.input("j", ("v",), "int64")
    own = gx.function([x, j], gx.exp(x).at[j].add(gx.exp(x)))(a, np.array([1, 0, 2, 4, 3]))
    np.testing.assert_allclose(own, np.exp(a) + np.exp(a)[[1, 0, 2, 4, 3]], rtol=1e-6)
    with pytest.raises(IndexError, match="scatter_add"):
        f(a, np.array([3, 5, 0]), b)
    np.testing.assert_allclose(f(a, at, b), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("many", [5000, 3])
def test_halves_add_up_in_f32_and_are_rounded_once(dtype, many):
    """5000 ones at one place are 5000, in the interpreter too, and not 2048 or 256. Rows that no
    position names stay as they are, in another array and in that of a state."""
    for row, axis in (((), 0), ((3,), 0), ((9,), 1)):
        t, i = gx.input("t", (*row[: axis], 40, *row[axis:]), dtype), gx.input("i", ("n",), "int64")
        u = gx.input("u", (*row[: axis], "n", *row[axis:]), dtype)
        key = (slice(None), i) if axis else i
        shape = (*row[: axis], 40, *row[axis:])
        a = RNG.normal(size=shape).astype("f4")
        at = RNG.choice([7, -1], many)
        b = np.ones((*row[: axis], many, *row[axis:]), "f4")
        half = [gx.function([], gx.constant(v).astype(dtype))() for v in (a, b)]
        want = half[0].astype("f4")
        np.add.at(want, (slice(None), at) if axis else at, b)
        want = gx.function([], gx.constant(want).astype(dtype))()
        out = t.at[key].add(u)
        for mode in ("jit", "interpret"):
            f = gx.function([t, i, u], out, mode=mode)
            np.testing.assert_array_equal(f(half[0], at, half[1]), want, strict=True)
        state = gx.variable(half[0], "state", dtype)
        step = gx.function([i, u], [], updates={state: state.at[key].add(u)})
        step(at, half[1])
        np.testing.assert_array_equal(state.value, want, strict=True)
        with pytest.raises(IndexError, match="scatter_add"):
            gx.function([t, i, u], out)(half[0], at - 80, half[1])


def test_updates_that_are_one_number_need_no_array():
    """Histograms; a number that is given, made, or an element of what is updated."""
    x, at = gx.input("x", ("n",), "uint8"), RNG.integers(0, 256, 1003).astype("u1")
    f = gx.function([x], gx.zeros((256,), "int64").at[x].add(1))
    np.testing.assert_array_equal(f(at), np.bincount(at, minlength=256))
    assert "arena: 0 bytes" in f.memory_plan()
    i, c, t = gx.input("i", ("n",), "int64"), gx.input("c", ()), gx.input("t", ("v", 5))
    where, a = RNG.integers(-7, 7, 50), RNG.normal(size=(7, 5)).astype("f4")
    for given, number in ((c, 2.5), (gx.exp(c), np.exp(np.float32(2.5)))):
        want = a.copy()
        np.add.at(want, where, np.float32(number))
        f = gx.function([t, i, c], t.at[i].add(given))
        np.testing.assert_allclose(f(a, where, 2.5), want, rtol=2e-6)
        want[where] = number
        np.testing.assert_allclose(
            gx.function([t, i, c], t.at[i].set(given))(a, where, 2.5), want, rtol=2e-6
        )
    one = gx.variable(np.float32([3.0]), "one")
    step = gx.function([i], [], updates={one: one.at[i].add(one[0])})
    step(np.zeros(4, "i8"))
    assert one.value == 15.0
    f = gx.function([x], gx.zeros((200,), "int32").at[x].add(1))  # bytes may be out of range here
    np.testing.assert_array_equal(f(at % 200), np.bincount(at % 200, minlength=200))
    with pytest.raises(IndexError, match="scatter_add"):
        f(np.full(9, 200, "u1"))
