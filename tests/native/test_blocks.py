"""Blocks: runs of small kernels of a graph that is too long for one straight function."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc import interpret


def is_straight(program):
    return [k.name for k in program.kernels] == [f"{program.name}.straight"]


def filter_of(steps, n=6, m=2):
    """A Kalman filter's steps, one after the other, whose state stays: (function, arrays)."""
    rng = np.random.default_rng(3)
    move = np.eye(n) + 0.1 * np.eye(n, k=m)
    x, cov = gx.variable(rng.normal(size=n), "x"), gx.variable(np.eye(n), "cov")
    z = gx.input("z", (steps, m), "float64")
    mean, p, seen = x, cov, []
    for k in range(steps):
        mean, p = move @ mean, move @ p @ move.T + 0.01 * np.eye(n)
        s = p[:m, :m] + 0.1 * np.eye(m)
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = gx.stack([gx.stack([s[1, 1], -s[0, 1]]), gx.stack([-s[1, 0], s[0, 0]])]) / det
        gain = p[:, :m] @ inverse
        mean, p = mean + gain @ (z[k] - mean[:m]), p - gain @ p[:m]
        seen.append(mean)
    f = gx.function([z], gx.stack(seen), updates={x: mean, cov: p}, name="filter")
    return f, [rng.normal(size=(steps, m))]


def test_steps_of_an_unrolled_loop_share_a_function():
    f, arrays = filter_of(24)
    names = [k.name for k in f.program.kernels]
    assert len(names) < 12 and len(set(names)) < 5, names
    for _ in range(2):
        want, states = interpret.evaluate(f.graph, arrays)
        np.testing.assert_allclose(f(*arrays), want[0], rtol=1e-10, atol=1e-12)
        for s, a in states.items():
            np.testing.assert_allclose(s.array, a, rtol=1e-10, atol=1e-12)


def test_what_a_step_reads_of_all_steps():
    """Rows, elements and pieces of rows, by steps that share a function; columns, which do not."""
    rng = np.random.default_rng(5)
    a = [rng.normal(size=s).astype("f4") for s in ((40, 3, 4), (40,), (3, 40))]
    x, y, z = (gx.input(n, v.shape) for n, v in zip("xyz", a, strict=True))
    h, found = gx.zeros((3, 4)), []
    for k in range(40):
        h = gx.tanh(x[k] @ x[k].T @ h) * y[k] + gx.sum(x[k, 1, 1:3] @ x[k, 1:, :2].T)
        h = h + gx.sum(h @ h.T, axis=0)[:, None] * z[:, k : k + 1]
        found.append(gx.sum(h))
    f = gx.function([x, y, z], [h, gx.stack(found)], name="f")
    assert len(f.program.kernels) < 100
    want, _ = interpret.evaluate(f.graph, a)
    for got, w in zip(f(*a), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("first", ["rows", "arrays"])
def test_windows_and_whole_operands_do_not_share_a_function(first):
    """Steps over rows of one array, and the same steps over arrays of a row each."""
    steps, rng = 8, np.random.default_rng(7)
    sizes = [(6, 6), (1, 6), (3,), (steps, 6), *[(1, 6)] * steps]
    a = [rng.normal(size=s).astype("f4") for s in sizes]
    inputs = [gx.input(f"x{k}", v.shape if k != 2 else ("n",)) for k, v in enumerate(a)]
    w, h, between, rows, *arrays = inputs

    def loop(xs):
        y = h
        for x in xs:
            y = (gx.tanh(y @ w + x) @ w + x) @ w
        return y

    both = [[rows[k : k + 1] for k in range(steps)], arrays][:: 1 if first == "rows" else -1]
    f = gx.function(inputs, [loop(both[0]), gx.cumsum(between), loop(both[1])], name="f")
    want, _ = interpret.evaluate(f.graph, a)
    for got, v in zip(f(*a), want, strict=True):
        np.testing.assert_allclose(got, v, rtol=1e-3, atol=1e-4)
    assert len(f.program.kernels) < 2 * steps


@pytest.mark.parametrize("steps", [25, 40])
def test_the_last_block_of_steps_ends_with_them(steps):
    """Four steps a block, and fewer are left: the fourth was what comes behind the loop, which was
    in a block of its own already, and then what that reads was not there yet: KeyError."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(4, 4)).astype("f4") * 0.3, rng.normal(size=(2, 4)).astype("f4")
    us, x = gx.input("u", (steps, 2)), gx.input("x", (4,))
    state, cost = x, gx.sum(us * us)
    for k in range(steps):
        state = gx.tanh(state @ a + us[k] @ b) + gx.sin(state)
        cost = cost + gx.sum(state * state)
    f = gx.function([us, x], [cost, gx.grad(cost, us)])
    arrays = [rng.normal(size=(steps, 2)).astype("f4"), rng.normal(size=4).astype("f4")]
    for got, want in zip(f(*arrays), interpret.evaluate(f.graph, arrays)[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert len(f.program.kernels) < 12


def test_what_a_block_reads_comes_before_it():
    """Each step declares a variable, and sets it."""
    rng = np.random.default_rng(6)
    a, steps = rng.normal(size=(4, 4)).astype("f4"), 60
    x = gx.input("x", (4, 4))
    h, updates = x, {}
    for k in range(steps):
        v = gx.variable(np.float32([k, 2, 3, 4]), f"v{k}")
        h = gx.tanh(x @ h) + v
        updates[v] = v + h[0]
    f = gx.function([x], h, updates=updates, name="own")
    assert len(f.program.kernels) < steps
    (want,), set_to = interpret.evaluate(f.graph, [a])
    np.testing.assert_allclose(f(a), want, rtol=1e-3, atol=1e-4)
    for state, value in set_to.items():
        np.testing.assert_allclose(state.array, value, rtol=1e-3, atol=1e-4)


def test_a_patchwork_is_written_out():
    """In a loop, each vector of 40 x 2 elements would take all 40 rows."""
    x, w = gx.input("x", (40, 2)), gx.input("w", (200, 200))
    rows = [gx.sin(x[t]) * (t + 1) if t % 2 else x[t] ** 2 - t for t in range(40)]
    f = gx.function([x, w], [gx.stack(rows), w @ w])
    assert not any("i0<40" in str(k.text) for k in f.program.kernels)
    a, b = np.linspace(-3, 3, 80, dtype="f4").reshape(40, 2), np.eye(200, dtype="f4")
    (want, _), _ = interpret.evaluate(f.graph, [a, b])
    np.testing.assert_allclose(f(a, b)[0], want, rtol=1e-6, atol=1e-6)
    parts = [gx.input(f"x{k}", (32,)) for k in range(65)]  # 2,080 elements: seconds of LLVM's time
    assert gx.function(parts, gx.stack(parts, axis=1)).llvm_ir().count("\n") < 2000


def test_a_stack_that_is_written_out_is_no_long_loop():
    """A Jacobian's columns are written by the kernel of all: three loops over three elements each
    took 0.34 us in the place of 0.19, since three kernels seemed worth few lines."""
    q = gx.input("q", (7,), "float64")
    x, y, z = (gx.constant(row, "float64") for row in np.eye(3))
    at = gx.constant([0.1, -0.2, 0.3], "float64")
    for k in range(7):
        s, c = gx.sin(q[k]), gx.cos(q[k])
        x, y = c * x + s * y, c * y - s * x
        at = at + 0.2 * z + 0.3 * x
        y, z = (z, -y) if k % 2 else (-z, y)
    f = gx.function([q], [at, gx.jacobian(at, q)])
    assert ".task(" not in f.llvm_ir()
    a = np.linspace(-2, 2, 7)
    want, _ = interpret.evaluate(f.graph, [a])
    for got, w in zip(f(a), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12, atol=1e-15)


MOVED = {
    "windows": ((70, 70), lambda x: [x[k : k + 60, k : k + 60] for k in range(9)]),
    "transposed": ((9, 72, 40), lambda x: [x[k].T for k in range(9)]),
    "mirrored": ((9, 72, 40), lambda x: [gx.flip(x[k], axis=-1) for k in range(9)]),
    "every other": ((9, 80, 80), lambda x: [x[k, ::2, ::2] for k in range(9)]),
    "spread": ((9, 60), lambda x: [gx.broadcast_to(x[k, :, None], (60, 60)) for k in range(9)]),
}


@pytest.mark.parametrize("case", MOVED)
@pytest.mark.parametrize("computed", [False, True])
def test_what_moves_elements_is_no_block_for_computing_little(case, computed):
    """Nine slices of 8 x 14 x 14 x 32, a convolution's, were a function of 134,000 lines, for which
    LLVM took 150 s: they counted as nothing, since they compute nothing."""
    shape, make = MOVED[case]
    x = gx.input("x", shape)
    f = gx.function([x], [gx.tanh(v) if computed else v for v in make(x)])
    assert f.llvm_ir().count("\n") < 3000
    a = np.linspace(-1, 1, int(np.prod(shape)), dtype="f4").reshape(shape)
    for got, want in zip(f(a), interpret.evaluate(f.graph, [a])[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_small_moves_are_still_blocks():
    """Also of one element along a row, or of one computed number."""
    x = gx.input("x", (12, 4, 5))
    w = gx.input("w", (200, 200))
    parts = [f(x[k]) for k in range(12) for f in (
        lambda v: v.T, lambda v: gx.broadcast_to(v[:, 2:3], (4, 33)),
        lambda v: gx.broadcast_to(gx.sum(v * v), (9,)),
    )]
    f = gx.function([x, w], [*parts, w @ w])
    assert len(f.program.kernels) < 12
    a, b = np.linspace(-1, 1, 240, dtype="f4").reshape(12, 4, 5), np.eye(200, dtype="f4")
    for got, want in zip(f(a, b), interpret.evaluate(f.graph, [a, b])[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
