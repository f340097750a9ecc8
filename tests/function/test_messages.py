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
    IndexOutOfRangeError,
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
    x = gx.input("x", ("q",))
    f = gx.function([x], x + 1)
    with pytest.raises(UsageError, match=r"function cannot be pickled; use f\.graph\.save"):
        pickle.dumps(f)
    assert copy.deepcopy(f) is f and copy.copy(f) is f
    with pytest.raises(UsageError, match=r"vmap: takes a function of Tensors, .* got 3"):
        gx.vmap(3)


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
