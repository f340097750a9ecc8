"""The NumPy references against independent formulas, and the corner cases of DESIGN section 4."""

from __future__ import annotations

import math

import ml_dtypes
import mpmath
import numpy as np
import pytest
from op_cases import run

from graphc.errors import IndexOutOfRangeError, IntegerDivisionError, ShapeError
from graphc.ops import special
from graphc.ops.random import philox4x32
from graphc.types import BY_NAME, DTYPES

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
INTS = SIGNED + UNSIGNED
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def same(got, want):
    """Equal bit for bit, but for the payload of NaNs."""
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got, want)
    nan = np.isnan(want) if want.dtype.kind not in "biu" else np.zeros(want.shape, bool)
    if nan.any():
        assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got[~nan], want[~nan]), (got, want)
    if want.dtype.kind not in "biu":
        assert np.array_equal(np.signbit(got[~nan]), np.signbit(want[~nan])), (got, want)


# Integers


def wrap(value: int, dtype) -> int:
    info = np.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    return (value - int(info.min)) % span + int(info.min)


def corners(dtype):
    info = np.iinfo(dtype)
    some = {int(info.min), int(info.min) + 1, -7, -2, -1, 0, 1, 2, 7, 13, int(info.max)}
    return sorted(v for v in some if info.min <= v <= info.max)


def shift_right(a, b, width):
    return (0 if a >= 0 else -1) if not 0 <= b < width else a >> b


BINARY = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "div": lambda a, b, w: None if b == 0 else a // b,
    "rem": lambda a, b, w: None if b == 0 else a % b,
    "pow": lambda a, b, w: None if b < 0 else pow(a, b, 1 << w),
    "maximum": lambda a, b, w: max(a, b),
    "minimum": lambda a, b, w: min(a, b),
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "shift_left": lambda a, b, w: a << b if 0 <= b < w else 0,
    "shift_right": shift_right,
}


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("op", BINARY)
def test_integer_binary_against_python_integers(op, dtype):
    """Python's unbounded integers, wrapped: MIN // -1, MIN % -1, all shifts, all signs."""
    width = np.iinfo(dtype).bits
    rows = []
    for a in corners(dtype):
        for b in corners(dtype):
            exact = BINARY[op](a, b, width)
            if exact is not None:
                rows.append((a, b, wrap(exact, dtype)))
    a, b, want = (np.array(column, dtype) for column in zip(*rows, strict=True))
    same(run(op, a, b), want)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_unary(dtype):
    x = corners(dtype)
    a = np.array(x, dtype)
    same(run("neg", a), np.array([wrap(-v, dtype) for v in x], dtype))
    same(run("abs", a), np.array([wrap(abs(v), dtype) for v in x], dtype))
    same(run("sign", a), np.array([(v > 0) - (v < 0) for v in x], dtype))
    same(run("not", a), np.array([wrap(~v, dtype) for v in x], dtype))


@pytest.mark.parametrize("dtype", SIGNED)
def test_minimum_by_minus_one(dtype):
    low = np.array([np.iinfo(dtype).min], dtype)
    minus_one = np.array([-1], dtype)
    same(run("div", low, minus_one), low)
    same(run("rem", low, minus_one), np.zeros(1, dtype))
    same(run("abs", low), low)


@pytest.mark.parametrize(("op", "text"), [("div", "division by zero"), ("rem", "by zero")])
@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_by_zero(op, text, dtype):
    with pytest.raises(IntegerDivisionError, match=rf"^{op}: integer {text}|division by zero"):
        run(op, np.array([[4, 2], [3, 1]], dtype), np.array([[1, 1], [0, 0]], dtype))
    with pytest.raises(ZeroDivisionError, match=r"at \[1,0\]"):
        run(op, np.array([[4, 2], [3, 1]], dtype), np.array([[1, 1], [0, 0]], dtype))


def test_negative_integer_exponent():
    with pytest.raises(IntegerDivisionError, match=r"pow: negative integer exponent at \[1\]"):
        run("pow", np.array([2, 2]), np.array([3, -1]))


def test_integer_division_of_nothing_is_no_error():
    for op in ("div", "rem", "pow"):
        assert run(op, np.zeros(0, np.int32), np.zeros(0, np.int32)).shape == (0,)


# Casts


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("target", INTS)
def test_float_to_integer_saturates(source, target):
    info = np.iinfo(target)
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.9, -1.9, 126.5, 127.5, 255.5, 1e30, -1e30,
              2.0**31, 2.0**63, -(2.0**63), 2.0**64, 65504.0, -0.5]
    with np.errstate(all="ignore"):
        x = np.array(values).astype(source)
    want = []
    for v in x.astype(np.float64):
        if np.isnan(v):
            want.append(0)
        elif np.isinf(v):
            want.append(int(info.max if v > 0 else info.min))
        else:
            want.append(min(max(math.trunc(v), int(info.min)), int(info.max)))
    same(run("cast", x, dtype=BY_NAME[np.dtype(target).name]), np.array(want, target))


@pytest.mark.parametrize("source", INTS)
@pytest.mark.parametrize("target", INTS)
def test_integer_to_integer_wraps(source, target):
    x = corners(source)
    want = np.array([wrap(v, target) for v in x], target)
    same(run("cast", np.array(x, source), dtype=BY_NAME[np.dtype(target).name]), want)


def test_casts_to_and_from_bool():
    for dtype in INTS + FLOATS:
        x = np.array([0, 1, 2]).astype(dtype)
        same(run("cast", x, dtype=BY_NAME["bool"]), np.array([False, True, True]))
        ones = np.array([False, True])
        same(run("cast", ones, dtype=BY_NAME[np.dtype(dtype).name]), ones.astype(dtype))
    special_values = np.array([np.nan, -0.0, 1e-320])
    same(run("cast", special_values, dtype=BY_NAME["bool"]), np.array([True, False, True]))


def test_casts_to_16_bits_go_through_f32():
    tie = 1 + 2.0**-11 + 2.0**-30  # rounds up directly, to even after f32
    same(run("cast", np.array([tie, 1e6, 1e-9]), dtype=BY_NAME["f16"]),
         np.array([1.0, np.inf, 0.0], np.float16))
    x = np.array([1 + 2.0**-8 + 2.0**-40, 3.0])
    same(run("cast", x, dtype=BY_NAME["bf16"]), np.array([1.0, 3.0]).astype(ml_dtypes.bfloat16))


def test_bitcast():
    x = np.array([1.0, -0.0, np.inf], np.float32)
    same(run("bitcast", x, dtype=BY_NAME["u32"]), np.array([0x3F800000, 1 << 31, 0x7F800000],
                                                           np.uint32))
    half = np.array([1.0, -2.0], np.float16)
    same(run("bitcast", half, dtype=BY_NAME["u16"]), np.array([0x3C00, 0xC000], np.uint16))
    brain = np.array([1.0, -2.0]).astype(ml_dtypes.bfloat16)
    same(run("bitcast", brain, dtype=BY_NAME["i16"]), np.array([0x3F80, 0xC000 - 65536], np.int16))
    same(run("bitcast", np.float32(1.0), dtype=BY_NAME["i32"]), np.array(0x3F800000, np.int32))


def test_iota_and_dim():
    for d in DTYPES[1:]:
        want = np.broadcast_to(np.arange(3)[:, None], (2, 3, 2)).astype(d.numpy)
        same(run("iota", dtype=d, shape=(2, 3, 2), axis=1), want)
    same(run("dim", size=7), np.array(7))
    assert run("iota", dtype=BY_NAME["i64"], shape=(0, 3), axis=1).shape == (0, 3)


# Floats

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, -1.5, 7.0, 1e30]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic_equals_numpy_bit_for_bit(dtype):
    a, b = (v.ravel().astype(dtype) for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        for op, fn in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                       ("div", np.divide), ("rem", np.remainder)]:
            same(run(op, a, b), fn(a, b))
        same(run("sqrt", a), np.sqrt(a))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_arithmetic_is_f32_rounded(dtype):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500)).astype(dtype)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for op, fn in [("add", np.add), ("mul", np.multiply), ("div", np.divide)]:
        same(run(op, a, b), fn(wide_a, wide_b).astype(dtype))
    many = rng.uniform(0, 1, 4096).astype(dtype)
    total = many.astype(np.float64).sum()
    assert run("reduce_sum", many, axes=(0,)) == np.float32(total).astype(dtype)


def test_float_remainder_is_pythons():
    for x in (5.3, -5.3, 0.0, 1e20):
        for y in (1.4, -1.4, 3.0):
            assert run("rem", np.array(x), np.array(y)) == x % y
    assert np.isnan(run("rem", np.array(1.0), np.array(0.0)))


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_extrema_propagate_nan(op):
    x = np.array([np.nan, 1.0, np.nan, 3.0, -np.inf])
    y = np.array([1.0, np.nan, np.nan, 4.0, np.inf])
    pick = max if op == "maximum" else min
    same(run(op, x, y), np.array([np.nan, np.nan, np.nan, pick(3.0, 4.0), pick(-np.inf, np.inf)]))
    reduce = "reduce_max" if op == "maximum" else "reduce_min"
    rows = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0]])
    same(run(reduce, rows, axes=(1,)), np.array([np.nan, pick(1.0, 3.0)]))


def test_rounding_and_sign():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, np.inf, np.nan, 2.0**60])
    same(run("round", x), np.array([0.0, 2.0, 2.0, -0.0, -2.0, np.inf, np.nan, 2.0**60]))
    same(run("floor", np.array([-0.5, 0.5, -0.0])), np.array([-1.0, 0.0, -0.0]))
    same(run("ceil", np.array([-0.5, 0.5, -0.0])), np.array([-0.0, 1.0, -0.0]))
    same(run("sign", np.array([-3.0, 0.0, 2.0, np.nan, -np.inf])),
         np.array([-1.0, 0.0, 1.0, np.nan, -1.0]))
    same(run("is_finite", np.array([1.0, np.inf, np.nan])), np.array([True, False, False]))
    same(run("rsqrt", np.array([4.0, 0.0, np.inf, -1.0])), np.array([0.5, np.inf, 0.0, np.nan]))


def test_pow_specials():
    x = np.array([0.0, 0.0, 1.0, -1.0, -2.0, -2.0, np.nan, 2.0, -0.0])
    y = np.array([0.0, -1.0, np.nan, np.inf, 3.0, 0.5, 0.0, -np.inf, -1.0])
    same(run("pow", x, y),
         np.array([1.0, np.inf, 1.0, 1.0, -8.0, np.nan, 1.0, 0.0, -np.inf]))


FUNCTIONS = {
    "exp": mpmath.exp, "expm1": mpmath.expm1, "log": mpmath.log, "log1p": mpmath.log1p,
    "sin": mpmath.sin, "cos": mpmath.cos, "tanh": mpmath.tanh, "atan": mpmath.atan,
    "erf": mpmath.erf, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_against_mpmath(name, dtype):
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.normal(0, 3, 60), rng.normal(0, 1e-3, 20), [30.5, 1e-20]])
    x = np.abs(x).astype(dtype) if name in ("log", "rsqrt", "log1p") else x.astype(dtype)
    got = run(name, x)
    with mpmath.workprec(200):
        for g, v in zip(got, x, strict=True):
            want = FUNCTIONS[name](mpmath.mpf(float(v)))
            unit = mpmath.mpf(float(np.spacing(np.abs(dtype(float(want))))))
            error = abs(mpmath.mpf(float(g)) - want) / unit
            assert error <= (0.51 if dtype is np.float32 else 2.0), (name, v, error)


def relative(got, want):
    return abs(mpmath.mpf(float(got)) - want) / abs(want)


def test_lgamma_against_mpmath():
    x = np.concatenate([np.linspace(0.01, 20, 301), [1 + 1e-9, 2 - 1e-7, 1.5, 2.5, 100.0, 1e5,
                        1e-10, 1e300, 0.5]])
    with mpmath.workprec(200):
        for v, g in zip(x, special.lgamma(x), strict=True):
            want = mpmath.loggamma(mpmath.mpf(float(v)))
            if want != 0:
                assert relative(g, want) < 2e-15, v
        for v in (-0.3, -1.7, -2.9, -10.4, -55.55, -1e-9):
            want = mpmath.re(mpmath.loggamma(mpmath.mpf(v)))
            assert abs(float(special.lgamma(np.array(v))) - want) < 4e-15 * max(1, abs(want)), v
    same(run("lgamma", np.array([0.0, -0.0, -1.0, -5.0, 1.0, 2.0, np.inf, -np.inf, np.nan])),
         np.array([np.inf] * 4 + [0.0, 0.0, np.inf, np.inf, np.nan]))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_polygamma_against_mpmath(n):
    x = np.concatenate([np.linspace(0.05, 12.05, 60), [0.01, 30.3, 1e4, 1e8, -0.3, -1.7, -12.4]])
    got = special.polygamma(n, x)
    with mpmath.workprec(200):
        for v, g in zip(x, got, strict=True):
            want = mpmath.polygamma(n, mpmath.mpf(float(v)))
            scale = max(abs(want), abs(mpmath.mpf(1)) if n == 0 else 0)
            assert abs(mpmath.mpf(float(g)) - want) < 2e-14 * scale, (n, v, g, want)


def test_polygamma_at_poles_and_infinities():
    x = np.array([0.0, -0.0, -1.0, -3.0, np.inf, -np.inf, np.nan])
    same(special.polygamma(0, x), np.array([-np.inf, np.inf, *[np.nan] * 2, np.inf, *[np.nan] * 2]))
    same(special.polygamma(1, x), np.array([np.inf] * 4 + [0.0, np.nan, np.nan]))
    same(special.polygamma(2, x), np.array([-np.inf, np.inf, *[np.nan] * 2, -0.0, *[np.nan] * 2]))


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
    from op_cases import evaluate

    from graphc import dims, prim
    from graphc.types import TensorType, f64

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
