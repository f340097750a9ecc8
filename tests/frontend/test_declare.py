"""Leaves, names and everything that a Tensor refuses."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.errors import DTypeError, ShapeError, UsageError


def test_input():
    x = gx.input("x", ("batch", 64))
    assert (x.dtype, x.shape, x.ndim) == (gx.float32, (gx.dim("batch"), 64), 2)
    assert str(x.type) == "f32[batch,64]"
    assert repr(x).startswith("<Tensor x: f32[batch,64] at test_declare.py:")
    assert gx.placeholder("y", "n", "int64").shape == (gx.dim("n"),)
    assert gx.input("z", ("2*n+1",)).shape == (2 * gx.dim("n") + 1,)
    assert gx.input("s").shape == ()
    assert x.size == 64 * gx.dim("batch")


def test_name_scope():
    with gx.name_scope("encoder"):
        a = gx.input("a") + 1
        with gx.name_scope("layer1"):
            b = a * 2
    assert a.node.scope == "encoder" and b.node.scope == "encoder/layer1"
    assert (b + 1).node.scope == ""


def test_walking_the_graph():
    x, y = gx.input("x"), gx.input("y")
    z = x * y + gx.log(x)
    names, stack = [], [z.node]
    while stack:
        n = stack.pop()
        names.append(n.op.name)
        stack += [a.node for a in n.args]
    assert names == ["add", "log", "input", "mul", "input", "input"]


def test_eval():
    x, y = gx.input("x", ("n",)), gx.input("y")
    w = gx.variable(np.float32(10), "w")
    t = x * y + w
    np.testing.assert_array_equal(t.eval({x: [1.0, 2.0], y: 3.0}), [13, 16])
    np.testing.assert_array_equal(t.eval({"x": [1.0, 2.0], "y": 3.0}), [13, 16])
    np.testing.assert_array_equal(t.eval([(x, [1.0]), ("y", 3.0)]), [13])
    np.testing.assert_array_equal(t.eval(x=[1.0], y=0.0), [10])
    w.value = np.float32(20)
    np.testing.assert_array_equal(t.eval(x=[1.0], y=0.0), [20])


def test_eval_refuses(refuses):
    x, y = gx.input("x", ("n",)), gx.input("y")
    with refuses("needs a value for 'y'"):
        (x * y).eval({x: [1.0]})
    with refuses("is not an input that", "'x'"):
        (x * 2).eval({x: [1.0], y: 1.0})


def test_assert_dim(run):
    x, y = gx.input("x", ("n",)), gx.input("y", ("m",))
    t = x + gx.assert_dim(y, 0, "n")
    np.testing.assert_array_equal(run(t, x=[1, 2], y=[3, 4]), [4, 6])
    with pytest.raises(ShapeError):
        run(t, x=[1, 2], y=[3, 4, 5])


def test_bfloat16(run):
    import ml_dtypes

    a = np.array([1.0, 2.5, 1e30], ml_dtypes.bfloat16)
    assert gx.constant(a).dtype is gx.bfloat16
    x = gx.input("x", ("n",), "bfloat16")
    got = run(x * 3 + 1, x=a)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype("f4"), (a * 3 + 1).astype("f4"))


def test_declaration_refusals(refuses):
    with refuses("input: the name must be an identifier, got 'a b'"):
        gx.input("a b")
    with refuses("a size that is not known yet needs a name"):
        gx.input("x", (None, 3))
    with refuses("shape: a size must be >= 0, got -1"):
        gx.input("x", (-1,))
    with refuses("complex"):
        gx.input("x", (), "complex64")
    with refuses("complex numbers"):
        gx.constant(1j)
    with refuses("dtype"):
        gx.input("x", (), "float128x")
    with refuses("variable: the name must be an identifier"):
        gx.variable(1.0, "a/b")
    with refuses("a rectangular array of numbers, got list [[1], [2, 3]]"):
        gx.constant([[1], [2, 3]])
    with refuses("a rectangular array of numbers, got object"):
        gx.constant(object())
    with refuses("name_scope"):
        gx.name_scope("")
    with refuses("dim: a dimension name must be an identifier"):
        gx.dim("2n")
    x = gx.input("x", ("n",))
    with refuses("a Tensor has no value while the graph is declared"):
        gx.variable(x, "w")
    with refuses("assert_dim: axis 0 of f32[3] is 3, never 4"):
        gx.assert_dim(gx.input("y", (3,)), 0, 4)
    with refuses("300 does not fit into uint8"):
        gx.input("u", (), "uint8") + 300
    for value, dtype in ((300, "uint8"), ([0, -1], "uint8"), (np.array([2.0, 2e10]), "int32")):
        with refuses(f"does not fit into {dtype}"):
            gx.variable(value, "v", dtype)
    with refuses("nan does not fit into int64"):
        gx.constant(np.nan, "int64")
    with refuses("a masked array, whose mask would be lost; pass value.filled(...)"):
        gx.variable(np.ma.masked_array([1.0, 2.0], [0, 1]), "v")
    with refuses("one size is a number, a name or a formula of these, got 'n m'"):
        gx.input("x", ("n m",))
    with refuses("a tensor has at most 64 axes, as an ndarray has, got 65"):
        gx.input("x", (1,) * 65)
    with refuses("f32[4294967296,536870912] has more elements than memory has places"):
        gx.ones((2**32, 2**29))
    with refuses("the size of axis 0 has become a formula of", "gx.assert_dim(x, 0, 'm')"):
        for _ in range(40):
            x = gx.concat([x, x[:1]])[1:]
    with pytest.raises(ZeroDivisionError, match="the size n cannot be divided by 0"):
        gx.dim("n") % 0


REFUSED_BY_TENSOR = [
    (bool, "has no truth value", "gx.where"),
    (int, "int() does not work", "astype"),
    (float, "float() does not work", "astype"),
    (complex, "complex numbers are not supported", "two Tensors"),
    (len, "the length of f32[n] is known at run time only", "x.shape[0]"),
    (list, "iteration needs a first axis of known size", "gx.vmap"),
    (range, "cannot be a size, an axis or a Python index", "gx.take"),
    (lambda x: 1.0 in x, "`in` needs a truth value", "gx.any"),
    (lambda x: [gx.input("y")].index(x), "has no truth value", "`is`"),
    (lambda x: x and 1, "has no truth value", "& |"),
    (lambda x: 0 < x < 1, "has no truth value", "&"),
    (lambda x: x.item(), "item() does not work", "eval"),
    (lambda x: x.tolist(), "tolist() does not work", "eval"),
    (lambda x: x.numpy(), "numpy() does not work", "eval"),
    (lambda x: f"{x:.3f}", "no value to write as '.3f'", "eval"),
    (np.asarray, "no value to put into an ndarray", "eval"),
    (lambda x: x.__setitem__(0, 1), "cannot be assigned to", ".at[key].set(value)"),
    (lambda x: x.__delitem__(0), "cannot be deleted", "slices"),
]


@pytest.mark.parametrize("use,what,instead", REFUSED_BY_TENSOR)
def test_tensor_refusals(refuses, use, what, instead):
    x = gx.input("x", ("n",))
    with refuses(what, instead, kind=UsageError):
        use(x)


def test_elementwise_refusals(refuses):
    x, y = gx.input("x", ("n", 3)), gx.input("y", ("m", 3))
    b = gx.input("b", (3,), "bool")
    with refuses("add: sizes must be equal or a declared 1, got f32[n,3] and f32[m,3]",
                 "axis -2 is n and m", "declare them by one name", "gx.assert_dim(x, -2, 'm')"):
        x + y
    with refuses("axis -2 is n and 2", "use gx.assert_dim(x, -2, 2)"):
        x + np.ones((2, 3), "f4")
    with refuses("add: sizes must be equal", "axis -1 is 3 and 4"):
        x + np.ones(4, "f4")
    with refuses("subtract: takes an integer or float dtype", "use ^ for bools"):
        b - b
    with refuses("negative: takes", "use ~ for bools"):
        _ = -b
    for fn in (gx.square, gx.round, np.rint):
        with refuses(f"{'round' if fn is np.rint else fn.__name__}: takes an integer or float"):
            fn(b)
    with refuses("bitwise_and: takes bools or integers", "gx.logical_and", kind=DTypeError):
        x & x
    for limits in (("a", 1), (0, "a")):
        with refuses("clip: an operand must be a number", "got str 'a'"):
            gx.clip(x, *limits)
    with refuses("where: takes a bool condition (write x != 0), got f32[n,3]"):
        gx.where(x, 1, 2)
    with refuses("pow: integers to the negative power -1 are not integers, got i32[]"):
        gx.input("i", (), "int32") ** -1
    with refuses("round: decimals must be an int, got 1.5"):
        gx.round(x, 1.5)
    with refuses("axis -2 is n-max(0, n-m) and n", "use gx.assert_dim(x, -2, 'n')"):
        gx.add(x[:gx.dim("m")], x)


def test_product_refusals(refuses):
    x, y = gx.input("x", ("n", 3)), gx.input("y", ("m", 3))
    with refuses("matmul: inner dimensions must match, got f32[64,784] @ f32[512,10]"):
        gx.input("a", (64, 784)) @ gx.input("c", (512, 10))
    with refuses("matmul: inner dimensions must match", "if 3 and n are always equal"):
        x @ gx.input("c", ("n", 2))
    with refuses("matmul: takes at least 1 axis each", "use * for scalars"):
        x @ 3
    with refuses("einsum 'ij,jk': sizes of 'j' must match, got 3 and m"):
        gx.einsum("ij,jk", x, y)
    with refuses("einsum 'ii->i': sizes of 'i' must match, got 1 and 3"):
        gx.einsum("ii->i", gx.ones((1, 3)))
    with refuses("einsum", "the result must have the `...` of the operands"):
        gx.einsum("...i->i", gx.ones((2, 3)))
    with refuses("einsum", "takes 1 operands, got 2"):
        gx.einsum("ij", x, y)
    with refuses("einsum: subscripts come first, as a string"):
        gx.einsum(x, [0, 1])
    with refuses("tensordot: axes must be a number or two lists of axes, got (1,)"):
        gx.tensordot(x, y, axes=(1,))
    with refuses("dot: inner dimensions must match, got f32[n,3] and f32[m,3]"):
        gx.dot(x, y)
    with refuses("inner: inner dimensions must match, got f32[n,3] and f32[3,m]"):
        gx.inner(x, y.T)


def test_reduction_refusals(refuses):
    x = gx.input("x", ("n", 3))
    with refuses("sum: axis 2 is out of range for f32[n,3]"):
        x.sum(axis=2)
    with refuses("any: axis 2 is out of range for f32[n,3]"):
        gx.any(x, axis=2)
    with refuses("all: axis 2 is out of range for f32[n,3]"):
        gx.all(x, axis=2)
    with refuses("sum: an axis appears twice"):
        x.sum(axis=(0, 0))
    with refuses("sum: an axis is an int, got 1.5"):
        x.sum(axis=1.5)
    with refuses("cumulative_sum: axis= must be given"):
        gx.cumulative_sum(x)


def test_manipulation_refusals(refuses):
    x, y = gx.input("x", ("n", 3)), gx.input("y", ("m", 3))
    with refuses("reshape: element counts must be equal, got f32[n,3] to [5]", "gx.assert_dim"):
        x.reshape(5)
    with refuses("reshape: only one -1"):
        x.reshape(-1, -1)
    with refuses("reshape: 6 elements of f32[2,3] cannot be divided by 4"):
        gx.input("r", (2, 3)).reshape(-1, 4)
    with refuses("squeeze: axis 0 of f32[n,3] must have size 1", "gx.assert_dim"):
        gx.squeeze(x, 0)
    with refuses("split: axis 1 of f32[n,3] must divide into 2 equal parts"):
        gx.split(x, 2, axis=1)
    with refuses("stack: arrays must have one shape, got f32[n,3] and f32[m,3]"):
        gx.stack([x, y])
    with refuses("permute_dims: axes must name each axis"):
        gx.permute_dims(x, (0, 0))
    with refuses("broadcast_to: f32[n,3] does not broadcast to [5,3]"):
        gx.broadcast_to(x, (5, 3))
    with refuses("repeat: repeats must be one int", "gx.take"):
        gx.repeat(x, [1, 2, 3], axis=1)
    with refuses("arange: bounds must be numbers or sizes"):
        gx.arange(gx.input("k", (), "int64"))
    with refuses("arange: bounds and step must be finite, got 0, nan and 1"):
        gx.arange(np.nan)
    with refuses("tril: k must be an int, got 1.5"):
        gx.tril(x, 1.5)
    with refuses("does not fit into int64"):
        x[2**70]
    with refuses("repeat: repeats: a size must be >= 0, got -1"):
        gx.repeat(x, -1, axis=0)
    with refuses("tile: repetitions: a size must be >= 0, got -2"):
        gx.tile(x, (1, -2))
    with refuses("pad: pad_width: a size must be >= 0, got -1"):
        gx.pad(x, ((0, 0), (1, -1)))
    for width in (1.5, "a", ((1, 2, 3), 1), (1, 2, 3)):
        with refuses("pad: pad_width must be one pair for each axis of f32[n,3], got"):
            gx.pad(x, width)
    with refuses("pad: mode must be 'constant'"):
        gx.pad(x, 1, mode="reflect")
    with refuses("concat: takes a list of at least one array"):
        gx.concat([])
    with refuses("join Tensors with gx.stack"):
        gx.constant([x, x])


def test_numpy_refusals(refuses):
    x = gx.input("x", (3,))
    with refuses("sort: not available", "sort primitive"):
        np.sort(x)
    with refuses("median: not available", "sort primitive"):
        np.median(x)
    with refuses("np.average: not available on Tensors; use gx.sum(x * w) / gx.sum(w)"):
        np.average(x)
    with refuses("np.frexp: not available on Tensors; use graphc's operations"):
        np.frexp(x)
    with refuses("np.heaviside: not available on Tensors; use gx.where("):
        np.heaviside(x, 0)
    with refuses("np.add.at: not available on Tensors; use x.at[indices].add(values)"):
        np.add.at(x, [0], 1)
    with refuses("np.add.reduceat: not available"):
        np.add.reduceat(x, [0])
    with refuses("out= is not available on Tensors"):
        np.add(x, x, out=np.zeros(3, "f4"))
    with refuses("where= is not available on Tensors"):
        np.sum(x, where=np.array([True, False, True]))
    with refuses("fft", "fft primitives"):
        np.fft.fft(x)
    with refuses("linalg.svd", "linear algebra primitives"):
        np.linalg.svd(gx.input("m", (3, 3)))


def test_refused_names(refuses):
    for name in gx.REFUSED:
        with refuses(f"{name}: not available, because"):
            getattr(gx, name)()
    with refuses("linalg.inv: not available"):
        gx.linalg.inv(gx.eye(3))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gx.nonsense  # noqa: B018


def test_functions_stay_when_their_modules_are_imported():
    import importlib

    for name in ("function", "export", "composite", "vmap"):
        module = importlib.import_module(f"graphc.{name}")
        assert getattr(gx, name) is getattr(module, name)


def test_copies_are_the_tensor_itself(refuses):
    import copy
    import pickle

    y = x = gx.input("x")
    for _ in range(5_000):
        y = y + 1
    assert copy.copy(y) is y and copy.deepcopy([y])[0] is y
    with refuses("a Tensor cannot be pickled", ".graph.save"):
        pickle.dumps(x)


def test_public_names():
    names = dir(gx)
    assert {"Tensor", "exp", "grad", "nn", "function", "float32"} <= set(names)
    assert not {"sys", "math", "Any"} & set(names)
    for name in names:
        getattr(gx, name)
    for kind in (gx.Tensor, gx.Variable, gx.Function):
        assert not [n for n in dir(kind) if n[0] != "_" and not getattr(kind, n).__doc__], kind


def test_sizes_in_arithmetic(run):
    x = gx.input("x", ("n", 2))
    n = x.shape[0]
    a = np.ones((3, 2), "f4")
    for t, want in [(n * x, 3 * a), (x * n, 3 * a), (x / n, a / 3), (n - x, 3 - a),
                    (gx.sum(x) / n, 2.0), (x + (2 * n + 1), a + 7), (n // x, 3 // a)]:
        np.testing.assert_allclose(run(t, x=a), want, rtol=1e-6)
    assert (x * n).dtype is gx.float32
    with pytest.raises(TypeError):
        _ = n * 1.5
