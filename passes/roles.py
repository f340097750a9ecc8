"""The role of a node in fusion: some make no kernel of their own, some can be in no loop nest.

    lazy     index arithmetic alone (transpose, slice, ..): part of every kernel that reads it
    free     made from nothing (a constant, an iota): likewise
    kept     a kernel already, or a barrier: stays as it is
    opaque   has a template of its own (dot, scatter), so its operands must be in memory, but for
             updates that are one number; or is kept
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import Node, Value
from graphc.ops.row import Kind

LAZY = frozenset({"broadcast", "transpose", "slice", "reshape", "reverse"})
VIEWS = frozenset({"reshape", "stop_gradient"})


def is_lazy(n: Node) -> bool:
    """Whether n is index arithmetic alone."""
    return n.op.name in LAZY or n.op.name == "stop_gradient"


def is_kept(n: Node) -> bool:
    """Whether n stays as it is: a kernel made before, or a barrier, which only orders (what
    follows it starts when all of its operands are there)."""
    return n.op.kind is Kind.REGION or (n.op.kind is Kind.META and n.op.unique)


def is_free(v: Value) -> bool:
    """Whether v is made from nothing inside any kernel: a scalar or splat constant, iota, dim."""
    n = v.node
    if n.op.name == "constant":
        a = n.attrs["value"].array
        return a.size > 0 and (a.size == 1 or bool(np.all(_bits(a) == _bits(a).reshape(-1)[0])))
    return n.op.name in ("iota", "dim")


def _bits(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.itemsize in (1, 2, 4, 8) else a


def counts_right(iota: Value, longest: int) -> bool:
    """Whether each number of an iota is its position: none has wrapped or been rounded.

    longest: that an axis of symbolic size may be.
    """
    size = iota.type.shape[iota.node.attrs["axis"]]
    return 1 << iota.type.dtype.digits >= (size if isinstance(size, int) else longest)


def is_opaque(n: Node) -> bool:
    """Whether n has a template of its own or no code at all, and wants operands `in_memory`."""
    return n.op.kind is Kind.CONTRACT or is_kept(n) or _is_scatter(n)


def _is_scatter(n: Node) -> bool:
    """Whether n updates several positions in a row, one after the other."""
    return n.op.name in ("scatter", "scatter_add") and n.args[1].type.ndim != n.attrs["batch"]


def in_memory(n: Node) -> tuple[Value, ...]:
    """The operands of an opaque node that must be buffers. Of updates that are one number, as in a
    histogram, that number."""
    if not _is_scatter(n):
        return n.args
    u = spread(n.args[2])
    return n.args if u is None else n.args[:2] if is_free(u) else (*n.args[:2], u)


def spread(v: Value) -> Value | None:
    """The number that all elements of v are, if index arithmetic alone makes them of one."""
    while v.type.size != 1 and is_lazy(v.node):
        v = v.node.args[0]
    if is_free(v):
        return v if v.node.op.name == "constant" else None
    return v if v.type.size == 1 else None
