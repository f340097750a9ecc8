"""gx.nn's losses against hand-written NumPy of the documented formulas, at extremes too."""

from __future__ import annotations

import numpy as np
import pytest
from nn_formulas import LOGITS, log_softmax, softplus

import graphc as gx

RNG = np.random.default_rng(3)
LABELS = np.array([0, 3, 1, 1, 2, 1, 0])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(run, reduction, smoothing):
    finish = {"mean": np.mean, "sum": np.sum, "none": lambda v: v}[reduction]
    x, y = gx.input("x", ("n", 4), "float64"), gx.input("y", ("n",), "int64")
    options = {"reduction": reduction, "label_smoothing": smoothing}
    p = np.eye(4)[LABELS] * (1 - smoothing) + smoothing / 4
    want = finish(-(p * log_softmax(LOGITS)).sum(-1))
    got = run(gx.nn.cross_entropy(x, y, **options), x=LOGITS, y=LABELS)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    q = gx.input("q", ("n", 4), "float64")
    probabilities = RNG.dirichlet(np.ones(4), size=7)
    p = probabilities * (1 - smoothing) + smoothing / 4
    want = finish(-(p * log_softmax(LOGITS)).sum(-1))
    got = run(gx.nn.cross_entropy(x, q, **options), x=LOGITS, q=probabilities)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_cross_entropy_of_no_classes_is_refused_by_its_name():
    x, y = gx.input("x", ("n", 0)), gx.input("y", ("n",), "int64")
    with pytest.raises(gx.errors.ShapeError, match=r"^cross_entropy: an axis must not be empty"):
        gx.nn.cross_entropy(x, y)


def test_cross_entropy_gradient_is_softmax_minus_onehot(run):
    x, y = gx.input("x", ("n", 4), "float64"), gx.input("y", ("n",), "uint8")
    loss = gx.nn.cross_entropy(x, y, reduction="sum")
    want = np.exp(log_softmax(LOGITS)) - np.eye(4)[LABELS]
    got = run([gx.grad(loss, x), loss], x=LOGITS, y=LABELS)[0]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-14)


def test_cross_entropy_on_another_axis(run):
    a = RNG.normal(size=(2, 4, 3))
    labels = RNG.integers(0, 4, size=(2, 3))
    x, y = gx.input("x", ("n", 4, 3), "float64"), gx.input("y", ("n", 3), "int64")
    want = -np.take_along_axis(log_softmax(a, 1), labels[:, None], 1).mean()
    got = run(gx.nn.cross_entropy(x, y, axis=1), x=a, y=labels)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    x = gx.input("x", (4,), "float64")
    got = run(gx.nn.cross_entropy(x, gx.constant(2)), x=a[0, :, 0])
    np.testing.assert_allclose(got, -log_softmax(a[0, :, 0])[2], rtol=1e-12)


def test_losses(run):
    a, b = RNG.normal(size=(3, 4)) * 4, (RNG.random(size=(3, 4)) > 0.5).astype("f8")
    x, y = gx.input("x", ("n", 4), "float64"), gx.input("y", ("n", 4), "float64")
    d = a - b
    bce = softplus(a) - a * b
    weighted = 3 * b * softplus(-a) + (1 - b) * softplus(a)
    huber = np.where(np.abs(d) <= 1.5, d * d / 2, 1.5 * (np.abs(d) - 0.75))
    nn = gx.nn
    for t, want in [
        (nn.mse_loss(x, y), np.mean(d * d)), (nn.mse(x, y, reduction="sum"), np.sum(d * d)),
        (nn.l1_loss(x, y), np.mean(np.abs(d))), (nn.huber(x, y, delta=1.5), huber.mean()),
        (nn.huber_loss(x, y, delta=1.5, reduction="none"), huber),
        (nn.binary_cross_entropy_with_logits(x, y), bce.mean()),
        (nn.binary_cross_entropy_with_logits(x, y, pos_weight=3.0), weighted.mean()),
    ]:
        np.testing.assert_allclose(run(t, x=a, y=b), want, rtol=1e-12)
    labels = gx.input("labels", ("n",), "int64")
    lp = log_softmax(a)
    got = run(nn.nll_loss(nn.log_softmax(x), labels), x=a, labels=[1, 0, 3])
    np.testing.assert_allclose(got, -np.mean(lp[np.arange(3), [1, 0, 3]]), rtol=1e-12)


def test_bce_is_finite_at_extremes(run):
    x = gx.input("x", (4,))
    t = np.array([0, 1, 0, 1], "f4")
    loss = gx.nn.binary_cross_entropy_with_logits(x, t, reduction="none")
    got, slope = run([loss, gx.grad(gx.sum(loss), x)], x=[1e4, 1e4, -1e4, -1e4])
    np.testing.assert_allclose(got, [1e4, 0, 0, 1e4])
    np.testing.assert_allclose(slope, [1, 0, 0, -1])


def test_bce_of_confident_hits_keeps_its_digits(run):
    a = np.array([-30, -9, -1, 0, 1, 9, 30], "f4")
    x, t = gx.input("x", (7,)), gx.input("t", (7,))
    loss = gx.nn.binary_cross_entropy_with_logits(x, t, reduction="none")
    slopes = gx.grad(gx.sum(loss), [x, t])
    for target in (0.0, 1.0):
        got, slope, by_target = run([loss, *slopes], x=a, t=np.full(7, target, "f4"))
        miss = a.astype("f8") * (1 - 2 * target)
        np.testing.assert_allclose(got, np.logaddexp(0, miss), rtol=1e-6)
        np.testing.assert_allclose(slope, (1 - 2 * target) / (1 + np.exp(-miss)), rtol=1e-6)
        np.testing.assert_array_equal(by_target, -a)


@pytest.mark.parametrize("name, targets", [
    ("mse_loss", [-100, 5e4, 1]), ("l1_loss", [-100, -5e4, 1]), ("huber_loss", [-100, -5e4, 1]),
    ("binary_cross_entropy_with_logits", [0, 0.3, 1]),
])
def test_losses_of_halves(run, name, targets):
    """Rounded once: differences, squares and terms that f16 does not hold have a mean that it does.
    """
    x, y = (gx.input(n, ("n",), "float16") for n in "xy")
    at = {"x": np.array([300, 5e4, -3, *[0.1] * 200], "f2"),
          "y": np.array([*targets, *[0.3] * 200], "f2")}
    wide = {k: v.astype("f4") for k, v in at.items()}
    u, v = (gx.input(n, ("n",)) for n in "xy")
    loss, exact = getattr(gx.nn, name)(x, y), getattr(gx.nn, name)(u, v)
    assert loss.dtype is gx.float16
    np.testing.assert_array_equal(run(loss, **at), run(exact, **wide).astype("f2"))
    np.testing.assert_array_equal(
        run(gx.grad(loss, x), **at), run(gx.grad(exact, u), **wide).astype("f2"))


def test_huber_of_infinite_differences(run):
    x, y = gx.input("x", (2,)), gx.input("y", (2,))
    top = np.float32(3e38)
    slope = gx.grad(gx.nn.huber_loss(x, y, delta=0.5, reduction="sum"), x)
    got = run(slope, x=np.array([top, -top]), y=np.array([-top, top]))
    np.testing.assert_array_equal(got, [0.5, -0.5])
