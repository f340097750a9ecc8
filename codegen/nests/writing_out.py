"""A short reduced axis written out: expressions and stores for each of its elements.

    for i0<n reduce i1<3:                 for i0<n:
      e1 = reduce_sum over i1 of e0   ->    e3 = (e0 + e2) + e1            e0 = in0[3*i0], ..
      out0[3*i0+i1] = e0 / e1               out0[3*i0] = e0 / e3;  out0[3*i0+1] = e1 / e3;  ..

Elements meet in the order of a row that vectors sweep (`emission.short`), so that bits stay.
Conditions on the axis are decided for each element, and of a choice only what it takes is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from graphc.codegen.nests.axes import needs, substitute
from graphc.codegen.nests.index_splitting import Piece, Stretch
from graphc.codegen.nests.loops import Expr, Nest, Store, position

OPS = {
    "reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "maximum", "reduce_min": "minimum",
    "reduce_and": "and",
}

Element = tuple[Expr, int]  # an expression at a place of the axis; at 0 what is one for all


def adds_up(e: Expr, k: str) -> bool:
    """Whether an expression is a reduction along an axis."""
    return e.kind == "reduce" and k in e.over


def written_out(nest: Nest, k: str, in_halves: bool = True) -> Nest:
    """The nest without its reduced axis k, whose elements meet in halves, or one after the other;
    its reductions, of `OPS`, are over the other axes that they have."""
    return _Writer(nest, k, in_halves).nest()


class _Writer:
    """What is written of a nest's expressions, each once."""

    def __init__(self, nest: Nest, k: str, in_halves: bool):
        n = nest.sizes[k]
        assert isinstance(n, int)
        self.whole, self.k, self.n, self.in_halves = nest, k, n, in_halves
        self.parts = [Piece(nest, k, Stretch.of(at, at + 1)) for at in range(n)]
        self.exprs: list[Expr] = []
        self.table: dict[tuple[object, ...], Expr] = {}
        self.made: dict[Element, Expr] = {}

    def nest(self) -> Nest:
        """The nest that is written."""
        whole, k = self.whole, self.k
        wanted = self._wanted()
        for e in whole.exprs:
            for at in self._places(e.axes):
                if (e, at) in wanted:
                    self.made[e, at] = self._total(e) if adds_up(e, k) else self._element(e, at)
                if e.kind == "position" and (e, at) in wanted:
                    for part in self.parts if k not in e.axes else [self.parts[at]]:
                        part.env[f"%e{e.id}"] = position(self.made[e, at])
        stores = [
            Store(
                s.output, substitute(s.offset, self.parts[at].env),
                self.made[self._at(s.expr, at)], tuple(a for a in s.axes if a != k),
            )
            for s in whole.stores for at in self._places(s.axes)
        ]
        return replace(
            whole, reduced=[a for a in whole.reduced if a != k], exprs=self.exprs, stores=stores,
            sizes={a: size for a, size in whole.sizes.items() if a != k},
        )

    def _places(self, axes: Sequence[str] | frozenset[str]) -> range:
        return range(self.n if self.k in axes else 1)

    def _at(self, e: Expr, at: int) -> Element:
        """e, or what it is known to give at a place."""
        e = self.parts[at].final(e)
        return e, at if self.k in e.axes else 0

    def _operands(self, e: Expr, at: int) -> Iterator[Element]:
        if adds_up(e, self.k):
            return (self._at(e.args[0], place) for place in range(self.n))
        return (self._at(a, at) for a in e.args)

    def _wanted(self) -> set[Element]:
        """What the stores need."""
        wanted: set[Element] = set()
        stack = [
            self._at(s.expr, at) for s in self.whole.stores for at in self._places(s.axes)
        ]
        while stack:
            e, at = element = stack.pop()
            if element not in wanted:
                wanted.add(element)
                stack += self._operands(e, at)
                stack += [self._at(d, at) for d in needs(self.whole, e) if d not in e.args]
        return wanted

    def _add(
        self, e: Expr, kind: str, args: tuple[Expr, ...], attrs: tuple[Any, ...],
        axes: frozenset[str],
    ) -> Expr:
        """An expression in the place of e, or of one for it."""
        exact = repr(attrs) if kind == "op" else ""  # 0.0 is not -0.0 (`ir.attr_key`)
        key = (kind, e.dtype, args, attrs, exact)
        if key not in self.table:
            self.table[key] = Expr(len(self.exprs), kind, e.dtype, args, attrs, axes, e.node)
            self.exprs.append(self.table[key])
        return self.table[key]

    def _element(self, e: Expr, at: int) -> Expr:
        args = tuple(self.made[x] for x in self._operands(e, at))
        x = self.parts[at].moved(e, 0, args)
        return self._add(e, x.kind, args, x.attrs, x.axes)

    def _total(self, e: Expr) -> Expr:
        """A reduction of the elements."""
        def meet(a: Expr, b: Expr) -> Expr:
            return self._add(e, "op", (a, b), (OPS[e.name], ()), a.axes | b.axes)

        elements = [self.made[x] for x in self._operands(e, 0)]
        found = _by_halves(elements, meet) if self.in_halves else reduce(meet, elements)
        if others := tuple(a for a in e.over if a != self.k):
            return self._add(e, "reduce", (found,), (e.name, others), e.axes)
        if e.name != "reduce_sum":
            return found
        # a sum begins with 0, so that it is never -0
        zero = self._add(e, "const", (), (e.dtype.numpy.type(0).tobytes(),), frozenset())
        return meet(zero, found)


def _by_halves(elements: Sequence[Expr], meet: Callable[[Expr, Expr], Expr]) -> Expr:
    """All elements met in the order of lanes that meet in halves."""
    def over(first: int, step: int) -> Expr:
        """Of elements first, first + step, .."""
        if first + step >= len(elements):
            return elements[first]
        return meet(over(first, 2 * step), over(first + step, 2 * step))

    return over(0, 1)
