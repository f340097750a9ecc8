"""A kernel to be written: what each of the templates (nest, product, scatter, chain) is given."""

from __future__ import annotations

from typing import NamedTuple

from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine.target import Target
from graphc.dims import Size
from graphc.ir import Graph, Node


class Job(NamedTuple):
    """A kernel to be written: into which module, for what machine, of which node, and its name.

    codes: the status codes of nodes that can fail. scratch: bytes of the calling thread's scratch
    that each of the nests takes which are written for it; `define_kernel` begins the list anew.
    """

    module: Module
    target: Target
    node: Node
    name: str
    codes: dict[Node, int]
    fastmath: bool
    scratch: list[Size]

    @property
    def body(self) -> Graph:
        """What the kernel computes."""
        body: Graph = self.node.attrs["body"]
        return body

    @property
    def fallible(self) -> bool:
        return bool(body_sites(self.body))

    def part(self, suffix: str, node: Node | None = None) -> Job:
        """One of several functions or kernels that this one is made of."""
        return self._replace(name=f"{self.name}.{suffix}", node=node or self.node)


def body_sites(body: Graph) -> list[Node]:
    """The nodes of a body that can fail while running."""
    return [n for n in body.nodes if n.can_fail]
