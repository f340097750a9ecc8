"""Products of matrices whose rows or columns lie far apart: what is packed or asked for otherwise
has the bits of the same numbers side by side."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from guarded import guarded
from native import address, call, compiled
from operands import FLOATS, FUSED, check, numbers

from graphc.aligned import LINE
from graphc.codegen.emission.aliasing import PAGE
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.prefetch import CORE_BYTES
from graphc.codegen.machine.target import GOLDEN_COVE, ZEN4, host, x86
from graphc.codegen.matmul.block import FAR_BYTES, MANY_ROWS, k_block
from graphc.codegen.matmul.dot import ASK_BYTES, ASK_ROW, SINGLE_BYTES
from graphc.codegen.matmul.row import STREAM_BYTES, define_stream, stream_scratch
from graphc.codegen.matmul.strips import APART_BYTES
from graphc.dims import round_up
from graphc.types import as_dtype


def product_of_all(dtype, pairs, shared):
    """The last of the products, which are the same bits in their `shared` rows, at every level,
    however the core reads what is far away."""
    found = set()
    for level, core, (a, b) in itertools.product(FUSED, ("", GOLDEN_COVE, ZEN4), pairs):
        c = guarded((1, a.shape[1], b.shape[2]), dtype)
        call(compiled(dtype, level, core=core), a, b, c)
        found.add(c[:, shared].tobytes())
    assert len(found) == 1, (a.shape, b.shape)
    return c


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_of_a_that_share_cache_sets(dtype):
    rng = np.random.default_rng(12)
    n, k, row = 141, 261, 4096 // np.dtype(dtype).itemsize
    b = numbers(rng, (1, k, n), dtype)
    for m in (13, 14, 15, 29, 41, 42, 43, 62):  # of many rows strips are transposed
        even = guarded((1, m, row), dtype)[:, :, -k:]
        even[...] = numbers(rng, even.shape, dtype)
        c = product_of_all(dtype, [(even, b), (even.copy(), b)], np.s_[:])
        check(c, even, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_of_a_that_share_cache_sets_beside_few_columns(dtype):
    """Not packed, but cut into other strips: see `test_strips`."""
    rng = np.random.default_rng(16)
    size, k = np.dtype(dtype).itemsize, 261
    panel = 128 // size
    even = guarded((1, 73, 4096 // size), dtype)[:, :, -k:]
    even[...] = numbers(rng, even.shape, dtype)
    for n in (panel - 3, panel, 2 * panel + 1, 3 * panel):
        b = numbers(rng, (1, k, n), dtype)
        for m in (*range(12, 45), 61, 73):
            a = even[:, -m:]
            c = product_of_all(dtype, [(a, b), (a.copy(), b)], np.s_[:])
        check(c, even, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_columns_of_a_that_are_far_apart(dtype):
    """Several strips are packed at once: every number of strips beside whole groups of 8."""
    rng = np.random.default_rng(15)
    n, k = 141, 261
    row = (APART_BYTES // k + 64) // np.dtype(dtype).itemsize
    b = numbers(rng, (1, k, n), dtype)
    far = guarded((1, k, row), dtype)
    far[...] = numbers(rng, far.shape, dtype)
    for m in (13, 14, 15, 29, 97, 98, 99, 111, 112, 113, 126, 240, 256):
        a = far[:, :, -m:].transpose(0, 2, 1)
        c = product_of_all(dtype, [(a, b), (a.copy(), b)], np.s_[:])
        check(c, a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_of_b_that_are_far_apart(dtype):
    """Packed row by row, or asked for a block ahead if those of A are few, for several strips:
    every width beside whole panels, up to B's end."""
    rng = np.random.default_rng(13)
    k, most = 270, MANY_ROWS + 3
    far = guarded((1, k, (FAR_BYTES // k + 64) // np.dtype(dtype).itemsize), dtype)
    far[:, :, -81:] = numbers(rng, (1, k, 81), dtype)
    a = numbers(rng, (1, most, k), dtype)
    for n in (7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 81):
        b = far[:, :, -n:]
        assert b.strides[1] * k > FAR_BYTES
        ways = itertools.product((7, 15, 16, 29, 32, 43, most), (b, b.copy()))
        c = product_of_all(dtype, [(a[:, :m], x) for m, x in ways], np.s_[:7])
        check(c, a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_of_a_that_are_far_apart_beside_a_vector(dtype):
    """Those behind are asked for, or long ones are four streams; the last are what that leaves."""
    rng = np.random.default_rng(14)
    m, row = ASK_BYTES // ASK_ROW + 6, ASK_ROW // np.dtype(dtype).itemsize
    far = guarded((1, m, row), dtype)
    for k in (1, 31, 32, 64, 65, 131, 1031):
        a, x = far[:, :, -k:], numbers(rng, (1, k, 1), dtype)
        a[...] = numbers(rng, a.shape, dtype)
        near = a.copy()
        ways = [y[:, -rows:] for y in (near, a) for rows in (m - 3, m - 1, m)]
        for y in ways:
            assert (y.shape[1] * y.strides[1] > ASK_BYTES) == (y.base is not near)
        c = product_of_all(dtype, [(y, x) for y in ways], np.s_[-9:])
        check(c, a, x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_that_follow_each_other(dtype):
    """Read one by one on some cores where they are many: beside a vector, and beside a row."""
    rng, size = np.random.default_rng(18), np.dtype(dtype).itemsize
    for columns, bytes_ in ((64, CORE_BYTES), (261, CORE_BYTES), (1031, SINGLE_BYTES)):
        rows = bytes_ // (size * columns) + 5
        a = guarded((1, rows, columns), dtype)
        a[...] = numbers(rng, a.shape, dtype)
        x, y = numbers(rng, (1, columns, 1), dtype), numbers(rng, (1, 1, rows), dtype)
        few = a[:, -9:]
        check(product_of_all(dtype, [(a, x), (few, x)], np.s_[-9:])[:, -9:], few, x)
        check(product_of_all(dtype, [(y, a)], np.s_[:]), y, a)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("level", FUSED)
def test_a_row_times_rows_of_b_anywhere_in_a_page(dtype, level):
    """Its sums stand in scratch half a page from B's rows, and never beyond what it asks for."""
    rng, t, target = np.random.default_rng(17), as_dtype(dtype), x86(level, host().triple)
    module = Module()
    name = define_stream(module, target, t, k_block(t))
    params = "i64 %n, i64 %k, ptr %a, i64 %a_col, ptr %b, i64 %b_row, ptr %c, ptr %scratch"
    module.define("entry", (
        f"define void @entry({params}) {{\n  call void @{name}({params})\n  ret void\n}}"
    ))
    stream = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(address(module.text(), target, "entry"))
    size = t.itemsize
    half = PAGE // size // 2
    for k, n in ((2 * k_block(t) + 11, 261), (70, STREAM_BYTES // size + 13), (3, 1)):
        a, values = numbers(rng, (1, 1, k), dtype), numbers(rng, (1, k, n), dtype)
        room, found = guarded((k * n + 2 * half,), dtype), set()
        scratch = guarded((round_up(stream_scratch(t, n), LINE),), "uint8")
        for shift in (0, 1, 5, half - 1, half, half + 5, 2 * half - 1):
            b = room[room.size - k * n - shift :][: k * n].reshape(1, k, n)
            b[...] = values
            c = guarded((1, 1, n), dtype)
            stream(n, k, a.ctypes.data, size, b.ctypes.data, n * size, c.ctypes.data,
                   scratch.ctypes.data)
            found.add(c.tobytes())
        check(c, a, b)
        assert len(found) == 1
