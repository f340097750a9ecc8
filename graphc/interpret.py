"""The interpreter: a graph evaluated with the NumPy reference of every op.

It is the oracle that native code is tested against, the `mode="interpret"` and `mode="debug"` of
functions, and what constant folding runs. It takes graphs of any stage, fused or not: the bodies
of region ops run in the same loop, on an explicit stack.

    outputs, updates = evaluate(graph, [x, y])

f16 and bf16 arithmetic: operands are widened to f32 and each result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc import conditions
from graphc.binding import bind_dims, size_value
from graphc.dims import Dim
from graphc.errors import (
    DTypeError,
    ExecutionError,
    GraphcError,
    IndexOutOfRangeError,
    IntegerDivisionError,
    NonFiniteError,
    ShapeError,
    UsageError,
)
from graphc.ir import Graph, Node, State, Value
from graphc.ops.row import Kind
from graphc.types import Array, TensorType, array_text, as_dtype

Watch: TypeAlias = "Callable[[Value, Array], None] | MutableMapping[Any, Any]"

_MOVES = frozenset({Kind.LEAF, Kind.LAYOUT, Kind.META, Kind.RANDOM})


def evaluate(
    graph: Graph, inputs: Sequence[Array], *, states: Mapping[State, Array] | None = None,
    dims: Mapping[str, int] | None = None, watch: Watch | None = None, debug: bool = False,
) -> tuple[list[Array], dict[State, Array]]:
    """Outputs, and the new value of every updated variable; no state is written.

    inputs: one array per graph input, dtype and shape as declared (ShapeError, DTypeError).
    states: values to read instead of `State.array`.
    dims: values of dimension names that stand alone in no input.
    watch: called as watch(value, array) for every value in the graph and its bodies; or a dict
        whose keys are Values or names ("loss", "%3") and whose entries are filled in.
    debug: raise NonFiniteError at the first NaN or infinity that an op makes of finite operands.

    Results never share memory with inputs, states or constants.
    """
    arrays = _checked_inputs(graph, inputs)
    env = bind_dims(_params(graph), [a.shape for a in arrays], dims)
    conditions.check(graph, env)
    watcher = _watcher(graph, watch)
    with np.errstate(all="ignore"):
        results = _run(graph, arrays, env, states or {}, watcher, debug)
    borrowed = {id(a) for a in arrays}
    borrowed.update(id(s.array) for s in graph.variables())
    borrowed.update(id(a) for a in (states or {}).values())
    owned = [_own(a, borrowed) for a in results]
    n = len(graph.outputs)
    return owned[:n], {s: a for (s, _), a in zip(graph.updates, owned[n:], strict=True)}


def value_name(value: Value) -> str:
    """The user's name of a value, or "": an input's, a variable's, or that of a named node."""
    node = value.node
    if node.name:
        return node.name
    if node.op.name == "input":
        return str(node.attrs["name"])
    return f"@{node.attrs['state'].name}" if node.op.name == "variable" else ""


def _params(graph: Graph) -> list[tuple[str, TensorType]]:
    return [(value_name(v), v.type) for v in graph.inputs]


def _checked_inputs(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    if len(inputs) != len(graph.inputs):
        names = ", ".join(value_name(v) for v in graph.inputs)
        raise UsageError(
            f"{graph.name}: takes {len(graph.inputs)} inputs ({names}), got {len(inputs)}"
        )
    arrays = [np.asarray(a) for a in inputs]
    arrays = [a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("=")) for a in arrays]
    for v, a in zip(graph.inputs, arrays, strict=True):
        if as_dtype(a.dtype) is not v.type.dtype:
            raise DTypeError(
                f"input {value_name(v)!r}: expected {v.type}, got an array of {a.dtype}; "
                f"cast it with .astype({v.type.dtype.long!r})"
            )
    return arrays


def _own(a: Array, borrowed: set[int]) -> Array:
    if a.base is not None or id(a) in borrowed or not a.flags.writeable:
        a = a.copy(order="C")
    borrowed.add(id(a))  # an output that is given twice is two arrays
    return np.ascontiguousarray(a) if a.ndim else a


def _watcher(graph: Graph, watch: Watch | None) -> Callable[[Value, Array], None] | None:
    if watch is None or callable(watch):
        return watch
    wanted = _resolve(graph, list(watch))
    into = watch

    def record(value: Value, array: Array) -> None:
        for key in wanted.get(value, ()):
            into[key] = array

    return record


def _resolve(graph: Graph, keys: Sequence[Any]) -> dict[Value, list[Any]]:
    from graphc.text import value_names

    by_name: dict[str, Value] = {}
    known: set[Value] = set()
    for value, name in value_names(graph).items():
        by_name[name] = value
        if own := value_name(value):
            by_name.setdefault(own, value)
        known.add(value)
    wanted: dict[Value, list[Any]] = {}
    for key in keys:
        found = by_name.get(key) if isinstance(key, str) else key
        if found not in known:
            raise UsageError(
                f"watch: {key!r} is not in graph @{graph.name}; a pass may have replaced it "
                "(see the printed graph for what it holds)"
            )
        wanted.setdefault(found, []).append(key)
    return wanted


class _Frame:
    """A graph being evaluated: the values alive and the next node."""

    __slots__ = ("dies", "graph", "next", "region", "values")

    def __init__(self, graph: Graph, arrays: Sequence[Array], region: Node | None):
        self.graph, self.region, self.next = graph, region, 0
        self.values: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True))
        self.dies = _deaths(graph)


def _deaths(graph: Graph) -> list[list[Value]]:
    """Per node, the values that nothing needs after it."""
    live = set(graph.results)
    dies: list[list[Value]] = []
    for n in reversed(graph.nodes):
        gone = []
        for v in (*n.outs, *n.args):
            if v not in live:
                live.add(v)
                gone.append(v)
        dies.append(gone)
    dies.reverse()
    return dies


def _run(
    graph: Graph, arrays: Sequence[Array], env: Mapping[str, int], states: Mapping[State, Array],
    watch: Callable[[Value, Array], None] | None, debug: bool,
) -> list[Array]:
    stack = [_Frame(graph, arrays, None)]
    if watch is not None:
        for v, a in zip(graph.inputs, arrays, strict=True):
            watch(v, a)
    while True:
        frame = stack[-1]
        if frame.next == len(frame.graph.nodes):
            results = [frame.values[v] for v in frame.graph.results]
            stack.pop()
            region = frame.region
            if region is None:
                return results
            frame, node = stack[-1], region
        else:
            node = frame.graph.nodes[frame.next]
            args = [frame.values[a] for a in node.args]
            if node.op.kind is Kind.REGION:
                stack.append(_Frame(node.attrs["body"], args, node))
                if watch is not None:
                    for v, a in zip(stack[-1].graph.inputs, args, strict=True):
                        watch(v, a)
                continue
            try:
                results = _step(node, args, env, states)
                if debug:
                    _check_finite(node, args, results)
            except GraphcError as e:
                raise _at_the_call(e, stack) from e.__cause__
        frame.next += 1
        for v, a in zip(node.outs, results, strict=True):
            frame.values[v] = a
            if watch is not None:
                watch(v, a)
        for v in frame.dies[frame.next - 1]:
            frame.values.pop(v, None)


def _at_the_call(error: GraphcError, stack: Sequence[_Frame]) -> GraphcError:
    """The error with the line of the outermost call: equal calls share one body and its lines."""
    for frame in stack:
        region = frame.region
        if region is not None and region.op.name == "call" and region.loc is not None:
            return type(error)(error.message, region.loc)
    return error


def _step(
    node: Node, args: list[Array], env: Mapping[str, int], states: Mapping[State, Array]
) -> list[Array]:
    """The results of one node that is no region."""
    op = node.op
    if op.name == "variable":
        return [_state_value(node, states)]
    try:
        attrs = {k: bind_attr(v, env) for k, v in node.attrs.items()}
        types = [bind_attr(o.type, env) for o in node.outs]
        if op.name == "constant":
            return [attrs["value"].array]
        if op.ref is None:
            if op.kind is Kind.META:
                return args
            raise ExecutionError(f"{op.name}: has no NumPy reference")
        widened = args if _keeps_bits(node) else [_widen(a) for a in args]
        raw = op.ref(*widened, **attrs)
        results = [np.asarray(r) for r in (raw if isinstance(raw, tuple | list) else (raw,))]
    except GraphcError as e:
        raise _located(type(e), node, e.message) from None
    except ZeroDivisionError as e:
        raise _located(IntegerDivisionError, node, str(e)) from e
    except IndexError as e:
        raise _located(IndexOutOfRangeError, node, str(e)) from e
    except (ValueError, TypeError, ArithmeticError) as e:
        raise _located(ExecutionError, node, str(e)) from e
    if len(results) != len(types):
        raise _located(ExecutionError, node, f"gave {len(results)} results, not {len(types)}")
    return [_typed(node, r, t) for r, t in zip(results, types, strict=True)]


def _state_value(node: Node, states: Mapping[State, Array]) -> Array:
    state: State = node.attrs["state"]
    array = states.get(state, state.array)
    if array is None:
        raise ExecutionError(
            f"variable @{state.name} has no value: the graph was read without its .npz file",
            node.loc,
        )
    if array.shape != state.type.shape or as_dtype(array.dtype) is not state.type.dtype:
        raise ShapeError(
            f"variable @{state.name}: expected {state.type}, got {array_text(array)}",
            node.loc,
        )
    return array


def bind_attr(attr: Any, env: Mapping[str, int]) -> Any:
    """An attribute with every symbolic size replaced by its value; types and tuples included."""
    if isinstance(attr, Dim):
        return size_value(attr, env)
    if isinstance(attr, tuple):
        return tuple(bind_attr(a, env) for a in attr)
    if isinstance(attr, TensorType) and not attr.is_static:
        shape = []
        for s in attr.shape:
            n = size_value(s, env)
            if n < 0:
                raise ShapeError(f"size {s} of {attr} is {n} here, but sizes must be >= 0")
            shape.append(n)
        return attr.with_shape(shape)
    return attr


def _keeps_bits(node: Node) -> bool:
    """Whether the op only moves or renames bits: no arithmetic, so nothing to widen or to check."""
    return node.op.kind in _MOVES or node.op.name == "bitcast"


def _widen(a: Array) -> Array:
    return a.astype(np.float32) if a.dtype.itemsize == 2 and a.dtype.kind not in "iub" else a


def _typed(node: Node, r: Array, want: TensorType) -> Array:
    """The result rounded to a 16-bit float where due; its type asserted."""
    dtype = want.dtype
    if r.dtype == np.float32 and dtype.compute is not dtype:
        r = r.astype(dtype.numpy)
    if r.shape != want.shape or r.dtype != dtype.numpy:
        symbolic = any(not o.type.is_static for o in (*node.args, *node.outs))
        raise _located(
            ShapeError if symbolic else ExecutionError,
            node,
            f"the result must be {want}, got {array_text(r)}",
        )
    return r


def describe(node: Node) -> str:
    """The node as an expression: `gather(%x: f32[10,4], i64[3])`."""
    return f"{node.op.name}({', '.join(_operand(a) for a in node.args)})"


def _operand(v: Value) -> str:
    name = value_name(v)
    return f"{name if name.startswith('@') else '%' + name}: {v.type}" if name else str(v.type)


def _located(kind: type[GraphcError], node: Node, message: str) -> GraphcError:
    prefix = "" if message.startswith(node.op.name) else f"{node.op.name}: "
    return kind(f"{prefix}{message}, in {describe(node)}", node.loc)


def _check_finite(node: Node, args: Sequence[Array], results: Sequence[Array]) -> None:
    if _keeps_bits(node):
        return
    for value, r in zip(node.outs, results, strict=True):
        if not value.type.dtype.is_float:
            continue
        bad = ~np.isfinite(r)
        operands = list(zip(node.args, args, strict=True))
        if not bad.any() or not all(_all_finite(v, a) for v, a in operands):
            continue
        nans = int(np.isnan(r).sum())
        first = np.unravel_index(int(np.argmax(bad)), r.shape) if r.ndim else ()
        made = [(nans, "NaN"), (int(bad.sum()) - nans, "inf")]
        at = f", first at [{','.join(str(int(i)) for i in first)}]" if r.ndim else ""
        raise NonFiniteError(
            f"{node.op.name}: made {' and '.join(f'{n} {what}' for n, what in made if n)} "
            f"in {value.type}{at} from finite operands "
            + ", ".join(_range(v, a) for v, a in operands),
            node.loc,
        )


def _all_finite(v: Value, a: Array) -> bool:
    return not v.type.dtype.is_float or bool(np.isfinite(a).all())


def _range(v: Value, a: Array) -> str:
    if not a.size:
        return f"{_operand(v)}, empty"
    lo, hi = a.min(), a.max()
    return f"{_operand(v)} in [{lo}, {hi}]"
