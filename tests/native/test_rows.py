"""Every row of the op table as native code, against its NumPy reference.

Per dtype all rows of a kind are outputs of one function, called with every pair of special values
and at several sizes. Arithmetic, comparisons and layout must give the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import native_graphs as ng
import numpy as np
import pytest
from native_reference import MATH, eps

import graphc as gx
from graphc import interpret, ir, prim
from graphc.dims import dim
from graphc.errors import DTypeError
from graphc.ops import Kind
from graphc.types import DTYPES, TensorType, bool_, f32, f64, i8, i32, u8, u32

n, m = dim("n"), dim("m")
SIZES = (0, 1, 7, 33)
# Greatest distance to the reference, in steps of the dtype: the reference's own error included.
ULPS = {"exp": 2, "log": 2, "erf": 3, "tanh": 3, "sin": 2, "cos": 2}
SEEN: dict[str, None] = {}

ELEMENTWISE = {
    name: row for name, row in ng.OWN.items()
    if row.kind is Kind.ELEMENTWISE and name not in ("cast", "bitcast", "polygamma", "select")
}  # fmt: skip
# Operands: x of the dtype, i indices below 4, s a scalar of the dtype; then attributes.
SHAPED: list[tuple[str, str, list[tuple[Any, ...]], dict[str, Any]]] = [
    ("reshape", "x", [(n, 4, 6)], {"shape": (2 * n, 12), "checked": False}),
    ("reshape", "x", [(n, 12)], {"shape": (3, 4 * n), "checked": True}),
    ("transpose", "x", [(n, 5, 3)], {"perm": (2, 0, 1)}),
    ("transpose", "x", [(n, m)], {"perm": (1, 0)}),
    ("broadcast", "x", [(n,)], {"shape": (3, n, m), "axes": (1,)}),
    ("broadcast", "x", [()], {"shape": (n, 2), "axes": ()}),
    ("slice", "x", [(n, 37)], {"start": (0, 3), "stop": (n, 36), "step": (2, 3)}),
    ("slice", "x", [(37, n)], {"start": (5, 0), "stop": (5, n), "step": (1, 1)}),
    ("update_slice", "xx", [(n, 37), (n, 20)], {"start": (0, 9)}),
    ("update_slice", "xx", [(40,), (0,)], {"start": (7,)}),
    ("pad", "xs", [(n, 5), ()], {"low": (1, -2), "high": (2, 3), "interior": (2, 1)}),
    ("pad", "xs", [(n,), ()], {"low": (0,), "high": (70,), "interior": (0,)}),
    ("concat", "xxx", [(n, 5), (2, 5), (m, 5)], {"axis": 0}),
    ("concat", "xx", [(n, 5), (n, 33)], {"axis": 1}),
    ("reverse", "x", [(n, 35)], {"axes": (0, 1)}),
    ("reverse", "x", [(3, n)], {"axes": (1,)}),
    ("gather", "xi", [(4, n), (m,)], {"axis": 0, "batch": 0, "negative": True}),
    ("gather", "xi", [(n, 4, 3), (n, 5)], {"axis": 1, "batch": 1, "negative": False}),
    ("gather", "xi", [(n, 4), (n,)], {"axis": 1, "batch": 1, "negative": False}),
    ("scatter", "xix", [(4, n), (3,), (3, n)], {"axis": 0, "batch": 0, "negative": True}),
    ("scatter", "xix", [(n, 4), (n,), (n,)], {"axis": 1, "batch": 1, "negative": False}),
    ("argmax", "x", [(n, 35)], {"axis": 1}),
    ("argmax", "x", [(35, n)], {"axis": 0}),
    *[(op, "x", shape, {"axes": axes})
      for op in ("reduce_max", "reduce_min")
      for shape, axes in (([(n, 67)], (1,)), ([(3, n, 5)], (0, 2)), ([(9, 1, n)], (0, 1)))],
    *[("cummax", "x", [(n, 5)], {"axis": axis, "reverse": bool(axis)}) for axis in (0, 1)],
]  # fmt: skip
# Sums of numbers near 1: rounded differently, within a bound.
SUMMED = [
    *[(op, "x", shape, {"axes": axes})
      for op in ("reduce_sum", "reduce_prod")
      for shape, axes in (([(n, 67)], (1,)), ([(3, n, 5)], (0, 2)), ([(n, m)], (0, 1)),
                          ([(n,)], (0,)), ([(n, 0)], (1,)), ([(n, m)], (0,)))],
    *[(op, "x", [(n, 5)], {"axis": axis, "reverse": bool(axis)})
      for op in ("cumsum", "cumprod") for axis in (0, 1)],
    *[("linear_recurrence", "xx", [(n, 5)] * 2, {"axis": axis, "reverse": bool(axis)})
      for axis in (0, 1)],
    ("scatter_add", "xix", [(4, n), (9,), (9, n)], {"axis": 0, "batch": 0, "negative": True}),
    ("scatter_add", "xix", [(n, 4), (n,), (n,)], {"axis": 1, "batch": 1, "negative": False}),
    ("dot", "xx", [(n, 19), (19, m)], {"contract": ((1,), (0,)), "batch": ((), ())}),
    ("dot", "xx", [(n, 3, 4), (4, n, 5)], {"contract": ((2,), (0,)), "batch": ((0,), (1,))}),
    ("dot", "xx", [(n,), (n,)], {"contract": ((0,), (0,)), "batch": ((), ())}),
    ("dot", "xx", [(n,), (m,)], {"contract": ((), ()), "batch": ((), ())}),
    ("dot", "xx", [(2, n), (3, n)], {"contract": ((1,), (1,)), "batch": ((), ())}),
]  # fmt: skip


@cache
def specials(d):
    if d is bool_:
        return np.array([False, True])
    if d.is_int:
        info = np.iinfo(d.numpy)
        near = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, d.bits, 100]
        return np.array([v for v in [*near, -1, -2, -7] if info.min <= v <= info.max], d.numpy)
    info = {"f64": np.finfo("f8"), "f32": np.finfo("f4"), "f16": np.finfo("f2")}.get(d.name)
    edge = [info.max, info.tiny, info.smallest_subnormal, info.eps] if info else [1e38, 1e-38]
    some = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 0.1, 1e4, np.inf, *map(float, edge)]
    return np.array([*some, *(-v for v in some), np.nan]).astype(d.numpy)


def data(d, shape, rng, calm=False):
    """Special values and ordinary ones; calm: ordinary ones near 1, or small integers."""
    count = int(np.prod(shape))
    if d is bool_:
        return rng.random(shape) < 0.5
    if d.is_int:
        low = -3 if d.kind == "i" else 0
        a = rng.integers(low, 4, count)
    else:
        a = rng.normal(size=count) if not calm else rng.choice([-1, 1], count) * (
            rng.uniform(0.9, 1.1, count))
    a = a.astype(d.numpy)
    if not calm and count:
        a = np.where(rng.random(count) < 0.3, rng.choice(specials(d), count), a)
    return a.reshape(shape)


def bits(a):
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.kind not in "biu" else a


def steps_apart(a, b):
    """How many representable numbers lie between; 0 for two NaNs."""
    nan = np.isnan(a) & np.isnan(b)
    signed = f"i{a.dtype.itemsize}"
    i, j = (v.view(signed) for v in (a, b))
    least = np.iinfo(signed).min
    i, j = (np.where(v < 0, least - v, v).astype(np.longdouble) for v in (i, j))
    bad = np.isnan(a) != np.isnan(b)
    return np.where(nan, 0, np.where(bad, np.inf, np.abs(i - j)))


def same(got, want, op, how):
    assert got.shape == want.shape and got.dtype == want.dtype, f"{op}: {got!r}, wanted {want!r}"
    if want.dtype.kind in "biu":
        good = got == want
    elif how == "bits":
        good = (bits(got) == bits(want)) | (np.isnan(got) & np.isnan(want))
    elif how == "value":  # the sign of a zero is unspecified
        good = (got == want) | (np.isnan(got) & np.isnan(want))
    else:
        allowed = 1 if want.dtype.itemsize == 2 else ULPS.get(op, 4)
        with np.errstate(all="ignore"):
            near = 4 * np.finfo("f8").eps if op == "lgamma" else 1e-300  # lgamma's zeros
            good = (steps_apart(got, want) <= allowed) | (np.abs(got - want) < near)
    if not good.all():
        at = tuple(int(k[0]) for k in np.nonzero(~np.atleast_1d(good)))
        got, want = np.atleast_1d(got)[at], np.atleast_1d(want)[at]
        raise AssertionError(f"{op} at {at}: {got!r}, wanted {want!r}")


def run(f, arrays, hows):
    got = f(*arrays)
    want, _ = interpret.evaluate(f.graph, arrays)
    SEEN.update((k.op.name, None) for k in f.graph.nodes)
    SEEN["input"] = None
    SEEN.update(("fused", None) for k in f.optimized.nodes if k.op.name == "fused")
    for (op, how, label), a, b in zip(hows, got, want, strict=True):
        try:
            same(a, b, op, how)
        except AssertionError as e:
            raise AssertionError(f"{label}: {e}") from None


def elementwise(d):
    """All rows on d, the columns of special values for them, and how results compare.

    x and y hold every pair of special values; z is a legal divisor, w a legal exponent.
    """
    x, y, z, w = (prim.input(k, TensorType(d, (n,))) for k in "xyzw")
    cond = prim.input("cond", TensorType(bool_, (n,)))
    outs, hows = [], []
    for name, row in ELEMENTWISE.items():
        second = {"div": z, "rem": z, "pow": w}.get(name, y) if d.is_int else y
        try:
            outs.append(prim.one(name, *[x, second][: row.arity]))
        except DTypeError:
            continue
        math = name in MATH
        how = "ulps" if math and d.is_float else "value" if name in ng.EXTREMA else "bits"
        hows.append((name, how, f"{name} of {d}"))
    outs.append(prim.select(cond, x, y))
    hows.append(("select", "bits", f"select of {d}"))
    a, b = (v.ravel() for v in np.meshgrid(specials(d), specials(d)))
    rng = np.random.default_rng(0)
    a, b = (np.concatenate([v, data(d, 150, rng)]) for v in (a, b))
    c = np.where(b == 0, np.ones_like(b), b)
    e = b.copy() if not d.is_int else np.where(b < 0, b & 0x3F, b).astype(d.numpy)
    f = gx.function([x, y, z, w, cond], outs, name=f"elementwise_{d}")
    return f, [a, b, c, e, rng.random(len(a)) < 0.5], hows


def parts(columns):
    """The columns in random order, cut to several sizes, and whole."""
    rng = np.random.default_rng(0)
    for size in (*SIZES, len(columns[0])):
        some = rng.permutation(len(columns[0]))[:size]
        yield [v[some] for v in columns]


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_elementwise(d):
    f, columns, hows = elementwise(d)
    for arrays in parts(columns):
        run(f, arrays, hows)
    assert f.compilations == 1


@pytest.mark.parametrize("d", [d for d in DTYPES if d.is_float], ids=str)
def test_polygamma(d):
    x = prim.input("x", TensorType(d, (n,)))
    f = gx.function([x], [prim.polygamma(x, k) for k in range(4)], name="polygamma")
    for size in (*SIZES, 200):
        a = np.random.default_rng(size).uniform(0.5, 30, size).astype(d.numpy)
        got, want = f(a), interpret.evaluate(f.graph, [a])[0]
        for p, q in zip(got, want, strict=True):
            tol = 1.1 * 2 * eps(d) if d.bits == 16 else 16 * eps(d)
            p, q = p.astype("f8"), q.astype("f8")
            assert np.allclose(p, q, rtol=tol, atol=tol)
    SEEN["polygamma"] = None


def casts(d):
    """d to every dtype, values that such casts are hard for, and how results compare."""
    x = prim.input("x", TensorType(d, (n,)))
    outs = [prim.cast(x, t) for t in DTYPES]
    labels = [f"cast {d} to {t}" for t in DTYPES]
    if not d.is_float:  # the bits of a NaN may change on the way
        to = [t for t in DTYPES if t.bits == d.bits and (t is bool_) == (d is bool_)]
        outs += [prim.bitcast(x, t) for t in to]
        labels += [f"bitcast {d} to {t}" for t in to]
    f = gx.function([x], outs, name=f"casts_{d}")
    rng = np.random.default_rng(1)
    a = np.concatenate([specials(d), data(d, 200, rng)])
    if d.is_float:
        more = rng.normal(size=200) * 10.0 ** rng.integers(-8, 20, 200)
        with np.errstate(over="ignore"):
            a = np.concatenate([a, more.astype(d.numpy)])
    return f, [a], [("cast", "bits", k) for k in labels]


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_casts(d):
    f, columns, hows = casts(d)
    for arrays in parts(columns):
        run(f, arrays, hows)


def shaped(d, table):
    """A function of all uses in a table that take d, the types of its inputs, and labels."""
    inputs, outs, hows = [], [], []
    for op, kinds, shapes, attrs in table:
        types = [TensorType(i32 if k == "i" else d, s) for k, s in zip(kinds, shapes, strict=True)]
        made = [prim.input(f"x{len(inputs) + i}", t) for i, t in enumerate(types)]
        try:
            outs.append(prim.one(op, *made, **attrs))
        except DTypeError:
            continue
        inputs += made
        how = "value" if op in ng.EXTREMA else "bits"
        hows.append((op, how, f"{op} of {', '.join(map(str, types))} {attrs}"))
    size = prim.dim(n * m + 1)
    return gx.function([*inputs], [*outs, size], name="shaped"), [*hows, ("dim", "bits", "dim")]


def fill(f, rng, sizes, calm):
    out = []
    for v in f.graph.inputs:
        shape = [gx.dims.evaluate(s, sizes) for s in v.type.shape]
        index = v.type.dtype is i32 and any(
            k.op.kind is Kind.INDEX and k.args[1] is v for k in f.graph.nodes)
        out.append(rng.integers(0, 4, shape).astype(np.int32) if index
                   else data(v.type.dtype, shape, rng, calm))
    return out


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_moved_and_compared(d):
    f, hows = shaped(d, SHAPED)
    rng = np.random.default_rng(2)
    for k in SIZES:
        if k:  # an empty maximum is an error
            run(f, fill(f, rng, {"n": k, "m": 5}, False), hows)
    run(f, fill(f, rng, {"n": 2, "m": 0}, False), hows)
    assert f.compilations == 1


def test_empty_results_of_moves():
    f, hows = shaped(f32, [c for c in SHAPED if not c[0].startswith(("reduce", "argmax"))])
    for sizes in ({"n": 0, "m": 3}, {"n": 0, "m": 0}):
        run(f, fill(f, np.random.default_rng(3), sizes, False), hows)


@pytest.mark.parametrize("d", [d for d in DTYPES if d is not bool_], ids=str)
def test_sums(d):
    f, hows = shaped(d, SUMMED)
    rng = np.random.default_rng(4)
    for k in SIZES:
        arrays = fill(f, rng, {"n": k, "m": 3}, calm=not d.is_int)
        if d.is_int:
            run(f, arrays, hows)
            continue
        got = f(*arrays)
        wide = [a.astype(np.float64) if a.dtype.kind != "i" else a for a in arrays]
        for (_, _, label), a, t in zip(hows, got, f.graph.outputs, strict=True):
            want, size = exact_sum(f, wide, t, {"n": k, "m": 3})
            assert a.dtype == t.type.dtype.numpy and a.shape == want.shape, label
            error = np.abs(a.astype(np.float64) - want)
            bound = (eps(d) + 70 * eps(d.compute) * (k + 20)) * (size + np.abs(want))
            assert (error <= bound).all(), f"{label}: off by {error.max()}"
        SEEN.update((k.op.name, None) for k in f.graph.nodes)


def exact_sum(f, arrays, v, sizes):
    """A value computed in f64, and the same of the operands' magnitudes."""
    if v.node.op.name == "dim":
        return np.array(gx.dims.evaluate(v.node.attrs["size"], sizes)), np.zeros(())
    place = dict(zip(f.graph.inputs, arrays, strict=True))
    args = [place[x] for x in v.node.args]
    ref, attrs = v.node.op.ref, v.node.attrs
    return ref(*args, **attrs), ref(*(np.abs(a) for a in args), **attrs)


def test_leaves_and_meta():
    x = gx.input("x", (n, 5))
    w = gx.variable(np.arange(5, dtype="f4"), "w")
    a, b = (prim.input(k, x.type) for k in "ab")
    body = ir.collect("both", [a._value, b._value], [(a + b)._value, prim.less(a, b)._value])
    outs = [
        x + w, prim.constant(specials(f64)), prim.constant(np.zeros((3, 0), "i2")), prim.dim(n + 2),
        *(prim.iota(d, (n, 3), k) for d in DTYPES if d is not bool_ for k in (0, 1)),
        prim.stop_gradient(x), *prim.barrier(x, w, id=1), *prim.call(x, x * 2, name="both",
                                                                    body=body),
        x, w,
    ]
    f = gx.function([x], outs, name="leaves")
    for k in SIZES:
        run(f, [np.full((k, 5), 1.5, "f4")], [("leaf", "bits", str(t.type)) for t in outs])


@pytest.mark.parametrize("shape", [(n,), (n, 3), (3, n, 7), ()], ids=str)
def test_random_bits(shape):
    key = prim.input("key", TensorType(u32, (2,)))
    x = prim.input("x", TensorType(i8, (n,)))
    bits_ = prim.random_bits(key, shape)
    halves = prim.shift_right(bits_, prim.full_like(bits_, 9))
    f = gx.function([key, x], [bits_, halves, prim.cast(x, u8)], name="bits")
    for k in (*SIZES, 1000):
        for words in ([0, 0], [2**32 - 1, 17]):
            run(f, [np.array(words, np.uint32), np.zeros(k, np.int8)],
                [("random_bits", "bits", str(shape))] * 3)


def test_random_bits_from_the_middle_of_blocks():
    """Rows and columns of words that begin anywhere, go backward, and skip some."""
    key = gx.input("key", (2,), "uint32")
    for shape in ((5, 101), (3, 7)):
        words = gx.random.bits(key, shape)
        outs = [*(words[i, j:] for i in range(2) for j in range(4)), words[:, 1::2], words[:, ::-1],
                words.T, words[1:, 3:], gx.sum(words, axis=0), gx.sum(words[:, 1:], axis=1)]
        f = gx.function([key], outs, name="middle")
        for v in ([0, 0], [2**32 - 1, 17]):
            run(f, [np.array(v, np.uint32)], [("random_bits", "bits", str(shape))] * len(outs))


def test_random_words_beside_others():
    """Their key is read under a condition there, which differs from lane to lane."""
    key, x = gx.input("key", (2,), "uint32"), gx.input("x", ("n",), "uint32")
    fixed, named = (gx.random.bits(key, shape) for shape in ((37,), x.shape))
    outs = [gx.concat([x, fixed]), gx.pad(fixed, (2, 3)), gx.flip(gx.concat([named, x, named[1:]])),
            gx.max(gx.concat([x, fixed]))]
    for k, out in enumerate(outs):
        f = gx.function([key, x], [out], name=f"beside{k}")
        for n in (1, 16, 45):
            run(f, [np.array([7, 2**31], np.uint32), np.arange(n, dtype=np.uint32)],
                [("random_bits", "bits", str(n))])


def test_every_row_has_run():
    """The tests above, in this process, ran every row; under xdist they share one process."""
    tables = {row[0] for row in (*SHAPED, *SUMMED)} | set(ELEMENTWISE)
    alone = {"input", "variable", "constant", "dim", "iota", "cast", "bitcast", "stop_gradient",
             "barrier", "call", "fused", "select", "polygamma", "random_bits"}
    assert tables | alone == set(ng.OWN)
    if len(SEEN) > 60:  # all of this file ran here
        assert set(SEEN) == set(ng.OWN), sorted(set(ng.OWN) - set(SEEN))


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float32"))
@pytest.mark.parametrize("columns", (17, 33, 65))
def test_a_row_that_ends_with_a_lane_alone_ends_there(dtype, columns):
    x = gx.input("x", (9, columns), dtype)
    f = gx.function([x], gx.nn.softmax(x, axis=1))
    a = np.random.default_rng(0).normal(size=(9, columns)).astype(x.dtype.numpy)
    room = np.full(a.nbytes + 64, 0x5A, np.uint8)
    out = room[: a.nbytes].view(a.dtype).reshape(a.shape)
    want = f(a)
    f(a, out=out)
    assert out.tobytes() == want.tobytes()
    assert (room[a.nbytes :] == 0x5A).all()
