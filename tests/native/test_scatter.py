"""Updates at positions: rows of every length, and results in the place of what they update."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(31)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("row", [(), (1,), (3,), (7,), (8,), (16,), (17,), (5, 13)])
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


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint8", "uint64"])
def test_positions_of_a_state_are_looked_at_before_it_is_written_over(dtype):
    start = RNG.normal(size=(150, 16)).astype("f4")
    table, other = gx.variable(start, "table"), gx.variable(start, "other")
    i, u = gx.input("i", ("n",), dtype), gx.input("u", ("n", 16))
    f = gx.function(
        [i, u], gx.sum(table[0]), updates={table: table.at[i].add(u), other: other.at[i].set(u)}
    )
    added, put = start.copy(), start.copy()
    low = 0 if dtype[0] == "u" else -100
    for n in (0, 1, 7, 8, 9, 50):
        at = RNG.integers(low, 150 if low == 0 else 100, n).astype(dtype)
        rows = RNG.normal(size=(n, 16)).astype("f4")
        np.testing.assert_allclose(f(at, rows), added[0].sum(), rtol=1e-5)
        np.add.at(added, at, rows)
        for p, row in zip(at, rows, strict=True):
            put[p] = row
        for k in range(0, n, 3):  # wherever the bad one stands, nothing is written
            wrong = at.copy()
            wrong[k] = 150
            with pytest.raises(IndexError, match="scatter"):
                f(wrong, rows)
        np.testing.assert_array_equal(table.value, added)
        np.testing.assert_array_equal(other.value, put)
    assert "f32[150,16] in state 0" in f.memory_plan()
    assert "f32[150,16] in state 1" in f.memory_plan()
    assert f.memory_plan().count(".positions: nothing, it looks at positions\n") == 2


def test_all_that_may_fail_comes_before_a_state_is_written():
    """Positions of the second step are made by a kernel, and its rows by one that looks at others:
    both come before the first step, which is in the state's place, too."""
    start = RNG.normal(size=(300, 16)).astype("f4")
    t, p = gx.variable(start, "t"), gx.input("p", ("n", 2), "int64")
    one, two = p[:, 0], p[:, 1]
    f = gx.function([p], [], updates={t: t.at[one].add(t[two]).at[two].add(t[one])})
    pairs, want = RNG.integers(0, 300, (40, 2)), start.copy()
    np.add.at(want, pairs[:, 0], start[pairs[:, 1]])
    np.add.at(want, pairs[:, 1], start[pairs[:, 0]])
    f(pairs)
    np.testing.assert_array_equal(t.value, want)
    assert f.memory_plan().count("f32[300,16] in state 0") == 2
    for column in (0, 1):
        wrong = pairs.copy()
        wrong[-1, column] = 300
        with pytest.raises(IndexError, match=r"index 300 at \[39\]"):
            f(wrong)
    np.testing.assert_array_equal(t.value, want)


def test_a_row_of_a_state_is_written_alone():
    """A cache of keys: one position, of which all heads get a row, told or counted or found."""
    start = RNG.normal(size=(2, 40, 16)).astype("f4")
    keys, count = gx.variable(start, "keys"), gx.variable(np.int64(38), "count")
    x, scores = gx.input("x", (2, 16)), gx.input("scores", ("n",))
    told = gx.input("told", (), "int64")
    want = start.copy()
    row = np.float32([[1.5], [-2]]) * np.ones(16, "f4")
    for p, steps in ((told, (3, -1, 40, 0)), (count, (38, 39, 40)), (gx.argmax(scores), (2, 2))):
        new = keys.at[:, p].set(x)
        f = gx.function(
            [x, told, scores], [gx.sum(new, axis=(0, 2)), p],
            updates={keys: new, count: count + 1},
        )
        count.value = 38
        for at in steps:
            before = count.value
            data = row, np.int64(at), np.float32([0, 1, 5])
            if at == 40:
                with pytest.raises(IndexError, match=r"axis 1 of f32\[2,40,16\] takes -40 to 39"):
                    f(*data)
                assert count.value == before
            else:
                want[:, at] = row
                sums, where = f(*data)
                assert where == at
                np.testing.assert_allclose(sums, want.sum((0, 2)), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(keys.value, want)
            row = row + 1
        assert "f32[2,40,16] in state" in f.memory_plan()


def test_a_state_that_is_read_afterwards_is_copied():
    start = RNG.normal(size=(64, 16)).astype("f4")
    ring, p = gx.variable(start, "ring"), gx.input("p", (), "int64")
    x, i = gx.input("x", (16,)), gx.input("i", ("n",), "int64")
    new = ring.at[p].set(x)
    best = gx.argmax(gx.sum(new, axis=1))  # the old rows are read, and may fail, after the new ones
    f = gx.function([p, x, i], [ring[best], new[i]], updates={ring: new})
    want = start.copy()
    want[5] = 100
    for bad in (False, True):
        at = np.array([5, 64 if bad else 7])
        if bad:
            with pytest.raises(IndexError, match="gather"):
                f(np.int64(6), np.full(16, 200, "f4"), at)
        else:
            old, rows = f(np.int64(5), np.full(16, 100, "f4"), at)
            np.testing.assert_array_equal(old, start[5])
            np.testing.assert_array_equal(rows, want[at])
        np.testing.assert_array_equal(ring.value, want)


def test_several_updates_of_a_state_are_made_in_its_place():
    start = RNG.normal(size=(90, 16)).astype("f4")
    table, i = gx.variable(start, "table"), gx.input("i", ("n",), "int64")
    j, u, row = gx.input("j", ("m",), "int64"), gx.input("u", ("n", 16)), gx.input("row", (16,))
    v, p = gx.input("v", ("m", 16)), gx.input("p", (), "int64")
    new = table.at[i].add(u).at[p].set(row).at[j].add(v)
    data = {"i": np.array([3, 3, -1]), "j": np.array([89, 5]), "p": np.array(5)}
    for name, shape in (("u", (3, 16)), ("v", (2, 16)), ("row", (16,))):
        data[name] = RNG.normal(size=shape).astype("f4")
    f = gx.function([i, j, p, u, v, row], None, updates={table: new})
    want = start.copy()
    for wrong in ({"i": np.array([3, 90, 1])}, {"p": np.array(-91)}, {"j": np.array([0, 91])}):
        with pytest.raises(IndexError, match="scatter"):
            f(**data | wrong)
        np.testing.assert_array_equal(table.value, want)
    f(**data)
    np.add.at(want, data["i"], data["u"])
    want[5] = data["row"]
    np.add.at(want, data["j"], data["v"])
    np.testing.assert_array_equal(table.value, want)
    assert f.memory_plan().count("f32[90,16] in state 0") == 3

    # a step between that is read elsewhere stands apart
    between = table.at[i].add(u)
    g = gx.function([i, j, u, v], gx.sum(between, axis=1), updates={table: between.at[j].add(v)})
    sums = g(data["i"], data["j"], data["u"], data["v"])
    np.add.at(want, data["i"], data["u"])
    np.testing.assert_allclose(sums, want.sum(1), rtol=1e-4, atol=1e-4)
    np.add.at(want, data["j"], data["v"])
    np.testing.assert_array_equal(table.value, want)


def test_elements_at_several_indices_are_written_in_a_states_place():
    """A cache of keys by layer and place; what is written may be made of what stands there."""
    start = RNG.normal(size=(30, 20, 16)).astype("f4")
    keys, u = gx.variable(start, "keys"), gx.input("u", ("n", 16))
    i, j, k = (gx.input(name, ("n",), "int64") for name in "ijk")
    new = keys.at[i, j].add(2 * keys[i, j] + u).at[k, j].set(u)
    f = gx.function([i, j, k, u], gx.sum(keys[0]), updates={keys: new})
    data = {"i": np.array([3, -1, 3]), "j": np.array([19, 0, 19]), "k": np.array([3, 0, -30])}
    data["u"] = RNG.normal(size=(3, 16)).astype("f4")
    want = start.copy()
    for name, wrong in (("i", 30), ("j", -21), ("k", 31)):
        bad = data[name].copy()
        bad[-1] = wrong
        with pytest.raises(IndexError, match=f"index {wrong} at"):
            f(**data | {name: bad})
        np.testing.assert_array_equal(keys.value, want)
    for _ in range(2):
        np.testing.assert_allclose(f(**data), want[0].sum(), rtol=1e-4)
        rows = 2 * want[data["i"], data["j"]] + data["u"]
        np.add.at(want, (data["i"], data["j"]), rows)
        for p, q, row in zip(data["k"], data["j"], data["u"], strict=True):
            want[p, q] = row
        np.testing.assert_array_equal(keys.value, want)
    assert f.memory_plan().count("f32[600,16] in state 0") == 2


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_of_several_gathers_are_added_in_one_array(dtype):
    """Word2vec made zeros of its table as an array, copied them for each gather, and added up."""
    t, u = gx.input("t", ("v", 4), dtype), gx.input("u", (7, 4), dtype)
    at = [gx.input(name, ("n",), "int64") for name in "ijk"]
    a, b = t[at[0]], t[at[1]]
    loss = gx.sum(a * b) + gx.sum(3 * t[at[2]]) + gx.sum(u[at[0]])
    f = gx.function([t, u, *at], gx.grad(loss, [t, u]))
    x, y = RNG.normal(size=(5, 4)).astype(dtype), np.zeros((7, 4), dtype)
    where = [np.array(p) for p in ((3, 0, 3), (1, 1, -1), (0, 4, 0))]
    want, ones = np.zeros((5, 4)), np.zeros((7, 4))
    np.add.at(want, where[0], x[where[1]].astype("f8"))
    np.add.at(want, where[1], x[where[0]].astype("f8"))
    np.add.at(want, where[2], 3)
    np.add.at(ones, where[0], 1)
    for got in (f(x, y, *where), gx.function(
        [t, u, *at], gx.grad(loss, [t, u]), mode="interpret")(x, y, *where)):
        np.testing.assert_allclose(got[0], want, 10 * np.finfo(dtype).eps, np.finfo(dtype).eps)
        np.testing.assert_array_equal(got[1], ones)
    if dtype == "float32":  # halves have a workspace
        assert "*v" not in f.memory_plan()
    assert sum("scatter_add" in k.title for k in f.kernels) == 4 and not any(
        "add" in k.title.replace("scatter_add", "") for k in f.kernels)
