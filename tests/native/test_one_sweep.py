"""Sums and maps of the same operands in one kernel: values, edges, threads, what stays apart."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.emission import lane_masks
from graphc.codegen.emission.positions import ranges
from graphc.codegen.machine import target
from graphc.passes import one_sweep

SIZES = (0, 1, 2, 3, 31, 64, 65, 200, 513, 5000)


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def valley(x):
    return gx.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def valley_by_hand(x):
    x = x.astype(np.float64)
    off, left = x[1:] - x[:-1] ** 2, 1 - x[:-1]
    slope = np.zeros(len(x))
    slope[1:] = 200 * off
    slope[:-1] -= 400 * x[:-1] * off + 2 * left
    return (100 * off**2 + left**2).sum(), slope


def bent(x):
    """Second differences: two places less, from the middle of each three."""
    return gx.sum((x[2:] - 2.0 * x[1:-1] + x[:-2]) ** 2 * x[1:-1])


def bent_by_hand(x):
    x = x.astype(np.float64)
    if len(x) < 3:
        return 0.0, np.zeros(len(x))
    second, slope = x[2:] - 2 * x[1:-1] + x[:-2], np.zeros(len(x))
    pull = 2 * second * x[1:-1]
    slope[2:] += pull
    slope[1:-1] += second**2 - 2 * pull
    slope[:-2] += pull
    return (second**2 * x[1:-1]).sum(), slope


def picture(u, z):
    down, right = u[1:] - u[:-1], u[:, 1:] - u[:, :-1]
    return gx.sum((u - z) ** 2) + 0.5 * (gx.sum(down**2) + gx.sum(right**2))


def picture_by_hand(u, z):
    u, z = u.astype(np.float64), z.astype(np.float64)
    down, right = np.diff(u, axis=0), np.diff(u, axis=1)
    slope = 2 * (u - z)
    slope[1:] += down
    slope[:-1] -= down
    slope[:, 1:] += right
    slope[:, :-1] -= right
    return ((u - z) ** 2).sum() + 0.5 * ((down**2).sum() + (right**2).sum()), slope


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("f, by_hand", [(valley, valley_by_hand), (bent, bent_by_hand)])
def test_neighbours_along_a_row(f, by_hand, named, dtype, monkeypatch):
    both = None
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    for n in SIZES if named else (33, 200, 513):
        if both is None or not named:
            x = gx.input("x", ("n" if named else n,), dtype)
            both = gx.function([x], [f(x), gx.grad(f(x), x)])
            if named or n > one_sweep.LONG_ROW:  # shorter ones are apart, or straight code
                assert len(both.kernels) == 1
        data = (np.random.default_rng(n).uniform(-1, 1, n)).astype(dtype)
        out = np.full(n + 8, 7, dtype)
        value, _ = both(data, out=(np.empty((), dtype), out[3 : n + 3]))
        want, slope = by_hand(data)
        np.testing.assert_allclose(value, want, rtol=tolerance * 10, atol=tolerance)
        np.testing.assert_allclose(
            out[3 : n + 3], slope, rtol=tolerance, atol=tolerance * np.abs(slope).max(initial=1)
        )
        assert (out[:3] == 7).all() and (out[n + 3 :] == 7).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fixed", [None, (64, 64), (40, 600), (600, 40), (199, 200)])
def test_neighbours_in_a_picture(fixed, dtype):
    u, z = (gx.input(k, fixed or ("n", "m"), dtype) for k in "uz")
    energy = picture(u, z)
    both, value = gx.function([u, z], [energy, gx.grad(energy, u)]), gx.function([u, z], energy)
    if fixed in (None, (40, 600)):
        # and one of the totals; sums are not padded for each other alone
        assert [len(f.kernels) for f in (both, value)] == [2, 3]
    if fixed == (64, 64):  # most vectors of a row would have conditions on its end
        assert [len(f.kernels) for f in (both, value)] == [3, 3]
    tolerance = 3e-5 if dtype == "float32" else 1e-12
    shapes = [(1, 1), (1, 9), (7, 1), (3, 130), (70, 33), (5, 1030), (0, 4), (4, 0)]
    for shape in [fixed] if fixed else shapes:
        rng = np.random.default_rng(shape)
        a, b = (rng.normal(size=shape).astype(dtype) for _ in range(2))
        want, slope = picture_by_hand(a, b)
        got, made = both(a, b)
        np.testing.assert_allclose(got, want, rtol=tolerance)
        np.testing.assert_allclose(value(a, b), want, rtol=tolerance)
        np.testing.assert_allclose(made, slope, rtol=tolerance, atol=tolerance * 10)


def test_any_number_of_threads_has_the_same_bits(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    data = np.random.default_rng(5).normal(size=400_003).astype("float32")
    runs = []
    for threads in (1, 2, 4):
        x = gx.input("x", ("n",))
        f = gx.function([x], [valley(x), gx.grad(valley(x), x)], threads=threads)
        runs.append(b"".join(np.asarray(y).tobytes() for y in f(data)))
    assert runs[0] == runs[1] == runs[2]


def test_a_state_that_is_read_beside_is_changed_by_a_kernel_of_its_own():
    """It would be written over while neighbours are read."""
    u = gx.variable(np.linspace(-1, 1, 700, dtype="float32"), "u")
    value = valley(u)
    step = gx.function([], value, updates={u: u - 1e-3 * gx.grad(value, u)})
    assert [bool(k.text.count("reduce")) for k in step.kernels] == [True, False]
    now = np.linspace(-1, 1, 700, dtype="float32")
    for _ in range(3):
        want, slope = valley_by_hand(now)
        np.testing.assert_allclose(step(), want, rtol=1e-5)
        now = (now - 1e-3 * slope).astype("float32")
    np.testing.assert_allclose(step.state["u"], now, rtol=1e-4, atol=1e-6)


def test_sums_over_crossed_sizes_are_read_as_they_lie():
    """(199, 200) and (200, 199) have axes of equal sizes, but not in the same order."""
    x = gx.input("x", (200, 200))
    down, right = x[1:] - x[:-1], x[:, 1:] - x[:, :-1]
    f = gx.function([x], gx.sum(down * down) + gx.sum(right * right))
    assert not re.search(r"i0\+200\*i1", "".join(k.text for k in f.kernels))
    a = np.random.default_rng(2).normal(size=(200, 200)).astype("float32")
    want = (np.diff(a, axis=0) ** 2).sum(dtype="f8") + (np.diff(a, axis=1) ** 2).sum(dtype="f8")
    np.testing.assert_allclose(f(a), want, rtol=1e-5)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_bounds_that_cannot_be_crossed_are_not_compared(dtype, level, monkeypatch):
    """With the bits of masks that compare both ends."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    x = gx.input("x", ("n", "m"), dtype)
    around = [gx.pad(x, ((0, 0), (2, 0))), gx.pad(x, ((0, 0), (0, 3))), gx.roll(x, 1, axis=1)]
    few = [gx.function([x], y * y) for y in around]
    texts = [f.llvm_ir() for f in few]
    with monkeypatch.context() as patch:
        patch.setattr(ranges, "sides", lambda p, sizes: (False, False))
        both = [gx.function([x], y * y).compile() for y in around]
    fewer = any(a != b.llvm_ir() for a, b in zip(texts, both, strict=True))
    assert fewer == (dtype != "float64")  # positions as wide as elements are compared as such
    for n, m in ((1, 1), (3, 2), (5, 17), (2, 70), (9, 200), (3, 0)):
        a = np.random.default_rng((n, m)).integers(-9, 9, (n, m)).astype(dtype)
        wanted = np.pad(a, ((0, 0), (2, 0))), np.pad(a, ((0, 0), (0, 3))), np.roll(a, 1, axis=1)
        for f, g, w in zip(few, both, wanted, strict=True):
            np.testing.assert_array_equal(f(a), w * w)
            assert f(a).tobytes() == g(a).tobytes()


def test_masks_with_one_end_or_none(monkeypatch):
    from graphc.codegen.emission.emitter import Emitter, Module
    from graphc.codegen.emission.lanes import Lanes

    e = Emitter(Module())
    L = Lanes(e, 8, target.x86("v3"))
    both, span = lane_masks.between(L, "%a", "%b", 32)
    assert span.first != "0" and both.startswith("%")
    _, span = lane_masks.between(L, "%a", "%b", 32, after=True)
    assert span.first == "0" and span.end != "8"
    _, span = lane_masks.between(L, "%a", "%b", 32, before=True)
    assert span.first != "0" and span.end == "8"
    every, span = lane_masks.between(L, "%a", "%b", 32, after=True, before=True)
    assert every == L.k("i1", True) and (span.first, span.end) == ("0", "8")


@pytest.mark.parametrize("made, kernels", [
    (lambda x: [gx.sum(x), gx.exp(x)], 1),
    (lambda x: [gx.sum(x), gx.sin(x)], 2),            # goes faster by itself,
    (lambda x: [gx.sum(gx.sin(x)), gx.sin(x) * x], 1),  # but is not computed twice
    (lambda x: [gx.sum(x * x), gx.sum(x), x * 2.0], 1),
])  # fmt: skip
def test_what_is_beside_sums(made, kernels):
    x = gx.input("x", ("n",), "float64")
    f = gx.function([x], made(x))
    assert len(f.kernels) == kernels
    a = np.random.default_rng(3).uniform(-2, 2, 1003)
    wanted = gx.function([x], made(x), mode="interpret")(a)
    for got, want in zip(f(a), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [("n",), ("n", 3), ("n", 16), ("n", "m"), (5001,), (70, 33)])
def test_reductions_of_the_same_elements(shape, dtype) -> None:
    """Are one kernel, whichever axis they are over, also where one result is made of several."""
    rng = np.random.default_rng(len(shape))
    sizes = {"n": 700, "m": 40}
    a = rng.integers(-9, 10, [sizes.get(s, s) for s in shape]).astype(dtype)
    x = gx.input("x", shape, dtype)
    for axis in (None, *range(len(shape))):
        f = gx.function([x], [gx.min(x, axis=axis), gx.max(x, axis=axis)])
        spread = gx.function([x], gx.max(x, axis=axis) - gx.min(x, axis=axis))
        assert len(f.kernels) == len(spread.kernels) == 1
        for got, want in zip(f(a), (a.min(axis), a.max(axis)), strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(spread(a), np.ptp(a, axis=axis))
        if dtype != "int32":
            sums = gx.function([x], [gx.mean(x, axis=axis), gx.sum(x * x, axis=axis)])
            assert len(sums.kernels) == 1
            mean, squares = sums(a)
            np.testing.assert_allclose(mean, a.mean(axis), rtol=1e-6)
            np.testing.assert_array_equal(squares, (a * a).sum(axis))


def test_reductions_that_stay_apart() -> None:
    """Over other axes or operands, in other lanes, of places, and where one waits for another."""
    x, y = gx.input("x", ("n", 40)), gx.input("y", ("n", 40))
    a, b = np.random.default_rng(4).normal(size=(2, 70, 40)).astype("float32")
    for first, second, want in (
        (gx.sum(x, axis=0), gx.sum(x, axis=1), (a.sum(0), a.sum(1))),
        (gx.sum(x, axis=0), gx.sum(y, axis=0), (a.sum(0), b.sum(0))),
        (gx.max(x, axis=1), gx.sum(gx.astype(x, "float64"), axis=1), (a.max(1), a.sum(1))),
        (gx.max(x, axis=1), gx.argmax(x, axis=1), (a.max(1), a.argmax(1))),
        (gx.sum(x), gx.max(x - gx.mean(x)), (a.sum(), (a - a.mean()).max())),
    ):
        f = gx.function([x, y], [first, second])
        assert len(f.kernels) == 2
        for got, w in zip(f(a, b), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)
