"""Operands whose elements lie apart, and that row after row wants again: put side by side once.

    %0: f32[n,1] = slice %t {start=(0,2), stop=(n,3), ..}         a column of a table of 16
    %1: f32[n] = reshape %0 {shape=(n)}
    %2: f32[m,n] = broadcast %1 {shape=(m,n), axes=(1)}
    %3: f32[m,n] = mul %a, %2
->
    %1: f32[n] = reshape %0 {shape=(n)}
    %2: f32[n] = barrier %1
    %3: f32[m,n] = broadcast %2 {shape=(m,n), axes=(1)}

Where elements stand is index arithmetic of the kernel that wants them, so each of its rows would
gather them one by one: of columns of tables, diagonals, what is picked at positions, and what
little is computed of these. `fuse` asks for this first. On Zen 5 1000 x 1000 f32 times the diagonal
of another matrix take 68 us in the place of 393, differences of 1000 numbers, each with each, that
are a column of a table of 8 38 in the place of 248, products of two columns of 64 39 for 314, of
300 rows 2.6 for 23.
"""

from __future__ import annotations

from graphc.dims import Size, estimate, product
from graphc.ir import Builder, Graph, Node, Value, rebuild
from graphc.ops.row import Kind
from graphc.passes.bodies import barrier_ids

ROW = 16          # elements of such an operand, at least,
AGAIN = 8         # times that it is wanted,
ELEMENTS = 4096   # elements that are made of them in all: of fewer a kernel more is no gain
USUAL = 256       # what a dimension is taken for
NEAR = 4          # places from one to the next, up to which whole vectors are read
LOOKED_AT = 100   # ops behind a broadcast


def run(g: Graph) -> Graph:
    """g with a barrier behind each such operand, which makes it an array."""
    found = {n.args[0] for n in g.nodes if n.op.name == "broadcast" and _wanted_again(n)}
    apart = {v for v in found if _is_apart(v)}
    if not apart:
        return g
    ids = barrier_ids(g)
    made: dict[Value, Value] = {}

    def rewrite(b: Builder, n: Node, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if n.op.name != "broadcast" or n.args[0] not in apart:
            return None
        (v,) = args
        if v not in made:
            made[v] = b.one("barrier", (v,), v.node, id=next(ids))
        return b.emit(n.op, (made[v],), n, **n.attrs)

    return rebuild(g, rewrite)


def _wanted_again(n: Node) -> bool:
    """Whether a broadcast repeats a long row, and often. Of several rows, such as those of a
    transposed matrix, blocks are turned by the kernel, or points stand in its lanes."""
    (v,), shape, axes = n.args, n.attrs["shape"], n.attrs["axes"]
    if not axes or axes[-1] != len(shape) - 1 or v.type.size != shape[-1]:
        return False
    row, size = estimate(shape[-1], USUAL), estimate(n.out.type.size, USUAL)
    return row >= ROW and size >= ELEMENTS and size >= AGAIN * row


def _is_apart(v: Value) -> bool:
    """Whether to walk along the rows of v is to pick elements of some array one by one."""
    seen, left = {v}, [v]
    while left and len(seen) <= LOOKED_AT:
        x = left.pop()
        if x.node.op.kind is Kind.ELEMENTWISE:
            new = [a for a in x.node.args if a.type.shape == v.type.shape and a not in seen]
            seen.update(new)
            left += new
        else:
            step = _step(x, v.type.ndim - 1, LOOKED_AT)
            if not isinstance(step, int) or step > NEAR:
                return True
    return False


def _step(v: Value, axis: int, depth: int) -> Size | None:
    """From one element of v along an axis to the next, in the array that they are in; None where
    that depends on data; 1 where it is not known, or v is an array itself."""
    n = v.node
    if not depth:
        return 1
    if n.op.name == "slice":
        step = _step(n.args[0], axis, depth - 1)
        return None if step is None else step * n.attrs["step"][axis]
    if n.op.name == "transpose":
        return _step(n.args[0], n.attrs["perm"][axis], depth - 1)
    if n.op.name == "reverse":
        return _step(n.args[0], axis, depth - 1)
    if n.op.name == "broadcast":
        axes = n.attrs["axes"]
        return _step(n.args[0], axes.index(axis), depth - 1) if axis in axes else 0
    if n.op.name == "gather":
        data, positions = n.args
        first = n.attrs["axis"]
        behind = first + positions.type.ndim - n.attrs["batch"]
        if first <= axis < behind:
            return None
        return _step(data, axis if axis < first else axis - behind + first + 1, depth - 1)
    if n.op.name == "reshape" and (own := _same_axis(n, axis)) is not None:
        return _step(n.args[0], own, depth - 1)
    return product(v.type.shape[axis + 1 :])


def _same_axis(n: Node, axis: int) -> int | None:
    """The axis of a reshape's operand that an axis of the result is, if only axes of size 1 come
    or go."""
    old, new = ([k for k, x in enumerate(t.shape) if x != 1] for t in (n.args[0].type, n.out.type))
    if [n.args[0].type.shape[k] for k in old] != [n.out.type.shape[k] for k in new]:
        return None
    return old[new.index(axis)] if axis in new else None
