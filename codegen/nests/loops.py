"""Loop nests over scalar expressions: what a kernel computes, before how.

Broadcasts, transposes, slices, pads, reshapes and gathers have become index arithmetic (see `pull`,
which makes nests from fused bodies); what is left are scalar expressions over the loop axes:

    nest   ::= axes, reduced axes, stores
    store  ::= out[offset] = expr
    expr   ::= load | const | index | op | inside | position | reduce | scan | philox

Offsets are `dims` polynomials whose names are loop axes (`%i0`), dynamic positions (`%e7`, an
integer expression) and symbolic dimensions. Expressions are interned per nest, so equal work is
done once; their list is in dependency order. What `Expr.attrs` holds, by kind (some of its parts
are properties, such as `Expr.offset`):

    load       (operand, offset, preds)       0, and nothing read, where a pred does not hold
    const      (bytes,)
    index      (polynomial,)                  its value as an i64
    op         (name, attributes)             of the elementwise op, and what `intervals` tells of
                                              its operands, which are in `args`
    inside     preds                          a bool: whether all hold
    position   (size, negative, preds, site)  args[0], an index from the data, clamped to [0, size);
                                              `site`, a number in `Nest.sites`, may fail by it
    reduce     (name, axes)                   args[0] over loop axes; an argmax has the index beside
    scan       (name,)                        args, running along the reduced axis
    philox     ()                             random bits: args are an element's number, the key
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphc import dims
from graphc.dims import Dim, Size, atom, product
from graphc.ir import Node
from graphc.types import DType, TensorType

Idx = tuple[Size, ...]


@dataclass(frozen=True)
class Pred:
    """lo <= index < hi."""

    index: Size
    lo: Size
    hi: Size

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        return self.index, self.lo, self.hi

    def __str__(self) -> str:
        return f"{self.lo}<={self.index}<{self.hi}"


Preds = tuple[Pred, ...]


class Expr:
    """One scalar expression; `axes` are the loop axes that its value depends on."""

    __slots__ = ("args", "attrs", "axes", "dtype", "id", "kind", "node")

    def __init__(
        self, id: int, kind: str, dtype: DType, args: tuple[Expr, ...], attrs: tuple[Any, ...],
        axes: frozenset[str], node: Node | None,
    ):
        self.id, self.kind, self.dtype, self.args, self.attrs = id, kind, dtype, args, attrs
        self.axes, self.node = axes, node

    @property
    def name(self) -> str:
        """What an op, a reduction or a scan is called."""
        name: str = self.attrs[0]
        return name

    @property
    def over(self) -> tuple[str, ...]:
        """The axes that a reduction consumes."""
        over: tuple[str, ...] = self.attrs[1]
        return over

    @property
    def param(self) -> int:
        """The operand that a load reads."""
        param: int = self.attrs[0]
        return param

    @property
    def offset(self) -> Size:
        """Where a load reads it."""
        offset: Size = self.attrs[1]
        return offset

    @property
    def preds(self) -> Preds:
        """What must hold for a load to read."""
        preds: Preds = self.attrs[2]
        return preds


class Store(NamedTuple):
    """out[output][offset] = expr, for every point of `axes`."""

    output: int
    offset: Size
    expr: Expr
    axes: tuple[str, ...]


@dataclass
class Nest:
    """A loop nest. `outer` axes are independent; `reduced` ones are consumed by reductions.
    `columns` is the axis of rows so short that vectors hold several (see `flattened`), or "".
    `overlaps`: the vector axis is as long as a vector, the last of which may compute anew what the
    one before it did."""

    outer: list[str]
    reduced: list[str]
    sizes: dict[str, Size]
    params: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    exprs: list[Expr]
    stores: list[Store]
    sites: list[Node] = field(default_factory=list)
    columns: str = ""
    overlaps: bool = False

    @property
    def points(self) -> Size:
        """How often the outer axes are walked."""
        return product(self.sizes[n] for n in self.outer)

    @property
    def row(self) -> Size:
        """Elements of the reduced axes, all consumed for one point."""
        return product(self.sizes[n] for n in self.reduced)

    @property
    def totals(self) -> bool:
        """Whether something is added up over outer axes as well: no part of them has all of it."""
        return any(e.kind == "reduce" and {*e.over} - {*self.reduced} for e in self.exprs)

    def dynamic(self, size: Size) -> list[Expr]:
        """The positions that data give in a polynomial."""
        return dynamic(self.exprs, size)

    def __str__(self) -> str:
        return print_nest(self)


def axis(name: str) -> Dim:
    """A loop axis as an atom of index polynomials."""
    return atom(name)


def position(e: Expr) -> Dim:
    """A position that data give as an atom of index polynomials."""
    return atom(f"%e{e.id}")


def by_data(exprs: Sequence[Expr], name: str) -> Expr | None:
    """The position that data give which an atom's name stands for; None for axes and dimensions."""
    return exprs[int(name[2:])] if name.startswith("%e") else None


def dynamic(exprs: Sequence[Expr], size: Size) -> list[Expr]:
    """The positions that data give in a polynomial."""
    return [e for n in dims.names(size) if (e := by_data(exprs, n)) is not None]


def strides(shape: Iterable[Size]) -> list[Size]:
    """Row-major strides in elements."""
    out: list[Size] = []
    step: Size = 1
    for s in reversed(list(shape)):
        out.append(step)
        step = step * s
    return out[::-1]


class Reindexed(tuple[Size, ...]):
    """An index that a reshape made of another one. It knows its row-major offset, which quotients
    and remainders of several axes no longer show: what has that shape in memory is read there."""

    shape: tuple[Size, ...]
    offset: Size

    @staticmethod
    def of(idx: Iterable[Size], shape: tuple[Size, ...], offset: Size) -> Reindexed:
        made = Reindexed(idx)
        made.shape, made.offset = shape, offset
        return made


def flatten(idx: Idx, shape: tuple[Size, ...]) -> Size:
    """The row-major offset of an index."""
    if isinstance(idx, Reindexed) and idx.shape == shape:
        return idx.offset
    total: Size = 0
    for i, s in zip(idx, strides(shape), strict=True):
        total = total + i * s
    return total


def reindex(idx: Idx, source: tuple[Size, ...], target: tuple[Size, ...]) -> Idx:
    """The index into shape `target` with the same row-major position as `idx` into `source`.

    Axes are matched in the smallest groups of equal size, so that only real merges need division.
    """
    if 0 in target:
        return (0,) * len(target)
    idx = tuple(0 if s == 1 else i for i, s in zip(idx, source, strict=True))
    offset = flatten(idx, source)
    out: list[Size] = []
    i = j = 0
    while i < len(source) or j < len(target):
        a: Size = 1
        b: Size = 1
        i0, j0 = i, j
        while True:
            if a == b and (i > i0 or j > j0):
                break
            if i < len(source) and (i == i0 or j == len(target) or _shorter(a, b)):
                a, i = a * source[i], i + 1
            elif j < len(target):
                b, j = b * target[j], j + 1
            elif i < len(source):
                a, i = a * source[i], i + 1
            else:
                break
        position = flatten(idx[i0:i], source[i0:i])
        for k in range(j0, j):
            inner = dims.product(target[k + 1 : j])
            q = position if inner == 1 else dims.floordiv(position, inner)
            if target[k] == 1:
                out.append(0)
            elif dims.product(target[j0:k]) == 1:  # the group's outermost: below its size anyway
                out.append(q)
            else:
                out.append(dims.mod(q, target[k]))
    return Reindexed.of(out, target, offset)


def _shorter(a: Size, b: Size) -> bool:
    """Whether a group of axes is surely smaller than another."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return dims.exact_div(b, a) is not None


def print_nest(nest: Nest) -> str:
    """The nest as text: one line an expression, indented under the axes it depends on."""
    head = ", ".join(f"{a[1:]}<{nest.sizes[a]}" for a in nest.outer)
    red = ", ".join(f"{a[1:]}<{nest.sizes[a]}" for a in nest.reduced)
    lines = [f"for {head or '()'}" + (f" reduce {red}" if red else "") + ":"]
    for e in nest.exprs:
        lines.append(f"  e{e.id}: {e.dtype} = {_expr_text(e)}")
    for s in nest.stores:
        lines.append(f"  out{s.output}[{s.offset}] = e{s.expr.id}")
    return "\n".join(lines).replace("%", "")


def _expr_text(e: Expr) -> str:
    """What stands behind the `=` of an expression."""
    args = " ".join(f"e{a.id}" for a in e.args)
    if e.kind == "load":
        param, offset, preds = e.attrs
        return f"in{param}[{offset}]" + (f" if {' and '.join(map(str, preds))}" if preds else "")
    if e.kind == "const":
        return str(np.frombuffer(e.attrs[0], e.dtype.numpy)[0])
    if e.kind in ("op", "scan"):
        return f"{e.name} {args}"
    if e.kind == "index":
        return f"index {e.attrs[0]}"
    if e.kind == "reduce":
        return f"{e.name} over {', '.join(e.over)} of {args}"
    if e.kind == "inside":
        return "inside " + " and ".join(map(str, e.attrs))
    return f"{e.kind} {args}"
