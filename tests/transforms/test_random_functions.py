"""Random smooth functions: every transform agrees with differences, loops, and each other."""

import numpy as np
import pytest

import graphc as gx
from graphc import prim
from graphc.testing import check_grad

UNARY = [
    gx.sin, gx.cos, gx.tanh, gx.exp, gx.atan, prim.erf, gx.expm1,
    lambda v: gx.log(1 + v * v), lambda v: gx.sqrt(1 + v * v), lambda v: 1 / (1 + gx.exp(v)),
    lambda v: v[::-1], lambda v: gx.cumsum(v, axis=-1), lambda v: gx.where(v > 0, v * v, -v),
    lambda v: gx.take(v, np.array([2, 0, 2, 1]), axis=-1)[..., :3], lambda v: v**3,
    lambda v: prim.reverse(v, (0,)), lambda v: gx.max(v, keepdims=True) + v, lambda v: gx.abs(v),
    lambda v: v / gx.sum(gx.exp(v)), lambda v: gx.prod(v) * v, lambda v: gx.roll(v, 1),
    lambda v: gx.matmul(v, np.arange(9.0).reshape(3, 3) / 9),
    lambda v: v.at[1].set(gx.sum(v)), lambda v: gx.concat([v[1:], v[:1]]),
]
BINARY = [
    gx.add, gx.subtract, gx.multiply, gx.maximum, gx.atan2,
    lambda a, b: a / (2 + b * b), lambda a, b: gx.sum(a * b) * a,
    lambda a, b: gx.matmul(a[:, None], b[None, :])[1], lambda a, b: a * gx.sum(b),
]


def random_function(seed):
    """f(x, w) on vectors of length 3, the same for one seed, of about twelve operations."""

    def f(x, w):
        rng = np.random.default_rng(seed)
        made = [x, w]
        for _ in range(12):
            if rng.random() < 0.5:
                op = UNARY[rng.integers(len(UNARY))]
                v = op(made[rng.integers(len(made))])
            else:
                op = BINARY[rng.integers(len(BINARY))]
                v = op(*[made[rng.integers(len(made))] for _ in range(2)])
            made.append(gx.tanh(v / 4) + 0.3 * w)  # bounded, and never twice the same kink
        return made[-1] + made[-2] * x

    return f


def sample(seed):
    rng = np.random.default_rng(1000 + seed)
    return rng.normal(size=3), rng.normal(size=3)


SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_agree_with_differences(seed):
    check_grad(random_function(seed), sample(seed), order=2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_composites_and_checkpoints_change_nothing(seed, run):
    f = random_function(seed)
    x, w = gx.input("x", (3,), "float64"), gx.input("w", (3,), "float64")
    feeds = dict(zip((x, w), sample(seed), strict=True))
    grads = [
        gx.grad(gx.sum(g(x, w) ** 2), [x, w], unconnected="zero")
        for g in (f, gx.composite(f), gx.checkpoint(f), gx.composite(gx.checkpoint(f)))
    ]
    expected, *others = run(grads, feeds)
    for got in others:
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_vmap_equals_a_loop(seed, run):
    f = random_function(seed)

    def value_and_gradient(x, w):
        y = gx.composite(f)(x, w)
        return y, gx.grad(gx.sum(y), x, unconnected="zero")

    xs, w = gx.input("xs", ("n", 3), "float64"), gx.input("w", (3,), "float64")
    rows, wv = np.stack([sample(seed + k)[0] for k in range(3)]), sample(seed)[1]
    got = run(list(gx.vmap(value_and_gradient, in_axes=(0, None))(xs, w)), {xs: rows, w: wv})
    x = gx.input("x", (3,), "float64")
    single = list(value_and_gradient(x, w))
    for i, row in enumerate(rows):
        for a, b in zip(got, run(single, {x: row, w: wv}), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_jacobian_rows_are_vjps_and_columns_are_jvps(seed, run):
    f = random_function(seed)
    x, w = gx.input("x", (3,), "float64"), gx.input("w", (3,), "float64")
    feeds = dict(zip((x, w), sample(seed), strict=True))
    y = f(x, w)
    unit = np.eye(3)
    j, rows, columns = run(
        [
            gx.jacobian(y, w, unconnected="zero"),
            [gx.vjp(y, w, u, unconnected="zero") for u in unit],
            [gx.jvp(y, w, u) for u in unit],
        ],
        feeds,
    )
    np.testing.assert_allclose(j, rows, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(j.T, columns, rtol=1e-12, atol=1e-14)
