"""What the op tests share: types from text, running single ops, and small uses of every op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc import interpret, ir, prim, size_text
from graphc.ops import OPS, Op
from graphc.types import BY_NAME, TensorType, as_dtype


def T(text: str) -> TensorType:
    """f32[batch,3] as a TensorType."""
    dtype, _, rest = text.partition("[")
    sizes = rest.rstrip("]")
    shape = [size_text.parse(s) for s in sizes.split(",")] if sizes else []
    return TensorType(BY_NAME[dtype], shape)


def types(text: str) -> list[TensorType]:
    """`f32[2,3] i64[4]` as a list of types."""
    return [T(t) for t in text.split()]


def infer(op: Op | str, text: str, **attrs: Any) -> str:
    row = OPS[op] if isinstance(op, str) else op
    ordered = {k: attrs[k] for k in row.attrs}
    return " ".join(map(str, ir.infer(row, types(text), ordered)))


def run(op: str, *arrays: Any, **attrs: Any) -> Any:
    """One op on arrays, through declaration and interpreter."""
    arrays = tuple(np.asarray(a) for a in arrays)
    xs = [inputs(a) for a in arrays]
    outs = prim.many(op, *xs, **attrs)
    got = evaluate(xs, arrays, outs)
    return got[0] if len(got) == 1 else got


def inputs(a: np.ndarray) -> Any:
    return prim.input("x", TensorType(as_dtype(a.dtype), a.shape))


def evaluate(
    xs: Sequence[Any], arrays: Sequence[Any], outs: Sequence[Any], dims: Any = None
) -> list[Any]:
    graph = ir.collect("test", [x._value for x in xs], [o._value for o in outs])
    return interpret.evaluate(graph, list(arrays), dims=dims)[0]


def same(got: Any, want: Any) -> None:
    """Equal bit for bit, but for the payload of NaNs."""
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got, want)
    nan = np.isnan(want) if want.dtype.kind not in "biu" else np.zeros(want.shape, bool)
    if nan.any():
        assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got[~nan], want[~nan]), (got, want)
    if want.dtype.kind not in "biu":
        assert np.array_equal(np.signbit(got[~nan]), np.signbit(want[~nan])), (got, want)


INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def wrap(value: int, dtype: Any) -> int:
    """An unbounded integer as two's complement leaves it."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (value - low) % (high - low + 1) + low


@dataclass(frozen=True)
class Case:
    """One use of an op: operands as arrays, and its attributes."""

    op: str
    args: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def id(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op


_rng = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape)


def uniform(low: float, high: float, *shape: int) -> np.ndarray:
    return _rng.uniform(low, high, shape)


def apart(*shape: int) -> np.ndarray:
    """Values that differ by much more than a difference step."""
    n = int(np.prod(shape))
    return (_rng.permutation(n).reshape(shape) - n / 2) * 0.37 + 0.11


def case(op: str, *args: Any, label: str = "", **attrs: Any) -> Case:
    return Case(op, tuple(np.asarray(a) for a in args), attrs, label)


# Uses whose operands are smooth points of the op: differentiated, batched, run.
SMOOTH = [
    case("cast", normal(3), dtype=BY_NAME["f64"]),
    case("neg", normal(3)),
    case("abs", normal(2, 2)),
    case("exp", normal(3)),
    case("expm1", normal(3)),
    case("log", uniform(0.3, 3, 4)),
    case("log1p", uniform(-0.7, 3, 4)),
    case("log2", uniform(0.3, 3, 4)),
    case("log10", uniform(0.3, 3, 4)),
    case("sqrt", uniform(0.3, 3, 4)),
    case("rsqrt", uniform(0.3, 3, 4)),
    case("cbrt", uniform(0.3, 3, 4)),
    case("sin", normal(4)),
    case("cos", normal(4)),
    case("tan", uniform(-1, 1, 4)),
    case("sinh", normal(4)),
    case("cosh", normal(4)),
    case("tanh", normal(4)),
    case("asinh", normal(4)),
    case("acosh", uniform(1.3, 3, 4)),
    case("atanh", uniform(-0.7, 0.7, 4)),
    case("asin", uniform(-0.7, 0.7, 4)),
    case("acos", uniform(-0.7, 0.7, 4)),
    case("atan", normal(4)),
    case("erf", normal(4)),
    case("normal_cdf", normal(4)),
    case("lgamma", np.array([0.3, 1.0, 2.5, 7.1, -0.4, -2.7])),
    case("polygamma", np.array([0.7, 1.0, 2.5, 7.1, -0.4]), n=0),
    case("polygamma", np.array([0.7, 1.0, 2.5, 7.1, -0.4]), n=2, label="2"),
    case("add", normal(3), normal(3)),
    case("mul", normal(3), normal(3)),
    case("sub", normal(3), normal(3)),
    case("div", normal(3), uniform(0.5, 2, 3)),
    case("rem", np.array([5.3, -5.3, 5.3, -5.3]), np.array([1.4, 1.4, -1.4, -1.4])),
    case("pow", uniform(0.3, 2, 5), normal(5)),
    case("atan2", normal(4), normal(4)),
    case("maximum", apart(4), apart(4)[::-1] + 0.05),
    case("minimum", apart(4), apart(4)[::-1] + 0.05),
    case("select", np.array([True, False, True]), normal(3), normal(3)),
    case("reshape", normal(2, 6), shape=(3, 4), checked=False),
    case("reshape", normal(2, 6), shape=(12,), checked=True, label="checked"),
    case("transpose", normal(2, 3, 4), perm=(2, 0, 1)),
    case("broadcast", normal(3), shape=(2, 3, 4), axes=(1,)),
    case("broadcast", normal(), shape=(2, 2), axes=(), label="scalar"),
    case("slice", normal(7, 4), start=(1, 0), stop=(6, 4), step=(1, 1)),
    case("slice", normal(7, 4), start=(1, 0), stop=(7, 4), step=(3, 2), label="steps"),
    case("slice", normal(7), start=(3,), stop=(3,), step=(2,), label="empty"),
    case("update_slice", normal(5, 3), normal(2, 2), start=(2, 1)),
    case("pad", normal(3, 2), normal(), low=(1, 0), high=(2, 1), interior=(0, 2)),
    case("pad", normal(4, 3), normal(), low=(-1, 2), high=(-2, -1), interior=(1, 0),
         label="negative"),
    case("pad", normal(4), normal(), low=(-3,), high=(5,), interior=(1,), label="crops"),
    case("pad", normal(0), normal(), low=(1,), high=(2,), interior=(1,), label="empty"),
    case("concat", normal(2, 3), normal(2, 1), normal(2, 2), axis=1),
    case("reverse", normal(2, 3, 2), axes=(0, 2)),
    case("gather", normal(5, 3), np.array([[0, 4], [4, 2]]), axis=0, batch=0, negative=False),
    case("gather", normal(2, 5), np.array([-1, 1, -5]), axis=1, batch=0, negative=True,
         label="negative"),
    case("gather", normal(2, 3, 4, 2), np.array([[0, 3, 3], [1, 1, 2]]), axis=2, batch=1,
         negative=False, label="batch"),
    case("gather", normal(3), np.array(1), axis=0, batch=0, negative=False, label="scalar"),
    case("scatter", normal(5, 2), np.array([1, 4, 1]), normal(3, 2), axis=0, batch=0,
         negative=False),
    case("scatter", normal(2, 5), np.array([[0, 0, 3], [4, 4, 4]]), normal(2, 3), axis=1,
         batch=1, negative=False, label="batch"),
    case("scatter", normal(2, 4), np.array([[0, -1], [3, 0]]), normal(2, 2, 2), axis=1,
         batch=0, negative=True, label="matrix"),
    case("scatter_add", normal(5, 2), np.array([1, 4, 1]), normal(3, 2), axis=0, batch=0,
         negative=False),
    case("scatter_add", normal(2, 3, 4), np.array([[0, 3, 3], [1, 1, 2]]), normal(2, 3, 3),
         axis=2, batch=1, negative=False, label="batch"),
    case("reduce_sum", normal(2, 3, 2), axes=(0, 2)),
    case("reduce_sum", normal(2, 3), axes=(), label="none"),
    case("reduce_prod", normal(2, 3, 2), axes=(0, 2)),
    case("reduce_prod", normal(3), axes=(), label="none"),
    case("reduce_prod", np.array([[1.5, 0.0, -2.0], [0.0, 0.0, 3.0]]), axes=(1,), label="zeros"),
    case("reduce_max", apart(3, 4), axes=(1,)),
    case("reduce_max", apart(3, 4), axes=(0, 1), label="all"),
    case("reduce_min", apart(3, 4), axes=(0,)),
    case("cumsum", normal(2, 4), axis=1, reverse=False),
    case("cumsum", normal(4, 2), axis=0, reverse=True, label="reverse"),
    case("cumprod", normal(2, 4), axis=1, reverse=False),
    case("cumprod", normal(4, 2), axis=0, reverse=True, label="reverse"),
    case("cumprod", np.array([1.5, 0.0, -2.0, 0.0, 0.7]), axis=0, reverse=False, label="zeros"),
    case("linear_recurrence", normal(2, 4), normal(2, 4), axis=1, reverse=False),
    case("linear_recurrence", normal(4, 2), normal(4, 2), axis=0, reverse=True, label="reverse"),
    case("linear_recurrence", np.array([1.5, 0.0, -2.0]), normal(3), axis=0, reverse=False,
         label="zeros"),
    case("cummax", apart(2, 5), axis=1, reverse=False),
    case("cummax", apart(5, 2), axis=0, reverse=True, label="reverse"),
    case("dot", normal(2, 3), normal(3, 4), contract=((1,), (0,)), batch=((), ())),
    case("dot", normal(3), normal(3), contract=((0,), (0,)), batch=((), ()), label="inner"),
    case("dot", normal(2), normal(3), contract=((), ()), batch=((), ()), label="outer"),
    case("dot", normal(2, 3, 4), normal(4, 2, 5, 3), contract=((1, 2), (3, 0)),
         batch=((0,), (1,)), label="batch"),
    case("dot", normal(3, 4, 2, 2), normal(2, 4, 2), contract=((1,), (1,)),
         batch=((3, 2), (0, 2)), label="two-batches"),
]

# Further uses, not differentiated: batched and run.
FLAT = [
    case("bitcast", normal(3), dtype=BY_NAME["i64"]),
    case("stop_gradient", normal(3)),
    case("barrier", normal(3), np.array([1, 2]), id=3),
    case("sign", normal(3)),
    case("floor", normal(3)),
    case("ceil", normal(3)),
    case("round", normal(3)),
    case("is_finite", np.array([1.0, np.inf, np.nan])),
    case("not", np.array([True, False])),
    case("and", np.array([12, 5]), np.array([10, 3])),
    case("or", np.array([12, 5]), np.array([10, 3])),
    case("xor", np.array([12, 5]), np.array([10, 3])),
    case("shift_left", np.array([12, 5]), np.array([2, 70])),
    case("shift_right", np.array([12, -5]), np.array([2, 70])),
    case("equal", np.array([1, 2]), np.array([1, 3])),
    case("less", np.array([1, 2]), np.array([1, 3])),
    case("less_equal", np.array([1, 2]), np.array([1, 3])),
    case("argmax", normal(3, 4), axis=1),
    case("random_bits", np.array([3, 9], np.uint32), shape=(3, 5)),
]
# Ops without operands, whose batch rule is never asked for, and regions, which have none.
NO_OPERANDS = ("input", "variable", "constant", "dim", "iota")
REGIONS = ("call", "fused")
