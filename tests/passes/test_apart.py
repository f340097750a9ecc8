"""What row after row gathers is put side by side once."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(4)


def barriers(f):
    return sum(n.op.name == "barrier" for n in f.optimized.nodes)


TABLES = {  # (shapes, expression, whether something is put side by side)
    "column": (((200, 9), (80, 200)), lambda xp, t, a: a * t[:, 4], True),
    "pairs": (((200, 5), (1,)), lambda xp, t, a: t[:, 1][:, None] - t[:, 1][None, :] + a, True),
    "diagonal": (((200, 200), (80, 200)), lambda xp, t, a: a + xp.diagonal(t), True),
    "computed": (((200, 9), (80, 200)), lambda xp, t, a: a * (2 * t[:, 4] + t[:, 5]), True),
    "transposed": (((200, 9), (80, 9, 200)), lambda xp, t, a: a * t.T, False),
    "picked": (((200, 9), (80, 200)), lambda xp, t, a: a * t[:, 4][xp.arange(200) // 2], True),
    "near": (((200, 4), (80, 200)), lambda xp, t, a: a * t[:, 3], False),
    "rows": (((9, 200), (80, 200)), lambda xp, t, a: a * t[4], False),
    "backwards": (((9, 200), (80, 200)), lambda xp, t, a: a * t[4, ::-1], False),
    "down": (((80, 9), (80, 200)), lambda xp, t, a: a * t[:, 4][:, None], False),
    "few": (((200, 9), (4, 200)), lambda xp, t, a: a * t[:, 4], False),
    "small": (((16, 9), (16, 16)), lambda xp, t, a: a * t[:, 4], False),
    "points": (((200, 3, 3), (200, 3)), lambda xp, t, a: xp.sum(t * a[:, None, :], axis=2), False),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("named", [False, True])
def test_what_lies_apart_and_is_wanted_again(name, named):
    shapes, expression, copied = TABLES[name]
    arrays = [RNG.normal(size=s) for s in shapes]
    names = {200: "n", 80: "m", 4: 4} if named else {}
    if named and name in ("few", "diagonal", "picked"):
        names = {80: "m"}
    inputs = [
        gx.input(f"x{k}", tuple(names.get(d, d) for d in s), "float64")
        for k, s in enumerate(shapes)
    ]
    f = gx.function(inputs, expression(gx, *inputs))
    assert (barriers(f) > 0) == copied
    np.testing.assert_allclose(f(*arrays), expression(np, *arrays), rtol=1e-13, atol=1e-14)


def test_one_array_for_all_that_want_it():
    t, a = gx.input("t", (200, 9)), gx.input("a", (80, 200))
    f = gx.function([t, a], [gx.exp(a) * t[:, 4], gx.sum(a + t[:, 4], axis=0)])
    assert barriers(f) == 1
    x, y = RNG.normal(size=(200, 9)).astype("f4"), RNG.normal(size=(80, 200)).astype("f4")
    got = f(x, y)
    np.testing.assert_allclose(got[0], np.exp(y) * x[:, 4], rtol=1e-5)
    np.testing.assert_allclose(got[1], (y + x[:, 4]).sum(0), rtol=1e-4, atol=1e-4)


def test_gradients_through_it():
    t = gx.input("t", (100, 5), "float64")
    x = t[:, 2]
    loss = gx.sum(gx.exp(-((x[:, None] - x[None, :]) ** 2)))
    f = gx.function([t], [loss, gx.grad(loss, t)])
    a = RNG.normal(size=(100, 5))
    d = a[:, 2][:, None] - a[:, 2][None, :]
    want = np.zeros_like(a)
    want[:, 2] = -4 * (d * np.exp(-d * d)).sum(1)
    np.testing.assert_allclose(f(a)[1], want, rtol=1e-10, atol=1e-12)
