"""Every vjp against central differences, to second order, and the points where care is due."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import SMOOTH, evaluate, inputs

from graphc import prim
from graphc.ops import OPS, Kind
from graphc.testing import check_grad
from graphc.transforms import grad
from graphc.types import BY_NAME, TensorType


def declare(case, xs):
    """The op's float results."""
    outs = prim.many(case.op, *xs, **case.attrs)
    return [o for o in outs if o.dtype.is_float]


@pytest.mark.parametrize("case", SMOOTH, ids=lambda c: c.id)
def test_first_and_second_derivative(case):
    """The squares make the second derivative depend on the cotangent too."""

    def fn(*xs):
        return [y * y + y for y in declare(case, xs)]

    check_grad(fn, case.args, order=2, eps=1e-5, rtol=2e-6, atol=2e-6)


def test_every_differentiable_row_is_checked():
    have = {c.op for c in SMOOTH}
    for name, row in OPS.items():
        if row.kind in (Kind.LEAF, Kind.REGION) or name == "barrier":
            continue
        assert row.differentiable == (name in have), name
        assert row.differentiable == (row.vjp is not None), name


def gradients(fn, *arrays):
    """d(sum of fn)/d(x) for every float operand."""
    arrays = [np.asarray(a) for a in arrays]
    xs = [inputs(a) for a in arrays]
    y = fn(*xs)
    total = prim.reduce_sum(y, range(y.ndim))
    wrt = [x for x in xs if x.dtype.is_float]
    return evaluate(xs, arrays, grad(total, wrt, unconnected="zero"))


def second(fn, *arrays):
    """The derivative of the first gradient's sum, by the same operand."""
    arrays = [np.asarray(a) for a in arrays]
    xs = [inputs(a) for a in arrays]
    y = fn(*xs)
    first = grad(prim.reduce_sum(y, range(y.ndim)), xs[0])
    found = grad(prim.reduce_sum(first, range(first.ndim)), xs[0], unconnected="zero")
    return evaluate(xs, arrays, [found])[0]


def test_ties_share_evenly():
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 0.0])
    for fn, want in [(prim.maximum, [0.5, 0, 1]), (prim.minimum, [0.5, 1, 0])]:
        gx, gy = gradients(fn, x, y)
        assert gx.tolist() == want and (gx + gy).tolist() == [1, 1, 1]
    rows = np.array([[2.0, 2.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    (g,) = gradients(lambda a: prim.reduce_max(a, (1,)), rows)
    np.testing.assert_allclose(g, [[1 / 3, 1 / 3, 0, 1 / 3], [0.25] * 4])
    (g,) = gradients(lambda a: prim.reduce_min(a, (0, 1)), rows)
    np.testing.assert_allclose(g, [[0] * 4, [0.25] * 4])


def test_cummax_gives_to_the_first_that_set_it():
    x = np.array([1.0, 1.0, 3.0, 2.0, 3.0, 5.0])
    (g,) = gradients(lambda a: prim.cummax(a, 0), x)
    assert g.tolist() == [2, 0, 3, 0, 0, 1]
    (g,) = gradients(lambda a: prim.cummax(a, 0, reverse=True), x)
    assert g.tolist() == [0, 0, 0, 0, 0, 6]
    (g,) = gradients(lambda a: prim.cummax(a, 0), np.array([-np.inf, -np.inf, 0.0]))
    assert g.tolist() == [2, 0, 1]


def test_abs_at_zero():
    (g,) = gradients(prim.abs, np.array([-2.0, 0.0, -0.0, 3.0]))
    assert g.tolist() == [-1, 0, 0, 1]


@pytest.mark.parametrize(
    ("exponent", "first", "then"),
    [(0.0, 0, 0), (1.0, 1, 0), (2.0, 0, 2), (3.0, 0, 0)],
)
def test_pow_at_base_zero(exponent, first, then):
    def fn(a):
        return prim.pow(a, prim.full_like(a, exponent))

    (g,) = gradients(fn, np.array([0.0]))
    assert g.tolist() == [first]
    assert second(fn, np.array([0.0])).tolist() == [then]


def test_pow_by_exponent_at_base_zero():
    _, g = gradients(prim.pow, np.array([0.0, 0.0, 0.0]), np.array([2.0, 0.5, 0.0]))
    assert g.tolist() == [0, 0, 0]
    gx, _ = gradients(prim.pow, np.array([-2.0]), np.array([3.0]))
    assert gx.tolist() == [12]
    gx, gy = gradients(prim.pow, np.array([3.0]), np.array([0.0]))
    np.testing.assert_allclose([gx[0], gy[0]], [0, np.log(3.0)])


def test_rem_by_infinities():
    """floor(x / y) is -1 where the signs differ, else 0."""
    x, y = np.array([5.0, -5.0, 5.0, -5.0, 0.0]), np.array([1.0, 1.0, -1.0, -1.0, -1.0]) * np.inf
    gx, gy = gradients(prim.rem, x, y)
    assert gx.tolist() == [1] * 5 and gy.tolist() == [0, 1, 1, 0, 0]


def test_atan2_at_origin_is_zero():
    gy, gx = gradients(prim.atan2, np.array([0.0]), np.array([0.0]))
    assert gy.tolist() == [0] and gx.tolist() == [0]


def test_atan2_neither_overflows_nor_vanishes():
    for scale in (1e-200, 1e200):
        y, x = np.array([3.0, -4.0, 0.0]) * scale, np.array([4.0, 3.0, -5.0]) * scale
        gy, gx = gradients(prim.atan2, y, x)
        np.testing.assert_allclose(gy * scale, [4 / 25, 3 / 25, -5 / 25], rtol=1e-14)
        np.testing.assert_allclose(gx * scale, [-3 / 25, 4 / 25, 0], rtol=1e-14)


@pytest.mark.parametrize("seed", range(25))
def test_dot_of_random_geometry(seed):
    """Any choice and order of batch and contracted axes, against einsum and differences."""
    rng = np.random.default_rng(seed)
    batch, inner, free_a, free_b = (list(rng.integers(1, 4, rng.integers(0, 3))) for _ in range(4))
    letters = iter("abcdefghijkl")
    named = [[(next(letters), int(s)) for s in sizes] for sizes in (batch, inner, free_a, free_b)]
    left, right = [*named[0], *named[1], *named[2]], [*named[0], *named[1], *named[3]]
    left = [left[i] for i in rng.permutation(len(left))]
    right = [right[i] for i in rng.permutation(len(right))]
    a, b = (rng.normal(size=[s for _, s in side]) for side in (left, right))
    attrs = {
        "contract": tuple(tuple(side.index(k) for k in named[1]) for side in (left, right)),
        "batch": tuple(tuple(side.index(k) for k in named[0]) for side in (left, right)),
    }
    result = [
        *named[0], *(k for k in left if k in named[2]), *(k for k in right if k in named[3])
    ]
    names = ["".join(k for k, _ in side) for side in (left, right, result)]
    xs = [inputs(a), inputs(b)]
    (got,) = evaluate(xs, [a, b], [prim.dot(*xs, **attrs)])
    want = np.einsum(f"{names[0]},{names[1]}->{names[2]}", a, b)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    check_grad(lambda x, y: prim.dot(x, y, **attrs), [a, b], order=2)


def test_products_with_zeros():
    x = np.array([[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    (g,) = gradients(lambda a: prim.reduce_prod(a, (1,)), x)
    assert g.tolist() == [[12, 8, 6], [0, 8, 0], [0, 0, 0], [0, 0, 0]]
    hess = second(lambda a: prim.reduce_prod(a, (1,)), x)
    assert hess.tolist() == [[7, 6, 5], [4, 6, 2], [4, 4, 0], [0, 0, 0]]
    (g,) = gradients(lambda a: prim.cumprod(a, 0), np.array([2.0, 0.0, 5.0, 0.0]))
    # y = x0, x0 x1, x0 x1 x2, x0 x1 x2 x3
    assert g.tolist() == [1, 12, 0, 0]


def test_products_and_powers_of_halves_round_once():
    """Products on the way that f16 does not hold; an exponent less 1 that bf16 does not hold."""
    x = np.array([1e3, 1e3, 2.0**-10, 2.0**-10, 4.0])
    rows = [lambda a: prim.reduce_prod(a, (0,)), lambda a: prim.cumprod(a, 0)]
    for fn in [*rows, lambda a: prim.cumprod(a, 0, reverse=True)]:
        (want,) = gradients(fn, x)
        (got,) = gradients(lambda a, fn=fn: fn(prim.cast(a, BY_NAME["f16"])), x)
        inside = np.abs(want) < 65504
        assert inside.sum() >= 3
        np.testing.assert_allclose(got[inside], want[inside], rtol=2e-3)
    base, exponent = np.array([-0.9921875, 1.0078125]), np.array([414.0, 414.0])
    halves = [BY_NAME["bf16"]] * 2
    got = gradients(lambda a, b: prim.pow(*map(prim.cast, (a, b), halves)), base, exponent)
    np.testing.assert_allclose(got[0], exponent * base**413, rtol=5e-3)
    np.testing.assert_allclose(got[1][1], base[1] ** 414 * np.log(base[1]), rtol=5e-3)


def test_slopes_of_halves_where_f16_overflows_on_the_way():
    """1 + x**2, the reciprocal of a divisor and x less its remainder."""
    f16 = BY_NAME["f16"]

    def check(fn, arrays, want):
        got = gradients(lambda *xs: fn(*(prim.cast(x, f16) for x in xs)), *arrays)
        np.testing.assert_allclose(got[-1], want, rtol=3e-3)  # of the last, to subnormal numbers

    check(prim.atan, [np.array([-300.0, 2.0])], [1 / 90001, 1 / 5])
    tiny = 2.0**-17
    check(prim.div, [np.array([0.0, tiny / 4]), np.full(2, tiny)], [0.0, -1 / (4 * tiny)])
    check(prim.rem, [np.array([-65504.0, 7.0]), np.array([300.0, 3.0])], [219.0, -2.0])


@pytest.mark.parametrize("dtype, far", [("f4", 1e17), ("f8", 1e140)])
def test_second_slopes_of_normal_cdf_far_out_are_zero(dtype, far):
    """The digits that x**2 loses are many there, and were multiplied by 0 only at the end."""
    at = np.array([far, -far, 1.0], dtype)
    got = second(lambda x: x * prim.normal_cdf(x), at)
    np.testing.assert_allclose(got, [0, 0, np.exp(-0.5) / np.sqrt(2 * np.pi)], rtol=1e-6)


def test_scatter_drops_what_was_overwritten():
    idx = np.array([1, 1, 0])
    gx, gu = gradients(
        lambda x, i, u: prim.scatter(x, i, u, axis=0), np.ones(3), idx, np.array([5.0, 6.0, 7.0])
    )
    assert gx.tolist() == [0, 0, 1] and gu.tolist() == [0, 1, 1]


def test_select_takes_no_nan_from_the_other_side():
    def fn(a):
        positive = prim.less(prim.full_like(a, 0), a)
        return prim.select(positive, a * a, prim.neg(a))

    (g,) = gradients(fn, np.array([-1.0, 2.0]))
    assert g.tolist() == [-1, 4]


def test_cast_carries_gradients_between_floats_only():
    f32, i64 = BY_NAME["f32"], BY_NAME["i64"]
    (g,) = gradients(lambda a: prim.cast(a, f32), np.array([1.0, 2.0]))
    assert g.dtype == np.float64 and g.tolist() == [1, 1]
    (g,) = gradients(lambda a: prim.cast(prim.cast(a, i64), f32) * 2.0, np.array([1.0]))
    assert g.tolist() == [0]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("case", SMOOTH, ids=lambda c: c.id)
def test_cotangents_have_the_operands_type(case, dtype):
    d = BY_NAME[dtype]
    xs = [
        prim.input("x", TensorType(d if a.dtype.kind == "f" else BY_NAME[a.dtype.name], a.shape))
        for a in case.args
    ]
    attrs = {**case.attrs, **({"dtype": d} if case.op == "cast" else {})}
    (y,) = prim.many(case.op, *xs, **attrs)
    found = OPS[case.op].vjp(y, y, *xs, **attrs)
    assert len(found) == len(xs)
    for x, g in zip(xs, found, strict=True):
        if x.dtype.is_float:
            assert g.type is x.type
        else:
            assert g is None
