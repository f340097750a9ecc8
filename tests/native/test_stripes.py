"""Reductions down long columns, many of them side by side."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.aligned import LINE
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import pieces
from graphc.codegen.machine import jit, target

RNG = np.random.default_rng(12)
ROWS = (1, 256, 513, 700)
COLUMNS = (1, 40, 255, 257, 300, 4101)


def outputs(x):
    centred = x - gx.mean(x, axis=0)
    return [
        gx.sum(x, axis=0), gx.max(x, axis=0), gx.argmax(x, axis=0), gx.var(x, axis=0),
        centred / gx.sqrt(gx.mean(centred * centred, axis=0) + 1),
    ]


def expected(a):
    w = a.astype(np.float64)
    centred = w - w.mean(axis=0)
    return [
        w.sum(axis=0), w.max(axis=0), w.argmax(axis=0), w.var(axis=0),
        centred / np.sqrt((centred * centred).mean(axis=0) + 1),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_columns_of_any_number_and_length(dtype):
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], outputs(x))
    tolerance = 0.01 if dtype == "float16" else 2e-5
    for n in ROWS:
        for m in COLUMNS:
            a = (RNG.normal(size=(n, m)) + 0.5).astype(dtype)
            for got, want in zip(f(a), expected(a), strict=True):
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("what", [gx.sum, gx.max, gx.var, gx.nn.softmax])
@pytest.mark.parametrize("shape", [("n", "m"), ("n", 300), (700, 300)])
def test_rows_go_one_by_one_where_memory_is_read_in_order(what, shape, monkeypatch):
    """With the bits of strips, by which go those that are long, or few."""
    for name, value in (("FAR_BYTES", 400_000), ("CORE_BYTES", 200_000), ("ROW_BYTES", 2800)):
        monkeypatch.setattr(pieces, name, value)
    results, texts = [], []
    for core in (target.ZEN4, ""):
        here = target.host()._replace(core=core)
        with monkeypatch.context() as patch:
            patch.setattr(target, "host", lambda here=here: here)
            x = gx.input("x", shape)
            f = gx.function([x], what(x, axis=0)).compile()
        rng = np.random.default_rng(5)
        sizes = [(700, 300), (20, 300), (700, 299), (203, 611), (1, 1), (0, 300)]
        sizes = [s for s in sizes if all(d in (s[k], "n", "m") for k, d in enumerate(shape))]
        if what in (gx.max, gx.nn.softmax):  # of no rows there is none
            sizes = [s for s in sizes if s[0]]
        results.append([f(rng.normal(size=s).astype("float32")).tobytes() for s in sizes])
        texts.append(f.llvm_ir())
    assert len(results[0]) > 0 and results[0] == results[1]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(("rows", "columns", "shared"), [
    (100_000, 256, False), (100_000, 1024, True), (15_000, 256, True), ("n", 256, True),
])  # fmt: skip
@pytest.mark.parametrize("what", [gx.sum, gx.var])
def test_far_short_rows_are_for_one_thread_where_memory_is_read_in_order(
    rows, columns, shared, what
):
    """Parts of them are no stream; where their number comes with the call, so does that."""
    graph = gx.function([x := gx.input("x", (rows, columns))], what(x, axis=0)).optimized
    for core, parallel in ((target.ZEN4, shared), ("", True)):
        assert compile_graph(graph, target.x86("v4")._replace(core=core)).parallel == parallel


@pytest.mark.parametrize("again", ["max", "sum", "prod", "cumsum"])
def test_what_was_reduced_is_reduced_once_more(again):
    """The columns' results themselves, as often as there are rows."""
    x = gx.input("x", ("n", "m"))
    top = gx.broadcast_to(gx.max(x, axis=0), x.shape)
    f = gx.function([x], getattr(gx, again)(top, axis=0))
    for n in ROWS:
        for m in COLUMNS[:-1]:
            a = RNG.integers(-2, 3, (n, m)).astype("float32") / 2
            want = getattr(np, again)(np.broadcast_to(a.max(axis=0), (n, m)), axis=0)
            np.testing.assert_array_equal(f(a), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_few_columns_have_the_bits_of_these_among_others(dtype):
    """Few columns of known number are walked one group after the other."""
    a = RNG.normal(size=(1000, 300)).astype(dtype)
    x = gx.input("x", ("n", "m"), dtype)
    many = gx.function([x], outputs(x))(a)
    for m in (3, 40):
        few = gx.input("x", ("n", m), dtype)
        for got, want in zip(gx.function([few], outputs(few))(a[:, :m]), many, strict=True):
            assert got.tobytes() == np.ascontiguousarray(want[..., :m]).tobytes()


def beginning(a: np.ndarray, behind: int) -> np.ndarray:
    """A copy that begins so many bytes behind a line, NaN around it."""
    room = np.full(a.nbytes // 8 + 32, np.nan).view(np.uint8)
    start = -room.ctypes.data % LINE + LINE + behind
    copy = room[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    copy[...] = a
    return copy


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("named", [True, False])
def test_columns_of_arrays_that_begin_anywhere_in_a_line(named, dtype):
    """The bits of the same columns where lines begin; both operands may begin alike, or not."""
    def made(rows, columns):
        x, y = (gx.input(n, (rows, columns), dtype) for n in "xy")
        outs = [gx.sum(x, axis=0), gx.max(x * y, axis=0), gx.argmax(y, axis=0)]
        if dtype != "int32":
            outs += [gx.var(x, axis=0), gx.sum(x - y, axis=0), gx.logsumexp(y, axis=0)]
        return gx.function([x, y], outs)

    f = made("n", "m")
    size = np.dtype(dtype).itemsize
    for rows, columns in [
        (300, 5), (50, 16), (300, 17), (40, 160), (270, 256), (33, 320), (21, 1000), (9, 4176),
    ]:
        g = f if named else made(rows, columns)
        a, b = ((5 * RNG.normal(size=(rows, columns))).astype(dtype) for _ in "ab")
        want = g(beginning(a, 0), beginning(b, 0))
        np.testing.assert_allclose(want[0], a.sum(0), rtol=2e-2 if size == 2 else 1e-4, atol=0.5)
        for first, second in [(size, size), (16, 16), (16, 48), (LINE - size, 0)]:
            got = g(beginning(a, first), beginning(b, second))
            for p, q in zip(got, want, strict=True):
                assert p.tobytes() == q.tobytes(), (rows, columns, first, second)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_beside_the_columns_is_touched(at_end, dtype):
    """Of arrays that begin, or end, with a page beside which there is none."""
    x, y = gx.input("x", ("n", "m"), dtype), gx.input("y", ("m",), dtype)
    f = gx.function([x, y], [gx.sum(x * y, axis=0), gx.max(x, axis=0), gx.argmax(x, axis=0)])
    for n, m in itertools.product((1, 5, 300), (1, 15, 16, 17, 33, 48, 64, 65, 100, 300)):
        a, b = guarded((n, m), dtype, at_end), guarded((m,), dtype, at_end)
        a[...], b[...] = RNG.integers(-4, 5, (n, m)), RNG.integers(-4, 5, m)
        wide = np.promote_types(dtype, "int64")
        for got, want in zip(f(a, b), (
            (a * b).sum(0, wide), a.max(0), a.argmax(0)), strict=True,
        ):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_short_columns_have_the_bits_of_these_at_any_distance(dtype):
    """Rows an even distance apart are walked along."""
    for n in (4, 16, 17, 300, 512):
        a = RNG.normal(size=(n, 1024)).astype(dtype)
        found = []
        for m in (1024, 1000):
            x = gx.input("x", (n, m), dtype)
            f = gx.function([x], [*outputs(x), gx.sum(gx.exp(x), axis=0), gx.nn.softmax(x, 0)])
            found.append(f(np.ascontiguousarray(a[:, :m])))
        tolerance = 0.01 if dtype == "float16" else 2e-5
        for got, want in zip(found[0], expected(a), strict=False):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        for even, odd in zip(*found, strict=True):
            assert np.ascontiguousarray(even[..., :1000]).tobytes() == odd.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("what", [gx.sum, gx.max, gx.argmax])
def test_a_vector_of_columns_is_added_up_in_blocks_side_by_side(what, dtype):
    """One chain of sums would wait for each of them; the order of each block's is as ever. Rows of
    greatest elements of floats are merged first."""
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], what(x, axis=0))
    chains = re.findall(r"((?:  %loop\S+ = phi <\d+ x \w+> .*\n)+)", f.llvm_ir())
    merged = what is gx.max and dtype != "int8"
    assert (max(c.count("phi") for c in chains) >= 4) == (not merged)
    for n in (1, 300, 1023, 1024, 1025, 2600):
        a = (RNG.normal(size=(n, 70)) * 30).astype(dtype)
        many = f(a)
        for m in (1, 3, 8, 9, 16, 17, 32):
            got = f(np.ascontiguousarray(a[:, :m]))
            assert got.tobytes() == many[:m].tobytes()


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_narrow_columns_with_many_states(dtype):
    """Of narrow elements, what stands in memory for a piece is less than a piece's few lines."""
    x = gx.input("x", ("n", "m"), dtype)
    y = x - gx.max(x, axis=0)
    f = gx.function([x], [
        gx.argmax(y, axis=0) > 3, gx.argmax(-y, axis=0) > 300, gx.argmax(y * 3, axis=0) > 30,
        gx.max(y, axis=0), gx.min(y * 3, axis=0),
    ])
    for n, m in ((300, 2001), (400, 3001), (1, 2000)):
        a = RNG.integers(-20, 20, size=(n, m)).astype(dtype)
        b = a - a.max(axis=0)
        wanted = (
            b.argmax(axis=0) > 3, (-b).argmax(axis=0) > 300, (b * 3).argmax(axis=0) > 30,
            b.max(axis=0), (b * 3).min(axis=0),
        )
        for got, want in zip(f(a), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_pieces_whose_elements_are_stored_stay_in_the_nearest_cache():
    """Their stores stand where loads seem to: softmax of 1000 x 1000 took three times as long."""
    x = gx.input("x", ("n", "m"))
    for y, cached in ((gx.var(x, axis=0), pieces.CACHED_BYTES),
                      (gx.nn.softmax(x, axis=0), pieces.NEAR_BYTES)):
        shares = re.findall(r"= udiv i64 (\d{5,}), %", gx.function([x], y).llvm_ir())
        assert set(shares) == {str(cached)}


@pytest.mark.parametrize("m", [256, 257])
def test_columns_that_no_cache_holds(m):
    """Rows too many, or at the distance of pages, for pieces of them to be kept between sweeps."""
    a = (RNG.normal(size=(2100, m)) + 0.5).astype("float32")
    x = gx.input("x", ("n", "m"))
    for got, want in zip(gx.function([x], outputs(x))(a), expected(a), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_no_rows():
    x = gx.input("x", ("n", 300))
    f = gx.function([x], [gx.sum(x * x, axis=0), gx.prod(x, axis=0), gx.mean(x, axis=0)])
    for got, want in zip(f(np.empty((0, 300), "float32")), (0, 1, np.nan), strict=True):
        np.testing.assert_array_equal(got, np.full(300, want, "float32"))


def test_several_reductions_at_once_and_integers():
    x, y = gx.input("x", ("n", 300), "int32"), gx.input("y", ("n", 300), "int32")
    f = gx.function([x, y], [gx.sum(x * y, axis=0), gx.min(x, axis=0), gx.argmax(y, axis=0)])
    a, b = (RNG.integers(-50, 50, (900, 300), "int32") for _ in range(2))
    for got, want in zip(f(a, b), [(a * b).sum(0), a.min(0), b.argmax(0)], strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("m", [300, "m"])
def test_a_kept_axis_of_size_1_costs_no_division(m):
    """(m,) -> (1, m) -> (m,) between the sweeps: rows are read as they stand, not gathered."""
    x = gx.input("x", ("n", m))
    (kernel,) = gx.function([x], gx.var(x, axis=0)).kernels
    assert kernel.text.count("in0[") == 1
    assert "mod(" not in kernel.text and "floordiv(" not in kernel.text


@pytest.fixture
def four_threads():
    before = jit.threads()
    jit.set_threads(4)
    yield
    jit.set_threads(before)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("m", [127, 128, 129, 385, 1000, 4099])
def test_threads_share_columns(m):
    a = (RNG.normal(size=(2600, m)) + 0.5).astype("float32")
    for size in (m, "m"):
        x = gx.input("x", (len(a), size))
        runs = [gx.function([x], outputs(x), threads=t)(a) for t in (1, 2, 3, 4)]
        for got, want in zip(runs[3], expected(a), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        for run in runs[:3]:
            assert all(p.tobytes() == q.tobytes() for p, q in zip(run, runs[3], strict=True))


def test_states_stand_half_a_page_from_the_rows():
    """Wherever the rows begin: results are the same, and an argument's place is looked at."""
    x = gx.input("x", ("n", 512), "float32")
    centred = x - gx.mean(x, axis=0)
    f = gx.function([x], [gx.sum(x, axis=0), gx.mean(centred * centred, axis=0)])
    text = f.llvm_ir()
    cells = re.findall(r"%(slot\d+) = alloca { \[\d+ x float\], \[4096 x i8\] }", text)
    moved = re.findall(
        r"ptrtoint ptr %(slot\d+) to i64\n.* = sub i64 .*\n.* = add i64 .*, 2048\n"
        r".* = and i64 .*, 4032\n", text,
    )
    assert set(cells) == set(moved)
    assert len(cells) >= 3  # of both sweeps
    values = RNG.normal(size=(300, 512)).astype("float32")
    room = np.empty(300 * 512 + 1024, "float32")
    found = set()
    for begin in range(0, 1024, 47):
        a = room[begin : begin + values.size].reshape(values.shape)
        a[...] = values
        found.add(b"".join(y.tobytes() for y in f(a)))
    assert len(found) == 1
