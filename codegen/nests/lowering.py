"""Fused bodies -> loop nests: the expressions of a nest, made by the rules in `pull`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from graphc import dims
from graphc.codegen.nests.loops import (
    Expr,
    Idx,
    Nest,
    Preds,
    Store,
    axis,
    by_data,
    dynamic,
    flatten,
    position,
)
from graphc.codegen.nests.pull import BY_KIND, PULL, Pull
from graphc.dims import Size
from graphc.errors import CompileError
from graphc.ir import Graph, Node, Value
from graphc.types import DType, bool_, i64


class Lowering:
    """Builds the expressions of one nest."""

    def __init__(self, body: Graph, reduced: tuple[int, ...], axes: tuple[Size, ...]):
        self.body = body
        self.names = [f"%i{k}" for k in range(len(axes))]
        self.sizes = dict(zip(self.names, axes, strict=True))
        self.reduced = [self.names[k] for k in reduced]
        self.outer = [n for n in self.names if n not in self.reduced]
        self.exprs: list[Expr] = []
        self.table: dict[Any, Expr] = {}
        self.params = {v: k for k, v in enumerate(body.inputs)}
        self.done: dict[tuple[Value, Idx, Preds], Expr] = {}
        self.sites: list[Node] = []
        self.here: Node | None = None  # whose rule runs: what expressions belong to

    def make(
        self, kind: str, dtype: DType, args: Iterable[Expr] = (), attrs: tuple[Any, ...] = (),
        indices: Iterable[Size] = (), node: Node | None = None, axes: frozenset[str] | None = None,
    ) -> Expr:
        """An interned expression; `indices` are the polynomials whose axes it depends on."""
        args = tuple(args)
        exact = repr(attrs) if kind == "op" and attrs[1] else ""  # 0.0 is not -0.0 (`ir.attr_key`)
        key = (kind, dtype, args, attrs, exact)
        found = self.table.get(key)
        if found is not None:
            return found
        if axes is None:
            free: set[str] = set()
            for a in args:
                free |= a.axes
            for p in indices:
                for n in dims.names(p):
                    if n in self.sizes:
                        free.add(n)
                    elif (x := by_data(self.exprs, n)) is not None:
                        free |= x.axes
            axes = frozenset(free)
        e = Expr(len(self.exprs), kind, dtype, args, attrs, axes, node or self.here)
        self.exprs.append(e)
        self.table[key] = e
        return e

    def counter(self, k: int, backwards: bool) -> Size:
        """The index that axis k gives a dimension; 0 for dimensions of size 1, which have none."""
        if k < 0:
            return 0
        i = axis(self.names[k])
        return self.sizes[self.names[k]] - 1 - i if backwards else i

    def op(
        self, name: str, dtype: DType, *args: Expr, node: Node | None = None,
        attrs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Expr:
        """An elementwise op."""
        return self.make("op", dtype, args, (name, tuple(attrs.items())), node=node)

    def cast(self, e: Expr, dtype: DType) -> Expr:
        return self.op("cast", dtype, e, attrs={"dtype": dtype})

    def const(self, dtype: DType, value: Any) -> Expr:
        array = np.asarray(value, dtype.numpy)
        return self.make("const", dtype, (), (array.tobytes(),))

    def index(self, size: Size) -> Expr:
        """The i64 value of a polynomial."""
        return self.make("index", i64, dynamic(self.exprs, size), (size,), [size])

    def inside(self, preds: Preds) -> Expr:
        """Whether all preds hold."""
        polys = [s for p in preds for s in p.sizes]
        deps = [d for s in polys for d in dynamic(self.exprs, s)]
        return self.make("inside", bool_, deps, preds, polys)

    def load(self, param: int, idx: Idx, preds: Preds) -> Expr:
        """The element of an operand at an index; nothing is read where preds do not hold."""
        t = self.body.inputs[param].type
        offset = flatten(idx, t.shape)
        polys = [offset, *(s for p in preds for s in p.sizes)]
        deps = [d for s in polys for d in dynamic(self.exprs, s)]
        return self.make("load", t.dtype, deps, (param, offset, preds), polys)

    def position(self, e: Expr, size: Size, negative: bool, preds: Preds, node: Node) -> Size:
        """A data-dependent index, checked against [0, size) or [-size, size) and clamped."""
        if node not in self.sites:
            self.sites.append(node)
        negative = negative and e.dtype.kind == "i"  # 2**64 - 1 is far behind the end, not the last
        if e.dtype is not i64:
            e = self.cast(e, i64)
        p = self.make(
            "position", i64, (e,), (size, negative, preds, self.sites.index(node)),
            [size, *(s for q in preds for s in q.sizes)], node,
        )
        return position(p)

    def pull(self, value: Value, idx: Idx, preds: Preds = ()) -> Expr:
        """The expression of `value` at `idx` (a trampoline: bodies may be deep)."""
        stack: list[tuple[tuple[Value, Idx, Preds], Pull]] = []
        key = (value, idx, preds)
        result = self._begin(key, stack)
        while stack:
            top_key, gen = stack[-1]
            self.here = top_key[0].node
            try:
                if result is None:
                    want = next(gen)
                else:
                    want = gen.send(result)
            except StopIteration as stop:
                stack.pop()
                result = self.done[top_key] = stop.value
                continue
            result = self._begin(want, stack)
        assert result is not None
        return result

    def _begin(
        self, key: tuple[Value, Idx, Preds],
        stack: list[tuple[tuple[Value, Idx, Preds], Pull]],
    ) -> Expr | None:
        """What is known of a value at an index, or None: then its rule is on the stack."""
        found = self.done.get(key)
        if found is not None:
            return found
        value, idx, preds = key
        if value in self.params:
            e = self.done[key] = self.load(self.params[value], idx, preds)
            return e
        node = value.node
        rule = PULL.get(node.op.name) or BY_KIND.get(node.op.kind)
        if rule is None:
            raise CompileError(
                f"{node.op.name}: has no native code; run it with mode='interpret'", node.loc
            )
        stack.append((key, rule(self, value, idx, preds)))
        return None


def lower(
    body: Graph, axes: tuple[Size, ...], reduced: tuple[int, ...],
    outputs: tuple[tuple[int, ...], ...], backwards: frozenset[int] = frozenset(),
) -> Nest:
    """The loop nest of a fused body.

    axes: sizes of the loop axes; reduced: which of them reductions consume; outputs: for each
    output, the axis of each of its dimensions, -1 where each place is written out (a stack of what
    one kernel makes); backwards: axes run from their end (reverse scans).
    """
    lw = Lowering(body, reduced, axes)
    stores = []
    for k, (v, where) in enumerate(zip(body.outputs, outputs, strict=True)):
        names = tuple(lw.names[a] for a in where if a >= 0)
        for idx in _places(lw, v, where, backwards):
            e = lw.pull(v, idx)
            stores.append(Store(k, flatten(idx, v.type.shape), e, names))
    return Nest(
        lw.outer, lw.reduced, lw.sizes, tuple(v.type for v in body.inputs),
        tuple(v.type for v in body.outputs), lw.exprs, stores, lw.sites,
    )


def _places(
    lw: Lowering, v: Value, where: tuple[int, ...], backwards: frozenset[int]
) -> Iterable[Idx]:
    """The indices at which an output is stored: one, but for dimensions without a loop."""
    return product(*(
        range(size) if a < 0 and isinstance(size, int) else (lw.counter(a, a in backwards),)
        for a, size in zip(where, v.type.shape, strict=True)
    ))
