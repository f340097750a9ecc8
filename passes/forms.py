"""What the stable rules have in common: to see a form through the views around it."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir import Node, Value, splat
from graphc.passes.patterns import Lit
from graphc.passes.rewrite import Match

ONE, ZERO = Lit(1.0), Lit(0.0)
KEEPDIMS = frozenset({"reshape", "broadcast"})
# These move elements, so an elementwise op may as well stand before them.
VIEWS = KEEPDIMS | {"transpose", "slice", "reverse", "gather"}


def node_of(m: Match, v: Value, op: str) -> Node | None:
    """v's node if it is this op and may be looked into."""
    return v.node if v.node.op.name == op and v not in m.rewriter.opaque else None


def is_number(v: Value, number: Lit) -> bool:
    x = splat(v)
    return x is not None and number.holds(x)


def peel(m: Match, v: Value, views: frozenset[str] = KEEPDIMS) -> tuple[Value, list[Node]]:
    """v without the views around it, and these, outermost first."""
    around: list[Node] = []
    while v.node.op.name in views and v not in m.rewriter.opaque:
        if v.node.attrs.get("checked"):
            break
        around.append(v.node)
        v = v.node.args[0]
    return v, around


def wrap(m: Match, v: Value, around: list[Node]) -> Value:
    """v in these views, which keep their lines: a gather may fail."""
    for n in reversed(around):
        v = m.rewriter.emit(n.op, (v, *n.args[1:]), n.origin.unnamed(), n.attrs)
    return v


def puts_back(around: list[Node], axes: tuple[int, ...], ndim: int) -> bool:
    """Whether the views (outermost first) of a reduction over `axes` of a tensor of `ndim` axes
    repeat it along those axes: its other axes stand where the tensor has them.
    """
    came = carried(around, [a for a in range(ndim) if a not in axes])
    return came is not None and all(a is None or a == i for i, a in enumerate(came))


def carried(around: list[Node], came: Sequence[int | None]) -> list[int | None] | None:
    """What each axis behind some views (outermost first) came from, given that of each axis before
    them. None of one along which elements are repeated; nothing where a reshape joins axes.
    """
    came = list(came)
    for n in reversed(around):
        if n.op.name == "transpose":
            came = [came[p] for p in n.attrs["perm"]]
            continue
        shape = n.attrs["shape"]
        if n.op.name == "broadcast":
            place = dict(zip(n.attrs["axes"], came, strict=True))
        else:
            inner = n.args[0].type.shape
            old, new = ([i for i, s in enumerate(t) if s != 1] for t in (inner, shape))
            if [inner[i] for i in old] != [shape[i] for i in new]:
                return None
            place = {i: came[k] for k, i in zip(old, new, strict=True)}
        came = [place.get(i) for i in range(len(shape))]
    return came


def plus_one(m: Match, v: Value) -> Value | None:
    """x of 1 + x or x + 1."""
    n = node_of(m, v, "add")
    if n is None:
        return None
    x, y = n.args
    return x if is_number(y, ONE) else y if is_number(x, ONE) else None


def exponent(m: Match, v: Value | None) -> Value | None:
    """x of exp(x)."""
    n = None if v is None else node_of(m, v, "exp")
    return None if n is None else n.args[0]


def negated(m: Match, v: Value) -> Value:
    """-v, without a double negation."""
    n = node_of(m, v, "neg")
    return n.args[0] if n is not None else m.emit("neg", v)


def opposite(a: Value, b: Value) -> bool:
    """Whether a is written as -b, or b as -a."""
    return any(x.node.op.name == "neg" and x.node.args[0] is y for x, y in ((a, b), (b, a)))
