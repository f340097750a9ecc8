"""Axes that index arithmetic divides are cut, so that vectors read what stands side by side."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc import dims, interpret
from graphc.codegen.nests.loops import Pred, axis
from graphc.codegen.nests.ranges import bounds, divided, holds

RNG = np.random.default_rng(23)


def image(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


# Formulas that NumPy computes by the same roundings, for arrays of n x 2m x 3.
MOVED = {
    "repeated": lambda xp, x: xp.repeat(x, 3, axis=1) * 2,
    "repeated along the rows": lambda xp, x: xp.repeat(x, 2, axis=2) - 1,
    "tiled": lambda xp, x: xp.tile(x, (2, 2, 1)) * 2,
    "merged behind a transposition": lambda xp, x: (
        xp.reshape(xp.permute_dims(x, (1, 0, 2)), (x.shape[1], 3 * x.shape[0])) * 2),
    "flat, turned": lambda xp, x: xp.reshape(xp.permute_dims(x, (2, 1, 0)), (-1,)) + 1,
    "pairs turned": lambda xp, x: xp.reshape(
        xp.stack([-x[:, 1::2], x[:, ::2]], axis=2), x.shape) * 2 + x,
    "all pairs, flat": lambda xp, x: xp.reshape(
        x[:, :, None, 0] * x[:, None, :, 1], (x.shape[0], x.shape[1] * x.shape[1])) + 1,
    "groups apart": lambda xp, x: xp.reshape(
        xp.permute_dims(xp.reshape(x, (x.shape[0], 2, -1, 3)), (0, 2, 1, 3)), x.shape) * 2,
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", MOVED)
def test_arithmetic_on_what_was_moved_and_merged(name: str, symbolic: bool) -> None:
    formula = MOVED[name]
    for n, m in ((1, 1), (2, 3), (5, 8), (16, 17), (33, 40)):
        for dtype in ("float32", "float64", "int16"):
            shape = ("n" if symbolic else n, 2 * m, 3)
            x = gx.input("x", shape, dtype)
            a = guarded((n, 2 * m, 3), dtype)
            a[:] = (100 * RNG.normal(size=a.shape)).astype(dtype)
            want = formula(np, a)
            f = gx.function([x], formula(gx, x))
            for at_end in (True, False):
                out = guarded(want.shape, dtype, at_end)
                f(a, out=out)
                np.testing.assert_array_equal(out, want.astype(dtype))


@pytest.mark.parametrize("formula", [
    lambda x: gx.repeat(x, 2, axis=1) * 2,
    lambda x: gx.tile(x, (2, 2)) * 2,
    lambda x: gx.reshape(x.T, (-1,)) + 1,
    lambda x: gx.reshape(gx.permute_dims(gx.reshape(x, (4, 8, 64)), (1, 0, 2)), (8, 256)) * 2,
], ids=["repeated", "tiled", "turned", "heads"])
def test_nothing_is_gathered(formula) -> None:
    x = gx.input("x", (32, 64))
    f = gx.function([x], formula(x), name="f")
    f(image(32, 64))
    assert "masked.gather" not in f.llvm_ir()


# What is put together in rows of n x 4k, from arrays of as many elements or half of them.
PUT_TOGETHER = {
    "heads side by side": ((4, None, "k"), lambda m, x: m.reshape(
        m.permute_dims(x, (1, 0, 2)), (x.shape[1], 4 * x.shape[2]))),
    "heads woven": ((None, "k", 4), lambda m, x: m.reshape(
        m.permute_dims(x, (0, 2, 1)), (x.shape[0], 4 * x.shape[1]))),
    "repeated": ((None, "2k"), lambda m, x: m.repeat(x, 2, axis=1)),
    "tiled": ((None, "2k"), lambda m, x: m.tile(x, (1, 2))),
    "pairs": ((None, "2k"), lambda m, x: m.reshape(
        m.stack([x, x * x], axis=2), (x.shape[0], 2 * x.shape[1]))),
}
OF_ROWS = {
    "sums": lambda m, y: m.sum(y, axis=1),
    "total": lambda m, y: m.sum(y),
    "greatest and least": lambda m, y: m.max(y, axis=1) - m.min(y, axis=1),
    "first of the greatest": lambda m, y: m.argmax(y, axis=1),
    "centred": lambda m, y: y - m.mean(y, axis=1, keepdims=True),
    "deviations": lambda m, y: m.std(y, axis=1),
    "running": lambda m, y: m.cumulative_sum(y, axis=1),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("of", OF_ROWS)
@pytest.mark.parametrize("name", PUT_TOGETHER)
def test_what_is_added_up_of_what_was_put_together(name: str, of: str, symbolic: bool) -> None:
    shape, formula = PUT_TOGETHER[name]
    for n, k in ((1, 1), (3, 2), (5, 3), (17, 16), (33, 25), (6, 70)):
        sizes = [{None: n, "k": k, "2k": 2 * k}.get(s, s) for s in shape]
        a = np.round(9 * RNG.normal(size=sizes)).astype("float32")  # of integers no sum rounds
        x = gx.input("x", ["n" if s is None and symbolic else d
                           for s, d in zip(shape, sizes, strict=True)])
        got = gx.function([x], OF_ROWS[of](gx, formula(gx, x)))(a)
        want = OF_ROWS[of](np, formula(np, a.astype("float64")))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PUT_TOGETHER)
def test_what_is_added_up_is_not_gathered(name: str) -> None:
    """64 sums of 1000 f32 of four heads each took Zen 4 99 us, 2.5 in strips."""
    shape, formula = PUT_TOGETHER[name]
    x = gx.input("x", [{None: "n", "k": 50, "2k": 100}.get(s, s) for s in shape])
    f = gx.function([x], gx.sum(formula(gx, x), axis=1), name="f")
    assert "masked.gather" not in f.llvm_ir()


@pytest.mark.parametrize("formula", [
    lambda x: gx.sum(x[:, ::2], axis=0), lambda x: gx.std(x[:, 1::3], axis=0),
    lambda x: gx.max(gx.reshape(x, (-1, 24, 4))[:, :, 2], axis=0),
], ids=["sums", "deviations", "greatest"])
def test_columns_some_elements_apart_are_picked_from_rows(formula) -> None:
    x = gx.input("x", ("n", 96))
    f = gx.function([x], formula(x), name="f")
    assert "masked.gather" not in f.llvm_ir()
    a = image(70, 96)
    (want,), _ = interpret.evaluate(f.graph, [a])
    np.testing.assert_allclose(f(a), want, rtol=1e-5, atol=1e-5)


def test_gradients_of_slices_with_steps_go_by_vectors_of_all_rows() -> None:
    """Rows of 24, of which half are read: their axes were kept apart by a condition on neither, and
    2,000 of them took Zen 4 115 us in the place of 11.5."""
    x = gx.input("x", (50, 24))
    t = x[:, ::2]
    (g,) = gx.grad(gx.sum(t * t * t), [x])
    f = gx.function([x], g, name="f")
    assert f.program.kernels[0].text.startswith("for i1<600:\n")  # 50 rows of 12 pairs, as one
    a = image(50, 24)
    want = np.zeros_like(a)
    want[:, ::2] = 3 * a[:, ::2] ** 2
    np.testing.assert_allclose(f(a), want, rtol=1e-6)


@pytest.mark.parametrize("formula", [
    lambda m, x: m.reshape(x, (4, 3, 80)) - m.mean(m.reshape(x, (4, 3, 80)), axis=2, keepdims=True),
    lambda m, x: m.sum(m.reshape(x * 2 + 1, (4, 3, 80)), axis=2),
], ids=["groups of channels", "behind arithmetic"])
def test_rows_of_another_shape_are_read_as_memory_has_them(formula) -> None:
    """Sums over a shape that splits what it merges read no element by quotients and remainders."""
    a = image(4, 6, 5, 8)
    x = gx.input("x", a.shape)
    f = gx.function([x], formula(gx, x), name="f")
    np.testing.assert_allclose(f(a), formula(np, a), rtol=1e-6, atol=1e-6)
    assert "in0[80*i1+i2]" in f.kernels[0].text


SLICES = [np.s_[:, ::2], np.s_[:, 1::2], np.s_[:, ::3], np.s_[::2, ::2], np.s_[1::3, 2::5],
          np.s_[::2], np.s_[:, -2::-2], np.s_[::-3, 1:-1:2]]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("at", SLICES, ids=str)
def test_gradients_of_slices_with_steps(at: tuple[slice, ...], symbolic: bool) -> None:
    """Zeros between, whatever is left of the last step."""
    for n, m in ((3, 5), (6, 30), (31, 64), (32, 65), (33, 66), (34, 121)):
        x = gx.input("x", ("n", "m") if symbolic else (n, m), "float64")
        f = gx.function([x], gx.grad(gx.sum(x[at] ** 2 * 3), x))
        a = guarded((n, m), "float64")
        a[:] = image(n, m, dtype="float64")
        want = np.zeros_like(a)
        want[at] = a[at] * 3 * 2
        for at_end in (True, False):
            out = guarded((n, m), "float64", at_end)
            f(a, out=out)
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("n", [511, 512])
def test_rows_that_steps_do_not_divide_are_vectors_too(n: int) -> None:
    x = gx.input("x", (n, n))
    f = gx.function([x], gx.grad(gx.sum(x[:, :-1:2] * x[:, 1::2]), x), name="f")
    a = image(n, n)
    want = np.zeros_like(a)
    want[:, :-1:2], want[:, 1::2] = a[:, 1::2], a[:, :-1:2]
    np.testing.assert_array_equal(f(a), want)
    assert "masked.gather" not in f.llvm_ir()


@pytest.mark.parametrize("symbolic", [False, True])
def test_steps_of_two_lengths(symbolic: bool) -> None:
    """No number of strips of the one is whole for the other."""
    for n in (1, 5, 41, 521, 522):
        x = gx.input("x", ("n" if symbolic else n,), "float64")
        f = gx.function([x], gx.grad(gx.sum(x[::2] ** 2) + gx.sum(x[1::3] ** 2), x))
        a = image(n, dtype="float64")
        want = np.zeros_like(a)
        want[::2] += 2 * a[::2]
        want[1::3] += 2 * a[1::3]
        np.testing.assert_array_equal(f(a), want)


def test_quotients_and_remainders_are_what_they_were() -> None:
    """Random polynomials in axes of known sizes, at every place, and what bounds them."""
    i, j, k = (axis(f"%i{n}") for n in range(3))
    for _ in range(300):
        sizes = {f"%i{n}": int(RNG.integers(1, 5)) for n in range(3)}
        inner = sum(int(RNG.integers(0, 9)) * a for a in (i, j, k)) + int(RNG.integers(0, 9))
        by, then = (int(b) for b in RNG.integers(1, 13, 2))
        p = (dims.floordiv(inner, by) * int(RNG.integers(1, 4)) + dims.mod(inner + j, by)
             + dims.mod(dims.floordiv(inner, by), then))
        simple, ends = divided(p, sizes), bounds(inner, sizes)
        found = []
        for at in itertools.product(*map(range, sizes.values())):
            env = dict(zip(sizes, at, strict=True))
            assert dims.evaluate(simple, env) == dims.evaluate(p, env)
            found.append(dims.evaluate(inner, env))
        assert ends == (min(found), max(found))
        low, high = (int(b) for b in RNG.integers(0, 60, 2))
        held = holds(Pred(inner, low, high), sizes)
        truth = {low <= value < high for value in found}
        assert held is None or truth == {held}


def test_quotients_of_named_sizes() -> None:
    i, j, n = axis("%i0"), axis("%i1"), dims.dim("n")
    sizes = {"%i0": 3, "%i1": n}
    assert divided(dims.mod(i * n + j, n), sizes) == j
    assert divided(dims.floordiv(i * n + j, n), sizes) == i
    assert divided(dims.mod(i * n + j + 1, n), sizes) == dims.mod(i * n + j + 1, n)
    assert divided(dims.floordiv(6 * i + j, 12), {"%i0": 3, "%i1": 6}) == dims.floordiv(i, 2)
