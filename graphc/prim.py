"""One strict function per primitive: no promotion, no broadcasting, attributes as in the op table.

Operators, the array-API names, `nn` and every gradient rule are written with these. Each declares
one node; a type error carries the user's line. The rows in `ops` say what each op does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import ir
from graphc.dims import Size
from graphc.types import DType, TensorType

if TYPE_CHECKING:
    from graphc.tensor import Tensor

Axes = Sequence[int]
Shape = Sequence[Size]


def many(op: str, *xs: Tensor, **attrs: Any) -> tuple[Tensor, ...]:
    """Declare a node of the op called `op`; its results."""
    from graphc.tensor import Tensor

    return tuple([Tensor(v) for v in ir.apply(op, [x._value for x in xs], **attrs)])


def one(op: str, *xs: Tensor, **attrs: Any) -> Tensor:
    """`many` for an op with a single result."""
    (out,) = many(op, *xs, **attrs)
    return out


# Leaves and casts


def input(name: str, type: TensorType) -> Tensor:
    return one("input", name=name, type=type)


def variable(state: ir.State) -> Tensor:
    return one("variable", state=state)


def constant(value: Any) -> Tensor:
    """The constant of an array (or NumPy scalar), in its own dtype."""
    return one("constant", value=ir.Literal(np.asarray(value)))


def dim(size: Size) -> Tensor:
    """The run-time value of a size, i64[]."""
    return one("dim", size=size)


def iota(dtype: DType, shape: Shape, axis: int) -> Tensor:
    """The index along `axis`."""
    return one("iota", dtype=dtype, shape=tuple(shape), axis=axis)


def full(type: TensorType, value: bool | int | float) -> Tensor:
    """A constant of `type` filled with one value: a scalar constant, broadcast."""
    scalar = constant(np.asarray(value, type.dtype.numpy))
    return broadcast(scalar, type.shape, ()) if type.shape else scalar


def full_like(x: Tensor, value: bool | int | float) -> Tensor:
    return full(x.type, value)


def cast(x: Tensor, dtype: DType) -> Tensor:
    return one("cast", x, dtype=dtype)


def bitcast(x: Tensor, dtype: DType) -> Tensor:
    return one("bitcast", x, dtype=dtype)


def stop_gradient(x: Tensor) -> Tensor:
    return one("stop_gradient", x)


def barrier(*xs: Tensor, id: int) -> tuple[Tensor, ...]:
    return many("barrier", *xs, id=id)


# Elementwise


def _unary(names: str) -> Iterator[Callable[[Tensor], Tensor]]:
    """A function of one operand for each op in a list."""
    for name in names.split():
        def declare(x: Tensor, *, op: str = name) -> Tensor:
            return one(op, x)

        declare.__name__ = declare.__qualname__ = name
        yield declare


def _binary(names: str) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
    """A function of two operands for each op in a list."""
    for name in names.split():
        def declare(x: Tensor, y: Tensor, *, op: str = name) -> Tensor:
            return one(op, x, y)

        declare.__name__ = declare.__qualname__ = name
        yield declare


neg, abs, sign, is_finite, not_ = _unary("neg abs sign is_finite not")
floor, ceil, round = _unary("floor ceil round")  # halves to even
exp, expm1, log, log1p, log2, log10 = _unary("exp expm1 log log1p log2 log10")
sqrt, rsqrt, cbrt, erf, normal_cdf, lgamma = _unary("sqrt rsqrt cbrt erf normal_cdf lgamma")
sin, cos, tan, asin, acos, atan = _unary("sin cos tan asin acos atan")
sinh, cosh, tanh, asinh, acosh, atanh = _unary("sinh cosh tanh asinh acosh atanh")

add, sub, mul, pow, atan2 = _binary("add sub mul pow atan2")
div, rem = _binary("div rem")  # of integers: floor division, and Python's %
maximum, minimum, and_, or_, xor = _binary("maximum minimum and or xor")
shift_left, shift_right = _binary("shift_left shift_right")
equal, less, less_equal = _binary("equal less less_equal")


def polygamma(x: Tensor, n: int) -> Tensor:
    """The (n+1)-th derivative of log gamma."""
    return one("polygamma", x, n=n)


def select(cond: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where cond, else y."""
    return one("select", cond, x, y)


# Layout


def reshape(x: Tensor, shape: Shape, checked: bool = False) -> Tensor:
    return one("reshape", x, shape=tuple(shape), checked=checked)


def transpose(x: Tensor, perm: Axes) -> Tensor:
    return one("transpose", x, perm=tuple(perm))


def broadcast(x: Tensor, shape: Shape, axes: Axes) -> Tensor:
    """Operand axis i becomes result axis axes[i]; the other result axes are new."""
    return one("broadcast", x, shape=tuple(shape), axes=tuple(axes))


def slice(x: Tensor, start: Shape, stop: Shape, step: Axes) -> Tensor:
    return one("slice", x, start=tuple(start), stop=tuple(stop), step=tuple(step))


def update_slice(x: Tensor, u: Tensor, start: Shape) -> Tensor:
    return one("update_slice", x, u, start=tuple(start))


def pad(x: Tensor, value: Tensor, low: Shape, high: Shape, interior: Axes) -> Tensor:
    return one("pad", x, value, low=tuple(low), high=tuple(high), interior=tuple(interior))


def concat(*xs: Tensor, axis: int) -> Tensor:
    return one("concat", *xs, axis=axis)


def reverse(x: Tensor, axes: Axes) -> Tensor:
    return one("reverse", x, axes=tuple(axes))


# Index


def gather(x: Tensor, idx: Tensor, axis: int, batch: int = 0, negative: bool = False) -> Tensor:
    return one("gather", x, idx, axis=axis, batch=batch, negative=negative)


def scatter(
    x: Tensor, idx: Tensor, u: Tensor, axis: int, batch: int = 0, negative: bool = False
) -> Tensor:
    return one("scatter", x, idx, u, axis=axis, batch=batch, negative=negative)


def scatter_add(
    x: Tensor, idx: Tensor, u: Tensor, axis: int, batch: int = 0, negative: bool = False
) -> Tensor:
    return one("scatter_add", x, idx, u, axis=axis, batch=batch, negative=negative)


# Reductions and scans


def reduce_sum(x: Tensor, axes: Axes) -> Tensor:
    return one("reduce_sum", x, axes=tuple(axes))


def reduce_prod(x: Tensor, axes: Axes) -> Tensor:
    return one("reduce_prod", x, axes=tuple(axes))


def reduce_max(x: Tensor, axes: Axes) -> Tensor:
    return one("reduce_max", x, axes=tuple(axes))


def reduce_min(x: Tensor, axes: Axes) -> Tensor:
    return one("reduce_min", x, axes=tuple(axes))


def argmax(x: Tensor, axis: int) -> Tensor:
    return one("argmax", x, axis=axis)


def cumsum(x: Tensor, axis: int, reverse: bool = False) -> Tensor:
    return one("cumsum", x, axis=axis, reverse=reverse)


def cumprod(x: Tensor, axis: int, reverse: bool = False) -> Tensor:
    return one("cumprod", x, axis=axis, reverse=reverse)


def cummax(x: Tensor, axis: int, reverse: bool = False) -> Tensor:
    return one("cummax", x, axis=axis, reverse=reverse)


def linear_recurrence(a: Tensor, b: Tensor, axis: int, reverse: bool = False) -> Tensor:
    """y[k] = a[k] * y[k-1] + b[k] along an axis, from y = 0 before its beginning (`reverse`: behind
    its end)."""
    return one("linear_recurrence", a, b, axis=axis, reverse=reverse)


# Contraction, random bits, regions


def dot(
    a: Tensor, b: Tensor, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes] = ((), ()),
) -> Tensor:
    """Result axes: the batch axes, a's free axes, b's free axes."""
    return one(
        "dot", a, b,
        contract=(tuple(contract[0]), tuple(contract[1])),
        batch=(tuple(batch[0]), tuple(batch[1])),
    )


def random_bits(key: Tensor, shape: Shape) -> Tensor:
    return one("random_bits", key, shape=tuple(shape))


def call(*xs: Tensor, name: str, body: ir.Graph) -> tuple[Tensor, ...]:
    return many("call", *xs, name=name, body=body)


def fused(
    *xs: Tensor, body: ir.Graph, axes: Shape, reduced: Axes, outputs: Sequence[tuple[int, ...]]
) -> tuple[Tensor, ...]:
    """A kernel; `graphc.passes.fuse` says what the attributes mean."""
    return many(
        "fused", *xs, body=body, axes=tuple(axes), reduced=tuple(reduced), outputs=tuple(outputs)
    )
