"""Indexing and .at against NumPy, on known and on symbolic sizes (0 and 1 included)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graphc as gx
from graphc.errors import IndexOutOfRangeError, ShapeError

S = np.s_
KEYS = [
    S[1], S[-1], S[1:3], S[::-1], S[::2], S[-3:], S[:-1], S[3:1], S[..., 0], S[None], S[:, None],
    S[1, 2], S[:, 1:3], S[::-2, ::-1], S[2:0:-1], S[-1:-4:-2], S[..., None], S[1:, ..., ::2],
    S[4:10], S[-10:2], S[10:], S[:, -1, None], S[()], S[...], S[0, ..., 1],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_known_sizes(run, key):
    a = np.arange(20, dtype="f4").reshape(5, 4)
    x = gx.input("x", (5, 4))
    got = x[key]
    assert got.shape == a[key].shape
    np.testing.assert_array_equal(run(got, x=a), a[key])


BOUNDS = [None, 0, 1, 2, 5, -1, -2, -5]
ARRAY = np.array([0, 1])
SLICES = [slice(*p) for p in itertools.product(BOUNDS, BOUNDS, [None, 2, -1, -3])]


def test_every_slice_of_a_symbolic_axis(run):
    x = gx.input("x", ("n",))
    declared = [x[s] for s in SLICES]
    for n in (0, 1, 2, 3, 7):
        a = np.arange(n, dtype="f4")
        for s, got in zip(SLICES, run(declared, x=a), strict=True):
            np.testing.assert_array_equal(got, a[s], err_msg=f"{s} of {n}")


def test_slices_of_one_length_agree():
    x = gx.input("x", ("n",))
    assert x[1:].shape == x[:-1].shape
    assert x[2:].shape == x[1:-1].shape == x[:-2].shape
    n = gx.dim("n")
    assert x[: n - 1].shape == x[1:].shape
    assert x[::-1].shape == x.shape == x[:].shape


def test_slices_that_never_reach_beyond():
    """Whole groups of a symbolic size, and what was made longer cut back to its length."""
    x = gx.input("x", ("n", 3))
    n = x.shape[0]
    groups = gx.reshape(x[: n // 4 * 4], (n // 4, 4, 3))
    before, after = gx.concat([x[:1], x])[:n], gx.concat([x, x[-1:]])
    f = gx.function([x], [gx.sum(groups, axis=1), x - before, x - after[after.shape[0] - n :]])
    for k in (0, 1, 3, 4, 9):
        a = np.arange(3 * k, dtype="f4").reshape(k, 3) ** 2
        want = [a[: k // 4 * 4].reshape(k // 4, 4, 3).sum(1), a - np.concatenate([a[:1], a])[:k],
                a - np.concatenate([a, a[-1:]])[len(a[:1]):]]
        for got, w in zip(f(a), want, strict=True):
            np.testing.assert_array_equal(got, w, err_msg=str(k))


def test_slices_up_to_a_size():
    """Their types are short, and with the rest they make up the whole."""
    x, y, z = (gx.input(name, (size,)) for name, size in (("x", "n"), ("y", "t"), ("z", "s")))
    (n,), (t,), (s,) = x.shape, y.shape, z.shape
    cut = [x[:t], x[t:], x[n - t :], x[: n - t], x[: t - 1], x[1:t:2], x[s:t], x[: 2 * t : 2]]
    assert [str(c.type) for c in cut[:4]] == [
        "f32[n-max(0, n-t)]", "f32[max(0, n-t)]", "f32[t]", "f32[max(0, n-t)]",
    ]
    assert gx.concat([x[:t], x[t:]]).shape == gx.concat([x[:5], x[5:]]).shape == x.shape
    f = gx.function([x, y, z], cut)
    for k, i, j in itertools.product((0, 1, 4, 7), (0, 1, 3, 7), (0, 2, 9)):
        a = np.arange(k, dtype="f4")
        m = min(i, k)  # the last t must be there
        want = [a[:m], a[m:], a[k - m :], a[: k - m], a[: max(m - 1, 0)], a[1:m:2], a[j:m],
                a[: 2 * m : 2]]
        got = f(a, np.zeros(m, "f4"), np.zeros(j, "f4"))
        for p, q in zip(got, want, strict=True):
            np.testing.assert_array_equal(p, q, err_msg=f"{k} {i} {j}")
    inner = gx.function([x, y], [x[n - 2 : -1], x[n - t : -3], x[n - 1 : -1]])
    for k, m in itertools.product((0, 1, 2, 3, 7), (0, 2, 5)):
        a = np.arange(k, dtype="f4")
        starts = (max(k - d, 0) for d in (2, m, 1))
        want = [a[i:j] for i, j in zip(starts, (-1, -3, -1), strict=True)]
        for p, q in zip(inner(a, np.zeros(m, "f4")), want, strict=True):
            np.testing.assert_array_equal(p, q, err_msg=f"{k} {m}")
    with pytest.raises(ShapeError, match=r"got f32\[n\] \[.*\] where n = 2, t = 3"):
        f(np.zeros(2, "f4"), np.zeros(3, "f4"), np.zeros(1, "f4"))


def test_slices_between_edges_counted_with_the_size():
    x, k = gx.input("x", ("n",)), gx.input("k", (5,))
    (n,) = x.shape
    parts = [x[i : n - 4 + i] for i in range(5)]
    assert {p.shape for p in parts} == {x[4:].shape}
    f = gx.function([x, k], [sum(k[4 - i] * p for i, p in enumerate(parts)), *parts])
    w = np.arange(1, 6, dtype="f4")
    for m in (0, 1, 3, 4, 5, 9):
        a = np.arange(m, dtype="f4")
        got, *cut = f(a, w)
        for i, part in enumerate(cut):
            np.testing.assert_array_equal(part, a[i : max(m - 4 + i, 0)])
        want = np.convolve(a, w, "valid") if m > 4 else []
        np.testing.assert_array_equal(got, want)


def test_diff_on_symbolic(run):
    x = gx.input("x", ("n", 3))
    a = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
    np.testing.assert_array_equal(run(gx.diff(x, axis=0, n=2), x=a), np.diff(a, axis=0, n=2))
    np.testing.assert_array_equal(run(gx.diff(x, n=0, append=1), x=a), a)


def test_int_on_symbolic_axis_is_checked_when_run(run):
    x = gx.input("x", ("n", 2))
    a = np.arange(6, dtype="f4").reshape(3, 2)
    np.testing.assert_array_equal(run(x[2], x=a), a[2])
    np.testing.assert_array_equal(run(x[-3, 1], x=a), a[-3, 1])
    with pytest.raises(IndexOutOfRangeError):
        run(x[3], x=a)


def test_integer_arrays(run):
    a = np.arange(24, dtype="f4").reshape(2, 3, 4)
    x, i = gx.input("x", ("n", 3, 4)), gx.input("i", ("k", 2), "int32")
    idx = np.array([[0, 2], [-1, 1]], "i4")
    for key, want in [
        (S[:, i], a[:, idx]), (S[:, :, i], a[:, :, idx]), (S[:, i, 1:3], a[:, idx, 1:3]),
        (S[..., i, :], a[..., idx, :]), (S[:, i, 0], a[:, idx, 0]), (S[::-1, None, i],
                                                                  a[::-1, None, idx]),
    ]:
        np.testing.assert_array_equal(run(x[key], x=a, i=idx), want)
    np.testing.assert_array_equal(run(x[:, [0, 2]], x=a), a[:, [0, 2]])
    np.testing.assert_array_equal(run(x[:, np.array([2, 0])], x=a), a[:, [2, 0]])
    s = gx.input("s", (), "int64")
    np.testing.assert_array_equal(run(x[:, s], x=a, s=-1), a[:, -1])
    np.testing.assert_array_equal(run(x[s, s], x=a, s=1), a[1, 1])


@pytest.mark.parametrize("dtype", ("int8", "uint8", "int16", "int64"))
@pytest.mark.parametrize("size", ("n", 300))
def test_positions_of_a_narrow_dtype_wrap(dtype, size, run):
    x = gx.input("x", (size,))
    a = np.arange(300, dtype="f4")
    got = run(gx.take(x, gx.arange(x.shape[0], dtype=dtype)), x=a)
    np.testing.assert_array_equal(got, a[np.arange(300).astype(dtype)])


def test_take_and_take_along_axis(run):
    a = np.random.default_rng(1).normal(size=(3, 4, 5)).astype("f4")
    x = gx.input("x", (3, 4, 5))
    for axis in (0, 1, 2, -1):
        got = run(gx.take(x, [1, -2, 0], axis=axis), x=a)
        np.testing.assert_array_equal(got, np.take(a, [1, -2, 0], axis=axis))
        idx = np.argsort(a, axis=axis)
        got = run(gx.take_along_axis(x, idx, axis=axis), x=a)
        np.testing.assert_array_equal(got, np.take_along_axis(a, idx, axis=axis))
    np.testing.assert_array_equal(run(gx.take(x, 7), x=a), a.ravel()[7])
    np.testing.assert_array_equal(run(x.take([0, 1], axis=1), x=a), a[:, :2])


def test_one_hot(run):
    i = gx.input("i", ("n",), "int64")
    got = run(gx.one_hot(i, 3), i=[0, 2, -1, 5])
    np.testing.assert_array_equal(got, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert got.dtype == np.float32


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 3])
def test_triangles(run, k):
    a = np.arange(24, dtype="f4").reshape(2, 3, 4) + 1
    x = gx.input("x", ("n", 3, 4))
    np.testing.assert_array_equal(run(gx.tril(x, k=k), x=a), np.tril(a, k))
    np.testing.assert_array_equal(run(gx.triu(x, k=k), x=a), np.triu(a, k))


AT_KEYS = [S[1], S[-1], S[1:3], S[::-1], S[::2], S[..., 0], S[1, 2], S[:, 1:3], S[::-2, ::-1],
           S[None, 2], S[3:1], S[4:10], S[()], S[[0, 2]], S[:, [1, -1]], S[1:, [3, 0]]]


@pytest.mark.parametrize("key", AT_KEYS, ids=str)
def test_at(run, key):
    a = np.arange(20, dtype="f4").reshape(5, 4)
    x = gx.input("x", (5, 4))
    u = -1.0 - np.arange(a[key].size, dtype="f4").reshape(a[key].shape)
    want = a.copy()
    want[key] = u
    np.testing.assert_array_equal(run(x.at[key].set(u), x=a), want)
    want = a.copy()
    want[key] += u
    np.testing.assert_array_equal(run(x.at[key].add(u), x=a), want)
    want = a.copy()
    want[key] *= 2
    np.testing.assert_array_equal(run(x.at[key].multiply(2), x=a), want)
    want = a.copy()
    want[key] = 7
    np.testing.assert_array_equal(run(x.at[key].set(7), x=a), want)
    np.testing.assert_array_equal(run(x.at[key].get(), x=a), a[key])


def test_at_on_symbolic_axes(run):
    x = gx.input("x", ("n",))
    declared = [x.at[s].set(9) for s in SLICES] + [x.at[s].add(9) for s in SLICES]
    for n in (0, 1, 2, 5):
        a = np.arange(n, dtype="f4")
        got = run(declared, x=a)
        for s, y in zip(SLICES, got[: len(SLICES)], strict=True):
            want = a.copy()
            want[s] = 9
            np.testing.assert_array_equal(y, want, err_msg=f"set {s} of {n}")
        for s, y in zip(SLICES, got[len(SLICES):], strict=True):
            want = a.copy()
            want[s] += 9
            np.testing.assert_array_equal(y, want, err_msg=f"add {s} of {n}")


def test_at_adds_twice_where_an_index_repeats(run):
    x, i = gx.input("x", (4,)), gx.input("i", (3,), "int64")
    got = run(x.at[i].add([1.0, 2.0, 4.0]), x=np.zeros(4), i=[1, 1, -1])
    np.testing.assert_array_equal(got, [0, 3, 0, 4])


@pytest.mark.parametrize("dtype, total", [("float16", 5000), ("bfloat16", 4992)])
def test_gradients_of_halves_add_up_in_f32_where_an_index_repeats(dtype, total):
    """One after the other, ones add up to 2048 in f16 and to 256 in bf16."""
    i, w = gx.input("i", ("n",), "int64"), gx.input("w", (3,))
    taken = gx.take(w.astype(dtype), i).astype("float32")
    f = gx.function([i, w], gx.grad(gx.sum(taken), w))
    np.testing.assert_array_equal(f(np.ones(5000, "i8"), np.ones(3, "f4")), [0, total, 0])


APART = [  # an int and the array with something between them: the array's axes stand first
    (0, slice(None), ARRAY), (slice(None), ARRAY, S[::-1], 1), (ARRAY, slice(1, 3), 0),
    (0, ..., ARRAY), (None, -1, None, ARRAY), (slice(None), 1, None, slice(None), ARRAY[None]),
    (slice(None), 1, ARRAY), (slice(None), None, ARRAY, -1),  # side by side: where they are
]


@pytest.mark.parametrize("sizes", [(2, 3, 3, 2), ("p", "q", "q", "p")], ids=str)
@pytest.mark.parametrize("key", APART, ids=str)
def test_an_array_and_an_int_apart(run, key, sizes):
    a = np.arange(36, dtype="f4").reshape(2, 3, 3, 2)
    x = gx.input("x", sizes)
    want = a[key]
    assert len(x[key].shape) == want.ndim
    np.testing.assert_array_equal(run(x[key], x=a), want)
    v = gx.input("v", x[key].shape)
    value = -np.arange(want.size, dtype="f4").reshape(want.shape)
    changed, slope = a.copy(), np.zeros_like(a)
    changed[key] = slope[key] = value
    got = run([x.at[key].set(v), gx.grad(gx.sum(x[key] * v), x) + 0 * x], x=a, v=value)
    np.testing.assert_array_equal(got, [changed, slope])


ROWS, COLUMNS = np.array([1, -2, 1]), np.array([[0, 2, -3], [1, 1, 0]], "i1")
SEVERAL = [
    S[ROWS, COLUMNS], S[:, COLUMNS, ROWS], S[..., ROWS, COLUMNS, [[1], [0]]],
    S[ROWS, None, COLUMNS], S[ROWS, :, COLUMNS], S[ROWS, 1, COLUMNS], S[ROWS, ..., -1, [0, 1, 0]],
    S[1, COLUMNS, ROWS, None], S[ROWS, COLUMNS, 1:, ::-1], S[None, 1:, ROWS, COLUMNS],
    S[[0, 1], [2, 1], [0, 0], [1, 1]],
]


@pytest.mark.parametrize("sizes", [(2, 3, 3, 2), ("p", "q", "r", "s")], ids=str)
@pytest.mark.parametrize("key", SEVERAL, ids=str)
def test_several_index_arrays(run, key, sizes):
    """Reading, writing, adding where positions repeat, and slopes; indices are inputs here."""
    a = np.arange(36, dtype="f4").reshape(2, 3, 3, 2)
    x, values = gx.input("x", sizes), {"x": a}
    declared = list(key)
    for k, item in enumerate(key):
        if isinstance(item, np.ndarray):
            declared[k] = gx.input(f"i{k}", item.shape, item.dtype.name)
            values[f"i{k}"] = item
    at = tuple(declared)
    want = a[key]
    v = gx.input("v", x[at].shape)
    values["v"] = value = 1 + np.arange(want.size, dtype="f4").reshape(want.shape)
    added, slope, seven = a.copy(), np.zeros_like(a), a.copy()
    np.add.at(added, key, value)
    np.add.at(slope, key, value)
    seven[key] = 7
    got = run(
        [x[at], x[key], x.at[at].add(v), gx.grad(gx.sum(x[at] * v), x), x.at[at].set(7)], **values
    )
    for y, z in zip(got, [want, want, added, slope, seven], strict=True):
        np.testing.assert_array_equal(y, z)


def test_each_of_several_indices_is_checked_on_its_axis(refuses):
    x, i, j = gx.input("x", (4, 5)), gx.input("i", (3,), "int64"), gx.input("j", (3,), "int64")
    a = np.arange(20, dtype="f4").reshape(4, 5)
    for mode in ("jit", "interpret"):
        f = gx.function([x, i, j], x[i, j], mode=mode)
        with pytest.raises(IndexOutOfRangeError, match=r"index 5 at \[1\] is out .* of size 5"):
            f(a, [0, 1, 2], [0, 5, 1])  # inside x as a row of 20
        with pytest.raises(IndexOutOfRangeError, match=r"index -5 at \[2\] is out .* of size 4"):
            f(a, [0, 1, -5], [0, 1, 1])
    f = gx.function([x, i, j], x[i, j])
    with pytest.raises(IndexOutOfRangeError, match=r"range: an axis of size 5 takes -5 to 4; ind"):
        f(a, [0, 1, 2], [0, 5, 1])
    with refuses("index 4 is out of range for an axis of size 4", kind=IndexOutOfRangeError):
        x[[4, 0], j[:2]]


def test_adding_keeps_the_sign_of_zeros_beside():
    x = gx.input("x", ("n",))
    for key in (S[:1], S[::2], S[-1::-2], S[3:]):
        a = np.full(5, -0.0, "f4")
        f = gx.function([x], x.at[key].add(1.0))
        want = a.copy()
        want[key] += 1
        np.testing.assert_array_equal(np.signbit(f(a)), np.signbit(want), err_msg=str(key))


def test_gradient_of_indexing(run):
    x = gx.input("x", ("n", 3))
    loss = gx.sum(x[1:, ::2] * 2) + gx.sum(x.at[0].set(5.0)) + x[-1, 1]
    a = np.zeros((3, 3), "f4")
    want = np.ones((3, 3), "f4")
    want[0] = 0
    want[1:, ::2] += 2
    want[-1, 1] += 1
    np.testing.assert_array_equal(run([gx.grad(loss, x), loss], x=a)[0], want)


def test_refusals(refuses):
    with refuses("diff: n must be an int from 0 on, got -1"):
        gx.diff(gx.ones(3), n=-1)
    x, m = gx.input("x", (3, 4)), gx.input("m", (3, 4), "bool")
    with refuses("boolean masks are not supported", "to change x there, gx.where(mask, value, x)"):
        x[m]
    with refuses("boolean masks are not supported"):
        x[np.array([True, False, True])]
    with refuses("boolean masks are not supported"):
        x.at[x > 0].set(0)
    with refuses("index: f32[3,4] has 2 axes, got 3 indices"):
        x[0, 0, 0]
    with refuses("index: 3 is out of range for axis 0 of f32[3,4]", kind=IndexOutOfRangeError):
        x[3]
    with refuses("out of range for an axis of size 4"):
        x[:, [0, 4]]
    i = gx.input("i", (2,), "int64")
    with refuses("index: sizes must be equal or a declared 1, got i64[2] and i64[3]"):
        x[i, [0, 1, 2]]
    with refuses("indices must be integers, got f32[3,4]"):
        x[i, x]
    with refuses("the bounds of a slice cannot be Tensors", "gx.take"):
        x[: gx.input("s", (), "int64")]
    with refuses("the bound -2*t of a slice is never inside", "use x.shape[axis]-2*t"):
        x[: gx.dim("t") * -2]
    with pytest.raises(TypeError, match=r"the one called 't' is gx\.dim\('t'\)"):
        gx.Dim("t")
    with refuses("indices must be integers, got f32[3,4]"):
        x[x]
    with refuses("must be a non-zero int"):
        x[::0]
    with refuses("only one `...`"):
        x[..., 0, ...]
    with refuses("an index is an int"):
        x["a"]
    with refuses("index: an index must be a number or a rectangular array", "got list [[0], [1, 2"):
        x[[[0], [1, 2]], i]
    with refuses("take: an index must be a number or a rectangular array of numbers"):
        gx.take(x, [[0], [1, 2]])
    with refuses("index: an index must be a number or a rectangular array", "gx.stack"):
        x[[i[0], 1]]
    with refuses("a Tensor cannot be assigned to", "x.at[key].set(value)"):
        x[0] = 1
    with refuses("the value must fit int32, got float32"):
        gx.input("j", (3,), "int32").at[0].set(1.5)
    with refuses("at: f32[5] does not broadcast to [4]"):
        x.at[0].set(np.zeros(5, "f4"))
