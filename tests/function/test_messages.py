"""What calls and refusals say, in native code and in the interpreter."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

import graphc as gx
from graphc.errors import (
    ArgumentError,
    CompileError,
    DTypeError,
    GradientError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    ShapeError,
    UsageError,
)

MODES = pytest.mark.parametrize("mode", ["jit", "interpret"])


def zeros(*shape):
    return np.zeros(shape, "f4")


@MODES
def test_sizes_of_a_call(mode):
    x, z = gx.input("x", ("q",)), gx.input("z", ("p",))
    f = gx.function([x, z], gx.assert_dim(x, 0, "p"), mode=mode)
    with pytest.raises(ShapeError) as e:
        f(zeros(4), zeros(3))
    assert "assert_dim: axis 0 of f32[q] must be p, got q where " in str(e.value)
    assert "q = 4" in str(e.value) and "p = 3" in str(e.value)
    g = gx.function([x], gx.reshape(x, (-1, 4)), mode=mode)
    text = "reshape: element counts must be equal, got f32[q] to (floordiv(q, 4),4) where q = 6"
    with pytest.raises(ShapeError, match=re.escape(text)):
        g(zeros(6))


def test_memory_that_cannot_be_had():
    x, many = gx.input("x", ("n",)), zeros(10**7)
    table = x[:, None] * x[None, :]
    text = r"f: out of memory for an output of f32\[n,n\] with shape \[10000000,10000000\] \(test_m"
    with pytest.raises(OutOfMemoryError, match=text):
        gx.function([x], table, name="f")(many)
    with pytest.raises(OutOfMemoryError, match=r"with shape \[9223372036854775808\]"):
        gx.function([x], gx.tile(x, 2**61))(zeros(4))
    planned = gx.function([x], gx.sum(gx.cumsum(table, axis=0) @ x), name="f")
    for call in (planned, planned.profile):
        with pytest.raises(MemoryError, match=r"arena takes \d{15} bytes where n = 10000000 \(tes"):
            call(many)


def test_numbers_that_do_not_fit():
    i, x = gx.input("i", (), "uint64"), gx.input("x", ("n",), "int32")
    for out, number, text in (
        (i, 2**64, r"input 'i' must be u64\[\], got an int of 65 bits, which is outside 0 to 18"),
        (i, -1, "got -1, which is outside 0 to 184"),
        (gx.input("y", ()), 2**200, "f32.*, got an int of 201 bits, which is beyond 64 bits; pass"),
    ):
        with pytest.raises(DTypeError, match=text):
            gx.function([out], out, name="f")(number)
    for by_zero in (7 // x, 7 % x):
        with pytest.raises(ZeroDivisionError, match=r": integer division by zero at \[1\] \(te"):
            gx.function([x], by_zero)(np.array([1, 0], "i4"))


def test_range_of_an_index():
    x, w, i = gx.input("x", ("q",)), gx.input("w", (3,)), gx.input("i", (), "int64")
    with pytest.raises(IndexOutOfRangeError, match=r"f32\[3\] takes -3 to 2"):
        gx.function([w, i], w[i])(zeros(3), 7)
    with pytest.raises(IndexOutOfRangeError, match=r"f32\[q\] takes -q to q-1"):
        gx.function([x, i], x[i])(zeros(3), 7)


def test_numpy_rint_and_divmod():
    x = gx.input("x", ("q",))
    a = np.array([2.5, -3.0, 7.5], "f4")
    got = gx.function([x], [np.rint(x), *np.divmod(x, 2)])(a)
    np.testing.assert_array_equal(got, [np.rint(a), *np.divmod(a, 2)])


def test_refusals():
    x, rows, i = gx.input("x", ("q",)), gx.input("r", ("q", "d")), gx.input("i", ("q",), "int64")
    f = gx.function([x], x + 1)
    with pytest.raises(UsageError, match=r"function cannot be pickled; use f\.graph\.save"):
        pickle.dumps(f)
    with pytest.raises(UsageError, match=r"graph cannot be pickled; use graph\.save"):
        pickle.dumps(f.graph)
    assert copy.deepcopy(f) is f and copy.copy(f) is f and copy.deepcopy(f.graph) is f.graph
    v = gx.variable(zeros(3), "v")
    for wrong, error, text in (
        (lambda: gx.vmap(3), UsageError, "vmap: takes a function of Tensors, .* got 3"),
        (lambda: gx.vmap(gx.exp, in_axes="x")(x), UsageError, "in_axes must be an int, None or a"),
        (lambda: gx.composite(3), UsageError, "composite: takes a function of Tensors, got 3"),
        (lambda: gx.checkpoint(3), UsageError, "checkpoint: takes a function of Tensors, got 3"),
        (lambda: gx.define_op(3), UsageError, r"define_op: takes a row, gx\.Op\(\.\.\.\), got 3"),
        (lambda: gx.jacobian(3, x), GradientError, "outputs must be float Tensors, got int"),
        (lambda: gx.grad(gx.sum(x), {"x": x}), UsageError, "grad: takes a list, got a dict; pass"),
        (lambda: gx.jacobian(gx.exp, x), GradientError, r"got function; pass the Tensor that it r"),
        (lambda: gx.function(gx.exp, x), UsageError, r"; call the function on them: gx\.function"),
        (lambda: gx.variable(0, "0.bias"), UsageError, r"got '0\.bias'; take 'net\.0\.bias'"),
        (lambda: gx.zeros((2, 3, 4)).transpose(1, 2), ArgumentError, "two are swapped by gx"),
        (lambda: gx.grad(gx.sum(x), 3), GradientError, "wrt must be a Tensor or a list .* got int"),
        (lambda: gx.optim.sgd([v], 3, lr=1), ShapeError, r"of 'v' must be f32\[3\], got 3"),
        (lambda: gx.optim.sgd([v], [v * np.float64(2)], lr=1), ShapeError, r"cast it .*\('float32"),
        (lambda: gx.optim.adam([v], [v + 0], betas=0.9), UsageError, r"adam: betas must be two n"),
        (lambda: gx.optim.sgd([v], [v + 0], lr="a"), UsageError, "must be a number .* got str 'a'"),
        (lambda: x.eval(3), UsageError, r"eval: takes values as {Tensor or name: array}, got 3"),
        (lambda: x.eval([1]), UsageError, r"eval: takes values as {Tensor or name: array}, got \["),
        (lambda: x == "a", UsageError, "equal: an operand must be a number .* got str 'a'"),
        (lambda: gx.stack([x, None]), UsageError, "stack: an array must be a number .* NoneType"),
        (lambda: gx.stack(x, x), UsageError, r"takes a list, gx\.stack\(.*, got <T.* and <T"),
        (lambda: gx.reshape(x, (i[0],)), ShapeError, "reshape: a Tensor has no value, so"),
        (lambda: gx.zeros((i[0],)), ShapeError, r"shape: a Tensor .* by a Tensor \(test_[^ ]*\)$"),
        (lambda: gx.split(x, x.shape[0]), UsageError, r"split: .* number of .* got Dim\(q\)"),
        (lambda: gx.constant(2**70), UsageError, r"got int 11805\d+, which fits into no integer"),
        (lambda: gx.hessian(x, x), GradientError, "hessian: the cost must be a float scalar"),
        (lambda: gx.hvp(x, x, x), GradientError, "hvp: the cost must be a float scalar"),
        (lambda: gx.grad(gx.sum, x), GradientError, r"got function; pass the Tensor that it ret"),
        (lambda: f({"x": zeros(3)}), DTypeError, r"got a dict .*; pass inputs by position"),
        (lambda: gx.nn.dropout(rows, 0.5), ShapeError, r"dropout: a key is u32\[2\] .* got f32"),
        (lambda: gx.nn.cross_entropy(rows, x), ShapeError, r"; class numbers are y\.astype\("),
        (lambda: gx.concat(x), UsageError, r"takes a list, gx\.concat\(\[a, b\]\), got <Tensor x"),
        (lambda: rows - gx.mean(rows, axis=1), ShapeError, r"; f32\[q\] lacks axis -1, .*keepdims"),
        (lambda: gx.grad(gx.sum(i), i), GradientError, r"i64\[\], and there are gradients of fl"),
        (lambda: x + "a", UsageError, "an operand must be a number or a rectangular .* str 'a'"),
        (lambda: gx.variable(None), UsageError, "variable: the value must be .* NoneType None"),
        (lambda: gx.input("y", 3.5), ShapeError, r"as in \('batch', 64\), got 3\.5"),
        (lambda: gx.input("y", {"n": 3}), ShapeError, r"as in \('batch', 64\), got {'n': 3}"),
        (lambda: gx.reshape(x, None), ShapeError, "needs a name, .* not None"),
        (lambda: gx.dim("n") / 2, TypeError, r"\(n\) / 2 is no size, .* divide with //"),
        (lambda: 1 / gx.dim("n"), TypeError, r"1 / \(n\) is no size, .* is gx\.dim_value\(n\)"),
        (lambda: gx.dim("n") * 1.5, TypeError, r"n and 1\.5 make no size, .* gx\.dim_value\(n\)"),
        (lambda: 0.5 * gx.dim("n"), TypeError, r"n and 0\.5 make no size, .* gx\.dim_value\(n\)"),
        (lambda: np.float64(2) * gx.dim("n"), TypeError, "n and 2.0 make no size"),
        (lambda: gx.dim("n") ** 0.5, TypeError, "n and 0.5 make no size"),
        (lambda: gx.dim("n") ** -1, TypeError, r"\(n\) \*\* -1 is no size"),
        (lambda: gx.dim("n") < 3, TypeError, r"n is not compared with 3 .* gx\.dim_value\(n\)"),
        (lambda: gx.dim("n") >= 3, TypeError, r"n is not compared with 3 .* gx\.dim_value\(n\)"),
        (lambda: np.arange(gx.dim("n")), TypeError, "in the place of np.arange use gx.arange"),
        (lambda: np.sqrt(gx.dim("n")), TypeError, r"size n while .* take it \(gx\.sqrt"),
        (lambda: np.zeros((gx.dim("n"),)), TypeError, r"own functions take it \(gx\.zeros"),
        (lambda: gx.export(f, 3), UsageError, "export: the path must be a string or a path, got 3"),
        (lambda: gx.export(f, "x.so", cpu=3), UsageError, "cpu takes a level or a list .* got 3"),
        (lambda: gx.export(f, "x.so", kinds=3), UsageError, "kinds takes a list .* got 3"),
        (lambda: gx.export(f, "x.so", target=3), UsageError, "target must be a name, got 3"),
        (lambda: gx.load(3), UsageError, "load: the path must be a string or a path, got 3"),
        (lambda: gx.load_state(3, v), UsageError, "load_state: the path must be a string"),
        (lambda: gx.save_state(3, v), UsageError, "save_state: the path must be a string"),
        (lambda: gx.Graph.load(3), UsageError, "load: the path must be a string or a path, got 3"),
    ):
        with pytest.raises(error, match=text):
            wrong()


def test_files(tmp_path):
    v = gx.variable(zeros(3), "v")
    with pytest.raises(CompileError, match=r"load: cannot read .*nope\.gir: No such file"):
        gx.Graph.load(tmp_path / "nope.gir")
    (tmp_path / "bad.npz").write_text("hello")
    np.save(tmp_path / "one.npy", zeros(3))
    for name in ("bad.npz", "one.npy"):
        with pytest.raises(ArgumentError, match=r"is not an \.npz of arrays, as save_") as e:
            gx.load_state(tmp_path / name, [v])
        assert "pickle" not in str(e.value)
