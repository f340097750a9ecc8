"""Rows on symbolic sizes: gradients and batch rules keep provable types, and one declaration
serves every size, 0 and 1 included."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import T, evaluate, types

from graphc import dims, prim, size_text
from graphc.errors import ShapeError
from graphc.ops import OPS
from graphc.transforms import vjp

n, m = dims.dim("n"), dims.dim("m")
PLAIN = {"axis": 0, "batch": 0, "negative": True}

CASES = [
    ("exp", "f64[n,m]", {}),
    ("mul", "f64[n] f64[n]", {}),
    ("pow", "f64[n] f64[n]", {}),
    ("atan2", "f64[n] f64[n]", {}),
    ("maximum", "f64[n] f64[n]", {}),
    ("select", "bool[n] f64[n] f64[n]", {}),
    ("reshape", "f64[n,6]", {"shape": (2 * n, 3), "checked": False}),
    ("reshape", "f64[n,6]", {"shape": (n, 2, 3), "checked": False}),
    ("transpose", "f64[n,m]", {"perm": (1, 0)}),
    ("broadcast", "f64[n]", {"shape": (m, n, 2), "axes": (1,)}),
    ("slice", "f64[n+3,m]", {"start": (1, 0), "stop": (n + 2, m), "step": (1, 1)}),
    ("slice", "f64[2*n]", {"start": (0,), "stop": (2 * n,), "step": (2,)}),
    ("slice", "f64[n]", {"start": (0,), "stop": (n,), "step": (3,)}),
    ("slice", "f64[n]", {"start": (dims.minimum(1, n),), "stop": (n,), "step": (1,)}),
    ("update_slice", "f64[n+2,m] f64[n,m]", {"start": (1, 0)}),
    ("pad", "f64[n] f64[]", {"low": (2,), "high": (1,), "interior": (0,)}),
    ("pad", "f64[n,m] f64[]", {"low": (2, 0), "high": (1, m), "interior": (2, 1)}),
    ("pad", "f64[n+2] f64[]", {"low": (-1,), "high": (-1,), "interior": (0,)}),
    ("concat", "f64[n,m] f64[2,m] f64[n,m]", {"axis": 0}),
    ("reverse", "f64[n,m]", {"axes": (0,)}),
    ("gather", "f64[n+1,m] i64[m]", PLAIN),
    ("gather", "f64[n,5] i64[n,m]", {"axis": 1, "batch": 1, "negative": False}),
    ("scatter", "f64[5,m] i64[n] f64[n,m]", PLAIN),
    ("scatter_add", "f64[5,m] i64[n] f64[n,m]", PLAIN),
    ("reduce_sum", "f64[n,m]", {"axes": (0,)}),
    ("reduce_prod", "f64[n,m]", {"axes": (0, 1)}),
    ("reduce_max", "f64[n,m+1]", {"axes": (1,)}),
    ("cumsum", "f64[n,m]", {"axis": 0, "reverse": False}),
    ("cumprod", "f64[n,m]", {"axis": 0, "reverse": False}),
    ("cumprod", "f64[n,m]", {"axis": 0, "reverse": True}),
    ("cummax", "f64[n,m]", {"axis": 0, "reverse": True}),
    ("linear_recurrence", "f64[n,m] f64[n,m]", {"axis": 0, "reverse": False}),
    ("linear_recurrence", "f64[n,m] f64[n,m]", {"axis": 1, "reverse": True}),
    ("dot", "f64[n,m] f64[m,n]", {"contract": ((1,), (0,)), "batch": ((), ())}),
    ("dot", "f64[n,m,2] f64[2,n,3]", {"contract": ((2,), (0,)), "batch": ((0,), (1,))}),
]
SIZES = [(0, 0), (1, 1), (0, 2), (2, 0), (3, 2)]


def arrays(operands, env, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for t in operands:
        shape = [dims.evaluate(s, env) for s in t.shape]
        if t.dtype.kind == "f":
            out.append(rng.normal(size=shape))
        else:
            out.append(rng.integers(0, 1 + (t.dtype.kind == "b"), shape).astype(t.dtype.numpy))
    return out


def static(attr, env):
    """An attribute with names replaced by numbers."""
    if isinstance(attr, tuple):
        return tuple(static(a, env) for a in attr)
    return dims.evaluate(attr, env) if isinstance(attr, dims.Dim) else attr


def second_order(op, operands, attrs):
    """Inputs, and the result with first and second derivatives against given cotangents."""
    xs = [prim.input(f"x{i}", t) for i, t in enumerate(operands)]
    (y,) = prim.many(op, *xs, **attrs)
    wrt = [x for x in xs if x.dtype.is_float]
    first = vjp([y * y], wrt, [prim.full_like(y, 1)], unconnected="zero")
    again = vjp(first, wrt, [g * 0.5 for g in first], unconnected="zero")
    return xs, [y, *first, *again]


@pytest.mark.parametrize(("op", "text", "attrs"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_gradients_serve_every_size(op, text, attrs):
    operands = types(text)
    xs, outs = second_order(op, operands, attrs)
    for size_n, size_m in SIZES:
        env = {"n": size_n, "m": size_m}
        fixed = [t.with_shape([dims.evaluate(s, env) for s in t.shape]) for t in operands]
        data = arrays(operands, env)
        got = evaluate(xs, data, outs, dims=env)
        plain_xs, plain = second_order(op, fixed, {k: static(v, env) for k, v in attrs.items()})
        for g, want in zip(got, evaluate(plain_xs, data, plain), strict=True):
            np.testing.assert_allclose(g, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("op", "text", "attrs"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
@pytest.mark.parametrize("size", [4, dims.dim("k")], ids=str)
def test_batch_rules_keep_types(op, text, attrs, size):
    operands = types(text)
    plain = OPS[op].type(operands, attrs)
    for mask in range(1, 2 ** len(operands)):
        batched = [bool(mask >> i & 1) for i in range(len(operands))]
        xs = [
            prim.input("x", t.with_shape((size, *t.shape)) if b else t)
            for t, b in zip(operands, batched, strict=True)
        ]
        out = OPS[op].batch(size, batched, *xs, **attrs)
        assert out.type is plain.with_shape((size, *plain.shape))


def test_random_bits_with_batched_keys():
    k = dims.dim("k")
    keys = prim.input("keys", T("u32[k,2]"))
    out = OPS["random_bits"].batch(k, [True], keys, shape=(2, k))
    assert out.type is T("u32[k,2,k]")
    for size in (0, 1, 3):
        data = np.arange(2 * size, dtype=np.uint32).reshape(size, 2)
        (got,) = evaluate([keys], [data], [out])
        for key, bits in zip(data, got, strict=True):
            np.testing.assert_array_equal(bits, OPS["random_bits"].ref(key, (2, size)))


CONDITIONS = [
    ("reshape", "f32[n]", {"shape": (2, m), "checked": True},
     [("-2*m+n", True, "element counts must be equal")]),
    ("reshape", "f32[n]", {"shape": (n,), "checked": True}, []),
    ("slice", "f32[n]", {"start": (1,), "stop": (n,), "step": (1,)},
     [("n-1", False, "needs 0 <= start <= stop <= size")]),
    ("slice", "f32[n]", {"start": (0,), "stop": (m,), "step": (1,)},
     [("-m+n", False, "needs 0 <= start <= stop <= size")]),
    ("slice", "f32[5]", {"start": (1,), "stop": (3,), "step": (1,)}, []),
    ("update_slice", "f32[n] f32[2]", {"start": (0,)},
     [("n-2", False, "the update must fit inside")]),
    ("pad", "f32[n] f32[]", {"low": (-1,), "high": (0,), "interior": (0,)},
     [("n-1", False, "the result's sizes must be >= 0")]),
    ("pad", "f32[n] f32[]", {"low": (1,), "high": (0,), "interior": (0,)}, []),
    ("broadcast", "f32[]", {"shape": (n - 1,), "axes": ()},
     [("n-1", False, "sizes must be >= 0")]),
    ("reduce_max", "f32[n,m]", {"axes": (1,)}, [("m-1", False, "an empty axis has no maximum")]),
    ("reduce_min", "f32[n+1]", {"axes": (0,)}, []),
    ("argmax", "f32[n]", {"axis": 0}, [("n-1", False, "an empty axis has no maximum")]),
    ("iota", "", {"dtype": T("i64[]").dtype, "shape": (n - m,), "axis": 0},
     [("-m+n", False, "sizes must be >= 0")]),
    ("reduce_sum", "f32[n]", {"axes": (0,)}, []),
]


@pytest.mark.parametrize(("op", "text", "attrs", "want"), CONDITIONS)
def test_conditions_left_to_the_call(op, text, attrs, want):
    found = OPS[op].must_hold(types(text), attrs)
    assert [(c.size, c.zero, c.reason) for c in found] == [
        (size_text.parse(size), zero, reason) for size, zero, reason in want
    ]


def test_interpreter_refuses_sizes_that_do_not_fit():
    x = prim.input("x", T("f64[n]"))
    for bad, size in [
        (prim.slice(x, (1,), (n,), (1,)), 0),
        (prim.reshape(x, (2, dims.floordiv(n, 2)), checked=True), 3),
        (prim.pad(x, prim.full(T("f64[]"), 0), (-2,), (0,), (0,)), 1),
        (prim.reduce_max(x, (0,)), 0),
    ]:
        evaluate([x], [np.ones(4)], [bad])
        with pytest.raises(ShapeError):
            evaluate([x], [np.ones(size)], [bad])


def test_the_most_that_a_size_may_be():
    n = dims.dim("n")
    assert [dims.most(x) for x in (7, dims.minimum(n, 9), dims.minimum(9, 2 * n))] == [7, 9, 9]
    unbounded = (n, n + 1, 2 * dims.minimum(n, 9), dims.minimum(n, 9) + 1, dims.maximum(n, 9))
    assert [dims.most(x) for x in unbounded] == [None] * 5


def test_sizes_of_slices_of_slices():
    """Whatever is cut off, and in which order, one size has one form; it is right for all n."""
    for cuts in ((1, 1), (2, 3), (1, 2, 1), (3,)):
        size = n
        for k in cuts:
            size = dims.maximum(0, size - k)
        assert size == dims.maximum(n - sum(cuts), 0)
        for value in range(9):
            left = value
            for k in cuts:
                left = max(0, left - k)
            assert dims.evaluate(size, {"n": value}) == left


@pytest.mark.parametrize("form", [
    lambda n, m, most: most(0, most(0, n - 2) + 1),
    lambda n, m, most: most(0, most(0, n - 2) - m),
    lambda n, m, most: most(1, most(0, n - 2) - 1),
    lambda n, m, most: most(-5, most(0, n - 2) - 3),
    lambda n, m, most: most(0, 2 * most(0, n - 2) - 1),
    lambda n, m, most: most(0, 2 * most(0, n - 2) - n),
    lambda n, m, most: most(0, most(0, n - 2) + m - 3),
    lambda n, m, most: most(0, most(2, n - 4) - 3),
    lambda n, m, most: most(most(n - 1, 0) - 1, 0),
    lambda n, m, most: most(0, most(0, m - 1) - most(0, n - 1)),
])
def test_the_larger_of_sizes(form):
    """In whatever form it is kept, it has the value of what was asked for."""
    size = form(n, m, dims.maximum)
    for a in range(12):
        for b in range(5):
            assert dims.evaluate(size, {"n": a, "m": b}) == form(a, b, max)
