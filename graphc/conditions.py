"""What the sizes of a call must satisfy: the conditions of all nodes, checked before anything runs.

    graph @f(%x: f32[n]) {
      %0: f32[n-1] = slice %x {start=(1), stop=(n), step=(1)}       n - 1 >= 0
      %1: f32[2,floordiv(n, 2)] = reshape %0 {..., checked=True}    n - 1 == 2 * floordiv(n, 2)
      return %1
    }

The rows state them (`Op.conditions`); what types prove does not appear here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphc import dims
from graphc.binding import size_value
from graphc.errors import ShapeError
from graphc.ir import Graph, Node
from graphc.ops.row import Condition, Kind


class Requirement(NamedTuple):
    """A condition and the first node that has it."""

    node: Node
    condition: Condition

    @property
    def message(self) -> str:
        """`slice: needs 0 <= start <= stop <= size, got f32[n]`"""
        if self.condition.whole:
            return self.condition.whole
        came = ", ".join(str(a.type) for a in self.node.args) or str(self.node.outs[0].type)
        return f"{self.node.op.name}: {self.condition.reason}, got {came}"

    def holds(self, env: Mapping[str, int]) -> bool:
        """Whether given dimensions satisfy it."""
        size = size_value(self.condition.size, env)
        return size == 0 if self.condition.zero else size >= 0


def requirements(g: Graph) -> list[Requirement]:
    """Every unproven condition in g and its bodies, in node order, each once."""
    found: dict[tuple[dims.Size, bool], Requirement] = {}
    seen = {g}
    stack = [iter(g.nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        if node.op.conditions is not None:
            for c in node.op.must_hold([a.type for a in node.args], node.attrs):
                found.setdefault((c.size, c.zero), Requirement(node, c))
        for body in node.bodies if node.op.kind is Kind.REGION else ():
            if body not in seen:
                seen.add(body)
                stack.append(iter(body.nodes))
    return list(found.values())


def check(g: Graph, env: Mapping[str, int]) -> None:
    """Raise ShapeError, with the user's line, for the first condition that fails."""
    for r in requirements(g):
        if not r.holds(env):
            sizes = [s for a in (*r.node.args, *r.node.outs) for s in a.type.shape]
            names = dict.fromkeys(n for s in (*sizes, r.condition.size) for n in dims.names(s))
            here = ", ".join(f"{n} = {env[n]}" for n in names if n in env)
            raise ShapeError(f"{r.message}{f' where {here}' if here else ''}", r.node.loc)
