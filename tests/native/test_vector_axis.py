"""Which axis vectors lie along: rows are read as they stand, whatever is stored once for each."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.codegen.emission import nest
from graphc.codegen.machine.target import host
from graphc.codegen.nests.axes import coefficient

RNG = np.random.default_rng(5)


def chosen(monkeypatch, inputs, outputs):
    """Whether each kernel's rows are swept with vectors, and the function."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    made, plan = [], nest.plan
    monkeypatch.setattr(nest, "plan", lambda *a, **k: made.append(plan(*a, **k)) or made[-1])
    f = gx.function(inputs, outputs)
    f.compile()
    return [s.across for s in made], f


@pytest.mark.parametrize("columns", ["m", 32, 1000])
def test_several_results_of_a_row(columns, monkeypatch):
    """Mean and variance stored for each row, and rows scaled by what is read for each."""
    x, v, w = gx.input("x", ("n", columns)), gx.input("v", ("n",)), gx.input("w", ("n",))
    scaled = (x - v[:, None]) * w[:, None]
    out = [gx.mean(x, axis=1), gx.var(x, axis=1), gx.sum(gx.tanh(scaled), axis=1)]
    across, f = chosen(monkeypatch, [x, v, w], out)
    # rows of two, three and four elements, where that is not known, have versions with lanes each,
    # those that a vector holds one without loops, those that four hold as well
    each = [True, False, False, False, True, True] if columns == "m" else [True]
    assert across and across == each * (len(across) // len(each))
    for n in (0, 1, 70):
        a = RNG.normal(size=(n, 200 if columns == "m" else columns)).astype("float32")
        b, c = RNG.normal(size=(2, n)).astype("float32")
        want = [a.mean(1), a.var(1), np.tanh((a - b[:, None]) * c[:, None]).sum(1)]
        for got, x in zip(f(a, b, c), want, strict=True):
            np.testing.assert_allclose(got, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns, axis", [(300, 0), (17, 1)])
def test_what_stays_a_row_for_each_lane(columns, axis, monkeypatch):
    """Columns, which stand side by side, and rows of few elements."""
    x = gx.input("x", ("n", columns))
    out = [gx.sum(gx.exp(x), axis=axis), gx.max(x, axis=axis)]
    across, f = chosen(monkeypatch, [x], out)
    assert across and not any(across)
    a = RNG.normal(size=(600, columns)).astype("float32")
    for got, want in zip(f(a), (np.exp(a).sum(axis), a.max(axis)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_lies_side_by_side_is_not_turned(monkeypatch):
    """A function of short sums, each lane a column: no rows are turned for lanes of their own."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    made, plan = [], nest.plan
    monkeypatch.setattr(nest, "plan", lambda *a, **k: made.append(plan(*a, **k)) or made[-1])
    a, b = (gx.input(name, ("n", 12, 12)) for name in "ab")
    f = gx.function([a, b], gx.tanh(gx.sum(a[:, :, :, None] * b[:, None, :, :], axis=2)))
    x, y = RNG.normal(size=(2, 5, 12, 12)).astype("float32")
    np.testing.assert_allclose(f(x, y), np.tanh(x @ y), rtol=1e-4, atol=1e-4)
    (s,) = made
    assert [coefficient(store.offset, s.vector) for store in s.nest.stores] == [1]
    assert s.tile is None or s.tile.turned is None


@pytest.mark.parametrize("columns, swept", [(16, True), (24, True), (5, False)])
def test_rows_that_are_read_backwards(columns, swept, monkeypatch):
    """A vector that is turned around, where few elements are not gathered from as many rows."""
    x = gx.input("x", ("n", columns), "float64")
    across, f = chosen(monkeypatch, [x], gx.sum(gx.flip(x, axis=1), axis=1))
    assert across == [swept]
    a = RNG.normal(size=(40, columns))
    np.testing.assert_array_equal(f(a), gx.function([x], gx.sum(x, axis=1))(a[:, ::-1].copy()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_rows_that_a_vector_holds(dtype):
    """Where their length comes with the call they have a version without loops over a row, as have
    rows of a few vectors, and the bits of rows of known length."""
    x = gx.input("x", ("n", "d"), dtype)

    def outs(x):
        total = gx.sum(x, axis=1), gx.max(x, axis=1), gx.argmax(x, axis=1)
        return total if dtype == "int16" else (*total, gx.nn.softmax(x), gx.nn.log_softmax(x))

    f = gx.function([x], outs(x), name="held")
    made = re.findall(r"define internal void @(\S+)\.row\(", f.llvm_ir())
    assert made or not host().masked
    assert all(f"@{name}.rows(" in f.llvm_ir() for name in made)
    for d in (1, 2, 8, 9, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129):
        y = gx.input("y", ("n", d), dtype)
        g = gx.function([y], outs(y), name="known")
        for n in (0, 1, 7):
            a = (5 * RNG.normal(size=(n, d))).astype(dtype)
            a[1::2] = -0.0
            for got, want in zip(f(a), g(a), strict=True):
                assert got.tobytes() == want.tobytes()


@pytest.mark.skipif(not host().masked, reason="versions of such rows need masks")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_takes_long_is_not_computed_for_lanes_beyond_a_row(dtype):
    """Rows of a few vectors, whose number comes with the call, take all if that is little."""
    def made(d):
        x = gx.input("x", ("n", d), dtype)
        wave = gx.sin(gx.exp(-x * x) - gx.mean(gx.cos(x), axis=1, keepdims=True))
        return gx.function([x], gx.grad(gx.sum(wave * x), x), name="waves")

    f = made("d")
    assert "@waves.k0.row(" in f.llvm_ir()
    assert "@waves.k0.rows(" not in f.llvm_ir()
    for d in (1, 8, 9, 17, 32, 33, 64, 65):
        a = RNG.normal(size=(7, d)).astype(dtype)
        assert f(a).tobytes() == made(d)(a).tobytes()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
def test_bytes_are_looked_up_one_by_one(dtype):
    """No instruction gathers them; halves and wider numbers go by vectors."""
    table = RNG.integers(0, 2 if dtype == "bool" else 100, 256).astype(dtype)
    for size in (256, "k"):
        t = gx.input("t", (size,), dtype)
        for kind in ("uint8", "int64"):
            i = gx.input("i", ("n", 3), kind)
            f = gx.function([t, i], [t[i], gx.astype(t[i], "int32")])
            assert "masked.gather" not in f.llvm_ir()
            for n in (0, 1, 5, 11, 1000, 70001):
                at = RNG.integers(0, 256, (n, 3)).astype(kind)
                for got in f(table, at):
                    np.testing.assert_array_equal(got, table[at])
            if kind == "int64":
                with pytest.raises(gx.errors.IndexOutOfRangeError, match=r"256 at \[3,1\]"):
                    f(table, np.where(np.arange(15).reshape(5, 3) == 10, 256, -1))
    h = gx.input("h", (256,), "float32")
    text = gx.function([h, i], h[i]).llvm_ir()
    assert "gather" in text or not host().masked


def test_short_rows_are_not_stored_apart():
    """Every second element of every second row: pixels in lanes took four times as long."""
    x = gx.input("x", (2000, 8))
    f = gx.function([x], x[::2, ::2] + 1)
    a = np.random.default_rng(2).normal(size=(2000, 8)).astype("f4")
    np.testing.assert_array_equal(f(a), a[::2, ::2] + np.float32(1))
    assert "scatter" not in f.llvm_ir()


@pytest.mark.parametrize("looked_up", [7, 20, 50, "m"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_rows_that_data_choose_are_read_side_by_side(looked_up, symbolic, monkeypatch):
    """Means and greatest of embeddings; walked along the positions, whose sums they are, each
    element was gathered: 256 bags of 20 rows of 64 f32 took Zen 4 325 us in the place of 22."""
    x = gx.input("x", ("v" if symbolic else 300, 64))
    at = gx.input("at", ("n", looked_up), "int64")
    rows = gx.take(x, at, axis=0)
    across, f = chosen(monkeypatch, [x, at], [gx.mean(rows, axis=1), gx.max(rows, axis=1)])
    assert across and not any(across)
    a = RNG.normal(size=(300, 64)).astype("float32")
    i = RNG.integers(-300, 300, (33, 6 if looked_up == "m" else looked_up))
    mean, most = f(a, i)
    np.testing.assert_allclose(mean, a[i].mean(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(most, a[i].max(axis=1))
    with pytest.raises(gx.GraphcError, match="out of range"):
        f(a, np.where(i == i.max(), 300, i))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("rows", ["n", 2000])
def test_few_columns_of_a_table_are_added_up_by_rows_in_lanes(rows, dtype, schedules):
    """Of registers that hold three elements each most lanes would compute nothing."""
    x = gx.input("x", (rows, 8), dtype)
    y = x[:, 2:5]
    outputs = [gx.sum(y * y), gx.max(gx.abs(y)) - gx.min(y), gx.mean(gx.astype(y, "float64"))]
    f = gx.function([x], outputs)
    f.compile()
    totals = [s for s in schedules if s.flat]
    assert totals and all(s.vector == s.nest.reduced[0] for s in totals)
    for n in (1, 5, 31, 64, 2000) if rows == "n" else (rows,):
        a = guarded((n, 8), dtype)
        a[:] = RNG.integers(-50, 50, (n, 8))
        of = a[:, 2:5].astype("f8")
        want = [np.sum(of * of), np.max(abs(of)) - np.min(of), np.mean(of)]
        np.testing.assert_allclose(f(a), want, rtol=1e-6)


def test_rows_that_follow_each_other_are_taken_as_they_lie(schedules):
    """As are rows so long that they fill registers, and few rows."""
    x, y, z = gx.input("x", ("n", 3)), gx.input("y", ("n", 20)), gx.input("z", (20, 20))
    f = gx.function([x, y, z], [gx.sum(x * x[:, :1]), gx.sum(y[:, 2:12] ** 2), gx.sum(z[:, :3])])
    f.compile()
    totals = [s for s in schedules if s.flat]
    assert totals and all(s.vector == s.nest.reduced[-1] for s in totals)
    a, b, c = (RNG.integers(-5, 5, s).astype("f4") for s in ((70, 3), (70, 20), (20, 20)))
    for got, want in zip(
        f(a, b, c), [np.sum(a * a[:, :1]), np.sum(b[:, 2:12] ** 2), np.sum(c[:, :3])], strict=True
    ):
        assert got == want
