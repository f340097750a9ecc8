"""vmap: a function of Tensors, applied along an axis of its arguments at once.

    f    = lambda x, w: gx.tanh(w @ x)              # x: f32[3], w: f32[5,3]
    rows = gx.vmap(f, in_axes=(0, None))(xs, w)     # xs: f32[batch,3] -> f32[batch,5]

The function is declared once, on stand-ins that lack the mapped axis. Then every node that needs a
stand-in is declared again by its row's batch rule, with the mapped axis in front; all other nodes
(closures over outer Tensors included) are shared as they are. So it nests, and derivatives of the
result are derivatives of ordinary nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from graphc import ir, prim
from graphc.convert import as_tensor
from graphc.dims import Size
from graphc.errors import ArgumentError, ShapeError, UsageError, user_loc
from graphc.ir import Graph, Node, Value
from graphc.ops import Kind
from graphc.ops.batching import add_batch, move_axis_to_front
from graphc.origins import DeclaringAs
from graphc.passes.bodies import collector_paused
from graphc.structure import Container, count_leaves, put_together, results_apart, take_apart
from graphc.tensor import Tensor

Bodies: TypeAlias = "dict[tuple[Graph, tuple[bool, ...]], Graph]"


def vmap(fn: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """fn over an axis of its arguments.

    in_axes: the mapped axis of every argument, or a tuple with one entry an argument; None for an
        argument that is not mapped. All mapped axes must have provably equal sizes.
    out_axes: where the mapped axis stands in the result, or a tuple with one entry a result.
    An argument may be a list, tuple or dict of Tensors, which are all mapped along its axis; so
    may the result. Numbers become Tensors; keyword arguments go to fn as they are.
    ShapeError for axes of different sizes, UsageError for in_axes that do not fit the arguments.

        distance = gx.vmap(lambda a, b: gx.linalg.norm(a - b), in_axes=(0, None))
        far = distance(x, w)    # of each row of x, with one w
    """

    if not callable(fn):
        raise UsageError(
            f"vmap: takes a function of Tensors, as in gx.vmap(f)(x), got {fn!r}", user_loc()
        )

    @functools.wraps(fn)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = _per_item("in_axes", in_axes, len(args))
        parts: list[tuple[Any, list[Tensor], int | None]] = []
        for a, axis in zip(args, axes, strict=True):
            leaves: list[Tensor] = []
            tree = as_tensor(a) if isinstance(a, (int, float)) else a
            parts.append((take_apart("vmap", tree, leaves), leaves, axis))
        size = _mapped_size(parts)
        env: dict[Value, Value] = {}
        inside: list[Any] = []
        for form, leaves, axis in parts:
            if axis is not None:
                fronts = [move_axis_to_front(x, axis % x.ndim) for x in leaves]
                leaves = [prim.input("mapped", x.type.with_shape(x.shape[1:])) for x in fronts]
                env.update(
                    (v._value, x._value) for v, x in zip(leaves, fronts, strict=True)
                )
            inside.append(put_together(form, iter(leaves)))
        results, form = results_apart("vmap", fn(*inside, **kwargs))
        found = batch_values(size, env, [r._value for r in results])
        wide = [Tensor(v) if batched else add_batch(size, Tensor(v)) for v, batched in found]
        several = isinstance(form, Container) and form.kind is not dict
        outs = _per_item("out_axes", out_axes, len(form.items) if several else 1)
        outs = [
            axis for axis, item in zip(outs, form.items if several else [form], strict=True)
            for _ in range(count_leaves(item))
        ]
        moved = [_from_front(x, axis) for x, axis in zip(wide, outs, strict=True)]
        return put_together(form, iter(moved))

    return mapped


def batch_values(
    size: Size, env: Mapping[Value, Value], outputs: Sequence[Value], bodies: Bodies | None = None,
) -> list[tuple[Value, bool]]:
    """`outputs` with the keys of `env` replaced by values that have a new axis 0 of `size`.

    A value that needs none of the keys is given back as it is, with False.
    """
    done = dict(env)
    bodies = {} if bodies is None else bodies
    with collector_paused():
        for n in ir.reachable(outputs, stop=env):
            batched = tuple([a in done for a in n.args])
            if not any(batched):
                continue
            with DeclaringAs(loc=n.loc, scope=n.scope):
                if n.op.kind is Kind.REGION:
                    results = _batch_call(size, n, batched, done, bodies)
                else:
                    results = _batch_node(size, n, batched, done)
            done.update(zip(n.outs, results, strict=True))
    return [(done[o], True) if o in done else (o, False) for o in outputs]


def _batch_node(
    size: Size, n: Node, batched: tuple[bool, ...], done: Mapping[Value, Value]
) -> tuple[Value, ...]:
    if n.op.batch is None:
        raise UsageError(f"vmap: {n.op.name} has no batch rule", n.loc)
    xs = [Tensor(done.get(a, a)) for a in n.args]
    got = n.op.batch(size, batched, *xs, **n.attrs)
    results = tuple([t._value for t in (got if isinstance(got, tuple) else (got,))])
    for o, v in zip(n.outs, results, strict=True):
        expected = o.type.with_shape((size, *o.type.shape))
        if v.type is not expected:
            raise ShapeError(
                f"vmap: the batch rule of {n.op.name} must give {expected}, gave {v.type}", n.loc
            )
    return results


def _batch_call(
    size: Size, n: Node, batched: tuple[bool, ...], done: Mapping[Value, Value], bodies: Bodies
) -> tuple[Value, ...]:
    """A call stays a call of the same name, with a batched body; equal calls share one.

    Recursion is as deep as calls are nested, which is as deep as the user's own were.
    """
    key = (n.attrs["body"], batched)
    if key not in bodies:
        bodies[key] = _batch_body(size, n.attrs["body"], batched, bodies)
    args = [done.get(a, a) for a in n.args]
    return ir.apply(n.op, args, **{**n.attrs, "body": bodies[key]})


def _batch_body(size: Size, body: Graph, batched: tuple[bool, ...], bodies: Bodies) -> Graph:
    """body with some inputs batched, and all results."""
    env: dict[Value, Value] = {}
    inputs: list[Value] = []
    for v, is_batched in zip(body.inputs, batched, strict=True):
        if is_batched:
            wide = v.type.with_shape((size, *v.type.shape))
            env[v] = prim.input(v.node.attrs["name"], wide)._value
        inputs.append(env.get(v, v))
    found = batch_values(size, env, body.outputs, bodies)
    outputs = [v if b else add_batch(size, Tensor(v))._value for v, b in found]
    return ir.collect(body.name, inputs, outputs, (), body.output_names)


def _per_item(what: str, axes: Any, n: int) -> list[int | None]:
    if axes is None or isinstance(axes, int):
        return [axes] * n
    if not isinstance(axes, (list, tuple)) or not all(
        a is None or isinstance(a, int) for a in axes
    ):
        raise UsageError(
            f"vmap: {what} must be an int, None or a list of these, got {axes!r}", user_loc()
        )
    if len(axes) != n:
        raise ArgumentError(
            f"vmap: {what} must have one entry for each of {n}, got {tuple(axes)}", user_loc()
        )
    return list(axes)


def _mapped_size(parts: Sequence[tuple[Any, list[Tensor], int | None]]) -> Size:
    """The one size of all mapped axes."""
    size: Size | None = None
    for i, (_, leaves, axis) in enumerate(parts):
        for x in leaves if axis is not None else []:
            assert axis is not None
            if not -x.ndim <= axis < x.ndim:
                raise ArgumentError(
                    f"vmap: in_axes[{i}] must be an axis of {x.type}, got {axis}", user_loc()
                )
            if size is None:
                size = x.shape[axis]
            elif x.shape[axis] != size:
                raise ShapeError(
                    f"vmap: mapped axes must have one size, got {size} and, for argument {i} of "
                    f"type {x.type}, {x.shape[axis]}", user_loc(),
                )
    if size is None:
        raise ArgumentError("vmap: at least one argument must have a mapped axis", user_loc())
    return size


def _from_front(x: Tensor, axis: int | None) -> Tensor:
    """Axis 0 moved to `axis`."""
    if axis is None or not -x.ndim <= axis < x.ndim:
        raise ArgumentError(
            f"vmap: out_axes must be an axis of the result {x.type}, got {axis}", user_loc()
        )
    axis %= x.ndim
    rest = list(range(1, x.ndim))
    return prim.transpose(x, [*rest[:axis], 0, *rest[axis:]]) if axis else x
