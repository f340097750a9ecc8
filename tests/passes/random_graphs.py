"""Random graphs of 5 to 60 steps, over every op row, made so that their meaning is exact.

Each step draws an op and operands among the values so far; what does not type is not made. A zero
of max and min, whose sign is unspecified, gets + 0.0; nothing looks at the bits of a NaN. Of values
with all their digits only signs are summed and multiplied up: folding does so one precision up.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import golden_files
import numpy as np
from hypothesis import strategies as st
from native_reference import MATH

from graphc import ir
from graphc.dims import dim
from graphc.errors import GraphcError
from graphc.ir import Graph, Literal, State, Value
from graphc.ops import OPS, Kind
from graphc.types import DType, TensorType, bool_, f32, i32

N = dim("n")
Draw = Callable[[st.SearchStrategy[Any]], Any]

# The table's own rows: other tests in this process may define ops.
OWN = {name: row for name, row in OPS.items() if row.type.__module__.startswith("graphc.ops")}
_ROWS = [(name, row) for name, row in OWN.items() if row.kind is Kind.ELEMENTWISE]
UNARY = [name for name, row in _ROWS if row.arity == 1 and not row.attrs] + ["stop_gradient"]
BINARY = [name for name, row in _ROWS if row.arity == 2]
REDUCE = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"]
ROUNDED = MATH | {"div", "sqrt"}
SCAN = [name for name, row in OWN.items() if row.kind is Kind.SCAN]
VIEWS = ["transpose", "reshape", "broadcast", "slice", "pad", "concat", "reverse", "update_slice"]
KINDS = [
    "unary", "unary", "binary", "binary", "view", "view", "reduce", "scan", "cast", "select",
    "constant", "dot", "index", "call", "leaf", "other",
]  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, float("inf"), float("nan"))
# for inputs: what floats go wrong on
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.5, 1e30, np.inf, -np.inf, np.nan])
INTS = (0, 1, -1, 2, 8, 100, -(2**31))


class _Maker:
    def __init__(self, rng: random.Random):
        self.rng = rng
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
        return self.rng.choice(among)

    def coin(self) -> bool:
        return self.rng.random() < 0.5

    def value(self) -> Value:
        """Late values are likelier, so that graphs grow deep."""
        k = self.rng.randint(0, 5)
        return self.values[-1 - k] if k < len(self.values) else self.pick(self.values)

    def like(self, v: Value) -> Value:
        """A value of v's type: one that exists, or a constant."""
        same = [w for w in self.values if w.type is v.type]
        if self.coin():
            return self.pick(same)
        return self.full(v.type.dtype, v.type.shape)

    def full(self, d: DType, shape: Any) -> Value:
        number = self.pick(FLOATS if d.is_float else (False, True) if d.kind == "b" else INTS)
        c = self.make("constant", value=Literal(np.asarray(number, d.numpy)))
        return self.make("broadcast", c, shape=shape, axes=()) if shape else c

    def step(self) -> None:
        x = self.value()
        kind = self.pick(KINDS)
        v: Value = getattr(self, kind)(x)
        extremum = v.node.op.name in (
            "maximum",
            "minimum",
            "reduce_max",
            "reduce_min",
            "cummax",
        )
        if extremum and v.type.dtype.is_float:
            zero = self.make("constant", value=Literal(np.float32(0)))
            if v.type.shape:
                zero = self.make("broadcast", zero, shape=v.type.shape, axes=())
            v = self.make("add", v, zero)
        self.values.append(v)

    def unary(self, x: Value) -> Value:
        d = x.type.dtype
        fits = UNARY if d.is_float else ["not"] if d is bool_ else ["neg", "abs", "sign", "not"]
        return self.make(self.rng.choice(fits), x)

    def binary(self, x: Value) -> Value:
        op, y = self.pick(BINARY), self.like(x)
        if op in ("div", "rem", "pow") and not x.type.dtype.is_float:
            y = self.make("constant", value=Literal(np.asarray(self.pick((1, 2, 3, 8)), np.int32)))
            y = self.make("broadcast", y, shape=x.type.shape, axes=())
        return self.make(op, *((x, y) if self.coin() or y is not x else (y, x)))

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
        axes = tuple(a for a in range(x.type.ndim) if self.coin())
        op = self.pick(REDUCE)
        rounded = any(n.op.name in ROUNDED for n in ir.reachable([x]))
        if op in ("reduce_sum", "reduce_prod") and x.type.dtype.is_float and rounded:
            x = self.make("sign", x)
        return self.make(op, x, axes=axes)

    def dot(self, x: Value) -> Value:
        y = self.pick([v for v in self.values if v.type.dtype is i32 and v.type.ndim == 2])
        x = self.pick([v for v in self.values if v.type.dtype is i32 and v.type.ndim == 2])
        contract = ((self.rng.randint(0, 1),), (self.rng.randint(0, 1),))
        return self.make("dot", x, y, contract=contract, batch=((), ()))

    def index(self, x: Value) -> Value:
        """Along an axis of x, at 0 and 1: in range, and no place twice."""
        axis = self.rng.randint(0, x.type.ndim - 1)
        i = self.make("iota", dtype=i32, shape=(2,), axis=0)
        attrs = {"axis": axis, "batch": 0, "negative": self.coin()}
        op = self.pick(("gather", "scatter", "scatter_add"))
        if x.type.shape[axis] not in (2, 3):
            raise IndexError
        g = self.make("gather", x, i, **attrs)
        return g if op == "gather" else self.make(op, x, i, self.like(g), **attrs)

    def scan(self, x: Value) -> Value:
        axis = self.rng.randint(0, x.type.ndim - 1)
        if self.coin():
            return self.make("argmax", x, axis=axis)
        name = self.pick(SCAN)
        return self.make(name, *[x] * OWN[name].arity, axis=axis, reverse=self.coin())

    def leaf(self, x: Value) -> Value:
        kind = self.pick(("dim", "iota", "variable", "random_bits"))
        if kind == "dim":
            return self.make("cast", self.make("dim", size=N * 2 + 1), dtype=f32)
        if kind == "iota":
            return self.make(kind, dtype=self.pick((i32, f32)), shape=x.type.shape, axis=0)
        if kind == "variable":
            value = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
            return self.make(kind, state=State("w", TensorType(f32, (2, 3)), value))
        key = self.make("constant", value=Literal(np.array([7, 9], np.uint32)))
        return self.make("bitcast", self.make(kind, key, shape=x.type.shape), dtype=i32)

    def other(self, x: Value) -> Value:
        if self.coin():
            return self.make("barrier", x, id=len(self.values))
        return self.make("polygamma", x, n=self.rng.randint(0, 2))

    def call(self, x: Value) -> Value:
        (a,) = ir.apply("input", (), name="a", type=x.type)
        out = self.make(self.pick(("neg", "abs", "sign")), a)
        if self.coin():
            out = self.make("add", out, a)
        body = ir.collect("piece", [a], [out])
        return self.make("call", x, name="piece", body=body)

    def view(self, x: Value) -> Value:
        shape, n = x.type.shape, x.type.ndim
        op = self.pick(VIEWS)
        if op == "transpose":
            return self.make(op, x, perm=tuple(self.rng.sample(range(n), n)))
        if op == "reshape":
            at = self.rng.randint(0, n)
            flat = (*shape[:-2], shape[-2] * shape[-1]) if n > 1 else (*shape, 1)
            ones = tuple(s for s in shape if s != 1)
            new = self.pick([(*shape[:at], 1, *shape[at:]), flat, ones, shape])
            return self.make(op, x, shape=new, checked=False)
        if op == "broadcast":
            at = self.rng.randint(0, n)
            size = self.pick((1, 2, N))
            axes = tuple(a + (a >= at) for a in range(n))
            return self.make(op, x, shape=(*shape[:at], size, *shape[at:]), axes=axes)
        if op == "slice":
            start = [self.rng.randint(0, 1) if isinstance(s, int) and s else 0 for s in shape]
            step = tuple(self.rng.randint(1, 2) for _ in shape)
            return self.make(op, x, start=tuple(start), stop=shape, step=step)
        if op == "pad":
            low = [self.rng.randint(-1 if s in (2, 3) else 0, 1) for s in shape]
            high = [self.rng.randint(0, 1) for _ in shape]
            value = self.full(x.type.dtype, ())
            interior = tuple(self.rng.randint(0, 1) for _ in shape)
            return self.make(op, x, value, low=tuple(low), high=tuple(high), interior=interior)
        if op == "update_slice":
            part = tuple(s if isinstance(s, int) and s < 2 else 2 for s in shape[:1])
            if not n or not isinstance(shape[0], int):
                raise IndexError
            u = self.make("slice", x, start=(0,) * n, stop=(*part, *shape[1:]), step=(1,) * n)
            return self.make(op, x, self.like(u), start=(shape[0] - part[0], *(0,) * (n - 1)))
        if op == "concat":
            return self.make(op, x, self.like(x), axis=self.rng.randint(0, max(0, n - 1)))
        return self.make(op, x, axes=tuple(a for a in range(n) if self.coin()))


@st.composite
def graphs(draw: Draw) -> Graph:
    """A graph whose outputs are all that it makes and does not use.

    Fewer steps of one seed give a part of the same graph, so that failures shrink.
    """
    seed, steps = draw(st.integers(0, 2**32)), draw(st.integers(5, 60))
    maker = _Maker(random.Random(seed))
    while steps > 0:
        with contextlib.suppress(GraphcError, IndexError, ValueError):
            maker.step()
            steps -= 1
    used = {a for n in ir.reachable(maker.values) for a in n.args}
    outputs = [v for v in maker.values[6:] if v not in used]
    return ir.collect("random", maker.inputs, outputs)


def special_inputs(g: Graph, seed: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out = []
    for a in golden_files.random_inputs(g, seed, golden_files.sizes(g, n)):
        if a.dtype.kind == "f":
            a = rng.choice(SPECIAL, a.shape).astype(a.dtype)
        elif a.dtype.kind == "i":
            a = rng.integers(-(2**31), 2**31, a.shape).astype(a.dtype)
        out.append(a)
    return out
