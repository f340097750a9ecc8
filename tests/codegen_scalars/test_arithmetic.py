"""Every non-transcendental row, bit for bit against NumPy or, where it differs, a rule."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scalar_harness import at_level, levels, loop_text, run

from graphc.types import DTYPES, DType, bf16, bool_, f16, f32, f64, i64, u8, u64

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on infinities and NaN
LEVELS = levels()
FLOATS = [d for d in DTYPES if d.is_float]
INTS = [d for d in DTYPES if d.is_int]
Array = np.ndarray[Any, np.dtype[Any]]


def widths(level: str, d: DType) -> tuple[int, int]:
    return 1, max(4, at_level(level).lanes(d))


def values(d: DType, seed: int = 0) -> Array:
    """Edges, small numbers and random bits of a dtype, finite or not."""
    rng = np.random.default_rng(seed)
    if d is bool_:
        return rng.random(96) < 0.5
    raw = rng.integers(0, 256, 256 * d.itemsize, dtype=np.uint8).view(d.numpy)
    with np.errstate(all="ignore"):
        if d.is_int:
            i = np.iinfo(d.numpy)
            edges = np.array([i.min, i.min + 1, i.max, i.max - 1, 0, 1, 2, 3, 5, 7], d.numpy)
            small = rng.integers(max(i.min, -40), 40, 64).astype(d.numpy)
        else:
            edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5,
                              65504, 65520, 65519, 6e-8, 3e-8, 2.0**31, 2.0**63, -(2.0**63), 1e38,
                              3.4e38, 1e-40, 255, 256, -129, 4.5e15, 0.49999997]).astype(d.numpy)
            small = (rng.standard_normal(64) * 20).astype(d.numpy)
            return np.concatenate([edges, small, raw[:200].astype(np.float64).astype(d.numpy)])
    return np.concatenate([edges, small, raw])


def pairs(d: DType) -> tuple[Array, Array]:
    """Every edge against every edge, and random pairs."""
    v = values(d)
    some = v[:28]
    grid = np.array(list(itertools.product(some, some)), d.numpy).T
    rng = np.random.default_rng(1)
    return (np.concatenate([grid[0], rng.permutation(v), rng.permutation(v)]),
            np.concatenate([grid[1], rng.permutation(v), rng.permutation(v)]))


def wide(*xs: Array) -> list[Array]:
    return [x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x
            for x in xs]


def assert_same(got: Array, want: Array, what: str) -> None:
    """Equal bits, but any NaN is as good as another."""
    assert got.dtype == want.dtype, what
    equal = (got == want) | (np.not_equal(got, got) & np.not_equal(want, want))
    if got.dtype.kind not in "biu":
        signs = np.signbit(got.astype(np.float64)) == np.signbit(want.astype(np.float64))
        equal &= signs | np.not_equal(want, want)
    bad = np.flatnonzero(~equal)
    assert not len(bad), f"{what}: {len(bad)} differ, first [{bad[0]}] {got[bad[0]]} {want[bad[0]]}"


def check(op: str, arrays: list[Array], ins: list[DType], out: DType, want: Array,
          failed: Array | None = None, attrs: dict[str, Any] | None = None) -> None:
    for level in LEVELS:
        for width in widths(level, out):
            got, bad = run(op, arrays, ins, out, level=level, width=width, attrs=attrs)
            assert_same(got, want, f"{op} {ins}->{out} {level} width {width}")
            assert (bad == (failed if failed is not None else False)).all()


BINARY_FLOAT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
                "rem": np.remainder, "maximum": np.maximum, "minimum": np.minimum}
UNARY_FLOAT = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor,
               "ceil": np.ceil, "round": np.rint, "sqrt": np.sqrt}


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_float_arithmetic(d: DType) -> None:
    with np.errstate(all="ignore"):
        a, b = pairs(d)
        for op, f in BINARY_FLOAT.items():
            check(op, [a, b], [d, d], d, f(*wide(a, b)).astype(d.numpy))
        x = values(d)
        for op, g in UNARY_FLOAT.items():
            check(op, [x], [d], d, g(*wide(x)).astype(d.numpy))
        (v,) = wide(x)
        check("rsqrt", [x], [d], d, (v.dtype.type(1) / np.sqrt(v)).astype(d.numpy))
        check("is_finite", [x], [d], bool_, np.isfinite(v))


@pytest.mark.parametrize("d", INTS, ids=str)
def test_integer_arithmetic(d: DType) -> None:
    with np.errstate(all="ignore"):
        a, b = pairs(d)
        for op, f in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and,
                      "or": np.bitwise_or, "xor": np.bitwise_xor, "maximum": np.maximum,
                      "minimum": np.minimum}.items():
            check(op, [a, b], [d, d], d, f(a, b))
        # NumPy gives 0 for division by zero, and MIN // -1 = MIN
        check("div", [a, b], [d, d], d, np.floor_divide(a, b), failed=b == 0)
        check("rem", [a, b], [d, d], d, np.remainder(a, b), failed=b == 0)
        negative = b < 0
        power = np.power(a, np.where(negative, b.dtype.type(0), b))
        check("pow", [a, b], [d, d], d, np.where(negative, d.numpy.type(0), power),
              failed=negative)
        x = values(d)
        for op, g in {"neg": np.negative, "abs": np.abs, "sign": np.sign,
                      "not": np.invert}.items():
            check(op, [x], [d], d, g(x))


@pytest.mark.parametrize("d", INTS, ids=str)
def test_shifts(d: DType) -> None:
    a, n = pairs(d)
    inside = (n >= 0) & (n < d.bits)
    count = np.where(inside, n, d.numpy.type(0))
    left = np.where(inside, a << count, d.numpy.type(0))
    right = np.where(inside, a >> count, a >> d.numpy.type(d.bits - 1) if d.kind == "i" else 0)
    check("shift_left", [a, n], [d, d], d, left.astype(d.numpy))
    check("shift_right", [a, n], [d, d], d, right.astype(d.numpy))


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_comparisons_and_select(d: DType) -> None:
    a, b = pairs(d)
    cond = np.random.default_rng(2).random(len(a)) < 0.5
    for op, f in {"equal": np.equal, "less": np.less, "less_equal": np.less_equal}.items():
        check(op, [a, b], [d, d], bool_, f(a, b))
    check("select", [cond, a, b], [bool_, d, d], d, np.where(cond, a, b))


def test_bool_logic() -> None:
    a, b = pairs(bool_)
    for op, f in {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
                  "maximum": np.maximum, "minimum": np.minimum}.items():
        check(op, [a, b], [bool_, bool_], bool_, f(a, b))
    check("not", [a], [bool_], bool_, ~a)


def cast_reference(x: Array, source: DType, to: DType) -> Array:
    with np.errstate(all="ignore"):
        if source.is_float and to.is_int:
            info = np.iinfo(to.numpy)
            v = np.trunc(np.nan_to_num(x.astype(np.longdouble), nan=0, posinf=np.inf,
                                       neginf=-np.inf))
            return np.clip(v, np.longdouble(info.min), np.longdouble(info.max)).astype(to.numpy)
        if to.is_float and to.bits == 16 and not (to is f16 and source is f64):
            return x.astype(np.float32).astype(to.numpy)
        return x.astype(to.numpy)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts(source: DType) -> None:
    x = values(source)
    for to in DTYPES:
        check("cast", [x], [source], to, cast_reference(x, source, to))


@pytest.mark.parametrize("source", [f32, f64], ids=str)
def test_floats_next_to_the_ends_of_integers(source: DType) -> None:
    ends = [s * 2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]
    x = np.array([*ends, *(v - np.sign(v) for v in ends), *(v + np.sign(v) for v in ends)])
    x = x.astype(source.numpy)
    x = np.concatenate([x, np.nextafter(x, x.dtype.type(0)), np.nextafter(x, x * 2)])
    for to in INTS:
        check("cast", [x], [source], to, cast_reference(x, source, to))
        # LLVM's saturating conversions of vectors go lane by lane on x86, ten times as slow
        assert ".sat." not in loop_text("cast", [source], to, 16, "v2")
        if to.bits == 64:  # no more do plain ones have lanes before AVX-512
            assert "fpto" not in loop_text("cast", [source], to, 16, "v3")


@pytest.mark.parametrize("to", ["i64", "u64"])
@pytest.mark.parametrize("source", [f32, f64], ids=str)
def test_floats_of_any_exponent_as_64_bits(source: DType, to: str) -> None:
    rng = np.random.default_rng(4)
    x = (rng.uniform(-1, 1, 3000) * 2.0 ** rng.integers(-3, 66, 3000)).astype(source.numpy)
    near = (rng.integers(-9, 9, 400) * 2.0 ** rng.integers(0, 61, 400)).astype(source.numpy)
    x = np.concatenate([x, near, np.nextafter(near, x.dtype.type(0))])
    d = next(d for d in DTYPES if d.name == to)
    check("cast", [x], [source], d, cast_reference(x, source, d))


def test_f64_to_f16_rounds_once() -> None:
    # exactly between f16 neighbours once rounded to f32, but not before
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 2.0**-25 * (1 + 2.0**-30),
                  -(1 + 2.0**-11 + 2.0**-40), 65520 * (1 - 2.0**-40)])
    check("cast", [x], [f64], f16, x.astype(np.float16))


@pytest.mark.parametrize("half", [f16, bf16], ids=str)
def test_every_half_survives_memory(half: DType) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(half.numpy)
    single = x.astype(np.float32)
    for level in LEVELS:
        got, _ = run("cast", [x], [half], f32, level=level, width=16)
        assert_same(got, single, f"{half} to f32 at {level}")
        back, _ = run("cast", [single], [f32], half, level=level, width=16)
        assert_same(back, single.astype(half.numpy), f"f32 to {half} at {level}")
        i16 = next(d for d in DTYPES if d.name == "u16")
        raw, _ = run("bitcast", [x], [half], i16, level=level, width=16)
        number = ~np.isnan(single)
        assert (raw[number] == bits[number]).all()
        again, _ = run("bitcast", [bits], [i16], half, level=level, width=16)
        assert_same(again, x, f"bits to {half} at {level}")


def test_bitcast() -> None:
    for a, b in (("f32", "i32"), ("f32", "u32"), ("f64", "i64"), ("f64", "u64"), ("i8", "u8")):
        d, e = (next(t for t in DTYPES if t.name == n) for n in (a, b))
        x = values(d)
        x = x[x == x]
        check("bitcast", [x], [d], e, x.view(e.numpy))
        y = x.view(e.numpy)
        check("bitcast", [y], [e], d, x)


def test_every_narrow_division() -> None:
    a, b = (v.ravel().astype(np.uint8) for v in np.meshgrid(np.arange(256), np.arange(256)))
    with np.errstate(all="ignore"):
        check("div", [a, b], [u8, u8], u8, np.floor_divide(a, b), failed=b == 0)
        signed = a.view(np.int8), b.view(np.int8)
        i8 = next(d for d in DTYPES if d.name == "i8")
        check("rem", list(signed), [i8, i8], i8, np.remainder(*signed), failed=b == 0)


@pytest.mark.parametrize("d", INTS, ids=str)
def test_division_by_numbers_that_are_known(d: DType) -> None:
    info, rng = np.iinfo(d.numpy), np.random.default_rng(2)
    for b in (
        3, 7, 10, -10, 64, -64, -100, 641, 6700417, (1 << 32) + 1, (1 << 62) - 57, (1 << 63) + 1,
        (1 << 64) - 2, info.max, info.min, info.min + 1,
    ):
        if b == 0 or not info.min <= b <= info.max:
            continue
        some = [*rng.integers(info.min, info.max, 20, d.numpy), 0, 1, -1]
        near = [int(q) * b + k for q in some for k in (-1, 0, 1)]
        wrapped = np.array([n % 2**64 for n in near], np.uint64).astype(d.numpy)
        a, by = np.concatenate([values(d), wrapped]), d.numpy.type(b)
        wants = {"div": np.floor_divide(a, by), "rem": np.remainder(a, by)}
        for op, want in wants.items():
            for level, width in [*((k, widths(k, d)[1]) for k in LEVELS), ("v2", 1)]:
                got, bad = run(op, [a], [d], d, level=level, width=width, last=b)
                assert_same(got, want, f"{op} {d} by {b} {level} width {width}")
                assert not bad.any()


@pytest.mark.parametrize("d", [i64, u64], ids=str)
def test_divisions_of_64_bits_as_doubles(d: DType) -> None:
    """Of numbers about multiples of the divisor, up to 2**51 and about it, where vectors that have
    others among them go by integers."""
    rng, edge = np.random.default_rng(8), 1 << 51
    divisors = [1, 2, 3, 7, 10, 641, 2**26 - 1, 2**26 + 1, 2**50 - 1, 2**51 - 1, 2**51]
    divisors += [int(2**x) for x in rng.uniform(0, 51, 200)]
    pairs = [
        (min(edge + k, edge // b * b + k), b) for b in divisors for k in (-2, -1, 0, 1, 2)
    ] + [(int(q) * b + k, b) for b in divisors for q in rng.integers(0, edge // b, 5)
         for k in (-1, 0, 1)] + [(5, 0), (0, 0)]
    pairs += [(a, -b) for a, b in pairs] + [(-a, b) for a, b in pairs] + [(-5, -7), (-edge - 1, 3)]
    own = [(a, b) for a, b in pairs if d is i64 or (a >= 0 and b >= 0)]
    near = [(a, b) for a, b in own if abs(a) < edge and abs(b) < edge]
    for some in (near[: len(near) // 16 * 16], own[: len(own) // 16 * 16]):
        a, b = (np.array(x, d.numpy) for x in zip(*some, strict=True))
        with np.errstate(all="ignore"):
            check("div", [a, b], [d, d], d, np.floor_divide(a, b), failed=b == 0)
            check("rem", [a, b], [d, d], d, np.remainder(a, b), failed=b == 0)


def test_rem_of_far_exponents() -> None:
    rng = np.random.default_rng(3)
    for d, u in ((f32, np.uint32), (f64, np.uint64)):
        a, b = (rng.integers(0, np.iinfo(u).max, 2000, u).view(d.numpy) for _ in range(2))
        with np.errstate(all="ignore"):
            check("rem", [a, b], [d, d], d, np.remainder(a, b))


def test_integer_power_wraps() -> None:
    a = np.array([3, -3, 2, 0, 7, -1, 10], np.int64)
    n = np.array([41, 63, 64, 0, 2**62, 2**63 - 1, -1], np.int64)
    powers = [pow(int(x), int(y), 1 << 64) if y >= 0 else 0 for x, y in zip(a, n, strict=True)]
    want = np.array(powers, np.uint64).view(np.int64)
    check("pow", [a, n], [i64, i64], i64, want, failed=n < 0)
