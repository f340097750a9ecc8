"""Variables: shared, updated all at once, locked, private copies, unchanged by a failed call."""

import threading

import numpy as np
import pytest

import graphc as gx
from graphc.errors import IndexOutOfRangeError, IntegerDivisionError, ShapeError, UsageError


@pytest.fixture(params=["jit", "interpret"])
def mode(request):
    return request.param


def var(value, name="v", dtype="float32"):
    return gx.variable(np.asarray(value, dtype), name)


def test_updates_are_simultaneous(mode):
    a, b = var([1, 2], "a"), var([3, 4], "b")
    swap = gx.function([], [a, b], updates={a: b, b: a}, mode=mode)
    got = swap()
    assert [g.tolist() for g in got] == [[1, 2], [3, 4]]
    assert a.value.tolist() == [3, 4] and b.value.tolist() == [1, 2]
    swap()
    assert a.value.tolist() == [1, 2]


def test_outputs_read_the_value_from_before(mode):
    v = var(1.0)
    f = gx.function([], v + 0, updates=[(v, v * 2)], mode=mode)
    assert [float(f()) for _ in range(4)] == [1, 2, 4, 8]


def test_only_updates(mode):
    v, x = var(0.0), gx.input("x", ())
    f = gx.function([x], None, updates={v: v + x}, mode=mode)
    assert f(2) is None and f(3) is None
    assert v.value == 5


def test_functions_share_a_variable(mode):
    v = var([1, 1])
    read = gx.function([], v * 10, mode=mode)
    bump = gx.function([], None, updates={v: v + 1}, mode=mode)
    assert read().tolist() == [10, 10]
    bump()
    assert read().tolist() == [20, 20]
    v.value = np.array([5, 6], "f4")
    assert read().tolist() == [50, 60]


def test_private_state(mode):
    v = var([1, 2])
    f = gx.function([], v, updates={v: v + 1}, mode=mode)
    f()
    g = f.with_state()
    g()
    g()
    assert v.value.tolist() == [2, 3] and g.state["v"].tolist() == [4, 5]
    f()
    assert v.value.tolist() == [3, 4] and g.state["v"].tolist() == [4, 5]
    h = f.with_state({v: np.array([9, 9], "f4")})
    assert h().tolist() == [9, 9] and f.with_state({"v": np.zeros(2, "f4")})().tolist() == [0, 0]
    if mode == "jit":
        assert g.compilations == f.compilations == 1
    assert f.with_state({v: np.array([9, 8], ">f4")})().tolist() == [9, 8]
    assert f.with_state({v: [9.5, 8]})().tolist() == [9.5, 8]
    with pytest.raises(UsageError, match="variable 'v' is a masked array"):
        f.with_state({v: np.ma.masked_array(np.ones(2, "f4"), [0, 1])})
    with pytest.raises(UsageError, match="has no variable 'w'; it has v"):
        f.with_state({"w": np.zeros(2)})
    with pytest.raises(ShapeError, match=r"variable 'v' must be f32\[2\], got f32\[3\]"):
        f.with_state({v: np.zeros(3, "f4")})
    with pytest.raises(UsageError, match="keys are variables or their names, got 3"):
        f.with_state({3: np.zeros(2, "f4")})
    with pytest.raises(UsageError, match="takes a dict of arrays by variable or name, got list"):
        f.with_state([np.zeros(2, "f4")])


def test_a_failed_call_changes_nothing(mode):
    v, x, i = var([1, 2, 3]), gx.input("x", (3,)), gx.input("i", ("n",), "int64")
    f = gx.function([x, i], gx.take(x, i, axis=0), updates={v: v + x}, name="f", mode=mode)
    one = np.ones(3, "f4")
    f(one, np.array([0, 2]))
    assert v.value.tolist() == [2, 3, 4]
    with pytest.raises(IndexOutOfRangeError, match=r"\(test_state.py:\d+\)"):
        f(one, np.array([0, 3]))
    assert v.value.tolist() == [2, 3, 4]
    f(one, np.array([-1]))
    assert v.value.tolist() == [3, 4, 5]


def test_integer_division_by_zero(mode):
    x, y = gx.input("x", ("n",), "int32"), gx.input("y", ("n",), "int32")
    f = gx.function([x, y], x // y, mode=mode)
    assert f([7, -7], [2, 2]).tolist() == [3, -4]
    with pytest.raises(IntegerDivisionError, match=r"\(test_state.py:\d+\)"):
        f([7], [0])


def test_calls_on_many_threads_lose_no_update(mode, at_once):
    small, large = var(0.0, "small"), var(np.zeros(200_000), "large")
    f = gx.function([], None, updates={small: small + 1, large: large + 1}, mode=mode)
    g = gx.function([], None, updates={small: small + 1}, mode=mode)
    count = 20

    def work(_):
        for _ in range(count):
            f()
            g()

    at_once(8, work)
    assert small.value == 2 * 8 * count
    assert (large.value == 8 * count).all()


def test_reading_waits_for_a_held_lock(mode):
    v = var(0.0)
    f = gx.function([], None, updates={v: v + 1}, mode=mode)
    f()
    with v.state.lock:
        t = threading.Thread(target=f)
        t.start()
        t.join(0.05)
        assert t.is_alive() and v.state.array == 1
        f()  # the holder itself may call
    t.join()
    assert v.value == 3


def test_a_variable_may_be_set_to_a_constant(mode):
    v = var(3.0)
    f = gx.function([], v * 2, updates={v: gx.zeros_like(v)}, mode=mode)
    assert f() == 6 and v.value == 0
