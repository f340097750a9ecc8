"""Rematerialisation in fusion: cheap values that kernels compute again instead of reading them.

    -x, x > 0, 2 * x wanted by a later kernel that reads x anyway: a store and a load are saved
    (x - mean) * scale, the mean and the scale one number a row: the rows' numbers are stored

A copy may read what its kernel reads already, what every kernel can make for itself, a few values
that are smaller (they are stored for it), and one of its own size, or slices of one, that is in
memory anyway: of a loss of differences and its gradient in one program, neither stores differences
for the other. Smaller ones not where its kernel spreads each element over neighbours: weights of
points and centres, read along a third axis, would be made from mask and scale number by number, and
the k-means objective with its Hessian-vector product take a quarter longer in f64. All kernels that
read a value copy it, or none: its buffer is what costs.

Where several values are made of one that is in no memory, that one is stored in their place. The
terms of a filter's gradient, a product each, all read one cotangent: of 32 weights over 200,000 f32
it takes Zen 4 0.84 ms, 6.6 where each is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.dims import exact_div
from graphc.ir import Node, Value
from graphc.ops.row import Kind
from graphc.passes.groups import Group, cost
from graphc.passes.pulling import AGAIN
from graphc.passes.roles import is_free

# Ops that a kernel repeats for the sake of one value. Where these read slices it is AGAIN, at all
# places: 1M elements of Rosenbrock's function and its gradient take half the time, 1,000 of them a
# tenth longer.
MOST = 4
SMALLER = 3  # smaller values that it reads instead


def choose(
    order: Mapping[Node, int], reads: Mapping[Group, set[Value]], needed: set[Value],
    behind: Callable[[Value], Value], storable: Callable[[Value], bool],
) -> tuple[dict[Group, set[Value]], set[Value]]:
    """For each group the values of others that it is to compute for itself, and what is stored
    for the sake of that.

    `order`: of the program; `reads`: the values that a group finds in memory; `needed`: those that
    something else wants there; `behind`: the value that index arithmetic alone leads to;
    `storable`: whether the kernel of a value can store it.
    """
    readers: dict[Value, list[Group]] = {}
    for h, values in reads.items():
        for v in values:
            readers.setdefault(v, []).append(h)
    stored = set(readers) | needed
    now = {h: set(values) for h, values in reads.items()}
    copied: dict[Group, set[Value]] = {h: set() for h in reads}
    relied_on: set[Value] = set()  # values that are read instead of others, which stay in memory

    def plan(
        v: Value, h: Group, instead: Value | None = None
    ) -> tuple[set[Value], set[Value]] | None:
        """(values to copy, values to read instead) so that h has v without reading it; of these one
        may be `instead`, which is to be stored."""
        copies: set[Value] = set()
        same: set[Value] = set()
        smaller: set[Value] = set()
        most = MOST
        stack = [v]
        while stack:
            w = stack.pop()
            if w in copies:
                continue
            if not is_cheap(w.node) or len(copies) == max(MOST, AGAIN):
                return None
            copies.add(w)
            for operand in w.node.args:
                a = behind(operand)
                part = a.type != v.type and is_part(operand, a, v)
                if part:
                    places = sum(behind(x) is v for m in h.nodes for x in m.args)
                    most = AGAIN // max(1, places)
                if a in now[h] or is_free(a):
                    continue
                resident = a in stored or a.node.op.name == "input"
                if is_smaller(a, v) and (resident or storable(a)):
                    smaller.add(a)
                elif resident:
                    if a.type != v.type and not part:
                        return None
                    same.add(a)
                elif a is instead:
                    same.add(a)
                else:
                    stack.append(a)
        if smaller and is_spread(v, h):
            return None
        if len(smaller) > SMALLER or len(same) > 1 + (instead in same) or len(copies) > most:
            return None
        return copies, smaller | same

    def copy(v: Value, plans: Mapping[Group, tuple[set[Value], set[Value]]]) -> None:
        """Let the readers of v have it as planned."""
        for h, (copies, instead) in plans.items():
            copied[h] |= copies
            now[h] = (now[h] - {v}) | instead
            stored.update(instead)
            relied_on.update(instead)
        stored.discard(v)

    cheap = [v for v in readers if v not in needed and is_cheap(v.node)]
    for v in sorted(cheap, key=lambda v: order[v.node]):  # operands first
        plans = {h: p for h in readers[v] if (p := plan(v, h)) is not None}
        if len(plans) == len(readers[v]):
            copy(v, plans)
    made: dict[Value, list[Value]] = {}
    for v in cheap:
        if v in stored and len(readers[v]) == 1:
            for a in dict.fromkeys(map(behind, v.node.args)):
                if a.type == v.type and a not in stored and storable(a):
                    made.setdefault(a, []).append(v)
    for a, several in made.items():
        left = [v for v in several if v in stored and v not in relied_on]
        if sum(plan(v, h, a) is not None for v in left for h in readers[v]) < 2:
            continue
        for v in left:
            (h,) = readers[v]
            found = plan(v, h, a) if v not in relied_on else None  # which those before may change
            if found is not None:
                copy(v, {h: found})
    return copied, stored


def is_part(operand: Value, a: Value, v: Value) -> bool:
    """Whether an operand is a slice of `a` that skips nothing and is no wider than v."""
    while operand is not a and operand.node.op.name == "slice" and set(
        operand.node.attrs["step"]
    ) == {1}:
        operand = operand.node.args[0]
    return operand is a and a.type.dtype is v.type.dtype


def is_smaller(a: Value, v: Value) -> bool:
    """Whether a takes at most half the memory of v, or lacks one of its axes."""
    if a.type.shape == v.type.shape:
        return a.type.size != 0 and v.type.dtype.itemsize >= 2 * a.type.dtype.itemsize
    if a.type.size == 0:
        return False
    if isinstance(v.type.bytes, int) and isinstance(a.type.bytes, int):
        return v.type.bytes >= 2 * a.type.bytes
    times = exact_div(v.type.size, a.type.size)
    if not isinstance(times, int):
        return times is not None
    return times * v.type.dtype.itemsize >= 2 * a.type.dtype.itemsize


def is_spread(v: Value, h: Group) -> bool:
    """Whether neighbours in a kernel share an element of v, which lacks their axis: vectors need it
    in all lanes."""
    (order,), _ = h.orders()
    labels = [label for x, label in h.read if x is v]
    return bool(order and labels) and all(order[-1] not in label for label in labels)


def is_cheap(n: Node) -> bool:
    """Whether computing n again costs no more than reading it."""
    return (
        n.op.kind is Kind.ELEMENTWISE and cost(n) <= 1
        and not n.can_fail
    )
