"""Products of vectors with matrices kept in fewer bytes, which are nowhere made whole."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(43)


def whole(*shape: int) -> np.ndarray:
    """Small whole numbers: their sums are exact in any order."""
    return RNG.integers(-4, 5, shape).astype("f4")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_weights_in_fewer_bytes(dtype):
    """From either side, of a batch, with a scale; one after the other; no array for the matrix."""
    w, u, keys = whole(128, 96), whole(96, 128), whole(4, 64, 32)
    a, left, scale, queries = whole(96), whole(1, 128), whole(128), whole(4, 32)
    x, y, q = gx.input("x", (96,)), gx.input("y", (1, 128)), gx.input("q", (4, 32))
    wide, back, cache = (
        gx.astype(gx.variable(m, name, dtype), "float32")
        for m, name in ((w, "w"), (u, "u"), (keys, "keys"))
    )
    s = gx.variable(scale, "s")
    cases = [
        (wide @ x, w @ a), (y @ wide, left @ w), ((wide * s[:, None]) @ x, scale * (w @ a)),
        (gx.nn.relu(back @ gx.nn.relu(wide @ x)) + 1, np.maximum(u @ np.maximum(w @ a, 0), 0) + 1),
        (gx.einsum("hd,hld->lh", q, cache), np.einsum("hd,hld->lh", queries, keys)),
    ]
    for got, want in cases:
        f = gx.function([x, y, q], got)
        np.testing.assert_array_equal(f(a, left, queries), want)
        assert "dot" not in str(f.optimized)
        assert int(f.memory_plan().rpartition("arena: ")[2].split()[0]) < 2048


def test_halves_are_summed_in_f32():
    """2,048 ones and a half: one after the other they are 2,048 in f16, in bf16 256."""
    ones = np.ones((2, 2050), "f4")
    for dtype, want in (("float16", 2050), ("bfloat16", 2048)):
        w, x = gx.variable(ones, "w", dtype), gx.input("x", (2050,))
        f = gx.function([x], gx.astype(w @ gx.astype(x, dtype), "float32"))
        assert "dot" not in str(f.optimized)
        np.testing.assert_array_equal(f(ones[0]), [want, want])


def test_sums_are_never_minus_zero():
    """As of products, which begin with 0."""
    w, x = gx.variable(np.full((4096, 1), -0.0), "w", "bfloat16"), gx.input("x", (1,))
    f = gx.function([x], gx.astype(w, "float32") @ x)
    assert not np.signbit(f(np.ones(1, "f4"))).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("spec, sizes", [
    ("ijk,j->ik", (7, 30, 40)), ("ijk,ik->j", (7, 30, 40)), ("ijkl,jl->ik", (5, 6, 30, 9)),
    ("ijkl,ik->jl", (5, 6, 30, 9)), ("ijkl,kj->il", (5, 6, 30, 9)), ("ijkl,ik->ijl", (5, 6, 30, 9)),
    ("ijk,j->ik", (1, 30, 40)), ("ijk,j->ik", (3, 1, 2)), ("ijk,j->ik", (3, 0, 2)),
])  # fmt: skip
def test_axes_that_lie_apart(spec: str, sizes: tuple[int, ...], named: bool, dtype: str):
    """A matrix beside a vector is read where it is, from either side; so are gradients."""
    left, right, _ = spec.replace("->", ",").split(",")
    a = whole(*sizes)
    b = whole(*(sizes[left.index(c)] for c in right))
    x, y = (
        gx.input(name, tuple(axes) if named else m.shape, dtype)
        for name, axes, m in (("x", left, a), ("y", right, b))
    )
    want = np.einsum(spec, a, b)
    f = gx.function([x, y], [gx.einsum(spec, x, y), gx.einsum(spec.replace(
        f"{left},{right}", f"{right},{left}"), y, x)], name="f")
    if named or 1 not in sizes:  # else they lie side by side
        assert "dot" not in str(f.optimized)
    for got in f(a.astype(dtype), b.astype(dtype)):
        np.testing.assert_array_equal(got, want.astype(dtype))
        assert not np.signbit(got[want == 0]).any()
    if dtype in ("float32", "float64"):
        slope = gx.function([x, y], gx.grad(gx.sum(gx.einsum(spec, x, y) ** 2), [x, y]), name="g")
        back = spec.split("->")[1]
        for got, m, other, axes in zip(
            slope(a.astype(dtype), b.astype(dtype)), (b, a), (right, left), (left, right),
            strict=True,
        ):
            np.testing.assert_allclose(
                got, 2 * np.einsum(f"{back},{other}->{axes}", want, m), rtol=1e-5)
    assert len(f.kernels) <= 2  # one for each


def test_of_several_vectors_it_is_transposed() -> None:
    x, y = gx.input("x", (7, 30, 40)), gx.input("y", (30, 2))
    a, b = whole(7, 30, 40), whole(30, 2)
    f = gx.function([x, y], gx.einsum("ijk,jl->ikl", x, y), name="f")
    np.testing.assert_array_equal(f(a, b), np.einsum("ijk,jl->ikl", a, b))
    assert "dot" in str(f.optimized)
