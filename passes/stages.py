"""Which stage a graph is at, and what it still needs before code can be generated.

A graph read from a dump may stand anywhere between its declaration and its kernels, and one that
GRAPHC_STOP_AFTER or a user's pipeline left has none.
"""

from __future__ import annotations

from graphc import copies
from graphc.ir import Graph, Node, collect
from graphc.ops.row import Kind
from graphc.passes import fuse, inline


def has_kernels(g: Graph) -> bool:
    """Whether some nodes of g are kernels, so that fusion has run."""
    return any(n.op.name == "fused" for n in g.nodes)


def is_lowered(g: Graph) -> bool:
    """Whether every node is a kernel or needs none: what code generation takes."""
    return all(_needs_no_kernel(n) for n in g.nodes)


def lower(g: Graph) -> Graph:
    """g as kernels: the two passes that code generation cannot do without, where they are due."""
    if is_lowered(g):
        return g
    return fuse.run(flatten(g) if has_kernels(g) else inline.run(g))


def flatten(g: Graph) -> Graph:
    """g with kernels and composites replaced by their bodies."""
    flat = copies.expand(g.results)
    n = len(g.outputs)
    updates = [(s, v) for (s, _), v in zip(g.updates, flat[n:], strict=True)]
    return collect(g.name, g.inputs, flat[:n], updates, g.output_names)


def _needs_no_kernel(n: Node) -> bool:
    """Whether a node stands by itself after `fuse`."""
    return n.op.kind in (Kind.LEAF, Kind.META) or n.op.name in ("fused", "reshape")
