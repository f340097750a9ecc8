"""Constant folding: what is computed from constants alone is computed now.

    graph @f(%x: f32[3]) {
      %0: f32[3] = constant [1.0, 2.0, 4.0]
      %1: f32[] = constant 3.0
      %2: f32[3] = broadcast %1 {shape=(3), axes=()}
      %3: f32[3] = mul %0, %2
      %4: f32[3] = add %x, %3
      return %4
    }

becomes

    graph @f(%x: f32[3]) {
      %0: f32[3] = constant [3.0, 6.0, 12.0]
      %1: f32[3] = add %x, %0
      return %1
    }

Bounded, so that a graph never grows by it: a result has at most MAX_ELEMENTS elements and at most
GROWTH times as many as the constants it comes from; products take at most MAX_PRODUCTS. An iota is
cheaper computed than loaded and counts as unknown. See `folding` for how the bits are found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind
from graphc.passes.bodies import array_of, deep
from graphc.passes.folding import evaluate
from graphc.types import Array

MAX_ELEMENTS = 1 << 16
GROWTH = 4
MAX_PRODUCTS = 1 << 22


def run(g: Graph) -> Graph:
    """g with constant subgraphs as constants, inside bodies too."""
    return deep(g, _fold)


def _fold(g: Graph) -> Graph:
    """One graph, with constants for what depends on constants alone."""
    # values whose elements are known, and how many stored elements they come from
    known: dict[Value, tuple[Array, int]] = {}

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if n.op.name == "constant":
            elements = array_of(n.attrs["value"])
            kept = b.keep(n)
            if elements is not None:
                known[kept[0]] = elements, elements.size
            return kept
        if len(n.outs) != 1 or not args or not all(a in known for a in args):
            return None
        t = n.outs[0].type
        if not t.is_static or not _fits(n, known, args):
            return None
        array = (
            _view(known[args[0]][0], n)
            if n.op.name == "broadcast"
            else evaluate(n.op, [known[a][0] for a in args], n.attrs, t.dtype)
        )
        if array is None or array.shape != t.shape or array.dtype != t.dtype.numpy:
            return None
        stored = sum(known[a][1] for a in args)
        if n.op.name == "broadcast":  # known, but stays: it costs nothing where it is used
            out = b.copy(n, args)
        else:
            out, stored = _constant(b, array, n)
        known[out[0]] = array, stored
        return out

    return rebuild(g, rewrite)


def _fits(n: Node, known: dict[Value, tuple[Array, int]], args: Sequence[Value]) -> bool:
    """Whether the result may be stored: see the bounds above."""
    if n.op.name == "broadcast":
        return True
    size = n.outs[0].type.size
    stored = sum(known[a][1] for a in dict.fromkeys(args))
    read = [known[a][0].size for a in args]
    if not isinstance(size, int) or size > max(1, GROWTH * stored):
        return False
    if n.op.kind is Kind.CONTRACT and size * math.prod(read) > MAX_PRODUCTS**2:
        return False  # m k, k n and m n elements multiply to the square of the products
    return max(size, sum(read)) <= MAX_ELEMENTS


def _view(x: Array, n: Node) -> Array:
    """A broadcast of known elements, without a copy."""
    shape, axes = n.attrs["shape"], n.attrs["axes"]
    inner = [1] * len(shape)
    for i, a in enumerate(axes):
        inner[a] = x.shape[i]
    return np.broadcast_to(x.reshape(inner), shape)


def _constant(b: Builder, array: Array, n: Node) -> tuple[tuple[Value, ...], int]:
    """The array as a constant; one number and a broadcast where all elements are alike."""
    if array.ndim and array.size > 1:
        bits = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
        if (bits == bits[0]).all():
            c = b.constant(array.reshape(-1)[0], n.origin.unnamed())
            return b.emit("broadcast", (c,), n, shape=array.shape, axes=()), 1
    return (b.constant(array, n),), array.size
