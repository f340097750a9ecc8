"""Products of vectors with matrices kept in fewer bytes: sums, which need no array for the matrix.

    %0: f32[m,k] = cast %w {dtype=f32}                                w: bf16[m,k]
    %1: f32[m] = dot %0, %x {contract=((1),(0)), batch=((),())}
->
    %0: f32[m,k] = cast %w {dtype=f32}
    %1: f32[m] = add (reduce_sum (mul %0, (broadcast %x)) {axes=(1)}), 0.0

Such a product reads each element of the matrix once, so that its time is that of the memory that it
goes through. That of a sum is what the matrix is made from: halves, or bytes with their scale; and
a sum may go over axes that lie apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphc.dims import Size, estimate
from graphc.ir import Builder, Node, Value
from graphc.ops.row import Kind
from graphc.passes.elementwise_products import free
from graphc.passes.roles import is_free, is_lazy
from graphc.types import bf16, f16, f32

# Elements of a matrix from which it is worth while. 64 x 64 of f16 take 1.2 us in the place of 1.9,
# 256 x 256 of bf16 8 (18), 4096 x 1024 1,640 (6,900).
LEAST = 4096
USUAL = 256  # what a dimension is taken for
LESS = 2     # times as much memory as what it is made of
# What a sum may compute of the matrix. An exp of each element takes it as long as the product and
# the array, columns of them longer.
CHEAP = frozenset({"cast", "add", "sub", "mul"})


def matrix_side(n: Node, uses: Counter[Value]) -> int | None:
    """Which operand of a product is a matrix that need not be stored, beside a vector."""
    if not n.out.type.dtype.is_float:
        return None
    for s in (0, 1):
        t, size = n.args[s].type, estimate(n.args[s].type.size, USUAL)
        if is_vector(n, 1 - s) and size >= LEAST and any(t.shape[a] != 1 for a in free(n, s)):
            held = max(t.dtype.itemsize, f32.itemsize)  # halves are multiplied as f32
            if LESS * _source_bytes(n.args[s], uses) <= size * held:
                return s
    return None


def is_vector(n: Node, s: int) -> bool:
    """Whether an operand of a product has no axes of its own, but of size 1."""
    return all(n.args[s].type.shape[a] == 1 for a in free(n, s))


def _source_bytes(v: Value, uses: Counter[Value]) -> int:
    """Bytes of what a kernel would read that computes v and stores it nowhere."""
    seen, stack, total = {v}, [v], 0
    while stack:
        x = stack.pop()
        n = x.node
        inside = n.op.name == "cast" or uses[x] == 1 or is_free(x)
        if _is_view(n) or (n.op.name in CHEAP and inside):
            fresh = [a for a in n.args if a not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        elif x.type.size == v.type.size:  # what is repeated along it is little
            total += estimate(x.type.size, USUAL) * x.type.dtype.itemsize
    return total


def _is_view(n: Node) -> bool:
    """Whether n is index arithmetic that costs nothing in a row."""
    if n.op.name == "reshape":
        return _long(n.out) == _long(n.args[0])
    return is_lazy(n)


def _is_there(v: Value) -> bool:
    """Whether index arithmetic alone makes v of what is in memory."""
    while is_lazy(v.node):
        v = v.node.args[0]
    return v.node.op.kind is Kind.LEAF


def _long(v: Value) -> list[Size]:
    return [s for s in v.type.shape if s != 1]


def summed(b: Builder, n: Node, args: Sequence[Value], s: int, id: int) -> Sequence[Value]:
    """A product with the matrix `args[s]` as a sum.

    A vector that is computed is so before, as for a product: of two sums in one loop nest, one
    would walk its matrix down the columns. That takes a barrier, of the number `id`.
    """
    m, v = args[s], args[1 - s]
    if not _is_there(v):
        (v,) = b.emit("barrier", (v,), n, id=id)
    dtype = n.out.type.dtype
    wide = f32 if dtype in (f16, bf16) else dtype
    if wide is not dtype:
        m, v = (b.one("cast", (x,), n, dtype=wide) for x in (m, v))
    (mb, vb), (mc, vc) = ((n.attrs[k][s], n.attrs[k][1 - s]) for k in ("batch", "contract"))
    to = dict(zip((*vb, *vc), (*mb, *mc), strict=True))  # axes of the vector in the matrix
    order = sorted(to, key=to.__getitem__)
    perm = (*order, *free(n, 1 - s))
    if perm != tuple(range(len(perm))):
        v = b.one("transpose", (v,), n, perm=perm)
    if len(perm) != len(order):
        v = b.one("reshape", (v,), n, shape=v.type.shape[: len(order)], checked=False)
    if len(order) != m.type.ndim:
        v = b.one("broadcast", (v,), n, shape=m.type.shape, axes=tuple(to[a] for a in order))
    terms = b.one("mul", (m, v), n)
    total = b.one("reduce_sum", (terms,), n, axes=tuple(sorted(mc)))
    kept = [a for a in range(m.type.ndim) if a not in mc]
    perm = tuple(kept.index(a) for a in (*mb, *free(n, s)))
    if perm != tuple(range(len(perm))):
        total = b.one("transpose", (total,), n, perm=perm)
    if total.type.shape != n.out.type.shape:
        total = b.one("reshape", (total,), n, shape=n.out.type.shape, checked=False)
    number = b.constant(wide.numpy.type(0), n)
    zero = b.one("broadcast", (number,), n, shape=total.type.shape, axes=())
    total = b.one("add", (total, zero), n)  # no sum of a product is -0.0
    return [total if wide is dtype else b.one("cast", (total,), n, dtype=dtype)]
