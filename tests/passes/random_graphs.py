"""Random graphs of 3 to 40 nodes, made so that their meaning is exact.

Each step draws an op and operands among the values so far; what does not type is not made. A zero
of max and min, whose sign is unspecified, gets + 0.0; nothing looks at the bits of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphc import ir
from graphc.dims import dim
from graphc.errors import GraphcError
from graphc.ir import Graph, Literal, Value
from graphc.types import DType, TensorType, bool_, f32, i32

N = dim("n")
Draw = Callable[[st.SearchStrategy[Any]], Any]

UNARY = [
    "neg",
    "abs",
    "sign",
    "floor",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "log1p",
    "expm1",
    "rsqrt",
    "is_finite",
    "not",
    "stop_gradient",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "and",
    "or",
    "xor",
    "equal",
    "less",
    "less_equal",
    "pow",
    "shift_left",
]
REDUCE = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"]
FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, float("inf"), float("nan"))
INTS = (0, 1, -1, 2, 8, 100, -(2**31))


class _Maker:
    def __init__(self, draw: Draw):
        self.draw = draw
        shapes = [(2, 3), (3, 2), (N, 3), (3,), ()]
        self.inputs = [
            self.make("input", name=f"x{i}", type=TensorType(d, s))
            for i, (d, s) in enumerate(
                [(f32, shapes[0]), (f32, shapes[2]), (i32, shapes[0]), (f32, shapes[3]),
                 (bool_, shapes[0]), (i32, shapes[1])]
            )
        ]  # fmt: skip
        self.values = list(self.inputs)

    def make(self, op: str, *args: Value, **attrs: Any) -> Value:
        (out,) = ir.apply(op, args, **attrs)
        return out

    def pick(self, among: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(among))

    def value(self) -> Value:
        """Late values are likelier, so that graphs grow deep."""
        k = self.draw(st.integers(0, 5))
        return self.values[-1 - k] if k < len(self.values) else self.pick(self.values)

    def like(self, v: Value) -> Value:
        """A value of v's type: one that exists, or a constant."""
        same = [w for w in self.values if w.type is v.type]
        if self.draw(st.booleans()):
            return self.pick(same)
        return self.full(v.type.dtype, v.type.shape)

    def full(self, d: DType, shape: Any) -> Value:
        number = self.pick(FLOATS if d.is_float else (False, True) if d.kind == "b" else INTS)
        c = self.make("constant", value=Literal(np.asarray(number, d.numpy)))
        return self.make("broadcast", c, shape=shape, axes=()) if shape else c

    def step(self) -> None:
        x = self.value()
        kind = self.pick(
            [
                "unary",
                "binary",
                "binary",
                "layout",
                "layout",
                "reduce",
                "cast",
                "select",
                "constant",
                "dot",
                "index",
                "call",
            ]
        )
        v: Value = getattr(self, kind)(x)
        extremum = v.node.op.name in ("maximum", "minimum", "reduce_max", "reduce_min")
        if extremum and v.type.dtype.is_float:
            zero = self.make("constant", value=Literal(np.float32(0)))
            if v.type.shape:
                zero = self.make("broadcast", zero, shape=v.type.shape, axes=())
            v = self.make("add", v, zero)
        self.values.append(v)

    def unary(self, x: Value) -> Value:
        return self.make(self.pick(UNARY), x)

    def binary(self, x: Value) -> Value:
        op, y = self.pick(BINARY), self.like(x)
        if op in ("div", "pow") and not x.type.dtype.is_float:
            y = self.make("constant", value=Literal(np.asarray(self.pick((1, 2, 3, 8)), np.int32)))
            y = self.make("broadcast", y, shape=x.type.shape, axes=())
        return self.make(op, *((x, y) if self.draw(st.booleans()) or y is not x else (y, x)))

    def select(self, x: Value) -> Value:
        among = [v for v in self.values if v.type.shape == x.type.shape and v.type.dtype is bool_]
        cond = self.pick(among) if among else self.full(bool_, x.type.shape)
        return self.make("select", cond, x, self.like(x))

    def cast(self, x: Value) -> Value:
        return self.make("cast", x, dtype=self.pick((f32, i32, bool_)))

    def constant(self, x: Value) -> Value:
        if not x.type.is_static:
            return self.full(x.type.dtype, x.type.shape)
        values = [self.pick((-1, 0, 1, 2)) for _ in range(int(np.prod(x.type.shape)))]  # type: ignore[arg-type]
        array = np.array(values).reshape(x.type.shape).astype(x.type.dtype.numpy)
        return self.make("constant", value=Literal(array))

    def reduce(self, x: Value) -> Value:
        axes = tuple(a for a in range(x.type.ndim) if self.draw(st.booleans()))
        return self.make(self.pick(REDUCE), x, axes=axes)

    def dot(self, x: Value) -> Value:
        y = self.pick([v for v in self.values if v.type.dtype is i32 and v.type.ndim == 2])
        x = self.pick([v for v in self.values if v.type.dtype is i32 and v.type.ndim == 2])
        contract = ((self.draw(st.integers(0, 1)),), (self.draw(st.integers(0, 1)),))
        return self.make("dot", x, y, contract=contract, batch=((), ()))

    def index(self, x: Value) -> Value:
        if x.type.ndim and self.draw(st.booleans()):
            i = self.make("iota", dtype=i32, shape=(2,), axis=0)
            axis = self.draw(st.integers(0, x.type.ndim - 1))
            return self.make("gather", x, i, axis=axis, batch=0, negative=False)
        return self.make("cumsum", x, axis=0, reverse=self.draw(st.booleans()))

    def call(self, x: Value) -> Value:
        (a,) = ir.apply("input", (), name="a", type=x.type)
        out = self.make(self.pick(("neg", "abs", "sign")), a)
        if self.draw(st.booleans()):
            out = self.make("add", out, a)
        body = ir.collect("piece", [a], [out])
        return self.make("call", x, name="piece", body=body)

    def layout(self, x: Value) -> Value:
        shape, n = x.type.shape, x.type.ndim
        op = self.pick(["transpose", "reshape", "broadcast", "slice", "pad", "concat", "reverse"])
        if op == "transpose":
            return self.make(op, x, perm=tuple(self.draw(st.permutations(range(n)))))
        if op == "reshape":
            at = self.draw(st.integers(0, n))
            flat = (*shape[:-2], shape[-2] * shape[-1]) if n > 1 else (*shape, 1)
            ones = tuple(s for s in shape if s != 1)
            new = self.pick([(*shape[:at], 1, *shape[at:]), flat, ones, shape])
            return self.make(op, x, shape=new, checked=False)
        if op == "broadcast":
            at = self.draw(st.integers(0, n))
            size = self.pick((1, 2, N))
            axes = tuple(a + (a >= at) for a in range(n))
            return self.make(op, x, shape=(*shape[:at], size, *shape[at:]), axes=axes)
        if op == "slice":
            start = [self.draw(st.integers(0, 1)) if isinstance(s, int) and s else 0 for s in shape]
            step = tuple(self.draw(st.integers(1, 2)) for _ in shape)
            return self.make(op, x, start=tuple(start), stop=shape, step=step)
        if op == "pad":
            low = [self.draw(st.integers(-1 if s in (2, 3) else 0, 1)) for s in shape]
            high = [self.draw(st.integers(0, 1)) for _ in shape]
            value = self.full(x.type.dtype, ())
            interior = tuple(self.draw(st.integers(0, 1)) for _ in shape)
            return self.make(op, x, value, low=tuple(low), high=tuple(high), interior=interior)
        if op == "concat":
            return self.make(op, x, self.like(x), axis=self.draw(st.integers(0, max(0, n - 1))))
        return self.make(op, x, axes=tuple(a for a in range(n) if self.draw(st.booleans())))


@st.composite
def graphs(draw: Draw) -> Graph:
    """A graph with one to three outputs."""
    maker = _Maker(draw)
    for _ in range(draw(st.integers(3, 40))):
        try:
            maker.step()
        except (GraphcError, IndexError):
            continue
    outputs = [maker.value() for _ in range(draw(st.integers(1, 3)))]
    return ir.collect("random", maker.inputs, outputs)
