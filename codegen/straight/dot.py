"""Products of small matrices: which way lanes run, and in which order terms are added.

    along columns   out[i, :] += a[i, k] * b[k, :]     b has its rows at hand
    along rows      out[:, j] += a[:, k] * b[k, j]     a has its columns at hand
    along depth     lanes hold k: a[i, :] * b[:, j], folded by halves, several results in a vector

The order follows from the graph alone. Along columns and rows there are up to four interleaved
partial sums, so that not every `fma` waits for the one before (LLVM, if allowed to reassociate,
would make one chain of them again). Terms with a known zero fall away where that is allowed.
"""

from __future__ import annotations

import numpy as np

from graphc.codegen.straight.ops import Ids, Ops, Rows
from graphc.types import DType

TURN = 1.2  # how much cheaper a product must be whose lanes run along its rows


def dot(ops: Ops, dtype: DType, a: Ids, b: Ids) -> Ids:
    """out[i, j] = sum over k of a[i, k] * b[k, j]; k has at least one value."""
    m, n = len(a), b.shape[1]
    left, right = a.tolist(), b.T.tolist()
    zero = {x for x in {*a.flat, *b.flat} if ops.is_zero(x)}
    rows, cost = _across(ops, dtype, a, b)
    lanes = _depth_lanes(ops, dtype, a)
    if lanes and not zero and _depth_cost(ops, a, b, lanes) < min(cost, a.size * n):
        return _along_depth(ops, dtype, a, b, lanes)
    terms = [
        [(x, y) for x, y in zip(row, column, strict=True) if not (x in zero or y in zero)]
        for row in left for column in right
    ]
    most = max(map(len, terms))
    parts = 1 if most < 4 else 2 if most < 8 else 4
    sums: list[Ids] = []
    nothing = ops.x.constant(dtype, 0)
    for k in range(most):
        old = sums[k % parts] if k >= parts else np.full(len(terms), nothing)
        pairs = [t[k] if k < len(t) else (x, nothing)
                 for t, x in zip(terms, old.tolist(), strict=True)]
        x, y = np.array(pairs).T
        if k == 0 or k >= parts:
            new = _added(ops, dtype, x, y, old, rows)
        else:
            new = _plain(ops, "mul", dtype, rows, x, y)
        sums[k % parts : k % parts + 1] = [new]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [_plain(ops, "add", dtype, rows, sums[k], sums[k + half]) for k in range(half)]
    out = sums[0] if sums else np.full(m * n, nothing)
    return out.reshape(m, n)


def _plain(ops: Ops, op: str, dtype: DType, rows: Rows, *args: Ids) -> Ids:
    """An op whose order LLVM leaves alone."""
    return ops.apply(op, dtype, args, rows=rows, exact=True)


def _added(ops: Ops, dtype: DType, x: Ids, y: Ids, old: Ids, rows: Rows) -> Ids:
    """x * y + old. A sum starts from 0, so that none is -0.0."""
    if dtype.is_float:
        return _plain(ops, "fma", dtype, rows, x, y, old)
    return _plain(ops, "add", dtype, rows, old, _plain(ops, "mul", dtype, rows, x, y))


def _across(ops: Ops, dtype: DType, a: Ids, b: Ids) -> tuple[Rows, float]:
    """Lanes along the columns of a product or along its rows, and what that takes."""
    X = ops.x
    width = X.width([dtype])
    m, n = len(a), b.shape[1]
    costs = []
    for rows, columns in ((a, b), (b.T, a.T)):
        cost = sum(X.vector_cost([x], width) for x in set(rows.reshape(-1).tolist()))
        count = columns.shape[1]
        for at in range(0, count, width):
            for line in columns.tolist():
                cost += X.vector_cost(line[at : at + width], width)
        costs.append(cost + rows.size * -(-count // width))
    if costs[0] <= TURN * costs[1]:
        return [(i * n + j // width, j % width) for i in range(m) for j in range(n)], costs[0]
    return [(j * m + i // width, i % width) for i in range(m) for j in range(n)], costs[1]


def _depth_lanes(ops: Ops, dtype: DType, a: Ids) -> int:
    """Lanes that hold terms of one sum; 0 where its length does not divide into them."""
    lanes = ops.x.width([dtype])
    while lanes >= 4 and a.shape[1] % lanes:
        lanes //= 2
    return lanes if lanes >= 4 else 0


def _depth_cost(ops: Ops, a: Ids, b: Ids, lanes: int) -> float:
    """What `_along_depth` takes, in instructions."""
    count = len(a) * len(b[0])
    cost: float = count * (len(b) // lanes + 3.0)  # three steps of folding for each result
    for line in (*a.tolist(), *b.T.tolist()):
        for at in range(0, len(line), lanes):
            cost += ops.x.vector_cost(line[at : at + lanes], lanes)
    return cost


def _along_depth(ops: Ops, dtype: DType, a: Ids, b: Ids, lanes: int) -> Ids:
    """The product with terms of a sum in lanes."""
    m, depth, n = len(a), len(b), len(b[0])
    place = [(p, lane) for p in range(m * n) for lane in range(lanes)]
    total = np.full((m * n, lanes), ops.x.constant(dtype, 0))
    for at in range(0, depth, lanes):
        x = np.repeat(a[:, at : at + lanes], n, axis=0)
        y = np.tile(b[at : at + lanes].T, (m, 1))
        total = _added(ops, dtype, x, y, total, place)
    while lanes > 1:  # as many results stand in a vector as there is room for
        lanes //= 2
        shared = max(1, ops.x.width([dtype]) // lanes)
        place = [(p // shared, p % shared * lanes + lane)
                 for p in range(m * n) for lane in range(lanes)]
        total = _plain(ops, "add", dtype, place, total[:, :lanes], total[:, lanes:])
    return total.reshape(m, n)
