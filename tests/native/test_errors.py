"""A wrong use of every op row, and every failure of native code, name the user's file and line."""

from __future__ import annotations

import inspect

import native_graphs as ng
import numpy as np
import pytest
from native_reference import MATH

import graphc as gx
from graphc import ir, prim
from graphc.dims import dim
from graphc.errors import GraphcError, IndexOutOfRangeError, IntegerDivisionError, ShapeError
from graphc.types import TensorType, bool_, f32, f64, i32, i64, u8, u32

n = dim("n")


def value(d, *shape):
    return prim.input("x", TensorType(d, shape))


F2, F3, D2, I2, B2 = value(f32, 2), value(f32, 3), value(f64, 2), value(i64, 2), value(bool_, 2)
M, S = value(f32, n, 3), value(f32)


def apply(op, *xs, **attrs):
    return ir.apply(op, [x._value for x in xs], **attrs)


# Each on one line, which the error must name.
FLOAT_ONLY = {
    name: lambda name=name: prim.one(name, I2)
    for name, row in ng.OWN.items()
    if row.arity == 1 and not row.attrs and name in (MATH | {"floor", "ceil", "round", "sqrt"})
}
PAIRS = {
    name: lambda name=name: prim.one(name, *([I2, value(i64, 3)] if "shift" in name else [F2, F3]))
    for name in ("add", "sub", "mul", "div", "rem", "pow", "atan2", "maximum", "minimum", "equal",
                 "less", "less_equal", "and", "or", "xor", "shift_left", "shift_right")
}  # fmt: skip
REDUCED = {
    name: lambda name=name: prim.one(name, M, axes=(2,))
    for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")
}
SCANNED = {
    name: lambda name=name: prim.one(name, M, axis=2, reverse=False)
    for name in ("cumsum", "cumprod", "cummax")
} | {"linear_recurrence": lambda: prim.linear_recurrence(M, F2, 2)}
WRONG = FLOAT_ONLY | PAIRS | REDUCED | SCANNED | {
    "input": lambda: apply("input", F2, name="x", type=F2.type),
    "variable": lambda: apply("variable", F2, state=None),
    "constant": lambda: apply("constant"),
    "dim": lambda: apply("dim", F2, size=n),
    "iota": lambda: prim.iota(i32, (2, n), 2),
    "cast": lambda: apply("cast", F2),
    "bitcast": lambda: prim.bitcast(F2, u8),
    "stop_gradient": lambda: apply("stop_gradient", F2, F2),
    "barrier": lambda: apply("barrier", F2),
    "neg": lambda: prim.neg(B2),
    "abs": lambda: prim.abs(B2),
    "sign": lambda: prim.sign(B2),
    "polygamma": lambda: prim.polygamma(F2, -1),
    "is_finite": lambda: prim.is_finite(I2),
    "not": lambda: prim.not_(F2),
    "select": lambda: prim.select(F2, F2, F2),
    "reshape": lambda: prim.reshape(M, (n, 4)),
    "transpose": lambda: prim.transpose(M, (0, 0)),
    "broadcast": lambda: prim.broadcast(F2, (3, 4), (0,)),
    "slice": lambda: prim.slice(F2, (1,), (3,), (1,)),
    "update_slice": lambda: prim.update_slice(F2, F3, (0,)),
    "pad": lambda: prim.pad(F2, F2, (0,), (0,), (0,)),
    "concat": lambda: prim.concat(F2, D2, axis=0),
    "reverse": lambda: prim.reverse(F2, (1,)),
    "gather": lambda: prim.gather(F2, F2, 0),
    "scatter": lambda: prim.scatter(F2, I2, F3, 0),
    "scatter_add": lambda: prim.scatter_add(F2, I2, D2, 0),
    "argmax": lambda: prim.argmax(M, 2),
    "dot": lambda: prim.dot(F2, F3, ((0,), (0,))),
    "random_bits": lambda: prim.random_bits(value(u32, 3), (n,)),
    "call": lambda: prim.call(F2, name="f", body=BODY),
    "fused": lambda: prim.fused(F2, body=BODY, axes=(), reduced=(), outputs=()),
}
BODY = ir.collect("f", [F3._value], [prim.neg(F3)._value])


def test_every_row_has_a_planted_mistake():
    assert set(WRONG) == set(ng.OWN)


@pytest.mark.parametrize("op", WRONG)
def test_a_mistake_names_op_file_and_line(op):
    line = WRONG[op].__code__.co_firstlineno
    helper = inspect.getsourcelines(apply)[1] + 1  # the user's own helper is the user's line
    with pytest.raises(GraphcError) as caught:
        WRONG[op]()
    assert caught.value.loc.file == __file__
    assert caught.value.loc.line in (line, helper), str(caught.value)
    assert caught.value.message.split(":")[0].split(" ")[0] == op


# -- failures of native code ----------------------------------------------------------------------

X, I, J = gx.input("x", ("n", 4)), gx.input("i", ("m",), "int64"), gx.input("j", ("m",), "int32")
ROWS, ONES = np.ones((3, 4), "f4"), np.array([1, 1], "i4")
GOOD = (ONES.astype("i8"), ONES + 1)
FIRST = np.array([0, 2])
BELOW, ABOVE = np.array([0, -1]), np.array([3, 0])
TABLE = gx.constant(np.arange(6, dtype="f4").reshape(3, 2))


def fails(make, error, op, i=FIRST, j=ONES, x=ROWS):
    """One way to fail: Tensors, the class, the op named, and the arrays that do it."""
    return make, error, op, (x, i, j)


END = (dim("n"), 4)
INDEX, DIVISION = IndexOutOfRangeError, IntegerDivisionError
FAILURES = {
    "take above": fails(lambda: gx.take(X, I, axis=0), INDEX, "gather", ABOVE),
    "take below": fails(lambda: gx.take(X, I, axis=0), INDEX, "gather", np.array([0, -4])),
    "take of columns": fails(lambda: gx.take(X, I, axis=1), INDEX, "gather", np.array([1, 4])),
    "take of small indices": fails(lambda: gx.take(X, J, axis=0), INDEX, "gather", j=ONES + 8),
    "take huge": fails(lambda: gx.take(X, I, axis=0), INDEX, "gather", np.array([0, 1 << 62])),
    "embedding above": fails(lambda: gx.nn.embedding(I, TABLE), INDEX, "gather", ABOVE),
    "embedding below": fails(lambda: gx.nn.embedding(I, TABLE), INDEX, "gather", BELOW),
    "take of ones": fails(lambda: gx.take(gx.ones((3, 2)), I, axis=0), INDEX, "gather", ABOVE),
    "labels above": fails(lambda: gx.nn.cross_entropy(X, labels()), INDEX, "gather", ABOVE + 1,
                          x=ROWS[:2]),
    "labels below": fails(lambda: gx.nn.cross_entropy(X, labels()), INDEX, "gather", BELOW,
                          x=ROWS[:2]),
    "add at": fails(lambda: X.at[I].add(1.0), INDEX, "scatter_add", ABOVE),
    "set at": fails(lambda: X.at[I].set(1.0), INDEX, "scatter", ABOVE),
    "floor division": fails(lambda: J // (J - 1), DIVISION, "div"),
    "remainder": fails(lambda: J % (J - 1), DIVISION, "rem"),
    "a sum of quotients": fails(lambda: gx.sum(I // (I - 2)), DIVISION, "div"),
    "negative power": fails(lambda: I ** (I - 1), DIVISION, "pow"),
    "maximum of nothing": fails(lambda: gx.max(X, axis=0), ShapeError, "reduce_max", x=ROWS[:0]),
    "minimum of nothing": fails(lambda: gx.min(X, axis=0), ShapeError, "reduce_min", x=ROWS[:0]),
    "argmax of nothing": fails(lambda: gx.argmax(X, axis=0), ShapeError, "argmax", x=ROWS[:0]),
    "slice beyond": fails(lambda: gx.sum(prim.slice(X, (3, 0), END, (1, 1))), ShapeError,
                          "slice", x=ROWS[:2]),
    "reshape": fails(lambda: gx.reshape(X, (-1, 8)), ShapeError, "reshape"),
}  # fmt: skip


def labels():
    """I, one for each row of X."""
    return gx.assert_dim(I, 0, "n")


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_op_and_line_and_leaves_variables(name):
    make, error, op, arrays = FAILURES[name]
    made = make()
    state = gx.variable(np.float32(1), "state")
    count = gx.variable(np.zeros(3, "i4"), "count")
    total = gx.sum(gx.astype(made, "float32"))
    updates = {state: state + total, count: count + 1}
    f = gx.function([X, I, J], made, updates=updates, name="failing")
    line = make.__code__.co_firstlineno
    for _ in range(2):
        with pytest.raises(error) as caught:
            f(*arrays)
        assert (caught.value.loc.file, caught.value.loc.line) == (__file__, line), caught.value
        assert op in caught.value.message.replace(":", " ").split(), caught.value
        assert state.value == 1 and (count.value == 0).all()
    if "slice" not in name and "reshape" not in name:
        f(ROWS[:2] if "labels" in name else ROWS, *GOOD)
        assert (count.value == 1).all()
    assert f.compilations == 1


def test_a_reduction_and_a_sum_over_nothing():
    """Sums of nothing are 0, products 1, means NaN, and matrix products 0."""
    f = gx.function([X], [gx.sum(X), gx.prod(X, axis=0), gx.mean(X), X.T @ X])
    total, product, mean, gram = f(np.ones((0, 4), "f4"))
    assert total == 0 and (product == 1).all() and np.isnan(mean) and (gram == 0).all()


def test_a_half_total_into_a_function():
    """Two roundings of one number, which LLVM joins by a call into its library."""
    v = gx.input("v", ("n",), "float16")
    f = gx.function([v], gx.atan(gx.sum(v, dtype="float16")))
    assert f(np.ones(5, "f2")) == np.float16(np.arctan(5))


def test_a_reduction_over_an_axis_that_its_operand_has_not():
    """Found by random graphs: it wanted to join the other reader of its operand."""
    x, y = gx.input("x", ("b", "n")), gx.input("y", ("n",))
    wide = prim.broadcast(y, (n, 4), (0,))
    f = gx.function([x, y], [gx.prod(x, axis=0) - y, gx.sum(wide, axis=1)])
    a, b = np.ones((3, 5), "f4"), np.arange(5, dtype="f4")
    first, second = f(a, b)
    assert first.tolist() == (1 - b).tolist() and second.tolist() == (4 * b).tolist()


@pytest.mark.parametrize("mode", ["jit", "interpret"])
def test_unsigned_indices_do_not_count_from_the_end(mode):
    x, i, u = (gx.input("x", ("n",)), gx.input("i", ("k",), "uint64"), gx.input("u", ("k",)))
    a, ones = np.arange(5, dtype=np.float32), np.ones(2, np.float32)
    for out, inside in ((gx.take(x, i, axis=0) + u, [5, 2]), (x.at[i].set(u), [0, 1, 2, 3, 1]),
                        (x.at[i].add(u), [0, 2, 2, 3, 5])):
        f = gx.function([x, i, u], out, mode=mode)
        np.testing.assert_array_equal(f(a, np.array([4, 1], np.uint64), ones), inside)
        for beyond in (5, 2**63 + 4, 2**64 - 5, 2**64 - 1):
            with pytest.raises(IndexOutOfRangeError, match=str(beyond)):
                f(a, np.array([1, beyond], np.uint64), ones)


def test_gathered_rows_wait_for_nothing():
    """No row reads the flag that the one before wrote: 5000 rows of four took 16 us, now 9."""
    x, i = gx.input("x", ("m", 4)), gx.input("i", ("n",), "int64")
    f = gx.function([x, i], x[i])
    loop = f.llvm_ir().split("!llvm.loop")[0].split(" = phi ")[1]
    assert "store <4 x float>" in loop
    assert "load i8" not in loop
    a, at = np.arange(20, dtype="f4").reshape(5, 4), np.array([4, -5, 0, -1, 2, 2])
    np.testing.assert_array_equal(f(a, at), a[at])
    assert f(a[:0], at[:0]).shape == (0, 4)
    for table, where in ((a, [0, 5, 1]), (a, [-6, 0]), (a[:0], [0, 0, 0])):
        with pytest.raises(IndexOutOfRangeError):
            f(table, np.array(where))


def test_bytes_are_no_wrong_places_in_a_table_of_256():
    x, i = gx.input("x", (256,)), gx.input("i", ("n",), "uint8")
    g = gx.function([x, i], x[:255][i])
    a, at = np.arange(256, dtype="f4"), np.arange(300).astype("u1")
    for index in (i, gx.astype(i, "int32"), gx.astype(gx.astype(i, "uint16"), "int64")):
        f = gx.function([x, i], x[index])
        np.testing.assert_array_equal(f(a, at), a[at])
        assert "icmp ult" not in f.llvm_ir().split("!llvm.loop")[0]
    with pytest.raises(IndexOutOfRangeError):
        g(a, at)


@pytest.mark.parametrize("mode", ["jit", "interpret"])
def test_positions_at_which_nothing_stands_are_not_looked_at(mode):
    """Another axis is empty: nothing is gathered, summed or written. A sum over nothing of what
    does stand somewhere looks at it."""
    def ones(*shape):
        return np.ones(shape, "f4")

    bad = np.array([7, -9])
    x, i = gx.input("x", ("n", 5, "m")), gx.input("i", ("k",), "int64")
    u = gx.input("u", ("n", "k", "m"))
    t = gx.input("t", (5,))
    f = gx.function([x, i, u, t], [
        x[:, i], gx.sum(x[:, i], axis=(0, 2)), gx.sum(x[:, i], axis=1),
        x.at[:, i].set(u), x.at[:, i].add(u),
    ], mode=mode)
    for n, m in ((0, 2), (2, 0), (0, 0)):
        got = f(ones(n, 5, m), bad, ones(n, 2, m), ones(5))
        assert [g.shape for g in got] == [(n, 2, m), (2,), (n, m), (n, 5, m), (n, 5, m)]
        assert not got[1].any()
    with pytest.raises(IndexError, match="index 7 at"):
        f(ones(1, 5, 1), bad, ones(1, 2, 1), ones(5))
    some = gx.function([x, i, t], gx.sum(x[:, 0] * t[i][0], axis=1), mode=mode)
    with pytest.raises(IndexError, match="index 7 at"):
        some(ones(2, 5, 0), bad, ones(5))
    static = gx.input("s", (2, 5, 0))
    f = gx.function([static, i], [gx.sum(static[:, i]), static.at[:, i].add(1)], mode=mode)
    assert f(ones(2, 5, 0), bad)[0] == 0


@pytest.mark.parametrize("mode", ["jit", "interpret"])
@pytest.mark.parametrize("rule", [
    lambda x, i, u: x.at[i].set(u), lambda x, i, u: x.at[i].add(u),
    lambda x, i, u: gx.grad(gx.sum(x[i] * u), [x])[0],
])
def test_an_empty_axis_has_no_place_for_an_update(rule, mode):
    """The interpreter looked at the position, native code at none: it had no element to make."""
    n, m = gx.dim("n"), gx.dim("m")
    x, i, u = gx.input("x", (n, m)), gx.input("i", (), "int64"), gx.input("u", (m,))
    f = gx.function([x, i, u], rule(x, i, u), mode=mode)
    b = gx.input("b", (3, n, m))
    rows = gx.function([b, i, u], gx.vmap(rule, (0, None, None))(b, i, u), mode=mode)
    for g, shape in ((f, ()), (rows, (3,))):
        for size in ((2, 0), (0, 0)):
            assert g(np.ones((*shape, *size), "f4"), 1, np.ones(size[1], "f4")).shape[-2:] == size
        with pytest.raises(gx.errors.ShapeError, match=r"an empty axis has no place .*test_errors"):
            g(np.ones((*shape, 0, 2), "f4"), 0, np.ones(2, "f4"))
