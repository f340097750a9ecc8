"""Kernels that walk over the same elements become one: sums, and maps of what the sums read.

A value and its gradient read the same operands, and often compute the same of them, but neighbours
meet over one place less than there are, so that the loops of the two are not the same. `fuse` runs
this when kernels have been made. Sums over a little less than others walk over are padded by zeros,
which change no sum; the loops are cut where these begin (`codegen.emission.between`). Kernels that
reduce the same elements over any of their axes become one as they are: the least and the greatest
of 1M f32 take 42 us in the place of 85.

    %0: f64[] = fused %x {sum of (x[1:] - x[:-1])**2; axes=(n-1), reduced=(0)}
    %1: f64[n] = fused %x {pad(..., low=1) - pad(..., high=1); axes=(n)}
->
    %0: f64[], %1: f64[n] = fused %x {sum of pad((x[1:] - x[:-1])**2, high=1), ...; axes=(n)}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from graphc import dims
from graphc.dims import Size
from graphc.ir import Builder, Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.groups import EXPENSIVE, cost
from graphc.passes.merging import Kernel, merged, merged_body

LEAST_ROW = 32     # elements of the last axis, and of one that is padded, most vectors of which
LONG_ROW = 512     # would have conditions otherwise
LEAST_SHARE = 0.8  # of the places that are walked over, that a sum is over
MOST_NODES = 150   # of a kernel: values of a vector that need registers at a time
# Cycles of a map's costly ops that no sum has as well: more of them go faster by themselves, where
# more vectors are side by side. Of 2^16 f32 sin(x) takes 0.84 of the time apart from sum(x), exp(x)
# and tanh(x) 1.05 times as long.
MOST_COST = 15
BETWEEN = 100      # nodes among which a path is looked for
TYPICAL = 256      # what a symbolic dimension counts as

LOOPED = (Kind.ELEMENTWISE, Kind.LAYOUT, Kind.LEAF, Kind.META)


@dataclass(eq=False)
class Sweep:
    """Kernels that may become one, in the order of the program."""

    axes: tuple[Size, ...]  # what all of them walk over
    nodes: list[Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Nodes of their bodies."""
        return sum(len(n.attrs["body"].nodes) for n in self.nodes)


def run(g: Graph) -> Graph:
    """Join the kernels of g that sum, or map and sum, the same operands."""
    sweep_of = _sweeps(g)
    if not sweep_of:
        return g
    together = {n: s.nodes for n, s in sweep_of.items()}
    return merged(g, together, lambda nodes: _kernel(sweep_of[nodes[0]]))


def _sweeps(g: Graph) -> dict[Node, Sweep]:
    """The kernels that become one, by each of their nodes."""
    changed = {v for _, v in g.updates}
    sweep_of: dict[Node, Sweep] = {}
    readers: dict[Value, list[Sweep]] = {}
    for n in g.nodes:
        if not (_is_simple(n) or _only_reduces(n)) or not changed.isdisjoint(n.outs):
            continue
        near = dict.fromkeys(s for a in n.args for s in readers.get(a, ())[-4:])
        home = next((s for s in near if _may_join(n, s, sweep_of)), None)
        if home is None:
            home = Sweep(n.attrs["axes"])
        home.axes = _both(home.axes, n.attrs["axes"]) or home.axes
        home.nodes.append(n)
        sweep_of[n] = home
        for a in n.args:
            if home not in readers.setdefault(a, []):
                readers[a].append(home)
    return {n: s for n, s in sweep_of.items() if len(s.nodes) > 1 and _pays(s)}


def _pays(s: Sweep) -> bool:
    """Whether sums go with a map, or none of them is padded for others alone: those of an image of
    64 x 64 named f32 would take a quarter longer, of 1024 x 1024 a fifth less, by AVX2 the same."""
    return any(map(_maps, s.nodes)) or all(n.attrs["axes"] == s.axes for n in s.nodes)


def _only_reduces(n: Node) -> bool:
    """Whether all that a kernel stores is reduced, over the same axes of one shape, but for places:
    sums beside these would not go by bands."""
    if n.op.name != "fused" or not n.attrs["reduced"]:
        return False
    reduced, found = set(n.attrs["reduced"]), _reductions(n)
    if any(m.op.name == "argmax" for m in found):
        return False
    if len({(m.args[0].type.shape, m.attrs["axes"]) for m in found}) != 1:
        return False
    if not all(map(reduced.isdisjoint, n.attrs["outputs"])):
        return False
    known = (*LOOPED, Kind.REDUCE)
    return all(m.op.kind in known and not m.can_fail for m in n.attrs["body"].nodes)


def _reductions(n: Node) -> list[Node]:
    return [m for m in n.attrs["body"].nodes if m.op.kind is Kind.REDUCE]


def _are_alike(n: Node, m: Node) -> bool:
    """Whether kernels reduce the same elements, by lanes of the same width, of an operand that both
    read: greatest and least ones, sums and sums of squares."""
    if any(n.attrs[k] != m.attrs[k] for k in ("axes", "reduced")):
        return False
    first, second = _reductions(n)[0], _reductions(m)[0]
    shape = first.args[0].type.shape
    if (second.args[0].type.shape, second.attrs["axes"]) != (shape, first.attrs["axes"]):
        return False
    return _widest(n) == _widest(m) and any(a.type.shape == shape for a in {*n.args} & {*m.args})


def _widest(n: Node) -> int:
    """Bytes of the widest of what a kernel adds up, and into."""
    return max(v.type.dtype.itemsize for m in _reductions(n) for v in (*m.args, m.out))


def _is_simple(n: Node) -> bool:
    """Whether a kernel maps all elements of its axes, sums them, or both in one sweep."""
    if n.op.name != "fused":
        return False
    axes, body = n.attrs["axes"], n.attrs["body"]
    every = tuple(range(len(axes)))
    if not axes or n.attrs["reduced"] not in ((), every) or not _is_long(axes[-1]):
        return False
    if any(label not in ((), every) for label in n.attrs["outputs"]):
        return False
    if any(o.type.shape not in ((), axes) for o in body.outputs):
        return False
    totals: set[Value] = set()  # sums, and numbers that are made of them
    for m in body.nodes:
        if m.op.kind is Kind.REDUCE:
            if m.op.name != "reduce_sum" or m.attrs["axes"] != every or m.args[0] in totals:
                return False
            if m.args[0].type.shape != axes or not m.out.type.dtype.is_float:
                return False
            totals.add(m.out)
        elif m.op.kind not in LOOPED or m.can_fail:
            return False
        elif not totals.isdisjoint(m.args):
            if m.out.type.shape != ():
                return False
            totals.add(m.out)
    return True


def _maps(n: Node) -> bool:
    """Whether a kernel stores elements, beside sums or not."""
    return any(n.attrs["outputs"])


def _is_long(row: Size) -> bool:
    return not isinstance(row, int) or row >= LEAST_ROW


def _may_join(n: Node, s: Sweep, sweep_of: dict[Node, Sweep]) -> bool:
    """Whether a kernel behind those of a sweep may become one with them."""
    every = (*s.nodes, n)
    if s.size + len(n.attrs["body"].nodes) > MOST_NODES:
        return False
    if all(map(_only_reduces, every)) and all(_are_alike(m, n) for m in s.nodes):
        return not _waits(n, s, sweep_of)
    return all(map(_is_simple, every)) and _meet(every, s.axes) and not _waits(n, s, sweep_of)


def _meet(nodes: Sequence[Node], axes: tuple[Size, ...]) -> bool:
    """Whether the last of some kernels may walk over what the others do, which have `axes`: sums
    alone, or one that maps."""
    if sum(map(_maps, nodes)) > 1:
        return False
    all_ = _both(axes, nodes[-1].attrs["axes"])
    if all_ is None or not all(_is_light(m, nodes) for m in nodes):
        return False
    return all(_is_covered(m, all_) for m in nodes)


def _is_light(n: Node, beside: Iterable[Node]) -> bool:
    """Whether what a kernel alone computes is no more than sums may have beside them."""
    if n.attrs["reduced"]:
        return True
    known = {m.op.name for k in beside if k is not n for m in k.attrs["body"].nodes}
    costs = [cost(m) for m in n.attrs["body"].nodes if m.op.name not in known]
    return sum(c for c in costs if c >= EXPENSIVE) <= MOST_COST


def _both(a: tuple[Size, ...], b: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The least axes that have the places of both, where it is known which these are."""
    if len(a) != len(b):
        return None
    found: list[Size] = []
    for x, y in zip(a, b, strict=True):
        if dims.is_nonnegative(x - y):
            found.append(x)
        elif dims.is_nonnegative(y - x):
            found.append(y)
        else:
            return None
    return tuple(found)


def _is_covered(n: Node, axes: tuple[Size, ...]) -> bool:
    """Whether a kernel may walk over `axes`: a map has no other places, and a sum few more."""
    own = n.attrs["axes"]
    if own == axes:
        return True
    if _maps(n):
        return False
    if own[-1] != axes[-1] and isinstance(axes[-1], int) and axes[-1] < LONG_ROW:
        return False
    all_, some = (dims.estimate(dims.product(x), TYPICAL) for x in (axes, own))
    return some >= LEAST_SHARE * all_


def _waits(n: Node, s: Sweep, sweep_of: dict[Node, Sweep]) -> bool:
    """Whether a kernel needs what a sweep makes, or the way to find out is long."""
    seen: set[Node] = set()
    stack = [a.node for a in n.args]
    while stack:
        m = stack.pop()
        if m in seen:
            continue
        seen.add(m)
        if m in s.nodes or len(seen) > BETWEEN:
            return True
        group = sweep_of[m].nodes if m in sweep_of else [m]
        stack += [a.node for k in group for a in k.args]
    return False


def _kernel(s: Sweep) -> Kernel:
    """Operands and attributes of the node that is all of a sweep's."""
    def repeat(b: Builder, n: Node, env: dict[Value, Value]) -> None:
        if n.op.kind is Kind.REDUCE:
            env[n.out] = b.one(n.op, [_padded(b, n, env[n.args[0]], s.axes)], n, **n.attrs)
        else:
            b.repeat(n, env)

    alike = all(n.attrs["axes"] == s.axes for n in s.nodes)
    given, body = merged_body(s.nodes, Builder.repeat if alike else repeat)
    return given, {
        "body": body, "axes": s.axes,
        "reduced": max((n.attrs["reduced"] for n in s.nodes), key=len),
        "outputs": tuple(label for n in s.nodes for label in n.attrs["outputs"]),
    }


def _padded(b: Builder, n: Node, x: Value, axes: Iterable[Size]) -> Value:
    """What a reduction sums, with zeros behind it up to the axes of the sweep."""
    high = tuple(a - own for a, own in zip(axes, x.type.shape, strict=True))
    if not any(h != 0 for h in high):
        return x
    zero = b.constant(x.type.dtype.numpy.type(0), n)
    none = (0,) * len(high)
    return b.one("pad", [x, zero], n, low=none, high=high, interior=none)
