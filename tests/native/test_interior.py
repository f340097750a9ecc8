"""The interior of rows: vectors between the bounds of conditions are computed without them."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gx
from graphc import dims
from graphc.codegen.emission import streaming
from graphc.codegen.nests.conditions import LONG, interior
from graphc.codegen.nests.lowering import lower

SIZES = (2, 3, 4, 7, 9, 16, 31, 33, 127, 128, 129, 255, 300, 1023, 1025, 2000)


def _last(x, low, high):
    return ((0, 0),) * (x.ndim - 1) + ((low, high),)


def smoothness(m, x):
    """The gradient of a sum over differences of neighbours: shifted and padded twice."""
    d = x[..., 1:] - x[..., :-1]
    weights = d * d if d.dtype.name.startswith("f") else d
    return m.pad(weights, _last(x, 1, 0)) - m.pad(weights, _last(x, 0, 1))


# What is put together along the last axis, by the functions of a module: ours or NumPy.
ROWS = {
    "smoothness": smoothness,
    "padded": lambda m, x: m.pad(x, _last(x, 3, 5), constant_values=7) * 2,
    "rolled": lambda m, x: m.roll(x, 2, axis=-1) + m.roll(x, -1, axis=-1) * 3,
    "appended": lambda m, x: m.concat([x[..., -1:], x, x[..., :1] * 2, x[..., :1]], axis=-1),
    "far": lambda m, x: m.pad(x, _last(x, 90, 0)) - m.pad(x, _last(x, 0, 90)),
    "reversed": lambda m, x: m.pad(m.flip(x, axis=-1), _last(x, 1, 1)) + m.pad(x, _last(x, 2, 0)),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_values_at_and_around_bounds(name, dtype, threads):
    """With named sizes, for which bounds may cross; and the same, bit by bit, with numbers."""
    rule = ROWS[name]
    line = gx.input("x", ("n",), dtype=dtype)
    rows = gx.input("x", ("m", "n"), dtype=dtype)
    f = gx.function([line], rule(gx, line), threads=threads)
    g = gx.function([rows], rule(gx, rows), threads=threads)
    rng = np.random.default_rng(0)
    for n in SIZES:
        a = rng.integers(0, 200, (3, n)).astype(dtype)
        want = rule(np, a)
        np.testing.assert_array_equal(f(a[1]), want[1], err_msg=f"{n}")
        np.testing.assert_array_equal(g(a), want, err_msg=f"{n}")
        if n in (129, 300, 2000):
            fixed = gx.input("x", a.shape, dtype=dtype)
            h = gx.function([fixed], rule(gx, fixed), threads=threads)
            np.testing.assert_array_equal(h(a), want)


@pytest.mark.parametrize("threads", [1, 2])
def test_ends_added(threads):
    """To the first and the last ninety elements something is added: conditions that do not hold
    in the interior, of rows where both ends may meet."""
    x, a, b = gx.input("x", ("n",)), gx.input("a", (90,)), gx.input("b", (90,))
    rest = x.shape[0] - 90
    first, last = gx.pad(a, (0, rest)) * 3, gx.pad(b, (rest, 0))
    both, one = (gx.function([x, a, b], y, threads=threads) for y in (x + first + last, x + last))
    u, v = np.arange(90, dtype="f4"), np.arange(90, dtype="f4") + 100
    for n in (90, 91, 100, 125, 179, 180, 181, 256, 700, 5000, 300000):
        w = np.arange(n, dtype="f4")
        begin, end = np.pad(u, (0, n - 90)) * 3, np.pad(v, (n - 90, 0))
        np.testing.assert_array_equal(both(w, u, v), w + begin + end, err_msg=f"{n}")
        np.testing.assert_array_equal(one(w, u, v), w + end, err_msg=f"{n}")


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_random_paddings(data):
    """Rows shifted and padded at random, that stores past the caches make longer or shorter."""
    ends = data.draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2,
                              max_size=4))
    longest = max(low + high for low, high in ends)
    ends = [(low, longest - low) for low, _ in ends]  # all of one length
    named = data.draw(st.booleans())
    n = data.draw(st.integers(1, 700))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int16"]))
    a = np.arange(2 * n).reshape(2, n).astype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHC_CACHE_DIR", "")
        if data.draw(st.booleans()):
            patch.setattr(streaming, "FEWER", 64)
            patch.setattr(streaming, "BYTES", 64)
        x = gx.input("x", ("m", "n") if named else a.shape, dtype=dtype)
        y = sum(gx.pad(x * (k + 2), ((0, 0), e)) for k, e in enumerate(ends))
        got = gx.function([x], y, threads=1)(a)
    want = sum(np.pad(a * np.array(k + 2, dtype), ((0, 0), e)) for k, e in enumerate(ends))
    np.testing.assert_array_equal(got, want)


def nest_of(out, *inputs):
    """The nest of a function of one kernel."""
    f = gx.function(list(inputs), out)
    (node,) = [n for n in f.optimized.nodes if n.op.name == "fused"]
    a = node.attrs
    return lower(a["body"], a["axes"], a["reduced"], a["outputs"])


def interior_of(out, *inputs):
    """The limits of the interior of a nest of rows of 1000, and what is so in it."""
    nest = nest_of(out, *inputs)
    found = interior(nest, nest.outer[-1])
    if found is None:
        return None
    low, high = ([dims.estimate(b, 1000) for b in ends] for ends in (found.low, found.high))
    return max(low, default=0), min(high, default=1000), sorted(found.decided.values())


@pytest.mark.parametrize("n", ["n", 1000])
def test_interior(n):
    """Most of a row, with everything decided there; not a half of it, nor a part of a short row."""
    x = gx.input("x", (n,))
    shifted = gx.pad(x[1:], (1, 0)) - gx.pad(x[:-1], (0, 1))
    assert interior_of(shifted, x) == (1, 999, [True, True])
    one = gx.input("y", (1,))
    assert interior_of(gx.pad(one, (0, x.shape[0] - 1)) + x, x, one) == (1, 1000, [False])
    rolled = gx.roll(x, 2) + x
    assert interior_of(rolled, x)[:2] == (2, 1000)
    assert interior_of(gx.concat([x, x * 2]), x) is None
    assert interior_of(x * 2, x) is None
    short = gx.input("x", (LONG - 1,))
    assert interior_of(gx.roll(short, 2) + short, short) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_no_conditions_inside(dtype):
    """Groups of vectors of long rows ask for nothing; what is left over asks in lanes of the
    data, not of positions, which would fill up to eight registers for one of them."""
    x = gx.input("x", ("m", "n"), dtype=dtype)
    f = gx.function([x], gx.pad(x[:, 1:], ((0, 0), (1, 0))) - gx.pad(x[:, :-1], ((0, 0), (0, 1))))
    text = f.llvm_ir()
    vector = {"float32": "float", "float64": "double", "uint8": "i8"}[dtype]
    blocks = re.split(r"\n(?=[\w.]+:)", text)
    groups = [b for b in blocks if b.count(f"x {vector}>, ptr") >= 8 and "sub" in b]
    assert groups and not any("masked" in b or "select <" in b for b in groups)
    compared = {int(t) for t in re.findall(r"icmp \w+ <\d+ x i(\d+)>", text)}
    assert compared == {"float32": {32}, "float64": {32, 64}, "uint8": {8}}[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_that_conditions_guard_is_read_once_for_all_lanes(dtype):
    """The gradient of a filter: 200,000 f32 and 32 weights took Zen 4 1,930 us by gathers, 302."""
    rng, n = np.random.default_rng(4), 1500
    d, h = rng.normal(size=n).astype(dtype), rng.normal(size=3).astype(dtype)

    def spread(m, d, h):
        terms = [m.pad(d * h[k], ((k, 2 - k),)) for k in range(3)]
        return terms[0] + terms[1] + terms[2]

    x, w = gx.input("x", (n,), dtype), gx.input("w", (3,), dtype)
    f = gx.function([x, w], spread(gx, x, w), name="f")
    np.testing.assert_array_equal(f(d, h), spread(np, d, h))
    assert "masked.gather" not in f.llvm_ir()
