"""Pulling: producers inlined into consumers, op by op, until a fused body is one loop nest.

To know an output at an index, ask each operand at the index that the op's map gives: one rule per
op, or per kind of op, in `PULL` and `BY_KIND`. Rules are generators: they yield what they need of
their operands and return an expression, so that bodies may be as deep as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.nests import intervals
from graphc.codegen.nests.loops import Expr, Idx, Pred, Preds, axis, dynamic, flatten, reindex
from graphc.dims import Size
from graphc.errors import CompileError
from graphc.ir import Node, Value
from graphc.ops.row import Kind
from graphc.types import DType, bool_, i8, i16, i32, i64, u8, u32

if TYPE_CHECKING:
    from graphc.codegen.nests.lowering import Lowering

LOGIC = ("and", "or", "xor", "not", "select")  # of conditions
Pull = Generator[tuple[Value, Idx, Preds], Expr, Expr]


def _elementwise(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    node = value.node
    args = []
    for a in node.args:
        args.append((yield a, idx, preds))
    if node.can_fail and node not in lw.sites:
        lw.sites.append(node)
    attrs = {**node.attrs, **intervals.attributes(node.op.name, args)}
    return lw.op(node.op.name, value.type.dtype, *args, node=node, attrs=attrs)


def _identity(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    return (yield value.node.args[value.index], idx, preds)


def _constant(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    array = value.node.attrs["value"].array
    return lw.const(value.type.dtype, array.reshape(-1)[0])
    yield  # a generator, like every rule


def _dim(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    return lw.index(value.node.attrs["size"])
    yield


def _iota(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    e = lw.index(idx[value.node.attrs["axis"]])
    d = value.type.dtype
    return e if d is i64 else lw.cast(e, d)
    yield


def _broadcast(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    return (yield value.node.args[0], tuple(idx[k] for k in value.node.attrs["axes"]), preds)


def _transpose(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    perm = value.node.attrs["perm"]
    source: list[Size] = [0] * len(perm)
    for j, k in enumerate(perm):
        source[k] = idx[j]
    return (yield value.node.args[0], tuple(source), preds)


def _reshape(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    source = value.node.args[0]
    return (yield source, reindex(idx, value.type.shape, source.type.shape), preds)


def _slice(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    at = value.node.attrs
    moved = tuple(
        i * step + start for i, start, step in zip(idx, at["start"], at["step"], strict=True)
    )
    return (yield value.node.args[0], moved, preds)


def _reverse(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    axes = value.node.attrs["axes"]
    moved = tuple(
        (n - 1) - i if k in axes else i
        for k, (i, n) in enumerate(zip(idx, value.type.shape, strict=True))
    )
    return (yield value.node.args[0], moved, preds)


def _pad(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """x inside, the fill outside and between."""
    x, fill = value.node.args
    at = value.node.attrs
    moved: list[Size] = []
    here: list[Pred] = []
    for i, n, low, high, interior in zip(
        idx, x.type.shape, at["low"], at["high"], at["interior"], strict=True
    ):
        e = i - low
        if interior:
            here.append(Pred(dims.mod(e, interior + 1), 0, 1))
            e = dims.floordiv(e, interior + 1)
        if low != 0 or high != 0 or interior:
            here.append(Pred(e, 0, n))
        moved.append(e)
    outside = yield fill, (), preds
    if not here:
        return (yield x, tuple(moved), preds)
    within = yield x, tuple(moved), _and(preds, here)
    return lw.op("select", value.type.dtype, lw.inside(tuple(here)), within, outside)


def _and(preds: Preds, more: Iterable[Pred]) -> Preds:
    """Conditions with more of them, each once."""
    return preds + tuple(p for p in more if p not in preds)


def _concat(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """The part whose stretch of the axis the index is in.

    From the last part to the first, each chosen before the next is computed: registers of all of
    them at once would not do. At a known place there is nothing to choose.
    """
    k = value.node.attrs["axis"]
    end = value.type.shape[k]
    at = idx[k]
    if isinstance(at, int) and isinstance(end, int):
        for a in value.node.args:
            n = a.type.shape[k]
            assert isinstance(n, int)
            if at < n:
                return (yield a, (*idx[:k], at, *idx[k + 1 :]), preds)
            at -= n
    out: Expr | None = None
    for a in reversed(value.node.args):
        n = a.type.shape[k]
        end = end - n
        here = Pred(idx[k] - end, 0, n)
        moved = (*idx[:k], idx[k] - end, *idx[k + 1 :])
        e = yield a, moved, _and(preds, [here])
        out = e if out is None else lw.op(
            "select", value.type.dtype, lw.inside((here,)), e, out
        )
    assert out is not None
    return out


def _update_slice(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """The update inside its window, x elsewhere: x first, so that of many updates one after the
    other a single value is alive."""
    x, u = value.node.args
    moved = tuple(i - s for i, s in zip(idx, value.node.attrs["start"], strict=True))
    here = tuple(
        Pred(i, 0, n)
        for i, n, full in zip(moved, u.type.shape, x.type.shape, strict=True)
        if n != full
    )
    if not here:
        return (yield u, moved, preds)
    old = yield x, idx, preds
    new = yield u, moved, _and(preds, here)
    return lw.op("select", value.type.dtype, lw.inside(here), new, old)


def _gather(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """x at a position that data give, checked."""
    x, where = value.node.args
    at = value.node.attrs
    k, batch = at["axis"], at["batch"]
    ni = where.type.ndim - batch
    e = yield where, (*idx[:batch], *idx[k : k + ni]), preds
    n = x.type.shape[k]
    p = lw.position(e, n, at["negative"], _and(preds, _read(lw, value, k, ni)), value.node)
    if not isinstance(n, int) or n == 0:  # an empty axis has nothing that may be read
        preds = _and(preds, [Pred(p, 0, n)])
    found = yield x, (*idx[:k], p, *idx[k + ni :]), preds
    if _depends(found, dynamic(lw.exprs, p)[0]):
        return found
    return _of_any(lw, lw.index(p), found)  # what is looked up is the same everywhere


def _of_any(lw: Lowering, e: Expr, result: Expr) -> Expr:
    """A result that follows from no value of e, of which all that can fail is checked still."""
    if not lw.sites:
        return result
    return lw.op("select", result.dtype, lw.op("equal", bool_, e, e), result, result)


def _read(lw: Lowering, value: Value, k: int, ni: int) -> list[Pred]:
    """That a gather, of axis k by indices of ni axes, reads anything: sums over other axes, which
    may be empty, look at a position before they begin."""
    shape = value.type.shape
    beside = (*shape[:k], *shape[k + ni :]) if lw.reduced else ()
    return [Pred(0, 0, s) for s in beside if not isinstance(s, int) or s == 0]


def _depends(e: Expr, on: Expr) -> bool:
    """Whether the value of e is computed from that of `on`."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x is on:
            return True
        if x.id not in seen:
            seen.add(x.id)
            stack.extend(x.args)
    return False


def one_per_row(node: Node) -> bool:
    """Whether a scatter writes one position per row, so that it can be pulled like a select."""
    return bool(node.args[1].type.ndim == node.attrs["batch"])


def _scatter_one(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """The update where the row's position is, x elsewhere."""
    x, where, u = value.node.args
    at = value.node.attrs
    k, batch = at["axis"], at["batch"]
    e = yield where, idx[:batch], preds
    p = lw.position(e, x.type.shape[k], at["negative"], preds, value.node)
    old = yield x, idx, preds
    new = yield u, (*idx[:k], *idx[k + 1 :]), preds
    d = value.type.dtype
    if value.node.op.name == "scatter_add":
        new = lw.op("add", d, old, new)
    hit = lw.op("equal", bool_, lw.index(idx[k]), lw.index(p))
    return lw.op("select", d, hit, new, old)


def _random_bits(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """Philox of the key and the element's number."""
    key = value.node.args[0]
    k0 = yield key, (0,), preds
    k1 = yield key, (1,), preds
    linear = lw.index(flatten(idx, value.type.shape))
    return lw.make("philox", u32, (linear, k0, k1))


def _reduce(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """A reduction over the axes of the nest that its operand runs along."""
    node = value.node
    at = node.attrs
    over = at["axes"] if "axes" in at else (at["axis"],)
    source = node.args[0].type
    used = {n for i in idx for n in dims.names(i)}
    free = [n for n in lw.reduced if n not in used]
    gone = {k for k in over if source.shape[k] == 1}
    over = tuple(k for k in over if k not in gone)
    # what a row reduction consumes runs over all axes; totals are over what rows left, and
    # column sums over the outer axes of all
    full_source = sum(s != 1 for s in source.shape) == len(lw.names)
    rows = full_source and not (lw.outer and used == set(lw.reduced))
    if not rows:
        free = [n for n in lw.outer if n not in used]
    names = []
    for k in over:
        name = next((n for n in free if lw.sizes[n] == source.shape[k]), None)
        if name is None:
            raise _not_reduced(node)
        free.remove(name)
        names.append(name)
    full: list[Size] = []
    rest = iter(idx)
    by_axis = dict(zip(over, names, strict=True))
    for k in range(source.ndim):
        if k in by_axis:
            full.append(axis(by_axis[k]))
        else:
            full.append(0 if k in gone else next(rest))
    e = yield node.args[0], tuple(full), preds
    d = value.type.dtype
    name = node.op.name
    if not over:  # every reduced axis has size 1
        return e if name != "argmax" else _of_any(lw, e, lw.index(0))
    depends = frozenset(lw.outer if rows else lw.reduced if full_source else ())
    if name == "argmax":
        at_index = lw.index(axis(names[0]))
        if e.dtype is bool_:
            e = lw.cast(e, u8)
        return lw.make(
            "reduce", i64, (e, at_index), (name, tuple(names)), node=node, axes=depends
        )
    if name == "reduce_prod" and (condition := _counted(e)) is not None:
        return lw.cast(_all(lw, condition, tuple(names), node, depends), d)
    if d is bool_:
        e = lw.cast(e, u8)
        r = lw.make("reduce", u8, (e,), (name, tuple(names)), node=node, axes=depends)
        return lw.cast(r, bool_)
    return lw.make("reduce", d, (e,), (name, tuple(names)), node=node, axes=depends)


def _counted(e: Expr) -> Expr | None:
    """The condition that an integer expression counts: 1 where it holds, 0 elsewhere."""
    counts = e.kind == "op" and e.name == "cast" and not e.dtype.is_float
    return e.args[0] if counts and e.args[0].dtype is bool_ else None


def _all(
    lw: Lowering, condition: Expr, over: tuple[str, ...], node: Node, depends: frozenset[str]
) -> Expr:
    """Whether a condition holds everywhere, which a product of ones and zeros is 1 for: of masks as
    wide as what is compared, each of which takes one instruction more. Whether rows of 1000 f64
    have one above 2 takes AVX2 two fifths of the time that products of bytes do."""
    t = {8: i8, 16: i16, 32: i32, 64: i64}[_compared(condition)]
    mask = _mask(lw, condition, t)
    r = lw.make("reduce", t, (mask,), ("reduce_and", over), node=node, axes=depends)
    return lw.op("not", bool_, lw.op("equal", bool_, r, lw.const(t, 0)))


def _compared(condition: Expr) -> int:
    """The most bits of what a condition compares; 8 of what is read."""
    seen, left, bits = {condition}, [condition], 8
    while left:
        e = left.pop()
        if e.dtype is bool_:
            new = [a for a in e.args if a not in seen]
            seen.update(new)
            left += new
        else:
            bits = max(bits, e.dtype.compute.bits)
    return bits


def _mask(lw: Lowering, condition: Expr, t: DType, depth: int = 6) -> Expr:
    """All bits set where a condition holds: masks of several registers LLVM would make bytes of, to
    join them by `and` and `or`."""
    if depth and condition.kind == "op" and condition.name in LOGIC:
        parts = [_mask(lw, a, t, depth - 1) for a in condition.args]
        if condition.name != "select":
            return lw.op(condition.name, t, *parts)
        here, then, other = parts
        chosen = lw.op("and", t, here, then), lw.op("and", t, lw.op("not", t, here), other)
        return lw.op("or", t, *chosen)
    return lw.op("select", t, condition, lw.const(t, -1), lw.const(t, 0))


def _not_reduced(node: Node) -> CompileError:
    """Of a kernel that did not come from `passes`: a text."""
    return CompileError(
        f"{node.op.name}: runs along no axis that its kernel names in `reduced`", node.loc
    )


def _scan(lw: Lowering, value: Value, idx: Idx, preds: Preds) -> Pull:
    """A running reduction along the nest's axis."""
    node = value.node
    args = []
    for a in node.args:
        args.append((yield a, idx, preds))
    if value.type.shape[node.attrs["axis"]] == 1:
        return _of_one(lw, value, args)
    if not lw.reduced:
        raise _not_reduced(node)
    return lw.make(
        "scan", value.type.dtype, tuple(args), (node.op.name,), node=node,
        axes=frozenset(lw.sizes),
    )


def _of_one(lw: Lowering, value: Value, args: list[Expr]) -> Expr:
    """A running reduction of one element, for which there is no loop."""
    if value.node.op.name != "linear_recurrence":
        return args[0]
    d, (factor, term) = value.type.dtype, args
    return lw.op("add", d, lw.op("mul", d, factor, lw.const(d, 0)), term)


PULL: dict[str, Callable[[Lowering, Value, Idx, Preds], Pull]] = {
    "constant": _constant, "dim": _dim, "iota": _iota,
    "stop_gradient": _identity, "barrier": _identity,
    "broadcast": _broadcast, "transpose": _transpose, "reshape": _reshape, "slice": _slice,
    "reverse": _reverse, "pad": _pad, "concat": _concat, "update_slice": _update_slice,
    "gather": _gather, "scatter": _scatter_one, "scatter_add": _scatter_one,
    "random_bits": _random_bits,
}
BY_KIND: dict[Kind, Callable[[Lowering, Value, Idx, Preds], Pull]] = {
    Kind.ELEMENTWISE: _elementwise, Kind.REDUCE: _reduce, Kind.SCAN: _scan,
}
