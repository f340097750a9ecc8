"""References that move, pick and reduce elements, and random bits, against independent formulas."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from op_cases import FLAT, INTS, SMOOTH, evaluate, run, same, wrap

from graphc import dims, prim
from graphc.errors import IndexOutOfRangeError, ShapeError
from graphc.ops import OPS
from graphc.ops.random import philox4x32
from graphc.types import TensorType, f64

# Layout


def test_pad_against_a_loop():
    rng = np.random.default_rng(2)
    for _ in range(200):
        n, interior = int(rng.integers(0, 5)), int(rng.integers(0, 3))
        low, high = (int(v) for v in rng.integers(-3, 4, 2))
        spread = n + max(n - 1, 0) * interior
        if low + spread + high < 0:
            continue
        x = rng.normal(size=n)
        want = np.full(low + spread + high, 9.0)
        for i, v in enumerate(x):
            at = low + i * (interior + 1)
            if 0 <= at < want.size:
                want[at] = v
        got = run("pad", x, np.array(9.0), low=(low,), high=(high,), interior=(interior,))
        same(got, want)


def test_layout_against_numpy():
    x = np.arange(24.0).reshape(2, 3, 4)
    same(run("transpose", x, perm=(2, 0, 1)), x.transpose(2, 0, 1).copy())
    same(run("reshape", x, shape=(4, 6), checked=False), x.reshape(4, 6))
    same(run("slice", x, start=(0, 1, 0), stop=(2, 3, 4), step=(1, 1, 3)), x[:, 1:3, ::3].copy())
    same(run("reverse", x, axes=(0, 2)), x[::-1, :, ::-1].copy())
    same(run("concat", x, x[:, :1], axis=1), np.concatenate([x, x[:, :1]], 1))
    same(run("broadcast", x[0, :, 0], shape=(2, 3, 4), axes=(1,)),
         np.broadcast_to(x[0, :, 0][None, :, None], (2, 3, 4)).copy())
    u = -np.ones((1, 2, 2))
    want = x.copy()
    want[1:2, 1:3, 0:2] = u
    same(run("update_slice", x, u, start=(1, 1, 0)), want)


# Index


@pytest.mark.parametrize("dtype", INTS)
def test_gather_and_scatter_against_loops(dtype):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 3, 4, 2))
    idx = rng.integers(0, 4, (2, 5)).astype(dtype)
    u = rng.normal(size=(2, 3, 5, 2))
    gathered, written, added = np.empty_like(u), x.copy(), x.copy()
    for b in range(2):
        for k in range(5):
            gathered[b, :, k] = x[b, :, idx[b, k]]
            written[b, :, idx[b, k]] = u[b, :, k]
            added[b, :, idx[b, k]] += u[b, :, k]
    where = {"axis": 2, "batch": 1, "negative": False}
    same(run("gather", x, idx, **where), gathered)
    same(run("scatter", x, idx, u, **where), written)
    same(run("scatter_add", x, idx, u, **where), added)


def test_gather_equals_take():
    x = np.arange(24.0).reshape(2, 3, 4)
    idx = np.array([[0, 2], [-1, 1]])
    same(run("gather", x, idx, axis=1, batch=0, negative=True), np.take(x, idx, 1))
    empty = np.zeros((0,), np.int64)
    assert run("gather", x, empty, axis=1, batch=0, negative=True).shape == (2, 0, 4)


@pytest.mark.parametrize("op", ["gather", "scatter", "scatter_add"])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.uint64])
def test_index_out_of_range(op, dtype):
    x, u = np.zeros((5, 2)), np.zeros((2, 2, 2))
    rest = () if op == "gather" else (u,)
    good = np.array([[0, 4], [3, 1]], dtype)
    run(op, x, good, *rest, axis=0, batch=0, negative=False)
    bad = np.array([[0, 4], [5, 7]], dtype)
    with pytest.raises(IndexOutOfRangeError, match=(
        rf"^{op}: index 5 at \[1,0\] is out of range for an axis of size 5 \(allowed: 0\.\.4\)"
    )):
        run(op, x, bad, *rest, axis=0, batch=0, negative=False)


def test_negative_indices():
    x = np.arange(5.0)
    where = {"axis": 0, "batch": 0}
    same(run("gather", x, np.array([-5, -1]), negative=True, **where), np.array([0.0, 4.0]))
    with pytest.raises(IndexError, match=r"index -1 at \[1\].*allowed: 0\.\.4"):
        run("gather", x, np.array([0, -1]), negative=False, **where)
    with pytest.raises(IndexError, match=r"index -6 at \[0\].*allowed: -5\.\.4"):
        run("gather", x, np.array([-6]), negative=True, **where)


def test_last_write_wins():
    got = run("scatter", np.zeros(3), np.array([1, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0]),
              axis=0, batch=0, negative=False)
    same(got, np.array([3.0, 4.0, 0.0]))


# Reductions and scans


@pytest.mark.parametrize("dtype", INTS)
def test_integer_sums_wrap_in_their_own_dtype(dtype):
    x = np.full(300, np.iinfo(dtype).max, dtype)
    top = int(np.iinfo(dtype).max)
    assert run("reduce_sum", x, axes=(0,)) == wrap(300 * top, dtype)
    assert run("reduce_prod", x[:9], axes=(0,)) == wrap(top**9, dtype)
    got = run("cumsum", x[:4], axis=0, reverse=True)
    same(got, np.array([wrap(k * top, dtype) for k in (4, 3, 2, 1)], dtype))
    same(run("dot", x[:3], x[:3], contract=((0,), (0,)), batch=((), ())),
         np.array(wrap(3 * top * top, dtype), dtype))


def test_empty_reductions():
    x = np.zeros((0, 3))
    same(run("reduce_sum", x, axes=(0,)), np.zeros(3))
    same(run("reduce_prod", x, axes=(0,)), np.ones(3))
    assert run("reduce_max", np.zeros((3, 0)), axes=(0,)).shape == (0,)
    n = prim.input("x", TensorType(f64, (dims.dim("n"), 3)))
    for name in ("reduce_max", "reduce_min"):
        with pytest.raises(ShapeError, match=rf"^{name}: an empty axis has no m"):
            evaluate([n], [x], [prim.one(name, n, axes=(0,))])
    with pytest.raises(ShapeError, match=r"^argmax: an empty axis has no maximum"):
        evaluate([n], [x], [prim.argmax(n, 0)])


def test_argmax_first_nan_then_first_maximum():
    x = np.array([[1.0, 3.0, 3.0], [np.nan, 9.0, np.nan], [2.0, np.nan, 5.0]])
    same(run("argmax", x, axis=1), np.array([1, 0, 1]))
    same(run("argmax", np.array([False, True, True]), axis=0), np.array(1))


def test_scans_against_loops():
    x = np.array([2.0, -1.0, np.nan, 3.0])
    same(run("cummax", x, axis=0, reverse=False), np.array([2.0, 2.0, np.nan, np.nan]))
    same(run("cummax", x, axis=0, reverse=True), np.array([np.nan, np.nan, np.nan, 3.0]))
    y = np.arange(1.0, 7).reshape(2, 3)
    same(run("cumprod", y, axis=1, reverse=True), np.array([[6.0, 6, 3], [120, 30, 6]]))
    same(run("cumsum", y, axis=0, reverse=False), np.cumsum(y, 0))
    a, b = np.array([7.0, 2.0, 0.0, np.inf]), np.array([1.0, 3.0, 5.0, 6.0])
    same(run("linear_recurrence", a, b, axis=0, reverse=False), np.array([1.0, 5, 5, np.inf]))
    same(run("linear_recurrence", a, b, axis=0, reverse=True), np.full(4, np.nan))
    same(run("linear_recurrence", y, -y, axis=1, reverse=True),
         np.array([[-9.0, -8, -3], [-144, -35, -6]]))


def test_bool_extrema_are_any_and_all():
    x = np.array([[True, False], [False, False], [True, True]])
    same(run("reduce_max", x, axes=(1,)), x.any(1))
    same(run("reduce_min", x, axes=(1,)), x.all(1))


def test_dot_against_einsum():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2, 5, 3))
    got = run("dot", a, b, contract=((1, 2), (3, 0)), batch=((0,), (1,)))
    np.testing.assert_allclose(got, np.einsum("bij,jbki->bk", a, b), rtol=1e-13)
    empty = run("dot", np.zeros((2, 0)), np.zeros((0, 3)), contract=((1,), (0,)), batch=((), ()))
    same(empty, np.zeros((2, 3)))


# Random bits

KNOWN_ANSWERS = [  # kat_vectors of Random123: philox 4x32, 10 rounds
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, want):
    words = philox4x32([np.array([c], np.uint64) for c in counter],
                       [np.array([k], np.uint64) for k in key])
    assert tuple(int(w[0]) for w in words) == want


def test_random_bits_layout():
    got = run("random_bits", np.zeros(2, np.uint32), shape=(6,))
    assert [int(v) for v in got[:4]] == list(KNOWN_ANSWERS[0][2])
    key = np.array([3, 9], np.uint32)
    flat = run("random_bits", key, shape=(12,))
    same(run("random_bits", key, shape=(3, 4)), flat.reshape(3, 4))
    same(run("random_bits", key, shape=(7,)), flat[:7].copy())
    assert run("random_bits", key, shape=(0, 4)).shape == (0, 4)
    block = philox4x32([np.array([c], np.uint64) for c in (2, 0, 0, 0)],
                       [np.array([k], np.uint64) for k in key])
    assert [int(v) for v in flat[8:]] == [int(w[0]) for w in block]


# All of them

OTHER_RESULT = ("cast", "bitcast", "argmax", "random_bits", "is_finite", "less", "less_equal",
                "equal")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fill", [None, np.nan, np.inf, -np.inf, 0.0, 1e30, -1.0])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_references_are_silent_and_keep_the_dtype(dtype, fill):
    for case in SMOOTH + FLAT:
        with np.errstate(all="ignore"):
            args = [
                (a if fill is None else np.full(a.shape, fill)).astype(dtype)
                if a.dtype.kind == "f" and case.op != "bitcast" else a
                for a in case.args
            ]
        out = OPS[case.op].ref(*args, **case.attrs)
        first = np.asarray(out[0] if isinstance(out, tuple) else out)
        if args[-1].dtype == dtype and case.op not in OTHER_RESULT:
            assert first.dtype == dtype, case.id
