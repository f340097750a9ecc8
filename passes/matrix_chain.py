"""Matrix-chain order: products of several matrices in the cheapest order.

    graph @f(%a: f32[100,100], %b: f32[100,100], %v: f32[100,1]) {
      %0: f32[100,100] = dot %a, %b {contract=((1),(0)), batch=((),())}
      %1: f32[100,1] = dot %0, %v {contract=((1),(0)), batch=((),())}
      return %1
    }

becomes

    graph @f(%a: f32[100,100], %b: f32[100,100], %v: f32[100,1]) {
      %0: f32[100,1] = dot %b, %v {contract=((1),(0)), batch=((),())}
      %1: f32[100,1] = dot %a, %0 {contract=((1),(0)), batch=((),())}
      return %1
    }

Marked `stable`: sums are associated differently, no less accurately. A chain is made of products
of two matrices (with the same leading batch axes, if any) whose intermediate results have no other
use and whose sizes are static; (xy)^T counts as y^T x^T. The order is found by dynamic programming
over multiplications (Cormen et al., Introduction to Algorithms, 15.2) and taken only if it saves
some. Chains longer than MAX_FACTORS are treated as chains of chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.origins import Origin
from graphc.passes.bodies import deep
from graphc.passes.rewrite import count_uses

MAX_FACTORS = 24


class _Factor(NamedTuple):
    """A matrix of a chain, transposed or not."""

    value: Value
    flipped: bool

    def size(self, axis: int) -> int:
        """Rows (0) or columns (1), after flipping."""
        s = self.value.type.shape[-2:][axis ^ self.flipped]
        assert isinstance(s, int)
        return s


class _Chain(NamedTuple):
    """A product as a chain of factors, and its multiplications in the present order."""

    factors: tuple[_Factor, ...]
    cost: int

    def flip(self) -> _Chain:
        """The transposed product."""
        return _Chain(tuple(_Factor(v, not t) for v, t in reversed(self.factors)), self.cost)


def run(g: Graph) -> Graph:
    """g with its matrix chains in the cheapest order."""
    return deep(g, _reorder)


def _reorder(g: Graph) -> Graph:
    """One graph, its chains in the cheapest order."""
    chains = _chains(g)
    orders = {v: _order(c) for v, c in chains.items() if len(c.factors) > 2}
    if not any(orders.values()):
        return g
    env: dict[Value, Value] = {v: v for v in g.inputs}

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
        order = orders.get(n.outs[0]) if n.outs else None
        if order is not None:
            factors = [_Factor(env[v], t) for v, t in chains[n.outs[0]].factors]
            out: Sequence[Value] = [_multiply(b, factors, order, n.origin.unnamed()).value]
        else:
            out = b.copy(n, args)
        env.update(zip(n.outs, out, strict=True))
        return out

    return rebuild(g, rewrite)


def _chains(g: Graph) -> dict[Value, _Chain]:
    """The longest chains of g by their results."""
    uses = count_uses(g)
    chains: dict[Value, _Chain] = {}
    for n in g.nodes:
        pair = _product(n)
        if pair is None:
            continue
        factors: tuple[_Factor, ...] = ()
        cost = pair[0].size(0) * pair[0].size(1) * pair[1].size(1)
        for f in pair:
            inner = chains.get(f.value) if uses[f.value] == 1 else None
            if inner is not None and len(factors) + len(inner.factors) < MAX_FACTORS:
                del chains[f.value]
                factors += (inner.flip() if f.flipped else inner).factors
                cost += inner.cost
            else:
                factors += (f,)
        chains[n.outs[0]] = _Chain(factors, cost)
    return chains


def _product(n: Node) -> tuple[_Factor, _Factor] | None:
    """The two matrices that n multiplies, or None where it is another kind of node."""
    if n.op.name != "dot":
        return None
    (left, right), (batch, other) = n.attrs["contract"], n.attrs["batch"]
    nb = len(batch)
    if len(left) != 1 or batch != tuple(range(nb)) or batch != other:
        return None
    for a in n.args:
        if a.type.ndim != nb + 2 or not all(isinstance(s, int) for s in a.type.shape[nb:]):
            return None
    x, y = n.args
    return _Factor(x, left[0] == nb), _Factor(y, right[0] == nb + 1)


Order = dict[tuple[int, int], int]


def _order(chain: _Chain) -> Order | None:
    """Where to split each run of factors i..j, or None where that saves nothing."""
    sizes = [f.size(0) for f in chain.factors] + [chain.factors[-1].size(1)]
    n = len(chain.factors)
    cost = {(i, i): 0 for i in range(n)}
    split: Order = {}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return split if cost[0, n - 1] < chain.cost else None


def _multiply(b: Builder, factors: Sequence[_Factor], order: Order, origin: Origin) -> _Factor:
    """The chain's product; recursion is no deeper than MAX_FACTORS."""

    def product(i: int, j: int) -> _Factor:
        if i == j:
            return factors[i]
        x, y = product(i, order[i, j]), product(order[i, j] + 1, j)
        nb = x.value.type.ndim - 2
        contract = ((nb if x.flipped else nb + 1,), (nb + 1 if y.flipped else nb,))
        batch = (tuple(range(nb)),) * 2
        dot = b.one("dot", [x.value, y.value], origin, contract=contract, batch=batch)
        return _Factor(dot, False)

    return product(0, len(factors) - 1)
