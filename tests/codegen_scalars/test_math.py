"""Math functions: ULP bounds, special values, the same bits at every width and level with FMA."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from math_reference import BOUNDS, bit_patterns, exact, samples, ulps
from scalar_harness import levels, run

from graphc.codegen.elementwise.scalars import EMIT
from graphc.ops import OPS, Kind
from graphc.types import DType, bf16, f16, f32, f64

LEVELS = levels()
COUNT = {"erf": 400, "normal_cdf": 400, "lgamma": 250, "polygamma": 60}  # mpmath is slow


def _inputs(op: str) -> int:
    return 2 if op in ("pow", "atan2") else 1


def test_every_elementwise_op_is_emitted() -> None:
    rows = {name for name, row in OPS.items() if row.kind is Kind.ELEMENTWISE}
    assert rows <= set(EMIT), f"ops without emission: {sorted(rows - set(EMIT))}"
    # cast and bitcast may stand among other kinds
    assert set(EMIT) <= set(OPS), f"emission without an op: {sorted(set(EMIT) - set(OPS))}"


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("op", BOUNDS)
def test_error_bound(op: str, d: DType) -> None:
    xs = samples(op, d, COUNT.get(op, 4000))
    for n in (0, 1, 2) if op == "polygamma" else (0,):
        want = exact(op, xs, n)
        attrs = {"n": n} if op == "polygamma" else None
        for level in LEVELS:
            got, _ = run(op, xs, [d] * len(xs), d, level=level, width=64 // d.itemsize,
                         attrs=attrs)
            error = ulps(got, want, d)
            i = int(np.argmax(error))
            assert error[i] <= BOUNDS[op], (level, n, error[i], [x[i] for x in xs], got[i])


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("op", BOUNDS)
def test_same_bits_at_any_width_and_level(op: str, d: DType) -> None:
    xs = samples(op, d, 500, seed=7)
    attrs = {"n": 1} if op == "polygamma" else None
    bits = np.uint32 if d is f32 else np.uint64
    for group in (["v2"], [v for v in LEVELS if v != "v2"]):
        results = [
            run(op, xs, [d] * len(xs), d, level=level, width=width, attrs=attrs)[0]
            for level in group for width in (1, 4, 8, 16)
        ]
        for r in results[1:]:
            nan = np.isnan(results[0])
            assert (np.isnan(r) == nan).all()
            assert (r.view(bits)[~nan] == results[0].view(bits)[~nan]).all()


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("d", [f32, f64], ids=str)
def test_exp_of_what_is_at_most_64(d: DType) -> None:
    """By one power of 2 in the place of two: the same bits, where results underflow, too."""
    low, gone = (-87.0, -104.0) if d is f32 else (-708.0, -746.0)
    x = np.concatenate([
        np.linspace(64, low, 5000), np.linspace(low, gone, 5000), -np.geomspace(1e-30, 1e30, 499),
        [0.0, -0.0, -INF, NAN, *np.linspace(gone - 1, gone, 9)],
    ]).astype(d.numpy)
    for level, width in product(LEVELS, (1, 4, 16)):
        want, got = (run("exp", [x], [d], d, level=level, width=width, attrs=attrs)[0]
                     for attrs in ({}, {"modest": True}))
        np.testing.assert_array_equal(got, want, f"{level} {width}")
        assert not got[x <= gone].any()


SPECIAL_VALUES = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e5, INF),
            (-1e5, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (1e-30, 1e-30)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN),
            (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (NAN, NAN),
              (1e-30, 1e-30)],
    "log2": [(1.0, 0.0), (8.0, 3.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN),
             (-INF, NAN), (NAN, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (27.0, 3.0),
             (-8.0, -2.0), (2.0**-30, 2.0**-10), (125.0, 5.0), (1.0, 1.0)],
    "log10": [(1.0, 0.0), (1000.0, 3.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN),
              (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-30, 1e-30)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-30, 1e-30),
             (1e5, INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (-1e5, INF)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-30, 1e-30)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-1.0, NAN), (-1e30, NAN), (-INF, NAN), (INF, INF),
              (NAN, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN),
              (NAN, NAN), (1e-30, 1e-30)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, math.pi / 2), (-1.0, -math.pi / 2), (1.5, NAN),
             (-INF, NAN), (NAN, NAN), (1e-30, 1e-30)],
    "acos": [(0.0, math.pi / 2), (-0.0, math.pi / 2), (1.0, 0.0), (-1.0, math.pi), (1.5, NAN),
             (INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (30.0, 1.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "normal_cdf": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (-50.0, 0.0)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)],
    "lgamma": [(0.0, INF), (-0.0, INF), (1.0, 0.0), (2.0, 0.0), (-3.0, INF), (INF, INF),
               (-INF, INF), (NAN, NAN), (-1e30, INF)],
}


@pytest.mark.parametrize("op", SPECIAL_VALUES)
def test_special_values(op: str) -> None:
    x, want = np.array(SPECIAL_VALUES[op]).T
    for d in (f32, f64):
        for level in LEVELS:
            for width in (1, 8):
                got, _ = run(op, [x.astype(d.numpy)], [d], d, level=level, width=width)
                expected = want.astype(d.numpy)
                same = (got == expected) & (np.signbit(got) == np.signbit(expected))
                assert (same | (np.isnan(got) & np.isnan(expected))).all(), (d, level, got)


@pytest.mark.parametrize("d", [f32, f64], ids=str)
def test_pow_and_atan2_at_special_pairs_as_numpy(d: DType) -> None:
    edges = np.array([0, 0.5, 1, 2, 3, 1e-30, 1e30, INF, NAN, 2.5], d.numpy)
    edges = np.concatenate([edges, -edges])
    a, b = (v.ravel() for v in np.meshgrid(edges, edges))
    for op, f in {"pow": np.power, "atan2": np.arctan2}.items():
        with np.errstate(all="ignore"):
            want = f(a.astype(np.float64), b.astype(np.float64)).astype(d.numpy)
        for level in LEVELS:
            got, _ = run(op, [a, b], [d, d], d, level=level, width=8)
            close = np.isclose(got, want, rtol=1e-6, atol=0, equal_nan=True)
            signs = (np.signbit(got) == np.signbit(want)) | np.isnan(want)
            assert (close & signs).all(), (op, level, a[~close | ~signs], b[~close | ~signs])


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("base", [2.0, 10.0, 0.3, 1 + 2.0**-23, 1.0])
def test_powers_of_a_known_base(base: float, d: DType) -> None:
    """Their logarithm is taken when the code is written; 2 has a reduction of its own."""
    base = float(np.asarray(base, d.numpy))
    rng, most = np.random.default_rng(3), 160 if d is f32 else 1100
    edges = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e30, -1e30, 2.0**40, 2.0**-120]
    y = np.concatenate([edges, rng.uniform(-3, 3, 2000), rng.uniform(-most, most, 2000)])
    y = y.astype(d.numpy)
    want = exact("pow", [np.full(len(y), base, d.numpy), y])
    bits = np.uint32 if d is f32 else np.uint64
    for group in (["v2"], [v for v in LEVELS if v != "v2"]):
        results = [run("pow", [y], [d], d, level=level, width=width, first=base)[0]
                   for level in group for width in (1, 4, 16)]
        for r in results:
            assert np.max(ulps(r, want, d)) <= BOUNDS["pow"]
            same = (r.view(bits) == results[0].view(bits)) | np.isnan(want)
            assert same.all(), y[~same]


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("y", [-1, 0.5, -0.5, -2, 4, 1.5, -1.5, 2.5, -2.5, 5, -3, 6, 12, -15.5, 16])
def test_powers_by_a_known_exponent(y: float, d: DType) -> None:
    """By products and roots, beside zeros, infinities and powers out of range."""
    rng, most = np.random.default_rng(3), 140 if d is f32 else 1020
    far = most // abs(y)
    with np.errstate(over="ignore"):
        x = np.concatenate([
            rng.uniform(0.5, 2, 3000), np.exp2(rng.uniform(-most, min(most, 1020), 3000)),
            np.exp2(rng.uniform(-far, far, 2000)), np.exp2(rng.uniform(-0.7 * far, 0.7 * far, 640)),
            [0.0, INF, NAN, 1.0, 2.0, 3.0],
        ])
        x = np.concatenate([x, -x[(0 if y % 1 == 0 else -99):]]).astype(d.numpy)
    exponent = np.full(len(x), y, d.numpy)
    want, bits = exact("pow", [x, exponent]), np.uint32 if d is f32 else np.uint64
    near = np.abs(np.log2(np.abs(x, where=x != 0, out=np.ones_like(x)))) < 0.7 * far
    near &= (x > 0) | (y % 1 == 0)
    for group in (["v2"], [v for v in LEVELS if v != "v2"]):
        results = [run("pow", [x], [d], d, level=level, width=width, last=y)[0]
                   for level in group for width in (1, 4, 16)]
        for r in results:
            error = ulps(r, want, d)
            assert np.max(error) <= BOUNDS["pow"]
            if group != ["v2"] and y not in (-2, 4, -0.5):
                assert np.max(error[near]) < 0.51
            same = (r.view(bits) == results[0].view(bits)) | np.isnan(want)
            assert same.all(), x[~same]


def test_poles_of_polygamma() -> None:
    x = np.array([0.0, -0.0, -1.0, -2.0, INF, -INF, NAN])
    wants = {0: [-INF, INF, NAN, NAN, INF, NAN, NAN], 1: [INF, INF, INF, INF, 0.0, NAN, NAN],
             2: [-INF, INF, NAN, NAN, -0.0, NAN, NAN]}
    for (n, want), d in product(wants.items(), (f32, f64)):
        for level in LEVELS:
            a = x.astype(d.numpy)
            got, _ = run("polygamma", [a], [d], d, level=level, width=4, attrs={"n": n})
            assert np.array_equal(got, np.array(want), equal_nan=True), (n, got)
            numbers = ~np.isnan(got)
            assert (np.signbit(got) == np.signbit(want))[numbers].all()


def test_digamma_around_its_zero() -> None:
    zero = 1.4616321449683622
    near = zero + np.ldexp(np.array([[1.0], [-1.0]]), -np.arange(3, 53)).ravel()
    x = np.array([*near, zero, np.nextafter(zero, 2), np.nextafter(zero, 1)])
    for d, level in product((f32, f64), LEVELS):
        a = x.astype(d.numpy)
        want = exact("polygamma", [a], 0)
        got, _ = run("polygamma", [a], [d], d, level=level, width=4, attrs={"n": 0})
        assert ulps(got, want, d).max() <= BOUNDS["polygamma"]


def test_gamma_functions_by_reflection() -> None:
    x = np.concatenate([-np.arange(1, 9) + 0.3, -np.arange(1, 9) + 0.71, [-1e-5, -0.25, -50.5]])
    for op, orders in (("lgamma", [0]), ("polygamma", [0, 1, 2, 3])):
        for n in orders:
            want = exact(op, [x], n).astype(np.float64)
            attrs = {"n": n} if op == "polygamma" else None
            for level in LEVELS:
                got, _ = run(op, [x], [f64], f64, level=level, width=4, attrs=attrs)
                assert np.allclose(got, want, rtol=6e-16, atol=2e-17 * 20.0**n), (op, n)


@pytest.mark.parametrize("d", [f16, bf16], ids=str)
def test_halves_are_rounded_single_precision(d: DType) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(d.numpy)
    for op in ("exp", "log", "tanh", "sin", "erf"):
        single, _ = run(op, [x.astype(np.float32)], [f32], f32, level=LEVELS[-1], width=16)
        for level in LEVELS[1:]:
            got, _ = run(op, [x], [d], d, level=level, width=16)
            with np.errstate(all="ignore"):
                want = single.astype(d.numpy)
            assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


def test_slow_lanes_leave_their_neighbours_alone() -> None:
    """A huge angle beside ordinary ones changes nothing for those."""
    calm = bit_patterns(f64, 64, np.random.default_rng(5)) * 0 + np.linspace(-3, 3, 64)
    calm = np.where(np.isnan(calm), 1.0, calm)
    mixed = calm.copy()
    mixed[::5] = 1e300
    for level in LEVELS:
        a, _ = run("sin", [calm], [f64], f64, level=level, width=8)
        b, _ = run("sin", [mixed], [f64], f64, level=level, width=8)
        keep = np.arange(64) % 5 != 0
        assert (a[keep] == b[keep]).all()
