"""Random graphs over every op row, sized and fed for native code.

A graph of a seed with fewer steps is a part of the same graph, so that failures shrink. Axes are
small numbers or the dimensions b and n; `Made.feed` draws inputs for any values of those.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from native_reference import inexact

import graphc as gx
from graphc import dims, ir, prim
from graphc.dims import dim
from graphc.errors import GraphcError
from graphc.ir import State
from graphc.ops import OPS, Kind
from graphc.tensor import Tensor
from graphc.types import DTYPES, DType, TensorType, bool_, f32, f64, i32, i64, u32

B, N = dim("b"), dim("n")
SIZES = ({"b": 7, "n": 20}, {"b": 1, "n": 0}, {"b": 33, "n": 1}, {"b": 0, "n": 5},
         {"b": 2, "n": 65}, {"b": 3, "n": 4})  # fmt: skip
INTS = tuple(d for d in DTYPES if d.is_int)
FLOATS = tuple(d for d in DTYPES if d.is_float)
COMMON = (f32, f32, f32, f64, i32, i64, bool_)

# The table's own rows: other tests in this process may define ops.
OWN = {name: row for name, row in OPS.items() if row.type.__module__.startswith("graphc.ops")}
EXTREMA = frozenset(["maximum", "minimum", "reduce_max", "reduce_min", "cummax"])


class Made(NamedTuple):
    """Inputs, what may become outputs, and what an integer input may hold: [low, high)."""

    inputs: list[Tensor]
    values: list[Tensor]
    ranges: dict[str, tuple[Any, Any]]

    def outputs(self) -> list[Tensor]:
        """What nothing else uses, and a few more."""
        used = {a for n in ir.reachable([t._value for t in self.values]) for a in n.args}
        made = self.values[len(self.inputs) and 1 :]
        return [t for i, t in enumerate(made) if t._value not in used or i % 7 == 3] or made[-1:]

    def feed(self, sizes: dict[str, int], seed: int, calm: bool = False) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [self.draw(t, sizes, rng, calm) for t in self.inputs]

    def draw(self, t: Tensor, sizes: dict[str, int], rng: Any, calm: bool) -> np.ndarray:
        shape, d = tuple(dims.evaluate(s, sizes) for s in t.type.shape), t.dtype
        if d is bool_:
            return rng.random(shape) < 0.5
        if d.is_float:
            a = rng.normal(size=shape) * (1 if calm else rng.choice([1, 1, 3]))
            if not calm and rng.random() < 0.1:
                special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], size=shape)
                a = np.where(rng.random(shape) < 0.2, special, a)
            return np.asarray(a).astype(d.numpy)
        name = t.node.attrs["name"]
        if name in self.ranges:
            low, high = (dims.evaluate(s, sizes) for s in self.ranges[name])
            return rng.integers(low, max(high, low + 1), shape).astype(d.numpy)
        info = np.iinfo(d.numpy)
        if rng.random() < 0.2:
            return rng.integers(info.min, info.max, shape, d.numpy, endpoint=True)
        return rng.integers(max(info.min, -5), 6, shape).astype(d.numpy)


class Maker:
    """Adds steps to a graph; `rng` decides everything."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.inputs: list[Tensor] = []
        self.values: list[Tensor] = []
        self.ranges: dict[str, tuple[Any, Any]] = {}
        for d, shape in ((f32, (B, N)), (self.pick(COMMON), self.shape()), (f32, (N,))):
            self.input(d, shape)

    def made(self, steps: int) -> Made:
        done = 0
        while done < steps:
            with contextlib.suppress(GraphcError, IndexError):
                kind = self.pick(STEPS)
                found = kind(self)
                if found is None:
                    continue
                for t in found if isinstance(found, tuple) else (found,):
                    self.keep(t)
                done += 1
        return Made(self.inputs, self.values, self.ranges)

    def keep(self, t: Tensor) -> None:
        if t.node.op.name in EXTREMA and t.dtype.is_float:  # the sign of a zero is unspecified
            t = prim.add(t, prim.full(t.type, 0.0))
        self.values.append(t)

    def pick(self, among: Sequence[Any]) -> Any:
        return among[self.rng.randrange(len(among))]

    def coin(self, p: float = 0.5) -> bool:
        return self.rng.random() < p

    def size(self) -> Any:
        if self.coin(0.4):
            return self.pick((B, B, N))
        return self.pick((1, 1, 2, 3, 4, 5, 8, 10, 17, 33))

    def shape(self) -> tuple[Any, ...]:
        return tuple(self.size() for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3))))

    def input(self, d: DType, shape: Sequence[Any], pool: bool = True) -> Tensor:
        t = prim.input(f"x{len(self.inputs)}", TensorType(d, shape))
        self.inputs.append(t)
        if pool:
            self.values.append(t)
        return t

    def value(self, fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor:
        """Late values are likelier, so that graphs grow deep. IndexError if none fits."""
        among = [t for t in self.values if fits(t)]
        if not among:
            raise IndexError
        k = int(self.rng.expovariate(0.3))
        return among[-1 - k] if k < len(among) else self.pick(among)

    def floats(self) -> Tensor:
        return self.value(lambda t: t.dtype.is_float)

    def like(self, t: Tensor, d: DType | None = None) -> Tensor:
        """A value of t's shape: one that exists, one broadcast, a constant, or an input."""
        d = d or t.dtype
        same = [u for u in self.values if u.type is t.type.with_dtype(d)]
        if same and self.coin(0.75):
            return self.pick(same)
        for u in self.values[::-1] if self.coin(0.6) else ():
            axes, k = [], 0
            for i, s in enumerate(t.shape):
                if k < u.ndim and u.shape[k] == s:
                    axes.append(i)
                    k += 1
            if u.dtype is d and u.ndim < t.ndim and k == u.ndim:
                return prim.broadcast(u, t.shape, axes)
        if self.coin(0.3):
            return prim.full(t.type.with_dtype(d), self.pick((0, 1, 2, 3)))
        return self.input(d, t.shape)

    # -- steps -----------------------------------------------------------------------------------

    def unary(self) -> Tensor:
        x = self.floats()
        name = self.pick(UNARY)
        if name in ("exp", "expm1"):
            x = prim.minimum(x, prim.full_like(x, 4))
        if name in ("lgamma", "polygamma"):
            x = prim.abs(x) + 0.5
            return prim.lgamma(x) if name == "lgamma" else prim.polygamma(x, self.pick((0, 1, 2)))
        return prim.one(name, x)

    def binary(self) -> Tensor:
        x = self.value(lambda t: t.dtype is not bool_)
        y, name = self.like(x), self.pick(ARITHMETIC)
        if x.dtype.is_int and name in ("div", "rem", "pow"):
            y = prim.or_(y, prim.full_like(y, 1)) if name != "pow" else prim.full_like(y, 3)
        elif name == "pow":
            x = prim.abs(x)
        return prim.one(name, *((x, y) if self.coin() or name == "pow" else (y, x))) if (
            x.dtype.is_float) else prim.one(name, x, y)

    def integer(self) -> Tensor:
        x = self.value(lambda t: t.dtype.is_int) if self.coin(0.8) else self.input(
            self.pick(INTS), self.shape())
        name = self.pick(("and", "or", "xor", "shift_left", "shift_right", "not", "abs", "neg",
                          "sign"))
        return prim.one(name, x) if OPS[name].arity == 1 else prim.one(name, x, self.like(x))

    def logic(self) -> Tensor:
        x = self.value(lambda t: t.dtype is bool_)
        name = self.pick(("and", "or", "xor", "not", "maximum", "minimum"))
        return prim.not_(x) if name == "not" else prim.one(name, x, self.like(x))

    def compare(self) -> Tensor:
        x = self.value()
        return prim.one(self.pick(("equal", "less", "less_equal")), x, self.like(x))

    def select(self) -> Tensor:
        x = self.value()
        return prim.select(self.like(x, bool_), x, self.like(x))

    def cast(self) -> Tensor:
        return prim.cast(self.value(), self.pick(COMMON + FLOATS + INTS))

    def bitcast(self) -> Tensor:
        x = self.value(lambda t: t.dtype is not bool_)
        if x.dtype.is_float:  # nothing may look at the bits of a NaN
            if x._value in inexact(ir.reachable([x._value])):
                raise IndexError
            x = prim.select(prim.is_finite(x), x, prim.full_like(x, 1))
        return prim.bitcast(x, self.pick([d for d in DTYPES if d.bits == x.dtype.bits]))

    def reduce(self) -> Tensor:
        x = self.value(lambda t: t.ndim > 0)
        axes = tuple(sorted({self.rng.randrange(x.ndim) for _ in range(self.pick((1, 1, 2)))}))
        name = self.pick(("reduce_sum", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod",
                          "argmax"))
        if name == "argmax":
            return prim.argmax(x, axes[0])
        if x.dtype.is_float and name == "reduce_prod":
            x = prim.tanh(x)
        return prim.one(name, x, axes=axes)

    def scan(self) -> Tensor:
        x = self.value(lambda t: t.ndim > 0)
        axis = self.rng.randrange(x.ndim)
        name = self.pick(("cumsum", "cumprod", "cummax", "linear_recurrence"))
        factor = prim.tanh(x) if x.dtype.is_float else x
        operands = {"cumprod": [factor], "linear_recurrence": [factor, x]}.get(name, [x])
        return prim.one(name, *operands, axis=axis, reverse=self.coin())

    def dot(self) -> Tensor:
        x = self.value(lambda t: t.ndim > 0)
        k = self.rng.randrange(x.ndim)
        batch = [i for i in range(x.ndim) if i != k and self.coin(0.3)]
        shape = [x.shape[k], *[x.shape[i] for i in batch], *[self.size()][: self.coin()]]
        perm = self.rng.sample(range(len(shape)), len(shape))
        y = self.input(x.dtype, [shape[i] for i in perm])
        at = [perm.index(i) for i in range(len(shape))]
        return prim.dot(x, y, ((k,), at[:1]), (batch, at[1 : 1 + len(batch)]))

    def index(self) -> Tensor:
        x = self.value(lambda t: t.ndim > 0)
        axis = self.rng.randrange(x.ndim)
        batch = self.rng.randrange(axis + 1)
        more = tuple(self.size() for _ in range(self.pick((0, 1, 1, 2)) if not batch else 1))
        negative = self.coin()
        idx = self.input(self.pick((i32, i64, i64, u32)), (*x.shape[:batch], *more), pool=False)
        n = x.shape[axis]
        negative = negative and idx.dtype is not u32
        self.ranges[idx.node.attrs["name"]] = (-n if negative else 0, n)
        name = self.pick(("gather", "gather", "scatter", "scatter_add"))
        g = prim.gather(x, idx, axis, batch, negative)
        if name == "gather":
            return g
        u = self.like(g)
        return prim.one(name, x, idx, u, axis=axis, batch=batch, negative=negative)

    def layout(self) -> Tensor:
        x = self.value(lambda t: t.ndim > 0)
        name, n = self.pick(LAYOUT), x.ndim
        if name == "transpose":
            return prim.transpose(x, self.rng.sample(range(n), n))
        if name == "reverse":
            return prim.reverse(x, [i for i in range(n) if self.coin()])
        if name == "broadcast" and n < 4:
            at = self.rng.randrange(n + 1)
            shape = (*x.shape[:at], self.size(), *x.shape[at:])
            return prim.broadcast(x, shape, [i + (i >= at) for i in range(n)])
        if name == "concat":
            axis = self.rng.randrange(n)
            other = (*x.shape[:axis], self.size(), *x.shape[axis + 1 :])
            parts = [x, self.like(x), self.input(x.dtype, other)]
            return prim.concat(*parts[: self.pick((2, 2, 3))], axis=axis)
        if name == "pad":
            low, high, inner = ([self.rng.randrange(3) for _ in x.shape] for _ in range(3))
            low = [-1 if s in (3, 5, 10) and self.coin() else a for s, a in zip(x.shape, low,
                                                                                strict=True)]
            return prim.pad(x, self.input(x.dtype, ()), low, high, [i % 2 for i in inner])
        if name == "reshape":
            return prim.reshape(x, self.pick((
                (dims.product(x.shape),), (1, *x.shape), (*x.shape, 1),
                tuple(s for s in x.shape if s != 1), (*x.shape[:-2], dims.product(x.shape[-2:])),
            )))
        start, stop, step = [0] * n, list(x.shape), [1] * n
        for i, s in enumerate(x.shape):
            if isinstance(s, int) and self.coin(0.7):
                start[i] = self.rng.randrange(s + 1)
                stop[i] = self.rng.randint(start[i], s)
                step[i] = self.pick((1, 1, 2, 3)) if name == "slice" else 1
            elif self.coin(0.3):
                start[i] = s
        if name == "slice":
            return prim.slice(x, start, stop, step)
        inside = [b - a for a, b in zip(start, stop, strict=True)]
        return prim.update_slice(x, self.input(x.dtype, inside), start)

    def leaf(self) -> Tensor:
        kind = self.pick(("dim", "iota", "variable", "constant", "random_bits"))
        if kind == "dim":
            return prim.dim(self.pick((B, N)) * 2 + 1)
        if kind == "random_bits":
            return prim.random_bits(self.input(u32, (2,)), self.shape())
        if kind == "iota":
            shape = (*self.shape(), self.size())
            return prim.iota(self.pick((f32, i64, i32)), shape, self.rng.randrange(len(shape)))
        a = np.array([self.rng.gauss(0, 1) for _ in range(12)], np.float32).reshape(3, 4)
        if kind == "constant":
            return prim.constant(a)
        return prim.variable(State(f"w{len(self.values)}", TensorType(f32, (3, 4)), a))

    def meta(self) -> Tensor | tuple[Tensor, ...]:
        if self.coin():
            return prim.stop_gradient(self.value())
        return prim.barrier(self.value(), self.value(), id=len(self.values))

    def call(self) -> tuple[Tensor, ...]:
        x = self.floats()
        a, b = (prim.input(k, x.type) for k in "ab")
        y = prim.one(self.pick(("neg", "sin", "tanh")), prim.mul(a, b))
        body = ir.collect("piece", [a._value, b._value], [y._value, prim.less(a, y)._value])
        return prim.call(x, self.like(x), name="piece", body=body)


UNARY = [
    name for name, row in OWN.items()
    if row.kind is Kind.ELEMENTWISE and row.arity == 1
    and name not in ("cast", "bitcast", "not")
]  # fmt: skip
ARITHMETIC = ["add", "add", "sub", "mul", "mul", "div", "rem", "pow", "atan2", "maximum", "minimum"]
LAYOUT = ["transpose", "broadcast", "slice", "pad", "concat", "reverse", "reshape", "update_slice"]
STEPS = (
    [Maker.unary] * 3 + [Maker.binary] * 4 + [Maker.layout] * 4 + [Maker.reduce] * 3
    + [Maker.integer, Maker.logic, Maker.compare, Maker.select, Maker.cast, Maker.bitcast,
       Maker.scan, Maker.dot, Maker.index, Maker.leaf, Maker.meta, Maker.call]
)  # fmt: skip


def make(seed: str, steps: int) -> Made:
    return Maker(random.Random(seed)).made(steps)


def function(made: Made, name: str = "random") -> gx.Function:
    return gx.function(made.inputs, made.outputs(), name=name)
