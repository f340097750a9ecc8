"""Products under their array-API names: matmul, tensordot, vecdot, einsum and relatives.

All are written with the one contraction primitive, `dot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import dims, prim
from graphc import elementwise as ew
from graphc import reductions as red
from graphc.convert import (
    ArrayLike,
    axis_list,
    axis_of,
    broadcast_shapes,
    broadcast_to,
    promote_args,
    require_dtype,
)
from graphc.dims import Dim, Size
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.manipulation import expand_dims, moveaxis, pad, permute_dims, reshape
from graphc.tensor import Tensor
from graphc.types import i64

__all__ = [
    "diag", "diagonal", "dot", "einsum", "inner", "matmul", "outer", "tensordot", "trace",
    "vecdot",
]


def _operands(op: str, *xs: ArrayLike) -> list[Tensor]:
    ts = promote_args(*xs, what=f"{op}: an operand")
    for t in ts:
        require_dtype(op, t, "iuf", ew.NUMERIC)
    return ts


def _inner_error(op: str, a: Tensor, b: Tensor, m: Size, n: Size, sign: str) -> ShapeError:
    text = f"{op}: inner dimensions must match, got {a.type} {sign} {b.type}"
    if isinstance(m, Dim) or isinstance(n, Dim):
        text += f"; if {m} and {n} are always equal, declare them by one name, or use gx.assert_dim"
    return ShapeError(text, user_loc())


def matmul(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The matrix product of the last two axes: (..., m, k) and (..., k, n) give (..., m, n).

    Leading axes broadcast; a vector stands for a row on the left, a column on the right, and its
    axis is left out. ShapeError for other inner sizes.
    """
    a, b = _operands("matmul", x1, x2)
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"matmul: takes at least 1 axis each, got {a.type} @ {b.type}; use * for scalars",
            user_loc(),
        )
    m, n = a.shape[-1], b.shape[-2 if b.ndim > 1 else 0]
    if m != n:
        raise _inner_error("matmul", a, b, m, n, "@")
    if b.ndim <= 2:  # leading axes of a are free axes
        return prim.dot(a, b, contract=((a.ndim - 1,), (max(b.ndim - 2, 0),)))
    if a.ndim == 1:
        lead = b.ndim - 2
        return prim.dot(b, a, contract=((lead,), (0,)))
    return _batched(a, b)


def _batched(a: Tensor, b: Tensor) -> Tensor:
    """matmul where b has leading axes: shared ones batch, those only a has are free."""
    lead = broadcast_shapes(
        "matmul", a.type.with_shape(a.shape[:-2]), b.type.with_shape(b.shape[:-2])
    )
    a = broadcast_to(a, (*lead, *a.shape[-2:]), op="matmul")
    b = broadcast_to(b, (*lead, *b.shape[-2:]), op="matmul")
    n = len(lead)
    batch = tuple(range(n))
    return prim.dot(a, b, contract=((n + 1,), (n,)), batch=(batch, batch))


def dot(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """NumPy's dot: a product for scalars, else the last axis of x1 with the last but one of x2."""
    a, b = _operands("dot", x1, x2)
    if not a.ndim or not b.ndim:
        return ew.multiply(a, b)
    return _contracted("dot", a, b, [a.ndim - 1], [max(b.ndim - 2, 0)])


def tensordot(x1: ArrayLike, x2: ArrayLike, axes: Any = 2) -> Tensor:
    """The sum of products over `axes`: how many (last of x1, first of x2), or two lists of axes."""
    a, b = _operands("tensordot", x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ArgumentError(
                f"tensordot: {axes} axes cannot be taken of {a.type} and {b.type}", user_loc()
            )
        left: list[int] = list(range(a.ndim - axes, a.ndim))
        right: list[int] = list(range(axes))
    else:
        if isinstance(axes, str) or len(axes) != 2:
            raise ArgumentError(
                f"tensordot: axes must be a number or two lists of axes, got {axes!r}", user_loc()
            )
        first, second = axes
        left = [axis_of("tensordot", a, i) for i in axis_list(first)]
        right = [axis_of("tensordot", b, i) for i in axis_list(second)]
        if len(left) != len(right):
            raise ArgumentError(f"tensordot: axes must pair up, got {axes}", user_loc())
    return _contracted("tensordot", a, b, left, right)


def _contracted(op: str, a: Tensor, b: Tensor, left: list[int], right: list[int]) -> Tensor:
    """The sum of products over axes `left` of a and `right` of b."""
    for i, j in zip(left, right, strict=True):
        if a.shape[i] != b.shape[j]:
            raise _inner_error(op, a, b, a.shape[i], b.shape[j], "and")
    return prim.dot(a, b, contract=(tuple(left), tuple(right)))


def vecdot(x1: ArrayLike, x2: ArrayLike, *, axis: int = -1) -> Tensor:
    """The sum of products along `axis` of both; the other axes broadcast."""
    a, b = _operands("vecdot", x1, x2)
    i, j = axis_of("vecdot", a, axis), axis_of("vecdot", b, axis)
    if a.shape[i] != b.shape[j]:
        raise _inner_error("vecdot", a, b, a.shape[i], b.shape[j], "and")
    a, b = moveaxis(a, i, -1), moveaxis(b, j, -1)
    if a.ndim == b.ndim == 1:
        return prim.dot(a, b, contract=((0,), (0,)))
    return red.sum(ew.multiply(a, b), -1, dtype=a.dtype)


def inner(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """NumPy's inner: the sum of products along both last axes."""
    a, b = _operands("inner", x1, x2)
    if not a.ndim or not b.ndim:
        return ew.multiply(a, b)
    return _contracted("inner", a, b, [a.ndim - 1], [b.ndim - 1])


def outer(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """All products of two vectors (or flattened arrays)."""
    a, b = _operands("outer", x1, x2)
    return ew.multiply(reshape(a, (a.size, 1)), reshape(b, (1, b.size)))


def einsum(subscripts: str, *operands: ArrayLike) -> Tensor:
    """Einstein summation, as NumPy's: letters name axes, `...` the broadcast ones, `->` the result.

        scores = gx.einsum("bqd,bkd->bqk", q, k)

    Letters that repeat within one operand take its diagonal. Operands are contracted from left to
    right.
    """
    if not isinstance(subscripts, str):
        raise UsageError(
            f"einsum: subscripts come first, as a string such as 'ij,jk->ik', got {subscripts!r}",
            user_loc(),
        )
    ts = _operands("einsum", *operands)
    inputs, output = _parse_einsum(subscripts, ts)
    terms = [_unrepeat(subscripts, t, labels) for t, labels in zip(ts, inputs, strict=True)]
    _check_sizes(subscripts, terms)
    t, labels = terms[0]
    for k, (u, others) in enumerate(terms[1:], 2):
        later = output + "".join(ls for _, ls in terms[k:])
        t, labels = _contract(t, labels, u, others, later)
    gone = [i for i, c in enumerate(labels) if c not in output]
    if gone:
        t = red.sum(t, gone, dtype=t.dtype)
        labels = "".join(c for c in labels if c in output)
    return permute_dims(t, [labels.index(c) for c in output])


def _parse_einsum(subscripts: str, ts: Sequence[Tensor]) -> tuple[list[str], str]:
    """One label a axis for each operand and the result; `...` becomes capital-like labels."""
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ts):
        raise _einsum_error(subscripts, f"takes {len(inputs)} operands, got {len(ts)}")
    most = 0
    for term, t in zip(inputs, ts, strict=True):
        letters = term.replace("...", "", 1)
        if not all(c.isascii() and c.isalpha() for c in letters):
            raise _einsum_error(subscripts, f"labels must be letters, got {term!r}")
        extra = t.ndim - len(letters)
        if extra < 0 or (extra and "..." not in term):
            raise _einsum_error(subscripts, f"{term!r} must label each axis of {t.type}")
        if "..." in term:
            most = max(most, extra)
    dots = "".join(chr(0x100 + i) for i in range(most))  # labels no user can write
    full = []
    for term, t in zip(inputs, ts, strict=True):
        extra = t.ndim - len(term.replace("...", "", 1))
        full.append(term.replace("...", dots[most - extra:]))
    if not arrow:
        seen = "".join(full)
        single = sorted(c for c in set(seen) if seen.count(c) == 1 and c not in dots)
        return full, dots + "".join(single)
    if dots and "..." not in output:
        raise _einsum_error(subscripts, "the result must have the `...` of the operands")
    output = output.replace("...", dots)
    for c in output:
        if output.count(c) > 1 or not any(c in f for f in full):
            raise _einsum_error(
                subscripts, f"the result label {c!r} must be an operand's and stand once"
            )
    return full, output


def _einsum_error(subscripts: str, what: str) -> ArgumentError:
    return ArgumentError(f"einsum {subscripts!r}: {what}", user_loc())


def _unrepeat(subscripts: str, t: Tensor, labels: str) -> tuple[Tensor, str]:
    """The diagonal over labels that repeat."""
    for c in sorted(set(labels)):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            if t.shape[i] != t.shape[j]:
                raise _size_error(subscripts, c, t.shape[i], t.shape[j])
            t = moveaxis(diagonal(t, axis1=i, axis2=j), -1, i)
            labels = labels[:j] + labels[j + 1 :]
    return t, labels


def _check_sizes(subscripts: str, terms: Sequence[tuple[Tensor, str]]) -> None:
    sizes: dict[str, Size] = {}
    for t, labels in terms:
        for c, s in zip(labels, t.shape, strict=True):
            have = sizes.setdefault(c, s)
            if have == 1:
                sizes[c] = s
            elif s not in (have, 1):
                raise _size_error(subscripts, c, have, s)


def _size_error(subscripts: str, label: str, a: Size, b: Size) -> ShapeError:
    return ShapeError(
        f"einsum {subscripts!r}: sizes of {label!r} must match, got {a} and {b}", user_loc()
    )


def _contract(a: Tensor, la: str, b: Tensor, lb: str, later: str) -> tuple[Tensor, str]:
    """One product; labels needed later stay."""
    a, la = _drop(a, la, lb + later, lb, b)
    b, lb = _drop(b, lb, la + later, la, a)
    shared = [c for c in la if c in lb]
    batch = [c for c in shared if c in later]
    summed = [c for c in shared if c not in later]
    out = prim.dot(
        a,
        b,
        contract=(tuple(la.index(c) for c in summed), tuple(lb.index(c) for c in summed)),
        batch=(tuple(la.index(c) for c in batch), tuple(lb.index(c) for c in batch)),
    )
    free = [c for c in la + lb if c not in shared]
    return out, "".join(batch + free)


def _drop(t: Tensor, labels: str, needed: str, other: str, u: Tensor) -> tuple[Tensor, str]:
    """Sum away labels that nobody needs; drop a 1 that stretches to the other operand's size."""
    gone = [i for i, c in enumerate(labels) if c not in needed]
    if gone:
        t = red.sum(t, gone, dtype=t.dtype)
        labels = "".join(c for i, c in enumerate(labels) if i not in gone)
    ones = [
        i for i, c in enumerate(labels)
        if c in other and t.shape[i] == 1 and u.shape[other.index(c)] != 1
    ]
    if ones:
        t = reshape(t, [s for i, s in enumerate(t.shape) if i not in ones])
        labels = "".join(c for i, c in enumerate(labels) if i not in ones)
    return t, labels


def diag(v: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with the vector v on diagonal k and 0 elsewhere; of a matrix, its diagonal k.

    A vector of n elements gives n + |k| rows and columns.
    """
    (t,) = promote_args(v)
    if t.ndim == 2:
        return diagonal(t, k)
    if t.ndim != 1 or isinstance(k, bool) or not isinstance(k, int):
        raise ShapeError(
            f"diag: takes a vector or a matrix and an int k, got {t.type} and {k!r}; of more axes, "
            "gx.diagonal", user_loc(),
        )
    lines = expand_dims(pad(t, (0, abs(k))), 1 if k >= 0 else 0)  # what each row or column holds
    size = t.shape[0] + abs(k)
    wide = broadcast_to(lines, (size, size))
    rows, columns = (prim.iota(i64, wide.shape, axis) for axis in (0, 1))
    return ew.where(ew.equal(columns, ew.add(rows, k)), wide, prim.full_like(wide, 0))


def diagonal(x: ArrayLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The elements (i, i + offset) of two axes, as a new last axis; the axes must be square
    where their sizes are symbolic.
    """
    (t,) = promote_args(x)
    i, j = axis_of("diagonal", t, axis1), axis_of("diagonal", t, axis2)
    if i == j:
        raise ArgumentError("diagonal: takes two different axes", user_loc())
    t = moveaxis(t, (i, j), (-2, -1))
    m, n = t.shape[-2:]
    if m != n and (isinstance(m, Dim) or isinstance(n, Dim)):
        raise ShapeError(
            f"diagonal: axes of symbolic sizes must be provably square, got {t.type}", user_loc()
        )
    first = -offset if offset < 0 else 0  # the row of the first element
    second = max(offset, 0)
    if isinstance(m, int) and isinstance(n, int):
        k: Size = max(min(m - first, n - second), 0)
    else:
        k = dims.maximum(m - abs(offset), 0)
    if k == 0:
        return prim.full(t.type.with_shape((*t.shape[:-2], 0)), 0)
    # In the flattened matrix the diagonal steps by n + 1; pad-free because the last one fits.
    index = prim.iota(i64, (k,), 0)
    rows = ew.add(index, first)
    columns = ew.add(index, second)
    flat = reshape(t, (*t.shape[:-2], m * n))
    return prim.gather(
        flat, ew.add(ew.multiply(rows, n), columns), axis=t.ndim - 2, batch=0, negative=False
    )


def trace(
    x: ArrayLike, offset: int = 0, axis1: int = -2, axis2: int = -1, dtype: Any = None
) -> Tensor:
    """The sum of the diagonal."""
    return red.sum(diagonal(x, offset, axis1, axis2), -1, dtype=dtype)
