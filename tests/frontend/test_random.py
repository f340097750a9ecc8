"""gx.random: known answers, moments, independence of streams."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx

N = 40_000


def philox(key: int, blocks: int) -> np.ndarray:
    """Philox4x32-10 in plain Python integers: counter words (block, 0, 0, 0)."""
    mask, out = 0xFFFFFFFF, []
    for i in range(blocks):
        c = [i & mask, i >> 32, 0, 0]
        k = [key & mask, key >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        out += c
    return np.array(out, np.uint32)


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 7, -1])
def test_bits_are_philox(run, seed):
    got = run(gx.random.bits(gx.random.key(seed), (3, 4)))
    np.testing.assert_array_equal(got.ravel(), philox(seed % 2**64, 3))


def test_known_answer():
    """The test vector of the authors' Random123 for a zero key and counter."""
    np.testing.assert_array_equal(philox(0, 1), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])


def test_key_of_a_tensor(run):
    s = gx.input("s", (), "int64")
    for seed in (5, -3, 2**40):
        want = run(gx.random.key(seed))
        np.testing.assert_array_equal(run(gx.random.key(s), s=seed), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_uniform(run, dtype):
    u = run(gx.random.uniform(gx.random.key(2), (N,), dtype)).astype("f8")
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005 and abs(u.var() - 1 / 12) < 0.002
    counts = np.histogram(u, 20, (0, 1))[0]
    assert ((counts - N / 20) ** 2 / (N / 20)).sum() < 50  # chi-square with 19 degrees
    v = run(gx.random.uniform(gx.random.key(2), (N,), dtype, low=-2, high=6)).astype("f8")
    np.testing.assert_allclose(v, u * 8 - 2, atol=2e-2 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("low,high", [(0, 1), (1, 2), (-1, 1), (0.1, 0.3), (-3, -1.7)])
def test_halves_stay_below_high(run, dtype, low, high):
    u = run(gx.random.uniform(gx.random.key(5), (N,), dtype, low, high)).astype("f8")
    assert low <= u.min() and u.max() < high
    assert abs(u.mean() - (low + high) / 2) < 0.01 * (high - low)


@pytest.mark.parametrize("dtype,low", [("float32", 2.0**13), ("float64", 2.0**42)])
def test_sums_are_not_rounded_up_to_high(run, dtype, low):
    """low + 1 - 2**-11 and more, of which there are some, is nearest to it."""
    u = run(gx.random.uniform(gx.random.key(5), (N,), dtype, low, low + 1)).astype("f8")
    assert u.min() == low and u.max() == np.nextafter(np.dtype(dtype).type(low + 1), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(run, dtype):
    z = run(gx.random.normal(gx.random.key(3), (N,), dtype))
    assert z.dtype == dtype and np.isfinite(z).all()
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.01
    assert abs((z**3).mean()) < 0.06 and abs((z**4).mean() - 3) < 0.15
    inside = [(np.abs(z) < k).mean() for k in (1, 2, 3)]
    np.testing.assert_allclose(inside, [0.6827, 0.9545, 0.9973], atol=0.006)
    y = run(gx.random.normal(gx.random.key(3), (N,), dtype, mean=5, std=2))
    np.testing.assert_allclose(y, 2 * z + 5, rtol=1e-5, atol=1e-5)


def test_bernoulli_and_randint(run):
    b = run(gx.random.bernoulli(gx.random.key(4), 0.3, (N,)))
    assert b.dtype == bool and abs(b.mean() - 0.3) < 0.01
    p = gx.input("p", ("n",))
    got = run(gx.random.bernoulli(gx.random.key(4), p), p=[0.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(got, [False, True, False, True])
    whole = run(gx.random.randint(gx.random.key(5), (N,), -128, 128, "int8"))
    assert (whole.min(), whole.max()) == (-128, 127)
    i = run(gx.random.randint(gx.random.key(5), (N,), -3, 4))
    assert i.dtype == np.int64 and set(np.unique(i)) == set(range(-3, 4))
    assert np.abs(np.bincount(i + 3) - N / 7).max() < 400


def test_streams_are_independent(run):
    key = gx.random.key(0)
    a, b, c = gx.random.split(key, 3)
    keys = run([key, a, b, c, gx.random.fold_in(key, 0), gx.random.fold_in(key, 1),
                gx.random.fold_in(a, 0)])
    assert len({k.tobytes() for k in keys}) == 7
    first = run(gx.random.bits(key, (8,)))
    assert not any(np.array_equal(first[:2], k) for k in keys[1:])
    u, v = run([gx.random.uniform(a, (N,)), gx.random.uniform(b, (N,))])
    assert abs(np.corrcoef(u, v)[0, 1]) < 0.02
    s = gx.input("s", (), "int32")
    np.testing.assert_array_equal(run(gx.random.fold_in(key, s), s=1), keys[5])


def test_symbolic_shapes(run):
    x = gx.input("x", ("n", 3))
    z = x + gx.random.normal(gx.random.key(1), x.shape)
    assert run(z, x=np.zeros((0, 3))).shape == (0, 3)
    assert run(z, x=np.zeros((5, 3))).shape == (5, 3)


@pytest.mark.parametrize("axis", [-1, 0])
def test_categorical(run, axis):
    p = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype("f4") + 5
    wide = np.broadcast_to(logits, (40000, 4))
    x = gx.input("x", ("n", 4))
    y = gx.random.categorical(gx.random.key(3), x if axis else x.T, axis)
    assert y.dtype is gx.int64 and y.ndim == 1
    drawn = run(y, x=wide)
    share = np.bincount(drawn, minlength=4) / len(drawn)
    assert share[1] == 0 and np.abs(share - p).max() < 0.01  # 4 deviations


def test_categorical_where_a_word_rounds_up(run):
    key = gx.random.key(2871038)
    assert run(gx.random.bits(key, (3,)))[2] == 2**32 - 95  # 2**32 in f32
    logits = np.array([-np.inf, -np.inf, 0.0], "f4")
    assert run(gx.random.categorical(key, logits)) == 2


def test_random_words_share_blocks():
    """Each vector of words takes a quarter as many blocks."""
    f = gx.function([], gx.random.uniform(gx.random.key(3), (1 << 12,)), name="shared")
    f()
    widths = {int(w) for w in re.findall(r"mul <(\d+) x i64>", f.llvm_ir())}
    made = max(int(w) for w in re.findall(r"= f\w+ <(\d+) x float>", f.llvm_ir()))
    assert made >= 4 and max(widths) <= max(2, made // 4)


def test_refusals(refuses):
    key = gx.random.key(0)
    with refuses("uniform: a key is u32[2] made by gx.random.key, got i64[]"):
        gx.random.uniform(0, (3,))
    with refuses("normal: takes a float dtype, got i32"):
        gx.random.normal(key, (3,), "int32")
    with refuses("split: n must be an int from 1 on, got 0"):
        gx.random.split(key, 0)
    with refuses("randint: needs low < high"):
        gx.random.randint(key, (3,), 5, 5)
    for low, high, dtype in ((0, 129, "int8"), (-1, 5, "uint8"), (-129, 0, "int8")):
        with refuses("randint: ", f"8 does not hold all from {low} to {high} - 1"):
            gx.random.randint(key, (3,), low, high, dtype)
    for low, high in ((0.5, 4), (0, 3.5), (0, np.inf), (np.float32("nan"), 1)):
        with refuses("randint: bounds must be integers"):
            gx.random.randint(key, (3,), low, high)
    many = np.zeros((5, 3), "f4")  # more than the numbers asked for, each of which would serve five
    for draw in (
        lambda: gx.random.uniform(key, (3,), low=many),
        lambda: gx.random.uniform(key, high=many),
        lambda: gx.random.normal(key, (3,), mean=many),
        lambda: gx.random.normal(key, (3,), std=many),
    ):
        with refuses("f32[5,3] does not broadcast to ["):
            draw()
    with refuses("fold_in: takes an integer scalar, got f32[]"):
        gx.random.fold_in(key, 1.5)
