"""Small graphs for the tests of printing, parsing and verifying: one for every op, and random."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from graphc import ir
from graphc.dims import dim, floordiv, maximum
from graphc.ir import Graph, Literal, State, Value
from graphc.origins import DeclaringAs
from graphc.types import TensorType, f16, f32, f64, i8, i32, i64, u8, u32, u64

B, N = dim("batch"), dim("n")
FLOATS = [
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "atan", "erf",
    "log2", "log10", "tan", "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos",
    "normal_cdf", "lgamma", "cbrt", "neg", "abs", "sign", "floor", "ceil", "round",
]
PAIRS = ["add", "mul", "sub", "div", "rem", "pow", "atan2", "maximum", "minimum"]


def one(op: str, *args: Value, **attrs) -> Value:
    return ir.apply(op, args, **attrs)[0]


def given(name: str, dtype, *shape) -> Value:
    return one("input", name=name, type=TensorType(dtype, shape))


def constant(array) -> Value:
    return one("constant", value=Literal(np.asarray(array)))


def body() -> Graph:
    a, b = given("a", f32, B, 3), given("b", f32, B, 3)
    total = one("add", a, b)
    return ir.collect("pair", [a, b], [total, one("exp", total)])


def every_op() -> Graph:
    """A graph in which every op of the table stands, call and fused included."""
    x, y = given("x", f32, B, 3), given("y", f32, B, 3)
    i, k = given("i", i64, N), given("k", i32, B, 3)
    w = one("variable", state=State("w", TensorType(f32, (3, 2)), np.ones((3, 2), np.float32)))
    outs = [one(op, x) for op in FLOATS]
    outs += [one(op, x, y) for op in PAIRS]
    outs += [one(op, k, k) for op in ("and", "or", "xor", "shift_left", "shift_right")]
    less = one("less", x, y)
    outs += [less, one("equal", x, y), one("less_equal", x, y), one("not", less)]
    outs += [one("select", less, x, y), one("is_finite", x), one("polygamma", x, n=2)]
    outs += [one("cast", x, dtype=f16), one("bitcast", x, dtype=u32), one("stop_gradient", x)]
    outs += [*ir.apply("barrier", (x, i), id=3), one("dim", size=B * 2 + floordiv(N, 2))]
    outs += [one("iota", dtype=i32, shape=(2, maximum(B, N)), axis=1)]
    zero = constant(np.float32(-0.0))
    outs += [
        one("reshape", x, shape=(3 * B,), checked=False),
        one("reshape", x, shape=(floordiv(B, 2), 6), checked=True),
        one("transpose", x, perm=(1, 0)),
        one("broadcast", x, shape=(2, B, 3), axes=(1, 2)),
        one("slice", x, start=(0, 1), stop=(B, 3), step=(1, 2)),
        one("update_slice", x, y, start=(0, 0)),
        one("pad", x, zero, low=(1, 0), high=(-1, 2), interior=(0, 1)),
        one("concat", x, y, axis=0),
        one("reverse", x, axes=(0, 1)),
    ]
    place = {"axis": 0, "batch": 0, "negative": True}
    rows = one("gather", x, i, **place)
    outs += [rows, one("scatter", x, i, rows, **place), one("scatter_add", x, i, rows, **place)]
    outs += [one(f"reduce_{f}", x, axes=(1,)) for f in ("sum", "prod", "max", "min")]
    outs += [one("argmax", x, axis=1)]
    outs += [one(f"cum{f}", x, axis=1, reverse=True) for f in ("sum", "prod", "max")]
    outs += [one("linear_recurrence", x, y, axis=1, reverse=True)]
    outs += [one("dot", x, w, contract=((1,), (0,)), batch=((), ()))]
    key = constant(np.array([1, 2], np.uint32))
    outs += [one("random_bits", key, shape=(B, 4))]
    outs += ir.apply("call", (x, y), name="pair", body=body())
    outs += ir.apply(
        "fused", (y, x), body=body(), axes=(B, 3), reduced=(), outputs=((0, 1), (0, -1))
    )
    state = w.node.attrs["state"]
    return ir.collect("every_op", [x, y, i, k], outs, [(state, w)])


CONSTANTS = [
    np.float32(0.1), np.float32(-0.0), np.float64(np.nan), np.float32(np.inf), np.float16(-1.5),
    np.array([0x7FA00001, 0xFFC00000, 1], np.uint32).view(np.float32),
    np.array([5e-324, -np.inf, 1.7976931348623157e308]), np.array([[True, False]]),
    np.array([-128, 127], np.int8), np.uint64(2**64 - 1), np.int64(-(2**63)),
    np.zeros((0, 3), np.float32), np.arange(16, dtype=np.float32).reshape(4, 4),
    np.arange(17, dtype=np.int32),
]

SCOPES = st.sampled_from(["", "encoder", "encoder/dense", 'odd "scope"\\\n/é'])
NAMES = st.one_of(
    st.sampled_from(["x", "x.1", "loss", "3", "a b", "return", "update", "graph", "é", "%0", '"']),
    st.text(max_size=6),
)


@st.composite
def graphs(draw, depth: int = 1) -> Graph:
    """A random graph: odd names and scopes, shared names, attributes of every kind, bodies."""
    t = TensorType(f32, (B, 3))
    if depth:
        names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    else:
        names = draw(st.lists(NAMES, min_size=2, max_size=2))
    inputs = [one("input", name=name, type=t) for name in names]
    values = list(inputs)
    states: list[tuple[State, Value]] = []
    others: list[Value] = []
    for _ in range(draw(st.integers(0, 12))):
        scope = draw(SCOPES)
        pick = st.sampled_from(values)
        with DeclaringAs(scope=scope):
            kind = draw(st.sampled_from(["unary", "binary", "constant", "dim", "region", "state",
                                         "reshape", "polygamma", "barrier", "iota"]))
            if kind == "unary":
                values.append(one(draw(st.sampled_from(FLOATS)), draw(pick)))
            elif kind == "binary":
                values.append(one(draw(st.sampled_from(PAIRS)), draw(pick), draw(pick)))
            elif kind == "constant":
                others.append(constant(draw(st.sampled_from(CONSTANTS))))
            elif kind == "dim":
                size = B * draw(st.integers(-3, 3)) + draw(st.integers(-5, 5))
                others.append(one("dim", size=size))
            elif kind == "iota":
                dtype = draw(st.sampled_from([f64, i8, u8, u64]))
                others.append(one("iota", dtype=dtype, shape=(B, 2), axis=draw(st.integers(0, 1))))
            elif kind == "polygamma":
                values.append(one("polygamma", draw(pick), n=draw(st.integers(0, 9))))
            elif kind == "barrier":
                values += ir.apply("barrier", (draw(pick), draw(pick)), id=draw(st.integers(0, 9)))
            elif kind == "reshape":
                flat = one("reshape", draw(pick), shape=(B * 3,), checked=False)
                values.append(one("reshape", flat, shape=(B, 3), checked=draw(st.booleans())))
            elif kind == "region" and depth:
                inner = draw(graphs(depth - 1))
                xs = [draw(pick) for _ in inner.inputs]
                outs = ir.apply("call", xs, name=draw(NAMES), body=inner)
                values += [v for v in outs if v.type is t]
            elif kind == "state" and depth:
                array = np.full(3, draw(st.floats(width=32)), np.float32)
                state = State(draw(NAMES), TensorType(f32, (3,)), array)
                v = one("variable", state=state)
                states.append((state, one("exp", v)))
        if draw(st.booleans()):
            values[-1].node.origin = values[-1].node.origin._replace(name=draw(NAMES))
    outputs = draw(st.lists(st.sampled_from(values + others), max_size=4))
    if not depth:
        outputs.append(values[-1])
    output_names = draw(
        st.lists(NAMES, min_size=len(outputs), max_size=len(outputs), unique=True)
        if draw(st.booleans()) else st.just([""] * len(outputs))
    )
    return ir.collect(draw(NAMES), inputs, outputs, states, output_names)


