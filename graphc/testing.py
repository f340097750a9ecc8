"""check_grad: declared derivatives against central differences along a random direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc import ir, prim, transforms
from graphc.copies import substitute
from graphc.errors import UsageError
from graphc.interpret import evaluate
from graphc.ir import Value
from graphc.ops import Kind
from graphc.tensor import Tensor
from graphc.types import Array, TensorType, as_dtype

__all__ = ["check_grad"]


def check_grad(
    fn: Callable[..., Any] | Tensor | Sequence[Tensor], args: Sequence[Any] | Mapping[Tensor, Any],
    *, order: int = 1, eps: float | None = None, rtol: float | None = None,
    atol: float | None = None, seed: int = 0,
) -> None:
    """Raise AssertionError unless the derivatives of fn up to `order` agree with differences.

    fn: a function of Tensors with its arguments as arrays in `args`; or Tensors that are declared
        already, with `args` a dict of the values of their inputs (variables have theirs).
    All float arguments (and variables) are differentiated. As in JAX's check_grads one random
    cotangent u and one random direction t are drawn for each order, and u . J t is computed by
    central differences, by vjp and by jvp. Use float64; defaults for it are eps 1e-5, rtol and
    atol 1e-6, for float32 eps 1e-2, rtol and atol 2e-2.

        gx.testing.check_grad(lambda a: gx.sum(gx.tanh(a)), [np.linspace(-1.0, 1.0, 5)], order=2)
    """
    feeds, outputs = _declare(fn, args)
    wrt = [Tensor(v) for v in feeds if v.type.dtype.is_float]
    if not wrt:
        raise UsageError("check_grad: none of the arguments is a float")
    wide = all(w.dtype.bits == 64 for w in wrt)
    step = eps if eps is not None else 1e-5 if wide else 1e-2
    rel = rtol if rtol is not None else 1e-6 if wide else 2e-2
    absolute = atol if atol is not None else rel
    rng = np.random.default_rng(seed)
    for k in range(1, order + 1):
        cotangents = _draw(rng, outputs, [a.shape for a in _run(outputs, feeds)], feeds)
        tangents = _draw(rng, wrt, [feeds[w._value].shape for w in wrt], feeds)
        pulled = transforms.vjp(outputs, wrt, cotangents, unconnected="zero")
        pushed = transforms.jvp(outputs, wrt, tangents)
        u, t = [[feeds[x._value] for x in xs] for xs in (cotangents, tangents)]
        ends = []
        for sign in (1, -1):
            moved = dict(feeds)
            for w, direction in zip(wrt, t, strict=True):
                x = feeds[w._value]
                moved[w._value] = (x + sign * step * direction).astype(x.dtype)
            ends.append(_inner(u, _run(outputs, moved)))
        found = {"vjp": _inner(t, _run(pulled, feeds)), "jvp": _inner(u, _run(pushed, feeds))}
        expected = (ends[0] - ends[1]) / (2 * step)
        for mode, value in found.items():
            if not abs(value - expected) <= absolute + rel * abs(expected):
                raise AssertionError(
                    f"check_grad: order {k}: {mode} gives {value:.10g}, central differences "
                    f"{expected:.10g} (rtol {rel:g}, atol {absolute:g}, eps {step:g}, seed {seed})"
                )
        outputs = pulled


def _declare(fn: Any, args: Any) -> tuple[dict[Value, Array], list[Tensor]]:
    """The values to feed with their arrays, and the outputs."""
    if isinstance(fn, (Tensor, list, tuple)):
        return _declared([fn] if isinstance(fn, Tensor) else list(fn), args)
    arrays = [np.asarray(a) for a in args]
    inputs = [
        prim.input(f"x{i}", TensorType(as_dtype(a.dtype), a.shape)) for i, a in enumerate(arrays)
    ]
    result = fn(*inputs)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    return {t._value: a for t, a in zip(inputs, arrays, strict=True)}, outputs


def _declared(
    outputs: list[Tensor], given: Mapping[Tensor, Any]
) -> tuple[dict[Value, Array], list[Tensor]]:
    """The same for Tensors that exist: inputs stand in for the variables that they read."""
    feeds = {t._value: np.asarray(a, t.dtype.numpy) for t, a in given.items()}
    stand_ins: dict[Value, Value] = {}
    for n in ir.reachable([y._value for y in outputs]):
        if n.op.kind is Kind.LEAF and "state" in n.attrs:
            state = n.attrs["state"]
            stand_ins[n.out] = v = prim.input(state.name, state.type)._value
            feeds[v] = state.array.copy()
    replaced = substitute([y._value for y in outputs], stand_ins)
    return feeds, [Tensor(v) for v in replaced]


def _run(outputs: Sequence[Tensor], feeds: Mapping[Value, Array]) -> list[Array]:
    graph = ir.collect("check_grad", list(feeds), [y._value for y in outputs])
    return evaluate(graph, list(feeds.values()))[0]


def _draw(
    rng: np.random.Generator, like: Sequence[Tensor], shapes: Sequence[tuple[int, ...]],
    feeds: dict[Value, Array],
) -> list[Tensor]:
    """Inputs of the types of `like`, fed with random arrays that together have length 1."""
    drawn = [rng.standard_normal(s) for s in shapes]
    length = np.sqrt(sum(float((a * a).sum()) for a in drawn)) or 1.0
    out = []
    for t, a in zip(like, drawn, strict=True):
        out.append(prim.input("direction", t.type))
        feeds[out[-1]._value] = np.asarray(a / length, t.dtype.numpy)
    return out


def _inner(xs: Sequence[Array], ys: Sequence[Array]) -> float:
    return sum(
        float((x.astype(np.float64) * y.astype(np.float64)).sum())
        for x, y in zip(xs, ys, strict=True)
    )
