"""The surface compiled: native code against the interpreter, and gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(0)
A = RNG.normal(size=(5, 4)).astype("f4")
LABELS = np.array([0, 1, 2, 3, 1])
SQUARE = RNG.normal(size=(4, 4)).astype("f4")
KEY = gx.random.key(1)

UNARY = [
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "log",
    "log2", "log10", "log1p", "exp", "exp2", "expm1", "cbrt", "square", "sqrt", "rsqrt",
    "reciprocal", "trunc", "floor", "ceil", "round", "sign", "abs", "negative", "isnan",
    "isinf", "isfinite", "signbit", "nan_to_num", "erf", "lgamma", "digamma", "sin", "cos",
    "sinc", "logical_not",
]
NN = [
    "relu", "leaky_relu", "elu", "sigmoid", "silu", "softplus", "log_sigmoid", "softsign",
    "gelu", "softmax", "log_softmax", "layer_norm", "rms_norm",
]
REDUCE = [
    "sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin",
    "count_nonzero", "logsumexp",
]
RUNNING = ["cumulative_sum", "cumulative_prod", "cumulative_max", "diff", "flip"]


def cases(x, y, s):
    """Declared Tensors by name."""
    out = {name: getattr(gx, name)(x) for name in UNARY}
    for name in NN:
        t = getattr(gx.nn, name)(x)
        out[name] = t
        out[f"gradient of {name}"] = gx.grad(gx.sum(gx.sin(t)), x)
    for axis in (None, 0, 1):
        out |= {f"{name} over {axis}": getattr(gx, name)(x, axis=axis) for name in REDUCE}
    for axis in (0, 1):
        out |= {f"{name} along {axis}": getattr(gx, name)(x, axis=axis) for name in RUNNING}
    loss = gx.nn.cross_entropy(x, y)
    n = x.shape[0]
    return out | {
        "cross_entropy": loss,
        "gradient of cross_entropy": gx.grad(loss, x),
        "smoothed": gx.nn.cross_entropy(x, y, label_smoothing=0.1, reduction="none"),
        "second gradient": gx.grad(gx.sum(gx.grad(gx.sum(gx.nn.gelu(x)), x) ** 2), x),
        "uniform": x + gx.random.uniform(KEY, x.shape),
        "uniform64": x + gx.random.uniform(KEY, x.shape, "float64"),
        "normal": x + gx.random.normal(KEY, x.shape),
        "normal64": x + gx.random.normal(KEY, x.shape, "float64"),
        "dropout": gx.nn.dropout(x, KEY),
        "randint": gx.random.randint(KEY, (7,), 0, 10),
        "fold_in": gx.random.fold_in(KEY, y[0]),
        "floor_divide": x // 0.3,
        "remainder": x % 0.3,
        "fmod": gx.fmod(x, -0.3),
        "integers": (y - 2) // 2 + (y - 2) % 2 + gx.fmod(y - 2, 2),
        "hypot": gx.hypot(x, 2.0),
        "logaddexp": gx.logaddexp(x, 1 - x),
        "nextafter": gx.nextafter(x, 0.0),
        "where": gx.where(x > 0, x, -1),
        "differences": x[1:] - x[:-1],
        "backwards": x[::-1, ::-2],
        "at add": x.at[1:, 0].add(3),
        "at set": x.at[::2].set(0),
        "at index": x.at[y].add(1.0),
        "index": x[y],
        "last": x[-1],
        "roll": gx.roll(x, (1, -1), axis=(0, 1)),
        "tile": gx.tile(x, (2, 3)),
        "repeat": gx.repeat(x, 2, axis=0),
        "pad": gx.pad(x, 1),
        "tril": gx.tril(x),
        "one_hot": gx.one_hot(y, 5),
        "stack": gx.stack([x, -x], axis=1),
        "take_along_axis": gx.take_along_axis(x, gx.argmax(x, axis=1, keepdims=True), 1),
        "einsum": gx.einsum("ni,ij,mj->nm", x, s, x),
        "matmul": x @ s.T @ s,
        "batched": gx.matmul(s, x[:, :, None]),
        "matrix_power": gx.linalg.matrix_power(s, 3),
        "norms": gx.linalg.vector_norm(x, axis=1) + gx.linalg.vector_norm(x, ord=3, axis=1),
        "trace": gx.trace(s),
        "linspace": gx.linspace(0, 1, n) + x[:, 0],
        "arange": gx.arange(n) * x[:, 1],
        "size": gx.sum(x, axis=1) / n,
    }


X, Y, S = gx.input("x", ("n", 4)), gx.input("y", ("n",), "int64"), gx.input("s", (4, 4))
CASES = cases(X, Y, S)


@pytest.mark.parametrize("name", CASES)
def test_native_equals_interpreter(name):
    with np.errstate(all="ignore"):
        want = gx.function([X, Y, S], CASES[name], mode="interpret")(A, LABELS, SQUARE)
    fn = gx.function([X, Y, S], CASES[name])
    got = fn(A, LABELS, SQUARE)
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)
    assert fn.compilations == 1


SMOOTH = [
    "tan", "sinh", "cosh", "tanh", "asinh", "exp2", "expm1", "square", "erf", "sin", "cos", "sinc",
]


def _check(fn, *shapes):
    gx.testing.check_grad(fn, [RNG.normal(size=s) for s in shapes], order=2, atol=1e-5)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_functions(name):
    _check(lambda x: gx.sum(getattr(gx, name)(x)), (3, 4))


@pytest.mark.parametrize("name", [n for n in NN if n != "relu"])
def test_gradients_of_nn(name):
    _check(lambda x: gx.sum(getattr(gx.nn, name)(x) * gx.constant(A[:3].astype("f8"))), (3, 4))


def test_gradients_of_the_rest():
    _check(lambda x: gx.sum(x[1:, ::-2] ** 2), (3, 4))
    _check(lambda x: gx.sum(gx.var(x, axis=0) * gx.std(x)), (3, 4))
    _check(lambda x: gx.logsumexp(x), (3, 4))
    _check(lambda x, y: gx.sum(gx.einsum("ij,kj->ik", x, y) ** 2), (3, 4), (2, 4))
    _check(lambda x, y: gx.sum(gx.sin(gx.matmul(x, y))), (2, 3, 4), (2, 4, 5))
    _check(lambda x: gx.sum(gx.cumulative_prod(x, axis=1)), (3, 4))
    _check(lambda x, y: gx.sum(gx.hypot(x, y) + gx.logaddexp(x, y) + gx.atan2(x, y)), (5,), (5,))
    _check(lambda x, y: gx.sum(gx.concat([x, y], axis=0) ** 3), (2, 3), (1, 3))
    _check(lambda x: gx.sum(gx.roll(gx.tile(x, 2), 1) * gx.repeat(x, 2)), (4,))
    _check(lambda x: gx.sum(x.at[1:3].multiply(2.0) ** 2), (5,))
    _check(lambda x: gx.nn.cross_entropy(x, gx.constant([1, 0, 3])), (3, 4))
    _check(lambda x: gx.linalg.vector_norm(x, ord=3) + gx.linalg.matrix_norm(x), (3, 4))


def test_large_constants_are_told_apart_by_their_last_bit():
    x, plus = gx.input("x", (2000,)), np.arange(2000, dtype=np.float32)[::-1]
    minus = plus.copy()
    minus[-1] = -0.0
    f = gx.function([x], [x / gx.constant(c) for c in (plus, minus, minus.copy())])
    a, b, c = (y[-1] for y in f(np.ones(2000, np.float32)))
    assert a == np.inf and b == c == -np.inf
    assert len([n for n in f.optimized.nodes if n.op.name == "constant"]) == 2


@pytest.mark.parametrize("n", [3, "n"])
@pytest.mark.parametrize("dtype, bits", [
    ("float16", 0xFE01), ("float32", 0xFFC12345), ("float64", 0xFFF8000000000123),
])
def test_constants_keep_the_sign_and_payload_of_a_nan(dtype, bits, n):
    """gx.signbit tells them apart, as np.signbit."""
    nan = np.full((), bits, f"u{np.dtype(dtype).itemsize}").view(dtype)
    m = gx.input("m", (n,), "bool")
    y = gx.where(m, gx.constant(nan), 1.0)
    got, negative = gx.function([m], [y, gx.signbit(y)])(np.array([True, False, True]))
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}")[::2], bits)
    np.testing.assert_array_equal(negative, [True, False, True])
