"""gx.nn against hand-written NumPy of the documented formulas, at extremes too."""

from __future__ import annotations

import math

import ml_dtypes
import mpmath
import numpy as np
import pytest
from nn_formulas import LOGITS, log_softmax, softplus

import graphc as gx

RNG = np.random.default_rng(3)
WIDE = np.array([-1e4, -200, -90, -20, -5, -1, -1e-3, 0, 1e-3, 1, 5, 20, 90, 200, 1e4], "f8")


def sigmoid(a):
    return np.exp(np.where(a > 0, 0, a)) / (1 + np.exp(-np.abs(a)))


def erf(a):
    return np.array([math.erf(v) for v in np.ravel(a)]).reshape(np.shape(a))


ACTIVATIONS = [
    ("relu", {}, lambda a: np.maximum(a, 0)),
    ("leaky_relu", {}, lambda a: np.where(a > 0, a, 0.01 * a)),
    ("leaky_relu", {"negative_slope": 0.2}, lambda a: np.where(a > 0, a, 0.2 * a)),
    ("elu", {}, lambda a: np.where(a > 0, a, np.expm1(np.minimum(a, 0)))),
    ("elu", {"alpha": 2.0}, lambda a: np.where(a > 0, a, 2 * np.expm1(np.minimum(a, 0)))),
    ("sigmoid", {}, sigmoid),
    ("silu", {}, lambda a: a * sigmoid(a)),
    ("softplus", {}, softplus),
    ("softplus", {"beta": 2.0}, lambda a: softplus(2 * a) / 2),
    ("log_sigmoid", {}, lambda a: -softplus(-a)),
    ("softsign", {}, lambda a: a / (1 + np.abs(a))),
    ("tanh", {}, np.tanh),
    ("gelu", {}, lambda a: 0.5 * a * (1 + erf(a / math.sqrt(2)))),
    ("gelu", {"approximate": "tanh"},
     lambda a: 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name,options,formula", ACTIVATIONS)
def test_activations(run, name, options, formula, dtype):
    x = gx.input("x", ("n",), dtype)
    y = getattr(gx.nn, name)(x, **options)
    assert y.dtype.long == dtype
    a = WIDE.astype(dtype).astype("f8")
    got, slope = run([y, gx.grad(gx.sum(y), x)], x=a)
    tight = 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(got, formula(a), rtol=tight, atol=tight)
    assert np.isfinite(slope).all()
    h = 1e-6
    inner = np.abs(a) < 50
    inner &= a != 0
    numeric = (formula(a + h) - formula(a - h)) / (2 * h)
    np.testing.assert_allclose(slope[inner], numeric[inner], rtol=2e-5, atol=1e-6)
    assert np.isnan(run(y, x=[np.nan])).all()


@pytest.mark.parametrize("beta", [1.0, 2.0, 1e3, -1.5])
def test_softplus_does_not_overflow(run, beta):
    x = gx.input("x", ("n",))
    y = gx.nn.softplus(x, beta)
    a = np.sign(beta) * np.array([3e38, np.inf, -3e38, -np.inf], "f4")
    got, slope = run([y, gx.grad(gx.sum(y), x)], x=a)
    np.testing.assert_array_equal(got, [a[0], a[1], 0, 0])
    np.testing.assert_array_equal(slope, [1, 1, 0, 0])


@pytest.mark.parametrize("mode", ["interpret", "jit"])
@pytest.mark.parametrize("dtype,bound", [("float32", 6e-6), ("float64", 1e-13)])
def test_gelu_keeps_relative_accuracy(dtype, bound, mode):
    x = gx.input("x", ("n",), dtype)
    a = np.linspace(-12.5 if dtype == "float32" else -36, 8, 801).astype(dtype)
    with mpmath.workdps(40):
        v = [mpmath.mpf(float(u)) for u in a]
        exact = [float(u * mpmath.ncdf(u)) for u in v]
        slope = [float(mpmath.ncdf(u) + u * mpmath.npdf(u)) for u in v]
    y = gx.nn.gelu(x)
    got, dy = gx.function([x], [y, gx.grad(gx.sum(y), x)], mode=mode)(a)
    np.testing.assert_allclose(got, exact, rtol=bound)
    np.testing.assert_allclose(dy, slope, rtol=20 * bound, atol=bound / 10)
    ends = np.array([-np.inf, -1e30, 1e30, np.inf], dtype)
    got, dy = gx.function([x], [y, gx.grad(gx.sum(y), x)], mode=mode)(ends)
    np.testing.assert_array_equal(got, [0, 0, ends[2], np.inf])
    np.testing.assert_array_equal(dy[:3], [0, 0, 1])


def test_sigmoid_keeps_relative_accuracy(run):
    x = gx.input("x", ("n",))
    a = np.linspace(-87, 87, 200).astype("f4")
    exact = [float(1 / (1 + mpmath.exp(-mpmath.mpf(float(v))))) for v in a]
    np.testing.assert_allclose(run(gx.nn.sigmoid(x), x=a), exact, rtol=4e-7)


@pytest.mark.parametrize("name,at_zero", [
    ("relu", 0.0), ("leaky_relu", 0.01), ("elu", 1.0), ("sigmoid", 0.25), ("softplus", 0.5),
    ("silu", 0.5), ("gelu", 0.5),
])
def test_derivatives_at_zero(run, name, at_zero):
    x = gx.input("x")
    y = getattr(gx.nn, name)(x)
    np.testing.assert_allclose(run([gx.grad(y, x), y], x=0.0)[0], at_zero, rtol=1e-6)


@pytest.mark.parametrize("name,second", [("softplus", 0.25), ("sigmoid", 0.0), ("silu", 0.5)])
def test_second_derivatives_at_zero(run, name, second):
    x = gx.input("x")
    y = gx.grad(gx.grad(getattr(gx.nn, name)(x), x), x)
    np.testing.assert_allclose(run([y, x * 1], x=0.0)[0], second, atol=1e-7)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(run, axis):
    x = gx.input("x", ("n", 4), "float64")
    want = log_softmax(LOGITS, axis)
    np.testing.assert_allclose(run(gx.nn.log_softmax(x, axis=axis), x=LOGITS), want, rtol=1e-12)
    np.testing.assert_allclose(run(gx.nn.softmax(x, axis=axis), x=LOGITS), np.exp(want), rtol=1e-12)


def test_composites_are_calls():
    x = gx.input("x", ("n", 4))
    for t, name in [(gx.nn.softmax(x), "softmax"), (gx.nn.log_softmax(x), "log_softmax"),
                    (gx.nn.gelu(x), "gelu"), (gx.nn.layer_norm(x), "layer_norm")]:
        assert t.node.op.name == "call" and t.node.attrs["name"] == name


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_outside_are_errors(run, label):
    x, y = gx.input("x", ("n", 4)), gx.input("y", ("n",), "int64")
    with pytest.raises(gx.errors.IndexOutOfRangeError):
        run(gx.nn.cross_entropy(x, y), x=LOGITS[:1], y=[label])
    with pytest.raises(gx.errors.IndexOutOfRangeError):
        run(gx.nn.embedding(y, np.ones((4, 2), "f4")), y=[label])


@pytest.mark.parametrize("mode", ["jit", "interpret", "debug"])
def test_each_call_of_a_composite_has_its_line(mode):
    x, y = gx.input("x", ("n", 4)), gx.input("y", ("n",), "int64")
    z = gx.input("z", ("n",), "int64")
    first = gx.nn.cross_entropy(x, y)
    second = gx.nn.cross_entropy(x, z)
    line = first.node.loc.line
    fn = gx.function([x, y, z], [first, second], mode=mode)
    for labels, expected in (([7], [0]), line), (([0], [7]), line + 1):
        with pytest.raises(gx.errors.IndexOutOfRangeError) as exc:
            fn(np.ones((1, 4), "f4"), *map(np.array, labels))
        assert exc.value.loc.line == expected


def test_layers(run):
    a = RNG.normal(size=(3, 4)).astype("f4")
    w, b = RNG.normal(size=(2, 4)).astype("f4"), RNG.normal(size=2).astype("f4")
    x = gx.input("x", ("n", 4))
    np.testing.assert_allclose(run(gx.nn.linear(x, w, b), x=a), a @ w.T + b, rtol=1e-5)
    g, c = RNG.normal(size=4).astype("f4"), RNG.normal(size=4).astype("f4")
    centred = a - a.mean(-1, keepdims=True)
    want = centred / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run(gx.nn.layer_norm(x), x=a), want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run(gx.nn.layer_norm(x, g, c), x=a), want * g + c, rtol=1e-4,
                               atol=1e-6)
    want = a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6) * g
    np.testing.assert_allclose(run(gx.nn.rms_norm(x, g, eps=1e-6), x=a), want, rtol=1e-5)
    table = RNG.normal(size=(5, 3)).astype("f4")
    i = gx.input("i", ("n", 2), "int32")
    got = run(gx.nn.embedding(i, table), i=[[0, 4], [1, 1]])
    np.testing.assert_array_equal(got, table[[[0, 4], [1, 1]]])


def test_dropout(run):
    x = gx.input("x", ("n",))
    key = gx.random.key(1)
    y = gx.nn.dropout(x, key, p=0.25)
    a = np.full(20_000, 3.0, "f4")
    got = run(y, x=a)
    assert set(np.unique(got)) == {0.0, 4.0}
    assert abs((got == 0).mean() - 0.25) < 0.015
    np.testing.assert_array_equal(got, run(y, x=a))
    assert gx.nn.dropout(x, key, training=False) is x
    slope = run([gx.grad(gx.sum(y), x), y], x=a)[0]
    np.testing.assert_array_equal(slope, got / 3)


def attention(q, k, v, mask=0.0, scale=None):
    """In f64, where mask is added."""
    q, k, v = (a.astype("f8") for a in (q, k, v))
    s = np.einsum("...le,...se->...ls", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s + mask
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


@pytest.mark.parametrize("named", [False, True])
def test_attention(run, named):
    a = [RNG.normal(size=s).astype("f4") for s in ((2, 3, 5, 8), (2, 3, 6, 8), (2, 1, 6, 4))]
    sizes = ("b", 3, "l", "e"), ("b", 3, "s", "e"), ("b", 1, "s", 4)
    q, k, v = (gx.input(n, sizes[i] if named else a[i].shape) for i, n in enumerate("qkv"))
    given = dict(zip("qkv", a, strict=True))
    seen = RNG.random((5, 6)) < 0.6
    seen[:, 0] = True
    extra = RNG.normal(size=(3, 1, 6)).astype("f4")
    hidden = np.where(seen, 0, -np.inf)
    after = np.where(np.tril(np.ones((5, 6))) == 1, 0, -np.inf)
    mask = gx.input("seen", ("l", "s") if named else (5, 6), "bool")
    for got, want, more in (
        ({}, attention(*a), {}),
        ({"is_causal": True}, attention(*a, after), {}),
        ({"attn_mask": mask, "is_causal": True}, attention(*a, hidden + after), {"seen": seen}),
        ({"attn_mask": extra[..., :1], "scale": 0.3}, attention(*a, extra[..., :1], 0.3), {}),
    ):
        y = gx.nn.scaled_dot_product_attention(q, k, v, **got)
        assert y.shape == (*q.shape[:3], 4)
        np.testing.assert_allclose(run(y, **given, **more), want, rtol=2e-5, atol=2e-6)


def test_attention_keeps_no_scores():
    q = gx.input("q", (2, 1024, 32))
    for causal in (False, True):
        y = gx.nn.scaled_dot_product_attention(q, q, q, is_causal=causal)
        plan = str(gx.function([q], y).memory_plan())
        assert int(plan.split("arena: ")[1].split()[0]) < 4 * 2 * 1024 * 1024


def test_halves(run):
    x = gx.input("x", ("n", 4), "float16")
    a = (RNG.normal(size=(3, 4)) * 5).astype("f2")
    for name in ("softmax", "log_softmax", "layer_norm", "gelu"):
        y = getattr(gx.nn, name)(x)
        assert y.dtype is gx.float16
        wide = getattr(gx.nn, name)(x.astype("float32"))
        np.testing.assert_array_equal(run(y, x=a), run(wide, x=a).astype("f2"))


def test_softplus_of_halves_scales_in_f32(run):
    """exp turns what 3 * x is rounded by into a tenth of the result."""
    x = gx.input("x", (2,), "bfloat16")
    at = np.array([-25.75, -3.015625]).astype(ml_dtypes.bfloat16)
    y = gx.nn.softplus(x, 3.0)
    assert y.dtype is gx.bfloat16
    want = np.log1p(np.exp(3 * at.astype("f8"))) / 3
    np.testing.assert_allclose(run(y, x=at).astype("f8"), want, rtol=2.0**-8)


def test_refusals(refuses):
    x, y = gx.input("x", ("n", 4)), gx.input("y", ("n",))
    with refuses("cross_entropy: labels must be integers", "logits f32[n,4] and labels f32[n]"):
        gx.nn.cross_entropy(x, y)
    with refuses("cross_entropy: reduction must be 'mean', 'sum' or 'none', got 'avg'"):
        gx.nn.cross_entropy(x, x, reduction="avg")
    with refuses("cross_entropy: label_smoothing must be in [0, 1], got 2"):
        gx.nn.cross_entropy(x, x, label_smoothing=2)
    with refuses("cross_entropy: axis 2 is out of range for f32[n,4]"):
        gx.nn.cross_entropy(x, x, axis=2)
    with refuses("mse_loss: prediction and target must have one shape, got f32[n,4] and f32[n]"):
        gx.nn.mse_loss(x, y)
    with refuses("gelu: approximate must be 'none' or 'tanh'"):
        gx.nn.gelu(x, approximate="erf")
    with refuses("dropout: p must be in [0, 1], got 1.5"):
        gx.nn.dropout(x, gx.random.key(0), p=1.5)
    with refuses("dropout: p must be in [0, 1], got <Tensor"):
        gx.nn.dropout(gx.input("x", (3,)), 0.5, gx.random.key(3))  # key and p changed about
    with refuses("dropout: training must be True or False, got bool[]; declare one function that"):
        gx.nn.dropout(x, gx.random.key(0), training=gx.input("training", (), "bool"))
    with refuses("a key is u32[2] made by gx.random.key, got i64[]"):
        gx.nn.dropout(x, 0)
    with refuses("layer_norm: weight must have the sizes of the normalised axes [4], got f32[n]"):
        gx.nn.layer_norm(x, y)
    with refuses("layer_norm: axis must name the last axes"):
        gx.nn.layer_norm(x, axis=0)
    with refuses("scaled_dot_product_attention: query, key and value take at least 2 axes, got"):
        gx.nn.scaled_dot_product_attention(x, x, y)
    with refuses("linear: the weight must be (out, in), got f32[n]"):
        gx.nn.linear(x, y)
    with refuses("embedding: takes integer indices, got f32[n]"):
        gx.nn.embedding(y, x)
    with refuses("matmul: inner dimensions must match, got f32[n,4] @ f32[3,2]"):
        gx.nn.linear(x, np.ones((2, 3), "f4"))
