"""Declaring leaves and names: input, variable, constant, dimensions, scopes, stop_gradient."""

from __future__ import annotations

import itertools
import re
from typing import Any

from graphc import dims, ir, prim
from graphc.convert import ArrayLike, as_shape, as_tensor, axis_of, dtype_of, literal_array
from graphc.dims import Dim, Size
from graphc.errors import ShapeError, UsageError, user_loc
from graphc.ir import State
from graphc.origins import DeclaringAs
from graphc.tensor import Tensor
from graphc.types import Array, TensorType, as_dtype

__all__ = [
    "Variable", "assert_dim", "constant", "dim", "dim_value", "input", "name_scope",
    "placeholder", "stop_gradient", "variable",
]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
_count = itertools.count()


def input(name: str, shape: Any = (), dtype: Any = "float32") -> Tensor:
    """An argument of the functions to come; sizes are ints, names ("batch") or expressions.

    Raises UsageError for a name that is no identifier, ShapeError for an impossible size.

        x = gx.input("x", ("batch", 64))
        pairs = gx.input("pairs", ("2*batch", 3), "int64")
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(f"input: the name must be an identifier, got {name!r}", user_loc())
    return prim.input(name=name, type=TensorType(dtype_of(dtype), as_shape(shape)))


placeholder = input


class Variable(Tensor):
    """State that compiled code reads and, through `updates=`, writes; shared by all functions."""

    __slots__ = ()

    @property
    def state(self) -> State:
        """The array, its name and its lock."""
        state: State = self._value.node.attrs["state"]
        return state

    @property
    def name(self) -> str:
        """What the variable is called in states and headers."""
        return self.state.name

    @property
    def value(self) -> Array:
        """A copy of the present value; assigning checks dtype and shape and copies in place.

        Numbers and lists convert as the arguments of a call do: whole, or not at all.
        """
        with self.state.lock:
            return _array_of(self.state).copy()

    @value.setter
    def value(self, new: Any) -> None:
        from graphc.arguments import as_value  # which calls need, declaring does not

        array = as_value(f"variable {self.name!r}: the value", new, self.type)
        with self.state.lock:
            _array_of(self.state)[...] = array


def _array_of(state: State) -> Array:
    if state.array is None:
        raise UsageError(f"variable {state.name!r} has no value: its .npz was not loaded")
    return state.array


def variable(value: ArrayLike, name: str | None = None, dtype: Any = None) -> Variable:
    """State with an initial value; arrays keep their dtype, numbers and lists become float32 or
    int64. Without a name it is called v0, v1, ... in order of declaration.

    UsageError for a value that is no array, or a name that is not one of identifiers and dots.

        w = gx.variable(np.zeros((64, 10), "float32"), "layer.w")
        count = gx.variable(0, "count")
    """
    if name is None:
        name = f"v{next(_count)}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        better = f"net.{name}"  # names of PyTorch's Sequential begin with a number
        advice = f"; take {better!r}" if _NAME.fullmatch(better) else ""
        raise UsageError(
            "variable: the name must be an identifier or identifiers joined by dots, got "
            f"{name!r}{advice}", user_loc(),
        )
    array = literal_array(value, dtype, "variable: the value")
    state = State(name, TensorType(as_dtype(array.dtype), array.shape), array)
    (out,) = ir.apply("variable", [], state=state)
    return Variable(out)


def constant(value: ArrayLike, dtype: Any = None) -> Tensor:
    """A value baked into the graph; arrays keep their dtype, numbers and lists become float32 or
    int64. UsageError for what is no array, DTypeError for a dtype that is not supported.
    """
    if isinstance(value, Dim):
        return as_tensor(value, dtype)
    return as_tensor(literal_array(value, dtype, "constant: the value"))


def dim(name: str) -> Dim:
    """The symbolic dimension called `name`, for shapes and size arithmetic.

        n = gx.dim("n")
        first = gx.zeros((n // 2 + 1, 64))
    """
    try:
        return dims.dim(name)
    except (ValueError, AttributeError):
        raise UsageError(
            f"dim: a dimension name must be an identifier, got {name!r}", user_loc()
        ) from None


def dim_value(size: Size | str) -> Tensor:
    """The run-time value of a size, as an int64 scalar.

        average = gx.sum(x) / gx.dim_value(x.shape[0])
    """
    return prim.dim(size=as_shape((size,))[0])


def assert_dim(x: ArrayLike, axis: int, size: Size | str) -> Tensor:
    """x with `axis` declared to have `size`; checked when the function is called.

    For sizes that are equal for a reason graphc does not know. ShapeError where they never are.

        even = gx.assert_dim(gx.concat([x[::2], x[1::2]]), 0, x.shape[0])
    """
    t = as_tensor(x)
    i = axis_of("assert_dim", t, axis)
    want = as_shape((size,))[0]
    have = t.shape[i]
    if have == want:
        return t
    if isinstance(have, int) and isinstance(want, int):
        raise ShapeError(f"assert_dim: axis {i} of {t.type} is {have}, never {want}", user_loc())
    shape = (*t.shape[:i], want, *t.shape[i + 1 :])
    return prim.reshape(t, shape=shape, checked=True)


def name_scope(name: str) -> DeclaringAs:
    """`with gx.name_scope("encoder"):` groups what is declared inside, for printing and drawing."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*", name):
        raise UsageError(
            f"name_scope: a scope is letters, digits, _ . - and /, got {name!r}", user_loc()
        )
    return DeclaringAs(push=name)


def stop_gradient(x: ArrayLike) -> Tensor:
    """x, treated as a constant by gradients."""
    return prim.stop_gradient(as_tensor(x))
