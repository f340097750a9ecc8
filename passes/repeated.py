"""Expensive scalars that several kernels would each compute: computed once, by an earlier kernel.

A scalar that follows in a few steps from leaves is computed by every kernel that wants it
(`Joining.scalars`). Where that repeats exponentials and divisions, as in all updates of an
optimizer with what depends on the number of the step, an earlier kernel that makes scalars anyway
(a training step's loss) makes these as well. Where there is none they are repeated: one more kernel
would cost as much.

    loss = sum(losses)                              loss = sum(losses), c = lr / (1 - beta ** t)
    w - m * (lr / (1 - beta ** t))              ->  w - m * c
    b - n * (lr / (1 - beta ** t))                  b - n * c
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from graphc.ir import Node
from graphc.ops.row import Kind
from graphc.passes.grouping import MAX_NODES
from graphc.passes.groups import Group, cost

# Cycles of repeated work that are worth a store and a load in each kernel. A repetition is code as
# well: 600 bytes and 2 ms of compile time for the corrections of Adam.
REPEATED = 32


class Repeated(NamedTuple):
    host: Group
    made: list[Node]  # what the host is to compute
    read: list[Node]  # of these, what others read


def find(
    groups: Sequence[Group], scalars: Set[Node], inside: Callable[[Node], bool]
) -> Repeated | None:
    """What one of the groups should compute for others.

    `scalars`: what kernels compute for themselves; `inside`: whether a node stands in every kernel
    that wants it.
    """
    wanting: dict[Node, list[Group]] = {}
    readers: dict[Node, set[Node]] = {}
    for h in groups:
        seen: set[Node] = set()
        stack = list(h.nodes)
        while stack:
            n = stack.pop()
            for m in {a.node: None for a in n.args}:
                if m in scalars:
                    readers.setdefault(m, set()).add(n)
                if inside(m) and m not in seen:
                    seen.add(m)
                    stack.append(m)
                    if m in scalars:
                        wanting.setdefault(m, []).append(h)
    made = {
        n: None for n, hs in wanting.items()
        if len(hs) > 1 and n.op.kind is Kind.ELEMENTWISE
        and (len(hs) - 1) * _work(n, scalars) >= REPEATED
    }
    first = min((h.level for n in made for h in wanting[n]), default=0)
    host = next((h for h in reversed(groups) if h.level < first and _may_host(h, len(made))), None)
    if host is None:
        return None
    return Repeated(host, list(made), [n for n in made if not readers[n] <= made.keys()])


def _may_host(h: Group, more: int) -> bool:
    """Whether a group makes single numbers after its loops, and has room for more."""
    makes = bool(h.finals or (h.reduced and not h.outer))
    return h.kind == "loops" and makes and h.scan is None and len(h.nodes) + more <= MAX_NODES


def _work(n: Node, scalars: Set[Node]) -> int:
    """Rough cycles of a scalar and all that it follows from."""
    seen, stack = {n}, [n]
    while stack:
        for a in stack.pop().args:
            if a.node in scalars and a.node not in seen:
                seen.add(a.node)
                stack.append(a.node)
    return sum(map(cost, seen))
