"""A matrix times its transpose: half of the result is computed, all of it has the same bits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from guarded import guarded
from native import ALONE, BACKWARDS, EPILOGUE, call, compiled, pool
from operands import FLOATS, numbers
from scalar_harness import levels

import graphc as gx
from graphc.codegen.machine.target import host, x86
from graphc.codegen.matmul.symmetric import LEAST_DEPTH, stripe
from graphc.types import as_dtype


def both(dtype: str, level: str, parallel: str, x: np.ndarray):
    """x times its transpose by the two products, into arrays with room behind each row."""
    batch, n, _ = x.shape
    found = []
    for symmetric in (False, True):
        room = guarded((batch, n, n + 9), dtype)
        room[:] = 7.0
        c = room[:, :, :n]
        call(compiled(dtype, level, parallel, symmetric=symmetric), x, x.transpose(0, 2, 1), c)
        assert (room[:, :, n:] == 7.0).all()
        found.append(c)
    return found


@pytest.mark.parametrize("parallel", [ALONE, BACKWARDS, pool(2)], ids=["one", "backwards", "two"])
@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits(dtype, level, parallel):
    rng = np.random.default_rng(3)
    w = stripe(x86(level, host().triple), as_dtype(dtype))
    for n, k in ((1, 70), (w - 1, 64), (w, 300), (w + 1, 65), (3 * w + 7, 64), (2 * w, 0),
                 (300, 200), (521, 70), (1100, 64)):
        for transposed in (False, True):
            shape = (1 if n > 500 else 2, n, k)
            a = numbers(rng, (shape[0], k, n) if transposed else shape, dtype)
            want, got = both(dtype, level, parallel, a.transpose(0, 2, 1) if transposed else a)
            np.testing.assert_array_equal(got, want, f"{n} {k} {transposed}")


@pytest.mark.parametrize("parallel", [ALONE, BACKWARDS], ids=["one", "backwards"])
def test_the_epilogue_sees_what_is_final_once(parallel):
    """Also what other tasks have copied."""
    n, k, batch = 530, 90, 2
    a = numbers(np.random.default_rng(4), (batch, n, k), "float32")
    plain, _ = both("float32", levels()[-1], ALONE, a)
    c, seen, wrong = np.empty((batch, n, n), "float32"), np.zeros((batch, n, n), int), []

    def epilogue(_ctx, member, r0, r1, c0, c1, _c, _scratch):
        part = (member, slice(r0, r1), slice(c0, c1))
        seen[part] += 1
        if not np.array_equal(c[part], plain[part]):
            wrong.append(part)
        c[part] = c[part] * 2

    pointer = EPILOGUE(epilogue)
    call(compiled("float32", levels()[-1], parallel, symmetric=True), a, a.transpose(0, 2, 1), c,
         epilogue=ctypes.cast(pointer, ctypes.c_void_p).value)
    assert (seen == 1).all()
    assert not wrong
    np.testing.assert_array_equal(c, plain * 2)


def is_symmetric(out: gx.Tensor, *inputs: gx.Tensor) -> bool:
    return "_symmetric_product(" in gx.function(list(inputs), out).llvm_ir()


def test_which_products_are():
    x, y = gx.input("x", ("n", 100)), gx.input("y", ("n", 100))
    deep, batch = gx.input("z", (300, LEAST_DEPTH)), gx.input("b", (4, 200, 150), "float64")
    assert is_symmetric(x.T @ x, x)
    assert is_symmetric(x @ x.T, x)
    assert is_symmetric(x.T @ x / 7.0 + 1.0, x), "with an epilogue"
    assert is_symmetric(deep @ deep.T, deep)
    assert is_symmetric(batch @ gx.matrix_transpose(batch), batch)
    assert is_symmetric(gx.exp(x).T @ gx.exp(x), x), "computed once"
    assert not is_symmetric(x.T @ y, x, y)
    assert not is_symmetric(x[:, :64].T @ x[:, 36:], x), "of other columns"
    assert not is_symmetric(x[:, :8].T @ x[:, :8], x), "too few columns"
    short = deep[:, : LEAST_DEPTH - 1]
    assert not is_symmetric(short @ short.T, deep), "too few to add up"
    square = gx.input("s", (90, 90))
    assert not is_symmetric(square @ square, square)
    half = gx.input("h", (300, 100), "float16")
    assert not is_symmetric(half.T @ half, half)


def test_covariances():
    x = gx.input("x", ("n", 90), "float64")
    d = x - gx.mean(x, axis=0)
    n = gx.astype(gx.dim_value(x.shape[0]), "float64")
    f = gx.function([x], d.T @ d / (n - 1.0))
    for rows in (2, 3, 91, 400):
        a = np.random.default_rng(rows).normal(size=(rows, 90))
        got = f(a)
        np.testing.assert_array_equal(got, got.T)
        np.testing.assert_allclose(got, np.cov(a.T), rtol=1e-12, atol=1e-13)
