"""Rules for elements that only move: transpose, reshape, broadcast, slice, pad, concat, reverse.

A broadcast moves towards the results past what only moves elements (past what computes, too: see
`rules_views`); axes of size 1 are added and removed by reshape alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graphc.dims import Size, is_nonnegative
from graphc.ir import Value, splat
from graphc.passes.bodies import array_of
from graphc.passes.patterns import C, Head, Rule, X, attr, exact, heads, rule, var
from graphc.passes.rewrite import Match
from graphc.types import Shape

transpose, reshape, broadcast, slice_ = heads("transpose reshape broadcast slice")
pad, concat, reverse, update_slice, iota = heads("pad concat reverse update_slice iota")
constant = Head("constant")

P, Q = attr("perm"), attr("inner perm")
SH, AX, AXI = attr("shape"), attr("axes"), attr("inner axes")
START, STOP, STEP = attr("start"), attr("stop"), attr("step")
START2, STOP2, STEP2 = attr("inner start"), attr("inner stop"), attr("inner step")
LOW, HIGH, INT = attr("low"), attr("high"), attr("interior")
LOW2, HIGH2 = attr("inner low"), attr("inner high")
CH, AXIS = attr("checked"), attr("axis")
V = var("value")


def _squeezed(shape: Shape) -> list[Size]:
    return [s for s in shape if s != 1]


def _moves_nothing(m: Match) -> bool:
    """Whether a transpose keeps the order of all axes but those of size 1."""
    kept = [p for p in m[P] if m[X].type.shape[p] != 1]
    return kept == sorted(kept)


def _is_number(m: Match) -> bool:
    return splat(m[X]) is not None


def _same_elements(m: Match) -> bool:
    """Whether a constant with axes holds one number in every place."""
    array = array_of(m.attrs["value"])
    if array is None or not array.ndim or not array.size:
        return False
    bits = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
    return bool((bits[-1] == bits[0]).all() and (bits == bits[0]).all())


def _adds_only_ones(m: Match) -> bool:
    new = set(range(len(m[SH]))) - set(m[AX])
    return bool(new) and all(m[SH][a] == 1 for a in new)


def _transpose_of_broadcast(m: Match) -> Value:
    """transpose(broadcast(x)): a broadcast, of a transposed x where the order of its axes moves."""
    place = [m[P].index(a) for a in m[AX]]  # operand axis i -> result axis place[i]
    order = sorted(range(len(place)), key=lambda i: place[i])
    x = m.emit("transpose", m[X], perm=tuple(order))
    return m.emit("broadcast", x, shape=m.type.shape, axes=tuple(sorted(place)))


def _reshape_of_broadcast(m: Match) -> Value | None:
    """reshape(broadcast(x)) that only adds or removes axes of size 1."""
    old, new = m.args[0].type.shape, m.type.shape
    if _squeezed(old) != _squeezed(new):
        return None
    place = dict(zip(_real(old), _real(new), strict=True))
    x, axes = m[X], m[AX]
    keep = [a for a in axes if old[a] != 1]
    if len(keep) < len(axes):
        x = m.emit("reshape", x, shape=tuple(old[a] for a in keep), checked=False)
    return m.emit("broadcast", x, shape=new, axes=tuple(place[a] for a in keep))


def _real(shape: Shape) -> list[int]:
    return [i for i, s in enumerate(shape) if s != 1]


def _without_one_axes(m: Match) -> Value | None:
    """broadcast(reshape(x)) where the reshape only added axes of size 1 (or removed some)."""
    inner = m.args[0].type.shape
    x: Value = m[X]
    if any(s == 1 for s in inner) and m[SH]:
        # drop them from the operand: the broadcast adds them itself
        keep = _real(inner)
        y = m.emit("reshape", x, shape=tuple(inner[i] for i in keep), checked=False)
        return m.emit("broadcast", y, shape=m[SH], axes=tuple(m[AX][i] for i in keep))
    return None


def _slice_of_slice(m: Match) -> Value | None:
    start, stop, step = [], [], []
    for lo2, st2, hi2, lo, hi, st, n in zip(
        m[START2], m[STEP2], m[STOP2], m[START], m[STOP], m[STEP], m.type.shape, strict=True
    ):
        if st2 == 1:
            start.append(lo2 + lo)
            stop.append(lo2 + hi)
        elif isinstance(n, int) and n > 0 and isinstance(hi2, int):
            start.append(lo2 + lo * st2)
            stop.append(start[-1] + (n - 1) * st * st2 + 1)
        else:
            return None
        step.append(st * st2)
    return m.emit("slice", m[X], start=tuple(start), stop=tuple(stop), step=tuple(step))


def _is_whole(m: Match) -> bool:
    return m.type is m[X].type and not any(s != 0 for s in m[START]) and set(m[STEP]) <= {1}


def _slice_of_broadcast(m: Match) -> Value:
    pick = m[AX]
    x = m.emit(
        "slice", m[X],
        start=tuple(m[START][a] for a in pick),
        stop=tuple(m[STOP][a] for a in pick),
        step=tuple(m[STEP][a] for a in pick),
    )  # fmt: skip
    return m.emit("broadcast", x, shape=m.type.shape, axes=pick)


def _slice_of_concat(m: Match) -> Value | None:
    """A slice that lies within one operand of a concat."""
    parts: Sequence[Value] = m.args[0].node.args
    axis = m[AXIS]
    lo, hi = m[START][axis], m[STOP][axis]
    begin: Size = 0
    for part in parts:
        size = part.type.shape[axis]
        if is_nonnegative(lo - begin) and is_nonnegative(begin + size - hi):
            start, stop = list(m[START]), list(m[STOP])
            start[axis], stop[axis] = lo - begin, hi - begin
            return m.emit(
                "slice", part, start=tuple(start), stop=tuple(stop), step=m[STEP]
            )
        begin = begin + size
    return None


def _no_padding(m: Match) -> bool:
    sizes = (*m[LOW], *m[HIGH])
    # interior padding stands between elements: none where there is at most one
    return all(s == 0 for s in sizes) and m.type is m[X].type


def _pads_join(m: Match) -> bool:
    """Whether pad(pad(x)) is one pad: both only add, and only outside."""
    return (
        not any(m[INT])
        and m.args[0].node.attrs["interior"] == m[INT]
        and all(is_nonnegative(s) for s in (*m[LOW], *m[HIGH], *m[LOW2], *m[HIGH2]))
    )


def _added(a: Iterable[Size], b: Iterable[Size]) -> tuple[Size, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _pad_cuts_only(m: Match) -> bool:
    """Whether a pad takes elements away and adds none."""
    return not any(m[INT]) and all(is_nonnegative(-s) for s in (*m[LOW], *m[HIGH]))


def _pad_as_slice(m: Match) -> Value:
    shape = m[X].type.shape
    return m.emit(
        "slice", m[X],
        start=tuple(-s for s in m[LOW]), stop=_added(shape, m[HIGH]), step=(1,) * len(shape),
    )  # fmt: skip


def _concat(m: Match) -> Value | None:
    """concat without empty operands, flattened, and joined where it puts slices together again."""
    axis = m.attrs["axis"]
    parts: list[Value] = []
    stack = list(reversed(m.args))
    while stack:
        part = stack.pop()
        n = part.node
        if part.type.shape[axis] == 0:
            continue
        if n.op.name == "concat" and n.attrs["axis"] == axis and m.single_use(part):
            stack += reversed(n.args)
            continue
        joined = _adjacent(m, parts[-1], part, axis) if parts else None
        if joined is None:
            parts.append(part)
        else:
            parts[-1] = joined
    if not parts:
        return m.args[0]
    if len(parts) == 1:
        return parts[0]
    return None if tuple(parts) == tuple(m.args) else m.emit("concat", *parts, axis=axis)


def _adjacent(m: Match, a: Value, b: Value, axis: int) -> Value | None:
    """x[i:k] for x[i:j] and x[j:k]."""
    p, q = a.node, b.node
    if p.op.name != "slice" or q.op.name != "slice" or p.args != q.args:
        return None
    for key in ("start", "stop", "step"):
        for i, (s, t) in enumerate(zip(p.attrs[key], q.attrs[key], strict=True)):
            if s != t and (i != axis or key == "step"):
                return None
    if p.attrs["step"][axis] != 1 or p.attrs["stop"][axis] != q.attrs["start"][axis]:
        return None
    return m.emit("slice", *p.args, **{**p.attrs, "stop": q.attrs["stop"]})


def only_ones(m: Match) -> bool:
    """Whether all axes that the op names have size 1."""
    return all(m[X].type.shape[a] == 1 for a in m[AX])


# fmt: off
RULES: tuple[Rule, ...] = (
    # a number in every place
    rule("constant(c, c, ...) == broadcast(c)",
         constant() >> (lambda m: m.full(m.attrs["value"].array.reshape(-1)[0])), exact,
         where=_same_elements),
    rule("transpose(c) == c", transpose(C) >> (lambda m: m.full(m.number(C))), exact),
    rule("reshape(c) == c", reshape(C, checked=False) >> (lambda m: m.full(m.number(C))), exact),
    rule("slice(c) == c", slice_(C) >> (lambda m: m.full(m.number(C))), exact),
    rule("reverse(c) == c", reverse(C) >> C, exact),

    # transpose
    rule("transpose(transpose(x, q), p) == transpose(x, q[p])",
         transpose(transpose(X, perm=Q), perm=P)
         >> transpose(X, perm=lambda m: tuple(m[Q][p] for p in m[P])), exact),
    rule("transpose(x, identity) == x", transpose(X, perm=P) >> X, exact,
         where=lambda m: m[P] == tuple(range(len(m[P])))),
    rule("transpose(x) that moves only axes of size 1 == reshape(x)",
         transpose(X, perm=P) >> reshape(X, shape=lambda m: m.type.shape, checked=False), exact,
         where=_moves_nothing),
    rule("transpose(broadcast(x)) == broadcast(transpose(x))",
         transpose(broadcast(X, axes=AX), perm=P) >> _transpose_of_broadcast, exact),

    # reshape
    rule("reshape(x, its shape) == x", reshape(X) >> X, exact, where=lambda m: m.type is m[X].type),
    rule("reshape(reshape(x)) == reshape(x)",      # an inner check stays: it may fail
         reshape(reshape(X, checked=False), shape=SH, checked=CH)
         >> reshape(X, shape=SH, checked=CH), exact),
    rule("reshape(broadcast(x)) == broadcast(x)",
         reshape(broadcast(X, axes=AX), checked=False) >> _reshape_of_broadcast, exact),

    # broadcast
    rule("broadcast(x, its shape) == x", broadcast(X) >> X, exact,
         where=lambda m: m.type is m[X].type),
    rule("broadcast(broadcast(x)) == broadcast(x)",
         broadcast(broadcast(X, axes=AXI), shape=SH, axes=AX)
         >> broadcast(X, shape=SH, axes=lambda m: tuple(m[AX][a] for a in m[AXI])), exact),
    rule("broadcast(x) that adds only axes of size 1 == reshape(x)",
         broadcast(X, shape=SH, axes=AX) >> reshape(X, shape=SH, checked=False), exact,
         where=lambda m: _adds_only_ones(m) and not _is_number(m)),
    rule("broadcast(reshape(x)) == broadcast(x), axes of size 1",
         broadcast(reshape(X, checked=False), shape=SH, axes=AX) >> _without_one_axes, exact),

    # slice
    rule("slice(x, all of it) == x", slice_(X, start=START, step=STEP) >> X, exact,
         where=_is_whole),
    rule("slice(slice(x)) == slice(x)",
         slice_(slice_(X, start=START2, stop=STOP2, step=STEP2), start=START, stop=STOP, step=STEP)
         >> _slice_of_slice, exact),
    rule("slice(broadcast(x)) == broadcast(slice(x))",
         slice_(broadcast(X, axes=AX), start=START, stop=STOP, step=STEP)
         >> _slice_of_broadcast, exact),
    rule("slice(concat(.., x, ..)) == slice(x)",
         slice_(concat(..., axis=AXIS), start=START, stop=STOP, step=STEP)
         >> _slice_of_concat, exact),
    rule("update_slice(x, u, all of x) == u", update_slice(X, V) >> V, exact,
         where=lambda m: m[X].type is m[V].type),

    # pad
    rule("pad(x, nothing) == x", pad(X, V, low=LOW, high=HIGH) >> X, exact, where=_no_padding),
    rule("pad(pad(x, v), v) == pad(x, v)",
         pad(pad(X, V, low=LOW2, high=HIGH2), V, low=LOW, high=HIGH, interior=INT)
         >> pad(X, V, low=lambda m: _added(m[LOW], m[LOW2]),
                high=lambda m: _added(m[HIGH], m[HIGH2]), interior=INT), exact, where=_pads_join),
    rule("pad(x, negative) == slice(x)",
         pad(X, V, low=LOW, high=HIGH, interior=INT) >> _pad_as_slice, exact, where=_pad_cuts_only),

    # concat, reverse
    rule("concat(x) == x", concat(...) >> _concat, exact, outermost=True),
    rule("reverse(reverse(x, a), a) == x", reverse(reverse(X, axes=AX), axes=AX) >> X, exact),
    rule("reverse(x, axes of size 1) == x", reverse(X, axes=AX) >> X, exact,
         where=only_ones),
)
# fmt: on
