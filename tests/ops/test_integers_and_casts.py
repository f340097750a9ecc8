"""Integer arithmetic against Python's unbounded integers, and every kind of cast."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from op_cases import INTS, run, same, wrap

from graphc.errors import IntegerDivisionError
from graphc.types import BY_NAME, DTYPES

SIGNED = INTS[:4]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


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


def test_casts_to_f16_round_once_and_those_to_bf16_go_through_f32():
    tie = 1 + 2.0**-11 + 2.0**-30  # rounds up directly, to even after f32
    same(run("cast", np.array([tie, 1e6, 1e-9]), dtype=BY_NAME["f16"]),
         np.array([1 + 2.0**-10, np.inf, 0.0], np.float16))
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
