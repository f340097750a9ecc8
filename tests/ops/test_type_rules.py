"""Result types of right uses, and the whole message of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import NO_OPERANDS, T, infer, types

from graphc import dims, ir, prim
from graphc.errors import ArgumentError, DTypeError, ShapeError, UsageError
from graphc.ops import OPS, Kind
from graphc.types import DTYPES, TensorType, bf16, f32, i32, u8

n = dims.dim("n")

FLOAT_UNARY = [
    "floor", "ceil", "round", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos",
    "tanh", "atan", "erf", "normal_cdf", "lgamma", "log2", "log10", "tan", "sinh", "cosh",
    "asinh", "acosh", "atanh", "asin", "acos",
]
SAME_TYPE = [
    "add", "mul", "sub", "div", "rem", "pow", "atan2", "maximum", "minimum", "equal", "less",
    "less_equal",
]

GOOD = [
    ("iota", "", {"dtype": i32, "shape": (2, n), "axis": 1}, "i32[2,n]"),
    ("dim", "", {"size": n * 2}, "i64[]"),
    ("cast", "f32[n,3]", {"dtype": u8}, "u8[n,3]"),
    ("bitcast", "f32[n]", {"dtype": i32}, "i32[n]"),
    ("bitcast", "f16[n]", {"dtype": bf16}, "bf16[n]"),
    ("stop_gradient", "i64[2]", {}, "i64[2]"),
    ("barrier", "i64[2] f32[n]", {"id": 1}, "i64[2] f32[n]"),
    ("polygamma", "f64[n]", {"n": 1}, "f64[n]"),
    ("is_finite", "bf16[2,n]", {}, "bool[2,n]"),
    ("not", "bool[2]", {}, "bool[2]"),
    ("not", "u8[2]", {}, "u8[2]"),
    ("abs", "i32[2]", {}, "i32[2]"),
    ("less", "u64[n] u64[n]", {}, "bool[n]"),
    ("select", "bool[n] i8[n] i8[n]", {}, "i8[n]"),
    ("reshape", "f32[n,4,6]", {"shape": (2, n, 12), "checked": False}, "f32[2,n,12]"),
    ("reshape", "f32[n]", {"shape": (2, dims.floordiv(n, 2)), "checked": True},
     "f32[2,floordiv(n, 2)]"),
    ("transpose", "f32[n,2,3]", {"perm": (2, 0, 1)}, "f32[3,n,2]"),
    ("broadcast", "f32[n]", {"shape": (4, n), "axes": (1,)}, "f32[4,n]"),
    ("broadcast", "f32[]", {"shape": (), "axes": ()}, "f32[]"),
    ("slice", "f32[n,9]", {"start": (0, 1), "stop": (n, 9), "step": (1, 3)}, "f32[n,3]"),
    ("slice", "f32[n]", {"start": (1,), "stop": (n,), "step": (1,)}, "f32[n-1]"),
    ("slice", "f32[2*n]", {"start": (0,), "stop": (2 * n,), "step": (2,)}, "f32[n]"),
    ("update_slice", "f32[n,4] f32[n,2]", {"start": (0, 2)}, "f32[n,4]"),
    ("pad", "f32[n,3] f32[]", {"low": (1, -1), "high": (2, 0), "interior": (0, 2)},
     "f32[n+3,6]"),
    ("concat", "f32[n,3] f32[2,3] f32[n,3]", {"axis": 0}, "f32[2*n+2,3]"),
    ("reverse", "f32[n,3]", {"axes": (0, 1)}, "f32[n,3]"),
    ("gather", "f32[n,5,3] i32[n,7]", {"axis": 1, "batch": 1, "negative": False}, "f32[n,7,3]"),
    ("gather", "f32[5] i64[]", {"axis": 0, "batch": 0, "negative": True}, "f32[]"),
    ("scatter", "bool[5,3] i64[n] bool[n,3]", {"axis": 0, "batch": 0, "negative": False},
     "bool[5,3]"),
    ("scatter_add", "f32[5,3] i64[n] f32[n,3]", {"axis": 0, "batch": 0, "negative": False},
     "f32[5,3]"),
    ("reduce_sum", "f32[n,2,3]", {"axes": (0, 2)}, "f32[2]"),
    ("reduce_max", "bool[n,2]", {"axes": (0,)}, "bool[2]"),
    ("argmax", "f32[n,2]", {"axis": 0}, "i64[2]"),
    ("cumsum", "i64[n]", {"axis": 0, "reverse": True}, "i64[n]"),
    ("dot", "f32[n,2,3] f32[3,n,5]", {"contract": ((2,), (0,)), "batch": ((0,), (1,))},
     "f32[n,2,5]"),
    ("dot", "f32[] f32[n]", {"contract": ((), ()), "batch": ((), ())}, "f32[n]"),
    ("random_bits", "u32[2]", {"shape": (n, 3)}, "u32[n,3]"),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "result"), GOOD, ids=lambda v: str(v)[:40])
def test_result_type(op, operands, attrs, result):
    assert infer(op, operands, **attrs) == result


_SAME_DTYPE = "{op}: operands must have one dtype, got f32[3], f64[3]"
_SAME_SHAPE = "{op}: operands must have one shape, got {d}[3], {d}[n]"

BAD = [
    ("iota", "", {"dtype": OPS and DTYPES[0], "shape": (2,), "axis": 0}, ArgumentError,
     "iota: dtype must be an integer or a float, got bool"),
    ("iota", "", {"dtype": i32, "shape": (2,), "axis": 1}, ArgumentError,
     "iota: axis must be in 0..0, got 1"),
    ("bitcast", "f32[2]", {"dtype": u8}, DTypeError,
     "bitcast: source and u8 must have one width, got f32[2]"),
    ("polygamma", "f32[2]", {"n": -1}, ArgumentError,
     "polygamma: n must be an integer >= 0, got -1"),
    ("polygamma", "i32[2]", {"n": 1}, DTypeError, "polygamma: takes floats, got i32[2]"),
    ("is_finite", "i32[2]", {}, DTypeError, "is_finite: takes floats, got i32[2]"),
    ("neg", "bool[2]", {}, DTypeError, "neg: takes integers and floats, got bool[2]"),
    ("abs", "bool[2]", {}, DTypeError, "abs: takes integers and floats, got bool[2]"),
    ("sign", "bool[2]", {}, DTypeError, "sign: takes integers and floats, got bool[2]"),
    ("not", "f32[2]", {}, DTypeError, "not: takes bools and integers, got f32[2]"),
    *[(op, "i64[3]", {}, DTypeError, f"{op}: takes floats, got i64[3]") for op in FLOAT_UNARY],
    *[(op, "f32[3] f64[3]", {}, DTypeError, _SAME_DTYPE.format(op=op))
      for op in SAME_TYPE],
    *[(op, "f32[3] f32[n]", {}, ShapeError, _SAME_SHAPE.format(op=op, d="f32"))
      for op in SAME_TYPE],
    *[(op, "i32[3] i32[n]", {}, ShapeError, _SAME_SHAPE.format(op=op, d="i32"))
      for op in ["and", "or", "xor", "shift_left", "shift_right"]],
    *[(op, "f32[3] f32[3]", {}, DTypeError, f"{op}: takes bools and integers, got f32[3], f32[3]")
      for op in ["and", "or", "xor"]],
    *[(op, "bool[3] bool[3]", {}, DTypeError, f"{op}: takes integers, got bool[3], bool[3]")
      for op in ["shift_left", "shift_right"]],
    ("add", "bool[2] bool[2]", {}, DTypeError,
     "add: takes integers and floats, got bool[2], bool[2]; for bools use or / xor"),
    ("mul", "bool[2] bool[2]", {}, DTypeError,
     "mul: takes integers and floats, got bool[2], bool[2]; for bools use and"),
    ("sub", "bool[2] bool[2]", {}, DTypeError,
     "sub: takes integers and floats, got bool[2], bool[2]; for bools use xor"),
    ("pow", "bool[2] bool[2]", {}, DTypeError,
     "pow: takes integers and floats, got bool[2], bool[2]; cast bools first"),
    ("atan2", "i32[2] i32[2]", {}, DTypeError, "atan2: takes floats, got i32[2], i32[2]"),
    ("select", "i32[2] f32[2] f32[2]", {}, DTypeError,
     "select: the condition must be bool, got i32[2], f32[2], f32[2]"),
    ("select", "bool[2] f32[2] f64[2]", {}, DTypeError,
     "select: operands must have one dtype, got bool[2], f32[2], f64[2]"),
    ("select", "bool[3] f32[2] f32[2]", {}, ShapeError,
     "select: condition and operands must have one shape, got bool[3], f32[2], f32[2]"),
    ("reshape", "f32[2,3]", {"shape": (5,), "checked": True}, ShapeError,
     "reshape: element counts must be equal, got f32[2,3] (6 elements) to (5) (5 elements)"),
    ("reshape", "f32[n,3]", {"shape": (n, 4), "checked": False}, ShapeError,
     "reshape: element counts must be equal, got f32[n,3] (3*n elements) to (n,4) (4*n elements)"),
    ("reshape", "f32[6]", {"shape": (-2, -3), "checked": False}, ShapeError,
     "reshape: sizes must be >= 0, got f32[6] to (-2,-3)"),
    ("transpose", "f32[2,3]", {"perm": (0, 0)}, ShapeError,
     "transpose: perm must hold every axis once, got f32[2,3] with perm=(0,0)"),
    ("broadcast", "f32[1]", {"shape": (4, 3), "axes": (1,)}, ShapeError,
     "broadcast: sizes must be equal along the kept axes, got f32[1] to f32[4,3] along axes (1)"),
    ("broadcast", "f32[3]", {"shape": (4, 3), "axes": ()}, ShapeError,
     "broadcast: needs one result axis per operand axis, got f32[3] axes=()"),
    ("broadcast", "f32[3,4]", {"shape": (4, 3), "axes": (1, 0)}, ShapeError,
     "broadcast: axes must be distinct, increasing and below 2, got f32[4,3] with axes=(1, 0)"),
    ("slice", "f32[5]", {"start": (2,), "stop": (6,), "step": (1,)}, ShapeError,
     "slice: needs 0 <= start <= stop <= size, got f32[5] [(2):(6):(1)]"),
    ("slice", "f32[n]", {"start": (0,), "stop": (n + 1,), "step": (1,)}, ShapeError,
     "slice: needs 0 <= start <= stop <= size, got f32[n] [(0):(n+1):(1)]"),
    ("slice", "f32[5]", {"start": (0,), "stop": (5,), "step": (0,)}, ShapeError,
     "slice: steps must be positive integers, got f32[5] [(0):(5):(0)]"),
    ("slice", "f32[5,2]", {"start": (0,), "stop": (5,), "step": (1,)}, ShapeError,
     "slice: needs start, stop and step for every axis, got f32[5,2] [(0):(5):(1)]"),
    ("update_slice", "f32[5] f64[2]", {"start": (0,)}, DTypeError,
     "update_slice: operands must have one dtype, got f32[5], f64[2]"),
    ("update_slice", "f32[5] f32[3]", {"start": (3,)}, ShapeError,
     "update_slice: the update must fit inside, got f32[5], f32[3] at (3)"),
    ("update_slice", "f32[5] f32[]", {"start": (3,)}, ShapeError,
     "update_slice: needs equal ranks and a start per axis, got f32[5], f32[] at (3)"),
    ("pad", "f32[5] f64[]", {"low": (0,), "high": (0,), "interior": (0,)}, DTypeError,
     "pad: operand and padding value must have one dtype, got f32[5], f64[]"),
    ("pad", "f32[5] f32[1]", {"low": (0,), "high": (0,), "interior": (0,)}, ShapeError,
     "pad: the padding value must be 0-d, got f32[5], f32[1]"),
    ("pad", "f32[5] f32[]", {"low": (0,), "high": (-6,), "interior": (0,)}, ShapeError,
     "pad: the result's sizes must be >= 0, got f32[5], f32[] low=(0) high=(-6) interior=(0)"),
    ("pad", "f32[5] f32[]", {"low": (0,), "high": (0,), "interior": (-1,)}, ShapeError,
     "pad: interior must be integers >= 0, got f32[5], f32[] low=(0) high=(0) interior=(-1)"),
    ("pad", "f32[5] f32[]", {"low": (), "high": (0,), "interior": (0,)}, ShapeError,
     "pad: needs low, high and interior for every axis, got f32[5], f32[] "
     "low=() high=(0) interior=(0)"),
    ("concat", "", {"axis": 0}, ShapeError,
     "concat: needs at least one operand, got no operands"),
    ("concat", "f32[2] i32[2]", {"axis": 0}, DTypeError,
     "concat: operands must have one dtype, got f32[2], i32[2]"),
    ("concat", "f32[2,3] f32[2,4]", {"axis": 0}, ShapeError,
     "concat: shapes must be equal but for the axis, got f32[2,3], f32[2,4] with axis=0"),
    ("concat", "f32[2]", {"axis": 1}, ShapeError,
     "concat: axis must be in 0..0, got f32[2] with axis=1"),
    ("reverse", "f32[2,3]", {"axes": (1, 1)}, ShapeError,
     "reverse: axes must be distinct, increasing and below 2, got f32[2,3] with axes=(1, 1)"),
    ("gather", "f32[5] f32[2]", {"axis": 0, "batch": 0, "negative": False}, DTypeError,
     "gather: indices must be integers, got f32[5], f32[2]"),
    ("gather", "f32[5] i64[2]", {"axis": 1, "batch": 0, "negative": False}, ShapeError,
     "gather: axis must be in 0..0, got f32[5], i64[2] with axis=1, batch=0"),
    ("gather", "f32[5,2] i64[2]", {"axis": 0, "batch": 1, "negative": False}, ShapeError,
     "gather: batch must be at most axis and the rank of the indices, got f32[5,2], i64[2] "
     "with axis=0, batch=1"),
    ("gather", "f32[n,2] i64[2,3]", {"axis": 1, "batch": 1, "negative": False}, ShapeError,
     "gather: batch sizes must be equal, got f32[n,2], i64[2,3] with axis=1, batch=1"),
    ("scatter", "f32[5,3] i64[2] f32[3,3]", {"axis": 0, "batch": 0, "negative": False},
     ShapeError, "scatter: updates must be f32[2,3], got f32[5,3], i64[2], f32[3,3]"),
    ("scatter_add", "f32[5] i64[2] f64[2]", {"axis": 0, "batch": 0, "negative": False},
     DTypeError,
     "scatter_add: operand and updates must have one dtype, got f32[5], i64[2], f64[2]"),
    ("scatter_add", "bool[5] i64[2] bool[2]", {"axis": 0, "batch": 0, "negative": False},
     DTypeError, "scatter_add: takes integers and floats, got bool[5], i64[2], bool[2]"),
    *[(op, "bool[3]", {"axes": (0,)}, DTypeError,
       f"{op}: takes integers and floats, got bool[3]; cast bools first")
      for op in ("reduce_sum", "reduce_prod")],
    *[(op, "f32[2,3]", {"axes": (2,)}, ShapeError,
       f"{op}: axes must be distinct, increasing and below 2, got f32[2,3] with axes=(2,)")
      for op in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")],
    ("reduce_max", "f32[2,0]", {"axes": (1,)}, ShapeError,
     "reduce_max: an empty axis has no maximum, got f32[2,0] over axes (1,)"),
    ("reduce_min", "f32[2,0]", {"axes": (1,)}, ShapeError,
     "reduce_min: an empty axis has no minimum, got f32[2,0] over axes (1,)"),
    ("argmax", "f32[2,0]", {"axis": 1}, ShapeError,
     "argmax: an empty axis has no maximum, got f32[2,0] with axis=1"),
    ("argmax", "f32[2]", {"axis": -1}, ShapeError,
     "argmax: axis must be in 0..0, got f32[2] with axis=-1"),
    *[(op, "bool[2]", {"axis": 0, "reverse": False}, DTypeError,
       f"{op}: takes integers and floats, got bool[2]; cast bools first")
      for op in ("cumsum", "cumprod", "cummax")],
    ("cumsum", "f32[2]", {"axis": 1, "reverse": False}, ShapeError,
     "cumsum: axis must be in 0..0, got f32[2] with axis=1"),
    ("linear_recurrence", "f32[2] f64[2]", {"axis": 0, "reverse": False}, DTypeError,
     "linear_recurrence: operands must have one dtype, got f32[2], f64[2]"),
    ("linear_recurrence", "f32[2,3] f32[2]", {"axis": 0, "reverse": False}, ShapeError,
     "linear_recurrence: operands must have one shape, got f32[2,3], f32[2]"),
    ("dot", "f32[2,3] f64[3,2]", {"contract": ((1,), (0,)), "batch": ((), ())}, DTypeError,
     "dot: operands must have one dtype, got f32[2,3], f64[3,2]"),
    ("dot", "bool[2,3] bool[3,2]", {"contract": ((1,), (0,)), "batch": ((), ())}, DTypeError,
     "dot: takes integers and floats, got bool[2,3], bool[3,2]; cast bools first"),
    ("dot", "f32[64,784] f32[512,10]", {"contract": ((1,), (0,)), "batch": ((), ())}, ShapeError,
     "dot: contracted sizes must be equal, got f32[64,784], f32[512,10] with "
     "contract=((1,), (0,)), batch=((), ())"),
    ("dot", "f32[2,3] f32[4,3]", {"contract": ((1,), (1,)), "batch": ((0,), (0,))}, ShapeError,
     "dot: batch sizes must be equal, got f32[2,3], f32[4,3] with "
     "contract=((1,), (1,)), batch=((0,), (0,))"),
    ("dot", "f32[2,3] f32[4,3]", {"contract": ((1,), (1,)), "batch": ((1,), (0,))}, ShapeError,
     "dot: axes of operand 0 must be distinct and exist, got f32[2,3], f32[4,3] with "
     "contract=((1,), (1,)), batch=((1,), (0,))"),
    ("random_bits", "i32[2]", {"shape": (3,)}, DTypeError,
     "random_bits: the key must be u32[2], got i32[2]"),
    ("random_bits", "u32[3]", {"shape": (3,)}, ShapeError,
     "random_bits: the key must be u32[2], got u32[3]"),
]


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "error", "message"), BAD, ids=[f"{b[0]}-{b[1]}" for b in BAD]
)
def test_wrong_use(op, operands, attrs, error, message):
    with pytest.raises(error) as caught:
        infer(op, operands, **attrs)
    assert caught.value.message == message


def test_every_row_that_can_be_misused_has_a_planted_mistake():
    cannot = {"input", "variable", "constant", "dim", "cast", "stop_gradient", "barrier"}
    planted = {b[0] for b in BAD} | {"call", "fused"}
    assert planted | cannot == set(OPS)


@pytest.mark.parametrize("name", [r for r in OPS if OPS[r].arity is not None])
def test_wrong_number_of_operands(name):
    row = OPS[name]
    with pytest.raises(UsageError, match=f"^{name}: takes {row.arity} operands, got "):
        ir.infer(row, [T("f32[2]")] * (row.arity + 1), {})


def test_error_carries_the_users_line():
    x, y = prim.input("x", T("f32[2]")), prim.input("y", T("f32[3]"))
    with pytest.raises(ShapeError, match=r"\(test_type_rules\.py:\d+\)$") as caught:
        prim.add(x, y)
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize("name", ["call", "fused"])
def test_region(name):
    x, y = prim.input("x", T("f32[n,2]")), prim.input("y", T("f32[n,2]"))
    body = ir.collect(
        "f", [x._value, y._value], [prim.add(x, y)._value, prim.less(x, y)._value]
    )
    # the attributes beside the body do not change the types
    attrs = {"name": "f", "body": body, "axes": (), "reduced": (), "outputs": ()}
    assert infer(name, "f32[n,2] f32[n,2]", **attrs) == "f32[n,2] bool[n,2]"
    label = "call @f" if name == "call" else "fused"
    for wrong in ("f32[n,2]", "f32[n,2] f64[n,2]", "f32[n,2] f32[3,2]"):
        with pytest.raises(ShapeError) as caught:
            infer(name, wrong, **attrs)
        came = wrong.replace(" ", ", ")
        assert caught.value.message == f"{label}: operands must be f32[n,2], f32[n,2], got {came}"


def test_float_dtypes_all_work_and_elementwise_keeps_shape():
    for name in FLOAT_UNARY:
        for d in DTYPES:
            if d.is_float:
                assert infer(name, f"{d}[n,2]") == f"{d}[n,2]"


def test_the_size_of_a_type_is_computed_once():
    """Passes and codegen ask each of thousands of values for it, several times."""
    t = TensorType(f32, (dims.dim("n"), 16))
    assert t.size == 16 * dims.dim("n")
    assert t.size is t.size


def test_constant_and_variable_types():
    assert prim.constant(np.zeros((2, 3), np.int8)).type is T("i8[2,3]")
    state = ir.State("w", T("f32[2]"), np.zeros(2, np.float32))
    assert prim.variable(state).type is T("f32[2]")
    assert prim.full(TensorType(f32, (n, 2)), 1.5).type is T("f32[n,2]")


def test_flags():
    assert {r for r in OPS if OPS[r].unique} == {"input", "variable", "barrier", "random_bits"}
    assert {r for r in OPS if OPS[r].fallible} == {
        "div", "rem", "pow", "gather", "scatter", "scatter_add"
    }
    assert OPS["div"].fails_on(types("i32[2] i32[2]"))
    assert not OPS["div"].fails_on(types("f32[2] f32[2]"))
    assert {r for r in OPS if OPS[r].kind is Kind.LEAF} == set(NO_OPERANDS)
