"""Rules for reductions, dot, gather: what is gathered up or looked up.

A float sum's order of additions is fixed by its operand's layout, so rules that change the order
hold for integers, max and min only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.dims import Dim, Size, is_nonnegative, product
from graphc.ir import Value
from graphc.passes.patterns import I, Rule, X, Y, attr, exact, heads, once, rule
from graphc.passes.rewrite import Match
from graphc.passes.roles import counts_right
from graphc.passes.rules_layout import AX, AXI, AXIS, P, only_ones

reduce_sum, reduce_prod, reduce_max, reduce_min = heads(
    "reduce_sum reduce_prod reduce_max reduce_min"
)
transpose, reshape, broadcast, dot, gather, iota = heads(
    "transpose reshape broadcast dot gather iota"
)
CO, BA = attr("contract"), attr("batch")
REDUCTIONS = {"sum": reduce_sum, "prod": reduce_prod, "max": reduce_max, "min": reduce_min}


def _only_element(m: Match) -> Value:
    return m.emit("reshape", m[X], shape=m.type.shape, checked=False)


def _sum_of_one(m: Match) -> Value:
    """A sum starts from 0.0, so that of -0.0 is 0.0."""
    x = _only_element(m)
    return m.emit("add", x, m.full(0.0)) if m.type.dtype.is_float else x


def joined_axes(m: Match) -> tuple[int, ...]:
    """Axes of x for reduce(reduce(x, inner), axes)."""
    left = [a for a in range(m.args[0].node.args[0].type.ndim) if a not in m[AXI]]
    return tuple(sorted([*m[AXI], *(left[a] for a in m[AX])]))


def _order_is_free(m: Match) -> bool:
    return not m.type.dtype.is_float


def _before_transpose(m: Match) -> tuple[int, ...]:
    return tuple(sorted(m[P][a] for a in m[AX]))


def _rest_in_order(m: Match) -> bool:
    """Whether the axes that a reduction of transpose(x) leaves stand in x's order."""
    rest = [p for i, p in enumerate(m[P]) if i not in m[AX]]
    return rest == sorted(rest)


def _any_rest_in_order(m: Match) -> bool:
    return _order_is_free(m) and _rest_in_order(m)


def _surely_some(sizes: Sequence[Size]) -> bool:
    return all(is_nonnegative(s - 1) for s in sizes)


def _of_broadcast(op: str) -> Any:
    """reduce(broadcast(x)) over axes that the broadcast added: max, min."""

    def build(m: Match) -> Value | None:
        shape = m.args[0].type.shape
        new = [a for a in m[AX] if a not in m[AXI]]
        if not new or not _surely_some([shape[a] for a in new]):
            return None  # the extremum of nothing is an error
        return _repeated(m, _over_own_axes(m, op, m[X]))

    return build


def _over_own_axes(m: Match, op: str, x: Value) -> Value:
    """x of reduce(broadcast(x)), reduced over those of the axes that it has itself."""
    own = tuple(i for i, a in enumerate(m[AXI]) if a in m[AX])
    return m.emit(op, x, axes=own) if own else x


def _repeated(m: Match, x: Value) -> Value:
    """What reduce(broadcast(x)) makes of x, along the axes that the broadcast added and that stay.
    """
    left = [a for a in range(m.args[0].type.ndim) if a not in m[AX]]
    axes = tuple(left.index(a) for a in m[AXI] if a in left)
    return m.emit("broadcast", x, shape=m.type.shape, axes=axes)


def _sum_of_broadcast(m: Match) -> Value | None:
    """sum(broadcast(i)) over axes that the broadcast added: i times their size."""
    new = [a for a in m[AX] if a not in m[AXI]]
    count = product(m.args[0].type.shape[a] for a in new)
    if not new:
        return None
    x = _over_own_axes(m, "reduce_sum", m[I])
    if isinstance(count, Dim):
        n = m.emit("cast", m.emit("dim", size=count), dtype=m.type.dtype)
        if x.type.shape:
            n = m.emit("broadcast", n, shape=x.type.shape, axes=())
    else:
        bits = m.type.dtype.bits
        count &= (1 << bits) - 1
        if m.type.dtype.kind == "i" and count >> (bits - 1):
            count -= 1 << bits
        n = m.full(count, x.type)
    return _repeated(m, m.emit("mul", x, n))


def _dot_of_transpose(side: int) -> Any:
    """dot(transpose(x), y): the transpose becomes part of the contracting and batch axes."""

    def build(m: Match) -> Value | None:
        perm = m[P]
        contract, batch = list(m[CO]), list(m[BA])
        used = {*contract[side], *batch[side]}
        free = [p for i, p in enumerate(perm) if i not in used]
        if free != sorted(free):
            return None
        contract[side] = tuple(perm[a] for a in contract[side])
        batch[side] = tuple(perm[a] for a in batch[side])
        args = [m[X], m.args[1]] if side == 0 else [m.args[0], m[X]]
        return m.emit("dot", *args, contract=tuple(contract), batch=tuple(batch))

    return build


def _transpose_of_dot(m: Match) -> Value | None:
    """transpose(dot(x, y)) that exchanges x's and y's free axes: dot(y, x)."""
    contract, batch = m[CO], m[BA]
    nb = len(batch[0])
    nx = m[X].type.ndim - nb - len(contract[0])
    ny = m[Y].type.ndim - nb - len(contract[1])
    want = (*range(nb), *range(nb + nx, nb + nx + ny), *range(nb, nb + nx))
    if m[P] != want:
        return None
    return m.emit("dot", m[Y], m[X], contract=contract[::-1], batch=batch[::-1])


def _gather_of_iota(m: Match) -> Value | None:
    """gather(x, 0..n-1) along an axis: the first n elements, where the numbers do not wrap."""
    idx = m.args[1].type.shape
    size = m[X].type.shape[m[AXIS]]
    if len(idx) != 1 or not is_nonnegative(size - idx[0]):
        return None
    if not counts_right(m.args[1], 1 << 53):
        return None
    shape = m[X].type.shape
    stop = tuple(idx[0] if a == m[AXIS] else s for a, s in enumerate(shape))
    return m.emit(
        "slice", m[X], start=(0,) * len(shape), stop=stop, step=(1,) * len(shape)
    )


def _for_all() -> list[Rule]:
    rows = []
    for name, r in REDUCTIONS.items():
        any_order = name in ("max", "min")
        free = None if any_order else _order_is_free
        build = _sum_of_one if name == "sum" else _only_element
        rows += [
            rule(f"{name}(x, no axes) == x", r(X, axes=()) >> build, exact),
            rule(f"{name}(x, axes of size 1) == reshape(x)", r(X, axes=AX) >> build, exact,
                 where=only_ones),
            rule(f"{name}({name}(x)) == {name}(x)",
                 r(r(X, axes=AXI), axes=AX) >> r(X, axes=joined_axes), exact, where=free),
            rule(f"{name}(transpose(x)) == {name}(x)",
                 r(transpose(X, perm=P), axes=AX) >> r(X, axes=_before_transpose), exact,
                 where=_rest_in_order if any_order else _any_rest_in_order),
        ]  # fmt: skip
    return rows


# fmt: off
RULES: tuple[Rule, ...] = (
    *_for_all(),
    rule("max(broadcast(x)) == x",
         reduce_max(broadcast(X, axes=AXI), axes=AX) >> _of_broadcast("reduce_max"), exact),
    rule("min(broadcast(x)) == x",
         reduce_min(broadcast(X, axes=AXI), axes=AX) >> _of_broadcast("reduce_min"), exact),
    rule("sum(broadcast(i)) == i * n",
         reduce_sum(broadcast(I, axes=AXI), axes=AX) >> _sum_of_broadcast, exact),

    rule("dot(transpose(x), y) == dot(x, y)",
         dot(transpose(X, perm=P), Y, contract=CO, batch=BA) >> _dot_of_transpose(0), exact),
    rule("dot(x, transpose(y)) == dot(x, y)",
         dot(Y, transpose(X, perm=P), contract=CO, batch=BA) >> _dot_of_transpose(1), exact),
    rule("transpose(dot(x, y)) == dot(y, x)",
         transpose(once(dot(X, Y, contract=CO, batch=BA)), perm=P) >> _transpose_of_dot, exact),

    rule("gather(x, 0..n-1) == x[:n]",
         gather(X, iota(), axis=AXIS, batch=0) >> _gather_of_iota, exact),
)
# fmt: on
