"""Matrix products of every dtype and CPU level against NumPy, at every tile boundary."""

from __future__ import annotations

import ctypes
import itertools
import re

import numpy as np
import pytest
from guarded import guarded
from native import ALONE, BACKWARDS, EPILOGUE, call, compiled, text
from operands import FLOATS, FUSED, check, numbers, operand
from scalar_harness import levels

import graphc as gx
from graphc.codegen.machine.llvm import assembly
from graphc.codegen.machine.target import x86
from graphc.codegen.matmul.block import EVERY, Ways
from graphc.codegen.matmul.product import product_scratch
from graphc.codegen.pool.runtime import SCRATCH_BYTES
from graphc.types import as_dtype

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
# around register widths, tile heights and widths, blocks of k
EDGES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 22, 27, 28, 29, 31, 32, 33,
         41, 42, 43, 47, 63, 64, 65, 81, 127, 128, 129]
DEPTHS = [1, 2, 5, 8, 16, 33, 64, 191, 192, 193, 255, 256, 257, 384, 512, 900]
# matrices beside a vector that are taken to come from memory
FAR = [(1, 701, 400), (1, 2065, 130), (701, 1, 400), (2065, 1, 130), (1301, 1, 400),
       (4165, 1, 130)]
# few rows beside columns that they take as they are
UPRIGHT = [(2, 131, 517), (3, 131, 517), (4, 65, 1031), (5, 131, 517)]
TRANSPOSED = list(itertools.product([False, True], repeat=2))


def shapes(rng, count):
    """Random choices among the edges: (m, n, k)."""
    for _ in range(count):
        yield int(rng.choice(EDGES)), int(rng.choice(EDGES)), int(rng.choice(DEPTHS))


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "bfloat16"])
def test_floats_at_tile_boundaries(dtype, level):
    if dtype == "bfloat16":
        dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    rng = np.random.default_rng(1)
    f = compiled(np.dtype(dtype).name, level)
    asked = [(28, 70, k) for k in (1, 13, 14, 15, 205, 206, 207)]  # after 14 steps tiles ask for B
    together = [(9, n, k) for n in (20, 40) for k in range(3, 11)]  # four steps of a turn, or more
    for m, n, k in [*shapes(rng, 120), (510, 70, 20), (7, 600, 260), (45, 1061, 260),
                    (503, 515, 3), (2105, 33, 9), *FAR, *UPRIGHT, *asked, *together]:
        for ta, tb in TRANSPOSED:
            a, b = operand(rng, (1, m, k), dtype, ta), operand(rng, (1, k, n), dtype, tb)
            c = np.full((1, m, n), 7, dtype)
            call(f, a, b, c)
            check(c, a, b)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", INTS)
def test_integers_wrap_exactly(dtype, level):
    rng = np.random.default_rng(2)
    f = compiled(dtype, level)
    for m, n, k in shapes(rng, 12):
        for ta, tb in TRANSPOSED:
            a, b = operand(rng, (2, m, k), dtype, ta), operand(rng, (2, k, n), dtype, tb)
            c = np.full((2, m, n), 7, dtype)
            call(f, a, b, c)
            check(c, a, b)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "int32", "int8"])
@pytest.mark.parametrize("at_end", [False, True])
def test_no_access_outside(dtype, level, at_end):
    rng = np.random.default_rng(3)
    f = compiled(dtype, level)
    for m, n, k in [*shapes(rng, 25), (50, 600, 20), (1, 1, 70), (9, 1, 40), (70, 1, 5), *FAR[:3],
                    *UPRIGHT]:
        for ta, tb in TRANSPOSED:
            a = guarded((1, k, m) if ta else (1, m, k), dtype, at_end)
            b = guarded((1, n, k) if tb else (1, k, n), dtype, at_end)
            c = guarded((1, m, n), dtype, at_end)
            a[...], b[...] = numbers(rng, a.shape, dtype), numbers(rng, b.shape, dtype)
            a = a.transpose(0, 2, 1) if ta else a
            b = b.transpose(0, 2, 1) if tb else b
            call(f, a, b, c)
            check(c, a, b)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "int16"])
def test_strides_of_every_kind(dtype, level):
    rng = np.random.default_rng(4)
    f = compiled(dtype, level)
    big = numbers(rng, (3, 90, 180), dtype)
    for m, n, k in [(5, 7, 9), (13, 33, 17), (30, 1, 40), (1, 20, 60), (60, 70, 80)]:
        operands_a = [
            big[:, :m, :2 * k:2], big[:, :3 * m:3, :k] if 3 * m <= 90 else big[:, :m, :k],
            big[:, m - 1::-1, :k] if m > 1 else big[:, :m, :k], big[:, :m, k - 1::-1],
            np.broadcast_to(big[:, :1, :k], (3, m, k)), np.broadcast_to(big[:, :m, :1], (3, m, k)),
            np.broadcast_to(big[:1, :m, :k], (3, m, k)),
        ]
        operands_b = [
            big[:, :k, :2 * n:2], big[:, :k, n - 1::-1] if n > 1 else big[:, :k, :n],
            np.broadcast_to(big[:, :1, :n], (3, k, n)), np.broadcast_to(big[:, :k, :1], (3, k, n)),
            np.broadcast_to(big[1:2, :k, :n], (3, k, n)), big.transpose(2, 1, 0)[:3, :k, :n]
            if n <= 3 else big[:, :k, :n], big.transpose(0, 2, 1)[:, :k, :n],
        ]
        for a, b in itertools.product(operands_a, operands_b):
            room = np.full((3, m, n + 3), 5, dtype)
            c = room[:, :, :n]
            call(f, a, b, c)
            check(c, np.ascontiguousarray(a), np.ascontiguousarray(b))
            assert (room[:, :, n:] == 5).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_empty(dtype):
    f = compiled(dtype, levels()[-1])
    c = np.full((2, 3, 70), 7, dtype)
    call(f, np.ones((2, 3, 0), dtype), np.ones((2, 0, 70), dtype), c)
    assert (c == 0).all()
    for batch, m, n in [(0, 3, 4), (2, 0, 4), (2, 3, 0)]:
        c = np.full((batch, m, n), 7, dtype)
        call(f, np.ones((batch, m, 5), dtype), np.ones((batch, 5, n), dtype), c)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity(dtype):
    f = compiled(dtype, levels()[-1])
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (1, 33, 40), dtype), numbers(rng, (1, 40, 37), dtype)
    a[0, 3, 5], a[0, 7, 1], b[0, 9, 36] = np.nan, np.inf, np.inf
    c = np.empty((1, 33, 37), dtype)
    call(f, a, b, c)
    with np.errstate(invalid="ignore"):
        expected = np.matmul(a, b)
    np.testing.assert_array_equal(np.isnan(c), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(c), np.isinf(expected))


BITS = [(1, 1, 7), (40, 1, 300), (3, 1, 5000), (33, 10, 128), (50, 64, 64), (61, 100, 700),
        (510, 130, 40), (2110, 67, 20), (13, 600, 270), (3, 701, 400), (2065, 1, 130),
        (1500, 1, 300), (250, 1, 130), (79, 1, 62), (1301, 1, 700), (4165, 1, 130),
        *UPRIGHT]


@pytest.mark.parametrize("dtype", [*FLOATS, "float16"])
def test_bits_do_not_depend_on_level_or_layout_or_split(dtype):
    rng = np.random.default_rng(6)
    for m, n, k in BITS:
        plain = numbers(rng, (1, m, k), dtype), numbers(rng, (1, k, n), dtype)
        turned = [np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1) for x in plain]
        results = []
        for level, parallel in itertools.product(FUSED, (ALONE, BACKWARDS)):
            f = compiled(dtype, level, parallel)
            for a, b in itertools.product(*zip(plain, turned, strict=True)):
                c = np.empty((1, m, n), dtype)
                call(f, a, b, c)
                results.append(c.tobytes())
        assert len(set(results)) == 1, (m, n, k)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [*FLOATS, "float16"])
def test_a_row_alone_has_the_bits_of_the_row_among_others(dtype, level):
    if level == "v2":
        pytest.skip("no promise without fused multiply-add")
    f = compiled(dtype, level)
    rng = np.random.default_rng(7)
    for m, n, k in BITS:
        a, b = numbers(rng, (1, m, k), dtype), numbers(rng, (1, k, n), dtype)
        c = np.empty((1, m, n), dtype)
        call(f, a, b, c)
        for rows in {1, min(m, 3), min(m, 55)}:
            for first in {0, m // 2, m - rows}:
                last = min(m, first + rows)
                alone = np.empty((1, last - first, n), dtype)
                call(f, a[:, first:last], b, alone)
                assert alone.tobytes() == c[:, first:last].tobytes()


@pytest.mark.parametrize("level", FUSED)
@pytest.mark.parametrize("dtype", FLOATS)
def test_any_number_of_rows_is_read_side_by_side(dtype, level):
    rng = np.random.default_rng(8)
    f, least = compiled(dtype, level), 1 << 19  # bytes of a matrix that comes from memory
    for k in range(1, 17):
        n = least // (k * np.dtype(dtype).itemsize) + 3
        a, b = numbers(rng, (1, 2, k), dtype), guarded((1, k, n), dtype)
        b[...] = numbers(rng, b.shape, dtype)
        c, alone = np.empty((1, 2, n), dtype), guarded((1, 1, n), dtype)
        call(f, a, b, c)
        call(f, a[:, 1:], b, alone)
        assert alone.tobytes() == c[:, 1:].tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_way_to_cut_rows_into_strips(dtype):
    rng = np.random.default_rng(11)
    k, most = 260, 62
    wide = numbers(rng, (1, k, 1100), dtype)  # rows of B more than a page apart, or close together
    a = guarded((1, most, k), dtype)
    a[...] = numbers(rng, a.shape, dtype)
    whole = []
    for level in FUSED:
        f = compiled(dtype, level)
        for n, near in itertools.product((70, 15), (False, True)):  # 15: a panel or less
            b = np.ascontiguousarray(wide[:, :, :n]) if near else wide[:, :, :n]
            for m in range(most, 0, -1):
                c = guarded((1, m, n), dtype)
                call(f, a[:, most - m:], b, c)
                whole = whole or [c]
                assert c.tobytes() == whole[0][:, most - m:, :n].tobytes(), m
    check(whole[0], a, wide[:, :, :70])


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float64", 8)])
def test_half_of_an_upright_strip_is_operands(dtype, lanes):
    """Elements of every second row are operands of both multiply-adds, with constant addresses."""
    target = x86("v4")
    code = assembly(text(dtype, target), target)
    (kernel,) = re.findall(r"^graphc_matmul_f\d\d_strip_14_upright:(.*?)\.Lfunc_end", code,
                           re.DOTALL | re.MULTILINE)
    places = re.findall(rf"vfmadd\w+\s+(\d+)\(%\w+\){{1to{lanes}}}", kernel)
    size = np.dtype(dtype).itemsize
    assert [places.count(str(i * size)) for i in range(1, 14)] == [3, 1] * 6 + [3]


@pytest.mark.parametrize("parallel", [ALONE, BACKWARDS])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("shape", [
    (1, 3, 4, 5), (3, 20, 30, 0), (2, 500, 70, 20), (1, 1000, 1100, 40), (5, 100, 1, 30),
])
def test_epilogue_covers_c_once_with_final_values(dtype, shape, parallel):
    batch, m, n, k = shape
    f = compiled(dtype, levels()[-1], parallel)
    rng = np.random.default_rng(8)
    a, b = numbers(rng, (batch, m, k), dtype), numbers(rng, (batch, k, n), dtype)
    plain, c = np.empty((batch, m, n), dtype), np.empty((batch, m, n), dtype)
    call(f, a, b, plain)
    seen = np.zeros((batch, m, n), int)
    wrong = []

    def epilogue(ctx, member, row, row_end, col, col_end, whole, scratch):
        part = (member, slice(row, row_end), slice(col, col_end))
        seen[part] += 1
        if ctx != 99 or not scratch or c[part].tobytes() != plain[part].tobytes():
            wrong.append(part)
        c[part] = c[part] * 2

    pointer = EPILOGUE(epilogue)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    call(f, a, b, c, epilogue=address, ctx=99)
    assert (seen == 1).all()
    assert not wrong
    np.testing.assert_array_equal(c, plain * 2)


@pytest.mark.parametrize("offset", [0, 4, 16, 63])
def test_scratch_needs_no_alignment(offset):
    f = compiled("float32", levels()[-1])
    rng = np.random.default_rng(9)
    a, b = operand(rng, (1, 60, 300), "float32", True), operand(rng, (1, 300, 90), "float32", True)
    c = np.empty((1, 60, 90), "float32")
    call(f, a, b, c, offset=offset)
    check(c, a, b)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "int32"])
@pytest.mark.parametrize("n", [1, 6, 10, 20, 61])  # all but 1 leave a partial tile somewhere
def test_known_columns_give_the_same_bits(dtype, n, level):
    """Each sum once, also where registers overlap, and nothing outside: what the same columns are
    among others that fill whole tiles."""
    rng = np.random.default_rng(10)
    for (m, k), (ta, tb) in itertools.product([(30, 100), (9, 517)], TRANSPOSED):
        a, b = guarded((1, k, m) if ta else (1, m, k), dtype), guarded((1, k, n), dtype)
        a[...], b[...] = numbers(rng, a.shape, dtype), numbers(rng, b.shape, dtype)
        a = a.transpose(0, 2, 1) if ta else a
        b = b.transpose(0, 2, 1).copy().transpose(0, 2, 1) if tb else b
        results = []
        for columns in (None, n):
            c = guarded((1, m, n), dtype)
            call(compiled(dtype, level, columns=columns), a, b, c)
            results.append(c.tobytes())
        assert results[0] == results[1]
        check(c, a, b)
        if n > 1:  # one column alone is added up in another order
            whole = np.zeros((1, m, 64), dtype)
            call(compiled(dtype, level), a, np.pad(b, ((0, 0), (0, 0), (0, 64 - n))), whole)
            assert results[0] == whole[:, :, :n].tobytes()


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "bfloat16", "int8", "int64"])
def test_no_library_is_called(dtype, level):
    target = x86(level)
    code = assembly(text(dtype, target), target)
    called = set(re.findall(r"\bcallq?\s+([A-Za-z_]\w*)", code))
    assert {name for name in called if not name.startswith("graphc_")} == set()


@pytest.mark.parametrize(("level", "asking"), [
    ("v4", r"phi i64 \[%c_row, .*, \[%b_row, "), ("v3", r"select i1 %accumulate, i64 6, i64 0"),
])  # fmt: skip
def test_tiles_of_c_are_asked_for(level, asking):
    """By the first steps over k, where they have room for it, before them elsewhere; not while B,
    which may come from memory, is packed."""
    source, name = text("float64", x86(level)), "graphc_matmul_f64_strip_"
    for kind, count in ((r"(?:_partial)?\(i64 %strips", 1), (r"_keeping\(", 0)):
        (kernel,) = re.findall(rf"define internal void @{name}\d+{kind}.*?\n}}", source, re.DOTALL)
        assert len(re.findall(asking, kernel)) == count


@pytest.mark.parametrize(("level", "turns"), [("v4", []), ("v3", [48, 48, 24, 32, 32]), ("v2", [])])
def test_steps_beside_a_near_b_are_taken_together(level, turns):
    """Four of them ask for nothing, where there is no room for it: of 6 rows by 2 registers,
    whole ones and not, and 1, of 2 by 4, of 1 by 8."""
    source = text("float32", x86(level), ways=EVERY._replace(partial=level == "v3"))
    blocks = re.findall(r"^near\d+:\n((?:  .*\n)+)", source, re.MULTILINE)
    assert [b.count("@llvm.fma") for b in blocks] == turns
    assert not any("prefetch" in b for b in blocks)


@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "bfloat16"])
def test_scratch_suffices(dtype):
    most = 1 << 40
    assert product_scratch(as_dtype(dtype), most, most, most) <= SCRATCH_BYTES


@pytest.mark.parametrize(("columns", "kinds"), [
    ((300, 7, 1), {"block_stream", "dots"}), ((300, 7, "m", 1), {"block_dots_stream"}),
])  # fmt: skip
def test_products_of_a_program_that_one_can_serve_are_one(columns, kinds):
    """Kernels know more or less of their sizes; their results are those of kernels alone."""
    x = gx.input("x", ("n", 600))
    ws = [gx.input(f"w{k}", (600, n)) for k, n in enumerate(columns)]
    together = gx.function([x, *ws], [gx.tanh(x @ w) for w in ws])
    names = re.findall(r"define .*@graphc_matmul_f32_(\w+)_product\(", together.llvm_ir())
    ways = "|".join(f"_{way}" for way in Ways._fields)
    assert sorted(re.sub(ways, "", n) for n in names) == sorted(kinds)
    alone = [gx.function([x, w], gx.tanh(x @ w)) for w in ws]
    rng = np.random.default_rng(0)
    for rows in (1, 2, 61):
        a = rng.normal(size=(rows, 600)).astype("f4") / 9
        bs = [rng.normal(size=(600, 33 if n == "m" else n)).astype("f4") / 9 for n in columns]
        for got, f, b in zip(together(a, *bs), alone, bs, strict=True):
            np.testing.assert_array_equal(got, f(a, b))
            np.testing.assert_allclose(got, np.tanh(a @ b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_vector_may_lie_across_lines(dtype):
    """It is copied for many rows; the bits are those of one that begins a line."""
    a = gx.input("a", ("m", "k"), dtype)
    x = gx.input("x", ("k",), dtype)
    f = gx.function([a, x], a @ x)
    assert "ptrtoint ptr %x" in f.llvm_ir()
    rng, tolerance = np.random.default_rng(23), 1e-4 if dtype == "float32" else 1e-11
    for m, k in ((31, 70), (32, 1), (33, 200), (64, 4099), (100, 64)):
        rows, room = rng.normal(size=(m, k)).astype(dtype), np.empty(k + 64, dtype)
        start = -(room.ctypes.data // room.itemsize) % (64 // room.itemsize)
        found = []
        for offset in (0, 1, 5):
            vector = room[start + offset : start + offset + k]
            vector[:] = np.random.default_rng(k).normal(size=k)
            found.append(f(rows, vector).tobytes())
            np.testing.assert_allclose(
                f(rows, vector), rows.astype("f8") @ vector.astype("f8"),
                rtol=tolerance, atol=tolerance * 10,
            )
        assert found[0] == found[1] == found[2]
