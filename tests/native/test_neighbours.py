"""What a kernel reads at several moved indices it computes for each, or another one stores it."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.passes import copies, pulling


def differences(xp, x):
    return xp.sum((x[1:] - x[:-1]) ** 2)


def variation(xp, x):
    return differences(xp, x) + xp.sum((x[:, 1:] - x[:, :-1]) ** 2)


def second(xp, x):
    return xp.sum((x[2:] - 2 * x[1:-1] + x[:-2]) ** 2)


def periodic(xp, x):
    return xp.sum((xp.roll(x, 1, axis=0) - x) ** 2 + (xp.roll(x, 1, axis=1) - x) ** 2)


def rosenbrock(xp, x):
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def gradient(f, x):
    """Of what is a polynomial of the fourth degree, exact but for rounding: by central differences
    of two steps."""
    found = np.empty_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1.0
        near, far = ((f(np, x + h * step) - f(np, x - h * step)) / (2 * h) for h in (0.5, 1.0))
        found[at] = (4 * near - far) / 3
    return found


@pytest.mark.parametrize("f, shapes", [
    (differences, [(2, 1), (3, 5), (9, 40), (1, 3)]), (variation, [(2, 2), (17, 33), (1, 1)]),
    (second, [(3, 4), (4, 1), (5, 3), (20, 20), (2, 2)]),
    (periodic, [(2, 3), (1, 4), (17, 33), (40, 1)]), (rosenbrock, [(2,), (3,), (77,), (1,)]),
])
@pytest.mark.parametrize("named", [False, True])
def test_gradients_of_differences(f, shapes, named, monkeypatch) -> None:
    """Are one kernel that stores nothing beside them, with the bits of kernels that do."""
    rng = np.random.default_rng(0)
    for shape in shapes:
        a = rng.normal(size=shape)
        x = gx.input("x", ("n", "m")[: a.ndim] if named else shape, "float64")
        g = gx.function([x], gx.grad(f(gx, x), x), name="f")
        got = g(a)
        np.testing.assert_allclose(got, gradient(f, a), rtol=1e-9, atol=1e-9)
        if named:
            assert len(g.kernels) == 1
        with monkeypatch.context() as m:
            for user in (pulling, copies):
                m.setattr(user, "AGAIN", 0)
            apart = gx.function([x], gx.grad(f(gx, x), x), name="f")
            assert apart(a).tobytes() == got.tobytes()
        if named:
            assert len(apart.kernels) > 1


@pytest.mark.parametrize("f", [differences, variation, second, periodic])
def test_of_declared_sizes(f) -> None:
    a = np.random.default_rng(6).normal(size=(64, 129))
    found = []
    for shape in (a.shape, ("n", "m")):
        x = gx.input("x", shape, "float64")
        g = gx.function([x], gx.grad(f(gx, x), x), name="f")
        found.append(g(a))
        assert len(g.kernels) == 1
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-12)


def arena(f) -> int:
    """Bytes of values that are nobody's arguments."""
    return int(f.memory_plan().rpartition("arena: ")[2].split()[0])


@pytest.mark.parametrize("f, shape", [
    (differences, (64, 129)), (variation, (64, 129)), (second, (64, 129)), (rosenbrock, (5000,)),
])
def test_a_loss_beside_its_gradient(f, shape) -> None:
    """Neither stores differences for the other."""
    a = np.random.default_rng(7).normal(size=shape)
    x = gx.input("x", shape, "float64")
    loss = f(gx, x)
    both = gx.function([x], [loss, gx.grad(loss, x)], name="f")
    value, slope = both(a)
    np.testing.assert_allclose(value, f(np, a), rtol=1e-12)
    alone = gx.function([x], gx.grad(loss, x), name="f")
    np.testing.assert_allclose(slope, alone(a), rtol=1e-11, atol=1e-9)
    assert arena(both) < 4096


def polynomial(x, nodes: int):
    y = x
    for k in range(nodes):
        y = y + 0.25 if k % 2 else y * x
    return y


@pytest.mark.parametrize("n, most", [(1000, 12), (1 << 17, 24), ("n", 12)])
@pytest.mark.parametrize("places", [2, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_more_work_is_stored(n, most, places, padded) -> None:
    """By what a kernel would compute again: more where what is stored would leave the caches."""
    size = 50 if n == "n" else n
    a = np.random.default_rng(1).uniform(0.5, 1, size)
    for nodes in (most // (places - 1), most // (places - 1) + 1):
        x = gx.input("x", (n,), "float64")
        y, z = polynomial(x, nodes), polynomial(a, nodes)
        if padded:
            parts = [gx.pad(y, ((k, places - 1 - k),)) for k in range(places)]
            want = sum(np.pad(z, ((k, places - 1 - k),)) for k in range(places))
        else:
            length = x.shape[0] - (places - 1)
            parts = [y[k : k + length] for k in range(places)]
            want = sum(z[k : k + size - (places - 1)] for k in range(places))
        total = parts[0] + parts[1]
        for p in parts[2:]:
            total = total + p
        f = gx.function([x], total, name="f")
        np.testing.assert_allclose(f(a), want, rtol=1e-12)
        assert len(f.kernels) == (1 if nodes * (places - 1) <= most else 2)


@pytest.mark.parametrize("places, most", [(1, 12), (2, 6)])
@pytest.mark.parametrize("step", [1, 2])
def test_more_work_is_stored_for_another_kernel(places: int, most: int, step: int) -> None:
    """By how much it computes again; and what is made of every second element always is."""
    a = np.random.default_rng(8).uniform(0.5, 1, 5001)
    for nodes in (most, most + 1):
        x = gx.input("x", a.shape, "float64")
        y, z = (polynomial(v[step::step] - v[:-step:step], nodes - 1) for v in (x, a))
        out, want = gx.pad(y, ((1, 0),)), np.pad(z, ((1, 0),))
        if places == 2:
            out, want = out - gx.pad(y, ((0, 1),)), want - np.pad(z, ((0, 1),))
        f = gx.function([x], [gx.sum(y * y), out], name="f")
        total, padded = f(a)
        np.testing.assert_allclose(total, (z * z).sum(), rtol=1e-12)
        np.testing.assert_allclose(padded, want, rtol=1e-12)
        assert (arena(f) < 4096) == (nodes == most and step == 1)


def test_what_is_wider_is_not_read_again() -> None:
    a = np.random.default_rng(9).normal(size=5001)
    x = gx.input("x", a.shape, "float64")
    y = gx.astype(x[1:], "float32") - gx.astype(x[:-1], "float32")
    f = gx.function([x], [gx.sum(y * y), gx.pad(y, ((1, 0),))], name="f")
    z = a[1:].astype("f4") - a[:-1].astype("f4")
    np.testing.assert_array_equal(f(a)[1], np.pad(z, ((1, 0),)))
    assert arena(f) > 4096


@pytest.mark.parametrize("nodes", [8, 9])
def test_what_is_spread_over_a_row(nodes: int) -> None:
    """Is computed for each of its elements, if that is little."""
    a, b = np.random.default_rng(3).uniform(0.5, 1, (2, 40))
    x, y = gx.input("x", ("n",), "float64"), gx.input("y", ("m",), "float64")
    f = gx.function([x, y], polynomial(x, nodes)[1:, None] * y, name="f")
    np.testing.assert_allclose(f(a, b), polynomial(a, nodes)[1:, None] * b, rtol=1e-12)
    assert len(f.kernels) == (1 if nodes == 8 else 2)


def test_at_one_place_anything_is_computed() -> None:
    x = gx.input("x", ("n",), "float64")
    y = polynomial(gx.exp(x), 30)
    f = gx.function([x], y[1:] * 2.0, name="f")
    a = np.random.default_rng(4).normal(size=33) / 8
    np.testing.assert_allclose(f(a), polynomial(np.exp(a), 30)[1:] * 2, rtol=1e-9)
    assert len(f.kernels) == 1


@pytest.mark.parametrize("readers", [4, 5])
def test_many_paddings_read_what_is_stored(readers: int) -> None:
    a = np.random.default_rng(5).normal(size=1 << 17)
    x = gx.input("x", a.shape, "float64")
    y = polynomial(x, 5)
    total = gx.pad(y, ((0, readers - 1),))
    for k in range(1, readers):
        total = total + gx.pad(y, ((k, readers - 1 - k),))
    f = gx.function([x], total, name="f")
    want = np.convolve(polynomial(a, 5), np.ones(readers))
    np.testing.assert_allclose(f(a), want, rtol=1e-9, atol=1e-9)
    assert len(f.kernels) == (1 if readers == 4 else 2)


def test_of_operands_operands() -> None:
    """Which only the sum of what reads them brings together: a filter over and over, of more than
    caches hold."""
    a = np.random.default_rng(11).normal(size=(1024, 800))
    x = gx.input("x", a.shape, "float64")
    y, z = x, a
    for _ in range(3):
        y, z = (v[:-2] * 0.25 + v[1:-1] * 0.5 + v[2:] * 0.25 for v in (y, z))
        y, z = gx.pad(y, ((1, 1), (0, 0))), np.pad(z, ((1, 1), (0, 0)))
    f = gx.function([x], y, name="f")
    np.testing.assert_allclose(f(a), z, rtol=1e-12, atol=1e-15)
    assert len(f.kernels) == 1


@pytest.mark.parametrize("depth", [0, 1])
def test_conditions_of_any_reader_count(depth: int, monkeypatch) -> None:
    """Of what is read where it is made, and through a roll, which is one."""
    monkeypatch.setattr(pulling, "MAX_DEPTH", depth)
    a = np.random.default_rng(10).normal(size=(64, 129))
    x = gx.input("x", a.shape, "float64")
    y, z = polynomial(x, 5), polynomial(a, 5)
    f = gx.function([x], y - gx.roll(y, 1, axis=0), name="f")
    np.testing.assert_allclose(f(a), z - np.roll(z, 1, axis=0), rtol=1e-9, atol=1e-12)
    assert len(f.kernels) == 2 - depth
    assert len(gx.function([x], y[1:] - y[:-1], name="f").kernels) == 1  # no condition


@pytest.mark.parametrize("what", ["output", "reduced", "costly", "another kernel"])
def test_what_others_read_is_stored(what: str) -> None:
    """And where computing it again costs too much."""
    a = np.random.default_rng(2).normal(size=(40, 30))
    x = gx.input("x", ("n", "m"), "float64")
    y, z = (gx.exp(x), np.exp(a)) if what == "costly" else (2.0 * x + 1.0, 2.0 * a + 1.0)
    if what == "reduced":
        y, z = gx.sum(y, axis=1, keepdims=True), z.sum(axis=1, keepdims=True)
    up, down = ((1, 0), (0, 0)), ((0, 1), (0, 0))
    outs, want = [gx.pad(y, up) - gx.pad(y, down)], [np.pad(z, up) - np.pad(z, down)]
    if what == "output":
        outs, want = [*outs, y], [*want, z]
    if what == "another kernel":
        outs, want = [*outs, gx.cumulative_sum(y, axis=0)], [*want, z.cumsum(axis=0)]
    f = gx.function([x], outs, name="f")
    for got, w in zip(f(a), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12)
    assert len(f.kernels) == 2


def computed(f) -> int:
    """How many expressions the kernels of a function have for an element, all together."""
    return sum(k.text.count("\n  e") for k in f.kernels)


def test_what_reads_at_several_places_reads_at_each() -> None:
    """Three steps of a Haar wavelet, with the gradient: each step reads the one before at two
    places, so that all in one kernel took 436 ms for 512 x 512, in three 3.4."""
    x = gx.input("x", (16, 32), "float64")
    y = x
    for _ in range(3):
        even, odd = y[:, ::2], y[:, 1::2]
        y = gx.concat([even + odd, even - odd], axis=1) * 0.7
    f = gx.function([x], gx.grad(gx.sum(y * y), x))
    assert computed(f) < 300
    a = np.random.default_rng(1).normal(size=(16, 32))
    np.testing.assert_allclose(f(a), 2 * (2 * 0.49) ** 3 * a, rtol=1e-12)


@pytest.mark.parametrize("steps", [12, 40, 80])
def test_a_shift_register_grows_with_its_steps(steps: int) -> None:
    """Row t reads row t - 1 one element further: 60 steps in one kernel, each at the places of all
    behind it, were 51,000 expressions, and 1.3 million lines for LLVM."""
    x = gx.input("x", (30,), "float64")
    state, seen = x, []
    for _ in range(steps):
        state = gx.concat([state[1:], state[:1] * 0.5])
        seen.append(state)
    f = gx.function([x], gx.stack(seen))
    assert computed(f) < 500 and f.llvm_ir().count("\n") < 20_000
    a = np.random.default_rng(1).normal(size=30)
    long = np.concatenate([a * 0.5**k for k in range(4)])
    want = [long[k : k + 30] for k in range(1, steps + 1)]
    np.testing.assert_allclose(f(a), want, rtol=1e-12)
