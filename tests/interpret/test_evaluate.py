"""The interpreter: values, sizes, bodies, states, 16-bit floats, errors."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

from graphc import ir
from graphc.dims import dim, floordiv
from graphc.errors import (
    DTypeError,
    ExecutionError,
    IndexOutOfRangeError,
    IntegerDivisionError,
    ShapeError,
    UsageError,
)
from graphc.interpret import evaluate
from graphc.ops.row import Kind, Op
from graphc.types import TensorType, bf16, f16, f32, f64, i32, i64, u16

B, N = dim("batch"), dim("n")


def one(op, *args, **attrs):
    return ir.apply(op, args, **attrs)[0]


def given(name, dtype, *shape):
    return one("input", name=name, type=TensorType(dtype, shape))


def constant(array):
    return one("constant", value=ir.Literal(np.asarray(array)))


def run(inputs, outputs, *arrays, **options):
    return evaluate(ir.collect("f", inputs, outputs), arrays, **options)[0]


def test_values_at_every_size():
    x = given("x", f32, B, 3)
    y = one("mul", one("add", x, x), one("sqrt", one("abs", x)))
    for n in (0, 1, 5):
        a = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)
        (found,) = run([x], [y], a)
        assert found.tobytes() == ((a + a) * np.sqrt(abs(a))).tobytes()


def test_sizes_in_attributes():
    x, y = given("x", f32, B), given("y", f32, N)
    outs = [
        one("iota", dtype=i32, shape=(N, B), axis=0),
        one("dim", size=floordiv(B, 2) + N),
        one("slice", x, start=(B - 2,), stop=(B,), step=(1,)),
        one("broadcast", x, shape=(N, B), axes=(1,)),
        one("pad", x, constant(np.float32(9)), low=(N,), high=(-1,), interior=(0,)),
    ]
    a = np.arange(4, dtype=np.float32)
    iota, size, tail, wide, padded = run([x, y], outs, a, a[:2])
    assert iota.tolist() == [[0] * 4, [1] * 4] and iota.dtype == np.int32
    assert size == 4 and size.dtype == np.int64
    assert tail.tolist() == [2, 3]
    assert wide.tolist() == [[0, 1, 2, 3]] * 2
    assert padded.tolist() == [9, 9, 0, 1, 2]


def test_names_may_be_given():
    r = one("iota", dtype=i64, shape=(B,), axis=0)
    assert run([], [r], dims={"batch": 3})[0].tolist() == [0, 1, 2]
    with pytest.raises(ShapeError, match="dimension 'batch' has no value"):
        run([], [r])


def test_inputs_are_checked():
    x = given("x", f32, B, 3)
    with pytest.raises(UsageError, match=r"f: takes 1 inputs \(x\), got 2"):
        run([x], [x], np.zeros((1, 3), np.float32), np.zeros(1))
    with pytest.raises(DTypeError, match=r"input 'x': expected f32\[batch,3\], got an array of fl"):
        run([x], [x], np.zeros((1, 3)))
    with pytest.raises(ShapeError, match=r"input 'x': .* axis 1 must be 3"):
        run([x], [x], np.zeros((1, 4), np.float32))


def test_other_byte_orders_and_layouts():
    x = given("x", f32, 2, 3)
    a = np.arange(6, dtype=">f4").reshape(3, 2).T
    (found,) = run([x], [one("neg", x)], a)
    assert found.dtype == np.float32 and found.tolist() == (-a).tolist()
    assert found.flags.c_contiguous


def test_results_are_fresh():
    x = given("x", f32, 2, 3)
    state = ir.State("w", TensorType(f32, (2,)), np.ones(2, np.float32))
    w, k = one("variable", state=state), constant(np.float32([1, 2]))
    moved = one("transpose", x, perm=(1, 0))
    a = np.zeros((2, 3), np.float32)
    outs = run([x], [x, x, moved, w, k, k], a)
    for i, p in enumerate(outs):
        assert p.flags.writeable and p.flags.c_contiguous
        for q in (a, state.array, k.node.attrs["value"].array, *outs[:i]):
            assert not np.may_share_memory(p, q)


def test_updates_read_the_values_from_entry_and_write_nothing():
    a, b = (ir.State(n, TensorType(f32, (2,)), np.full(2, v, np.float32))
            for n, v in (("a", 1), ("b", 2)))
    va, vb = one("variable", state=a), one("variable", state=b)
    g = ir.collect("swap", [], [va], [(a, vb), (b, one("add", va, vb))])
    (out,), new = evaluate(g, [])
    assert (out.tolist(), new[a].tolist(), new[b].tolist()) == ([1, 1], [2, 2], [3, 3])
    assert a.array.tolist() == [1, 1] and b.array.tolist() == [2, 2]
    new[a][:] = 7
    assert b.array.tolist() == [2, 2]
    (out,), _ = evaluate(g, [], states={a: np.full(2, 5, np.float32)})
    assert out.tolist() == [5, 5]
    with pytest.raises(ShapeError, match=r"variable @a: expected f32\[2\]"):
        evaluate(g, [], states={a: np.zeros(3, np.float32)})


def test_half_precision_computes_in_f32_and_rounds_once():
    x, y = given("x", f16, N), given("y", f16, N)
    a = np.float16([2049, 60000, 1e-4])
    b = np.float16([1, 60000, 3e-5])
    total, product = run([x, y], [one("add", x, y), one("mul", x, y)], a, b)
    with np.errstate(over="ignore"):
        wide = (a.astype(np.float32) + b.astype(np.float32)).astype(np.float16)
    assert total.tobytes() == wide.tobytes()
    assert product.dtype == np.float16 and np.isinf(product[1])
    (s,) = run([x], [one("reduce_sum", x, axes=(0,))], np.ones(4000, np.float16))
    assert s == 4000  # in f16 the sum would stand still at 2048
    (bits,) = run([x], [one("bitcast", x, dtype=u16)], np.float16([1]))
    assert bits.tolist() == [0x3C00]


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = given("x", bf16, 2)
    a = np.array([1.0, 3.0], ml_dtypes.bfloat16)
    (y,) = run([x], [one("div", constant(a), x)], a)
    assert y.dtype == a.dtype and y.astype(float).tolist() == [1, 1]
    (t,) = run([x], [one("reverse", x, axes=(0,))], a)
    assert t.astype(float).tolist() == [3, 1]


def test_bodies_with_several_results_nest():
    a, b = given("a", f32, B), given("b", f32, B)
    inner = ir.collect("inner", [a, b], [one("sub", a, b), one("add", a, b)])
    p, q = given("p", f32, B), given("q", f32, B)
    d, s = ir.apply("call", (q, p), name="inner", body=inner)
    outer = ir.collect("outer", [p, q], [s, d, p])
    x, y = given("x", f32, B), given("y", f32, B)
    outs = ir.apply("call", (x, y), name="outer", body=outer)
    s, d, p = run([x, y], list(outs), np.float32([1, 2]), np.float32([5, 5]))
    assert (s.tolist(), d.tolist(), p.tolist()) == ([6, 7], [4, 3], [1, 2])


def test_depth_costs_no_stack():
    x = v = given("x", f32, 2)
    for _ in range(20000):
        v = one("neg", v)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        assert run([x], [v], np.float32([1, 2]))[0].tolist() == [1, 2]
    finally:
        sys.setrecursionlimit(limit)


def fails(kind, inputs, output, *arrays):
    with pytest.raises(kind) as info:
        run(inputs, [output], *arrays)
    assert info.value.loc is not None and info.value.loc.file == __file__
    return str(info.value)


def test_index_out_of_range():
    x, i = given("x", f32, B, 2), given("i", i64, N)
    y = one("gather", x, i, axis=0, batch=0, negative=True)
    text = fails(IndexOutOfRangeError, [x, i], y, np.zeros((3, 2), np.float32), np.array([0, 3]))
    assert text.startswith("gather: ") and "3" in text
    assert "in gather(%x: f32[batch,2], %i: i64[n])" in text
    assert f"test_evaluate.py:{y.node.loc.line})" in text


def test_integer_division():
    x = given("x", i32, N)
    zero = np.zeros(1, np.int32)
    text = fails(IntegerDivisionError, [x], one("div", x, x), zero)
    assert text.startswith("div: ") and "in div(%x: i32[n], %x: i32[n])" in text
    assert fails(IntegerDivisionError, [x], one("rem", x, x), zero).startswith("rem: ")
    assert fails(IntegerDivisionError, [x], one("pow", x, x), zero - 1).startswith("pow: ")


def test_checked_reshape():
    x = given("x", f32, B)
    y = one("reshape", x, shape=(floordiv(B, 2), 2), checked=True)
    assert run([x], [y], np.zeros(4, np.float32))[0].shape == (2, 2)
    text = fails(ShapeError, [x], y, np.zeros(5, np.float32))
    to = "to (floordiv(batch, 2),2) where batch = 5"
    assert f"reshape: element counts must be equal, got f32[batch] {to}" in text


def test_sizes_that_come_out_negative():
    x = given("x", f32, B)
    y = one("slice", x, start=(2,), stop=(B,), step=(1,))
    assert run([x], [y], np.zeros(5, np.float32))[0].shape == (3,)
    assert "slice: " in fails(ShapeError, [x], y, np.zeros(1, np.float32))


def test_the_result_of_a_reference_is_checked():
    x = given("x", f32, 2)

    def result(ref):
        op = Op("odd", Kind.ELEMENTWISE, 1, type=lambda types, attrs: types[0], ref=ref)
        return fails(ExecutionError, [x], one(op, x), np.zeros(2, np.float32))

    assert "odd: the result must be f32[2], got f64[2]" in result(lambda a: a.astype(float))
    assert "odd: the result must be f32[2], got f32[]" in result(lambda a: a[0])
    assert "odd: gave 2 results, not 1" in result(lambda a: (a, a))
    assert "odd: has no NumPy reference" in result(None)
    assert "odd: cannot reshape array of size 2" in result(lambda a: a.reshape(3))


def test_no_warnings():
    x = given("x", f64, 1)
    with np.errstate(all="raise"):
        assert np.isnan(run([x], [one("log", x)], np.array([-1.0]))[0][0])
