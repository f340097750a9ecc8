"""The role of a node in fusion: some make no kernel of their own, some can be in no loop nest.

    lazy     index arithmetic alone (transpose, slice, ..): part of every kernel that reads it
    free     made from nothing (a constant, an iota): likewise
    kept     a kernel already, or a barrier: stays as it is
    opaque   has a template of its own (dot, scatter), so its operands must be in memory, but for
             a matrix that is repeated along a batch and updates that are one number; or is kept
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.dims import product
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind

LAZY = frozenset({"broadcast", "transpose", "slice", "reshape", "reverse"})
SCATTERS = frozenset({"scatter", "scatter_add"})
VIEWS = frozenset({"reshape", "stop_gradient"})

LARGE_STATE = 4096  # bytes from which a state that gets a row is better not written as a whole
# Elements behind a position from which looking at it twice is little beside writing them. Counts of
# a million positions in 64k numbers, rows of one, took 4.5 ms in the place of 3.6; 10,000 rows of
# 16 f32 take 2 us more of 58 at most.
LONG_ROW = 16


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
        bits = _bits(n.attrs["value"].array).reshape(-1)
        # most weights differ where they end
        return bits.size > 0 and bool(bits[0] == bits[-1]) and bool(np.all(bits == bits[0]))
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
    return n.op.name in SCATTERS and n.args[1].type.ndim != n.attrs["batch"]


def buffer_of(n: Node, side: int) -> Value:
    """What a product reads as one operand: of a matrix that is the same for all members of the
    batch that one matrix, which a stride of 0 repeats."""
    v = n.args[side]
    if v.node.op.name != "broadcast" or not n.attrs["batch"][side]:
        return v
    own = tuple(a for a in range(v.type.ndim) if a not in n.attrs["batch"][side])
    return v.node.args[0] if v.node.attrs["axes"] == own else v


def in_memory(n: Node) -> tuple[Value, ...]:
    """The operands of an opaque node that must be buffers. Of updates that are one number, as in a
    histogram, that number; zeros that are updated, as in a gradient, none."""
    if n.op.kind is Kind.CONTRACT:
        return buffer_of(n, 0), buffer_of(n, 1)
    if not _is_scatter(n):
        return n.args
    x, where, updates = n.args
    found = [where] if is_zeros(x) else [x, where]
    one = spread(updates)
    if one is None or not is_free(one):
        found.append(updates if one is None else one)
    return tuple(found)


def is_zeros(v: Value) -> bool:
    """Whether index arithmetic alone makes v of a constant all of whose bits are 0."""
    one = spread(v)
    return one is not None and is_free(one) and not _bits(one.node.attrs["value"].array).any()


def spread(v: Value) -> Value | None:
    """The number that all elements of v are, if index arithmetic alone makes them of one."""
    while v.type.size != 1 and is_lazy(v.node):
        v = v.node.args[0]
    if is_free(v):
        return v if v.node.op.name == "constant" else None
    return v if v.type.size == 1 else None


def written_in_place(g: Graph) -> set[Node]:
    """Scatters, or kernels of one each, that make a large state's new value of its old one, such
    that looking at their positions before takes less than copying the state.

    As index arithmetic they would compute all elements, and these would be copied: a cache of keys
    that gets a row, a ring of samples, an embedding of which a batch is learnt.
    """
    found: set[Node] = set()
    for state, v in g.updates:
        chain: list[Node] = []
        v = _viewed(v)
        while (n := _scatter(v.node)) is not None and _pays(n):
            chain.append(v.node)
            v = _viewed(v.node.args[_operand(v.node)])
        if v.node.op.name == "variable" and v.node.attrs["state"] is state:
            found.update(chain)
    return found


def _viewed(v: Value) -> Value:
    """What v is another shape of: rows at several indices are rows at one, of a flat array."""
    while v.node.op.name in VIEWS:
        v = v.node.args[0]
    return v


def _scatter(n: Node) -> Node | None:
    """n, or what it computes as a kernel, if that is a scatter."""
    if n.op.name == "fused" and len(n.outs) == 1:
        body = n.attrs["body"]
        n = body.outputs[0].node
        if n.op.name not in SCATTERS or not {*n.args[:2]} <= {*body.inputs}:
            return None
    return n if n.op.name in SCATTERS and not n.attrs["batch"] else None


def _operand(n: Node) -> int:
    """Which operand of a scatter, or of a kernel of one, is updated."""
    if n.op.name != "fused":
        return 0
    body = n.attrs["body"]
    place: int = body.inputs.index(body.outputs[0].node.args[0])
    return place


def _pays(n: Node) -> bool:
    """Whether a scatter has few positions beside what it updates, or writes long rows."""
    x, where = n.args[0].type, n.args[1].type.size
    row = product(x.shape[n.attrs["axis"] + 1 :])
    if not isinstance(x.size, int) or x.size * x.dtype.itemsize < LARGE_STATE:
        return False
    return where <= x.size if isinstance(where, int) else isinstance(row, int) and row >= LONG_ROW
