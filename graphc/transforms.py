"""Derivatives of declared graphs: grad, vjp, jvp, jacobian, hessian, hvp.

Each takes Tensors that are declared already and declares further nodes. Reverse mode is
`passes.autodiff.backward`; everything else is made of it: a jvp is a vjp of a vjp (the second one
with respect to the cotangents of the first, in which it is linear), a jacobian is a vmap of a vjp
or of a jvp, a hessian a jacobian of a gradient.

Before a value is differentiated its subgraph is stabilised: the gradient of a naive log-sum-exp
is NaN where exp overflows, and mending the primal afterwards does not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from graphc import dims, ir, prim
from graphc.convert import as_tensor, listed
from graphc.copies import expand, substitute
from graphc.creation import eye
from graphc.errors import ArgumentError, DTypeError, GradientError, ShapeError, user_loc
from graphc.ir import Node, Value
from graphc.manipulation import moveaxis
from graphc.ops import Kind
from graphc.passes import autodiff, stabilize
from graphc.tensor import Tensor
from graphc.types import TensorType
from graphc.vmap import batch_values

Tensors = Sequence[Tensor]

# A jacobian is made column by column where the output has so many times as many elements: a jvp
# takes about twice as long as a vjp. 2,000 residuals of six parameters took 10 ms row by row.
FORWARD = 4
USUAL = 256  # what a dimension is taken for


@overload
def grad(cost: Tensor, wrt: Tensor, unconnected: str = ...) -> Tensor: ...
@overload
def grad(cost: Tensor, wrt: Tensors, unconnected: str = ...) -> list[Tensor]: ...
def grad(cost: Tensor, wrt: Any, unconnected: str = "raise") -> Any:
    """The gradient of a scalar with respect to one Tensor, or a list for a list of Tensors.

    `wrt` may be inputs, variables and intermediate results, all of a float dtype; each gradient
    has the type of its Tensor. A gradient that does not exist raises GradientError, which says
    why; `unconnected="zero"` gives zeros instead.

        dw, db = gx.grad(loss, [w, b])
    """
    return _gradient("grad", cost, wrt, unconnected)


def _gradient(what: str, cost: Tensor, wrt: Any, unconnected: str) -> Any:
    _check_cost(what, cost)
    ws = _check_wrt(what, wrt)
    seed = prim.full(cost._value.type, 1)._value
    found = _pull(what, [cost._value], [seed], ws, unconnected)
    return _like(wrt, [Tensor(v) for v in found])


@overload
def value_and_grad(
    cost: Tensor, wrt: Tensor, unconnected: str = ...
) -> tuple[Tensor, Tensor]: ...
@overload
def value_and_grad(
    cost: Tensor, wrt: Tensors, unconnected: str = ...
) -> tuple[Tensor, list[Tensor]]: ...
def value_and_grad(cost: Tensor, wrt: Any, unconnected: str = "raise") -> Any:
    """The scalar itself, and `grad(cost, wrt)`, with its errors.

        f = gx.function([x, y], gx.value_and_grad(loss, x))
    """
    return cost, grad(cost, wrt, unconnected)


def vjp(outputs: Any, wrt: Any, cotangents: Any, unconnected: str = "raise") -> Any:
    """The product of cotangents with the Jacobian: sum over outputs of ct * d(output)/d(wrt).

    `outputs` and `cotangents` are Tensors or lists of them, pairwise of one type; the result is
    like `wrt`. GradientError as for `grad`.

        dx = gx.vjp(gx.sin(x), x, gx.ones_like(x))
    """
    ys = _check_outputs("vjp", outputs)
    cts = _paired("vjp", "cotangents", "outputs", ys, cotangents)
    ws = _check_wrt("vjp", wrt)
    found = _pull("vjp", ys, cts, ws, unconnected)
    return _like(wrt, [Tensor(v) for v in found])


def jvp(outputs: Any, wrt: Any, tangents: Any) -> Any:
    """The product of the Jacobian with tangents: sum over wrt of d(output)/d(wrt) * tangent.

    `wrt` and `tangents` are Tensors or lists of them, pairwise of one type; the result is like
    `outputs`, zero for an output that does not depend on any of `wrt`.

        slope = gx.jvp(gx.sin(x), x, gx.ones_like(x))
    """
    ys = _check_outputs("jvp", outputs)
    ws = _check_wrt("jvp", wrt)
    ts = _paired("jvp", "tangents", "wrt", ws, tangents)
    dummies = [_dummy("ct", y.type) for y in ys]
    pulled = _pullback(ys, dummies, ws)
    pairs = [(g, t) for g, t in zip(pulled, ts, strict=True) if g is not None]
    out = _pushed([g for g, _ in pairs], [t for _, t in pairs], dummies)
    return _like(outputs, [Tensor(v) for v in out])


def _pushed(pulled: list[Value], tangents: list[Value], cts: list[Value]) -> list[Value]:
    """The tangents of outputs: of what was pulled back from their cotangents, the derivative."""
    pushed = autodiff.backward(pulled, tangents, cts)
    out = [autodiff.zeros(c.type) if v is None else v for c, v in zip(cts, pushed, strict=True)]
    # A pullback is linear in its cotangents, so that its derivative cannot depend on them; a
    # vjp row may still mention one where it multiplies by zero.
    return substitute(out, {c: autodiff.zeros(c.type) for c in cts})


def jacobian(output: Tensor, wrt: Any, unconnected: str = "raise") -> Any:
    """d(output)/d(wrt), of shape `output.shape + wrt.shape`; a list for a list of Tensors.

    Sizes may be symbolic: it is one vjp, batched over the unit cotangents, or one jvp, batched over
    the unit tangents, where the output has many more elements. GradientError as for `grad`.

        residuals = x @ w - y
        f = gx.function([x, y], [residuals, gx.jacobian(residuals, w)])
    """
    (y,) = _check_outputs("jacobian", output)
    ws = _check_wrt("jacobian", wrt)
    ct = _dummy("ct", y.type)
    found = _pull("jacobian", [y], [ct], ws, unconnected)
    long = dims.estimate(y.type.size, USUAL)
    by_columns = [long >= FORWARD * dims.estimate(w.type.size, USUAL) for w in ws]
    rows = iter(_batched(ct, [v for v, c in zip(found, by_columns, strict=True) if not c]))
    parts: list[Tensor] = []
    for w, pulled, columns in zip(ws, found, by_columns, strict=True):
        if columns:
            t = _dummy("tangent", w.type)
            part = moveaxis(_batched(t, _pushed([pulled], [t], [ct]))[0], 0, -1)
        else:
            part = next(rows)
        parts.append(prim.reshape(part, shape=(*y.type.shape, *w.type.shape)))
    return _like(wrt, parts)


def _batched(unit: Value, values: Sequence[Value]) -> list[Tensor]:
    """Matrices of a row for each element of `unit`: what the values are where that one is 1 and all
    others are 0."""
    n = unit.type.size
    basis = prim.reshape(eye(n, dtype=unit.type.dtype), shape=(n, *unit.type.shape))
    out: list[Tensor] = []
    for v, (found, batched) in zip(
        values, batch_values(n, {unit: basis._value}, values), strict=True
    ):
        full = found if batched else autodiff.zeros(v.type.with_shape((n, *v.type.shape)))
        out.append(prim.reshape(Tensor(full), shape=(n, v.type.size)))
    return out


def hessian(cost: Tensor, wrt: Any, unconnected: str = "raise") -> Any:
    """The second derivatives of a scalar, of shape `wrt.shape + wrt.shape`.

    For a list of n Tensors an n by n list of lists, entry [i][j] of shape
    `wrt[i].shape + wrt[j].shape`. GradientError as for `grad`, with the same choice.

        h = gx.hessian(loss, w)
    """
    first = _gradient("hessian", cost, wrt, unconnected)
    if isinstance(first, Tensor):
        return jacobian(first, wrt, unconnected="zero")
    return [jacobian(g, wrt, unconnected="zero") for g in first]


def hvp(cost: Tensor, wrt: Any, vector: Any, unconnected: str = "raise") -> Any:
    """The Hessian of a scalar times a vector (like `wrt`), without forming the Hessian.

    GradientError as for `grad`, with the same choice.

        curvature = gx.hvp(loss, w, gx.ones_like(w))
    """
    first = _gradient("hvp", cost, wrt, unconnected)
    ws = _check_wrt("hvp", wrt)
    vs = _paired("hvp", "vector", "wrt", ws, vector)
    gs = [g._value for g in ([first] if isinstance(first, Tensor) else first)]
    found = _pull("hvp", gs, vs, ws, "zero")
    return _like(wrt, [Tensor(v) for v in found])


def depends_on(cost: Tensor, x: Tensor) -> bool:
    """Whether the value of `cost` is computed from `x` (differentiably or not)."""
    return x._value.node in set(autodiff.nodes_between([cost._value], [x._value]))


def _pull(
    what: str, ys: list[Value], cts: list[Value], ws: list[Value], unconnected: str
) -> list[Value]:
    """`_pullback` with zeros, or an error, for what is not connected."""
    if unconnected not in ("raise", "zero"):
        raise ArgumentError(
            f'{what}: unconnected must be "raise" or "zero", got {unconnected!r}', user_loc(),
        )
    out = []
    for i, (w, v) in enumerate(zip(ws, _pullback(ys, cts, ws), strict=True)):
        if v is None and unconnected == "raise":
            raise GradientError(
                f"{what}: there is no gradient with respect to {_describe(w)}"
                f"{f' (position {i})' if len(ws) > 1 else ''}: {_why_not(ys, w)}; "
                'unconnected="zero" gives zeros', user_loc(),
            )
        out.append(autodiff.zeros(w.type) if v is None else v)
    return out


def _pullback(
    ys: Sequence[Value], cts: Sequence[Value], ws: Sequence[Value]
) -> list[Value | None]:
    """Stabilise what lies between, then differentiate.

    A rewrite must not look through a value that a gradient is asked for. So the graph is cut
    at intermediate `ws`, and the pieces are differentiated one after the other, latest first.
    """
    inner = sorted(
        {w for w in ws if not _is_leaf(w)}, key=lambda w: (-w.node.serial, w.index)
    )
    totals: dict[Value, list[Value]] = {}
    _add_piece(totals, ys, cts, ws, inner)
    out: dict[Value, Value] = {}
    for w in inner:
        if w in totals:
            out[w] = _sum(totals[w])
            below = [v for v in ws if v is not w]
            _add_piece(totals, [w], [out[w]], below, [v for v in inner if v is not w])
    return [out[w] if w in out else _sum(totals[w]) if w in totals else None for w in ws]


def _add_piece(
    totals: dict[Value, list[Value]], ys: Sequence[Value], cts: Sequence[Value],
    ws: Sequence[Value], cut: Sequence[Value],
) -> None:
    if not ws:
        return
    holes = {w: _dummy("wrt", w.type) for w in cut}
    stable = _stabilised(substitute(ys, holes))
    stable = substitute(stable, {hole: w for w, hole in holes.items()})
    # What the sweep must not enter is what lies below a cut: its own piece comes later.
    order = list(dict.fromkeys(ws))
    for w, v in zip(order, autodiff.backward(stable, cts, order, stop=cut), strict=True):
        if v is not None:
            totals.setdefault(w, []).append(v)


def _stabilised(ys: Sequence[Value]) -> list[Value]:
    """`ys` with composites expanded, for the rules to see through them, and stabilised."""
    ys = expand(ys, keep=autodiff.CHECKPOINT)
    inputs = [n.out for n in ir.reachable(ys) if n.op.kind is Kind.LEAF and "type" in n.attrs]
    return list(stabilize.run(ir.collect("grad", inputs, ys)).outputs)


def _sum(parts: Sequence[Value]) -> Value:
    total = parts[0]
    for p in parts[1:]:
        (total,) = ir.apply("add", [total, p])
    return total


def _is_leaf(v: Value) -> bool:
    return v.node.op.kind is Kind.LEAF and v.node.op.unique


def _dummy(name: str, t: TensorType) -> Value:
    """A stand-in that never reaches a result."""
    (v,) = ir.apply("input", (), name=name, type=t)
    return v


def _check_cost(what: str, cost: Tensor) -> None:
    if not isinstance(cost, Tensor):
        advice = "; pass the Tensor that it returns, fn(x)" if callable(cost) else ""
        raise GradientError(
            f"{what}: the cost must be a Tensor, got {type(cost).__name__}{advice}", user_loc()
        )
    if not cost.dtype.is_float:
        raise GradientError(
            f"{what}: the cost must be a float scalar, got {cost.type}, and there are gradients of "
            "floats only; declare its inputs as floats, or cast them with .astype('float32')",
            user_loc(),
        )
    if not autodiff.is_float_scalar(cost._value.type):
        raise GradientError(
            f"{what}: the cost must be a float scalar, got {cost._value.type}; reduce it with "
            "gx.sum or gx.mean, or use gx.vjp with a cotangent of its shape", user_loc(),
        )


def _check_wrt(what: str, wrt: Any) -> list[Value]:
    out = []
    for i, w in enumerate(listed(what, wrt)):
        if not isinstance(w, Tensor):
            raise GradientError(
                f"{what}: wrt must be a Tensor or a list of Tensors, got {type(w).__name__} at "
                f"position {i}", user_loc(),
            )
        if not w._value.type.dtype.is_float:
            raise GradientError(
                f"{what}: gradients exist with respect to floats, got {_describe(w._value)}",
                user_loc(),
            )
        out.append(w._value)
    return out


def _check_outputs(what: str, outputs: Any) -> list[Value]:
    ys = listed(what, outputs)
    for y in ys:
        if not isinstance(y, Tensor) or not y._value.type.dtype.is_float:
            came = y._value.type if isinstance(y, Tensor) else type(y).__name__
            advice = "; pass the Tensor that it returns, fn(x)" if callable(y) else ""
            raise GradientError(
                f"{what}: outputs must be float Tensors, got {came}{advice}", user_loc()
            )
    return [y._value for y in ys]


def _paired(what: str, mine: str, theirs: str, others: list[Value], given: Any) -> list[Value]:
    """Values that match `others` in number and type; numbers and arrays take their dtype."""
    items = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(items) != len(others):
        raise ArgumentError(
            f"{what}: {mine} must match {theirs} in number, got {len(items)} for {len(others)}",
            user_loc(),
        )
    out = []
    for i, (g, o) in enumerate(zip(items, others, strict=True)):
        v = as_tensor(g, dtype=None if isinstance(g, Tensor) else o.type.dtype)._value
        if v.type is not o.type:
            kind = DTypeError if v.type.shape == o.type.shape else ShapeError
            raise kind(
                f"{what}: {mine}[{i}] must have the type of {theirs}[{i}], {o.type}, got {v.type}",
                user_loc(),
            )
        out.append(v)
    return out


def _like(pattern: Any, items: list[Tensor]) -> Any:
    return items[0] if isinstance(pattern, Tensor) else items


def _describe(v: Value) -> str:
    n = v.node
    if _is_leaf(v):
        name = n.attrs["state"].name if "state" in n.attrs else n.attrs.get("name", "")
        return f"{n.op.name} {name!r} of type {v.type}"
    at = f" ({n.loc})" if n.loc else ""
    return f"{n.name or 'the result of ' + n.op.name}{at} of type {v.type}"


def _why_not(ys: Sequence[Value], w: Value) -> str:
    """Where the paths from w to the outputs end."""
    between = autodiff.nodes_between(ys, [w])
    touched = {w}
    for n in between:
        if not touched.isdisjoint(n.args):
            touched.update(n.outs)
    if touched.isdisjoint(ys):
        return "the result does not depend on it"
    # of all that depends on w, follow back only what leads to the outputs
    active = {w}
    autodiff.mark_active(between, active)
    for n in between:
        if touched.isdisjoint(n.outs) or not active.isdisjoint(n.outs):
            continue
        if not active.isdisjoint(n.args):
            return f"every path ends at {_reason(n)}"
    return "every path ends inside a composite or at an operand without a gradient"


def _reason(n: Node) -> str:
    at = f" ({n.loc})" if n.loc else ""
    if n.op.kind is Kind.META:
        return f"{n.op.name}{at}"
    if not n.op.differentiable:
        return f"{n.op.name}{at}, whose derivative is zero everywhere"
    return f"{n.op.name}{at}, whose result is {n.outs[0].type}"
