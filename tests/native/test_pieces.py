"""Nests cut at their conditions: what is put together is computed once, part by part."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gx
from graphc import prim
from graphc.codegen.compile import compile_graph
from graphc.codegen.debug import full_title
from graphc.codegen.machine.target import x86
from graphc.codegen.nests import index_splitting
from graphc.codegen.nests.conditions import bounds
from graphc.codegen.nests.loops import Pred, axis

UNARY = {"exp": np.exp, "neg": np.negative, "none": lambda x: x}


def unary(name, x):
    return {"exp": gx.exp, "neg": lambda v: -v, "none": lambda v: v}[name](x)


def cuts(f):
    """How many functions the pieces of a compiled function are."""
    return sum(".p" in line and ".task" not in line
               for line in f.llvm_ir().splitlines() if line.startswith("define"))


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_random_assemblies(data):
    rows = data.draw(st.integers(1, 5))
    axis = data.draw(st.integers(0, 1))
    parts = data.draw(st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(sorted(UNARY)), st.integers(0, 3),
                  st.integers(0, 3)), min_size=1, max_size=5))
    rng = np.random.default_rng(0)
    arrays, inputs, ours, theirs = [], [], [], []
    for k, (n, op, low, high) in enumerate(parts):
        shape = (n, rows) if axis == 0 else (rows, n)
        arrays.append(rng.normal(size=shape).astype("f4"))
        inputs.append(gx.input(f"x{k}", shape))
        width = [(0, 0), (0, 0)]
        width[axis] = low, high
        ours.append(gx.pad(unary(op, inputs[-1]), tuple(width)))
        theirs.append(np.pad(UNARY[op](arrays[-1]), width))
    step = slice(None, None, data.draw(st.sampled_from([1, 1, 2, 3, -1, -2])))
    read = (slice(None),) * axis + (step,)
    f = gx.function(inputs, gx.concat(ours, axis=axis)[read] * 2.0)
    got = f(*arrays)
    np.testing.assert_allclose(got, np.concatenate(theirs, axis)[read] * np.float32(2), rtol=1e-6)
    again = gx.function(inputs, gx.concat(ours, axis=axis)[read] * 2.0, mode="interpret")(*arrays)
    np.testing.assert_array_max_ulp(got, again, 2)


@given(st.integers(-5, 5), *[st.integers(-40, 40)] * 3)
def test_bounds_of_conditions_in_any_steps(step, offset, low, size):
    p = Pred(axis("%i") * step + offset, low, low + abs(size))
    found = bounds(p, "%i")
    assert (found is None) == (step == 0)
    for i in range(-200, 200):
        if found is not None:
            assert (found[0] <= i < found[1]) == (p.lo <= step * i + offset < p.hi)


def test_bounds_of_named_dimensions():
    """Of rows read backwards, but not of every other element: n / 2 cannot be told from others."""
    n = gx.input("x", ("n",)).shape[0]
    assert bounds(Pred(axis("%i") * -1 + n, 0, 3), "%i") == (n - 2, n + 1)
    assert bounds(Pred(axis("%i") * 2, 0, n), "%i") is None
    assert bounds(Pred(axis("%i") * n, 0, 3), "%i") is None


def test_halves_of_halves_are_parts():
    """A Haar wavelet: steps 2 and 4 from element to element, one part for each quarter."""
    x = gx.input("x", (64, 256), "float64")
    y = x
    for _ in range(2):
        y = gx.concat([y[:, ::2] + y[:, 1::2], y[:, ::2] - y[:, 1::2]], axis=1)
    f = gx.function([x], y)
    a = want = np.random.default_rng(0).normal(size=(64, 256))
    for _ in range(2):
        even, odd = want[:, ::2], want[:, 1::2]
        want = np.concatenate([even + odd, even - odd], axis=1)
    np.testing.assert_array_equal(f(a), want)
    assert len(f.kernels) == 1 and cuts(f) == 4


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_stack_of_many(threads):
    xs = [gx.input(f"x{k}", ("n", 128)) for k in range(32)]
    f = gx.function(xs, gx.stack([gx.tanh(x) for x in xs], axis=0), threads=threads)
    arrays = [np.random.default_rng(k).normal(size=(300, 128)).astype("f4") for k in range(32)]
    got = f(*arrays)
    alone = gx.function(xs[:1], gx.tanh(xs[0]))
    for k, a in enumerate(arrays):
        np.testing.assert_array_equal(got[k], alone(a))
    assert cuts(f) == 32 and len(f.kernels) == 1


def test_in_place_and_two_axes():
    x, v = gx.input("x", (40, 40)), gx.variable(np.ones((42, 42), "f4"), "v")
    framed = gx.pad(gx.exp(x), ((1, 1), (1, 1)), constant_values=-1.0) + v
    f = gx.function([x], [], updates=[(v, framed)])
    a = np.random.default_rng(0).normal(size=(40, 40)).astype("f4")
    expected = np.pad(np.exp(a), 1, constant_values=-1.0) + 1
    f(a)
    np.testing.assert_allclose(f.state["v"], expected, rtol=1e-6)
    assert cuts(f) == 5, "above, below, left, right, and what is framed"


def test_too_many_pieces_are_not_made(monkeypatch):
    """Each would take as long as the whole nest."""
    made = []
    nest = index_splitting.Piece.nest
    monkeypatch.setattr(
        index_splitting.Piece, "nest", lambda piece: made.append(piece) or nest(piece)
    )
    x = gx.input("x", ("n", 64))
    parts = [gx.tanh(x) * float(k) for k in range(index_splitting.MOST + 1)]
    f = gx.function([x], gx.concat(parts, axis=1))
    a = np.random.default_rng(0).normal(size=(3, 64)).astype("f4")
    got = f(a).reshape(3, -1, 64)
    np.testing.assert_allclose(got[:, 7], np.tanh(a) * 7, rtol=1e-6)
    np.testing.assert_allclose(got[:, -1], np.tanh(a) * index_splitting.MOST, rtol=1e-6)
    assert not made and cuts(f) == 0


def test_deep_conditions_end_in_memory():
    """The code of a chain of moves grows with their number, not with its square."""
    a, sizes = np.random.default_rng(0).normal(size=(3, 5)).astype("f4"), []
    for moves in (60, 240):
        x = gx.input("x", ("n", "m"))
        y, want = x, a
        for _ in range(moves):
            y = gx.flip(gx.concat([y, x[:, :1]], axis=1) * 0.5, axis=1)
            want = np.concatenate([want, a[:, :1]], axis=1)[:, ::-1] * np.float32(0.5)
        f = gx.function([x], y)
        np.testing.assert_array_equal(f(a), want)
        sizes.append(sum(len(k.text) for k in f.kernels))
    assert sizes[1] < 6 * sizes[0], "4 times as many moves"


def test_left_whole():
    x, i = gx.input("x", (8, 64)), gx.input("i", (8,), "int64")
    for out in (
        gx.sum(gx.concat([x, gx.exp(x)], axis=1), axis=1),          # a reduction's operand
        gx.pad(x[0:1], ((0, 1), (0, 0)))[i],                        # an index that may be wrong
        gx.exp(x) + 1.0,
    ):
        assert cuts(gx.function([x, i], out)) == 0


@pytest.mark.parametrize("dtype, columns, count", [
    ("float32", 16, 0), ("float64", 16, 0), ("uint8", 99, 2), ("float32", 500, 2),
])
def test_rows_of_few_vectors_are_cut_where_that_leaves_fewer(dtype, columns, count, monkeypatch):
    """Three columns apart are gathered, and the others fill no fewer vectors than before."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", columns), dtype)
    f = gx.function([x], gx.roll(x * x, 3, axis=1) + x)
    a = np.arange(7 * columns).reshape(7, columns).astype(dtype)
    np.testing.assert_array_equal(f(a), np.roll(a * a, 3, axis=1) + a)
    assert cuts(f) == count


def test_parts_are_named_after_their_kernel():
    title = "f.k0[exp,concat]"
    for symbol, expected in (
        ("f.k0", title), ("f.k0.task", f"{title}.task"), ("f.k0.p1.task", f"{title}.p1.task"),
        ("f", "f"), ("graphc_matmul", "graphc_matmul"),
    ):
        assert full_title(symbol, {"f.k0": title}) == expected


def test_cuts_between_named_dimensions():
    """Parts of unknown length, none of which need have elements, and shifts that wrap around."""
    x, y, a, b = (gx.input(name, shape) for name, shape in (
        ("x", ("n",)), ("y", ("m",)), ("a", ("n", "m")), ("b", ("k", "m"))))
    flat = gx.function([x, y], gx.concat([x, gx.exp(y), x]))
    rolled = gx.function([x], gx.roll(x, 5))
    rows = gx.function([a, b], gx.concat([a, b, -a]))
    turned = gx.function([a], gx.roll(a, (3, -1), axis=(0, 1)))
    framed = gx.function([a], gx.pad(a, ((1, 2), (2, 1)), constant_values=7))
    assert [cuts(f) for f in (flat, rolled, rows, turned, framed)] == [3, 2, 3, 2, 3]
    for n, m, k in ((0, 0, 0), (1, 0, 2), (0, 1, 1), (1, 1, 1), (2, 3, 0), (5, 6, 9), (70, 41, 33)):
        one, two, other = (
            np.random.default_rng(n).normal(size=s).astype("f4") for s in ((n, m), (k, m), n))
        c = np.arange(m, dtype="f4") / 64
        np.testing.assert_allclose(flat(other, c), np.concatenate([other, np.exp(c), other]), 1e-6)
        np.testing.assert_array_equal(rolled(other), np.roll(other, 5))
        np.testing.assert_array_equal(rows(one, two), np.concatenate([one, two, -one]))
        np.testing.assert_array_equal(turned(one), np.roll(one, (3, -1), (0, 1)))
        np.testing.assert_array_equal(
            framed(one), np.pad(one, ((1, 2), (2, 1)), constant_values=7))


def test_rows_of_unknown_length_stay_whole():
    """Rows of three and one elements took nearly twice as long in parts."""
    x, y = gx.input("x", ("n", "m")), gx.input("y", ("n", "k"))
    f = gx.function([x, y], gx.concat([x, y], axis=1))
    for level in ("v3", "v4"):
        text = compile_graph(f.optimized, x86(level)).llvm
        assert not re.search(r"^define.*k0\.p\d", text, re.M)


def parts(f):
    """How many parts of rows a compiled function has a version in."""
    return sum(".parts.of" in line for line in f.llvm_ir().splitlines()
               if line.startswith("define"))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_rows_of_unknown_length_have_a_version_in_parts(dtype, threads):
    """Where each vector would compute many conditions: eight parts of 1000 x 16 f32 took 144 us
    whole, 66 in parts; two of 1000 x 64 bytes 36 and 9. Short rows go whole, by the same kernel."""
    count = 2 if dtype == "uint8" else 5
    xs = [gx.input(f"x{k}", ("n", f"m{k}"), dtype=dtype) for k in range(count)]
    beside = gx.function(xs, gx.concat(xs, axis=1), threads=threads)
    both = gx.concat([gx.concat(xs, axis=1), -gx.concat(xs, axis=1)], axis=0)
    above = gx.function(xs, both, threads=threads)
    assert parts(beside) == count and parts(above) == 2 * count
    for n, lengths in (
        (3, (1, 2, 0, 3, 1)), (0, (20, 30, 40, 50, 60)), (5, (0, 0, 0, 0, 0)),
        (1, (0, 40, 0, 0, 1)), (7, (33, 0, 64, 1, 500)), (300, (70, 70, 1, 80, 17)),
        (3, (4096, 4097, 0, 10000, 5)),
    ):
        arrays = [np.random.default_rng(k).integers(0, 99, (n, m)).astype(dtype)
                  for k, m in enumerate(lengths[:count])]
        want = np.concatenate(arrays, 1)
        np.testing.assert_array_equal(beside(*arrays), want)
        np.testing.assert_array_equal(above(*arrays), np.concatenate([want, -want]))


@pytest.mark.parametrize("dtype, level, count", [
    ("int16", "v3", 2), ("float32", "v3", 2), ("float64", "v3", 2), ("float32", "v4", 2),
    ("float64", "v4", 2), ("int8", "v4", 2),
])
def test_two_parts_pay(dtype, level, count):
    """Rows of 100 x 1003 beside their doubles took a Zen 3 194 us of 16 bits, in parts 16, and a
    Zen 4, which masks lanes, of f32 33 and 16. An interior has no conditions to ask for."""
    x = gx.input("x", ("n", "m"), dtype)
    f = gx.function([x], gx.concat([x, x * 2], axis=1))
    rolled = gx.function([x], gx.roll(x, 1, axis=1) * 2)
    here = x86(level)
    texts = [compile_graph(g.optimized, here).llvm for g in (f, rolled)]
    assert [len(re.findall(r"^define.*\.parts\.of", t, re.M)) for t in texts] == [
        count, count if dtype == "int16" else 0]
    for n, m in ((3, 0), (3, 1), (5, 40), (7, 70), (300, 33), (2, 4097)):
        a = np.random.default_rng(m).integers(-99, 99, (n, m)).astype(dtype)
        np.testing.assert_array_equal(f(a), np.concatenate([a, a * 2], 1))
        np.testing.assert_array_equal(rolled(a), np.roll(a, 1, 1) * 2)


@pytest.mark.parametrize("count", [65, 150])
def test_more_parts_than_pieces(count):
    """What a loop of many steps collects: a stack of 99 rows took 43 us whole, 2 in pieces."""
    xs = [gx.input(f"x{k}", (32,)) for k in range(count)]
    arrays = [np.arange(32, dtype="f4") * k - 7 for k in range(count)]
    rows = gx.function(xs, gx.stack([x * 2 for x in xs]))
    columns = gx.function(xs, gx.stack(xs, axis=1))
    ends = gx.function(xs, gx.concat([x[: k % 5 + 28] for k, x in enumerate(xs)] + [-xs[0]]))
    assert 1 < cuts(rows) <= index_splitting.MOST and 1 < cuts(ends) <= index_splitting.MOST
    np.testing.assert_array_equal(rows(*arrays), np.stack(arrays) * 2)
    np.testing.assert_array_equal(columns(*arrays), np.stack(arrays, axis=1))
    np.testing.assert_array_equal(
        ends(*arrays),
        np.concatenate([a[: k % 5 + 28] for k, a in enumerate(arrays)] + [-arrays[0]]))


def test_many_parts_whose_ends_may_be_in_any_order():
    """Where a piece is of several parts, the one that comes later in most calls may come first."""
    x, v = gx.input("x", ("n",)), gx.input("v", (70,))
    joined = gx.concat([x, *(v[k : k + 1] * float(k) for k in range(70))])
    f = gx.function([x, v], joined - gx.concat([v[:3], x, v[3:]]))
    assert 1 < cuts(f) <= index_splitting.MOST
    b = np.arange(70, dtype="f4") + 1
    for n in (0, 1, 2, 3, 4, 70, 300):
        a = -np.arange(n, dtype="f4")
        want = np.concatenate([a, b * np.arange(70, dtype="f4")])
        want -= np.concatenate([b[:3], a, b[3:]])
        np.testing.assert_array_equal(f(a, b), want, err_msg=f"{n}")


def test_many_parts_are_put_in_order_without_looking_at_all_of_them(monkeypatch):
    """A thousand numbers stacked were compared half a million times."""
    compared = []
    ordered = index_splitting._ordered
    monkeypatch.setattr(
        index_splitting, "_ordered", lambda a, b: compared.append(a) or ordered(a, b)
    )
    x = gx.input("x", (400, 3))
    f = gx.function([x], gx.stack([x[k] * float(k) for k in range(400)]))
    assert "define" in f.llvm_ir() and 400 < len(compared) < 40 * 400
    a = np.arange(1200, dtype="f4").reshape(400, 3)
    np.testing.assert_array_equal(f(a), a * np.arange(400, dtype="f4")[:, None])


def test_what_is_chosen_among_is_not_alive_at_once():
    """LLVM took more than a minute for 250 updates of one vector, all of which waited for a place
    in registers until the last was computed."""
    n = 24
    xs = [gx.input(f"x{k}", ("n", f"m{k}")) for k in range(n)]
    f = gx.function(xs, gx.concat([gx.exp(v) for v in xs], axis=1))
    task = f.llvm_ir().partition(".task(")[2].partition("\n}")[0]
    seen = {}
    for at, line in enumerate(task.splitlines()):
        for name in re.findall(r"%t\d+", line):
            seen.setdefault(name, []).append(at)
    lives = [(seen[v][0], seen[v][-1]) for v in {*re.findall(r"x float> (%t\d+)", task)}]
    assert len(lives) > 10 * n
    assert max(sum(low <= at < high for low, high in lives) for at, _ in lives) < n / 2
    a = [np.full((5, 3), k / n, "f4") for k in range(n)]
    np.testing.assert_allclose(f(*a), np.exp(np.concatenate(a, axis=1)), rtol=1e-6)


def test_updates_are_made_in_their_order():
    x, y = gx.input("x", (5000,)), gx.input("y", (9,))
    z = x
    for k in range(3):
        z = z.at[k].set(gx.exp(y[k]))
    f = gx.function([x, y], z)
    assert re.findall(r" (exp|select) ", f.kernels[0].text) == ["exp", "select"] * 3
    a, b = np.arange(5000, dtype="f4"), np.arange(9, dtype="f4")
    np.testing.assert_allclose(f(a, b), [*np.exp(b[:3]), *a[3:]], rtol=1e-6)


NINE = [(i, j) for i in range(3) for j in range(3)]
SEVEN = [(1, 1, 1), (0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2)]


@pytest.mark.parametrize("shape, stencil, count", [
    ((40, 18, 18), NINE, 25),   # edges beside 16 rows between them
    ((9, 40, 40), NINE, 9),     # the sides of grids stay whole, ..
    ((40, 40, 40), SEVEN, 13),  # .. and with them cut there would be too many pieces
])
def test_sides_of_grids_are_not_cut_again(shape, stencil, count, monkeypatch):
    """Of the gradient of weighted neighbours, a sum of paddings, in the last axes of a grid."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    n, ndim = shape[-1] - 2, len(stencil[0])
    around = [(..., *(slice(p, p + n) for p in place)) for place in stencil]
    x, g = gx.input("x", shape), gx.input("g", (*shape[: len(shape) - ndim], *[n] * ndim))
    f = gx.function([x, g], gx.vjp(sum(x[at] * float(w) for w, at in enumerate(around, 1)), x, g))
    assert cuts(f) == count
    rng = np.random.default_rng(len(shape))
    a, b = (rng.integers(-9, 10, v.shape).astype("f4") for v in (x, g))
    want = np.zeros(shape)
    for w, at in enumerate(around, 1):
        want[at] += w * b
    np.testing.assert_array_equal(f(a, b), want)


@pytest.mark.parametrize("interior", [(0, 0), (1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize(("low", "high"), [((0, 1), (2, 0)), ((1, 0), (2, 1)), ((-1, 2), (3, -1))])
@pytest.mark.parametrize("what", [gx.sum, gx.prod, gx.max])
def test_dilated_rows_are_reduced_across(what, low, high, interior):
    """Written out, and unrolled: what varies in one piece of a row may be a number in another."""
    x, v = gx.input("x", (3, "n")), gx.input("v", ())
    y = what(prim.pad(x, v, low, high, interior), axis=0)
    f, reference = gx.function([x, v], y), gx.function([x, v], y, mode="interpret")
    for n in (2, 3, 16, 33, 65):
        a = np.random.default_rng(n).normal(size=(3, n)).astype("f4")
        np.testing.assert_allclose(f(a, 0.3), reference(a, 0.3), rtol=1e-5, atol=1e-6)
